"""Let old rewards count less, without ever losing the prior.

Forgetting with factor γ replaces a posterior p by p^γ · prior^(1−γ), normalised. Every model here
is an exponential family, so its natural parameters are averaged with the prior's. An observation n
rewards ago has the weight γⁿ, and an arm that is never observed again returns to the prior. (If
precisions were just multiplied by γ, its posterior would become improper.)

Reference: Kulhavý and Zarrop (1993), "On a general concept of forgetting".
"""

import functools
import operator
from typing import Annotated, Any

import numpy as np

from tsucb.checks import between
from tsucb.compiler import implements, offers
from tsucb.models.gaussian_prior import GaussianPrior
from tsucb.models.model import Model, belief, forget, training_due, update


class Forgetting(Model):
    """Any model, with earlier rewards counting γ times as much after every reward.

    All arms forget at every reward, exactly. In `ContextualLinear` and `NIGLinear` this takes O(d)
    for each arm, and O(d³) for the arm that was played; see `tsucb.models.spectral`.

    Parameters
    ----------
    model
        Any model of `tsucb.models` but networks, ensembles and `HashedLinear`, or a model of your
        own that implements `forget`.
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

    def start(self, arms: int, rng: np.random.Generator | None = None) -> Any:
        """Return the state before any data."""
        return self.fadable(self.model.start(arms, rng))

    def extend(self, state: Any, arms: int) -> Any:
        """Return a state with further arms at the end, each with the prior."""
        return self.fadable(self.model.extend(state, arms))

    def check_state(self, state: Any, rewards: int, whole: bool = False) -> None:
        """Raise ValueError if no history of this many rewards leads to a loaded state."""
        self.model.check_state(state, rewards, whole)

    def fadable(self, state: Any) -> Any:
        """Return the state with posteriors in a form that fades fast."""
        return self.model.fading(state) if isinstance(self.model, GaussianPrior) else state

    def widened(self, features: Any) -> "Forgetting":
        """Return the model for contexts with more features, with the same γ."""
        return Forgetting(self.model.widened(features), self.gamma)

    def widen(self, state: Any, features: Any, places: Any = None) -> Any:
        """Return a state of the widened model."""
        return self.fadable(self.model.widen(state, features, places))


for name in (
    "changes", "check_rewards", "coefficients", "context_shape", "initial_pulls",
    "largest", "parameter_names", "release", "trainer", "trains",
):  # fmt: skip
    of_the_model = property(operator.attrgetter(f"model.{name}"), doc=f"The model's `{name}`.")
    setattr(Forgetting, name, of_the_model)


def can_forget(model: type) -> bool:
    """Return whether a class of models has compiled implementations, also of `forget`."""
    return all(offers(function, model) for function in (belief, update, forget))


def without_forgetting(model: Any) -> Any:
    """Return the model inside `Forgetting`, or the model itself if it does not forget."""
    return model.model if isinstance(model, Forgetting) else model


@implements(belief, Forgetting)
def belief_of_forgetting(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    return belief(model.model, state, context, arms, step, rng)


@implements(update, Forgetting)
def update_forgetting(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    if model.gamma < 1.0:
        forget(model.model, state, model.gamma)
    update(model.model, state, context, arm, reward)


@implements(training_due, Forgetting)
def training_due_forgetting(model, state):  # type: ignore[no-untyped-def]
    return training_due(model.model, state)
