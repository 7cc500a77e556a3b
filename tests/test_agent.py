"""The agent, driven as an application would drive it."""

import copy
import enum
import math
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tsucb
from tsucb.agent import UnknownDecision, machine
from tsucb.numeric.streams import WORLD, stream

ARMS = ["red", "green", "blue"]


def make(**options):
    """Return an agent whose posterior is known in closed form."""
    given = {"arms": ARMS, "features": 2, "seed": 0} | options
    features = given["features"]
    if "model" not in given and isinstance(features, int | list | tuple):
        given["model"] = tsucb.NIGLinear(features if isinstance(features, int) else len(features))
    return tsucb.Agent(**given)


def context_for(agent, rng, arms=None):
    """Return a random context of the shape the agent's model wants."""
    shape = agent.model.context_shape(len(arms or agent.arms))
    return rng.normal(size=shape) if shape else None


def coefficients(agent):
    """Return posterior means of the coefficients, by arm."""
    return agent.coefficients()["mean"].unstack(sort=False)


def knowledge(agent):
    """Return everything that was learned, as one table."""
    table = agent.coefficients().unstack(sort=False)
    table.columns = [" ".join(names) for names in table.columns]
    return table.join(agent.arms_summary())


def ids_of(**options):
    """Return the ids of decisions whose rewards come late, if at all."""
    agent = tsucb.Agent(["a", "b"], model=tsucb.BernoulliArms(), policy=tsucb.Thompson(), seed=4,
                        **options)  # fmt: skip
    ids = []
    for n in range(120):
        ids.append(agent.choose().id)
        if n % 3 == 0:
            agent.reward(ids[n // 2], float(n % 2))
    return ids


def test_compiled_calls_have_a_plain_twin(monkeypatch):
    """Machine code, with the interpreter's lock or without, and plain Python make the same ids."""
    compiled = ids_of()
    assert compiled == ids_of(keep_beliefs=True)
    monkeypatch.setattr(machine, "LONG", 0)
    assert compiled == ids_of()


def test_same_seed_same_decisions():
    xs = np.random.default_rng(0).normal(size=(30, 2))

    def played(seed):
        agent = make(seed=seed)
        for x in xs:
            decision = agent.choose(x)
            agent.reward(decision.id, x[0] if decision.arm == "red" else x[1])
            yield decision.id

    assert list(played(3)) == list(played(3))
    assert list(played(3)) != list(played(4))


def test_instant_rewards_reproduce_the_simulation():
    bandit, horizon = tsucb.ContextualLinearBandit(arms=4, features=3, noise=0.3), 200
    policy = tsucb.TSUCB(1)
    result = tsucb.simulate(
        bandit, bandit.model(), [policy], horizon=horizon, runs=1, seed=5, checkpoints=horizon
    )
    agent = tsucb.Agent(range(4), model=bandit.model(), policy=policy, seed=5)
    rng = stream(5, 0, WORLD)
    world = bandit.begin(rng)
    regret = []
    for step in range(1, horizon + 1):
        context, means, _ = bandit.advance(world, step, rng)
        decision = agent.choose(context)
        agent.reward(decision.id, bandit.reward(world, decision.arm))
        regret.append(means.max() - means[decision.arm])
    np.testing.assert_allclose(np.cumsum(regret), result.regret[0, 0], rtol=1e-9)


MODELS = [
    tsucb.BernoulliArms(),
    tsucb.GaussianArms(),
    tsucb.Linear(2),
    tsucb.ContextualLinear(2),
    tsucb.NIGLinear(2),
]
POLICIES = [
    tsucb.TSUCB(math.inf),
    tsucb.OFUL(),
    tsucb.Greedy(first=True),
    tsucb.Random(),
]


@pytest.mark.parametrize(
    ("model", "policy"),
    [(m, tsucb.Thompson()) for m in MODELS] + [(MODELS[-1], p) for p in POLICIES],
    ids=lambda thing: type(thing).__name__,
)
def test_models_and_policies(model, policy, tmp_path):
    rng = np.random.default_rng(1)
    agent = tsucb.Agent([*ARMS, 7], model=model, policy=policy, seed=1, keep_beliefs=True)
    for step in range(25):
        if step == 10:
            agent.add_arm("yellow")
            agent.remove_arm("green")
        some = None if step % 2 else agent.arms[1:]
        decision = agent.choose(context_for(agent, rng, some), arms=some)
        assert decision.arm in (some or agent.arms)
        if step % 3:
            agent.reward(decision.id, float(decision.arm == "yellow"))
    agent.save(tmp_path / "agent.tsucb")
    other = tsucb.Agent.load(tmp_path / "agent.tsucb")
    more = [context_for(agent, rng) for _ in range(10)]
    assert [agent.choose(x).id for x in more] == [other.choose(x).id for x in more]
    assert knowledge(agent).equals(knowledge(other))


def test_keeping_beliefs_changes_no_decision():
    xs = np.random.default_rng(2).normal(size=(20, 2))
    fast, slow = make(), make(keep_beliefs=True)
    for x in xs:
        one, two = fast.choose(x), slow.choose(x)
        assert one.id == two.id
        # Compiled in two places, sums may be taken in another order: to the last bits.
        pd.testing.assert_frame_equal(one.explain().table(), two.explain().table(), rtol=1e-12)
        assert 0 < two.probability <= 1
        fast.reward(one.id, x[0])
        slow.reward(two.id, x[0])
    with pytest.raises(ValueError, match="keep_beliefs=True"):
        _ = one.probability


def test_neural_linear(tmp_path):
    pytest.importorskip("jax")
    training = tsucb.Training(memory=40, interval=10, batches=5, batch_size=8)
    model = tsucb.NeuralLinear(2, (4, 3), training=training)
    agent = tsucb.Agent(ARMS, model=model, policy=tsucb.TSUCB(1), seed=0, keep_beliefs=True)
    rng = np.random.default_rng(0)
    first = [agent.choose(rng.normal(size=2)).arm for _ in range(6)]
    assert first == ARMS * 2  # every arm is pulled twice, though no reward has come yet
    for step in range(25):
        x = rng.normal(size=2)
        decision = agent.choose(x)
        agent.reward(decision.id, x[0])
        if step == 12:
            agent.add_arm("yellow")
            agent.remove_arm("red")
    agent.save(tmp_path / "agent.tsucb")
    other = tsucb.Agent.load(tmp_path / "agent.tsucb")
    for x in rng.normal(size=(15, 2)):
        one, two = agent.choose(x), other.choose(x)
        assert one.arm == two.arm != "red"
        agent.reward(one.id, x[1])
        other.reward(two.id, x[1])


def test_plain_python_policy_and_model(tmp_path):
    class Cautious:
        def choose(self, belief, rng):
            return int(np.argmax(belief.mean - belief.std))

    class Averages(tsucb.Model):
        def start(self, arms, rng=None):
            return (np.zeros(arms), np.zeros(arms))

        def extend(self, state, arms):
            return tuple(np.append(part, np.zeros(arms)) for part in state)

        def context_shape(self, arms):
            return ()

        def arms(self, state):
            return state[0].size

        def belief(self, state, context=None, arms=None, *, step=None, rng):
            pulls, total = state[0][arms], state[1][arms]
            return tsucb.GaussianBelief(total / (1 + pulls), 1 / np.sqrt(1 + pulls))

        def update(self, state, context, arm, reward):
            state[0][arm] += 1
            state[1][arm] += reward

    agent = tsucb.Agent(ARMS, model=Averages(), policy=Cautious())
    for _ in range(20):
        decision = agent.choose()
        agent.reward(decision.id, float(decision.arm == "blue"))
    agent.add_arm("yellow")
    assert agent.choose().arm in ARMS
    assert "Cautious" in str(agent.choose().explain())
    agent.save(tmp_path / "a")
    with pytest.raises(ValueError, match="was saved with Averages, which is not part of tsucb"):
        tsucb.Agent.load(tmp_path / "a")
    other = tsucb.Agent.load(tmp_path / "a", model=Averages(), policy=Cautious())
    assert other.choose().arm == agent.choose().arm
    with pytest.raises(ValueError, match="Averages cannot forget"):
        make(model=Averages(), features=None, forgetting=0.9)


# Contexts


def test_contexts_by_name_are_vectors():
    by_name, by_place = make(features=["age", "hour"]), make()
    for age, hour in np.random.default_rng(0).normal(size=(10, 2)):
        one = by_name.choose({"hour": hour, "age": age})
        two = by_place.choose([age, hour])
        assert one.id == two.id
        by_name.reward(one.id, age)
        by_place.reward(two.id, age)


def test_features_per_arm():
    rows = {"red": [1.0, 0.0], "green": [0.0, 1.0], "blue": [1.0, 1.0]}
    first, second = (make(model=tsucb.Linear(2), policy=tsucb.TSUCB(1)) for _ in range(2))
    for step in range(20):
        some = ARMS if step % 2 else ["blue", "red"]
        one = first.choose(rows, arms=some)
        two = second.choose(np.array([rows[name] for name in some]), arms=some)
        assert one.id == two.id
        first.reward(one.id, rows[one.arm][0])
        second.update(rows[two.arm], two.arm, rows[two.arm][0])
        assert second.expire(-1) == 1
    # Both learned the same, though once from the decision and once from the arm's own features.
    assert coefficients(first).equals(coefficients(second))
    assert coefficients(first).loc["red"].x0 > 0.5 > coefficients(first).loc["red"].x1


def test_the_callers_array_may_change_afterwards():
    x, agent, other = np.array([1.0, 2.0]), make(), make()
    decision = agent.choose(x)
    x[:] = 99.0
    agent.reward(decision.id, 1.0)
    other.update([1.0, 2.0], decision.arm, 1.0)
    assert coefficients(agent).equals(coefficients(other))


def test_a_batch_is_the_same_as_one_by_one():
    xs = np.random.default_rng(0).normal(size=(8, 2))
    table = pd.DataFrame(xs, columns=["age", "hour"])
    one = make()
    expected = [one.choose(x).id for x in xs]
    assert [d.id for d in make().choose_many(xs)] == expected
    assert [d.id for d in make().choose_many(xs.tolist())] == expected
    named = make(features=["age", "hour"])
    assert [d.id for d in named.choose_many(table)] == expected
    assert make().choose_many([]) == []
    assert len(make(model=tsucb.BernoulliArms(), features=None).choose_many([None] * 3)) == 3


def test_scikit_learn_transforms_contexts(tmp_path):
    feature_extraction = pytest.importorskip("sklearn.feature_extraction")
    examples = [{"device": "phone", "hour": 3}, {"device": "tablet", "hour": 15}]
    encoder = feature_extraction.DictVectorizer().fit(examples)  # gives sparse matrices
    agent = make(features=3, transformer=encoder)
    decision = agent.choose({"device": "phone", "hour": 5})
    agent.reward(decision.id, 1.0)
    agent.save(tmp_path / "agent.tsucb")
    with pytest.raises(ValueError, match="saved with a transformer"):
        tsucb.Agent.load(tmp_path / "agent.tsucb")
    other = tsucb.Agent.load(tmp_path / "agent.tsucb", transformer=encoder)
    assert other.choose(examples[0]).id == agent.choose(examples[0]).id
    plain = make(features=3)
    plain.update([1.0, 0.0, 5.0], decision.arm, 1.0)
    assert coefficients(agent).x2.equals(coefficients(plain).x2)


def test_streaming_transformers_learn():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    scaler = preprocessing.StandardScaler()
    agent = make(transformer=scaler, streaming=True)
    for x in np.random.default_rng(0).normal(5.0, 3.0, size=(400, 2)):
        agent.choose(x)
    assert scaler.n_samples_seen_ == 400
    np.testing.assert_allclose(scaler.mean_, 5.0, atol=0.75)  # five standard errors


# Late rewards


def test_rewards_in_any_order_teach_the_same():
    xs = np.random.default_rng(0).normal(size=(40, 2))
    agents = [make(), make()]
    for agent, order in zip(agents, (1, -1), strict=True):
        ids = [agent.choose(x).id for x in xs]
        for id, x in list(zip(ids, xs, strict=True))[::order]:
            agent.reward(id, x[0] - x[1])
    np.testing.assert_allclose(coefficients(agents[0]), coefficients(agents[1]), atol=1e-12)


def test_answers_to_odd_rewards():
    agent = make()
    decision = agent.choose([1.0, 2.0])
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite number"):
            agent.reward(decision.id, wrong)
    assert agent.open_decisions == 1
    assert agent.reward(decision.id, 1.0) is True
    with pytest.raises(UnknownDecision, match="was rewarded, expired or dropped before"):
        agent.reward(decision.id, 1.0)
    for id in ("2-00000000", "nonsense", "", None):
        with pytest.raises(UnknownDecision, match="never made by this agent"):
            agent.reward(id, 1.0)
    assert agent.arms_summary().pulls.sum() == 1
    bernoulli = make(model=tsucb.BernoulliArms(), features=None)
    with pytest.raises(ValueError, match="between 0 and 1"):
        bernoulli.reward(bernoulli.choose().id, 2.0)


def test_a_removed_arm_learns_nothing_even_if_its_name_returns():
    agent = make(arms=["red", "green"])
    decision = agent.choose([1.0, 0.0], arms=["red"])
    agent.remove_arm("red")
    agent.add_arm("red")
    assert agent.reward(decision.id, 1.0) is False
    assert agent.open_decisions == 0
    summary = agent.arms_summary()
    assert list(summary.index) == ["green", "red"]
    assert summary.pulls.tolist() == [0, 0]
    assert coefficients(agent).x0.tolist() == [0.0, 0.0]


def test_expiry():
    now = [0.0]
    agent = make(clock=lambda: now[0])
    first = agent.choose([1.0, 0.0], arms=["red"])
    now[0] = 100.0
    second = agent.choose([1.0, 0.0], arms=["red"])
    now[0] = 130.0
    assert agent.expire(timedelta(minutes=1), reward=2.0) == 1
    assert agent.arms_summary().loc["red", ["pulls", "open", "mean_reward"]].tolist() == [1, 1, 2]
    with pytest.raises(UnknownDecision, match="expired"):
        agent.reward(first.id, 1.0)
    assert agent.expire(10) == 1
    assert agent.arms_summary().loc["red", "pulls"] == 1  # without a reward nothing is learned
    with pytest.raises(UnknownDecision):
        agent.reward(second.id, 1.0)


def test_open_decisions_are_bounded():
    agent = make(max_open=3)
    ids = [agent.choose([1.0, 0.0]).id for _ in range(5)]
    assert (agent.open_decisions, agent.dropped) == (3, 2)
    with pytest.raises(UnknownDecision, match="dropped"):
        agent.reward(ids[0], 1.0)
    assert agent.reward(ids[4], 1.0)


def test_ids_of_lost_decisions_are_not_reused(tmp_path):
    agent = make()
    agent.save(tmp_path / "agent.tsucb")
    lost = agent.choose([1.0, 2.0])
    restarted = tsucb.Agent.load(tmp_path / "agent.tsucb")
    restarted.choose([3.0, 4.0])
    with pytest.raises(UnknownDecision, match="lost when an older file was loaded"):
        restarted.reward(lost.id, 1.0)


# Arms


def test_ten_thousand_arms_one_by_one():
    agent = make(arms=[0], features=4, policy=tsucb.TSUCB(1))
    for name in range(1, 10_000):
        agent.add_arm(name)
    decision = agent.choose([1.0, 2.0, 3.0, 4.0])
    agent.reward(decision.id, 1.0)
    for name in range(0, 10_000, 2):
        agent.remove_arm(name)
    assert len(agent.choose([1.0, 2.0, 3.0, 4.0]).explain().arms) == 5_000


def test_what_arms_know_survives_others_leaving():
    agent, other = make(), make()
    for name, reward in zip(ARMS, (1.0, 2.0, 3.0), strict=True):
        for each in (agent, other):
            each.update([1.0, 0.5], name, reward)
    agent.remove_arm("red")
    agent.add_arm("yellow")
    agent.update([1.0, 0.5], "yellow", 4.0)
    assert coefficients(agent).loc[["green", "blue"]].equals(coefficients(other)[1:])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make(arms=[]), ValueError, "at least one arm"),
        (lambda: make(arms="red"), TypeError, r"such as \['red'\]"),
        (lambda: make(arms=["a", "a"]), ValueError, "already"),
        (lambda: make(arms=[1.5]), TypeError, "a string or an integer"),
        (lambda: make(arms=[True]), TypeError, "a string or an integer"),
        (lambda: make(categories=["zip"]), ValueError, "reads by itself"),
        (lambda: make(features="age"), TypeError, "list of names"),
        (lambda: make(features=["a", "a"]), ValueError, "named twice"),
        (lambda: make(features=3, model=tsucb.NIGLinear(2)), ValueError, "leave off features"),
        (lambda: make(model="NIGLinear"), TypeError, "tsucb.NIGLinear"),
        (lambda: make(policy=tsucb.TSUCB), TypeError, "instance"),
        (lambda: make(seed=-1), ValueError, "seed"),
        (lambda: make(max_open=0), ValueError, "max_open"),
        (lambda: make(max_open=None), ValueError, "max_open"),
        (lambda: make(max_open=math.inf), ValueError, "max_open"),
        (lambda: make(arms=3), TypeError, "list of names"),
        (lambda: tsucb.Agent(ARMS, features=2.5), TypeError, "list of names"),
        (lambda: make(features={"a", "b"}), TypeError, "list of names"),
        (lambda: make().expire(None), ValueError, "age in seconds"),
        (lambda: make().fit(None), ValueError, "three arrays"),
        (lambda: make().fit(np.ones(3)), ValueError, "three arrays"),
        (lambda: make().update([1, 2], "red", None), TypeError, "a reward must be a number"),
        (lambda: make().update([1, 2], "red", "1"), TypeError, "a reward must be a number"),
        (lambda: make(keep_beliefs="no"), TypeError, "True or False"),
        (lambda: tsucb.Greedy(first="no"), TypeError, "True or False"),
        (lambda: make(forgetting=0), ValueError, "forgetting"),
        (lambda: make(forgetting=1.1), ValueError, "forgetting"),
        (lambda: make(transformer=3), TypeError, "transform"),
        (lambda: make(streaming=True), TypeError, "partial_fit"),
        (lambda: make().choose(), ValueError, "needs a context"),
        (lambda: make().choose([1.0]), ValueError, r"shape \(1,\), but NIGLinear expects \(2,\)"),
        (lambda: make().choose([1.0, math.nan]), ValueError, "NaN or infinity"),
        (lambda: make().choose(np.array([1.0, math.inf])), ValueError, "NaN or infinity"),
        (lambda: make().choose(["phone", 1]), TypeError, "with a transformer"),
        (lambda: make().choose(np.array(["phone", "1"])), TypeError, "with a transformer"),
        (lambda: make().choose({"a": 1, "b": 2}), TypeError, "names of its features"),
        (lambda: make(features=["a", "b"]).choose({"a": 1}), ValueError, "unknown: 'b'"),
        (lambda: make(features=["a"]).choose({"a": 1, "c": 2}), ValueError, "unknown: 'c'"),
        (lambda: make().choose([1, 2], arms=[]), ValueError, "no arm is available"),
        (lambda: make().choose([1, 2], arms=["pink"]), ValueError, "no arm 'pink'"),
        (lambda: make().choose([1, 2], arms="red"), TypeError, "list of names"),
        (lambda: make().choose([1, 2], arms=["red", "red"]), ValueError, "twice"),
        (lambda: make().update([1, math.nan], "red", 1.0), ValueError, "NaN or infinity"),
        (lambda: make().update([1, 2], "pink", 1.0), ValueError, "no arm 'pink'"),
        (lambda: make(model=tsucb.Linear(2)).choose([1, 2]), ValueError, "each of the 3 available"),
        (
            lambda: make(model=tsucb.Linear(2)).choose({"red": [1, 2]}),
            ValueError,
            "no features for the arms 'green', 'blue'",
        ),
        (
            lambda: make(model=tsucb.BernoulliArms(), features=None).choose([1]),
            ValueError,
            "takes no context",
        ),
        (
            lambda: make(model=tsucb.BernoulliArms(), features=None).choose(np.array(1.0)),
            ValueError,
            "takes no context",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Logged data


def test_warm_start_from_arrays_and_tables():
    rng = np.random.default_rng(0)
    xs, names = rng.normal(size=(60, 2)), rng.choice(ARMS, 60)
    rewards = xs[:, 0] + rng.normal(size=60)
    columns = {"age": xs[:, 0], "hour": xs[:, 1], "offer": names, "paid": rewards}
    one_by_one = make(features=["age", "hour"])
    for x, name, reward in zip(xs, names, rewards, strict=True):
        one_by_one.update(x, str(name), reward)
    expected = knowledge(one_by_one)
    for table in (columns, pd.DataFrame(columns), pl.DataFrame(columns)):
        agent = make(features=["age", "hour"])
        agent.fit(table, arm="offer", reward="paid")
        pd.testing.assert_frame_equal(knowledge(agent), expected, rtol=1e-12)
    agent = make(features=["age", "hour"])
    agent.fit((xs, names, rewards))
    learned = knowledge(agent)
    pd.testing.assert_frame_equal(learned, expected, rtol=1e-12)

    for wrong, message in (
        ((xs, names), "three arrays"),
        ((xs, names, rewards[:-1]), "do not match"),
        ((xs, ["pink"] * 60, rewards), "no arm 'pink'"),
        ((xs, names, [math.nan] * 60), "finite"),
        ((None, names, rewards), "needs a context"),
        ({"arm": names}, "no column 'reward'"),
        ({"arm": names, "reward": rewards, "age": rewards}, "features 'hour'"),
    ):
        with pytest.raises(ValueError, match=message):
            agent.fit(wrong)
    assert knowledge(agent).equals(learned)  # nothing was learned from any of them
    assert agent.choose(xs[0]).id == one_by_one.choose(xs[0]).id

    counts = tsucb.Agent(ARMS, model=tsucb.BernoulliArms(), seed=0)
    counts.fit({"arm": ["red", "red"], "reward": [1, 0]})
    assert counts.arms_summary().pulls.tolist() == [2, 0, 0]


# Forgetting


@pytest.mark.parametrize("model", MODELS[1:3] + MODELS[4:], ids=lambda m: type(m).__name__)
def test_what_is_not_seen_returns_to_the_prior(model):
    """An arm seen long ago has the prior's belief again; its posterior is always proper."""
    agent = tsucb.Agent(["red", "green"], model=model, seed=0, forgetting=0.8, keep_beliefs=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=2) if model.context_shape(1) else None
    other = np.zeros(2) if isinstance(model, tsucb.Linear) else x
    fresh = tsucb.Agent(["red", "green"], model=model, seed=0).coefficients()
    for _ in range(50):
        agent.update(x, "red", 1.0)
    assert (agent.coefficients().loc["red", "std"] <= fresh.loc["red", "std"] * 1.01).all()
    for _ in range(400):
        agent.update(other, "green", 0.0)
    old, new = (table.loc["red"].to_numpy() for table in (agent.coefficients(), fresh))
    np.testing.assert_allclose(old, new, atol=1e-6)


def test_forgetting_follows_a_change():
    """After two arms swap their rewards, an agent that forgets finds the better one sooner."""

    def late_choices(forgetting):
        agent = make(arms=["a", "b"], features=1, policy=tsucb.TSUCB(1), forgetting=forgetting)
        for step in range(900):
            decision = agent.choose([1.0])
            good = "a" if step < 600 else "b"
            agent.reward(decision.id, float(decision.arm == good))
            if step >= 700:
                yield decision.arm == good

    assert np.mean(list(late_choices(0.97))) > 0.9
    assert np.mean(list(late_choices(1.0))) < 0.5


# Why


def test_explanation():
    agent = make(policy=tsucb.TSUCB(5))
    for name, reward in zip(ARMS, (0.0, 0.5, 1.0), strict=True):
        for _ in range(20):
            agent.update([1.0, 0.0], name, reward)
    decision = agent.choose([1.0, 0.0], arms=["blue", "red"])
    why = decision.explain()
    assert why.arms == ("blue", "red")
    assert why.estimate == pytest.approx([20 / 20.25, 0.0])
    assert why.ratio == pytest.approx((why.target - why.estimate) / why.radius)
    assert decision.arm == why.arms[int(np.argmin(why.ratio))]
    assert why.alpha == why.ratio.min()
    # Equation (3): the smallest factor with which some bound reaches f̃, and it is the arm's.
    bounds = why.estimate + why.alpha * why.radius
    assert bounds.max() == pytest.approx(why.target)
    assert why.arms[int(np.argmax(bounds))] == decision.arm
    printed = str(why).splitlines()
    assert printed[0].startswith(f"TS-UCB(5) chose {decision.arm!r}: f̃ = ")
    assert [line.split()[0] for line in printed[1:]] == ["arm", "blue", "red"]
    agent.update([1.0, 0.0], "blue", 99.0)  # it stays as it was
    assert decision.explain().estimate == pytest.approx([20 / 20.25, 0.0])

    greedy = make(policy=tsucb.Greedy()).choose([1.0, 0.0]).explain()
    assert greedy.target == greedy.mean.max()
    assert "ratio" not in greedy.table()
    assert "largest mean" in str(greedy)
    first = tsucb.Agent(ARMS, model=tsucb.BernoulliArms(), seed=0).choose()
    assert "first pulls" in str(first.explain())
    assert first.probability == 1.0


def test_notebooks_show_escaped_tables():
    agent = tsucb.Agent(["<b>", "c"], features=1, seed=0)
    decision = agent.choose([1.0])
    for page in (agent._repr_html_(), decision._repr_html_(), decision.explain()._repr_html_()):
        assert page.startswith("<table")
        assert "&lt;b&gt;" in page
        assert "<b>" not in page


def test_arms_with_features_that_stay_the_same(tmp_path):
    """Their features need not be given with every decision."""
    prices = {"tea": {"price": 1.0}, "milk": {"price": 3.0}}
    agent, other = tsucb.Agent(prices, seed=0), tsucb.Agent(seed=0)
    assert agent.arms == ("tea", "milk")
    for step in range(20):
        x, value = {"hour": float(step % 5)}, float(step % 3)
        for each, features in ((agent, {}), (other, {"features": prices["tea"]})):
            each.update(x, "tea", value, **features)
    x = {"hour": 2.0}
    found, expected = agent.estimate(x), other.estimate(x, prices)
    assert found.mean.tolist() == pytest.approx(expected.mean.tolist())
    agent.add_arm("beer", {"price": 2.0})
    assert agent.choose(x, ["beer"]).arm == "beer"
    agent.fit(([x], ["milk"], [1.0]))
    agent.save(tmp_path / "agent")
    again = tsucb.Agent.load(tmp_path / "agent")
    assert again.estimate(x).mean.tolist() == agent.estimate(x).mean.tolist()
    fresh = tsucb.Agent(prices, seed=1)
    fresh.update(x, "milk", 1.0)
    merged = tsucb.merge(tsucb.Agent(prices, seed=2), fresh)
    assert merged.arms_summary()["pulls"].tolist() == [0, 1]
    agent.remove_arm("tea")
    assert len(agent.estimate(x).arms) == 2
    linear = tsucb.Agent({"a": [1.0, 0.0], "b": [0.0, 1.0]}, model=tsucb.Linear(2), seed=0)
    linear.update(None, "a", 3.0)
    assert linear.estimate().mean[0] > linear.estimate().mean[1]


def test_policies_may_be_named():
    assert tsucb.Agent(["a"], policy="TS-UCB(7)").policy == tsucb.TSUCB(7)
    agent = tsucb.Agent(["a"], policy="TS+5%")
    assert agent.exploration == 0.05
    agent.follow("Greedy")
    assert agent.policy == tsucb.Greedy()


def test_summary():
    agent = make(features=["age", "hour"])
    agent.update([1.0, 0.0], "green", 2.0)
    agent.choose([1.0, 0.0], arms=["green"])
    row = agent.arms_summary().loc["green"]
    assert row[["pulls", "open", "mean_reward"]].tolist() == [1, 1, 2.0]
    # One observation: precision 1.25, mean 2/1.25; a = 6.5, b = 6 + (4 − 1.25 · 1.6²)/2.
    age, hour = (agent.coefficients().loc["green", name] for name in ("age", "hour"))
    assert age["mean"] == pytest.approx(1.6)
    assert age["std"] == pytest.approx(math.sqrt((6 + (4 - 1.25 * 1.6**2) / 2) / 5.5 / 1.25))
    assert hour["std"] == pytest.approx(math.sqrt((6 + (4 - 1.25 * 1.6**2) / 2) / 5.5 / 0.25))
    assert list(agent.arms_summary().index) == ARMS


# Threads


def test_threads_neither_corrupt_nor_lose_anything():
    agent = make(policy=tsucb.TSUCB(1))
    seen, failures = [], []

    def work(number):
        rng = np.random.default_rng(number)
        try:
            waiting = []
            for step in range(300):
                x = rng.normal(size=2)
                decision = agent.choose(x)
                waiting.append((decision.id, x, decision.arm))
                if step % 50 == 0:
                    agent.add_arm(f"{number}-{step}")
                if step % 3 == 2:
                    for id, context, arm in waiting:
                        reward = float(rng.normal())
                        assert agent.reward(id, reward)
                        seen.append((context, arm, reward))
                    waiting.clear()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert agent.open_decisions == 0
    summary = agent.arms_summary()
    assert summary.pulls.sum() == len(seen) == 1800
    assert len(summary) == 3 + 6 * 6
    learned = coefficients(agent)
    for name in summary.index:
        own = [(x, reward) for x, arm, reward in seen if arm == name]
        xs = np.array([x for x, _ in own]).reshape(-1, 2)
        rewards = np.array([reward for _, reward in own])
        exact = np.linalg.solve(0.25 * np.eye(2) + xs.T @ xs, xs.T @ rewards)
        np.testing.assert_allclose(learned.loc[name], exact, atol=1e-9)


def test_a_lost_decision_is_never_taken_for_one_of_another_arm(tmp_path):
    """Also without contexts, and for any order of the arms."""
    path = tmp_path / "agent"
    tsucb.Agent(["a", "b"], model=tsucb.BernoulliArms(), seed=0).save(path)
    first, second = (tsucb.Agent.load(path) for _ in range(2))
    first.choose(arms=["a"])
    lost = first.choose(arms=["b"])
    second.choose(arms=["b"])
    second.choose(arms=["a"])
    with pytest.raises(tsucb.UnknownDecision):
        second.reward(lost.id, 1.0)


def test_huge_numbers_are_refused_and_large_ones_survive_a_file(tmp_path):
    agent = make()
    for context, reward in (([1e60, 0.0], 1.0), ([1.0, 0.0], 1e60)):
        with pytest.raises(ValueError, match="1e\\+30"):
            agent.update(context, "red", reward)
    with pytest.raises(ValueError, match="1e\\+30"):
        agent.choose(np.array([1e60, 0.0]))
    for _ in range(3):
        agent.update([1e30, -1e30], "red", 1e30)
    agent.save(tmp_path / "agent")
    assert np.isfinite(tsucb.Agent.load(tmp_path / "agent").choose([1e30, 1.0]).explain().std).all()


def test_decisions_expire_by_their_own_age_when_the_clock_steps_back():
    now = [1000.0]
    agent = make(clock=lambda: now[0])
    agent.choose([1.0, 0.0])
    now[0] = 0.0
    agent.choose([1.0, 0.0])
    now[0] = 500.0
    assert agent.expire(100) == 1
    with pytest.raises(ValueError, match="age in seconds"):
        agent.expire(math.nan)


def test_names_become_plain_strings_and_integers(tmp_path):
    arms = enum.Enum("arms", {"one": "a", "two": "b"}, type=str)
    agent = tsucb.Agent(list(arms), np.int64(1), seed=np.int64(3))
    assert agent.arms == ("a", "b")
    assert type(agent.arms[0]) is str
    assert agent.choose([1.0], arms=[arms.two]).arm == "b"
    agent.save(tmp_path / "agent")
    assert tsucb.Agent.load(tmp_path / "agent").choose([1.0]).id == agent.choose([1.0]).id
    with pytest.raises(TypeError, match="named by strings"):
        tsucb.Agent(["a"], [("x", 1)])
    with pytest.raises(TypeError, match="give the id"):
        agent.reward(agent.choose([1.0]), 1.0)
    with pytest.raises(tsucb.UnknownDecision):
        agent.reward("9" * 5000 + "-1", 1.0)


def test_a_transformer_gets_the_rows_of_a_table():
    feature_extraction = pytest.importorskip("sklearn.feature_extraction")
    rows = [{"one": 1, "device": "phone"}, {"one": 1, "device": "tablet"}]
    encoder = feature_extraction.DictVectorizer().fit(rows)
    history = {"one": [1, 1], "device": ["phone", "tablet"], "arm": ["a", "b"], "reward": [1, 0]}
    agents = [tsucb.Agent(["a", "b"], 3, transformer=encoder, seed=0) for _ in range(2)]
    agents[0].fit(history)
    agents[1].fit(pd.DataFrame(history))
    chosen = [
        [decision.id for decision in agent.choose_many(contexts)]
        for agent, contexts in zip(agents, (iter(rows), pd.DataFrame(rows)), strict=True)
    ]
    assert chosen[0] == chosen[1]
    with pytest.raises(ValueError, match="no column for the features 'device'"):
        tsucb.Agent(["a"], ["one", "device"]).choose_many(pd.DataFrame({"one": [1.0]}))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_an_interrupt_finds_every_call_done_or_not_done():
    """In a process of its own: some of the exceptions come where nobody can catch them."""
    script = Path(__file__).with_name("interrupts.py")
    done = subprocess.run([sys.executable, script, "300"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "all held" in done.stdout


def test_a_copy_has_the_model_of_the_moment_it_was_taken() -> None:
    """Another thread that widens the model just before the copy's lock does not make it fail."""

    class Widening(tsucb.Agent):
        def _hold(self):  # type: ignore[no-untyped-def]
            self.choose({"u": 1.0, "new": 2.0}, {"x": {"p": 1.0}})
            return super()._hold()

    agent = Widening(seed=0)
    agent.choose({"u": 1.0}, {"x": {"p": 1.0}})
    assert tsucb.Agent.digest(copy.deepcopy(agent)) != ""
