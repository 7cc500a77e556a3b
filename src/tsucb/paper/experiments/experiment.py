"""An experiment of the paper: settings, independent tasks, a summary, figures and claims.

An experiment is a frozen dataclass whose fields are its settings. Its work is a grid: cells (the
25 instances of Figure 1, the days of Table 1, the datasets of Table 2) × policies × runs. Every
run depends on the settings alone, so blocks of runs give the same numbers in any order, on any
machine, and again after a crash.
"""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd

from tsucb.checks import whole_number
from tsucb.pages.figures import Figure
from tsucb.paper.experiments.claims import Claim
from tsucb.simulation import cores

Cell = tuple[str | int | float, ...]
MOST_RUNS = 1_000_000


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
    implements `cells`, `run`, `summary`, `figures` and `claims`. A field that cannot change the
    results, such as the folder with the data, is declared with `field(compare=False)` and is not
    a setting.

    Parameters
    ----------
    runs : replications of every cell and policy
    policies : names as printed, such as "TS-UCB(100)"
    seed : of all randomness
    """

    runs: int
    policies: tuple[str, ...]
    seed: int = 0

    name: ClassVar[str]
    title: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]
    scales: ClassVar[dict[str, dict[str, Any]]]
    apart: ClassVar[bool] = False  # whether tasks run in processes instead of threads

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= MOST_RUNS:
            raise ValueError(f"runs must be at least 1, at most {MOST_RUNS:,}, not {self.runs:,}")
        whole_number("seed", self.seed, least=0)
        check_names("policy", self.policies)

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

    @abstractmethod
    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        """Measure these runs; return one row per run, with a column `run` and those of `numbers`.

        The result must depend on the arguments and the settings only, as any thread, process or
        machine may call this. A regret curve is a column of lists.
        """

    def numbers(self, cell: Cell) -> dict[str, int]:
        """Return the names of the measured columns, each with the length of its lists.

        The length is 0 for a column of single numbers.
        """
        return {"regret": 0}

    def steps(self, cell: Cell) -> int:
        """Return the steps of one run in a cell, for the display of speed."""
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

    @abstractmethod
    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the table of summary.csv.

        `rows` are those of all tasks, with the columns of the cell and the policy before them.
        """

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
        return []


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
