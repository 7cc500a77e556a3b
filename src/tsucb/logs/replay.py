"""Estimates of a policy's value from logged data, without playing it.

Replay: let the model and policy run over the log, and keep the events at which they pick the arm
that was logged. What is kept is distributed as if the policy itself had been live, so it also
holds for policies that learn (Li, Chu, Langford and Wang 2011, "Unbiased offline evaluation of
contextual-bandit-based news article recommendation algorithms", Algorithm 3).

One replay is one life of the policy: with another seed, or other visitors, it learns other things
and earns something else. So a policy is replayed on the log and on resampled logs, each time with
other draws: the mean over these lives is the value, and their spread says how much a life depends
on the visitors and on luck.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tsucb.checks import whole_number
from tsucb.compiler import Stream, compiled, held
from tsucb.logs.logged_data import LoggedData
from tsucb.models.model import Model, training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import rate_interval
from tsucb.numeric.streams import KEEP, POLICY, stream
from tsucb.policies.names import check_policy
from tsucb.step import Player, new_player, next_arm, runs_compiled

CHUNK = 10_000  # events between two looks at the keyboard
LIVES = 20


@dataclass(frozen=True, eq=False)
class Replay:
    """What replay says about a policy: the mean reward of a life of this length.

    Parameters
    ----------
    policy : its name
    events : N, in the log
    matched : events of the first life at which the policy picked the logged arm
    kept : indices of those that count (see `replay`)
    rate, low, high : mean reward of the policy in all lives, and its 95 % interval; NaN where a
        life matched no event
    logged_rate : mean reward of the logging policy
    lift, lift_low, lift_high : rate / logged_rate − 1, and its 95 % interval; NaN where rewards
        can be negative or the policy earned nothing
    lives : of each life, the indices of the events that count; the first is on the log as it is
    rates, logged_rates : (lives,) mean reward of each life, and of the log of each life
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
    lives: list[Integers]
    rates: Floats
    logged_rates: Floats


def replay(
    log: LoggedData,
    model: Any,
    policy: Any,
    *,
    seed: int = 0,
    lives: int = LIVES,
    progress: Callable[[int], None] = lambda events: None,
) -> Replay:
    """Run a model and a policy over a log, keeping the events where they pick the logged arm.

    A kept event must be equally likely whatever the context and the arm picked. A match at event
    n has the probability π_n of the logged arm, so it is kept with probability min π / π_n: always
    if all propensities are the same, as with uniform logging from pools of one size. The model
    learns from kept events only.

    The interval is about the expected mean reward of a life of as many decisions as are kept. It
    holds the luck of a whole life, though the value is a mean over several, so it is rather wide.

    Parameters
    ----------
    log
        N events in the order in which they happened.
    model, policy
        As for `tsucb.simulate`.
    seed
        Of what the policy draws, what is kept, and how the log is resampled.
    lives
        How many: one on the log, the others on resampled logs; with 1 there is no interval.
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
    check_replay(log, model)
    policy = check_policy(policy)
    lives = whole_number("lives", lives)
    name, n = getattr(policy, "name", type(policy).__name__), len(log.arm)
    matches, every, rates, logged = list[int](), list[Integers](), np.empty(lives), np.empty(lives)
    for run in range(lives):
        rng, part, rows = stream(seed, run, KEEP), log, np.arange(n)
        if run:  # in the order of time from any event on, as the first ones may decide a life
            rows = np.roll(np.sort(rng.choice(rows, n)), rng.integers(n))
            fields = ("contexts", "arm", "reward", "propensity", "which")
            part = log._replace(**{field: getattr(log, field)[rows] for field in fields})
        player = new_player(model, policy, log.arms, seed, run)
        found, counts = np.empty(n, dtype=np.int64), np.zeros(2, dtype=np.int64)
        arguments = part.propensity.min(), found, counts
        pass_over(part, player, go_through, arguments, [stream(seed, run, POLICY), rng], progress)
        kept = found[: counts[1]]
        if run == 0 and not kept.size:
            raise ValueError(
                f"{name} never picked the logged arm in {n:,} events; give a longer log"
            )
        matches.append(int(counts[0]))
        every.append(rows[kept])
        rates[run] = part.reward[kept].mean() if kept.size else math.nan
        logged[run] = part.reward.mean()
    numbers = rate_and_lift(rates, logged, log.reward, every[0])
    return Replay(name, n, matches[0], every[0], *numbers, every, rates, logged)


def rate_and_lift(
    rates: Floats, logged: Floats, reward: Floats, kept: Integers
) -> tuple[float, float, float, float, float, float, float]:
    """Return the rate with its interval, the logged rate, and the lift with its interval."""
    several, rate, low, high = rates.size > 1, float(rates.mean()), math.nan, math.nan
    if several and not math.isnan(rate):  # never narrower than the interval of the first life
        _, _, least, most = rate_interval(reward[kept])
        width = life_width(rates)
        low, high = float(np.fmin(rate - width, least)), float(np.fmax(rate + width, most))
    # The logging policy plays arm a with probability π: its rate is the plain mean of the log.
    logged_rate = float(logged[0])
    ratio = factor = math.nan
    if reward.min() >= 0 and rate > 0:  # otherwise a ratio of rates would mean nothing
        ratio = rate / logged_rate
        if several and (rates > 0).all():
            factor = math.exp(life_width(np.log(rates / logged)))
    return rate, low, high, logged_rate, ratio - 1, ratio / factor - 1, ratio * factor - 1


def check_replay(log: LoggedData, model: Any) -> None:
    """Raise ValueError if a model cannot be replayed on a log."""
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


def pass_over(
    log: LoggedData, player: Player, loop: Any, arguments: Iterable[Any],
    generators: Iterable[np.random.Generator],
    progress: Callable[[int], None] = lambda events: None,
) -> None:  # fmt: skip
    """Take a player through a log, and train its model whenever that is due.

    `loop(log, player, first, last, *arguments, *streams)` is compiled, goes through some events,
    and returns the number of the next one, and whether training is due.
    """
    fast = runs_compiled(player.model, player.policy)
    streams = [(held if fast else Stream)(rng) for rng in generators]
    train, done = None, 0
    while done < len(log.arm):
        before, last = done, min(done + CHUNK, len(log.arm))
        step = loop if fast else loop.py_func
        done, due = step(log, player, done, last, *arguments, *streams)
        if due:
            train = train or player.model.trainer([player.state])
            train()
        progress(done - before)


def life_width(values: Floats) -> float:
    """Return half the width of the 95 % interval for the mean of lives: that of a single life.

    Lives on resampled logs vary as lives on other logs would. Their mean is nearer to what is
    expected than one life is, but nobody knows by how much, as they all come from the same log.
    """
    from scipy.stats import t

    return float(t.ppf(0.975, values.size - 1) * values.std(ddof=1))


def untried(propensity: Floats, offered: Integers) -> float:
    """Return the share of offered arms that the log could not have played; 0 if by chance.

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


# Compiled code takes every array that it reads or writes as an argument of its own.
@compiled
def go_through(log, player, first, last, floor, kept, counts, policy_stream, keep_stream):  # type: ignore[no-untyped-def]
    """Play events first … last − 1, or until training is due; return the next event, and if so.

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
