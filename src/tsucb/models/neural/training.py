"""Train the networks of many states at once, on the device that JAX finds.

The first axis of arrays is R states of equal shape, the second the N networks of each state. States
are stacked in memory, so one copy moves all of them to the device or back. A network's parameters
are one flat vector (see `NetworkState`). A history is a tuple of contexts (R, rows, d), chosen arms
(R, rows) and rewards (R, rows), of which the first rows are filled.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

import numpy as np

from tsucb.models.neural.device import jax, jnp, lax, optax
from tsucb.models.neural.network import MOST_OUTPUT, MOST_WEIGHT, NetworkModel
from tsucb.models.structure import stacked

# Otherwise a GPU may sum in another order every time, so that equal runs drift apart.
jit = functools.partial(jax.jit, compiler_options={"xla_gpu_deterministic_ops": True})

BLOCK = 512  # rows whose features are computed at once, to limit memory

Shapes = tuple[tuple[int, int], ...]  # inputs and outputs of every layer
Layers = list[tuple[Any, Any]]  # weights and biases of every layer


@functools.cache
def on_processor() -> bool:
    """Return whether JAX has found no accelerator."""
    return bool(jax.default_backend() == "cpu")


def padded(width: int) -> int:
    """Return the width of a row on the device; accelerators multiply multiples of 8 faster."""
    return width if on_processor() else -(-width // 8) * 8


def unflatten(flat: Any, shapes: Shapes) -> Layers:
    """Return weights and biases of each layer, padded with zeros to `padded` widths.

    The zeros stay zeros in training: a hidden unit without weights outputs 0 and learns nothing.
    """
    result, start = [], 0
    for inputs, outputs in shapes:
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        weights = flat[start:middle].reshape(inputs, outputs)
        more = padded(inputs) - inputs, padded(outputs) - outputs
        biases = jnp.pad(flat[middle:end], (0, more[1]))
        result.append((jnp.pad(weights, ((0, more[0]), (0, more[1]))), biases))
        start = end
    return result


def flatten(layers: Layers, shapes: Shapes) -> Any:
    """Return the layers as one vector, without padding."""
    parts = [
        part[tuple(slice(length) for length in shape)].ravel()
        for pair, (inputs, outputs) in zip(layers, shapes, strict=True)
        for part, shape in zip(pair, ((inputs, outputs), (outputs,)), strict=True)
    ]
    return jnp.concatenate(parts)


@jax.custom_vjp
def activation(sums: Any) -> Any:
    """Return ReLU up to a limit; its gradient only needs its values, so `sums` is not stored."""
    return jnp.clip(sums, 0.0, MOST_OUTPUT)


# The gradient with respect to `sums`, given the values and the gradient with respect to these.
activation.defvjp(
    lambda sums: (activation(sums),) * 2,
    lambda values, slopes: (jnp.where((values > 0) & (values < MOST_OUTPUT), slopes, 0.0),),
)


def hidden(layers: Layers, rows: Any, precision: Any = None) -> Any:
    """Return the outputs of the last hidden layer for some rows."""
    for weights, biases in layers[:-1]:
        rows = activation(jnp.dot(rows, weights, precision=precision) + biases)
    return rows


def predictions(layers: Layers, rows: Any, chosen: Any, heads: int, arms: int) -> Any:
    """Return each head's prediction for the chosen arm of each row, (rows, heads)."""
    weights, biases = layers[-1]
    out = (hidden(layers, rows) @ weights + biases)[:, : heads * arms].reshape(-1, heads, arms)
    # A product with 0 and 1, as its gradient is deterministic on a GPU and that of indexing is not.
    return (out * jax.nn.one_hot(chosen, arms, dtype=rows.dtype)[:, None]).sum(axis=2)


def bootstrap_weights(rows: Any, heads: Any, key: Any) -> Any:
    """Return the weight, 0 or 2, of each row for each head; both have probability ½.

    A row's weight is the same every time: it is the top bit of a hash, two of MurmurHash's last
    rounds of multiplication and shift, of the row, the head and the state's key.

    >>> weights = bootstrap_weights(np.arange(10_000), np.arange(2), np.uint32([3, 4]))
    >>> abs(weights.mean(axis=0) - 1).max() < 0.05
    Array(True, dtype=bool)
    """
    x = jnp.asarray(rows, jnp.uint32)[:, None] * np.uint32(0x9E3779B1)
    x = (x ^ key[0]) + jnp.asarray(heads, jnp.uint32) * np.uint32(0x85EBCA77)
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        x = (x ^ (x >> 15)) * np.uint32(factor) + key[1]
    x = x ^ (x >> 16)
    return 2.0 * (x >> 31).astype(jnp.float32)


@functools.partial(jit, donate_argnums=0)
@functools.partial(jax.vmap, in_axes=(0, None, 0))
def append(history: Any, places: Any, new: Any) -> Any:
    """Return the history with new rows written to these places."""
    return tuple(
        old.at[places, *(slice(length) for length in part.shape[1:])].set(part)
        for old, part in zip(history, new, strict=True)
    )


@functools.cache
def compiled_training(model: NetworkModel, arms: int) -> Callable[..., Any]:
    """Return the compiled training of a model's networks with this number of arms."""
    shapes, heads, rule = model.layer_shapes(arms), model.heads, model.training
    rate, rate_decay, size = rule.rate, rule.rate_decay, rule.batch_size
    optimiser = optax.chain(
        optax.clip_by_global_norm(rule.clip_norm),
        optax.scale_by_rms(decay=rule.moment_decay, eps=1e-10, initial_scale=1.0, eps_in_sqrt=True),
    )

    def loss(layers: Any, rows: Any, chosen: Any, targets: Any, weights: Any) -> Any:
        errors = predictions(layers, rows, chosen, heads, arms) - targets
        return (weights * errors**2).sum() / (size * heads)

    def train(networks: Any, number: Any, data: Any, done: Any, count: Any) -> Any:
        """Train network `number` of a state on `count` rows, after `done` mini-batches."""
        (parameters, squares, prior), (key, words, history, spread) = networks, data
        rows, chosen, rewards = history
        targets = rewards.astype(rows.dtype)[:, None]
        if model.has_priors:
            drawn = predictions(unflatten(prior, shapes), rows, chosen, heads, arms)
            targets = targets - (model.prior_scale * spread).astype(rows.dtype) * drawn

        def sample(batch: Any) -> Any:
            stream = jax.random.fold_in(key, (done + batch) * model.networks + number)
            return jax.random.randint(stream, (size,), 0, count).astype(np.int32)

        def step(carry: Any, given: Any) -> Any:
            layers, state = carry
            batch, pick = given
            weights = jnp.ones((), rows.dtype)
            if model.has_priors:
                weights = bootstrap_weights(pick, number * heads + jnp.arange(heads), words)
            gradient = jax.grad(loss)(layers, rows[pick], chosen[pick], targets[pick], weights)
            change, state = optimiser.update(gradient, state)
            age = batch if model.rate_restarts else done + batch
            speed = (rate / (1 + rate_decay * age)).astype(rows.dtype)
            return (jax.tree.map(lambda w, u: w - speed * u, layers, change), state), None

        clip, moments = optimiser.init(unflatten(parameters, shapes))
        start = unflatten(parameters, shapes)
        state = clip, moments._replace(nu=unflatten(squares, shapes))
        every = jnp.arange(rule.batches)
        (layers, state), _ = lax.scan(step, (start, state), (every, jax.vmap(sample)(every)))
        return flatten(layers, shapes), flatten(state[1].nu, shapes)

    def train_all(networks: Any, data: Any, done: Any, count: Any) -> Any:
        """Train all networks of a state."""
        return each(train, (networks, jnp.arange(len(networks[0]))), data, done, count)

    return jit(  # type: ignore[no-any-return]
        lambda networks, data, *shared: each(train_all, (networks, data), *shared)
    )


def each(function: Callable[..., Any], own: Any, *shared: Any) -> Any:
    """Return function(*x, *shared) for every x on the first axis of the values `own`.

    An accelerator runs them all at once, a processor one after the other: that is twice as fast
    there, and a network's result does not depend on how many others train.
    """
    if on_processor():
        return lax.map(lambda x: function(*x, *shared), own)
    return jax.vmap(lambda *x: function(*x, *shared))(*own)


@functools.cache
def compiled_sums(shapes: Shapes) -> Callable[..., Any]:
    """Return a function that computes Σ z zᵀ over the rows of every arm, (R, arms, d + 2, d + 2).

    A row's z has the d outputs of the last hidden layer, a constant, and the reward.
    """
    width, arms = shapes[-1]

    def sums(networks: Any, history: Any, count: Any) -> Any:
        layers = unflatten(networks[0], shapes)

        def add(number: Any, total: Any) -> Any:
            rows, chosen, rewards = (
                lax.dynamic_slice_in_dim(column, number * BLOCK, BLOCK) for column in history
            )
            phi = hidden(layers, rows, precision=lax.Precision.HIGHEST)
            phi = phi[:, :width].astype(rewards.dtype)
            z = jnp.column_stack([phi, jnp.ones_like(rewards), rewards])
            # Rows beyond `count` belong to no arm.
            there = number * BLOCK + jnp.arange(BLOCK) < count
            belongs = (chosen[:, None] == jnp.arange(arms)) & there[:, None]
            by_arm = (belongs[:, :, None] * z[:, None, :]).reshape(BLOCK, arms * z.shape[1])
            return total + by_arm.T @ z

        start = jnp.zeros((arms * (width + 2), width + 2), history[2].dtype)
        products = lax.fori_loop(0, (count + BLOCK - 1) // BLOCK, add, start)
        return products.reshape(arms, width + 2, width + 2)

    return jit(lambda networks, history, count: each(sums, (networks, history), count))  # type: ignore[no-any-return]


@functools.cache
def one_at_a_time() -> AbstractContextManager[Any]:
    """Return a lock if JAX runs on a processor: two trainings may wait for each other's threads."""
    return Lock() if on_processor() else nullcontext()


class Trainer:
    """Trains the networks of many states together, in place; their history stays on the device.

    All states must have the same numbers of rewards and arms, and can be `stacked` (see
    `tsucb.models.structure`). They are changed whenever the trainer is called.
    """

    def __init__(self, model: NetworkModel, states: Sequence[Any]) -> None:
        self.model, self.states, self.together = model, states, stacked(states)
        together, arms = self.together, states[0].pulls.size
        self.train = compiled_training(model, arms)
        self.sums = compiled_sums(model.layer_shapes(arms))
        self.seen = max(0, int(states[0].seen[0]) - model.training.memory)
        rows = -(-model.training.memory // BLOCK) * BLOCK
        with one_at_a_time(), jax.enable_x64(True):
            self.history = tuple(
                jnp.zeros((len(states), rows, *map(padded, column.shape[2:])), column.dtype)
                for column in (together.contexts, together.chosen, together.rewards)
            )
            # Copied, so that the device's arrays do not change with the states.
            self.networks = tuple(jnp.array(x) for x in (together.parameters, together.squares))
            self.prior = jnp.array(together.prior if model.has_priors else together.parameters)
            self.words = jnp.array(together.key)
            self.keys = jax.random.wrap_key_data(self.words, impl="threefry2x32")

    def __call__(self) -> None:
        """Train on all remembered rewards; a training that diverges only counts its batches."""
        model, states, together = self.model, self.states, self.together
        count, done = int(states[0].seen[0]), int(states[0].batches[0])
        stored = min(count, model.training.memory)
        places = np.arange(self.seen, count) % model.training.memory
        self.seen = count
        columns = together.contexts, together.chosen, together.rewards
        rows = tuple(np.take(column, places, axis=1) for column in columns)
        spreads = standard_deviations(together.rewards[:, :stored])
        together.batches[:] += model.training.batches
        with one_at_a_time(), jax.enable_x64(True):
            self.history = append(self.history, places, rows)
            data = self.keys, self.words, self.history, spreads
            new = self.train((*self.networks, self.prior), data, done, stored)
            sums: Any = [None] * len(states)
            if model.sums_rows:
                sums = np.asarray(self.sums(new[0], self.history, stored))
            parameters, squares = (np.asarray(part) for part in new)
            good = np.ones(len(states), bool)
            for n, state in enumerate(states):
                found = parameters[n], squares[n]
                good[n] = all((np.abs(part) <= MOST_WEIGHT).all() for part in found)
                good[n] = good[n] and model.install(state, parameters[n], sums[n], spreads[n])
                if good[n]:
                    state.parameters[:], state.squares[:], state.spread[0] = *found, spreads[n]
            if good.all():
                self.networks = new
            else:
                keep = good[:, None, None]
                pairs = zip(new, self.networks, strict=True)
                self.networks = tuple(jnp.where(keep, *pair) for pair in pairs)


def standard_deviations(rewards: Any) -> Any:
    """Return the standard deviation of every row; 1 if all its rewards are equal."""
    spreads = rewards.std(axis=1) if rewards.shape[1] else np.zeros(len(rewards))
    return np.where(spreads > 0, spreads, 1.0)
