"""An arm that comes later: `python benchmarks/new_arm.py FILE.csv`.

Ten arms of a linear contextual bandit, whose mean rewards have a standard deviation of 1, are
played for 2,000 rewards; then an eleventh comes. What do the next decisions lose, and how often is
the new arm pulled until they lose less than 0.1 each? Measured for arms that share nothing, half or
most of their variance, with the learned prior, and with a fixed prior on standardised features and
a constant.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import tsucb
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval

ARMS, FEATURES, BEFORE, AFTER, RUNS = 10, 10, 2_000, 2_000, 100
WINDOW, LEVEL = 25, 0.1  # decisions that the regret is averaged over, and its bound


def one_run(learned: bool, common: float, seed: int) -> tuple[Floats, Floats]:
    """Return regret, and pulls of the new arm, after each decision since it was added."""
    rng = np.random.default_rng(seed)
    own = np.sqrt(1 - common)
    shared = np.sqrt(common) * rng.normal(size=FEATURES + 1)
    beta = (shared + own * rng.normal(size=(ARMS + 1, FEATURES + 1))) / np.sqrt(FEATURES + 1)
    # In raw units; the fixed prior gets them standardised.
    units = 10.0 ** rng.uniform(-2, 3, size=FEATURES)
    model = None if learned else tsucb.NIGLinear(FEATURES + 1)
    agent = tsucb.Agent(range(ARMS), model=model, policy=tsucb.TSUCB(10), seed=seed)
    regret, pulls = np.empty(AFTER), np.empty(AFTER)
    pulled = 0
    for t in range(BEFORE + AFTER):
        if t == BEFORE:
            agent.add_arm(ARMS)
        x = rng.normal(size=FEATURES)
        means = (beta @ np.append(1.0, x))[: len(agent.arms)]
        decision = agent.choose(x * units if learned else np.append(1.0, x))
        arm = int(decision.arm)
        agent.reward(decision.id, means[arm] + 0.5 * rng.normal())
        if t >= BEFORE:
            pulled += arm == ARMS
            regret[t - BEFORE], pulls[t - BEFORE] = means.max() - means[arm], pulled
    return regret, pulls


def settled(regret: Floats) -> int:
    """Return the first decision from which on the averaged regret stays below the level."""
    smooth = np.convolve(regret, np.ones(WINDOW) / WINDOW, mode="valid")
    above = np.flatnonzero(smooth > LEVEL)
    return int(above[-1]) + 1 if above.size else 0


def main(path: Path) -> None:
    """Play all runs; write one row for each pair of a prior and a share."""
    rows = []
    for common in (0.0, 0.5, 0.9):
        for learned in (True, False):
            found = [one_run(learned, common, seed) for seed in range(RUNS)]
            regrets, pulls = (np.array(each) for each in zip(*found, strict=True))
            when = settled(regrets.mean(axis=0))
            total, error = mean_interval(regrets[:, :200].sum(axis=1))[:2]
            row = {"shared": common, "prior": "learned" if learned else "fixed", "runs": RUNS}
            row |= {"decisions_until_settled": when}
            row |= {"pulls_until_settled": float(pulls[:, when].mean()) if when else 0.0}
            row |= {"regret_of_200": total, "error": error, "pulls_of_200": pulls[:, 199].mean()}
            for first, last in ((0, 10), (10, 50), (50, 100), (100, 200), (1000, 2000)):
                row[f"regret_{first}_{last}"] = regrets[:, first:last].mean()
            rows.append(row)
            print(row, flush=True)
            pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
