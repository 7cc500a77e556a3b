"""The confidence bounds of the paper's Section 3, and how often a mean is outside them.

Lemma 1 says that at any step a mean lies above its upper bound, or below its lower bound, with
probability at most T⁻³, whatever the policy. `k_armed_escapes` and `linear_escapes` count how
often that happens.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.beliefs.belief import Belief
from tsucb.compiler import implements
from tsucb.models import Linear
from tsucb.models.linear import LinearState
from tsucb.models.model import Model, belief, update
from tsucb.models.state import State, nested
from tsucb.numeric.arrays import Floats
from tsucb.record import derived
from tsucb.sets.rules import ThetaBelief, theta


class RidgeState(State):
    """The states of two models of the same data: with the true prior, and ridge regression."""

    posterior: LinearState = nested(LinearState)
    ridge: LinearState = nested(LinearState)

    @property
    def pulls(self) -> Floats:
        """How often each arm was played."""
        return self.posterior.pulls


class RidgeLinear(Model):
    """The linear model of Theorem 2: draws from the posterior, intervals from V = I + Σ XXᵀ.

    The paper's estimate is ⟨X, V⁻¹ Σ X R⟩ and its radius is proportional to ‖X‖_{V⁻¹}
    (equation 7), whatever the prior. They are the mean and the standard deviation of a linear
    model whose prior variance is the noise variance.

    Parameters
    ----------
    posterior : the model that knows the prior and the noise

    Reference: Baek and Farias (2023), Section 3.3, equation (7).
    """

    state = RidgeState

    posterior: Linear
    ridge: Linear = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Derive the model of ridge regression."""
        known = values["posterior"]
        values["ridge"] = Linear(known.features, known.noise, prior_covariance=known.noise**2)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of both states."""
        return self.posterior.sizes()

    def prior(self, state: RidgeState, rng: np.random.Generator | None = None) -> None:
        """Set both states to their prior, in place."""
        self.posterior.prior(state.posterior)
        self.ridge.prior(state.ridge)

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """Return (K, d): a feature vector for every arm."""
        return self.posterior.context_shape(arms)


@implements(belief, RidgeLinear)
def belief_of_ridge(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    law = belief(model.posterior, state.posterior, context, arms, step, rng)
    view = belief(model.ridge, state.ridge, context, arms, step, rng)
    return Belief(
        law.law, law.mean, law.std, view.mean, view.std,
        law.pulls, law.information, law.step, law.dimension, law.prior_std,
    )  # fmt: skip


@implements(theta, RidgeLinear)
def theta_ridge(model, state, step):  # type: ignore[no-untyped-def]
    known = theta(model.posterior, state.posterior, step)
    view = theta(model.ridge, state.ridge, step)
    return ThetaBelief(
        known.mean, known.root, view.mean, view.root, known.information, step, known.prior_std
    )


@implements(update, RidgeLinear)
def update_ridge(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    update(model.posterior, state.posterior, context, arm, reward)
    update(model.ridge, state.ridge, context, arm, reward)


def theorem_1(arms: int, horizon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 4 √(3 K T log T) + T⁻² + 3 √T + K, the bound on the Bayes regret of TS-UCB.

    >>> theorem_1(10, np.array([1e4])).round()
    array([6959.])
    """
    T = np.asarray(horizon, dtype=np.float64)
    return np.asarray(4 * np.sqrt(3 * arms * T * np.log(T)) + T**-2 + 3 * np.sqrt(T) + arms)


def theorem_2(features: int, horizon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bound on the Bayes regret for unit arms, ‖θ‖ ≤ S = 1 and noise with r = 1.

    It is B + T⁻² + 12 √(2T), B = 8 √(T d log(1 + T/d)) (1 + √(6 log T + d log(1 + T/d))).

    >>> theorem_2(2, np.array([1e4])).round()
    array([33074.])
    """
    T, d = np.asarray(horizon, dtype=np.float64), features
    growth = np.log(1 + T / d)
    B = 8 * np.sqrt(T * d * growth) * (1 + np.sqrt(6 * np.log(T) + d * growth))
    return np.asarray(B + T**-2 + 12 * np.sqrt(2 * T))


class Escapes(NamedTuple):
    """In how many replications the mean was ever above its upper bound, or below its lower.

    `closest` is the largest distance from the estimate in any replication, in radii: 1 is at the
    bound.
    """

    replications: int
    above: int
    below: int
    closest: float


def count_escapes(distances: NDArray[np.float64]) -> Escapes:
    """Count escapes in signed distances, in radii, of the mean from its estimate.

    `distances` has a row for each replication.
    """
    above, below = distances.max(axis=1), -distances.min(axis=1)
    closest = float(max(above.max(), below.max()))
    return Escapes(len(distances), int((above > 1).sum()), int((below > 1).sum()), closest)


def k_armed_escapes(horizon: int, replications: int, rng: np.random.Generator) -> Escapes:
    """Count how often a Bernoulli mean is ever outside average ± √(3 log T / n), n = 1, …, T.

    The mean is Beta(1, 1). An arm's bounds at a step depend on its n ≤ T rewards so far, and this
    checks every n, so it counts at least as many escapes as any policy meets.
    """
    mean = rng.random((replications, 1))
    n = np.arange(1, horizon + 1)
    average = np.cumsum(rng.random((replications, horizon)) < mean, axis=1) / n
    return count_escapes((mean - average) / np.sqrt(3 * np.log(horizon) / n))


def linear_escapes(
    features: int, horizon: int, replications: int, rng: np.random.Generator
) -> Escapes:
    """Count how often θ is ever outside the ellipsoid ‖θ − θ̂‖_V ≤ √(d log(T²(1 + t))) + 1.

    θ ~ N(0, I/(16 d)), noise N(0, 1). Arms are all unit vectors, and the policy is Thompson
    sampling with the ridge posterior. If θ is outside the ellipsoid, the mean of some arm X is
    beyond one bound, and the mean of −X, whose bounds are mirrored, is beyond the other, so one
    count serves both sides.
    """
    d = features
    theta = rng.standard_normal((replications, d)) / np.sqrt(16 * d)
    V = np.broadcast_to(np.eye(d), (replications, d, d)).copy()
    total = np.zeros((replications, d))
    farthest = np.zeros((replications, 1))
    for t in range(1, horizon + 1):
        estimate = np.linalg.solve(V, total[..., None])[..., 0]
        root = np.linalg.cholesky(V)
        draw = np.linalg.solve(root.transpose(0, 2, 1), rng.standard_normal((replications, d, 1)))
        x = estimate + draw[..., 0]
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        reward = (x * theta).sum(axis=1) + rng.standard_normal(replications)
        V += x[:, :, None] * x[:, None, :]
        total += reward[:, None] * x
        error = theta - np.linalg.solve(V, total[..., None])[..., 0]
        norm = np.sqrt(np.einsum("ri,rij,rj->r", error, V, error))
        radius = np.sqrt(d * np.log(horizon**2 * (1 + t))) + 1
        farthest[:, 0] = np.maximum(farthest[:, 0], norm / radius)
    return count_escapes(np.hstack([farthest, -farthest]))
