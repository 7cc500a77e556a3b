"""Expectations over the best arm, by sampling; exact ones where asked for, if the law offers them.

f̃ is the mean reward of the best arm, averaged over m draws from the posterior.

For independent normals and large m, most numbers need not be drawn. `average_best_gaussian` goes
through the arms one by one and keeps the best so far of each of the m draws. If an arm exceeds the
lowest of these with a chance of at most q per draw, only the few draws in which it may do so are
visited: the gaps between them are geometric. The result has the same law as if every arm were
drawn m times.

With φ the density of a standard normal and c the distance in standard deviations,

    φ(c + e) = [φ(c) / c] · [c exp(−c e)] · exp(−e² / 2).

So an excess e over c is proposed with probability q = φ(c) / c, drawn from an exponential of rate
c, and kept with probability exp(−e² / 2); otherwise the arm stays below c in this draw.
"""

import math
from typing import Any

import numpy as np
from numba import types

from tsucb.beliefs.best import add_win, expected_best, gain_of_wins, regret_and_gain
from tsucb.beliefs.gaussian import Gaussian
from tsucb.beliefs.law import Law, draw
from tsucb.compiler import class_of, compiled, hook, implements, offers
from tsucb.compiler.normals import AT_ONCE, put_normals
from tsucb.numeric.arrays import Floats, largest_of, place_of_largest, quantiles
from tsucb.numeric.bursts import burst, normal, uniform

FAR = 1.5  # distance c from which excesses are rare enough to be faster than draws
BLOCK = 64  # draws that IDS makes at a time, so that those of all arms fit into the cache
MANY = 10  # draws from which the method above is faster than drawing everything
VERY_MANY = 32  # draws from which it is faster to draw sixteen at a time
MANY_ARMS = 64  # arms from which that is faster for a single draw of each
STAND_IN = 10_000  # draws in place of an integral that a law does not offer
QUANTILE_DRAWS = 1_000  # draws in place of a quantile that a law does not offer


def exactly(function: Any) -> Any:
    """Return the condition that m is infinite and the law offers this integral."""

    def condition(belief: Any, samples: Any, rng: Any) -> bool:
        return isinstance(samples, types.Float) and offers(function, class_of(belief))

    return condition


@hook
def f_tilde(belief: Any, samples: float, rng: np.random.Generator) -> float:
    """Return f̃, the best arm's mean reward averaged over posterior draws; E[max] for ∞."""


@implements(f_tilde, Law, where=exactly(expected_best))
def exact_f_tilde(belief, samples, rng):  # type: ignore[no-untyped-def]
    return expected_best(belief)


@implements(f_tilde, Law)
def sampled_f_tilde(belief, samples, rng):  # type: ignore[no-untyped-def]
    f = average_best(belief, STAND_IN if samples == np.inf else int(samples), rng)
    return f if f == f else np.inf  # the best of infinite draws of both signs


@hook
def estimated_regret_and_gain(
    belief: Any, samples: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return regret and gain of every arm, from posterior draws; exactly for ∞."""


@implements(estimated_regret_and_gain, Law, where=exactly(regret_and_gain))
def exact_regret_and_gain(belief, samples, rng):  # type: ignore[no-untyped-def]
    return regret_and_gain(belief)


def finitely(belief: Any, samples: Any, rng: Any) -> bool:
    """Return whether m is finite."""
    return isinstance(samples, types.Integer)


@implements(estimated_regret_and_gain, Gaussian, where=finitely)
def sampled_regret_and_gain_gaussian(belief, samples, rng):  # type: ignore[no-untyped-def]
    """Return regret and gain from blocks of draws, arm by arm in vector instructions.

    `totals` adds up z = (f − mean) / std.
    """
    mean, std, state = belief.mean, belief.std, burst(rng)
    arms = mean.size
    z, best, winner = np.empty((arms, BLOCK)), np.empty(BLOCK), np.empty(BLOCK, np.int64)
    wins, totals, highest = np.zeros(arms), np.zeros((arms, arms)), 0.0
    for start in range(0, samples, BLOCK):
        count = min(BLOCK, samples - start)
        for i in range(BLOCK):
            best[i], winner[i] = -np.inf, 0
        for a in range(arms):
            state = put_normals(z, a * BLOCK, count, state)
            m, s = mean[a], std[a]
            for i in range(BLOCK):
                f = m + s * z[a, i]
                ahead = f > best[i]
                winner[i] = a if ahead else winner[i]
                best[i] = f if ahead else best[i]
        for i in range(count):
            b = winner[i]
            wins[b] += 1.0
            highest += best[i]
            for a in range(arms):
                totals[b, a] += z[a, i]
    regret, gain = np.empty(arms), np.zeros(arms)
    for b in range(arms):
        if wins[b] > 0.0:
            weight = 1.0 / (wins[b] * samples)
            for a in range(arms):
                gain[a] += weight * (totals[b, a] * totals[b, a])
    for a in range(arms):
        regret[a] = highest / samples - mean[a]
        gain[a] *= std[a] * std[a]
    return regret, gain


@implements(estimated_regret_and_gain, Law)
def sampled_regret_and_gain(belief, samples, rng):  # type: ignore[no-untyped-def]
    arms = belief.mean.size
    means, wins, totals, best = np.empty(arms), np.zeros(arms), np.zeros((arms, arms)), 0.0
    for _ in range(STAND_IN if samples == np.inf else int(samples)):
        draw(belief, rng, means)
        best += add_win(means, wins, totals)
    return gain_of_wins(belief.mean, wins, totals, best)


@compiled
def sampled_upper_quantiles(belief, tail, rng, out):  # type: ignore[no-untyped-def]
    """Fill `out` with estimates of `upper_quantiles` from draws."""
    draws = np.empty((QUANTILE_DRAWS, out.size))
    for i in range(QUANTILE_DRAWS):
        draw(belief, rng, draws[i])
    quantiles(draws, 1.0 - tail, out)


@hook
def average_best(belief: Any, samples: int, rng: np.random.Generator) -> float:
    """Return the mean reward of the best arm, averaged over `samples` draws.

    Average the differences to the first draw: equal draws, such as those of a certain arm, then
    average to exactly their value. If rounding raised the average, that arm would never be played.
    """


@implements(average_best, Gaussian)
def average_best_gaussian(belief, samples, rng):  # type: ignore[no-untyped-def]
    mean, std, state = belief.mean, belief.std, burst(rng)
    if samples < MANY:
        z, first, total = np.empty(mean.size), 0.0, 0.0
        for i in range(samples):
            state = fill(z, mean.size >= MANY_ARMS, state)
            highest = -np.inf
            for a in range(mean.size):
                highest = max(highest, mean[a] + std[a] * z[a])
            if i == 0:
                first = highest
            else:
                total += highest - first
        return first + total / samples
    by_sixteens = samples >= VERY_MANY
    best, lowest = np.empty((samples + 15) & -16 if by_sixteens else samples), -np.inf
    for i in range(best.size):
        best[i] = -np.inf if i < samples else np.inf  # padding must never be the lowest
    z = np.empty(best.size)
    leader = place_of_largest(mean)
    for n in range(mean.size):
        # The leader goes first, in exchange with arm 0: most other arms are then far behind.
        a = leader if n == 0 else 0 if n == leader else n
        c = (lowest - mean[a]) / std[a]
        if c >= FAR:
            state = draw_excesses(best, samples, mean[a], std[a], c, state)
            continue
        state, lowest = fill(z, by_sixteens, state), np.inf
        for i in range(best.size):
            best[i] = max(best[i], mean[a] + std[a] * z[i])
            lowest = min(lowest, best[i])
    total = 0.0
    for i in range(samples):
        total += best[i] - best[0]
    return best[0] + total / samples


@compiled
def fill(z, by_sixteens, state):  # type: ignore[no-untyped-def]
    """Fill a vector with normals, by sixteens as far as they go or one by one; return the state."""
    begin = z.size - z.size % AT_ONCE if by_sixteens else 0
    state = put_normals(z, 0, begin, state)
    for i in range(begin, z.size):
        z[i], state = normal(state)
    return state


@implements(average_best, Law)
def average_best_of_draws(belief, samples, rng):  # type: ignore[no-untyped-def]
    means = np.empty(belief.mean.size)
    draw(belief, rng, means)
    first, total = largest_of(means), 0.0
    for _ in range(samples - 1):
        draw(belief, rng, means)
        total += largest_of(means) - first
    return first + total / samples


@compiled
def draw_excesses(best, samples, mean, std, c, state):  # type: ignore[no-untyped-def]
    """Raise `best` in the few draws in which this arm exceeds mean + c · std; return the state."""
    q = math.exp(-0.5 * c * c) / (c * math.sqrt(2.0 * math.pi))
    gap = 1.0 / math.log1p(-q)
    i = 0.0  # a float: for tiny q a gap may be infinite
    while True:
        u, state = uniform(state)
        i += np.floor(math.log(u) * gap)
        if not i < samples:
            return state
        u, state = uniform(state)
        e = -math.log(u) / c
        reward = mean + std * (c + e)
        if reward > best[int(i)]:
            u, state = uniform(state)
            if u < math.exp(-0.5 * e * e):
                best[int(i)] = reward
        i += 1.0
