"""Models with a network in front, which JAX trains."""
