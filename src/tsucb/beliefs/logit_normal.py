"""Independent probabilities with normal logits, as in logistic regression."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, nonnegative, vector
from tsucb.beliefs.gaussian import REACH, quick_normal
from tsucb.beliefs.law import LogitLaw, distribution, draw, upper_quantiles, window
from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import Floats
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.logistic import logistic, logistic_moments
from tsucb.numeric.special import normal_quantile_upper


class LogitNormal(LogitLaw):
    """Arm a's mean reward is σ(η) with η ~ N(centre[a], scale[a]²)."""

    centre: Floats
    scale: Floats

    def is_coarse(self, belief: Belief) -> bool:
        """Return whether two draws may round to 1, or a scale is within rounding of the centres."""
        spread, size = self.scale[self.scale > 0], np.abs(self.centre).max()
        high = float(np.sort(self.centre + REACH * self.scale)[-2:].min())
        return bool(high > 36.0 or (spread.size and spread.min() < 1e-12 * max(size, 1.0)))


def LogitNormalBelief(centre: ArrayLike, scale: ArrayLike, **evidence: Any) -> Belief:
    """A belief of independent probabilities, each with a normal logit.

    Parameters
    ----------
    centre, scale
        Mean and standard deviation of every arm's logit.
    evidence
        Further fields of `Belief`.

    >>> LogitNormalBelief(centre=[-3.0, 0.0], scale=[1.0, 2.0]).mean.round(6)
    array([0.069324, 0.5     ])
    """
    c = vector("centre", centre)
    s = nonnegative("scale", scale, c.size)
    if not (np.isfinite(c).all() and np.isfinite(s).all()):
        raise ValueError("centre and scale must be finite for every arm")
    mean, std = moments(c, s)
    return Belief(LogitNormal(c, s), **{"mean": mean, "std": std} | evidence)


@compiled
def moments(centre, scale):  # type: ignore[no-untyped-def]
    """Return mean and standard deviation of every arm's mean reward."""
    mean, std = np.empty(centre.size), np.empty(centre.size)
    for a in range(centre.size):
        mean[a], std[a] = logistic_moments(centre[a], scale[a])
    return mean, std


@implements(draw, LogitNormal)
def draw_logit_normal(belief, rng, out):  # type: ignore[no-untyped-def]
    law = belief.law
    state = burst(rng)
    for a in range(out.size):
        z, state = normal(state)
        out[a] = logistic(law.centre[a] + law.scale[a] * z)


@implements(upper_quantiles, LogitNormal)
def upper_quantiles_logit_normal(belief, tail, out):  # type: ignore[no-untyped-def]
    quantile = normal_quantile_upper(tail)
    for a in range(out.size):
        out[a] = logistic(belief.law.centre[a] + quantile * belief.law.scale[a])


@implements(window, LogitNormal)
def window_logit_normal(belief, arm):  # type: ignore[no-untyped-def]
    centre, scale = belief.law.centre[arm], belief.law.scale[arm]
    # The logit bends on a scale of one even where the law is wider.
    return centre - REACH * scale, centre + REACH * scale, min(scale, 1.0)


@implements(distribution, LogitNormal)
def distribution_logit_normal(belief, arm, u):  # type: ignore[no-untyped-def]
    scale = belief.law.scale[arm]
    cdf, pdf = quick_normal((u - belief.law.centre[arm]) / scale)
    return cdf, pdf / scale
