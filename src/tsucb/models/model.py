"""What every model shares: checked methods for plain Python, generic functions for compiled code.

A model is a record of hyper-parameters. What it has learned is a `State`, arrays that `start` makes
and `update` changes in place; keep, copy or save it as you like.

A model names the class of its `state` and implements two functions; the rest is for those that can
do more:

| to implement | does | |
|---|---|---|
| `belief(model, state, context, arms, step, rng)` | the belief about some arms | needed |
| `update(model, state, context, arm, reward)` | learn from one reward, in place | needed |
| `Model.prior(state, rng)` | put the prior into a blank state | if it is not zeros |
| `Model.sizes()`, `Model.context_shape(arms)` | sizes of the axes, shape of a context | if others |
| `Model.settle(state)` | compute what follows from the sums | if anything does |
| `forget(model, state, weight)` | move towards the prior | unless its state is all sums |
| `predicted_belief(model, …)`, `Model.predictions` | the same for many contexts | for batches |
| `training_due(model, state)`, `Model.trainer` | train between steps | for networks |
| `Model.widened`, `Model.axes` | take further features | for an agent's dictionaries |
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.checks import LARGEST, floats, flush_tiny, whole_number, within
from tsucb.compiler import compiled, generic, hook, implements, run
from tsucb.models.state import State, fade_arm
from tsucb.numeric.arrays import Floats, Integers
from tsucb.record import Record


@generic
def belief(
    model: Any, state: Any, context: Any, arms: Integers, step: int, rng: np.random.Generator
) -> Belief:
    """Return the belief about the given arms at the context."""
    found: Belief = model.belief(state, context, arms, step=step, rng=rng)
    return found


@hook
def predicted_belief(
    model: Any, state: Any, mean: Floats, std: Floats, arms: Integers, step: int,
    rng: np.random.Generator,
) -> Belief:  # fmt: skip
    """Return the belief about the given arms, whose moments `Model.predictions` has computed.

    For models whose beliefs at many contexts share most of their work; see `Agent.choose_many`.
    The moments become the belief's, and may be changed in place.
    """


@generic
def update(model: Any, state: Any, context: Any, arm: int, reward: float) -> None:
    """Learn from one reward, in place."""
    model.update(state, context, arm, reward)


@hook
def forget(model: Any, state: Any, weight: float) -> None:
    """Move the state towards the prior, in place: earlier rewards count `weight` times as much."""


def forget_sums(model, state, weight):  # type: ignore[no-untyped-def]
    for arm in range(state.pulls.size):
        fade_arm(state, arm, weight)


@generic
def training_due(model: Any, state: Any) -> bool:
    """Return whether the model wants to train now, before it learns or believes anything more."""
    return hasattr(model, "training_due") and bool(model.training_due(state))


class Model(Record):
    """A prior and a likelihood: turns rewards into beliefs."""

    # The class of its states.
    state: ClassVar[type[State]]

    # How often every arm is pulled before the policy decides, for models that need it.
    initial_pulls: ClassVar[int] = 0

    # Whether what two states have learned adds up, so that agents can be merged.
    merges: ClassVar[bool] = False

    # Whether a state keeps every arm that it ever had: it remembers rewards with the arms' indices,
    # so that `State.select` must not leave one out.
    keeps_arms: ClassVar[bool] = False

    # Whether all runs of a simulation want to train after the same steps, and do so together.
    trains_together: ClassVar[bool] = False

    # The largest reward or feature that it can learn from; whatever is computed stays finite.
    largest: ClassVar[float] = LARGEST

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "state" in vars(cls) and cls.state.is_all_sums():
            implements(forget, cls)(forget_sums)

    # --- what a model may say of itself, at most twelve methods ---

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the axes of its state, but for the arms."""
        return {axis: len(names) for axis, names in self.axes().items()}

    def axes(self, places: Any = None) -> dict[str, Sequence[Any]]:
        """Return the name of every entry of these axes; `places` are those of the features.

        A feature is named by its place, and by default by the one that it has in this model.
        """
        return {"coefficient": places_of(places, getattr(self, "features", 0))}

    def prior(self, state: Any, rng: np.random.Generator | None = None) -> None:
        """Put the prior into a blank state, in place; `rng` is for models that start at random."""

    def settle(self, state: Any) -> None:
        """Compute in place what follows from the sums of a state, after these were changed."""

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """Return the shape of one step's context for this number of arms; () for none.

        By default a context is a vector with as many entries as the model has `features`.
        """
        features = getattr(self, "features", 0)
        return (features,) if features else ()

    def trainer(self, states: Sequence[Any]) -> Callable[[], None]:
        """Return a function that trains the models of these states together, in place."""
        raise NotImplementedError(f"{type(self).__name__} does not train")

    def predictions(self, state: Any, contexts: Floats, arms: Integers) -> tuple[Floats, Floats]:
        """Return the moments for `predicted_belief`: (N, n) each, of n arms at N contexts."""
        raise NotImplementedError(f"{type(self).__name__} predicts one context at a time")

    def widened(self, features: Any) -> "Model":
        """Return the model for contexts with more features."""
        raise ValueError(f"{type(self).__name__} cannot take further features; use AdaptiveLinear")

    def release(self, state: Any, arms: Integers) -> None:
        """Let some arms go, in place, for models in which they taught something of the others."""

    def coefficients(self, state: Any, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of every parameter of an arm."""
        mean, std = state.coefficients(arm)
        return mean, std

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """Return the names of an arm's parameters, given those of the features."""
        return features

    def check_rewards(self, rewards: Floats) -> Floats:
        """Return the rewards; raise ValueError if the model cannot learn from one of them."""
        if not within(rewards, self.largest):
            raise ValueError(
                "a reward is NaN or infinite, or beyond "
                f"±{self.largest:g}; every reward must be a finite number"
            )
        return rewards

    # --- what follows from it ---

    def start(self, arms: int, rng: np.random.Generator | None = None) -> Any:
        """Return the state before any data: every arm has the prior.

        Parameters
        ----------
        arms
            K.
        rng
            For models that start at random; the same state every time without.
        """
        sizes = {"arm": whole_number("the number of arms", arms), **self.sizes()}
        state = self.state.blank(sizes)
        self.prior(state, rng)
        return state

    def extend(self, state: Any, arms: int) -> Any:
        """Return a state with further arms at the end, each with the prior."""
        longer = state.joined(self.start(arms))
        self.settle(longer)
        return longer

    def widen(self, state: Any, features: Any, places: Any = None) -> Any:
        """Return a state of the widened model: the further features were 0 in every context so far.

        `places` are those of the first features among all of them, by default the same; features
        beyond them have always been 0, and are dropped.
        """
        wide = self.widened(features)
        new = wide.axes()
        kept = {axis: shared_names(names, new[axis]) for axis, names in self.axes(places).items()}
        wider = state.widened(wide.sizes(), kept)
        wide.settle(wider)
        return wider

    def merged(self, first: Any, second: Any, base: Any) -> Any:
        """Return the state after all that two states have learned since they were one, `base`.

        All three are of the same arms. What is known after it is what would be known if all of it
        had been learned in one place.
        """
        if not self.merges:
            raise ValueError(
                f"what {type(self).__name__} has learned in two places does not add up; merge "
                "agents with AdaptiveLinear, HybridLinear, or another model without forgetting or "
                "training"
            )
        result = first.merged(second, base)
        self.settle(result)
        return result

    @property
    def trains(self) -> bool:
        """Whether it has something to train between steps, when `training_due` says so."""
        return type(self).trainer is not Model.trainer

    def arms(self, state: Any) -> int:
        """Return the number of arms in a state."""
        return int(state.pulls.size)

    def belief(
        self,
        state: Any,
        context: ArrayLike | None = None,
        arms: ArrayLike | None = None,
        *,
        step: int | None = None,
        rng: np.random.Generator,
    ) -> Belief:
        """Return the belief about the available arms.

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
        t = int(state.pulls.sum()) + 1 if step is None else step
        found: Belief = run(belief, self, state, x, available, t, rng)
        return found

    def update(
        self, state: Any, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> None:
        """Learn from one observation, or from many: arrays with one row per observation.

        Everything is checked before anything changes.
        """
        learn_many(self, state, *self.observations(state, context, arm, reward))

    def fit(
        self, arms: int, contexts: ArrayLike | None, pulled: ArrayLike, rewards: ArrayLike
    ) -> Any:
        """Return the state after a history, the same as `start` and one `update` with all of it."""
        state = self.start(arms)
        self.update(state, contexts, pulled, rewards)
        return state

    def observations(
        self, state: Any, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> tuple[Floats, Integers, Floats]:
        """Return contexts, arms and rewards with one row per observation, checked."""
        count = self.arms(state)
        arms = np.atleast_1d(np.asarray(arm))
        rewards = self.check_rewards(np.atleast_1d(floats("reward", reward)))
        self.check_arms(np.unique(arms), count)
        if rewards.shape != arms.shape:
            raise ValueError(
                f"{arms.size} arms and {rewards.size} rewards do not match; give one reward per arm"
            )
        shape = self.context_shape(count)
        contexts = np.zeros((arms.size, *(shape or (0,))))
        if shape:
            given = floats("the context", context)
            contexts[:] = self.check_context(given, count, observations=arms.size)
        return contexts, arms.astype(np.int64), rewards

    def check_state(self, state: Any, rewards: int) -> None:
        """Raise ValueError if a loaded state, of the right shapes, cannot have come about."""
        state.check(rewards)

    def check_arms(self, arms: ArrayLike, count: int) -> Integers:
        """Return the arms as indices; raise if one is unknown, listed twice or no index."""
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
        """Return the context as a finite array; raise ValueError if its shape is wrong."""
        shape = self.context_shape(arms)
        if not shape:
            return np.zeros(0)
        array = floats("the context", context)
        if observations is not None and array.shape == shape and observations == 1:
            array = array[None]
        expected = shape if observations is None else (observations, *shape)
        if array.shape != expected:
            raise ValueError(
                f"the context has shape {array.shape}, but {type(self).__name__} expects {expected}"
            )
        check_finite(array, self.largest)
        return np.ascontiguousarray(flush_tiny(array))


def places_of(places: Any, features: int) -> list[int]:
    """Return the places of this many features, those given first; further ones are dropped, at -1.

    By default every feature stays where it is.
    """
    given = range(features) if places is None else places
    return [*given, *[-1] * (features - len(given))]


def shared_names(old: Sequence[Any], new: Sequence[Any]) -> tuple[Integers, Integers]:
    """Return where the names that two axes share are in each of them."""
    at = {name: place for place, name in enumerate(new)}
    both = [(place, at[name]) for place, name in enumerate(old) if name in at]
    first, second = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return first, second


def check_finite(context: Floats, largest: float = LARGEST) -> None:
    """Raise ValueError for a context with NaN, infinity, or numbers near it."""
    if not within(context, largest):
        raise ValueError(
            f"the context contains NaN or infinity, or a number beyond ±{largest:g}; every entry "
            "must be finite"
        )


@implements(training_due, Model)
def never_training(model, state):  # type: ignore[no-untyped-def]
    return False


def trains(model: Any) -> bool:
    """Return whether the model has something to train between steps."""
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
    """Learn from observation `first` on, until training is due; return the number of the next."""
    for i in range(first, arms.size):
        update(model, state, contexts[i], arms[i], rewards[i])
        if training_due(model, state):
            return i + 1, True
    return arms.size, False
