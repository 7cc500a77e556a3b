"""f̃ from a few visited draws has the law of f̃ from all draws."""

import numba
import numpy as np
import pytest
from scipy import stats

import tsucb
from tsucb.beliefs.sampling import FAR, MANY, average_best

COUNT = 100_000
# Mean and standard deviation of every arm, and what is special about them.
BELIEFS = {
    "equal arms": ([0.0] * 5, [1.0] * 5),
    "a wide arm far below": ([0.0, -3.0], [0.1, 1.5]),
    "arms at all distances": ([1.0, 0.9, 0.5, 0.0, -1.0, -4.0], [0.2, 0.1, 0.2, 0.2, 0.5, 1.0]),
    "a certain leader": ([0.0, -FAR, -2 * FAR], [0.0, 1.0, 1.0]),
    "certain arms": ([0.0, 0.0, -1.0], [0.0, 0.0, 0.0]),
    "an arm out of reach": ([0.0, -1e9], [1.0, 1.0]),
}


@numba.njit
def averages(belief, samples, out, rng):
    for i in range(out.size):
        out[i] = average_best(belief, samples, rng)


@pytest.mark.parametrize("samples", [1, MANY, 100])
@pytest.mark.parametrize("name", BELIEFS)
def test_the_average_has_the_law_of_plain_draws(name, samples):
    mean, std = map(np.array, BELIEFS[name])
    count = COUNT * MANY // max(samples, MANY)
    found = np.empty(count)
    averages(tsucb.GaussianBelief(mean, std), samples, found, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    plain = np.mean(
        [(mean + std * rng.standard_normal((count, mean.size))).max(1) for _ in range(samples)], 0
    )
    # Each of the checks has a false alarm of 1e-5 or less (4.5 standard errors).
    error = np.hypot(found.std(), plain.std()) / np.sqrt(count)
    assert abs(found.mean() - plain.mean()) <= 4.5 * error + 1e-12
    if plain.std() > 0:
        assert stats.ks_2samp(found, plain).pvalue > 1e-5
