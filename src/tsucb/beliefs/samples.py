"""A posterior that is known by samples only: an ensemble, a bootstrap, a Markov chain."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.best import (
    add_win,
    best_probabilities,
    expected_best,
    gain_of_wins,
    regret_and_gain,
)
from tsucb.beliefs.law import Law, draw, upper_quantiles
from tsucb.checks import floats
from tsucb.compiler import implements
from tsucb.numeric.arrays import Floats, copy_to, largest_of, quantiles


class Samples(Law):
    """The arms' mean rewards are one of the rows of `draws` (S, n), each equally likely."""

    draws: Floats


def SampleBelief(draws: ArrayLike, **evidence: Any) -> Belief:
    """A belief that is known by samples from it.

    Parameters
    ----------
    draws
        (S, n): S draws of the n arms' mean rewards, such as the predictions of an ensemble's
        members. A policy that draws takes one of them at random; integrals are over all of them.
    evidence
        Further fields of `Belief`.

    >>> SampleBelief([[0.0, 1.0], [2.0, 1.0]]).mean
    array([1., 1.])
    """
    matrix = floats("draws", draws)
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(matrix).all():
        raise ValueError(
            "draws must be a finite matrix with one row per draw and one column per arm, "
            f"but its shape is {matrix.shape}"
        )
    moments = {"mean": matrix.mean(axis=0), "std": matrix.std(axis=0)}
    # In one layout, as policies are compiled for each.
    return Belief(Samples(np.ascontiguousarray(matrix)), **moments | evidence)


@implements(draw, Samples)
def draw_samples(belief, rng, out):  # type: ignore[no-untyped-def]
    draws = belief.law.draws
    copy_to(out, draws[int(rng.random() * draws.shape[0])])


@implements(upper_quantiles, Samples)
def upper_quantiles_samples(belief, tail, out):  # type: ignore[no-untyped-def]
    quantiles(belief.law.draws, 1.0 - tail, out)


@implements(expected_best, Samples)
def expected_best_samples(belief):  # type: ignore[no-untyped-def]
    draws = belief.law.draws
    total = 0.0
    for i in range(draws.shape[0]):
        total += largest_of(draws[i])
    return total / draws.shape[0]


@implements(best_probabilities, Samples)
def best_probabilities_samples(belief):  # type: ignore[no-untyped-def]
    out = np.zeros(belief.mean.size)
    for row in belief.law.draws:
        best, ties = largest_of(row), 0
        for a in range(row.size):
            ties += row[a] == best
        for a in range(row.size):
            if row[a] == best:
                out[a] += 1.0 / ties
    return out / belief.law.draws.shape[0]


@implements(regret_and_gain, Samples)
def regret_and_gain_samples(belief):  # type: ignore[no-untyped-def]
    arms = belief.mean.size
    wins, totals, best = np.zeros(arms), np.zeros((arms, arms)), 0.0
    for row in belief.law.draws:
        best += add_win(row, wins, totals)
    return gain_of_wins(belief.mean, wins, totals, best)
