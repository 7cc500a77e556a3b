"""Any estimator as a model: against fits by hand, in the loops, in the background, in files."""

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import LeastSquares, rng

import tsucb
from tsucb.models import structure
from tsucb.models.ensemble import Ensemble, latest_members
from tsucb.testing import check_model, check_same_arms

LINES = 60


def history(arms: int = 3, features: int = 2) -> tuple[Any, Any, Any]:
    """Return contexts, arms and noisy rewards that are linear, with a slope for each arm."""
    draws = rng(5)
    x, arm = draws.normal(size=(LINES, features)), draws.integers(arms, size=LINES)
    return x, arm, x[:, 0] * arm + 0.5 * draws.normal(size=LINES)


def draws_of(model: Ensemble, state: Any, x: Any) -> Any:
    return model.belief(state, x, rng=rng()).law.draws


# Against references


def test_members_are_weighted_regressions_with_poisson_weights() -> None:
    """In closed form, with weights in place of repeated rows."""
    model = Ensemble(LeastSquares(), 4, features=2, artificial=0, interval=20)
    x, arm, y = history()
    state = model.fit(3, x, arm, y)
    assert (state.fitted[0], state.fitted_arms[0]) == (LINES, 3)
    found = draws_of(model, state, [0.3, -1.0])
    for m in range(4):
        weights = np.random.default_rng([*state.key, m]).poisson(1.0, LINES)
        for a in range(3):
            z = np.column_stack((x, np.ones(LINES)))[arm == a]
            w = weights[arm == a]
            gram = (z * w[:, None]).T @ z + 1e-6 * np.eye(3)
            beta = np.linalg.solve(gram, z.T @ (w * y[arm == a]))
            assert found[m, a] == pytest.approx(beta @ [0.3, -1.0, 1.0])


def test_where_arms_share_an_estimator_it_sees_the_arm() -> None:
    """Then a linear regression has one slope for all arms and a constant for each."""
    model = Ensemble(LeastSquares(), 3, features=2, shared=True, artificial=0, interval=20)
    x, arm, y = history()
    state = model.fit(3, x, arm, y)
    found = draws_of(model, state, [0.3, -1.0])
    for m in range(3):
        w = np.random.default_rng([*state.key, m]).poisson(1.0, LINES)
        z = np.column_stack((x, np.eye(3)[arm], np.ones(LINES)))
        beta = np.linalg.solve((z * w[:, None]).T @ z + 1e-6 * np.eye(6), z.T @ (w * y))
        assert found[m] == pytest.approx(0.3 * beta[0] - beta[1] + beta[2:5] + beta[5])


def test_the_spread_of_members_is_the_standard_error_of_the_regression() -> None:
    """σ √(zᵀ(ZᵀZ)⁻¹z), for 400 rewards; 300 members know it to 4 %, four times of which, and 8 %
    for what the bootstrap of 400 rewards is itself off by."""
    draws = rng(1)
    x = draws.normal(size=(400, 2))
    y = x @ [1.0, -2.0] + draws.normal(size=400)
    model = Ensemble(LeastSquares(), 300, features=2, interval=400, memory=400)
    state = model.fit(1, x, np.zeros(400, dtype=int), y)
    z = np.column_stack((x, np.ones(400)))
    for point in ([0.0, 0.0], [2.0, 1.0]):
        at = np.array([*point, 1.0])
        expected = np.sqrt(at @ np.linalg.solve(z.T @ z, at))
        assert model.belief(state, point, rng=rng()).std[0] == pytest.approx(expected, rel=0.24)


def test_members_disagree_about_arms_that_only_ever_paid_the_same() -> None:
    """Artificial rewards are for this."""
    x, arm, y = history()
    y = np.where(arm == 0, 0.0, y)
    without, given = (
        Ensemble(LeastSquares(), 20, features=2, artificial=n, interval=20) for n in (0, 2)
    )
    flat, wide = (m.belief(m.fit(3, x, arm, y), x[0], rng=rng()).std[0] for m in (without, given))
    assert flat < 1e-6 < 0.01 < wide


def test_refits_come_at_growing_intervals() -> None:
    model = Ensemble(LeastSquares(), 2, features=2, growth=1.5, interval=10, memory=100)
    state, marks = model.start(2), []
    for t in range(160):
        model.update(state, [t % 7, t % 3], t % 2, float(t % 5))
        marks.append(int(state.fitted[0]))
    assert sorted(set(marks)) == [0, 10, 20, 30, 50, 80, 120]
    assert all(m <= t + 1 for t, m in enumerate(marks))


def test_what_is_beyond_the_memory_is_forgotten() -> None:
    model = Ensemble(LeastSquares(), 5, features=1, memory=20, interval=10, artificial=0, growth=1)
    state = model.start(1)
    for t in range(60):
        model.update(state, [0.0], 0, 100.0 if t < 40 else 7.0)
    assert draws_of(model, state, [0.0]) == pytest.approx(7.0, abs=1e-4)


class Counting:
    """An estimator with `partial_fit` only: the mean of its rewards; it counts rows and calls."""

    def __init__(self) -> None:
        self.total, self.rows, self.calls = 0.0, 0, 0

    def partial_fit(self, x: Any, y: Any) -> None:
        self.total, self.rows, self.calls = self.total + y.sum(), self.rows + len(y), self.calls + 1

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.total / self.rows)


def test_partial_fit_sees_every_reward_once() -> None:
    model = Ensemble(Counting(), 3, features=1, artificial=0, interval=10, growth=1, memory=100)
    assert model.incremental
    state, y = model.start(1), rng(2).normal(size=50)
    for value in y:
        model.update(state, [0.0], 0, value)
    members = latest_members(model, state)
    assert members is not None
    for m, member in enumerate(members.fitted):
        times = np.random.default_rng([*state.key, m]).poisson(1.0, 50)
        assert (member[0].rows, member[0].calls) == (times.sum(), 5)
        assert member[0].total == pytest.approx(times @ y)


# The contract


def test_the_contract_with_partial_fit() -> None:
    model = Ensemble(Counting(), 3, features=2, interval=20, growth=1, memory=100)
    check_model(model, policy=tsucb.TSUCB(10), fixed_prior=False)


@pytest.mark.parametrize("name", ["ridge", "pipeline", "boosting", "forest", "descent"])
def test_scikit_learn_in_every_loop(name: str) -> None:
    """Also for regressions that draw random numbers, and for those that are cloned."""
    pytest.importorskip("sklearn", reason="pip install scikit-learn")
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import Ridge, SGDRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = {
        "ridge": Ensemble(Ridge(), 3, features=2, interval=20),
        "pipeline": Ensemble(make_pipeline(StandardScaler(), Ridge()), 2, features=2, interval=20),
        "boosting": Ensemble(
            HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=2), 2, features=2,
            shared=True, interval=30,
        ),
        "forest": Ensemble(RandomForestRegressor(3), 2, features=2, shared=True, interval=30),
        "descent": Ensemble(SGDRegressor(), 2, features=2, incremental=True, interval=20),
    }[name]  # fmt: skip
    if name == "ridge":
        check_model(model, policy=tsucb.TSUCB(10), fixed_prior=False)
    else:
        check_same_arms(model, tsucb.TSUCB(10), arms=3, steps=40)


# In the background


class Slow(LeastSquares):
    """An estimator whose fits wait until they may go on."""

    may_go_on = threading.Event()
    fails = False

    def fit(self, x: Any, y: Any) -> Any:
        assert Slow.may_go_on.wait(60)
        if Slow.fails:
            raise ArithmeticError("too\nhard")
        return super().fit(x, y)

    def __deepcopy__(self, memo: Any) -> "Slow":
        return Slow()


def wait_for(agent: tsucb.Agent) -> None:
    job = agent._learner.prepared().state.fitted.job
    assert job is not None
    job.thread.join(60)
    assert job.over


def rewarded(agent: tsucb.Agent, x: Any) -> Any:
    decision = agent.choose(x)
    agent.reward(decision.id, 1.0)
    return decision


def test_no_decision_waits_for_a_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "may_go_on", threading.Event())
    monkeypatch.setattr(Slow, "fails", False)
    model = Ensemble(Slow(), 3, features=1, interval=10, background=True, memory=50)
    agent = tsucb.Agent(["a", "b"], model=model, policy=tsucb.TSUCB(10), seed=1)
    for t in range(25):  # a fit has begun after ten
        rewarded(agent, [float(t)])
    state: Any = agent._learner.prepared().state
    assert (state.fitted[0], state.fitted.job.rewards) == (0, 10)
    assert np.abs(model.belief(state, [0.0], rng=rng()).mean).max() < 3  # still the prior
    Slow.may_go_on.set()
    wait_for(agent)
    # It is used at once, and the next reward takes note of it and begins the next.
    assert model.belief(state, [0.0], rng=rng()).mean == pytest.approx([1.0, 1.0], abs=0.9)
    rewarded(agent, [1.0])
    state = agent._learner.prepared().state
    assert (state.fitted[0], state.fitted.job.rewards) == (10, 20)
    wait_for(agent)


def test_a_refit_that_fails_is_said_and_the_agent_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Slow, "may_go_on", threading.Event())
    monkeypatch.setattr(Slow, "fails", True)
    Slow.may_go_on.set()
    model = Ensemble(Slow(), 3, features=1, interval=10, background=True, memory=50)
    agent = tsucb.Agent(["a", "b"], model=model, seed=1)
    for t in range(10):
        rewarded(agent, [float(t)])
    wait_for(agent)
    with pytest.warns(UserWarning, match=r"Slow failed on \d+ rows \(ArithmeticError: too hard\)"):
        rewarded(agent, [1.0])
    rewarded(agent, [1.0])  # said once
    again = model._replace(background=False)
    with pytest.raises(ValueError, match="Slow failed on"):
        again.fit(1, np.ones((10, 1)), np.zeros(10, dtype=int), np.ones(10))


# Files, copies and arms


def played(agent: tsucb.Agent, steps: int) -> list[Any]:
    draws = rng(9)
    found = []
    for _ in range(steps):
        x = draws.normal(size=2)
        decision = agent.choose(x)
        agent.reward(decision.id, float(x[0] > 0) if decision.arm == "a" else 0.4)
        found.append(decision.arm)
    return found


@pytest.mark.parametrize("background", [False, True])
def test_a_file_holds_the_data_and_members_are_fitted_again(
    background: bool, tmp_path: Path
) -> None:
    model = Ensemble(LeastSquares(), 5, features=2, memory=100, background=background)
    agent = tsucb.Agent(["a", "b"], model=model, policy=tsucb.Thompson(), seed=4)
    played(agent, 35)
    agent.add_arm("c")
    played(agent, 3)
    agent.save(tmp_path / "agent")
    other = Ensemble(LeastSquares(), 5, features=2, memory=100, background=background)
    again = tsucb.Agent.load(tmp_path / "agent", model=other)
    state: Any = again._learner.prepared().state
    assert state.fitted.members is None
    if background:
        assert other.belief(state, [0.0, 0.0], rng=rng()).mean.shape == (3,)
        return
    assert played(again, 30) == played(agent, 30)
    with pytest.raises(ValueError, match="saved with Ensemble, which is made with code of yours"):
        tsucb.Agent.load(tmp_path / "agent")
    with pytest.raises(ValueError, match="was saved with other settings: its Ensemble differs"):
        tsucb.Agent.load(tmp_path / "agent", model=model._replace(interval=11))


def test_rewards_forgotten_since_the_last_fit_leave_the_prior(tmp_path: Path) -> None:
    """Loaded with a memory that has none of the rewards to which the members were fitted."""
    model = Ensemble(LeastSquares(), 5, features=2, memory=5)
    x, arm, y = history()
    state = model.fit(3, x[:17], arm[:17], y[:17])
    assert state.fitted[0] == 10
    state.fitted.members = None  # as in a file
    assert draws_of(model, state, [0.0, 0.0]) == pytest.approx(state.offsets.T)


def test_copies_share_members_and_the_last_of_them_frees_them() -> None:
    model = Ensemble(LeastSquares(), 2, features=2)
    x, arm, y = history()
    state = model.fit(3, x, arm, y)
    copies = [state.copy(), structure.copied(state), model.extend(state, 1)]
    assert all(each.fitted.members is state.fitted.members for each in copies)
    model.update(copies[0], x, arm, y)  # which are fitted again, and the others are not
    assert copies[0].fitted.members is not state.fitted.members is copies[1].fitted.members
    alive = [weakref.ref(m[0]) for m in state.fitted.members.fitted]
    del state
    gc.collect()
    assert all(ref() is not None for ref in alive)
    del copies
    gc.collect()
    assert not any(ref() for ref in alive)


def test_a_fit_under_way_stays_with_the_process_that_began_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Slow, "may_go_on", threading.Event())
    monkeypatch.setattr(Slow, "fails", False)
    model = Ensemble(Slow(), 3, features=1, interval=10, background=True, memory=50)
    state = model.fit(1, np.ones((10, 1)), np.zeros(10, dtype=int), np.ones(10))
    first = state.fitted.job
    assert not first.over
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child
    model.update(state, [1.0], 0, 1.0)
    assert state.fitted.job is not first
    assert not state.fitted.job.over
    Slow.may_go_on.set()
    for job in (first, state.fitted.job):
        job.thread.join(60)


def test_arms_that_go_leave_the_others_what_they_know() -> None:
    agent = tsucb.Agent(["a", "b", "c"], model=Ensemble(LeastSquares(), 3, features=1), seed=0)
    for name, value in (("a", 1.0), ("b", 2.0), ("c", 3.0)) * 10:
        agent.update([0.0], name, value)
    agent.remove_arm("a")
    agent.add_arm("d")
    decision = agent.choose([0.0])
    agent.reward(decision.id, 3.0)
    state: Any = agent._learner.prepared().state
    means = agent.model.belief(state, [0.0], rng=rng()).mean
    assert means[1:3] == pytest.approx([2.0, 3.0], abs=0.4)
    assert state.pulls.size == 4


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"estimator": LeastSquares}, TypeError, r"must be an instance with fit\(X, y\) and pred"),
        ({"estimator": "ridge"}, TypeError, r"must be an instance with partial_fit\(X, y\)"),
        ({"incremental": True}, TypeError, r"must be an instance with partial_fit\(X, y\)"),
        ({"members": 1}, ValueError, "members must be a whole number of at least 2"),
        ({"features": 0}, ValueError, "features must be a whole number of at least 1"),
        ({"growth": 0.5}, ValueError, "growth must be at least 1, but it is 0.5"),
        ({"growth": float("nan")}, ValueError, "growth must be at least 1, but it is nan"),
    ],
)
def test_bad_settings_get_a_sentence(given: Any, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        Ensemble(**{"estimator": LeastSquares(), "features": 2} | given)


def test_a_classifier_is_refused_and_so_are_predictions_that_are_no_numbers() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    with pytest.raises(TypeError, match="LogisticRegression is a classifier"):
        Ensemble(linear.LogisticRegression(), features=2)

    class Lost(LeastSquares):
        def predict(self, x: Any) -> Any:
            return np.full(len(x), np.nan)

    model = Ensemble(Lost(), features=1)
    state = model.fit(1, np.ones((10, 1)), np.zeros(10, dtype=int), np.ones(10))
    with pytest.raises(ValueError, match="Lost predicts rewards that are not finite"):
        model.belief(state, [1.0], rng=rng())
