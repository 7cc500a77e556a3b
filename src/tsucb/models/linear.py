"""One vector of coefficients shared by all arms, a feature vector per arm."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.joint_gaussian import JointGaussian
from tsucb.checks import positive
from tsucb.compiler import implements
from tsucb.models import regressions
from tsucb.models.model import (
    Model,
    believe,
    check_arm_count,
    check_prior,
    forget,
    gaussian_prior,
    update,
)
from tsucb.models.regressions import Rows, learn, observe_prior
from tsucb.numeric.arrays import Floats, Integers, filled, taken


class LinearState(NamedTuple):
    """The posterior of θ as a single regression, and the pulls (K,) of the arms."""

    theta: Rows
    pulls: Integers


class Linear(
    Model,
    NamedTuple(
        "Linear",
        [
            ("features", int),
            ("noise", float),
            ("prior_mean", Floats),
            ("prior_root", Floats),
            ("prior_std", float),
        ],
    ),
):
    """Arm a pays X(a)ᵀθ plus normal noise; θ is shared, so the arms' means are jointly normal.

    The context of a step is the matrix (K, d) of feature vectors, one row for every arm; rows of
    arms that are not available are not looked at.

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

    __slots__ = ()

    shares_parameters = True

    def __new__(
        cls,
        features: int,
        noise: float = 1.0,
        prior_mean: ArrayLike = 0.0,
        prior_covariance: ArrayLike = 1.0,
    ) -> "Linear":
        d, mean, root, smallest = gaussian_prior(features, prior_mean, prior_covariance)
        return super().__new__(cls, d, positive("noise", noise), mean, root, smallest)

    def start(self, arms: int, rng: np.random.Generator | None = None) -> LinearState:
        """The state before any data: θ at the prior."""
        arms = check_arm_count(arms)
        theta = Rows(
            regressions.triangular(self.prior_root)[None].copy(),
            self.prior_mean[None].copy(),
            np.zeros(1, dtype=np.int64),
            np.zeros(1),
        )
        return LinearState(theta, np.zeros(arms, dtype=np.int64))

    def extend(self, state: LinearState, arms: int) -> LinearState:
        """A state with further arms at the end; what is known of θ stays."""
        return LinearState(state.theta, np.append(state.pulls, np.zeros(arms, dtype=np.int64)))

    def merged(self, first: LinearState, second: LinearState, base: LinearState) -> LinearState:
        """Precisions add up."""
        theta: Any = regressions.merged(first.theta, second.theta, base.theta)
        return LinearState(theta, first.pulls + second.pulls - base.pulls)

    def coefficients(self, state: LinearState, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every entry of θ, the same for all arms."""
        return regressions.coefficients(state.theta, 0)

    def check_settings(self) -> None:
        """Raise a ValueError for a prior that no arguments of the constructor lead to."""
        check_prior(self.prior_mean, self.prior_root, self.prior_std)

    def check_state(self, state: LinearState, rewards: int) -> None:
        """Raise a ValueError for a posterior that data cannot have led to."""
        regressions.check(state.theta, rewards, self.prior_root)
        if (state.pulls < 0).any() or (state.pulls > rewards).any():
            raise ValueError("counts of pulls that cannot be")

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """A feature vector for every arm: (K, d)."""
        return (arms, self.features)


@implements(believe, Linear)
def believe_linear(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
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
    information, pulls = filled(n, state.theta.information[0]), taken(state.pulls, arms)
    return Belief(
        JointGaussian(factor), mean, std, mean, std, pulls, information, step, d, model.prior_std
    )


@implements(update, Linear)
def update_linear(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn(state.theta, 0, context[arm], reward, model.noise * model.noise)
    state.pulls[arm] += 1


@implements(forget, Linear)
def forget_linear(model, state, part, weight):  # type: ignore[no-untyped-def]
    observe_prior(state.theta, 0, weight, model.prior_root, model.prior_mean)
    for a in range(state.pulls.size):
        state.pulls[a] *= weight
