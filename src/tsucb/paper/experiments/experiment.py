"""What an experiment of the paper is: settings, independent tasks, a summary, figures and claims.

An experiment is a frozen dataclass whose fields are its settings. Its work is a grid: cells (the
25 instances of Figure 1, the days of Table 1, the datasets of Table 2) × policies × runs. Every
run of the grid is determined by the settings alone, so its blocks can be measured in any order,
on any machine, and again after a crash, and the numbers are always the same.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from tsucb.numeric.statistics import mean_interval, percent_of
from tsucb.pages.page import Figure
from tsucb.paper.experiments.claims import Claim
from tsucb.simulation import cores

if TYPE_CHECKING:
    import pandas as pd

Cell = tuple[str | int | float, ...]
MOST_RUNS = 1_000_000


class Task(NamedTuple):
    """The smallest piece of work: one policy in one cell, for runs `first` to `stop` − 1."""

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
        """The task's name as a file name, the same in every process.

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
    implements `cells`, `run`, `summary`, `figures` and `claims`. Fields that cannot change a
    number, such as the folder where the data lie, are declared with `field(compare=False)` and
    are no settings.

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
    apart: ClassVar[bool] = False  # whether each task needs a process of its own

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= MOST_RUNS:
            raise ValueError(f"runs must be at least 1, at most {MOST_RUNS:,}, not {self.runs:,}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, but it is {self.seed}")
        if not self.policies:
            raise ValueError("name at least one policy")
        if len(set(self.policies)) < len(self.policies):
            raise ValueError(f"a policy is named twice in {', '.join(self.policies)}")

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Self:
        """The experiment at a scale, "quick" or "full"; what is chosen and not None overrides."""
        if scale not in cls.scales:
            raise ValueError(f"unknown scale {scale!r}; choose one of {', '.join(cls.scales)}")
        return cls(**cls.scales[scale] | {k: v for k, v in chosen.items() if v is not None})

    def settings(self) -> dict[str, Any]:
        """Everything that decides the numbers, as JSON values."""
        fields = [f.name for f in dataclasses.fields(self) if f.compare]
        return {"experiment": self.name} | {name: getattr(self, name) for name in fields}

    # What is to be done

    @abstractmethod
    def cells(self) -> Sequence[Cell]:
        """The instances, each a tuple with one entry per name in `axes`."""

    def block(self, cell: Cell, policy: str) -> int:
        """How many runs one task takes: enough to keep it above a second, below a minute."""
        return 20

    def tasks(self) -> list[Task]:
        """Every task, in the order of the results."""
        return [
            Task(cell, policy, first, min(first + size, self.runs))
            for cell in self.cells()
            for policy in self.policies
            for size in [self.block(cell, policy)]
            for first in range(0, self.runs, size)
        ]

    @abstractmethod
    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        """Measure: one row per run, with at least the columns `run` and `regret`.

        Must depend on nothing but the arguments and the settings, and may be called in any
        thread, process or machine. A regret curve goes in as a column of lists.
        """

    def steps(self, cell: Cell) -> int:
        """Steps of one run in a cell, for the display of speed."""
        return 1

    def cost(self, task: Task) -> float:
        """Seconds the task takes on one core, roughly: for the time left, and what to start first.

        Only ratios matter.
        """
        return float(self.steps(task.cell) * len(task.runs))

    def workers(self) -> int:
        """Tasks measured at once on this machine, unless told otherwise: one per core."""
        return cores()

    def beside(self, workers: int) -> Self:
        """The same experiment, whose tasks know that so many of them share this machine."""
        return self

    def prepare(self) -> None:  # noqa: B027  (most experiments need nothing)
        """Find and check what all tasks need, before the first starts; errors here come early."""

    # What is made of it

    @abstractmethod
    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The table of summary.csv, from the rows of all tasks (with the columns of the cell)."""

    def tables(self, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Further tables, each written to NAME.csv."""
        return {}

    @abstractmethod
    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        """The pictures of the report, most important first."""

    @abstractmethod
    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        """Every sentence of the paper that these numbers can check."""

    def notes(self) -> list[str]:
        """What a reader must know before the numbers: fewer runs, generated data, …"""
        return []


def cell_seed(seed: int, *cell: Hashable) -> int:
    """A seed of its own for a cell, so that cells are independent of each other.

    >>> cell_seed(0, 3, 0.05) == cell_seed(0, 3, 0.05) != cell_seed(0, 3, 0.1)
    True
    """
    words = [seed, *repr(cell).encode()]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])


def relative_regret(rows: pd.DataFrame, cell: list[str], baseline: str = "TS") -> pd.DataFrame:
    """Regret of every policy in every cell, and as a percentage of the baseline's, run by run.

    percent = 100 · mean over runs of Reg(policy)/Reg(baseline), each run paired with the
    baseline's run of the same number (Section 4.1 of the paper), with Student's 95 % interval.

    Parameters
    ----------
    rows : columns `cell`, policy, run, regret
    cell : names of the columns that make a cell
    baseline : the policy with 100 %; without it in `rows`, and in a cell where it once lost
        nothing, the percentages are empty

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"day": 1, "policy": ["TS", "TS", "UCB", "UCB"],
    ...                      "run": [0, 1, 0, 1], "regret": [2.0, 4.0, 1.0, 4.0]})
    >>> relative_regret(rows, ["day"])[["policy", "regret_mean", "percent_of_ts"]]
      policy  regret_mean  percent_of_ts
    0     TS          3.0          100.0
    1    UCB          2.5           75.0
    """
    import pandas as pd

    key = [*cell, "run"]
    base = rows.loc[rows.policy == baseline, [*key, "regret"]]
    paired = rows.merge(base, on=key, how="left", suffixes=("", "_baseline"))
    paired["percent"] = percent_of(paired.regret.to_numpy(), paired.regret_baseline.to_numpy())
    table = []
    for group, part in paired.groupby([*cell, "policy"], sort=False):
        mean, error, *_ = mean_interval(part.regret.to_numpy())
        percent, _, low, high = mean_interval(part.percent.to_numpy())
        table.append([*group, len(part), mean, error, percent, low, high])
    numbers = ["runs", "regret_mean", "regret_se", "percent_of_ts", "ci95_low", "ci95_high"]
    return pd.DataFrame(table, columns=[*cell, "policy", *numbers])
