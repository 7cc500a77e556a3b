"""Clicks of 1 to 5 %: logistic regression against the linear model that learns its prior.

    python benchmarks/clicks.py --runs 40 --out docs/results/clicks.csv

Arm k is clicked with probability σ(βₖᵀ(1, x)), x standard normal in 5 dimensions; the arms' levels
are logits of rates spread evenly (in logarithms) from 1 to 5 % in random order, slopes N(0, 0.3²).
Reported for every model and policy: regret in expected clicks with its 95 % interval, the shares of
the 50 and 90 % intervals of the posterior that cover the true rate at new contexts, of all arms and
of the one played most, the share of intervals that reach below 0, and microseconds of processor
time per step.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import tsucb
from tsucb.beliefs.law import upper_quantiles
from tsucb.compiler import implements
from tsucb.environments.environment import World, advance, begin, fill_normal, reward
from tsucb.numeric.statistics import mean_interval
from tsucb.simulation.loop import Run, RunRecord

ARMS, FEATURES, SLOPE = 10, 5, 0.3
LOWEST, HIGHEST = 0.01, 0.05
MODELS: dict[str, Any] = {
    "AdaptiveLinear": tsucb.AdaptiveLinear(FEATURES),
    "LogisticArms": tsucb.LogisticArms(FEATURES),
    "LogisticArms, Laplace": tsucb.LogisticArms(FEATURES, laplace=True),
}
POLICIES: list[Any] = [tsucb.TSUCB(10), tsucb.Thompson()]


class Clicks(tsucb.Environment):
    """See the top of this file."""

    arms: int
    features: int

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The context (d,)."""
        return (self.features,)


@implements(begin, Clicks)
def begin_clicks(environment, rng):  # type: ignore[no-untyped-def]
    arms, d = environment.arms, environment.features
    beta = np.empty((arms, d + 1))
    order = np.arange(arms)
    for k in range(arms - 1, 0, -1):
        other = int(rng.random() * (k + 1))
        order[k], order[other] = order[other], order[k]
    for k in range(arms):
        fill_normal(beta[k], SLOPE, rng)
        rate = LOWEST * (HIGHEST / LOWEST) ** (order[k] / (arms - 1))
        beta[k, 0] = math.log(rate / (1 - rate))
    return World(beta, np.empty(d), np.empty(arms), np.arange(arms), np.zeros(1))


@implements(advance, Clicks)
def advance_clicks(environment, world, step, rng):  # type: ignore[no-untyped-def]
    fill_normal(world.context, 1.0, rng)
    world.noise[0] = rng.random()
    for k in range(environment.arms):
        eta = world.parameters[k, 0]
        for j in range(environment.features):
            eta += world.parameters[k, j + 1] * world.context[j]
        world.means[k] = 1.0 / (1.0 + math.exp(-eta))
    return world.context, world.means, world.available


@implements(reward, Clicks)
def reward_clicks(environment, world, arm):  # type: ignore[no-untyped-def]
    return 1.0 if world.noise[0] < world.means[arm] else 0.0


def covered(
    model: Any, state: Any, beta: NDArray[Any], rng: np.random.Generator
) -> dict[str, float]:
    """Return the shares of intervals that cover the true rate, at 50 new contexts."""
    shares: dict[str, list[float]] = {}
    lower, upper = np.empty(ARMS), np.empty(ARMS)
    most = state.pulls == state.pulls.max()
    for _ in range(50):
        x = rng.normal(size=FEATURES)
        rates = 1 / (1 + np.exp(-(beta[:, 0] + beta[:, 1:] @ x)))
        belief = model.belief(state, x, rng=rng)
        for level in (50, 90):
            tail = (1 - level / 100) / 2
            upper_quantiles(belief, tail, upper)
            upper_quantiles(belief, 1 - tail, lower)
            inside = (lower <= rates) & (rates <= upper)
            shares.setdefault(f"cover_{level}", []).append(float(inside.mean()))
            shares.setdefault(f"cover_{level}_played", []).append(float(inside[most].mean()))
        shares.setdefault("below_0", []).append(float((lower < 0).mean()))
    return {name: float(np.mean(values)) for name, values in shares.items()}


def played(name: str, policy: Any, run: int, horizon: int) -> dict[str, float]:
    """Play one run; return its regret, time and coverage."""
    model = MODELS[name]
    environment = Clicks(ARMS, FEATURES)
    nothing, stop = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    record = RunRecord(np.array([horizon]), np.empty(1), nothing, stop, np.zeros(1))
    one = Run(environment, model, policy, 0, run, record)
    train = model.trainer([one.player.state])
    begun = time.process_time()
    while one.play_until(horizon) and one.played < horizon:
        train()
    spent = time.process_time() - begun
    beta = one.problem[1].parameters
    found = covered(model, one.player.state, beta, np.random.default_rng((1, run)))
    return {"regret": float(record.regret[0]), "microseconds": 1e6 * spent / horizon, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--horizons", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for name in MODELS:
        for policy in POLICIES:
            played(name, policy, 0, 50)  # compiles
            for horizon in given.horizons:
                runs = pd.DataFrame([played(name, policy, r, horizon) for r in range(given.runs)])
                mean, _, low, high = mean_interval(runs.regret.to_numpy())
                row = {"steps": horizon, "policy": policy.name, "model": name, "runs": given.runs}
                row |= {"regret": mean, "ci95_low": low, "ci95_high": high}
                row |= {str(k): v for k, v in runs.drop(columns="regret").mean().items()}
                rows.append(row)
                print(pd.DataFrame([row]).round(3).to_string(index=False), flush=True)
    table = pd.DataFrame(rows).sort_values(["steps", "policy"], kind="stable").round(4)
    print(table.to_string(index=False))
    if given.out:
        table.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
