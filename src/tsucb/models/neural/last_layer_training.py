"""Compute the posteriors of Bayesian last layers after their networks were trained."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tsucb.models.neural.device import jax, jnp, lax
from tsucb.models.neural.last_layer import LastLayerLaplace, NeuralLinear
from tsucb.models.neural.training import BLOCK, Shapes, Trainer, hidden, unflatten
from tsucb.models.regressions import Lanes, Regressions
from tsucb.models.structure import stacked

LEAST_NOISE = 1e-6  # share of the rewards' variance, for a network that fits all data exactly


def sum_over_rows(network: Any, shapes: Shapes, history: Any, count: Any) -> Any:
    """Return Σ z zᵀ over the rows of every arm, (arms, d + 2, d + 2).

    A row's z has the d outputs of the last hidden layer, a constant, and the reward.
    """
    layers, (width, arms) = unflatten(network, shapes), shapes[-1]

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


def inverse_factor(precision: Any) -> tuple[Any, Any]:
    """Return L⁻¹ of Λ = L Lᵀ, and log det Λ, for every arm."""
    lower = jnp.linalg.cholesky(precision)
    eye = jnp.broadcast_to(jnp.eye(lower.shape[1], dtype=lower.dtype), lower.shape)
    diagonal = jnp.diagonal(lower, axis1=1, axis2=2)
    inverse = jax.scipy.linalg.solve_triangular(lower, eye, lower=True)
    return inverse, 2 * jnp.log(diagonal).sum(axis=1)


@functools.cache
def normal_inverse_gamma(shapes: Shapes) -> Callable[..., Any]:
    """Return a function that computes the posteriors of `NeuralLinear`."""

    def posterior(
        parameters: Any, history: Any, _: Any, count: Any, mean: Any, precision: Any, scale: Any
    ) -> Any:
        """Return every arm's Normal-Inverse-Gamma posterior given the features of all rows.

        With Λ = Λ₀ + Σ φφᵀ = L Lᵀ and v = L⁻¹(Λ₀μ₀ + Σ φy): the mean L⁻ᵀv (K, d), the root L⁻ᵀ
        of the covariance (K, d, d), log det Λ/Λ₀ (K,), and bₜ = b₀ + ½(Σ y² + μ₀ᵀΛ₀μ₀ − vᵀv) (K,).
        """
        sums = sum_over_rows(parameters[0], shapes, history, count)
        inverse, volume = inverse_factor(precision + sums[:, :-2, :-2])
        pull = precision @ mean
        v = (inverse @ (pull + sums[:, :-2, -1])[:, :, None])[:, :, 0]
        root = inverse.transpose(0, 2, 1)
        information = volume - jnp.linalg.slogdet(precision)[1]
        # Rounding may take this difference of large numbers below zero.
        spread = jnp.maximum(sums[:, -1, -1] + pull @ mean - (v * v).sum(axis=1), 0.0)
        found = (root @ v[:, :, None])[:, :, 0], jnp.triu(root)
        return *found, information, scale + spread / 2

    return posterior


@functools.cache
def laplace(shapes: Shapes, scale: float) -> Callable[..., Any]:
    """Return a function that computes the posteriors of `LastLayerLaplace`."""
    width, arms = shapes[-1][0] + 1, shapes[-1][1]

    def posterior(parameters: Any, history: Any, spread: Any, count: Any) -> Any:
        """Return every arm's mean (K, d), root (K, d, d) and information (K,), and the noise."""
        last = parameters[0][-width * arms :].reshape(width, arms).astype(history[2].dtype)
        sums = sum_over_rows(parameters[0], shapes, history, count)
        error = jnp.vstack([-last, jnp.ones(arms)])  # of the predictions, as coefficients of z
        errors = jnp.einsum("ik,kij,jk->", error, sums, error)
        # Plus one artificial error, the standard deviation of the rewards.
        noise = jnp.maximum((errors + spread**2) / (count + 1), LEAST_NOISE * spread**2)
        prior = (scale * spread) ** 2
        inverse, volume = inverse_factor(jnp.eye(width) / prior + sums[:, :-1, :-1] / noise)
        information = volume + width * jnp.log(prior)
        root = jnp.triu(inverse.transpose(0, 2, 1))
        return last.T, root, jnp.maximum(information, 0.0), noise[None]

    return posterior


def regression_arrays(regressions: Regressions) -> tuple[Any, ...]:
    """Return stacked means, roots and information as views (states, arms, …)."""
    mean, root = regressions.mean, regressions.root
    if isinstance(regressions, Lanes):
        mean, root = np.moveaxis(mean, -1, 1), np.moveaxis(root, -1, 1)
    return mean, root, regressions.information


def neural_linear_trainer(model: NeuralLinear, states: Sequence[Any]) -> Trainer:
    """Return a function that trains these states together, with their posteriors."""
    together, head = stacked(states), model.head
    regressions = together.head.regressions
    precision = np.linalg.inv(head.prior_root @ head.prior_root.T)
    compute = normal_inverse_gamma(model.layer_shapes(regressions.pulls.shape[1]))
    constants = head.prior_mean, precision, head.scale
    arrays = *regression_arrays(regressions), together.head.scale
    return Trainer(model, together, compute, constants, arrays, regressions.pulls)


def laplace_trainer(model: LastLayerLaplace, states: Sequence[Any]) -> Trainer:
    """Return a function that trains these states together, with their posteriors."""
    together = stacked(states)
    regressions = together.regressions
    compute = laplace(model.layer_shapes(regressions.pulls.shape[1]), model.prior_scale)
    arrays = *regression_arrays(regressions), together.noise
    return Trainer(model, together, compute, (), arrays, regressions.pulls)
