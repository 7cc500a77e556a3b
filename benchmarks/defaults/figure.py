"""The figure: every problem a dot, every contestant a row."""

from typing import Any

import numpy as np

from benchmarks.defaults.problems import VARIANTS
from benchmarks.defaults.scores import CONSTANT, MAIN, OURS, Key, Scores

# Okabe and Ito's colours, which colour-blind readers tell apart, and markers for print in grey.
LOOKS = dict(
    zip(
        VARIANTS,
        [("#D55E00", "o"), ("#0072B2", "s"), ("#009E73", "^"), ("#CC79A7", "v"), ("#8C6D00", "D")],
        strict=True,
    )
)
LEFT, RIGHT = 20.0, 115.0  # per cent; points outside are drawn at the edge


def mean(scores: Scores, name: str) -> float:
    """Return the mean of a contestant over the problems with rewards as they are."""
    found = [each[name].percent for p, each in scores.items() if name in each and p[2] == "as is"]
    return float(np.mean(found)) if found else np.nan


def draw(scores: Scores, steps: list[int], narrow: bool) -> Any:
    """Draw a panel for each number of steps; rows from the best mean down to the worst."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    steps = [n for n in steps if any(problem[3] == n for problem in scores)]
    names = [n for n in [*MAIN, CONSTANT] if any(n in found for found in scores.values())]
    names.sort(key=lambda name: mean(scores, name))
    height = 1.6 + 0.3 * len(names)
    figure = Figure(
        figsize=(4.6, 0.4 + height * len(steps)) if narrow else (9, 0.2 + height),
        layout="constrained",
    )
    shape = (len(steps), 1) if narrow else (1, len(steps))
    grid: Any = figure.subplots(*shape, sharey=True, squeeze=False)
    ink = matplotlib.rcParams["text.color"]
    for axes, n in zip(grid.flat, steps, strict=True):
        now = {problem: found for problem, found in scores.items() if problem[3] == n}
        for row, name in enumerate(names):
            for problem, found in now.items():
                if name in found:
                    dot(axes, row, found[name].percent, problem)
            if any(name in found for found in now.values()):
                at = float(np.clip(mean(now, name), LEFT, RIGHT))
                axes.plot([at, at], [row - 0.36, row + 0.36], color=ink, linewidth=2.4, zorder=4)
        axes.axvline(100, color=ink, linewidth=0.8, linestyle=":", zorder=1)
        axes.set(xlim=(LEFT - 2, RIGHT + 2), ylim=(-0.6, len(names) - 0.4))
        axes.set_xlabel("reward, % of the best library's")
        axes.set_title(f"{n:,} steps")
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        for tick in axes.get_yticklabels():
            tick.set_fontweight("bold" if tick.get_text() == OURS else "normal")
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=5, label=label(key))
        for key, (colour, marker) in LOOKS.items()
    ]
    handles += [
        Line2D(
            [],
            [],
            color=ink,
            marker="|",
            markersize=10,
            markeredgewidth=2.4,
            linestyle="",
            label="mean without rescaling",
        )
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2 if narrow else 6)
    return figure


def dot(axes: Any, row: int, percent: float, problem: Key) -> None:
    """Draw a problem as a dot, or as an arrow at the edge if it lies outside."""
    variant = (problem[1], problem[2])
    colour, marker = LOOKS[variant]
    inside = LEFT <= percent <= RIGHT
    # The variants of a row lie below one another, so that none hides another.
    y = row + 0.11 * (2 - list(LOOKS).index(variant))
    axes.plot(
        np.clip(percent, LEFT, RIGHT),
        y,
        color=colour,
        marker=marker if inside else ("<" if percent < LEFT else ">"),
        markersize=3.6,
        markeredgewidth=0.8,
        markerfacecolor=colour if inside else "none",
        linestyle="",
        alpha=0.85,
        zorder=3,
        clip_on=False,
    )


def label(variant: tuple[str, str]) -> str:
    """Return the name of a variant in the legend."""
    features, rewards = variant
    return f"{features} features" if rewards == "as is" else f"rewards {rewards}"
