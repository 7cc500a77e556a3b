"""Where TS-UCB helps and where it does not: `python benchmarks/where_it_helps.py FILE.csv`.

Six small problems, one of them with a model that is wrong; 200 paired runs, 40 with 60 arms.
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd

import tsucb

HORIZON = 10_000
PROBLEMS: dict[str, tuple[Any, Any, Any]] = {  # environment, model, and the UCB for it
    f"contextual linear, K = {arms}, σ = {noise:g}": (
        bandit := tsucb.ContextualLinearBandit(arms=arms, features=10, noise=noise),
        bandit.model(),
        tsucb.OFUL(),
    )
    for arms, noise in ((3, 1.0), (60, 1.0), (60, 0.05))
}
shared = tsucb.LinearBandit(arms=20, features=10)
PROBLEMS["one θ for all arms, K = 20, d = 10"] = (shared, shared.model(), tsucb.OFUL())
PROBLEMS["clicks without context, K = 10"] = (
    tsucb.KArmedBandit(arms=10),
    tsucb.BernoulliArms(),
    tsucb.UCB1(),
)
PROBLEMS["wheel, a linear model of a reward that is not"] = (
    tsucb.WheelBandit(),
    tsucb.NIGLinear(features=2),
    tsucb.ChiSquaredUCB(),
)


def main(path: Path) -> None:
    """Play all problems; write mean regret and the percentage of TS, paired by run."""
    tables = []
    for name, (environment, model, bound) in PROBLEMS.items():
        policies = {
            "TS": tsucb.Thompson(),
            "TS-UCB(1)": tsucb.TSUCB(1),
            "TS-UCB(100)": tsucb.TSUCB(100),
            "Greedy": tsucb.Greedy(),
            "UCB": bound,
        }
        runs = 40 if environment.arms == 60 else 200
        result = tsucb.simulate(environment, model, policies, horizon=HORIZON, runs=runs)
        table = result.summary(baseline="TS").reset_index()
        means = table.set_index("policy").regret_mean
        table["percent_of_means"] = 100 * table.policy.map(means) / means["TS"]
        table.insert(0, "problem", name)
        tables.append(table)
        print(table.to_string(index=False), flush=True)
    aside = path.with_suffix(".part")
    pd.concat(tables).to_csv(aside, index=False, float_format="%.6g")
    aside.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
