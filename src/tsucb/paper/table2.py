"""Table 2: Neural-Linear on the seven datasets of the deep bandit benchmark.

Below the experiment are the checks of the sentences of Section 4.3.1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from tsucb.environments import WheelBandit
from tsucb.extras import require
from tsucb.models import NeuralLinear, Training
from tsucb.numeric.arrays import Floats
from tsucb.pages.figures import Figure, panel_for_each, style
from tsucb.paper import datasets as benchmark
from tsucb.paper.experiments.claims import (
    TS,
    Check,
    Claim,
    Finding,
    Interval,
    Percentages,
    Verdict,
    both,
    count_below,
    counting,
    interval,
    mean_is_above,
)
from tsucb.paper.experiments.experiment import (
    GREEDY,
    HUNDRED,
    IDS,
    ONE,
    POLICIES,
    UCB,
    Cell,
    Experiment,
    cell_seed,
    check_names,
    name_axes,
)
from tsucb.policies import ChiSquaredUCB
from tsucb.policies.names import FIRST, samples_of
from tsucb.simulation import cores

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

# Regret in per cent of that of TS, and the half-width of its 95 % interval.
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    dataset: dict(zip(POLICIES[1:], entries, strict=True))
    for dataset, *entries in (
        ("adult", (98.8, 0.2), (98.6, 0.2), (98.6, 0.2), (103.4, 0.7), (101.0, 0.2)),
        ("census", (99.4, 0.5), (99.2, 0.5), (99.2, 0.5), (92.2, 0.5), (105.2, 0.5)),
        ("covertype", (98.7, 0.6), (98.6, 0.6), (98.4, 0.6), (91.5, 0.6), (110.3, 0.5)),
        ("financial", (60.0, 0.9), (54.7, 0.7), (56.3, 0.8), (101.6, 9.8), (160.7, 2.3)),
        ("jester", (99.4, 0.3), (99.2, 0.3), (99.6, 0.3), (96.6, 0.4), (113.1, 0.8)),
        ("mushroom", (108.0, 11.1), (98.6, 5.1), (118.6, 15.7), (189.5, 32.4), (918.3, 53.0)),
        ("statlog", (89.7, 0.6), (74.9, 0.6), (73.9, 0.6), (317.5, 27.8), (322.9, 2.0)),
    )
}
SEVEN = tuple(PAPER)
SIX = tuple(name for name in PAPER if name != "mushroom")
ENOUGH = 30  # of the 35 entries
NEAR = 3.0  # percentage points
HORIZON = 10_000
MOST_STEPS = 1_000_000  # networks train on all steps so far, so all stay in memory
FINANCIAL_HORIZON = 3_000  # the paper's, for the 3,713 rows of that dataset
RUNS = 200
WHEEL = "wheel"
MOST_ON_DEVICE = 8  # tasks that share an accelerator: each has a context of its own there

LOADING = Lock()  # threads must read a dataset only once


@dataclass(frozen=True, kw_only=True)
class Table2(Experiment):
    """Section 4.3 of the paper: `NeuralLinear` on real data, T = 10,000 (financial: 3,000).

    Parameters
    ----------
    datasets : names of datasets, or "wheel", which needs no data
    horizon : T; by default the paper's, which depends on the dataset
    data_dir : where to look for the datasets first
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
        """Return the experiment at a scale; quick takes the datasets found, else the wheel."""
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
        """Return all runs, as their networks train together."""
        return self.runs

    def seconds(self, cell: Cell, policy: str) -> float:
        """Return the seconds of training, which grow with d, and of deciding, with the samples."""
        features, arms = size(str(cell[0]))
        per_step = 1.0 + features / 100 + arms * samples_of(policy) / 10_000
        return self.steps(cell) * per_step

    def workers(self) -> int:
        """Return enough tasks to keep an accelerator busy; without one, a task per core."""
        # Looking for an accelerator would otherwise allocate its memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if import_jax().default_backend() == "cpu":
            return cores()
        return max(1, min(cores() // 2, MOST_ON_DEVICE))

    def beside(self, workers: int) -> Self:
        return replace(self, threads=max(1, cores() // workers))

    def environment(self, cell: Cell) -> Any:
        """Return the bandit of a dataset, which is read once."""
        with LOADING:
            return bandit(str(cell[0]), self.data_dir)

    def model(self, cell: Cell, environment: Any) -> Any:
        """Return the model of a cell, with room to train on every step of a run."""
        training = Training(memory=self.steps(cell))
        return NeuralLinear(environment.context_shape[0], training=training)

    def world_seed(self, cell: Cell) -> int:
        """Return the seed of a dataset; with it all models and policies meet the same rows."""
        return cell_seed(self.seed, cell[0])

    def prepare(self) -> None:
        """Raise an error if JAX or a dataset is missing or the horizon exceeds the rows."""
        import_jax()
        there = present(self.data_dir)
        for name in self.datasets:
            steps = self.steps((name,))
            if name in there and steps <= benchmark.DATASETS[name].rows:
                continue
            rows = getattr(self.environment((name,)), "longest", np.inf)
            if steps > rows:
                raise ValueError(
                    f"{name} has {rows:,} rows, each of which comes only once in a run, so the "
                    f"horizon cannot be {steps:,}; give --horizon {rows} or less, or leave it out"
                )

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = super().summary(rows)
        medians = rows.groupby(["dataset", "policy"]).regret.median()
        pairs = list(zip(table.dataset, table.policy, strict=True))
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
        return self.regret_figures(
            rows,
            partial(self.draw, summary),
            f"Mean over {self.runs} runs, each paired with the run of TS on the same rows, with "
            "its 95 % interval; grey bars are the paper's intervals.",
        )

    def draw(self, summary: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw every policy's percentage with its interval, beside the paper's interval."""
        figure, panels = panel_for_each(self.datasets, 2 if narrow else 4, narrow, 1.9)
        for name, panel in zip(self.datasets, panels, strict=True):
            here: Any = summary[summary.dataset == name].set_index("policy")
            for place, policy in enumerate(self.rivals):
                if (entry := paper_entry(name, policy)) and self.comparable:
                    percent, width = entry
                    panel.barh(place, 2 * width, 0.7, percent - width, color="#8a939c", alpha=0.5)
                draw_interval(panel, here.loc[policy], place, style(policy)["color"], markersize=4)
            panel.use_sticky_edges = False  # leave a margin beside the bars
            finish_panel(panel, name, self.rivals)
        name_axes(figure, "regret in % of TS")
        return figure

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        """Return every measured entry of the table, then every sentence of Section 4.3.1."""
        doubt = "" if self.comparable else "other horizons than the paper's"
        checks = [*entries(self.datasets, self.policies), *SENTENCES]
        return Percentages(rows, self.axes).claims(checks, lambda check: doubt)


def import_jax() -> Any:
    """Return JAX; raise MissingExtra with the command that installs it if it is missing."""
    require("deep", "jax", "optax")
    import jax

    return jax


def present(data_dir: str | None) -> tuple[str, ...]:
    """Return the names of the datasets that can be found."""
    return tuple(name for name in PAPER if benchmark.DATASETS[name].find(data_dir))


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


def draw_interval(panel: Axes, row: Any, place: float, colour: str, **dot: Any) -> None:
    """Draw a row's percentage and its interval as a dot on a line, at height `place`."""
    panel.plot([row.ci95_low, row.ci95_high], [place, place], color=colour)
    panel.plot(row.percent_of_ts, place, "o", **{"color": colour} | dot)


def finish_panel(panel: Axes, title: str, lines: Sequence[str]) -> None:
    """Set the title of a panel and the names of its lines, and mark the 100 % of TS."""
    panel.axvline(100, linewidth=0.8, linestyle=":", color=style(TS)["color"])
    panel.set_yticks(range(len(lines)), lines)
    panel.invert_yaxis()
    panel.set_title(title)


def paper_entry(dataset: str, policy: str) -> tuple[float, float] | None:
    """Return the paper's percentage and half-width for a policy, None if it prints none.

    Our Greedy breaks ties at random, the paper's must have taken the first arm. Ties are common: an
    arm that never paid has a posterior mean of exactly 0.
    """
    return PAPER.get(dataset, {}).get(GREEDY if policy == FIRST else policy)


def entry_agrees(dataset: str, policy: str, p: Percentages) -> Verdict:
    """Return no if the interval and the paper's do not overlap, None if ours is too wide."""
    entry = paper_entry(dataset, policy)
    assert entry is not None
    found, (paper, half_width) = p.interval(policy, dataset=dataset), entry
    if found.low > paper + half_width or found.high < paper - half_width:
        return False
    return True if found.half_width <= 2 * half_width else None


def entry_comes_out(dataset: str, policy: str, p: Percentages) -> Finding:
    """Check whether an entry of the paper's table comes out; for mushroom, find medians too."""
    found = p.interval(policy, dataset=dataset)
    measured = f"{found.mean:.1f} ({found.low:.1f} to {found.high:.1f})"
    if dataset == "mushroom":
        median = p.rows[p.rows.dataset == dataset].groupby("policy").regret.median()
        measured += f"; of medians {100 * median[policy] / median.get(TS, np.nan):.1f}"
    return measured, entry_agrees(dataset, policy, p)


def most_entries_come_out(p: Percentages) -> Finding:
    found = [entry_agrees(name, policy, p) for name in SEVEN for policy in POLICIES[1:]]
    yes, no = found.count(True), found.count(False)
    return f"{yes} of {len(found)}", Interval(yes, yes, len(found) - no).is_above(ENOUGH)


def ids_exceeds_by(policy: str, paper: float, p: Percentages) -> Finding:
    """Check by how much IDS exceeds the policy: as in the paper, from the means in the table."""
    ratios, errors = [], []
    for name in SEVEN:
        ours, theirs = p.interval(IDS, dataset=name), p.interval(policy, dataset=name)
        ratios.append(ours.mean / theirs.mean)
        errors.append(np.hypot(ours.half_width / ours.mean, theirs.half_width / theirs.mean))
    mean = 100 * (float(np.mean(ratios)) - 1)
    width = 100 * float(np.linalg.norm(np.multiply(ratios, errors))) / len(SEVEN)
    return f"{mean:.2f} %", Interval(mean, mean - width, mean + width).is_near(paper, NEAR)


def greedy_is_lowest(dataset: str, p: Percentages) -> Finding:
    """Check that Greedy has the least regret on a dataset."""
    means = {name: p.interval(name, dataset=dataset).mean for name in POLICIES}
    best = min(means, key=means.__getitem__)
    rival = min((name for name in POLICIES if name != GREEDY), key=means.__getitem__)
    margin = interval(p.difference(GREEDY, rival, dataset=dataset))
    return f"lowest: {best}", margin.is_below(0)


def ucb_is_outperformed(p: Percentages) -> Finding:
    counts = [count_below(on_all_seven(name, UCB, p), 0) for name in (TS, ONE, HUNDRED)]
    number = min(count.mean for count in counts)
    verdict = both(*(count.is_above(len(SEVEN)) for count in counts))
    return f"{number} of {len(SEVEN)} datasets", verdict


def on_all_seven(policy: str, other: str, p: Percentages) -> Floats:
    """Return how many points the policy is above the other on every dataset."""
    return np.vstack([p.difference(policy, other, dataset=name) for name in SEVEN])


def six(policy: str, p: Percentages) -> Floats:
    """Return the percentages on the six datasets other than mushroom."""
    return np.vstack([p.of(policy, dataset=name) for name in SIX])


SENTENCES: list[Check] = [
    Check(
        "Entries of the table whose intervals overlap",
        "",
        f"at least {ENOUGH} of the 35 entries agree",
        most_entries_come_out,
    ),
    *(
        Check(
            f"{policy} improves upon TS on every dataset except possibly mushroom",
            "6 of 6",
            "below 100 % on all six",
            counting("datasets", 6, partial(six, policy), 100),
        )
        for policy in (ONE, HUNDRED)
    ),
    Check(
        f"{HUNDRED} always outperforms {ONE}",
        "7 of 7 datasets",
        f"less regret than {ONE} in at least 7 datasets",
        counting("datasets", 7, partial(on_all_seven, HUNDRED, ONE)),
    ),
    *(
        Check(
            f"On average, the regret of IDS is higher than that of {policy}",
            f"{figure} %",
            f"within {NEAR:.0f} points of the paper's figure",
            partial(ids_exceeds_by, policy, figure),
        )
        for policy, figure in ((HUNDRED, 4.1), (ONE, 0.02))
    ),
    *(
        Check(
            f"Greedy outperforms all others on {dataset}",
            "lowest: Greedy",
            "less regret than the best other policy",
            partial(greedy_is_lowest, dataset),
        )
        for dataset in ("census", "covertype", "jester")
    ),
    *(
        mean_is_above(
            f"Greedy is poor on {dataset}",
            f"{PAPER[dataset][GREEDY][0]} %",
            GREEDY,
            dataset=dataset,
        )
        for dataset in ("mushroom", "statlog")
    ),
    Check(
        "UCB is consistently outperformed by TS and TS-UCB",
        "7 of 7 datasets",
        "more regret than TS and both TS-UCB on all seven datasets",
        ucb_is_outperformed,
    ),
]


def entries(datasets: Sequence[str], policies: Sequence[str]) -> list[Check]:
    """Return a check of every entry of the paper's table that was measured."""
    return [
        Check(
            f"{dataset}, {policy}: regret in per cent of that of TS",
            f"{entry[0]} ± {entry[1]}",
            "the 95 % intervals overlap, and ours is at most twice as wide as the paper's",
            partial(entry_comes_out, dataset, policy),
            exact=True,
        )
        for dataset in datasets
        for policy in policies
        if (entry := paper_entry(dataset, policy))
    ]
