"""Table 2: Neural-Linear on the seven datasets of the deep bandit benchmark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from tsucb.environments import WheelBandit
from tsucb.extras import require
from tsucb.models import NeuralLinear, Training
from tsucb.pages.drawing import panel_for_each
from tsucb.pages.figures import style
from tsucb.pages.page import Figure
from tsucb.paper import datasets as benchmark
from tsucb.paper.experiments.claims import Claim
from tsucb.paper.experiments.experiment import Cell, Task, cell_seed, check_names
from tsucb.paper.experiments.percentages import relative_regret
from tsucb.paper.experiments.regret import RegretExperiment, name_axes, simulated_rows
from tsucb.paper.table2_claims import PAPER, POLICIES, paper_entry, table_and_section_4_3_1
from tsucb.policies import ChiSquaredUCB
from tsucb.policies.names import FIRST, samples_of
from tsucb.simulation import cores

if TYPE_CHECKING:
    import matplotlib.figure

HORIZON = 10_000
MOST_STEPS = 1_000_000  # networks train on every step, so all stay in memory
FINANCIAL_HORIZON = 3_000  # the paper's, for the 3,713 rows of that dataset
RUNS = 200
WHEEL = "wheel"
MOST_ON_DEVICE = 8  # tasks that share an accelerator: each has a context of its own there

LOADING = Lock()  # so that threads read a dataset once


@dataclass(frozen=True, kw_only=True)
class Table2(RegretExperiment):
    """Section 4.3 of the paper: `NeuralLinear` on real data, T = 10,000 (financial: 3,000).

    Parameters
    ----------
    datasets : names of datasets, or "wheel", which needs no data
    horizon : T; by default the paper's, which depends on the dataset
    data_dir : where to look for the datasets first
    threads : how many threads a task decides with; all cores by default
    """

    datasets: tuple[str, ...] = tuple(PAPER)
    horizon: int | None = None
    data_dir: str | None = field(default=None, compare=False)
    threads: int | None = field(default=None, compare=False)

    name: ClassVar[str] = "table2"
    title: ClassVar[str] = "Table 2: the deep bandit benchmark"
    axes: ClassVar[tuple[str, ...]] = ("dataset",)
    apart: ClassVar[bool] = True
    ucb: ClassVar[Any] = ChiSquaredUCB()
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 4, "horizon": 500, "policies": POLICIES},
        "full": {"runs": RUNS, "policies": POLICIES},
    }

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Self:
        """Return the experiment at a scale; quick takes the datasets found, or the wheel."""
        if scale == "quick" and chosen.get("datasets") is None:
            chosen["datasets"] = present(chosen.get("data_dir")) or (WHEEL,)
        return super().at(scale, **chosen)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("dataset", self.datasets, (*PAPER, WHEEL))
        if self.horizon is not None and not 1 <= self.horizon <= MOST_STEPS:
            raise ValueError(
                f"horizon must be at least 1, at most {MOST_STEPS:,}, not {self.horizon:,}"
            )

    def cells(self) -> Sequence[Cell]:
        return [(name,) for name in self.datasets]

    def steps(self, cell: Cell) -> int:
        return self.horizon or (FINANCIAL_HORIZON if cell == ("financial",) else HORIZON)

    def block(self, cell: Cell, policy: str) -> int:
        """Return all runs: their networks train together."""
        return self.runs

    def cost(self, task: Task) -> float:
        """Return a cost of training that grows with the features, and of deciding with samples."""
        features, arms = size(str(task.cell[0]))
        per_step = 1.0 + features / 100 + arms * samples_of(task.policy) / 10_000
        return len(task.runs) * self.steps(task.cell) * per_step

    def workers(self) -> int:
        """Return enough tasks to keep an accelerator busy; without one, a task per core."""
        # Looking for an accelerator must not allocate its memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if import_jax().default_backend() == "cpu":
            return cores()
        return max(1, min(cores() // 2, MOST_ON_DEVICE))

    def beside(self, workers: int) -> Self:
        return replace(self, threads=max(1, cores() // workers))

    def environment(self, name: str) -> Any:
        """Return the bandit of a dataset, which is read once."""
        with LOADING:
            return bandit(name, self.data_dir)

    def model(self, cell: Cell, features: int) -> Any:
        """Return the model of a cell, which can train on every step of a run."""
        return NeuralLinear(features, training=Training(memory=self.steps(cell)))

    def prepare(self) -> None:
        """Raise an error if JAX or a dataset is missing or the horizon exceeds the rows."""
        import_jax()
        there = present(self.data_dir)
        for name in self.datasets:
            steps = self.steps((name,))
            if name in there and steps <= benchmark.DATASETS[name].rows:
                continue
            rows = getattr(self.environment(name), "longest", np.inf)
            if steps > rows:
                raise ValueError(
                    f"{name} has {rows:,} rows, each of which comes only once in a run, so the "
                    f"horizon cannot be {steps:,}; give --horizon {rows} or less, or leave it out"
                )

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        environment = self.environment(str(cell[0]))
        model = self.model(cell, environment.context_shape[0])
        # All models of a dataset meet the same rows.
        seed = cell_seed(self.seed, cell[0])
        return simulated_rows(
            environment, model, self.policy(policy), runs, horizon=self.steps(cell), seed=seed,
            workers=self.threads,
        )  # fmt: skip

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = relative_regret(rows, ["dataset"])
        medians = rows.groupby(["dataset", "policy"]).regret.median()
        pairs = list(zip(table.dataset, table.policy, strict=True))
        table.insert(0, "experiment", self.name)
        table.insert(2, "features", [size(name)[0] for name in table.dataset])
        table.insert(3, "arms", [size(name)[1] for name in table.dataset])
        place = list(table.columns).index("regret_se") + 1
        table.insert(place, "regret_median", [medians[pair] for pair in pairs])
        table["paper_percent"] = [
            entry[0] if (entry := paper_entry(dataset, policy)) else np.nan
            for dataset, policy in pairs
        ]
        return table

    def notes(self) -> list[str]:
        notes = super().notes()
        if self.runs != RUNS:
            notes.append(f"{self.runs} runs of every policy, where the paper has {RUNS}.")
        if not self.comparable:
            notes.append(
                f"{self.horizon:,} steps, where the paper has {HORIZON:,} "
                f"({FINANCIAL_HORIZON:,} on financial): percentages cannot be compared with its."
            )
        if self.datasets == (WHEEL,):
            notes.append(
                "No dataset of the paper was found, so this is the wheel, which needs no data; "
                "`tsucb data list` shows where datasets belong, `tsucb data get` downloads them."
            )
        elif missing := [name for name in PAPER if name not in self.datasets]:
            notes.append(f"Without {', '.join(missing)}.")
        if "Greedy" in self.policies and FIRST not in self.policies:
            notes.append(
                "Greedy breaks ties at random; the paper's must have taken the first arm, which on "
                f"statlog and adult makes it far worse. Name {FIRST} among the policies to see."
            )
        return notes

    @property
    def comparable(self) -> bool:
        """Whether runs are as long as the paper's."""
        return all(
            self.steps((name,)) == (FINANCIAL_HORIZON if name == "financial" else HORIZON)
            for name in self.datasets
        )

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        percentages = self.percentage_figure(
            f"Mean over {self.runs} runs, each paired with the run of TS on the same rows, with "
            "its 95 % interval; grey bars are the paper's intervals.",
            lambda narrow: draw_table(summary, self, narrow),
        )
        return [*percentages, self.curve_figure(rows)]

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        return table_and_section_4_3_1(rows, self.datasets, self.policies, self.comparable)


def import_jax() -> Any:
    """Return JAX; raise MissingExtra with the command that installs it if it is missing."""
    require("deep", "jax", "optax")
    import jax

    return jax


def present(data_dir: str | None) -> tuple[str, ...]:
    """Return the names of the datasets that can be found."""
    return tuple(
        name for name in PAPER if benchmark.find_dataset(benchmark.DATASETS[name], data_dir)
    )


def size(name: str) -> tuple[int, int]:
    """Return the features and arms of a dataset."""
    if name == WHEEL:
        wheel = WheelBandit()
        return wheel.context_shape[0], wheel.arms
    dataset = benchmark.DATASETS[name]
    return dataset.features, dataset.arms


@cache
def bandit(name: str, data_dir: str | None) -> Any:
    """Return the environment of a dataset."""
    return WheelBandit() if name == WHEEL else benchmark.load(name, data_dir)


def draw_table(summary: pd.DataFrame, experiment: Table2, narrow: bool) -> matplotlib.figure.Figure:
    """Draw every policy's percentage with its interval, beside the paper's interval."""
    table: Any = summary.set_index(["dataset", "policy"])
    figure, panels = panel_for_each(experiment.datasets, 2 if narrow else 4, narrow, 1.9)
    for name, panel in zip(experiment.datasets, panels, strict=True):
        for place, policy in enumerate(experiment.rivals):
            if (entry := paper_entry(name, policy)) and experiment.comparable:
                percent, width = entry
                panel.barh(place, 2 * width, 0.7, percent - width, color="#8a939c", alpha=0.5)
            colour, ours = style(policy)["color"], table.loc[(name, policy)]
            panel.plot([ours.ci95_low, ours.ci95_high], [place, place], color=colour)
            panel.plot(ours.percent_of_ts, place, "o", markersize=4, color=colour)
        panel.use_sticky_edges = False  # leave a margin beside the bars
        panel.axvline(100, linewidth=0.8, linestyle=":", color=style("TS")["color"])
        panel.set_yticks(range(len(experiment.rivals)), experiment.rivals)
        panel.invert_yaxis()
        panel.set_title(name)
    name_axes(figure, "regret in % of TS")
    return figure
