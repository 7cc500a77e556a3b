"""What every environment shares: where contexts, mean rewards and noise come from.

Everything random at a step (context, available arms, noise) is drawn before the arm is chosen and
whatever the arm is, so all policies that run on the same stream meet the same world.
"""

from typing import Any, NamedTuple

import numpy as np

from tsucb.compiled import compiled, generic, generic_inlined, inlined
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.bursts import burst, normal


class World(NamedTuple):
    """One run of an environment: what was drawn for it, and the current step."""

    parameters: Floats  # what is unknown to the policies, drawn once per run
    context: Floats  # of the current step, in the model's shape
    means: Floats  # (K,) mean reward of every arm at this step
    available: Integers  # (K,) room for the indices of the arms that can be played
    noise: Floats  # (1,) this step's noise: standard normal, or uniform for Bernoulli rewards


@generic
def begin(environment: Any, rng: np.random.Generator) -> Any:
    """Draw the unknown parameters of a new run."""
    return environment.begin(rng)


@generic_inlined
def advance(
    environment: Any, world: Any, step: int, rng: np.random.Generator
) -> tuple[Any, Floats, Integers]:
    """Draw a step: its context, the mean reward of every arm, and the available arms."""
    context, means, available = environment.advance(world, step, rng)
    return context, means, available


@generic
def pay(environment: Any, world: Any, arm: int) -> float:
    """The noisy reward of an arm at the current step."""
    return float(environment.reward(world, arm))


class Environment:
    """A bandit problem to play against."""

    __slots__ = ()

    arms: int

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The shape of a step's context; () for none."""
        raise NotImplementedError

    def begin(self, rng: np.random.Generator) -> Any:
        """Draw the unknown parameters of a new run."""
        return _begin(self, rng)

    def advance(
        self, world: Any, step: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Integers]:
        """Draw a step: its context, the mean reward of every arm (K,), the available arms."""
        context, means, available = _advance(self, world, step, rng)
        return context, means, available

    def reward(self, world: Any, arm: int) -> float:
        """The noisy reward of an arm at the current step."""
        return float(_pay(self, world, arm))


def check_sizes(arms: int, features: int = 1) -> tuple[int, int]:
    """Both as whole numbers of at least one, or a sentence on what is wrong."""
    for name, value in (("arms", arms), ("features", features)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, but it is {value}")
    return int(arms), int(features)


def check_availability(probability: float) -> float:
    """The probability that an arm is available, or a sentence on what is wrong."""
    if not 0 < probability <= 1:
        raise ValueError(f"availability must be above 0 and at most 1, but it is {probability}")
    return float(probability)


@inlined
def draw_available(probability, world, rng):  # type: ignore[no-untyped-def]
    """Each arm with the given probability, and at least one."""
    arms = world.available.size
    if probability >= 1.0:
        return world.available
    n = 0
    while n == 0:
        for a in range(arms):
            if rng.random() < probability:
                world.available[n] = a
                n += 1
    return world.available[:n]


@inlined
def fill_normal(out, scale, rng):  # type: ignore[no-untyped-def]
    """Independent normals with standard deviation `scale`."""
    state = burst(rng)
    for i in range(out.size):
        z, state = normal(state)
        out[i] = scale * z


@compiled
def _begin(environment, rng):  # type: ignore[no-untyped-def]
    return begin(environment, rng)


@compiled
def _advance(environment, world, step, rng):  # type: ignore[no-untyped-def]
    return advance(environment, world, step, rng)


@compiled
def _pay(environment, world, arm):  # type: ignore[no-untyped-def]
    return pay(environment, world, arm)
