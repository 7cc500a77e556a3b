"""A network, and a normal distribution of its last layer's weights around what was trained."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import positive, whole_number, within
from tsucb.compiler import compiled, implements
from tsucb.models import regressions
from tsucb.models.model import believe, training_due, update
from tsucb.models.neural.network import (
    NetworksState,
    hidden_features,
    interval_is_over,
    remember,
    schedule_of,
    training_of,
    widths_of,
)
from tsucb.models.neural.networks import Networks
from tsucb.models.regressions import MOST_COEFFICIENT, Regressions, evidence, learn, predict
from tsucb.numeric.arrays import Floats, Integers


class LaplaceState(NamedTuple):
    """A network, the posterior of its last layer, and the variance of the noise."""

    network: NetworksState
    regressions: Regressions
    noise: Floats  # (1,)

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.regressions.pulls


class LastLayerLaplace(Networks):
    """A network whose last layer is uncertain: the Laplace approximation of its posterior.

    The network predicts wₐᵀφ(x) for arm a, with φ(x) the outputs of its last hidden layer and a
    constant. Given φ, the squared error is quadratic in wₐ, so that its posterior at the trained
    weights is N(wₐ, (λI + Σ φφᵀ/σ²)⁻¹), over the observations of the arm: λ is the precision of the
    prior, σ² the mean squared error of the network. After every `interval` observations the network
    is trained and all this computed anew; in between, each observation is one update of its arm.

    Unlike in `NeuralLinear`, what it expects is what the network itself predicts, and all arms have
    one noise, which is estimated. Training needs JAX and optax (`tsucb[deep]`); see `DeepEnsemble`
    for how it is done.

    Parameters
    ----------
    features
        d', the length of a context.
    hidden
        Widths of the hidden layers.
    prior_scale
        1/√λ, in standard deviations of the rewards.
    memory, interval, initial_pulls, weight_range, batches, batch_size, rate, rate_decay, \
moment_decay, clip_norm
        As in `DeepEnsemble`.

    >>> model = LastLayerLaplace(features=2, hidden=(8, 4), memory=100)
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[0.5, -1.0], arm=1, reward=1.0)
    >>> model.belief(state, [0.5, -1.0], rng=np.random.default_rng(0)).std.shape
    (3,)

    Reference: Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), "Laplace redux:
    effortless Bayesian deep learning".
    """

    __slots__ = ()

    def __new__(
        cls,
        features: int,
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
    ) -> "LastLayerLaplace":
        return super().__new__(
            cls,
            whole_number("features", features),
            widths_of(hidden),
            1,
            1,
            positive("prior_scale", prior_scale),
            False,
            *schedule_of(memory, interval, initial_pulls, weight_range),
            training_of(batches, batch_size, rate, rate_decay, moment_decay, clip_norm),
        )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given."""
        return super().settings() | {"prior_scale": self.prior_scale}

    def start(self, arms: int, rng: np.random.Generator | None = None) -> LaplaceState:  # type: ignore[override]
        """The state before any data: a random network, and weights around 0."""
        return LaplaceState(self.start_networks(arms, rng), self.prior(arms), np.ones(1))

    def prior(self, arms: int) -> Regressions:
        """Last layers before any data."""
        d = self.hidden[-1] + 1
        return regressions.start(arms, np.zeros(d), self.prior_scale * np.eye(d))

    def extend(self, state: LaplaceState, arms: int) -> LaplaceState:  # type: ignore[override]
        """A state with further arms at the end, each with the prior."""
        return LaplaceState(
            self.extend_networks(state.network, arms),
            regressions.concatenate(state.regressions, self.prior(arms)),
            state.noise.copy(),
        )

    def trainer(self, states: Sequence[LaplaceState]) -> Callable[[], None]:  # type: ignore[override]
        """What trains the networks of these states together, in place, whenever it is called."""
        from tsucb.models.neural.last_layers import LaplaceTrainer

        return LaplaceTrainer(self, states)

    def check_state(self, state: LaplaceState, rewards: int) -> None:  # type: ignore[override]
        """Raise a ValueError for a network, a memory or posteriors that cannot have come about."""
        self.check_networks(state.network, rewards)
        if (state.pulls < 0).any() or (state.pulls > rewards).any():
            raise ValueError("counts of pulls that cannot be")
        if (state.regressions.information < 0).any() or not 0 < state.noise[0] <= self.largest**2:
            raise ValueError("information or noise that cannot be")
        if not all(within(part, MOST_COEFFICIENT) for part in state.regressions):
            raise ValueError("a posterior that cannot be")


@compiled
def last_features(model, state, context):  # type: ignore[no-untyped-def]
    """φ(x): the outputs of the last hidden layer, and a constant."""
    hidden = hidden_features(model, state.network.parameters[0], context)
    phi = np.ones(hidden.size + 1)
    for i in range(hidden.size):
        phi[i] = hidden[i]
    return phi


@implements(believe, LastLayerLaplace)
def believe_laplace(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    phi = last_features(model, state, context)
    mean, std = predict(state.regressions, phi, arms)
    pulls, information = evidence(state.regressions, arms)
    prior_std = model.prior_scale * state.network.spread[0]
    return Belief(Gaussian(), mean, std, mean, std, pulls, information, step, phi.size, prior_std)


@implements(update, LastLayerLaplace)
def update_laplace(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn(state.regressions, arm, last_features(model, state, context), reward, state.noise[0])
    remember(model, state.network, context, arm, reward)


@implements(training_due, LastLayerLaplace)
def training_due_laplace(model, state):  # type: ignore[no-untyped-def]
    return interval_is_over(model, state.network)
