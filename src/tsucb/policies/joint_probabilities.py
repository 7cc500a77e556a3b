"""Probabilities of sampling from jointly normal arms, by quasi-random points.

There is no formula for the chance that one of many correlated normals is the largest. But draws are
cheap when they are made together: one product of matrices gives a hundred thousand. They are
made from scrambled Sobol points (Owen 1997), which fill space more evenly than random ones, along
the principal directions of the arms, the widest first, where even filling helps most. Sixteen
scrambles of the points give as many independent answers, and their spread is the error.

For Thompson sampling an arm's probability is its share of the points at which it is best. What
TS-UCB plays depends on f̃ alone, the average of m draws of the best: the law of one draw is taken
from the points, as masses on a grid, and that of the average is the m-th power of its Fourier
transform; of very many draws, it is normal.

Reference: Owen (1997), "Scrambled net variance for integrals of smooth functions".
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.joint_gaussian import JointGaussian
from tsucb.numeric.arrays import Floats, Integers

SCRAMBLES = 16
MOST_POINTS = 2**13  # of one scramble
MOST_NUMBERS = 2**23  # in all points: 32 MB
LEVELS = 512  # of the grid for one draw of the best
MOST_SAMPLES = 200  # the average of more draws is normal
ENDLESS = 10_000  # draws that stand for infinitely many, as in `tsucb.beliefs.sampling`

Singles = NDArray[np.float32]


def is_joint(belief: Belief) -> bool:
    """Return whether a belief is of jointly normal arms, of finite and positive spread."""
    if not isinstance(belief.law, JointGaussian):
        return False
    finite = np.isfinite(belief.mean).all() and np.isfinite(belief.std).all()
    return bool(finite and belief.std.max() > 0)


@functools.lru_cache(maxsize=2)
def points(directions: int) -> Singles:
    """Return standard normals (SCRAMBLES, N, directions), cached: slower to make than to use.

    Single precision is enough: the answer is good to three digits.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    most = MOST_NUMBERS // SCRAMBLES // directions
    count = min(MOST_POINTS, 2 ** int(math.log2(max(most, 1))))
    out = np.empty((SCRAMBLES, count, directions), dtype=np.float32)
    for seed in range(SCRAMBLES):
        uniform = qmc.Sobol(directions, seed=seed, bits=30).random(count)
        out[seed] = ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))
    return out


def draws(belief: Belief, scramble: int) -> tuple[Singles, float, float]:
    """Return draws (N, n), centre and scale: the arms are centre + scale · draws."""
    centre, scale = float(belief.mean.max()), float(belief.std.max())
    directions = principal(belief) / scale
    z = points(directions.shape[1])[scramble]
    relative = ((belief.mean - centre) / scale).astype(np.float32)
    found: Singles = z @ directions.T.astype(np.float32) + relative
    return found, centre, scale


def principal(belief: Belief) -> Floats:
    """Return one row per arm: a factor of the covariance, the direction of largest spread first."""
    factor, own = belief.law
    if own.size:
        factor = np.hstack((factor, np.diag(own)))
    left, spread, _ = np.linalg.svd(factor, full_matrices=False)
    kept: Floats = (left * spread)[:, spread > 1e-12 * spread[0]]
    return kept


def thompson_shares(belief: Belief) -> tuple[Floats, Floats]:
    """Return the probability that each arm is best, and its standard error."""
    arms = belief.mean.size
    shares = np.empty((SCRAMBLES, arms))
    for i in range(SCRAMBLES):
        best = draws(belief, i)[0].argmax(axis=1)
        shares[i] = frequencies(np.bincount(best, minlength=arms).astype(float), best.size)
    factor, own = belief.law
    shared = np.flatnonzero(own == 0) if own.size else np.arange(arms)
    alike = np.column_stack((belief.mean, factor))[shared]
    shares = even_out(shares, alike, shared)
    return mean_and_error(shares, best.size)


def ts_ucb_shares(
    belief: Belief, samples: float, breaks: Floats, winners: Integers
) -> tuple[Floats, Floats]:
    """Return the probability that TS-UCB plays each arm, and its standard error.

    The arms `winners` (n + 1,) are played for f̃ between the points `breaks` (n,).
    """
    arms, m = belief.mean.size, ENDLESS if samples == math.inf else int(samples)
    groups = SCRAMBLES if m == 1 else SCRAMBLES // 2
    shares = np.empty((groups, arms))
    for i in range(groups):
        parts = [draws(belief, j) for j in range(i, SCRAMBLES, groups)]
        best = np.concatenate([found.max(axis=1) for found, _, _ in parts]).astype(np.float64)
        value, mass = average(best, m)
        f = parts[0][1] + parts[0][2] * value
        places = winners[np.searchsorted(breaks, f)]
        counts = np.asarray(np.bincount(places, mass, arms), dtype=np.float64) * best.size
        shares[i] = frequencies(counts, best.size)
    alike = np.column_stack((belief.estimate, belief.radius))
    return mean_and_error(even_out(shares, alike, np.arange(arms)), best.size)


def average(draws: Floats, samples: int) -> tuple[Floats, Floats]:
    """Return the law of the average of this many draws, as values and their masses."""
    from scipy.fft import irfft, next_fast_len, rfft
    from scipy.special import ndtri

    low, high = draws.min(), draws.max()
    if samples == 1 or not high > low:
        return draws, np.full(draws.size, 1 / draws.size)
    if samples > MOST_SAMPLES:
        count = 2000
        z = ndtri((np.arange(count) + 0.5) / count)
        return draws.mean() + draws.std() / math.sqrt(samples) * z, np.full(count, 1 / count)
    step = (high - low) / (LEVELS - 1)
    at = (draws - low) / step
    left = np.minimum(at.astype(np.int64), LEVELS - 2)
    right = at - left  # the share of a draw that goes to the level above it keeps the mean
    mass = np.bincount(left, 1 - right, LEVELS) + np.bincount(left + 1, right, LEVELS)
    size = samples * (LEVELS - 1) + 1
    length = next_fast_len(size, real=True)
    masses = irfft(rfft(mass / draws.size, length) ** samples, length)[:size]
    some = np.flatnonzero(masses > 1e-12)
    return low + step * some / samples, masses[some] / masses[some].sum()


def even_out(shares: Floats, alike: Floats, arms: Integers) -> Floats:
    """Return the shares, equal among arms that are the same in everything that decides."""
    if len(arms) > 1:
        _, group = np.unique(alike, axis=0, return_inverse=True)
        for number in np.flatnonzero(np.bincount(group.ravel()) > 1).tolist():
            same = arms[group.ravel() == number]
            shares[:, same] = shares[:, same].mean(axis=1, keepdims=True)
    return shares


def frequencies(counts: Any, draws: int) -> Floats:
    """Return frequencies, with one more draw spread evenly: no arm has probability zero."""
    shares: Floats = (counts + 1 / counts.size) / (draws + 1)
    return shares


def mean_and_error(shares: Floats, draws: int) -> tuple[Floats, Floats]:
    """Return the mean of independent answers, each from this many draws, and its standard error.

    The error is at least what `frequencies` has added: an arm that was never best may have none.
    """
    mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    return mean / mean.sum(), np.maximum(error, 1 / (mean.size * (draws + 1)))
