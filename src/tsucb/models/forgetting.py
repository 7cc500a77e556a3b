"""Let old rewards count less, without ever losing the prior.

After forgetting with factor γ, a posterior p is replaced by p^γ · prior^(1−γ), normalised. Every
model here is an exponential family, so its natural parameters are averaged with the prior's: an
observation n rewards old weighs γⁿ, and what is never observed again returns to the prior instead
of becoming improper, as it would if its precision were just multiplied by γ.

Reference: Kulhavý and Zarrop (1993), "On a general concept of forgetting".
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.checks import between
from tsucb.compiler import implements, offers
from tsucb.models.model import Model, believe, forget, training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.structure import leaves, refilled

# A part that has not been looked at for very long keeps this weight: less cannot be told from the
# prior, and the weight must not become zero.
LEAST_WEIGHT = 1e-9


class ForgettingState(NamedTuple):
    """The state of the model that forgets, and when each part of it last did.

    `clock` (1,) is the number of rewards so far, and `aged` its value when each part last forgot:
    one entry per arm, or a single one where the arms share their parameters.
    """

    inner: Any
    clock: Integers
    aged: Integers

    @property
    def pulls(self) -> Floats:
        """How often each arm was played, the earlier the less."""
        pulls: Floats = self.inner.pulls
        return pulls


class Forgetting(Model, NamedTuple("Forgetting", [("model", Model), ("gamma", float)])):
    """Any model, with every reward making all earlier ones count γ times as much.

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

    __slots__ = ()

    def __new__(cls, model: Model, gamma: float) -> "Forgetting":
        if not offers(forget, type(model)):
            raise ValueError(
                f"{type(model).__name__} cannot forget; use a model that implements forget, such "
                "as NIGLinear"
            )
        return super().__new__(cls, model, between("gamma", gamma, 0, 1))

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        """As many as the model wants."""
        return self.model.initial_pulls

    @property
    def shares_parameters(self) -> bool:  # type: ignore[override]
        """As the model does."""
        return self.model.shares_parameters

    @property
    def largest(self) -> float:  # type: ignore[override]
        """As the model's."""
        return self.model.largest

    def start(self, arms: int, rng: np.random.Generator | None = None) -> ForgettingState:
        """The state before any data."""
        inner = fadable(self.model.start(arms, rng))
        parts = 1 if self.shares_parameters else arms
        return ForgettingState(inner, np.zeros(1, dtype=np.int64), np.zeros(parts, dtype=np.int64))

    def extend(self, state: ForgettingState, arms: int) -> ForgettingState:
        """A state with further arms at the end, which have nothing to forget yet."""
        aged = state.aged
        if not self.shares_parameters:
            aged = np.append(aged, np.full(arms, state.clock[0]))
        return ForgettingState(fadable(self.model.extend(state.inner, arms)), state.clock, aged)

    @property
    def trains(self) -> bool:
        """As the model does."""
        return self.model.trains

    def trainer(self, states: Sequence[ForgettingState]) -> Callable[[], None]:
        """The model's."""
        return self.model.trainer([state.inner for state in states])

    def release(self, state: ForgettingState, arms: Integers) -> None:
        """As the model does."""
        self.model.release(state.inner, arms)

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """As the model's."""
        return self.model.context_shape(arms)

    def widened(self, features: int) -> "Forgetting":
        """The model for contexts with more features, which forgets alike."""
        return Forgetting(self.model.widened(features), self.gamma)

    def widen(self, state: ForgettingState, features: int, places: Any = None) -> ForgettingState:
        """A state of the widened model."""
        return state._replace(inner=fadable(self.model.widen(state.inner, features, places)))

    def widened_rows(self, rows: Floats, features: Any, places: Any = None) -> Floats:
        """As the model's."""
        return self.model.widened_rows(rows, features, places)

    def coefficients(self, state: ForgettingState, arm: int) -> tuple[Floats, Floats]:
        """As the model's."""
        return self.model.coefficients(state.inner, arm)

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """As the model's."""
        return self.model.parameter_names(features)

    def check_state(self, state: ForgettingState, rewards: int) -> None:
        """As the model does, and no part may have forgotten in the future."""
        self.model.check_state(state.inner, rewards)
        if (state.clock < 0).any() or (state.aged < 0).any() or (state.aged > state.clock).any():
            raise ValueError("ages in the future")
        if (state.clock > rewards).any():
            raise ValueError("more rewards than were learned")

    def check_settings(self) -> None:
        """As the model does."""
        self.model.check_settings()

    def check_rewards(self, rewards: Floats) -> Floats:
        """As the model does."""
        return self.model.check_rewards(rewards)


def without_forgetting(model: Any) -> Any:
    """The model that forgets, or the model itself if it does not."""
    return model.model if isinstance(model, Forgetting) else model


def fadable(state: Any) -> Any:
    """The state, with counts of pulls that can fade."""
    parts = (x.astype(np.float64) if x.dtype == np.int64 else x for x in leaves(state))
    return refilled(state, parts)


@implements(believe, Forgetting)
def believe_forgetting(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    return believe(model.model, state.inner, context, arms, step, rng)


@implements(update, Forgetting)
def update_forgetting(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    """Let the arm forget what is due before it learns, and one other arm in turn.

    So every observation of an arm has its exact weight γⁿ whenever the arm learns, and an arm that
    is never played still widens, at most K rewards late, at a cost that does not grow with K.
    """
    state.clock[0] += 1
    parts = state.aged.size
    for part in (arm if parts > 1 else 0, state.clock[0] % parts):
        passed = state.clock[0] - state.aged[part]
        if passed > 0 and model.gamma < 1.0:
            forget(model.model, state.inner, part, max(model.gamma**passed, LEAST_WEIGHT))
        state.aged[part] = state.clock[0]
    update(model.model, state.inner, context, arm, reward)


@implements(training_due, Forgetting)
def training_due_forgetting(model, state):  # type: ignore[no-untyped-def]
    return training_due(model.model, state.inner)
