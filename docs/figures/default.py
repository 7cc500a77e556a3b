"""Draw what the default model does: `python docs/figures/default.py` (half a minute on one core).

`default-bend`: an XOR of two features, which no linear belief can follow. `default-change`: ten
arms that change places half way. Both play the streams of benchmarks/bending.py and change.py.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import tsucb
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1]))

from benchmarks.bending import xor  # noqa: E402
from benchmarks.change import changed, shop  # noqa: E402
from benchmarks.output import save_pictures  # noqa: E402

RUNS, BIN = 20, 100
XOR_STEPS, SHOP_STEPS, GAMMA = 2_000, 6_000, 0.997
SURFACES = (99, 1_000)  # rewards after which the belief is shown: before and with curves
GRID = 61  # points of a side of it
BEFORE = 1_000  # decisions shown before the change
GREY = "#888888"
# Colours of Okabe and Ito; lines differ in their dashes, too.
LOOKS: dict[str, Any] = {
    "default": {"color": "#0072B2", "lw": 2.2},
    "linear": {"color": "#D55E00", "ls": "--"},
    "never forgetting": {"color": "#D55E00", "ls": "--"},
    f"γ = {GAMMA}": {"color": "#009E73", "ls": "-."},
}


def play(agent: Any, contexts: Floats, rewards: Floats) -> Floats:
    """Let an agent decide and learn; return what it earned at every step."""
    earned = np.empty(len(contexts))
    for t, context in enumerate(contexts):
        decision = agent.choose(context)
        earned[t] = rewards[t, int(decision.arm)]
        agent.reward(decision.id, float(earned[t]))
    return earned


def surface(agent: Any, points: Floats) -> Floats:
    """Return by how much arm 0 is believed to pay more than arm 1, at a grid of contexts."""
    means = [agent.estimate([x, y]).mean for y in points for x in points]
    return np.array([mean[0] - mean[1] for mean in means]).reshape(points.size, points.size)


def measure_bend(points: Floats) -> tuple[dict[str, Floats], list[Floats]]:
    """Return the rewards (runs, steps) of both models, and the surfaces of the first run."""
    earned = {name: np.empty((RUNS, XOR_STEPS)) for name in ("linear", "default")}
    surfaces = []
    for run in range(RUNS):
        contexts, rewards = xor(run, XOR_STEPS)
        for name, runs in earned.items():
            model = tsucb.AdaptiveLinear(2) if name == "linear" else None
            agent, done = tsucb.Agent(range(2), model=model, seed=run), 0
            for stop in (*SURFACES, XOR_STEPS):
                runs[run, done:stop] = play(agent, contexts[done:stop], rewards[done:stop])
                done = stop
                if run == 0 and name == "default" and stop in SURFACES:
                    surfaces.append(surface(agent, points))
    return earned, surfaces


def measure_change() -> tuple[dict[str, Floats], Floats]:
    """Return rewards (runs, steps) of each contestant, and where changes were noticed."""
    models: dict[str, Any] = {
        "default": None,
        "never forgetting": tsucb.AdaptiveLinear(10),
        f"γ = {GAMMA}": tsucb.Forgetting(tsucb.AdaptiveLinear(10), GAMMA),
    }
    earned = {name: np.empty((RUNS, SHOP_STEPS)) for name in models}
    noticed = []
    for run in range(RUNS):
        contexts, rewards = shop(run, SHOP_STEPS)
        rewards = changed("rotate", rewards)
        for name, model in models.items():
            agent = tsucb.Agent(range(10), model=model, seed=run)
            earned[name][run] = play(agent, contexts, rewards)
            noticed += [change.step for change in agent.changes()]
    return earned, np.array(noticed)


def plot_bins(axes: Any, earned: dict[str, Floats], start: int) -> None:
    """Plot the mean reward per `BIN` decisions, from decision number `start` on."""
    for name, runs in earned.items():
        sums = runs.reshape(len(runs), -1, BIN).sum(axis=2)
        axes.plot(start + BIN * (np.arange(sums.shape[1]) + 0.5), sums.mean(axis=0), **LOOKS[name])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(ylabel=f"reward per {BIN} decisions", xlim=(start, start + runs.shape[1]))


def label(axes: Any, name: str, x: float, y: float) -> None:
    """Write a line's name beside it, in its colour, with its end at x."""
    axes.annotate(name, (x, y), ha="right", color=LOOKS[name]["color"], fontweight="bold")


def draw_bend(
    earned: dict[str, Floats], surfaces: list[Floats], points: Floats, narrow: bool
) -> Figure:
    """Draw the rewards on the XOR, and what the default believes before and after the bend."""
    figure = Figure(figsize=(4.2, 5.4) if narrow else (7.6, 2.6), layout="constrained")
    ratios: Any = {"height_ratios": (3, 2.6)} if narrow else {"width_ratios": (1.6, 1, 1)}
    places = [["lines", "lines"], ["0", "1"]] if narrow else [["lines", "0", "1"]]
    panels = figure.subplot_mosaic(places, gridspec_kw=ratios)
    lines, maps = panels["lines"], [panels["0"], panels["1"]]
    plot_bins(lines, earned, 0)
    lines.axhline(BIN, lw=1, ls=":", color=GREY)
    lines.annotate("always the right arm", (XOR_STEPS, BIN + 1), ha="right", va="bottom")
    label(lines, "default", 0.95 * XOR_STEPS, 91)
    label(lines, "linear", 0.95 * XOR_STEPS, 66)
    ticks = range(0, XOR_STEPS + 1, 500)
    lines.set(xlabel="decisions", ylim=(45, 107), xticks=ticks, title="XOR of two features")
    side = (points[0], points[-1])
    for axes, believed, rewards in zip(maps, surfaces, SURFACES, strict=True):
        image = axes.imshow(
            believed, origin="lower", extent=(*side, *side), cmap="RdBu_r", vmin=-1, vmax=1,
            interpolation="bilinear", aspect="auto",
        )  # fmt: skip
        axes.contour(points, points, believed, levels=[0.0], colors="black", linewidths=1)
        axes.set(title=f"{rewards:,} rewards", xlabel="feature 1")
        axes.set(xticks=(-0.5, 0, 0.5), yticks=(-0.5, 0, 0.5))
        axes.grid(False)
    maps[0].set_ylabel("feature 2", labelpad=0)
    maps[1].set_yticklabels([])
    look: Any = {"location": "bottom", "aspect": 40} if narrow else {"aspect": 25}
    bar = figure.colorbar(image, ax=maps, ticks=(-1, 0, 1), pad=0.03, **look)
    bar.set_label("believed mean, A − B")
    return figure


def draw_change(earned: dict[str, Floats], noticed: Floats, narrow: bool) -> Figure:
    """Draw rewards around the change, and where the default noticed it."""
    half = SHOP_STEPS // 2
    figure = Figure(figsize=(4.2, 3.6) if narrow else (7.6, 3.2), layout="constrained")
    axes = figure.subplots()
    plot_bins(axes, {name: runs[:, half - BEFORE :] for name, runs in earned.items()}, -BEFORE)
    after, colour = noticed - half, LOOKS["default"]["color"]
    axes.axvline(0, lw=1, color=GREY)
    axes.axvspan(after.min(), after.max(), color=colour, alpha=0.2, lw=0)
    axes.axvline(np.median(after), lw=1, color=colour)
    gap: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
    axes.annotate("change", (0, 1), (-4, -2), ha="right", **gap)
    axes.annotate("noticed", (after.max(), 1), (4, -2), color=colour, fontweight="bold", **gap)
    label(axes, "default", 2_900, 170)
    label(axes, f"γ = {GAMMA}", 1_400, 122)
    label(axes, "never forgetting", 2_950, 42)
    axes.set(xlabel="decisions since the change", ylim=(-20, 195))
    axes.set_xticks(range(-BEFORE, half + 1, 1_000 if narrow else 500))
    return figure


def difference(first: Floats, second: Floats) -> str:
    """Return the mean difference of two contestants' totals over runs, with a 95 % interval."""
    mean, _, low, high = mean_interval(first.sum(axis=1) - second.sum(axis=1))
    return f"{mean:+,.0f} ({low:+,.0f} to {high:+,.0f})"


def main() -> None:
    """Measure, draw, and print the numbers of the captions."""
    points = np.linspace(-1.0, 1.0, GRID)
    bend, surfaces = measure_bend(points)
    change, noticed = measure_change()
    save_pictures(lambda narrow: draw_bend(bend, surfaces, points, narrow), FOLDER, "default-bend")
    save_pictures(lambda narrow: draw_change(change, noticed, narrow), FOLDER, "default-change")
    half = SHOP_STEPS // 2
    default, after = change.pop("default")[:, half:], noticed - half
    print(f"XOR, {XOR_STEPS:,} decisions: {difference(bend['default'], bend['linear'])}")
    print(f"noticed in {len(after)} changes of {RUNS} runs: {min(after)} to {max(after)}", end=" ")
    print(f"rewards after it, median {np.median(after):.0f}")
    for name, runs in change.items():
        print(f"default − {name}, after the change: {difference(default, runs[:, half:])}")


if __name__ == "__main__":
    main()
