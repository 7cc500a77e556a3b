"""What all models with networks share: their layers, what they remember, when they train."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import positive, whole_number, within
from tsucb.compiler import compiled
from tsucb.models.model import Model, check_arm_count
from tsucb.numeric.arrays import Floats, Integers

Singles = NDArray[np.float32]

MOST_WEIGHT = 1e6  # of a network
MOST_OUTPUT = np.float32(1e25)  # of a hidden unit: times a weight, and summed, it stays finite


class NetworksState(NamedTuple):
    """Networks, their priors, and what they remember."""

    pulls: Integers  # (K,)
    parameters: Singles  # (N, P) of each network: of each layer its weights by rows, then biases
    squares: Singles  # (N, P) RMSProp's second moments
    prior: Singles  # (N, P) of networks that stay as they were drawn; (0, P) without
    contexts: Singles  # (memory, features)
    chosen: NDArray[np.int32]  # (memory,) arms
    rewards: Floats  # (memory,)
    spread: Floats  # (1,) standard deviation of the rewards remembered, as of the last training
    counts: Integers  # (2,) observations and mini-batches so far
    key: NDArray[np.uint32]  # (2,) of the stream that draws the mini-batches


class Training(NamedTuple):
    """How the network is trained; see `NetworkModel`."""

    batches: int
    batch_size: int
    rate: float
    rate_decay: float
    moment_decay: float
    clip_norm: float


class NetworkModel(Model):
    """A model that trains N networks of H heads each, in all its runs at once.

    A network maps a context through hidden layers with ReLU to H outputs per arm. After every
    `interval` observations it is trained, from where it was, on the squared error of the pulled
    arms' rewards.
    """

    __slots__ = ()

    # Fields of every such model.
    features: int
    hidden: tuple[int, ...]
    memory: int
    interval: int
    pulls_first: int
    weight_range: float
    training: Training
    networks: int  # N
    heads: int  # H

    # Whether networks that stay as they were drawn are added to those that learn.
    has_priors: bool = False

    # Whether the learning rate starts anew with each training, or falls over a network's life.
    rate_restarts: bool = True

    # It computes with single precision, in which the squares of errors must stay finite.
    largest = 1e12
    trains_together = True

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        """How often every arm is pulled before the policy decides."""
        return self.pulls_first

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d',), the same for all arms."""
        return (self.features,)

    def layer_shapes(self, arms: int) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of every layer, from the context to heads times arms."""
        widths = (self.features, *self.hidden, self.heads * arms)
        return tuple(zip(widths[:-1], widths[1:], strict=True))  # noqa: RUF007

    def start_networks(self, arms: int, rng: np.random.Generator | None) -> NetworksState:
        """Random networks that remember nothing; without `rng` the same every time."""
        rng = np.random.default_rng(0) if rng is None else rng
        arms = check_arm_count(arms)
        size = sum((inputs + 1) * outputs for inputs, outputs in self.layer_shapes(arms))

        def drawn(count: int) -> Singles:
            r = self.weight_range
            return rng.uniform(-r, r, (count, size)).astype(np.float32)

        return NetworksState(
            np.zeros(arms, dtype=np.int64),
            drawn(self.networks),
            np.ones((self.networks, size), dtype=np.float32),
            drawn(self.networks if self.has_priors else 0),
            np.zeros((self.memory, self.features), dtype=np.float32),
            np.zeros(self.memory, dtype=np.int32),
            np.zeros(self.memory),
            np.ones(1),
            np.zeros(2, dtype=np.int64),
            rng.integers(0, 2**32, size=2, dtype=np.uint32),
        )

    def extend_networks(self, state: NetworksState, arms: int) -> NetworksState:
        """Networks with further arms at the end: new outputs, as if just drawn."""
        old = state.pulls.size
        # From a stream of its own, determined by the state's.
        fresh = self.start_networks(old + arms, np.random.default_rng([*state.key, old, arms]))
        for name in ("parameters", "squares", "prior"):
            self._keep_outputs(getattr(state, name), getattr(fresh, name), old)
        return state._replace(
            pulls=np.concatenate((state.pulls, np.zeros(arms, dtype=np.int64))),
            parameters=fresh.parameters,
            squares=fresh.squares,
            prior=fresh.prior,
        )

    def _keep_outputs(self, before: Singles, after: Singles, old: int) -> None:
        """Give networks with more arms the hidden layers, and the outputs of the old arms."""
        inner = sum((inputs + 1) * outputs for inputs, outputs in self.layer_shapes(old)[:-1])
        after[:, :inner] = before[:, :inner]
        # Weights and biases of the last layer are one matrix with a column per head and arm.
        rows, inputs = len(before), self.hidden[-1] + 1
        kept = before[:, inner:].reshape(rows, inputs, self.heads, old)
        columns = (after.shape[1] - inner) // inputs // self.heads
        after[:, inner:].reshape(rows, inputs, self.heads, columns)[..., :old] = kept

    def check_networks(self, state: NetworksState, rewards: int) -> None:
        """Raise a ValueError for networks or a memory that cannot have come about."""
        arms, (seen, batches) = state.pulls.size, state.counts.tolist()
        if not 0 <= seen <= rewards or not 0 <= batches < 2**53:
            raise ValueError("counts of training that cannot be")
        if (state.pulls < 0).any() or state.pulls.sum() > rewards:
            raise ValueError("counts of pulls that cannot be")
        if not within(state.parameters, MOST_WEIGHT) or not within(state.squares, MOST_WEIGHT):
            raise ValueError("weights of a network that cannot be")
        if (state.squares < 0).any() or not 0 < state.spread[0] <= self.largest:
            raise ValueError("squares or a spread that cannot be")
        if not within(state.contexts, self.largest) or not within(state.rewards, self.largest):
            raise ValueError("a memory of numbers that cannot be")
        if ((state.chosen < 0) | (state.chosen >= arms)).any():
            raise ValueError("a memory of arms that there are not")
        if not within(state.prior, self.weight_range):
            raise ValueError("a prior that cannot have been drawn")

    def settings(self) -> dict[str, Any]:
        """What the constructor was given."""
        names = ("features", "hidden", "memory", "interval", "initial_pulls", "weight_range")
        return {name: getattr(self, name) for name in names} | self.training._asdict()

    def check_settings(self) -> None:
        """Raise a ValueError for settings that the constructor would not have made."""
        both: tuple[Any, Any] = (self, type(self)(**self.settings()))
        mine, made = ([part for part in one if not isinstance(part, Model)] for one in both)
        if mine != made:
            raise ValueError("settings of networks that do not go together")


def schedule_of(
    memory: int, interval: int, initial_pulls: int, weight_range: float
) -> tuple[int, int, int, float]:
    """The fields of these settings, checked."""
    return (
        whole_number("memory", memory),
        whole_number("interval", interval),
        whole_number("initial_pulls", initial_pulls, least=0),
        positive("weight_range", weight_range),
    )


def training_of(
    batches: int, batch_size: int, rate: float, rate_decay: float, moment_decay: float,
    clip_norm: float,
) -> Training:  # fmt: skip
    """The settings of a training, checked."""
    if not 0 <= moment_decay < 1:
        raise ValueError(f"moment_decay must be at least 0 and below 1, not {moment_decay}")
    if not 0 <= rate_decay < np.inf:
        raise ValueError(f"rate_decay must be finite and not negative, not {rate_decay}")
    return Training(
        whole_number("batches", batches),
        whole_number("batch_size", batch_size),
        positive("rate", rate),
        float(rate_decay),
        float(moment_decay),
        positive("clip_norm", clip_norm),
    )


def widths_of(hidden: Sequence[int]) -> tuple[int, ...]:
    """The widths of hidden layers, checked."""
    if not isinstance(hidden, Iterable):
        raise TypeError(f"hidden must be a tuple of widths, such as (50, 50), not {hidden!r}")
    widths = tuple(whole_number("a width in hidden", width) for width in hidden)
    if not widths:
        raise ValueError("hidden is empty; give at least one hidden layer, such as (50, 50)")
    return widths


@compiled
def hidden_features(model, parameters, context):  # type: ignore[no-untyped-def]
    """h(x): the context through all hidden layers."""
    values = context.astype(np.float32)
    start = 0
    for width in model.hidden:
        biases = start + values.size * width
        outputs = parameters[biases : biases + width].copy()
        for i in range(values.size):
            x = values[i]
            row = parameters[start + i * width : start + (i + 1) * width]
            for j in range(width):
                outputs[j] += x * row[j]
        for j in range(width):
            outputs[j] = min(max(outputs[j], np.float32(0.0)), MOST_OUTPUT)
        values = outputs
        start = biases + width
    return values.astype(np.float64)


@compiled
def remember(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    """Count an observation, and take it into the memory, where the oldest was."""
    state.pulls[arm] += 1
    place = state.counts[0] % model.memory
    for i in range(context.size):
        state.contexts[place, i] = context[i]
    state.chosen[place] = arm
    state.rewards[place] = reward
    state.counts[0] += 1


@compiled
def interval_is_over(model, state):  # type: ignore[no-untyped-def]
    """Whether the networks have seen another `interval` of observations."""
    return state.counts[0] % model.interval == 0
