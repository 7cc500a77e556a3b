"""Experiments that simulate policies and compare their regret with that of Thompson sampling."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from tsucb.numeric.arrays import Floats
from tsucb.pages.figures import Figure, legend_above, panel_for_each, regret_curves
from tsucb.paper.experiments.experiment import Cell, Experiment, cell_seed
from tsucb.paper.experiments.percentages import TS, relative_regret
from tsucb.policies.names import named_policy
from tsucb.simulation import simulate

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

# The policies of the tables, as printed.
POLICIES = (TS, "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
_, ONE, HUNDRED, IDS, GREEDY, UCB = POLICIES
POINTS = 50  # of a regret curve


@dataclass(frozen=True, kw_only=True)
class RegretExperiment(Experiment):
    """An experiment that simulates an environment; its rows have a regret and a regret curve.

    A subclass implements `cells`, `environment`, `claims`, `captions` and `draw`.

    Parameters
    ----------
    threads : how many threads a task decides with; all cores if None
    """

    threads: int | None = field(default=1, compare=False)

    ucb: ClassVar[Any]  # the policy that the paper calls UCB here
    columns: ClassVar[int] = 4  # of the figure with regret over time

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.policies:
            self.policy(name)

    def policy(self, name: str) -> Any:
        """Return the policy of a printed name."""
        return named_policy(name, UCB=self.ucb)

    @abstractmethod
    def environment(self, cell: Cell) -> Any:
        """Return the bandit of a cell."""

    def model(self, cell: Cell, environment: Any) -> Any:
        """Return the model that plays a cell: by default the environment's own."""
        return environment.model()

    def world_seed(self, cell: Cell) -> int:
        """Return the seed of a cell; all policies share it."""
        return cell_seed(self.seed, *cell)

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        environment = self.environment(cell)
        curves = simulate(
            environment, self.model(cell, environment), [self.policy(policy)],
            horizon=self.steps(cell), runs=runs, seed=self.world_seed(cell),
            workers=self.threads, checkpoints=POINTS, progress=False,
        ).regret[0]  # fmt: skip
        return pd.DataFrame(
            {"run": list(runs), "regret": curves[:, -1], "curve": list(curves.astype(np.float32))}
        )

    def numbers(self, cell: Cell) -> dict[str, int]:
        return {"regret": 0, "curve": min(POINTS, self.steps(cell))}

    @property
    def rivals(self) -> list[str]:
        """The policies compared with TS: all others, or none if TS was left out."""
        return [name for name in self.policies if name != TS] if TS in self.policies else []

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = relative_regret(rows, self.axes)
        table.insert(0, "experiment", self.name)
        return table

    def notes(self) -> list[str]:
        return [] if TS in self.policies else ["Percentages need TS, which was left out."]

    @abstractmethod
    def captions(self) -> tuple[str, str]:
        """Return the captions of the figures with percentages and with regret over time."""

    @abstractmethod
    def draw(self, summary: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw the percentages of TS."""

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        first, second = self.captions()
        title = "Regret as a percentage of Thompson sampling’s"
        percentages = Figure(self.name, title, first, lambda narrow: self.draw(summary, narrow))
        curves = Figure(
            "curves", "Regret over time", second, lambda narrow: self.draw_curves(rows, narrow)
        )
        return [percentages, curves] if self.rivals else [curves]

    def draw_curves(self, rows: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw the regret over time, one panel per cell."""
        cells = self.cells()
        figure, panels = panel_for_each(cells, 2 if narrow else self.columns, narrow, 1.9)
        for cell, panel in zip(cells, panels, strict=True):
            self.draw_cell(panel, rows, cell)
        name_axes(figure, "step", "regret")
        legend_above(figure, panels[0], narrow)
        return figure

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


def name_axes(figure: matplotlib.figure.Figure, x: str, y: str = "") -> None:
    """Write the names of the axes that all panels share."""
    figure.supxlabel(x, fontsize=9)
    if y:
        figure.supylabel(y, fontsize=9)
