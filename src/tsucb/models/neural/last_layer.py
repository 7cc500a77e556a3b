"""Networks with a Bayesian last layer: `NeuralLinear` and `LastLayerLaplace`."""

from dataclasses import KW_ONLY
from typing import Annotated, Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import Positive
from tsucb.compiler import compiled, implements
from tsucb.models.model import belief, update
from tsucb.models.neural.network import (
    MOST_NUMBER,
    TINY,
    NetworkModel,
    NetworkState,
    Singles,
    Training,
    hidden_features,
    remember,
    training_settings,
)
from tsucb.models.nig_linear import NIGLinear, NIGState
from tsucb.models.regressions import Rows, evidence, learn, predict, triangular
from tsucb.models.state import array, nested
from tsucb.numeric.arrays import Floats
from tsucb.numeric.stacks import inverse_roots, product
from tsucb.record import derived

LEAST_NOISE = 1e-6  # share of the rewards' variance, for a network that fits all data exactly


class NeuralLinearState(NetworkState):
    """A network, and the posteriors of regressions on the outputs of its last hidden layer."""

    head: NIGState = nested(NIGState)


class NeuralLinear(NetworkModel):
    """Neural-Linear: `NIGLinear` on features h(x) that a network learns.

    The network maps a context x through hidden layers with ReLU to one output per arm; h(x) are
    the outputs of its last hidden layer. After every `training.interval` rewards the network is
    trained on the squared error of the pulled arms' rewards. Then h is computed again for all past
    contexts, and every arm's posterior from these. In between, each reward is one update of its
    arm. Uncertainty about h is ignored. The defaults are those of the paper's Table 2.

    Training needs JAX and optax (`tsucb[deep]`), and runs as for `DeepEnsemble`.

    Parameters
    ----------
    features
        d', the length of a context.
    hidden
        Widths of the hidden layers; the last is d, the number of features of the regressions.
    training
        See `Training`; the learning rate falls over the network's life.
    initial_pulls
        How often every arm is pulled before the policy decides.
    shape, scale, prior_precision
        The regressions' prior; see `NIGLinear`.

    >>> model = NeuralLinear(features=2, hidden=(8, 4))
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[0.5, -1.0], arm=1, reward=1.0)
    >>> model.belief(state, [0.5, -1.0], rng=np.random.default_rng(0)).mean.shape
    (3,)

    Reference: Riquelme, Tucker and Snoek (2018); Baek and Farias (2023), Section 4.3.
    """

    state = NeuralLinearState
    rate_restarts = False
    sums_rows = True

    _: KW_ONLY
    training: Annotated[Training, training_settings] = Training(rate=0.1, rate_decay=0.5)
    shape: Positive = 6.0
    scale: Positive = 6.0
    prior_precision: Any = 0.25
    head: NIGLinear = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Make `head`, the model of the regressions."""
        super().prepare(values)
        prior = {name: values[name] for name in ("shape", "scale", "prior_precision")}
        values["head"] = NIGLinear(values["hidden"][-1], **prior)
        values["prior_precision"] = values["head"].prior_precision

    def prior(self, state: NeuralLinearState, rng: np.random.Generator | None = None) -> None:
        """Draw the network, and write the prior of all regressions, in place."""
        super().prior(state, rng)
        self.head.prior(state.head)

    def install(
        self, state: NeuralLinearState, parameters: Singles, sums: Any, spread: float
    ) -> bool:
        """Compute every arm's Normal-Inverse-Gamma posterior given the features of all rows.

        With Σ the covariance and r = Λ₀μ₀ + Σ φy, its mean is Σr, and its scale
        b₀ + ½(Σ y² + μ₀ᵀΛ₀μ₀ − rᵀΣr).
        """
        head = self.head
        root, information = posterior_roots(head.prior_root, sums[:, :-2, :-2])
        pull = head.prior_precision @ head.prior_mean
        v = np.einsum("kij,ki->kj", root, pull + sums[:, :-2, -1])
        # Rounding may take this difference of large numbers below zero.
        error = np.maximum(sums[:, -1, -1] + pull @ head.prior_mean - (v * v).sum(axis=1), 0.0)
        mean = np.einsum("kij,kj->ki", root, v)
        return write_posteriors(
            state, state.head.regressions, mean, root, information,
            state.head.scale, self.scale + error / 2,
        )  # fmt: skip


def posterior_roots(prior_root: Floats, products: Floats) -> tuple[Floats, Floats]:
    """Return upper triangular roots of (Λ₀ + X)⁻¹ for every X in `products`, and log det(I + Σ₀X).

    The prior's covariance is Σ₀ = Λ₀⁻¹ = prior_root prior_rootᵀ.
    """
    if not np.isfinite(products).all():
        return products * np.nan, products[:, 0, 0] * np.nan
    whitened = product(product(prior_root.T, products), prior_root)
    inverse = inverse_roots(np.eye(len(prior_root)) + whitened)
    roots = [triangular(prior_root @ each.T) for each in inverse]
    return np.array(roots), -2.0 * np.log(np.einsum("kii->ki", inverse)).sum(axis=1)


def write_posteriors(
    state: Any, regressions: Any, mean: Floats, root: Floats, information: Floats,
    further: Floats, value: Any,
) -> bool:  # fmt: skip
    """Write posteriors and `further` values into a state; return False if one is not finite."""
    if not all(np.isfinite(part).all() for part in (mean, root, information, value)):
        return False
    regressions.set_posteriors(mean, root)
    regressions.information[:], further[:] = np.maximum(information, 0.0), value
    if state.seen[0] > state.rewards.size:  # the posteriors contain the remembered rewards only
        state.pulls[:] = np.bincount(state.chosen, minlength=state.pulls.size)
        regressions.pulls[:] = state.pulls
    return True


@implements(belief, NeuralLinear)
def belief_of_neural(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    features = hidden_features(model, state.parameters[0], context)
    return belief(model.head, state.head, features, arms, step, rng)


@implements(update, NeuralLinear)
def update_neural(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    features = hidden_features(model, state.parameters[0], context)
    update(model.head, state.head, features, arm, reward)
    remember(model, state, context, arm, reward)


class LaplaceState(NetworkState):
    """A network, the posteriors of its last layer, and the variance of the noise."""

    regressions: Rows = nested(Rows)
    noise: Floats = array(start=1.0, least=TINY, most=MOST_NUMBER**2)


class LastLayerLaplace(NetworkModel):
    """A network with the Laplace approximation of the posterior of its last layer.

    The network predicts wₐᵀφ(x) for arm a, with φ(x) the outputs of its last hidden layer and a
    constant. Given φ, the squared error is quadratic in wₐ, so its posterior at the trained weights
    is N(wₐ, (λI + Σ φφᵀ/σ²)⁻¹), with the sum over the arm's rewards, λ the precision of the prior,
    and σ² the mean squared error of the network. After every `training.interval` rewards the
    network is trained and the posterior computed again; in between, each reward is one update of
    its arm.

    Unlike in `NeuralLinear`, the expected rewards are the predictions of the network itself, and
    the noise, which is estimated, is the same for all arms. Training needs JAX and optax
    (`tsucb[deep]`), and runs as for `DeepEnsemble`.

    Parameters
    ----------
    features, hidden, training, initial_pulls
        As in `DeepEnsemble`.
    prior_scale
        1/√λ, in standard deviations of the rewards.

    >>> model = LastLayerLaplace(features=2, hidden=(8, 4))
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[0.5, -1.0], arm=1, reward=1.0)
    >>> model.belief(state, [0.5, -1.0], rng=np.random.default_rng(0)).std.shape
    (3,)

    Reference: Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), "Laplace redux:
    effortless Bayesian deep learning".
    """

    state = LaplaceState
    sums_rows = True

    _: KW_ONLY
    prior_scale: Positive = 1.0

    def sizes(self) -> dict[str, int]:
        """Return the sizes of memory and network; regressions also have a constant."""
        return super().sizes() | {"coefficient": self.hidden[-1] + 1}

    def prior(self, state: LaplaceState, rng: np.random.Generator | None = None) -> None:
        """Draw the network, and write the prior of the last layer's weights, in place."""
        super().prior(state, rng)
        state.regressions.set_posteriors(0.0, self.prior_scale * np.eye(self.hidden[-1] + 1))

    def install(self, state: LaplaceState, parameters: Singles, sums: Any, spread: float) -> bool:
        """Compute the posterior of every arm's last weights, and the noise, in place."""
        width, count = sums.shape[1] - 1, sums[:, -2, -2].sum()
        last = parameters[0, -width * len(sums) :].reshape(width, -1).astype(np.float64)
        error = np.vstack([-last, np.ones(len(sums))])  # of the predictions, as coefficients of z
        errors = np.einsum("ik,kij,jk->", error, sums, error)
        # Plus one artificial error, the standard deviation of the rewards.
        noise = max((errors + spread**2) / (count + 1), LEAST_NOISE * spread**2)
        prior_root = self.prior_scale * spread * np.eye(width)
        root, information = posterior_roots(prior_root, sums[:, :-1, :-1] / noise)
        return write_posteriors(
            state, state.regressions, last.T, root, information, state.noise, noise
        )


@compiled
def last_features(model, state, context):  # type: ignore[no-untyped-def]
    """Return φ(x), the outputs of the last hidden layer and a constant."""
    hidden = hidden_features(model, state.parameters[0], context)
    phi = np.ones(hidden.size + 1)
    for i in range(hidden.size):
        phi[i] = hidden[i]
    return phi


@implements(belief, LastLayerLaplace)
def belief_of_laplace(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    phi = last_features(model, state, context)
    mean, std = predict(state.regressions, phi, arms)
    pulls, information = evidence(state.regressions, arms)
    prior_std = model.prior_scale * state.spread[0]
    return Belief(Gaussian(), mean, std, mean, std, pulls, information, step, phi.size, prior_std)


@implements(update, LastLayerLaplace)
def update_laplace(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn(state.regressions, arm, last_features(model, state, context), reward, state.noise[0])
    remember(model, state, context, arm, reward)
