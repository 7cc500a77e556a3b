"""Let old rewards count less, without ever losing the prior.

After forgetting with factor γ, a posterior p is replaced by p^γ · prior^(1−γ), normalised. Every
model here is an exponential family, so its natural parameters are averaged with the prior's: an
observation n rewards old weighs γⁿ, and what is never observed again returns to the prior instead
of becoming improper, as it would if its precision were just multiplied by γ.

Reference: Kulhavý and Zarrop (1993), "On a general concept of forgetting".
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from tsucb.checks import between
from tsucb.compiler import implements, offers
from tsucb.models.change import NoticedChange
from tsucb.models.model import Model, belief, forget, training_due, update
from tsucb.models.state import State, array, nested
from tsucb.models.structure import leaves, refilled
from tsucb.numeric.arrays import Flags, Floats, Integers


class ForgettingState(State):
    """The state of the model that forgets, and how many parts it has.

    One part per arm, or a single one where the arms share their parameters: then `parts` has one
    entry.
    """

    inner: Any = nested(State)
    parts: Flags = array("arm", dtype=bool)

    @property
    def pulls(self) -> Floats:
        """How often each arm was played, the earlier the less."""
        pulls: Floats = self.inner.pulls
        return pulls


class SharedForgettingState(ForgettingState):
    """The same where the arms share their parameters."""

    parts: Flags = array(dtype=bool)


class Forgetting(Model):
    """Any model, with every reward making all earlier ones count γ times as much.

    All arms forget at every reward, so a reward costs as much as K arms take to forget: d³ each in
    `ContextualLinear` and `NIGLinear`, less in the models that learn their prior from sums.

    Parameters
    ----------
    model
        What forgets: any of `tsucb.models` but `NeuralLinear`, or a model of your own that
        implements `forget`.
    gamma
        γ: 0.999 remembers about the last 1,000 rewards.

    >>> import numpy as np, tsucb
    >>> model = Forgetting(tsucb.BernoulliArms(empirical=False), gamma=0.5)
    >>> state = model.fit(arms=1, contexts=None, pulled=[0, 0], rewards=[1, 0])
    >>> model.belief(state, rng=np.random.default_rng(0)).mean.round(3)  # (1 + ½) / (2 + 1½)
    array([0.429])
    """

    model: Any
    gamma: Annotated[float, functools.partial(between, low=0, high=1)]

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Raise ValueError for a model that cannot forget."""
        if not can_forget(type(values["model"])):
            raise ValueError(
                f"{type(values['model']).__name__} cannot forget; use a model that implements "
                "forget, such as NIGLinear"
            )

    def start(self, arms: int, rng: np.random.Generator | None = None) -> ForgettingState:
        """Return the state before any data."""
        return self.around(self.model.start(arms, rng))

    def extend(self, state: ForgettingState, arms: int) -> ForgettingState:
        """Return a state with further arms at the end, which have nothing to forget yet."""
        return self.around(self.model.extend(state.inner, arms))

    def around(self, inner: Any) -> ForgettingState:
        """Return the state around one of the model."""
        if self.shares_parameters:
            return SharedForgettingState(fadable(inner), np.zeros(1, dtype=bool))
        return ForgettingState(fadable(inner), np.zeros(inner.pulls.size, dtype=bool))

    def widened(self, features: Any) -> "Forgetting":
        """Return the model for contexts with more features, which forgets alike."""
        return Forgetting(self.model.widened(features), self.gamma)

    def widen(self, state: ForgettingState, features: Any, places: Any = None) -> ForgettingState:
        """Return a state of the widened model."""
        return self.around(self.model.widen(state.inner, features, places))

    def trainer(self, states: Sequence[ForgettingState]) -> Callable[[], None]:
        """Return the model's trainer of the states within."""
        trainer: Callable[[], None] = self.model.trainer([state.inner for state in states])
        return trainer

    def release(self, state: ForgettingState, arms: Integers) -> None:
        """Let some arms of the model go."""
        self.model.release(state.inner, arms)

    def check_state(self, state: ForgettingState, rewards: int) -> None:
        """Raise ValueError also for what the model within cannot have learned."""
        super().check_state(state, rewards)
        self.model.check_state(state.inner, rewards)

    def changes(self, state: ForgettingState) -> list[NoticedChange]:
        """Return the changes that the model has noticed."""
        found: list[NoticedChange] = self.model.changes(state.inner)
        return found

    def coefficients(self, state: ForgettingState, arm: int) -> tuple[Floats, Floats]:
        """Return the model's coefficients."""
        mean, std = self.model.coefficients(state.inner, arm)
        return mean, std


def _as_the_model(name: str) -> Any:
    """Return a property that is the model's attribute or method of this name."""
    return property(lambda self: getattr(self.model, name), doc=f"The model's `{name}`.")


for name in (
    "initial_pulls", "shares_parameters", "largest", "trains", "context_shape", "widened_rows",
    "parameter_names", "check_rewards",
):  # fmt: skip
    setattr(Forgetting, name, _as_the_model(name))


def can_forget(model: type) -> bool:
    """Return whether a class of models is compiled and implements `forget`."""
    return all(offers(function, model) for function in (belief, update, forget))


def without_forgetting(model: Any) -> Any:
    """The model that forgets, or the model itself if it does not."""
    return model.model if isinstance(model, Forgetting) else model


def fadable(state: Any) -> Any:
    """The state, with counts of pulls that can fade."""
    parts = (x.astype(np.float64) if x.dtype == np.int64 else x for x in leaves(state))
    return refilled(state, parts)


@implements(belief, Forgetting)
def belief_of_forgetting(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    return belief(model.model, state.inner, context, arms, step, rng)


@implements(update, Forgetting)
def update_forgetting(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    if model.gamma < 1.0:
        for part in range(state.parts.size):
            forget(model.model, state.inner, part, model.gamma)
    update(model.model, state.inner, context, arm, reward)


@implements(training_due, Forgetting)
def training_due_forgetting(model, state):  # type: ignore[no-untyped-def]
    return training_due(model.model, state.inner)
