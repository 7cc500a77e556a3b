"""Jointly normal arms, as a shared vector of coefficients makes them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, vector
from tsucb.beliefs.law import Law, draw, law_of, upper_quantiles
from tsucb.compiler import implements
from tsucb.numeric.arrays import Floats, copy_to, rows_taken
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.special import normal_quantile_upper


class JointGaussian(Law):
    """The arms' mean rewards are mean + factor @ z with z standard normal; one row per arm."""

    factor: Floats


def JointGaussianBelief(mean: ArrayLike, factor: ArrayLike, **evidence: Any) -> Belief:
    """A belief of jointly normal arms with the covariance factor @ factor.T.

    Parameters
    ----------
    mean
        Of every arm's mean reward.
    factor
        One row per arm.
    evidence
        What else a `Belief` holds.

    >>> JointGaussianBelief(mean=[0.0, 0.0], factor=[[3.0, 4.0], [0.0, 1.0]]).std
    array([5., 1.])
    """
    center = vector("mean", mean)
    matrix = np.array(factor, dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) != center.size or not np.isfinite(matrix).all():
        raise ValueError(
            f"factor must be a finite matrix with one row for each of the {center.size} arms, "
            f"but its shape is {matrix.shape}"
        )
    std = np.sqrt((matrix**2).sum(axis=1))
    return Belief(JointGaussian(matrix), center, **{"std": std} | evidence)


@implements(draw, JointGaussian)
def draw_joint_gaussian(belief, rng, out):  # type: ignore[no-untyped-def]
    factor = belief.law.factor
    arms, rank = factor.shape
    copy_to(out, belief.mean)
    state = burst(rng)
    z = np.empty(rank)
    for i in range(rank):
        z[i], state = normal(state)
    for a in range(arms):
        for i in range(rank):
            out[a] += factor[a, i] * z[i]


@implements(law_of, JointGaussian)
def law_of_joint_gaussian(belief, arms):  # type: ignore[no-untyped-def]
    return JointGaussian(rows_taken(belief.law.factor, arms))


@implements(upper_quantiles, JointGaussian)
def upper_quantiles_joint_gaussian(belief, tail, out):  # type: ignore[no-untyped-def]
    quantile = normal_quantile_upper(tail)
    for a in range(out.size):
        out[a] = belief.mean[a] + quantile * belief.std[a]
