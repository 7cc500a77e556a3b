"""Triangular roots: they stay triangular and exact; predictions of many contexts at once."""

import copy
import subprocess
import sys

import numpy as np
import pytest

import tsucb
from tsucb.models.regressions import (
    Lanes,
    Rows,
    predict,
    predict_many,
    triangular,
)
from tsucb.models.structure import leaves


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kind", ["full", "lower", "upper", "zeros", "singular"])
def test_the_triangular_root_of_any_root(kind):
    root = rng().normal(size=(9, 9))
    root = {
        "full": root,
        "lower": np.tril(root),
        "upper": np.triu(root),
        "zeros": np.diag(np.arange(9) % 2.0),
        "singular": root * (np.arange(9) < 4),
    }[kind]
    found = triangular(root)
    assert not np.tril(found, -1).any()
    assert (np.diag(found) >= 0).all() or kind == "upper"
    np.testing.assert_allclose(found @ found.T, root @ root.T, atol=1e-12)


@pytest.mark.parametrize("features", [1, 2, 3, 5, 8, 9, 20, 21, 24, 31])
def test_updates_against_the_exact_posterior(features):
    """Many updates, scales over eight orders of magnitude, near collinearity, zeros, a full prior.

    The reference is one weighted QR decomposition of all observations.
    """
    stream, count, noise = rng(features), 400, 0.01
    scales = 10.0 ** stream.uniform(-4, 4, size=features)
    common = stream.normal(size=features)
    x = (common + 1e-4 * stream.normal(size=(count, features))) * scales
    x[stream.random((count, features)) < 0.2] = 0.0
    y = x @ (stream.normal(size=features) / scales) + noise * stream.normal(size=count)
    mixing = np.tril(stream.normal(size=(features, features)), -1) + 2 * np.eye(features)
    prior = (mixing / scales[:, None]) @ (mixing / scales[:, None]).T
    mean = stream.normal(size=features) / scales
    model = tsucb.ContextualLinear(features, noise, prior_mean=mean, prior_covariance=prior)
    state = model.fit(3, x, np.ones(count, dtype=int), y)
    assert isinstance(state, Lanes if features <= 20 else Rows)

    # In units of the scales: rows of the prior's inverse root, then the observations.
    start = np.linalg.inv(mixing)
    rows = np.vstack([start, x / scales / noise])
    right = np.concatenate([start @ (mean * scales), y / noise])
    q, r = np.linalg.qr(rows)
    exact_mean = np.linalg.solve(r, q.T @ right)
    covariance = np.linalg.inv(r) @ np.linalg.inv(r).T
    found_mean, root = state.posterior(1)
    assert not np.tril(root, -1).any()
    scaled = root * scales[:, None]
    spread = np.sqrt(np.diag(covariance))
    error = np.abs(scaled @ scaled.T - covariance) / np.outer(spread, spread)
    assert error.max() < 1e-6
    assert (np.abs(found_mean * scales - exact_mean) / spread).max() < 1e-5
    assert state.information[1] == pytest.approx(
        2 * np.log(np.abs(np.diag(r))).sum() + 2 * np.log(np.diag(mixing)).sum(), rel=1e-6
    )
    for other in (0, 2):  # arms without rewards
        mean_there, root_there = state.posterior(other)
        np.testing.assert_array_equal(mean_there, mean)
        np.testing.assert_allclose(root_there @ root_there.T, prior, rtol=1e-9)


@pytest.mark.parametrize(("features", "arms"), [(203, 3), (256, 1), (20, 2_700), (24, 2_000)])
def test_long_rows_and_many_arms(features, arms):
    """Large roots, which are read in another order, or ahead, against NumPy."""
    stream, noise = rng(features), 0.5
    covariance, center = np.eye(features) / features, np.zeros(features)
    model = tsucb.ContextualLinear(features, noise, prior_covariance=covariance)
    state = model.start(arms)
    for _ in range(40):
        x, reward = stream.normal(size=features), stream.normal()
        x[stream.random(features) < 0.3] = 0.0
        gain = covariance @ x / (x @ covariance @ x + noise**2)
        center = center + gain * (reward - x @ center)
        covariance = covariance - np.outer(gain, x @ covariance)
        model.update(state, x, arms - 1, reward)
    mean, root = state.posterior(arms - 1)
    np.testing.assert_allclose(mean, center, atol=1e-10)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-10)
    assert not np.tril(root, -1).any()
    x[stream.random(features) < 0.3] = 0.0
    expected, spread = predict(state, x, np.arange(arms))
    np.testing.assert_allclose(expected[-1], center @ x, atol=1e-10)
    np.testing.assert_allclose(spread[-1], np.sqrt(x @ covariance @ x), rtol=1e-8)
    np.testing.assert_allclose(spread[:-1], np.linalg.norm(x) / np.sqrt(features), rtol=1e-12)
    assert not expected[:-1].any()


def below_the_diagonal(state):
    """Yield the entries below the diagonals of the roots in a state."""
    for part in (state, *getattr(state, "__dict__", {}).values(), *state):
        if isinstance(part, Lanes):
            yield np.tril(part.root.transpose(2, 0, 1), -1)
        elif isinstance(part, Rows):
            yield np.tril(part.root, -1)


@pytest.mark.parametrize("features", [3, 23])
@pytest.mark.parametrize(
    "make",
    [tsucb.ContextualLinear, tsucb.NIGLinear, tsucb.AdaptiveLinear, tsucb.LogisticArms],
    ids=lambda make: make.__name__,
)
def test_roots_stay_triangular(make, features):
    """Through learning, training, further arms and, where there is one, a merger."""
    model, stream = make(features), rng(1)
    x, arms = stream.normal(size=(60, features)), np.arange(60) % 3
    y = stream.integers(2, size=60).astype(float)
    base = model.fit(3, x[:20], arms[:20], y[:20])
    state = copy.deepcopy(base)
    model.update(state, x[20:], arms[20:], y[20:])
    states = [base, state, model.extend(state, 2)]
    if make is not tsucb.LogisticArms:
        states.append(model.merged(state, copy.deepcopy(state), base))
    for each in states:
        found = list(below_the_diagonal(each))
        assert found
        assert not any(part.any() for part in found)
        model.check_state(each, 1000)
    assert all(np.isfinite(array).all() for array in leaves(state))
    root = next(part.root for part in (state, *state) if isinstance(part, Lanes | Rows))
    root[(2, 1, 0) if features < 20 else (0, 2, 1)] = 1e-3
    with pytest.raises(ValueError, match="triangular"):
        model.check_state(state, 1000)


def test_the_shared_root_of_a_hybrid_model_is_triangular():
    model, stream = tsucb.HybridLinear(2, context=2), rng(2)
    rows = stream.normal(size=(40, 3, 4))
    state = model.fit(3, rows, np.arange(40) % 3, stream.normal(size=40))
    root = state.theta.root[0]
    assert np.abs(np.tril(root, -1)).max() <= 1e-12 * np.abs(root).max()


@pytest.mark.parametrize("features", [1, 6, 20, 21, 24, 29])
@pytest.mark.parametrize("arms", [1, 3, 8, 21, 43])
def test_many_contexts_are_predicted_as_one_by_one(features, arms):
    stream = rng(features)
    model = tsucb.ContextualLinear(features, 0.5)
    count = 8 * arms
    state = model.fit(
        arms,
        stream.normal(size=(count, features)),
        np.arange(count) % arms,
        stream.normal(size=count),
    )
    some = stream.permutation(arms)[: max(arms - 2, 1)]
    for rows in (0, 1, 4, 7):
        contexts = stream.normal(size=(rows, features))
        contexts[1::2, ::3] = 0.0
        for wanted in (np.arange(arms), some):
            mean, std = predict_many(state, contexts, wanted)
            assert mean.shape == std.shape == (rows, wanted.size)
            assert mean.flags.c_contiguous
            assert std.flags.c_contiguous
            for x, expected, spread in zip(contexts, mean, std, strict=True):
                alone = predict(state, x, wanted)
                np.testing.assert_allclose(alone[0], expected, rtol=0, atol=1e-12)
                np.testing.assert_allclose(alone[1], spread, rtol=1e-12)
                for a, k in enumerate(wanted):
                    center, root = state.posterior(k)
                    assert expected[a] == pytest.approx(center @ x, abs=1e-12)
                    assert spread[a] == pytest.approx(np.linalg.norm(root.T @ x), rel=1e-12)


AT_THE_END_OF_A_PAGE = """
import ctypes, mmap, sys
import numpy as np
from tsucb.models.regressions import Rows, predict_many
state = Rows.blank({"arm": 2, "coefficient": int(sys.argv[1])})
memory, size = mmap.mmap(-1, 2 * mmap.PAGESIZE), state.root.size
address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + mmap.PAGESIZE
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0) == 0
root = np.frombuffer(memory, offset=mmap.PAGESIZE - 8 * size, count=size)
state = state._replace(root=root.reshape(state.root.shape))
mean, std = predict_many(state, np.ones((5, state.root.shape[1])), np.arange(2))
assert not mean.any() and not std.any()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page of memory")
@pytest.mark.parametrize("features", [1, 3, 7, 9])
def test_nothing_is_read_behind_the_roots(features):
    code = [sys.executable, "-c", AT_THE_END_OF_A_PAGE, str(features)]
    assert subprocess.run(code, check=False).returncode == 0


@pytest.mark.parametrize("other", [
    "", "-", "7", "7-", "-a", "0-a", "07-a", "7-0a", "7-A", "7-g", "7--a", " 7-a", "7-a ", "7-a-b",
    "+7-a", "7_0-a", "7-a_b", "visit 7", "9" * 19 + "-a", "9" * 5000 + "-a", "7-" + "f" * 17,
    "\u0667-a", "7-a\n8-b", "\ud800",
])  # fmt: skip
def test_other_texts_are_no_ids_of_decisions(other):
    agent = tsucb.Agent(["a"], features=1, seed=0)
    (id,) = agent.choose_many([[1.0]]).ids
    for call in (agent.reward, lambda id, value: agent.reward_many([id], [value])):
        with pytest.raises(tsucb.UnknownDecision):
            call(other, 1.0)
    assert agent.reward(id, 1.0)


@pytest.mark.parametrize(("arms", "features"), [(10, 10), (3, 24)])
def test_many_decisions_are_those_one_by_one(arms, features, monkeypatch):
    """Equal ids, which depend on arms and contexts, and equal explanations."""
    monkeypatch.setattr("tsucb.agent.batch.PIECE", 16)
    stream = rng(3)
    x, y = stream.normal(size=(50, features)), stream.normal(size=50)
    model = tsucb.ContextualLinear(features)
    one, many = (
        tsucb.Agent(range(arms), model=model, policy=tsucb.TSUCB(1), seed=4) for _ in range(2)
    )
    for agent in (one, many):
        agent.fit((x, np.arange(50) % arms, y))
    expected, found = [one.choose(row) for row in x], many.choose_many(x)
    assert found.ids == [decision.id for decision in expected]
    for n in (0, 15, 16, 49):
        there, here = expected[n].explain(), found[n].explain()
        assert (there.chosen, there.favourite) == (here.chosen, here.favourite)
        for name in ("mean", "std", "estimate", "radius"):
            np.testing.assert_allclose(getattr(here, name), getattr(there, name), rtol=1e-12)
    # A whole batch, then single ones of another, in any order.
    again = many.choose_many(x)
    for decision in [one.choose(row) for row in x]:
        expected.append(decision)
    assert many.reward_many(found, y) == 50
    with pytest.raises(tsucb.UnknownDecision, match="is not open"):
        many.reward_many(found, y)
    some = [3, 41, 7]
    assert many.reward_many([again.ids[n] for n in some], y[some].tolist()) == 3
    for n in range(50):
        one.reward(expected[n].id, y[n])
    for n in some:
        one.reward(expected[50 + n].id, y[n])
    assert many.open_decisions == one.open_decisions == 47
    with pytest.raises(tsucb.UnknownDecision):
        many.reward_many(again.ids, y)
    np.testing.assert_allclose(many.estimate(x[0]).std, one.estimate(x[0]).std, rtol=1e-12)
    many._learner.known.state.check(200)
