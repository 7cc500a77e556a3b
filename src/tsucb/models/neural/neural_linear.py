"""A network learns the features, and one Bayesian regression per arm the rest."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.checks import whole_number
from tsucb.compiler import implements
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
from tsucb.models.nig_linear import NIGLinear, NIGState
from tsucb.numeric.arrays import Integers


class NeuralState(NamedTuple):
    """A network, what it remembers, and the posterior over its features."""

    network: NetworksState
    head: NIGState

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.head.pulls


class NeuralLinear(
    NetworkModel,
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
        widths = widths_of(hidden)
        return super().__new__(
            cls,
            whole_number("features", features),
            widths,
            *schedule_of(memory, interval, initial_pulls, weight_range),
            training_of(batches, batch_size, rate, rate_decay, moment_decay, clip_norm),
            NIGLinear(widths[-1], shape, scale, 0.0, prior_precision),
        )

    networks = 1
    heads = 1
    rate_restarts = False

    def start(self, arms: int, rng: np.random.Generator | None = None) -> NeuralState:
        """The state before any data: a random network, without `rng` the same every time."""
        return NeuralState(self.start_networks(arms, rng), self.head.start(arms))

    def extend(self, state: NeuralState, arms: int) -> NeuralState:
        """A state with further arms at the end: new outputs of the network, each with the prior."""
        return NeuralState(
            self.extend_networks(state.network, arms), self.head.extend(state.head, arms)
        )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, but for the precision of the prior."""
        return super().settings() | {"shape": self.head.shape, "scale": self.head.scale}

    def check_settings(self) -> None:
        """Raise a ValueError for settings that the constructor would not have made."""
        super().check_settings()
        self.head.check_settings()
        if self.head.features != self.hidden[-1]:
            raise ValueError("a regression that does not go with its network")

    def check_state(self, state: NeuralState, rewards: int) -> None:
        """Raise a ValueError for a network, a memory or posteriors that cannot have come about."""
        self.head.check_state(state.head, rewards)
        self.check_networks(state.network, rewards)

    def trainer(self, states: Sequence[NeuralState]) -> Callable[[], None]:
        """What trains the networks of these states together, in place, whenever it is called."""
        from tsucb.models.neural.last_layers import NeuralLinearTrainer

        return NeuralLinearTrainer(self, states)


@implements(believe, NeuralLinear)
def believe_neural(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    features = hidden_features(model, state.network.parameters[0], context)
    return believe(model.head, state.head, features, arms, step, rng)


@implements(update, NeuralLinear)
def update_neural(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    features = hidden_features(model, state.network.parameters[0], context)
    update(model.head, state.head, features, arm, reward)
    remember(model, state.network, context, arm, reward)


@implements(training_due, NeuralLinear)
def training_due_neural(model, state):  # type: ignore[no-untyped-def]
    return interval_is_over(model, state.network)
