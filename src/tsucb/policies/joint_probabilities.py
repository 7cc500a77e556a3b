"""The probability that Thompson sampling or TS-UCB plays each of several jointly normal arms.

There is no formula for the chance that one of many correlated normals is the largest. But draws are
cheap when they are made together: one product of matrices gives a hundred thousand. They are
made from scrambled Sobol points (Owen 1997), which fill space more evenly than random ones, along
the principal directions of the arms, the widest first, where even filling helps most. Sixteen
scrambles of the points give sixteen independent answers; their spread is the error.

The probability of an arm under Thompson sampling is its share of the points at which it is best.
What TS-UCB plays depends on f̃ alone, the average of the best arm's mean reward over m draws. The
points give the law of one draw, as masses on a grid; the Fourier transform of the average's law is
the m-th power of that of one draw. The average of very many draws is normal.

Reference: Owen (1997), "Scrambled net variance for integrals of smooth functions".
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.joint_gaussian import JointGaussian
from tsucb.beliefs.sampling import STAND_IN
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.envelope import breakpoints

SCRAMBLES = 16
MOST_POINTS = 2**13  # of one scramble
MOST_NUMBERS = 2**23  # in all points: 32 MB
LEVELS = 512  # of the grid for one draw of the best
MOST_SAMPLES = 200  # the average of more draws is taken for normal
FARTHEST = 40.0  # standard deviations: no draw is farther from its mean

Singles = NDArray[np.float32]


def is_joint(belief: Belief) -> bool:
    """Return whether a belief is of jointly normal arms with finite moments and some spread."""
    if not isinstance(belief.law, JointGaussian):
        return False
    finite = np.isfinite(belief.mean).all() and np.isfinite(belief.std).all()
    return bool(finite and belief.std.max() > 0)


@functools.lru_cache(maxsize=2)
def points(directions: int) -> Singles:
    """Return standard normals (SCRAMBLES, N, directions); cached, as making them takes longest.

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
    """Return draws (N, n), centre and scale; the mean rewards are centre + scale · draws."""
    centre, scale = float(belief.mean.max()), float(belief.std.max())
    directions = principal(belief) / scale
    z = points(directions.shape[1])[scramble]
    relative = ((belief.mean - centre) / scale).astype(np.float32)
    standardised: Singles = z @ directions.T.astype(np.float32) + relative
    return standardised, centre, scale


def principal(belief: Belief) -> Floats:
    """Return a factor (n, directions) of the covariance, the direction of largest spread first."""
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
    rows = np.column_stack((belief.mean, factor))[shared]
    return mean_and_error(even_out(shares, rows, shared), best.size)


def ts_ucb_shares(belief: Belief, samples: float) -> tuple[Floats, Floats] | None:
    """Return the probability that TS-UCB plays each arm, and its standard error.

    Return None where some estimate or radius is infinite, or some radius zero.
    """
    lines = np.column_stack((belief.estimate, belief.radius))
    if not (np.isfinite(lines).all() and (belief.radius > 0).all()):
        return None
    breaks, winners = winners_between(belief)
    arms, m = belief.mean.size, STAND_IN if samples == math.inf else int(samples)
    groups = SCRAMBLES if m == 1 else SCRAMBLES // 2
    shares = np.empty((groups, arms))
    for i in range(groups):
        parts = [draws(belief, j) for j in range(i, SCRAMBLES, groups)]
        best = np.concatenate([means.max(axis=1) for means, _, _ in parts]).astype(np.float64)
        value, mass = average(best, m)
        f = parts[0][1] + parts[0][2] * value
        played = winners[np.searchsorted(breaks, f)]
        counts = np.asarray(np.bincount(played, mass, arms), dtype=np.float64) * best.size
        shares[i] = frequencies(counts, best.size)
    return mean_and_error(even_out(shares, lines, np.arange(arms)), best.size)


def winners_between(belief: Belief) -> tuple[Floats, Integers]:
    """Return the values of f̃ (n,) at which TS-UCB changes its arm, and the arms (n + 1,)."""
    middle, reach = belief.mean.max(), FARTHEST * belief.std.max()
    points = breakpoints(belief.estimate, belief.radius, middle - reach, middle + reach)
    f = (points[1:] + points[:-1]) / 2
    winners = ((f[:, None] - belief.estimate) / belief.radius).argmin(axis=1)
    return points[1:-1], winners.astype(np.int64)


def average(draws: Floats, samples: int) -> tuple[Floats, Floats]:
    """Return the law of the average of `samples` draws, as values and their masses."""
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
    right = at - left  # splitting a draw between two levels in these shares keeps its mean
    mass = np.bincount(left, 1 - right, LEVELS) + np.bincount(left + 1, right, LEVELS)
    size = samples * (LEVELS - 1) + 1
    length = next_fast_len(size, real=True)
    masses = irfft(rfft(mass / draws.size, length) ** samples, length)[:size]
    kept = np.flatnonzero(masses > 1e-12)
    return low + step * kept / samples, masses[kept] / masses[kept].sum()


def even_out(shares: Floats, rows: Floats, arms: Integers) -> Floats:
    """Return the shares, averaged over those of these `arms` whose rows are equal."""
    if len(arms) > 1:
        _, group = np.unique(rows, axis=0, return_inverse=True)
        for number in np.flatnonzero(np.bincount(group.ravel()) > 1).tolist():
            same = arms[group.ravel() == number]
            shares[:, same] = shares[:, same].mean(axis=1, keepdims=True)
    return shares


def frequencies(counts: Any, draws: int) -> Floats:
    """Return frequencies, counting one more draw spread evenly: no arm has probability zero."""
    shares: Floats = (counts + 1 / counts.size) / (draws + 1)
    return shares


def mean_and_error(shares: Floats, draws: int) -> tuple[Floats, Floats]:
    """Return the mean of independent answers, each from `draws` draws, and its standard error.

    The error is at least the share that `frequencies` adds: the answers of an arm that was never
    best are all equal to it.
    """
    mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    return mean / mean.sum(), np.maximum(error, 1 / (mean.size * (draws + 1)))
