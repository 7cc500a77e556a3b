"""Networks with other posteriors: their training and beliefs against plain NumPy ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import layers
from everything import network, rng

import tsucb
from tsucb.models.structure import leaves, side_by_side

jax = pytest.importorskip("jax", reason="networks train with JAX: pip install 'tsucb[deep]'")
pytest.importorskip("optax")

from tsucb.models.neural import training  # noqa: E402

ARMS, FEATURES = 3, 4
QUICK: dict[str, Any] = {
    "hidden": (6, 5), "memory": 64, "interval": 20, "batches": 5, "batch_size": 16,
}  # fmt: skip
MEMBERS = 3


def heads(**chosen: Any) -> Any:
    return network(tsucb.BootstrappedHeads, FEATURES, members=MEMBERS, **QUICK | chosen)


def deep(**chosen: Any) -> Any:
    return network(tsucb.DeepEnsemble, FEATURES, members=MEMBERS, **QUICK | chosen)


def laplace(**chosen: Any) -> Any:
    return network(tsucb.LastLayerLaplace, FEATURES, **QUICK | chosen)


def history(rows: int = 20, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return contexts, pulled arms and rewards."""
    draws = rng(seed)
    return (
        draws.normal(size=(rows, FEATURES)),
        draws.integers(ARMS, size=rows),
        draws.normal(1.0, 3.0, rows),
    )


def untrained(model: Any, rows: int = 20, seed: int = 0) -> Any:
    """Return a state that has seen a history and was not trained."""
    state = model.start(ARMS, rng(seed))
    x, arm, y = history(rows, seed)
    state.contexts[:rows], state.chosen[:rows], state.rewards[:rows] = x, arm, y
    state.seen[0] = rows
    state.pulls[:] = np.bincount(arm, minlength=ARMS)
    return state


# The same computations in NumPy, in double precision


def forward(model: Any, flat: Any, x: Any) -> tuple[Any, Any, Any]:
    """Return the two hidden layers and the outputs, (rows, heads, arms)."""
    w1, b1, w2, b2, w3, b3 = layers(model, flat.astype(float), ARMS)
    first = np.maximum(np.asarray(x, dtype=float) @ w1 + b1, 0)
    second = np.maximum(first @ w2 + b2, 0)
    return first, second, (second @ w3 + b3).reshape(len(x), model.heads, ARMS)


def weight_by_hand(place: int, head: int, key: Any) -> float:
    """`bootstrap_weights` with whole numbers of any size."""
    x = (((place * 0x9E3779B1 % 2**32) ^ int(key[0])) + head * 0x85EBCA77) % 2**32
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        x = ((x ^ (x >> 15)) * factor + int(key[1])) % 2**32
    return 2.0 * ((x ^ (x >> 16)) >> 31)


def trained_by_hand(model: Any, state: Any, count: int, number: int) -> tuple[Any, Any]:
    """Return one training of one network by the recipe: its parameters and second moments."""
    flat, squares = (part[number].astype(float) for part in (state.parameters, state.squares))
    rule, size = model.training, model.training.batch_size
    key = jax.random.wrap_key_data(state.key, impl="threefry2x32")
    spread = state.rewards[:count].std()
    for batch in range(rule.batches):
        with jax.enable_x64(True):
            own = jax.random.fold_in(key, batch * model.networks + number)
            pick = np.asarray(jax.random.randint(own, (size,), 0, count))
        x, each = state.contexts[pick].astype(float), np.arange(size)
        chosen = state.chosen[pick]
        first, second, out = forward(model, flat, x)
        target = np.repeat(state.rewards[pick][:, None], model.heads, axis=1)
        weights = np.ones((size, model.heads))
        if model.has_priors:
            said = forward(model, state.prior[number], x)[2][each, :, chosen]
            target = target - model.prior_scale * spread * said
            weights = np.array(
                [[weight_by_hand(int(p), h, state.key) for h in range(model.heads)] for p in pick]
            )
        error = weights * (out[each, :, chosen] - target)
        back = np.zeros(out.shape)
        back[each, :, chosen] = 2 * error / (size * model.heads)
        back = back.reshape(size, -1)
        _, _, w2, _, w3, _ = layers(model, flat, ARMS)
        back2 = (back @ w3.T) * (second > 0)
        back1 = (back2 @ w2.T) * (first > 0)
        parts = [x.T @ back1, back1.sum(0), first.T @ back2, back2.sum(0), second.T @ back]
        gradient = np.concatenate([part.ravel() for part in [*parts, back.sum(0)]])
        norm = np.linalg.norm(gradient)
        gradient *= min(1.0, rule.clip_norm / norm)
        squares = rule.moment_decay * squares + (1 - rule.moment_decay) * gradient**2
        flat = flat - rule.rate / (1 + rule.rate_decay * batch) * gradient / np.sqrt(
            squares + 1e-10
        )
    return flat, squares


@pytest.mark.parametrize("model", [heads(), deep()], ids=["heads", "deep"])
def test_training_is_the_recipe(model: Any) -> None:
    state, before = untrained(model), untrained(model)
    model.trainer([state])()
    assert state.spread[0] == pytest.approx(before.rewards[:20].std())
    for number in range(model.networks):
        flat, squares = trained_by_hand(model, before, 20, number)
        assert state.parameters[number] == pytest.approx(flat, abs=2e-4)
        assert state.squares[number] == pytest.approx(squares, rel=1e-2, abs=1e-4)
    assert (state.seen[0], state.batches[0]) == (20, 5)
    assert (state.prior == before.prior).all()


@pytest.mark.parametrize("model", [heads(prior_scale=2.0), deep()], ids=["heads", "deep"])
def test_beliefs_are_what_the_members_predict(model: Any) -> None:
    state = untrained(model)
    state.spread[0] = 3.0
    x = rng(3).normal(size=FEATURES)
    found = model.belief(state, x, [2, 0], rng=rng())
    expected = np.concatenate([forward(model, flat, [x])[2][0] for flat in state.parameters])
    if model.has_priors:
        expected += 2.0 * 3.0 * forward(model, state.prior[0], [x])[2][0]
    assert found.law.draws == pytest.approx(expected[:, [2, 0]], rel=1e-4)
    assert found.mean == pytest.approx(expected.mean(axis=0)[[2, 0]], rel=1e-4)
    assert found.std == pytest.approx(expected.std(axis=0)[[2, 0]], rel=1e-4)


@pytest.mark.parametrize("model", [heads(), laplace()], ids=["heads", "laplace"])
def test_an_accelerator_trains_the_same(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All networks at once, with rows filled up to multiples of eight: as they run on a GPU."""
    alone, together = (untrained(model) for _ in range(2))
    model.trainer([alone])()
    cached = (
        training.compiled_training,
        training.compiled_sums,
    )
    monkeypatch.setattr(training, "on_processor", lambda: False)
    for function in cached:
        function.cache_clear()
    train = model.trainer([together])
    assert train.history[0].shape[-1] == 8 > FEATURES
    train()
    for function in cached:
        function.cache_clear()
    for mine, other in zip(leaves(together), leaves(alone), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_a_laplace_posterior_is_the_formula() -> None:
    """N(w, (λI + Σφφᵀ/σ²)⁻¹) at the trained weights, arm by arm, in NumPy."""
    model = laplace(prior_scale=0.5)
    state = untrained(model, 60)
    model.trainer([state])()
    _, second, out = forward(model, state.parameters[0], state.contexts[:60])
    phi = np.column_stack([second, np.ones(60)])
    chosen, rewards = state.chosen[:60], state.rewards[:60]
    errors = rewards - out[np.arange(60), 0, chosen]
    variance = rewards.var()
    noise = (errors @ errors + variance) / 61
    assert state.noise[0] == pytest.approx(noise, rel=1e-4)
    last = np.vstack(layers(model, state.parameters[0], ARMS)[-2:])
    for arm in range(ARMS):
        mine = phi[chosen == arm]
        precision = np.eye(6) / (0.25 * variance) + mine.T @ mine / noise
        mean, root = (part[arm] for part in state.regressions.by_arm())
        assert mean == pytest.approx(last[:, arm], rel=1e-5)
        assert root @ root.T == pytest.approx(np.linalg.inv(precision), rel=1e-3, abs=1e-6)
        information = np.linalg.slogdet(precision)[1] + 6 * np.log(0.25 * variance)
        assert state.regressions.information[arm] == pytest.approx(information, rel=1e-3)
    assert state.pulls.tolist() == np.bincount(chosen).tolist()
    # In between, an observation is one step of Bayesian regression with that noise.
    x = rng(8).normal(size=FEATURES)
    z = np.append(forward(model, state.parameters[0], [x])[1][0], 1.0)
    mean, root = (part[1].copy() for part in state.regressions.by_arm())
    covariance = root @ root.T
    model.update(state, x, 1, 5.0)
    gain = covariance @ z / (z @ covariance @ z + state.noise[0])
    assert state.regressions.by_arm()[0][1] == pytest.approx(
        mean + gain * (5.0 - z @ mean), rel=1e-4
    )


@pytest.mark.parametrize("model", [heads(), deep(), laplace()], ids=["heads", "deep", "laplace"])
def test_a_run_trained_among_others_is_the_run_trained_alone(model: Any) -> None:
    apart = [untrained(model, seed=seed) for seed in range(3)]
    with pytest.raises(ValueError, match="side by side"):
        model.trainer(apart)
    together = side_by_side(apart)
    model.trainer(together)()
    alone = untrained(model, seed=1)
    model.trainer([alone])()
    np.testing.assert_array_equal(together[1].parameters, alone.parameters)


def test_a_training_that_diverges_is_as_if_it_had_not_been() -> None:
    model = deep(rate=1e30)
    state, before = untrained(model), untrained(model)
    train = model.trainer([state])
    for _ in range(2):  # and the next one starts from where this one did
        train()
        np.testing.assert_array_equal(state.parameters, before.parameters)
        np.testing.assert_array_equal(state.squares, before.squares)
    # Those beside it have trained.
    states = side_by_side([untrained(laplace(), seed=seed) for seed in range(2)])
    states[0].parameters[:] = 1e25
    laplace().trainer(states)()
    assert [state.parameters.max() == 1e25 for state in states] == [True, False]
    assert [state.noise[0] == 1.0 for state in states] == [True, False]


@pytest.mark.parametrize("model", [heads(), deep(), laplace()], ids=["heads", "deep", "laplace"])
def test_it_learns_a_rule_that_is_not_linear(model: Any) -> None:
    """Which of two arms pays is the sign of a product, which chance gets right half of the time."""
    x = rng(4).choice([-1.0, 1.0], size=(300, FEATURES))
    right = (x[:, 0] * x[:, 1] > 0).astype(int)
    arms = rng(5).integers(2, size=300)
    settings = QUICK | {"hidden": (20, 20), "batches": 60, "memory": 300, "interval": 100}
    wide = network(type(model), FEATURES, **settings | {"batch_size": 64})
    state = wide.fit(2, x, arms, (arms == right).astype(float))
    best = [wide.belief(state, x[i], rng=rng()).mean.argmax() for i in range(50)]
    assert np.mean(best == right[:50]) > 0.9


@pytest.mark.parametrize("model", [heads(), deep(), laplace()], ids=["heads", "deep", "laplace"])
def test_further_arms_leave_the_old_ones_as_they_were(model: Any) -> None:
    state = untrained(model)
    x = rng(6).normal(size=FEATURES)
    before, after = (
        model.belief(each, x, [0, 1, 2], rng=rng()) for each in (state, model.extend(state, 2))
    )
    assert after.mean == pytest.approx(before.mean)
    assert after.std == pytest.approx(before.std)


@pytest.mark.parametrize(
    ("make", "given", "sentence"),
    [
        (deep, {"hidden": ()}, "hidden is empty; give at least one hidden layer"),
        (deep, {"rate": 0.0}, "rate must be positive and finite"),
        (deep, {"moment_decay": 1.0}, "moment_decay must be at least 0 and below 1"),
        (heads, {"prior_scale": 0.0}, "prior_scale must be positive and finite"),
        (laplace, {"rate_decay": -1.0}, "rate_decay must be finite and not negative"),
        (laplace, {"prior_scale": -1.0}, "prior_scale must be positive and finite"),
    ],
)
def test_bad_settings_get_a_sentence(make: Any, given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(**given)


@pytest.mark.parametrize("model", [heads(), deep(), laplace()], ids=["heads", "deep", "laplace"])
def test_a_file_says_which_network_it_has(model: Any, tmp_path: Path) -> None:
    agent = tsucb.Agent(["a", "b"], model=model, policy=PlainGreedy(), seed=3)
    for t in range(25):
        decision = agent.choose(rng(t).normal(size=FEATURES))
        agent.reward(decision.id, float(t % 3))
    agent.save(tmp_path / "agent")
    again = tsucb.Agent.load(tmp_path / "agent", policy=PlainGreedy())
    assert again.model == model
    x = rng(9).normal(size=FEATURES)
    assert again.choose(x).arm == agent.choose(x).arm


class PlainGreedy:
    """Greedy in plain Python: nothing is compiled for it."""

    name = "plain greedy"

    def choose(self, belief: Any, rng: Any) -> int:
        return int(belief.mean.argmax())


def test_training_takes_the_learning_rate_of_the_model() -> None:
    def rates(model: Any) -> tuple[float, float]:
        return model.training.rate, model.training.rate_decay

    some = tsucb.Training(memory=500)
    assert rates(tsucb.NeuralLinear(2, training=some)) == (0.1, 0.5)
    assert rates(tsucb.DeepEnsemble(2, training=some)) == (0.03, 0.1)
    assert tsucb.NeuralLinear(2) == tsucb.NeuralLinear(2, training=tsucb.Training())
    assert rates(tsucb.LastLayerLaplace(2, training=tsucb.Training(rate=0.2))) == (0.2, 0.1)
    from_toml = tsucb.NeuralLinear(2, training={"memory": 500})  # type: ignore[arg-type]
    assert from_toml == tsucb.NeuralLinear(2, training=some)
    with pytest.raises(TypeError, match=r"training must be a tsucb.Training, such as Training\("):
        tsucb.NeuralLinear(2, training=500)  # type: ignore[arg-type]


def test_members_are_at_least_two() -> None:
    for cls in (tsucb.DeepEnsemble, tsucb.BootstrappedHeads):
        with pytest.raises(ValueError, match="members must be a whole number of at least 2"):
            cls(3, members=1)
