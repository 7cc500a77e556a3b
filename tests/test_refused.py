"""Refused calls change nothing: the agent's digest stays the same."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tsucb
from tsucb.checks import finite, not_negative, positive, share, truth, whole_number

NEW = {"age": 30.0, "new": "value", "city": "Lima"}
BAD = {"age": math.inf, "other": "value"}
HUGE = "x" * 2**20


class Angry:
    """A policy that refuses to choose."""

    def choose(self, belief, rng):
        raise ValueError("no")


def listed(**options):
    agent = tsucb.Agent(["a", "b", "c"], seed=0, **options)
    for n in range(6):
        agent.update({"age": float(n), "city": "Rome"}, "abc"[n % 3], 1.0)
    return agent


def coming():
    agent = tsucb.Agent(seed=0, most_arms=3)
    for n in range(6):
        agent.update({"user": f"u{n % 2}"}, f"n{n % 3}", 1.0, {"topic": f"t{n % 2}"})
    return agent


def refuse(agent, *calls):
    ranking = agent.rank({"age": 1.0}, 2) if agent.arms[0] == "a" else None
    before = agent.digest()
    for call in calls:
        with pytest.raises((ValueError, TypeError, LookupError)) as caught:
            call(agent, ranking)
        assert len(str(caught.value)) < 600
        assert agent.digest() == before, caught.value
    agent.choose({"age": 1.0}, None if ranking else {"n1": {"topic": "t1"}})


def test_what_decides():
    refuse(
        listed(),
        lambda a, r: a.choose(NEW, ["a", "z"]),
        lambda a, r: a.choose(NEW, []),
        lambda a, r: a.choose(NEW, ["a", "a"]),
        lambda a, r: a.choose(NEW, {"a": {"x": 1.0}}),
        lambda a, r: a.choose(NEW, [HUGE]),
        lambda a, r: a.choose(NEW, 10**400),
        lambda a, r: a.choose(BAD),
        lambda a, r: a.choose({"age": 10**400, "new": "x"}),
        lambda a, r: a.choose({HUGE: [1]}),
        lambda a, r: a.choose({f"f{i}": 1.0 for i in range(20_000)}),
        lambda a, r: a.choose([1.0, 2.0]),
        lambda a, r: a.rank(NEW, 4),
        lambda a, r: a.rank(NEW, 0),
        lambda a, r: a.rank(NEW, 2, ["a", "z"]),
        lambda a, r: a.rank(BAD, 2),
        lambda a, r: a.choose_many([NEW, BAD]),
        lambda a, r: a.choose_many([NEW], ["z"]),
        lambda a, r: a.choose_many(7),
        lambda a, r: a.estimate(BAD),
        lambda a, r: a.estimate(NEW, ["z"]),
        lambda a, r: a.propose(NEW, ["z"]),
        lambda a, r: a.record("x", NEW, "z"),
        lambda a, r: a.record("x", BAD, "a"),
        lambda a, r: a.record("x", NEW, "a", {"f": 1.0}),
        lambda a, r: a.record("x", NEW, "a", time=math.nan),
        lambda a, r: a.record("x", NEW, "a", time=10**400),
        lambda a, r: a.record(r.id, NEW, "a"),
        lambda a, r: a.record(7, NEW, "a"),
    )


def test_what_learns():
    refuse(
        listed(),
        lambda a, r: a.reward(r.id, 1.0),
        lambda a, r: a.reward(r.id, [1.0, 2.0, 3.0]),
        lambda a, r: a.reward(r.id, [1.0, math.inf]),
        lambda a, r: a.reward(r.id, {"z": 1.0}),
        lambda a, r: a.reward("1-0", 1.0),
        lambda a, r: a.reward(HUGE, 1.0),
        lambda a, r: a.reward(r.id, 10**400),
        lambda a, r: a.reward_many([r.id], [1.0]),
        lambda a, r: a.reward_many(["1-0"], [1.0]),
        lambda a, r: a.reward_many([r.id], np.array([np.inf], np.float16)),
        lambda a, r: a.reward_many([r.id], [1.0, 2.0]),
        lambda a, r: a.reward_many([], [10**400]),
        lambda a, r: a.update(NEW, "z", 1.0),
        lambda a, r: a.update(NEW, "a", math.nan),
        lambda a, r: a.update(NEW, "a", "1"),
        lambda a, r: a.update(BAD, "a", 1.0),
        lambda a, r: a.update(NEW, "a", 1.0, {"f": 1.0}),
        lambda a, r: a.fit(([NEW, NEW], ["a", "z"], [1.0, 1.0])),
        lambda a, r: a.fit(([NEW, BAD], ["a", "b"], [1.0, 1.0])),
        lambda a, r: a.fit(([NEW, NEW], ["a", "b"], [1.0, math.inf])),
        lambda a, r: a.fit(([NEW], ["a", "b"], [1.0, 1.0])),
        lambda a, r: a.fit({"new": [1.0], "arm": ["z"], "reward": [1.0]}),
        lambda a, r: a.expire("soon"),
        lambda a, r: a.expire(math.nan),
        lambda a, r: a.expire(0, reward=math.inf),
        lambda a, r: a.close("1-0"),
        lambda a, r: a.add_arm("a"),
        lambda a, r: a.add_arm(1.5),
        lambda a, r: a.add_arm(10**5000),
        lambda a, r: a.remove_arm("z"),
        lambda a, r: a.follow(tsucb.TSUCB),
        lambda a, r: a.reseed(-1),
    )


def test_arms_that_come():
    refuse(
        coming(),
        lambda a, r: a.choose({"user": "new"}, {"n1": {"words": math.inf}}),
        lambda a, r: a.choose({"user": "new"}, {"n9": {"topic": "new"}, 1.5: {}}),
        lambda a, r: a.choose({"user": "new"}, None),
        lambda a, r: a.choose({"user": "new"}, []),
        lambda a, r: a.rank({"user": "new"}, 3, {"n8": {"topic": "new"}, "n9": {}}),
        lambda a, r: a.update({"user": "new"}, "n9", math.nan, {"topic": "new"}),
        lambda a, r: a.update({"user": "new"}, 1.5, 1.0, {"topic": "new"}),
        lambda a, r: a.record("x", {"user": "new"}, "n9", {"topic": [1]}),
        lambda a, r: a.fit(([{"user": "new"}] * 2, ["n8", 1.5], [None] * 2, [1.0, 1.0])),
        lambda a, r: a.reward("1-0", 1.0),
    )
    agent = coming()
    before = agent.digest()
    agent.estimate({"user": "u1"}, {f"stranger {i}": {"topic": "t0"} for i in range(50)})
    agent.propose({"user": "u9"}, {f"stranger {i}": {"topic": "t9"} for i in range(50)})
    assert agent.digest() == before


def test_a_policy_that_raises_teaches_no_columns():
    agent = listed()
    agent.follow(Angry())
    before = agent.digest()
    for call in (
        lambda: agent.choose(NEW), lambda: agent.rank(NEW, 2), lambda: agent.choose_many([NEW]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="no"):
            call()
        assert agent.digest() == before


def test_a_streaming_transformer_learns_nothing_from_a_refused_call():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    scaler = preprocessing.StandardScaler()
    agent = tsucb.Agent(["a", "b"], 2, transformer=scaler, streaming=True, seed=0)
    agent.choose([1.0, 2.0])
    for call in (
        lambda: agent.choose([9.0, 9.0], ["z"]),
        lambda: agent.rank([9.0, 9.0], 7),
        lambda: agent.update([9.0, 9.0], "z", 1.0),
        lambda: agent.update([9.0, 9.0], "a", math.nan),
    ):
        with pytest.raises(ValueError, match=r"arm|reward|list"):
            call()
    assert scaler.n_samples_seen_ == 1


@pytest.mark.parametrize(
    "wrong", [{"x": math.inf}, {"reward": math.inf}, {"arm": "z"}, {"x": "text"}, None]
)
def test_no_file_teaches_anything_if_a_later_one_is_refused(tmp_path, wrong):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": [1.0, 2.0], "arm": ["a", "b"], "reward": [1.0, 0.0]})
    table.to_parquet(tmp_path / "1.parquet")
    if wrong is None:
        (tmp_path / "2.parquet").write_bytes((tmp_path / "1.parquet").read_bytes()[:-60])
    else:
        table.assign(**wrong).to_parquet(tmp_path / "2.parquet")
    agent = tsucb.Agent(["a", "b"], features=["x"], seed=0)
    before = agent.digest()
    with pytest.raises((ValueError, TypeError), match=r"2\.parquet"):
        agent.fit(tmp_path)
    assert agent.digest() == before


def test_contexts_cannot_make_an_agent_too_large():
    agent = tsucb.Agent(["a", "b"], seed=0)
    with pytest.raises(ValueError, match="20,000 features, but at most 1,000"):
        agent.choose({f"f{i}": 1.0 for i in range(20_000)})
    with pytest.raises(ValueError, match="5,000 features, but at most 1,000"):
        agent.choose(np.ones(5_000))
    assert agent.choose({"x": 1.0}).arm in ("a", "b")
    assert agent.model.features < 20


@pytest.mark.parametrize("value", [10**400, -(10**400), "x" * 10**6], ids=["+", "-", "text"])
@pytest.mark.parametrize("check", [whole_number, positive, finite, not_negative, share, truth])
def test_a_refusal_of_a_huge_value_is_short(check: Any, value: Any) -> None:
    """Neither an OverflowError nor a message that repeats a megabyte."""
    with pytest.raises((ValueError, TypeError)) as caught:
        check("setting", value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [10**400, 1j, "x"], ids=["huge", "complex", "text"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: tsucb.ContextualLinear(2, prior_mean=[1, x]),
        lambda x: tsucb.GaussianBelief([1, x], [1, 1]),
        lambda x: tsucb.SampleBelief([[1, x]]),
        lambda x: tsucb.JointGaussianBelief([0, 0], [[1], [x]]),
        lambda x: tsucb.ContextualLinear(2).fit(2, [[1, x]], [0], [1.0]),
        lambda x: tsucb.ContextualLinear(2).fit(2, [[1, 1]], [0], [x]),
        lambda x: tsucb.sets.Box([0, 0], [1, x]),
    ],
)
def test_arrays_of_anything_but_real_numbers_are_refused_in_a_sentence(
    call: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(ValueError, match=r"too large for a float|must be numbers"):
        call(value)
