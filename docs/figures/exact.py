"""What exact integrals buy: `python docs/figures/exact.py measure`, then `… draw`.

`measure` plays every policy on two cells of Figure 1, keeps all regrets and the processor time in
results/exact/ (some minutes of one core, nearly all of it IDS(1000)) and writes
docs/results/exact.csv; `clock` measures the time alone again; `draw` makes the picture of
docs/explanation/exact.md from that file.
"""

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))  # run from the repository, not installed

import tsucb
from benchmarks.output import commit
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval, percent_of
from tsucb.pages.figures import style, theme

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
PAIRS = (("TS-UCB(∞)", "TS-UCB(100)"), ("IDS(∞)", "IDS(1000)"))  # exact, and sampled
SHOWN = ("TS-UCB(1)", "TS-UCB(10)", "TS-UCB(100)", "TS-UCB(∞)", "IDS(1000)", "IDS(∞)")
HORIZON, RUNS, SEED = 10_000, 100, 7
RESULTS = Path("results/exact")
FOLDER = Path(__file__).parent
TABLE = FOLDER.parent / "results" / "exact.csv"


def result_of(arms: int, noise: float, name: str) -> Path:
    return RESULTS / f"{arms}-{noise:g}-{name}.npz"


def measure() -> None:
    """The regret of every run, one file per cell and policy; those that exist are kept."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for arms, noise in CELLS:
        for policy in POLICIES:
            path = result_of(arms, noise, policy.name)
            if not path.exists():
                regret, _ = play(arms, noise, policy, RUNS)
                np.savez(path, regret=regret)
    clock()


def clock() -> None:
    """The processor time of a step: the fastest of five runs."""
    for arms, noise in CELLS:
        for policy in POLICIES:
            play(arms, noise, policy, 1, horizon=10)  # compile
            seconds = min(play(arms, noise, policy, 1)[1] for _ in range(5))
            path = result_of(arms, noise, policy.name)
            with np.load(path) as kept:
                regret = kept["regret"]
            np.savez(path, regret=regret, seconds=seconds)
    write()


def write() -> None:
    """Write regrets in per cent of TS's, the differences of pairs, and times to the results."""
    rows = []
    for arms, noise in CELLS:
        files = {name: np.load(result_of(arms, noise, name)) for name in ("TS", *SHOWN)}
        percents = {
            n: percent_of(kept["regret"], files["TS"]["regret"]) for n, kept in files.items()
        }
        for name, kept in files.items():
            percent, _, low, high = mean_interval(percents[name])
            std, microseconds = kept["regret"].std(ddof=1), 1e6 * float(kept["seconds"])
            rows.append((arms, noise, name, percent, low, high, std, microseconds))
        for exact, sampled in PAIRS:
            percent, _, low, high = mean_interval(percents[exact] - percents[sampled])
            rows.append((arms, noise, f"{exact} − {sampled}", percent, low, high, np.nan, np.nan))
    columns = ["arms", "noise", "policy", "percent", "ci95_low", "ci95_high", "std", "microseconds"]
    table = pd.DataFrame(rows, columns=columns).assign(commit=commit())
    table.to_csv(TABLE, index=False, float_format="%.6g")


def play(
    arms: int, noise: float, policy: tsucb.Policy, runs: int, horizon: int = HORIZON
) -> tuple[Floats, float]:
    """Regret at the end of every run, and the processor time of a step."""
    bandit = tsucb.ContextualLinearBandit(arms, 10, noise)
    start = time.process_time()
    result = tsucb.simulate(
        bandit, bandit.model(), [policy], horizon=horizon, runs=runs, seed=SEED, workers=1,
        progress=False,
    )  # fmt: skip
    return result.final(policy.name), (time.process_time() - start) / (horizon * runs)


def draw() -> None:
    """Draw the picture, for light and for dark pages."""
    for ground in ("light", "dark"):
        with theme(ground):
            options: Any = {"metadata": {"Date": None}, "transparent": True}
            picture().savefig(FOLDER / f"exact-{ground}.svg", **options)


def picture() -> Figure:
    """Regret of every policy with its cost beside it, one panel per cell."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    panels = figure.subplots(1, len(CELLS), sharey=True)
    results = pd.read_csv(TABLE).set_index(["arms", "noise", "policy"])
    for axes, (arms, noise) in zip(panels, CELLS, strict=True):
        for row, name in enumerate(SHOWN):
            percent, low, high, _, cost = results.loc[(arms, noise, name)].iloc[:5]
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
    elif sys.argv[1:] == ["clock"]:
        clock()
    elif sys.argv[1:] == ["draw"]:
        draw()
    else:
        sys.exit(f"{__doc__}\nGive one word: measure, clock or draw.")
