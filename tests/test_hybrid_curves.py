"""The default where arms have features: it bends, notices change, and is linear otherwise."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import aside, rng

import tsucb
from tsucb.models.change import WARM, Change, notice
from tsucb.models.curves import ROWS

Floats = Any
ARMS = 8


def near(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return rows of one feature each of context and arm, and rewards of arms near the context."""
    random = rng(seed)
    x, z = random.uniform(-1.0, 1.0, (steps, 1)), np.linspace(-1.0, 1.0, ARMS)
    means = np.exp(-4.0 * (x - z) ** 2)
    return rows_of(x, z[:, None]), means + 0.2 * random.standard_normal(means.shape)


def linear(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return rows, and rewards linear in products of context and arm, with levels of the arms."""
    random = rng(seed)
    x, z = random.standard_normal((steps, 3)), random.standard_normal((ARMS, 2))
    means = x @ random.standard_normal((3, 2)) @ z.T + random.normal(0.0, 0.5, ARMS)
    return rows_of(x, z), means + random.standard_normal(means.shape)


def rows_of(x: Floats, z: Floats) -> Floats:
    """Return a row for each arm: the context's features, then its own."""
    steps = len(x)
    parts = np.repeat(x[:, None], len(z), axis=1), np.repeat(z[None], steps, axis=0)
    return np.concatenate(parts, axis=2)


def agent_for(model: Any, seed: int = 0) -> Any:
    return tsucb.Agent(range(ARMS), model=model, seed=seed)


def play(agent: Any, rows: Floats, rewards: Floats) -> list[int]:
    """Return the arms that an agent plays, learning from every reward at once."""
    played = []
    for row, paid in zip(rows, rewards, strict=True):
        decision = agent.choose(row)
        agent.reward(decision.id, float(paid[decision.arm]))
        played.append(decision.arm)
    return played


def state_of(agent: Any) -> Any:
    return agent._learner.prepared().state


def mean_reward(played: list[int], rewards: Floats) -> float:
    return float(rewards[np.arange(len(played)), played].mean())


@aside
def test_it_bends_where_arms_near_the_context_pay() -> None:
    """Of at most 0.98; products of context and arm alone follow no ridge."""
    rows, rewards = near(1, 1_500)
    bent, plain = (agent_for(m(1, 1)) for m in (tsucb.HybridCurves, tsucb.HybridLinear))
    last = slice(-500, None)
    assert mean_reward(play(bent, rows, rewards)[last], rewards[last]) > 0.94
    assert mean_reward(play(plain, rows, rewards)[last], rewards[last]) < 0.9
    assert state_of(bent).bends[0]


@aside
def test_where_nothing_bends_or_changes_it_decides_as_the_linear_model() -> None:
    for seed in range(5):
        rows, rewards = linear(seed, 1_500)
        one, two = (
            agent_for(model)
            for model in (tsucb.HybridCurves(2, 3, looks=0), tsucb.HybridLinear(2, 3))
        )
        assert play(one, rows, rewards) == play(two, rows, rewards)
        assert one.changes() == []


@aside
def test_decisions_do_not_change_in_other_units() -> None:
    rows, rewards = near(2, 600)
    rewards[300:] = rewards[300:, ::-1]
    agent, other = (agent_for(tsucb.HybridCurves(1, 1)) for _ in range(2))
    played = play(agent, rows, rewards)
    assert state_of(agent).bends[0]
    assert agent.changes()
    moved = (rows - [3.0, 50.0]) * [1e3, 0.02]
    assert play(other, moved, 250.0 * rewards - 40.0) == played
    assert other.changes() == agent.changes()


@aside
def test_it_notices_that_tastes_have_changed_and_recovers() -> None:
    """The 1,500 rewards after the change are more than 85 % of the 1,500 before."""
    rows, rewards = linear(3, 3_000)
    rewards[1_500:] = rewards[1_500:, ::-1]
    agent, plain = agent_for(tsucb.HybridCurves(2, 3)), agent_for(tsucb.HybridLinear(2, 3))
    ours, linears = (play(each, rows, rewards) for each in (agent, plain))
    before, after = slice(1_500), slice(1_500, None)
    assert mean_reward(ours[after], rewards[after]) > 0.85 * mean_reward(ours[before], rewards)
    assert mean_reward(linears[after], rewards[after]) < 0.7 * mean_reward(ours[before], rewards)
    (change,) = agent.changes()
    assert 1_500 < change.step < 1_650
    assert change.arm is None
    assert change.weight < 0.05


@aside
def test_when_one_arm_has_changed_what_was_its_own_is_forgotten() -> None:
    """Half of the levels are the arms' own; that of the best arm falls by 3."""
    random = rng(6)
    z, own = random.standard_normal((ARMS, 1)), random.standard_normal(ARMS)
    rows = rows_of(np.zeros((1_600, 0)), z)
    rewards = z[:, 0] + own + 0.5 * random.standard_normal((1_600, ARMS))
    best = int((z[:, 0] + own).argmax())
    rewards[800:, best] -= 3.0
    agent = agent_for(tsucb.HybridCurves(1))
    played = play(agent, rows, rewards)
    assert [change.arm for change in agent.changes()] == [best]
    assert played[:800].count(best) > 600
    assert (np.array(played[900:]) != best).mean() > 0.9
    assert str(agent.changes()[0]) in str(agent.choose(rows[0]).explain())


def coming(agent: Any, steps: int, turn: int, first: int = 0) -> Floats:
    """Return the mean rewards of decisions among articles, of which all but a few are new.

    One topic is liked, and from step `turn` on another.
    """
    random, topics, paid = rng(7), ("art", "sport", "food"), []
    for t in range(first, first + steps):
        offered = {f"{t // 5}{topic}": {"topic": topic, "size": t % 7} for topic in topics}
        decision = agent.choose({"hour": t % 24}, offered)
        liked = "art" if t < turn else "sport"
        paid.append(float(decision.arm.endswith(liked)))
        agent.reward(decision.id, paid[-1] + 0.3 * random.standard_normal())
    return np.array(paid)


@aside
def test_change_is_noticed_where_most_arms_are_new() -> None:
    agent = tsucb.Agent(seed=0, most_arms=20)
    paid = coming(agent, 600, 300)
    assert paid[450:].mean() > 0.9
    (change,) = agent.changes()
    assert 300 < change.step < 360
    plain = tsucb.Agent(seed=0, most_arms=20, model=tsucb.HybridLinear(0))
    assert coming(plain, 600, 300)[300:450].mean() < paid[300:450].mean() - 0.2


def test_gamblers_on_arms_that_come_have_one_stake_together() -> None:
    """Alarms in at most one of 100 lives, with 3 standard errors, each reward of a new arm."""
    random, alarms, lives = rng(9), 0, 300
    for _ in range(lives):
        change = Change.blank({"arm": 400})
        change.warming[0] = 0.0
        for arm in range(400):
            change.arm_rewards[arm] = change.rewards[0]
            for z in random.standard_normal(3):
                notice(change, arm, 1.0, z)
        alarms += change.alarm[0] != -1.0
    assert alarms / lives < 0.01 + 3 * np.sqrt(0.01 / lives)


@aside
def test_a_saved_agent_goes_on_as_if_it_had_not_been_saved() -> None:
    agent = tsucb.Agent(seed=0, most_arms=12)
    for n in range(8):
        coming(agent, 60, 240, first=60 * n)
        loaded = tsucb.Agent.from_bytes(agent.to_bytes())
        assert loaded.digest() == copy.copy(agent).digest() == agent.digest()
        assert loaded.changes() == agent.changes()
    assert state_of(agent).curves.frozen[0]
    assert agent.changes()


@aside
@pytest.mark.parametrize("start", [0, 50, 300])
def test_merging_is_learning_in_one_place(start: int) -> None:
    """From a base without rewards, with rows that are kept, and with curves."""
    model, (rows, rewards) = tsucb.HybridCurves(1, 1), near(4, 700)
    arms = rng(4).integers(ARMS, size=700)
    paid = rewards[np.arange(700), arms]

    def learned(state: Any, part: slice) -> Any:
        state = state.copy()
        model.update(state, rows[part], arms[part], paid[part])
        return state

    base = learned(model.start(ARMS), slice(start)) if start else model.start(ARMS)
    one, two = learned(base, slice(start, 500)), learned(base, slice(500, None))
    both, whole = (
        model.merged(one, two, base),
        learned(learned(base, slice(start, 500)), slice(500, None)),
    )
    np.testing.assert_array_equal(both.pulls, whole.pulls)
    for name in ("gram", "moments", "square"):
        mine, theirs = (
            getattr(model.linear.moved(s.linear, base.linear.anchor), name) for s in (both, whole)
        )
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    assert both.curves.frozen[0]
    assert both.bends[0] == whole.bends[0]
    first, second = (model.belief(state, rows[0], rng=rng()) for state in (both, whole))
    np.testing.assert_allclose(first.mean, second.mean, atol=0.1)


@aside
def test_a_change_that_one_of_two_agents_noticed_holds_for_both() -> None:
    model, (rows, rewards) = tsucb.HybridCurves(2, 3, looks=0), linear(6, 1_200)
    base = agent_for(model)
    play(base, rows[:600], rewards[:600])
    one, two = copy.copy(base), copy.copy(base)
    play(one, rows[600:900], -rewards[600:900])
    play(two, rows[900:920], -rewards[900:920])
    assert one.changes()
    assert not two.changes()
    both = tsucb.merge(one, two, base)
    assert both.changes() == one.changes()
    ours, theirs = (state_of(agent) for agent in (both, one))
    assert theirs.linear.weight < ours.linear.weight < theirs.linear.weight + 20.5


@aside
def test_arms_leave_and_columns_come_while_it_bends() -> None:
    rows, rewards = near(1, 500)
    agent = agent_for(tsucb.HybridCurves(1, 1))
    play(agent, rows, rewards)
    model, state = agent.model, state_of(agent)
    assert state.bends[0]
    before = model.belief(state, rows[0], rng=rng())
    model.release(state, np.array([2]))
    after = model.belief(state, rows[0], rng=rng())
    others = np.delete(np.arange(ARMS), 2)
    np.testing.assert_allclose(after.mean[others], before.mean[others], rtol=1e-9)
    fewer = state.select(others)
    assert fewer.tried[0] == ARMS - 1
    wide = model.widened((2, 3))
    grown = model.widen(fewer, (2, 3))
    long = np.zeros((ARMS - 1, 5))
    long[:, [0, 2]] = rows[0][others]
    assert grown.bends[0]
    found = wide.belief(grown, long, rng=rng())
    np.testing.assert_allclose(found.mean, before.mean[others], atol=0.05)
    more = wide.extend(grown, 2)
    assert (more.change.played[-2:] == more.change.life[0]).all()
    assert wide.curved.features == 3 + model.curves


def test_curves_and_looks_can_be_left_off() -> None:
    assert tsucb.HybridCurves(2) == tsucb.HybridCurves(2, curves=64)
    assert (
        repr(tsucb.HybridCurves(2, 1, curves=8)) == "HybridCurves(features=2, context=1, curves=8)"
    )
    assert tsucb.HybridCurves(250, 251).start(1).curves.phases.size == 0
    assert tsucb.HybridCurves(3, curves=0).start(1).curves.phases.size == 0
    with pytest.raises(ValueError, match="curves must be at most features"):
        tsucb.HybridLinear(2, curves=3)


def test_the_report_tells_what_was_noticed(tmp_path: Path) -> None:
    agent = tsucb.Agent(seed=0, most_arms=20, log=tmp_path / "log")
    coming(agent, 400, 250)
    (change,) = agent.changes()
    agent.report(tmp_path / "page.html")
    assert f"A change was noticed {change}" in (tmp_path / "page.html").read_text()
    assert change.step > WARM == ROWS
