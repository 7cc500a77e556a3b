"""Linear rewards: one θ for all arms, or one β per arm and a context."""

import math
from typing import Any

import numpy as np

from tsucb.checks import Availability, Count, Positive, Switch, positive
from tsucb.compiler import compiled, implements
from tsucb.environments.environment import (
    Environment,
    World,
    advance,
    begin,
    draw_available,
    fill_normal,
)
from tsucb.models.contextual_linear import ContextualLinear
from tsucb.models.linear import Linear
from tsucb.numeric.arrays import inner, weighted_rows


class LinearEnvironment(Environment):
    """A linear bandit, with a prior variance of 1/d by default."""

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Fill in the prior variance, in place."""
        variance = values["prior_variance"]
        variance = 1 / values["features"] if variance is None else variance
        values["prior_variance"] = positive("prior_variance", variance)


class LinearBandit(LinearEnvironment):
    """Arm a pays X(a)ᵀθ plus N(0, σ²), with ‖X(a)‖ = 1 as in Theorem 2 of the paper.

    Parameters
    ----------
    arms, features
        K and d.
    noise
        σ.
    prior_variance
        θ ~ N(0, prior_variance · I); 1/d by default, so that ‖θ‖ is about 1.
    redraw
        Whether to draw new arm vectors at every step instead of once per run.
    availability
        Probability with which an arm can be played at a step.

    >>> import tsucb
    >>> bandit = LinearBandit(arms=10, features=3)
    >>> tsucb.simulate(bandit, bandit.model(), [tsucb.Thompson()], horizon=50, runs=1).regret.shape
    (1, 1, 50)
    """

    arms: Count
    features: Count
    noise: Positive = 1.0
    prior_variance: Any = None
    redraw: Switch = False
    availability: Availability = 1.0

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The feature vectors of all arms (K, d)."""
        return (self.arms, self.features)

    def model(self) -> Linear:
        """Return the model that knows the prior and the noise."""
        return Linear(self.features, self.noise, prior_covariance=self.prior_variance)


class ContextualLinearBandit(LinearEnvironment):
    """The synthetic problem of Figure 1: arm k pays xᵀβₖ plus N(0, σ²), x ~ N(0, I/d).

    Parameters
    ----------
    arms, features
        K and d.
    noise
        σ.
    prior_variance
        βₖ ~ N(0, prior_variance · I). By default 1/d, which the paper's runs used and which
        gives its numbers; its text says 1.
    availability
        Probability with which an arm can be played at a step.

    >>> import tsucb
    >>> bandit = ContextualLinearBandit(arms=10, features=10, noise=0.5)
    >>> tsucb.simulate(bandit, bandit.model(), [tsucb.TSUCB(1)], horizon=50, runs=1).regret.shape
    (1, 1, 50)

    Reference: Baek and Farias (2023), Section 4.1.
    """

    arms: Count
    features: Count = 10
    noise: Positive = 1.0
    prior_variance: Any = None
    availability: Availability = 1.0

    @property
    def context_shape(self) -> tuple[int, ...]:
        """One vector (d,)."""
        return (self.features,)

    def model(self) -> ContextualLinear:
        """Return the model that knows the prior and the noise."""
        return ContextualLinear(self.features, self.noise, prior_covariance=self.prior_variance)


@implements(begin, LinearBandit)
def begin_linear(environment, rng):  # type: ignore[no-untyped-def]
    arms, d = environment.arms, environment.features
    theta = np.empty((1, d))
    fill_normal(theta[0], math.sqrt(environment.prior_variance), rng)
    world = World(theta, np.empty((arms, d)), np.empty(arms), np.arange(arms), np.zeros(1))
    draw_unit_arms(world, rng)
    return world


@implements(advance, LinearBandit)
def advance_linear(environment, world, step, rng):  # type: ignore[no-untyped-def]
    if environment.redraw:
        draw_unit_arms(world, rng)
    world.noise[0] = environment.noise * rng.standard_normal()
    return world.context, world.means, draw_available(environment.availability, world, rng)


@compiled
def draw_unit_arms(world, rng):  # type: ignore[no-untyped-def]
    """Draw arm vectors uniform on the unit sphere, and set their mean rewards."""
    for a in range(world.means.size):
        x = world.context[a]
        fill_normal(x, 1.0, rng)
        x /= np.sqrt(inner(x, x))
        world.means[a] = inner(x, world.parameters[0])


@implements(begin, ContextualLinearBandit)
def begin_contextual_linear(environment, rng):  # type: ignore[no-untyped-def]
    arms, d = environment.arms, environment.features
    beta = np.empty((d, arms))  # with the arm last, for vector instructions
    for i in range(d):
        fill_normal(beta[i], math.sqrt(environment.prior_variance), rng)
    return World(beta, np.empty(d), np.empty(arms), np.arange(arms), np.zeros(1))


@implements(advance, ContextualLinearBandit)
def advance_contextual_linear(environment, world, step, rng):  # type: ignore[no-untyped-def]
    d = environment.features
    fill_normal(world.context, 1 / math.sqrt(d), rng)
    world.noise[0] = environment.noise * rng.standard_normal()
    weighted_rows(world.context, world.parameters, world.means)
    return world.context, world.means, draw_available(environment.availability, world, rng)
