"""A simulator fitted to a log: it resamples contexts, and draws rewards from a fitted model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import implements
from tsucb.environments.environment import Environment, World, advance, begin, reward
from tsucb.evaluation.candidates import Candidate
from tsucb.evaluation.settings import Settings
from tsucb.extras import require
from tsucb.logs.decisions import Decisions
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval
from tsucb.policies.greedy import Random
from tsucb.simulation import Simulation, simulate

if TYPE_CHECKING:
    import pandas as pd

WARNING = (
    "The simulation knows what the log says and nothing else: rewards are taken to be linear in "
    "the context and to stay as they were; arms that the log rarely played are mostly guesses, "
    "drawn again in every run; rewards come at once; and nobody reacts to being shown something "
    "else."
)
SETTLED = 0.1  # of the regret of random choice: a configuration with less has settled
RANDOM = "at random"


class LogBandit(Environment):
    """Contexts and offered arms drawn from a log; rewards from a linear model fitted to it.

    In every run each arm's coefficients are drawn from their posterior given the log, so runs
    differ in what the log leaves open. `like` makes a `LogBandit` from a log.

    Parameters
    ----------
    arms : K
    contexts : (N, d) as agents receive them
    design : (N, p) as the model of the rewards reads them
    mean, root : (K, p) and (K, p, p), the posterior N(mean, root rootᵀ) of the coefficients
    noise : (K,) σ of each arm's rewards
    clicks : whether rewards are 0 or 1
    offered : (N, K) which arms could be played with each context
    bare : whether models that take no context play in it
    """

    arms: int
    contexts: Floats
    design: Floats
    mean: Floats
    root: Floats
    noise: Floats
    clicks: bool
    offered: NDArray[np.bool_]
    bare: bool

    @property
    def features(self) -> int:
        """d, the length of a context."""
        return int(self.contexts.shape[1])

    @property
    def context_shape(self) -> tuple[int, ...]:
        """One vector (d,), the same for all arms; () for models that take none."""
        return () if self.bare else (self.features,)


@implements(begin, LogBandit)
def begin_like(environment, rng):  # type: ignore[no-untyped-def]
    arms, width = environment.mean.shape
    parameters = np.empty((arms, width))
    for a in range(arms):
        drawn = rng.standard_normal(width)
        parameters[a] = environment.mean[a] + environment.root[a] @ drawn
    context = np.empty(environment.contexts.shape[1])
    return World(parameters, context, np.zeros(arms), np.arange(arms), np.zeros(1))


@implements(advance, LogBandit)
def advance_like(environment, world, step, rng):  # type: ignore[no-untyped-def]
    row = rng.integers(0, environment.design.shape[0])
    world.context[:] = environment.contexts[row]
    n = 0
    for a in range(environment.arms):
        value = (environment.design[row] * world.parameters[a]).sum()
        world.means[a] = min(max(value, 0.0), 1.0) if environment.clicks else value
        if environment.offered[row, a]:
            world.available[n] = a
            n += 1
    world.noise[0] = rng.random() if environment.clicks else rng.standard_normal()
    return world.context, world.means, world.available[:n]


@implements(reward, LogBandit)
def reward_like(environment, world, arm):  # type: ignore[no-untyped-def]
    if environment.clicks:
        return 1.0 if world.noise[0] < world.means[arm] else 0.0
    return world.means[arm] + environment.noise[arm] * world.noise[0]


def like(decisions: Decisions) -> LogBandit:
    """Return a bandit whose coefficients have the posterior of `AdaptiveLinear` given a log.

    The posterior of an arm that was hardly played is what the other arms have in common, and wide.
    """
    given = Candidate({}, decisions, 0).events.contexts
    model, arms = AdaptiveLinear(given.shape[1]), len(decisions.arms)
    state = model.fit(arms, given if given.shape[1] else None, decisions.arm, decisions.reward)
    model.settle(state)
    mean, root = state.regressions.by_arm()
    mean[:, 0] += state.anchor[0]
    design: Floats = np.column_stack([np.ones(len(given)), given - state.anchor[1:]])
    clicks = bool(np.isin(decisions.reward, (0.0, 1.0)).all())
    return LogBandit(
        arms, given, design, mean, root, np.sqrt(state.variance), clicks, decisions.offered, False
    )


@dataclass(frozen=True, eq=False)
class Likeness:
    """The results of configurations in a simulator fitted to a log.

    Parameters
    ----------
    bandit : the simulator
    simulations : of each configuration, and of random choice
    horizon, runs : the number of decisions in a run, and of runs
    """

    bandit: LogBandit
    simulations: dict[str, Simulation]
    horizon: int
    runs: int

    def table(self) -> "pd.DataFrame":
        """Return one row per configuration: its regret, and when it has settled.

        `settled` is the number of decisions after which the regret of a decision is less than a
        tenth of that of random choice, averaged over runs and a twentieth of the horizon; NaN if
        never.
        """
        require("tables", "pandas")
        import pandas as pd

        lost = self.simulations[RANDOM].regret[0].mean(axis=0)
        rows = []
        for name, simulation in self.simulations.items():
            curves = simulation.regret[0]
            final = curves[:, -1]
            steps = np.append(0, simulation.checkpoints)
            rate = np.diff(np.append(0.0, curves.mean(axis=0))) / np.diff(steps)
            usual = lost[-1] / self.horizon
            window = max(rate.size // 20, 1)
            smooth = np.convolve(rate, np.full(window, 1 / window), mode="valid")
            below = np.flatnonzero(smooth < SETTLED * usual)
            mean, error, *_ = mean_interval(final)
            percent = 100 * mean / lost[-1] if lost[-1] > 0 else np.nan
            settled = float(steps[below[0] + window]) if below.size else np.nan
            rows.append((name, mean, error, percent, settled))
        names = ["configuration", "regret", "error", "percent_of_random", "settled"]
        return pd.DataFrame(rows, columns=names)


def simulate_like(
    decisions: Decisions,
    agents: Mapping[str, Settings],
    *,
    horizon: int,
    runs: int,
    seed: int = 0,
    workers: int | None = None,
) -> Likeness:
    """Play configurations in a simulator fitted to a log; all meet the same worlds.

    Parameters
    ----------
    decisions
        The log.
    agents
        Names and settings, as for `tsucb.evaluation.compare`.
    horizon, runs, seed, workers
        As for `tsucb.simulate`.
    """
    bandit = like(decisions)
    simulations: dict[str, Simulation] = {}
    given: Any = {"horizon": horizon, "runs": runs, "seed": seed, "workers": workers}
    plain = Candidate({}, decisions, seed)
    for name, settings in agents.items():
        candidate = Candidate(settings, decisions, seed)
        bare = not candidate.model.context_shape(bandit.arms)
        world = bandit._replace(contexts=candidate.events.contexts, bare=bare)
        policies = {name: candidate.policy}
        simulations[name] = simulate(world, candidate.model, policies, **given)
    simulations[RANDOM] = simulate(bandit, plain.model, {RANDOM: Random()}, **given)
    return Likeness(bandit, simulations, horizon, runs)
