"""Rewards that change half way: the default against forgetting at every fixed rate.

    python benchmarks/change.py [--steps 6000] [--seeds 5] [--streams shop,clicks] [--changes …]

Every contestant plays the same contexts and rewards. A change is one of

    none       nothing changes
    rotate     the arms change places
    drop       the arm that is best on average loses what it had
    sine       the level of every arm follows a sine, two periods in all
    new best   the arm that is worst on average becomes the best

Printed are the rewards before and after half of the steps, means over seeds, and the default's in
per cent of the best fixed rate, which is chosen in hindsight. The stream `statlog` needs its data.
Two streams are real series in the order of time, which come with river: `polls`, which of five
institutes to believe about the approval of a president, and `water`, which of five simple forecasts
of the flow in a pipe to use, hour by hour. Their changes are their own: `--changes none`.

    python benchmarks/change.py --notebook [--seeds 40]

prints the regret of the case in bayesianbandits' notebook on forgetting: of three arms with means
1, ½ and 0 and noise ½ the last has 3/2 from step 1,000 on, 3,000 steps in all.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tsucb

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.defaults import problems

Floats = NDArray[np.float64]

GAMMAS = (1.0, 0.9995, 0.999, 0.997, 0.99, 0.98)
LARGE = 3.0  # standard deviations of all rewards by which an arm drops or rises


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


STREAMS = {"shop": shop, "clicks": clicks, "plain": plain, "polls": polls, "water": water}
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


def compare(stream: str, kind: str, seeds: int, steps: int) -> None:
    """Print one row: the default, the best fixed rate, and how often changes were noticed."""
    draw = STREAMS.get(stream) or dataset(stream)
    totals: dict[Any, Floats] = {}
    noticed = []
    for seed in range(seeds):
        contexts, rewards = draw(seed, steps)
        rewards, d = changed(kind, rewards), contexts.shape[1]
        linear = tsucb.AdaptiveLinear(d)
        models: dict[Any, Any] = {
            gamma: linear if gamma == 1.0 else tsucb.Forgetting(linear, gamma) for gamma in GAMMAS
        }
        models["default"] = tsucb.AdaptiveCurves(d)
        for name, model in models.items():
            earned, found = play(model, contexts, rewards, seed)
            totals[name] = totals.get(name, 0.0) + earned / seeds
            noticed += [len(found)] if name == "default" else []
    best = max(GAMMAS, key=lambda gamma: totals[gamma][1])
    ours, never, other = totals["default"], totals[1.0], totals[best]
    print(
        f"| {stream}, {kind} | {never[0]:,.0f} | {ours[0]:,.0f} | {never[1]:,.0f} | "
        f"{other[1]:,.0f} (γ = {best:g}) | {ours[1]:,.0f} | {100 * ours[1] / other[1]:.0f} % | "
        f"{', '.join(map(str, noticed))} |",
        flush=True,
    )


def print_notebook(seeds: int) -> None:
    """Print the regret of the notebook's case, with the change and without it."""
    print("| regret of 3,000 decisions | becomes the best | nothing changes |\n|---|--:|--:|")
    means = np.tile([1.0, 0.5, 0.0], (3_000, 1))
    better = means.copy()
    better[1_000:, 2] = 1.5
    for model in (tsucb.AdaptiveLinear(0), tsucb.AdaptiveCurves(0)):
        regret = np.zeros((2, seeds))
        for i, seed in np.ndindex(regret.shape):
            truth = (better, means)[i]
            noise = 0.5 * np.random.default_rng([8, seed]).standard_normal(truth.shape)
            rewards, contexts = truth + noise, np.zeros((len(truth), 0))
            earned, _ = play(model, contexts, rewards, seed, truth)
            regret[i, seed] = truth.max(axis=1).sum() - earned.sum()
        change, none = (f"{row.mean():.0f} ({row.max():.0f} at most)" for row in regret)
        print(f"| {type(model).__name__} | {change} | {none} |", flush=True)


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--streams", default="plain,clicks,shop")
    parser.add_argument("--changes", default=",".join(CHANGES))
    parser.add_argument("--notebook", action="store_true")
    options = parser.parse_args()
    if options.notebook:
        print_notebook(options.seeds)
        return
    print("| | before: linear | default | after: linear | best γ | default | of best | noticed |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for stream in options.streams.split(","):
        for kind in options.changes.split(","):
            compare(stream, kind, options.seeds, options.steps)


if __name__ == "__main__":
    main()
