"""How often an interval of a belief contains the truth, and by how much.

    python -m benchmarks.intervals docs/results/intervals.csv [docs/figures]

Arms are played uniformly at random. At t = 20, 100, 1,000 and
10,000 rewards, the 90 % intervals of the arms' mean rewards (at five contexts, where there are
contexts) are compared with the truth. Worlds, with one standard normal e per arm and one slope per
arm and feature:

| rewards | mean of arm k at x | reward |
|---|---|---|
| normal | 5 + s·e + slope·x, s = 0.1, 0.3 or 1 in turn | N(mean, 1) |
| clicks r | r · exp(e/2 + slope·x) | 1 with this probability, or 0 |
| revenue | 3 % · exp(e/2 + slope·x) sales | a sale pays a lognormal amount of mean 30 |
| counts | 2 · exp(0.3·e + slope·x) | Poisson |

Slopes are N(0, 1/d) for normal rewards and N(0, 0.09/d) for the others, which are not linear in x.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tsucb
from benchmarks.output import save_pictures
from tsucb.beliefs.law import upper_quantiles
from tsucb.numeric.arrays import Floats

CLICKS = ("clicks 0.1 %", "clicks 0.3 %", "clicks 1 %", "clicks 5 %")
KINDS = ("normal", *CLICKS, "revenue", "counts")
TIMES = (20, 100, 1_000, 10_000)
FEATURES = (0, 3, 30)
RUNS = {2: 60, 10: 24, 50: 12}  # by the number of arms
CONTEXTS = 5  # at which intervals are compared


class World:
    """Arms of one of the kinds, with d features."""

    def __init__(self, kind: str, arms: int, features: int, run: int) -> None:
        self.kind, self.rng = kind, np.random.default_rng((run, arms, features, KINDS.index(kind)))
        self.own = self.rng.normal(size=arms)
        spread = 1.0 if kind == "normal" else 0.3
        self.slopes = spread * self.rng.normal(size=(features, arms)) / np.sqrt(max(features, 1))
        self.spread = (0.1, 0.3, 1.0)[run % 3]

    def means(self, x: Floats) -> Any:
        """Return the means (N, K) at contexts (N, d)."""
        slope = x @ self.slopes
        if self.kind == "normal":
            return 5 + self.spread * self.own + slope
        if self.kind == "counts":
            return 2 * np.exp(0.3 * self.own + slope)
        rate = 0.03 if self.kind == "revenue" else float(self.kind.split()[1]) / 100
        rates = np.minimum(rate * np.exp(self.own / 2 + slope), 1.0)
        return 30 * rates if self.kind == "revenue" else rates

    def rewards(self, means: Floats) -> Any:
        """Return a reward for each mean."""
        if self.kind == "normal":
            return means + self.rng.normal(size=means.shape)
        if self.kind == "counts":
            return self.rng.poisson(means).astype(float)
        if self.kind == "revenue":
            sold = self.rng.random(means.shape) < means / 30
            return sold * 30 * np.exp(self.rng.normal(size=means.shape) - 0.5)
        return (self.rng.random(means.shape) < means).astype(float)


def covered(model: Any, state: Any, world: World, x: Floats) -> float:
    """Return the share of intervals that contain the truth, over arms and contexts x (N, d)."""
    truth, inside = world.means(x), []
    lower, upper = np.empty((2, truth.shape[1]))
    for row, means in zip(x, truth, strict=True):
        belief = model.belief(state, row if row.size else None, rng=world.rng)
        upper_quantiles(belief, 0.05, upper)
        upper_quantiles(belief, 0.95, lower)
        inside.append(np.mean((lower <= means) & (means <= upper)))
    return float(np.mean(inside))


def uniform(model: Any, kind: str, arms: int, features: int, runs: int, times: Any) -> list[Any]:
    """Return (t, share covered, its standard error over runs) for every time."""
    found = np.empty((runs, len(times)))
    for run in range(runs):
        world = World(kind, arms, features, run)
        state, done = model.start(arms), 0
        at = world.rng.normal(size=(CONTEXTS if features else 1, features))
        for i, t in enumerate(times):
            x = world.rng.normal(size=(t - done, features))
            pulled = world.rng.integers(arms, size=t - done)
            means = world.means(x)[np.arange(t - done), pulled]
            model.update(state, x if features else None, pulled, world.rewards(means))
            found[run, i] = covered(model, state, world, at)
            done = t
    error = found.std(axis=0, ddof=1) / np.sqrt(runs)
    return list(zip(times, found.mean(axis=0), error, strict=True))


def cells() -> Iterator[tuple[Any, str, int, int]]:
    """Yield model, kind of rewards, arms and features of every cell of the grid."""
    for features in FEATURES:
        for kind in KINDS:
            for arms in RUNS:
                yield tsucb.AdaptiveLinear(features), kind, arms, features
                if kind in CLICKS and features < max(FEATURES):
                    yield tsucb.LogisticArms(features), kind, arms, features


def measure(out: Path) -> pd.DataFrame:
    """Measure the cells that are not in the file yet; return a row for every cell and time."""
    rows: list[Any] = pd.read_csv(out).to_dict("records") if out.exists() else []
    done = {(row["model"], row["rewards"], row["features"], row["arms"]) for row in rows}
    for model, kind, arms, features in cells():
        key = (type(model).__name__, kind, features, arms)
        if key in done:
            continue
        cell = dict(zip(("model", "rewards", "features", "arms"), key, strict=True))
        for t, share, error in uniform(model, kind, arms, features, RUNS[arms], TIMES):
            found = {"t": t, "covered": round(100 * share, 1), "error": round(100 * error, 1)}
            rows.append({**cell, **found})
        print(*key, [row["covered"] for row in rows[-len(TIMES) :]], flush=True)
        pd.DataFrame(rows).to_csv(out, index=False)
    return pd.DataFrame(rows)


def drawing(table: pd.DataFrame, narrow: bool) -> Any:
    """Return the picture: a panel for each number of features, a line for each kind of rewards."""
    import matplotlib.pyplot as plt

    size = (5.0, 7.5) if narrow else (9.0, 3.4)
    rows, columns = (3, 1) if narrow else (1, 3)
    figure, axes = plt.subplots(
        rows, columns, sharex=True, sharey=True, figsize=size, layout="constrained"
    )
    shown = table[table.model == "AdaptiveLinear"]
    for panel, features in zip(axes, FEATURES, strict=True):
        panel.axhspan(85, 95, alpha=0.15, color="grey", linewidth=0)
        for kind in KINDS:
            part = shown[(shown.features == features) & (shown.rewards == kind)]
            panel.plot(
                TIMES, part.groupby("t").covered.mean(), marker="o", markersize=3, label=kind
            )
        panel.set(xscale="log", ylim=(40, 101), title=f"d = {features}", xlabel="rewards")
    axes[0].set_ylabel("% covered")
    axes[-1].legend(fontsize="small", loc="lower right")
    return figure


def main(out: Path, pictures: Path | None) -> None:
    """Measure what is not in the file yet, and draw it."""
    table = measure(out)
    if pictures:
        save_pictures(lambda narrow: drawing(table, narrow), pictures, "intervals")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
