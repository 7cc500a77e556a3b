"""Estimates of a policy's value from logged data, without playing it.

Replay: let the model and policy run over the log, and keep the events at which they pick the arm
that was logged. What is kept is distributed as if the policy itself had been live, so it also
holds for policies that learn (Li, Chu, Langford and Wang 2011, "Unbiased offline evaluation of
contextual-bandit-based news article recommendation algorithms", Algorithm 3).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tsucb.compiler import Plain, compiled, held
from tsucb.logs.logged_data import LoggedData
from tsucb.models.model import Model, training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import NORMAL, rate_interval
from tsucb.step import new_player, next_arm, runs_compiled
from tsucb.streams import KEEP, POLICY, stream

CHUNK = 10_000  # events between two looks at the keyboard


@dataclass(frozen=True)
class Replay:
    """What replay says about a policy.

    Parameters
    ----------
    policy : its name
    events : N, in the log
    matched : events at which the policy picked the logged arm
    kept : indices of those that count (see `replay`)
    rate, low, high : mean reward of the policy, and its 95 % interval
    logged_rate : mean reward of the logging policy
    lift, lift_low, lift_high : rate / logged_rate − 1, and its 95 % interval; NaN where rewards
        can be negative or the policy earned nothing
    """

    policy: str
    events: int
    matched: int
    kept: Integers
    rate: float
    low: float
    high: float
    logged_rate: float
    lift: float
    lift_low: float
    lift_high: float


def replay(
    log: LoggedData,
    model: Any,
    policy: Any,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda events: None,
) -> Replay:
    """Run a model and a policy over a log, keeping the events where they pick the logged arm.

    A kept event must be equally likely whatever the context and the arm picked. A match at event
    n has the probability π_n of the logged arm, so it is kept with probability min π / π_n: always
    if all propensities are the same, as with uniform logging from pools of one size. The model
    learns from kept events only.

    Parameters
    ----------
    log
        N events in the order in which they happened.
    model, policy
        As for `tsucb.simulate`.
    seed
        Of what the policy draws, and of what is kept.
    progress
        Called with the number of events gone through since last time.

    >>> import numpy as np, tsucb
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.integers(2, size=4_000)
    >>> log = LoggedData(arm, rng.random(4_000) < np.array([0.1, 0.3])[arm], None, uniform=True)
    >>> result = replay(log, tsucb.BernoulliArms(), tsucb.TSUCB(1))
    >>> result.low < 0.3 < result.high
    True
    """
    shape = log.context_shape
    if isinstance(model, Model) and shape != (expected := model.context_shape(log.arms) or (0,)):
        raise ValueError(
            f"the log has contexts of shape {shape}, but {type(model).__name__} expects {expected}"
        )
    missing = untried(log.propensity, np.diff(log.ends)[log.which])
    if missing:
        raise ValueError(
            f"the log never tried {100 * missing:.0f} % of the arms that it offered, so replay "
            "would be wrong; log with some exploration, such as Agent(exploration=0.05)"
        )
    rng, keep_rng = stream(seed, 0, POLICY), stream(seed, 0, KEEP)
    player = new_player(model, policy, log.arms, seed, 0)
    kept, counts = np.empty(len(log.arm), dtype=np.int64), np.zeros(2, dtype=np.int64)
    floor = log.propensity.min()
    streams: tuple[Any, Any] = Plain(rng), Plain(keep_rng)
    loop = go_through.py_func  # type: ignore[attr-defined]
    if runs_compiled(model, policy):
        loop, streams = go_through, (held(rng), held(keep_rng))
    train, done = None, 0
    while done < len(log.arm):
        before, last = done, min(done + CHUNK, len(log.arm))
        done, due = loop(log, player, floor, done, last, kept, counts, *streams)
        if due:
            train = train or model.trainer([player.state])
            train()
        progress(done - before)
    matched, size = counts.tolist()
    name = getattr(policy, "name", type(policy).__name__)
    return estimates(log, name, matched, kept[:size])


def untried(propensity: Floats, offered: Integers) -> float:
    """The share of offered arms that the log could not have played; 0 if that may be chance.

    1/propensity has the number of arms that could be played for its mean.

    >>> untried(np.full(100, 0.5), np.full(100, 2)), untried(np.ones(100), np.full(100, 4))
    (0.0, 0.75)
    """
    if propensity.size < 2:
        return 0.0
    short = offered - 1 / propensity
    chance = 4 * float(short.std(ddof=1)) / math.sqrt(short.size)
    share = float(short.mean()) / float(offered.mean())
    return share if float(short.mean()) > chance + 1e-6 else 0.0


@compiled
def go_through(log, player, floor, first, last, kept, counts, policy_stream, keep_stream):  # type: ignore[no-untyped-def]
    """Events first … last − 1, or until the model wants to train; the next event, and if it does.

    counts[0] of them matched so far, counts[1] were kept.
    """
    rng, keep_rng = policy_stream.rng, keep_stream.rng
    for n in range(first, last):
        context = log.contexts[n].astype(np.float64)
        available = log.available[log.ends[log.which[n]] : log.ends[log.which[n] + 1]]
        choice = next_arm(player, context, available, counts[1] + 1, rng)
        arm = available[choice.arm]
        if arm == log.arm[n]:
            counts[0] += 1
            if keep_rng.random() * log.propensity[n] < floor:
                update(player.model, player.state, context, arm, log.reward[n])
                player.chosen[arm] += 1
                kept[counts[1]] = n
                counts[1] += 1
                if training_due(player.model, player.state):
                    return n + 1, True
    return last, False


def estimates(log: LoggedData, policy: str, matched: int, kept: Integers) -> Replay:
    """Rates and lift with their intervals, from the events that were kept."""
    if not kept.size:
        raise ValueError(
            f"{policy} never picked the logged arm in {len(log.arm):,} events; give a longer log"
        )
    rate, error, low, high = rate_interval(log.reward[kept])
    # The logging policy plays arm a with probability π: its rate is the plain mean of the log.
    logged, logged_error, *_ = rate_interval(log.reward)
    if log.reward.min() < 0 or not rate > 0:  # a ratio of rates would mean nothing
        lift = (math.nan,) * 3
    else:
        ratio = rate / logged
        # To first order, relative errors add up in squares; the kept events are few among all.
        spread = math.exp(NORMAL * math.hypot(error / rate, logged_error / logged))
        lift = (ratio - 1, ratio / spread - 1, ratio * spread - 1)
    return Replay(policy, len(log.arm), matched, kept, rate, low, high, logged, *lift)
