"""Random streams: one for each seed, run and purpose, the same whatever else runs."""

import numpy as np

# The purposes of a run's random streams. All policies of a run share the world's stream, so they
# meet the same parameters, contexts and noise: comparisons are paired.
WORLD, POLICY, MODEL, KEEP = 0, 1, 2, 3

# The first word of every key; a generator that a user makes from the same seed does not have it.
WORD = 0x7473_7563


def stream(seed: int, run: int, purpose: int) -> np.random.Generator:
    """Return the random stream of one run for one purpose.

    NumPy fills seeds up to 128 bits before it adds the key, so two seeds cannot have the same one.
    """
    key = (WORD, purpose, run)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
