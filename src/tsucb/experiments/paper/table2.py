"""Table 2: Neural-Linear on the seven datasets of the deep bandit benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsucb.experiments.drawing import new_figure, regret_curves, style
from tsucb.experiments.experiment import (
    Cell,
    Claim,
    Experiment,
    Figure,
    Task,
    cell_seed,
    named_policy,
    relative_regret,
)
from tsucb.experiments.paper.figure1 import curve_rows

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd
    from matplotlib.axes import Axes

POLICIES = ("TS", "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
HORIZON = 10_000
FINANCIAL_HORIZON = 3_000  # the paper's, for the 3,713 rows of that dataset
RUNS = 200
POINTS = 50  # of a regret curve
WHEEL = "wheel"

# The paper's Table 2: regret in per cent of that of TS, and the half-width of its 95 % interval.
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

# Our Greedy chooses at random among arms that look equally good. The paper's must have taken the
# first: an arm that never paid has a posterior mean of exactly 0, so such ties are common.
FIRST = "Greedy(first)"

LOADING = Lock()  # tasks are threads; a dataset is read once


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

    name: ClassVar[str] = "table2"
    title: ClassVar[str] = "Table 2: the deep bandit benchmark"
    axes: ClassVar[tuple[str, ...]] = ("dataset",)
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 4, "horizon": 500, "policies": POLICIES},
        "full": {"runs": RUNS, "policies": POLICIES},
    }

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Self:
        """As of every experiment; quick takes the datasets that are present, or the wheel."""
        if scale == "quick" and chosen.get("datasets") is None:
            chosen["datasets"] = present(chosen.get("data_dir")) or (WHEEL,)
        return super().at(scale, **chosen)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*PAPER, WHEEL)
        for name in self.datasets:
            if name not in known:
                raise ValueError(f"unknown dataset {name!r}; the datasets are {', '.join(known)}")
        if not self.datasets or len(set(self.datasets)) < len(self.datasets):
            raise ValueError("name at least one dataset, and none twice")
        if self.horizon is not None and self.horizon < 1:
            raise ValueError(f"horizon must be at least 1, but it is {self.horizon}")
        for policy in self.policies:
            self.policy(policy)

    def policy(self, name: str) -> Any:
        """The policy of a printed name; UCB is the Bayesian one with a chi-squared quantile."""
        from tsucb import ChiSquaredUCB

        return named_policy(name, UCB=ChiSquaredUCB())

    def cells(self) -> Sequence[Cell]:
        return [(name,) for name in self.datasets]

    def steps(self, cell: Cell) -> int:
        return self.horizon or (FINANCIAL_HORIZON if cell == ("financial",) else HORIZON)

    def block(self, cell: Cell, policy: str) -> int:
        """All runs, whose networks train together."""
        return self.runs

    def cost(self, task: Task) -> float:
        """Training grows with the features, deciding with the draws."""
        features, arms = size(str(task.cell[0]))
        match = re.search(r"\((\d+)\)", task.policy)
        draws = int(match[1]) if match else 1
        per_step = 1.0 + features / 100 + arms * draws / 10_000
        return len(task.runs) * self.steps(task.cell) * per_step

    def workers(self) -> int:
        """Four tasks keep an accelerator busy while the processor decides; else one at a time."""
        import jax

        return 1 if jax.default_backend() == "cpu" else 4

    def environment(self, name: str) -> Any:
        """The bandit of a dataset, read once."""
        with LOADING:
            return bandit(name, self.data_dir)

    def prepare(self) -> None:
        """Read every dataset, and see that JAX is there and the horizon fits."""
        from tsucb.models.neural import training  # noqa: F401  (says what to install where JAX is missing

        for name in self.datasets:
            rows, steps = getattr(self.environment(name), "longest", np.inf), self.steps((name,))
            if steps > rows:
                raise ValueError(
                    f"{name} has {rows:,} rows, each of which comes only once in a run, so the "
                    f"horizon cannot be {steps:,}; give --horizon {rows} or less, or leave it out"
                )

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        import tsucb
        from tsucb.models.neural.neural_linear import NeuralLinear

        environment = self.environment(str(cell[0]))
        horizon = self.steps(cell)
        simulation = tsucb.simulate(
            environment,
            NeuralLinear(environment.context_shape[0], memory=horizon),
            [self.policy(policy)],
            horizon=horizon,
            runs=runs,
            seed=cell_seed(self.seed, *cell),
            checkpoints=POINTS,
            progress=False,
        )
        return curve_rows(simulation, runs)

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
            entry[0] if (entry := printed(dataset, policy)) else np.nan for dataset, policy in pairs
        ]
        return table

    def notes(self) -> list[str]:
        notes = []
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
        if "TS" not in self.policies:
            notes.append("Percentages need TS, which was left out.")
        return notes

    @property
    def comparable(self) -> bool:
        """Whether runs are as long as the paper's."""
        return all(
            self.steps((name,)) == (FINANCIAL_HORIZON if name == "financial" else HORIZON)
            for name in self.datasets
        )

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        found = []
        if "TS" in self.policies and len(self.policies) > 1:
            found.append(
                Figure(
                    "table2",
                    "Regret as a percentage of Thompson sampling’s",
                    f"Mean over {self.runs} runs, each paired with the run of TS on the same rows, "
                    "with its 95 % interval; grey bars are the paper's intervals.",
                    lambda narrow: draw_table(summary, self, narrow),
                )
            )
        found.append(
            Figure(
                "curves",
                "Regret over time",
                "Mean cumulative regret, with a band of 95 % for the mean.",
                lambda narrow: draw_curves(rows, self, narrow),
            )
        )
        return found

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        return [*entries(summary, self), *section_4_3_1(summary, self)]


def present(data_dir: str | None) -> tuple[str, ...]:
    """The datasets that can be found."""
    from tsucb.datasets import DATASETS, find_dataset

    return tuple(name for name in PAPER if find_dataset(DATASETS[name], data_dir))


def printed(dataset: str, policy: str) -> tuple[float, float] | None:
    """The paper's entry for a policy, if it has one."""
    return PAPER.get(dataset, {}).get("Greedy" if policy == FIRST else policy)


def size(name: str) -> tuple[int, int]:
    """Features and arms of a dataset."""
    from tsucb import WheelBandit
    from tsucb.datasets import DATASETS

    if name == WHEEL:
        wheel = WheelBandit()
        return wheel.context_shape[0], wheel.arms
    return DATASETS[name].features, DATASETS[name].arms


@cache
def bandit(name: str, data_dir: str | None) -> Any:
    """The environment of a dataset."""
    from tsucb import WheelBandit
    from tsucb.datasets import load

    return WheelBandit() if name == WHEEL else load(name, data_dir)


def panels(
    names: Sequence[str], narrow: bool, height: float
) -> tuple[matplotlib.figure.Figure, dict[str, Axes]]:
    """A figure with one panel for each dataset."""
    columns = min(len(names), 2 if narrow else 4)
    lines = -(-len(names) // columns)
    figure = new_figure(4.2 if narrow else 10.5, height * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for unused in axes[len(names) :]:
        unused.set_axis_off()
    return figure, dict(zip(names, axes, strict=False))


def draw_table(summary: pd.DataFrame, experiment: Table2, narrow: bool) -> matplotlib.figure.Figure:
    """Every policy's percentage with its interval, beside the paper's interval."""
    policies = [p for p in experiment.policies if p != "TS"]
    found = by_entry(summary)
    figure, axes = panels(experiment.datasets, narrow, 1.9)
    for name, panel in axes.items():
        for place, policy in enumerate(policies):
            if (entry := printed(name, policy)) and experiment.comparable:
                percent, width = entry
                panel.barh(place, 2 * width, 0.7, percent - width, color="#8a939c", alpha=0.5)
            row, colour = found[name, policy], style(policy)["color"]
            panel.plot([row.ci95_low, row.ci95_high], [place, place], color=colour)
            panel.plot(row.percent_of_ts, place, "o", markersize=4, color=colour)
        panel.use_sticky_edges = False  # leave a margin beside the bars
        panel.axvline(100, linewidth=0.8, linestyle=":", color=style("TS")["color"])
        panel.set_yticks(range(len(policies)), policies)
        panel.invert_yaxis()
        panel.set_title(name)
    figure.supxlabel("regret in % of TS", fontsize=9)
    return figure


def draw_curves(rows: pd.DataFrame, experiment: Table2, narrow: bool) -> matplotlib.figure.Figure:
    """Regret over time, a panel for each dataset."""
    figure, axes = panels(experiment.datasets, narrow, 1.9)
    for name, panel in axes.items():
        here = rows[rows.dataset == name]
        curves = {p: np.stack(here.curve[here.policy == p].tolist()) for p in experiment.policies}
        horizon, points = experiment.steps((name,)), next(iter(curves.values())).shape[1]
        regret_curves(panel, np.linspace(horizon / points, horizon, points), curves, name)
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("regret", fontsize=9)
    handles, labels = next(iter(axes.values())).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3 if narrow else 6)
    return figure


def by_entry(summary: pd.DataFrame) -> dict[tuple[str, str], Any]:
    """The rows of the summary by dataset and policy."""
    return {(row.dataset, row.policy): row for row in summary.itertuples()}  # type: ignore[misc]


def entries(summary: pd.DataFrame, experiment: Table2) -> list[Claim]:
    """Every entry of the paper's table; it agrees where the two 95 % intervals overlap."""
    if "TS" not in experiment.policies:
        return []
    claims = []
    found = by_entry(summary)
    for dataset in experiment.datasets:
        for policy in experiment.policies:
            if not (entry := printed(dataset, policy)):
                continue
            percent, width = entry
            row = found[dataset, policy]
            measured = f"{row.percent_of_ts:.1f} ({row.ci95_low:.1f} to {row.ci95_high:.1f})"
            if dataset == "mushroom":
                ratio = 100 * row.regret_median / found[dataset, "TS"].regret_median
                measured += f"; of medians {ratio:.1f}"
            overlap = row.ci95_low <= percent + width and row.ci95_high >= percent - width
            claims.append(
                Claim(
                    f"{dataset}, {policy}: regret in per cent of that of TS",
                    f"{percent} ± {width}",
                    measured,
                    bool(overlap) if experiment.comparable else None,
                )
            )
    if (
        experiment.comparable
        and set(experiment.datasets) == set(PAPER)
        and (set(POLICIES) == set(experiment.policies))
    ):
        agreeing = sum(bool(claim.agrees) for claim in claims)
        count = f"{agreeing} of {len(claims)}"
        claims.append(
            Claim("Entries of the table whose intervals overlap", "", count, agreeing >= 30)
        )
    return claims


def section_4_3_1(summary: pd.DataFrame, experiment: Table2) -> list[Claim]:
    """Every sentence of the paper's Section 4.3.1 that these numbers can check."""
    one, hundred, ids, greedy, ucb = POLICIES[1:]
    found = by_entry(summary)
    seven = tuple(PAPER)
    six = tuple(name for name in PAPER if name != "mushroom")
    claims = []

    def claim(
        statement: str,
        paper: str,
        needs: Sequence[str],
        where: Sequence[str],
        check: Callable[[], tuple[str, bool]],
    ) -> None:
        missing = [p for p in ("TS", *needs) if p not in experiment.policies]
        missing += [name for name in where if name not in experiment.datasets]
        if missing:
            claims.append(Claim(statement, paper, f"not measured: {', '.join(missing)}", None))
        else:
            measured, agrees = check()
            verdict = bool(agrees) if experiment.comparable else None
            claims.append(Claim(statement, paper, measured, verdict))

    def percent(policy: str, dataset: str) -> float:
        return float(found[dataset, policy].percent_of_ts)

    def improves(policy: str) -> tuple[str, bool]:
        count = sum(found[name, policy].ci95_high < 100 for name in six)
        return f"{count} of 6, interval below 100", count == 6

    def smaller() -> tuple[str, bool]:
        count = sum(percent(hundred, name) < percent(one, name) for name in seven)
        return f"{count} of 7 datasets", count == 7

    def excess(policy: str, paper: float) -> tuple[str, bool]:
        ratios = [percent(ids, name) / percent(policy, name) for name in seven]
        mean = 100 * (float(np.mean(ratios)) - 1)
        return f"{mean:.2f} %", abs(mean - paper) < 3

    def lowest(dataset: str) -> tuple[str, bool]:
        best = min(POLICIES, key=lambda policy: percent(policy, dataset))
        return f"lowest: {best}", best == greedy

    def poor(dataset: str) -> tuple[str, bool]:
        return f"{percent(greedy, dataset):.1f} %", found[dataset, greedy].ci95_low > 100

    def outperformed() -> tuple[str, bool]:
        count = sum(
            found[name, ucb].ci95_low > 100
            and percent(ucb, name) > max(percent(one, name), percent(hundred, name))
            for name in seven
        )
        return f"{count} of 7 datasets", count == 7

    for policy in (one, hundred):
        claim(
            f"{policy} improves upon TS on every dataset except possibly mushroom",
            "6 of 6",
            (policy,),
            six,
            partial(improves, policy),
        )
    claim(f"{hundred} always outperforms {one}", "7 of 7 datasets", (one, hundred), seven, smaller)
    for policy, paper in ((hundred, 4.1), (one, 0.02)):
        claim(
            f"On average, the regret of IDS is higher than that of {policy}",
            f"{paper} %",
            (ids, policy),
            seven,
            partial(excess, policy, paper),
        )
    for name in ("census", "covertype", "jester"):
        claim(
            f"Greedy outperforms all others on {name}",
            "lowest: Greedy",
            POLICIES[1:],
            (name,),
            partial(lowest, name),
        )
    for name in ("mushroom", "statlog"):
        printed = f"{PAPER[name][greedy][0]} %"
        claim(f"Greedy is poor on {name}", printed, (greedy,), (name,), partial(poor, name))
    claim(
        "UCB is consistently outperformed by TS and TS-UCB",
        "7 of 7 datasets",
        (one, hundred, ucb),
        seven,
        outperformed,
    )
    return claims
