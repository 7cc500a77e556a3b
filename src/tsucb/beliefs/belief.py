"""What a model tells a policy: a belief about the mean reward of every available arm.

A belief has a `law`, which can be drawn from (one file per law in this folder), and for each of the
n arms available now

- `mean` and `std`: expectation and standard deviation of the arm's mean reward under the posterior,
- `estimate` and `radius`: μ̂(a) and U(a) − μ̂(a), the middle and half-width of a confidence
  interval (Section 3 of the paper); `mean` and `std` unless the model says otherwise,
- `pulls`: N(a), how often the arm was played,
- `information`: log(det prior covariance / det posterior covariance) of the arm's parameters,

and for all of them `step` (t, counted from 1), `dimension` (d, parameters per arm) and
`prior_std` (the smallest standard deviation of a parameter before any data). Policies read what
they need; the rest can be left away when a belief is made by hand.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.law import Law, law_of
from tsucb.compiler import compiled
from tsucb.numeric.arrays import Floats, Integers, taken


class Belief(
    NamedTuple(
        "Belief",
        [
            ("law", Law),
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
    """A law of the arms' mean rewards, and the evidence behind it; see the top of this file.

    >>> from tsucb.beliefs import Gaussian
    >>> belief = Belief(Gaussian(), mean=[0.1, 0.5], std=[1.0, 0.2])
    >>> belief.radius
    array([1. , 0.2])
    """

    __slots__ = ()

    chosen_by = "law"  # implementations for beliefs are chosen by the class of their law

    def __new__(
        cls,
        law: Law,
        mean: ArrayLike,
        std: ArrayLike,
        estimate: ArrayLike | None = None,
        radius: ArrayLike | None = None,
        pulls: ArrayLike | None = None,
        information: ArrayLike | None = None,
        step: int = 1,
        dimension: int = 1,
        prior_std: float = 1.0,
    ) -> "Belief":
        if not isinstance(law, Law):
            raise TypeError(f"a belief needs a law, such as Gaussian(), not {law!r}")
        if step < 1 or dimension < 1 or not prior_std > 0:
            raise ValueError(
                f"step and dimension count from 1 and prior_std is positive, "
                f"but they are {step}, {dimension} and {prior_std}"
            )
        mean = vector("mean", mean)
        n = mean.size
        std, zeros = nonnegative("std", std, n), np.zeros(n)
        return super().__new__(
            cls,
            law,
            mean,
            std,
            mean if estimate is None else vector("estimate", estimate, n),
            std if radius is None else nonnegative("radius", radius, n),
            counts("pulls", zeros.astype(np.int64) if pulls is None else pulls, n),
            nonnegative("information", zeros if information is None else information, n),
            int(step),
            int(dimension),
            float(prior_std),
        )

    @property
    def arms(self) -> int:
        """n, the number of arms."""
        return self.mean.size


@compiled
def belief_of(belief, arms, step):  # type: ignore[no-untyped-def]
    """The same belief, of some of its arms only, at another step."""
    return Belief(
        law_of(belief, arms), taken(belief.mean, arms), taken(belief.std, arms),
        taken(belief.estimate, arms), taken(belief.radius, arms), taken(belief.pulls, arms),
        taken(belief.information, arms), step, belief.dimension, belief.prior_std,
    )  # fmt: skip


def vector(name: str, values: ArrayLike, arms: int | None = None) -> Floats:
    """The values as a vector with one entry per arm, or a sentence on what is wrong."""
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


def nonnegative(name: str, values: ArrayLike, arms: int) -> Floats:
    """The same, with no entry below zero."""
    array = vector(name, values, arms)
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, but its smallest entry is {array.min()}")
    return array


def counts(name: str, values: ArrayLike, arms: int) -> Integers:
    """The same as whole numbers, unless they are fractions: pulls fade where a model forgets."""
    array = nonnegative(name, values, arms)
    whole: Integers = array.astype(np.int64)
    return array if np.asarray(values).dtype.kind == "f" else whole  # type: ignore[return-value]


def positive_vector(name: str, values: ArrayLike, arms: int | None = None) -> Floats:
    """The same, with every entry positive and finite."""
    array = vector(name, values, arms)
    if not ((array > 0) & np.isfinite(array)).all():
        raise ValueError(f"{name} must be positive and finite for every arm")
    return array
