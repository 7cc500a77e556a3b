"""A belief about the mean reward of every available arm: what a model tells a policy.

A belief has a `law`, which can be drawn from (one file per law in this folder), and for each of the
n arms available now

- `mean` and `std`: expectation and standard deviation of the arm's mean reward under the posterior,
- `estimate` and `radius`: μ̂(a) and U(a) − μ̂(a), the middle and half-width of a confidence
  interval (Section 3 of the paper); `mean` and `std` unless the model says otherwise,
- `pulls`: N(a), the number of times the arm was played,
- `information`: log(det prior covariance / det posterior covariance) of the arm's parameters,

and for all arms together `step` (t, counted from 1), `dimension` (d, parameters per arm) and
`prior_std` (the smallest standard deviation of a parameter before any data). Policies read what
they need; all but law, mean and std can be left off when a belief is made by hand.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.law import Law
from tsucb.checks import floats, shown
from tsucb.numeric.arrays import Floats
from tsucb.record import Record

OPTIONAL: Any = None  # `Belief.prepare` fills in fields that are left off


class Belief(Record):
    """A law of the arms' mean rewards, and the evidence behind it; see the top of this file.

    >>> from tsucb.beliefs import Gaussian
    >>> belief = Belief(Gaussian(), mean=[0.1, 0.5], std=[1.0, 0.2])
    >>> belief.radius
    array([1. , 0.2])
    """

    # Implementations for beliefs are chosen by the class of their law.
    chosen_by: ClassVar[str] = "law"

    law: Law
    mean: Floats
    std: Floats
    estimate: Floats = OPTIONAL
    radius: Floats = OPTIONAL
    pulls: Floats = OPTIONAL
    information: Floats = OPTIONAL
    step: int = 1
    dimension: int = 1
    prior_std: float = 1.0

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Check the fields, and fill in those that were left off."""
        law, step, dimension = values["law"], values["step"], values["dimension"]
        prior_std = values["prior_std"]
        if not isinstance(law, Law):
            raise TypeError(f"a belief needs a law, such as Gaussian(), not {shown(law)}")
        if step < 1 or dimension < 1 or not prior_std > 0:
            raise ValueError(
                f"step and dimension count from 1 and prior_std is positive, "
                f"but they are {step}, {dimension} and {prior_std}"
            )
        values["mean"] = mean = vector("mean", values["mean"])
        values["std"] = std = nonnegative("std", values["std"], mean.size)
        zeros = np.zeros(mean.size)
        for name, check, default in (
            ("estimate", vector, mean),
            ("radius", nonnegative, std),
            ("pulls", nonnegative, zeros),
            ("information", nonnegative, zeros),
        ):
            value = default if values[name] is None else values[name]
            values[name] = check(name, value, mean.size)
        values |= {"step": int(step), "dimension": int(dimension), "prior_std": float(prior_std)}

    @property
    def arms(self) -> int:
        """n, the number of arms."""
        return self.mean.size


def vector(name: str, values: ArrayLike, arms: int | None = None) -> Floats:
    """Return the values as a vector with one entry per arm; raise ValueError otherwise."""
    array = floats(name, values)
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
    """Return a vector like `vector`; raise ValueError if an entry is below zero."""
    array = vector(name, values, arms)
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, but its smallest entry is {array.min()}")
    return array


def positive_vector(name: str, values: ArrayLike, arms: int | None = None) -> Floats:
    """Return a vector like `vector`; raise ValueError unless all are positive and finite."""
    array = vector(name, values, arms)
    if not ((array > 0) & np.isfinite(array)).all():
        raise ValueError(f"{name} must be positive and finite for every arm")
    return array
