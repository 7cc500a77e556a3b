"""Independent gammas: the means of counts."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, positive_vector
from tsucb.beliefs.beta import CHANCE, SMALLEST
from tsucb.beliefs.gaussian import REACH
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
from tsucb.numeric.arrays import Floats
from tsucb.numeric.special import chi_squared_quantile_upper, gamma_front, gamma_tails


class Gamma(IndependentLaw):
    """Arm a's mean reward is Gamma(shape[a]) / rate[a]; u is its logarithm."""

    shape: Floats
    rate: Floats

    def is_coarse(self, belief: Belief) -> bool:
        """Return whether a draw may have no finite logarithm."""
        pairs = zip(self.shape, self.rate, strict=True)
        zeros = [gamma_tails(k, r * SMALLEST)[0] for k, r in pairs if k < 0.1]
        return bool(zeros and max(zeros) > CHANCE)

    def smoothness(self) -> float:
        """Return the power at 0, which all arms must reach for the best to be there."""
        return float(self.shape.sum())


def GammaBelief(shape: ArrayLike, rate: ArrayLike, **evidence: Any) -> Belief:
    """A belief of independent gammas.

    Parameters
    ----------
    shape, rate
        Of every arm: its mean is shape / rate.
    evidence
        Further fields of `Belief`.

    >>> GammaBelief(shape=[4.0, 9.0], rate=[2.0, 3.0]).mean
    array([2., 3.])
    """
    k = positive_vector("shape", shape)
    r = positive_vector("rate", rate, k.size)
    return Belief(Gamma(k, r), **{"mean": k / r, "std": np.sqrt(k) / r} | evidence)


@implements(draw, Gamma)
def draw_gamma(belief, rng, out):  # type: ignore[no-untyped-def]
    law = belief.law
    for a in range(out.size):
        out[a] = rng.standard_gamma(law.shape[a]) / law.rate[a]


@implements(upper_quantiles, Gamma)
def upper_quantiles_gamma(belief, tail, out):  # type: ignore[no-untyped-def]
    law = belief.law
    for a in range(out.size):
        out[a] = 0.5 * chi_squared_quantile_upper(tail, 2.0 * law.shape[a]) / law.rate[a]


@compiled
def gamma_edge(shape: float, side: float) -> float:
    """Return the distance from the mode at which the density of the log falls to exp(−REACH²/2).

    The density at a distance v falls by exp(−D), D(v) = shape (eᵛ − 1 − v), which is convex: so
    Newton's method converges from outside, and exp(−D) bounds the chance of going beyond v.
    """
    v = side * REACH / math.sqrt(shape) - (REACH * REACH / shape if side < 0.0 else 0.0)
    v = min(v, 5.0 + math.log1p(REACH * REACH / shape))
    for _ in range(50):
        e = math.exp(v)
        excess = shape * (e - 1.0 - v) - 0.5 * REACH * REACH
        v -= excess / (shape * (e - 1.0))
        if abs(excess) < 0.1:
            break
    if not abs(v) < 1400.0:  # the law is wider than the range of floats
        return side * 1400.0
    return v


@implements(window, Gamma)
def window_gamma(belief, arm):  # type: ignore[no-untyped-def]
    shape = belief.law.shape[arm]
    mode = math.log(shape / belief.law.rate[arm])
    low = max(mode + gamma_edge(shape, -1.0), -700.0)
    # The logarithm bends on a scale of one even where the law is wider.
    high = min(mode + gamma_edge(shape, 1.0), 700.0)
    return min(low, high), high, min(1.0 / math.sqrt(shape), 1.0)


@implements(distribution, Gamma)
def distribution_gamma(belief, arm, u):  # type: ignore[no-untyped-def]
    shape, x = belief.law.shape[arm], belief.law.rate[arm] * math.exp(u)
    return gamma_tails(shape, x)[0], shape * gamma_front(shape, x)


@implements(reward_at, Gamma)
def reward_at_gamma(belief, u):  # type: ignore[no-untyped-def]
    x = math.exp(u)
    return x, x


@implements(variable_at, Gamma)
def variable_at_gamma(belief, x):  # type: ignore[no-untyped-def]
    return math.log(x)
