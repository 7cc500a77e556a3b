"""How often an interval of a belief contains the truth, and by how much.

    python -m benchmarks.intervals docs/results/intervals.csv [docs/figures]

The 90 % intervals of the arms' mean rewards (at five contexts, where there are contexts) are
compared with the truth after some numbers of rewards. Arms are played

- uniformly at random: the intervals are of all arms;
- by TS-UCB(1), of the agent's default model, and of `AdaptiveLinear` where there are features: of
  the arm that would be played next, and of the best one;
- by the same in batches of 1,000 decisions, of which the rewards come together.

Worlds, with one standard normal e per arm and one slope per arm and feature:

| rewards | mean of arm k at x | reward |
|---|---|---|
| normal | 5 + s·e + slope·x, s = 0.1, 0.3 or 1 in turn | N(mean, 1) |
| around 0 | s·e + slope·x | N(mean, 1) |
| clicks r | r · exp(e/2 + slope·x) | 1 with this probability, or 0 |
| revenue | 3 % · exp(e/2 + slope·x) sales | a sale pays a lognormal amount of mean 30 |
| counts | 2 · exp(0.3·e + slope·x) | Poisson |

Slopes are N(0, 1/d) for normal rewards and N(0, 0.09/d) for the others, which are not linear in x.
Models with a prior that is fixed are asked about rewards around 0, and given a constant. The
interval of the agent's default is mean ± 1.645 radius, when it takes no look at another arm.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import tsucb
from benchmarks.output import save_pictures
from tsucb.beliefs.law import upper_quantiles
from tsucb.numeric.arrays import Floats

CLICKS = ("clicks 0.1 %", "clicks 0.3 %", "clicks 1 %", "clicks 5 %")
KINDS = ("normal", *CLICKS, "revenue", "counts")
OWN_KINDS = ("normal", "clicks 1 %", "clicks 5 %")  # after the agent's own play
CENTRED = "around 0"
BATCH = 1_000
TIMES = (20, 100, 1_000, 10_000)
FEATURES = (0, 3, 30)
RUNS = {2: 60, 10: 24, 50: 12}  # by the number of arms: intervals of all are compared
MORE_RUNS = 300  # of logistic regressions of two arms, which are fast
OWN_RUNS = 60  # after own play, where the interval of one arm is compared
OWN_FEATURE_RUNS = {2: 40, 10: 40, 50: 12}  # the same with features, at several contexts
CONTEXTS = 5  # at which intervals are compared
NINETY = 1.6448536269514722  # standard deviations either side


class World:
    """Arms of one of the kinds, with d features."""

    def __init__(self, kind: str, arms: int, features: int, run: int) -> None:
        self.kind, self.rng = (
            kind,
            np.random.default_rng((run, arms, features, (*KINDS, CENTRED).index(kind))),
        )
        self.own = self.rng.normal(size=arms)
        self.normal = kind in ("normal", CENTRED)
        spread = 1.0 if self.normal else 0.3
        self.slopes = spread * self.rng.normal(size=(features, arms)) / np.sqrt(max(features, 1))
        self.spread = (0.1, 0.3, 1.0)[run % 3]

    def means(self, x: Floats) -> Any:
        """Return the means (N, K) at contexts (N, d)."""
        slope = x @ self.slopes
        if self.normal:
            return 5.0 * (self.kind == "normal") + self.spread * self.own + slope
        if self.kind == "counts":
            return 2 * np.exp(0.3 * self.own + slope)
        rate = 0.03 if self.kind == "revenue" else float(self.kind.split()[1]) / 100
        rates = np.minimum(rate * np.exp(self.own / 2 + slope), 1.0)
        return 30 * rates if self.kind == "revenue" else rates

    def rewards(self, means: Floats) -> Any:
        """Return a reward for each mean."""
        if self.normal:
            return means + self.rng.normal(size=means.shape)
        if self.kind == "counts":
            return self.rng.poisson(means).astype(float)
        if self.kind == "revenue":
            sold = self.rng.random(means.shape) < means / 30
            return sold * 30 * np.exp(self.rng.normal(size=means.shape) - 0.5)
        return (self.rng.random(means.shape) < means).astype(float)


def contexts_for(model: Any, x: Floats, arms: int) -> Any:
    """Return contexts (N, d) as the model takes them."""
    if isinstance(model, tsucb.HybridLinear):
        return np.repeat(x[:, None, :], arms, axis=1)
    if isinstance(model, tsucb.ContextualLinear | tsucb.NIGLinear):
        return np.column_stack([np.ones(len(x)), x])
    return x if x.shape[1] else None


def at_each(model: Any, x: Floats, arms: int) -> list[Any]:
    """Return the contexts one by one, None where there are no features."""
    rows = contexts_for(model, x, arms)
    return [None] * len(x) if rows is None else list(rows)


def ends(belief: Any) -> tuple[Floats, Floats]:
    """Return the ends of the arms' 90 % intervals."""
    lower, upper = np.empty((2, belief.mean.size))
    upper_quantiles(belief, 0.05, upper)
    upper_quantiles(belief, 0.95, lower)
    return lower, upper


def covered(
    model: Any, state: Any, world: World, x: Floats, policy: Any = None
) -> dict[str, float]:
    """Return the share of intervals that contain the truth, at contexts x (N, d).

    Over all arms; with a policy, of the arm that it would play, and of the best one.
    """
    truth, found = world.means(x), []
    default = isinstance(model, tsucb.AdaptiveCurves)
    asked = tsucb.AdaptiveCurves(model.features, looks=0) if default else model
    for row, means in zip(at_each(model, x, truth.shape[1]), truth, strict=True):
        belief = asked.belief(state, row, rng=world.rng)
        half = NINETY * belief.radius
        lower, upper = (belief.mean - half, belief.mean + half) if default else ends(belief)
        inside = (lower <= means) & (means <= upper)
        if policy is None:
            found.append({"all": inside.mean()})
        else:
            played = policy.choose(belief, world.rng).arm
            found.append({"played": inside[played], "best": inside[means.argmax()]})
    return {about: float(np.mean([each[about] for each in found])) for about in found[0]}


def play_uniform(model: Any, state: Any, world: World, steps: int) -> None:
    """Play arms at random."""
    arms, features = world.own.size, len(world.slopes)
    x, pulled = world.rng.normal(size=(steps, features)), world.rng.integers(arms, size=steps)
    means = world.means(x)[np.arange(steps), pulled]
    model.update(state, contexts_for(model, x, arms), pulled, world.rewards(means))


def play_own(model: Any, state: Any, world: World, steps: int, policy: Any, batch: int) -> None:
    """Let the policy play; it learns from a batch of rewards at a time."""
    for _ in range(steps // batch):
        x, pulled = world.rng.normal(size=(batch, len(world.slopes))), np.empty(batch, np.int64)
        for n, row in enumerate(at_each(model, x, world.own.size)):
            belief = model.belief(state, row, rng=world.rng)
            pulled[n] = policy.choose(belief, world.rng).arm
        rewards = world.rewards(world.means(x)[np.arange(batch), pulled])
        model.update(state, contexts_for(model, x, world.own.size), pulled, rewards)


class Cell(NamedTuple):
    """What is measured together: a line of the table for every time and kind of arm.

    Of revenue, the runs in which something was sold are also counted alone.
    """

    model: Any
    rewards: str
    features: int
    arms: int
    play: str = "uniform"
    times: tuple[int, ...] = TIMES

    @property
    def runs(self) -> int:
        """Return the number of runs."""
        if self.play != "uniform":
            return OWN_FEATURE_RUNS[self.arms] if self.features else OWN_RUNS
        many = self.arms == 2 and isinstance(self.model, tsucb.LogisticArms)
        return MORE_RUNS if many else RUNS[self.arms]

    @property
    def key(self) -> dict[str, Any]:
        """Return what the rows of the cell have in common."""
        name = type(self.model).__name__
        return {"play": self.play, "model": name} | {
            field: getattr(self, field) for field in ("rewards", "features", "arms")
        }

    def measure(self) -> list[dict[str, Any]]:
        """Return the rows, with standard errors over runs."""
        runs, policy = self.runs, None if self.play == "uniform" else tsucb.TSUCB()
        found: list[list[dict[str, float]]] = []
        for run in range(runs):
            world = World(self.rewards, self.arms, self.features, run)
            state, done = self.model.start(self.arms, rng=world.rng), 0
            at = world.rng.normal(size=(CONTEXTS if self.features else 1, self.features))
            found.append([])
            for t in self.times:
                if policy is None:
                    play_uniform(self.model, state, world, t - done)
                else:
                    batch = BATCH if self.play == "batches" else 1
                    play_own(self.model, state, world, t - done, policy, batch)
                inside = covered(self.model, state, world, at, policy)
                if self.rewards == "revenue" and getattr(state, "known", [False])[0]:
                    inside["sold"] = inside["all"]
                found[-1].append(inside)
                done = t
        rows = []
        for i, t in enumerate(self.times):
            for about in dict.fromkeys(name for run in found for name in run[i]):
                shares = 100 * np.array([run[i][about] for run in found if about in run[i]])
                error = shares.std(ddof=1) / np.sqrt(shares.size)
                numbers = {"covered": shares.mean().round(1), "error": error.round(1)}
                rows.append({**self.key, "about": about, "t": t, **numbers, "runs": shares.size})
        return rows


def cells() -> Iterator[Cell]:
    """Yield the cells of the grid."""
    for features in FEATURES:
        for kind in KINDS:
            for arms in RUNS:
                yield Cell(tsucb.AdaptiveLinear(features), kind, features, arms)
                if kind in CLICKS and features < max(FEATURES):
                    yield Cell(tsucb.LogisticArms(features), kind, features, arms)
    for arms in RUNS:
        for kind in CLICKS:
            yield Cell(tsucb.BernoulliArms(), kind, 0, arms)
        yield Cell(tsucb.GaussianArms(), CENTRED, 0, arms)
        yield Cell(tsucb.PoissonArms(), "counts", 0, arms)
        for features in (3, 30):
            yield Cell(tsucb.ContextualLinear(features + 1), CENTRED, features, arms)
            yield Cell(tsucb.NIGLinear(features + 1), CENTRED, features, arms)
        few = (20, 100, 1_000)
        if arms < max(RUNS):
            yield Cell(tsucb.HybridLinear(0, 3), "normal", 3, arms, times=few)
    from sklearn.linear_model import Ridge

    for arms in (2, 10):
        yield Cell(tsucb.Ensemble(Ridge(), features=3), "normal", 3, arms, times=few)
    for kind in OWN_KINDS:
        for arms in RUNS:
            yield Cell(tsucb.AdaptiveCurves(0), kind, 0, arms, "own", few)
            for features in (3, 30):
                for model in (tsucb.AdaptiveLinear(features), tsucb.AdaptiveCurves(features)):
                    yield Cell(model, kind, features, arms, "own", few)
    for kind in ("normal", "clicks 1 %"):
        for arms in (2, 10):
            yield Cell(tsucb.AdaptiveCurves(0), kind, 0, arms, "batches", (2_000, 10_000))
    for features in (0, 3):
        for kind in (*OWN_KINDS, "revenue", "counts"):
            for arms in RUNS:
                yield Cell(tsucb.AdaptiveCurves(features), kind, features, arms)


def measure(out: Path) -> pd.DataFrame:
    """Measure the cells that are not in the file yet; return a row for every cell and time."""
    rows: list[Any] = pd.read_csv(out).to_dict("records") if out.exists() else []
    for cell in cells():
        if any(cell.key.items() <= row.items() for row in rows):
            continue
        rows += cell.measure()
        print(cell.key, [row["covered"] for row in rows[-len(cell.times) :]], flush=True)
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
    shown = table[(table.model == "AdaptiveLinear") & (table.about == "all")]
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
    """Measure the combinations that the file does not have yet, and draw all."""
    table = measure(out)
    if pictures:
        save_pictures(lambda narrow: drawing(table, narrow), pictures, "intervals")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
