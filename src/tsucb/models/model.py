"""The base class of models: checked methods for plain Python, generic functions for compiled code.

A model is a record of hyper-parameters. What it has learned is in a `State`, arrays that `start`
makes and `update` changes in place. You can keep, copy or save a state.

A model names the class of its `state` and implements two functions; all else is optional:

| to implement | what it does | needed |
|---|---|---|
| `belief(model, state, context, arms, step, rng)` | return the belief about some arms | always |
| `update(model, state, context, arm, reward)` | learn from one reward, in place | always |
| `Model.prior(state, rng)` | put the prior into a blank state | if it is not zeros |
| `Model.sizes()`, `Model.context_shape(arms)` | sizes of axes, shape of a context | if others |
| `Model.settle(state)` | compute what follows from the sums | if anything does |
| `forget(model, state, weight)` | move towards the prior | unless all fields are sums by arm |
| `predicted_belief(model, …)`, `Model.predictions` | beliefs at many contexts | for fast batches |
| `training_due(model, state)`, `Model.trainer` | train between steps | if anything trains |
| `Model.widened`, `Model.axes` | take further features | for an agent's dictionaries |
| `Model.check_rewards` | refuse rewards | if not all finite numbers will do |
| `Model.release(state, arms)` | keep what leaving arms say of others | if arms share anything |
| `Model.coefficients`, `Model.parameter_names` | show what was learned | for tables |
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
    """Return the belief about the arms, given the moments that `Model.predictions` has computed.

    For models that compute beliefs at many contexts faster together; see `Agent.choose_many`. The
    belief may keep the moments, and change them in place.
    """


@generic
def update(model: Any, state: Any, context: Any, arm: int, reward: float) -> None:
    """Learn from one reward, in place."""
    model.update(state, context, arm, reward)


@hook
def forget(model: Any, state: Any, weight: float) -> None:
    """Let earlier rewards count `weight` times as much: move the state to the prior, in place."""


def forget_sums(model, state, weight):  # type: ignore[no-untyped-def]
    for arm in range(state.pulls.size):
        fade_arm(state, arm, weight)


@generic
def training_due(model: Any, state: Any) -> bool:
    """Return whether the model has to train now, before the next belief or update."""
    return hasattr(model, "training_due") and bool(model.training_due(state))


class Model(Record):
    """A prior and a likelihood: turns rewards into beliefs."""

    # The class of the model's states.
    state: ClassVar[type[State]]

    # How often every arm is pulled before the policy decides.
    initial_pulls: ClassVar[int] = 0

    # Whether what two states have learned adds up, so that agents can be merged.
    merges: ClassVar[bool] = False

    # Whether a state must keep every arm that it ever had, because it remembers rewards with the
    # indices of their arms; `State.select` must not leave one out.
    keeps_arms: ClassVar[bool] = False

    # Whether all runs of a simulation train after the same steps, so that they train together.
    trains_together: ClassVar[bool] = False

    # The largest reward or feature that the model can learn from: all results stay finite.
    largest: ClassVar[float] = LARGEST

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "state" in vars(cls) and cls.state.is_all_sums():
            implements(forget, cls)(forget_sums)

    # --- methods that a model may override, at most twelve ---

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the axes of the model's state, other than the arms'."""
        return {axis: len(names) for axis, names in self.axes().items()}

    def axes(self, places: Any = None) -> dict[str, Sequence[Any]]:
        """Return for each axis the names of its entries.

        A feature's name is its place: in `places`, or in this model by default.
        """
        return {"coefficient": places_of(places, getattr(self, "features", 0))}

    def prior(self, state: Any, rng: np.random.Generator | None = None) -> None:
        """Write the prior into a blank state, in place; models that start at random use `rng`."""

    def settle(self, state: Any) -> None:
        """Compute in place what follows from a state's sums, after these have changed."""

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
        """Return means and standard deviations of n arms at N contexts, (N, n) each.

        These are what `predicted_belief` takes.
        """
        raise NotImplementedError(f"{type(self).__name__} predicts one context at a time")

    def widened(self, features: Any) -> "Model":
        """Return the model for contexts with more features."""
        raise ValueError(f"{type(self).__name__} cannot take further features; use AdaptiveLinear")

    def release(self, state: Any, arms: Integers) -> None:
        """Forget arms that are about to be removed, in place, but keep what they say of others."""

    def coefficients(self, state: Any, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each of an arm's parameters."""
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

    # --- methods that all models share ---

    def start(self, arms: int, rng: np.random.Generator | None = None) -> Any:
        """Return the state before any data: every arm has the prior.

        Parameters
        ----------
        arms
            K, the number of arms.
        rng
            For models that start at random; without it they start with the same state every time.
        """
        sizes = {"arm": whole_number("the number of arms", arms), **self.sizes()}
        state = self.state.blank(sizes)
        self.prior(state, rng)
        return state

    def extend(self, state: Any, arms: int) -> Any:
        """Return a state with further arms at the end, each with the prior."""
        # The seed depends on the state, so equal states are extended alike.
        seed = [*state.key, self.arms(state), arms] if hasattr(state, "key") else 0
        longer = state.joined(self.start(arms, np.random.default_rng(seed)))
        self.settle(longer)
        return longer

    def widen(self, state: Any, features: Any, places: Any = None) -> Any:
        """Return a state of the widened model: the new features were 0 in every context so far.

        `places` are the places of the first old features among the new ones, by default the same
        places. Old features beyond these have always been 0 and are dropped.
        """
        wide = self.widened(features)
        new = wide.axes()
        kept = {axis: shared_names(names, new[axis]) for axis, names in self.axes(places).items()}
        wider = state.widened(wide.sizes(), kept)
        wide.settle(wider)
        return wider

    def merged(self, first: Any, second: Any, base: Any) -> Any:
        """Return the state after both histories: two states have learned since both were `base`.

        All three have the same arms. The result is as if one state had learned everything.
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
        """Whether the model trains between steps, when `training_due` is true."""
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
            What is known about this step, of the model's `context_shape`; None if that is ().
        arms
            Indices of the available arms, all by default.
        step
            t, for policies that ask for it; one more than the rewards seen by default.
        rng
            For models that draw a part of the belief, such as `NIGLinear`.
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
        """Return the state after a history, as `start` and one `update` with all of it would."""
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

    def check_state(self, state: Any, rewards: int, whole: bool = True) -> None:
        """Raise ValueError if no history of this many rewards leads to a loaded state.

        Its shapes and types have been checked. Pulls are `whole` numbers unless the model forgets.
        """
        state.check(rewards)
        if whole and (state.pulls % 1).any():
            raise ValueError("pulls must be whole numbers")

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
    """Return the places of this many features: `places`, then -1 for features to be dropped.

    By default every feature keeps its place.
    """
    given = range(features) if places is None else places
    return [*given, *[-1] * (features - len(given))]


def shared_names(old: Sequence[Any], new: Sequence[Any]) -> tuple[Integers, Integers]:
    """Return the places of the names that two axes share, in the old and in the new axis."""
    at = {name: place for place, name in enumerate(new)}
    both = [(place, at[name]) for place, name in enumerate(old) if name in at]
    first, second = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return first, second


def check_finite(context: Floats, largest: float = LARGEST) -> None:
    """Raise ValueError for a context with NaN, infinity, or numbers beyond ±`largest`."""
    if not within(context, largest):
        raise ValueError(
            f"the context contains NaN or infinity, or a number beyond ±{largest:g}; every entry "
            "must be finite"
        )


@implements(training_due, Model)
def never_training(model, state):  # type: ignore[no-untyped-def]
    return False


def trains(model: Any) -> bool:
    """Return whether the model trains between steps."""
    return isinstance(model, Model) and model.trains


def learn_many(model: Any, state: Any, contexts: Floats, arms: Integers, rewards: Floats) -> None:
    """Learn from checked observations in their order, in place; train whenever it is due."""
    done, train = 0, None
    while done < arms.size:
        done, due = update_until_due(model, state, contexts, arms, rewards, done)
        if due:
            train = train or model.trainer([state])
            train()


@compiled
def update_until_due(model, state, contexts, arms, rewards, first):  # type: ignore[no-untyped-def]
    """Learn from observation `first` on, until training is due.

    Return the number of the next observation, and whether training is due.
    """
    for i in range(first, arms.size):
        update(model, state, contexts[i], arms[i], rewards[i])
        if training_due(model, state):
            return i + 1, True
    return arms.size, False
