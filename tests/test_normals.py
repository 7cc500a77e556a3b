"""Normal draws in bulk against the law they should have."""

import numba
import numpy as np
from scipy import stats

from tsucb.numeric.bursts import EDGE, burst, gamma, normal


@numba.njit
def fill(out, size, rng):
    """Normals in bursts of the given size."""
    for start in range(0, out.size, size):
        state = burst(rng)
        for i in range(start, min(start + size, out.size)):
            out[i], state = normal(state)


def draws(size, seed, count=2_000_000):
    out = np.empty(count)
    fill(out, size, np.random.default_rng(seed))
    return out


def test_long_and_short_bursts_are_standard_normal():
    for size, seed in ((2_000_000, 1), (3, 2)):
        x = draws(size, seed)
        # Seven checks, each with a false alarm of 1e-5 or less (4.5 standard errors).
        assert stats.kstest(x, "norm").pvalue > 1e-5
        n = x.size
        assert abs(x.mean()) < 4.5 / np.sqrt(n)
        assert abs(x.var() - 1) < 4.5 * np.sqrt(2 / n)
        assert abs(stats.kurtosis(x)) < 4.5 * np.sqrt(24 / n)
        for edge in (2.0, EDGE, 4.2):
            expected = 2 * stats.norm.sf(edge)
            assert abs((abs(x) > edge).mean() - expected) < 4.5 * np.sqrt(expected / n)


def test_neighbours_are_uncorrelated_within_and_between_bursts():
    x = draws(5, 3).reshape(-1, 5)
    correlation = np.corrcoef(np.hstack([x[:-1], x[1:]]).T) - np.eye(10)
    assert abs(correlation).max() < 5 / np.sqrt(len(x))  # 45 pairs: false alarm 3e-5


def test_the_same_generator_gives_the_same_burst():
    np.testing.assert_array_equal(draws(100, 4, 1000), draws(100, 4, 1000))


@numba.njit
def fill_gammas(out, shape, rng):
    for i in range(0, out.size, 10):
        state = burst(rng)
        for j in range(i, i + 10):
            out[j], state = gamma(shape, state)


def test_gammas_have_their_law():
    out = np.empty(1_000_000)
    for seed, shape in enumerate((1.0, 1.5, 6.0, 100.5, 50_000.0)):
        fill_gammas(out, shape, np.random.default_rng(seed))
        # Each of the checks has a false alarm of 1e-5 or less (4.5 standard errors).
        assert stats.kstest(out, stats.gamma(shape).cdf).pvalue > 1e-5
        assert abs(out.mean() - shape) < 4.5 * np.sqrt(shape / out.size)
        assert abs(out.var() / shape - 1) < 4.5 * np.sqrt((2 + 6 / shape) / out.size)
