"""Integrals over the best of independent arms, in place of samples.

When the arms' mean rewards are independent, their maximum has the distribution function
F(x) = Πₖ Fₖ(x). What Thompson sampling, TS-UCB and IDS estimate by sampling then are integrals over
one variable u (the reward itself for normals, its logit for Betas):

- E[max] = ∫ x dF(x),
- P(b is best) = ∫ F λ_b du, with λ_b = (density of b) / F_b,
- E[f(a); b is best] = ∫ F λ_b E[f(a) | f(a) ≤ x] du for a ≠ b, with the inner expectation
  integrated too.

The nodes follow the arms. Every arm exceeds the lower end of its window almost surely, so F
vanishes below `floor`, the highest of these ends. The windows of all arms that matter contain
`floor`, and those of wide arms reach further up than those of narrow ones. Panels of Gauss–Legendre
nodes go upwards from `floor`, each as wide as the narrowest arm allows whose window has not ended
yet. An arm whose window ends below `floor` is left out; that changes F by at most TAIL there and
E[max] by at most 2e-10 of the arm's spread.
"""

from typing import Any

import numpy as np

from tsucb.beliefs.law import IndependentLaw, distribution, reward_at, window
from tsucb.compiler import compiled, hook, implements
from tsucb.numeric.arrays import Floats, full, inner, largest_of, place_of_largest, total

TAIL = 1e-9  # the chance that a normal leaves its window on one side
NODES = 8  # Gauss–Legendre nodes in one panel
WIDTH = 3.3  # width of a panel in units of the narrowest arm's scale, before the number of arms

POINTS, WEIGHTS = (0.5 * array for array in np.polynomial.legendre.leggauss(NODES))


def _sums_to_the_end() -> Floats:
    """Return a matrix; row i has the weights of the integral from node i to the panel's end."""
    legendre = np.polynomial.legendre
    values = legendre.legvander(2 * POINTS, NODES - 1)
    rows = np.empty((NODES, NODES))
    for k in range(NODES):
        sums = legendre.legint(np.eye(NODES)[k]) / 2
        rows[:, k] = legendre.legval(1.0, sums) - legendre.legval(2 * POINTS, sums)
    return np.ascontiguousarray(rows @ np.linalg.inv(values))


TO_THE_END = _sums_to_the_end()


@hook
def expected_best(belief: Any) -> float:
    """Return E[max over arms].

    >>> from tsucb import GaussianBelief
    >>> round(expected_best(GaussianBelief(mean=[0.0, 0.0], std=[1.0, 1.0])), 6)  # 1/√π
    0.56419
    """


@hook
def best_probabilities(belief: Any) -> Floats:
    """Return P(arm is best) for every arm; certain arms that tie share it equally.

    >>> from tsucb import GaussianBelief
    >>> best_probabilities(GaussianBelief(mean=[0.0, 0.0, -99.0], std=[1.0, 1.0, 1.0]))
    array([0.5, 0.5, 0. ])
    """


@hook
def regret_and_gain(belief: Any) -> tuple[Floats, Floats]:
    """Return regret E[max] − mean(a) and gain, the variance of E[f(a) | which arm is best].

    >>> from tsucb import GaussianBelief
    >>> regret, gain = regret_and_gain(GaussianBelief(mean=[0.0, 0.0], std=[1.0, 1.0]))
    >>> gain.round(6)  # 1/π: E[f | best] = 1/√π
    array([0.31831, 0.31831])
    """


@compiled
def outline(belief):  # type: ignore[no-untyped-def]
    """Return the arms that can be best, and the range in which the best can lie.

    Returns
    -------
    arms
        Indices of the arms whose windows end above `floor`.
    high, scale
        The upper end of the window of each of these arms, and its scale.
    floor, ceiling
        The range; outside it F is 0 or 1, up to a negligible chance.
    certain
        Whether F jumps at `floor`, the value of an arm without any spread.
    """
    total = belief.mean.size
    arms = np.empty(total, np.int64)
    high, scale = np.empty(total), np.empty(total)
    floor = -np.inf
    for a in range(total):
        floor = max(floor, window(belief, a)[0])
    count = 0
    ceiling = floor
    certain = False
    for a in range(total):
        low, end, spread = window(belief, a)
        if end > floor:
            arms[count], high[count], scale[count] = a, end, spread
            ceiling = max(ceiling, end)
            count += 1
        elif low == floor:
            certain = True
    arms, high, scale = arms[:count], high[:count], scale[:count]
    # With many arms, F may be negligible for some way above `floor`.
    while not certain:
        after = floor + narrowest(high, scale, floor)
        if not after > floor or best_cdf(belief, arms, after) > TAIL:
            break
        floor = after
    return arms, high, scale, floor, ceiling, certain


@compiled
def conceivable(belief):  # type: ignore[no-untyped-def]
    """Return the least value of u that the best arm can have, and the largest of every arm.

    Both are ends of windows of twice the width. For normals these end at 12 standard deviations,
    which are exceeded with a chance of 1e-33: no draw is outside.
    """
    low, ends = -np.inf, np.empty(belief.mean.size)
    for a in range(ends.size):
        start, end, _ = window(belief, a)
        reach = 0.5 * (end - start)
        low, ends[a] = max(low, start - reach), end + reach
    return low, ends


@compiled
def narrowest(high, scale, u):  # type: ignore[no-untyped-def]
    """Return the smallest scale of the arms whose window ends above u."""
    smallest = np.inf
    for k in range(high.size):
        if high[k] > u:
            smallest = min(smallest, scale[k])
    return smallest


@compiled
def nodes_between(belief, high, scale, start, stop, longest, span):  # type: ignore[no-untyped-def]
    """Return Gauss–Legendre nodes and weights from `start` to `stop`, as fine as the arms need.

    For integrands with a scale of their own, no panel is longer than `longest`, nor are the rewards
    at its ends further apart than `span`.
    """
    # The best of many arms varies less than one of them. Tuned on equal arms, the worst case:
    # E[max] to 1e-8 and gains to 1e-6 with 32 to 40 nodes, for 2 to 200 arms.
    width = WIDTH * max(high.size, 1) ** -0.2
    edges = np.empty(64)
    edges[0] = start
    count = 0
    while edges[count] < stop:
        last = edges[count]
        length = min(width * narrowest(high, scale, last), longest)
        if span < np.inf:
            length = min(length, stop - last)
            reward = reward_at(belief, last)[0]
            while reward_at(belief, last + length)[0] - reward > span:
                length *= 0.5
        count += 1
        if count == edges.size:
            edges = np.append(edges, edges)
        edges[count] = last + length
        # Also stop where a panel is lost in rounding: the rest is shorter than any integrand needs.
        if edges[count] + 0.3 * length > stop or not edges[count] > last:
            edges[count] = stop
    nodes, weights = np.empty(count * NODES), np.empty(count * NODES)
    for p in range(count):
        length = edges[p + 1] - edges[p]
        for i in range(NODES):
            nodes[p * NODES + i] = edges[p] + length * (0.5 + POINTS[i])
            weights[p * NODES + i] = length * WEIGHTS[i]
    return nodes, weights


@compiled
def mesh(belief):  # type: ignore[no-untyped-def]
    """Return arms, nodes, weights, ends, floor and certain; see `outline`.

    `ends` has the number of nodes below the end of each arm's window; at the others its F is one.
    """
    arms, high, scale, floor, ceiling, certain = outline(belief)
    nodes, weights = nodes_between(belief, high, scale, floor, ceiling, np.inf, np.inf)
    return arms, nodes, weights, inside(high, nodes), floor, certain


@compiled
def inside(high, nodes):  # type: ignore[no-untyped-def]
    """Return the number of the ascending nodes that lie below the end of each arm's window."""
    count = np.empty(high.size, np.int64)
    for k in range(high.size):
        count[k] = np.searchsorted(nodes, high[k])
    return count


@compiled
def best_cdf(belief, arms, u):  # type: ignore[no-untyped-def]
    """Return F(u), the product of the arms' distribution functions."""
    product = 1.0
    for a in arms:
        product *= distribution(belief, a, u)[0]
    return product


@implements(expected_best, IndependentLaw)
def integrate_best(belief):  # type: ignore[no-untyped-def]
    """Return floor + ∫ (1 − F) dx."""
    if largest_of(belief.std) == np.inf:
        return np.inf
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    if arms.size == 1 and not certain:
        return belief.mean[arms[0]]
    best = np.ones(nodes.size)
    for k in range(arms.size):
        for i in range(ends[k]):
            best[i] *= distribution(belief, arms[k], nodes[i])[0]
    return mean_above(belief, floor, nodes, weights, best)


@compiled
def mean_above(belief, floor, nodes, weights, best):  # type: ignore[no-untyped-def]
    """Return floor + ∫ (1 − F) dx, given F at the nodes."""
    out = reward_at(belief, floor)[0]
    for i in range(nodes.size):
        out += weights[i] * reward_at(belief, nodes[i])[1] * (1.0 - best[i])
    return out


@compiled
def hazards(belief, arms, nodes, ends):  # type: ignore[no-untyped-def]
    """Return F at every node; of every arm, its distribution function there, and λ.

    Beyond an arm's window they are 1 and 0.
    """
    best = np.ones(nodes.size)
    below, hazard = np.ones((arms.size, nodes.size)), np.zeros((arms.size, nodes.size))
    for k in range(arms.size):
        for i in range(ends[k]):
            cdf, pdf = distribution(belief, arms[k], nodes[i])
            best[i] *= cdf
            below[k, i] = cdf
            hazard[k, i] = pdf / cdf
    return best, below, hazard


@implements(best_probabilities, IndependentLaw)
def integrate_best_probabilities(belief):  # type: ignore[no-untyped-def]
    out = np.zeros(belief.mean.size)
    if largest_of(belief.std) == np.inf:  # there is no density to integrate
        return out * np.nan
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    best, _, hazard = hazards(belief, arms, nodes, ends)
    for k in range(arms.size):
        for i in range(ends[k]):
            out[arms[k]] += weights[i] * best[i] * hazard[k, i]
    if certain:
        at_floor = best_cdf(belief, arms, floor)
        ties = 0
        for a in range(out.size):
            ties += is_certain(belief, a, floor)
        for a in range(out.size):
            if is_certain(belief, a, floor):
                out[a] = at_floor / ties
    return out / total(out)


@compiled
def is_certain(belief, arm, value):  # type: ignore[no-untyped-def]
    """Return whether the arm has this value without any spread."""
    low, high, _ = window(belief, arm)
    return low == value and high == value


@implements(regret_and_gain, IndependentLaw)
def integrate_regret_and_gain(belief):  # type: ignore[no-untyped-def]
    """Return regret and gain.

    The gain is Σ_b D(a, b)² / P(b best) with D(a, b) = E[f(a); b best] − mean(a) P(b best). For
    b ≠ a, D(a, b) = ∫ F λ_b (E[f(a) | f(a) ≤ x] − mean(a)) du; D(a, a) = −Σ D(a, b), as all D(a, b)
    sum to zero.
    """
    gain = np.zeros(belief.std.size)
    if largest_of(belief.std) == np.inf:
        for a in range(gain.size):
            if belief.std[a] == np.inf:
                gain[a] = np.inf
        return full(gain.size, np.inf), gain
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    best, below, hazard = hazards(belief, arms, nodes, ends)
    below_floor = to_means_below(belief, arms, nodes, weights, floor, below)
    probability = np.zeros(arms.size)
    for b in range(arms.size):
        for i in range(ends[b]):
            hazard[b, i] *= weights[i] * best[i]
            probability[b] += hazard[b, i]
    own, spread = np.zeros(arms.size), np.zeros(arms.size)  # D(a, a), Σ D(a, b)² / P over b ≠ a
    for k in range(arms.size):
        for j in range(k):
            one, other = 0.0, 0.0  # D(k, j) and D(j, k)
            for i in range(min(ends[j], ends[k])):
                one += hazard[j, i] * below[k, i]
                other += hazard[k, i] * below[j, i]
            own[k] -= one
            own[j] -= other
            if one != 0.0:
                spread[k] += one * one / probability[j]
            if other != 0.0:
                spread[j] += other * other / probability[k]
    if certain:  # a certain arm may be best, too: all of its mass is at the floor
        at_floor = best_cdf(belief, arms, floor)
        for k in range(arms.size):
            own[k] -= at_floor * below_floor[k]
            spread[k] += at_floor * below_floor[k] ** 2
    for k in range(arms.size):
        if probability[k] > 0.0:
            spread[k] += own[k] * own[k] / probability[k]
        gain[arms[k]] = spread[k]
    regret = mean_above(belief, floor, nodes, weights, best) - belief.mean
    for a in range(regret.size):
        regret[a] = max(regret[a], 0.0)  # below zero by rounding only
    return regret, gain


@compiled
def to_means_below(belief, arms, nodes, weights, floor, below):  # type: ignore[no-untyped-def]
    """Replace every arm's F(x) at the nodes by E[f | f ≤ x] − mean; return this value at the floor.

    F(x) E[f | f ≤ x] = x F(x) − ∫ F up to x. With x₁ the end of the range, ∫ F up to x₁ is
    x₁ − mean; the integral up to x is that less the integral from x to x₁.
    """
    at_floor, values = np.empty(arms.size), np.empty(NODES)
    last = nodes.size - 1
    end = nodes[last] + weights[last] / WEIGHTS[NODES - 1] * (0.5 - POINTS[NODES - 1])
    for k in range(arms.size):
        mean = belief.mean[arms[k]]
        lower = reward_at(belief, end)[0] - mean  # ∫ F up to the end of the panel
        for first in range(nodes.size - NODES, -1, -NODES):
            length = weights[first] / WEIGHTS[0]
            whole = 0.0
            for j in range(NODES):
                values[j] = below[k, first + j] * reward_at(belief, nodes[first + j])[1]
                whole += WEIGHTS[j] * values[j]
            for j in range(NODES):
                rest = inner(TO_THE_END[j], values)
                lost = (lower - length * rest) / below[k, first + j]
                below[k, first + j] = reward_at(belief, nodes[first + j])[0] - lost - mean
            lower -= length * whole
        cdf = distribution(belief, arms[k], floor)[0]
        at_floor[k] = reward_at(belief, floor)[0] - lower / cdf - mean
    return at_floor


@compiled
def add_win(means, wins, totals):  # type: ignore[no-untyped-def]
    """Count a draw for the arm that is best in it; return the mean reward of that arm.

    Add the draw to row b of `totals`, b being that arm.
    """
    b = place_of_largest(means)
    wins[b] += 1.0
    for a in range(means.size):
        totals[b, a] += means[a]
    return means[b]


@compiled
def gain_of_wins(mean, wins, totals, best):  # type: ignore[no-untyped-def]
    """Return regret and gain, estimated from draws.

    `wins` and `totals` are from `add_win`; `best` is the sum of what it returned. By chance the
    average of the best may be below an exact mean: then a regret is negative.
    """
    arms = mean.size
    samples = total(wins)
    regret, gain = np.empty(arms), np.zeros(arms)
    for a in range(arms):
        regret[a] = best / samples - mean[a]
    for b in range(arms):
        if wins[b] > 0:
            row = totals[b]
            for a in range(arms):
                gain[a] += wins[b] / samples * (row[a] / wins[b] - mean[a]) ** 2
    return regret, gain
