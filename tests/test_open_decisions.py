"""Open decisions by themselves: order, limit, and calls that were cut short."""

import signal

import numpy as np
import pytest

import tsucb
from tsucb.agent.guard import at_once
from tsucb.agent.machine import CLOSED, DECISIONS


def make(**settings):
    agent = tsucb.Agent(["a", "b"], model=tsucb.NIGLinear(1), seed=0, **settings)
    return agent, agent._open, agent._learner


def test_the_oldest_are_dropped_whole_lists_at_a_time():
    agent, open, _ = make(max_open=3)
    ids = [agent.choose([1.0]).id, agent.rank([1.0], 2).id]
    ids += agent.choose_many([[1.0], [2.0]]).ids
    assert list(open.all()) == ids[1:]
    assert (open.places(), agent.dropped) == (4, 1)
    agent.record("own", [1.0], "a")
    assert list(open) == [*ids[2:], "own"]
    assert agent.dropped == 3
    assert len(agent.choose_many([[1.0]] * 5)) == 5
    assert (len(open), agent.dropped) == (3, 8)


def test_a_batch_that_is_kept_whole_is_as_its_decisions_one_by_one():
    """Every call after two batches, with the batches whole and with an entry for each decision."""
    calls = [
        lambda agent, one, two: agent.reward_many(two, [1.0, 2.0]),
        lambda agent, one, two: agent.reward_many(one.ids[:1] + two.ids[1:], [1.0, 2.0]),
        lambda agent, one, two: agent.reward(one.ids[1], 1.0),
        lambda agent, one, two: agent.close(one.ids[1]),
        lambda agent, one, two: agent.choose([3.0]).id,
        lambda agent, one, two: agent.rank([3.0], 2).id,
        lambda agent, one, two: agent.record("own", [1.0], "a"),
        lambda agent, one, two: agent.expire(-1.0, 0.5),
        lambda agent, one, two: agent.arms_summary()["open"].to_dict(),
        lambda agent, one, two: agent.choose_many([[4.0], [5.0], [6.0]]).ids,
        lambda agent, one, two: (agent.open_decisions, agent.dropped),
        lambda agent, one, two: tsucb.merge(agent, agent, agent).open_decisions,
    ]
    for call in calls:
        found = []
        for whole in (True, False):
            agent, open, _ = make(max_open=6, clock=lambda: 0.0)
            agent.choose([7.0])
            one, two = agent.choose_many([[1.0], [2.0]]), agent.choose_many([[3.0], [4.0]])
            assert len(open.batches) == 2
            if not whole:
                open.unfold()
            answer = call(agent, one, two)
            found.append((answer, agent.digest(), list(open.all()), agent.dropped))
        assert found[0] == found[1]


def test_the_whole_batch_of_an_arm_that_left_is_closed_and_not_learned():
    agent, open, _ = make()
    decisions = agent.choose_many(np.ones((40, 1)))
    stayed = decisions.arms.tolist().count("b")
    assert 0 < stayed < 40
    agent.remove_arm("a")
    agent.add_arm("a")
    assert open.batches
    assert agent.reward_many(decisions, np.ones(40)) == stayed
    assert agent.arms_summary()["pulls"].to_dict() == {"a": 0, "b": stayed}
    assert agent.open_decisions == agent.dropped == 0
    with pytest.raises(tsucb.UnknownDecision):
        agent.reward_many(decisions, np.ones(40))


def test_many_small_batches_are_given_entries():
    agent, open, _ = make()
    ids = [id for n in range(40) for id in agent.choose_many([[float(n)], [1.0]]).ids]
    assert len(open.batches) <= 16
    assert list(open.all()) == ids
    assert agent.open_decisions == 80


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("learning", [True, False])
def test_rewards_that_were_cut_short_are_all_learned_or_none(learning, whole, monkeypatch):
    """Raise before or after the one call of C that learns and closes, as a signal handler would."""
    agent, _, learner = make()
    decisions = agent.choose_many([[1.0], [2.0], [3.0]])
    before = agent.digest()

    def interrupted(*changes):
        if learning:
            at_once(*changes)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tsucb.agent.learner.at_once", interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.reward_many(decisions if whole else decisions.ids, [1.0, 2.0, 3.0])
    assert learner.known.books.counts[CLOSED] == agent.arms_summary()["pulls"].sum()
    assert agent.open_decisions == (0 if learning else 3)
    assert learning or agent.digest() == before
    if learning:
        with pytest.raises(tsucb.UnknownDecision):
            agent.reward(decisions.ids[0], 1.0)
    else:
        assert agent.reward_many(decisions, [1.0, 2.0, 3.0]) == 3


def test_a_single_reward_whose_learning_fails_stays_open():
    agent, _, learner = make()
    decision = agent.choose([1.0])
    machine = learner.known.machine

    class Interrupted:
        learns_at_once, long = True, False

        def learn(self, *given):
            raise KeyboardInterrupt

    learner.known.machine = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        agent.reward(decision.id, 1.0)
    learner.known.machine = machine
    assert agent.open_decisions == 1
    assert agent.reward(decision.id, 1.0)
    assert learner.known.books.counts[[DECISIONS, CLOSED]].tolist() == [1, 1]


def test_signal_handlers_do_not_run_between_changes_made_at_once():
    """Of many pairs of changes, with a signal every 50 µs, none is ever seen half done."""
    one, two, seen = [], [], []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(len(one) - len(two)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
        while len(seen) < 300:
            at_once((one.append, 1), (sum, range(300)), (two.append, 1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(seen) == {0}
