"""One vector of coefficients per arm, and noise that is unknown too."""

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
from tsucb.numeric.bursts import burst, gamma

MOST_SCALE = 1e120  # of the noise: sums of squares of the largest numbers that are let in
LEAST_PRECISION = 1e-60  # draws of a gamma of a small shape underflow to zero


class NIGState(NamedTuple):
    """K regressions in units of their noise, and bₜ (K,), the scale of each noise variance."""

    regressions: Regressions
    scale: Floats

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.regressions.pulls


class NIGLinear(
    Model,
    NamedTuple(
        "NIGLinear",
        [
            ("features", int),
            ("shape", float),
            ("scale", float),
            ("prior_mean", Floats),
            ("prior_root", Floats),
            ("prior_std", float),
        ],
    ),
):
    """Arm k pays xᵀβₖ plus normal noise of unknown variance σₖ²: Normal-Inverse-Gamma.

    σₖ² ~ InverseGamma(aₜ, bₜ) and βₖ | σₖ² ~ N(μₜ, σₖ² Σₜ), equations (9)
    and (10). As in the paper, each belief draws one σ̃² per arm and uses N(xᵀμₜ, σ̃² xᵀΣₜx):
    estimate, radius and all samples of that step.

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

    __slots__ = ()

    def __new__(
        cls,
        features: int,
        shape: float = 6.0,
        scale: float = 6.0,
        prior_mean: ArrayLike = 0.0,
        prior_precision: ArrayLike = 0.25,
    ) -> "NIGLinear":
        precision = np.asarray(prior_precision, dtype=np.float64)
        with np.errstate(divide="ignore"):
            covariance = np.linalg.inv(precision) if precision.ndim == 2 else 1 / precision
        d, mean, root, smallest = gaussian_prior(features, prior_mean, covariance)
        return super().__new__(
            cls, d, positive("shape", shape), positive("scale", scale), mean, root, smallest
        )

    def start(self, arms: int, rng: np.random.Generator | None = None) -> NIGState:
        """The state before any data: K regressions at the prior."""
        arms = check_arm_count(arms)
        return NIGState(
            regressions.start(arms, self.prior_mean, self.prior_root), np.full(arms, self.scale)
        )

    def extend(self, state: NIGState, arms: int) -> NIGState:
        """A state with further arms at the end, each with the prior."""
        new = self.start(arms)
        return NIGState(
            regressions.concatenate(state.regressions, new.regressions),
            np.concatenate((state.scale, new.scale)),
        )

    def predictions(
        self, state: NIGState, contexts: Floats, arms: Integers
    ) -> tuple[Floats, Floats]:
        """Moments of the arms' rewards at many contexts, for noise of variance 1."""
        return regressions.predict_many(state.regressions, contexts, arms)

    def merged(self, first: NIGState, second: NIGState, base: NIGState) -> NIGState:
        """Precisions add up, and so does scale + ½ meanᵀ precision mean."""
        result = regressions.merged(first.regressions, second.regressions, base.regressions)
        scale = first.scale + second.scale - base.scale
        for arm in range(scale.size):
            if (second.pulls == base.pulls)[arm]:
                continue
            for state, sign in ((first, 1), (second, 1), (base, -1)):
                scale[arm] += sign * half_square(state.regressions, arm)
            scale[arm] = max(scale[arm] - half_square(result, arm), first.scale[arm])
        return NIGState(result, scale)

    def coefficients(self, state: NIGState, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every coefficient."""
        mean, std = regressions.coefficients(state.regressions, arm)
        shape = self.shape + state.pulls[arm] / 2
        # The expectation of the noise's variance; it has none up to shape 1.
        variance = state.scale[arm] / (shape - 1) if shape > 1 else np.inf
        return mean, std * np.sqrt(variance)

    def check_settings(self) -> None:
        """Raise a ValueError for a prior that no arguments of the constructor lead to."""
        check_prior(self.prior_mean, self.prior_root, self.prior_std)

    def check_state(self, state: NIGState, rewards: int) -> None:
        """Raise a ValueError for posteriors that data cannot have led to."""
        regressions.check(state.regressions, rewards, self.prior_root)
        # Up to rounding, the scale only ever grows; forgetting takes it back towards the prior's.
        if not ((state.scale >= 1e-9 * self.scale) & (state.scale <= MOST_SCALE)).all():
            raise ValueError("a scale of the noise that cannot be")

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d,), the same for all arms."""
        return (self.features,)


def half_square(state: Regressions, arm: int) -> float:
    """½ meanᵀ precision mean of an arm."""
    mean, root = regressions.arm_posterior(state, arm)
    return float(0.5 * (np.linalg.solve(root, mean) ** 2).sum())


@implements(believe, NIGLinear)
def believe_nig_linear(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state.regressions, context, arms)
    return believe_predicted(model, state, mean, std, arms, step, rng)


@implements(believe_predicted, NIGLinear)
def believe_predicted_nig(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
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
    # The closed form of bₜ subtracts large numbers; step by step it only ever grows.
    surprise, spread = learn(state.regressions, arm, context, reward, 1.0)
    state.scale[arm] += 0.5 * surprise * surprise / (1.0 + spread)


@implements(forget, NIGLinear)
def forget_nig_linear(model, state, part, weight):  # type: ignore[no-untyped-def]
    distance = observe_prior(state.regressions, part, weight, model.prior_root, model.prior_mean)
    state.scale[part] += (1.0 - weight) * (model.scale - state.scale[part]) + 0.5 * distance
