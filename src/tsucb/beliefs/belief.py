"""What a model tells a policy: a belief about the mean reward of every available arm.

A belief has, for each of the n arms available now,

- `mean` and `std`: expectation and standard deviation of the arm's mean reward under the posterior,
- `estimate` and `radius`: μ̂(a) and U(a) − μ̂(a), the middle and half-width of a confidence
  interval (Section 3 of the paper); `mean` and `std` unless the model says otherwise,
- `pulls`: N(a), how often the arm was played,
- `information`: log(det prior covariance / det posterior covariance) of the arm's parameters,

and for all of them `step` (t, counted from 1), `dimension` (d, parameters per arm) and
`prior_std` (the smallest standard deviation of a parameter before any data). Policies read what
they need; only `mean` and `std` must be given to make a belief by hand.

The class says how to draw from it: independent normals, jointly normal, or independent Betas.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tsucb.compiled import compiled, generic, implements
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.bursts import burst, normal


def _vector(name: str, values: ArrayLike | None, arms: int | None = None) -> Floats:
    """The values as a finite vector with one entry per arm, or a sentence on what is wrong."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a non-empty vector with one number per arm, "
            f"but its shape is {array.shape}"
        )
    if arms is not None and array.size != arms:
        raise ValueError(f"{name} has {array.size} entries for {arms} arms; give one per arm")
    if np.isnan(array).any():
        raise ValueError(f"{name} contains NaN; every entry must be a number")
    return array


def _nonnegative(name: str, values: ArrayLike | None, arms: int) -> Floats:
    array = _vector(name, values, arms)
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, but its smallest entry is {array.min()}")
    return array


class Evidence(NamedTuple):
    """The fields every belief shares, checked and filled in."""

    estimate: Floats
    radius: Floats
    pulls: Integers
    information: Floats
    step: int
    dimension: int
    prior_std: float

    @classmethod
    def complete(
        cls,
        mean: Floats,
        std: Floats,
        estimate: ArrayLike | None,
        radius: ArrayLike | None,
        pulls: ArrayLike | None,
        information: ArrayLike | None,
        step: int,
        dimension: int,
        prior_std: float,
    ) -> "Evidence":
        n = mean.size
        if step < 1 or dimension < 1 or not prior_std > 0:
            raise ValueError(
                f"step and dimension count from 1 and prior_std is positive, "
                f"but they are {step}, {dimension} and {prior_std}"
            )
        zeros = np.zeros(n)
        return cls(
            mean if estimate is None else _vector("estimate", estimate, n),
            std if radius is None else _nonnegative("radius", radius, n),
            _nonnegative("pulls", zeros if pulls is None else pulls, n).astype(np.int64),
            _nonnegative("information", zeros if information is None else information, n),
            int(step),
            int(dimension),
            float(prior_std),
        )


class GaussianBelief(
    NamedTuple(
        "GaussianBelief",
        [
            ("mean", Floats),
            ("std", Floats),
            ("estimate", Floats),
            ("radius", Floats),
            ("pulls", Integers),
            ("information", Floats),
            ("step", int),
            ("dimension", int),
            ("prior_std", float),
        ],
    )
):
    """Independent normals: arm a's mean reward is N(mean[a], std[a]²).

    >>> belief = GaussianBelief(mean=[0.1, 0.5], std=[1.0, 0.2])
    >>> belief.radius
    array([1. , 0.2])
    """

    __slots__ = ()

    def __new__(
        cls,
        mean: ArrayLike,
        std: ArrayLike,
        estimate: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        pulls: ArrayLike | None = None,
        information: ArrayLike | None = None,
        step: int = 1,
        dimension: int = 1,
        prior_std: float = 1.0,
    ) -> "GaussianBelief":
        mean = _vector("mean", mean)
        std = _nonnegative("std", std, mean.size)
        return super().__new__(
            cls,
            mean,
            std,
            *Evidence.complete(
                mean, std, estimate, radius, pulls, information, step, dimension, prior_std
            ),
        )


class JointGaussianBelief(
    NamedTuple(
        "JointGaussianBelief",
        [
            ("mean", Floats),
            ("factor", Floats),
            ("std", Floats),
            ("estimate", Floats),
            ("radius", Floats),
            ("pulls", Integers),
            ("information", Floats),
            ("step", int),
            ("dimension", int),
            ("prior_std", float),
        ],
    )
):
    """Jointly normal: the arms' mean rewards are mean + factor @ z with z standard normal.

    `factor` has one row per arm; the covariance is factor @ factor.T.

    >>> belief = JointGaussianBelief(mean=[0.0, 0.0], factor=[[3.0, 4.0], [0.0, 1.0]])
    >>> belief.std
    array([5., 1.])
    """

    __slots__ = ()

    def __new__(
        cls,
        mean: ArrayLike,
        factor: ArrayLike,
        std: ArrayLike | None = None,
        estimate: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        pulls: ArrayLike | None = None,
        information: ArrayLike | None = None,
        step: int = 1,
        dimension: int = 1,
        prior_std: float = 1.0,
    ) -> "JointGaussianBelief":
        mean = _vector("mean", mean)
        matrix = np.array(factor, dtype=np.float64)
        if matrix.ndim != 2 or len(matrix) != mean.size or not np.isfinite(matrix).all():
            raise ValueError(
                f"factor must be a finite matrix with one row for each of the {mean.size} arms, "
                f"but its shape is {matrix.shape}"
            )
        implied = np.sqrt((matrix**2).sum(axis=1))
        spread = implied if std is None else _nonnegative("std", std, mean.size)
        return super().__new__(
            cls,
            mean,
            matrix,
            spread,
            *Evidence.complete(
                mean, spread, estimate, radius, pulls, information, step, dimension, prior_std
            ),
        )


class BetaBelief(
    NamedTuple(
        "BetaBelief",
        [
            ("alpha", Floats),
            ("beta", Floats),
            ("mean", Floats),
            ("std", Floats),
            ("estimate", Floats),
            ("radius", Floats),
            ("pulls", Integers),
            ("information", Floats),
            ("step", int),
            ("dimension", int),
            ("prior_std", float),
        ],
    )
):
    """Independent Betas: arm a's mean reward is Beta(alpha[a], beta[a]).

    >>> belief = BetaBelief(alpha=[1.0, 8.0], beta=[1.0, 2.0])
    >>> belief.mean
    array([0.5, 0.8])
    """

    __slots__ = ()

    def __new__(
        cls,
        alpha: ArrayLike,
        beta: ArrayLike,
        mean: ArrayLike | None = None,
        std: ArrayLike | None = None,
        estimate: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        pulls: ArrayLike | None = None,
        information: ArrayLike | None = None,
        step: int = 1,
        dimension: int = 1,
        prior_std: float = 1.0,
    ) -> "BetaBelief":
        a = _vector("alpha", alpha)
        b = _vector("beta", beta, a.size)
        if not ((a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)).all():
            raise ValueError("alpha and beta must be positive and finite for every arm")
        center = a / (a + b) if mean is None else _vector("mean", mean, a.size)
        spread = (
            np.sqrt(a * b / (a + b + 1)) / (a + b)
            if std is None
            else _nonnegative("std", std, a.size)
        )
        return super().__new__(
            cls,
            a,
            b,
            center,
            spread,
            *Evidence.complete(
                center, spread, estimate, radius, pulls, information, step, dimension, prior_std
            ),
        )


Belief: TypeAlias = GaussianBelief | JointGaussianBelief | BetaBelief


@generic
def draw(belief: Any, rng: np.random.Generator, out: Floats) -> None:
    """Fill `out` with one draw of every arm's mean reward."""
    _draw(belief, rng, out)


@implements(draw, GaussianBelief)
def _(belief, rng, out):  # type: ignore[no-untyped-def]
    mean, std = belief.mean, belief.std
    state = burst(rng)
    for a in range(mean.size):
        z, state = normal(state)
        out[a] = mean[a] + std[a] * z


@implements(draw, JointGaussianBelief)
def _(belief, rng, out):  # type: ignore[no-untyped-def]
    factor = belief.factor
    arms, rank = factor.shape
    out[:] = belief.mean
    state = burst(rng)
    z = np.empty(rank)
    for i in range(rank):
        z[i], state = normal(state)
    for a in range(arms):
        for i in range(rank):
            out[a] += factor[a, i] * z[i]


@implements(draw, BetaBelief)
def _(belief, rng, out):  # type: ignore[no-untyped-def]
    for a in range(belief.alpha.size):
        out[a] = rng.beta(belief.alpha[a], belief.beta[a])


@compiled
def _draw(belief, rng, out):  # type: ignore[no-untyped-def]
    draw(belief, rng, out)
