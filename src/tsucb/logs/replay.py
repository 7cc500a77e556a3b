"""Estimate the value of a policy by replaying it over a log.

Let the model and policy run over the log, and keep the events at which they pick the arm that was
logged. The kept events are distributed as if the policy itself had been live, also for policies
that learn (Li, Chu, Langford and Wang 2011, "Unbiased offline evaluation of
contextual-bandit-based news article recommendation algorithms", Algorithm 3).

One replay is one life of the policy: with another seed, or other visitors, it learns other things
and earns something else. So a policy is replayed on the log and on resampled logs, each time with
other draws. The mean over these lives is the value, and their spread says how much a life depends
on the visitors and on luck.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

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

CHUNK = 10_000  # events between two chances to interrupt
LIVES = 20


@dataclass(frozen=True, eq=False)
class Replay:
    """The result of replaying a policy: the mean reward of a life of this length.

    Parameters
    ----------
    policy : its name
    events : N, in the log
    matched : events of the first life at which the policy picked the logged arm
    kept : indices of the matched events that count (see `replay`)
    rate, low, high : mean reward of the policy over all lives, and its 95 % interval; NaN where a
        life matched no event
    logged_rate : mean reward of the logging policy
    lift, lift_low, lift_high : rate / logged_rate − 1, and its 95 % interval; NaN where rewards
        can be negative or the policy earned nothing
    lives : for each life, the indices of the events that count; the first is on the log as it is
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

    An event must be kept with the same probability whatever its context and the arm picked. A match
    at event n has the probability π_n of the logged arm, so it is kept with probability
    min π / π_n: always if all propensities are the same, as with uniform logging from sets of one
    size. The model learns from kept events only.

    The interval is about the expected mean reward of a life of as many decisions as are kept. It
    includes the luck of one whole life, though the value is a mean over several, so it is rather
    wide.

    Parameters
    ----------
    log
        N events in the order in which they happened.
    model, policy
        As for `tsucb.simulate`.
    seed
        For the policy's draws, for keeping matches and for resampling the log.
    lives
        Number of replays: one on the log, the others on resampled logs; with 1 there is no
        interval.
    progress
        Called with the number of events replayed since the last call.

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
    runs = range(whole_number("lives", lives))
    results = [play_life(log, model, policy, seed, run, progress) for run in runs]
    matched, kept, rates, logged = map(list, zip(*results, strict=True))
    numbers = rate_and_lift(np.array(rates), np.array(logged), log.reward, kept[0])
    name, events = getattr(policy, "name", type(policy).__name__), len(log.arm)
    return Replay(
        name, events, matched[0], kept[0], *numbers, kept, np.array(rates), np.array(logged)
    )


class Matches(NamedTuple):
    """The events of a life at which the policy picks the logged arm."""

    floor: float  # the smallest propensity
    kept: Integers  # (N,) the kept ones, counts[1] so far
    counts: Integers  # how many matched, and how many were kept


def play_life(
    log: LoggedData, model: Any, policy: Any, seed: int, run: int, progress: Callable[[int], None]
) -> tuple[int, Integers, float, float]:
    """Replay a policy once: life 0 on the log, the others on resampled logs.

    Return the number of matches, the indices of the kept events, and the mean rewards of these and
    of the life's log. Raise ValueError if nothing matches in life 0.
    """
    n, rng = len(log.arm), stream(seed, run, KEEP)
    part, rows = log, np.arange(n)
    if run:  # in the order of time, but from a random event on, as the first may decide a life
        rows = np.roll(np.sort(rng.choice(rows, n)), rng.integers(n))
        fields = ("contexts", "arm", "reward", "propensity", "which")
        part = log._replace(**{field: getattr(log, field)[rows] for field in fields})
    player = new_player(model, policy, log.arms, seed, run)
    matches = Matches(part.propensity.min(), np.empty(n, np.int64), np.zeros(2, np.int64))
    play_log(part, player, replay_events, matches, [stream(seed, run, POLICY), rng], progress)
    kept = matches.kept[: matches.counts[1]]
    if not run and not kept.size:
        name = getattr(policy, "name", type(policy).__name__)
        raise ValueError(f"{name} never picked the logged arm in {n:,} events; give a longer log")
    rate = float(part.reward[kept].mean()) if kept.size else math.nan
    return int(matches.counts[0]), rows[kept], rate, float(part.reward.mean())


def rate_and_lift(
    rates: Floats, logged: Floats, reward: Floats, kept: Integers
) -> tuple[float, float, float, float, float, float, float]:
    """Return the rate with its interval, the logged rate, and the lift with its interval."""
    several, rate, low, high = rates.size > 1, float(rates.mean()), math.nan, math.nan
    if several and not math.isnan(rate):  # never narrower than the first life's own interval
        _, _, least, most = rate_interval(reward[kept])
        width = life_width(rates)
        low, high = float(np.fmin(rate - width, least)), float(np.fmax(rate + width, most))
    # The logging policy played every arm with its propensity: its rate is the mean of the log.
    logged_rate = float(logged[0])
    ratio = factor = math.nan
    if reward.min() >= 0 and rate > 0:  # otherwise a ratio of rates means nothing
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


def play_log(
    log: LoggedData, player: Player, loop: Any, record: Any,
    generators: Iterable[np.random.Generator],
    progress: Callable[[int], None] = lambda events: None,
) -> None:  # fmt: skip
    """Take a player through a log, and train its model whenever that is due.

    The compiled function `loop(log, player, first, last, record, *streams)` goes through events
    from `first`, writes into `record`, and returns the next event and whether training is due.
    """
    fast = runs_compiled(player.model, player.policy)
    streams = [(held if fast else Stream)(rng) for rng in generators]
    train, done = None, 0
    while done < len(log.arm):
        before, last = done, min(done + CHUNK, len(log.arm))
        step = loop if fast else loop.py_func
        done, due = step(log, player, done, last, record, *streams)
        if due:
            train = train or player.model.trainer([player.state])
            train()
        progress(done - before)


def life_width(values: Floats) -> float:
    """Return half the width of the 95 % interval for the mean of lives: that of a single life.

    Lives on resampled logs vary as lives on other logs would. Their mean is nearer to the expected
    value than one life is, but how much nearer is unknown, as they all come from the same log.
    """
    from scipy.stats import t

    return float(t.ppf(0.975, values.size - 1) * values.std(ddof=1))


def untried(propensity: Floats, offered: Integers) -> float:
    """Return the share of offered arms that the log could not have played; 0 within chance.

    The mean of 1/propensity is the number of arms that could be played.

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
def replay_events(log, player, first, last, matches, policy_stream, keep_stream):  # type: ignore[no-untyped-def]
    """Replay events first … last − 1, or until training is due.

    Return the next event, and whether training is due.
    """
    rng, keep_rng, kept, counts = policy_stream.rng, keep_stream.rng, matches.kept, matches.counts
    for n in range(first, last):
        context = log.contexts[n].astype(np.float64)
        available = log.available[log.ends[log.which[n]] : log.ends[log.which[n] + 1]]
        choice = next_arm(player, context, available, counts[1] + 1, rng)
        arm = available[choice.arm]
        if arm == log.arm[n]:
            counts[0] += 1
            if keep_rng.random() * log.propensity[n] < matches.floor:
                update(player.model, player.state, context, arm, log.reward[n])
                player.chosen[arm] += 1
                kept[counts[1]] = n
                counts[1] += 1
                if training_due(player.model, player.state):
                    return n + 1, True
    return last, False
