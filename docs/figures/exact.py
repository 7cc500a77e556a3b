"""What exact integrals buy: `python docs/figures/exact.py measure`, then `… draw`.

`measure` plays every policy on two cells of Figure 1 and keeps all regrets and the processor time
in results/exact/ (about 10 minutes of one core, nearly all of it IDS(1000)); `draw` makes the
picture of docs/exact.md from them and prints its table.
"""

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import tsucb
from tsucb.reproduce.drawing import style, theme
from tsucb.simulate import mean_interval, percent_of

CELLS = ((5, 0.5), (20, 1.0))
POLICIES = (
    tsucb.Greedy(),
    tsucb.Thompson(),
    tsucb.TSUCB(1),
    tsucb.TSUCB(10),
    tsucb.TSUCB(100),
    tsucb.TSUCB(math.inf),
    tsucb.IDS(math.inf),
    tsucb.IDS(1000),
)
SHOWN = ("TS-UCB(1)", "TS-UCB(10)", "TS-UCB(100)", "TS-UCB(∞)", "IDS(1000)", "IDS(∞)")
HORIZON, RUNS, SEED = 10_000, 100, 7
RESULTS = Path("results/exact")
FOLDER = Path(__file__).parent


def result_of(arms: int, noise: float, name: str) -> Path:
    return RESULTS / f"{arms}-{noise:g}-{name}.npz"


def measure() -> None:
    """Regret of every run and processor time of a step, one file per cell and policy."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for arms, noise in CELLS:
        bandit = tsucb.ContextualLinearBandit(arms, 10, noise)
        for policy in POLICIES:
            path = result_of(arms, noise, policy.name)
            if path.exists():
                continue
            play: dict[str, Any] = {"seed": SEED, "workers": 1, "progress": False}
            tsucb.simulate(bandit, bandit.model(), [policy], runs=1, horizon=10, **play)
            start = time.process_time()
            result = tsucb.simulate(
                bandit, bandit.model(), [policy], runs=RUNS, horizon=HORIZON, **play
            )
            seconds = (time.process_time() - start) / (HORIZON * RUNS)
            np.savez(path, regret=result.final(policy.name), seconds=seconds)
            print(path.name, f"{result.final(policy.name).mean():.2f}", f"{seconds * 1e6:.1f} µs")


def draw() -> None:
    """The picture, for light and for dark pages, and the table as Markdown."""
    for ground in ("light", "dark"):
        with theme(ground):
            options: Any = {"metadata": {"Date": None}, "transparent": True}
            picture().savefig(FOLDER / f"exact-{ground}.svg", **options)
    print("| arms, noise | policy | regret, % of TS | standard deviation over runs | µs per step |")
    print("|---|---|---|---|---|")
    for arms, noise in CELLS:
        baseline = np.load(result_of(arms, noise, "TS"))["regret"]
        for name in ("TS", *SHOWN):
            with np.load(result_of(arms, noise, name)) as kept:
                percent, _, low, high = mean_interval(percent_of(kept["regret"], baseline))
                print(
                    f"| {arms}, {noise:g} | {name} | {percent:.1f} ({low:.1f} to {high:.1f}) | "
                    f"{kept['regret'].std(ddof=1):.0f} | {kept['seconds'] * 1e6:.1f} |"
                )


def picture() -> Figure:
    """Regret of every policy with its cost beside it, one panel per cell."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    panels = figure.subplots(1, len(CELLS), sharey=True)
    for axes, (arms, noise) in zip(panels, CELLS, strict=True):
        baseline = np.load(result_of(arms, noise, "TS"))["regret"]
        for row, name in enumerate(SHOWN):
            with np.load(result_of(arms, noise, name)) as kept:
                percent, _, low, high = mean_interval(percent_of(kept["regret"], baseline))
                cost = float(kept["seconds"]) * 1e6
            colour = style(name)["color"]
            axes.errorbar(
                percent, row, xerr=[[percent - low], [high - percent]], fmt="o", ms=7, capsize=3,
                color=colour, mfc="none" if name.endswith("(∞)") else colour, mew=2,
            )  # fmt: skip
            axes.annotate(
                f"{cost:.3g} µs", (1.0, row), xycoords=("axes fraction", "data"),
                ha="right", va="center", fontsize=8,
            )  # fmt: skip
        start, end = axes.get_xlim()
        axes.set(
            xlim=(start, end + 0.3 * (end - start)),  # room for the times
            xlabel="regret, % of Thompson sampling's",
            title=f"{arms} arms, noise {noise:g}",
            yticks=range(len(SHOWN)),
            yticklabels=SHOWN,
        )
        axes.grid(axis="y", visible=False)
    panels[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    elif sys.argv[1:] == ["draw"]:
        draw()
    else:
        sys.exit(f"{__doc__}\nGive one word: measure or draw.")
