"""Logistic regression for clicks: integrals against SciPy, posteriors against exact ones."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import tsucb
from tsucb.beliefs.best import best_probabilities, expected_best, regret_and_gain
from tsucb.beliefs.law import upper_quantiles
from tsucb.numeric.logistic import after_click, logistic_moments, most_likely_after_click

LAWS = [(0.0, 1.0), (-4.0, 0.3), (-3.0, 2.5), (2.0, 1e-5), (-6.0, 5.0), (1.0, 30.0)]


def integral(function, centre, scale):
    """E[function(η)] for η ~ N(centre, scale²), by SciPy."""
    ends = [centre - 12 * scale, 0.0, centre, centre + scale**2, centre + 12 * scale]
    cuts = sorted({min(max(x, ends[0]), ends[-1]) for x in ends})
    parts = [
        quad(lambda e: function(e) * norm.pdf(e, centre, scale), a, b, epsabs=1e-14, epsrel=1e-12)[
            0
        ]
        for a, b in itertools.pairwise(cuts)
        if b > a
    ]
    return sum(parts)


@pytest.mark.parametrize(("centre", "scale"), LAWS)
def test_moments_of_the_logistic_function(centre, scale):
    mean, std = logistic_moments(centre, scale)
    expected = integral(expit, centre, scale)
    assert mean == pytest.approx(expected, rel=1e-9)
    square = integral(lambda e: (expit(e) - expected) ** 2, centre, scale)
    assert std == pytest.approx(math.sqrt(square), rel=1e-6)


@pytest.mark.parametrize(("centre", "scale"), LAWS)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.3])
def test_mean_and_variance_after_a_click(centre, scale, reward):
    def weight(e):
        return expit(e) ** reward * expit(-e) ** (1 - reward)

    total = integral(weight, centre, scale)
    first = integral(lambda e: weight(e) * (e - centre) / scale, centre, scale) / total
    second = (
        integral(lambda e: weight(e) * ((e - centre) / scale - first) ** 2, centre, scale) / total
    )
    shift, part = after_click(centre, scale, reward)
    assert shift == pytest.approx(first, rel=1e-6, abs=1e-9)
    assert part == pytest.approx(1 - second, rel=1e-5, abs=1e-9)
    mode, curved = most_likely_after_click(centre, scale, reward)
    assert mode == pytest.approx(scale * (reward - expit(centre + scale * mode)), abs=1e-9)
    chance = expit(centre + scale * mode)
    odds = scale**2 * chance * (1 - chance)
    assert curved == pytest.approx(odds / (1 + odds), rel=1e-9, abs=1e-15)


def test_integrals_over_the_best_arm():
    """Two uncertain arms and a certain one, against SciPy."""
    centre, scale, sure = np.array([-2.0, -3.0]), np.array([0.8, 1.5]), -2.5
    belief = tsucb.LogitNormalBelief([*centre, sure], [*scale, 0.0])

    def over(function, a):
        """∫ function(η) dP(η of a) above the certain arm."""
        return quad(
            lambda e: function(e) * norm.pdf(e, centre[a], scale[a]), sure, 12, points=[-1, 2],
            epsabs=1e-13, limit=200,
        )[0]  # fmt: skip

    def cdf(b, e):
        return norm.cdf(e, centre[b], scale[b])

    wins = [over(lambda e, b=1 - a: cdf(b, e), a) for a in range(2)]
    neither = cdf(0, sure) * cdf(1, sure)
    assert best_probabilities(belief) == pytest.approx([*wins, neither], abs=1e-7)
    parts = [over(lambda e, b=1 - a: expit(e) * cdf(b, e), a) for a in range(2)]
    best = sum(parts) + expit(sure) * neither
    assert expected_best(belief) == pytest.approx(best, abs=1e-8)
    regret, gain = regret_and_gain(belief)
    assert regret == pytest.approx(best - belief.mean, abs=1e-8)

    def below(a, e):
        """E[σ(η of a); η ≤ e]."""
        return quad(lambda h: expit(h) * norm.pdf(h, centre[a], scale[a]), -20, e, epsabs=1e-13)[0]

    for a in range(2):
        other = quad(
            lambda e, a=a: below(a, e) * norm.pdf(e, centre[1 - a], scale[1 - a]), sure, 10,
            epsabs=1e-9,
        )[0]  # fmt: skip
        third = below(a, sure) * cdf(1 - a, sure)
        means = np.array([parts[a] / wins[a], other / wins[1 - a], third / neither])
        chances = np.array([wins[a], wins[1 - a], neither])
        assert gain[a] == pytest.approx(chances @ (means - belief.mean[a]) ** 2, rel=1e-5)
    assert gain[2] == 0


def test_quantiles_are_exact():
    belief, out = tsucb.LogitNormalBelief([-3.0, 1.0], [0.5, 2.0]), np.empty(2)
    for tail in (0.5, 0.05, 1e-6):
        upper_quantiles(belief, tail, out)
        assert out == pytest.approx(expit([-3 + 0.5 * norm.isf(tail), 1 + 2 * norm.isf(tail)]))


def clicked(rates, n, seed):
    """Return clicks on arms in turn, without context."""
    rng = np.random.default_rng(seed)
    arms = np.arange(n) % len(rates)
    return arms, (rng.random(n) < np.array(rates)[arms]).astype(float)


@pytest.mark.parametrize("laplace", [False, True])
def test_the_posterior_of_a_rate_is_close_to_the_exact_one(laplace):
    """Seven rewards, before a prior is learned: by a fine grid, within 0.15 std."""
    model = tsucb.LogisticArms(0, rate=0.2, laplace=laplace)
    rewards = np.array([0, 0, 1, 0, 0, 0, 0], dtype=float)
    state = model.fit(1, None, np.zeros(7, dtype=int), rewards)
    eta = np.linspace(-15, 12, 100_001)
    log = norm.logpdf(eta, math.log(0.25), 3.0) + np.log(expit(eta)) + 6 * np.log(expit(-eta))
    density = np.exp(log - log.max())
    density /= density.sum()
    mean = density @ eta
    std = math.sqrt(density @ (eta - mean) ** 2)
    centre, scale = model.coefficients(state, 0)
    off = (centre[0] - mean) / std
    assert abs(scale[0] / std - 1) < (0.2 if laplace else 0.08)
    assert 0.1 < off < 0.6 if laplace else abs(off) < 0.15


def solved(state, x, arm):
    """Return mean and covariance of an arm's coefficients on z, from the sums and the prior.

    Those on the standardised z̃ = A z are β̃ with β = Aᵀβ̃, and β̃ ~ N((b, 0, …), diag(τ₀², τ², …)).
    """
    back, p = np.eye(1 + x.shape[1]), 1 + x.shape[1]  # A⁻¹: z = 1, mean + standard deviation · z̃
    back[1:, 0] = x.mean(axis=0) - state.anchor[1:]
    back[1:, 1:] = np.diag(x.std(axis=0))
    arms = np.count_nonzero(state.pulls)
    level = state.levels[0] * (1 + 1 / arms) + 1 / (state.clicks.sum() + 0.5)
    prior = np.diag([1 / level] + [1 / state.slopes[0]] * (p - 1))
    rate = state.clicks[arm] / state.pulls[arm]
    part = min(1, (state.pulls[arm] * rate * (1 - rate) + 1) / state.weights[arm])
    covariance = np.linalg.inv(back @ prior @ back.T + part * state.moments[arm, :, :p])
    shift = part * state.moments[arm, :, p]
    return covariance @ (back @ prior[0] * state.level[0] + shift), covariance


def test_without_features_the_posterior_is_that_of_clicks_and_pulls():
    """Mean and variance of the log-odds by adaptive integration, for arms of 0 to 900 clicks."""
    from scipy.integrate import quad

    model = tsucb.LogisticArms(0)
    pulls, clicks = np.array([400, 3, 1_000, 0]), np.array([0, 1, 900, 0])
    arms = np.repeat(np.arange(4), pulls)
    rewards = np.concatenate([np.arange(n) < s for n, s in zip(pulls, clicks, strict=True)])
    state = model.fit(4, None, arms, rewards.astype(float))
    model.settle(state)
    level = state.levels[0] * (1 + 1 / 3) + 1 / (901 + 0.5)
    means, roots = state.regressions.by_arm()
    for k in range(4):
        mean, std, yes, no = means[k, 0], roots[k, 0, 0], clicks[k], pulls[k] - clicks[k]

        def log_density(x, yes=yes, no=no):
            odds = -yes * np.logaddexp(0, -x) - no * np.logaddexp(0, x)
            return odds - (x - state.level[0]) ** 2 / (2 * level)

        def moment(power, mean=mean, std=std, log_density=log_density):
            """Return the integral over ten standard deviations to each side, in their unit."""

            def part(z):
                return z**power * np.exp(log_density(mean + std * z) - log_density(mean))

            return quad(part, -10, 10)[0]

        assert moment(1) / moment(0) == pytest.approx(0, abs=1e-3)
        assert moment(2) / moment(0) == pytest.approx(1, abs=1e-3)


def test_sums_and_prior_make_the_posterior():
    """What is put in place is what sums and prior say, solved directly; and clicks add to both."""
    rng = np.random.default_rng(0)
    x, arms = rng.normal(3, 10, size=(60, 2)), rng.integers(3, size=60)
    model = tsucb.LogisticArms(2)
    state = model.fit(3, x, arms, (rng.random(60) < 0.3).astype(float))
    assert state.totals[0] == 60
    model.settle(state)
    for k in range(3):
        mean, root = (part[k] for part in state.regressions.by_arm())
        expected, covariance = solved(state, x, k)
        assert mean == pytest.approx(expected, rel=1e-8)
        assert root @ root.T == pytest.approx(covariance, rel=1e-8)
    before, (_, known) = state.moments[1, :, :3].copy(), solved(state, x, 1)
    model.update(state, [1.0, 2.0], 1, 1.0)
    root = state.regressions.by_arm()[1][1]
    gained = np.linalg.inv(root @ root.T) - np.linalg.inv(known)
    assert gained == pytest.approx(state.moments[1, :, :3] - before, rel=1e-6, abs=1e-9)


def test_the_prior_is_learned():
    """Twenty arms of 1 to 4 %, from a guess of 30 %; and features in any units."""
    rates = np.geomspace(0.01, 0.04, 20)
    model = tsucb.LogisticArms(0, rate=0.3)
    state = model.fit(20, None, *clicked(rates, 20_000, 1))
    assert expit(state.level[0]) == pytest.approx(0.02, rel=0.2)
    assert 0.2 < math.sqrt(state.levels[0]) < 0.7
    grown = model.extend(state, 1)
    belief = model.belief(grown, rng=np.random.default_rng(0))
    assert 0.01 < belief.mean[20] < 0.05
    rng = np.random.default_rng(2)
    x, arms = rng.normal(size=(500, 2)), rng.integers(2, size=500)
    rewards = (rng.random(500) < expit(x[:, 0] - 1)).astype(float)
    model = tsucb.LogisticArms(2)
    one = model.fit(2, x, arms, rewards)
    other = model.fit(2, x * [1000, 0.01] + [5e4, 3], arms, rewards)
    given = {"rng": rng, "step": 501}
    first = model.belief(one, [0.5, 0.5], **given)
    second = model.belief(other, [50_500, 3.005], **given)
    assert first.mean == pytest.approx(second.mean, rel=1e-4)
    assert first.std == pytest.approx(second.std, rel=1e-4)


def test_old_clicks_fade():
    """Sums by the weight of their age, features' scales with them; what is never tried stays."""
    rng = np.random.default_rng(3)
    model = tsucb.Forgetting(tsucb.LogisticArms(1), 0.9)
    x = rng.normal(5, 2, size=(60, 1))
    state = model.fit(3, x, np.arange(60) % 2, np.arange(60) % 2)
    untried = [part[2].copy() for part in state.regressions.by_arm()]
    before = state.moments[0].copy()
    state.due[0] = 1000  # nothing is learned again meanwhile
    model.update(state, x[:8], np.ones(8, dtype=int), np.zeros(8))
    assert state.moments[0] == pytest.approx(before * 0.9**8, rel=1e-9)
    for now, then in zip(state.regressions.by_arm(), untried, strict=True):
        assert np.array_equal(now[2], then)
    seen = state.totals[0]
    assert seen == pytest.approx(state.pulls.sum())
    assert 1.5 < np.sqrt(state.squares[1] / seen - (state.totals[1] / seen) ** 2) < 2.5
    rates = model.belief(state, [5.0], rng=rng).mean
    assert rates[1] < 0.5  # of 38 rewards, the last 8 tell
    plain = tsucb.LogisticArms(1).fit(2, x, np.arange(60) % 2, np.arange(60) % 2)
    tsucb.LogisticArms(1).update(plain, x[:8], np.ones(8, dtype=int), np.zeros(8))
    assert tsucb.LogisticArms(1).belief(plain, [5.0], rng=rng).mean[1] > 0.5


def test_intervals_cover_the_true_rate():
    """800 rates of 1 to 5 % after 300 rewards each: within 4 standard errors and 4 points."""
    rng = np.random.default_rng(5)
    found = {50: 0, 90: 0}
    model = tsucb.LogisticArms(0, rate=0.03)
    lower, upper = np.empty((2, 40))
    for seed in range(20):
        rates = np.exp(rng.uniform(np.log(0.01), np.log(0.05), 40))
        state = model.fit(40, None, *clicked(rates, 12_000, seed))
        belief = model.belief(state, rng=rng)
        for level in found:
            tail = (1 - level / 100) / 2
            upper_quantiles(belief, tail, upper)
            upper_quantiles(belief, 1 - tail, lower)
            found[level] += int(((lower <= rates) & (rates <= upper)).sum())
    for level, count in found.items():
        share = level / 100
        assert abs(count / 800 - share) < 0.04 + 4 * math.sqrt(share * (1 - share) / 800)


@pytest.mark.parametrize(("rate", "arms", "rewards"), [(0.003, 10, 1_000), (0.001, 2, 20_000)])
def test_intervals_cover_rates_far_below_the_guess(rate, arms, rewards):
    """90 % intervals with nothing set: at least 80 %, less three standard errors."""
    model, covered = tsucb.LogisticArms(0), []
    lower, upper = np.empty((2, arms))
    for seed in range(200 // arms):
        rates = rate * np.exp(0.5 * np.random.default_rng(seed).normal(size=arms))
        state = model.fit(arms, None, *clicked(rates, rewards, seed))
        belief = model.belief(state, rng=np.random.default_rng(0))
        upper_quantiles(belief, 0.05, upper)
        upper_quantiles(belief, 0.95, lower)
        covered.append(np.mean((lower <= rates) & (rates <= upper)))
    assert np.mean(covered) > 0.8 - 3 * np.std(covered) / math.sqrt(len(covered))


def test_extremes_stay_finite():
    """Only clicks, none at all, and contexts far from all others."""
    model, rng = tsucb.LogisticArms(1), np.random.default_rng(0)
    for reward in (0.0, 1.0):
        x = rng.normal(size=(3000, 1))
        state = model.fit(2, x, np.zeros(3000, dtype=int), np.full(3000, reward))
        for context in (0.0, 1e3, 1e12, -1e20):
            belief = model.belief(state, [context], rng=rng)
            assert ((belief.mean >= 0) & (belief.mean <= 1)).all()
            assert np.isfinite(belief.std).all()
        model.update(state, [1e12], 1, 1.0)
        assert np.isfinite(model.belief(state, [0.0], rng=rng).mean).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: tsucb.LogisticArms(2, rate=0), "rate must be between 0 and 1"),
        (lambda: tsucb.LogisticArms(-1), "features must be a whole number"),
        (lambda: tsucb.LogisticArms(0).fit(1, None, [0], [2.0]), "a click is 1"),
        (lambda: tsucb.LogitNormalBelief([0.0], [-1.0]), "must not be negative"),
        (lambda: tsucb.LogitNormalBelief([0.0], [math.inf]), "must be finite"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
