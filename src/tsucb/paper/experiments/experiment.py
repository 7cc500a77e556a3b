"""An experiment of the paper: settings, independent tasks, a summary, figures and claims.

An experiment is a frozen dataclass whose fields are its settings. Its work is a grid: cells (the
25 instances of Figure 1, the days of Table 1, the datasets of Table 2) × policies × runs. Every
run depends on the settings alone, so blocks of runs give the same numbers in any order, on any
machine, and again after a crash.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd

from tsucb.checks import whole_number
from tsucb.numeric.arrays import Floats
from tsucb.pages.figures import Figure, legend_above, panel_for_each, regret_curves
from tsucb.paper.experiments.claims import TS, Claim, relative_regret
from tsucb.policies import OFUL
from tsucb.policies.names import named_policy
from tsucb.simulation import cores, simulate

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

Cell = tuple[str | int | float, ...]
MOST_RUNS = 1_000_000
POINTS = 50  # of a regret curve
# The policies of the tables, as printed.
POLICIES = (TS, "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
_, ONE, HUNDRED, IDS, GREEDY, UCB = POLICIES


class Task(NamedTuple):
    """The smallest piece of work: one policy in one cell, in runs `first` to `stop` − 1."""

    cell: Cell
    policy: str
    first: int
    stop: int

    @property
    def runs(self) -> range:
        """The run numbers of this block."""
        return range(self.first, self.stop)

    @property
    def key(self) -> str:
        """The task's name, which can be part of a file's name.

        >>> Task((60, 0.05), "TS-UCB(100)", 20, 40).key
        '60_0.05_TS-UCB(100)_20-39'
        """
        parts = [*map(str, self.cell), self.policy, f"{self.first}-{self.stop - 1}"]
        return re.sub(r"[^\w.()=+-]", "-", "_".join(parts))


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """One experiment of the paper; its fields are its settings.

    A subclass is a frozen, keyword-only dataclass that adds its own fields (JSON values and
    tuples of them), names the columns of a cell in `axes`, lists its presets in `scales`, and
    implements `cells`, `figures` and `claims`. It simulates the `environment` of every cell, and
    its rows have a regret and a regret curve, unless it implements `run`, `numbers` and `summary`.
    A field that cannot change the results, such as the folder with the data, is declared with
    `field(compare=False)` and is not a setting.

    Parameters
    ----------
    runs : replications of every cell and policy
    policies : names as printed, such as "TS-UCB(100)"
    seed : of all randomness
    threads : how many threads a task decides with; all cores if None
    """

    runs: int
    policies: tuple[str, ...]
    seed: int = 0
    threads: int | None = field(default=1, compare=False)

    name: ClassVar[str]
    title: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]
    scales: ClassVar[dict[str, dict[str, Any]]]
    ucb: ClassVar[Any] = OFUL()  # the policy that the paper calls UCB here
    columns: ClassVar[int] = 4  # of the figure with regret over time
    apart: ClassVar[bool] = False  # whether tasks run in processes instead of threads

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= MOST_RUNS:
            raise ValueError(f"runs must be at least 1, at most {MOST_RUNS:,}, not {self.runs:,}")
        whole_number("seed", self.seed, least=0)
        check_names("policy", self.policies)
        for name in self.policies:
            self.policy(name)

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Self:
        """Return the experiment at a scale, "quick" or "full"; `chosen` settings override it.

        Settings that are None stay as the scale has them.
        """
        if scale not in cls.scales:
            raise ValueError(f"unknown scale {scale!r}; choose one of {', '.join(cls.scales)}")
        return cls(**cls.scales[scale] | {k: v for k, v in chosen.items() if v is not None})

    def settings(self) -> dict[str, Any]:
        """Return all settings that the results depend on, as JSON values."""
        fields = [f.name for f in dataclasses.fields(self) if f.compare]
        return {"experiment": self.name} | {name: getattr(self, name) for name in fields}

    # What to measure

    @abstractmethod
    def cells(self) -> Sequence[Cell]:
        """Return the instances, each a tuple with one entry per name in `axes`."""

    def block(self, cell: Cell, policy: str) -> int:
        """Return how many runs a task has: as many as take ten seconds, at most 20."""
        return max(1, min(20, round(10 / self.seconds(cell, policy))))

    def tasks(self) -> list[Task]:
        """Return every task, in the order of the results."""
        return [
            Task(cell, policy, first, min(first + size, self.runs))
            for cell in self.cells()
            for policy in self.policies
            for size in [self.block(cell, policy)]
            for first in range(0, self.runs, size)
        ]

    def policy(self, name: str, cell: Cell = ()) -> Any:
        """Return the policy of a printed name in a cell."""
        return named_policy(name, UCB=self.ucb)

    def environment(self, cell: Cell) -> Any:
        """Return the bandit of a cell."""
        raise NotImplementedError

    def model(self, cell: Cell, environment: Any) -> Any:
        """Return the model that plays a cell: by default the environment's own."""
        return environment.model()

    def world_seed(self, cell: Cell) -> int:
        """Return the seed of a cell; all policies share it."""
        return cell_seed(self.seed, *cell)

    def checkpoints(self, cell: Cell) -> int | Sequence[int]:
        """Return the steps at which the regret is recorded, or the number of evenly spread ones."""
        return min(POINTS, self.steps(cell))

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        """Measure these runs; return one row per run, with a column `run` and those of `numbers`.

        The result must depend on the arguments and the settings only, as any thread, process or
        machine may call this. A regret curve is a column of lists.
        """
        environment = self.environment(cell)
        curves = simulate(
            environment, self.model(cell, environment), [self.policy(policy, cell)],
            horizon=self.steps(cell), runs=runs, seed=self.world_seed(cell),
            workers=self.threads, checkpoints=self.checkpoints(cell), progress=False,
        ).regret[0]  # fmt: skip
        return pd.DataFrame({"run": list(runs), "regret": curves[:, -1], "curve": list(curves)})

    def numbers(self, cell: Cell) -> dict[str, int]:
        """Return the names of the measured columns, each with the length of its lists.

        The length is 0 for a column of single numbers.
        """
        points = self.checkpoints(cell)
        return {"regret": 0, "curve": points if isinstance(points, int) else len(points)}

    def steps(self, cell: Cell) -> int:
        """Return the steps of one run in a cell."""
        return 1

    def seconds(self, cell: Cell, policy: str) -> float:
        """Return roughly the seconds of one run on one core."""
        return 1e-6 * self.steps(cell)

    def cost(self, task: Task) -> float:
        """Return roughly the seconds of a task, to order tasks and to estimate the time left."""
        return len(task.runs) * self.seconds(task.cell, task.policy)

    def workers(self) -> int:
        """Return how many tasks run at once on this machine by default: one per core."""
        return cores()

    def beside(self, workers: int) -> Self:
        """Return the experiment set up for `workers` tasks at once on this machine."""
        return self

    def prepare(self) -> None:  # noqa: B027  (most experiments need nothing)
        """Find and check what the tasks need, before the first one starts."""

    # What to report

    @property
    def rivals(self) -> list[str]:
        """The policies compared with TS: all others, or none if TS was left out."""
        return [name for name in self.policies if name != TS] if TS in self.policies else []

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the table of summary.csv.

        `rows` are those of all tasks, with the columns of the cell and the policy before them.
        """
        table = relative_regret(rows, self.axes)
        table.insert(0, "experiment", self.name)
        return table

    def tables(self, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Return further tables, each written to NAME.csv."""
        return {}

    @abstractmethod
    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        """Return the pictures of the report, most important first."""

    @abstractmethod
    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        """Return every sentence of the paper that these measurements can check."""

    def notes(self) -> list[str]:
        """Return what a reader must know before the numbers: fewer runs, generated data, …"""
        return [] if TS in self.policies else ["Percentages need TS, which was left out."]

    def regret_figures(
        self,
        rows: pd.DataFrame,
        draw: Callable[[bool], matplotlib.figure.Figure],
        percentages: str,
        curves: str = "Mean cumulative regret, with a band of 95 % for the mean.",
    ) -> list[Figure]:
        """Return the figures of the percentages of TS, which `draw` draws, and of all curves.

        `percentages` and `curves` are their captions. Without TS there are only curves.
        """
        title = "Regret as a percentage of Thompson sampling’s"
        figures = [Figure(self.name, title, percentages, draw)] if self.rivals else []
        drawn = Figure("curves", "Regret over time", curves, lambda x: self.draw_curves(rows, x))
        return [*figures, drawn]

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


def check_names(kind: str, names: Sequence[Any], known: Collection[Any] | None = None) -> None:
    """Raise ValueError unless there are names, all distinct and all among the known ones."""
    for name in names:
        if known is not None and name not in known:
            known = ", ".join(known)
            raise ValueError(f"unknown {kind} {name!r}; the {kind}s are {known}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"name at least one {kind}, and none twice")


def cell_seed(seed: int, *cell: Hashable) -> int:
    """Return a seed for one cell, so that cells are independent of each other.

    >>> cell_seed(0, 3, 0.05) == cell_seed(0, 3, 0.05) != cell_seed(0, 3, 0.1)
    True
    """
    words = [seed, *repr(cell).encode()]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])
