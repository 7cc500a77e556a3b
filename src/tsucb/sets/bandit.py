"""A linear bandit whose arms are a set, and its simulation."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Annotated, Any

import numpy as np

from tsucb.checks import Positive, positive, whole_number
from tsucb.compiler import compiled, held, offers
from tsucb.environments.environment import fill_normal
from tsucb.models.linear import Linear
from tsucb.models.model import update
from tsucb.numeric.arrays import inner
from tsucb.record import Record
from tsucb.sets.arm_set import ArmSet, features, support
from tsucb.sets.rules import pick, theta
from tsucb.simulation.result import Simulation
from tsucb.simulation.simulate import (
    checkpoint_steps,
    cores,
    named_policies,
    reporting,
    run_numbers,
)
from tsucb.streams import POLICY, WORLD, stream


def check_set(name: str, arms: Any) -> ArmSet:
    """Return the set; raise TypeError if it is none."""
    if not isinstance(arms, ArmSet):
        raise TypeError(
            f"the {name} must be a set, such as tsucb.sets.Ball(10), not a {type(arms).__name__}"
        )
    return arms


class SetBandit(Record):
    """An arm a of the set pays ⟨θ, a⟩ plus N(0, σ²).

    Parameters
    ----------
    arms
        `Ball`, `Ellipsoid`, `Box`, `Polytope`, `Polynomial` or `Spline`.
    noise
        σ.
    prior_variance
        θ ~ N(0, prior_variance · I); 1/d by default, so that |θ| is about 1.

    >>> import tsucb
    >>> from tsucb.sets import Ball, SetBandit, simulate
    >>> bandit = SetBandit(Ball(3), noise=0.5)
    >>> policies = [tsucb.Thompson(), tsucb.TSUCB(10)]
    >>> simulate(bandit, bandit.model(), policies, horizon=100, runs=2).regret.shape
    (2, 2, 100)
    """

    arms: Annotated[Any, check_set]
    noise: Positive = 1.0
    prior_variance: Any = None

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Fill in the prior variance."""
        variance = values["prior_variance"]
        variance = 1 / values["arms"].dimension if variance is None else variance
        values["prior_variance"] = positive("prior_variance", variance)

    def model(self) -> Linear:
        """The model that knows the prior and the noise."""
        return Linear(self.arms.dimension, self.noise, prior_covariance=self.prior_variance)


def simulate(
    bandit: SetBandit,
    model: Any,
    policies: Sequence[Any] | Mapping[str, Any],
    *,
    horizon: int,
    runs: int | Sequence[int],
    seed: int = 0,
    workers: int | None = None,
    checkpoints: int | Sequence[int] = 100,
    progress: bool | Callable[[int], None] = True,
) -> Simulation:
    """Play every policy against the bandit, as `tsucb.simulate` does where arms are finitely many.

    Regret is Σ (largest ⟨θ, a⟩ of the set − that of the arm played). In run r every policy meets
    the same θ and the same noise; a run depends on `seed` and its number only.

    Parameters
    ----------
    bandit
        What pays.
    model
        `bandit.model()`, or another with one θ for all arms.
    policies, horizon, runs, seed, workers, checkpoints, progress
        As in `tsucb.simulate`.

    >>> import tsucb
    >>> from tsucb.sets import Box, SetBandit, simulate
    >>> bandit = SetBandit(Box(low=[0, 0, 0], high=[1, 1, 1]))
    >>> policies = [tsucb.OFUL(), tsucb.TSUCB(10)]
    >>> result = simulate(bandit, bandit.model(), policies, horizon=300, runs=20)
    >>> bool(result.summary(baseline="UCB").loc["TS-UCB(10)", "percent"] < 100)
    True
    """
    if not isinstance(bandit, SetBandit):
        raise TypeError(f"the bandit must be a SetBandit, not a {type(bandit).__name__}")
    named, numbers = named_policies(policies), run_numbers(runs)
    marks = checkpoint_steps(horizon, checkpoints)
    seed = whole_number("seed", seed, least=0)
    threads = cores() if workers is None else whole_number("workers", workers)
    check_model(model, bandit.arms)
    rules = [check_policy(policy) for policy in named.values()]
    regret = np.full((len(named), len(numbers), marks.size), np.nan)
    stop = np.zeros(1, dtype=np.bool_)

    def whole(p: int, r: int) -> int:
        streams = [held(stream(seed, numbers[r], purpose)) for purpose in (WORLD, POLICY)]
        d = bandit.arms.dimension
        room = np.empty(d), np.empty(bandit.arms.coordinates), np.empty((1, d))
        state = model.start(1)
        given = bandit, model, state, rules[p], horizon, marks, regret[p, r]
        play(*given, *room, streams[0], streams[1], stop)
        return int(horizon)

    jobs = [(p, r) for r in range(len(numbers)) for p in range(len(named))]
    pool = ThreadPoolExecutor(threads)
    with reporting(progress, len(jobs) * int(horizon)) as report:
        try:
            for future in as_completed([pool.submit(whole, p, r) for p, r in jobs]):
                report(future.result())
        except BaseException:
            stop[0] = True  # running kernels leave at their next step
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return Simulation(tuple(named), numbers, marks, regret)


@compiled
def play(bandit, model, state, policy, horizon, checkpoints, curve, coefficients, point, row,  # type: ignore[no-untyped-def]
         world_stream, policy_stream, stop):  # fmt: skip
    """Play one run, and record its regret at the checkpoints.

    There must be room for θ (d,), for a point of the set, and for its features (1, d).
    """
    world_rng, policy_rng, arms = world_stream.rng, policy_stream.rng, bandit.arms
    fill_normal(coefficients, math.sqrt(bandit.prior_variance), world_rng)
    best = support(arms, coefficients, point)
    regret, mark = 0.0, 0
    for t in range(1, horizon + 1):
        noise = bandit.noise * world_rng.standard_normal()
        pick(policy, arms, theta(model, state, t), policy_rng, point)
        features(arms, point, row[0])
        mean = inner(coefficients, row[0])
        update(model, state, row, 0, mean + noise)
        regret += best - mean
        if mark < checkpoints.size and checkpoints[mark] == t:
            curve[mark] = regret
            mark += 1
        if stop[0]:
            break


def check_model(model: Any, arms: ArmSet) -> None:
    """Raise if a model has no θ that all arms share, or one of another length."""
    if not offers(theta, type(model)):
        raise TypeError(
            f"{type(model).__name__} has no coefficients that all arms of a set share; use "
            "tsucb.Linear"
        )
    (_, d) = model.context_shape(1)
    if d != arms.dimension:
        raise ValueError(f"the model has {d} features, but the arms have {arms.dimension}")


def check_policy(policy: Any) -> Any:
    """Return the policy; raise TypeError if it does not play on sets."""
    if not offers(pick, type(policy)):
        raise TypeError(
            f"{getattr(policy, 'name', type(policy).__name__)} does not play on sets; use TSUCB, "
            "Thompson, Greedy, OFUL, ChiSquaredUCB or BayesUCB"
        )
    return policy
