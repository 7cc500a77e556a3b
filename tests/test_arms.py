"""Arms that come with the decisions, lists, estimates, and many decisions at once."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsucb
from tsucb.agent import DecisionBatch

NEWS = {
    "n1": {"topic": "sport", "words": 300},
    "n2": {"topic": "politics", "words": 900},
    "n3": {"topic": "music", "words": None},
}


def reader(seed: int = 0, **settings: Any) -> tsucb.Agent:
    """Return an agent that has seen some readers of the news."""
    agent = tsucb.Agent(seed=seed, **settings)
    for i, (user, name) in enumerate(itertools.product(["Tom", "Anna"] * 6, NEWS)):
        liked = (user == "Tom") == (name == "n1")
        agent.update({"user": user}, name, float(liked) + 0.01 * (i % 7), NEWS[name])
    return agent


def test_arms_need_not_be_known_before() -> None:
    agent = reader()
    assert set(agent.arms) == set(NEWS)
    fresh = {"new": {"topic": "sport", "words": 280}, "other": {"topic": "politics", "words": 800}}
    seen = agent.estimate({"user": "Tom"}, fresh)
    assert seen.arms == ("new", "other")
    assert seen.mean[0] > seen.mean[1] + 0.3  # what Tom liked of n1 tells of it
    anna = agent.estimate({"user": "Anna"}, fresh)
    assert anna.mean[1] > anna.mean[0] + 0.3
    assert "new" not in agent.arms  # nothing was opened
    decision = agent.choose({"user": "Tom"}, fresh)
    assert decision.arm == "new"
    assert "new" in agent.arms
    assert "other" not in agent.arms  # only what was chosen has a memory
    assert agent.reward(decision.id, 1.0)
    agent.remove_arm("new")
    assert "new" not in agent.arms
    assert agent.choose({"user": "Tom"}, ["n1", "n2"]).arm in ("n1", "n2")  # names alone


def test_pairs_of_categories_are_categories() -> None:
    """While there is room; numbers, and more than three categories, make no pairs."""
    agent = tsucb.Agent(seed=0)
    topics = {"s": {"topic": "sport"}, "m": {"topic": "music"}}
    agent.choose({"user": "Tom", "time": "noon", "age": 30.0}, topics)
    named = [name for name, _ in agent.describe({"user": "Tom", "time": "noon", "age": 31.0})]
    assert named == ["user=Tom", "time=noon", "age", "time × user=noon × Tom"]
    before = agent.model.context
    agent.choose({"age": 3.0, "time": "noon", "user": "Tom"}, topics)  # in any order
    assert agent.model.context == before
    for wrong in ({"user": ["a"], "time": "noon"}, {"user": "Tom", "time": float("inf")}):
        with pytest.raises((TypeError, ValueError), match="the feature"):
            agent.choose(wrong, topics)
    few, many = tsucb.Agent(seed=0), tsucb.Agent(seed=0)
    for i in range(12):
        few.choose({"a": f"a{i}", "b": f"b{i}"}, topics)
        many.choose({"a": "1", "b": "2", "c": "3", "d": f"{i}"}, topics)
    columns = few._learner.reader.feature_names
    assert {f"a=a{i}" for i in range(12)} < set(columns)  # pairs have taken no category's place
    assert sum("×" in name for name in columns) == 7  # five with a column, and what has none
    assert not any("×" in name for name in many._learner.reader.feature_names)


def test_what_holds_at_one_time_for_one_reader_only_is_found() -> None:
    """Politics for Tom in the morning, Anna in the afternoon: no sum of effects expresses that."""
    liked = {("Tom", "morning"): "politics", ("Tom", "afternoon"): "music",
             ("Anna", "morning"): "sports", ("Anna", "afternoon"): "politics"}  # fmt: skip
    offered = {topic: {"topic": topic} for topic in ("politics", "sports", "music", "food")}
    for seed in range(4):
        agent, rng, clicks = tsucb.Agent(seed=seed), np.random.default_rng(seed), []
        for user, time in rng.permutation(list(liked) * 60).tolist():
            decision = agent.choose({"user": user, "time": time}, offered)
            clicks.append(float(decision.arm == liked[user, time]))
            agent.reward(decision.id, clicks[-1])
        assert np.mean(clicks[-80:]) > 0.9


def test_estimate_is_what_choose_sees_next() -> None:
    agent = reader()
    before = agent.estimate({"user": "Tom"}, NEWS)
    again = agent.estimate({"user": "Tom"}, NEWS)
    decision = agent.choose({"user": "Tom"}, NEWS)
    seen = decision.explain()
    for other in (again, seen):
        np.testing.assert_array_equal(before.mean, other.mean)
        np.testing.assert_array_equal(before.ratio, other.ratio)
    assert before.arms[before.chosen] == decision.arm
    assert "would choose" in str(before)
    assert agent.open_decisions == 1
    plain = tsucb.Agent(["a", "b"], seed=0)
    assert plain.estimate({"x": 1.0, "c": "u"}).arms == ("a", "b")
    assert plain.describe({"x": 1.0}) == []  # nothing was learned of the features


def test_bad_offers_are_refused_and_change_nothing() -> None:
    agent = reader()
    arms = agent.arms
    for wrong, error, said in (
        (None, TypeError, "say which arms are offered"),
        ("n1", TypeError, "say which arms are offered"),
        (["n1", "n1"], ValueError, "listed twice"),
        ({1.5: {}}, TypeError, "named by a string or an integer"),
        ([], ValueError, "no arm is available"),
        ({"n9": {"words": float("inf")}}, ValueError, "within"),
    ):
        with pytest.raises(error, match=said):
            agent.choose({"user": "Tom"}, wrong)
    assert agent.arms == arms
    assert agent.open_decisions == 0
    fixed = tsucb.Agent(["a", "b"], features=1, seed=0)
    with pytest.raises(ValueError, match="there is no arm 'c'; the arms are 'a', 'b'"):
        fixed.choose([1.0], ["a", "c"])
    with pytest.raises(ValueError, match="there is no arm 'c'"):
        fixed.estimate([1.0], ["c"])
    with pytest.raises(TypeError, match="features of arms are for HybridCurves, HybridLinear"):
        fixed.choose([1.0], {"a": [1.0]})
    with pytest.raises(ValueError, match="needs a list of arms"):
        tsucb.Agent(model=tsucb.NIGLinear(2))
    with pytest.raises(ValueError, match="reads contexts and arms in any form"):
        tsucb.Agent(features=3)
    linear = tsucb.Agent(["a", "b"], model=tsucb.Linear(2), seed=0)
    assert linear.choose(None, {"b": [0.0, 1.0]}).arm == "b"
    with pytest.raises(ValueError, match="there is no arm 'z'"):
        linear.choose(None, {"a": [1.0, 2.0], "z": [0.0, 1.0]})


def test_memory_is_for_arms_that_were_chosen_and_the_oldest_go() -> None:
    agent = tsucb.Agent(seed=0, most_arms=20)
    rng = np.random.default_rng(0)
    late = None
    for day in range(60):
        offered = {f"{day}-{i}": {"size": rng.normal(), "kind": "ab"[i % 2]} for i in range(50)}
        decision = agent.choose(None, offered)
        if day:  # the first reward comes when its arm is forgotten
            agent.reward(decision.id, offered[decision.arm]["size"])
        else:
            late = decision
    assert len(agent.arms) <= 20
    assert len(agent.arms_summary()) == len(agent.arms)
    assert late is not None
    assert late.arm not in agent.arms
    assert agent.reward(late.id, 0.5)
    assert late.arm in agent.arms
    seen = agent.estimate(None, {"p": {"size": 2.0, "kind": "a"}, "q": {"size": -2.0, "kind": "a"}})
    assert seen.mean[0] > seen.mean[1] + 2  # what those that left taught is still known
    assert agent.model.features <= 4


def test_agents_with_coming_arms_are_saved(tmp_path: Path) -> None:
    agent = reader(exploration=0.1)
    waiting = agent.choose({"user": "Tom"}, NEWS)
    ranking = agent.rank({"user": "Anna"}, 2, NEWS)
    agent.save(tmp_path / "agent")
    again = tsucb.Agent.load(tmp_path / "agent")
    assert again.arms == agent.arms
    assert again.open_decisions == 2
    for each in (agent, again):
        each.reward(waiting.id, 1.0)
        each.reward(ranking.id, {ranking.arms[1]: 0.5})
    for user in ("Tom", "Anna", "Zoe"):
        offered = {**NEWS, "x": {"topic": "art"}}
        assert agent.choose({"user": user}, offered).id == again.choose({"user": user}, offered).id


@pytest.mark.parametrize(
    "agent",
    [
        lambda: tsucb.Agent(range(6), features=2, seed=1),
        lambda: tsucb.Agent(range(6), features=2, seed=1, keep_beliefs=True),
        lambda: tsucb.Agent(range(6), model=tsucb.BernoulliArms(), seed=1),
    ],
)
def test_lists_are_choices_without_replacement(agent: Any) -> None:
    """The first place is what `choose` plays; all are different; rewards go to their arms."""
    one, other = agent(), agent()
    context = [0.5, 1.0] if one._learner.reader.takes_context else None
    ranking = one.rank(context, 4)
    assert len(set(ranking.arms)) == 4
    assert set(ranking.arms) <= set(ranking.offered)
    assert one.open_decisions == 1
    for place in range(4):
        left = [arm for arm in range(6) if arm not in ranking.arms[:place]]
        check_place(ranking, place, other.choose(context, left))
    assert one.reward(ranking.id, [1.0, None, 0.0])  # the last was not looked at either
    pulls = one.arms_summary()["pulls"]
    assert pulls[list(ranking.arms)].tolist() == [1, 0, 1, 0]
    assert one.open_decisions == one.dropped == 0
    with pytest.raises(tsucb.UnknownDecision):
        one.reward(ranking.id, [1.0])
    # What is learned is what single observations would have taught.
    other = agent()
    for place, reward in ((0, 1.0), (2, 0.0)):
        other.update(context, ranking.arms[place], reward)
    np.testing.assert_allclose(one.estimate(context).mean, other.estimate(context).mean)


def check_place(ranking: Any, place: int, decision: Any) -> None:
    """Check that a place was filled like a single decision among the remaining arms."""
    assert ranking.arms[place] == decision.arm
    one, other = ranking.explain(place), decision.explain()
    assert one.arms == other.arms
    assert one.target == pytest.approx(other.target, rel=1e-12, nan_ok=True)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.ratio, other.ratio, rtol=1e-9)


def test_lists_of_arms_that_come() -> None:
    """The same for arms with features: a list of all three, with a floor."""
    one, other = reader(exploration=0.1), reader(exploration=0.1)
    offered = {name: features | {"words": 1.0} for name, features in NEWS.items()}  # no gap
    for user in ("Tom", "Anna") * 5:
        ranking, left = one.rank({"user": user}, 3, offered), dict(offered)
        for place in range(3):
            decision = other.choose({"user": user}, left)
            check_place(ranking, place, decision)
            del left[str(decision.arm)]


def test_lists_begin_with_arms_that_lack_their_first_pulls() -> None:
    one, other = (tsucb.Agent(range(6), model=tsucb.BernoulliArms(), seed=1) for _ in range(2))
    for agent, arm in itertools.product((one, other), (1, 2, 4)):
        agent.update(None, arm, float(arm == 2))
    ranking = one.rank(None, 5)
    assert ranking.arms[:3] == (0, 3, 5)
    for place in range(5):
        left = [arm for arm in range(6) if arm not in ranking.arms[:place]]
        check_place(ranking, place, other.choose(None, left))


def test_lists_refuse_what_makes_no_sense(tmp_path: Path) -> None:
    rows: list[Any] = []
    agent = tsucb.Agent(["a", "b", "c"], features=1, seed=0, exploration=0.1, log=rows.append)
    with pytest.raises(ValueError, match="a list of 4 cannot be made of 3 arms"):
        agent.rank([1.0], 4)
    with pytest.raises(ValueError, match="k must be a whole number"):
        agent.rank([1.0], 0)
    with pytest.raises(ValueError, match="NaN"):
        agent.rank([np.nan], 2)
    ranking = agent.rank([1.0], 2)
    with pytest.raises(TypeError, match="a list of 2 arms; give a reward for every place"):
        agent.reward(ranking.id, 1.0)
    with pytest.raises(ValueError, match="has 2 places, but 3 rewards"):
        agent.reward(ranking.id, [1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="has no arm 'z'"):
        agent.reward(ranking.id, {"z": 1.0})
    with pytest.raises(TypeError, match="a reward must be a number"):
        agent.reward(ranking.id, ["much"])
    single = agent.choose([1.0])
    with pytest.raises(TypeError, match="is of one arm"):
        agent.reward(single.id, [1.0])
    assert agent.open_decisions == 2
    agent.remove_arm(ranking.arms[0])
    assert agent.reward(ranking.id, [1.0, None]) is False
    other = agent.rank([2.0], 2)
    assert agent.expire(-1, reward=0.0) == 2
    decided = [row["id"] for row in rows if row["kind"] == "decision"]
    assert decided == [f"{ranking.id}#0", f"{ranking.id}#1", single.id, f"{other.id}#0",
                       f"{other.id}#1"]  # fmt: skip
    rewarded = {row["id"] for row in rows if row["kind"] == "reward"}
    assert rewarded == {f"{ranking.id}#0", single.id, f"{other.id}#0", f"{other.id}#1"}


def test_many_decisions_at_once_are_those_one_by_one() -> None:
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(40, 2))

    def agent() -> tsucb.Agent:
        made = tsucb.Agent(list("abc"), features=["x", "y"], seed=1, exploration=0.2)
        made.fit((rng.normal(size=(30, 2)) * 0 + np.eye(2)[np.arange(30) % 2],
                  list("abc") * 10, np.arange(30.0) % 4))  # fmt: skip
        return made

    one, many = agent(), agent()
    expected = [one.choose(x) for x in contexts]
    found = many.choose_many(contexts)
    assert isinstance(found, DecisionBatch)
    assert found.ids == [d.id for d in expected]
    assert found.arms.tolist() == [d.arm for d in expected]
    np.testing.assert_allclose(found.probabilities, [d.probability for d in expected])
    np.testing.assert_allclose(found[7].explain().mean, expected[7].explain().mean)
    assert [d.id for d in found[3:6]] == found.ids[3:6]
    table = agent().choose_many(pd.DataFrame(contexts, columns=["x", "y"])).table()
    assert table["id"].tolist() == found.ids
    assert list(table.columns) == ["id", "arm", "probability"]
    rewards = rng.normal(size=40)
    for decision, reward in zip(expected, rewards, strict=True):
        one.reward(decision.id, reward)
    with pytest.raises(tsucb.UnknownDecision):
        many.reward_many([*found.ids, "1-0"], [*rewards, 0.0])
    with pytest.raises(tsucb.UnknownDecision, match="twice"):
        many.reward_many([found.ids[0]] * 2, [1.0, 1.0])
    with pytest.raises(TypeError, match="a list of ids"):
        many.reward_many(found.ids[0], [1.0])
    assert many.open_decisions == 40
    assert many.reward_many(found.ids, rewards) == 40
    assert many.open_decisions == 0
    np.testing.assert_allclose(
        one.estimate(contexts[0]).mean, many.estimate(contexts[0]).mean, rtol=1e-9
    )


def test_many_decisions_of_wide_contexts_and_few_arms_of_many() -> None:
    """The layout for many features, triangular roots included; and some of the arms."""
    rng = np.random.default_rng(1)

    def agent() -> tsucb.Agent:
        made = tsucb.Agent(range(5), features=24, seed=1)
        made.fit((rows, np.arange(100) % 5, rewards))
        return made

    rows, rewards = rng.normal(size=(100, 24)), rng.normal(size=100)
    contexts = rng.normal(size=(60, 24))
    one, many = agent(), agent()
    for part in (contexts, contexts[:5]):  # with and without triangular roots
        expected = [one.choose(x, [3, 1, 4]).id for x in part]
        assert many.choose_many(part, [3, 1, 4]).ids == expected


def test_many_decisions_with_features_per_arm_or_as_they_come() -> None:
    offered = {name: dict(features, words=1.0) for name, features in NEWS.items()}
    contexts = [{"user": user} for user in ("Tom", "Anna", "Tom")]
    one, many = reader(), reader()
    expected = [one.choose(context, offered).id for context in contexts]
    found = many.choose_many(contexts, offered)
    assert found.ids == expected
    assert many.reward_many(found.ids, [1.0, 0.0, 1.0]) == 3
    linear, other = (tsucb.Agent(["a", "b"], model=tsucb.Linear(2), seed=0) for _ in range(2))
    matrices = np.random.default_rng(0).normal(size=(4, 2, 2))
    assert linear.choose_many(matrices).ids == [other.choose(x).id for x in matrices]


def test_few_arms_of_many_known_ones() -> None:
    """`Linear` looks at the rows of those that are offered, wherever they are."""
    agent = tsucb.Agent(range(50), model=tsucb.Linear(2, noise=0.1), seed=0)
    theta = np.array([1.0, -1.0])
    rng = np.random.default_rng(0)
    for _ in range(200):
        some = rng.choice(50, 4, replace=False).tolist()
        z = rng.normal(size=(4, 2))
        decision = agent.choose(z, some)
        agent.reward(decision.id, float(z[some.index(decision.arm)] @ theta))
    seen = agent.estimate(None, {7: [1.0, 0.0], 3: [0.0, 1.0]})
    np.testing.assert_allclose(seen.mean, [1.0, -1.0], atol=0.05)


def test_a_history_of_arms_with_features() -> None:
    table = pd.DataFrame({
        "user": ["Tom", "Anna"] * 30,
        "article": [f"a{i % 40}" for i in range(60)],
        "topic": ["sport", "music", "music", "sport"] * 15,
        "clicked": [1.0, 1.0, 0.0, 0.0] * 15,
    })  # fmt: skip
    agent = tsucb.Agent(seed=0, most_arms=10)
    agent.fit(table, arm="article", reward="clicked", features=["topic"])
    seen = agent.estimate({"user": "Tom"}, {"s": {"topic": "sport"}, "m": {"topic": "music"}})
    assert seen.mean[0] > seen.mean[1] + 0.5
    assert agent.arms_summary()["pulls"].sum() <= 60
    with pytest.raises(ValueError, match="no column for the features 'color'"):
        agent.fit(table, arm="article", reward="clicked", features=["color"])
    with pytest.raises(TypeError, match="knows no features of arms"):
        tsucb.Agent(["a"], seed=0).fit(table, features=["topic"])


def test_a_batch_keeps_its_contexts_whatever_becomes_of_the_array():
    digests = []
    for spoilt in (False, True):
        agent = tsucb.Agent(range(3), features=2, seed=0)
        contexts = np.random.default_rng(1).normal(size=(20, 2))
        decisions = agent.choose_many(contexts)
        if spoilt:
            contexts[:] = 99.0
        agent.reward_many(decisions, np.arange(20.0))
        digests.append(agent.digest())
    assert digests[0] == digests[1]


def test_no_more_arms_have_a_memory_than_most_arms():
    """Also where the state has spare columns for more."""
    agent, rng = tsucb.Agent(seed=0, most_arms=4), np.random.default_rng(0)
    for _ in range(40):
        offer = {f"n{i}": {"p": float(i % 3)} for i in rng.permutation(30)[:3]}
        agent.reward(agent.choose({"x": 1.0}, offer).id, 1.0)
        assert len(agent.arms) <= 4
    for n in range(10):
        agent.update({"x": 1.0}, f"new {n}", 1.0, {"p": 1.0})
        assert len(agent.arms) <= 4
