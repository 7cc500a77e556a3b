"""The probability of every arm, for every policy, against what the policy does."""

import math

import numpy as np
import pytest
from everything import POLICIES, label
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import tsucb
from tsucb.beliefs.law import draw
from tsucb.compiler import held
from tsucb.policies.policy import count_choices

RNG = np.random.default_rng(12)
# More numbers of samples than in the contract: the law of their average is an integral.
EXACT = [
    policy
    for policy in [*POLICIES, tsucb.TSUCB(2), tsucb.TSUCB(10)]
    if policy.is_exact(tsucb.GaussianBelief([0.0, 1.0], [1.0, 1.0]))
]
# Policies that use more of a belief than its moments.
OF_THE_LAW = [policy for policy in EXACT if isinstance(policy, tsucb.TSUCB | tsucb.IDS)]
OF_THE_LAW.append(tsucb.Thompson())


def choices(policy: tsucb.Policy) -> int:
    """Return a number of choices that takes a fraction of a second."""
    samples = getattr(policy, "samples", 1)
    return 20_000 if samples == math.inf else 1_000_000 // samples


def contested(mean, std, pivot):
    """Return radii for which the ratios of all arms meet near a pivot, so each may be chosen."""
    return np.abs(pivot - np.asarray(mean)) * RNG.uniform(0.8, 1.2, len(mean))


def normals(arms, **fields):
    mean, std = RNG.normal(size=arms) * 0.5, RNG.uniform(0.1, 1.0, arms)
    radius = contested(mean, std, (mean + std).max() + 0.2)
    pulls = RNG.integers(0, 3, arms)
    return tsucb.GaussianBelief(mean, std, radius=radius, pulls=pulls, step=9, **fields)


def betas(arms):
    alpha, beta = RNG.integers(1, 20, arms), RNG.integers(1, 20, arms)
    mean = alpha / (alpha + beta)
    return tsucb.BetaBelief(alpha, beta, radius=contested(mean, None, mean.max() + 0.1))


NORMALS = {
    "two": normals(2),
    "five": normals(5),
    "twelve": normals(12),
    "equal": tsucb.GaussianBelief(np.zeros(4), np.ones(4)),
    "certain": tsucb.GaussianBelief([0.0, 0.3, 0.3, -0.2], [1.0, 0.0, 0.0, 0.5]),
    "certain, with a radius": tsucb.GaussianBelief([0, 0.3], [1, 0], radius=[1.0, 0.3]),
    "untried": tsucb.GaussianBelief([0.0, 0.3, 0.3], [1, 0, 0], radius=[np.inf, 0, 0]),
    "narrow beside wide": tsucb.GaussianBelief([0.0, 0.1], [1.0, 1e-6]),
    "nothing to learn": tsucb.GaussianBelief([0.5, 0.5, 0.1], np.zeros(3)),
}
BETAS = {
    "Betas": betas(5),
    "Jeffreys": tsucb.BetaBelief([0.5, 0.5, 1.0], [0.5, 0.5, 1.0], radius=[0.3, 0.2, 0.5]),
}


CASES = {
    f"{label(policy)}, {kind}": (policy, belief)
    for policies, beliefs in ((EXACT, NORMALS), (OF_THE_LAW, BETAS))
    for policy in policies
    for kind, belief in beliefs.items()
    if policy.is_exact(belief)  # not with two draws of a density that is infinite at its ends
}


@pytest.mark.parametrize(("policy", "belief"), CASES.values(), ids=CASES)
def test_frequency_of_choices(policy: tsucb.Policy, belief: tsucb.Belief) -> None:
    found = policy.probabilities(belief)
    assert policy.is_exact(belief)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(found >= 0)
    count = choices(policy)
    counts = np.zeros(belief.arms)
    count_choices(policy, belief, held(np.random.default_rng(5)), counts, count)
    frequency = counts / count
    # About 400 free numbers at 5 standard errors: false alarms 1 in 4,000. Where the normal
    # approximation is poor (few expected choices), five choices more are let through.
    error = np.sqrt(found * (1 - found) / count)
    assert np.all(np.abs(frequency - found) <= 5 * error + 5 * (found > 0) / count)


def average_by_convolution(belief, samples, cells=1 << 15):
    """TS-UCB(m) with f̃ rounded to a fine grid, its distribution by fast Fourier transform."""
    mean, std = belief.mean, belief.std
    low, high = (mean - 7.5 * std).max(), (mean + 7.5 * std).max()
    edges = np.linspace(low, high, cells + 1)
    best = np.exp(special.log_ndtr((edges[:, None] - mean) / std).sum(axis=1))
    size = 1 << math.ceil(math.log2(cells * samples + 1))
    chance = np.fft.irfft(np.fft.rfft(np.diff(best), size) ** samples, size)
    width = (high - low) / cells / samples
    middle = low + width * (samples / 2 + np.arange(size))
    below = np.r_[0.0, np.cumsum(chance)]
    winner = ((middle[:, None] - belief.estimate) / belief.radius).argmin(axis=1)
    out = np.zeros(mean.size)
    last = 0.0
    for i in np.flatnonzero(np.diff(winner)):
        a, b = winner[i], winner[i + 1]
        ratio = belief.radius[a] / (belief.radius[b] - belief.radius[a])
        crossing = belief.estimate[a] + (belief.estimate[a] - belief.estimate[b]) * ratio
        here = np.interp(crossing, np.r_[middle - width / 2, middle[-1] + width / 2], below)
        out[a] += here - last
        last = here
    out[winner[-1]] += 1.0 - last
    return out


@pytest.mark.parametrize("samples", [1, 2, 5, 30])
@pytest.mark.parametrize("spread", [1, 10, 100])
def test_average_of_draws(samples: int, spread: float) -> None:
    """The stated error, 1e-6, against a fast Fourier transform on a fine grid."""
    rng = np.random.default_rng(8)
    for arms in (2, 4, 9):
        std = spread ** -rng.uniform(0, 1, arms)
        std[:2] = 1, 1 / spread
        mean = rng.normal(size=arms) * 0.5 * std
        belief = tsucb.GaussianBelief(
            mean, std, radius=contested(mean, std, mean.max() + std.max())
        )
        found = tsucb.TSUCB(samples).probabilities(belief)
        np.testing.assert_allclose(found, average_by_convolution(belief, samples), atol=1e-6)


def average_of_two(mean, std, x):
    """P((X + Y)/2 ≤ x) for X and Y the best of two draws: ∫ F(2x − y) dF(y), cut at all scales."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    low, high = (mean - 9 * std).max(), (mean + 9 * std).max()
    scales = (np.arange(-9, 10)[:, None] * std).ravel()
    cuts = np.r_[np.tile(mean, 19) + scales, 2 * x - np.tile(mean, 19) - scales, 2 * x - low]
    cuts = np.unique(np.clip(np.r_[cuts, low, high], low, high))
    half = 0.5 * np.diff(cuts)[:, None]
    y = 0.5 * (cuts[1:] + cuts[:-1])[:, None] + half * nodes
    z = (y[..., None] - mean) / np.where(std > 0, std, 1)
    cdf = np.where(std > 0, special.ndtr(z), z >= 0)
    pdf = np.where(
        std > 0, np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / np.maximum(std, 1e-99), 0
    )
    density = sum(pdf[..., a] * np.delete(cdf, a, -1).prod(-1) for a in range(mean.size))
    rest = (2 * x - y[..., None] - mean) / np.where(std > 0, std, 1)
    other = np.where(std > 0, special.ndtr(rest), rest >= 0).prod(-1)
    total = (half * weights * density * other).sum()
    if (std == 0).any():  # one certain arm, the last
        z = (
            (mean[-1] - mean[:-1]) / std[:-1],
            (2 * x - 2 * mean[-1] + mean[-1] - mean[:-1]) / std[:-1],
        )
        total += special.ndtr(z[0]).prod() * special.ndtr(z[1]).prod() * (x >= mean[-1])
    return total


@pytest.mark.parametrize("ratio", [1, 1e2, 1e4, 1e6, 1e8, math.inf])
def test_average_of_draws_of_all_sizes(ratio: float) -> None:
    """The stated error, 1e-6, where spreads differ by any factor, also beside a certain arm."""
    rng = np.random.default_rng(9)
    for distance in (0.0, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5):
        std = np.array([1.0, 10.0 ** -rng.uniform(0, 8), 1 / ratio])
        mean = rng.normal(size=3) * std
        mean[2] = (mean + 0.5 * std)[:2].max()
        pivot = mean[2] + distance + (rng.normal() / ratio if ratio < math.inf else 1e-9)
        # The third arm wins below the pivot, the first above it, the second never.
        estimate, radius = pivot + np.array([-1.0, -9.0, -0.5]), np.array([1.0, 0.1, 0.5])
        belief = tsucb.GaussianBelief(mean, std, estimate=estimate, radius=radius)
        found = tsucb.TSUCB(2).probabilities(belief)
        assert tsucb.TSUCB(2).is_exact(belief)
        assert found[2] == pytest.approx(average_of_two(mean, std, pivot), abs=1e-6)


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=8),
    st.sampled_from(OF_THE_LAW),
)
@settings(max_examples=100, deadline=None)
def test_probabilities_sum_to_one(arms, policy) -> None:
    mean, std, radius = np.array(arms).T
    found = policy.probabilities(tsucb.GaussianBelief(mean, std, radius=radius))
    assert found.shape == mean.shape
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(found >= 0)


def test_joint_beliefs_and_sampled_ids_are_sampled() -> None:
    joint = tsucb.JointGaussianBelief([0.0, 0.1], [[1.0, 0.5], [0.5, 1.0]])
    # f(0) − f(1) ~ N(−0.1, 0.5)
    first = special.ndtr(-0.1 / math.sqrt(0.5))
    policy = tsucb.Thompson()
    assert not policy.is_exact(joint)
    found = policy.probabilities(joint, np.random.default_rng(0), repetitions=100_000)
    assert found[0] == pytest.approx(first, abs=5 * 0.5 / math.sqrt(100_000))  # 5 standard errors
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(policy.probabilities(joint), policy.probabilities(joint))
    independent = tsucb.GaussianBelief([0.0, 0.1], [1.0, 0.5])
    assert not tsucb.IDS(10).is_exact(independent)
    assert not tsucb.TSUCB(10).is_exact(joint)
    assert not tsucb.IDS(math.inf).is_exact(joint)
    assert tsucb.Greedy().is_exact(joint)
    assert tsucb.IDS(10).probabilities(independent, repetitions=100).min() > 0


def test_infinite_samples_of_joint_arms_agree_with_independent_ones() -> None:
    """A diagonal factor is the independent case, sampled: the same arm where it is clear-cut."""
    mean, std = np.array([0.0, 0.3, 0.5]), np.array([1.0, 0.6, 0.1])
    joint = tsucb.JointGaussianBelief(mean, np.diag(std))
    independent = tsucb.GaussianBelief(mean, std)
    for policy in (tsucb.TSUCB(math.inf), tsucb.IDS(math.inf)):
        choices = {policy.choose(joint, np.random.default_rng(seed)).arm for seed in range(20)}
        assert choices <= set(np.flatnonzero(policy.probabilities(independent)))


def test_names_and_refusals() -> None:
    assert tsucb.TSUCB(math.inf).name == "TS-UCB(∞)"
    assert tsucb.IDS(samples=math.inf).name == "IDS(∞)"
    for wrong in (0, -math.inf, 1.5, math.nan):
        with pytest.raises(ValueError, match="samples must be"):
            tsucb.TSUCB(wrong)


class LastArm(tsucb.Policy):
    """A policy in plain Python, as a user would write it."""

    def choose(self, belief, rng):
        return belief.mean.size - 1


def test_a_policy_of_ones_own_is_repeated() -> None:
    found = LastArm().probabilities(tsucb.GaussianBelief([0, 1], [1, 1]), repetitions=99)
    np.testing.assert_allclose(found, [0.005, 0.995])


def test_draws_of_tiny_betas_are_zeros_and_ones_at_once() -> None:
    """Both parameters of 1e-9: nearly a coin. The ties are broken evenly, and it does not hang."""
    chances = tsucb.Thompson().probabilities(tsucb.BetaBelief([1e-9] * 3, [1e-9] * 3))
    assert chances == pytest.approx([1 / 3] * 3, abs=0.03)
    chances = tsucb.Thompson().probabilities(tsucb.BetaBelief([3e-9, 1e-9], [1e-9, 3e-9]))
    assert chances == pytest.approx([0.75, 0.25], abs=0.03)  # 9/16 + half of the ties, 6/16


def test_draws_of_small_betas_have_their_mean_and_spread() -> None:
    """On both sides of the bound below which logarithms are taken."""
    for alpha, beta in ((0.009, 0.003), (0.011, 0.003)):
        belief = tsucb.BetaBelief([alpha], [beta])
        rng, draws = np.random.default_rng(0), np.empty((20_000, 1))
        for row in draws:
            draw(belief, rng, row)
        assert draws.mean() == pytest.approx(belief.mean[0], abs=0.015)
        assert draws.std() == pytest.approx(belief.std[0], abs=0.015)
        middle = (draws > 1e-3) & (draws < 1 - 1e-3)
        within = stats.beta(alpha, beta)
        assert middle.mean() == pytest.approx(within.cdf(1 - 1e-3) - within.cdf(1e-3), abs=0.008)
