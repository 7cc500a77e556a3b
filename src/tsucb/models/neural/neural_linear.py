"""A network learns the features, and one Bayesian regression per arm the rest."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.checks import positive, whole_number, within
from tsucb.compiled import implements, inlined
from tsucb.models.model import Model, believe, training_due, update
from tsucb.models.nig_linear import NIGLinear, NIGState
from tsucb.numeric.arrays import Floats, Integers

Singles = NDArray[np.float32]

MOST_WEIGHT = 1e6  # of the network
MOST_OUTPUT = np.float32(1e25)  # of a hidden unit: times a weight, and summed, it stays finite


class NeuralState(NamedTuple):
    """A network, what it remembers, and the posterior over its features."""

    head: NIGState
    parameters: Singles  # (P,) of the network: for each layer its weights by rows, then its biases
    squares: Singles  # (P,) RMSProp's second moments
    contexts: Singles  # (memory, features)
    chosen: NDArray[np.int32]  # (memory,) arms
    rewards: Floats  # (memory,)
    counts: Integers  # (2,) observations and mini-batches so far
    key: NDArray[np.uint32]  # (2,) of the stream that draws the mini-batches

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.head.pulls


class Training(NamedTuple):
    """How the network is trained; see `NeuralLinear`."""

    batches: int
    batch_size: int
    rate: float
    rate_decay: float
    moment_decay: float
    clip_norm: float


class NeuralLinear(
    Model,
    NamedTuple(
        "NeuralLinear",
        [
            ("features", int),
            ("hidden", tuple[int, ...]),
            ("memory", int),
            ("interval", int),
            ("pulls_first", int),
            ("weight_range", float),
            ("training", Training),
            ("head", NIGLinear),
        ],
    ),
):
    """Neural-Linear: `NIGLinear` on features h(x) that a network learns.

    The network maps a context x through hidden layers with ReLU to one output per arm; h(x) are
    the outputs of its last hidden layer. After every `interval` observations it is trained on the
    squared error of the pulled arms' rewards, h is computed anew for all past contexts, and every
    arm's posterior is rebuilt from them. In between, each observation is one update of its arm.
    Uncertainty about h is ignored. The defaults are those of the paper's Table 2.

    Training needs JAX and optax (`tsucb[deep]`) and uses the device that JAX finds; in `simulate`
    the networks of all runs and policies train together.

    Parameters
    ----------
    features
        d', the length of a context.
    hidden
        Widths of the hidden layers; the last is d, the number of features of the regressions.
    memory
        Observations kept for training; beyond it, the oldest are forgotten.
    interval
        Observations between two trainings.
    initial_pulls
        How often every arm is pulled before the policy decides.
    weight_range
        All weights and biases start uniform in (−weight_range, weight_range).
    batches, batch_size
        Mini-batches of one training, and observations in one, drawn with replacement.
    rate, rate_decay
        The learning rate of mini-batch s is rate / (1 + rate_decay · s); s is never reset.
    moment_decay, clip_norm
        Of RMSProp, whose second moments start at 1; and the largest global norm of a gradient.
    shape, scale, prior_precision
        Of the regressions' prior, see `NIGLinear`.

    >>> model = NeuralLinear(features=2, hidden=(8, 4), memory=100)
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[0.5, -1.0], arm=1, reward=1.0)
    >>> model.belief(state, [0.5, -1.0], rng=np.random.default_rng(0)).mean.shape
    (3,)

    Reference: Riquelme, Tucker and Snoek (2018); Baek and Farias (2023), Section 4.3.
    """

    __slots__ = ()

    def __new__(
        cls,
        features: int,
        hidden: Sequence[int] = (50, 50),
        *,
        memory: int = 10_000,
        interval: int = 50,
        initial_pulls: int = 2,
        weight_range: float = 0.3,
        batches: int = 100,
        batch_size: int = 512,
        rate: float = 0.1,
        rate_decay: float = 0.5,
        moment_decay: float = 0.9,
        clip_norm: float = 5.0,
        shape: float = 6.0,
        scale: float = 6.0,
        prior_precision: ArrayLike = 0.25,
    ) -> "NeuralLinear":
        widths = tuple(whole_number("a width in hidden", width) for width in hidden)
        if not widths:
            raise ValueError("hidden is empty; give at least one hidden layer, such as (50, 50)")
        if not 0 <= moment_decay < 1:
            raise ValueError(f"moment_decay must be at least 0 and below 1, not {moment_decay}")
        if not 0 <= rate_decay < np.inf:
            raise ValueError(f"rate_decay must be finite and not negative, not {rate_decay}")
        return super().__new__(
            cls,
            whole_number("features", features),
            widths,
            whole_number("memory", memory),
            whole_number("interval", interval),
            whole_number("initial_pulls", initial_pulls, least=0),
            positive("weight_range", weight_range),
            Training(
                whole_number("batches", batches),
                whole_number("batch_size", batch_size),
                positive("rate", rate),
                float(rate_decay),
                float(moment_decay),
                positive("clip_norm", clip_norm),
            ),
            NIGLinear(widths[-1], shape, scale, 0.0, prior_precision),
        )

    # It computes with single precision, in which the squares of errors must stay finite.
    largest = 1e12
    trains_together = True

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        """How often every arm is pulled before the policy decides."""
        return self.pulls_first

    def start(self, arms: int, rng: np.random.Generator | None = None) -> NeuralState:
        """The state before any data: a random network.

        Without `rng` it is the same network every time.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        head = self.head.start(arms)
        size = sum((inputs + 1) * outputs for inputs, outputs in self.layer_shapes(arms))
        return NeuralState(
            head,
            rng.uniform(-self.weight_range, self.weight_range, size).astype(np.float32),
            np.ones(size, dtype=np.float32),
            np.zeros((self.memory, self.features), dtype=np.float32),
            np.zeros(self.memory, dtype=np.int32),
            np.zeros(self.memory),
            np.zeros(2, dtype=np.int64),
            rng.integers(0, 2**32, size=2, dtype=np.uint32),
        )

    def extend(self, state: NeuralState, arms: int) -> NeuralState:
        """A state with further arms at the end: new outputs of the network, each with the prior."""
        old = state.pulls.size
        # From a stream of its own, determined by the state's.
        fresh = self.start(old + arms, np.random.default_rng([*state.key, old, arms]))
        kept = self.layer_shapes(old)
        hidden = sum((inputs + 1) * outputs for inputs, outputs in kept[:-1])
        for before, after in (
            (state.parameters, fresh.parameters),
            (state.squares, fresh.squares),
        ):
            after[:hidden] = before[:hidden]
            # Weights and biases of the last layer are one matrix with a column per arm.
            after[hidden:].reshape(-1, old + arms)[:, :old] = before[hidden:].reshape(-1, old)
        return state._replace(
            head=self.head.extend(state.head, arms),
            parameters=fresh.parameters,
            squares=fresh.squares,
        )

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d',), the same for all arms."""
        return (self.features,)

    def check_settings(self) -> None:
        """Raise a ValueError for settings that the constructor would not have made."""
        self.head.check_settings()
        t = self.training
        again = NeuralLinear(
            self.features, self.hidden, memory=self.memory, interval=self.interval,
            initial_pulls=self.pulls_first, weight_range=self.weight_range, batches=t.batches,
            batch_size=t.batch_size, rate=t.rate, rate_decay=t.rate_decay,
            moment_decay=t.moment_decay, clip_norm=t.clip_norm, shape=self.head.shape,
            scale=self.head.scale,
        )  # fmt: skip
        if again[:-1] != self[:-1] or self.head.features != self.hidden[-1]:
            raise ValueError("settings of a network that do not go together")

    def check_state(self, state: NeuralState, rewards: int) -> None:
        """Raise a ValueError for a network, a memory or posteriors that cannot have come about."""
        self.head.check_state(state.head, rewards)
        arms, (seen, batches) = state.pulls.size, state.counts.tolist()
        if not 0 <= seen <= rewards or not 0 <= batches < 2**53:
            raise ValueError("counts of training that cannot be")
        if not within(state.parameters, MOST_WEIGHT) or not within(state.squares, MOST_WEIGHT):
            raise ValueError("weights of a network that cannot be")
        if (state.squares < 0).any():
            raise ValueError("squares that are negative")
        if not within(state.contexts, self.largest) or not within(state.rewards, self.largest):
            raise ValueError("a memory of numbers that cannot be")
        if ((state.chosen < 0) | (state.chosen >= arms)).any():
            raise ValueError("a memory of arms that there are not")

    def layer_shapes(self, arms: int) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of every layer, from the context to the arms."""
        widths = (self.features, *self.hidden, arms)
        return tuple(zip(widths[:-1], widths[1:], strict=True))  # noqa: RUF007

    def trainer(self, states: Sequence[NeuralState]) -> Callable[[], None]:
        """What trains the networks of these states together, in place, whenever it is called."""
        from tsucb.models.neural.training import Trainer

        return Trainer(self, states)


@inlined
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


@implements(believe, NeuralLinear)
def believe_neural(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    features = hidden_features(model, state.parameters, context)
    return believe(model.head, state.head, features, arms, step, rng)


@implements(update, NeuralLinear)
def update_neural(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    features = hidden_features(model, state.parameters, context)
    update(model.head, state.head, features, arm, reward)
    place = state.counts[0] % model.memory
    for i in range(context.size):
        state.contexts[place, i] = context[i]
    state.chosen[place] = arm
    state.rewards[place] = reward
    state.counts[0] += 1


@implements(training_due, NeuralLinear)
def training_due_neural(model, state):  # type: ignore[no-untyped-def]
    return state.counts[0] % model.interval == 0
