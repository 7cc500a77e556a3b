"""Random streams: one for each seed, run and purpose, whatever else runs beside it."""

import numpy as np

# The purposes of a run's random streams. Every policy of a run shares the world's stream, so it
# meets the same parameters, contexts and noise: comparisons are paired.
WORLD, POLICY, MODEL, KEEP = 0, 1, 2, 3


# The first word of every key: no generator that a user makes of the same seed has it.
WORD = 0x7473_7563


def stream(seed: int, run: int, purpose: int) -> np.random.Generator:
    """Return the random stream of one run for one purpose.

    NumPy fills seeds up to 128 bits before it adds the key, so those of two seeds cannot coincide.
    """
    key = (WORD, purpose, run)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
