"""Probabilities of jointly normal arms, against exact ones where arms are independent."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

import tsucb
from tsucb.policies.joint_probabilities import average, winners_between

MEAN, STD = np.array([0.0, 0.4, 0.5, -0.2, 0.1]), np.array([1.0, 0.6, 0.5, 1.3, 0.9])


def near(found: np.ndarray, errors: np.ndarray, truth: np.ndarray) -> None:
    """Return whether numbers agree within five standard errors and 1e-3."""
    assert (errors < 1e-3).all()
    np.testing.assert_array_less(np.abs(found - truth), 5 * errors + 2e-4)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert (found > 0).all()


@pytest.mark.parametrize("policy", [tsucb.Thompson(), tsucb.TSUCB(1), tsucb.TSUCB(10)], ids=str)
def test_independent_arms_as_joint_ones(policy: tsucb.Policy) -> None:
    truth = policy.probabilities(tsucb.GaussianBelief(MEAN, STD))
    near(*policy.probabilities_with_errors(tsucb.JointGaussianBelief(MEAN, np.diag(STD))), truth)
    half = np.sqrt(0.5) * STD
    partly_own = tsucb.JointGaussianBelief(MEAN, np.diag(half), half)
    near(*policy.probabilities_with_errors(partly_own), truth)
    exact, errors = policy.probabilities_with_errors(tsucb.GaussianBelief(MEAN, STD))
    np.testing.assert_array_equal(exact, truth)
    assert not errors.any()


def test_two_correlated_arms() -> None:
    joint = tsucb.JointGaussianBelief([0.0, 0.1], [[1.0, 0.5], [0.5, 1.0]])
    first = ndtr(-0.1 / math.sqrt(0.5))  # f(0) − f(1) ~ N(−0.1, 0.5)
    near(*tsucb.Thompson().probabilities_with_errors(joint), np.array([first, 1 - first]))
    policy = tsucb.Exploring(tsucb.Thompson(), 0.2)
    near(*policy.probabilities_with_errors(joint), 0.8 * np.array([first, 1 - first]) + 0.1)


def test_many_correlated_arms_against_repeated_choices() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    belief = tsucb.JointGaussianBelief(0.3 * x @ rng.normal(size=4), x @ rng.normal(size=(4, 4)))
    for policy in (tsucb.Thompson(), tsucb.TSUCB(3)):
        found, errors = policy.probabilities_with_errors(belief)
        repeated = policy.probabilities(belief, np.random.default_rng(1), 40_000)
        spread = np.sqrt(repeated * (1 - repeated) / 40_000) + errors
        np.testing.assert_array_less(np.abs(found - repeated), 5 * spread + 5e-4)


def test_arms_that_are_the_same_share() -> None:
    factor = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    belief = tsucb.JointGaussianBelief([0.0, 0.0, 0.0], factor)
    for policy in (tsucb.Thompson(), tsucb.TSUCB(2)):
        found = policy.probabilities(belief)
        assert found[0] == found[1]
    assert tsucb.Thompson().probabilities(belief)[2] == pytest.approx(0.5, abs=2e-3)


def test_an_arm_that_is_never_best_has_an_error() -> None:
    """Its true probability is 1e-14, not what one more draw, spread evenly, gives it."""
    belief = tsucb.JointGaussianBelief([0.0, 0.0, -10.0], np.eye(3))
    for policy in (tsucb.Thompson(), tsucb.TSUCB(1)):
        estimated = policy.estimated(belief)
        assert estimated is not None
        share, error = estimated
        assert 0 < share[2] < 1.01 * error[2] < 1e-4


def test_without_spread_choices_are_repeated() -> None:
    flat = tsucb.JointGaussianBelief([0.1, 0.1], [[0.0], [0.0]])
    assert tsucb.Thompson().estimated(flat) is None
    assert tsucb.TSUCB(5).estimated(flat) is None


@pytest.mark.parametrize("policy", [tsucb.Thompson(), tsucb.TSUCB(1), tsucb.TSUCB(10)], ids=str)
def test_an_arm_that_is_never_best_has_an_error_as_large_as_its_probability(
    policy: tsucb.Policy,
) -> None:
    belief = tsucb.JointGaussianBelief([0.0, 0.1, -50.0], np.eye(3))
    found, errors = policy.probabilities_with_errors(belief)
    assert 0 < found[2] <= 1.001 * errors[2] < 1e-4


def test_which_arm_is_played_at_which_target() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        estimate, radius = rng.normal(size=8), rng.gamma(1.0, size=8)
        belief = tsucb.GaussianBelief(estimate, radius)
        breaks, winners = winners_between(belief)
        targets = rng.normal(size=200) * 3
        expected = ((targets[:, None] - estimate) / radius).argmin(axis=1)
        np.testing.assert_array_equal(winners[np.searchsorted(breaks, targets)], expected)


@pytest.mark.parametrize("samples", [2, 50, 1000])
def test_the_average_has_the_right_moments(samples: int) -> None:
    draws = np.random.default_rng(0).gamma(2.0, size=5000)
    value, mass = average(draws, samples)
    assert mass.sum() == pytest.approx(1)
    assert mass @ value == pytest.approx(draws.mean(), rel=1e-6)
    spread = np.sqrt(mass @ (value - draws.mean()) ** 2)
    assert spread == pytest.approx(draws.std() / math.sqrt(samples), rel=2e-2)
