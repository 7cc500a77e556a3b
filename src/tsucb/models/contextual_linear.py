"""Linear rewards: one vector of coefficients per arm, one context per step, known noise."""

from typing import Any

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import Count, Positive
from tsucb.compiler import implements
from tsucb.models.gaussian_prior import GaussianPrior
from tsucb.models.model import belief, forget, predicted_belief, update
from tsucb.models.regressions import Regressions, evidence, learn, predict
from tsucb.models.spectral import fade
from tsucb.numeric.arrays import Floats
from tsucb.record import derived


class ContextualLinear(GaussianPrior):
    """Arm k pays xᵀβₖ plus normal noise; the βₖ are independent and normal a priori.

    Given the history the arms stay independent, so the mean rewards at a context x are K
    independent normals N(xᵀμₖ, xᵀΣₖx). Policies draw these K numbers, not K vectors.

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

    state = Regressions

    features: Count
    noise: Positive = 1.0
    prior_mean: Any = 0.0
    prior_covariance: Any = 1.0
    prior_root: Floats = derived()
    prior_std: float = derived()


@implements(belief, ContextualLinear)
def belief_of_contextual_linear(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state, context, arms)
    return predicted_belief(model, state, mean, std, arms, step, rng)


@implements(predicted_belief, ContextualLinear)
def predicted_belief_of_contextual(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    pulls, information = evidence(state, arms)
    return Belief(
        Gaussian(), mean, std, mean, std, pulls, information, step, model.features, model.prior_std
    )


@implements(update, ContextualLinear)
def update_contextual_linear(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn(state, arm, context, reward, model.noise * model.noise)


@implements(forget, ContextualLinear)
def forget_contextual_linear(model, state, weight):  # type: ignore[no-untyped-def]
    for arm in range(state.pulls.size):
        fade(state, arm, weight)
