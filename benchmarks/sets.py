"""Sets of infinitely many arms: regret, and microseconds of processor time per step.

    python benchmarks/sets.py --out docs/results/sets.csv

θ ~ N(0, I/d), noise N(0, 1); the same θ and noise for all policies.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tsucb
from tsucb.sets import Ball, Box, Ellipsoid, SetBandit, Spline

SETS: dict[str, tuple[Any, int]] = {
    "ball": (Ball(10), 10_000),
    "ellipsoid": (Ellipsoid(np.linspace(0.5, 2.0, 10)), 10_000),
    "box": (Box([-0.3] * 10, [0.3] * 10), 10_000),
    "spline": (Spline(0, 1, pieces=7), 1_000),
}
POLICIES: list[Any] = [
    tsucb.Thompson(),
    tsucb.TSUCB(1),
    tsucb.TSUCB(100),
    tsucb.OFUL(),
    tsucb.Greedy(),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for name, (arms, horizon) in SETS.items():
        bandit = SetBandit(arms)
        for policy in POLICIES:
            tsucb.simulate(bandit, bandit.model(), [policy], horizon=2, runs=1)  # compiles
            begun = time.process_time()
            result = tsucb.simulate(
                bandit, bandit.model(), [policy], horizon=horizon, runs=given.runs, workers=1
            )
            spent = 1e6 * (time.process_time() - begun) / (horizon * given.runs)
            [found] = result.summary().to_dict("records")
            rows.append(
                {
                    "set": name,
                    "features": arms.dimension,
                    "steps": horizon,
                    "policy": policy.name,
                    "runs": given.runs,
                    "regret": found["regret_mean"],
                    "ci95_low": found["ci95_low"],
                    "ci95_high": found["ci95_high"],
                    "microseconds": spent,
                }
            )
            print(pd.DataFrame(rows[-1:]).round(2).to_string(index=False, header=False), flush=True)
    if given.out:
        pd.DataFrame(rows).round(3).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
