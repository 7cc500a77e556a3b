"""Exact integrals against SciPy's adaptive quadrature, closed forms and many samples."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import tsucb
from tsucb.beliefs import Beta
from tsucb.beliefs.best import best_probabilities, expected_best, regret_and_gain

RNG = np.random.default_rng(20)
GAUSSIAN = {
    "two": ([0.3, -0.2], [1.0, 0.4]),
    "two equal": ([0.0, 0.0], [1.0, 1.0]),
    "narrow beside wide": ([0.0, 0.3], [1.0, 1e-6]),
    "narrow above wide": ([0.0, 4.0], [1.0, 1e-6]),
    "far apart": ([0.0, -50.0], [1.0, 1.0]),
    "a distant mean": ([1e6, 1e6 + 1], [1.0, 0.5]),
    "ten": (RNG.normal(size=10), RNG.uniform(0.2, 1.0, 10)),
    "ten of all sizes": (RNG.normal(size=10) * 0.1, 10 ** RNG.uniform(-6, 0, 10)),
    "200 equal": (np.zeros(200), np.ones(200)),
    "200 of all sizes": (RNG.normal(size=200) * 0.1, 10 ** RNG.uniform(-6, 0, 200)),
    "200 similar": (RNG.normal(size=200) * 0.5, RNG.uniform(0.8, 1.0, 200)),
    "one certain": ([0.2, 0.0, -1.0], [0.0, 1.0, 2.0]),
    "certain and far above": ([60.0, 0.0, -1.0], [0.0, 1.0, 2.0]),
    "certain and far below": ([-60.0, 0.0, -1.0], [0.0, 1.0, 2.0]),
    "two certain": ([0.2, 0.2, 0.1], [0.0, 0.0, 1.0]),
    "all certain": ([0.2, 0.3], [0.0, 0.0]),
    "alone": ([0.7], [2.0]),
}
BETA = {
    "two": ([3.0, 1.0], [2.0, 1.0]),
    "prior": (np.ones(10), np.ones(10)),
    "Jeffreys": ([0.5, 0.5, 2.0], [0.5, 0.5, 1.5]),
    "ten": (RNG.integers(1, 40, 10), RNG.integers(1, 40, 10)),
    "many pulls": ([4e5, 6e5, 3.0], [6e5, 9e5, 4.0]),
    "200": (RNG.integers(1, 9, 200), RNG.integers(1, 300, 200)),
}


def integral(function, points):
    """SciPy's adaptive quadrature between every two of the points."""
    points = np.unique(points)
    return sum(
        integrate.quad(function, a, b, epsabs=1e-13, epsrel=1e-11)[0]
        for a, b in itertools.pairwise(points)
    )


def quadrature(mean, std):
    """E[max] and P(best) of independent normals."""
    mean, std = np.asarray(mean, float), np.asarray(std, float)
    free = std > 0
    low = max((mean - 9 * std).max(), mean[~free].max(initial=-np.inf))
    high = max((mean + 9 * std).max(), low)
    m, s = mean[free], std[free]
    marks = (m[:, None] + s[:, None] * np.array([-3, 0, 3, 9])).ravel()
    marks = np.r_[low, marks[(marks > low) & (marks < high)], high]
    best = low + integral(lambda x: -np.expm1(special.log_ndtr((x - m) / s).sum()), marks)
    chance = np.zeros(mean.size)
    if mean.size <= 10:
        for a in np.flatnonzero(free):

            def density(x, a=a):
                z = (x - m) / s
                others = special.log_ndtr(z).sum() - special.log_ndtr((x - mean[a]) / std[a])
                return stats.norm.pdf(x, mean[a], std[a]) * np.exp(others)

            chance[a] = integral(density, marks)
        certain = ~free & (mean == low)
        chance[certain] = np.prod(special.ndtr((low - m) / s)) / max(certain.sum(), 1)
    return best, chance


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_expected_best_of_normals(kind: str) -> None:
    mean, std = GAUSSIAN[kind]
    belief = tsucb.GaussianBelief(mean, std)
    expected, chance = quadrature(mean, std)
    assert expected_best(belief) == pytest.approx(expected, abs=1e-7 * max(std), rel=1e-15)
    found = best_probabilities(belief)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    if belief.mean.size <= 10:
        np.testing.assert_allclose(found, chance, atol=1e-7)


@pytest.mark.parametrize("kind", BETA)
def test_expected_best_of_betas(kind: str) -> None:
    alpha, beta = (np.asarray(values, float) for values in BETA[kind])
    belief = tsucb.BetaBelief(alpha, beta)
    levels = np.array([1e-12, 1e-3, 0.2, 0.8, 0.999, 1 - 1e-12])
    marks = np.r_[0.0, special.betaincinv(alpha[:, None], beta[:, None], levels).ravel(), 1.0]
    cdf = lambda x: np.prod(special.betainc(alpha, beta, x))  # noqa: E731
    expected = integral(lambda x: 1 - cdf(x), marks)
    assert expected_best(belief) == pytest.approx(expected, abs=1e-6 * belief.std.max())
    found = best_probabilities(belief)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    if alpha.size <= 10 and kind != "Jeffreys":  # whose density is infinite at both ends
        chance = [
            integral(
                lambda x, a=a: (
                    stats.beta.pdf(x, alpha[a], beta[a])
                    * np.prod(special.betainc(np.delete(alpha, a), np.delete(beta, a), x))
                ),
                marks,
            )
            for a in range(alpha.size)
        ]
        np.testing.assert_allclose(found, chance, atol=1e-7)


def test_closed_forms_for_two_normals() -> None:
    """Clark (1961): E[max], P(best) and, from them, the information gain."""
    mean, std = np.array([0.4, -0.3]), np.array([0.7, 1.9])
    belief = tsucb.GaussianBelief(mean, std)
    theta = math.hypot(*std)
    z = (mean[0] - mean[1]) / theta
    first = special.ndtr(z)
    peak = theta * stats.norm.pdf(z)
    regret, gain = regret_and_gain(belief)
    expected = mean[0] * first + mean[1] * (1 - first) + peak
    np.testing.assert_allclose(best_probabilities(belief), [first, 1 - first], atol=1e-8)
    np.testing.assert_allclose(regret, expected - mean, atol=1e-8)
    # E[f(a); a best] − mean(a) P(a best) = σ_a² φ(z) / θ, and its negative where a is not best.
    moved = std**2 * stats.norm.pdf(z) / theta
    np.testing.assert_allclose(gain, moved**2 * (1 / first + 1 / (1 - first)), rtol=1e-6)


@pytest.mark.parametrize(
    "belief",
    [
        tsucb.GaussianBelief(*GAUSSIAN["ten"]),
        tsucb.GaussianBelief([0.1, 0.0, 0.4, 0.4], [1.0, 0.5, 0.0, 0.0]),
        tsucb.GaussianBelief([0.1, 0.12, 0.0], [1.0, 0.01, 0.3]),
        tsucb.BetaBelief(*BETA["ten"]),
        tsucb.BetaBelief([1.0, 1.0, 3.0], [1.0, 2.0, 2.0]),
    ],
    ids=["normals", "certain", "narrow", "Betas", "prior"],
)
def test_regret_and_gain_against_a_million_samples(belief: tsucb.Belief) -> None:
    batches, size, rng = 20, 50_000, np.random.default_rng(3)
    if isinstance(belief.law, Beta):
        draws = rng.beta(belief.law.alpha, belief.law.beta, (batches * size, belief.mean.size))
    else:
        draws = rng.normal(belief.mean, belief.std, (batches * size, belief.mean.size))

    def sampled(means):
        best = means.argmax(axis=1)
        gain = np.zeros(belief.mean.size)
        for b in np.unique(best):
            conditional = means[best == b]
            gain += len(conditional) / len(means) * (conditional.mean(0) - belief.mean) ** 2
        return np.r_[means.max(axis=1).mean() - belief.mean, gain]

    error = np.std([sampled(part) for part in np.split(draws, batches)], axis=0) / batches**0.5
    exact = np.r_[regret_and_gain(belief)]
    # 20 numbers or fewer at 5 standard errors (of 20 batches): false alarms 1 in 1,000. The gain
    # from samples is biased upwards by about K/n of the variance: the second term.
    bias = np.r_[0 * belief.mean, belief.mean.size * belief.std**2] / len(draws)
    assert np.all(np.abs(sampled(draws) - exact) < 5 * error + 2 * bias + 1e-7)


def test_a_certain_arm_teaches_nothing() -> None:
    regret, gain = regret_and_gain(tsucb.GaussianBelief([1.0, 0.0], [0.0, 0.5]))
    assert gain[0] == 0.0
    assert gain[1] > 0.0
    regret, gain = regret_and_gain(tsucb.GaussianBelief([1.0, 0.0], [0.0, 0.0]))
    np.testing.assert_array_equal(regret, [0.0, 1.0])
    np.testing.assert_array_equal(gain, [0.0, 0.0])
