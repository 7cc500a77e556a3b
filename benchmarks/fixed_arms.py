"""Fixed arms without context: the agent's default beside the conjugate model with the true prior.

    python -m benchmarks.fixed_arms docs/results/fixed-arms.csv [--runs 300]

Arms are drawn from the prior of every run; regret over 5,000 steps. "Without looks" is
`AdaptiveLinear(0)`, which never looks again at an arm that was left alone. "Late" are clicks of 5 %
after 500 steps in which nothing was tracked, and "batches" are clicks whose rewards come together,
1,000 at a time, over 10,000 steps, both beside Thompson sampling of Beta(1, 1). With two arms the
default is also measured with other shares of looks. Rows are added to the file as they come; those
that are there are not measured again. `--processes` and `--minutes` are explained in
benchmarks/tasks.py.
"""

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tsucb
from tsucb.numeric.arrays import Floats

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import tasks

HORIZON, LATE_RUNS, SEED = 5_000, 20, 3
RUNS, MORE = 300, {(2, "clicks, 5 %"): 3}  # runs, and times as many
RESAMPLED = 500  # for the standard error of the worst hundredth
ZEROS = 500
BATCH, BATCHES, BATCH_RUNS = 1_000, 10, 100
PRIORS = {
    "clicks, uniform": tsucb.BernoulliArms(1, 1, False),
    "clicks, 5 %": tsucb.BernoulliArms(4, 76, False),
    "normal, spread 0.3": tsucb.GaussianArms(1, 0, 0.3, False),
    "normal, spread 1": tsucb.GaussianArms(1, 5, 1, False),
}
OTHER_SHARES = (0.001, 0.002, 0.005, 0.02)  # of looks
MODELS: dict[str, Any] = {
    "default": tsucb.AdaptiveCurves(0),
    "without looks": tsucb.AdaptiveLinear(0),
    "Beta(1, 1)": tsucb.BernoulliArms(1, 1, False),
    **{f"looks {share:g}": tsucb.AdaptiveCurves(0, looks=share) for share in OTHER_SHARES},
}


def worst(regret: Floats) -> float:
    """Return the mean regret of the worst hundredth of the runs."""
    return float(np.sort(regret)[-max(regret.size // 100, 1) :].mean())


def summary(regret: Floats) -> dict[str, float]:
    """Return the mean of every run's regret and that of the worst hundredth, with errors."""
    error = regret.std(ddof=1) / np.sqrt(regret.size) if regret.size > 1 else np.nan
    again = np.random.default_rng(0).choice(regret, size=(RESAMPLED, regret.size))
    found = {"mean": regret.mean(), "error": error}
    found |= {"worst_percent": worst(regret), "worst_error": np.std([worst(x) for x in again])}
    return {name: round(float(x), 1) for name, x in found.items()}


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
    for batch in range(BATCHES):
        steps = range(BATCH * batch + 1, BATCH * (batch + 1) + 1)
        beliefs = (model.belief(state, step=step, rng=rng) for step in steps)
        pulled = np.array([policy.choose(belief, rng).arm for belief in beliefs])
        model.update(state, None, pulled, (world.random(BATCH) < rates[pulled]).astype(float))
        regret += (rates.max() - rates[pulled]).sum()
    return float(regret)


LIVES = {"late": (late, LATE_RUNS), "batches": (batched, BATCH_RUNS)}


class Cell(NamedTuple):
    """A row of the table."""

    arms: int
    problem: str
    model: str

    @property
    def policy(self) -> Any:
        """The policy: Thompson sampling for the conjugate model of late rewards and batches."""
        return tsucb.Thompson() if self.model == "Beta(1, 1)" else tsucb.TSUCB(1)

    def regrets(self, runs: int) -> Floats:
        """Return the regret of every run."""
        prior = PRIORS.get(self.problem)
        model = prior if self.model == "true prior" else MODELS[self.model]
        if prior is None:
            life, count = LIVES[self.problem]
            count = count * runs // RUNS
            return np.array([life(model, self.policy, self.arms, run) for run in range(count)])
        result = tsucb.simulate(
            tsucb.KArmedBandit(self.arms, prior), model, [self.policy], horizon=HORIZON,
            runs=runs * MORE.get((self.arms, self.problem), 1), seed=SEED, workers=1,
            checkpoints=1, progress=False,
        )  # fmt: skip
        return result.regret[0, :, -1]


def measured(runs: int, cell: Cell) -> list[tasks.Row]:
    """Return the row of a cell."""
    regret = cell.regrets(runs)
    return [{"policy": cell.policy.name, "runs": regret.size, **summary(regret)}]


def cells() -> Iterator[Cell]:
    """Yield the cells of the table, and those of two arms with other shares of looks."""
    for arms in (2, 10, 50):
        for problem in PRIORS:
            for model in ("true prior", "default", "without looks"):
                yield Cell(arms, problem, model)
    for problem in LIVES:
        for model in ("Beta(1, 1)", "default", "without looks"):
            yield Cell(10, problem, model)
    for share in OTHER_SHARES:
        for problem in PRIORS:
            yield Cell(2, problem, f"looks {share:g}")


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="FILE.csv")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="of most cells (default: %(default)s)"
    )
    tasks.add_options(parser)
    options = parser.parse_args()
    todo, each = list(cells()), partial(measured, options.runs)
    limits = options.processes, options.minutes
    print(tasks.measure(options.out, each, todo, Cell._asdict, *limits).to_string())


if __name__ == "__main__":
    main()
