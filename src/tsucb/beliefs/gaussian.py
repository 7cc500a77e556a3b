"""Independent normals."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, vector
from tsucb.beliefs.law import (
    IndependentLaw,
    distribution,
    draw,
    reward_at,
    upper_quantiles,
    variable_at,
    window,
)
from tsucb.compiler import compiled, implements
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.special import ROOT_2_PI, normal_cdf, normal_quantile_upper

REACH = 6.0  # standard deviations from an arm's mean to each end of its window

# Φ and φ on a grid, for Taylor series around its points: five terms err by 1e-11, and cost a
# fraction of the error function.
GRID = 32.0
GRID_LOW, GRID_HIGH = -7.0, 9.0
_grid = np.arange(GRID_LOW, GRID_HIGH + 1.5 / GRID, 1.0 / GRID)
CDF_GRID = np.array([normal_cdf.py_func(z) for z in _grid])  # type: ignore[attr-defined]
PDF_GRID = np.exp(-0.5 * _grid**2) / ROOT_2_PI


class Gaussian(IndependentLaw):
    """Arm a's mean reward is N(mean[a], std[a]²), with the mean and std of the belief."""

    def is_coarse(self, belief: Belief) -> bool:
        """Return whether a spread is within rounding of the means, or its square overflows."""
        spread, size = belief.std[belief.std > 0], np.abs(belief.mean).max()
        if not spread.size:
            return False
        finest = max(1e-12 * size, 1e-150)
        return bool(spread.min() < finest or max(size, spread.max()) > 1e150)


def GaussianBelief(mean: ArrayLike, std: ArrayLike, **evidence: Any) -> Belief:
    """A belief of independent normals.

    Parameters
    ----------
    mean, std
        Of every arm's mean reward.
    evidence
        Further fields of `Belief`.

    >>> GaussianBelief(mean=[0.1, 0.5], std=[1.0, 0.2]).radius
    array([1. , 0.2])
    """
    return Belief(Gaussian(), vector("mean", mean), np.asarray(std), **evidence)


@implements(draw, Gaussian)
def draw_gaussian(belief, rng, out):  # type: ignore[no-untyped-def]
    mean, std = belief.mean, belief.std
    state = burst(rng)
    for a in range(mean.size):
        z, state = normal(state)
        out[a] = mean[a] + std[a] * z


@implements(upper_quantiles, Gaussian)
def upper_quantiles_gaussian(belief, tail, out):  # type: ignore[no-untyped-def]
    quantile = normal_quantile_upper(tail)
    for a in range(out.size):
        # An arm with infinite std goes first, also at the median, where 0 · ∞ is not a number.
        out[a] = belief.mean[a] + quantile * belief.std[a] if belief.std[a] < np.inf else np.inf


@implements(window, Gaussian)
def window_gaussian(belief, arm):  # type: ignore[no-untyped-def]
    mean, std = belief.mean[arm], belief.std[arm]
    return mean - REACH * std, mean + REACH * std, std


@compiled
def quick_normal(z):  # type: ignore[no-untyped-def]
    """Return Φ(z) and φ(z), by the Taylor series around the nearest point of the grid."""
    z = min(max(z, GRID_LOW), GRID_HIGH)
    i = int((z - GRID_LOW) * GRID + 0.5)
    c = GRID_LOW + i / GRID
    d = z - c
    p = PDF_GRID[i]
    cdf = CDF_GRID[i] + p * d * (
        1.0 - d / 2.0 * (c - d / 3.0 * (c * c - 1.0 - d / 4.0 * (c * c * c - 3.0 * c)))
    )
    e = -d * (c + 0.5 * d)
    pdf = p * (1.0 + e * (1.0 + e / 2.0 * (1.0 + e / 3.0 * (1.0 + e / 4.0))))
    return cdf, pdf


@implements(distribution, Gaussian)
def distribution_gaussian(belief, arm, u):  # type: ignore[no-untyped-def]
    std = belief.std[arm]
    cdf, pdf = quick_normal((u - belief.mean[arm]) / std)
    return cdf, pdf / std


@implements(reward_at, Gaussian)
def reward_at_gaussian(belief, u):  # type: ignore[no-untyped-def]
    return u, 1.0


@implements(variable_at, Gaussian)
def variable_at_gaussian(belief, x):  # type: ignore[no-untyped-def]
    return x
