"""The value of other policies, recovered from a logged run."""

import math

import numpy as np
import pytest

import tsucb
from tsucb.logs.estimators import doubly_robust, inverse_propensity, target_probabilities


def logged_run(steps: int, seed: int):
    """An agent plays Thompson sampling on a contextual bandit and logs its propensities."""
    bandit = tsucb.ContextualLinearBandit(arms=4, features=3, noise=0.3, prior_variance=1.0)
    rng = np.random.default_rng(seed)
    world = bandit.begin(rng)
    model = bandit.model()
    # What the policies to be evaluated know: a little, learned before the log begins.
    state = model.start(bandit.arms)
    for t in range(60):
        context, _, _ = bandit.advance(world, t + 1, rng)
        model.update(state, context, t % bandit.arms, bandit.reward(world, t % bandit.arms))
    # An agent that thinks rewards noisier than they are explores for longer: a better log.
    cautious = tsucb.ContextualLinear(features=3, noise=3.0)
    agent = tsucb.Agent(
        range(bandit.arms), model=cautious, policy=tsucb.Thompson(), seed=seed, keep_beliefs=True
    )
    contexts, means, arm, reward, propensity = [], [], [], [], []
    for t in range(steps):
        context, truth, _ = bandit.advance(world, t + 1, rng)
        decision = agent.choose(context)
        contexts.append(context.copy())
        means.append(truth.copy())
        arm.append(decision.arm)
        propensity.append(decision.probability)
        reward.append(bandit.reward(world, arm[-1]))
        agent.reward(decision.id, reward[-1])
    return model, state, np.array(contexts), np.array(means), (arm, reward, propensity)


@pytest.fixture(scope="module")
def run():
    return logged_run(1000, seed=4)


@pytest.mark.parametrize(
    "policy", [tsucb.Greedy(), tsucb.TSUCB(1), tsucb.TSUCB(math.inf), tsucb.Thompson()], ids=str
)
def test_recovers_the_value_of_other_policies(run, policy) -> None:
    model, state, contexts, means, log = run
    target, predicted = target_probabilities(
        policy, model, state, contexts, np.random.default_rng(0)
    )
    truth = (target * means).sum(axis=1).mean()
    plain = inverse_propensity(*log, target)
    robust = doubly_robust(*log, target, predicted)
    # 95 % intervals, but the four policies are alike and the estimates of one log go together:
    # another seed would fail about one time in ten.
    assert plain.low < truth < plain.high
    assert robust.low < truth < robust.high
    assert robust.error < plain.error
    assert 1 <= robust.effective_size <= len(contexts)


def test_the_logging_policy_itself(run) -> None:
    """With the policy's own probabilities all weights are one: the plain mean of the log."""
    *_, (arm, reward, propensity) = run
    target = np.zeros((len(arm), 4))
    target[np.arange(len(arm)), arm] = propensity
    estimate = inverse_propensity(arm, reward, propensity, target)
    assert estimate.value == pytest.approx(np.mean(reward))
    assert estimate.effective_size == pytest.approx(len(arm))


def test_by_hand() -> None:
    target, predicted = [[1.0, 0.0], [0.5, 0.5]], [[2.0, 9.0], [1.0, 3.0]]
    estimate = doubly_robust([0, 1], [3.0, 1.0], [0.5, 0.25], target, predicted)
    # 2 + 1/0.5 · (3 − 2) = 4 and (1 + 3)/2 + 0.5/0.25 · (1 − 3) = −2
    assert estimate.value == pytest.approx(1.0)
    assert estimate.error == pytest.approx(3.0)
    assert estimate.effective_size == pytest.approx(2.0)


def test_refuses() -> None:
    good = ([0, 1], [1.0, 1.0], [0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
    for wrong, words in [
        ((*good[:2], [0.0, 0.5], good[3]), "propensity must be above 0"),
        ((good[0], [1.0], *good[2:]), "vectors of one length"),
        ((*good[:3], [[1.0, 0.0]]), "one row for each of 2 events"),
        (([0, 2], *good[1:]), "arm must lie between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            inverse_propensity(*wrong)
