"""What a floor under exploration costs: `python benchmarks/exploration.py FILE.csv`.

TS-UCB(100) with 0, 1, 2, 5 and 10 % of random decisions on the 25 problems of Figure 1, T = 10,000,
in paired runs: 40 of them, 12 with 60 arms; and random choice alone.
"""

import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

import tsucb
from tsucb.paper.experiments.experiment import cell_seed
from tsucb.paper.figure1 import FEATURES, INSTANCES

SHARES = (0.01, 0.02, 0.05, 0.1)
HORIZON = 10_000


def main(path: Path) -> None:
    """Play all problems; write the mean regret and what was lost of the gain over random choice."""
    inner = tsucb.TSUCB(100)
    policies: dict[str, Any] = {"0": inner} | {f"{e:g}": tsucb.Exploring(inner, e) for e in SHARES}
    policies["1"] = tsucb.Random()
    rows = []
    for arms, noise in INSTANCES:
        began = time.perf_counter()
        bandit = tsucb.ContextualLinearBandit(arms, FEATURES, noise)
        result = tsucb.simulate(
            bandit,
            bandit.model(),
            policies,
            horizon=HORIZON,
            runs=12 if arms == 60 else 40,
            seed=cell_seed(0, arms, noise),
            workers=1,
        )
        final = dict(zip(policies, result.regret[:, :, -1], strict=True))
        for share, regret in final.items():
            gain, extra = final["1"] - final["0"], regret - final["0"]
            rows.append(
                {
                    "arms": arms,
                    "noise": noise,
                    "epsilon": float(share),
                    "runs": regret.size,
                    "regret": regret.mean(),
                    "regret_error": regret.std(ddof=1) / regret.size**0.5,
                    "extra_error": extra.std(ddof=1) / regret.size**0.5,
                    "percent_of_no_floor": 100 * regret.mean() / final["0"].mean(),
                    "percent_of_gain_lost": 100 * extra.mean() / gain.mean(),
                }
            )
        print(arms, noise, f"{time.perf_counter() - began:.0f} s", flush=True)
        pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
