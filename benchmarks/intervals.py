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
Models with a fixed prior get rewards around 0 and a constant feature. The
interval of the agent's default is mean ± 1.645 radius, when it takes no look at another arm.

Cells that the file has are not measured again; `--processes` and `--minutes` are explained in
benchmarks/tasks.py.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import tsucb
from benchmarks import tasks
from benchmarks.output import save_pictures
from tsucb import compiler
from tsucb.beliefs.law import upper_quantiles
from tsucb.models.model import training_due
from tsucb.numeric.arrays import Floats
from tsucb.simulation.loop import Run, RunRecord
from tsucb.testing.loops import Script

CLICKS = ("clicks 0.1 %", "clicks 0.3 %", "clicks 1 %", "clicks 5 %")
KINDS = ("normal", *CLICKS, "revenue", "counts")
OWN_KINDS = ("normal", "clicks 1 %", "clicks 5 %", "revenue", "counts")  # after own play
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


def play_batches(model: Any, state: Any, world: World, steps: int, policy: Any) -> None:
    """Let the policy play; it learns from a batch of rewards at a time."""
    for _ in range(steps // BATCH):
        x, pulled = world.rng.normal(size=(BATCH, len(world.slopes))), np.empty(BATCH, np.int64)
        learned = int(state.pulls.sum())
        for n, row in enumerate(at_each(model, x, world.own.size)):
            belief = model.belief(state, row, step=learned + n + 1, rng=world.rng)
            pulled[n] = policy.choose(belief, world.rng).arm
        rewards = world.rewards(world.means(x)[np.arange(BATCH), pulled])
        model.update(state, contexts_for(model, x, world.own.size), pulled, rewards)


def own_player(model: Any, policy: Any, world: World, steps: int, run: int) -> Run:
    """Return a run in which the policy plays and learns, decision by decision, in compiled code."""
    x = world.rng.normal(size=(steps, len(world.slopes)))
    rewards = world.rewards(world.means(x))
    contexts = contexts_for(model, x, world.own.size)
    contexts = np.empty((steps, 0)) if contexts is None else contexts
    script = Script(contexts, rewards, np.ones(rewards.shape, np.bool_))
    stop, nothing = np.zeros(1, np.bool_), np.zeros(0, np.int64)
    record = RunRecord(np.array([steps]), np.empty(1), nothing, stop, np.zeros(1))
    return Run(script, model, policy, 0, run, record)


def play_until(run: Run, step: int) -> None:
    """Play on to a step."""
    model, state = run.player.model, run.player.state
    train = model.trainer([state])
    while run.played < step:
        run.play_until(step)
        if compiler.run(training_due, model, state):
            train()


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

    def played(self, run: int) -> list[dict[str, float]]:
        """Play a run; return the shares of intervals that cover, at each time."""
        world, policy = World(self.rewards, self.arms, self.features, run), tsucb.TSUCB()
        state, done, found = self.model.start(self.arms, rng=world.rng), 0, []
        at = world.rng.normal(size=(CONTEXTS if self.features else 1, self.features))
        if self.play == "own":
            player = own_player(self.model, policy, world, max(self.times), run)
            state = player.player.state
        for t in self.times:
            if self.play == "own":
                play_until(player, t)
            elif self.play == "batches":
                play_batches(self.model, state, world, t - done, policy)
            else:
                play_uniform(self.model, state, world, t - done)
            asked = None if self.play == "uniform" else policy
            found.append(covered(self.model, state, world, at, asked))
            known = getattr(getattr(state, "linear", state), "known", [False])[0]
            if self.rewards == "revenue" and self.play == "uniform" and known:
                found[-1]["sold"] = found[-1]["all"]
            done = t
        return found

    def measure(self, share: float = 1.0) -> list[dict[str, Any]]:
        """Return the rows, with standard errors over runs; play only this share of the runs."""
        found = [self.played(run) for run in range(max(round(share * self.runs), 2))]
        rows = []
        for i, t in enumerate(self.times):
            for about in dict.fromkeys(name for run in found for name in run[i]):
                shares = 100 * np.array([run[i][about] for run in found if about in run[i]])
                error = shares.std(ddof=1) / np.sqrt(shares.size)
                numbers = {"covered": shares.mean().round(1), "error": error.round(1)}
                rows.append({"about": about, "t": t, **numbers, "runs": shares.size})
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
            yield Cell(tsucb.AdaptiveCurves(0), kind, 0, arms, "own")
            for features in (3, 30):
                for model in (tsucb.AdaptiveLinear(features), tsucb.AdaptiveCurves(features)):
                    yield Cell(model, kind, features, arms, "own")
    for kind in ("normal", "clicks 1 %"):
        for arms in (2, 10):
            yield Cell(tsucb.AdaptiveCurves(0), kind, 0, arms, "batches", (2_000, 10_000))
    for features in FEATURES:
        for kind in OWN_KINDS:
            for arms in RUNS:
                yield Cell(tsucb.AdaptiveCurves(features), kind, features, arms)


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


def measured(share: float, cell: Cell) -> list[tasks.Row]:
    """Return the rows of a cell, from a share of its runs."""
    return cell.measure(share)


def main() -> None:
    """Measure the cells that the file does not have yet, and draw all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="FILE.csv")
    parser.add_argument("pictures", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--play", default="uniform,own,batches", help="kinds of play to measure")
    parser.add_argument("--share", type=float, default=1.0, help="of the runs, to try it")
    tasks.add_options(parser)
    options = parser.parse_args()
    chosen = [cell for cell in cells() if cell.play in options.play.split(",")]
    each, limits = partial(measured, options.share), (options.processes, options.minutes)
    table = tasks.measure(options.out, each, chosen, lambda cell: cell.key, *limits)
    if options.pictures:
        save_pictures(lambda narrow: drawing(table, narrow), options.pictures, "intervals")


if __name__ == "__main__":
    main()
