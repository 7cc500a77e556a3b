"""Agents whose decisions are kept elsewhere: proposed, written down, and recorded again."""

import pytest

import tsucb
from tsucb.agent.decision import Explanation


def visitor(n: int) -> dict[str, object]:
    return {"n": n % 5, "city": "Rome" if n % 3 else "Oslo"}


def test_a_proposal_leaves_no_trace():
    agent = tsucb.Agent(["tea", "milk"], seed=0)
    for n in range(30):
        agent.record(str(n), visitor(n), "tea" if n % 2 else "milk")
        agent.reward(str(n), n % 4)
    before = agent.digest()
    arms = {agent.propose({**visitor(n), "new": n}, ["milk", "tea"]).arm for n in range(20)}
    assert arms <= {"tea", "milk"}
    assert agent.digest() == before
    assert agent.open_decisions == 0


def test_proposals_of_strangers_leave_no_trace():
    """Also if room has to be made for them, and arms would have to be forgotten."""
    agent = tsucb.Agent(seed=0, most_arms=20, exploration=0.05)
    for n in range(60):
        agent.record(str(n), visitor(n), f"arm {n % 40}", {"size": n % 7})
        agent.reward(str(n), n % 4)
    before = agent.digest()
    for n in range(5):
        agent.propose(visitor(n), {f"stranger {n} {i}": {"size": i} for i in range(50)})
    assert agent.digest() == before


def test_recorded_decisions_teach_what_chosen_ones_do():
    chosen, recorded = tsucb.Agent(["tea", "milk"], seed=0), tsucb.Agent(["tea", "milk"], seed=1)
    for n in range(40):
        decision = chosen.choose(visitor(n))
        recorded.propose(visitor(n))
        recorded.record(f"visit {n}", visitor(n), decision.arm, time=decision.time)
        if n % 3:
            chosen.reward(decision.id, n % 4)
            recorded.reward(f"visit {n}", n % 4)
    assert chosen.coefficients().equals(recorded.coefficients())
    assert chosen.arms_summary().equals(recorded.arms_summary())


def test_bytes_hold_an_agent():
    agent = tsucb.Agent(["tea", "milk"], seed=0)
    for n in range(20):
        agent.record(str(n), visitor(n), "tea")
        if n % 2:
            agent.reward(str(n), 1.0)
    again = tsucb.Agent.from_bytes(agent.to_bytes())
    assert again.digest() == agent.digest()
    for each in (agent, again):
        each.reward("2", 0.0)
    assert again.digest() == agent.digest()
    again.reseed(7, ids=False)
    assert again.digest() == agent.digest()  # the digest is of knowledge, not of random numbers
    for damaged in (b"", b"tsucb 8\n", agent.to_bytes()[:-1], b"x" + agent.to_bytes()[1:]):
        with pytest.raises(ValueError, match="it is"):
            tsucb.Agent.from_bytes(damaged)


def test_closing_teaches_nothing():
    agent = tsucb.Agent(["tea", "milk"], seed=0)
    agent.record("a", visitor(1), "tea")
    agent.close("a")
    assert (agent.open_decisions, int(agent.arms_summary()["pulls"].sum())) == (0, 0)
    for late in (agent.close, lambda id: agent.reward(id, 1.0)):
        with pytest.raises(tsucb.UnknownDecision):
            late("a")


def test_another_policy_is_followed():
    agent = tsucb.Agent(["tea", "milk"], seed=0)
    agent.follow(tsucb.TSUCB(3))
    assert agent.propose(visitor(1)).explain().policy == "TS-UCB(3)"
    with pytest.raises(TypeError, match="policy must be an instance"):
        agent.follow(tsucb.Greedy)


def test_what_cannot_be_recorded():
    agent = tsucb.Agent(["tea", "milk"], seed=0)
    agent.record("a", visitor(1), "tea")
    with pytest.raises(ValueError, match="is open already"):
        agent.record("a", visitor(1), "tea")
    with pytest.raises(ValueError, match="there is no arm 'juice'"):
        agent.record("b", visitor(1), "juice")
    with pytest.raises(TypeError, match="an id is a string"):
        agent.record(7, visitor(1), "tea")  # type: ignore[arg-type]


def test_what_a_decision_saw_can_be_kept():
    decision = tsucb.Agent(["tea", "milk"], seed=0).propose(visitor(1))
    told = decision.explain()
    again = Explanation.of(
        decision.arms, decision.arm, told.policy, told.target_name, decision.seen
    )
    assert str(again) == str(told)
