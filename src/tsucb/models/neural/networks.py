"""Networks whose members are the posterior: separate ones, or heads with random priors."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.samples import Samples
from tsucb.checks import positive, whole_number
from tsucb.compiler import compiled, implements
from tsucb.models.model import believe, training_due, update
from tsucb.models.neural.network import (
    NetworkModel,
    NetworksState,
    Training,
    hidden_features,
    interval_is_over,
    remember,
    schedule_of,
    training_of,
    widths_of,
)


class Networks(
    NetworkModel,
    NamedTuple(
        "Networks",
        [
            ("features", int),
            ("hidden", tuple[int, ...]),
            ("networks", int),
            ("heads", int),
            ("prior_scale", float),
            ("bootstrap", bool),
            ("memory", int),
            ("interval", int),
            ("pulls_first", int),
            ("weight_range", float),
            ("training", Training),
        ],
    ),
):
    """N networks of H heads each: N · H predictions for every arm, each as likely a truth.

    Head h of network n predicts f(x, a) + β σ p(x, a): f is trained, p is a network of the same
    shape that stays as it was drawn, and σ the standard deviation of the rewards. Where there are
    data, f makes up for p; where there are none, heads differ by what p says. With the bootstrap,
    a head learns from half of the observations, drawn for it, at twice their weight.

    `DeepEnsemble` and `BootstrappedHeads` are the two that are in use.
    """

    __slots__ = ()

    def start(self, arms: int, rng: np.random.Generator | None = None) -> NetworksState:
        """The state before any data: random networks; without `rng` the same every time."""
        return self.start_networks(arms, rng)

    def extend(self, state: NetworksState, arms: int) -> NetworksState:
        """A state with further arms at the end: new outputs of the networks, as if just drawn."""
        return self.extend_networks(state, arms)

    def trainer(self, states: Sequence[NetworksState]) -> Callable[[], None]:
        """What trains the networks of these states together, in place, whenever it is called."""
        from tsucb.models.neural.training import Trainer

        return Trainer(self, states, self.prior_scale if self.has_priors else 0.0, self.bootstrap)

    def check_state(self, state: NetworksState, rewards: int) -> None:
        """Raise a ValueError for networks or a memory that cannot have come about."""
        self.check_networks(state, rewards)


class DeepEnsemble(Networks):
    """Networks that start at random and learn the same: what they predict is the posterior.

    After every `interval` observations each is trained on the squared error of the pulled arms'
    rewards, from where it was. Networks agree where the data say so, and differ elsewhere by where
    they started and by their mini-batches. Nothing is added where they agree too early.

    Training needs JAX and optax (`tsucb[deep]`) and uses the device that JAX finds; in `simulate`
    the networks of all runs and policies train together.

    Parameters
    ----------
    features
        d', the length of a context.
    members
        How many networks.
    hidden
        Widths of the hidden layers.
    memory, interval, initial_pulls, weight_range
        As in `NeuralLinear`.
    batches, batch_size
        Mini-batches of one training, and observations in one, drawn with replacement.
    rate, rate_decay
        The learning rate of mini-batch s of a training is rate / (1 + rate_decay · s).
    moment_decay, clip_norm
        Of RMSProp, whose second moments start at 1; and the largest global norm of a gradient.

    >>> model = DeepEnsemble(features=2, members=5, hidden=(8, 4), memory=100)
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[0.5, -1.0], arm=1, reward=1.0)
    >>> model.belief(state, [0.5, -1.0], rng=np.random.default_rng(0)).law.draws.shape
    (5, 3)

    Reference: Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable predictive
    uncertainty estimation using deep ensembles".
    """

    __slots__ = ()

    def __new__(
        cls,
        features: int,
        members: int = 10,
        hidden: Sequence[int] = (50, 50),
        *,
        memory: int = 10_000,
        interval: int = 50,
        initial_pulls: int = 2,
        weight_range: float = 0.3,
        batches: int = 100,
        batch_size: int = 512,
        rate: float = 0.03,
        rate_decay: float = 0.1,
        moment_decay: float = 0.9,
        clip_norm: float = 5.0,
    ) -> "DeepEnsemble":
        return super().__new__(
            cls,
            whole_number("features", features),
            widths_of(hidden),
            whole_number("members", members, least=2),
            1,
            0.0,
            False,
            *schedule_of(memory, interval, initial_pulls, weight_range),
            training_of(batches, batch_size, rate, rate_decay, moment_decay, clip_norm),
        )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given."""
        return super().settings() | {"members": self.networks}


class BootstrappedHeads(Networks):
    """One network with many heads, each with half of the data and a random prior of its own.

    All heads share the hidden layers. Head h predicts f(x, a) + β σ p(x, a), with p an output of a
    random network that is never trained: so heads differ where there are no data, however sure
    training may be, and cost little more than one network. Half of the observations, drawn for each
    head, count double for it and the others nothing.

    Training needs JAX and optax (`tsucb[deep]`); see `DeepEnsemble` for how it is done.

    Parameters
    ----------
    features
        d', the length of a context.
    members
        How many heads.
    hidden
        Widths of the hidden layers, which the random network has too.
    prior_scale
        β, in standard deviations of the rewards.
    memory, interval, initial_pulls, weight_range, batches, batch_size, rate, rate_decay, \
moment_decay, clip_norm
        As in `DeepEnsemble`.

    >>> model = BootstrappedHeads(features=2, members=5, hidden=(8, 4), memory=100)
    >>> model.belief(model.start(arms=3), [0.5, 1.0], rng=np.random.default_rng(0)).mean.shape
    (3,)

    References: Osband, Blundell, Pritzel and Van Roy (2016), "Deep exploration via bootstrapped
    DQN"; Osband, Aslanides and Cassirer (2018), "Randomized prior functions for deep reinforcement
    learning".
    """

    __slots__ = ()

    has_priors = True

    def __new__(
        cls,
        features: int,
        members: int = 10,
        hidden: Sequence[int] = (50, 50),
        *,
        prior_scale: float = 1.0,
        memory: int = 10_000,
        interval: int = 50,
        initial_pulls: int = 2,
        weight_range: float = 0.3,
        batches: int = 100,
        batch_size: int = 512,
        rate: float = 0.03,
        rate_decay: float = 0.1,
        moment_decay: float = 0.9,
        clip_norm: float = 5.0,
    ) -> "BootstrappedHeads":
        return super().__new__(
            cls,
            whole_number("features", features),
            widths_of(hidden),
            1,
            whole_number("members", members, least=2),
            positive("prior_scale", prior_scale),
            True,
            *schedule_of(memory, interval, initial_pulls, weight_range),
            training_of(batches, batch_size, rate, rate_decay, moment_decay, clip_norm),
        )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given."""
        return super().settings() | {"members": self.heads, "prior_scale": self.prior_scale}


@compiled
def add_outputs(model, parameters, context, arms, count, scale, draws, first):  # type: ignore[no-untyped-def]
    """Add what a network says, times a scale, to the rows of its heads from `first` on."""
    features = hidden_features(model, parameters, context)
    columns = model.heads * count
    start = parameters.size - (features.size + 1) * columns
    biases = parameters.size - columns
    for h in range(model.heads):
        for a in range(arms.size):
            column = h * count + arms[a]
            value = np.float64(parameters[biases + column])
            for i in range(features.size):
                value += features[i] * parameters[start + i * columns + column]
            draws[first + h, a] += scale * value


@compiled
def moments(draws):  # type: ignore[no-untyped-def]
    """Mean and standard deviation of every column."""
    rows, columns = draws.shape
    mean, std = np.zeros(columns), np.zeros(columns)
    for a in range(columns):
        for i in range(rows):
            mean[a] += draws[i, a]
        mean[a] /= rows
        for i in range(rows):
            std[a] += (draws[i, a] - mean[a]) ** 2
        std[a] = np.sqrt(std[a] / rows)
    return mean, std


@implements(believe, Networks)
def believe_networks(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    count = state.pulls.size
    draws = np.zeros((model.networks * model.heads, arms.size))
    scale = model.prior_scale * state.spread[0]
    for n in range(model.networks):
        first = n * model.heads
        add_outputs(model, state.parameters[n], context, arms, count, 1.0, draws, first)
        if n < state.prior.shape[0]:
            add_outputs(model, state.prior[n], context, arms, count, scale, draws, first)
    mean, std = moments(draws)
    pulls, information = state.pulls[arms], np.zeros(arms.size)
    return Belief(Samples(draws), mean, std, mean, std, pulls, information, step, 1, 1.0)


@implements(update, Networks)
def update_networks(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    remember(model, state, context, arm, reward)


@implements(training_due, Networks)
def training_due_networks(model, state):  # type: ignore[no-untyped-def]
    return interval_is_over(model, state)
