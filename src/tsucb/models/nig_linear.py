"""Linear rewards: one vector of coefficients per arm, and noise that is unknown, too."""

from typing import Any, Self

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import Count, Positive
from tsucb.compiler import implements
from tsucb.models.gaussian_prior import GaussianPrior
from tsucb.models.model import belief, forget, predicted_belief, update
from tsucb.models.regressions import Regressions, evidence, learn, natural, predict
from tsucb.models.spectral import fade
from tsucb.models.state import State, array, nested
from tsucb.numeric.arrays import Floats
from tsucb.numeric.bursts import burst, gamma
from tsucb.record import derived

MOST_SCALE = 1e120  # of the noise: sums of squares of the largest numbers that are allowed
LEAST_PRECISION = 1e-60  # draws of a gamma with a small shape can underflow to zero


class NIGState(State):
    """K regressions in units of their noise, and bₜ (K,), the scale of each noise variance."""

    regressions: Regressions = nested(Regressions)
    scale: Floats = array("arm", least=1e-60, most=MOST_SCALE)

    @property
    def pulls(self) -> Floats:
        """How often each arm was played."""
        return self.regressions.pulls

    def merged(self, other: Any, base: Any) -> Self:
        """Return the state after both histories; scale + ½ meanᵀ precision mean adds up."""
        result = super().merged(other, base)
        for arm in np.flatnonzero(other.pulls != base.pulls):
            scale = self.scale[arm] + other.scale[arm] - base.scale[arm]
            for state, sign in ((self, 1), (other, 1), (base, -1), (result, -1)):
                _, right, mean = natural(state.regressions, arm)
                scale += sign * 0.5 * mean @ right
            result.scale[arm] = max(scale, self.scale[arm])
        return result


class NIGLinear(GaussianPrior):
    """Arm k pays xᵀβₖ plus normal noise of unknown variance σₖ²: Normal-Inverse-Gamma.

    σₖ² ~ InverseGamma(aₜ, bₜ) and βₖ | σₖ² ~ N(μₜ, σₖ² Σₜ), equations (9) and (10). As in the
    paper, each belief draws one σ̃² per arm; estimate, radius and all samples of the step follow
    from N(xᵀμₜ, σ̃² xᵀΣₜx).

    Parameters
    ----------
    features
        d, the length of a context.
    shape, scale
        a₀ and b₀ of the inverse gamma.
    prior_mean
        μ₀: a number, or a vector (d,).
    prior_precision
        Λ₀ = Σ₀⁻¹: a number, a vector (d,), or a matrix (d, d). The paper's text says 4, its
        results need 0.25.

    >>> import numpy as np
    >>> model = NIGLinear(features=2)
    >>> state = model.start(arms=2)
    >>> model.update(state, context=[1.0, 0.0], arm=1, reward=1.0)
    >>> model.belief(state, [1.0, 0.0], rng=np.random.default_rng(0)).mean
    array([0. , 0.8])

    Reference: Baek and Farias (2023), Section 4.2; Riquelme, Tucker and Snoek (2018).
    """

    state = NIGState

    features: Count
    shape: Positive = 6.0
    scale: Positive = 6.0
    prior_mean: Any = 0.0
    prior_precision: Any = 0.25
    prior_root: Floats = derived()
    prior_std: float = derived()

    def prior(self, state: NIGState, rng: np.random.Generator | None = None) -> None:
        """Write the prior into a blank state, in place."""
        super().prior(state)
        state.scale[:] = self.scale

    def coefficients(self, state: NIGState, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each of an arm's coefficients."""
        mean, std = state.regressions.coefficients(arm)
        shape = self.shape + state.pulls[arm] / 2
        # The expected variance of the noise; it is infinite up to shape 1.
        variance = state.scale[arm] / (shape - 1) if shape > 1 else np.inf
        return mean, std * np.sqrt(variance)


@implements(belief, NIGLinear)
def belief_of_nig_linear(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state.regressions, context, arms)
    return predicted_belief(model, state, mean, std, arms, step, rng)


@implements(predicted_belief, NIGLinear)
def predicted_belief_of_nig(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    pulls, information = evidence(state.regressions, arms)
    random = burst(rng)
    for a in range(arms.size):
        shape = model.shape + pulls[a] / 2
        if shape >= 1.0:
            precision, random = gamma(shape, random)
        else:
            precision = max(rng.standard_gamma(shape), LEAST_PRECISION)
        std[a] *= np.sqrt(state.scale[arms[a]] / precision)
    return Belief(
        Gaussian(), mean, std, mean, std, pulls, information, step, model.features, model.prior_std
    )


@implements(update, NIGLinear)
def update_nig_linear(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    # The closed form of bₜ subtracts large numbers; these steps only add to it.
    surprise, spread = learn(state.regressions, arm, context, reward, 1.0)
    state.scale[arm] += 0.5 * surprise * surprise / (1.0 + spread)


@implements(forget, NIGLinear)
def forget_nig_linear(model, state, weight):  # type: ignore[no-untyped-def]
    for arm in range(state.scale.size):
        distance = fade(state.regressions, arm, weight)
        state.scale[arm] += (1.0 - weight) * (model.scale - state.scale[arm]) + 0.5 * distance
