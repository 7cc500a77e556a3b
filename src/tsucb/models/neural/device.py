"""Import JAX and optax, which train networks, or say how to install them."""

try:
    import jax
    import optax
    from jax import lax
    from jax import numpy as jnp
except ImportError:
    raise ValueError(
        "networks are trained with JAX and optax; install them with: pip install 'tsucb[deep]'"
    ) from None

__all__ = ["jax", "jnp", "lax", "optax"]
