"""What exact integrals buy: `python docs/figures/exact.py measure`, then `… draw`.

`measure` plays every policy on three cells of Figure 1 and keeps all regrets and the processor
time in results/exact/ (about 25 minutes of one core, nearly all of it IDS(1000)); `draw` writes
the two pictures and prints the tables of docs/exact.md from them.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np

import tsucb

CELLS = ((5, 0.5), (20, 1.0), (60, 0.5))
POLICIES = (
    tsucb.Greedy(),
    tsucb.Thompson(),
    tsucb.TSUCB(1),
    tsucb.TSUCB(10),
    tsucb.TSUCB(100),
    tsucb.TSUCB(math.inf),
    tsucb.IDS(math.inf),
    tsucb.IDS(1000),
)
HORIZON, RUNS, SEED = 10_000, 100, 7
RESULTS = Path("results/exact")


def measure() -> None:
    """Regret of every run and processor time of a step, one file per cell and policy."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for arms, noise in CELLS:
        bandit = tsucb.ContextualLinearBandit(arms, 10, noise)
        for policy in POLICIES:
            path = RESULTS / f"{arms}-{noise:g}-{policy.name}.npz"
            if path.exists():
                continue
            play = {"horizon": HORIZON, "seed": SEED, "workers": 1, "progress": False}
            tsucb.simulate(bandit, bandit.model(), [policy], runs=1, **{**play, "horizon": 10})
            start = time.process_time()
            result = tsucb.simulate(bandit, bandit.model(), [policy], runs=RUNS, **play)
            seconds = (time.process_time() - start) / (HORIZON * RUNS)
            np.savez(path, regret=result.final(policy.name), seconds=seconds)
            print(path.name, f"{result.final(policy.name).mean():.2f}", f"{seconds * 1e6:.1f} µs")


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
