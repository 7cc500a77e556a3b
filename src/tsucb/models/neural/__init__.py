"""Models with a neural network, which JAX trains."""
