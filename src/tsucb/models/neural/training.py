"""Train the networks of many runs at once, on whatever device JAX finds.

Everything here takes R states of one shape, on the first axis of every array, and N networks of
each on the second: the states lie side by side in memory, so that what goes to the device or comes
from it is copied at once. A network's parameters are one flat vector (see `NetworksState`); a
state's history is a tuple of contexts (R, rows, d), chosen arms (R, rows) and rewards (R, rows),
filled up to some row.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from tsucb.models.neural.device import jax, jnp, lax, optax
from tsucb.models.neural.network import MOST_OUTPUT, MOST_WEIGHT, NetworkModel, NetworksState
from tsucb.structure import stacked

# Otherwise a GPU may sum in another order every time, and two equal runs drift apart.
jit = functools.partial(jax.jit, compiler_options={"xla_gpu_deterministic_ops": True})


Shapes = tuple[tuple[int, int], ...]  # inputs and outputs of every layer
Layers = list[tuple[Any, Any]]  # weights and biases of every layer


class Steps(NamedTuple):
    """The compiled steps of a training."""

    append: Callable[..., Any]
    train: Callable[..., Any]


@functools.cache
def on_processor() -> bool:
    """Whether JAX has found no accelerator."""
    return bool(jax.default_backend() == "cpu")


def aligned(width: int) -> int:
    """The width that rows of so many numbers have on an accelerator: it multiplies them faster."""
    return width if on_processor() else -(-width // 8) * 8


def cut(flat: Any, shapes: Shapes) -> Layers:
    """A flat vector as the weights and biases of each layer, with zeros up to aligned widths.

    The zeros stay zeros in training: a hidden unit that has no weights says 0 and learns nothing.
    """
    result, start = [], 0
    for inputs, outputs in shapes:
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        weights = flat[start:middle].reshape(inputs, outputs)
        more = aligned(inputs) - inputs, aligned(outputs) - outputs
        biases = jnp.pad(flat[middle:end], (0, more[1]))
        result.append((jnp.pad(weights, ((0, more[0]), (0, more[1]))), biases))
        start = end
    return result


def joined(layers: Layers, shapes: Shapes) -> Any:
    """The flat vector that was cut."""
    parts = [
        part[tuple(slice(length) for length in shape)].ravel()
        for pair, (inputs, outputs) in zip(layers, shapes, strict=True)
        for part, shape in zip(pair, ((inputs, outputs), (outputs,)), strict=True)
    ]
    return jnp.concatenate(parts)


@jax.custom_vjp
def activation(sums: Any) -> Any:
    """ReLU, up to a limit. Its gradient is found from its values, so that `sums` is not kept."""
    return jnp.clip(sums, 0.0, MOST_OUTPUT)


def gradient_of_activation(values: Any, slopes: Any) -> tuple[Any]:
    """The gradient by `sums`, of something that has these slopes in the values."""
    return (jnp.where((values > 0) & (values < MOST_OUTPUT), slopes, 0.0),)


activation.defvjp(lambda sums: (activation(sums),) * 2, gradient_of_activation)


def hidden(layers: Layers, rows: Any, precision: Any = None) -> Any:
    """The rows through all hidden layers."""
    for weights, biases in layers[:-1]:
        rows = activation(jnp.dot(rows, weights, precision=precision) + biases)
    return rows


def outputs(layers: Layers, rows: Any, chosen: Any, heads: int, arms: int) -> Any:
    """What every head says of the chosen arm of every row, (rows, heads)."""
    weights, biases = layers[-1]
    out = (hidden(layers, rows) @ weights + biases)[:, : heads * arms].reshape(-1, heads, arms)
    # A product with 0 and 1 instead of indexing: its gradient is deterministic on a GPU.
    return (out * jax.nn.one_hot(chosen, arms, dtype=rows.dtype)[:, None]).sum(axis=2)


def halves(places: Any, heads: Any, key: Any) -> Any:
    """Weight 0 or 2, as likely, of rows for heads: the same whenever it is asked for.

    The top bit of two rounds of multiplication and shift, MurmurHash's last ones, over the row, the
    head and the state's key.

    >>> weights = halves(np.arange(10_000), np.arange(2), np.array([3, 4], dtype=np.uint32))
    >>> abs(weights.mean(axis=0) - 1).max() < 0.05
    Array(True, dtype=bool)
    """
    x = jnp.asarray(places, jnp.uint32)[:, None] * np.uint32(0x9E3779B1)
    x = (x ^ key[0]) + jnp.asarray(heads, jnp.uint32) * np.uint32(0x85EBCA77)
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        x = (x ^ (x >> 15)) * np.uint32(factor) + key[1]
    x = x ^ (x >> 16)
    return 2.0 * (x >> 31).astype(jnp.float32)


@functools.cache
def compiled_steps(
    shapes: Shapes,
    networks: int,
    heads: int,
    prior_scale: float,
    bootstrap: bool,
    rate_restarts: bool,
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
        Inputs and outputs of each layer; the outputs of the last are heads times arms.
    networks, heads
        N of a state, and H of each network.
    prior_scale, bootstrap
        See `Networks`.
    rate_restarts
        Mini-batch s moves by rate / (1 + rate_decay · s): counted from the beginning of each
        training, or over the life of a network.
    batches, batch_size
        Mini-batches per training, and observations in one, drawn with replacement.
    rate, rate_decay
        See above.
    moment_decay
        Of RMSProp's second moments, which start at 1.
    clip_norm
        Gradients with a larger global norm are scaled down to it.
    """
    optimiser = optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.scale_by_rms(decay=moment_decay, eps=1e-10, initial_scale=1.0, eps_in_sqrt=True),
    )

    arms = shapes[-1][1] // heads

    def loss(layers: Any, rows: Any, chosen: Any, targets: Any, weights: Any) -> Any:
        errors = outputs(layers, rows, chosen, heads, arms) - targets
        return (weights * errors**2).sum() / (batch_size * heads)

    def train(
        parameters: Any, squares: Any, prior: Any, number: Any, key: Any, words: Any, done: Any,
        history: Any, count: Any, spread: Any,
    ) -> Any:  # fmt: skip
        """The mini-batches of one training of one network, the so-manieth of its state."""
        rows, chosen, rewards = history
        targets = rewards.astype(rows.dtype)[:, None]
        if prior_scale:
            said = outputs(cut(prior, shapes), rows, chosen, heads, arms)
            targets = targets - (prior_scale * spread).astype(rows.dtype) * said

        def drawn(batch: Any) -> Any:
            own = jax.random.fold_in(key, (done + batch) * networks + number)
            return jax.random.randint(own, (batch_size,), 0, count).astype(np.int32)

        def step(carry: Any, given: Any) -> Any:
            weights, state = carry
            batch, pick = given
            counted = jnp.ones((), rows.dtype)
            if bootstrap:
                counted = halves(pick, number * heads + jnp.arange(heads), words)
            gradient = jax.grad(loss)(weights, rows[pick], chosen[pick], targets[pick], counted)
            change, state = optimiser.update(gradient, state)
            age = batch if rate_restarts else done + batch
            speed = (rate / (1 + rate_decay * age)).astype(rows.dtype)
            return (jax.tree.map(lambda w, u: w - speed * u, weights, change), state), None

        clip, moments = optimiser.init(cut(parameters, shapes))
        start = (cut(parameters, shapes), (clip, moments._replace(nu=cut(squares, shapes))))
        every = jnp.arange(batches)
        (weights, state), _ = lax.scan(step, start, (every, jax.vmap(drawn)(every)))
        return joined(weights, shapes), joined(state[1].nu, shapes)

    def train_all(parameters: Any, squares: Any, prior: Any, *shared: Any) -> Any:
        """The same for all networks of a state."""
        given = parameters, squares, prior, jnp.arange(len(parameters))
        return for_all(train, (0,) * 4 + (None,) * len(shared))(*given, *shared)

    def append(history: Any, places: Any, new: Any) -> Any:
        """The history with new rows at the places given."""
        return tuple(
            old.at[places, *(slice(length) for length in part.shape[1:])].set(part)
            for old, part in zip(history, new, strict=True)
        )

    return Steps(
        jit(jax.vmap(append, in_axes=(0, None, 0)), donate_argnums=0),
        jit(for_all(train_all, (0, 0, 0, 0, 0, None, 0, None, 0))),
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

    at_once: Callable[..., Any] = jax.vmap(function, in_axes=in_axes)
    return in_turn if on_processor() else at_once


def nothing_more(parameters: Any) -> tuple[Any, ...]:
    """Of networks that are all there is."""
    return ()


@functools.cache
def settling(posterior: Callable[..., Any]) -> Callable[..., Any]:
    """What computes the posteriors that trained networks lead to, and whether all went well."""

    def settle(old: Any, new: Any, *given: Any) -> Any:
        """Networks and their squares, old where a training diverged; where none did; posteriors."""
        found = posterior(new[0], *given)
        sound = jnp.ones(len(new[0]), bool)
        for part, limit in [*((x, MOST_WEIGHT) for x in new), *((x, np.inf) for x in found)]:
            size = jnp.abs(part)
            good = (size <= limit) & jnp.isfinite(size)
            sound &= good.all(axis=tuple(range(1, part.ndim)))
        kept = [jnp.where(sound[:, None, None], *pair) for pair in zip(new, old, strict=True)]
        return kept, sound, found

    return jit(settle)  # type: ignore[no-any-return]


@functools.cache
def one_at_a_time() -> AbstractContextManager[Any]:
    """What a training holds: two at once on a processor may wait for each other's threads."""
    return Lock() if on_processor() else nullcontext()


class Trainer:
    """Trains the networks of many states together; their history stays on the device.

    All states must have seen the same number of observations, of the same number of arms, and lie
    side by side (see `tsucb.structure`).

    Parameters
    ----------
    model
        What the states belong to.
    states
        Changed in place whenever the trainer is called.
    prior_scale, bootstrap
        See `Networks`.
    """

    def __init__(
        self,
        model: NetworkModel,
        states: Sequence[NetworksState],
        prior_scale: float = 0.0,
        bootstrap: bool = False,
    ) -> None:
        self.model, self.networks = model, stacked(states)
        self.shapes = model.layer_shapes(states[0].pulls.size)
        self.steps = compiled_steps(
            self.shapes, model.networks, model.heads, prior_scale, bootstrap, model.rate_restarts,
            *model.training,
        )  # fmt: skip
        self.seen = max(0, int(states[0].counts[0]) - model.memory)
        with one_at_a_time(), jax.enable_x64(True):
            self.history = tuple(
                jnp.zeros((len(states), self.room, *map(aligned, column.shape[1:])), column.dtype)
                for column in (states[0].contexts, states[0].chosen, states[0].rewards)
            )
            # Copies: what is given to the device must not change with the states.
            of = self.networks
            self.parameters, self.squares = jnp.array(of.parameters), jnp.array(of.squares)
            self.prior = jnp.array(of.prior if of.prior.size else of.parameters)
            self.words = jnp.array(of.key)
            self.keys = jax.random.wrap_key_data(self.words, impl="threefry2x32")

    @property
    def room(self) -> int:
        """Rows of the history on the device."""
        return self.model.memory

    def __call__(self) -> None:
        """Train on everything remembered."""
        with one_at_a_time():
            self._train()

    def _train(self) -> None:
        of, memory = self.networks, self.model.memory
        count, done = (int(number) for number in of.counts[0])
        stored = min(count, memory)
        places = np.arange(self.seen, count) % memory
        self.seen = count
        new = tuple(np.take(part, places, axis=1) for part in (of.contexts, of.chosen, of.rewards))
        spreads = spreads_of(of.rewards[:, :stored])
        with jax.enable_x64(True):
            self.history = self.steps.append(self.history, places, new)
            before = self.parameters, self.squares
            trained = self.steps.train(
                *before, self.prior, self.keys, self.words, done, self.history, stored, spreads
            )
            posterior, given = self.posterior(stored, spreads)
            kept, sound, found = settling(posterior)(before, trained, *given)
        self.parameters, self.squares = kept
        for part in (*kept, sound, *found):
            part.copy_to_host_async()
        of.counts[:, 1] += self.model.training.batches
        of.parameters[:], of.squares[:] = kept
        # A training that diverges is as if it had not been.
        well: Any = slice(None) if np.asarray(sound).all() else np.asarray(sound)
        of.spread[well, 0] = spreads[well]
        for into, part in zip(self.into(), found, strict=True):
            into[well] = np.asarray(part)[well]
        if count > memory:
            self.recount(well)

    def posterior(self, stored: int, spreads: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What computes all else that new networks lead to, and what it is given beside them."""
        return nothing_more, ()

    def into(self) -> tuple[Any, ...]:
        """The arrays of all states that take that."""
        return ()

    def recount(self, well: Any) -> None:
        """Count the pulls of these states anew, of which some have been forgotten."""


def spreads_of(rewards: Any) -> Any:
    """The standard deviation of every row of rewards; 1 where all are equal."""
    spreads = rewards.std(axis=1) if rewards.shape[1] else np.zeros(len(rewards))
    return np.where(spreads > 0, spreads, 1.0)
