"""K arms whose means are drawn from a prior."""

from typing import Annotated, Any

import numpy as np

from tsucb.beliefs.beta import draw_one
from tsucb.checks import Availability, Count
from tsucb.compiler import hook, implements
from tsucb.environments.environment import (
    Environment,
    World,
    advance,
    begin,
    draw_available,
    reward,
)
from tsucb.models.k_armed import BernoulliArms, GaussianArms, PoissonArms
from tsucb.numeric.special import normal_quantile_upper


def check_prior(name: str, prior: Any) -> Any:
    """Return the prior; raise TypeError if arms cannot be drawn from it."""
    if not isinstance(prior, BernoulliArms | PoissonArms | GaussianArms):
        raise TypeError(
            f"the {name} must be BernoulliArms, PoissonArms or GaussianArms, not "
            f"{type(prior).__name__}"
        )
    return prior


class KArmedBandit(Environment):
    """K arms without context, whose means are drawn from a K-armed model's prior for every run.

    Parameters
    ----------
    arms
        K.
    prior
        `BernoulliArms`, `PoissonArms` or `GaussianArms`: the law of means and rewards.
    availability
        Probability with which an arm can be played at a step.

    >>> import tsucb
    >>> bandit = KArmedBandit(arms=5, prior=tsucb.BernoulliArms())
    >>> tsucb.simulate(bandit, bandit.prior, [tsucb.TSUCB(1)], horizon=100, runs=2).regret.shape
    (1, 2, 100)

    Reference: Baek and Farias (2023), Section 2.1.
    """

    arms: Count
    prior: Annotated[Any, check_prior] = BernoulliArms()
    availability: Availability = 1.0
    context_shape = ()


@hook
def draw_mean(prior: Any, rng: np.random.Generator) -> float:
    """Draw an arm's mean reward from the prior."""


@implements(draw_mean, BernoulliArms)
def draw_mean_bernoulli(prior, rng):  # type: ignore[no-untyped-def]
    return draw_one(prior.alpha, prior.beta, rng)


@implements(draw_mean, PoissonArms)
def draw_mean_poisson(prior, rng):  # type: ignore[no-untyped-def]
    return rng.standard_gamma(prior.shape) / prior.rate


@implements(draw_mean, GaussianArms)
def draw_mean_gaussian(prior, rng):  # type: ignore[no-untyped-def]
    return prior.prior_mean + prior.prior_std * rng.standard_normal()


@hook
def draw_noise(prior: Any, rng: np.random.Generator) -> float:
    """Draw the noise of a step."""


@implements(draw_noise, BernoulliArms, PoissonArms)
def draw_noise_uniform(prior, rng):  # type: ignore[no-untyped-def]
    return rng.random()


@implements(draw_noise, GaussianArms)
def draw_noise_gaussian(prior, rng):  # type: ignore[no-untyped-def]
    return prior.noise * rng.standard_normal()


@hook
def noisy_reward(prior: Any, mean: float, noise: float) -> float:
    """Return the reward of an arm with this mean and this noise."""


@implements(noisy_reward, BernoulliArms)
def noisy_bernoulli(prior, mean, noise):  # type: ignore[no-untyped-def]
    return 1.0 if noise < mean else 0.0


@implements(noisy_reward, PoissonArms)
def noisy_poisson(prior, mean, noise):  # type: ignore[no-untyped-def]
    """Return the quantile of the Poisson distribution at the noise."""
    # For large means the sum would be long and underflow, and a normal is as good.
    if mean > 500.0:
        return max(0.0, np.floor(mean + 0.5 - np.sqrt(mean) * normal_quantile_upper(noise)))
    count, term = 0.0, np.exp(-mean)
    total = term
    while total < noise and term > 1e-20 * total:
        count += 1.0
        term *= mean / count
        total += term
    return count


@implements(noisy_reward, GaussianArms)
def noisy_gaussian(prior, mean, noise):  # type: ignore[no-untyped-def]
    return mean + noise


@implements(begin, KArmedBandit)
def begin_k_armed(environment, rng):  # type: ignore[no-untyped-def]
    means = np.empty(environment.arms)
    for a in range(environment.arms):
        means[a] = draw_mean(environment.prior, rng)
    return World(means, np.zeros(0), means, np.arange(environment.arms), np.zeros(1))


@implements(advance, KArmedBandit)
def advance_k_armed(environment, world, step, rng):  # type: ignore[no-untyped-def]
    world.noise[0] = draw_noise(environment.prior, rng)
    return world.context, world.means, draw_available(environment.availability, world, rng)


@implements(reward, KArmedBandit)
def reward_k_armed(environment, world, arm):  # type: ignore[no-untyped-def]
    return noisy_reward(environment.prior, world.means[arm], world.noise[0])
