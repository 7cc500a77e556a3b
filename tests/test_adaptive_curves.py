"""The default model: it bends where the data does, notices change, and is linear otherwise."""

import copy
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import aside, rng

import tsucb
from tsucb.models.adaptive_curves import log_evidence
from tsucb.models.change import ALARM, REMEMBERED, WARM, Change, notice, overdue, surprising
from tsucb.models.curves import ROWS, Curves, cosine
from tsucb.models.model import forget

Floats = Any


def xor(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return contexts of two features, and rewards of an arm for equal and one for unlike signs."""
    random = rng(seed)
    contexts = random.uniform(-1.0, 1.0, (steps, 2))
    agree = contexts[:, 0] * contexts[:, 1] > 0
    return contexts, np.column_stack([agree, ~agree]) + 0.1 * random.standard_normal((steps, 2))


def linear(seed: int, steps: int, arms: int = 4, features: int = 3) -> tuple[Floats, Floats]:
    """Return contexts, and arms that pay a linear function of them with noise."""
    random = rng(seed)
    contexts, slopes = (
        random.standard_normal((steps, features)),
        random.standard_normal((arms, features)),
    )
    return contexts, contexts @ slopes.T + random.standard_normal((steps, arms))


def play(agent: Any, contexts: Floats, rewards: Floats) -> list[int]:
    """Return the arms that an agent plays, learning from every reward at once."""
    played = []
    for x, row in zip(contexts, rewards, strict=True):
        decision = agent.choose(x if len(x) else None)
        agent.reward(decision.id, float(row[decision.arm]))
        played.append(decision.arm)
    return played


def agent_for(rewards: Floats, model: Any, seed: int = 0) -> Any:
    return tsucb.Agent(range(rewards.shape[1]), model=model, seed=seed)


def state_of(agent: Any) -> Any:
    return agent._learner.prepared().state


def mean_reward(played: list[int], rewards: Floats) -> float:
    return float(rewards[np.arange(len(played)), played].mean())


@aside
def test_it_bends_where_features_interact() -> None:
    contexts, rewards = xor(1, 1_500)
    bent, plain = (agent_for(rewards, m(2)) for m in (tsucb.AdaptiveCurves, tsucb.AdaptiveLinear))
    last = slice(-500, None)
    assert mean_reward(play(bent, contexts, rewards)[last], rewards[last]) > 0.9
    assert mean_reward(play(plain, contexts, rewards)[last], rewards[last]) < 0.65
    assert state_of(bent).bends[0]


@aside
@pytest.mark.parametrize("features", [0, 3])
def test_where_nothing_bends_or_changes_it_decides_as_the_linear_model(features: int) -> None:
    for seed in range(5):
        contexts, rewards = linear(seed, 1_500, features=features)
        models = tsucb.AdaptiveCurves(features, looks=0), tsucb.AdaptiveLinear(features)
        one, two = (agent_for(rewards, model) for model in models)
        assert play(one, contexts, rewards) == play(two, contexts, rewards)
        assert one.model.changes(state_of(one)) == []


@aside
def test_decisions_do_not_change_in_other_units() -> None:
    contexts, rewards = xor(2, 600)
    rewards[400:] = rewards[400:, ::-1]
    agent = agent_for(rewards, tsucb.AdaptiveCurves(2))
    played = play(agent, contexts, rewards)
    assert state_of(agent).bends[0]
    assert agent.model.changes(state_of(agent))
    other = agent_for(rewards, tsucb.AdaptiveCurves(2))
    moved = (contexts - [3.0, 50.0]) * [-1e3, 0.02]
    assert play(other, moved, 250.0 * rewards - 40.0) == played
    assert other.model.changes(state_of(other)) == agent.model.changes(state_of(agent))


@aside
@pytest.mark.parametrize("features", [0, 3])
def test_it_notices_that_arms_have_changed_places_and_recovers(features: int) -> None:
    contexts, rewards = linear(3, 3_000, features=features)
    rewards += np.arange(4)
    rewards[1_500:] = np.roll(rewards[1_500:], 1, axis=1)
    models = tsucb.AdaptiveCurves, tsucb.AdaptiveLinear, tsucb.AdaptiveLinear
    agent, plain, again = (agent_for(rewards, model(features)) for model in models)
    after = slice(1_500, None)
    ours, linears = (
        mean_reward(play(each, contexts, rewards)[after], rewards[after]) for each in (agent, plain)
    )
    stationary = mean_reward(play(again, contexts, rewards)[:1_500], rewards[:1_500])
    assert ours > max(linears, 0.9 * stationary)
    found = agent.model.changes(state_of(agent))
    assert 1_500 < found[0].step < 1_700
    assert found[0].weight < 0.1


def test_a_noticed_change_is_told_by_explanations_and_on_the_page(tmp_path: Path) -> None:
    agent = tsucb.Agent(["tea", "coffee"], seed=0, log=tmp_path / "log")
    for n in range(600):
        decision = agent.choose()
        usual = 1.0 if (decision.arm == "tea") == (n < 300) else 0.0
        agent.reward(decision.id, usual + 0.1 * (n % 3))
    (change,) = agent.changes()
    assert str(change) in str(agent.choose().explain())
    agent.report(tmp_path / "page.html")
    assert f"A change was noticed {change}" in (tmp_path / "page.html").read_text()


def test_a_belief_stays_finite_when_sums_of_many_features_have_faded() -> None:
    """Weights of 2 rewards an arm, and 30 directions each: more than there seem to be rewards."""
    model, arms = tsucb.AdaptiveLinear(30), np.arange(1_500) % 3
    contexts, slopes = rng(0).standard_normal((1_500, 30)), rng(1).standard_normal((3, 30))
    rewards = (contexts * slopes[arms]).sum(axis=1) + 1e-3 * rng(2).standard_normal(1_500)
    state = model.fit(3, contexts, arms, rewards)
    forget(model, state, 2 / 500)
    model.refresh(state, model.steps)
    found = model.belief(state, contexts[0], rng=rng(3))
    assert np.isfinite(found.std).all()
    assert (found.std < 1.0).all()


def rewards_of_the_notebook(seed: int, steps: int, change: int) -> Floats:
    """Three arms of means 1, ½ and 0 with noise ½; the last has 3/2 after some steps."""
    means = np.tile([1.0, 0.5, 0.0], (steps, 1))
    means[change:, 2] = 1.5
    return means + 0.5 * rng(seed).standard_normal((steps, 3))


@aside
def test_an_arm_that_was_left_alone_and_becomes_the_best_is_found() -> None:
    """Without looks the regret after the change is 0.5 a step, 750 here."""
    lost = []
    for seed in range(6):
        rewards = rewards_of_the_notebook(seed, 2_500, 1_000)
        played = play(agent_for(rewards, tsucb.AdaptiveCurves(0), seed), rewards[:, :0], rewards)
        lost.append(0.5 * np.sum(np.array(played[1_000:]) != 2))
    assert np.mean(lost) < 300.0


@aside
def test_looks_are_few_and_become_fewer() -> None:
    played = []
    for seed in range(7, 10):
        rewards = rewards_of_the_notebook(seed, 8_000, 8_000)
        agent = agent_for(rewards, tsucb.AdaptiveCurves(0), seed)
        played.append(play(agent, rewards[:, :0], rewards))
    others = (np.array(played) != 0).reshape(-1, 4, 2_000).mean(axis=(0, 2))
    assert others[1:].max() <= 0.012
    assert 0.002 < others[3] < 0.008  # of 0.01 · 45 / √7,000


def test_arms_take_turns_in_being_looked_at() -> None:
    """At 1 % of the decisions: each of two others every 200 rewards, of four every 400."""
    for arms, turn in ((2, 200), (3, 200), (5, 400)):
        change = Change.blank({"arm": arms})
        change.life[0], change.played[:] = 1_000.0, 1_000.0 - turn + 1
        assert all(overdue(change, 0.01, arm, arms) < 1.0 for arm in range(arms))
        change.played[1] -= 2
        due = [overdue(change, 0.01, arm, arms) >= 1.0 for arm in range(arms)]
        assert due == [a == 1 for a in range(arms)]
        change.rewards[0] = 4 * 1_300.0  # nothing has changed for long: half as many looks
        assert overdue(change, 0.01, 1, arms) < 1.0
        change.played[1] -= turn
        assert overdue(change, 0.01, 1, arms) >= 1.0
        assert overdue(change, 0.0, 1, arms) < 1.0


def test_an_arm_whose_reward_is_surprising_is_looked_at_again_at_once() -> None:
    change = Change.blank({"arm": 3})
    change.life[0] = 1_000.0  # arm 1 was never played
    assert not surprising(change, 0.01, 1, 3, 1.0)
    assert change.surprise[1] == 0.0
    assert not surprising(change, 0.01, 1, 3, 2.0)  # three quarters above what is expected
    assert change.surprise[1] > 0.0
    assert surprising(change, 0.01, 1, 3, 2.0)  # and again
    assert change.surprise[1] == 0.0
    assert not surprising(change, 0.01, 1, 3, 2.0)
    assert not surprising(change, 0.01, 1, 3, 0.0)  # it was chance
    assert change.surprise[1] == 0.0
    assert surprising(change, 0.01, 1, 3, 3.0)


def test_arms_that_are_played_often_are_not_suspected_more_often() -> None:
    """The rewards that make an arm suspect come no more often per turn, and no rare click does."""
    z = rng(3).standard_normal(40_000)
    suspected = {}
    for every in (400, 40, 4):
        change = Change.blank({"arm": 5})  # a turn is 400 rewards
        suspected[every] = 0
        for n in range(z.size // every):
            change.life[0], change.surprise[0] = 400.0 + n * every, 0.0
            change.played[0] = change.life[0] - every
            assert not surprising(change, 0.0, 0, 5, 100.0)
            surprising(change, 0.01, 0, 5, z[n])
            suspected[every] += change.surprise[0] > 0.0
    assert 3 <= suspected[400] <= 20  # of 100 turns
    assert suspected[40] <= 20
    assert suspected[4] <= 20
    assert not surprising(change, 0.01, 0, 5, 100.0)


def test_late_first_clicks_do_not_make_looks_rarer() -> None:
    """Equal rewards count as learned, too, so that none seem to be missing."""
    model = tsucb.AdaptiveCurves(0)
    state = model.fit(2, None, np.arange(400) % 2, np.zeros(400))
    assert state.change.life[0] == 400.0
    assert state.change.warming[0] == WARM


def test_a_batch_of_decisions_does_not_all_look() -> None:
    rewards = rewards_of_the_notebook(8, 2_000, 2_000)
    agent = agent_for(rewards, tsucb.AdaptiveCurves(0))
    play(agent, rewards[:, :0], rewards)
    change = state_of(agent).change
    change.played[1:] = 0.0  # both are due
    arms = np.asarray(agent.choose_many([{}] * 1_000).arms)
    assert 0.002 < np.mean(arms != 0) < 0.02


@aside
def test_intervals_hold_a_bent_mean() -> None:
    """90 % intervals of waves held 88 % of the means in 8 runs, and 63 % by the deviation alone."""
    held = []
    for seed in range(3):
        random = rng(19 + seed)
        slopes, phases = random.standard_normal((5, 3)) / np.sqrt(3), random.uniform(0, 6.28, 5)
        contexts, new = random.standard_normal((1_000, 3)), random.standard_normal((100, 3))
        rewards = np.cos(2 * contexts @ slopes.T + phases)
        rewards += 0.5 * random.standard_normal(rewards.shape)
        agent = agent_for(rewards, tsucb.AdaptiveCurves(3), seed)
        play(agent, contexts, rewards)
        model, truth = tsucb.AdaptiveCurves(3, looks=0), np.cos(2 * new @ slopes.T + phases)
        for x, means in zip(new, truth, strict=True):
            belief = model.belief(state_of(agent), x, rng=rng())
            held.append(np.abs(belief.mean - means) < 1.645 * belief.radius)
    assert 0.8 < np.mean(held) < 0.97


def test_a_change_of_one_arm_is_told_apart_from_one_of_all() -> None:
    one, every = (Change.blank({"arm": 20}) for _ in range(2))
    for step in range(4_000):
        z = rng(step).standard_normal()
        for change, low in ((one, step % 20 == 7), (every, True)):
            if change.alarm[0] == -1.0:
                notice(change, step % 20, 20, z - 1.5 * (low and step > 2_000))
    assert one.alarm[0] == 7
    assert every.alarm[0] == -2.0
    assert every.life[0] < one.life[0] < 4_000
    factors = one.recover(np.full(20, 200.0))
    assert factors[7] == 2.0 / 200.0
    assert (np.delete(factors, 7) == 0.3).all()
    (change,) = one.history()
    assert (change.arm, change.weight) == (7, factors[7])
    assert one.alarm[0] == -1.0


def test_the_test_raises_few_false_alarms_whatever_the_law_of_the_noise() -> None:
    """400 lives of 2,000 rewards: at most 1 % are expected; 3 of 100 lives more is beyond 6 sd."""
    random, alarms = rng(4), 0
    for life in range(400):
        change = Change.blank({"arm": 3})
        z = (random.standard_normal(2_000), random.standard_t(3, 2_000) / np.sqrt(3),
             (random.random(2_000) < 0.03) / 0.17 - 0.03 / 0.17)[life % 3]  # fmt: skip
        for step, value in enumerate(z):
            notice(change, step % 3, 3, value)
        alarms += change.alarm[0] != -1.0
    assert alarms <= 0.04 * 400


def test_no_bet_is_made_before_the_belief_is_warm() -> None:
    change = Change.blank({"arm": 1})
    for _ in range(WARM):
        notice(change, 0, 1, -50.0)
    assert change.alarm[0] == -1.0
    assert not change.capital.any()
    assert ALARM == 100.0


def test_the_last_changes_are_remembered_and_follow_their_arms() -> None:
    change = Change.blank({"arm": 3})
    for step in range(REMEMBERED + 5):
        change.life[0], change.alarm[0] = step, step % 3
        change.recover(np.full(3, 10.0))
    assert [each.step for each in change.history()] == list(range(5, REMEMBERED + 5))
    some = change.select(np.array([2, 0]))
    assert {each.arm for each in some.history()} == {0, 1}
    assert [e.arm for e in some.history()][:2] == [0, 1]  # of steps 5 and 6: arms 2 and 0


def test_the_evidence_is_the_marginal_likelihood() -> None:
    model, random = tsucb.AdaptiveLinear(2), rng(5)
    contexts, arms = random.standard_normal((30, 2)), random.integers(3, size=30)
    rewards = contexts[:, 0] * arms + random.standard_normal(30)
    state = model.fit(3, contexts, arms, rewards)
    model.refresh(state, 5)
    # The same by the covariance matrix of all rewards.
    scales = model.scales(state)
    rows = np.column_stack([np.ones(30), contexts - state.anchor[1:]])
    z = (rows - scales.centre) * scales.inverse
    y = rewards - state.anchor[0] - scales.level
    slopes, common = state.slopes[0] * state.relevance, state.common[0] * state.relevance
    own, shared = slopes * scales.spread, common * scales.spread
    own[0], shared[0] = state.levels[0] * scales.spread, scales.spread
    same = arms[:, None] == arms
    noise = state.arm_noise[arms] * state.noise[0] * scales.spread
    covariance = (z * own) @ z.T * same + (z * shared) @ z.T + np.diag(noise)
    direct = -0.5 * (np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y))
    assert log_evidence(model, state) == pytest.approx(direct, rel=1e-9)


def test_curves_are_frozen_robustly_and_ignore_what_has_not_varied() -> None:
    curves = Curves.blank({"feature": 3, "curve": 8})
    contexts = np.column_stack([rng(6).standard_normal((ROWS, 2)), np.full(ROWS, 4.0)])
    curves.freeze(contexts)
    assert curves.frozen[0]
    assert not curves.frequencies[2].any()
    rows = np.array([[0.5, 1.0, 4.0], [0.5, 1.0, 9.0], [1e9, 1.0, 4.0]])
    wide = curves.wide(rows)
    assert (wide[:, :3] == rows).all()
    assert (wide[0, 3:] == wide[1, 3:]).all()
    assert (np.abs(wide[:, 3:]) <= 1.0 + 1e-6).all()
    turns = np.linspace(-5.0, 5.0, 1_001)
    assert np.allclose([cosine(t) for t in turns], np.cos(2 * np.pi * turns), atol=1e-6)


@aside
def test_beliefs_at_many_contexts_are_those_at_each() -> None:
    contexts, rewards = xor(7, 600)
    agent = agent_for(rewards, tsucb.AdaptiveCurves(2))
    play(agent, contexts, rewards)
    model, state = agent.model, state_of(agent)
    assert state.bends[0]
    mean, std = model.predictions(state, contexts[:20], np.arange(2))
    for i in range(20):
        belief = model.belief(state, contexts[i], rng=rng())
        assert belief.mean == pytest.approx(mean[i] + state.curved.anchor[0])
        assert belief.std == pytest.approx(std[i])
    many = agent.choose_many(contexts[:50])
    assert len(set(np.asarray(many.arms).tolist())) == 2


@aside
def test_agents_that_learned_apart_from_the_same_curves_add_up() -> None:
    contexts, rewards = xor(8, 700)
    model = tsucb.AdaptiveCurves(2)
    arms = rng(9).integers(2, size=700)
    paid = rewards[np.arange(700), arms]
    base = model.fit(2, contexts[:300], arms[:300], paid[:300])
    whole, one, two = (copy.deepcopy(base) for _ in range(3))
    model.update(whole, contexts[300:], arms[300:], paid[300:])
    model.update(one, contexts[300:500], arms[300:500], paid[300:500])
    model.update(two, contexts[500:], arms[500:], paid[500:])
    both = model.merged(one, two, base)
    assert both.bends[0]
    assert np.allclose(both.curved.moments, whole.curved.moments)
    assert np.allclose(both.linear.moments, whole.linear.moments)
    assert (both.pulls == whole.pulls).all()
    assert both.change.life[0] == whole.change.life[0]
    model.check_state(both, 700)


@aside
@pytest.mark.parametrize(("first", "second"), [(20, 40), (60, 70), (30, 200), (200, 300)])
def test_agents_that_began_apart_go_on_with_the_curves_of_one(first: int, second: int) -> None:
    contexts, rewards = xor(10, 1_200)
    model = tsucb.AdaptiveCurves(2)
    arms = rng(11).integers(2, size=1_200)
    paid = rewards[np.arange(1_200), arms]
    one = model.fit(2, contexts[:first], arms[:first], paid[:first])
    end = first + second
    two = model.fit(2, contexts[first:end], arms[first:end], paid[first:end])
    both = model.merged(one, two, model.start(2))
    assert both.pulls.sum() == both.linear.weights.sum() == end
    assert both.curves.frozen[0] == (end >= ROWS)
    model.check_state(both, end)
    model.update(both, contexts[end:], arms[end:], paid[end:])
    assert both.bends[0]
    model.check_state(both, 1_200)


@aside
def test_a_change_that_one_of_two_has_noticed_is_noticed_by_both() -> None:
    contexts, rewards = linear(12, 2_000, arms=2)
    model = tsucb.AdaptiveCurves(3)
    arms = rng(13).integers(2, size=2_000)
    paid = rewards[np.arange(2_000), arms]
    paid[1_000:] -= 5.0
    base = model.fit(2, contexts[:500], arms[:500], paid[:500])
    one, two = copy.deepcopy(base), copy.deepcopy(base)
    model.update(one, contexts[500:1_500], arms[500:1_500], paid[500:1_500])
    model.update(two, contexts[500:700], arms[500:700], paid[500:700])
    assert model.changes(one)
    assert not model.changes(two)
    for both in (model.merged(one, two, base), model.merged(two, one, base)):
        model.check_state(both, 1_700)
        assert model.changes(both) == model.changes(one)
        # The 700 rewards before the change count no more than in the one that has noticed it.
        assert both.linear.weights.sum() < one.linear.weights.sum() + 20
        expected = model.belief(one, np.zeros(3), rng=rng()).mean
        assert model.belief(both, np.zeros(3), rng=rng()).mean == pytest.approx(expected, abs=0.5)


@aside
def test_a_saved_agent_goes_on_as_if_it_had_not_been_saved(tmp_path: Path) -> None:
    contexts, rewards = xor(14, 900)
    rewards[500:] = rewards[500:, ::-1]
    for steps in (60, 300, 700):  # before the curves, with them, and after the change
        agent = agent_for(rewards, tsucb.AdaptiveCurves(2))
        play(agent, contexts[:steps], rewards[:steps])
        agent.save(tmp_path / "agent")
        again = tsucb.Agent.load(tmp_path / "agent")
        assert again.model.changes(state_of(again)) == agent.model.changes(state_of(agent))
        rest = contexts[steps:], rewards[steps:]
        assert play(again, *rest) == play(agent, *rest)


@aside
def test_arms_may_come_and_go() -> None:
    contexts, rewards = xor(15, 900)
    for steps in (50, 300):
        agent = tsucb.Agent([0, 1, "third"], model=tsucb.AdaptiveCurves(2), seed=0)
        for x, row in zip(contexts[:steps], rewards[:steps], strict=True):
            decision = agent.choose(x)
            paid = 0.2 if decision.arm == "third" else float(row[decision.arm])
            agent.reward(decision.id, paid)
        agent.remove_arm("third")
        agent.add_arm("fourth")
        for x, row in zip(contexts[steps:], rewards[steps:], strict=True):
            decision = agent.choose(x)
            paid = -0.2 if decision.arm == "fourth" else float(row[decision.arm])
            agent.reward(decision.id, paid)
        state = state_of(agent)
        agent.model.check_state(state, 900)
        assert state.bends[0]
        assert state.pulls.size == 3


@aside
@pytest.mark.parametrize("steps", [50, 300])
def test_contexts_may_get_further_features(steps: int) -> None:
    contexts, rewards = xor(16, 900)
    narrow, wide = tsucb.AdaptiveCurves(2), tsucb.AdaptiveCurves(4)
    arms = rng(17).integers(2, size=900)
    paid = rewards[np.arange(900), arms]
    state = narrow.fit(2, contexts[:steps], arms[:steps], paid[:steps])
    wider = narrow.widen(state, 4, np.array([3, 1]))
    row = np.array([0.0, contexts[0, 1], 0.0, contexts[0, 0]])
    narrow.settle(state)  # as `widen` does
    expected = narrow.belief(state, contexts[0], rng=rng())
    assert wide.belief(wider, row, rng=rng()).mean == pytest.approx(expected.mean, abs=1e-6)
    rows = np.zeros((900, 4))
    rows[:, 3], rows[:, 1] = contexts.T
    rows[:, 0] = rng(18).standard_normal(900)
    wide.update(wider, rows[steps:], arms[steps:], paid[steps:])
    wide.check_state(wider, 900)
    assert wider.bends[0]


def test_numbers_of_curves_are_checked() -> None:
    assert tsucb.AdaptiveCurves(2) == tsucb.AdaptiveCurves(2, curves=64)
    assert repr(tsucb.AdaptiveCurves(2, curves=8)) == "AdaptiveCurves(features=2, curves=8)"
    with pytest.raises(ValueError, match="looks must be"):
        tsucb.AdaptiveCurves(2, looks=-0.1)
    for wrong in (-1, 2.5, 257):
        with pytest.raises(ValueError, match="curves must be"):
            tsucb.AdaptiveCurves(2, curves=wrong)
    assert tsucb.AdaptiveCurves(501).start(1).curves.phases.size == 0
    assert tsucb.AdaptiveCurves(3, curves=0).start(1).curves.phases.size == 0


def test_curves_take_no_memory_before_they_are_made():
    """Their sums and roots are most of an agent: 0.9 MB with 10 arms and 10 features."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("the memory in use is read from /proc")

    def used() -> float:
        return int(statm.read_text().split()[1]) * mmap.PAGESIZE / 1e6

    def taught(seed: int, rewards: int) -> tsucb.Agent:
        random = rng(seed)
        agent = tsucb.Agent([str(k) for k in range(10)], seed=seed)
        for _ in range(rewards):
            decision = agent.choose({f"x{j}": float(random.normal()) for j in range(10)})
            agent.reward(decision.id, float(random.normal()))
        return agent

    taught(0, ROWS + 10)  # compiles, and leaves memory that was in use before
    before, agents = used(), [taught(seed, 10) for seed in range(60)]
    agents += [tsucb.Agent.from_bytes(agent.to_bytes()) for agent in agents[:30]]
    assert used() - before < 0.3 * len(agents)
    # Arms and features that come before there are curves leave it so.
    for agent in agents:
        agent.add_arm("new")
        agent.choose({"new": 1.0})
    assert used() - before < 0.3 * len(agents)
