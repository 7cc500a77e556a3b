"""Rewards that change: the default against forgetting at every fixed rate, and what looks cost.

    python -m benchmarks.change [--steps 6000] [--seeds 5] [--streams shop,clicks] [--changes …]

Every contestant plays the same contexts and rewards, in which something changes half way:

    none       nothing changes
    rotate     the arms change places
    drop       the arm that is best on average loses what it had
    sine       the level of every arm follows a sine, two periods in all
    new best   the arm that is worst on average becomes the best

Printed are the rewards before and after half of the steps, means over seeds, and the default's in
per cent of the best fixed rate, which is chosen in hindsight. The stream `statlog` needs its data.
In `tastes` and `near` the arms have features, and the models are `HybridLinear` and `HybridCurves`.
Two streams are real series in the order of time, which come with river: `polls`, which of five
institutes to believe about the approval of a president, and `water`, which of five simple forecasts
of the flow in a pipe to use, hour by hour. Their changes are their own: `--changes none`.

    python -m benchmarks.change --notebook [--seeds 40]

prints the regret of the case in bayesianbandits' notebook on forgetting: of three arms with means
1, ½ and 0 and noise ½ the last has 3/2 from step 1,000 on, 3,000 steps in all.

    python -m benchmarks.change --looks [--seeds 40]

prints what is lost by the share of decisions that look again at arms that were left alone: in the
same case, if the last arm becomes the best after 800, 900, 1,000, 1,100 or 1,200 steps and if
nothing changes.

With `--out FILE.csv` results are added to a file, and those that are there are not measured again;
`--processes` and `--minutes` are explained in benchmarks/tasks.py.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import tsucb

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import tasks
from benchmarks.defaults import problems

Floats = NDArray[np.float64]

GAMMAS = (1.0, 0.9995, 0.999, 0.997, 0.99, 0.98)
DEFAULT, LINEAR = "default", "AdaptiveLinear"
LARGE = 3.0  # standard deviations of all rewards by which an arm drops or rises
NOTEBOOK_STEPS, NEVER = 3_000, 0  # NEVER in place of the step of a change
CHANGES_AT = (800, 900, 1_000, 1_100, 1_200)
SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)  # of looks


def shop(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return ten contexts' features and ten arms' rewards, linear with noise."""
    rng = np.random.default_rng([1, seed])
    contexts, slopes = rng.standard_normal((steps, 10)), 0.3 * rng.standard_normal((10, 10))
    levels = rng.normal(0.0, 0.5, 10)
    return contexts, contexts @ slopes.T + levels + rng.standard_normal((steps, 10))


def clicks(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return five features and six arms' clicks, some 8 % of the time."""
    rng = np.random.default_rng([2, seed])
    contexts, slopes = rng.standard_normal((steps, 5)), 0.5 * rng.standard_normal((6, 5))
    logits = contexts @ slopes.T + rng.normal(-2.5, 0.7, 6)
    return contexts, (rng.random((steps, 6)) < 1.0 / (1.0 + np.exp(-logits))).astype(np.float64)


def plain(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return no features and five arms' rewards."""
    rng = np.random.default_rng([3, seed])
    return np.zeros((steps, 0)), rng.normal(rng.normal(0.0, 0.5, 5), 1.0, (steps, 5))


def tastes(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return ten features of a context beside five of each of ten arms, and the arms' rewards."""
    rng = np.random.default_rng([6, seed])
    contexts, arms = rng.standard_normal((steps, 10)), rng.standard_normal((10, 5))
    means = contexts @ (
        0.25 * rng.standard_normal((10, 5)) @ arms.T + 0.1 * rng.standard_normal((10, 10))
    )
    means += arms @ (0.4 * rng.standard_normal(5)) + rng.normal(0.0, 0.3, 10)
    return beside(contexts, arms), means + rng.standard_normal(means.shape)


def near(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return two features of a context beside two of each of ten arms, which pay if near."""
    rng = np.random.default_rng([9, seed])
    contexts, arms = rng.uniform(-1.0, 1.0, (steps, 2)), rng.uniform(-1.0, 1.0, (10, 2))
    rows = beside(contexts, arms)
    means = np.exp(-2.0 * ((rows[..., :2] - rows[..., 2:]) ** 2).sum(axis=2))
    return rows, means + 0.3 * rng.standard_normal(means.shape)


def beside(contexts: Floats, arms: Floats) -> Floats:
    """Return a matrix for each context: a row of its features and an arm's, for each arm."""
    parts = np.repeat(contexts[:, None], len(arms), axis=1), np.repeat(arms[None], len(contexts), 0)
    return np.concatenate(parts, axis=2)


def models(stream: str, contexts: Floats, **settings: Any) -> tuple[Any, Any]:
    """Return the linear model and the default, with these settings, for a stream."""
    d, arms = contexts.shape[-1], ARM_FEATURES.get(stream, 0)
    if arms:
        both = arms, d - arms
        return tsucb.HybridLinear(*both), tsucb.HybridCurves(*both, **settings)
    return tsucb.AdaptiveLinear(d), tsucb.AdaptiveCurves(d, **settings)


def dataset(name: str) -> Callable[[int, int], tuple[Floats, Floats]]:
    """Return the function for the stream of a dataset."""

    def draw(seed: int, steps: int) -> tuple[Floats, Floats]:
        drawn = problems.draw(problems.read(name), problems.RAW, seed, steps)
        return drawn.contexts, drawn.rewards

    return draw


def polls(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return no features, and by how much each institute is nearer to the truth than the mean."""
    from river import datasets

    rows = [(list(x.values())[1:], y) for x, y in datasets.TrumpApproval()][:steps]
    return np.zeros((len(rows), 0)), better_than_the_mean(*zip(*rows, strict=True))


def water(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return the hour and what two forecasts say, and how much better than the mean five are."""
    from river import datasets

    day, week = 24, 24 * 7
    rows = [(x["Time"].hour, y) for x, y in datasets.WaterFlow()]
    flow = np.array([y for _, y in rows])
    times = np.arange(week, len(rows))[:steps]
    forecasts = [flow[times - lag] for lag in (1, day, week)]
    forecasts += [np.array([flow[t - n : t].mean() for t in times]) for n in (day, week)]
    angle = 2 * np.pi * np.array([rows[t][0] for t in times]) / day
    contexts = np.column_stack([np.cos(angle), np.sin(angle), *forecasts[:2]])
    return contexts, better_than_the_mean(np.column_stack(forecasts), flow[times])


def better_than_the_mean(forecasts: Any, truth: Any) -> Floats:
    """Return by how much the error of each forecast is smaller than the mean of all errors."""
    errors = np.abs(np.array(forecasts) - np.array(truth)[:, None])
    return np.asarray(errors.mean(axis=1, keepdims=True) - errors)


STREAMS = {
    "shop": shop, "clicks": clicks, "plain": plain, "tastes": tastes, "near": near,
    "polls": polls, "water": water,
}  # fmt: skip
ARM_FEATURES = {"tastes": 5, "near": 2}  # the last ones of a row
CHANGES = ("none", "rotate", "drop", "sine", "new best")


def changed(kind: str, rewards: Floats) -> Floats:
    """Return the rewards with a change."""
    out, half, spread = rewards.copy(), len(rewards) // 2, rewards.std()
    means = rewards[:half].mean(axis=0)
    if kind == "rotate":
        out[half:] = np.roll(rewards[half:], 1, axis=1)
    elif kind == "drop":
        binary = np.isin(rewards, (0, 1)).all()
        out[half:, means.argmax()] *= not binary
        out[half:, means.argmax()] -= 0.0 if binary else LARGE * spread
    elif kind == "sine":
        steps, arms = rewards.shape
        phase = np.arange(arms) / arms
        out += spread * np.sin(2 * np.pi * (2 * np.arange(steps)[:, None] / steps + phase))
    elif kind == "new best":
        out[half:, means.argmin()] += LARGE * spread
    return out


def play(
    model: Any, contexts: Floats, rewards: Floats, seed: int, counted: Floats | None = None
) -> tuple[Floats, list[Any]]:
    """Return the rewards of both halves, or what is counted for them, and the noticed changes."""
    counted = rewards if counted is None else counted
    agent = tsucb.Agent(range(rewards.shape[1]), model=model, seed=seed)
    earned, half = np.zeros(2), len(contexts) // 2
    for t, x in enumerate(contexts):
        decision = agent.choose(x) if x.size else agent.choose()
        paid = float(rewards[t, int(decision.arm)])
        agent.reward(decision.id, paid)
        earned[int(t >= half)] += counted[t, int(decision.arm)]
    return earned, agent.changes()


class Comparison(NamedTuple):
    """A stream with a change, and a seed: what all contestants play."""

    stream: str
    change: str
    seed: int


def compare(steps: int, one: Comparison) -> list[tasks.Row]:
    """Return a row for each contestant: its rewards in both halves, and noticed changes."""
    draw = STREAMS.get(one.stream) or dataset(one.stream)
    contexts, rewards = draw(one.seed, steps)
    rewards = changed(one.change, rewards)
    linear, default = models(one.stream, contexts)
    contestants: dict[str, Any] = {
        f"{gamma:g}": linear if gamma == 1.0 else tsucb.Forgetting(linear, gamma)
        for gamma in GAMMAS
    }
    contestants[DEFAULT] = default
    rows = []
    for name, model in contestants.items():
        (before, after), found = play(model, contexts, rewards, one.seed)
        rows.append({"model": name, "before": before, "after": after, "noticed": len(found)})
    return rows


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each stream and change: means over seeds, and the best fixed rate."""
    rows = []
    for (stream, change), found in table.groupby(["stream", "change"], sort=False):
        means = found.groupby("model")[["before", "after"]].mean()
        fixed, ours = means.drop(DEFAULT), means.loc[DEFAULT]
        best = str(fixed.after.idxmax())
        rows.append(
            {
                "stream": stream, "change": change, "seeds": found.seed.nunique(),
                "linear_before": fixed.before["1"], "default_before": ours.before,
                "linear": fixed.after["1"], "best": fixed.after[best], "gamma": best,
                "default": ours.after, "percent": 100 * ours.after / fixed.after[best],
                "noticed": ", ".join(map(str, found.noticed[found.model == DEFAULT])),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def print_streams(table: pd.DataFrame) -> None:
    """Print the default beside the best fixed rate, and how often changes were noticed."""
    print("| | before: linear | default | after: linear | best γ | default | of best | noticed |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for r in summary(table).itertuples():
        print(
            f"| {r.stream}, {r.change} | {r.linear_before:,.0f} | {r.default_before:,.0f} | "
            f"{r.linear:,.0f} | {r.best:,.0f} (γ = {r.gamma}) | {r.default:,.0f} | "
            f"{r.percent:.0f} % | {r.noticed} |"
        )


class Case(NamedTuple):
    """The case of the notebook for a model, by its share of looks, and the step of the change."""

    model: str
    looks: float
    change: int

    def regret(self, seed: int) -> float:
        """Return the regret of one run."""
        means = np.tile([1.0, 0.5, 0.0], (NOTEBOOK_STEPS, 1))
        if self.change != NEVER:
            means[self.change :, 2] = 1.5
        noise = 0.5 * np.random.default_rng([8, seed]).standard_normal(means.shape)
        linear = self.model == LINEAR
        model = tsucb.AdaptiveLinear(0) if linear else tsucb.AdaptiveCurves(0, looks=self.looks)
        contexts = np.zeros((len(means), 0))
        earned, _ = play(model, contexts, means + noise, seed, means)
        return float(means.max(axis=1).sum() - earned.sum())


def regrets(runs: int, case: Case) -> list[tasks.Row]:
    """Return a row with the mean regret of a case, its standard error and the largest of a run."""
    regret = np.array([case.regret(seed) for seed in range(runs)])
    found = {"regret": regret.mean(), "error": regret.std() / np.sqrt(runs), "most": regret.max()}
    return [{"runs": runs} | {name: round(float(x), 2) for name, x in found.items()}]


def notebook_cases() -> list[Case]:
    """Return the cases of the notebook itself."""
    looks = tsucb.AdaptiveCurves(0).looks
    models = ((LINEAR, 0.0), (DEFAULT, looks))
    return [Case(*model, change) for model in models for change in (CHANGES_AT[2], NEVER)]


def looks_cases() -> list[Case]:
    """Return the cases that say what is lost by the share of looks."""
    return [Case(DEFAULT, looks, change) for looks in SHARES for change in (*CHANGES_AT, NEVER)]


def print_notebook(table: pd.DataFrame) -> None:
    """Print the regret of the notebook's case, with the change and without it."""
    print("| regret of 3,000 decisions | becomes the best | nothing changes |\n|---|--:|--:|")
    for model, found in table.groupby("model", sort=False):
        each = [
            f"{r.regret:.0f} ± {r.error:.0f} ({r.most:.0f} at most)" for r in found.itertuples()
        ]
        print(f"| {model} | {' | '.join(each)} |")


def print_looks(table: pd.DataFrame) -> None:
    """Print the regret by the share of looks, with a change, means over its steps, and without."""
    print("| looks | becomes the best | nothing changes |\n|---|--:|--:|")
    for looks, found in table.groupby("looks"):
        quiet = found.change == NEVER
        change, none = found.regret[~quiet].mean(), found.regret[quiet].mean()
        print(f"| {looks:g} | {change:.0f} | {none:.0f} |")


def main() -> None:
    """Read the command line, measure what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--streams", default="plain,clicks,shop")
    parser.add_argument("--changes", default=",".join(CHANGES))
    parser.add_argument("--notebook", action="store_true")
    parser.add_argument("--looks", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE.csv")
    tasks.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder, "change.csv")
        limits = options.processes, options.minutes
        if options.notebook or options.looks:
            cases = notebook_cases() if options.notebook else looks_cases()
            measured = partial(regrets, options.seeds)
            table = tasks.measure(out, measured, cases, Case._asdict, *limits)
            (print_notebook if options.notebook else print_looks)(table)
            return
        comparisons = [
            Comparison(stream, change, seed)
            for seed in range(options.seeds)
            for stream in options.streams.split(",")
            for change in options.changes.split(",")
        ]
        each = partial(compare, options.steps)
        print_streams(tasks.measure(out, each, comparisons, Comparison._asdict, *limits))


if __name__ == "__main__":
    main()
