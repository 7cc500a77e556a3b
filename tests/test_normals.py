"""Normal draws in bulk, one by one and sixteen at a time, against the law they should have."""

import math

import numba
import numpy as np
from scipy import stats

from tsucb.compiler.normals import put_normals
from tsucb.numeric.bursts import EDGE, burst, gamma, normal


@numba.njit
def fill(out, size, rng):
    """Normals in bursts of the given size."""
    for start in range(0, out.size, size):
        state = burst(rng)
        for i in range(start, min(start + size, out.size)):
            out[i], state = normal(state)


@numba.njit
def fill_by_sixteens(out, size, rng):
    for start in range(0, out.size, size):
        put_normals(out, start, size, burst(rng))


def draws(size, seed, count=2_000_000, fill=fill):
    out = np.empty(count)
    fill(out, size, np.random.default_rng(seed))
    return out


def test_long_and_short_bursts_are_standard_normal():
    one_by_one = [draws(2_000_000, 1), draws(3, 2)]
    by_sixteens = [draws(size, size, fill=fill_by_sixteens) for size in (2_000_000, 16)]
    for x in one_by_one + by_sixteens:
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


def test_sixteen_normals_are_uncorrelated_and_so_are_their_squares():
    x = draws(32, 5, 3_200_000, fill_by_sixteens).reshape(-1, 32)
    for values in (x, x**2):
        correlation = np.corrcoef(values.T) - np.eye(32)
        assert abs(correlation).max() < 5.5 / np.sqrt(len(x))  # 496 pairs: false alarm 2e-5


def words(state, count):
    """SplitMix64 in plain Python: 64 bits each, from the states that follow."""
    for i in range(1, count + 1):
        z = (state + i * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        yield z ^ (z >> 31)


def box_muller(first, second):
    """Return two normals from twice 64 bits, as `tsucb.compiler.normals` describes them."""
    radius = math.sqrt(-2 * math.log(1 - (first >> 12) * 2.0**-52))
    angle = math.pi / 4 * ((second >> 12) * 2.0**-51 - 1)
    cosine, sine = radius * math.cos(angle) * (-1) ** (second & 1), radius * math.sin(angle)
    return (sine, cosine) if second & 2 else (cosine, sine)


def test_sixteen_normals_are_those_of_plain_arithmetic():
    out, state = np.full(16_010, np.nan), 2**63 + 12345
    after = put(out, 15_991, np.uint64(state))
    bits = np.array(list(words(state, 16_000)), dtype=object).reshape(-1, 2, 8)
    pairs = [np.array(list(map(box_muller, *block))) for block in bits]
    expected = np.concatenate([pair.T.ravel() for pair in pairs])  # eight first ones, then the rest
    np.testing.assert_allclose(out[:16_000], expected, rtol=0, atol=2e-14)
    assert np.isnan(out[16_000:]).all()  # nothing is written beyond the last sixteen
    assert after == (state + 16_000 * 0x9E3779B97F4A7C15) % 2**64


@numba.njit
def put(out, count, state):
    return put_normals(out, 0, count, state)


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
