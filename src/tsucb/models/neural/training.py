"""Train the networks of many runs at once, on whatever device JAX finds.

Everything here takes R networks of one shape, on the first axis of every array. A network's
parameters are one flat vector (see `NeuralState`); its history is a tuple of
contexts (R, rows, d), chosen arms (R, rows) and rewards (R, rows), filled up to some row.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.checks import within
from tsucb.models.neural.device import jax, jnp, lax, optax
from tsucb.models.neural.neural_linear import (
    MOST_OUTPUT,
    MOST_WEIGHT,
    NeuralLinear,
    NeuralState,
)
from tsucb.models.regressions import set_posteriors

# Rows whose features are computed at once: bounds the memory, whatever the number of rows.
BLOCK = 512


class Steps(NamedTuple):
    """The compiled steps of a training."""

    append: Callable[..., Any]
    train: Callable[..., Any]
    posterior: Callable[..., Any]


@functools.cache
def compiled_steps(
    shapes: tuple[tuple[int, int], ...],
    batches: int,
    batch_size: int,
    rate: float,
    rate_decay: float,
    moment_decay: float,
    clip_norm: float,
) -> Steps:
    """The steps for networks of one shape and schedule.

    Parameters
    ----------
    shapes
        Inputs and outputs of each layer; the outputs of the last are the arms.
    batches, batch_size
        Mini-batches per training, and observations in one, drawn with replacement.
    rate, rate_decay
        Mini-batch s, counted over the life of a network, moves by rate / (1 + rate_decay · s).
    moment_decay
        Of RMSProp's second moments, which start at 1.
    clip_norm
        Gradients with a larger global norm are scaled down to it.
    """
    arms = shapes[-1][1]
    width = shapes[-1][0] + 1  # features and reward
    optimiser = optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.scale_by_rms(decay=moment_decay, eps=1e-10, initial_scale=1.0, eps_in_sqrt=True),
    )

    def layers(flat: Any) -> list[tuple[Any, Any]]:
        """A flat vector cut into the weights and biases of each layer."""
        result, start = [], 0
        for inputs, outputs in shapes:
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            result.append((flat[start:middle].reshape(inputs, outputs), flat[middle:end]))
            start = end
        return result

    def flat(layers: list[tuple[Any, Any]]) -> Any:
        return jnp.concatenate([part.ravel() for layer in layers for part in layer])

    def features(layers: list[tuple[Any, Any]], rows: Any, precision: Any = None) -> Any:
        for weights, biases in layers[:-1]:
            rows = jax.nn.relu(jnp.dot(rows, weights, precision=precision) + biases)
            rows = jnp.minimum(rows, MOST_OUTPUT)
        return rows

    def loss(layers: list[tuple[Any, Any]], rows: Any, chosen: Any, rewards: Any) -> Any:
        weights, biases = layers[-1]
        predicted = features(layers, rows) @ weights + biases
        # A product with 0 and 1 instead of indexing: its gradient is deterministic on a GPU.
        predicted = (predicted * jax.nn.one_hot(chosen, arms, dtype=rows.dtype)).sum(axis=1)
        return ((predicted - rewards) ** 2).sum() / batch_size

    def train(parameters: Any, squares: Any, key: Any, done: Any, history: Any, count: Any) -> Any:
        """The mini-batches of one training, after `done` earlier ones, from `count` rows."""
        rows, chosen, rewards = history

        def step(carry: Any, batch: Any) -> Any:
            weights, state = carry
            pick = jax.random.randint(jax.random.fold_in(key, batch), (batch_size,), 0, count)
            gradient = jax.grad(loss)(
                weights, rows[pick], chosen[pick], rewards[pick].astype(rows.dtype)
            )
            update, state = optimiser.update(gradient, state)
            speed = (rate / (1 + rate_decay * batch)).astype(rows.dtype)
            return (jax.tree.map(lambda w, u: w - speed * u, weights, update), state), None

        clip, moments = optimiser.init(layers(parameters))
        start = (layers(parameters), (clip, moments._replace(nu=layers(squares))))
        (weights, state), _ = lax.scan(step, start, done + jnp.arange(batches))
        return flat(weights), flat(state[1].nu)

    def products(parameters: Any, history: Any, count: Any) -> Any:
        """For every arm Σ z zᵀ over its rows, z = (features, reward); (arms, width, width)."""
        weights = layers(parameters)

        def add(block: Any, total: Any) -> Any:
            rows, chosen, rewards = (
                lax.dynamic_slice_in_dim(column, block * BLOCK, BLOCK) for column in history
            )
            phi = features(weights, rows, precision=lax.Precision.HIGHEST)
            z = jnp.column_stack([phi.astype(rewards.dtype), rewards])
            # Rows that are not there yet belong to no arm.
            there = block * BLOCK + jnp.arange(BLOCK) < count
            belongs = (chosen[:, None] == jnp.arange(arms)) & there[:, None]
            by_arm = (belongs[:, :, None] * z[:, None, :]).reshape(BLOCK, arms * width)
            return total + by_arm.T @ z

        start = jnp.zeros((arms * width, width), history[2].dtype)
        blocks = (count + BLOCK - 1) // BLOCK
        return lax.fori_loop(0, blocks, add, start).reshape(arms, width, width)

    def posterior(
        parameters: Any, history: Any, count: Any, mean: Any, precision: Any, scale: Any
    ) -> Any:
        """Every arm's Normal-Inverse-Gamma posterior given the features of all rows so far.

        With Λ = Λ₀ + Σ φφᵀ = L Lᵀ and v = L⁻¹(Λ₀μ₀ + Σ φy): the mean L⁻ᵀv (K, d), the root L⁻ᵀ
        of the covariance (K, d, d), bₜ = b₀ + ½(Σ y² + μ₀ᵀΛ₀μ₀ − vᵀv) (K,), and log det Λ/Λ₀ (K,).
        """
        sums = products(parameters, history, count)
        lower = jnp.linalg.cholesky(precision + sums[:, :-1, :-1])
        eye = jnp.broadcast_to(jnp.eye(width - 1, dtype=lower.dtype), lower.shape)
        inverse = jax.scipy.linalg.solve_triangular(lower, eye, lower=True)
        pull = precision @ mean
        v = (inverse @ (pull + sums[:, :-1, -1])[:, :, None])[:, :, 0]
        root = inverse.transpose(0, 2, 1)
        diagonal = jnp.diagonal(lower, axis1=1, axis2=2)
        information = 2 * jnp.log(diagonal).sum(axis=1) - jnp.linalg.slogdet(precision)[1]
        # A difference of large numbers, which rounding may take below zero.
        spread = jnp.maximum(sums[:, -1, -1] + pull @ mean - (v * v).sum(axis=1), 0.0)
        return (root @ v[:, :, None])[:, :, 0], root, scale + spread / 2, information

    def append(history: Any, places: Any, new: Any) -> Any:
        """The history with new rows at the places given."""
        return tuple(old.at[places].set(part) for old, part in zip(history, new, strict=True))

    # Otherwise a GPU may sum in another order every time, and two equal runs drift apart.
    jit = functools.partial(jax.jit, compiler_options={"xla_gpu_deterministic_ops": True})
    return Steps(
        jit(jax.vmap(append, in_axes=(0, None, 0)), donate_argnums=0),
        jit(for_all(train, (0, 0, 0, None, 0, None)), donate_argnums=(0, 1)),
        jit(for_all(posterior, (0, 0, None, None, None, None))),
    )


def for_all(function: Callable[..., Any], in_axes: tuple[int | None, ...]) -> Callable[..., Any]:
    """A function of one network for R of them; `in_axes` as in `jax.vmap`, 0 or None.

    All at once on an accelerator. One after the other on a processor: that is twice as fast there,
    and a network's result does not depend on how many train beside it.
    """

    def in_turn(*arguments: Any) -> Any:
        def one(own: list[Any]) -> Any:
            rest = iter(own)
            return function(
                *(
                    next(rest) if axis == 0 else shared
                    for shared, axis in zip(arguments, in_axes, strict=True)
                )
            )

        return lax.map(one, [x for x, axis in zip(arguments, in_axes, strict=True) if axis == 0])

    on_processor = jax.default_backend() == "cpu"
    at_once: Callable[..., Any] = jax.vmap(function, in_axes=in_axes)
    return in_turn if on_processor else at_once


class Trainer:
    """Trains the networks of many states together; their history stays on the device.

    All states must have seen the same number of observations, of the same number of arms.

    Parameters
    ----------
    model
        The `NeuralLinear` that the states belong to.
    states
        Changed in place whenever the trainer is called.
    """

    def __init__(self, model: NeuralLinear, states: Sequence[NeuralState]) -> None:
        self.model, self.states = model, states
        self.steps = compiled_steps(model.layer_shapes(states[0].pulls.size), *model.training)
        self.seen = max(0, int(states[0].counts[0]) - model.memory)
        room = -(-model.memory // BLOCK) * BLOCK
        precision = np.linalg.inv(model.head.prior_root @ model.head.prior_root.T)
        with jax.enable_x64(True):
            self.history = tuple(
                jnp.zeros((len(states), room, *column.shape[1:]), column.dtype)
                for column in (states[0].contexts, states[0].chosen, states[0].rewards)
            )
            self.parameters = jnp.stack([state.parameters for state in states])
            self.squares = jnp.stack([state.squares for state in states])
            self.keys = jax.random.wrap_key_data(
                jnp.stack([state.key for state in states]), impl="threefry2x32"
            )
            self.prior = jax.device_put((model.head.prior_mean, precision, model.head.scale))

    def __call__(self) -> None:
        """Train on everything remembered, and rebuild the posteriors on the new features."""
        count, done = (int(number) for number in self.states[0].counts)
        stored = min(count, self.model.memory)
        places = np.arange(self.seen, count) % self.model.memory
        self.seen = count
        columns = zip(*((s.contexts, s.chosen, s.rewards) for s in self.states), strict=True)
        new = tuple(np.stack([part[places] for part in column]) for column in columns)
        with jax.enable_x64(True):
            self.history = self.steps.append(self.history, places, new)
            self.parameters, self.squares = self.steps.train(
                self.parameters, self.squares, self.keys, done, self.history, stored
            )
            posterior = self.steps.posterior(self.parameters, self.history, stored, *self.prior)
            results = [np.asarray(x) for x in (self.parameters, self.squares, *posterior)]
        sound = True
        for state, parameters, squares, mean, root, scale, information in zip(
            self.states, *results, strict=True
        ):
            state.counts[1] += self.model.training.batches
            learned = (mean, root, scale, information)
            if not within(parameters, MOST_WEIGHT) or not all(
                np.isfinite(x).all() for x in learned
            ):
                sound = False  # a training that diverges is as if it had not been
                continue
            state.parameters[:], state.squares[:] = parameters, squares
            set_posteriors(state.head.regressions, mean, root)
            state.head.regressions.information[:] = information
            state.head.scale[:] = scale
            state.pulls[:] = np.bincount(state.chosen[:stored], minlength=state.pulls.size)
        if not sound:
            self.parameters = jnp.stack([state.parameters for state in self.states])
            self.squares = jnp.stack([state.squares for state in self.states])
