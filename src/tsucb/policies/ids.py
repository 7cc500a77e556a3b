"""Information-directed sampling, variance-based."""

from typing import NamedTuple

import numpy as np

from tsucb.belief import draw
from tsucb.compiled import implements, inlined
from tsucb.policies.rule import Policy, choose, whole_number


class IDS(Policy, NamedTuple("IDS", [("samples", int)])):
    """Play from the distribution over arms that minimises (expected regret)² / information gain.

    The gain of arm a is the variance of E[f(a) | which arm is best]; it and the expected regret
    Δ(a) = E[max f] − mean(a) are estimated from posterior draws, with the exact posterior means.
    The minimising distribution has at most two arms, and the best pair has a closed form.

    Parameters
    ----------
    samples
        m, the number of posterior draws; the paper uses 1,000.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.5, -9.0], std=[1.0, 0.01, 0.01])
    >>> IDS(samples=1000).choose(belief, np.random.default_rng(0)) in (0, 1)
    True

    Reference: Russo and Van Roy (2018), "Learning to optimize via information-directed
    sampling", Algorithm 6 and Proposition 6.
    """

    __slots__ = ()

    def __new__(cls, samples: int = 1000) -> "IDS":
        return super().__new__(cls, whole_number("samples", samples, least=1))

    @property
    def name(self) -> str:
        return f"IDS({self.samples})"


@implements(choose, IDS)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    regret, gain = sampled_regret_and_gain(belief, policy.samples, rng)
    first, second, probability = best_pair(regret, gain, rng)
    return first if rng.random() < probability else second


@inlined
def sampled_regret_and_gain(belief, samples, rng):  # type: ignore[no-untyped-def]
    """Δ(a) and the variance of E[f(a) | best arm], each over posterior draws."""
    arms = belief.mean.size
    means = np.empty(arms)
    wins = np.zeros(arms)
    totals = np.zeros((arms, arms))  # row b: the sum of the draws in which arm b is best
    best = 0.0
    for _ in range(samples):
        draw(belief, rng, means)
        b = 0
        for a in range(1, arms):
            if means[a] > means[b]:
                b = a
        best += means[b]
        wins[b] += 1
        row = totals[b]
        for a in range(arms):
            row[a] += means[a]
    regret = np.empty(arms)
    gain = np.zeros(arms)
    for a in range(arms):
        # The sampled best may fall below an exact mean by chance; a regret is never negative.
        regret[a] = max(best / samples - belief.mean[a], 0.0)
    for b in range(arms):
        if wins[b] > 0:
            row = totals[b]
            for a in range(arms):
                gain[a] += wins[b] / samples * (row[a] / wins[b] - belief.mean[a]) ** 2
    return regret, gain


@inlined
def best_pair(regret, gain, rng):  # type: ignore[no-untyped-def]
    """The arms i, j and the probability q of i that minimise (qΔᵢ + (1−q)Δⱼ)² / (qvᵢ + (1−q)vⱼ).

    The ratio is convex in q; where its slope is zero, q = Δⱼ/(Δᵢ−Δⱼ) − 2vⱼ/(vᵢ−vⱼ).
    """
    arms = regret.size
    first, second, probability = 0, 0, 1.0
    lowest = np.inf
    ties = 0
    for i in range(arms):
        value = information_ratio(regret[i], gain[i])
        if value < lowest:
            lowest, first, second, probability, ties = value, i, i, 1.0, 1
        elif value == lowest:
            ties += 1
            if rng.random() * ties < 1.0:
                first, second = i, i
    if lowest == np.inf:  # no arm teaches anything: the smallest regret is all there is
        best = 0
        ties = 1
        for i in range(1, arms):
            if regret[i] < regret[best]:
                best, ties = i, 1
            elif regret[i] == regret[best]:
                ties += 1
                if rng.random() * ties < 1.0:
                    best = i
        return best, best, 1.0
    for i in range(arms):
        for j in range(i):
            slope = regret[i] - regret[j]
            growth = gain[i] - gain[j]
            if slope * growth > 0.0:  # otherwise one of the two is better in both respects
                q = regret[j] / slope - 2.0 * gain[j] / growth
                if 0.0 < q < 1.0:
                    value = information_ratio(regret[j] + q * slope, gain[j] + q * growth)
                    if value < lowest:
                        lowest, first, second, probability = value, i, j, q
    return first, second, probability


@inlined
def information_ratio(regret, gain):  # type: ignore[no-untyped-def]
    if regret == 0.0:
        return 0.0
    return regret * regret / gain  # infinite where there is nothing to gain
