"""The hybrid model against a dense regression on everything at once, and its promises."""

import copy

import numpy as np
import pytest

import tsucb
from tsucb.models.hybrid_linear import ARM, CONTEXT, CROSSED, HALF, HybridState
from tsucb.models.structure import leaves

ARMS = 6


def problem(
    model: tsucb.HybridLinear, steps: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return matrices of rows, arms, and rewards that the model could have produced."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(ARMS, model.features)) * 3 + 7
    x = rng.normal(size=(steps, 1, model.context)) - 2
    rows = np.concatenate((np.broadcast_to(x, (steps, ARMS, model.context)),
                           np.broadcast_to(z, (steps, ARMS, model.features))), axis=2)  # fmt: skip
    arms = rng.integers(ARMS - 1, size=steps)  # the last is never played
    theta, own = rng.normal(size=rows.shape[2]), rng.normal(size=ARMS)
    played = rows[np.arange(steps), arms]
    rewards = 50 + played @ theta + own[arms] + 0.3 * rng.normal(size=steps)
    return np.ascontiguousarray(rows), arms, rewards


class Dense:
    """The posterior of all coefficients, shared and own, for the prior and noise of a state.

    The older, the less: a reward counts `keep` times as much with each that follows.
    """

    def __init__(self, model: tsucb.HybridLinear, state: HybridState, rows: np.ndarray,
                 arms: np.ndarray, rewards: np.ndarray, keep: float = 1.0) -> None:  # fmt: skip
        self.model, self.keep, spread = model, keep, state.spread[0]
        weight = self.weight(len(rows))
        self.centre = np.average(rows, axis=0, weights=weight)
        self.scale = np.sqrt(np.average((rows - self.centre) ** 2, axis=0, weights=weight))
        weight = weight / (np.bincount(arms, weight, minlength=ARMS)[arms] + 1)
        self.level = (weight * rewards).sum() / weight.sum()
        assert np.isclose(spread, (weight * rewards**2).sum() / weight.sum() - self.level**2)
        blocks = [1.0] + [state.shared[CONTEXT]] * model.context
        blocks += [state.shared[ARM]] * model.features
        blocks += [state.shared[CROSSED]] * (model.features * model.context * model.crossed)
        own = [state.levels[0]] + [state.slopes[0]] * (model.own_count - 1)
        self.prior = spread * np.array(blocks + own * ARMS)
        self.noise = spread * state.noise[0]

    def weight(self, count: int) -> np.ndarray:
        """Return the weights of `count` rewards, the last being 1."""
        return self.keep ** np.arange(count)[::-1]

    def design(self, rows: np.ndarray, arms: np.ndarray) -> np.ndarray:
        """Return one line of all coefficients' factors per row."""
        x = (rows - self.centre) / self.scale
        c, q = self.model.context, self.model.own_count
        crossed = np.einsum("ni,nj->nij", x[:, :c], x[:, c:]).reshape(len(x), -1)
        one = np.ones((len(x), 1))
        phi = np.hstack([one, x, crossed] if self.model.crossed else [one, x])
        own = np.zeros((len(x), ARMS, q))
        own[np.arange(len(x)), arms] = phi[:, :q]
        return np.hstack([phi, own.reshape(len(x), -1)])

    def posterior(self, rows: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> None:
        """Return mean and covariance of all coefficients."""
        design = self.design(rows, arms)
        weighed = design.T * self.weight(len(rows))
        precision = weighed @ design / self.noise + np.diag(1 / self.prior)
        self.covariance = np.linalg.inv(precision)
        self.mean = self.covariance @ weighed @ (rewards - self.level) / self.noise

    def forget_and_learn(self, row: np.ndarray, arm: int, reward: float) -> None:
        """Widen all but the last arm's own, of which nothing is known; absorb an observation."""
        known = len(self.covariance) - self.model.own_count
        self.covariance[:known, :known] /= self.keep
        design = self.design(row[None], np.array([arm]))[0]
        gain = self.covariance @ design / (design @ self.covariance @ design + self.noise)
        self.mean = self.mean + gain * (reward - self.level - design @ self.mean)
        self.covariance = self.covariance - np.outer(gain, design @ self.covariance)

    def belief(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and covariances of all arms' mean rewards."""
        design = self.design(rows, np.arange(ARMS))
        return self.level + design @ self.mean, design @ self.covariance @ design.T


MODELS = [
    tsucb.HybridLinear(2),
    tsucb.HybridLinear(2, 2),
    tsucb.HybridLinear(2, 2, own_slopes=False),
    tsucb.HybridLinear(1, 2, crossed=False),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_belief_is_that_of_a_dense_regression(model: tsucb.HybridLinear) -> None:
    """At a refresh, and after further rewards, one rank-one update each."""
    rows, arms, rewards = problem(model, 67)
    steps = np.arange(60)
    state = model.start(ARMS)
    model.update(state, rows[:60], arms[:60], rewards[:60])
    model.settle(state)
    state.due[0] = 1000
    dense = Dense(model, state, rows[steps, arms[:60]], arms[:60], rewards[:60])
    for count in (60, 67):
        if count > 60:
            model.update(state, rows[60:], arms[60:], rewards[60:])
        steps = np.arange(count)
        dense.posterior(rows[steps, arms[:count]], arms[:count], rewards[:count])
        check(model.belief(state, rows[0], rng=np.random.default_rng(0)), dense, rows[0])


def check(belief: tsucb.Belief, dense: Dense, rows: np.ndarray) -> None:
    """Check that means and covariances are the same."""
    mean, covariance = dense.belief(rows)
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-7)
    found = belief.law.factor @ belief.law.factor.T + np.diag(belief.law.own**2)
    np.testing.assert_allclose(found, covariance, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(belief.std, np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_what_is_forgotten_counts_less() -> None:
    """At a refresh exactly; until the next, everything known before is less certain."""
    model, rng = MODELS[1], np.random.default_rng(0)
    forgetful = tsucb.Forgetting(model, 0.95)
    rows, arms, rewards = problem(model, 62)
    state = forgetful.start(ARMS)
    forgetful.update(state, rows[:60], arms[:60], rewards[:60])
    model.settle(state)
    played = rows[np.arange(62), arms]
    dense = Dense(model, state, played[:60], arms[:60], rewards[:60], keep=0.95)
    dense.posterior(played[:60], arms[:60], rewards[:60])
    check(forgetful.belief(state, rows[0], rng=rng), dense, rows[0])
    np.testing.assert_allclose(state.pulls, np.bincount(arms[:60], dense.weight(60), ARMS))
    state.due[0] = 1000
    for i in (60, 61):
        forgetful.update(state, rows[i], arms[i], rewards[i])
        dense.forget_and_learn(played[i], arms[i], rewards[i])
    check(forgetful.belief(state, rows[0], rng=rng), dense, rows[0])
    grown = forgetful.extend(state, 1)  # a new arm is as uncertain as one that was never played
    long = np.concatenate((rows[0], rows[0, -1:]))
    np.testing.assert_allclose(*forgetful.belief(grown, long, rng=rng).std[-2:], rtol=1e-9)
    forgetful.release(state, np.array([1]))
    model.settle(state)
    assert state.pulls[1] == 0
    for _ in range(30):  # refreshes come at the latest when half is forgotten
        forgetful.update(state, rows[0], 0, 7.0)
        assert state.faded[0] >= HALF


def test_an_agent_whose_arms_come_follows_a_change() -> None:
    """The topic that is liked changes; columns and arms come and go meanwhile."""

    def late(forgetting: float, model: tsucb.Model | None = None) -> float:
        agent = tsucb.Agent(seed=0, forgetting=forgetting, most_arms=8, model=model)
        liked = []
        for t in range(240):
            offered = {f"{t}{topic}": {"topic": topic} for topic in ("art", "sport", "food")}
            decision = agent.choose({"hour": t % 24}, offered)
            liked.append(decision.arm.endswith("art" if t < 120 else "sport"))
            agent.reward(decision.id, float(liked[-1]))
        assert copy.copy(agent).digest() == agent.digest()
        return float(np.mean(liked[180:]))

    plain = tsucb.HybridLinear(0)  # the default notices the change
    assert late(1.0, plain) < 0.6
    assert late(0.95, plain) > 0.8
    assert late(1.0) > 0.8


def test_decisions_do_not_depend_on_units() -> None:
    """Features and rewards shifted and rescaled: the same means and spreads, in the new units."""
    model = MODELS[1]
    rows, arms, rewards = problem(model, 40)
    rng = np.random.default_rng(1)
    scale, shift = 10.0 ** rng.uniform(-3, 3, rows.shape[2]), rng.normal(size=rows.shape[2]) * 100
    one, other = model.start(ARMS), model.start(ARMS)
    model.update(one, rows, arms, rewards)
    model.update(other, rows * scale + shift, arms, 1000 * rewards - 5)
    first = model.belief(one, rows[3], rng=rng)
    second = model.belief(other, rows[3] * scale + shift, rng=rng)
    np.testing.assert_allclose(second.mean, 1000 * first.mean - 5, rtol=1e-6)
    np.testing.assert_allclose(second.std, 1000 * first.std, rtol=1e-5)


def test_numbers_approach_the_truth() -> None:
    """Of many arms and rewards, the learned noise and spread of own effects are about right."""
    rng = np.random.default_rng(3)
    model, arms = tsucb.HybridLinear(2), 200
    z, own = rng.normal(size=(arms, 2)), 0.8 * rng.normal(size=arms)
    played = rng.integers(arms, size=4000)
    rewards = z[played] @ [2.0, -1.0] + own[played] + 0.5 * rng.normal(size=4000)
    state = model.start(arms)
    for arm, reward in zip(played, rewards, strict=True):
        model.update(state, z, arm, reward)
    assert abs(np.sqrt(state.noise * state.spread) - 0.5) < 0.05
    assert abs(np.sqrt(state.levels * state.spread) - 0.8) < 0.15
    belief = model.belief(state, z, rng=rng)
    error = belief.mean - (z @ [2.0, -1.0] + own)
    assert 0.7 < np.sqrt(np.mean((error / belief.std) ** 2)) < 1.3  # 200 arms: calibrated


def test_an_arm_that_leaves_keeps_what_it_taught_of_all() -> None:
    """What is believed of the others does not change, at once and after a refresh."""
    model = MODELS[1]
    rows, arms, rewards = problem(model, 60)
    state = model.start(ARMS)
    model.update(state, rows, arms, rewards)
    model.settle(state)
    before = model.belief(state, rows[0], rng=np.random.default_rng(0))
    model.release(state, np.array([1]))
    for _ in range(2):
        after = model.belief(state, rows[0], rng=np.random.default_rng(0))
        others = np.delete(np.arange(ARMS), 1)
        np.testing.assert_allclose(after.mean[others], before.mean[others], rtol=1e-9)
        np.testing.assert_allclose(after.std[others], before.std[others], rtol=1e-6)
        assert after.std[1] > before.std[1]
        assert after.pulls[1] == 0
        model.settle(state)


@pytest.mark.parametrize("wide", [(2, 2), (3, 2), (2, 3), (3, 4)])
def test_widening_is_having_had_zeros(wide: tuple[int, int]) -> None:
    """A widened model believes the same as one that was as wide from the beginning."""
    model = tsucb.HybridLinear(2, 2)
    rows, arms, rewards = problem(model, 50)
    state = model.start(ARMS)
    model.update(state, rows, arms, rewards)
    before = copy.deepcopy(state)
    grown = model.widen(state, wide)
    after = model.widened(wide)
    assert after == tsucb.HybridLinear(wide[1], wide[0])
    long = np.zeros((*rows.shape[:2], sum(wide)))
    long[..., [0, 1, wide[0], wide[0] + 1]] = rows
    direct = after.start(ARMS)
    after.update(direct, long, arms, rewards)
    for name in ("noise", "levels", "slopes", "shared"):
        getattr(direct, name)[:] = getattr(state, name)
    after.settle(direct)
    one, two = (after.belief(s, long[0], rng=np.random.default_rng(0)) for s in (grown, direct))
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-9)
    np.testing.assert_allclose(one.std, two.std, rtol=1e-6)
    for left, right in zip(leaves(before), leaves(state), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_feature_nobody_has_seen_makes_uncertain() -> None:
    """An arm of a category without rewards is less certain than one of a known category."""
    model = tsucb.HybridLinear(3)
    rng = np.random.default_rng(0)
    z = np.eye(3)[[0, 0, 1, 1, 2]]
    state = model.start(5)
    for t in range(40):
        model.update(state, z, t % 4, rng.normal() + (t % 4 > 1))
    belief = model.belief(state, z, rng=rng)
    assert belief.std[4] > 2 * belief.std[:4].max()


def test_more_products_than_fit_are_left_away() -> None:
    assert not tsucb.HybridLinear(40, 40).crossed
    assert tsucb.HybridLinear(20, 40).crossed
    with pytest.raises(ValueError, match="features must be a whole number of at least 0"):
        tsucb.HybridLinear(-1)
