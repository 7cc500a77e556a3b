"""A floor under exploration: its choices, its probabilities, and agents that have one."""

import math

import numpy as np
import pytest

import tsucb
from tsucb.policies.exploring import PlainExploring
from tsucb.policies.names import named_policy
from tsucb.policies.policy import Choice


def kind(value):
    return type(value).__name__


BELIEF = tsucb.GaussianBelief([0.1, 0.2, 0.3], [1.0, 0.5, 0.1])


class First:
    """A policy in plain Python that plays the first arm."""

    name = "first"

    def choose(self, belief, rng):
        return 0


@pytest.mark.parametrize("inner", [tsucb.Thompson(), tsucb.TSUCB(1), tsucb.Greedy()], ids=str)
def test_probabilities_are_the_frequencies_of_choices(inner):
    policy = tsucb.Exploring(inner, 0.3)
    assert policy.is_exact(BELIEF)
    stream, n = np.random.default_rng(1), 20_000
    choices = [policy.choose(BELIEF, stream) for _ in range(n)]
    expected = policy.probabilities(BELIEF)
    assert expected == pytest.approx(0.7 * inner.probabilities(BELIEF) + 0.1)
    found = np.bincount([c.arm for c in choices], minlength=3) / n
    # Nine frequencies within 4.5 standard errors: false alarm 6e-5.
    assert (abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n)).all()
    # Given the favourite: 1 − ε + ε/K for it, ε/K for each other.
    own = np.mean([c.arm == c.favourite for c in choices])
    assert abs(own - 0.8) < 4.5 * math.sqrt(0.8 * 0.2 / n)


def test_without_chance_it_is_the_policy_itself_and_with_all_of_it_random():
    stream = np.random.default_rng(0)
    always = tsucb.Exploring(tsucb.Greedy(), 1.0)
    assert {always.choose(BELIEF, stream).arm for _ in range(100)} == {0, 1, 2}
    assert always.probabilities(BELIEF) == pytest.approx([1 / 3] * 3)
    hardly = tsucb.Exploring(tsucb.Greedy(), 1e-9)
    assert {hardly.choose(BELIEF, stream).arm for _ in range(100)} == {2}


def test_a_policy_in_plain_python_gets_a_floor_too():
    policy = tsucb.Exploring(First(), 0.5)
    assert type(policy) is PlainExploring
    assert policy.name == "first+50%"
    stream = np.random.default_rng(0)
    choices = [policy.choose(BELIEF, stream) for _ in range(3_000)]
    assert all(isinstance(c, Choice) and c.favourite == 0 for c in choices)
    share = np.mean([c.arm == 0 for c in choices])
    assert abs(share - 2 / 3) < 4 * math.sqrt(2 / 9 / 3_000)  # false alarm 6e-5
    found = tsucb.simulate(
        tsucb.KArmedBandit(3), tsucb.BernoulliArms(), [policy], horizon=30, runs=1
    )
    assert found.policies == ("first+50%",)


def test_first_pulls_are_explored_too():
    bandit = tsucb.KArmedBandit(50)
    policy = tsucb.Exploring(tsucb.Greedy(), 1.0)
    found = tsucb.simulate(
        bandit, tsucb.BernoulliArms(), [policy, tsucb.Greedy()], horizon=50, runs=1, keep_arms=True
    )
    random, plain = found.arms[:, 0]
    assert plain.tolist() == list(range(50))
    assert random.tolist() != list(range(50))
    agent = tsucb.Agent(range(50), model=tsucb.BernoulliArms(), exploration=0.5, seed=0)
    for _ in range(5):
        waiting = agent.arms_summary().open.tolist()
        decision = agent.choose()
        assert decision.favourite == waiting.index(0)  # the first of the least chosen
        assert sum(decision.probabilities.values()) == pytest.approx(1)
        assert min(decision.probabilities.values()) == pytest.approx(0.01)


def test_it_is_compiled():
    from tsucb.step import runs_compiled

    assert runs_compiled(tsucb.NIGLinear(2), tsucb.Exploring(tsucb.TSUCB(1), 0.1))
    assert not runs_compiled(tsucb.NIGLinear(2), tsucb.Exploring(First(), 0.1))


@pytest.mark.parametrize(
    ("policy", "epsilon", "message"),
    [
        (tsucb.Exploring(tsucb.TSUCB(1), 0.1), 0.1, "has a floor already"),
        (tsucb.TSUCB(1), 0.0, "epsilon must be above 0"),
        (tsucb.TSUCB(1), 1.5, "at most 1"),
        (tsucb.TSUCB(1), math.nan, "epsilon must be"),
    ],
)
def test_bad_floors_are_refused(policy, epsilon, message):
    with pytest.raises(ValueError, match=message):
        tsucb.Exploring(policy, epsilon)
    with pytest.raises(TypeError, match="must be an instance"):
        tsucb.Exploring(tsucb.TSUCB, 0.1)


def test_names():
    assert named_policy("TS-UCB(100)+2.5%") == tsucb.Exploring(tsucb.TSUCB(100), 0.025)
    assert named_policy("TS+5%").name == "TS+5%"
    with pytest.raises(ValueError, match="no percentage"):
        named_policy("TS+1.2.3%")
    with pytest.raises(ValueError, match="at most 1"):
        named_policy("TS+500%")


@pytest.mark.parametrize(
    "model", [tsucb.NIGLinear(2), tsucb.AdaptiveLinear(2), tsucb.BernoulliArms()], ids=kind
)
@pytest.mark.parametrize("policy", [tsucb.TSUCB(100), tsucb.Thompson()], ids=str)
def test_decisions_know_the_probabilities_of_all_arms(model, policy):
    agent = tsucb.Agent(list("abcd"), model=model, policy=policy, exploration=0.2, seed=1)
    assert agent.exploration == 0.2
    context = None if model.context_shape(1) == () else [1.0, 0.5]
    others = 0
    for step in range(400):
        decision = agent.choose(context)
        chances = decision.probabilities
        assert list(chances) == list("abcd")
        expected = {a: 0.05 + 0.8 * (a == decision.favourite) for a in "abcd"}
        assert chances == pytest.approx(expected)
        assert decision.probability == chances[decision.arm]
        others += decision.arm != decision.favourite
        agent.reward(decision.id, float(step % 3 == 0))
    # ε (K − 1) / K = 0.15 of 400: 60 with standard deviation 7.1; 4.5 of them.
    assert abs(others - 60) < 32
    some = agent.choose(context, arms=["b", "d"])
    assert sorted(some.probabilities.values()) == pytest.approx([0.1, 0.9])


def test_an_agent_with_a_floor_plays_as_in_a_simulation():
    bandit = tsucb.ContextualLinearBandit(arms=4, features=3)
    policy = tsucb.Exploring(tsucb.TSUCB(1), 0.1)
    played = tsucb.simulate(
        bandit, bandit.model(), [policy], horizon=200, runs=1, seed=5, keep_arms=True
    ).arms[0, 0]
    from tsucb.numeric.streams import WORLD, stream

    rng = stream(5, 0, WORLD)
    world = bandit.begin(rng)
    agent = tsucb.Agent(
        range(4), model=bandit.model(), policy=tsucb.TSUCB(1), exploration=0.1, seed=5
    )
    for t in range(200):
        context, _, _ = bandit.advance(world, t + 1, rng)
        decision = agent.choose(context)
        assert decision.arm == played[t]
        agent.reward(decision.id, bandit.reward(world, decision.arm))


@pytest.mark.parametrize("policy", [tsucb.Thompson(), tsucb.TSUCB(100)], ids=str)
def test_a_floor_is_saved(tmp_path, policy):
    agent = tsucb.Agent(["a", "b"], policy=policy, exploration=0.25, seed=0)
    for _ in range(20):
        agent.reward(agent.choose({"x": 1.0}).id, 1.0)
    agent.save(tmp_path / "a.tsucb")
    again = tsucb.Agent.load(tmp_path / "a.tsucb")
    assert again.policy == tsucb.Exploring(policy, 0.25)
    for _ in range(50):
        assert again.choose({"x": 1.0}).arm == agent.choose({"x": 1.0}).arm


def test_explanations_tell_chance_from_choice():
    agent = tsucb.Agent(["a", "b", "c"], features=1, exploration=0.9, seed=0)
    for _ in range(50):
        decision = agent.choose([1.0])
        text = str(decision.explain())
        assert ("at random, instead of" in text) == (decision.arm != decision.favourite)
        explained = decision.explain()
        own = explained.arms.index(decision.favourite)
        assert explained.alpha == explained.ratio[own]
        agent.reward(decision.id, 1.0 if decision.arm == "b" else 0.0)
    assert agent.policy.name.endswith("+90%")
    assert repr(agent) == "<Agent: 3 arms, AdaptiveCurves, TS-UCB(1)+90%>"


def test_what_is_not_known_is_said():
    agent = tsucb.Agent(["a", "b"], features=1, seed=0)
    with pytest.raises(ValueError, match=r"exploration=0\.05, or with keep_beliefs"):
        _ = agent.choose([1.0]).probabilities
    for wrong in (-0.1, 1.1, "much"):
        with pytest.raises(ValueError, match="exploration must be from 0 to 1"):
            tsucb.Agent(["a"], exploration=wrong)
    with pytest.raises(ValueError, match="floor already"):
        tsucb.Agent(["a"], policy=tsucb.Exploring(tsucb.TSUCB(1), 0.1), exploration=0.1)
    kept = tsucb.Agent(["a", "b"], features=1, seed=0, keep_beliefs=True).choose([1.0])
    assert sum(kept.probabilities.values()) == pytest.approx(1)
