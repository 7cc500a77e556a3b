"""Independent gammas: the means of counts."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, positive_vector
from tsucb.beliefs.beta import CHANCE, SMALLEST, edge
from tsucb.beliefs.law import (
    IndependentLaw,
    distribution,
    draw,
    reward_at,
    upper_quantiles,
    variable_at,
    window,
)
from tsucb.compiler import implements
from tsucb.numeric.arrays import Floats
from tsucb.numeric.special import chi_squared_quantile_upper, gamma_front, gamma_tails

HUGE = 1e30  # with this beta the window of a Beta is that of a gamma


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


@implements(window, Gamma)
def window_gamma(belief, arm):  # type: ignore[no-untyped-def]
    shape = belief.law.shape[arm]
    mode = math.log(shape / belief.law.rate[arm])
    low = max(mode + edge(shape, HUGE, -1.0), -700.0)
    # The logarithm bends on a scale of one even where the law is wider.
    high = min(mode + edge(shape, HUGE, 1.0), 700.0)
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
