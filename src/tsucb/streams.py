"""Random streams: one for each seed, run and purpose, whatever else runs beside it."""

import numpy as np

# The purposes of a run's random streams. Every policy of a run shares the world's stream, so it
# meets the same parameters, contexts and noise: comparisons are paired.
WORLD, POLICY, MODEL, KEEP = 0, 1, 2, 3


def stream(seed: int, run: int, purpose: int) -> np.random.Generator:
    """The random stream of one run for one purpose."""
    return np.random.default_rng(np.random.SeedSequence((seed, run, purpose)))
