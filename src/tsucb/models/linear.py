"""Linear rewards: one vector of coefficients for all arms, a feature vector per arm."""

from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.joint_gaussian import JointGaussian
from tsucb.checks import Count, Positive
from tsucb.compiler import implements
from tsucb.models.gaussian_prior import GaussianPrior
from tsucb.models.model import belief, forget, update
from tsucb.models.regressions import Shared, learn, observe_prior
from tsucb.models.state import State, counts, nested
from tsucb.numeric.arrays import Floats, full, take
from tsucb.record import derived


class LinearState(State):
    """The posterior of θ, and how often each arm was played."""

    theta: Shared = nested(Shared)
    pulls: Floats = counts("arm")

    def coefficients(self, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of every entry of θ, the same for all arms."""
        return self.theta.coefficients(0)


class Linear(GaussianPrior):
    """Arm a pays X(a)ᵀθ plus normal noise; θ is shared, so the arms' means are jointly normal.

    The context of a step is the matrix (K, d) of feature vectors, one row for every arm; rows of
    arms that are not available are ignored.

    Parameters
    ----------
    features
        d, the length of an arm's feature vector.
    noise
        σ, the known standard deviation of a reward around its mean.
    prior_mean
        Mean of θ: a number, or a vector (d,).
    prior_covariance
        Covariance of θ: a variance, a vector of variances (d,), or a matrix (d, d).

    >>> import numpy as np
    >>> model = Linear(features=2, noise=0.5)
    >>> state = model.start(arms=2)
    >>> model.update(state, context=[[1.0, 0.0], [1.0, 1.0]], arm=0, reward=1.0)
    >>> model.belief(state, [[1.0, 0.0], [1.0, 1.0]], rng=np.random.default_rng(0)).mean
    array([0.8, 0.8])

    Reference: Baek and Farias (2023), Sections 2.2 and 3.3.
    """

    state = LinearState

    features: Count
    noise: Positive = 1.0
    prior_mean: Any = 0.0
    prior_covariance: Any = 1.0
    prior_root: Floats = derived()
    prior_std: float = derived()

    def prior(self, state: LinearState, rng: np.random.Generator | None = None) -> None:
        """Write the prior of θ into a blank state, in place."""
        super().prior(state.theta)

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """Return (K, d): a feature vector for every arm."""
        return (arms, self.features)


@implements(belief, Linear)
def belief_of_linear(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    n, d = arms.size, model.features
    root, center = state.theta.root[0], state.theta.mean[0]
    mean, std, factor = np.zeros(n), np.zeros(n), np.zeros((n, d))
    for a in range(n):
        x, row = context[arms[a]], factor[a]
        for i in range(d):
            mean[a] += x[i] * center[i]
            for j in range(d):
                row[j] += x[i] * root[i, j]
        for j in range(d):
            std[a] += row[j] * row[j]
        std[a] = np.sqrt(std[a])
    information, pulls = full(n, state.theta.information[0]), take(state.pulls, arms)
    law = JointGaussian(factor, mean[:0])  # arms have no effects of their own
    return Belief(law, mean, std, mean, std, pulls, information, step, d, model.prior_std)


@implements(update, Linear)
def update_linear(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn(state.theta, 0, context[arm], reward, model.noise * model.noise)
    state.pulls[arm] += 1


@implements(forget, Linear)
def forget_linear(model, state, weight):  # type: ignore[no-untyped-def]
    observe_prior(state.theta, 0, weight, model.prior_root, model.prior_mean)
    for a in range(state.pulls.size):
        state.pulls[a] *= weight
