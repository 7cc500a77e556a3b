"""The members of an ensemble: what they are fitted to, how, and what they predict.

The state of an ensemble holds data and no fitted estimators: which rewards the members were fitted
to, in what order, and the key of all that is drawn for them. So it is arrays like any other state,
and what is fitted can always be fitted again, as after loading a file, which never holds code.
"""

import copy
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import within
from tsucb.numeric.arrays import Floats, Integers

if TYPE_CHECKING:
    from tsucb.models.ensemble import Ensemble

PREDICTIONS = 1e100  # of an estimator may be this large, and a belief has finite moments


class History(NamedTuple):
    """What an ensemble has seen, and which part of it the members are fitted to."""

    pulls: Integers  # (K,)
    contexts: Floats  # (memory, d)
    chosen: Integers  # (memory,) arms
    rewards: Floats  # (memory,)
    seen: Integers  # (1,) rewards so far
    fitted: Integers  # (2,) rewards and arms that the members in use were fitted to
    wanted: Integers  # (2,) the same of the fit that was last begun in the background
    prints: NDArray[np.uint64]  # (3,) of the history so far, and at those two fits
    # (K · M,) what members believe of arms they have not seen, in spreads of the rewards around
    # their mean. Flat, as an agent then leaves the columns of removed arms to those in `chosen`.
    offsets: Floats
    key: NDArray[np.uint32]  # (2,) of all that is drawn


class Rows(NamedTuple):
    """Observations `first` to `last` − 1 of a history, in their order."""

    first: int
    last: int
    contexts: Floats
    chosen: Integers
    rewards: Floats


def remember(model: "Ensemble", state: History, x: Floats, arm: int, reward: float) -> None:
    """Take one observation into the memory and the fingerprint."""
    place = int(state.seen[0]) % model.memory
    state.contexts[place], state.chosen[place], state.rewards[place] = x, arm, reward
    state.pulls[arm] += 1
    state.seen[0] += 1
    said = state.prints[:1].tobytes() + x.tobytes() + np.array([arm, reward]).tobytes()
    state.prints[0] = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little")


def rows_until(model: "Ensemble", state: History, last: int) -> Rows:
    """The observations up to one, as far back as they are remembered; copies."""
    first = min(max(0, int(state.seen[0]) - model.memory), last)
    places = np.arange(first, last) % model.memory
    return Rows(first, last, state.contexts[places], state.chosen[places], state.rewards[places])


class Fitted:
    """Members, and what they were fitted to.

    Parameters
    ----------
    last, arms
        Rewards and arms that there were.
    level, spread
        Mean and standard deviation of the rewards.
    predictors
        For every member a mapping: from each arm to its estimator, or from `ALL` to the one.
    """

    def __init__(
        self, last: int, arms: int, level: float, spread: float, predictors: list[dict[int, Any]]
    ) -> None:
        self.last, self.arms, self.level, self.spread = last, arms, level, spread
        self.predictors = predictors


ALL = -1  # all arms, where they share an estimator


def fit(
    model: "Ensemble", key: NDArray[np.uint32], rows: Rows, arms: int, before: Fitted | None
) -> Fitted:
    """Fit all members to the rows; with `partial_fit`, go on from those that were fitted before."""
    if not model.incremental:
        level, spread = moments(rows.rewards)
        fitted = Fitted(rows.last, arms, level, spread, [{} for _ in range(model.members)])
        parts = [slice(None)]
    elif before is None or before.arms != arms or before.last < rows.first:
        level, spread = moments(rows.rewards[: model.interval])
        fitted = Fitted(rows.last, arms, level, spread, [{} for _ in range(model.members)])
        parts = cut(0, len(rows.rewards), model.interval)
    else:
        predictors = copy.deepcopy(before.predictors)
        fitted = Fitted(rows.last, arms, before.level, before.spread, predictors)
        parts = cut(before.last - rows.first, len(rows.rewards), model.interval)
    for m, member in enumerate(fitted.predictors):
        # An observation counts the same at every fit, as its number is drawn at the same place.
        times = np.random.default_rng([*key, m]).poisson(1.0, rows.last)[rows.first :]
        rng = np.random.default_rng([*key, m, rows.last])
        for part in parts:
            show(model, fitted, member, [*key, m, rows.last], rows, part, times, rng)
    return fitted


def cut(first: int, last: int, size: int) -> list[slice]:
    """A range in parts.

    >>> cut(2, 7, 3)
    [slice(2, 5, None), slice(5, 7, None)]
    """
    return [slice(i, min(i + size, last)) for i in range(first, last, size)]


def show(
    model: "Ensemble", fitted: Fitted, member: dict[int, Any], seed: list[int], rows: Rows,
    part: slice, times: Integers, rng: np.random.Generator,
) -> None:  # fmt: skip
    """Show one member a part of the rows, each so many times, and artificial ones at first."""
    contexts, chosen, rewards = rows.contexts[part], rows.chosen[part], rows.rewards[part]
    # Of the same place in the stream for every arm, whatever was seen of it.
    extra = np.repeat(np.arange(fitted.arms), model.artificial)
    places = rng.integers(len(rewards), size=extra.size)
    drawn = rng.normal(fitted.level, fitted.spread, size=extra.size)
    again = np.repeat(np.arange(len(rewards)), times[part])
    for a in [ALL] if model.shared else np.unique(chosen).tolist():
        seen = again if a == ALL else again[chosen[again] == a]
        x, arm, y = contexts[seen], chosen[seen], rewards[seen]
        if a not in member:
            new = slice(None) if a == ALL else extra == a
            x = np.concatenate((x, contexts[places[new]]))
            arm, y = np.concatenate((arm, extra[new])), np.concatenate((y, drawn[new]))
        if len(y):  # by chance it may have no reward of this arm
            if a not in member:
                member[a] = seeded(model.estimator, [*seed, a + 1])
            call = member[a].partial_fit if model.incremental else member[a].fit
            attempt(model, call, with_arm(x, arm, fitted.arms) if a == ALL else x, y)


def moments(rewards: Floats) -> tuple[float, float]:
    """Mean and standard deviation; 1 for the latter where all are equal."""
    spread = float(rewards.std())
    return float(rewards.mean()), spread if spread > 0 else 1.0


def with_arm(contexts: Floats, arm: Integers, arms: int) -> Floats:
    """Contexts, and behind each the arm as one of K columns that is 1."""
    return np.hstack((contexts, np.equal.outer(arm, np.arange(arms))))


def seeded(estimator: Any, seed: list[int]) -> Any:
    """A copy of the estimator with random states of its own."""
    own = copy.deepcopy(estimator)
    names = own.get_params() if hasattr(own, "get_params") else {}
    states = [name for name in names if name.split("__")[-1] == "random_state"]
    if states:
        drawn = np.random.SeedSequence(seed).generate_state(len(states))
        own.set_params(**dict(zip(states, drawn.tolist(), strict=True)))
    return own


def attempt(model: "Ensemble", call: Callable[..., Any], *given: Any) -> Any:
    """What the estimator answers, or a sentence on what it complained about."""
    try:
        return call(*given)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{type(model.estimator).__name__} failed on {len(given[0])} rows "
            f"({type(error).__name__}: {said}); take another estimator or other settings of it"
        ) from error


def predictions(
    model: "Ensemble", fitted: Fitted | None, offsets: Floats, x: Floats, arms: Integers
) -> Floats:
    """What every member predicts for every arm, (M, n)."""
    if fitted is None:
        return np.ascontiguousarray(offsets[arms].T)
    draws: Floats = fitted.level + fitted.spread * offsets[arms].T
    if model.shared:
        known = arms < fitted.arms
        told = with_arm(np.tile(x, (int(known.sum()), 1)), arms[known], fitted.arms)
        for m, member in enumerate(fitted.predictors):
            if len(told) and ALL in member:
                draws[m, known] = attempt(model, member[ALL].predict, told)
    else:
        row = x[None]
        for m, member in enumerate(fitted.predictors):
            for i, a in enumerate(arms.tolist()):
                if a in member:
                    draws[m, i] = attempt(model, member[a].predict, row)[0]
    if not within(draws, PREDICTIONS):
        raise ValueError(
            f"{type(model.estimator).__name__} predicts rewards that are not finite; take another "
            "estimator or other settings of it"
        )
    return draws
