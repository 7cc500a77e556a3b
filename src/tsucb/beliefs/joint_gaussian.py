"""Jointly normal arms: they share coefficients, and each may have a part of its own."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief, nonnegative, vector
from tsucb.beliefs.gaussian import upper_quantiles_gaussian
from tsucb.beliefs.law import Law, draw, upper_quantiles
from tsucb.checks import floats
from tsucb.compiler import implements
from tsucb.numeric.arrays import Floats
from tsucb.numeric.bursts import burst, normal


class JointGaussian(Law):
    """The arms' mean rewards are mean + factor @ z + own · e with z and e standard normal.

    `factor` has a row per arm; `own` has an entry per arm, or is empty. `own` could as well be a
    diagonal block of further columns in `factor`, nearly all of them zeros.
    """

    factor: Floats
    own: Floats


def JointGaussianBelief(
    mean: ArrayLike, factor: ArrayLike, own: ArrayLike | None = None, **evidence: Any
) -> Belief:
    """A belief of jointly normal arms with the covariance factor @ factor.T + diag(own²).

    Parameters
    ----------
    mean
        Of every arm's mean reward.
    factor
        One row per arm.
    own
        Standard deviation of each arm's independent part; zero by default.
    evidence
        Further fields of `Belief`.

    >>> JointGaussianBelief(mean=[0.0, 0.0], factor=[[3.0, 4.0], [0.0, 1.0]]).std
    array([5., 1.])
    >>> JointGaussianBelief(mean=[0.0, 0.0], factor=[[3.0], [0.0]], own=[4.0, 1.0]).std
    array([5., 1.])
    """
    center = vector("mean", mean)
    matrix = floats("factor", factor)
    if matrix.ndim != 2 or len(matrix) != center.size or not np.isfinite(matrix).all():
        raise ValueError(
            f"factor must be a finite matrix with one row for each of the {center.size} arms, "
            f"but its shape is {matrix.shape}"
        )
    alone = np.zeros(0) if own is None else nonnegative("own", own, center.size)
    variance = (matrix**2).sum(axis=1) + (alone**2 if alone.size else 0.0)
    return Belief(JointGaussian(matrix, alone), center, **{"std": np.sqrt(variance)} | evidence)


@implements(draw, JointGaussian)
def draw_joint_gaussian(belief, rng, out):  # type: ignore[no-untyped-def]
    factor, own, state = belief.law.factor, belief.law.own, burst(rng)
    z = np.empty(factor.shape[1])
    for i in range(z.size):
        z[i], state = normal(state)
    for a in range(out.size):
        total = belief.mean[a]
        if own.size > 0:
            e, state = normal(state)
            total += own[a] * e
        for i in range(z.size):
            total += factor[a, i] * z[i]
        out[a] = total


implements(upper_quantiles, JointGaussian)(upper_quantiles_gaussian)  # each arm alone is normal
