"""Estimates of a policy's value from logged data, without playing it.

Replay: let the model and policy run over the log, and keep the events at which they pick the arm
that was logged. What is kept is distributed as if the policy itself had been live, so it also
holds for policies that learn (Li, Chu, Langford and Wang 2011, "Unbiased offline evaluation of
contextual-bandit-based news article recommendation algorithms", Algorithm 3).
"""

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.compiled import compiled, implementations
from tsucb.models.model import Model, believe, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import choose
from tsucb.simulation.simulate import least_pulled
from tsucb.statistics import NORMAL, rate_interval

if TYPE_CHECKING:
    import pandas as pd

    from tsucb.news import Day

CHUNK = 10_000  # events between two looks at the keyboard


class LoggedData(
    NamedTuple(
        "LoggedData",
        [
            ("contexts", NDArray[Any]),
            ("arm", Integers),
            ("reward", Floats),
            ("propensity", Floats),
            ("available", Integers),
            ("ends", Integers),
            ("which", Integers),
        ],
    )
):
    """Events of a log: context, logged arm, its reward, and what else could have been played.

    Parameters
    ----------
    arm
        (N,) index of the arm that was played.
    reward
        (N,) what it paid.
    contexts
        (N, …) of the model's context shape and any real type, or None.
    available
        The different sets of available arms, and (N,) which of them each event had; by default
        every arm that occurs in the log was always available.
    propensity
        (N,) probability with which the logging policy played the logged arm.
    uniform
        True, in place of `propensity`, if each available arm was played with the same probability.

    >>> log = LoggedData(arm=[0, 1, 1], reward=[1, 0, 1], contexts=None, uniform=True)
    >>> log.propensity
    array([0.5, 0.5, 0.5])
    """

    __slots__ = ()

    def __new__(
        cls,
        arm: ArrayLike,
        reward: ArrayLike,
        contexts: ArrayLike | None,
        *,
        available: tuple[Sequence[ArrayLike], ArrayLike] | None = None,
        propensity: ArrayLike | None = None,
        uniform: bool = False,
    ) -> "LoggedData":
        arms = np.array(arm, dtype=np.int64)
        rewards = np.array(reward, dtype=np.float64)
        n = arms.size
        x = np.empty((n, 0)) if contexts is None else np.ascontiguousarray(contexts)
        if n == 0 or arms.shape != (n,) or rewards.shape != (n,) or len(x) != n:
            raise ValueError(
                f"arm, reward and contexts must have one row for each event, at least one, but "
                f"their shapes are {arms.shape}, {rewards.shape} and {x.shape}"
            )
        check_events(np.isfinite(rewards), "the reward is not a finite number")
        finite = np.isfinite(x).reshape(n, -1).all(axis=1) if x.dtype.kind == "f" else True
        check_events(np.broadcast_to(finite, n), "the context has an entry that is not finite")
        if available is None:
            sets, which = [np.unique(arms)], np.zeros(n, dtype=np.int64)
        else:
            sets = [np.unique(np.asarray(each, dtype=np.int64)) for each in available[0]]
            which = np.array(available[1], dtype=np.int64)
        sizes = np.array([each.size for each in sets])
        flat, ends = np.concatenate(sets), np.concatenate([[0], np.cumsum(sizes)])
        # An arm is in its event's set if the pair occurs among all pairs of set and member.
        span = max(arms.max(), flat.max()) + 1
        pairs = np.repeat(np.arange(len(sets)), sizes) * span + flat
        check_events(np.isin(which * span + arms, pairs), "the logged arm was not available")
        if (propensity is None) != uniform:
            raise ValueError(
                "say how the arms were logged: either give the propensity of every event, or "
                "uniform=True if each available arm was played with the same probability"
            )
        chance = 1 / sizes[which] if uniform else np.array(propensity, dtype=np.float64)
        check_events((chance > 0) & (chance <= 1), "the propensity is not above 0 and at most 1")
        return super().__new__(cls, x, arms, rewards, chance, flat, ends, which)

    @property
    def arms(self) -> int:
        """K: one more than the largest index of an arm."""
        return int(self.available.max()) + 1

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The shape of an event's context; (0,) if there is none."""
        return self.contexts.shape[1:]


def check_events(good: NDArray[np.bool_], wrong: str) -> None:
    """Raise an error that names the first event at which something is wrong."""
    if not good.all():
        bad = np.flatnonzero(~good)
        raise ValueError(f"at {bad.size} of {good.size} events, first number {bad[0] + 1}: {wrong}")


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
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0)))
    state = model.start(log.arms)
    pulls = np.zeros(log.arms, dtype=np.int64)
    kept, counts = np.empty(len(log.arm), dtype=np.int64), np.zeros(2, dtype=np.int64)
    floor, initial_pulls = log.propensity.min(), int(getattr(model, "initial_pulls", 0))
    native = type(model) in implementations(believe) and type(policy) in implementations(choose)
    loop = go_through if native else go_through.py_func  # type: ignore[attr-defined]
    for first in range(0, len(log.arm), CHUNK):
        last = min(first + CHUNK, len(log.arm))
        loop(log, model, state, policy, initial_pulls, floor, first, last, pulls, kept, counts,
             rng)  # fmt: skip
        progress(last - first)
    matched, size = counts.tolist()
    name = getattr(policy, "name", type(policy).__name__)
    return estimates(log, name, matched, kept[:size])


@compiled
def go_through(log, model, state, policy, initial_pulls, floor, first, last, pulls, kept, counts,  # type: ignore[no-untyped-def]
               rng):  # fmt: skip
    """Events first … last − 1; counts[0] of them matched so far, counts[1] kept."""
    for n in range(first, last):
        context = log.contexts[n].astype(np.float64)
        available = log.available[log.ends[log.which[n]] : log.ends[log.which[n] + 1]]
        arm = least_pulled(pulls, available) if initial_pulls > 0 else -1
        if arm < 0 or pulls[arm] >= initial_pulls:
            belief = believe(model, state, context, available, counts[1] + 1, rng)
            arm = available[choose(policy, belief, rng)]
        if arm == log.arm[n]:
            counts[0] += 1
            if rng.random() * log.propensity[n] < floor:
                update(model, state, context, arm, log.reward[n])
                pulls[arm] += 1
                kept[counts[1]] = n
                counts[1] += 1


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


def news_events(day: "Day") -> LoggedData:
    """A day of the news log as logged data: articles were displayed uniformly in their pool."""
    from tsucb.news.clicks import users

    articles = np.unique(np.concatenate(day.pools))
    return LoggedData(
        np.searchsorted(articles, day.article),
        day.click,
        users(day).astype(np.uint8).toarray(),
        available=([np.searchsorted(articles, pool) for pool in day.pools], day.pool),
        uniform=True,
    )


def read_events(
    path: str | os.PathLike[str],
    *,
    arm: str,
    reward: str,
    contexts: Sequence[str] | None = None,
    available: str | None = None,
    propensity: str | None = None,
    uniform: bool = False,
    intercept: bool = True,
) -> LoggedData:
    """Logged data from a CSV or Parquet file with one row for each event, in order.

    Parameters
    ----------
    path
        A `.csv` file (possibly `.csv.gz`) with a header, or a `.parquet` file.
    arm, reward, propensity
        Names of the columns; arms may have any names.
    contexts
        Names of numeric columns; by default all that are not named otherwise.
    available
        Column with the arms that could have been played: a list, or text such as `a|b|c` with
        `|`, `;`, `,` or spaces between the names; every arm of the log by default.
    uniform
        As for `LoggedData`.
    intercept
        Whether a feature that is always 1 is added to contexts.
    """
    table = read_table(Path(path))
    named = [name for name in (arm, reward, available, propensity) if name is not None]
    columns = table.columns.astype(str).tolist()
    features = [c for c in columns if c not in named] if contexts is None else list(contexts)
    for name in [*named, *features]:
        if name not in columns:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(columns)}")
        check_events(table[name].notna().to_numpy(), f"column {name!r} is empty")
    played = table[arm].astype(str).tolist()
    sets, which = [tuple(set(played))], [0] * len(played)
    if available is not None:
        numbers: dict[tuple[str, ...], int] = {}
        which = [numbers.setdefault(arms_of(e), len(numbers)) for e in table[available]]
        sets = list(numbers)
    names = sorted({*played, *(name for each in sets for name in each)})
    index = {name: i for i, name in enumerate(names)}
    ones = np.ones((len(played), 1 if features and intercept else 0))
    return LoggedData(
        [index[name] for name in played],
        numeric(table, reward),
        np.column_stack([ones, *(numeric(table, name) for name in features)]),
        available=([[index[name] for name in each] for each in sets], which),
        propensity=None if propensity is None else numeric(table, propensity),
        uniform=uniform,
    )


def read_table(path: Path) -> "pd.DataFrame":
    """The table in a CSV or Parquet file."""
    import pandas as pd

    if not path.exists():
        raise ValueError(f"there is no file {path}")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if re.search(r"\.csv(\.gz)?$", path.name):
            return pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    raise ValueError(f"{path} is neither .csv, .csv.gz nor .parquet")


def arms_of(entry: Any) -> tuple[str, ...]:
    """The arms in an entry of a column of available arms: a list, or text.

    >>> arms_of("a|b c"), arms_of([1, 2]), arms_of(7)
    (('a', 'b', 'c'), ('1', '2'), ('7',))
    """
    if isinstance(entry, list | tuple | np.ndarray):
        return tuple(map(str, entry))
    return tuple(re.split(r"[\s|;,]+", str(entry).strip()))


def numeric(table: "pd.DataFrame", name: str) -> Floats:
    """A column of numbers, or a sentence on what is wrong with it."""
    column = table[name]
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name!r} holds text, such as {str(column.iloc[0])!r}, where numbers are "
            "expected; encode it, or name the context columns that are numbers"
        )
    return column.to_numpy(dtype=np.float64)
