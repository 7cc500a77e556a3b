"""Models that learn their prior, at the limits of what they accept: always sound, always finite."""

from typing import Any

import numpy as np
import pytest

import tsucb
from tsucb.agent import storage
from tsucb.checks import flush_tiny
from tsucb.models.structure import leaves, pack, unpack

STEPS = 25


def numbers(rng: np.random.Generator, count: int, largest: float) -> np.ndarray:
    """Return features or rewards of any size: constant, growing, far away, or mostly 0."""
    size = min(10.0 ** rng.choice([-30, -9, 0, rng.uniform(-30, 30), 30]), largest)
    values, time = size * rng.normal(size=count), np.arange(count)
    match rng.integers(9):
        case 0:
            values[:] = size
        case 1:  # constant at first
            values[: count // 2] = size
        case 2:
            values *= np.geomspace(1.0, 1e6, count)
        case 3:
            values[time >= count // 2] *= 1e6
        case 4:  # a huge anchor
            values[0] = largest
        case 5:
            values = size + 1e-8 * values
        case 6:
            values[rng.random(count) < 0.9] = 0.0
        case 7:
            values = size * rng.standard_cauchy(count)
    return flush_tiny(np.clip(values, -largest, largest))  # smaller numbers count as 0


def contexts_of(model: Any, arms: int, rng: np.random.Generator) -> np.ndarray:
    """Return a context for every step."""
    if isinstance(model, tsucb.HybridLinear):
        x = [numbers(rng, STEPS, model.largest) for _ in range(model.context)]
        z = [numbers(rng, arms, model.largest) for _ in range(model.features)]
        rows = np.zeros((STEPS, arms, len(x) + len(z)))
        rows[:, :, : len(x)] = np.array(x).reshape(len(x), STEPS).T[:, None]
        rows[:, :, len(x) :] = np.array(z).reshape(len(z), arms).T
        return rows
    return np.array([numbers(rng, STEPS, model.largest) for _ in range(model.features)]).T


def made(kind: str, rng: np.random.Generator) -> Any:
    """Return a model of a kind, of any small size."""
    d, c = (int(n) for n in rng.integers(1, 4, size=2))
    match kind:
        case "adaptive":
            return tsucb.AdaptiveLinear(d)
        case "hybrid":
            crossed, own_slopes = (bool(b) for b in rng.random(2) < 0.8)
            return tsucb.HybridLinear(d, c - 1, crossed, own_slopes)
    return tsucb.LogisticArms(d, laplace=bool(rng.random() < 0.3))


def check(model: Any, state: Any, context: np.ndarray, rewards: int, whole: bool) -> tsucb.Belief:
    """Return whether a state could be saved and loaded, and its beliefs are finite."""
    model.check_state(state, rewards, whole)
    arrays: list[Any] = []
    packed = pack(state, arrays)
    loaded = unpack(packed, storage.unpacked(storage.packed({}, arrays))[1], state)
    for one, two in zip(leaves(state), leaves(loaded), strict=True):
        np.testing.assert_array_equal(one, two)
    belief = model.belief(state, context, rng=np.random.default_rng(0))
    assert np.isfinite(belief.mean).all()
    assert ((belief.std >= 0) & np.isfinite(belief.std)).all()
    return belief


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["adaptive", "hybrid", "logistic"])
def test_whatever_is_accepted_can_be_saved(kind: str, seed: int) -> None:
    """Random histories of extremes, and all that is done to states between rewards."""
    rng = np.random.default_rng(seed)
    plain = model = made(kind, rng)
    if seed % 4 == 3:
        model = tsucb.Forgetting(plain, float(rng.choice([0.9, 0.5, 1e-6])))
    arms, clicks = 3, rng.random(STEPS) < rng.choice([0.01, 0.5])
    contexts = contexts_of(plain, arms, rng)
    rewards = clicks.astype(float) if kind == "logistic" else numbers(rng, STEPS, plain.largest)
    played = rng.integers(arms, size=STEPS)
    state = model.start(arms)
    middle = model.start(arms)
    for t in range(STEPS):
        model.update(state, contexts[t], played[t], rewards[t])
        check(model, state, contexts[t], t + 1, model is plain)
        settled = getattr(state, "inner", state).copy()
        plain.settle(settled)
        belief = check(plain, settled, contexts[t], t + 1, model is plain)
        if kind != "logistic" and settled.known[0]:  # two rewards differ by more than rounding
            assert belief.std[played[t]] <= 30 * np.ptp(rewards[: t + 1])
        if rng.random() < 0.1 and t < STEPS // 2:
            model.release(state, np.array([played[t]]))
        if t == STEPS // 2:
            middle = state.copy()
    if model is plain and model.merges:
        both = model.merged(state, state, middle)
        check(model, both, contexts[-1], 2 * STEPS, True)
    longer = model.extend(state, 2)
    model.check_state(longer, STEPS)
    if kind == "adaptive":
        wide = model.widened(plain.features + 2)
        wide.check_state(model.widen(state, plain.features + 2), STEPS)
    if kind == "hybrid":
        size = (plain.context + 1, plain.features + 1)
        model.widened(size).check_state(model.widen(state, size), STEPS)


def test_beliefs_follow_features_that_grow_a_million_fold() -> None:
    """Rewards grow with them, the noise does not: it is learned again in the new units."""
    rng = np.random.default_rng(0)
    model, slopes = tsucb.AdaptiveLinear(2), rng.normal(size=(2, 2))
    state = model.start(2)
    for t in range(1000):
        x = rng.normal(size=2) * (1.0 if t < 500 else 1e6)
        model.update(state, x, t % 2, x @ slopes[t % 2] + 0.5 * rng.normal())
    belief = model.belief(state, x, rng=rng)
    # Noise below 1e-4 of the rewards' standard deviation, 1e6 here, counts as that; the guess of
    # the noise has left as much again and more after 500 rewards.
    assert (belief.std < 15 * 100 / np.sqrt(500) * np.linalg.norm(x / 1e6)).all()
    np.testing.assert_allclose(belief.mean, x @ slopes.T, atol=30.0)


@pytest.mark.parametrize(
    "model", [tsucb.HybridLinear(1, 1), tsucb.LogisticArms(2)], ids=lambda m: type(m).__name__
)
def test_features_that_are_too_large_are_refused(model: Any) -> None:
    state = model.start(1)
    context = np.full(model.context_shape(1), 1e25)
    with pytest.raises(ValueError, match=r"a number beyond ±1e\+20; every entry must be finite"):
        model.update(state, context, 0, 1.0)
    assert not state.started[0]
