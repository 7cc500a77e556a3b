"""What the docstrings of `Agent` and `Learner` promise where no other test looks."""

import copy
import math
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest

import tsucb
from tsucb.agent import Learner, storage

ARMS = ["a", "b", "c"]
X = {"age": 31.0}
PLAIN = tsucb.GaussianArms(empirical=False)


def clock() -> float:
    return 7.0


def lock_is_free(agent: tsucb.Agent) -> bool:
    """Return whether another thread can take the agent's lock."""
    found: list[bool] = []

    def take() -> None:
        found.append(agent._guard.lock.acquire(timeout=10.0))
        agent._guard.lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found == [True]


class Doubling:
    """A transformer that notes whether the agent was locked while it worked."""

    agent: Any = None

    def __init__(self) -> None:
        self.free: list[bool] = []

    def transform(self, contexts: Any) -> Any:
        if Doubling.agent is not None:
            self.free.append(lock_is_free(Doubling.agent))
        return [[2.0 * x for x in row] for row in contexts]


def test_nothing_is_locked_while_contexts_are_converted_or_a_file_is_written(
    tmp_path: Any, monkeypatch: Any
) -> None:
    doubling = Doubling()
    agent = tsucb.Agent(ARMS, 2, transformer=doubling, seed=0)
    monkeypatch.setattr(Doubling, "agent", agent)
    agent.choose([1.0, 2.0])
    agent.choose_many([[1.0, 2.0]])
    agent.update([1.0, 2.0], "a", 1.0)
    agent.fit(([[1.0, 2.0]], ["a"], [1.0]))
    written, write = [], storage.write

    def watched(*arguments: Any) -> None:
        written.append(lock_is_free(agent))
        write(*arguments)

    monkeypatch.setattr("tsucb.agent.storage.write", watched)
    agent.save(tmp_path / "agent.tsucb")
    assert len(doubling.free) >= 4
    assert all(doubling.free)
    assert written == [True]


def test_without_a_seed_agents_choose_differently() -> None:
    chosen = []
    for _ in range(2):
        agent = tsucb.Agent(["a", "b"], model=PLAIN, policy=tsucb.Random())
        chosen.append([agent.choose().arm for _ in range(64)])  # equal once in 2^64
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))]
)
def test_copies_have_the_settings_and_the_clock_but_no_log(again: Any) -> None:
    rows: list[Any] = []
    agent = tsucb.Agent(
        ARMS, exploration=0.1, forgetting=0.9, max_open=5, most_arms=9, keep_beliefs=True,
        seed=0, log=rows.append, clock=clock,
    )  # fmt: skip
    agent.choose(X)
    other, before = again(agent), len(rows)
    for name in ("exploration", "forgetting", "max_open", "most_arms", "keep_beliefs", "policy"):
        assert getattr(other, name) == getattr(agent, name)
    assert (other.log, agent.log is None) == (None, False)
    assert other.choose(X).time == 7.0
    assert len(rows) == before


def test_one_never_forgets() -> None:
    agent = tsucb.Agent(ARMS, forgetting=1, seed=0)
    assert (agent.forgetting, agent.exploration) == (1.0, 0.0)
    assert isinstance(agent.model, tsucb.AdaptiveCurves)


def test_contexts_may_be_left_off_and_come_later() -> None:
    agent = tsucb.Agent(ARMS, seed=0)
    agent.reward(agent.choose().id, 1.0)
    agent.reward(agent.choose(X).id, 1.0)
    assert list(agent.coefficients().loc["a"].index) == ["constant", "age"]


def test_reseeding_changes_draws_and_ids() -> None:
    agent = tsucb.Agent(["a", "b"], model=PLAIN, policy=tsucb.Random(), seed=0)
    first, second, third = copy.copy(agent), copy.copy(agent), copy.copy(agent)
    second.reseed(5)
    third.reseed(5, ids=False)
    arms = [[each.choose().arm for _ in range(64)] for each in (first, second, third)]
    assert arms[0] not in arms[1:]
    one, two, three = (copy.copy(agent) for _ in range(3))
    two.reseed(5)
    three.reseed(5, ids=False)
    ids = [each.choose(arms=["a"]).id for each in (one, two, three)]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize("model", [tsucb.NIGLinear(2), tsucb.AdaptiveLinear(2)])
def test_large_batches_keep_probabilities_and_a_log_keeps_everything(
    model: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tsucb.agent.batch.MOST_SEEN", 10)
    contexts, rows = np.random.default_rng(0).normal(size=(9, 2)), []
    plain = tsucb.Agent(ARMS, model=model, exploration=0.3, seed=0)
    logged = tsucb.Agent(ARMS, model=model, exploration=0.3, seed=0, log=rows.append)
    batch, whole = plain.choose_many(contexts), logged.choose_many(contexts)
    assert batch.ids == whole.ids
    np.testing.assert_array_equal(batch.probabilities, whole.probabilities)
    assert [row["probabilities"] for row in rows] == [list(d.probabilities.values()) for d in whole]
    for ask in (lambda d: d.explain(), lambda d: d.favourite, lambda d: d.probability):
        with pytest.raises(ValueError, match="decide for fewer contexts at a time"):
            ask(batch[0])
    assert plain.reward_many(batch, np.ones(9)) == logged.reward_many(whole, np.ones(9)) == 9


def test_an_arm_and_its_features_come_and_leave_together(monkeypatch: Any) -> None:
    agent = tsucb.Agent({"a": {"p": 1.0}, "b": {"p": 2.0}}, seed=0)

    def interrupted(*changes: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tsucb.agent.learner.at_once", interrupted)
        for call in (lambda: agent.add_arm("c", {"p": 3.0}), lambda: agent.remove_arm("b")):
            with pytest.raises(KeyboardInterrupt):
                call()
    again = tsucb.Agent.from_bytes(agent.to_bytes())
    assert again.arms == agent.arms == ("a", "b")
    assert again.estimate().mean.size == 2


def learned() -> tsucb.Agent:
    agent = tsucb.Agent(ARMS, seed=0)
    agent.update(X, "a", 1.0)
    return agent


def coming() -> tsucb.Agent:
    agent = tsucb.Agent(seed=0)
    agent.update({"user": "u"}, "n1", 1.0, {"topic": "t"})
    return agent


def linear() -> tsucb.Agent:
    return tsucb.Agent(["a", "b"], model=tsucb.Linear(2), seed=0)


BATCH = learned().choose_many([X, X])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tsucb.Agent(["a"], 10**9), "at most 100,000 features, not 1000000000"),
        (lambda: tsucb.Agent(["a"], categories=3), r"a list of names, such as \[3\]"),
        (lambda: tsucb.Agent(["a"], clock=3), "clock is a function that returns seconds, not 3"),
        (lambda: tsucb.Agent({"a": 3}), "features are given as a dictionary, .* not as an int"),
        (lambda: coming().add_arm("z", {"p": 1}), "add the arm by its name alone"),
        (lambda: coming().choose({"user": "u"}, {"n1": 3}), "features are given as .* an int"),
        (lambda: linear().choose("ab"), "needs a feature vector for each of the 2"),
        (lambda: linear().choose({"a": None, "b": None}), "Linear needs a context, but none"),
        (lambda: tsucb.Agent(["a"], 2).choose_many([None]), "needs a context, but none was given"),
        (lambda: learned().reward(BATCH, 1.0), "the decisions of a batch to reward_many"),
        (lambda: learned().reward_many(3, [1.0]), "give a list of ids, not 3"),
        (lambda: learned().reward_many(None, [1.0]), "give a list of ids, not None"),
        (lambda: learned().reward_many(["1-0"], None), "rewards are a list .* not None"),
        (lambda: learned().reward_many(["1-0"], {"1-0": 1.0}), "rewards are a list"),
        (lambda: learned().reward_many(["1-0"], [[1.0], [1.0, 2.0]]), r"a number, not \[1.0\]"),
        (lambda: learned().fit((X, "a", 1.0)), "the arms of a history are an array or a list"),
        (lambda: learned().fit(([X], 3, [1.0])), "the arms of a history are .*, not 3"),
        (lambda: learned().fit(([X], ["a"], 3)), "the rewards of a history are .*, not 3"),
        (lambda: learned().fit(([X], [["a"]], [1.0])), r"there is no arm \['a'\]"),
        (lambda: coming().fit(([X], ["n"], [3], [1.0])), "features are given as .* an int"),
        (lambda: coming().fit(([X], ["n"], 3, [1.0])), "a data frame, a matrix or a list"),
        (lambda: coming().fit({"arm": ["n"], "reward": [1.0]}, features="u"), r"such as \['u'\]"),
        (lambda: learned().save("/"), "/ is a folder; give the name of a file"),
        (lambda: tsucb.Agent.load(3), "not int"),
        (lambda: tsucb.Agent.from_bytes("x"), "give the bytes that `to_bytes` returned, not 'x'"),
        (lambda: tsucb.Agent.from_bytes(None), "give the bytes that `to_bytes` returned, not None"),
        (lambda: BATCH[2], "there is no decision 2 in a batch of 2"),
        (lambda: Learner(ARMS).learn("a", None, 1.0), "no row that was read for this model"),
        (lambda: Learner(ARMS).learn(["a"], b"", 1.0), "named by a string or an integer"),
        (lambda: Learner(ARMS).check_rewards(math.inf), "must be a finite number"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, OSError), match=message) as caught:
        call()
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_time_is_the_usual_clock() -> None:
    before = time.time()
    assert before <= tsucb.Agent(ARMS, seed=0).choose().time <= time.time()
