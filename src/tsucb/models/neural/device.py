"""Import JAX and optax, which train networks, or raise with the command that installs them."""

from tsucb.extras import require

require("deep", "jax", "optax")

import jax  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402

__all__ = ["jax", "jnp", "lax", "optax"]
