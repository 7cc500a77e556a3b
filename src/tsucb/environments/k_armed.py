"""K arms with means drawn from a prior."""

from typing import Any, NamedTuple

import numpy as np

from tsucb.compiled import generic, implements
from tsucb.environments.environment import (
    Environment,
    World,
    advance,
    begin,
    check_availability,
    check_sizes,
    draw_available,
    pay,
)
from tsucb.models.k_armed import BernoulliArms, GaussianArms


class KArmedBandit(
    Environment,
    NamedTuple("KArmedBandit", [("arms", int), ("prior", Any), ("availability", float)]),
):
    """K arms without context, whose means are drawn from a K-armed model's prior for every run.

    Parameters
    ----------
    arms
        K.
    prior
        `BernoulliArms` or `GaussianArms`: where means and rewards come from.
    availability
        Probability with which an arm can be played at a step.

    >>> import tsucb
    >>> bandit = KArmedBandit(arms=5, prior=tsucb.BernoulliArms())
    >>> tsucb.simulate(bandit, bandit.prior, [tsucb.TSUCB(1)], horizon=100, runs=2).regret.shape
    (1, 2, 100)

    Reference: Baek and Farias (2023), Section 2.1.
    """

    __slots__ = ()

    def __new__(
        cls,
        arms: int,
        prior: BernoulliArms | GaussianArms = BernoulliArms(),  # noqa: B008  (immutable)
        availability: float = 1.0,
    ) -> "KArmedBandit":
        if not isinstance(prior, BernoulliArms | GaussianArms):
            raise TypeError(
                f"the prior must be BernoulliArms or GaussianArms, not {type(prior).__name__}"
            )
        return super().__new__(cls, check_sizes(arms)[0], prior, check_availability(availability))

    @property
    def context_shape(self) -> tuple[int, ...]:
        """There is no context."""
        return ()


@generic
def draw_mean(prior: Any, rng: np.random.Generator) -> float:
    """An arm's mean reward, from the prior."""
    raise NotImplementedError  # called from compiled code only


@implements(draw_mean, BernoulliArms)
def _(prior, rng):  # type: ignore[no-untyped-def]
    return rng.beta(prior.alpha, prior.beta)


@implements(draw_mean, GaussianArms)
def _(prior, rng):  # type: ignore[no-untyped-def]
    return prior.prior_mean + prior.prior_std * rng.standard_normal()


@generic
def draw_noise(prior: Any, rng: np.random.Generator) -> float:
    """A step's noise."""
    raise NotImplementedError  # called from compiled code only


@implements(draw_noise, BernoulliArms)
def _(prior, rng):  # type: ignore[no-untyped-def]
    return rng.random()


@implements(draw_noise, GaussianArms)
def _(prior, rng):  # type: ignore[no-untyped-def]
    return prior.noise * rng.standard_normal()


@generic
def noisy(prior: Any, mean: float, noise: float) -> float:
    """The reward that mean and noise make."""
    raise NotImplementedError  # called from compiled code only


@implements(noisy, BernoulliArms)
def _(prior, mean, noise):  # type: ignore[no-untyped-def]
    return 1.0 if noise < mean else 0.0


@implements(noisy, GaussianArms)
def _(prior, mean, noise):  # type: ignore[no-untyped-def]
    return mean + noise


@implements(begin, KArmedBandit)
def _(environment, rng):  # type: ignore[no-untyped-def]
    means = np.empty(environment.arms)
    for a in range(environment.arms):
        means[a] = draw_mean(environment.prior, rng)
    return World(means, np.zeros(0), means, np.arange(environment.arms), np.zeros(1))


@implements(advance, KArmedBandit)
def _(environment, world, step, rng):  # type: ignore[no-untyped-def]
    world.noise[0] = draw_noise(environment.prior, rng)
    return world.context, world.means, draw_available(environment.availability, world, rng)


@implements(pay, KArmedBandit)
def _(environment, world, arm):  # type: ignore[no-untyped-def]
    return noisy(environment.prior, world.means[arm], world.noise[0])
