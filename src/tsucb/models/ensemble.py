"""Any estimator with scikit-learn's `fit` and `predict`, made a model by the bootstrap.

The state holds data and no fitted estimators: which rewards the members were fitted to, in what
order, and the key of all that is drawn for them. So it is arrays like any other state, and what is
fitted can always be fitted again, as after loading a file, which never holds code. In the meantime
a process keeps fitted members for as long as there is a state that they belong to.
"""

import copy
import hashlib
import math
import os
import re
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.samples import SampleBelief
from tsucb.checks import positive, truth, whole_number, within
from tsucb.models.model import Model, check_arm_count
from tsucb.numeric.arrays import Floats, Integers
from tsucb.structure import copied

PREDICTIONS = 1e100  # of an estimator may be this large, and a belief has finite moments


class Ensemble(
    Model,
    NamedTuple(
        "Ensemble",
        [
            ("estimator", Any),
            ("members", int),
            ("features", int),
            ("shared", bool),
            ("interval", int),
            ("growth", float),
            ("memory", int),
            ("pulls_first", int),
            ("artificial", int),
            ("incremental", bool),
            ("background", bool),
            ("description", str),
        ],
    ),
):
    """A regression of your choice, fitted many times; what its members predict is the posterior.

    Member m sees every reward Poisson(1) times, which is the bootstrap for data that come one by
    one, and a few artificial rewards of every arm, without which members would agree on what none
    has seen. A belief has one draw for each member: what it predicts for the arms.

    All members are fitted anew, from scratch, each time there are `growth` times as many rewards.
    With `background=True` a thread does that, and decisions are made by the members there are until
    it is done; simulations are reproducible without, and with it depend on the time that fits take.

    Parameters
    ----------
    estimator
        What has `fit(X, y)` and `predict(X)`, such as a regression, a forest or a pipeline of
        scikit-learn; a copy is taken. Not a classifier: rewards are predicted, 0 and 1 included.
        Its parameters called `random_state` are set.
    members
        M, how many are fitted. A decision takes as long as M predictions.
    features
        d, the length of a context.
    shared
        One estimator for all arms, which finds the arm among its features, as K columns of 0 and 1
        behind the context: for forests and boosting, where arms have something in common. By
        default every arm has estimators of its own, as it must be for linear regressions.
    interval, growth
        Refit at multiples of `interval` rewards, when there are `growth` times as many as before.
    memory
        Rewards kept to fit to; beyond it, the oldest are forgotten.
    initial_pulls
        How often every arm is pulled before the policy decides.
    artificial
        Rewards of every arm that each member is given beside what was seen, at contexts that were
        seen, and drawn from a normal with the mean and spread of all rewards.
    incremental
        Use `partial_fit(X, y)` with `interval` rewards at a time, and `fit` never; so it is anyway
        for an estimator without `fit`.
    background
        Refit in a thread.

    >>> from sklearn.linear_model import Ridge
    >>> model = Ensemble(Ridge(), members=5, features=1)
    >>> contexts, arms = np.linspace(0.0, 1.0, 100)[:, None], np.arange(100) % 2
    >>> state = model.fit(2, contexts, arms, 3.0 * contexts[:, 0] * arms)
    >>> model.belief(state, [1.0], rng=np.random.default_rng(0)).mean.round()
    array([0., 3.])

    References: Eckles and Kaptein (2014), "Thompson sampling with the online bootstrap"; Osband and
    Van Roy (2015), "Bootstrapped Thompson sampling and deep exploration", on artificial rewards.
    """

    __slots__ = ()

    def __new__(
        cls,
        estimator: Any,
        members: int = 10,
        *,
        features: int,
        shared: bool = False,
        interval: int = 10,
        growth: float = 1.2,
        memory: int = 10_000,
        initial_pulls: int = 2,
        artificial: int = 1,
        incremental: bool = False,
        background: bool = False,
    ) -> "Ensemble":
        by_parts = bool(incremental) or not hasattr(estimator, "fit")
        needed = ("partial_fit" if by_parts else "fit", "predict")
        missing = [name for name in needed if not callable(getattr(estimator, name, None))]
        if isinstance(estimator, type) or missing:
            raise TypeError(
                f"estimator must be an instance with {needed[0]}(X, y) and predict(X), such as "
                f"Ridge(), not {estimator!r}"
            )
        if hasattr(estimator, "predict_proba"):
            raise TypeError(
                f"{type(estimator).__name__} is a classifier, but rewards are predicted as numbers;"
                " give the regression of its kind"
            )
        if not growth >= 1:
            raise ValueError(f"growth must be at least 1, but it is {growth!r}")
        own = copy.deepcopy(estimator)
        return super().__new__(
            cls,
            own,
            whole_number("members", members, least=2),
            whole_number("features", features),
            truth("shared", shared),
            whole_number("interval", interval),
            positive("growth", growth),
            whole_number("memory", memory),
            whole_number("initial_pulls", initial_pulls, least=0),
            whole_number("artificial", artificial, least=0),
            by_parts,
            truth("background", background),
            described(own),
        )

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        """How often every arm is pulled before the policy decides."""
        return self.pulls_first

    def described(self) -> dict[str, Any]:
        """Its settings as a file has them: the estimator in words."""
        return {k: v for k, v in self._asdict().items() if k != "estimator"}

    def start(self, arms: int, rng: np.random.Generator | None = None) -> "History":
        """The state before any data; without `rng` the same every time."""
        rng = np.random.default_rng(0) if rng is None else rng
        arms = check_arm_count(arms)
        return History(
            np.zeros(arms, dtype=np.int64),
            np.zeros((self.memory, self.features)),
            np.zeros(self.memory, dtype=np.int64),
            np.zeros(self.memory),
            np.zeros(1, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
            np.zeros(3, dtype=np.uint64),
            rng.standard_normal(arms * self.members),
            rng.integers(0, 2**32, size=2, dtype=np.uint32),
        )

    def extend(self, state: "History", arms: int) -> "History":
        """A state with further arms at the end, each with the prior."""
        old = state.pulls.size
        # From a stream of its own, determined by the state's.
        fresh = self.start(arms, np.random.default_rng([*state.key, old, arms]))
        longer: History = copied(state)._replace(
            pulls=np.concatenate((state.pulls, fresh.pulls)),
            offsets=np.concatenate((state.offsets, fresh.offsets)),
        )
        KEPT.bind(longer, KEPT.of(self, state))
        return longer

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d,), the same for all arms."""
        return (self.features,)

    def belief(
        self,
        state: "History",
        context: ArrayLike | None = None,
        arms: ArrayLike | None = None,
        *,
        step: int | None = None,
        rng: np.random.Generator,
    ) -> Belief:
        """What the members predict for the available arms; see `Model.belief`."""
        count = state.pulls.size
        available = self.check_arms(np.arange(count) if arms is None else arms, count)
        x = self.check_context(context, count)
        latest = KEPT.of(self, state).latest()
        draws = predictions(self, latest, state.offsets.reshape(count, -1), x, available)
        t = int(state.pulls.sum()) + 1 if step is None else step
        return SampleBelief(draws, pulls=state.pulls[available], step=t)

    def update(
        self, state: "History", context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> None:
        """Learn from one observation or many, refitting when it is due; see `Model.update`."""
        for x, a, y in zip(*self.observations(state, context, arm, reward), strict=True):
            remember(self, state, x, int(a), float(y))
            kept = KEPT.of(self, state)
            if kept.job is not None and kept.job.over:
                kept = promote(state, kept, kept.job)
            if refit_due(self, state, kept):
                kept = refit(self, state, kept)
            KEPT.bind(state, kept)

    def training_due(self, state: "History") -> bool:
        """Never: `update` refits by itself, so that whoever calls it need not."""
        return False

    def check_state(self, state: "History", rewards: int) -> None:
        """Raise a ValueError for a memory that cannot have come about."""
        arms, seen = state.pulls.size, int(state.seen[0])
        if not 0 <= seen <= rewards or (state.pulls < 0).any() or state.pulls.sum() > rewards:
            raise ValueError("counts of rewards that cannot be")
        for fitted, known in (state.fitted.tolist(), state.wanted.tolist()):
            if not 0 <= fitted <= seen or not (fitted > 0) <= known <= arms:
                raise ValueError("fits that cannot be")
        if ((state.chosen < 0) | (state.chosen >= arms)).any():
            raise ValueError("a memory of arms that there are not")
        if not within(state.contexts, self.largest) or not within(state.rewards, self.largest):
            raise ValueError("a memory of numbers that cannot be")
        if not within(state.offsets, 100.0):
            raise ValueError("a prior that cannot be")


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


def described(estimator: Any) -> str:
    """An estimator in words that are the same in every process.

    >>> described(re.compile("a"))
    "Pattern re.compile('a')"
    """
    settings = estimator.get_params() if hasattr(estimator, "get_params") else estimator
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(estimator).__qualname__} {settings!r}")


def remember(model: Ensemble, state: History, x: Floats, arm: int, reward: float) -> None:
    """Take one observation into the memory and the fingerprint."""
    place = int(state.seen[0]) % model.memory
    state.contexts[place], state.chosen[place], state.rewards[place] = x, arm, reward
    state.pulls[arm] += 1
    state.seen[0] += 1
    said = state.prints[:1].tobytes() + x.tobytes() + np.array([arm, reward]).tobytes()
    state.prints[0] = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little")


def rows_until(model: Ensemble, state: History, last: int) -> Rows:
    """The observations up to one, as far back as they are remembered; copies."""
    first = min(max(0, int(state.seen[0]) - model.memory), last)
    places = np.arange(first, last) % model.memory
    return Rows(first, last, state.contexts[places], state.chosen[places], state.rewards[places])


# Fitting


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
    model: Ensemble, key: NDArray[np.uint32], rows: Rows, arms: int, before: Fitted | None
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
    model: Ensemble, fitted: Fitted, member: dict[int, Any], seed: list[int], rows: Rows,
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


def attempt(model: Ensemble, call: Callable[..., Any], *given: Any) -> Any:
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
    model: Ensemble, fitted: Fitted | None, offsets: Floats, x: Floats, arms: Integers
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


# When, and by whom


def refit_due(model: Ensemble, state: History, kept: "Kept") -> bool:
    """Whether there are enough more rewards than at the last fit, and none is under way."""
    if kept.job is not None and not kept.job.over:
        return False
    if kept.job is None and state.wanted[0]:  # begun in another process
        return True
    last = max(int(state.fitted[0]), int(state.wanted[0]))
    wanted = max(last + model.interval, math.ceil(last * model.growth))
    return int(state.seen[0]) >= -(-wanted // model.interval) * model.interval


def refit(model: Ensemble, state: History, kept: "Kept") -> "Kept":
    """Fit the members to all that was seen, or begin to."""
    last = int(state.seen[0]) // model.interval * model.interval
    rows, arms = rows_until(model, state, last), state.pulls.size
    given = model, state.key.copy(), rows, arms, kept.latest()
    if model.background:
        state.wanted[:], state.prints[2] = (last, arms), state.prints[0]
        return Kept(model, state, kept.fitted, Job(lambda: fit(*given)))
    fitted = fit(*given)
    state.fitted[:], state.prints[1] = (last, arms), state.prints[0]
    return Kept(model, state, fitted)


def promote(state: History, kept: "Kept", job: "Job") -> "Kept":
    """Use what was fitted in the background, unless that failed."""
    if job.error is not None:
        if not job.reported:
            job.reported = True
            warnings.warn(
                f"a refit in the background failed, and the last members go on: {job.error}",
                stacklevel=3,
            )
        return kept
    state.fitted[:], state.prints[1] = state.wanted, state.prints[2]
    state.wanted[:], state.prints[2] = 0, 0
    return Kept(kept.model, state, job.fitted)


class Job:
    """A fit under way in a thread of its own, which does not keep the process from ending."""

    def __init__(self, work: Callable[[], Fitted]) -> None:
        self.fitted: Fitted | None = None
        self.error: Exception | None = None
        self.reported, self.process = False, os.getpid()
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()

    def run(self, work: Callable[[], Fitted]) -> None:
        """Do the work, and keep what comes of it."""
        try:
            self.fitted = work()
        except Exception as error:  # whatever it is, the next reward says it
            self.error = error

    @property
    def over(self) -> bool:
        """Whether it has come to an end."""
        return self.fitted is not None or self.error is not None


class Kept:
    """The members that a state refers to: those in use, and those that are being fitted.

    All copies of a state have the same, until they learn more.
    """

    def __init__(
        self, model: Ensemble, state: History, fitted: Fitted | None, job: Job | None = None
    ) -> None:
        self.model, self.fitted, self.job = model, fitted, job
        KEPT.add(self, state)

    def latest(self) -> Fitted | None:
        """The newest members there are."""
        done = self.job.fitted if self.job is not None else None
        return self.fitted if done is None else done


class Keeper:
    """Who has which members: kept for as long as there is a state that they belong to."""

    def __init__(self) -> None:
        self.by_print: weakref.WeakValueDictionary[Any, Kept] = weakref.WeakValueDictionary()
        self.by_state: dict[int, Kept] = {}
        # For copies of a state that are made after it has gone.
        self.recent: deque[Kept] = deque(maxlen=4)

    @staticmethod
    def key(model: Ensemble, state: History) -> Any:
        """What decides the members, but for the arrays."""
        marks = (state.key, state.fitted, state.wanted, state.prints[1:])
        return (id(model.estimator), *model[1:], *(mark.tobytes() for mark in marks))

    def add(self, kept: Kept, state: History) -> None:
        """Let copies of the state find them."""
        self.by_print[self.key(kept.model, state)] = kept
        self.recent.append(kept)
        self.bind(state, kept)

    def bind(self, state: History, kept: Kept) -> None:
        """Keep them at least as long as the state."""
        place = id(state.seen)
        if place not in self.by_state:
            weakref.finalize(state.seen, self.by_state.pop, place, None).atexit = False
        self.by_state[place] = kept

    def of(self, model: Ensemble, state: History) -> Kept:
        """The members of a state; fitted again to the same data if they are nowhere."""
        kept = self.by_state.get(id(state.seen)) or self.by_print.get(self.key(model, state))
        if kept is None or kept.model.estimator is not model.estimator:
            last, arms = state.fitted.tolist()
            rows = rows_until(model, state, last)
            fitted = fit(model, state.key, rows, arms, None) if last else None
            kept = Kept(model, state, fitted)
        elif kept.job is not None and kept.job.process != os.getpid():
            kept = Kept(model, state, kept.fitted)  # the thread stayed with the parent process
        return kept


KEPT = Keeper()
