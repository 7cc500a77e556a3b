"""The agent inside other libraries, where they are installed."""

import numpy as np
import pytest

import tsucb


def test_river():
    pytest.importorskip("river", reason="river is not installed")
    from tsucb.adapters.river import RiverPolicy

    policy = RiverPolicy(lambda: tsucb.Agent(["a"], ["one", "mobile"], seed=0))
    rng, good = np.random.default_rng(0), []
    for _ in range(300):
        context = {"one": 1.0, "mobile": float(rng.random() < 0.5)}
        arm = policy.pull(["a", "b"], context)
        reward = float((arm == "b") == (context["mobile"] == 1.0))
        policy.update(arm, context, reward)
        good.append(reward)
    assert np.mean(good[-100:]) > 0.9
    assert policy.agent.open_decisions == 0
    assert policy.agent.arms_summary().pulls.sum() == 300
    policy.update("a", {"one": 1.0, "mobile": 0.0}, 1.0)  # chosen by someone else
    assert policy.agent.arms_summary().pulls.sum() == 301
    assert policy.clone().agent.arms == ("a",)  # a clone has learned nothing


def test_open_bandit_pipeline():
    pytest.importorskip("obp.policy", reason="Open Bandit Pipeline is not installed")
    from tsucb.adapters.obp import OBPPolicy

    policy = OBPPolicy(dim=2, n_actions=3, random_state=0)
    rng, good = np.random.default_rng(0), []
    for _ in range(300):
        context = np.array([[1.0, rng.normal()]])
        arm = int(policy.select_action(context)[0])
        reward = float(arm == (2 if context[0, 1] > 0 else 0))
        policy.update_params(action=arm, reward=reward, context=context)
        good.append(reward)
    assert np.mean(good[-100:]) > 0.8
    assert policy.n_trial == 300
    assert policy.agent.open_decisions == 0
    assert policy.policy_name == "TS-UCB(1)"
    policy.initialize()
    assert policy.agent.arms_summary().pulls.sum() == 0
    ranking = OBPPolicy(dim=2, n_actions=3, len_list=3, random_state=0)
    assert sorted(ranking.select_action(np.ones((1, 2)))) == [0, 1, 2]
