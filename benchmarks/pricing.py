"""Prices in raw dollars, after the notebook of bayesianbandits on delayed rewards.

A shop in ten cities chooses one of five prices in each city every morning, and hears in the
evening what it earned, some 250 to 1,600 dollars a city: the price times what is sold, which
falls linearly with the price. A year. Nothing is scaled, no level is told, there is no noise:

    python benchmarks/pricing.py --runs 20 [--peer PYTHON] [--out FILE.csv]

With --peer PYTHON, the interpreter of an environment with bayesianbandits, its agent is played on
the same problems, with the prior mean of 1,000 dollars that the notebook gives it. The file gets
the regret of every run.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

PRICES = (5, 8, 11, 14, 17)
CITIES = 10


def regret(seed: int, decide: Callable[[], Sequence[int]], learn: Callable[[Any], None]) -> float:
    """Return the regret of a year in dollars; `decide` sets prices, `learn` gets the earnings."""
    rng = np.random.default_rng(seed)
    sold = rng.uniform(50, 100, (CITIES, 1)) + rng.uniform(-2, -0.1, (CITIES, 1)) * PRICES
    earned = np.array(PRICES) * np.maximum(sold, 0)
    total = 0.0
    for _ in range(365):
        chosen = [PRICES.index(price) for price in decide()]
        rewards = earned[range(CITIES), chosen]
        total += float((earned.max(axis=1) - rewards).sum())
        learn(rewards)
    return total


def tsucb(seed: int) -> float:
    """Play an agent with nothing set, with the names of the cities as contexts."""
    agent = import_module("tsucb").Agent(PRICES, seed=seed)
    cities = [{"city": f"city {number}"} for number in range(CITIES)]
    ids: list[Any] = []

    def decide() -> Sequence[int]:
        decisions = agent.choose_many(cities)
        ids[:] = decisions.ids
        return list(decisions.arms)

    return regret(seed, decide, lambda rewards: agent.reward_many(ids, rewards))


def bayesianbandits(seed: int) -> float:
    """Play the notebook's agent: a common level of about 1,000, and one for every city."""
    library = import_module("bayesianbandits")
    prior = np.array([1000.0] + [0.0] * CITIES)
    regressor = library.NormalInverseGammaRegressor
    arms = [library.Arm(price, learner=regressor(mu=prior)) for price in PRICES]
    agent = library.ContextualAgent(arms, library.ThompsonSampling(), random_seed=seed)
    cities = np.hstack([np.ones((CITIES, 1)), np.eye(CITIES)])
    chosen: list[int] = []

    def decide() -> Sequence[int]:
        chosen[:] = agent.pull(cities)
        return chosen

    def learn(rewards: Any) -> None:
        for price in set(chosen):
            mine = np.array(chosen) == price
            agent.select_for_update(price).update(cities[mine], rewards[mine])

    return regret(seed, decide, learn)


def main() -> None:
    """Play, and print the regret of every run, sorted."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with bayesianbandits")
    parser.add_argument("--only", choices=["tsucb", "bayesianbandits"], default="tsucb")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    options = parser.parse_args()
    lines = [f"{options.only},{globals()[options.only](seed):.1f}" for seed in range(options.runs)]
    if options.peer:
        command = [options.peer, __file__, "--only", "bayesianbandits", "--runs", str(options.runs)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        lines += done.stdout.splitlines()
    print("\n".join(lines))
    if options.out:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        commit = import_module("benchmarks.output").commit()
        rows = "".join(f"{line},{commit}\n" for line in lines)
        options.out.write_text(f"player,regret,commit\n{rows}")


if __name__ == "__main__":
    main()
