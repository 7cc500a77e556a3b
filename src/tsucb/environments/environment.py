"""What all environments share: contexts, mean rewards and noise.

Everything random at a step (context, available arms, noise) is drawn before an arm is chosen, so
all policies that play with the same random stream meet the same world.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tsucb.compiler import compiled, generic, implements, run
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.bursts import burst, normal
from tsucb.record import Record


class World(NamedTuple):
    """One run of an environment: the parameters drawn for it, and the current step."""

    parameters: Any  # drawn once per run, unknown to the policies
    context: Floats  # of the current step, in the model's shape
    means: Floats  # (K,) mean reward of every arm at this step
    available: Integers  # (K,) space for the indices of the available arms
    noise: Floats  # (1,) this step's noise: normal, or uniform for Bernoulli and Poisson rewards


@generic
def begin(environment: Any, rng: np.random.Generator) -> Any:
    """Draw the unknown parameters of a new run."""
    return environment.begin(rng)


@generic
def advance(
    environment: Any, world: Any, step: int, rng: np.random.Generator
) -> tuple[Any, Floats, Integers]:
    """Draw a step: its context, the mean reward of every arm, and the available arms."""
    context, means, available = environment.advance(world, step, rng)
    return context, means, available


@generic
def reward(environment: Any, world: Any, arm: int) -> float:
    """Return the noisy reward of an arm at the current step."""
    return float(environment.reward(world, arm))


class Environment(Record):
    """A bandit problem to play against.

    To write your own, derive from this class, annotate the settings as fields, and add `arms` and
    `context_shape` as fields or properties. Then either write the methods `begin`, `advance` and
    `reward` in plain Python, or register compiled implementations with `implements`. By default
    `reward` is `world.means[arm] + world.noise[0]`.
    """

    @property
    def arms(self) -> int:
        """K, the number of arms."""
        raise NotImplementedError(f"{type(self).__name__} must have a field or property arms")

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The shape of a step's context; () for none."""
        raise NotImplementedError(f"{type(self).__name__} must have a property context_shape")

    def check_players(self, model: Any, policies: Iterable[Any]) -> None:
        """Raise an error for a model or a policy that cannot play here; by default all can."""

    def begin(self, rng: np.random.Generator) -> Any:
        """Draw the unknown parameters of a new run."""
        return run(begin, self, rng)

    def advance(
        self, world: Any, step: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Integers]:
        """Draw a step: its context, the mean reward of every arm (K,), the available arms."""
        context, means, available = run(advance, self, world, step, rng)
        return context, means, available

    def reward(self, world: Any, arm: int) -> float:
        """Return the noisy reward of an arm at the current step."""
        return float(run(reward, self, world, arm))


@implements(reward, Environment)
def mean_plus_noise(environment, world, arm):  # type: ignore[no-untyped-def]
    return world.means[arm] + world.noise[0]


@compiled
def draw_available(probability, world, rng):  # type: ignore[no-untyped-def]
    """Draw the available arms, each with this probability; draw again until there is one."""
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


@compiled
def fill_normal(out, scale, rng):  # type: ignore[no-untyped-def]
    """Fill an array with independent normals of standard deviation `scale`."""
    state = burst(rng)
    for i in range(out.size):
        z, state = normal(state)
        out[i] = scale * z
