"""What every model shares: checked methods for plain Python, generic functions for compiled code.

A model holds hyper-parameters only. What it has learned is a state, a named tuple of arrays that
`start` makes and `update` changes in place; keep, copy or save it as you like.

What a model implements:

| function | does | |
|---|---|---|
| `believe(model, state, context, arms, step, rng)` | the belief about some arms | needed |
| `update(model, state, context, arm, reward)` | learn from one reward, in place | needed |
| `believe_predicted(model, state, mean, std, arms, step, rng)` | … of moments | for batches |
| `forget(model, state, part, weight)` | move towards the prior | for `Forgetting` |
| `training_due(model, state)` | whether to call `trainer` now | for networks |
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.checks import LARGEST, SMALLEST, flushed, whole_number, within
from tsucb.compiler import compiled, generic, hook, implements, run
from tsucb.numeric.arrays import Floats, Integers


@functools.partial(generic, method="belief")
def believe(
    model: Any, state: Any, context: Any, arms: Integers, step: int, rng: np.random.Generator
) -> Belief:
    """The belief about the given arms at the context."""
    belief: Belief = model.belief(state, context, arms, step=step, rng=rng)
    return belief


@hook
def believe_predicted(
    model: Any, state: Any, mean: Floats, std: Floats, arms: Integers, step: int,
    rng: np.random.Generator,
) -> Belief:  # fmt: skip
    """The belief about the given arms, of which `Model.predictions` has these moments.

    For models whose beliefs at many contexts share most of their work; see `Agent.choose_many`.
    What it changes of the moments it changes in place: they are the belief's estimate and radius.
    """


@generic
def update(model: Any, state: Any, context: Any, arm: int, reward: float) -> None:
    """Learn from one reward, in place."""
    model.update(state, context, arm, reward)


@hook
def forget(model: Any, state: Any, part: int, weight: float) -> None:
    """Move one part of the state towards the prior, in place: earlier rewards count `weight`.

    A part is an arm, or the whole state of a model whose arms share their parameters.
    """


@generic
def training_due(model: Any, state: Any) -> bool:
    """Whether the model wants to train now, before it learns or believes anything more."""
    return hasattr(model, "training_due") and bool(model.training_due(state))


class Model:
    """A prior and a likelihood: turns rewards into beliefs."""

    __slots__ = ()

    # How often every arm is pulled before the policy decides, for models that need it.
    initial_pulls: int = 0

    # Whether the arms share all parameters, so that the state has a single part.
    shares_parameters: bool = False

    # Whether all runs of a simulation want to train after the same steps, and do so together.
    trains_together: bool = False

    # The largest reward or feature that it can learn from; whatever is computed stays finite.
    largest: float = LARGEST

    def start(self, arms: int, rng: np.random.Generator | None = None) -> Any:
        """The state before any data: every arm has the prior.

        Parameters
        ----------
        arms
            K.
        rng
            For models that start at random; the same state every time without.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method start(arms, rng)")

    def extend(self, state: Any, arms: int) -> Any:
        """A state with further arms at the end, each with the prior."""
        raise NotImplementedError(f"{type(self).__name__} must have a method extend(state, arms)")

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """The shape of one step's context for this number of arms; () for none."""
        raise NotImplementedError(f"{type(self).__name__} must have a method context_shape(arms)")

    @property
    def trains(self) -> bool:
        """Whether it has something to train between steps, when `training_due` says so."""
        return type(self).trainer is not Model.trainer

    def trainer(self, states: Sequence[Any]) -> Callable[[], None]:
        """What trains the models of these states together, in place, whenever it is called."""
        raise NotImplementedError(f"{type(self).__name__} does not train")

    def belief(
        self,
        state: Any,
        context: ArrayLike | None = None,
        arms: ArrayLike | None = None,
        *,
        step: int | None = None,
        rng: np.random.Generator,
    ) -> Belief:
        """The belief about the available arms.

        Parameters
        ----------
        state
            From `start`, `fit` or earlier updates.
        context
            What is known about this step, of the model's `context_shape`; None where it has none.
        arms
            Indices of the available arms, all by default.
        step
            t, for policies that ask for it; one more than the rewards seen by default.
        rng
            For models that draw part of their belief, such as `NIGLinear`.
        """
        count = self.arms(state)
        available = self.check_arms(np.arange(count) if arms is None else arms, count)
        x = self.check_context(context, count)
        t = int(state_pulls(state).sum()) + 1 if step is None else step
        belief: Belief = run(believe, self, state, x, available, t, rng)
        return belief

    def predictions(self, state: Any, contexts: Floats, arms: Integers) -> tuple[Floats, Floats]:
        """What `believe_predicted` takes: (N, n) of n arms at N contexts, in one pass over all."""
        raise NotImplementedError(f"{type(self).__name__} predicts one context at a time")

    def update(
        self, state: Any, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> None:
        """Learn from one observation, or from many: arrays with one row per observation.

        Everything is checked before anything changes.
        """
        learn_many(self, state, *self.observations(state, context, arm, reward))

    def observations(
        self, state: Any, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> tuple[Floats, Integers, Floats]:
        """Contexts, arms and rewards with one row per observation, checked."""
        count = self.arms(state)
        arms = np.atleast_1d(np.asarray(arm))
        rewards = self.check_rewards(np.atleast_1d(np.asarray(reward, dtype=np.float64)))
        self.check_arms(np.unique(arms), count)
        if rewards.shape != arms.shape:
            raise ValueError(
                f"{arms.size} arms and {rewards.size} rewards do not match; give one reward per arm"
            )
        shape = self.context_shape(count)
        contexts = np.zeros((arms.size, *(shape or (0,))))
        if shape:
            given = np.asarray(context, dtype=np.float64)
            contexts[:] = self.check_context(given, count, observations=arms.size)
        return contexts, arms.astype(np.int64), rewards

    def fit(
        self, arms: int, contexts: ArrayLike | None, pulled: ArrayLike, rewards: ArrayLike
    ) -> Any:
        """The state after a history, the same as `start` and one `update` with all of it."""
        state = self.start(arms)
        self.update(state, contexts, pulled, rewards)
        return state

    def widened(self, features: int) -> "Model":
        """The model for contexts with more features."""
        raise ValueError(f"{type(self).__name__} cannot take further features; use AdaptiveLinear")

    def widen(self, state: Any, features: int, places: Any = None) -> Any:
        """A state of the widened model: the further features were 0 in every context so far.

        `places` are those of the first features among all of them, by default the same; features
        beyond them have always been 0, and are dropped.
        """
        raise ValueError(f"{type(self).__name__} cannot take further features; use AdaptiveLinear")

    def widened_rows(self, rows: Floats, features: Any, places: Any = None) -> Floats:
        """Contexts, one row each, as the widened model has them."""
        out = np.zeros((len(rows), features))
        at = np.arange(rows.shape[1]) if places is None else places
        out[:, at] = rows[:, : len(at)]
        return out

    def merged(self, first: Any, second: Any, base: Any) -> Any:
        """The state after everything that two states have learned since they were one, `base`.

        All three are of the same arms. What is known after it is what would be known if all of it
        had been learned in one place.
        """
        raise ValueError(
            f"what {type(self).__name__} has learned in two places does not add up; merge agents "
            "with AdaptiveLinear, HybridLinear, or another model without forgetting or training"
        )

    def release(self, state: Any, arms: Integers) -> None:
        """Let some arms go, in place, for models in which they taught something of the others."""

    def coefficients(self, state: Any, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every parameter of an arm; none by default."""
        return np.zeros(0), np.zeros(0)

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The names of an arm's parameters, given those of the features."""
        return features

    def check_state(self, state: Any, rewards: int) -> None:
        """Raise a ValueError if a state, of the right shapes and finite, cannot have come about.

        For files, which may be damaged or made to deceive; `rewards` is how many were learned from.
        """

    def check_settings(self) -> None:
        """Raise a ValueError for settings that the constructor would not have made; for files."""

    def arms(self, state: Any) -> int:
        """The number of arms in a state."""
        return int(state_pulls(state).size)

    def check_arms(self, arms: ArrayLike, count: int) -> Integers:
        """The arms as indices, or a sentence on what is wrong with them."""
        array = np.asarray(arms)
        if array.ndim != 1 or array.size == 0:
            raise ValueError("no arm is available; give at least one arm index")
        if array.dtype.kind not in "iu":
            raise TypeError(f"arms are given by whole-number indices, not {array.dtype}")
        if array.min() < 0 or array.max() >= count:
            wrong = array[(array < 0) | (array >= count)][0]
            raise ValueError(f"arm {wrong} is unknown; the {count} arms are 0 to {count - 1}")
        if np.unique(array).size != array.size:
            raise ValueError("an arm is listed twice among the available arms; list each once")
        return np.ascontiguousarray(array, dtype=np.int64)

    def check_context(
        self, context: ArrayLike | None, arms: int, observations: int | None = None
    ) -> Floats:
        """The context as a finite array of the right shape, or a sentence on what is wrong."""
        shape = self.context_shape(arms)
        if not shape:
            return np.zeros(0)
        array = np.asarray(context, dtype=np.float64)
        if observations is not None and array.shape == shape and observations == 1:
            array = array[None]
        expected = shape if observations is None else (observations, *shape)
        if array.shape != expected:
            raise ValueError(
                f"the context has shape {array.shape}, but {type(self).__name__} expects {expected}"
            )
        check_finite(array, self.largest)
        return np.ascontiguousarray(flushed(array))

    def check_rewards(self, rewards: Floats) -> Floats:
        """The rewards, or a sentence on what is wrong with them."""
        if not within(rewards, self.largest):
            raise ValueError(
                "a reward is NaN or infinite, or beyond "
                f"±{self.largest:g}; every reward must be a finite number"
            )
        return rewards

    def __reduce__(self) -> Any:  # the fields are not always the arguments of the constructor
        return type(self)._make, (tuple(self),)  # type: ignore[attr-defined, arg-type]


def check_finite(context: Floats, largest: float = LARGEST) -> None:
    """Complain about a context with NaN, infinity, or numbers near it."""
    if not within(context, largest):
        raise ValueError(
            f"the context contains NaN or infinity, or a number beyond ±{largest:g}; every entry "
            "must be finite"
        )


def state_pulls(state: Any) -> Integers:
    """How often each arm was played."""
    pulls: Integers = state.pulls
    return pulls


def gaussian_prior(
    features: int, mean: ArrayLike, covariance: ArrayLike
) -> tuple[int, Floats, Floats, float]:
    """A prior over d parameters from scalars, vectors or matrices.

    Returns d, the mean (d,), the lower Cholesky root of the covariance (d, d), and the smallest
    standard deviation in any direction.
    """
    d = whole_number("features", features)
    center, spread = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if center.shape not in ((), (d,)) or not np.isfinite(center).all():
        raise ValueError(f"prior_mean must be a finite number or vector of length {d}")
    if spread.shape not in ((), (d,), (d, d)) or not np.isfinite(spread).all():
        raise ValueError(
            f"the prior must be a finite number, vector of length {d} or {d} x {d} matrix"
        )
    matrix = spread if spread.ndim == 2 else np.diag(np.broadcast_to(spread, d))
    smallest = np.linalg.eigvalsh(matrix).min()
    if not smallest > 0 or not np.allclose(matrix, matrix.T):
        raise ValueError(
            "the prior variance must be positive in every direction (and a matrix symmetric), "
            f"but the smallest is {smallest:g}"
        )
    root: Floats = np.linalg.cholesky(matrix).astype(np.float64)
    mean, std = np.broadcast_to(center, d).astype(np.float64), float(np.sqrt(smallest))
    check_prior(mean, root, std)
    return d, mean, root, std


def check_prior(mean: Floats, root: Floats, smallest: float) -> None:
    """Complain about a prior that `gaussian_prior` would not have made."""
    diagonal = np.diag(root)
    if not within(mean) or not within(root) or not (diagonal >= SMALLEST).all():
        raise ValueError(
            f"the prior has means beyond ±{LARGEST:g}, or standard deviations that are not from "
            f"{SMALLEST:g} to {LARGEST:g}"
        )
    if np.triu(root, 1).any() or not 0 < smallest <= 1.000001 * diagonal.min():
        raise ValueError("a prior that no covariance leads to")


@implements(training_due, Model)
def never_training(model, state):  # type: ignore[no-untyped-def]
    return False


def trains(model: Any) -> bool:
    """Whether the model has something to train between steps."""
    return isinstance(model, Model) and model.trains


def learn_many(model: Any, state: Any, contexts: Floats, arms: Integers, rewards: Floats) -> None:
    """Learn from observations that have been checked, in their order, training when it is due."""
    done, due, train = 0, False, None
    while done < arms.size:
        done, due = update_until_due(model, state, contexts, arms, rewards, done)
        if due:
            train = train or model.trainer([state])
            train()


@compiled
def update_until_due(model, state, contexts, arms, rewards, first):  # type: ignore[no-untyped-def]
    """Learn from observation `first` on, until training is due; the number of the next one."""
    for i in range(first, arms.size):
        update(model, state, contexts[i], arms[i], rewards[i])
        if training_due(model, state):
            return i + 1, True
    return arms.size, False


def check_arm_count(arms: int) -> int:
    """The number of arms of a bandit, or a sentence on what is wrong."""
    return whole_number("the number of arms", arms)
