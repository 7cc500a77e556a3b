"""What every model shares: checked methods for plain Python, generic functions for compiled code.

A model holds hyper-parameters only. What it has learned is a state, a named tuple of arrays that
`start` makes and `update` changes in place; keep, copy or save it as you like.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.compiled import compiled, generic_inlined
from tsucb.numeric.arrays import Floats, Integers


@generic_inlined
def believe(
    model: Any, state: Any, context: Any, arms: Integers, step: int, rng: np.random.Generator
) -> Belief:
    """The belief about the given arms at the context."""
    belief: Belief = model.belief(state, context, arms, step=step, rng=rng)
    return belief


@generic_inlined
def update(model: Any, state: Any, context: Any, arm: int, reward: float) -> None:
    """Learn from one reward, in place."""
    model.update(state, context, arm, reward)


class Model:
    """A prior and a likelihood: turns rewards into beliefs."""

    __slots__ = ()

    # How often every arm is pulled before the policy decides, for models that need it.
    initial_pulls: int = 0

    def start(self, arms: int) -> Any:
        """The state before any data: every arm has the prior."""
        raise NotImplementedError

    def extend(self, state: Any, arms: int) -> Any:
        """A state with further arms at the end, each with the prior."""
        raise NotImplementedError

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """The shape of one step's context for this number of arms; () for none."""
        raise NotImplementedError

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
        belief: Belief = _believe(self, state, x, available, t, rng)
        return belief

    def update(
        self, state: Any, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> None:
        """Learn from one observation, or from many: arrays with one row per observation.

        Everything is checked before anything changes.
        """
        count = self.arms(state)
        arms = np.atleast_1d(np.asarray(arm))
        rewards = self.check_rewards(np.atleast_1d(np.asarray(reward, dtype=np.float64)))
        self.check_arms(np.unique(arms), count)
        if rewards.shape != arms.shape:
            raise ValueError(
                f"{arms.size} arms and {rewards.size} rewards do not match; give one reward per arm"
            )
        shape = self.context_shape(count)
        contexts = np.zeros((arms.size, *shape))
        if shape:
            given = np.asarray(context, dtype=np.float64)
            contexts[:] = self.check_context(given, count, observations=arms.size)
        self.absorb(state, contexts, arms.astype(np.int64), rewards)

    def absorb(self, state: Any, contexts: Floats, arms: Integers, rewards: Floats) -> None:
        """Learn from observations that have been checked, one row each."""
        _update_many(self, state, contexts, arms, rewards)

    def fit(
        self, arms: int, contexts: ArrayLike | None, pulled: ArrayLike, rewards: ArrayLike
    ) -> Any:
        """The state after a history, the same as `start` and one `update` with all of it."""
        state = self.start(arms)
        self.update(state, contexts, pulled, rewards)
        return state

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
        if not np.isfinite(array).all():
            raise ValueError("the context contains NaN or infinity; every entry must be finite")
        return np.ascontiguousarray(array)

    def check_rewards(self, rewards: Floats) -> Floats:
        """The rewards, or a sentence on what is wrong with them."""
        if not np.isfinite(rewards).all():
            raise ValueError("a reward is NaN or infinite; every reward must be a finite number")
        return rewards

    def __reduce__(self) -> Any:  # the fields are not always the arguments of the constructor
        return type(self)._make, (tuple(self),)  # type: ignore[attr-defined, arg-type]


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
    if features != int(features) or features < 1:
        raise ValueError(f"features must be a whole number of at least 1, but it is {features}")
    d = int(features)
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
    return d, np.broadcast_to(center, d).copy(), root, float(np.sqrt(smallest))


@compiled
def _believe(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    return believe(model, state, context, arms, step, rng)


@compiled
def _update_many(model, state, contexts, arms, rewards):  # type: ignore[no-untyped-def]
    for i in range(arms.size):
        update(model, state, contexts[i], arms[i], rewards[i])
