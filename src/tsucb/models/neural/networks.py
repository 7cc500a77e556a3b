"""Networks whose members are the posterior: separate ones, or heads with random priors."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.samples import Samples
from tsucb.checks import positive, whole_number, within
from tsucb.compiled import implements, inlined
from tsucb.models.model import Model, believe, check_arm_count, training_due, update
from tsucb.models.neural.neural_linear import MOST_WEIGHT, Singles, Training, hidden_features
from tsucb.numeric.arrays import Floats, Integers


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


class Networks(
    Model,
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

    # Whether random networks are added, times `prior_scale`.
    has_priors: bool = False

    # It computes with single precision, in which the squares of errors must stay finite.
    largest = 1e12
    trains_together = True

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        """How often every arm is pulled before the policy decides."""
        return self.pulls_first

    def start(self, arms: int, rng: np.random.Generator | None = None) -> NetworksState:
        """The state before any data: random networks; without `rng` the same every time."""
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

    def extend(self, state: NetworksState, arms: int) -> NetworksState:
        """A state with further arms at the end: new outputs of the networks, as if just drawn."""
        old = state.pulls.size
        # From a stream of its own, determined by the state's.
        fresh = Networks.start(self, old + arms, np.random.default_rng([*state.key, old, arms]))
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

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d',), the same for all arms."""
        return (self.features,)

    def layer_shapes(self, arms: int) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of every layer, from the context to heads times arms."""
        widths = (self.features, *self.hidden, self.heads * arms)
        return tuple(zip(widths[:-1], widths[1:], strict=True))  # noqa: RUF007

    def trainer(self, states: Sequence[NetworksState]) -> Callable[[], None]:
        """What trains the networks of these states together, in place, whenever it is called."""
        from tsucb.models.neural.networks_training import NetworksTrainer

        return NetworksTrainer(self, states)

    def check_state(self, state: NetworksState, rewards: int) -> None:
        """Raise a ValueError for networks or a memory that cannot have come about."""
        check_memory(self, state, rewards)
        if not within(state.prior, self.weight_range):
            raise ValueError("a prior that cannot have been drawn")


def check_memory(model: Networks, state: NetworksState, rewards: int) -> None:
    """Raise a ValueError for networks or a memory that cannot have come about."""
    arms, (seen, batches) = state.pulls.size, state.counts.tolist()
    if not 0 <= seen <= rewards or not 0 <= batches < 2**53:
        raise ValueError("counts of training that cannot be")
    if (state.pulls < 0).any() or state.pulls.sum() > rewards:
        raise ValueError("counts of pulls that cannot be")
    if not within(state.parameters, MOST_WEIGHT) or not within(state.squares, MOST_WEIGHT):
        raise ValueError("weights of a network that cannot be")
    if (state.squares < 0).any() or not 0 < state.spread[0] <= model.largest:
        raise ValueError("squares or a spread that cannot be")
    if not within(state.contexts, model.largest) or not within(state.rewards, model.largest):
        raise ValueError("a memory of numbers that cannot be")
    if ((state.chosen < 0) | (state.chosen >= arms)).any():
        raise ValueError("a memory of arms that there are not")


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
    widths = tuple(whole_number("a width in hidden", width) for width in hidden)
    if not widths:
        raise ValueError("hidden is empty; give at least one hidden layer, such as (50, 50)")
    return widths


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
            whole_number("memory", memory),
            whole_number("interval", interval),
            whole_number("initial_pulls", initial_pulls, least=0),
            positive("weight_range", weight_range),
            training_of(batches, batch_size, rate, rate_decay, moment_decay, clip_norm),
        )

    def check_settings(self) -> None:
        """Raise a ValueError for settings that the constructor would not have made."""
        check_same(self, DeepEnsemble(self.features, self.networks, **shared_settings(self)))


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
            whole_number("memory", memory),
            whole_number("interval", interval),
            whole_number("initial_pulls", initial_pulls, least=0),
            positive("weight_range", weight_range),
            training_of(batches, batch_size, rate, rate_decay, moment_decay, clip_norm),
        )

    def check_settings(self) -> None:
        """Raise a ValueError for settings that the constructor would not have made."""
        again = BootstrappedHeads(
            self.features, self.heads, prior_scale=self.prior_scale, **shared_settings(self)
        )
        check_same(self, again)


def shared_settings(model: Networks) -> dict[str, Any]:
    """What all constructors take."""
    names = ("hidden", "memory", "interval", "weight_range")
    return (
        {name: getattr(model, name) for name in names}
        | {"initial_pulls": model.pulls_first}
        | model.training._asdict()
    )


def check_same(model: Networks, again: Networks) -> None:
    """Raise a ValueError if a model is not what its constructor makes of its settings."""
    if tuple(again) != tuple(model):
        raise ValueError("settings of networks that do not go together")


@inlined
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


@inlined
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
    state.pulls[arm] += 1


@inlined
def remember(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    """Take an observation into the memory, where the oldest was."""
    place = state.counts[0] % model.memory
    for i in range(context.size):
        state.contexts[place, i] = context[i]
    state.chosen[place] = arm
    state.rewards[place] = reward
    state.counts[0] += 1


@implements(training_due, Networks)
def training_due_networks(model, state):  # type: ignore[no-untyped-def]
    return state.counts[0] % model.interval == 0
