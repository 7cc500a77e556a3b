"""Information-directed sampling, measuring information by variance."""

import math

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.best import regret_and_gain
from tsucb.beliefs.sampling import estimated_regret_and_gain
from tsucb.compiler import compiled, hook, implements, offers
from tsucb.numeric.arrays import copy_to, inner, largest_of
from tsucb.policies.policy import Choice, Policy, SampleCount, choose, probabilities, tie_shares


class IDS(Policy):
    """Play from the distribution over arms that minimises (expected regret)² / information gain.

    The gain of arm a is the variance of E[f(a) | which arm is best]; it and the expected regret
    Δ(a) = E[max f] − mean(a) are estimated from posterior draws, with the exact posterior means.
    The minimising distribution has at most two arms, and the best pair has a closed form.

    Parameters
    ----------
    samples
        m, the number of posterior draws; the paper uses 1,000. With `math.inf` the expectations
        are exact integrals, about three times as fast; 10,000 draws replace them under a law that
        does not offer them, such as that of jointly normal arms.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.5, -9.0], std=[1.0, 0.01, 0.01])
    >>> IDS(samples=1000).choose(belief, np.random.default_rng(0)).arm in (0, 1)
    True

    Reference: Russo and Van Roy (2018), "Learning to optimize via information-directed
    sampling", Algorithm 6 and Proposition 6.
    """

    printed_name = "IDS({samples})"
    target_name = "information ratio"

    samples: SampleCount = 1000

    def has_formula(self, belief: Belief) -> bool:
        return self.samples == math.inf and offers(regret_and_gain, type(belief.law))


class GridIDS(IDS):
    """IDS as the paper's authors ran it: regrets with their sign, the mixture from a grid.

    E[max f] is estimated from draws, so by chance it may fall below the exact mean of an arm that
    is almost surely the best. `IDS` counts that arm's regret as zero, and plays it. Here the regret
    stays negative, and a mixture with an arm known to be bad has an expected regret of about
    zero: bad arms are played now and then for ever. The probability in every pair is searched on
    the grid 0, 0.1, …, 1 and on three finer grids of 11 points, each around the best point of the
    one before.

    Parameters
    ----------
    samples
        m, the number of posterior draws, as for `IDS`.

    >>> GridIDS(1000).name
    'IDS-grid(1000)'

    Reference: the published code of Baek and Farias (2023), github.com/jwbaek/TS-UCB-Code.
    """

    printed_name = "IDS-grid({samples})"


ROUNDS, CELLS = 4, 10  # grids, and intervals of each: the last spacing is 0.0008


@implements(choose, IDS)
def choose_ids(policy, belief, rng):  # type: ignore[no-untyped-def]
    regret, gain = estimated_regret_and_gain(belief, policy.samples, rng)
    chance = mixture(policy, regret, gain)
    u = rng.random()
    arm = chance.size - 1
    while arm > 0 and u >= chance[arm]:
        u -= chance[arm]
        arm -= 1
    return Choice(arm, information_ratio(inner(chance, regret), inner(chance, gain)), arm)


@implements(probabilities, IDS)
def probabilities_ids(policy, belief):  # type: ignore[no-untyped-def]
    regret, gain = regret_and_gain(belief)
    return mixture(policy, regret, gain)


@hook
def mixture(policy, regret, gain):  # type: ignore[no-untyped-def]
    """Return the probability of every arm, given its regret and its gain."""


@implements(mixture, IDS)
def exact_mixture(policy, regret, gain):  # type: ignore[no-untyped-def]
    lost = np.empty(regret.size)
    for a in range(lost.size):
        lost[a] = max(regret[a], 0.0)
    return best_mixture(lost, gain)


@implements(mixture, GridIDS)
def grid_mixture(policy, regret, gain):  # type: ignore[no-untyped-def]
    """Return the best mixture of two arms, by a grid of 11 points that is refined three times."""
    if not largest_of(gain) < np.inf:
        return best_mixture(regret, gain)
    arms = regret.size
    lowest, first, second, probability = np.inf, -1, -1, 1.0
    for i in range(arms):
        for j in range(i + 1, arms):
            low, high = 0.0, 1.0
            value, q = np.inf, 0.0
            for _ in range(ROUNDS):
                value, at = np.inf, 0
                width = (high - low) / CELLS
                for k in range(CELLS + 1):
                    p = low + k * width
                    delta = p * regret[i] + (1.0 - p) * regret[j]
                    ratio = information_ratio(delta, p * gain[i] + (1.0 - p) * gain[j])
                    if ratio < value:
                        value, at = ratio, k
                q = low + at * width
                low, high = max(low, q - width), min(high, q + width)
            if value < lowest:
                lowest, first, second, probability = value, i, j, q
    if first < 0:  # there is one arm only, or no gain in any
        return tie_shares(np.abs(regret), -1.0)
    return two_arms(arms, first, second, probability)


@compiled
def best_mixture(regret, gain):  # type: ignore[no-untyped-def]
    """Return the probabilities of arms that minimise (expected regret)² / (expected gain).

    They are for one arm, for several equal arms in equal parts, or for two arms i and j with
    probabilities q and 1 − q: the ratio (qΔᵢ + (1−q)Δⱼ)² / (qvᵢ + (1−q)vⱼ) is convex in q, and its
    slope is zero at q = Δⱼ/(Δᵢ−Δⱼ) − 2vⱼ/(vᵢ−vⱼ).
    """
    arms = regret.size
    value, lowest = np.empty(arms), np.inf
    for i in range(arms):
        value[i] = information_ratio(regret[i], gain[i])
        lowest = min(lowest, value[i])
    first, second, probability = -1, -1, 1.0
    if not largest_of(gain) < np.inf:  # arms with an infinite gain, never tried, go first
        for i in range(arms):
            value[i] = 1.0 if gain[i] < np.inf else 0.0
    elif lowest == np.inf:  # no arm has a gain: play the smallest regret
        copy_to(value, regret)
    else:
        first, second, probability = best_pair(regret, gain, lowest)
    if first < 0:
        return tie_shares(value, -1.0)
    return two_arms(arms, first, second, probability)


@compiled
def two_arms(arms, first, second, probability):  # type: ignore[no-untyped-def]
    """Return the probabilities of a mixture of two arms."""
    chance = np.zeros(arms)
    chance[first] = probability
    chance[second] = 1.0 - probability
    return chance


@compiled
def best_pair(regret, gain, lowest):  # type: ignore[no-untyped-def]
    """Return the best pair of arms with a ratio below `lowest`, and the first arm's probability.

    The first arm is −1 if there is no such pair.
    """
    first, second, probability = -1, -1, 1.0
    worthy = unbeaten(regret, gain)
    for m in range(worthy.size):
        for n in range(m):
            i, j = worthy[m], worthy[n]
            # q is the probability of the larger regret: floats near 0 are finer than near 1.
            if regret[i] < regret[j]:
                i, j = j, i
            slope = regret[i] - regret[j]
            growth = gain[i] - gain[j]
            if slope > 0.0 and growth > 0.0:  # otherwise the regrets or the gains are equal
                q = regret[j] / slope - 2.0 * gain[j] / growth
                if 0.0 < q < 1.0:
                    mixed = information_ratio(regret[j] + q * slope, gain[j] + q * growth)
                    if mixed < lowest:
                        lowest, first, second, probability = mixed, i, j, q
    return first, second, probability


@compiled
def unbeaten(regret, gain):  # type: ignore[no-untyped-def]
    """Return the arms that no other arm beats in both regret and gain."""
    arms, count = np.empty(regret.size, np.int64), 0
    for i in range(regret.size):
        beaten = 0
        for j in range(regret.size):
            beaten += (regret[j] < regret[i]) & (gain[j] > gain[i])
        if beaten == 0:
            arms[count] = i
            count += 1
    return arms[:count]


@compiled
def information_ratio(regret, gain):  # type: ignore[no-untyped-def]
    """Return regret² / gain."""
    if regret == 0.0:
        return 0.0
    if gain == 0.0:  # also where the square underflows to zero
        return np.inf
    return regret * regret / gain
