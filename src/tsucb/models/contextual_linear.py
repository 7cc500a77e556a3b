"""One vector of coefficients per arm, one context per step, known noise."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import positive
from tsucb.compiler import implements
from tsucb.models import regressions
from tsucb.models.model import (
    Model,
    believe,
    believe_predicted,
    check_arm_count,
    check_prior,
    forget,
    gaussian_prior,
    update,
)
from tsucb.models.regressions import Regressions, evidence, learn, observe_prior, predict
from tsucb.numeric.arrays import Floats, Integers


class ContextualLinear(
    Model,
    NamedTuple(
        "ContextualLinear",
        [
            ("features", int),
            ("noise", float),
            ("prior_mean", Floats),
            ("prior_root", Floats),
            ("prior_std", float),
        ],
    ),
):
    """Arm k pays xᵀβₖ plus normal noise; the βₖ are independent and normal a priori.

    Given the history the arms stay independent, so the mean rewards at a context x are K
    independent normals N(xᵀμₖ, xᵀΣₖx): policies draw those K numbers, not K vectors.

    Parameters
    ----------
    features
        d, the length of a context.
    noise
        σ, the known standard deviation of a reward around its mean.
    prior_mean
        Mean of every βₖ: a number, or a vector (d,).
    prior_covariance
        Covariance of every βₖ: a variance, a vector of variances (d,), or a matrix (d, d).

    >>> import numpy as np
    >>> model = ContextualLinear(features=2, noise=0.5)
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[1.0, 0.0], arm=2, reward=1.0)
    >>> model.belief(state, [1.0, 0.0], rng=np.random.default_rng(0)).mean
    array([0. , 0. , 0.8])

    Reference: Baek and Farias (2023), Sections 2.2 and 4.1.
    """

    __slots__ = ()

    def __new__(
        cls,
        features: int,
        noise: float = 1.0,
        prior_mean: ArrayLike = 0.0,
        prior_covariance: ArrayLike = 1.0,
    ) -> "ContextualLinear":
        d, mean, root, smallest = gaussian_prior(features, prior_mean, prior_covariance)
        return super().__new__(cls, d, positive("noise", noise), mean, root, smallest)

    def start(self, arms: int, rng: np.random.Generator | None = None) -> Regressions:
        """The state before any data: K regressions at the prior."""
        arms = check_arm_count(arms)
        return regressions.start(arms, self.prior_mean, self.prior_root)

    def extend(self, state: Regressions, arms: int) -> Regressions:
        """A state with further arms at the end, each with the prior."""
        return regressions.concatenate(state, self.start(arms))

    def predictions(
        self, state: Regressions, contexts: Floats, arms: Integers
    ) -> tuple[Floats, Floats]:
        """Moments of the arms' rewards at many contexts."""
        return regressions.predict_many(state, contexts, arms)

    def merged(self, first: Regressions, second: Regressions, base: Regressions) -> Regressions:
        """Precisions add up."""
        return regressions.merged(first, second, base)

    def coefficients(self, state: Regressions, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every coefficient."""
        return regressions.coefficients(state, arm)

    def check_settings(self) -> None:
        """Raise a ValueError for a prior that no arguments of the constructor lead to."""
        check_prior(self.prior_mean, self.prior_root, self.prior_std)

    def check_state(self, state: Regressions, rewards: int) -> None:
        """Raise a ValueError for posteriors that data cannot have led to."""
        regressions.check(state, rewards, self.prior_root)

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d,), the same for all arms."""
        return (self.features,)


@implements(believe, ContextualLinear)
def believe_contextual_linear(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state, context, arms)
    return believe_predicted(model, state, mean, std, arms, step, rng)


@implements(believe_predicted, ContextualLinear)
def believe_predicted_contextual(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    pulls, information = evidence(state, arms)
    return Belief(
        Gaussian(), mean, std, mean, std, pulls, information, step, model.features, model.prior_std
    )


@implements(update, ContextualLinear)
def update_contextual_linear(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn(state, arm, context, reward, model.noise * model.noise)


@implements(forget, ContextualLinear)
def forget_contextual_linear(model, state, part, weight):  # type: ignore[no-untyped-def]
    observe_prior(state, part, weight, model.prior_root, model.prior_mean)
