"""The learner by itself: the same events in the same order give the same state, bit by bit."""

import numpy as np
import pytest

import tsucb
from tsucb.agent import Learner

ARTICLES = {"n1": {"topic": "sport"}, "n2": {"topic": "music"}, "n3": {"topic": "art"}}
KINDS = {
    "dictionaries": ({"arms": ["a", "b"]}, lambda n: {"n": n % 5, "city": f"c{n % 7}"}, None),
    "hashed": (
        {"arms": ["a", "b"], "model": tsucb.HashedLinear(bits=6)},
        lambda n: {"n": n % 5, "city": f"c{n % 7}"}, None,
    ),
    "vectors": ({"arms": ["a", "b"], "features": 2}, lambda n: [n % 5, 1.0], None),
    "none": ({"arms": ["a", "b"], "model": tsucb.BernoulliArms()}, lambda n: None, None),
    "arms": ({"most_arms": 2}, lambda n: {"user": f"u{n % 3}"}, ARTICLES),
}  # fmt: skip


def replay_decision(learner, n, context, offered, rows):
    """Read, count and later learn a decision, as a replayed log does."""
    arms = list(offered) if offered else list(learner.arms)
    arm = arms[n % len(arms)]
    rows.append((arm, learner.read(context, arm, offered[arm] if offered else None)))
    learner.count(arm)
    if n % 3:
        learner.learn(*rows.pop(0), float(n % 2))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_calls_give_the_same_digest_whatever_was_decided(kind):
    settings, context, offered = KINDS[kind]
    one, two = Learner(seed=0, **settings), Learner(seed=1, **settings)
    rows, others = [], []
    for n in range(40):
        before = one.digest()
        decision = one.decide(context(n), offered)
        assert decision.id == ""
        assert one.rank(context(n), 2, offered).arms
        assert one.digest() == before
        for learner, own in ((one, rows), (two, others)):
            replay_decision(learner, n, context(n), offered, own)
        if n == 20:
            two = Learner.from_bytes(two.to_bytes())
            one.compact()
    assert [row for _, row in rows] == [row for _, row in others]
    assert one.digest() == two.digest()
    assert one.arms_summary().equals(two.arms_summary())


def test_rows_stay_as_narrow_as_they_were_read():
    learner = Learner(["a", "b"], seed=0)
    row = learner.read({"x": 1.0}, "a")
    learner.count("a")
    assert np.frombuffer(row).tolist() == [1.0]
    for n in range(30):
        learner.read({"x": 1.0, "city": f"c{n}"}, "a")
    assert learner.learn("a", row, 2.0)
    assert learner.coefficients().loc[("a", "x")].notna().all()


def test_agents_and_learners_read_each_others_bytes():
    agent = tsucb.Agent(["a", "b"], seed=0)
    agent.choose({"x": 1.0})
    agent.update({"x": 1.0}, "a", 1.0)
    learner = Learner.from_bytes(agent.to_bytes())
    assert learner.arms == ("a", "b")
    assert learner.coefficients().equals(agent.coefficients())
    again = tsucb.Agent.from_bytes(learner.to_bytes())
    assert (again.open_decisions, again.arms) == (0, ("a", "b"))
    assert again.coefficients().equals(agent.coefficients())


def test_what_cannot_be_learned():
    learner = Learner(["a", "b"], seed=0)
    row = learner.read({"x": 1.0}, "a")
    with pytest.raises(ValueError, match="there is no arm 'c'"):
        learner.count("c")
    learner.count("a")
    for wrong in (row[:-1], row * 99, np.array([np.nan]).tobytes()):
        with pytest.raises(ValueError, match="no row that was read"):
            learner.learn("a", wrong, 1.0)
    learner.remove_arm("a")
    assert learner.learn("a", row, 1.0) is False
