"""The compiled special functions against SciPy's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from tsucb.numeric.arrays import quantiles
from tsucb.numeric.special import (
    beta_quantile_upper,
    beta_tails,
    chi_squared_quantile_upper,
    gamma_tails,
    normal_cdf,
    normal_quantile_upper,
)

SHAPES = [(0.3, 0.7), (1, 1), (1, 40), (2, 3), (17, 5), (300, 200), (1, 1e5), (4e4, 6e4), (5e6, 3)]


def test_normal() -> None:
    for x in np.linspace(-36.0, 36.0, 301):
        assert_allclose(normal_cdf(x), special.ndtr(x), rtol=1e-12)


def test_normal_quantile() -> None:
    for q in 10.0 ** np.linspace(-300.0, -0.001, 500):
        assert_allclose(normal_quantile_upper(q), -special.ndtri(q), rtol=1e-13, atol=1e-15)
    for p in 1.0 - 10.0 ** np.linspace(-15.0, -0.31, 100):
        assert_allclose(normal_quantile_upper(p), -special.ndtri(p), rtol=1e-13)
    assert normal_quantile_upper(0.5) == 0.0
    assert normal_quantile_upper(0.0) == np.inf
    assert normal_quantile_upper(1.0) == -np.inf
    assert np.isnan(normal_quantile_upper(1.5))


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 2.5, 25.0, 68.0, 250.0, 1e4])
def test_gamma(shape: float) -> None:
    for x in stats.gamma.ppf(np.linspace(0.0005, 0.9995, 60), shape):
        assert_allclose(gamma_tails(shape, x)[0], special.gammainc(shape, x), rtol=1e-12)
        assert_allclose(gamma_tails(shape, x)[1], special.gammaincc(shape, x), rtol=1e-12)
    far = shape + 12.0 * np.sqrt(shape) + 20.0
    assert_allclose(gamma_tails(shape, far)[1], special.gammaincc(shape, far), rtol=1e-11)
    assert gamma_tails(shape, 0.0) == (0.0, 1.0)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 50, 136, 500])
def test_chi_squared_quantile(degrees: int) -> None:
    for t in [0.001, 0.1, 0.5, 1, 2, 10, 100, 1e3, 1e5, 1e7]:
        tail = 1.0 / (1.0 + t)
        assert_allclose(
            chi_squared_quantile_upper(tail, degrees), special.chdtri(degrees, tail), rtol=1e-11
        )
    assert chi_squared_quantile_upper(1.0, degrees) == 0.0
    assert chi_squared_quantile_upper(0.0, degrees) == np.inf


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_beta(a: float, b: float) -> None:
    middle = stats.beta.ppf(np.linspace(0.001, 0.999, 41), a, b)
    mean, std = stats.beta.mean(a, b), stats.beta.std(a, b)
    tails = np.clip([mean - 9 * std, mean + 9 * std], 1e-12, 1.0 - 1e-12)
    for x in np.r_[middle, tails]:
        below, above = beta_tails(x, 1.0 - x, a, b)
        assert_allclose(below, special.betainc(a, b, x), rtol=1e-11, atol=1e-300)
        assert_allclose(above, special.betaincc(a, b, x), rtol=1e-11, atol=1e-300)
    assert beta_tails(0.0, 1.0, a, b)[0] == 0.0
    assert beta_tails(1.0, 0.0, a, b)[0] == 1.0


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_beta_quantile(a: float, b: float) -> None:
    for t in [0.001, 0.1, 1.0, 3.0, 100.0, 1e4, 1e7]:
        tail = 1.0 / (1.0 + t)
        x = beta_quantile_upper(tail, a, b)
        assert_allclose(x, special.betainccinv(a, b, tail), rtol=1e-9)
    assert beta_quantile_upper(0.0, a, b) == 1.0
    assert beta_quantile_upper(1.0, a, b) == 0.0


def test_quantiles_of_columns() -> None:
    random = np.random.default_rng(0)
    for rows in (1, 2, 5, 1000):
        table = random.normal(size=(rows, 4))
        table[:, 1], table[:, 2] = table[:, 1].round(), np.inf
        found = np.empty(4)
        for share in (0.0, 0.05, 0.5, 0.999, 1.0):
            quantiles(table, share, found)
            with np.errstate(invalid="ignore"):
                expected = np.quantile(table, share, axis=0)
            expected[2] = np.inf
            assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
