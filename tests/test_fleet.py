"""Agents that are copied, pickled, reseeded, merged, and fitted to folders of files."""

import copy
import functools
import pickle
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsucb
from tsucb.contexts.encoding import Encoder

ARMS = ["red", "green", "blue"]


def observations(count: int, seed: int = 0) -> list[tuple[dict[str, Any], str, float]]:
    rng = np.random.default_rng(seed)
    cities = ["Rome", "Oslo", "Lima", None]
    return [
        ({"age": float(rng.integers(20, 60)), "city": cities[rng.integers(4)]},
         ARMS[rng.integers(3)], float(rng.normal() + 3))
        for _ in range(count)
    ]  # fmt: skip


def taught(agent: tsucb.Agent, some: list[Any]) -> tsucb.Agent:
    for context, arm, reward in some:
        agent.update(context, arm, reward)
    return agent


def beliefs(agent: tsucb.Agent, context: Any) -> np.ndarray:
    seen = agent.estimate(context)
    return np.array([seen.mean, seen.std])


def test_copies_and_pickles_decide_alike_until_reseeded() -> None:
    agent = taught(tsucb.Agent(ARMS, seed=3), observations(20))
    waiting = agent.choose({"age": 30.0, "city": "Rome"})
    twins = [copy.copy(agent), copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))]
    context = {"age": 41.0, "city": "Oslo"}
    expected = [agent.choose(context).id for _ in range(10)]
    for twin in twins:
        assert [twin.choose(context).id for _ in range(10)] == expected
        assert twin.reward(waiting.id, 1.0)
    other = copy.copy(agent)
    other.reseed(7)
    ids = [[a.choose(context).id for _ in range(10)] for a in (agent, other)]
    assert not set(ids[0]) & set(ids[1])
    with pytest.raises(ValueError, match="seed must be a whole number"):
        other.reseed(-1)


def test_threads_with_an_agent_each_learn_what_one_place_would() -> None:
    """Decisions by several threads at once, merged: the beliefs of one agent that saw them all."""
    base = taught(tsucb.Agent(ARMS, seed=0), observations(30))
    agents = [copy.copy(base) for _ in range(3)]
    seen: list[list[Any]] = [[] for _ in agents]

    def work(n: int) -> None:
        agents[n].reseed(n)
        for context, _, reward in observations(60, seed=n + 1):
            decision = agents[n].choose(context)
            assert agents[n].reward(decision.id, reward)
            seen[n].append((context, decision.arm, reward))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(agents))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = functools.reduce(lambda one, two: tsucb.merge(one, two, base), agents)
    alone = taught(copy.copy(base), [each for some in seen for each in some])
    whole = tsucb.merge(alone, base, base)
    assert together.open_decisions == 0
    pulls = together.arms_summary()["pulls"]
    assert pulls.sum() == 30 + 3 * 60
    assert pulls.tolist() == alone.arms_summary()["pulls"].tolist()
    for context in ({"age": 33.0, "city": "Lima"}, {"age": 50.0, "city": "Rome"}):
        np.testing.assert_allclose(
            beliefs(together, context), beliefs(whole, context), rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("seed", range(4))
def test_merging_is_learning_in_one_place(seed: int) -> None:
    """Random splits and orders, contexts with strings and gaps: the same beliefs of all arms."""
    rng = np.random.default_rng(seed)
    data = observations(90, seed)
    base = taught(tsucb.Agent(ARMS, seed=0), data[:30] if seed % 2 else [])
    rest = data[30:] if seed % 2 else data
    side = rng.random(len(rest)) < 0.4
    one = taught(copy.copy(base), [x for x, s in zip(rest, side, strict=True) if s])
    two = taught(copy.copy(base), [x for x, s in zip(rest, side, strict=True) if not s])
    alone = copy.copy(base)
    taught(alone, [rest[i] for i in rng.permutation(len(rest))])
    together, whole = tsucb.merge(one, two, base), tsucb.merge(alone, base, base)
    for context in ({"age": 33.0, "city": "Lima"}, {"age": 50.0, "city": "Rome"}):
        np.testing.assert_allclose(
            beliefs(together, context), beliefs(whole, context), rtol=1e-6, atol=1e-9
        )
    pd.testing.assert_frame_equal(together.arms_summary(), whole.arms_summary())


@pytest.mark.parametrize(
    "model",
    [tsucb.ContextualLinear(2, 0.5), tsucb.NIGLinear(2), tsucb.Linear(2, 0.5),
     tsucb.BernoulliArms(empirical=False), tsucb.HybridLinear(2, 1)],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_models_merge(model: tsucb.Model) -> None:
    """On states: two halves since a common start are the whole."""
    rng = np.random.default_rng(1)
    shape = model.context_shape(3)
    contexts = rng.normal(size=(60, *shape))
    arms, rewards = rng.integers(3, size=60), rng.integers(2, size=60).astype(float)
    if isinstance(model, tsucb.HybridLinear):
        contexts[:, :, 0] = contexts[:, :1, 0]

    def learned(state: Any, part: Any) -> Any:
        state = copy.deepcopy(state)
        model.update(state, contexts[part] if shape else None, arms[part], rewards[part])
        return state

    base = learned(model.start(3), slice(0, 20))
    one, two = learned(base, slice(20, 35)), learned(base, slice(35, 60))
    whole = learned(one, slice(35, 60))
    both = [model.merged(one, two, base), model.merged(whole, base, base)]
    if not isinstance(model, tsucb.HybridLinear):  # which estimates its numbers again
        both.append(whole)
    x = contexts[0] if shape else None
    found = [model.belief(state, x, rng=np.random.default_rng(0)) for state in both]
    for other in found[1:]:
        np.testing.assert_allclose(found[0].mean, other.mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found[0].std, other.std, rtol=1e-6)
        np.testing.assert_array_equal(found[0].pulls, other.pulls)
    # Nothing learned on one side, and anchors that differ.
    blank = model.start(3)
    apart = [learned(blank, slice(0, 30)), learned(blank, slice(30, 60))]
    joined = model.merged(*apart, blank)
    at_once = model.merged(learned(blank, slice(0, 60)), blank, blank)
    found = [model.belief(s, x, rng=np.random.default_rng(0)) for s in (joined, at_once)]
    np.testing.assert_allclose(found[0].mean, found[1].mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[0].std, found[1].std, rtol=1e-5)


def test_arms_and_open_decisions_of_both_sides() -> None:
    base = tsucb.Agent(ARMS, seed=0)
    first = base.choose({"age": 1.0})
    second = base.choose({"age": 2.0})
    one, two = copy.copy(base), copy.copy(base)
    two.reseed(1)
    one.add_arm("white")
    two.remove_arm("green")
    one.reward(first.id, 1.0)
    mine, yours = one.choose({"age": 3.0}), two.choose({"height": 3.0})
    both = tsucb.merge(one, two, base)
    assert both.arms == ("red", "blue", "white")
    assert both.open_decisions == 3
    for decision in (second, mine, yours):
        both.reward(decision.id, 2.0)
    with pytest.raises(tsucb.UnknownDecision):
        both.reward(first.id, 1.0)
    both.choose({"age": 1.0, "height": 2.0})


def test_agents_that_started_apart_keep_the_arms_of_both() -> None:
    one, two = tsucb.Agent(["red", "blue"], seed=0), tsucb.Agent(["blue", "green"], seed=1)
    for agent, arm in ((one, "red"), (one, "blue"), (two, "blue"), (two, "green")):
        agent.update({"x": 1.0}, arm, 1.0)
    both = tsucb.merge(one, two)
    assert both.arms == ("red", "blue", "green")
    assert both.arms_summary()["pulls"].tolist() == [1, 2, 1]


def test_arms_that_come_merge_too() -> None:
    base = tsucb.Agent(seed=0)
    one, two = copy.copy(base), copy.copy(base)
    for i in range(12):
        one.update({"x": float(i)}, f"a{i % 3}", float(i), {"color": "red", "size": float(i % 3)})
        two.update({"y": 1.0, "x": 2.0 * i}, f"b{i % 2}", 1.0 - i, {"shape": "round"})
    both = tsucb.merge(one, two, base)
    assert set(both.arms) == {"a0", "a1", "a2", "b0", "b1"}
    offered = {"a0": {"color": "red", "size": 0.0}, "new": {"shape": "round"}}
    seen = both.estimate({"x": 3.0, "y": 1.0}, offered)
    assert np.isfinite(seen.mean).all()
    assert both.arms_summary()["pulls"].sum() == 24


def test_what_cannot_be_merged_is_refused() -> None:
    one = tsucb.Agent(ARMS, seed=0)
    with pytest.raises(ValueError, match="different models"):
        tsucb.merge(one, tsucb.Agent(ARMS, features=2, seed=0))
    fading = tsucb.Agent(ARMS, 1, forgetting=0.9, seed=0)
    with pytest.raises(ValueError, match="does not add up"):
        tsucb.merge(fading, copy.copy(fading), fading)
    older = copy.copy(one)
    one.update({"x": 1.0}, "red", 1.0)
    with pytest.raises(ValueError, match="the base has made decisions"):
        tsucb.merge(older, older, one)


def test_encoders_join() -> None:
    base = Encoder()
    base.encode({"a": 1.0})
    one, two = pickle.loads(pickle.dumps(base)), pickle.loads(pickle.dumps(base))
    one.encode({"a": 3.0, "c": "x"})
    two.encode({"b": 5.0, "c": "y"})
    both = one.joined(two, base)
    places = both.vocabulary.places_of(two.vocabulary)
    assert set(both.names) >= {"a", "b", "c=x", "c=y"}
    vector = two.peek({"b": 5.0, "c": "y"})
    moved = np.zeros(both.width)
    moved[places] = vector[: two.used]
    number = both.names.index("a")  # which is missing, and has another mean here and there
    moved[number] = both.peek({"b": 5.0, "c": "y"})[number]
    np.testing.assert_array_equal(moved, both.peek({"b": 5.0, "c": "y"}))
    assert both.peek({"a": None, "b": 1.0})[both.names.index("a")] == 2.0  # the mean of 1 and 3


def test_a_folder_of_files_is_read_in_pieces(tmp_path: Any, monkeypatch: Any) -> None:
    rows = [{**x, "arm": arm, "reward": reward} for x, arm, reward in observations(60)]
    table = pd.DataFrame(rows)
    folder = tmp_path / "log"
    folder.mkdir()
    for i in range(3):
        table[20 * i : 20 * (i + 1)].to_parquet(folder / f"part-{i}.parquet")
    monkeypatch.setattr("tsucb.agent.history.ROWS", 7)
    whole, pieces = tsucb.Agent(ARMS, seed=0), tsucb.Agent(ARMS, seed=0)
    whole.fit(table)
    pieces.fit(folder)
    context = {"age": 40.0, "city": "Rome"}
    np.testing.assert_allclose(beliefs(pieces, context), beliefs(whole, context), rtol=1e-6)
    table.assign(arm="pink").to_parquet(folder / "part-9.parquet")
    before = pieces.arms_summary()
    with pytest.raises(ValueError, match="there is no arm 'pink'"):
        pieces.fit(str(folder))
    pd.testing.assert_frame_equal(pieces.arms_summary(), before)
    with pytest.raises(ValueError, match="no Parquet file"):
        pieces.fit(tmp_path / "nothing")


def test_a_cluster_learns_one_file_each(tmp_path: Any) -> None:
    distributed = pytest.importorskip("distributed")
    rows = [{**x, "arm": arm, "reward": reward} for x, arm, reward in observations(40)]
    for i in range(2):
        pd.DataFrame(rows[20 * i : 20 * (i + 1)]).to_parquet(tmp_path / f"{i}.parquet")
    here, there = tsucb.Agent(ARMS, seed=0), tsucb.Agent(ARMS, seed=0)
    here.fit(tmp_path)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        there.fit(tmp_path, cluster=client)
    context = {"age": 40.0, "city": "Rome"}
    blank = tsucb.Agent(ARMS, seed=0)
    settled = tsucb.merge(here, blank, blank)
    np.testing.assert_allclose(beliefs(there, context), beliefs(settled, context), rtol=1e-6)
    assert there.arms_summary()["pulls"].sum() == 40


def test_what_is_no_agent_is_not_merged():
    agent = tsucb.Agent(["a"], model=tsucb.BernoulliArms(), seed=0)
    for first, second, base in ((agent, None, agent), ("file", agent, None), (agent, agent, 3)):
        with pytest.raises(TypeError, match="agents are merged, not"):
            tsucb.merge(first, second, base)
