"""Fixed arms without context: the agent's default beside the conjugate model with the true prior.

    python benchmarks/fixed_arms.py docs/results/fixed-arms.csv

Arms are drawn from the prior of every run; regret over 5,000 steps. "Without looks" is
`AdaptiveLinear(0)`, which never looks again at an arm that was left alone. "Late" are clicks of 5 %
after 500 steps in which nothing was tracked, and "batches" are clicks whose rewards come together,
1,000 at a time, over 10,000 steps, both beside Thompson sampling of Beta(1, 1). Rows are added to
the file as they come; those that are there are not measured again.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tsucb
from tsucb.numeric.arrays import Floats

HORIZON, LATE_RUNS, SEED = 5_000, 20, 3
RUNS, MORE_RUNS = 300, {(2, "clicks, 5 %"): 1_000}
RESAMPLED = 500  # for the standard error of the worst hundredth
ZEROS = 500
BATCH, BATCHES, BATCH_RUNS = 1_000, 10, 100
PRIORS = {
    "clicks, uniform": tsucb.BernoulliArms(1, 1, False),
    "clicks, 5 %": tsucb.BernoulliArms(4, 76, False),
    "normal, spread 0.3": tsucb.GaussianArms(1, 0, 0.3, False),
    "normal, spread 1": tsucb.GaussianArms(1, 5, 1, False),
}
DEFAULT, WITHOUT_LOOKS = tsucb.AdaptiveCurves(0), tsucb.AdaptiveLinear(0)


def worst(regret: Floats) -> float:
    """Return the mean regret of the worst hundredth of the runs."""
    return float(np.sort(regret)[-max(regret.size // 100, 1) :].mean())


def row(arms: int, problem: str, model: str, policy: Any, regret: Floats) -> dict[str, Any]:
    """Return the row of the regret of every run."""
    error = regret.std(ddof=1) / np.sqrt(regret.size)
    again = np.random.default_rng(0).choice(regret, size=(RESAMPLED, regret.size))
    found = {"arms": arms, "problem": problem, "model": model, "policy": policy.name}
    found |= {"runs": regret.size, "mean": regret.mean(), "error": error}
    found |= {"worst_percent": worst(regret), "worst_error": np.std([worst(x) for x in again])}
    return {key: round(x, 1) if isinstance(x, float) else x for key, x in found.items()}


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


def batched(model: Any, policy: Any, arms: int, run: int) -> float:
    """Return the regret of clicks of uniform rates that are learned in batches."""
    world, rng = np.random.default_rng((SEED, run)), np.random.default_rng((SEED, run, 1))
    rates, state, regret = world.random(arms), model.start(arms), 0.0
    for _ in range(BATCHES):
        belief = model.belief(state, rng=rng)
        pulled = np.array([policy.choose(belief, rng).arm for _ in range(BATCH)])
        model.update(state, None, pulled, (world.random(BATCH) < rates[pulled]).astype(float))
        regret += (rates.max() - rates[pulled]).sum()
    return float(regret)


def played(arms: int, problem: str, model: Any) -> Floats:
    """Return the regret of every run of TS-UCB(1)."""
    prior, runs = PRIORS[problem], MORE_RUNS.get((arms, problem), RUNS)
    result = tsucb.simulate(
        tsucb.KArmedBandit(arms, prior), model, [tsucb.TSUCB(1)], horizon=HORIZON, runs=runs,
        seed=SEED, workers=1, checkpoints=1, progress=False,
    )  # fmt: skip
    return result.regret[0, :, -1]


def lives(life: Callable[..., float], model: Any, policy: Any, runs: int) -> Floats:
    """Return the regret of every run of ten arms."""
    return np.array([life(model, policy, 10, run) for run in range(runs)])


def cells() -> Iterator[tuple[int, str, str, Any, Callable[[], Floats]]]:
    """Yield number of arms, problem, model, policy, and what measures the regret of every run."""
    for arms in (2, 10, 50):
        for problem, prior in PRIORS.items():
            models = {"true prior": prior, "default": DEFAULT, "without looks": WITHOUT_LOOKS}
            for name, model in models.items():
                yield arms, problem, name, tsucb.TSUCB(1), partial(played, arms, problem, model)
    beta = tsucb.BernoulliArms(1, 1, False)
    for name, model, policy in (
        ("Beta(1, 1)", beta, tsucb.Thompson()),
        ("default", DEFAULT, tsucb.TSUCB(1)),
    ):
        for problem, life, runs in (("late", late, LATE_RUNS), ("batches", batched, BATCH_RUNS)):
            yield 10, problem, name, policy, partial(lives, life, model, policy, runs)


def main(out: Path) -> None:
    """Measure what is not in the file yet."""
    rows: list[Any] = pd.read_csv(out).to_dict("records") if out.exists() else []
    done = {(row["arms"], row["problem"], row["model"]) for row in rows}
    for arms, problem, name, policy, regrets in cells():
        if (arms, problem, name) not in done:
            rows.append(row(arms, problem, name, policy, regrets()))
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(out, index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
