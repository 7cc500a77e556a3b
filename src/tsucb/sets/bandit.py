"""A linear bandit whose arms are a set, for `tsucb.simulate`."""

import math
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import numpy as np

from tsucb.checks import Positive, positive
from tsucb.compiler import implements, offers
from tsucb.environments.environment import Environment, begin, fill_normal
from tsucb.models.linear import Linear
from tsucb.models.model import update
from tsucb.numeric.arrays import Floats, inner
from tsucb.policies.names import named_policy
from tsucb.record import derived
from tsucb.sets.arm_set import ArmSet, features, support
from tsucb.sets.rules import pick, theta
from tsucb.step import play_step


def check_set(name: str, arms: Any) -> ArmSet:
    """Return the set; raise TypeError for anything else."""
    if not isinstance(arms, ArmSet):
        raise TypeError(
            f"the {name} must be a set, such as tsucb.sets.Ball(10), not a {type(arms).__name__}"
        )
    return arms


class SetBandit(Environment):
    """An arm a of the set pays ⟨θ, a⟩ plus N(0, σ²).

    Parameters
    ----------
    arm_set
        `Ball`, `Ellipsoid`, `Box`, `Polytope`, `Polynomial` or `Spline`.
    noise
        σ.
    prior_variance
        θ ~ N(0, prior_variance · I); 1/d by default, so that |θ| is about 1.

    >>> import tsucb
    >>> from tsucb.sets import Ball, SetBandit
    >>> bandit = SetBandit(Ball(3), noise=0.5)
    >>> policies = [tsucb.Thompson(), tsucb.TSUCB(10)]
    >>> tsucb.simulate(bandit, bandit.model(), policies, horizon=100, runs=2).regret.shape
    (2, 2, 100)
    """

    arm_set: Annotated[Any, check_set]
    noise: Positive = 1.0
    prior_variance: Any = None
    dimension: int = derived()
    coordinates: int = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Fill in the prior variance, and the sizes, which compiled code needs as fields."""
        arms, variance = values["arm_set"], values["prior_variance"]
        variance = 1 / arms.dimension if variance is None else variance
        values["prior_variance"] = positive("prior_variance", variance)
        values |= {"dimension": int(arms.dimension), "coordinates": int(arms.coordinates)}

    @property
    def arms(self) -> int:
        """1: to a model with one θ for all arms, a set is a single arm."""
        return 1

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The features of the played arm, (1, d)."""
        return (1, self.dimension)

    def model(self) -> Linear:
        """Return the model that knows the prior and the noise."""
        return Linear(self.dimension, self.noise, prior_covariance=self.prior_variance)

    def check_players(self, model: Any, policies: Iterable[Any]) -> None:
        """Raise an error for a model without a shared θ, or a policy that cannot play on sets."""
        check_model(model, self.arm_set)
        for policy in policies:
            check_policy(policy)


class SetWorld(NamedTuple):
    """One run: θ, the largest mean reward, and space for an arm and its features."""

    coefficients: Floats  # (d,)
    best: Floats  # (1,)
    point: Floats
    row: Floats  # (1, d)


@implements(begin, SetBandit)
def begin_on_set(environment, rng):  # type: ignore[no-untyped-def]
    arms, d = environment.arm_set, environment.dimension
    coefficients, best, point = np.empty(d), np.empty(1), np.empty(environment.coordinates)
    fill_normal(coefficients, math.sqrt(environment.prior_variance), rng)
    best[0] = support(arms, coefficients, point)
    return SetWorld(coefficients, best, point, np.empty((1, d)))


@implements(play_step, SetBandit)
def play_step_on_set(environment, world, player, step, world_rng, policy_rng):  # type: ignore[no-untyped-def]
    arms, model, state = environment.arm_set, player.model, player.state
    noise = environment.noise * world_rng.standard_normal()
    pick(player.policy, arms, theta(model, state, step), policy_rng, world.point)
    features(arms, world.point, world.row[0])
    mean = inner(world.coefficients, world.row[0])
    update(model, state, world.row, 0, mean + noise)
    return 0, world.best[0] - mean


def check_model(model: Any, arms: ArmSet) -> None:
    """Raise an error for a model without one θ for all arms, or with a θ of another length."""
    if not offers(theta, type(model)):
        raise TypeError(
            f"{type(model).__name__} has no coefficients that all arms of a set share; use "
            "tsucb.Linear"
        )
    (_, d) = model.context_shape(1)
    if d != arms.dimension:
        raise ValueError(f"the model has {d} features, but the arms have {arms.dimension}")


def check_policy(policy: Any) -> Any:
    """Return the policy, also for a printed name; raise TypeError if it does not play on sets."""
    policy = named_policy(policy) if isinstance(policy, str) else policy
    if not offers(pick, type(policy)):
        raise TypeError(
            f"{getattr(policy, 'name', type(policy).__name__)} does not play on sets; use TSUCB, "
            "Thompson, Greedy, OFUL, ChiSquaredUCB or BayesUCB"
        )
    return policy
