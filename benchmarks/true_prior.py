"""How often intervals could cover after own play: `python -m benchmarks.true_prior FILE.csv`.

Clicks without context, of rates r · exp(e/2) with one standard normal e per arm, played by
TS-UCB(1). The default is compared with the exact posterior, on a grid of e, that starts from this
true prior, which nobody has. The file has the shares of 90 % intervals that contain the rate: of
the arm that would be played next, and of the arm that is truly the best. Some minutes of one core;
`--processes` and `--minutes` are explained in benchmarks/tasks.py.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tsucb
from tsucb.numeric.arrays import Floats

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import tasks

RATES, ARMS, TIMES, RUNS = (0.01, 0.05), (10, 50), (100, 1_000), 60
NINETY = 1.6448536269514722  # standard deviations either side
EFFECTS = np.linspace(-4.0, 4.0, 401)  # values of e


class TruePrior:
    """The exact posterior of every arm's rate."""

    def __init__(self, rate: float, arms: int, rng: np.random.Generator) -> None:
        self.rates, self.rng = rate * np.exp(EFFECTS / 2), rng
        self.logs = np.tile(-(EFFECTS**2) / 2, (arms, 1))

    def chances(self) -> Floats:
        """Return the probability of each value of the rate, for every arm."""
        chances: Floats = np.exp(self.logs - self.logs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def quantiles(self, below: Any) -> Floats:
        """Return the rate of each arm that is above the true one with a probability."""
        places = (self.chances().cumsum(axis=1) < below).sum(axis=1)
        quantiles: Floats = self.rates[np.minimum(places, EFFECTS.size - 1)]
        return quantiles

    def choose(self) -> int:
        """Return the arm that TS-UCB(1) plays."""
        chances = self.chances()
        mean = chances @ self.rates
        std = np.sqrt(np.maximum(chances @ self.rates**2 - mean**2, 1e-300))
        best = self.quantiles(self.rng.random((len(mean), 1))).max()
        return int(np.argmin((best - mean) / std))

    def learn(self, arm: int, reward: float) -> None:
        """Learn a reward of an arm."""
        self.logs[arm] += np.log(self.rates) if reward else np.log1p(-self.rates)

    def intervals(self) -> tuple[Floats, Floats]:
        """Return the ends of the arms' 90 % intervals."""
        return self.quantiles(0.05), self.quantiles(0.95)


class Default:
    """The agent with nothing set."""

    def __init__(self, rate: float, arms: int, rng: np.random.Generator) -> None:
        self.model, self.policy, self.rng = tsucb.AdaptiveCurves(0), tsucb.TSUCB(), rng
        self.state = self.model.start(arms)

    def choose(self) -> int:
        """Return the arm to play."""
        belief = self.model.belief(self.state, rng=self.rng)
        return int(self.policy.choose(belief, self.rng).arm)

    def learn(self, arm: int, reward: float) -> None:
        """Learn a reward of an arm."""
        self.model.update(self.state, None, np.array([arm]), np.array([reward]))

    def intervals(self) -> tuple[Floats, Floats]:
        """Return the ends of the arms' 90 % intervals."""
        belief = tsucb.AdaptiveCurves(0, looks=0).belief(self.state, rng=self.rng)
        half = NINETY * belief.radius
        return belief.mean - half, belief.mean + half


def covered(contestant: Any, rate: float, arms: int, run: int) -> list[tuple[bool, bool]]:
    """Return at each time whether the intervals of the arm played next and of the best cover."""
    rng = np.random.default_rng((run, arms))
    truth = np.minimum(rate * np.exp(rng.normal(size=arms) / 2), 1.0)
    learner, found = contestant(rate, arms, rng), []
    for t in range(1, max(TIMES) + 1):
        arm = learner.choose()
        learner.learn(arm, float(rng.random() < truth[arm]))
        if t in TIMES:
            lower, upper = learner.intervals()
            inside = (lower <= truth) & (truth <= upper)
            found.append((bool(inside[learner.choose()]), bool(inside[truth.argmax()])))
    return found


CONTESTANTS = {"true prior": TruePrior, "default": Default}


class Cell(NamedTuple):
    """The click rate in per cent, the number of arms and the belief of some rows."""

    clicks: str
    arms: int
    belief: str


def measured(runs: int, cell: Cell) -> list[tasks.Row]:
    """Return a row for each time: the shares of intervals that cover."""
    rate = float(cell.clicks.split()[0]) / 100
    contestant = CONTESTANTS[cell.belief]
    found = np.array([covered(contestant, rate, cell.arms, run) for run in range(runs)])
    shares = (100 * found.mean(axis=0)).round(1).tolist()
    return [
        {"t": t, "played": played, "best": best, "runs": runs}
        for t, (played, best) in zip(TIMES, shares, strict=True)
    ]


def main() -> None:
    """Measure the cells that the file does not have yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="FILE.csv")
    parser.add_argument("--runs", type=int, default=RUNS)
    tasks.add_options(parser)
    options = parser.parse_args()
    cells = [
        Cell(f"{100 * rate:g} %", arms, name)
        for rate in RATES for arms in ARMS for name in CONTESTANTS
    ]  # fmt: skip
    each, limits = partial(measured, options.runs), (options.processes, options.minutes)
    print(tasks.measure(options.out, each, cells, Cell._asdict, *limits).to_string())


if __name__ == "__main__":
    main()
