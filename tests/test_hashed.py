"""Large sparse contexts: a diagonal posterior over hashed columns."""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import tsucb
from tsucb.agent import storage
from tsucb.contexts.hashing import HashingEncoder
from tsucb.models.hashed_linear import (
    CONSTANT,
    MEAN,
    PRECISION,
    HashedLinear,
    outlook,
    relative,
)
from tsucb.models.structure import leaves


def pairs(columns, values):
    """Return a row of columns and values."""
    return np.column_stack([columns, values]).reshape(-1).astype(float)


def visitors(count, seed=0):
    """Return contexts of strings, numbers and gaps, and rewards of two arms that depend on them."""
    rng = np.random.default_rng(seed)
    cities, hours = rng.choice(["Rome", "Oslo", "Lima"], count), rng.integers(0, 24, count)
    ages = [None if rng.random() < 0.1 else float(a) for a in rng.normal(40, 12, count)]
    contexts = [
        {"city": str(c), "hour": int(h), "age": a}
        for c, h, a in zip(cities, hours, ages, strict=True)
    ]
    home = cities == "Rome"
    means = np.column_stack([home, ~home]).astype(float)
    return contexts, means + 0.3 * rng.normal(size=(count, 2))


def played(agent, contexts, rewards):
    """Return the arms that an agent plays, which is rewarded at once."""
    arms = []
    for x, r in zip(contexts, rewards, strict=True):
        decision = agent.choose(x)
        agent.reward(decision.id, float(r[agent.arms.index(decision.arm)]))
        arms.append(decision.arm)
    return arms


# The posterior


def test_every_reward_is_learned_by_bayes_rule_then_correlations_are_dropped():
    """Against matrices: the joint posterior of all coefficients after a reward, cut to diagonal."""
    rng = np.random.default_rng(1)
    model, d = HashedLinear(bits=3, features=6), 8
    state = model.start(1)
    model.update(state, np.zeros(6), 0, 2.0)
    for _ in range(60):
        used = rng.choice(np.arange(1, d), 3, replace=False)
        row, reward = pairs(used, rng.normal(size=3)), rng.normal()
        x = np.eye(d)[0]
        x[used] = row[1::2]
        _, prior = outlook(state, row)
        precision = state.columns[:, 0, PRECISION] + np.where(np.arange(d), prior, CONSTANT)
        mean, cov = state.columns[:, 0, MEAN].copy(), np.diag(1 / precision)
        gain = cov @ x / (1 + x @ cov @ x)
        level = state.level[0]
        expected = mean + gain * (reward - level - x @ mean)
        variances = np.diag(cov - np.outer(gain, x @ cov))
        model.update(state, row, 0, reward)
        # The constant is relative to the mean of all rewards, which has moved.
        moved = state.level[0] - level
        after = state.columns[0, 0, PRECISION]
        expected[0] -= moved * after / (CONSTANT + after)
        np.testing.assert_allclose(state.columns[:, 0, MEAN], expected, rtol=1e-9, atol=1e-12)
        now = state.columns[:, 0, PRECISION] + np.where(np.arange(d), prior, CONSTANT)
        np.testing.assert_allclose(1 / now, variances, rtol=1e-9)


def test_columns_that_never_meet_have_the_exact_posterior():
    """One column per context, the constant known, prior variance equal to the noise's."""
    rng = np.random.default_rng(2)
    model = HashedLinear(bits=4, features=2)
    state = model.start(1)
    state.columns[0, 0, PRECISION] = 1e15
    state.learned[0], state.size[0], state.spread[0] = 1.0, 1.0, 1e9  # a ratio of 1 that stays
    columns, signs = rng.integers(1, 16, 200), rng.choice([-1.0, 1.0], 200)
    rewards = rng.normal(size=200)
    for column, sign, reward in zip(columns, signs, rewards, strict=True):
        model.update(state, pairs([column], [sign]), 0, reward)
    level = state.level[0] + state.columns[0, 0, MEAN]
    assert level == pytest.approx(0, abs=1e-9)
    for column in range(1, 16):
        mine = columns == column
        assert state.columns[column, 0, PRECISION] == pytest.approx(mine.sum())
        exact = (signs * rewards)[mine].sum() / (1 + mine.sum())
        assert state.columns[column, 0, MEAN] == pytest.approx(exact, abs=1e-9)


def test_without_context_it_is_the_normal_posterior_of_every_arm():
    rng = np.random.default_rng(3)
    model, arms, rewards = HashedLinear(bits=2), rng.integers(0, 3, 50), rng.normal(size=50)
    state = model.fit(4, None, arms, rewards)
    belief = model.belief(state, rng=rng)
    counts = np.bincount(arms, minlength=4)
    sums = np.bincount(arms, rewards, minlength=4)
    np.testing.assert_allclose(belief.mean, (rewards.mean() + sums) / (1 + counts))
    np.testing.assert_allclose(belief.std / belief.std[3], (1 + counts) ** -0.5)


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_intervals_cover_what_they_say(noise):
    """Six categorical features, true coefficients normal, 3,000 rewards of arms at random.

    Of 2,000 intervals of 90 %, which share 60 coefficients, at least 80 % cover. With noise well
    below the signal fewer do: `benchmarks/sparse.py coverage`.
    """
    rng, features, levels = np.random.default_rng(4), 6, 5
    beta = rng.normal(size=(2, features * levels)) / features**0.5
    model = HashedLinear(bits=10, features=2 * features)

    def draw(count):
        columns = rng.integers(0, levels, (count, features)) + levels * np.arange(features)
        rows = np.stack([columns + 1.0, np.ones(columns.shape)], axis=2).reshape(count, -1)
        return rows, beta[:, columns].sum(axis=2).T

    rows, means = draw(3000)
    arms = rng.integers(0, 2, 3000)
    rewards = means[np.arange(3000), arms] + noise * rng.normal(size=3000)
    state = model.fit(2, rows, arms, rewards)
    rows, means = draw(1000)
    beliefs = [model.belief(state, row, rng=rng) for row in rows]
    errors = np.array([(b.mean - m) / b.std for b, m in zip(beliefs, means, strict=True)])
    assert (np.abs(errors) < 1.645).mean() > 0.8
    assert np.mean([b.std for b in beliefs]) < 0.3 * noise


def test_columns_that_always_come_together_are_believed_less_than_they_could_be():
    """Nine equal columns in every other row: the belief misses how well their sum is known."""
    rng = np.random.default_rng(0)
    alone, together = HashedLinear(bits=4, features=2), HashedLinear(bits=4, features=18)
    row, rewards = pairs(range(1, 10), [1.0] * 9), rng.normal(size=500)
    spreads = [
        model.belief(model.fit(1, [x, 0 * x] * 250, [0] * 500, rewards), x, rng=rng).std[0]
        for model, x in ((alone, row[:2]), (together, row))
    ]
    assert 1.5 * spreads[0] < spreads[1] < 9**0.5 * spreads[0]


@pytest.mark.parametrize(("always", "later"), [(1.0, 0.0), (2.0, 1.0), (-3.0, 4.0)])
def test_a_column_that_was_constant_begins_to_vary(always, later):
    """Rewards are 10 + noise as long as the column has one value, and 3 + noise at another."""
    rng, model = np.random.default_rng(0), HashedLinear(bits=6, features=4)
    old, new = pairs([5, 9], [always, 1.0]), pairs([5, 9], [later, 1.0])
    arms = np.arange(1200) % 2
    state = model.fit(2, [old] * 1200, arms, 10 + rng.normal(size=1200))
    before, changed = (model.belief(state, row, rng=rng) for row in (old, new))
    assert (np.abs(before.mean - 10) < 4 * before.std).all()
    assert (before.std < 0.05).all()
    assert (np.abs(changed.mean - 3) < 3 * changed.std).all()
    for _ in range(10):
        model.update(state, new, 0, 3 + rng.normal())
    before, changed = (model.belief(state, row, rng=rng) for row in (old, new))
    assert abs(changed.mean[0] - 3) < 4 * changed.std[0] < 2
    assert changed.std[1] > 1  # the other arm was not played there
    assert (np.abs(before.mean - 10) < 4 * before.std).all()


def test_a_number_that_was_constant_begins_to_vary():
    """The column may explain all of the mean reward; five rewards tell how much it does."""
    rng, agent = np.random.default_rng(0), tsucb.Agent(["a", "b"], model=HashedLinear(bits=10))
    for n in range(500):
        agent.update({"x": rng.normal(), "c": 10.0}, "ab"[n % 2], 10 + 0.1 * rng.normal())
    before = agent.estimate({"x": 0.0, "c": 3.0})
    assert (np.abs(np.array(before.mean) - 3) < 2 * np.array(before.std)).all()
    for _ in range(5):
        agent.update({"x": rng.normal(), "c": 3.0}, "a", 3 + 0.1 * rng.normal())
    after = agent.estimate({"x": 0.0, "c": 3.0})
    assert abs(after.mean[0] - 3) < 4 * after.std[0] < 2
    assert after.std[1] > 1  # the other arm was not played there


def test_columns_that_turn_out_not_to_matter():
    """Ten columns that were constant vary, and rewards stay: the next ones are believed to."""
    rng, model = np.random.default_rng(0), HashedLinear(bits=8, features=20)
    rows = np.stack([np.tile(np.arange(1.0, 11.0), (540, 1)), np.ones((540, 10))], axis=2)
    for n in range(10):
        rows[500 + 4 * n : 504 + 4 * n, n, 1] = 0.0
    rows = rows.reshape(540, 20)
    state = model.fit(1, rows[:500], [0] * 500, 10 + rng.normal(size=500))
    first = model.belief(state, rows[-1], rng=rng)
    for row in rows[500:536]:
        model.update(state, row, 0, 10 + rng.normal())
    last = model.belief(state, rows[-1], rng=rng)
    assert abs(last.mean[0] - 10) < 2 * last.std[0] < first.std[0]


def test_a_country_that_was_the_only_one():
    rng, agent = np.random.default_rng(0), tsucb.Agent(["a", "b"], model=HashedLinear(bits=10))
    for n in range(400):
        agent.update({"country": "US", "x": rng.normal()}, "ab"[n % 2], 10 + rng.normal())
    for _ in range(30):
        agent.update({"country": "DE", "x": rng.normal()}, "a", 3 + rng.normal())
    here, there = (agent.estimate({"country": c, "x": 0.0}) for c in ("US", "DE"))
    assert abs(there.mean[0] - 3) < 4 * there.std[0] < 2
    assert there.std[1] > 5 * here.std[1]
    assert (np.abs(np.array(here.mean) - 10) < 4 * np.array(here.std)).all()


def test_anchored_columns_are_learned_relative_to_their_values():
    """Columns 5 and 7 were always 2 and 1, 7 as the sum of two features that share it."""
    rng, model = np.random.default_rng(1), HashedLinear(bits=4, features=10)

    def row(five, seven, other):
        return pairs([5, 7, 7, 3, 0], [five, seven - 0.25, 0.25, other, 0.0])

    state = model.start(2)
    for n in range(20):
        model.update(state, row(2.0, 1.0, n % 3), n % 2, rng.normal())
    assert sorted(state.anchors[: int(state.anchored[0])].tolist()) == [[5.0, 2.0], [7.0, 1.0]]
    assert not state.columns[[5, 7]].any()
    plain = state.copy()
    for n in range(50):
        five, seven, other = rng.integers(0, 3, 3).astype(float)
        given = pairs([3], [other]) if n % 5 == 0 else row(five, seven, other)
        five, seven = (0.0, 0.0) if n % 5 == 0 else (five, seven)
        expected = {5: five - 2.0, 7: seven - 1.0, 3: other}
        found = relative(state, given).reshape(-1, 2)
        assert {int(j): x for j, x in found if x} == {j: x for j, x in expected.items() if x}
        same, reward = pairs([3, 7, 5], [other, seven, five]), rng.normal()
        for one, two in ((state, given), (plain, same)):
            model.update(one, np.resize(np.append(two, np.zeros(10)), 10), n % 2, reward)
        np.testing.assert_allclose(state.columns, plain.columns, rtol=1e-9, atol=1e-12)
    state.check(70)
    state.place[5] = 0.0
    with pytest.raises(ValueError, match="anchors and the places of their columns"):
        state.check(70)
    state.place[5], state.anchored[0] = 1.0, 1e9
    with pytest.raises(ValueError, match="anchors and the places of their columns"):
        state.check(70)


def test_columns_that_are_0_in_most_rows_are_not_anchored():
    rng, model = np.random.default_rng(2), HashedLinear(bits=6, features=6)
    columns = rng.integers(0, 5, (60, 3)) + 5 * np.arange(3) + 1
    state = model.fit(2, [pairs(c, [1.0] * 3) for c in columns], [0, 1] * 30, rng.normal(size=60))
    assert not state.anchored.any()
    assert not state.anchors.any()
    assert not state.place.any()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_decisions_do_not_depend_on_the_unit_of_rewards(scale):
    contexts, rewards = visitors(300)
    plain = tsucb.Agent(["a", "b"], model=HashedLinear(bits=8), seed=5)
    other = tsucb.Agent(["a", "b"], model=HashedLinear(bits=8), seed=5)
    assert played(plain, contexts, rewards) == played(other, contexts, scale * rewards)


def test_it_learns():
    contexts, rewards = visitors(600)
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(bits=12, crossed=True), seed=0)
    arms = np.array(played(agent, contexts, rewards))[300:]
    best = np.array(["a" if x["city"] == "Rome" else "b" for x in contexts])[300:]
    assert (arms == best).mean() > 0.95


# Contexts


def test_hashes_are_the_same_in_every_process():
    code = (
        "from tsucb.contexts.hashing import HashingEncoder as E;"
        "print(E(18, True).encode({'city': 'Rome', 'hour': 7, 'zip': None}).tolist())"
    )
    rows = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert rows[0] == rows[1]
    assert rows[0].startswith("[147987.0, 1.0, 52430.0, 1.0, 164191.0, ")  # and in every release


def test_what_a_context_becomes():
    encoder = HashingEncoder(18, crossed=False, categories=["zip"])
    for age in (20.0, 40.0):
        encoder.encode({"age": age, "zip": 75001})
    found = encoder.describe({"age": 60, "zip": 75001, "city": None})
    assert found == [("age", pytest.approx(20 / np.std([20, 40, 60]))), ("zip=75001", 1.0),
                     ("city missing", 1.0)]  # fmt: skip
    assert encoder.describe({"age": 1e9})[0][1] < 3.0
    first = encoder.peek({"age": 60, "zip": "75001"})
    second = encoder.encode({"zip": 75001.0, "age": 60})
    assert first[:4].tolist() == second[[2, 3, 0, 1]].tolist()


def test_the_order_of_features_does_not_matter():
    encoder = HashingEncoder(18, crossed=True)
    one = encoder.encode({"a": "x", "b": "y", "c": "z"}).reshape(-1, 2)
    two = encoder.encode({"c": "z", "a": "x", "b": "y"}).reshape(-1, 2)
    assert sorted(map(tuple, one.tolist())) == sorted(map(tuple, two.tolist()))
    assert one[:6, 1].tolist() == [1.0] * 6
    assert len(set(one[:6, 0])) == 6


def test_a_table_is_read_as_its_rows_are():
    contexts, _ = visitors(40)
    one, two, three = (HashingEncoder(18, crossed=True) for _ in range(3))
    rows = [one.encode(x) for x in contexts]
    table = {name: [x[name] for x in contexts] for name in contexts[0]}
    np.testing.assert_array_equal(rows, two.encode_table(contexts))
    np.testing.assert_array_equal(rows, three.encode_table(table))
    assert one.state() == two.state() == three.state()
    frame = pd.DataFrame(table).astype({"age": float})
    np.testing.assert_array_equal(rows, HashingEncoder(18, crossed=True).encode_table(frame))
    mixed = one.encode_table({"code": ["a", 7]})
    assert mixed[1].tolist() == one.peek({"code": 7}).tolist() + [0.0] * (mixed.shape[1] - 32)
    again = one.restored(one.state())
    np.testing.assert_array_equal(again.encode(contexts[0]), one.encode(contexts[0]))


def test_long_and_empty_contexts():
    encoder = HashingEncoder(18, crossed=False)
    assert encoder.encode({f"word {i}": "yes" for i in range(5000)})[1::2].sum() == 5000
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(bits=8), seed=0)
    for context in (None, {}, {"city": "Rome"}, {}, None):
        assert agent.reward(agent.choose(context).id, 1.0)


def test_sparse_rows_are_taken_as_they_are():
    matrix = scipy.sparse.random(30, 200, density=0.03, rng=np.random.default_rng(0), format="csr")
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(bits=8), seed=0)
    for row in matrix:
        agent.reward(agent.choose(row).id, 1.0)
    assert len(agent.choose_many(matrix)) == 30
    agent.fit((matrix, ["a"] * 30, [0.5] * 30))
    first = matrix[:1].tocsr()
    assert agent.describe(first) == [
        (f"x{i}", x) for i, x in zip(first.indices, first.data.tolist(), strict=True)
    ]


# The agent


def test_decisions_of_a_batch_are_those_one_by_one():
    contexts, rewards = visitors(120)
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(bits=8), seed=1)
    played(agent, contexts, rewards)
    other = copy.copy(agent)
    assert agent.choose_many(contexts).ids == [other.choose(x).id for x in contexts]


def test_rows_become_longer_and_open_decisions_with_them(tmp_path):
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(bits=8, crossed=True), seed=1)
    early = agent.choose({"city": "Rome"})
    agent.choose({f"feature {i}": "yes" for i in range(40)})
    agent.save(tmp_path / "agent")
    for each in (agent, tsucb.Agent.load(tmp_path / "agent")):
        assert each.reward(early.id, 1.0)
        assert each.open_decisions == 1
    assert agent.estimate({f"feature {i}": "no" for i in range(90)}).arms


def test_a_file_has_only_the_columns_that_were_used(tmp_path):
    contexts, rewards = visitors(200)
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(crossed=True), exploration=0.1, seed=1)
    played(agent, contexts, rewards)
    agent.save(tmp_path / "agent")
    assert (tmp_path / "agent").stat().st_size < 50_000  # not 8 MB
    again = tsucb.Agent.load(tmp_path / "agent")
    assert again.digest() == agent.digest()
    assert played(again, contexts, rewards) == played(agent, contexts, rewards)
    agent.add_arm("c")
    agent.remove_arm("a")
    decision = agent.choose(contexts[0])
    assert decision.arm in ("b", "c")
    assert "b" in str(decision.explain())
    assert list(agent.coefficients().loc["c"].index) == ["constant"]


def test_sparse_arrays_in_files(tmp_path):
    dense, few = np.arange(20_000.0), np.zeros((200, 100))
    few[3, 4], few[7, 7], few[199, 99] = 5.0, -0.0, -1.0
    storage.write(tmp_path / "file", {}, [dense, few, np.zeros(30_000, np.float32)])
    assert (tmp_path / "file").stat().st_size < 161_000
    assert (tmp_path / "file").read_bytes().startswith(f"tsucb {storage.VERSION}\n".encode())
    _, back = storage.read(tmp_path / "file")
    for one, two in zip([dense, few, np.zeros(30_000, np.float32)], back, strict=True):
        assert one.dtype == two.dtype
        assert one.tobytes() == two.tobytes()
    back[1][0, 0] = 1.0  # they can be changed


@pytest.mark.parametrize(
    ("sparse", "message"),
    [
        ({"7": 3}, "sparse that it does not have"),
        ({"0": -1}, "impossible size"),
        ({"0": 2.0}, "impossible size"),
        ({"0": 5}, "length"),
        ([1], "damaged"),
        (None, "damaged"),
    ],
)
def test_sparse_arrays_that_lie_are_refused(sparse, message):
    import forgery

    whole = storage.packed({}, [np.eye(1, 20_000)])
    first, header, arrays = forgery.parts(whole)
    with pytest.raises(ValueError, match=message):
        storage.unpacked(forgery.together(first, header | {"sparse": sparse}, arrays))
    with pytest.raises(ValueError, match="impossible places"):
        storage.unpacked(forgery.together(first, header, b"\xff" * len(arrays)))


def test_bad_input_is_answered_in_a_sentence():
    agent = tsucb.Agent(["a", "b"], model=HashedLinear(bits=4), seed=0)
    agent.update({"age": 3.0}, "a", 1.0)
    before = agent.digest()
    wide = scipy.sparse.csr_matrix((1, 99))
    many = {f"word {i}": "yes" for i in range(1100)}
    for call, message in [
        (lambda: HashedLinear(bits=0), "bits must be a whole number of at least 1"),
        (lambda: HashedLinear(bits=25), "bits must be from 1 to 24"),
        (lambda: HashedLinear(crossed="no"), "crossed must be True or False"),
        (lambda: agent.choose_many(None), "contexts are a matrix, a table or a list of them"),
        (lambda: HashedLinear(features=3), "features must be even"),
        (lambda: agent.choose("Rome"), "features are given as a dictionary"),
        (lambda: agent.choose({"age": 1.0, "tags": ["x"]}), "the feature 'tags' is a list"),
        (lambda: agent.choose({"age": 1e40}), "the feature 'age' is 1e"),
        (lambda: agent.choose({3.5: "x"}), "features are named by strings"),
        (lambda: agent.choose(wide), "has 99 columns, but with 4 bits there are 15"),
        (lambda: agent.choose(scipy.sparse.csr_matrix((2, 9))), "is one row"),
        (lambda: agent.choose_many([{"age": 5.0}, {"age": "x", "y": b""}]), "the feature 'y'"),
        (lambda: HashingEncoder(18, True).encode(many), "1,100 features, which need more than"),
        (lambda: agent.choose_many({"age": [1, 2], "city": ["Rome"]}), "equally long"),
        (lambda: tsucb.merge(agent, copy.copy(agent)), "does not add up"),
        (lambda: tsucb.Agent(["a"], model=HashedLinear(), forgetting=0.9), "cannot forget"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()
    assert agent.digest() == before


def test_the_benchmark_plays_and_measures(tmp_path):
    from benchmarks import sparse

    contexts, labels = sparse.made()
    stream = {"contexts": contexts[:1000], "labels": labels[:1000].tolist(), "arms": 10}
    (tmp_path / "stream.json").write_text(json.dumps(stream))
    found = sparse.one_run("tsucb, hashed", tmp_path / "stream.json", 0)
    assert found["1000"] > 0.12  # chance is 0.1
    assert found["microseconds"] > 0
    covered, error, width = sparse.covered(1.0, 300, 6, False, 0)
    assert covered > 0.8
    assert 0.8 < error < 1.5
    assert 0.8 < width < 1.5


@pytest.mark.parametrize("column", [-3.7, -1.0, 2.5, 256.0])
def test_a_row_that_names_no_column_is_refused(column):
    """By the compiled rule itself, as in a simulation; nothing is learned from such a row."""
    model = tsucb.HashedLinear(bits=8, features=4)
    state, row = model.start(2), np.array([7.0, 1.0, column, 2.0])
    with pytest.raises(ValueError, match="whole numbers from 0"):
        model.update(state, row, 0, 1.0)
    with pytest.raises(ValueError, match="whole numbers from 0"):
        model.belief(state, row, rng=np.random.default_rng(0))
    for one, two in zip(leaves(state), leaves(model.start(2)), strict=True):
        assert np.array_equal(one, two)
    model.update(state, [7.0, 1.0, column, 0.0], 0, 1.0)  # a value of 0 is none
