"""Fixed arms without context: the agent's default beside the conjugate model with the true prior.

    python benchmarks/fixed_arms.py docs/results/fixed-arms.csv

Arms are drawn from the prior of every run; regret over 5,000 steps, 300 runs. "Late" are clicks of
5 % after 500 steps in which nothing was tracked, beside Thompson sampling of Beta(1, 1).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tsucb

HORIZON, RUNS, LATE_RUNS, SEED = 5_000, 300, 20, 3
ZEROS = 500
PRIORS = {
    "clicks, uniform": tsucb.BernoulliArms(1, 1, False),
    "clicks, 5 %": tsucb.BernoulliArms(4, 76, False),
    "normal, spread 0.3": tsucb.GaussianArms(1, 0, 0.3, False),
    "normal, spread 1": tsucb.GaussianArms(1, 5, 1, False),
}
DEFAULT = tsucb.AdaptiveLinear(0)


def row(arms: int, problem: str, model: str, policy: Any, regret: np.ndarray) -> dict[str, Any]:
    """Return the row of the regret of every run."""
    worst = np.sort(regret)[-max(regret.size // 100, 1) :].mean()
    error = regret.std(ddof=1) / np.sqrt(regret.size)
    found = {"arms": arms, "problem": problem, "model": model, "policy": policy.name}
    return found | {"mean": regret.mean(), "error": error, "worst_percent": worst}


def late(model: Any, policy: Any, arms: int, run: int) -> float:
    """Return the regret after 500 rewards of 0, whatever was played."""
    world, rng = np.random.default_rng((SEED, run)), np.random.default_rng((SEED, run, 1))
    rates = 0.05 * np.exp(0.5 * world.normal(size=arms))
    state, regret = model.start(arms), 0.0
    for t in range(ZEROS + HORIZON):
        arm = policy.choose(model.belief(state, rng=rng), rng).arm
        model.update(state, None, arm, float(t >= ZEROS and world.random() < rates[arm]))
        regret += (rates.max() - rates[arm]) * (t >= ZEROS)
    return float(regret)


def main(out: Path) -> None:
    """Write all rows."""
    rows = []
    for arms in (2, 10, 50):
        for problem, prior in PRIORS.items():
            for name, model in (("true prior", prior), ("default", DEFAULT)):
                result = tsucb.simulate(
                    tsucb.KArmedBandit(arms, prior), model, [tsucb.TSUCB(1)], horizon=HORIZON,
                    runs=RUNS, seed=SEED, workers=1, checkpoints=1, progress=False,
                )  # fmt: skip
                rows.append(row(arms, problem, name, tsucb.TSUCB(1), result.regret[0, :, -1]))
                print(rows[-1], flush=True)
    beta = tsucb.BernoulliArms(1, 1, False)
    for name, model, policy in (
        ("Beta(1, 1)", beta, tsucb.Thompson()),
        ("default", DEFAULT, tsucb.TSUCB(1)),
    ):
        regret = np.array([late(model, policy, 10, run) for run in range(LATE_RUNS)])
        rows.append(row(10, "late", name, policy, regret))
        print(rows[-1], flush=True)
    pd.DataFrame(rows).round(1).to_csv(out, index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
