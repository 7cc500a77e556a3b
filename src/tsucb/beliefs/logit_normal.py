"""Independent probabilities with normal logits, as logistic regression has them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, nonnegative, vector
from tsucb.beliefs.best import (
    NODES,
    POINTS,
    WEIGHTS,
    hazards,
    mean_above,
    mesh,
    regret_and_gain,
    with_own_deviations,
)
from tsucb.beliefs.gaussian import REACH, quick_normal
from tsucb.beliefs.law import (
    LogitLaw,
    distribution,
    draw,
    reward_at,
    upper_quantiles,
    window,
)
from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import Floats
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.logistic import logistic, logistic_moments
from tsucb.numeric.special import normal_quantile_upper


def _sums_to_the_end() -> Floats:
    """Return a matrix: row i has the weights for the integral from node i to the panel's end."""
    legendre = np.polynomial.legendre
    values = legendre.legvander(2 * POINTS, NODES - 1)
    rows = np.empty((NODES, NODES))
    for k in range(NODES):
        sums = legendre.legint(np.eye(NODES)[k]) / 2
        rows[:, k] = legendre.legval(1.0, sums) - legendre.legval(2 * POINTS, sums)
    return np.ascontiguousarray(rows @ np.linalg.inv(values))


TO_THE_END = _sums_to_the_end()


class LogitNormal(LogitLaw):
    """Arm a's mean reward is σ(η) with η ~ N(centre[a], scale[a]²)."""

    centre: Floats
    scale: Floats

    def is_coarse(self, belief: Belief) -> bool:
        """Return whether two draws may round to 1, or a scale is no more than rounding."""
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
        What else a `Belief` holds.

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


@implements(regret_and_gain, LogitNormal)
def integrate_regret_and_gain(belief):  # type: ignore[no-untyped-def]
    """Return regret and gain; E[f(a) | f(a) ≤ x] has no formula here and is summed.

    D(a, b) = ∫ F λ_b (E[f(a) | f(a) ≤ x] − mean(a)) du is E[f(a); b best] − mean(a) P(b best) for
    b ≠ a, and what makes them sum to zero for b = a; the gain is Σ_b D(a, b)² / P(b best).
    """
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    count = arms.size
    best, hazard = hazards(belief, arms, nodes, ends)
    regret = mean_above(belief, floor, nodes, weights, best) - belief.mean
    below, at_floor_below = means_below(belief, arms, nodes, weights, floor)
    probability, own, spread = np.zeros(count), np.zeros(count), np.zeros(count)
    for b in range(count):
        for i in range(ends[b]):
            probability[b] += weights[i] * best[i] * hazard[b, i]
    for a in range(count):
        for b in range(count):
            if b != a and probability[b] > 0.0:
                deviation = 0.0
                for i in range(min(ends[a], ends[b])):
                    deviation += weights[i] * best[i] * hazard[b, i] * below[a, i]
                own[a] -= deviation
                spread[a] += deviation * deviation / probability[b]
    if certain:
        at_floor = hazards(belief, arms, np.array([floor]), np.ones(count, np.int64))[0][0]
        for a in range(count):
            own[a] -= at_floor * at_floor_below[a]
            spread[a] += at_floor * at_floor_below[a] ** 2
    return with_own_deviations(regret, arms, probability, own, spread)


@compiled
def means_below(belief, arms, nodes, weights, floor):  # type: ignore[no-untyped-def]
    """Return E[f(a) | f(a) ≤ x] − mean(a) at every node, and at the floor.

    By parts, F(x) E[f | f ≤ x] = x F(x) − ∫ F up to x, and that integral is what is missing from x
    on to x₁ − mean, x₁ being the end of the range.
    """
    count, panels = arms.size, nodes.size // NODES
    found, first = np.empty((count, nodes.size)), np.empty(count)
    values = np.empty(NODES)
    for k in range(count):
        mean = belief.mean[arms[k]]
        last = panels * NODES - 1
        end = nodes[last] + weights[last] / WEIGHTS[NODES - 1] * (0.5 - POINTS[NODES - 1])
        lower = reward_at(belief, end)[0] - mean  # ∫ F up to the end of the panel
        for p in range(panels - 1, -1, -1):
            length = weights[p * NODES] / WEIGHTS[0]
            for j in range(NODES):
                u = nodes[p * NODES + j]
                values[j] = distribution(belief, arms[k], u)[0] * reward_at(belief, u)[1]
            whole = 0.0
            for j in range(NODES):
                rest = 0.0
                for i in range(NODES):
                    rest += TO_THE_END[j, i] * values[i]
                u = nodes[p * NODES + j]
                cdf = distribution(belief, arms[k], u)[0]
                lost = (lower - length * rest) / cdf
                found[k, p * NODES + j] = reward_at(belief, u)[0] - lost - mean
                whole += WEIGHTS[j] * values[j]
            lower -= length * whole
        cdf = distribution(belief, arms[k], floor)[0]
        first[k] = reward_at(belief, floor)[0] - lower / cdf - mean
    return found, first
