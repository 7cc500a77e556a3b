"""Train networks as all `Networks` are, and compute the posteriors of their last layers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tsucb.models.neural.device import jax, jnp, lax
from tsucb.models.neural.laplace import LaplaceState, LastLayerLaplace
from tsucb.models.neural.networks_training import NetworksTrainer, cut, hidden
from tsucb.models.neural.training import BLOCK, for_all
from tsucb.models.regressions import set_posteriors

LEAST_NOISE = 1e-6  # of the rewards' variance: a network that fits all data is not certain


@functools.cache
def compiled_posterior(shapes: tuple[tuple[int, int], ...], scale: float) -> Callable[..., Any]:
    """The posterior of last layers of one shape, with weights of this prior scale."""
    width, arms = shapes[-1][0] + 1, shapes[-1][1]

    def posterior(parameters: Any, history: Any, count: Any, spread: Any) -> Any:
        """Every arm's mean (K, d), root (K, d, d) and information (K,), and the noise."""
        layers = cut(parameters[0], shapes)
        last = jnp.vstack(layers[-1]).astype(history[2].dtype)

        def add(block: Any, total: Any) -> Any:
            rows, chosen, rewards = (
                lax.dynamic_slice_in_dim(column, block * BLOCK, BLOCK) for column in history
            )
            phi = hidden(layers, rows, precision=lax.Precision.HIGHEST)
            z = jnp.column_stack([phi.astype(rewards.dtype), jnp.ones(BLOCK, rewards.dtype)])
            # Rows that are not there yet belong to no arm.
            there = block * BLOCK + jnp.arange(BLOCK) < count
            belongs = (chosen[:, None] == jnp.arange(arms)) & there[:, None]
            errors = jnp.where(belongs, rewards[:, None] - z @ last, 0.0)
            by_arm = (belongs[:, :, None] * z[:, None, :]).reshape(BLOCK, arms * width)
            return total[0] + by_arm.T @ z, total[1] + (errors**2).sum()

        start = (jnp.zeros((arms * width, width), last.dtype), jnp.zeros((), last.dtype))
        gram, errors = lax.fori_loop(0, (count + BLOCK - 1) // BLOCK, add, start)
        # One more observation that is off by the spread of the rewards.
        noise = jnp.maximum((errors + spread**2) / (count + 1), LEAST_NOISE * spread**2)
        prior = (scale * spread) ** 2
        precision = jnp.eye(width) / prior + gram.reshape(arms, width, width) / noise
        lower = jnp.linalg.cholesky(precision)
        eye = jnp.broadcast_to(jnp.eye(width, dtype=lower.dtype), lower.shape)
        root = jax.scipy.linalg.solve_triangular(lower, eye, lower=True).transpose(0, 2, 1)
        diagonal = jnp.diagonal(lower, axis1=1, axis2=2)
        information = 2 * jnp.log(diagonal).sum(axis=1) + width * jnp.log(prior)
        return last.T, root, jnp.maximum(information, 0.0), noise

    jit = functools.partial(jax.jit, compiler_options={"xla_gpu_deterministic_ops": True})
    compiled: Callable[..., Any] = jit(for_all(posterior, (0, 0, None, 0)))
    return compiled


class LaplaceTrainer(NetworksTrainer):
    """Trains networks, and puts their last layers' posteriors beside them."""

    def __init__(self, model: LastLayerLaplace, states: Sequence[LaplaceState]) -> None:
        super().__init__(model, [state.network for state in states])
        self.whole = {id(state.network): state for state in states}

    @property
    def room(self) -> int:
        """Rows of the history on the device, in whole blocks."""
        return -(-self.model.memory // BLOCK) * BLOCK

    def posterior(self, stored: int, spreads: Any) -> list[Any]:
        """Means, roots, information and noise."""
        compute = compiled_posterior(self.shapes, self.model.prior_scale)
        return [np.asarray(x) for x in compute(self.parameters, self.history, stored, spreads)]

    def take(self, state: Any, mean: Any, root: Any, information: Any, noise: Any) -> None:
        """Put them in the state."""
        whole = self.whole[id(state)]
        set_posteriors(whole.regressions, mean, root)
        whole.regressions.information[:] = information
        whole.noise[0] = noise
        stored = min(int(state.counts[0]), self.model.memory)
        counted = np.bincount(state.chosen[:stored], minlength=whole.pulls.size)
        whole.pulls[:] = state.pulls[:] = counted
