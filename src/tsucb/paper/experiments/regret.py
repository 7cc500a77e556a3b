"""Experiments that simulate policies and compare their regret with that of Thompson sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from tsucb.numeric.arrays import Floats
from tsucb.pages.figures import Figure, legend_above, panel_for_each, regret_curves
from tsucb.paper.experiments.experiment import Cell, Experiment
from tsucb.policies.names import named_policy
from tsucb.simulation import simulate

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

# The policies of the tables, as printed.
POLICIES = ("TS", "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
TS, ONE, HUNDRED, IDS, GREEDY, UCB = POLICIES
POINTS = 50  # of a regret curve


@dataclass(frozen=True, kw_only=True)
class RegretExperiment(Experiment):
    """An experiment whose rows have a regret and a regret curve.

    A subclass says in `ucb` which policy the paper calls UCB there.
    """

    ucb: ClassVar[Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.policies:
            self.policy(name)

    def policy(self, name: str) -> Any:
        """Return the policy of a printed name."""
        return named_policy(name, UCB=self.ucb)

    def notes(self) -> list[str]:
        return [] if TS in self.policies else ["Percentages need TS, which was left out."]

    @property
    def rivals(self) -> list[str]:
        """The policies that have percentages of TS: all others, or none without TS."""
        return [name for name in self.policies if name != TS] if TS in self.policies else []

    def percentage_figure(
        self, caption: str, draw: Callable[[bool], matplotlib.figure.Figure]
    ) -> list[Figure]:
        """Return the figure of the percentages of TS, if there are any."""
        title = "Regret as a percentage of Thompson sampling’s"
        return [Figure(self.name, title, caption, draw)] if self.rivals else []

    def curves(self, rows: pd.DataFrame, cell: Cell) -> dict[str, Floats]:
        """Return the regret curves (runs, points) of every policy in a cell."""
        here = rows[(rows[list(self.axes)] == list(cell)).all(axis=1)]
        return {p: np.stack(here.curve[here.policy == p].tolist()) for p in self.policies}

    def draw_cell(self, panel: Axes, rows: pd.DataFrame, cell: Cell) -> None:
        """Draw the regret of all policies over time in one cell."""
        curves = self.curves(rows, cell)
        horizon, points = self.steps(cell), next(iter(curves.values())).shape[1]
        steps = np.linspace(horizon / points, horizon, points)
        regret_curves(steps, curves, panel, labels=False)
        panel.set_title(", ".join(map(str, cell)), fontsize=10 if len(cell) == 1 else 8)

    def curve_figure(
        self,
        rows: pd.DataFrame,
        caption: str = "Mean cumulative regret, with a band of 95 % for the mean.",
        columns: int = 4,
    ) -> Figure:
        """Return the figure of regret over time, one panel per cell."""

        def draw(narrow: bool) -> matplotlib.figure.Figure:
            cells = self.cells()
            figure, panels = panel_for_each(cells, 2 if narrow else columns, narrow, 1.9)
            for cell, panel in zip(cells, panels, strict=True):
                self.draw_cell(panel, rows, cell)
            name_axes(figure, "step", "regret")
            legend_above(figure, panels[0], narrow)
            return figure

        return Figure("curves", "Regret over time", caption, draw)


def simulated_rows(
    environment: Any, model: Any, policy: Any, runs: range, *, horizon: int, seed: int,
    workers: int | None = 1,
) -> pd.DataFrame:  # fmt: skip
    """Simulate one policy; return one row per run: its regret, and its curve of `POINTS`."""
    curves = simulate(
        environment, model, [policy], horizon=horizon, runs=runs, seed=seed, workers=workers,
        checkpoints=POINTS, progress=False,
    ).regret[0]  # fmt: skip
    return pd.DataFrame(
        {"run": list(runs), "regret": curves[:, -1], "curve": list(curves.astype(np.float32))}
    )


def name_axes(figure: matplotlib.figure.Figure, x: str, y: str = "") -> None:
    """Write the names of the axes that all panels share."""
    figure.supxlabel(x, fontsize=9)
    if y:
        figure.supylabel(y, fontsize=9)
