"""The model that learns its prior: in any units, from the first reward, and from other arms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import tsucb
from tsucb.models.adaptive_linear import arm_noise_worth
from tsucb.models.empirical_bayes import NOISE_WORTH, WORTH
from tsucb.models.structure import leaves


def problem(seed, arms=4, features=3, steps=150):
    """Return contexts, and the reward of every arm at every step."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(steps, features))
    slopes = rng.normal(size=(features, arms))
    return contexts, contexts @ slopes + rng.normal(size=arms) + 0.5 * rng.normal(
        size=(steps, arms)
    )


def decisions(contexts, rewards):
    """Return the arms that an agent with nothing set plays."""
    agent = tsucb.Agent(range(rewards.shape[1]), contexts.shape[1], seed=0)
    played = []
    for x, row in zip(contexts, rewards, strict=True):
        decision = agent.choose(x)
        agent.reward(decision.id, row[decision.arm])
        played.append(decision.arm)
    return played


factors = st.floats(-6, 6).map(lambda power: 10.0**power)
shifts = st.floats(-1e3, 1e3)


@settings(max_examples=25)
@given(
    scale=st.lists(factors, min_size=3, max_size=3),
    shift=st.lists(shifts, min_size=3, max_size=3),
    unit=factors,
    level=shifts,
    seed=st.integers(0, 5),
)
def test_decisions_do_not_change_in_other_units(scale, shift, unit, level, seed):
    contexts, rewards = problem(seed)
    # Shifts in units of the scale: beyond 1e3 of them the numbers themselves lose digits.
    moved = (contexts + np.array(shift)) * np.array(scale)
    assert decisions(moved, (rewards + level) * unit) == decisions(contexts, rewards)


@pytest.mark.parametrize("features", [0, 3, 30])
def test_every_arm_is_tried_while_all_rewards_are_equal(features):
    rng = np.random.default_rng(0)
    agent = tsucb.Agent(range(6), model=tsucb.AdaptiveLinear(features), seed=0)
    played = []
    for _ in range(12):
        decision = agent.choose(rng.normal(size=features) if features else None)
        agent.reward(decision.id, 7.0)
        played.append(decision.arm)
    assert set(played[:6]) == set(range(6))


def awkward(name, rng, steps=300):
    """Return contexts and rewards that upset estimates of scale."""
    x = rng.normal(size=(steps, 12))
    y = x[:, 0] + 0.1 * rng.normal(size=steps)
    match name:
        case "constant features":
            x[:, 3:] = 5.0
        case "features that vary late":
            x[: steps // 2, 5:] = 0.0
        case "duplicate features":
            x[:, 6:] = x[:, :6]
        case "heavy tails":
            y = 1e3 * rng.standard_cauchy(size=steps)
        case "an exact function":
            y = x[:, 0].copy()
        case "far from zero":
            x, y = x * 1e-3 + 1e6, y + 1e8
        case "rare rewards":
            y = (np.arange(steps) % 60 == 59) * 1.0
    return x, y


@pytest.mark.parametrize(
    "name",
    [
        "constant features",
        "features that vary late",
        "duplicate features",
        "heavy tails",
        "an exact function",
        "far from zero",
        "rare rewards",
    ],
)
@pytest.mark.parametrize("arms", [1, 40])  # 40 arms: fewer rewards each than features
def test_beliefs_stay_finite_and_useful(name, arms):
    rng = np.random.default_rng(1)
    contexts, rewards = awkward(name, rng)
    model = tsucb.AdaptiveLinear(12)
    state = model.start(arms)
    for t in range(len(contexts)):
        model.update(state, contexts[t], t % arms, rewards[t])
        if t % 20 == 0:
            belief = model.belief(state, contexts[t], rng=rng)
            assert np.isfinite(belief.mean).all()
            assert (belief.std > 0).all()
            assert (belief.std < 10 * np.ptp(rewards[: t + 1]) + 10).all()
    if name not in ("heavy tails", "rare rewards"):
        found = [model.belief(state, x, rng=rng).mean.mean() for x in contexts[-50:]]
        # What one feature explains is found, by one arm or by forty that teach each other.
        assert np.corrcoef(found, rewards[-50:])[0, 1] > 0.95


def test_the_noise_and_the_spread_are_found():
    rng = np.random.default_rng(2)
    contexts = rng.normal(size=(4000, 2))
    rewards = 100 + 30 * contexts[:, 0] + 10 * rng.normal(size=4000)
    model = tsucb.AdaptiveLinear(2)
    state = model.fit(2, contexts, np.arange(4000) % 2, rewards)
    # 2,000 rewards an arm: the standard error of a variance is 3 %.
    np.testing.assert_allclose(state.variance, 100.0, rtol=0.15)
    assert state.spread[0] == pytest.approx(1000.0, rel=0.15)
    mean, std = model.coefficients(state, 0)
    assert mean == pytest.approx([100.0, 30.0, 0.0], abs=5 * 10 / np.sqrt(2000))
    assert std == pytest.approx(10 / np.sqrt(2000), rel=0.2)


def test_an_arm_added_later_starts_where_its_siblings_are():
    rng = np.random.default_rng(3)
    shared = rng.normal(size=6)
    slopes = shared[:, None] + 0.1 * rng.normal(size=(6, 9))
    model = tsucb.AdaptiveLinear(6)
    contexts = rng.normal(size=(2000, 6))
    arms = np.arange(2000) % 8
    rewards = (contexts * slopes[:, arms].T).sum(axis=1) + 0.3 * rng.normal(size=2000)
    state = model.extend(model.fit(8, contexts, arms, rewards), 1)
    x = rng.normal(size=(200, 6))
    guesses = np.array([model.belief(state, row, rng=rng).mean[8] for row in x])
    # Before its first reward the new arm is predicted nearly as well as it can be.
    error = np.sqrt(np.mean((guesses - x @ slopes[:, 8]) ** 2))
    assert error < 0.35 * np.sqrt(np.mean((x @ slopes[:, 8]) ** 2))


def test_unrelated_arms_are_not_harmed():
    rng = np.random.default_rng(4)
    slopes = rng.normal(size=(5, 6))
    contexts, arms = rng.normal(size=(600, 5)), np.arange(600) % 6
    rewards = (contexts * slopes[:, arms].T).sum(axis=1) + 0.3 * rng.normal(size=600)
    model = tsucb.AdaptiveLinear(5)
    state = model.fit(6, contexts, arms, rewards)
    for arm in range(6):
        mean, _ = model.coefficients(state, arm)
        alone = np.linalg.lstsq(
            np.column_stack([np.ones(100), contexts[arms == arm]]), rewards[arms == arm], rcond=None
        )[0]
        # Six standard errors of a coefficient from 100 rewards.
        np.testing.assert_allclose(mean, alone, atol=6 * 0.3 / 10)


def test_the_state_depends_on_the_sums_alone_once_it_is_refreshed():
    contexts, rewards = problem(5, steps=400)
    arms = np.arange(400) % 4
    model = tsucb.AdaptiveLinear(3)
    whole = model.fit(4, contexts, arms, rewards[np.arange(400), arms])
    parts = model.start(4)
    for t in range(400):
        model.update(parts, contexts[t], arms[t], rewards[t, arms[t]])
    for one, two in zip(leaves(whole), leaves(parts), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_more_features_change_nothing_that_was_learned():
    contexts, rewards = problem(6)
    arms = np.arange(150) % 4
    model = tsucb.AdaptiveLinear(3)
    state = model.extend(model.fit(4, contexts, arms, rewards[np.arange(150), arms]), 1)
    wider, rng = model.widened(30), np.random.default_rng(0)
    before = model.belief(state, contexts[0], rng=rng)
    after = wider.belief(model.widen(state, 30), np.append(contexts[0], np.zeros(27)), rng=rng)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(after.std, before.std, rtol=1e-6)


def test_forgetting_follows_a_change_of_scale():
    model = tsucb.Forgetting(tsucb.AdaptiveLinear(1), 0.98)
    rng = np.random.default_rng(7)
    x = rng.normal(size=(800, 1))
    rewards = np.where(np.arange(800) < 400, 1.0, 50.0) + x[:, 0]
    state = model.fit(2, x, np.arange(800) % 2, rewards)
    belief = model.belief(state, [0.0], rng=rng)
    assert belief.mean == pytest.approx([50.0, 50.0], abs=2.0)
    assert state.known[0]


def test_an_agent_without_contexts_is_a_k_armed_bandit():
    rng = np.random.default_rng(8)
    agent = tsucb.Agent(["worse", "better"], seed=0)
    for _ in range(400):
        decision = agent.choose()
        agent.reward(decision.id, float(rng.random() < (0.3 if decision.arm == "worse" else 0.6)))
    assert agent.arms_summary().pulls["better"] > 300


def test_on_raw_features_it_beats_a_fixed_prior():
    """With features in raw units (1e4 and 1e-3) and rewards around 1,000 a fixed prior fails."""
    rng = np.random.default_rng(9)
    contexts = rng.normal(size=(1500, 2)) * [1e4, 1e-3] + [5e4, 7.0]
    z = (contexts - [5e4, 7.0]) / [1e4, 1e-3]
    means = 1000 + 20 * z @ rng.normal(size=(2, 5))
    noise = 10 * rng.normal(size=(1500, 1))
    regret = {}
    for name, model in (("adaptive", None), ("fixed", tsucb.NIGLinear(2))):
        agent = tsucb.Agent(range(5), 2, model=model, seed=0)
        total = 0.0
        for t in range(1500):
            decision = agent.choose(contexts[t])
            agent.reward(decision.id, means[t, decision.arm] + noise[t, 0])
            total += means[t].max() - means[t, decision.arm]
        regret[name] = total
    assert regret["adaptive"] < 0.2 * regret["fixed"]


def log_evidence(logarithms, state, x, arms, y):
    """Return the log evidence of (τ₀², τ², ω²), by a dense solve over b and the arms' own parts."""
    levels, slopes, common = np.exp(logarithms)
    count, p, relevance = state.weights.size, x.shape[1], state.relevance[1:]
    own, shared = np.append(levels, slopes * relevance), np.append(1.0, common * relevance)
    root = np.sqrt(state.spread * np.concatenate([shared] + [own] * count))
    matrix, right = np.eye(root.size), np.zeros(root.size)
    for k in range(count):
        here = np.zeros((p, root.size))
        here[:, :p] = here[:, p * (k + 1) : p * (k + 2)] = np.eye(p)
        part, here = x[arms == k] / np.sqrt(state.variance[k]), here * root
        matrix += here.T @ part.T @ part @ here
        right += here.T @ part.T @ y[arms == k] / np.sqrt(state.variance[k])
    return 0.5 * right @ np.linalg.solve(matrix, right) - 0.5 * np.linalg.slogdet(matrix)[1]


def test_the_prior_maximises_the_marginal_likelihood_once_there_is_much_data():
    """Own slopes of 0.05 around common ones of 1: what is learned, beside SciPy's maximum."""
    rng, n = np.random.default_rng(0), 100_000
    x, arms = rng.normal(size=(n, 4)), np.arange(n) % 5
    slopes = rng.normal(size=4) + 0.05 * rng.normal(size=(5, 4))
    y = 500 + 0.5 * rng.normal(size=5)[arms] + (x * slopes[arms]).sum(axis=1) + rng.normal(size=n)
    model = tsucb.AdaptiveLinear(4)
    state = model.fit(5, x, arms, y)
    model.refresh(state, 30)
    z = np.column_stack([np.ones(n), (x - x.mean(axis=0)) / x.std(axis=0)])
    centred = y - state.anchor[0] - model.scales(state).level
    found = np.log([state.levels[0], state.slopes[0], state.common[0]])
    best = minimize(lambda at: -log_evidence(at, state, z, arms, centred), found, method="Powell")
    assert log_evidence(found, state, z, arms, centred) > -best.fun - 0.01
    np.testing.assert_allclose(np.exp(found / 2), np.exp(best.x / 2), rtol=0.05)


KINDS = {
    "normal": lambda rng, means: rng.normal(5 + means, 1.0),
    "clicks": lambda rng, means: (rng.random(means.shape) < 0.05 * np.exp(means)).astype(float),
    "counts": lambda rng, means: rng.poisson(2 * np.exp(means)).astype(float),
}
TRUTH = {
    "normal": lambda means: 5 + means,
    "clicks": lambda means: 0.05 * np.exp(means),
    "counts": lambda means: 2 * np.exp(means),
}


@pytest.mark.parametrize(("arms", "rewards"), [(2, 100), (10, 20), (10, 100), (50, 100)])
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_fixed_arms_cover_their_means(kind, arms, rewards):
    """90 % intervals: at least 85 % from 100 rewards on, 80 % before, less 3 standard errors."""
    model, covered = tsucb.AdaptiveLinear(0), []
    for seed in range(400 // arms):
        rng = np.random.default_rng((seed, arms))
        means = 0.4 * rng.normal(size=arms)
        pulled = rng.integers(arms, size=rewards)
        state = model.fit(arms, None, pulled, KINDS[kind](rng, means[pulled]))
        belief = model.belief(state, rng=rng)
        inside = np.abs(TRUTH[kind](means) - belief.mean) <= 1.645 * belief.std
        covered.append(inside.mean())
    least = 0.85 if rewards >= 100 else 0.8
    assert np.mean(covered) > least - 3 * np.std(covered) / np.sqrt(len(covered))


@pytest.mark.parametrize(
    ("arms", "features", "rewards"),
    [(2, 3, 100), (10, 3, 20), (50, 3, 20), (50, 3, 100), (50, 30, 1_000)],
)
def test_intervals_of_arms_with_features_cover_their_means(arms, features, rewards):
    """90 % intervals at new contexts, of arms that have nothing in common: the same bounds."""
    model, covered = tsucb.AdaptiveLinear(features), []
    for seed in range(1_000 // arms):
        rng = np.random.default_rng((seed, arms, features))
        slopes = rng.normal(size=(features, arms)) / features**0.5
        pulled = rng.integers(arms, size=rewards)
        x, at = rng.normal(size=(rewards, features)), rng.normal(size=features)
        means = (x @ slopes)[np.arange(rewards), pulled]
        state = model.fit(arms, x, pulled, rng.normal(5 + means, 1.0))
        belief = model.belief(state, at, rng=rng)
        covered.append(np.mean(np.abs(5 + at @ slopes - belief.mean) <= 1.645 * belief.std))
    least = 0.85 if rewards >= 100 else 0.8
    assert np.mean(covered) > least - 3 * np.std(covered) / np.sqrt(len(covered))


@pytest.mark.parametrize(("arms", "rate"), [(10, 0.05), (50, 0.01)])
def test_after_its_own_play_the_interval_of_the_arm_played_next_covers(arms, rate):
    """90 % intervals of click rates after 300 decisions: at least 80 %, less 3 standard errors."""
    model, policy, covered = tsucb.AdaptiveLinear(0), tsucb.TSUCB(), []
    for seed in range(40):
        rng = np.random.default_rng((seed, arms))
        rates, state = rate * np.exp(0.5 * rng.normal(size=arms)), model.start(arms)
        for _ in range(300):
            arm = policy.choose(model.belief(state, rng=rng), rng).arm
            model.update(state, None, arm, float(rng.random() < rates[arm]))
        belief = model.belief(state, rng=rng)
        arm = policy.choose(belief, rng).arm
        covered.append(abs(rates[arm] - belief.mean[arm]) <= 1.645 * belief.std[arm])
    assert np.mean(covered) > 0.8 - 3 * np.std(covered) / np.sqrt(len(covered))


def test_an_arm_that_was_played_most_of_the_time_is_as_uncertain_as_its_clicks():
    """60 clicks of 600 for one arm, and 5 % for nine others: the deviation of a binomial rate."""
    arms = np.repeat(np.arange(10), [600, *[20] * 9])
    clicks = np.concatenate([np.arange(600) % 10 == 9, *[np.arange(20) == 9] * 9]).astype(float)
    model = tsucb.AdaptiveLinear(0)
    belief = model.belief(model.fit(10, None, arms, clicks), rng=np.random.default_rng(0))
    assert belief.std[0] == pytest.approx((0.1 * 0.9 / 600) ** 0.5, rel=0.05)


def test_an_arm_shares_the_noise_of_others_as_far_as_theirs_is_alike():
    """Residuals of 40 arms with eight rewards left each: of one noise, and of two."""
    left, rng = np.full(40, 8.0), np.random.default_rng(0)
    alike = rng.chisquare(8, size=40)
    assert arm_noise_worth(alike, left) > 20
    apart = alike * np.where(np.arange(40) % 2, 8.0, 1.0) / 4.5
    assert arm_noise_worth(apart, left) < 8
    # Two arms that happen to be alike say little: about what is guessed, four rewards.
    assert 4 <= arm_noise_worth(np.array([8.0, 8.0]), left[:2]) < 8


def test_beliefs_include_what_is_not_known_of_the_variances():
    """The Fisher information of the dense covariances of rewards, and means by differences."""
    model, rng = tsucb.AdaptiveLinear(2), np.random.default_rng(3)
    x, arms = rng.normal(size=(40, 2)), rng.integers(4, size=40)
    state = model.fit(4, x, arms, rng.normal(x[:, 0] * (arms - 1.5), 1.0))
    scales = model.scales(state)
    found = model.solve(state, scales)
    design = np.column_stack([np.ones(40), (x - x.mean(axis=0)) / x.std(axis=0)])
    information = np.diag([WORTH, NOISE_WORTH]) / 2
    for k in range(4):
        z = design[arms == k] * found.scale
        parts = np.array([z @ z.T, found.variance[k] * np.eye(len(z))])
        relative = np.linalg.solve(parts.sum(axis=0), parts)
        information += np.einsum("aij,bji->ab", relative, relative) / 2
    covariance = np.linalg.inv(information)
    of_ratio = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    roots = found.doubtful_roots(state.weights)
    for k in range(4):
        w, u = found.own[k], found.mean[k] - found.common
        more, less = (
            np.linalg.inv((np.linalg.inv(w) - np.eye(3)) * f + np.eye(3)) for f in (1.001, 0.999)
        )
        right = np.linalg.inv(w) @ u
        # In units of the prior as it is; u itself has the prior's standard deviation as a factor.
        moved = (1.001 * more @ right - 0.999 * less @ right) / 0.002
        np.testing.assert_allclose(moved, w @ u, rtol=1e-4)
        share = np.array([np.trace(w), 3 - np.trace(w)]) / 3
        wide = w + w @ found.covariance @ w + of_ratio * np.outer(w @ u, w @ u)
        wide *= np.exp(share @ covariance @ share)
        np.testing.assert_allclose(roots[k] @ roots[k].T, wide, rtol=1e-8)


def test_the_kind_of_rewards_is_recognised():
    rng, arms = np.random.default_rng(0), np.arange(300) % 3
    model = tsucb.AdaptiveLinear(0)
    clicks = (rng.random(300) < 0.1).astype(float)
    for rewards, kind in (
        (clicks, 2), (5 - 2 * clicks, 2), (clicks * rng.gamma(2.0, size=300), 1),
        (rng.normal(size=300), 0), (rng.poisson(3.0, size=300).astype(float), 0),
    ):  # fmt: skip
        assert model.fit(3, None, arms, rewards).kind[0] == kind
    # Two halves, merged, are of the same kind as the whole; a third value makes it another.
    start = model.start(3)
    halves = [
        model.fit(3, None, arms[part], clicks[part]) for part in (slice(150), slice(150, 300))
    ]
    both = model.merged(*halves, start)
    assert (both.kind[0], both.low[0] + both.anchor[0], both.above.sum()) == (2, 0, clicks.sum())
    other = model.fit(3, None, arms, clicks - 1)
    mixed = model.merged(halves[0], other, start)
    assert mixed.kind[0] == 1
    assert mixed.low[0] + mixed.anchor[0] == -1


def test_a_late_start_of_tracking_is_recovered_from():
    """500 zeros, then clicks of 1 to 10 %: the best arm is found in every run but few."""
    right, model, rates = 0, tsucb.AdaptiveLinear(0), np.array([0.01, 0.03, 0.1, 0.02])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        state, policy, played = model.start(4), tsucb.TSUCB(), []
        for t in range(2000):
            arm = policy.choose(model.belief(state, rng=rng), rng).arm
            played.append(arm)
            model.update(state, None, arm, float(t >= 500 and rng.random() < rates[arm]))
        right += np.mean(np.array(played[-500:]) == 2) > 0.5
    assert right >= 7


@pytest.mark.parametrize("gamma", [5e-324, 0.01])
@pytest.mark.parametrize(
    "model",
    [tsucb.AdaptiveLinear(20), tsucb.AdaptiveCurves(2), tsucb.LogisticArms(2)],
    ids=["linear", "curves", "logistic"],
)
def test_agents_that_remember_next_to_nothing_can_be_saved(model, gamma, tmp_path):
    rng = np.random.default_rng(10)
    agent = tsucb.Agent(["a", "b"], model=model, seed=0, forgetting=gamma)
    for _ in range(130):
        decision = agent.choose(rng.standard_normal(model.features))
        agent.reward(decision.id, float(rng.random() < 0.3))
    agent.save(tmp_path / "agent")
    again = tsucb.Agent.load(tmp_path / "agent")
    again.choose(np.ones(model.features))


@pytest.mark.parametrize("features", [1, 20])
def test_agents_whose_rewards_were_equal_for_long_can_be_saved(features, tmp_path):
    """The spread of rewards that fade halves each time, until they count as equal."""
    rng = np.random.default_rng(11)
    agent = tsucb.Agent(["a", "b"], model=tsucb.AdaptiveLinear(features), seed=0, forgetting=0.5)
    for n in range(500):
        decision = agent.choose(rng.standard_normal(features))
        agent.reward(decision.id, float(n == 1))
    agent.save(tmp_path / "agent")
    assert tsucb.Agent.load(tmp_path / "agent").choose(np.ones(features)).arm in "ab"
