"""Measure a UCB with a fixed factor beside TS-UCB, for the tutorial on comparing policies.

python benchmarks/fixed_factor.py docs/results/fixed-factor.csv
"""

import sys

import numpy as np
import pandas as pd

import tsucb

PROBLEMS = [(5, 0.1), (20, 1.0)]  # arms and noise
FACTORS = [0.5, 1.0, 2.0]


class FixedUCB:
    """Play the largest mean + factor · std; ties at random."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.name = f"UCB, factor {factor:g}"

    def choose(self, belief: tsucb.Belief, rng: np.random.Generator) -> int:
        """Return an arm."""
        bound = belief.mean + self.factor * belief.std
        return int(rng.choice(np.flatnonzero(bound == bound.max())))


def main() -> None:
    """Write regret in per cent of TS's, for both problems and all policies."""
    parts = []
    for arms, noise in PROBLEMS:
        bandit = tsucb.ContextualLinearBandit(arms=arms, features=10, noise=noise)
        rivals = [tsucb.Thompson(), tsucb.TSUCB(1), *map(FixedUCB, FACTORS)]
        result = tsucb.simulate(bandit, bandit.model(), rivals, horizon=1_000, runs=20, seed=1)
        table = result.summary(baseline="TS").drop("TS").reset_index()
        parts.append(table.assign(arms=arms, noise=noise))
    columns = ["arms", "noise", "policy", "runs", "percent", "percent_low", "percent_high"]
    pd.concat(parts)[columns].to_csv(sys.argv[1], index=False, float_format="%.2f")


if __name__ == "__main__":
    main()
