"""Integrals over the best of independent arms, in place of samples.

When the arms' mean rewards are independent, their maximum has the distribution function
F(x) = Πₖ Fₖ(x), and what Thompson sampling, TS-UCB and IDS estimate by sampling are integrals over
one variable u (the reward itself for normals, its logit for Betas):

- E[max] = ∫ x dF(x),
- P(b is best) = ∫ F λ_b du, with λ_b = (density of b) / F_b,
- E[f(a); b is best] = mean(a) P(b is best) − g(a) ∫ F λ_a λ_b du for a ≠ b, because for both
  families E[f(a) | f(a) ≤ x] = mean(a) − g(a) λ_a: g is the variance of a normal, and
  1/(alpha + beta) of a Beta.

The nodes follow the arms. Below `floor`, the highest of the points that each arm exceeds with all
but negligible chance, F vanishes; so every arm that matters straddles `floor` from below, and
going up the wide arms outlast the narrow ones. Panels of Gauss–Legendre nodes march upwards, each
as wide as the narrowest arm that is not yet behind it allows. An arm that ends below `floor` is
left out; that changes F by at most TAIL there and E[max] by at most 2e-10 of the arm's spread.
"""

import math
from typing import Any

import numpy as np

from tsucb.beliefs.belief import BetaBelief, GaussianBelief, JointGaussianBelief
from tsucb.beliefs.sampling import average_best
from tsucb.compiled import compiled, generic, implements, inlined, second_is_real
from tsucb.numeric.special import beta_front, beta_tails, normal_cdf, normal_pdf

REACH = 6.0  # an arm's window: so many standard deviations to each side
TAIL = 1e-9  # the chance that a normal leaves its window on one side
JOINT_DRAWS = 10_000  # in place of an integral, where arms are jointly normal
NODES = 8  # Gauss–Legendre nodes in one panel
WIDTH = 3.3  # width of a panel in units of the narrowest arm's scale, before the number of arms

POINTS, WEIGHTS = (0.5 * array for array in np.polynomial.legendre.leggauss(NODES))

# Φ and φ on a grid, for a Taylor series around the nearest point: five terms err by 1e-11, and
# cost a fraction of the error function.
GRID = 32.0
GRID_LOW, GRID_HIGH = -7.0, 9.0
_grid = np.arange(GRID_LOW, GRID_HIGH + 1.5 / GRID, 1.0 / GRID)
CDF_GRID = np.array([normal_cdf.py_func(z) for z in _grid])  # type: ignore[attr-defined]
PDF_GRID = np.array([normal_pdf.py_func(z) for z in _grid])  # type: ignore[attr-defined]


@generic
def window(belief: Any, arm: int) -> tuple[float, float, float]:
    """Where the arm's mean reward lies but for negligible chance, and the scale of its law in u."""
    raise NotImplementedError  # called from compiled code only


@generic
def law(belief: Any, arm: int, u: float) -> tuple[float, float]:
    """The arm's distribution function and density (with respect to u) at u, inside its window."""
    raise NotImplementedError


@generic
def pull(belief: Any, arm: int) -> float:
    """g: E[f(a) | f(a) ≤ x] = mean(a) − g(a) λ_a."""
    raise NotImplementedError


@generic
def reward_at(belief: Any, u: float) -> tuple[float, float]:
    """The reward x at u, and dx/du."""
    raise NotImplementedError


@generic
def variable_at(belief: Any, x: float) -> float:
    """The u at which the reward is x."""
    raise NotImplementedError


@implements(window, GaussianBelief)
def _(belief, arm):  # type: ignore[no-untyped-def]
    mean, std = belief.mean[arm], belief.std[arm]
    return mean - REACH * std, mean + REACH * std, std


@implements(law, GaussianBelief)
def _(belief, arm, u):  # type: ignore[no-untyped-def]
    std = belief.std[arm]
    z = (u - belief.mean[arm]) / std
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
    return cdf, pdf / std


@implements(pull, GaussianBelief)
def _(belief, arm):  # type: ignore[no-untyped-def]
    return belief.std[arm] ** 2


@implements(reward_at, GaussianBelief)
def _(belief, u):  # type: ignore[no-untyped-def]
    return u, 1.0


@implements(variable_at, GaussianBelief)
def _(belief, x):  # type: ignore[no-untyped-def]
    return x


@inlined
def beta_edge(alpha: float, beta: float, side: float) -> float:
    """How far from its mode, to one side, the logit of a Beta falls to exp(−REACH²/2) of it.

    With m = alpha/n and n = alpha + beta, the density at a distance v falls by the factor
    exp(−D), D(v) = n log(1 − m + m eᵛ) − alpha v; D is n times a relative entropy, and exp(−D)
    bounds the chance of going beyond v (Chernoff). Newton's method: D is convex.
    """
    n = alpha + beta
    m = alpha / n
    v = side * REACH * math.sqrt(1.0 / alpha + 1.0 / beta)
    for _ in range(8):
        e = m * math.exp(min(v, 700.0))
        excess = n * math.log(1.0 - m + e) - alpha * v - 0.5 * REACH * REACH
        v -= excess / (n * e / (1.0 - m + e) - alpha)
        if abs(excess) < 0.1:
            break
    return v


@implements(window, BetaBelief)
def _(belief, arm):  # type: ignore[no-untyped-def]
    alpha, beta = belief.alpha[arm], belief.beta[arm]
    mode = math.log(alpha / beta)
    low = max(mode + beta_edge(alpha, beta, -1.0), -700.0)
    high = min(mode + beta_edge(alpha, beta, 1.0), 700.0)
    # The logit bends on a scale of one even where the law is wider.
    return low, high, min(math.sqrt(1.0 / alpha + 1.0 / beta), 1.0)


@implements(law, BetaBelief)
def _(belief, arm, u):  # type: ignore[no-untyped-def]
    alpha, beta = belief.alpha[arm], belief.beta[arm]
    x, y = 1.0 / (1.0 + math.exp(-u)), 1.0 / (1.0 + math.exp(u))
    return beta_tails(x, y, alpha, beta)[0], beta_front(x, y, alpha, beta)


@implements(pull, BetaBelief)
def _(belief, arm):  # type: ignore[no-untyped-def]
    return 1.0 / (belief.alpha[arm] + belief.beta[arm])


@implements(reward_at, BetaBelief)
def _(belief, u):  # type: ignore[no-untyped-def]
    x, y = 1.0 / (1.0 + math.exp(-u)), 1.0 / (1.0 + math.exp(u))
    return x, x * y


@implements(variable_at, BetaBelief)
def _(belief, x):  # type: ignore[no-untyped-def]
    return math.log(x / (1.0 - x))


@inlined
def outline(belief):  # type: ignore[no-untyped-def]
    """The arms that can be best, and the range in which the best can lie.

    Returns
    -------
    arms
        Indices of the arms that matter and are not certain.
    high, scale
        The end of each one's window, and its scale.
    floor, ceiling
        The range: outside it, F is 0 or 1 but for negligible chance.
    certain
        Whether `floor` is the value of an arm without any spread, which F jumps at.
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
    # With many arms, even the best of them may not begin here.
    while not certain:
        after = floor + narrowest(high, scale, floor)
        if best_cdf(belief, arms, after) > TAIL:
            break
        floor = after
    return arms, high, scale, floor, ceiling, certain


@inlined
def narrowest(high, scale, u):  # type: ignore[no-untyped-def]
    """The smallest scale of the arms whose window reaches beyond u."""
    smallest = np.inf
    for k in range(high.size):
        if high[k] > u:
            smallest = min(smallest, scale[k])
    return smallest


@inlined
def panels(high, scale, start, stop, longest):  # type: ignore[no-untyped-def]
    """Gauss–Legendre nodes and weights from `start` to `stop`, as fine as the arms there ask for.

    No panel is longer than `longest`: for integrands with a scale of their own.
    """
    # The best of many arms varies less than one of them. Tuned on equal arms, the worst case:
    # E[max] to 1e-8 and gains to 1e-6 with 32 to 40 nodes, for 2 to 200 arms.
    width = WIDTH * max(high.size, 1) ** -0.2
    edges = np.empty(64)
    edges[0] = start
    count = 0
    while edges[count] < stop:
        length = min(width * narrowest(high, scale, edges[count]), longest)
        count += 1
        if count == edges.size:
            edges = np.append(edges, edges)
        edges[count] = edges[count - 1] + length
        if edges[count] + 0.3 * length > stop:
            edges[count] = stop
    nodes, weights = np.empty(count * NODES), np.empty(count * NODES)
    for p in range(count):
        length = edges[p + 1] - edges[p]
        for i in range(NODES):
            nodes[p * NODES + i] = edges[p] + length * (0.5 + POINTS[i])
            weights[p * NODES + i] = length * WEIGHTS[i]
    return nodes, weights


@inlined
def mesh(belief):  # type: ignore[no-untyped-def]
    """The arms that matter, nodes and weights over the whole range, its floor, and `certain`.

    And for each arm the number of nodes inside its window: beyond, its F is one.
    """
    arms, high, scale, floor, ceiling, certain = outline(belief)
    nodes, weights = panels(high, scale, floor, ceiling, np.inf)
    return arms, nodes, weights, inside(high, nodes), floor, certain


@inlined
def inside(high, nodes):  # type: ignore[no-untyped-def]
    """How many of the nodes, which ascend, are below the end of each arm's window."""
    count = np.empty(high.size, np.int64)
    for k in range(high.size):
        count[k] = np.searchsorted(nodes, high[k])
    return count


@inlined
def best_cdf(belief, arms, u):  # type: ignore[no-untyped-def]
    """F(u), over the arms given."""
    product = 1.0
    for a in arms:
        product *= law(belief, a, u)[0]
    return product


@compiled
def expected_best(belief):  # type: ignore[no-untyped-def]
    """E[max over arms], from floor + ∫ (1 − F) dx.

    >>> from tsucb import GaussianBelief
    >>> round(expected_best(GaussianBelief(mean=[0.0, 0.0], std=[1.0, 1.0])), 6)  # 1/√π
    0.56419
    """
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    if arms.size == 1 and not certain:
        return belief.mean[arms[0]]
    best = np.ones(nodes.size)
    for k in range(arms.size):
        for i in range(ends[k]):
            best[i] *= law(belief, arms[k], nodes[i])[0]
    return mean_above(belief, floor, nodes, weights, best)


@inlined
def mean_above(belief, floor, nodes, weights, best):  # type: ignore[no-untyped-def]
    """floor + ∫ (1 − F) dx, given F at the nodes."""
    total = reward_at(belief, floor)[0]
    for i in range(nodes.size):
        total += weights[i] * reward_at(belief, nodes[i])[1] * (1.0 - best[i])
    return total


@inlined
def hazards(belief, arms, nodes, ends):  # type: ignore[no-untyped-def]
    """F at every node, and λ of every arm at every node; zero beyond the arm's last node."""
    best = np.ones(nodes.size)
    hazard = np.zeros((arms.size, nodes.size))
    for k in range(arms.size):
        row = hazard[k]
        for i in range(ends[k]):
            cdf, pdf = law(belief, arms[k], nodes[i])
            best[i] *= cdf
            row[i] = pdf / cdf
    return best, hazard


@compiled
def best_probabilities(belief):  # type: ignore[no-untyped-def]
    """P(arm is best) for every arm; arms that are best together share it equally.

    >>> from tsucb import GaussianBelief
    >>> best_probabilities(GaussianBelief(mean=[0.0, 0.0, -99.0], std=[1.0, 1.0, 1.0]))
    array([0.5, 0.5, 0. ])
    """
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    out = np.zeros(belief.mean.size)
    best, hazard = hazards(belief, arms, nodes, ends)
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
    return out / out.sum()


@inlined
def is_certain(belief, arm, value):  # type: ignore[no-untyped-def]
    """Whether the arm has that value without any spread."""
    low, high, _ = window(belief, arm)
    return low == value and high == value


@compiled
def regret_and_gain(belief):  # type: ignore[no-untyped-def]
    """What IDS weighs: E[max] − mean(a), and the variance of E[f(a) | which arm is best].

    With S(a, b) = ∫ F λ_a λ_b du the deviation E[f(a); b best] − mean(a) P(b best) is −g(a) S(a, b)
    for b ≠ a, and what makes them sum to zero for b = a.

    >>> from tsucb import GaussianBelief
    >>> regret, gain = regret_and_gain(GaussianBelief(mean=[0.0, 0.0], std=[1.0, 1.0]))
    >>> gain.round(6)  # 1/π: E[f | best] = 1/√π
    array([0.31831, 0.31831])
    """
    arms, nodes, weights, ends, floor, certain = mesh(belief)
    count = arms.size
    best, hazard = hazards(belief, arms, nodes, ends)
    regret = mean_above(belief, floor, nodes, weights, best) - belief.mean
    probability = np.zeros(count)
    own = np.zeros(count)  # Σ over b ≠ a of S(a, b)
    spread = np.zeros(count)  # Σ over b ≠ a of S(a, b)² / P(b best)
    weighted = np.empty((count, nodes.size))
    for k in range(count):
        for i in range(ends[k]):
            weighted[k, i] = weights[i] * best[i] * hazard[k, i]
            probability[k] += weighted[k, i]
    for k in range(count):
        for j in range(k):
            joint = 0.0
            for i in range(min(ends[j], ends[k])):
                joint += weighted[k, i] * hazard[j, i]
            own[k] += joint
            own[j] += joint
            if joint > 0.0:
                spread[k] += joint * joint / probability[j]
                spread[j] += joint * joint / probability[k]
    if certain:  # one more arm that may be best, with all of its density at the floor
        at_floor, slope = hazards(belief, arms, np.array([floor]), np.ones(count, np.int64))
        for k in range(count):
            own[k] += at_floor[0] * slope[k, 0]
            spread[k] += at_floor[0] * slope[k, 0] ** 2
    gain = np.zeros(regret.size)
    for k in range(count):
        if own[k] > 0.0:
            spread[k] += own[k] ** 2 / probability[k]
        gain[arms[k]] = pull(belief, arms[k]) ** 2 * spread[k]
    for a in range(regret.size):
        regret[a] = max(regret[a], 0.0)  # rounding: the expected maximum is above every mean
    return regret, gain


@generic
def best_mean(belief, samples, rng):  # type: ignore[no-untyped-def]
    """f̃: the best arm's mean reward, averaged over posterior draws; its expectation for ∞."""
    raise NotImplementedError  # called from compiled code only


@implements(best_mean, GaussianBelief, BetaBelief, where=second_is_real)
def _(belief, samples, rng):  # type: ignore[no-untyped-def]
    return expected_best(belief)


@implements(best_mean, JointGaussianBelief, where=second_is_real)
def _(belief, samples, rng):  # type: ignore[no-untyped-def]
    return average_best(belief, JOINT_DRAWS, rng)


@implements(best_mean, GaussianBelief, BetaBelief, JointGaussianBelief)
def _(belief, samples, rng):  # type: ignore[no-untyped-def]
    return average_best(belief, samples, rng)
