"""Normal arms that share a part and have a part of their own, as hybrid models make them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, nonnegative, vector
from tsucb.beliefs.law import Law, draw, law_of, upper_quantiles
from tsucb.compiler import implements
from tsucb.numeric.arrays import Floats, rows_taken, taken
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.special import normal_quantile_upper


class HybridGaussian(Law):
    """The arms' mean rewards are mean + factor @ z + own · e with z and e standard normal.

    One row of the factor and one entry of `own` per arm: the same as `JointGaussian` with as many
    further columns as there are arms, without the zeros in them.
    """

    factor: Floats
    own: Floats


def HybridGaussianBelief(
    mean: ArrayLike, factor: ArrayLike, own: ArrayLike, **evidence: Any
) -> Belief:
    """A belief of normal arms with the covariance factor @ factor.T + diag(own²).

    Parameters
    ----------
    mean
        Of every arm's mean reward.
    factor
        One row per arm.
    own
        Standard deviation of what each arm has to itself.
    evidence
        What else a `Belief` holds.

    >>> HybridGaussianBelief(mean=[0.0, 0.0], factor=[[3.0], [0.0]], own=[4.0, 1.0]).std
    array([5., 1.])
    """
    center = vector("mean", mean)
    matrix, alone = np.array(factor, dtype=np.float64), nonnegative("own", own, center.size)
    if matrix.ndim != 2 or len(matrix) != center.size or not np.isfinite(matrix).all():
        raise ValueError(
            f"factor must be a finite matrix with one row for each of the {center.size} arms, "
            f"but its shape is {matrix.shape}"
        )
    std = np.sqrt((matrix**2).sum(axis=1) + alone**2)
    return Belief(HybridGaussian(matrix, alone), center, **{"std": std} | evidence)


@implements(draw, HybridGaussian)
def draw_hybrid_gaussian(belief, rng, out):  # type: ignore[no-untyped-def]
    factor, own = belief.law.factor, belief.law.own
    arms, rank = factor.shape
    state = burst(rng)
    z = np.empty(rank)
    for i in range(rank):
        z[i], state = normal(state)
    for a in range(arms):
        e, state = normal(state)
        total = belief.mean[a] + own[a] * e
        for i in range(rank):
            total += factor[a, i] * z[i]
        out[a] = total


@implements(law_of, HybridGaussian)
def law_of_hybrid_gaussian(belief, arms):  # type: ignore[no-untyped-def]
    return HybridGaussian(rows_taken(belief.law.factor, arms), taken(belief.law.own, arms))


@implements(upper_quantiles, HybridGaussian)
def upper_quantiles_hybrid_gaussian(belief, tail, out):  # type: ignore[no-untyped-def]
    z = normal_quantile_upper(tail)
    for a in range(out.size):
        out[a] = belief.mean[a] + z * belief.std[a]
