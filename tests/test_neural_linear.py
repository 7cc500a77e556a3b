"""NeuralLinear: its training against a plain NumPy one, its posterior against NIGLinear's."""

import sys
from typing import Any

import numpy as np
import pytest
from by_hand import layers
from everything import network

import tsucb
from tsucb import NeuralLinear
from tsucb.extras import MissingExtra
from tsucb.models.regressions import MOST_LANE_FEATURES, Lanes, Rows
from tsucb.paper.datasets.bandits import ClassificationBandit

jax = pytest.importorskip("jax", reason="NeuralLinear trains with JAX: pip install 'tsucb[deep]'")
pytest.importorskip("optax")

ARMS, FEATURES = 3, 4


def small(**chosen: Any) -> NeuralLinear:
    """Return a model whose trainings take milliseconds."""
    settings = {"memory": 64, "interval": 10, "batches": 6, "batch_size": 16}
    model: NeuralLinear = network(NeuralLinear, FEATURES, (6, 5), **settings | chosen)
    return model


def history(rows: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return contexts, pulled arms and rewards, large enough for gradients to be clipped."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, FEATURES)), rng.integers(ARMS, size=rows), rng.normal(0, 30, rows)


def hidden(model: NeuralLinear, state: Any, contexts: Any) -> Any:
    """Return the outputs of the last hidden layer, in double precision."""
    values = np.asarray(contexts, dtype=float)
    parts = layers(model, state.parameters[0].astype(float), ARMS)
    for weights, biases in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        values = np.maximum(values @ weights + biases, 0)
    return values


def trained_by_hand(model: NeuralLinear, state: Any, done: int, count: int) -> Any:
    """Return one training by the recipe: flat parameters and second moments afterwards."""
    rule = model.training
    flat, squares = state.parameters[0].astype(float), state.squares[0].astype(float)
    key = jax.random.wrap_key_data(state.key, impl="threefry2x32")
    clipped = 0
    for batch in range(done, done + rule.batches):
        with jax.enable_x64(True):
            pick = jax.random.randint(jax.random.fold_in(key, batch), (rule.batch_size,), 0, count)
        pick = np.asarray(pick)
        w1, b1, w2, b2, w3, b3 = layers(model, flat, ARMS)
        x, chosen, rewards = state.contexts[pick], state.chosen[pick], state.rewards[pick]
        first = np.maximum(x @ w1 + b1, 0)
        second = np.maximum(first @ w2 + b2, 0)
        errors = (second @ w3 + b3)[np.arange(pick.size), chosen] - rewards
        # The loss is the sum of squared errors of the pulled arms, divided by the batch size.
        out = np.zeros((pick.size, ARMS))
        out[np.arange(pick.size), chosen] = 2 * errors / rule.batch_size
        back2 = (out @ w3.T) * (second > 0)
        back1 = (back2 @ w2.T) * (first > 0)
        parts = [
            x.T @ back1,
            back1.sum(0),
            first.T @ back2,
            back2.sum(0),
            second.T @ out,
            out.sum(0),
        ]
        gradient = np.concatenate([part.ravel() for part in parts])
        norm = np.sqrt((gradient**2).sum())
        clipped += norm > rule.clip_norm
        gradient *= min(1, rule.clip_norm / norm)
        squares = rule.moment_decay * squares + (1 - rule.moment_decay) * gradient**2
        rate = rule.rate / (1 + rule.rate_decay * batch)
        flat = flat - rate * gradient / np.sqrt(squares + 1e-10)
    return flat, squares, clipped


def untrained(state: Any) -> Any:
    """Return the same memory, with the network as it is now."""
    return state._replace(parameters=state.parameters.copy(), squares=state.squares.copy())


def test_training_follows_the_recipe() -> None:
    model = small(interval=20)
    state = model.start(ARMS, np.random.default_rng(1))
    assert (np.abs(state.parameters) < 0.3).all()
    # 83 uniform numbers: the standard error of their deviation is 5 %, and this is four of them.
    assert state.parameters.std() == pytest.approx(0.3 / np.sqrt(3), rel=0.2)
    contexts, pulled, rewards = history(40)
    model.update(state, contexts[:19], pulled[:19], rewards[:19])
    before = untrained(state)
    model.update(state, contexts[19], pulled[19], rewards[19])
    flat, squares, clipped = trained_by_hand(model, before, done=0, count=20)
    assert clipped > 0
    np.testing.assert_allclose(state.parameters[0], flat, atol=2e-5)
    np.testing.assert_allclose(state.squares[0], squares, atol=2e-5)
    # The second training goes on with the rate and the moments of the first.
    model.update(state, contexts[20:39], pulled[20:39], rewards[20:39])
    before = untrained(state)
    model.update(state, contexts[39], pulled[39], rewards[39])
    flat, squares, _ = trained_by_hand(model, before, done=6, count=40)
    np.testing.assert_allclose(state.parameters[0], flat, atol=2e-5)
    np.testing.assert_allclose(state.squares[0], squares, atol=2e-5)
    assert (state.seen[0], state.batches[0]) == (40, 12)


@pytest.mark.parametrize("rows", [40, 47])
@pytest.mark.parametrize(
    ("width", "layout"),
    [(5, Lanes), (MOST_LANE_FEATURES, Lanes), (MOST_LANE_FEATURES + 1, Rows), (50, Rows)],
)
def test_the_posterior_is_that_of_nig_linear_on_the_features(
    rows: int, width: int, layout: type
) -> None:
    model = network(
        NeuralLinear, FEATURES, (6, width), memory=64, interval=10, batches=3, batch_size=16
    )
    contexts, pulled, rewards = history(rows)
    state = model.fit(ARMS, contexts, pulled, rewards)
    assert type(state.head.regressions) is layout
    expected = model.head.fit(ARMS, hidden(model, state, contexts), pulled, rewards)
    same_posterior(state.head, expected)
    belief, wanted = (
        m.belief(s, x, [2, 0], rng=np.random.default_rng(3))
        for m, s, x in (
            (model, state, contexts[0]),
            (model.head, expected, hidden(model, state, contexts[:1])[0]),
        )
    )
    np.testing.assert_allclose(belief.mean, wanted.mean, atol=1e-3)
    np.testing.assert_allclose(belief.std, wanted.std, rtol=1e-3)


def same_posterior(found: Any, expected: Any) -> None:
    (means, roots), (others, other_roots) = (s.regressions.by_arm() for s in (found, expected))
    np.testing.assert_allclose(means, others, atol=1e-4)
    for root, other in zip(roots, other_roots, strict=True):
        np.testing.assert_allclose(root @ root.T, other @ other.T, atol=1e-4)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-5)
    np.testing.assert_allclose(
        found.regressions.information, expected.regressions.information, atol=1e-4
    )
    np.testing.assert_array_equal(found.pulls, expected.pulls)


def test_beyond_its_memory_only_the_latest_observations_count() -> None:
    model = small(memory=25)
    contexts, pulled, rewards = history(40)
    state = model.fit(ARMS, contexts, pulled, rewards)
    latest = slice(15, 40)
    expected = model.head.fit(
        ARMS, hidden(model, state, contexts[latest]), pulled[latest], rewards[latest]
    )
    same_posterior(state.head, expected)


def test_many_observations_at_once_are_learned_in_their_order() -> None:
    model = small()
    contexts, pulled, rewards = history(23)
    together = model.fit(ARMS, contexts, pulled, rewards)
    alone = model.start(ARMS)
    for x, arm, reward in zip(contexts, pulled, rewards, strict=True):
        model.update(alone, x, arm, reward)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_belief_uses_the_features_of_the_network() -> None:
    model = small()
    contexts, pulled, rewards = history(15)
    state = model.fit(ARMS, contexts, pulled, rewards)
    belief = model.belief(state, contexts[0], [2, 0], rng=np.random.default_rng(3))
    features = hidden(model, state, contexts[:1])[0]
    expected = model.head.belief(state.head, features, [2, 0], rng=np.random.default_rng(3))
    np.testing.assert_allclose(belief.mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(belief.std, expected.std, rtol=1e-4)
    assert (belief.step, belief.dimension) == (16, 5)


def test_new_arms_leave_the_old_ones_as_they_were() -> None:
    model = small()
    contexts, pulled, rewards = history(20)
    state = model.fit(ARMS, contexts, pulled, rewards)
    wider = model.extend(state, 2)
    rng = np.random.default_rng
    old = model.belief(state, contexts[0], rng=rng(0))
    new = model.belief(wider, contexts[0], [0, 1, 2], rng=rng(0))
    np.testing.assert_array_equal(old.mean, new.mean)
    np.testing.assert_array_equal(model.belief(wider, contexts[0], [3, 4], rng=rng(0)).mean, 0)
    old, new = state.parameters[0], wider.parameters[0]
    last = old.size - ARMS * 6
    np.testing.assert_array_equal(new[:last], old[:last])
    before, after = old[last:].reshape(6, 3), new[last:].reshape(6, 5)
    np.testing.assert_array_equal(after[:, :3], before)
    assert (np.abs(after[:, 3:]) < 0.3).all()
    model.update(wider, contexts[:10], np.full(10, 4), rewards[:10])  # trains again
    assert wider.pulls.tolist() == [*state.pulls, 0, 10]


def exclusive_or(rows: int = 2000) -> ClassificationBandit:
    """The right arm depends on the product of two features: linear models cannot see it."""
    contexts = np.random.default_rng(0).normal(size=(rows, 2))
    return ClassificationBandit(contexts, contexts.prod(axis=1) > 0)


class Mine:
    """A policy in plain Python."""

    name = "mine"

    def choose(self, belief: Any, rng: np.random.Generator) -> int:
        return tsucb.Thompson().choose(belief, rng)


def test_simulation_is_the_same_alone_in_a_batch_and_in_plain_python() -> None:
    model = network(NeuralLinear, 2, (8, 4), memory=80, interval=20, batches=5, batch_size=32)
    settings: dict[str, Any] = {"horizon": 75, "progress": False}
    bandit, policies = exclusive_or(), [tsucb.Thompson()]
    batch = tsucb.simulate(bandit, model, policies, runs=3, workers=1, **settings).regret
    alone = tsucb.simulate(bandit, model, policies, runs=[2], workers=2, **settings).regret
    np.testing.assert_array_equal(batch[:, 2:], alone)
    python = tsucb.simulate(bandit, model, [Mine()], runs=[2], **settings).regret
    np.testing.assert_array_equal(python, alone)
    other = tsucb.simulate(bandit, model, policies, runs=3, seed=1, **settings).regret
    assert (other != batch).any()


def test_it_learns_what_a_linear_model_cannot() -> None:
    bandit = exclusive_or()
    settings: dict[str, Any] = {"horizon": 600, "runs": 4, "progress": False}
    model = network(NeuralLinear, 2, (16, 16), memory=600, batches=50, batch_size=64)
    deep = tsucb.simulate(bandit, model, [tsucb.Thompson()], **settings).regret
    flat = tsucb.simulate(bandit, tsucb.NIGLinear(2), [tsucb.Thompson()], **settings).regret
    # In the last hundred steps guessing loses 50; the linear model guesses.
    lost = [
        regret[0, :, -1] - regret[0, :, regret.shape[2] * 5 // 6 - 1] for regret in (deep, flat)
    ]
    assert lost[0].mean() < 25 < 35 < lost[1].mean()


def test_every_arm_is_pulled_twice_first() -> None:
    bandit, model = exclusive_or(), small(initial_pulls=2)._replace(features=2)
    with pytest.raises(ValueError, match=r"shorter than the 4 steps in which NeuralLinear pulls"):
        tsucb.simulate(bandit, model, [tsucb.Thompson()], horizon=3, runs=1)
    assert NeuralLinear(2).initial_pulls == 2


def test_a_horizon_beyond_the_rows_is_explained() -> None:
    with pytest.raises(ValueError, match=r"horizon of 2,001 is beyond the 2,000 rows of the data"):
        tsucb.simulate(exclusive_or(), tsucb.NIGLinear(2), [tsucb.Thompson()], horizon=2001, runs=1)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"features": 0}, "features must be a whole number of at least 1, but it is 0"),
        ({"hidden": ()}, "hidden is empty; give at least one hidden layer"),
        ({"hidden": (5, 0)}, "a width in hidden must be a whole number of at least 1"),
        ({"memory": 2.5}, "memory must be a whole number of at least 1, but it is 2.5"),
        ({"initial_pulls": -1}, "initial_pulls must be a whole number of at least 0"),
        ({"rate": 0.0}, "rate must be positive and finite"),
        ({"rate_decay": -0.5}, "rate_decay must be finite and not negative"),
        ({"moment_decay": 1.0}, "moment_decay must be at least 0 and below 1"),
        ({"clip_norm": np.inf}, "clip_norm must be positive and finite"),
        ({"prior_precision": -1.0}, "prior_precision must be positive in every direction"),
    ],
)
def test_bad_settings_are_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(NeuralLinear, **{"features": 2} | chosen)


def test_hidden_is_one_width_for_each_layer() -> None:
    with pytest.raises(TypeError, match=r"hidden must be a tuple of widths, such as \(50, 50\)"):
        NeuralLinear(2, hidden=5)  # type: ignore[arg-type]


def test_bad_observations_leave_the_state_untouched() -> None:
    model = small()
    state = model.start(ARMS)
    for context, arm, reward in (
        ([1.0], 0, 1.0),
        ([1.0, 2.0, np.nan, 0.0], 0, 1.0),
        ([1.0, 2.0, 3.0, 4.0], 3, 1.0),
        ([1.0, 2.0, 3.0, 4.0], 0, np.inf),
    ):
        with pytest.raises(ValueError, match=r"context|arm|reward"):
            model.update(state, context, arm, reward)
    assert (state.seen[0], state.batches[0]) == (0, 0)
    assert not state.pulls.any()


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    for name in ("last_layer_training", "training", "device"):
        monkeypatch.delitem(sys.modules, f"tsucb.models.neural.{name}", raising=False)
    with pytest.raises(MissingExtra, match=r"needs jax; install .*tsucb\[deep\]"):
        small().trainer([small().start(ARMS)])
