"""The members of an ensemble: fit them to bootstrap samples, store them, predict with them."""

import copy
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import within
from tsucb.numeric.arrays import Floats, Integers

if TYPE_CHECKING:
    from tsucb.models.ensemble import Ensemble

MOST_PREDICTION = 1e100  # with smaller predictions the moments of a belief are finite
ALL = -1  # replaces the arm if all arms share an estimator


class Observations(NamedTuple):
    """Rewards with the numbers `first` to `last` − 1, with their contexts and arms."""

    first: int
    last: int
    contexts: Floats
    chosen: Integers
    rewards: Floats


class Members(NamedTuple):
    """Fitted estimators, and what they were fitted to."""

    estimator: Any  # the model's; all members are copies of it
    rewards: int  # number of rewards
    arms: int  # number of arms
    level: float  # mean of the rewards
    spread: float  # standard deviation of the rewards
    fitted: list[dict[int, Any]]  # each member's estimators: by arm that it has seen, or for `ALL`


class Job:
    """A fit in a daemon thread, which does not keep the process from ending.

    Parameters
    ----------
    rewards
        The number of rewards that the members are fitted to.
    work
        Returns the fitted members.
    """

    def __init__(self, rewards: int, work: Callable[[], Members]) -> None:
        self.rewards, self.process = rewards, os.getpid()
        self.members: Members | None = None
        self.error: Exception | None = None
        self.reported = False
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()

    def run(self, work: Callable[[], Members]) -> None:
        """Do the work; store the members or the error."""
        try:
            self.members = work()
        except Exception as error:  # `refit_when_due` warns of it
            self.error = error

    @property
    def over(self) -> bool:
        """Whether the fit has succeeded or failed, or its thread belongs to a parent process."""
        done = self.members is not None or self.error is not None
        return done or self.process != os.getpid()


class Fits(np.ndarray[Any, np.dtype[np.int64]]):
    """An array with the fitted members as an attribute, which its copies get, too.

    So copies of a state share its members until one of them is fitted again, and members are freed
    with the last state that uses them. An array from a file or from another process has none.
    """

    members: Members | None
    job: Job | None

    def __array_finalize__(self, parent: Any) -> None:
        self.members, self.job = getattr(parent, "members", None), getattr(parent, "job", None)


def fit(
    model: "Ensemble", key: NDArray[np.uint32], data: Observations, arms: int,
    before: Members | None,
) -> Members:  # fmt: skip
    """Fit all members to the data; with `partial_fit`, continue from the members `before`."""
    fitted: list[dict[int, Any]] = [{} for _ in range(model.members)]
    first, size = 0, max(len(data.rewards), 1)
    if not model.incremental:
        level, spread = moments(data.rewards)
    elif before is None or before.arms != arms or before.rewards < data.first:
        level, spread, size = *moments(data.rewards[: model.interval]), model.interval
    else:
        level, spread, size = before.level, before.spread, model.interval
        fitted, first = copy.deepcopy(before.fitted), before.rewards - data.first
    members = Members(model.estimator, data.last, arms, level, spread, fitted)
    for m, member in enumerate(fitted):
        # The same at every fit: the n-th number drawn is for the n-th reward.
        times = np.random.default_rng([*key, m]).poisson(1.0, data.last)[data.first :]
        seed = [*key, m, data.last]
        rng = np.random.default_rng(seed)
        for i in range(first, len(data.rewards), size):
            fit_member(model, members, member, data, slice(i, i + size), times, seed, rng)
    return members


def fit_member(
    model: "Ensemble", members: Members, member: dict[int, Any], data: Observations, part: slice,
    times: Integers, seed: list[int], rng: np.random.Generator,
) -> None:  # fmt: skip
    """Fit one member to a part of the data, with each reward `times` times.

    At the first fit of an estimator, add artificial rewards.
    """
    contexts, chosen, rewards = data.contexts[part], data.chosen[part], data.rewards[part]
    # Drawn for every arm, so that an arm's numbers do not depend on which others were seen.
    extra = np.repeat(np.arange(members.arms), model.artificial)
    places = rng.integers(len(rewards), size=extra.size)
    drawn = rng.normal(members.level, members.spread, size=extra.size)
    again = np.repeat(np.arange(len(rewards)), times[part])
    for a in [ALL] if model.shared else np.unique(chosen).tolist():
        seen = again if a == ALL else again[chosen[again] == a]
        x, arm, y = contexts[seen], chosen[seen], rewards[seen]
        if a not in member:
            new = slice(None) if a == ALL else extra == a
            x = np.concatenate((x, contexts[places[new]]))
            arm, y = np.concatenate((arm, extra[new])), np.concatenate((y, drawn[new]))
        if len(y):  # by chance a member may see no reward of this arm
            if a not in member:
                member[a] = seeded_copy(model.estimator, [*seed, a + 1])
            call = member[a].partial_fit if model.incremental else member[a].fit
            attempt(model, call, with_arm(x, arm, members.arms) if a == ALL else x, y)


def moments(rewards: Floats) -> tuple[float, float]:
    """Return mean and standard deviation of rewards; 1 for the latter if all are equal."""
    if not rewards.size:  # all rewards that members were fitted to may be forgotten by now
        return 0.0, 1.0
    spread = float(rewards.std())
    return float(rewards.mean()), spread if spread > 0 else 1.0


def with_arm(contexts: Floats, arm: Integers, arms: int) -> Floats:
    """Return contexts with K more columns: 1 in the column of the arm, 0 in the others."""
    return np.hstack((contexts, np.equal.outer(arm, np.arange(arms))))


def seeded_copy(estimator: Any, seed: list[int]) -> Any:
    """Return a copy of the estimator with its `random_state` parameters set."""
    own = copy.deepcopy(estimator)
    names = own.get_params() if hasattr(own, "get_params") else {}
    states = [name for name in names if name.split("__")[-1] == "random_state"]
    if states:
        drawn = np.random.SeedSequence(seed).generate_state(len(states))
        own.set_params(**dict(zip(states, drawn.tolist(), strict=True)))
    return own


def attempt(model: "Ensemble", call: Callable[..., Any], *given: Any) -> Any:
    """Call an estimator; raise ValueError with its message if it fails."""
    try:
        return call(*given)
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{type(model.estimator).__name__} failed on {len(given[0])} rows "
            f"({type(error).__name__}: {message}); take another estimator or other settings of it"
        ) from error


def predictions(
    model: "Ensemble", members: Members | None, offsets: Floats, x: Floats, arms: Integers
) -> Floats:
    """Return each member's predictions for the arms at the context x, (M, n)."""
    if members is None:
        return np.ascontiguousarray(offsets[arms].T)
    draws: Floats = members.level + members.spread * offsets[arms].T
    if model.shared:
        known = arms < members.arms
        rows = with_arm(np.tile(x, (int(known.sum()), 1)), arms[known], members.arms)
        for m, member in enumerate(members.fitted):
            if len(rows) and ALL in member:
                draws[m, known] = attempt(model, member[ALL].predict, rows)
    else:
        for m, member in enumerate(members.fitted):
            for i, a in enumerate(arms.tolist()):
                if a in member:
                    draws[m, i] = attempt(model, member[a].predict, x[None])[0]
    if not within(draws, MOST_PREDICTION):
        raise ValueError(
            f"{type(model.estimator).__name__} predicts rewards that are not finite; take another "
            "estimator or other settings of it"
        )
    return draws
