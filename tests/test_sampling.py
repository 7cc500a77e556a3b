"""Estimates from few visited draws, or from many at a time, have the law of plain draws."""

import itertools

import numba
import numpy as np
import pytest
from scipy import stats

import tsucb
from tsucb.beliefs.sampling import FAR, MANY, average_best, estimated_regret_and_gain

COUNT = 100_000
# Mean and standard deviation of every arm, by the name of the case.
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


MANY_ARMS = {"arms drawn sixteen at a time": (np.linspace(-1.0, 0.0, 70), [0.3, 0.5] * 35)}


@pytest.mark.parametrize(
    ("name", "samples"),
    [*itertools.product(BELIEFS, [1, MANY, 100]), *itertools.product(MANY_ARMS, [1])],
)
def test_the_average_has_the_law_of_plain_draws(name, samples):
    mean, std = map(np.array, {**BELIEFS, **MANY_ARMS}[name])
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


@numba.njit
def estimates(belief, samples, out, rng):
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1] = estimated_regret_and_gain(belief, samples, rng)


@pytest.mark.parametrize("name", BELIEFS)
def test_regret_and_gain_have_the_law_of_plain_draws(name):
    samples, count = 100, 5_000
    mean, std = map(np.array, BELIEFS[name])
    found = np.empty((count, 2, mean.size))
    estimates(tsucb.GaussianBelief(mean, std), samples, found, np.random.default_rng(3))
    f = mean + std * np.random.default_rng(4).standard_normal((count, samples, mean.size))
    regret = f.max(axis=2).mean(axis=1)[:, None] - mean
    wins = (f.argmax(axis=2)[:, :, None] == np.arange(mean.size)).astype(float)
    totals = np.einsum("rsb,rsa->rba", wins, f - mean)
    gain = (totals**2 / np.maximum(wins.sum(axis=1), 1)[:, :, None]).sum(axis=1) / samples
    for a in range(mean.size):
        for ours, plain in ((found[:, 0, a], regret[:, a]), (found[:, 1, a], gain[:, a])):
            if plain.std() > 1e-12:  # 34 of them, each with a false alarm of 1e-6
                assert stats.ks_2samp(ours, plain).pvalue > 1e-6
            else:
                np.testing.assert_allclose(ours, plain[0], rtol=0, atol=1e-12)
