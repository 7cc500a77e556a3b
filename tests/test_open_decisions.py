"""Open decisions by themselves: order, limit, and settlements that were cut short."""

import numpy as np
import pytest

import tsucb
from tsucb.agent.machine import CLOSED, DECISIONS


def make(**settings):
    agent = tsucb.Agent(["a", "b"], model=tsucb.NIGLinear(1), seed=0, **settings)
    return agent, agent._open, agent._learner


def test_the_oldest_are_dropped_whole_lists_at_a_time():
    agent, open, _ = make(max_open=3)
    ids = [agent.choose([1.0]).id, agent.rank([1.0], 2).id]
    ids += agent.choose_many([[1.0], [2.0]]).ids
    assert list(open) == ids[1:]
    assert (open.places(), agent.dropped) == (4, 1)
    agent.record("own", [1.0], "a")
    assert list(open) == [*ids[2:], "own"]
    assert agent.dropped == 3
    assert len(agent.choose_many([[1.0]] * 5)) == 5
    assert (len(open), agent.dropped) == (3, 8)


@pytest.mark.parametrize("learned", [0, 1, 2, 3])
def test_a_settlement_that_was_cut_short_is_finished_by_the_next_call(learned, monkeypatch):
    """Stop `reward_many` after some of its rewards, as an interrupt would."""
    (agent, open, learner), (twin, _, _) = make(), make()
    for each in (agent, twin):
        ids = each.choose_many([[1.0], [2.0], [3.0]]).ids
    twin.reward_many(ids, [1.0, 2.0, 3.0])

    taught = type(learner).taught

    def interrupted(self, known, lesson, first):
        some = [np.ascontiguousarray(part[:learned]) for part in lesson[1:]]
        if learned:
            taught(self, known, type(lesson)(lesson.values, *some), first)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(learner), "taught", interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.reward_many(ids, [1.0, 2.0, 3.0])
    assert learner.known.books.counts[CLOSED] == learned
    # A signal handler that saves in the middle has each of them learned or open.
    assert list(open.unsettled()) == ids[learned:]
    assert agent.open_decisions == 0
    assert agent.digest() == twin.digest()
    with pytest.raises(tsucb.UnknownDecision):
        agent.reward(ids[0], 1.0)


def test_a_single_reward_that_was_cut_short_is_done_or_not():
    agent, _, learner = make()
    for learning in (True, False):
        decision = agent.choose([1.0])
        machine = learner.known.machine

        class Interrupted:
            learns_at_once = True

            def learn(self, *given, machine=machine, learning=learning):
                if learning:
                    machine.learn(*given)
                raise KeyboardInterrupt

        learner.known.machine = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            agent.reward(decision.id, 1.0)
        assert agent.open_decisions == (0 if learning else 1)
    assert agent.reward(decision.id, 1.0)
    assert learner.known.books.counts[[DECISIONS, CLOSED]].tolist() == [2, 2]
