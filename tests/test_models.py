"""Models against closed forms, against each other, and over millions of updates.

What every model promises is in `test_contract`.
"""

import copy

import numpy as np
import pytest
from scipy import stats

import tsucb
from tsucb.models import regressions
from tsucb.models.structure import leaves


def rng(seed=0):
    return np.random.default_rng(seed)


def history(arms, features, count, seed=0):
    stream = rng(seed)
    return (
        stream.normal(size=(count, features)),
        stream.integers(arms, size=count),
        stream.normal(size=count),
    )


# Closed forms.


def test_beta_gamma_and_normal_posteriors():
    bernoulli = tsucb.BernoulliArms(2.0, 3.0)
    belief = bernoulli.belief(bernoulli.fit(2, None, [0, 0, 0], [1, 1, 0]), rng=rng())
    assert belief.law.alpha.tolist() == [4.0, 2.0]
    assert belief.law.beta.tolist() == [4.0, 3.0]
    np.testing.assert_allclose(belief.std, stats.beta([4, 2], [4, 3]).std())
    poisson = tsucb.PoissonArms(2.0, 0.5)
    belief = poisson.belief(poisson.fit(2, None, [0, 0, 0], [4, 0, 3]), rng=rng())
    assert belief.law.shape.tolist() == [9.0, 2.0]
    assert belief.law.rate.tolist() == [3.5, 0.5]
    np.testing.assert_allclose(belief.std, stats.gamma([9, 2], scale=[1 / 3.5, 2]).std())
    gaussian = tsucb.GaussianArms(noise=2.0, prior_mean=1.0, prior_std=3.0)
    belief = gaussian.belief(gaussian.fit(1, None, [0, 0], [4.0, 6.0]), rng=rng())
    precision = 1 / 9 + 2 / 4
    assert belief.mean[0] == pytest.approx((1 / 9 + 10 / 4) / precision)
    assert belief.std[0] == pytest.approx(precision**-0.5)


@pytest.mark.parametrize("features", [3, 30, 37, 48])
def test_regressions_equal_the_direct_solution(features):
    prior_mean = rng(5).normal(size=features)
    root = rng(6).normal(size=(features, features))
    covariance = root @ root.T + np.eye(features)
    model = tsucb.ContextualLinear(features, 0.3, prior_mean, covariance)
    contexts, pulled, rewards = history(4, features, 200)
    state = model.fit(4, contexts, pulled, rewards)
    for arm in range(4):
        x, y = contexts[pulled == arm], rewards[pulled == arm]
        precision = np.linalg.inv(covariance) + x.T @ x / 0.09
        sigma = np.linalg.inv(precision)
        mean, half = state.posterior(arm)
        np.testing.assert_allclose(half @ half.T, sigma, rtol=1e-8, atol=1e-10)
        expected = sigma @ (np.linalg.solve(covariance, prior_mean) + x.T @ y / 0.09)
        np.testing.assert_allclose(mean, expected, rtol=1e-8, atol=1e-10)
        gained = np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(sigma)[1]
        assert state.information[arm] == pytest.approx(gained)


def test_normal_inverse_gamma_equals_the_papers_equations():
    """Equations (9) and (10), with μ₀ = 0."""
    model = tsucb.NIGLinear(5, shape=6.0, scale=6.0, prior_precision=0.25)
    x, pulled, y = history(1, 5, 60)
    state = model.fit(1, x, pulled, y)
    sigma = np.linalg.inv(x.T @ x + 0.25 * np.eye(5))
    mu = sigma @ (x.T @ y)
    b = 6.0 + 0.5 * (y @ y - mu @ np.linalg.solve(sigma, mu))
    mean, root = state.regressions.posterior(0)
    np.testing.assert_allclose(mean, mu)
    np.testing.assert_allclose(root @ root.T, sigma, atol=1e-12)
    assert state.scale[0] == pytest.approx(b)
    # The noise variance of a belief is drawn from InverseGamma(6 + 60/2, b).
    stream = rng(8)
    width = np.sqrt(x[0] @ sigma @ x[0])
    drawn = [(model.belief(state, x[0], rng=stream).std[0] / width) ** 2 for _ in range(2000)]
    assert stats.kstest(drawn, stats.invgamma(36.0, scale=b).cdf).pvalue > 1e-5


@pytest.mark.parametrize("arms", [1, 3, 200])
def test_forgetting_is_exact_for_every_arm_after_every_reward(arms):
    """A reward that is n rewards old weighs γⁿ, also one of an arm not played since."""
    gamma, played = 0.99, rng(1).integers(arms, size=500)
    rewards, age = rng(2).normal(size=500), np.arange(500)[::-1]
    model = tsucb.Forgetting(tsucb.GaussianArms(empirical=False), gamma)
    belief = model.belief(model.fit(arms, None, played, rewards), rng=rng())
    weights = np.bincount(played, gamma**age, arms)
    np.testing.assert_allclose(belief.pulls, weights, rtol=1e-9)
    np.testing.assert_allclose(belief.std, 1 / np.sqrt(1 + weights), rtol=1e-9)
    totals = np.bincount(played, gamma**age * rewards, arms)
    np.testing.assert_allclose(belief.mean, totals / (1 + weights), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("arms", "features"), [(1, 1), (3, 25), (200, 4)])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_forgetting_of_linear_models_is_exact(arms, features, spread):
    """Precisions, and precisions times means, are sums: a reward n rewards old weighs γⁿ."""
    gamma, steps = 0.99, 400
    x, played, y = history(arms, features, steps)
    weight = gamma ** np.arange(steps)[::-1]
    half = spread * rng(4).normal(size=(features, 2 * features))
    prior_mean, precision = rng(5).normal(size=features), np.linalg.inv(half @ half.T)
    known = tsucb.ContextualLinear(features, 0.3, prior_mean, half @ half.T)
    unknown = tsucb.NIGLinear(features, 6.0, 6.0, prior_mean, precision)
    for plain, noise in ((known, 0.09), (unknown, 1.0)):
        model = tsucb.Forgetting(plain, gamma)
        state = model.fit(arms, x, played, y)
        regressions = getattr(state, "regressions", state)
        for arm in range(arms):
            here = played == arm
            weighted = x[here] * weight[here, None] / noise
            posterior = precision + weighted.T @ x[here]
            covariance = np.linalg.inv(posterior)
            mean = covariance @ (precision @ prior_mean + weighted.T @ y[here])
            found, std = regressions.coefficients(arm)
            deviation = np.sqrt(covariance.diagonal())
            np.testing.assert_allclose(std, deviation, rtol=1e-6)
            np.testing.assert_allclose((found - mean) / deviation, 0.0, atol=1e-6)
            gained = np.linalg.slogdet(posterior)[1] - np.linalg.slogdet(precision)[1]
            assert regressions.information[arm] == pytest.approx(gained, rel=1e-6, abs=1e-6)
            assert state.pulls[arm] == pytest.approx(weight[here].sum())
            if plain is unknown:
                left = mean - prior_mean
                errors = y[here] - x[here] @ mean
                square = weight[here] @ errors**2 + left @ precision @ left
                assert state.scale[arm] == pytest.approx(6.0 + 0.5 * square, rel=1e-6)


def test_one_hot_linear_equals_gaussian_arms():
    linear, arms = tsucb.Linear(3, 0.5), tsucb.GaussianArms(0.5, empirical=False)
    pulled, rewards = rng(1).integers(3, size=20), rng(2).normal(size=20)
    features = np.tile(np.eye(3), (20, 1, 1))
    first = linear.belief(linear.fit(3, features, pulled, rewards), np.eye(3), rng=rng())
    second = arms.belief(arms.fit(3, None, pulled, rewards), rng=rng())
    for field in ("mean", "std", "radius", "pulls"):
        np.testing.assert_allclose(getattr(first, field), getattr(second, field))


def test_contextual_linear_is_a_linear_bandit_of_dimension_k_times_d():
    """Section 2.2: the arms' features are the context in K different places."""
    arms, d = 3, 4
    contextual, linear = tsucb.ContextualLinear(d, 0.5), tsucb.Linear(arms * d, 0.5)
    contexts, pulled, rewards = history(arms, d, 50)
    blocks = np.stack([np.kron(np.eye(arms), x) for x in contexts])
    one = contextual.belief(contextual.fit(arms, contexts, pulled, rewards), contexts[0], rng=rng())
    two = linear.belief(linear.fit(arms, blocks, pulled, rewards), blocks[0], rng=rng())
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-12)
    np.testing.assert_allclose(np.diag(one.std**2), two.law.factor @ two.law.factor.T, atol=1e-12)


@pytest.mark.parametrize("features", [7, 8, 14, 18])
def test_both_layouts_agree(features, monkeypatch):
    contexts, pulled, rewards = history(5, features, 100)
    model = tsucb.ContextualLinear(features, 0.3)
    lanes = model.fit(5, contexts, pulled, rewards)
    monkeypatch.setattr(regressions, "MOST_LANE_FEATURES", 0)
    rows = model.fit(5, contexts, pulled, rewards)
    assert (type(lanes), type(rows)) == (regressions.Lanes, regressions.Rows)
    for arms in (None, [3, 1]):
        one, two = (model.belief(s, contexts[0], arms, rng=rng()) for s in (lanes, rows))
        np.testing.assert_allclose(one.mean, two.mean, rtol=1e-10)
        np.testing.assert_allclose(one.std, two.std, rtol=1e-10)


# Numerics.


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_million_nearly_collinear_contexts(scale):
    """Against a solution in extended precision, to 1e-6 relative."""
    d, count = 50, 1_000_000
    stream = rng(11)
    direction = stream.normal(size=d)
    # 200 distinct contexts, each seen 5,000 times: the exact sums are then cheap.
    distinct = scale * (direction + 1e-3 * stream.normal(size=(200, d)))
    truth = stream.normal(size=d) / scale
    rewards = distinct @ truth + 0.1 * stream.normal(size=200)
    order = stream.permutation(np.tile(np.arange(200), count // 200))
    prior = 1 / scale**2
    model = tsucb.ContextualLinear(d, 0.1, prior_covariance=prior)
    state = model.fit(1, distinct[order], np.zeros(count, dtype=int), rewards[order])
    mean, root = state.posterior(0)

    import mpmath

    with mpmath.workdps(40):
        x = mpmath.matrix(distinct.tolist())
        weight = mpmath.mpf(count // 200) / mpmath.mpf(0.1) ** 2
        precision = x.T * x * weight + mpmath.eye(d) / mpmath.mpf(prior)
        covariance = precision**-1
        exact = covariance * (x.T * mpmath.matrix(rewards.tolist()) * weight)
    sigma = np.array(covariance.tolist(), dtype=float)
    mu = np.array([float(v) for v in exact])
    assert np.abs(root @ root.T - sigma).max() <= 1e-6 * np.abs(sigma).max()
    assert np.abs(mean - mu).max() <= 1e-6 * np.abs(mu).max()
    for i in (0, 1, 2):  # the spread at a context is much smaller than that in other directions
        variance = float((root.T @ distinct[i]) @ (root.T @ distinct[i]))
        assert variance == pytest.approx(distinct[i] @ sigma @ distinct[i], rel=1e-5)
        assert variance > 0


# Bad input leaves the state alone.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, s: m.update(s, [1.0, 2.0], 0, 1.0), "expects"),
        (lambda m, s: m.update(s, [1.0, np.nan, 0.0], 0, 1.0), "NaN or infinity"),
        (lambda m, s: m.update(s, [1.0, 2.0, 0.0], 0, np.inf), "finite"),
        (lambda m, s: m.update(s, [1.0, 2.0, 0.0], 5, 1.0), "arm 5 is unknown"),
        (lambda m, s: m.update(s, [1.0, 2.0, 0.0], -1, 1.0), "arm -1 is unknown"),
        (lambda m, s: m.update(s, np.ones((2, 3)), [0, 1], [1.0]), "do not match"),
        (lambda m, s: m.update(s, np.ones((2, 3)), [0, 1], [1.0, np.nan]), "finite"),
        (lambda m, s: m.belief(s, [1.0], rng=rng()), "expects"),
        (lambda m, s: m.belief(s, [1.0, 0.0, np.inf], rng=rng()), "NaN or infinity"),
        (lambda m, s: m.belief(s, [1.0, 0.0, 0.0], [], rng=rng()), "no arm is available"),
        (lambda m, s: m.belief(s, [1.0, 0.0, 0.0], [0, 0], rng=rng()), "listed twice"),
        (lambda m, s: m.belief(s, [1.0, 0.0, 0.0], [7], rng=rng()), "arm 7 is unknown"),
    ],
)
def test_bad_input_is_refused_and_nothing_changes(call, message):
    model = tsucb.NIGLinear(3)
    state = model.fit(2, [[1.0, 2.0, 3.0]], [0], [1.0])
    before = copy.deepcopy(state)
    with pytest.raises(ValueError, match=message):
        call(model, state)
    for one, two in zip(leaves(state), leaves(before), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tsucb.ContextualLinear(0), "features must"),
        (lambda: tsucb.ContextualLinear(2, noise=0), "noise must be positive"),
        (
            lambda: tsucb.ContextualLinear(2, prior_covariance=-1),
            "prior_covariance must be",
        ),
        (lambda: tsucb.ContextualLinear(2, prior_covariance=np.ones((2, 2))), "positive"),
        (lambda: tsucb.ContextualLinear(2, prior_mean=[1, 2, 3]), "prior_mean"),
        (lambda: tsucb.NIGLinear(2, prior_precision=0), "prior_precision must be positive"),
        (lambda: tsucb.NIGLinear(2, shape=0), "shape must be positive"),
        (lambda: tsucb.BernoulliArms(alpha=0), "alpha must be positive"),
        (lambda: tsucb.GaussianArms(prior_std=np.inf), "prior_std must be positive"),
        (lambda: tsucb.BernoulliArms().start(0), "the number of arms must be a whole number of"),
        (lambda: tsucb.BernoulliArms().fit(1, None, [0], [2.0]), "between 0 and 1"),
    ],
)
def test_bad_hyper_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
