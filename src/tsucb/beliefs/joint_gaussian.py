"""Jointly normal arms, which share coefficients, and hybrid ones, with a part of their own too."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, nonnegative, vector
from tsucb.beliefs.law import Law, draw, upper_quantiles
from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import Floats
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.special import normal_quantile_upper


class JointGaussian(Law):
    """The arms' mean rewards are mean + factor @ z with z standard normal; one row per arm."""

    factor: Floats


class HybridGaussian(Law):
    """The arms' mean rewards are mean + factor @ z + own · e with z and e standard normal.

    One row of the factor and one entry of `own` per arm: the same as `JointGaussian` with as many
    further columns as there are arms, without the zeros in them.
    """

    factor: Floats
    own: Floats


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
    matrix = factor_of(factor, center.size)
    std = np.sqrt((matrix**2).sum(axis=1))
    return Belief(JointGaussian(matrix), center, **{"std": std} | evidence)


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
    matrix, alone = factor_of(factor, center.size), nonnegative("own", own, center.size)
    std = np.sqrt((matrix**2).sum(axis=1) + alone**2)
    return Belief(HybridGaussian(matrix, alone), center, **{"std": std} | evidence)


def factor_of(factor: ArrayLike, arms: int) -> Floats:
    """Return the factor as a finite matrix with a row per arm; raise ValueError otherwise."""
    matrix = np.array(factor, dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) != arms or not np.isfinite(matrix).all():
        raise ValueError(
            f"factor must be a finite matrix with one row for each of the {arms} arms, "
            f"but its shape is {matrix.shape}"
        )
    return matrix


@compiled
def shared_normals(factor, state):  # type: ignore[no-untyped-def]
    """Return a standard normal for every column of the factor, and the next state of the burst."""
    z = np.empty(factor.shape[1])
    for i in range(z.size):
        z[i], state = normal(state)
    return z, state


@implements(draw, JointGaussian)
def draw_joint_gaussian(belief, rng, out):  # type: ignore[no-untyped-def]
    factor = belief.law.factor
    z, _ = shared_normals(factor, burst(rng))
    for a in range(out.size):
        out[a] = belief.mean[a]
        for i in range(z.size):
            out[a] += factor[a, i] * z[i]


@implements(draw, HybridGaussian)
def draw_hybrid_gaussian(belief, rng, out):  # type: ignore[no-untyped-def]
    factor, own = belief.law.factor, belief.law.own
    z, state = shared_normals(factor, burst(rng))
    for a in range(out.size):
        e, state = normal(state)
        total = belief.mean[a] + own[a] * e
        for i in range(z.size):
            total += factor[a, i] * z[i]
        out[a] = total


@implements(upper_quantiles, JointGaussian, HybridGaussian)
def upper_quantiles_of_normals(belief, tail, out):  # type: ignore[no-untyped-def]
    quantile = normal_quantile_upper(tail)
    for a in range(out.size):
        out[a] = belief.mean[a] + quantile * belief.std[a]
