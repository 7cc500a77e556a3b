"""Independent Betas: success probabilities."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, positive_vector
from tsucb.beliefs.gaussian import REACH
from tsucb.beliefs.law import LogitLaw, distribution, draw, upper_quantiles, window
from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import Floats
from tsucb.numeric.special import beta_front, beta_quantile_upper, beta_tails

LAST = 2.0**-53  # 1 minus the largest float below 1
SMALLEST = 1e-300  # about the smallest positive float
TINY = 0.01  # parameters with which powers of a uniform number underflow are smaller
CHANCE = 1e-7  # the probability of equal draws that is neglected


class Beta(LogitLaw):
    """Arm a's mean reward is Beta(alpha[a], beta[a])."""

    alpha: Floats
    beta: Floats

    def is_coarse(self, belief: Belief) -> bool:
        """Return whether two draws may both round to 1, or one may have no finite logit."""
        if min(self.beta.min(), self.alpha.min()) > 0.5:
            return False
        sides = list(zip(self.alpha, self.beta, strict=True))
        ones = sorted(beta_tails(1.0 - LAST, LAST, a, b)[1] for a, b in sides)
        ends = [beta_tails(SMALLEST, 1.0, *each)[0] for a, b in sides for each in ((a, b), (b, a))]
        return bool(sum(ones[:-1]) > CHANCE or max(ends) > CHANCE)

    def smoothness(self) -> float:
        """Return the smaller power: at 0, which all arms must reach, or at 1, which one must."""
        return float(min(self.alpha.sum(), self.beta.min()))


def BetaBelief(alpha: ArrayLike, beta: ArrayLike, **evidence: Any) -> Belief:
    """A belief of independent Betas.

    Parameters
    ----------
    alpha, beta
        Of every arm.
    evidence
        Further fields of `Belief`.

    >>> BetaBelief(alpha=[1.0, 8.0], beta=[1.0, 2.0]).mean
    array([0.5, 0.8])
    """
    a = positive_vector("alpha", alpha)
    b = positive_vector("beta", beta, a.size)
    std = np.sqrt(a * b / (a + b + 1)) / (a + b)
    return Belief(Beta(a, b), **{"mean": a / (a + b), "std": std} | evidence)


@compiled
def draw_one(alpha: float, beta: float, rng: Any) -> float:
    """Return a draw of a Beta, whose parameters may both be tiny.

    Jöhnk's method takes powers of two uniform numbers; Numba's `rng.beta` repeats it while both
    powers underflow, a million times at 1e-9. So take logarithms there, which do not underflow.
    """
    if max(alpha, beta) > TINY:
        return float(rng.beta(alpha, beta))
    while True:
        x, y = math.log(1.0 - rng.random()) / alpha, math.log(1.0 - rng.random()) / beta
        if math.exp(x) + math.exp(y) <= 1.0:
            return 1.0 / (1.0 + math.exp(min(y - x, 700.0)))


@implements(draw, Beta)
def draw_beta(belief, rng, out):  # type: ignore[no-untyped-def]
    law = belief.law
    for a in range(law.alpha.size):
        out[a] = draw_one(law.alpha[a], law.beta[a], rng)


@implements(upper_quantiles, Beta)
def upper_quantiles_beta(belief, tail, out):  # type: ignore[no-untyped-def]
    law = belief.law
    for a in range(out.size):
        out[a] = beta_quantile_upper(tail, law.alpha[a], law.beta[a])


@compiled
def edge(alpha: float, beta: float, side: float) -> float:
    """Return the distance from the mode at which the density of the logit falls to exp(−REACH²/2).

    With m = alpha/n and n = alpha + beta, the density at a distance v falls by the factor
    exp(−D), D(v) = n log(1 + m (eᵛ − 1)) − alpha v; D is n times a relative entropy, and exp(−D)
    bounds the chance of going beyond v (Chernoff). Newton's method: D is convex. For a huge beta,
    D is alpha (eᵛ − 1 − v), as for the logarithm of a gamma.
    """
    n = alpha + beta
    m, half = alpha / n, 0.5 * REACH * REACH
    v = min(
        side * REACH * math.sqrt(1.0 / alpha + 1.0 / beta), 5.0 + math.log1p(2.0 * half / alpha)
    )
    for _ in range(50):
        e = m * math.expm1(v)
        excess = n * math.log1p(e) - alpha * v - half
        v -= excess / (n * (m + e) / (1.0 + e) - alpha)
        if abs(excess) < 0.1:
            break
    if not abs(v) < 1400.0:  # the law is wider than the range of floats
        return side * 1400.0
    return v


@implements(window, Beta)
def window_beta(belief, arm):  # type: ignore[no-untyped-def]
    alpha, beta = belief.law.alpha[arm], belief.law.beta[arm]
    mode = math.log(alpha / beta)
    low = max(mode + edge(alpha, beta, -1.0), -700.0)
    high = min(mode + edge(alpha, beta, 1.0), 700.0)
    # The logit bends on a scale of one even where the law is wider.
    return low, high, min(math.sqrt(1.0 / alpha + 1.0 / beta), 1.0)


@implements(distribution, Beta)
def distribution_beta(belief, arm, u):  # type: ignore[no-untyped-def]
    alpha, beta = belief.law.alpha[arm], belief.law.beta[arm]
    x, y = 1.0 / (1.0 + math.exp(-u)), 1.0 / (1.0 + math.exp(u))
    return beta_tails(x, y, alpha, beta)[0], beta_front(x, y, alpha, beta)
