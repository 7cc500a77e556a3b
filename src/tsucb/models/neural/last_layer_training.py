"""Compute the posteriors of Bayesian last layers after their networks were trained."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tsucb.models.neural.device import jax, jnp, lax
from tsucb.models.neural.last_layer import LastLayerLaplace, NeuralLinear
from tsucb.models.neural.training import BLOCK, LastLayer, Shapes, hidden, mapped, unflatten
from tsucb.models.regressions import Lanes, Regressions

LEAST_NOISE = 1e-6  # share of the rewards' variance, for a network that fits all data exactly


def sum_over_rows(
    network: Any, shapes: Shapes, history: Any, count: Any, extra: Callable[..., Any]
) -> tuple[Any, Any]:
    """Return Σ z zᵀ over the rows of every arm, (arms, width, width), and a further sum.

    extra(features, rewards, belongs) returns z of some rows, and the further sum over these; the
    matrix `belongs` (rows, arms) says which arm each row belongs to.
    """
    layers, (width, arms) = unflatten(network, shapes), shapes[-1]

    def block(number: Any) -> tuple[Any, Any]:
        rows, chosen, rewards = (
            lax.dynamic_slice_in_dim(column, number * BLOCK, BLOCK) for column in history
        )
        phi = hidden(layers, rows, precision=lax.Precision.HIGHEST)
        phi = phi[:, :width].astype(rewards.dtype)
        # Rows beyond `count` belong to no arm.
        there = number * BLOCK + jnp.arange(BLOCK) < count
        belongs = (chosen[:, None] == jnp.arange(arms)) & there[:, None]
        z, more = extra(phi, rewards, belongs)
        by_arm = (belongs[:, :, None] * z[:, None, :]).reshape(BLOCK, arms * z.shape[1])
        return by_arm.T @ z, more

    def add(number: Any, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, block(number))

    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(block, 0))
    products, more = lax.fori_loop(0, (count + BLOCK - 1) // BLOCK, add, start)
    return products.reshape(arms, -1, products.shape[1]), more


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
        parameters: Any, history: Any, count: Any, spread: Any, mean: Any, precision: Any,
        scale: Any,
    ) -> Any:  # fmt: skip
        """Return every arm's Normal-Inverse-Gamma posterior given the features of all rows.

        With Λ = Λ₀ + Σ φφᵀ = L Lᵀ and v = L⁻¹(Λ₀μ₀ + Σ φy): the mean L⁻ᵀv (K, d), the root L⁻ᵀ
        of the covariance (K, d, d), log det Λ/Λ₀ (K,), and bₜ = b₀ + ½(Σ y² + μ₀ᵀΛ₀μ₀ − vᵀv) (K,).
        """

        def with_rewards(phi: Any, rewards: Any, belongs: Any) -> tuple[Any, tuple[()]]:
            return jnp.column_stack([phi, rewards]), ()

        sums, _ = sum_over_rows(parameters[0], shapes, history, count, with_rewards)
        inverse, volume = inverse_factor(precision + sums[:, :-1, :-1])
        pull = precision @ mean
        v = (inverse @ (pull + sums[:, :-1, -1])[:, :, None])[:, :, 0]
        root = inverse.transpose(0, 2, 1)
        information = volume - jnp.linalg.slogdet(precision)[1]
        # Rounding may take this difference of large numbers below zero.
        spread = jnp.maximum(sums[:, -1, -1] + pull @ mean - (v * v).sum(axis=1), 0.0)
        found = (root @ v[:, :, None])[:, :, 0], jnp.triu(root)
        return *found, information, scale + spread / 2

    return mapped(posterior, (0, 0, None, 0, None, None, None))


@functools.cache
def laplace(shapes: Shapes, scale: float) -> Callable[..., Any]:
    """Return a function that computes the posteriors of `LastLayerLaplace`."""
    width, arms = shapes[-1][0] + 1, shapes[-1][1]

    def posterior(parameters: Any, history: Any, count: Any, spread: Any) -> Any:
        """Return every arm's mean (K, d), root (K, d, d) and information (K,), and the noise."""
        last = parameters[0][-width * arms :].reshape(width, arms).astype(history[2].dtype)

        def with_errors(phi: Any, rewards: Any, belongs: Any) -> tuple[Any, Any]:
            z = jnp.column_stack([phi, jnp.ones_like(rewards)])
            errors = jnp.where(belongs, rewards[:, None] - z @ last, 0.0)
            return z, (errors**2).sum()

        gram, errors = sum_over_rows(parameters[0], shapes, history, count, with_errors)
        # Plus one artificial error, the standard deviation of the rewards.
        noise = jnp.maximum((errors + spread**2) / (count + 1), LEAST_NOISE * spread**2)
        prior = (scale * spread) ** 2
        inverse, volume = inverse_factor(jnp.eye(width) / prior + gram / noise)
        information = volume + width * jnp.log(prior)
        root = jnp.triu(inverse.transpose(0, 2, 1))
        return last.T, root, jnp.maximum(information, 0.0), noise[None]

    return mapped(posterior, (0, 0, None, 0))


def regression_arrays(regressions: Regressions) -> tuple[Any, ...]:
    """Return stacked means, roots and information as views (states, arms, …)."""
    mean, root = regressions.mean, regressions.root
    if isinstance(regressions, Lanes):
        mean, root = np.moveaxis(mean, -1, 1), np.moveaxis(root, -1, 1)
    return mean, root, regressions.information


def neural_linear_layer(model: NeuralLinear, states: Any, shapes: Shapes) -> LastLayer:
    """Return how to compute the posteriors of `NeuralLinear`."""
    head, regressions = model.head, states.head.regressions
    precision = np.linalg.inv(head.prior_root @ head.prior_root.T)
    with jax.enable_x64(True):
        prior = jax.device_put((head.prior_mean, precision, head.scale))
    arrays = *regression_arrays(regressions), states.head.scale
    return LastLayer(normal_inverse_gamma(shapes), prior, arrays, regressions.pulls)


def laplace_layer(model: LastLayerLaplace, states: Any, shapes: Shapes) -> LastLayer:
    """Return how to compute the posteriors of `LastLayerLaplace`."""
    arrays = *regression_arrays(states.regressions), states.noise
    compute = laplace(shapes, model.prior_scale)
    return LastLayer(compute, arrays=arrays, pulls=states.regressions.pulls)
