"""Policies on beliefs made by hand, and the paper's statements as properties.

What every policy promises is in `test_contract`.
"""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tsucb
from tsucb.beliefs.best import regret_and_gain
from tsucb.beliefs.law import draw
from tsucb.beliefs.sampling import estimated_regret_and_gain
from tsucb.logs import LoggedData, replay
from tsucb.policies.ids import best_mixture, information_ratio
from tsucb.policies.ts_ucb import ratios
from tsucb.sets import Ball, SetAgent, SetBandit

finite = st.floats(-5, 5, allow_nan=False)
spread = st.floats(1e-3, 5)


@st.composite
def gaussian_beliefs(draw_value, most=8):
    n = draw_value(st.integers(1, most))
    values = [draw_value(st.lists(kind, min_size=n, max_size=n)) for kind in (finite, spread)]
    return tsucb.GaussianBelief(*values)


def rng(seed=0):
    return np.random.default_rng(seed)


def ts_ucb_decision(belief, samples, seed):
    """Return the arm TS-UCB plays, and the f̃ it used."""
    choice = tsucb.TSUCB(samples).choose(belief, rng(seed))
    return choice.arm, choice.target


def test_names_are_the_papers():
    names = [p.name for p in (tsucb.Thompson(), tsucb.TSUCB(1), tsucb.TSUCB(100), tsucb.IDS(1000))]
    assert names == ["TS", "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)"]
    assert {str(p) for p in (tsucb.OFUL(), tsucb.ChiSquaredUCB(), tsucb.HoeffdingUCB(9))} == {"UCB"}
    assert str(tsucb.Greedy()) == "Greedy"
    assert str(tsucb.Greedy(first=True)) == "Greedy(first)"


# The paper's statements.


@given(gaussian_beliefs(), st.integers(0, 1000), st.randoms(use_true_random=False))
def test_no_distribution_over_arms_beats_ts_ucb(belief, seed, random):
    """Lemma 2: Ψ of TS-UCB's arm is at most Ψ̄ of any distribution."""
    arm, f = ts_ucb_decision(belief, 3, seed)
    psi = (f - belief.estimate[arm]) / belief.radius[arm]
    weights = np.array([random.uniform(0.01, 1) for _ in belief.mean])
    mixed = (f * weights.sum() - weights @ belief.estimate) / (weights @ belief.radius)
    assert psi <= mixed + 1e-9 * max(1, abs(mixed))


def test_greedy_can_play_the_first_of_equal_arms():
    belief = tsucb.GaussianBelief([0.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    policy = tsucb.Greedy(first=True)
    assert {policy.choose(belief, rng(seed)).arm for seed in range(50)} == {1}
    assert policy.probabilities(belief).tolist() == [0.0, 1.0, 0.0]


@given(gaussian_beliefs(), st.integers(0, 1000))
def test_ts_ucb_is_a_ucb_rule_with_its_own_factor(belief, seed):
    """Equation (3): with α = Ψ(arm), its bound is f̃ and no other bound is higher."""
    arm, f = ts_ucb_decision(belief, 2, seed)
    alpha = (f - belief.estimate[arm]) / belief.radius[arm]
    bounds = belief.estimate + alpha * belief.radius
    tolerance = 1e-9 * max(1.0, abs(f), abs(alpha) * belief.radius.max())
    assert bounds[arm] == pytest.approx(f, abs=tolerance)
    assert (bounds <= f + tolerance).all()


@given(gaussian_beliefs(), st.sampled_from([0.25, 2.0, 1024.0]), st.integers(0, 100))
def test_the_scale_of_the_radius_cancels(belief, factor, seed):
    # Powers of two scale without rounding, so not even ties move.
    scaled = tsucb.GaussianBelief(belief.mean, belief.std, radius=factor * belief.radius)
    policy = tsucb.TSUCB(2)
    assert policy.choose(belief, rng(seed)).arm == policy.choose(scaled, rng(seed)).arm


@given(gaussian_beliefs(), st.integers(0, 1000))
def test_an_arm_with_a_bound_above_f_is_preferred(belief, seed):
    """From the proof of Lemma 5."""
    arm, f = ts_ucb_decision(belief, 1, seed)
    upper = belief.estimate + belief.radius
    if (upper >= f).any():
        assert upper[arm] >= f - 1e-9 * max(1, abs(f))


@settings(max_examples=20)
@given(gaussian_beliefs(), st.integers(0, 1000))
def test_many_samples_remove_the_randomness(belief, seed):
    """With m → ∞ every choice is a minimiser of the ratio at f = E[max]."""
    z = rng(9).standard_normal((200_000, belief.mean.size))
    f = (belief.mean + belief.std * z).max(axis=1)
    arm = tsucb.TSUCB(20_000).choose(belief, rng(seed)).arm
    # Both averages err by a few standard errors: six of each, for a false alarm below 1e-8.
    slack = 6 * f.std() * (1 / np.sqrt(20_000) + 1 / np.sqrt(f.size)) / belief.radius
    psi = (f.mean() - belief.estimate) / belief.radius
    assert psi[arm] - slack[arm] <= (psi + slack).min()


@given(st.lists(st.tuples(st.floats(-3, 0), spread), min_size=1, max_size=5), st.integers(0, 99))
def test_a_certain_best_arm_is_played(others, seed):
    mean, std = [list(column) for column in zip(*others, strict=True)]
    belief = tsucb.GaussianBelief([*mean, 100.0], [*std, 0.0])
    for policy in (tsucb.TSUCB(3), tsucb.Thompson(), tsucb.IDS(20), tsucb.Greedy()):
        assert policy.choose(belief, rng(seed)).arm == len(mean)


def test_k_armed_ts_ucb_has_the_simple_form_of_the_paper():
    """Equation (5): the arm minimises √N (f̃ − μ̂)."""
    model, stream = tsucb.BernoulliArms(), rng(4)
    for seed in range(200):
        n = int(stream.integers(2, 8))
        pulled = np.concatenate([np.arange(n), stream.integers(n, size=30)])
        rewards = (stream.random(pulled.size) < 0.4).astype(float)
        state = model.fit(n, None, pulled, rewards)
        belief = model.belief(state, rng=stream)
        arm, f = ts_ucb_decision(belief, 1, seed)
        counts = np.bincount(pulled, minlength=n)
        average = np.bincount(pulled, rewards, minlength=n) / counts
        scores = np.sqrt(counts) * (f - average)
        assert scores[arm] == pytest.approx(scores.min(), abs=1e-12)


def test_the_ratio_at_its_limits():
    belief = tsucb.GaussianBelief([0.5, 1.0, 0.5, 0.0], [0.25, 0.0, 0.0, np.inf])
    # As usual; certain and best; certain and worse; never tried.
    assert ratios(belief, 1.0).tolist() == [2.0, -np.inf, np.inf, -np.inf]


# UCB, worked by hand.


def test_hoeffding_and_ucb1_bounds():
    belief = tsucb.BetaBelief([1, 1], [1, 1], estimate=[0.5, 0.6], pulls=[10, 100], step=111)
    # 0.5 + √(3 ln 1000 / 10) = 1.94 against 0.6 + √(3 ln 1000 / 100) = 1.06
    assert tsucb.HoeffdingUCB(1000).choose(belief, rng()).arm == 0
    near = tsucb.BetaBelief(
        [1, 1], [1, 1], estimate=[0.5, 0.6], pulls=[10_000, 10_000], step=20_001
    )
    assert tsucb.UCB1().choose(near, rng()).arm == 1
    untried = tsucb.BetaBelief([1, 1], [1, 1], estimate=[0.0, 0.9], pulls=[0, 50], step=51)
    assert tsucb.UCB1().choose(untried, rng()).arm == 0


def test_oful_uses_information_and_the_prior():
    # Widths √(info + 2 ln(1/δ)) + S/prior_std with δ = 1e-4: 4.292 + 1 and √(9 + 18.42) + 1 = 6.236
    belief = tsucb.GaussianBelief([0.0, 0.0], [1.0, 0.86], information=[0.0, 9.0])
    assert tsucb.OFUL().choose(belief, rng()).arm == 1  # 5.292 against 5.363
    belief = tsucb.GaussianBelief([0.0, 0.0], [1.0, 0.84], information=[0.0, 9.0])
    assert tsucb.OFUL().choose(belief, rng()).arm == 0  # 5.292 against 5.238


def test_chi_squared_and_bayes_ucb_against_scipy():
    from scipy.stats import beta, chi2

    width = np.sqrt(chi2.ppf(1 - 1 / 100, 50))
    for step, winner in ((width * 1.001, 0), (width * 0.999, 1)):
        belief = tsucb.GaussianBelief([0.0, step], [1.0, 0.0], step=99, dimension=50)
        assert tsucb.ChiSquaredUCB().choose(belief, rng()).arm == (1 if winner == 0 else 0)
    bound = beta.ppf(1 - 1 / 50, 3, 4)
    narrow = 1e9  # a Beta this narrow is as good as certain
    for factor, winner in ((0.999, 0), (1.001, 1)):
        level = bound * factor
        belief = tsucb.BetaBelief([3.0, level * narrow], [4.0, (1 - level) * narrow], step=50)
        assert tsucb.BayesUCB().choose(belief, rng()).arm == winner


# IDS.


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=6))
@example([(2e-202, 0.0)])  # whose square is 0
@example([(1.0, 1.0), (1.1e-308, 0.0)])  # best is 1.1e-308 of the first, which 1 - q cannot say
@example([(1.1e-308, 0.0), (1.0, 1.0)])
def test_the_best_mixture_against_a_grid(arms):
    regret, gain = (np.array(column) for column in zip(*arms, strict=True))
    chance = best_mixture(regret, gain)
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    value = information_ratio(chance @ regret, chance @ gain)
    grid = np.linspace(0, 1, 201)
    for i in range(len(arms)):
        for j in range(len(arms)):
            losses = grid * regret[i] + (1 - grid) * regret[j]
            gains = grid * gain[i] + (1 - grid) * gain[j]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ratios = np.where(gains == 0, np.inf, losses**2 / gains)
                ratios = np.where(losses == 0, 0, ratios)
            assert value <= ratios.min() * (1 + 1e-9) + 1e-9


def test_ids_information_gain_is_the_variance_of_the_conditional_mean():
    belief = tsucb.GaussianBelief([0.0, 0.3, 0.1], [1.0, 0.4, 0.8])
    exact_regret, exact_gain = regret_and_gain(belief)
    found = [estimated_regret_and_gain(belief, 4_000, rng(seed)) for seed in range(50)]
    for estimates, exact in zip(zip(*found, strict=True), (exact_regret, exact_gain), strict=True):
        values = np.array(estimates)
        # Six numbers at 5 standard errors: a false alarm in 300,000. The gain of three arms from m
        # draws is too large by at most 2/m of the variance.
        bias = 2 * belief.std**2 / 4_000 if exact is exact_gain else 0.0
        error = values.std(axis=0, ddof=1) / np.sqrt(50)
        assert (np.abs(values.mean(axis=0) - exact) <= 5 * error + bias).all()


def test_drawing_rewards_has_the_law_of_drawing_parameters():
    """K numbers N(xᵀμ, xᵀΣx), or K vectors β and their products with x: the same law."""
    from scipy.stats import ks_2samp

    model, stream = tsucb.ContextualLinear(features=3, noise=0.5), rng(7)
    pulled, contexts = stream.integers(4, size=20), stream.normal(size=(20, 3))
    state = model.fit(4, contexts, pulled, stream.normal(size=20))
    x = np.array([0.5, -1.0, 2.0])
    belief = model.belief(state, x, rng=stream)
    direct = np.empty((20_000, 4))
    for row in direct:
        draw(belief, stream, row)

    for arm in range(4):
        mean, root = state.posterior(arm)
        vectors = mean + stream.normal(size=(20_000, 3)) @ root.T
        # 4 tests at level 1e-5.
        assert ks_2samp(direct[:, arm], vectors @ x).pvalue > 1e-5
    correlation = np.corrcoef(direct.T) - np.eye(4)
    assert abs(correlation).max() < 5 / np.sqrt(20_000)  # 6 pairs, false alarm 4e-6


# Bad input.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tsucb.TSUCB(0), "samples must be"),
        (lambda: tsucb.TSUCB(1.5), "samples must be"),
        (lambda: tsucb.IDS(-1), "samples must be"),
        (lambda: tsucb.OFUL(delta=0), "delta must"),
        (lambda: tsucb.HoeffdingUCB(horizon=0), "horizon must"),
        (lambda: tsucb.BayesUCB(c=-1), "c must"),
        (lambda: tsucb.GaussianBelief([], []), "non-empty"),
        (lambda: tsucb.GaussianBelief([1, 2], [1]), "one per arm"),
        (lambda: tsucb.GaussianBelief([1, np.nan], [1, 1]), "NaN"),
        (lambda: tsucb.GaussianBelief([1, 2], [1, -1]), "must not be negative"),
        (lambda: tsucb.GaussianBelief([1], [1], step=0), "count from 1"),
        (lambda: tsucb.BetaBelief([1, 0], [1, 1]), "positive"),
        (lambda: tsucb.JointGaussianBelief([1, 2], [[1.0]]), "one row"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_grid_ids_finds_the_best_of_a_fine_grid():
    """Where the regrets are positive the exact minimiser is there, 1 to 2e-3 of its ratio."""
    from tsucb.policies.ids import mixture

    stream = rng(7)
    for _ in range(50):
        regret, gain = stream.uniform(0.05, 1, 5), stream.uniform(0.01, 1, 5)
        exact, grid = (mixture(policy, regret, gain) for policy in (tsucb.IDS(9), tsucb.GridIDS(9)))
        ratios = [(chance @ regret) ** 2 / (chance @ gain) for chance in (exact, grid)]
        assert ratios[0] * (1 - 1e-12) <= ratios[1] <= ratios[0] * 1.002
        assert np.count_nonzero(grid) <= 2
        assert grid.sum() == pytest.approx(1.0)


def test_grid_ids_keeps_the_sign_of_a_regret():
    """A leader whose sampled regret is negative is mixed with a bad arm, as by the authors."""
    from tsucb.policies.ids import mixture

    regret, gain = np.array([-0.01, 0.99]), np.array([1e-6, 1e-6])
    np.testing.assert_array_equal(mixture(tsucb.IDS(9), regret, gain), [1.0, 0.0])
    found = mixture(tsucb.GridIDS(9), regret, gain)
    assert found[1] == pytest.approx(0.01, abs=1e-3)  # the grid's last spacing
    assert mixture(tsucb.GridIDS(9), np.array([0.2]), np.array([0.0])) == [1.0]
    found = mixture(tsucb.GridIDS(9), np.array([0.2, 0.1]), np.zeros(2))
    np.testing.assert_array_equal(found, [0.0, 1.0])


def test_grid_ids_by_name():
    from tsucb.policies.names import named_policy, samples_of

    assert named_policy("IDS-grid(1000)") == tsucb.GridIDS(1000)
    assert isinstance(named_policy("IDS-grid(∞)"), tsucb.GridIDS)
    assert tsucb.GridIDS(1000).name == "IDS-grid(1000)"
    assert samples_of("IDS-grid(1000)") == 1000


def test_a_name_stands_for_its_policy_everywhere() -> None:
    """In the agent, with a floor or without, in simulation and replay, and on sets of arms."""
    bandit, model = tsucb.KArmedBandit(2), tsucb.BernoulliArms()
    by_name, itself = (
        tsucb.simulate(bandit, model, [policy], horizon=20, runs=2, progress=False)
        for policy in ("TS-UCB(1)", tsucb.TSUCB(1))
    )
    assert by_name.policies == itself.policies
    np.testing.assert_array_equal(by_name.regret, itself.regret)
    log = LoggedData([0, 1] * 20, [0.0, 1.0] * 20, None, uniform=True)
    assert replay(log, model, "TS-UCB(1)", lives=1).policy == "TS-UCB(1)"
    floor = tsucb.Exploring(tsucb.Thompson(), 0.1)
    assert tsucb.Agent(["a"], policy="TS+10%").policy == floor
    assert tsucb.Agent(["a"], policy="TS").policy == tsucb.Thompson()
    assert SetAgent(Ball(2), SetBandit(Ball(2), noise=1.0).model(), "TS").policy == tsucb.Thompson()
    with pytest.raises(TypeError, match="policies must be a list"):
        tsucb.simulate(bandit, model, "TS-UCB(1)", horizon=20, runs=2)
    with pytest.raises(ValueError, match="unknown policy 'UCB9'"):
        tsucb.simulate(bandit, model, ["UCB9"], horizon=20, runs=2)
