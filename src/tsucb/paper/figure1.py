"""Figure 1: regret relative to Thompson sampling on 25 synthetic contextual bandits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from tsucb.environments import ContextualLinearBandit
from tsucb.numeric.arrays import Floats
from tsucb.pages.drawing import colour_key, heat_map, new_figure
from tsucb.pages.page import Figure
from tsucb.paper.experiments.claims import Claim
from tsucb.paper.experiments.experiment import Cell, Task, cell_seed, check_names
from tsucb.paper.experiments.percentages import relative_regret
from tsucb.paper.experiments.regret import TS, RegretExperiment, simulated_rows
from tsucb.paper.figure1_claims import section_4_1_1
from tsucb.policies import OFUL
from tsucb.policies.names import samples_of

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

ARMS = (3, 5, 10, 20, 60)
NOISES = (0.05, 0.1, 0.5, 1.0, 2.0)
INSTANCES = tuple((arms, noise) for arms in ARMS for noise in NOISES)
POLICIES = (TS, "TS-UCB(1)", "TS-UCB(100)", "Greedy", "UCB", "IDS(1000)")
FEATURES = 10


def parse_cell(text: str) -> tuple[int, float]:
    """Return the cell that is written as arms:noise on the command line.

    >>> parse_cell("60:0.05")
    (60, 0.05)
    """
    try:
        arms, noise = text.split(":")
        return int(arms), float(noise)
    except ValueError:
        raise ValueError(
            f"unknown cell {text!r}; write it as arms:noise, such as 60:0.05"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Figure1(RegretExperiment):
    """Section 4.1 of the paper: K arms, d = 10, xᵀβₖ + N(0, σ²), T = 10,000.

    Parameters
    ----------
    instances : pairs (K, σ), some of the paper's 25
    prior : "code" for β ~ N(0, I/d), with which the paper's numbers come out; "text" for N(0, I)
    horizon : T
    """

    instances: tuple[tuple[int, float], ...] = INSTANCES
    prior: str = "code"
    horizon: int = 10_000

    name: ClassVar[str] = "figure1"
    title: ClassVar[str] = "Figure 1: synthetic contextual bandits"
    axes: ClassVar[tuple[str, ...]] = ("arms", "noise")
    ucb: ClassVar[Any] = OFUL(delta=1e-4, norm_bound=1.0)
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 12, "policies": (*POLICIES[:-1], "IDS(100)")},
        "full": {"runs": 200, "policies": POLICIES},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for arms, noise in self.instances:
            if (arms, noise) not in INSTANCES:
                raise ValueError(
                    f"unknown cell {arms}:{noise:g}; the paper's have "
                    f"{', '.join(map(str, ARMS))} arms and noise {', '.join(map(str, NOISES))}, "
                    "such as 60:0.05"
                )
        check_names("cell", self.instances)
        if self.prior not in ("code", "text"):
            raise ValueError(f"the prior is code or text, not {self.prior!r}")
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least 1, but it is {self.horizon}")

    def cells(self) -> Sequence[Cell]:
        return self.instances

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        variance = 1 / FEATURES if self.prior == "code" else 1.0
        bandit = ContextualLinearBandit(int(cell[0]), FEATURES, float(cell[1]), variance)
        seed = cell_seed(self.seed, *cell)
        return simulated_rows(
            bandit, bandit.model(), self.policy(policy), runs, horizon=self.horizon, seed=seed
        )

    def steps(self, cell: Cell) -> int:
        return self.horizon

    def seconds(self, cell: Cell, policy: str) -> float:
        """Return the seconds of one run on one core: a time per step, per arm and per sample."""
        return 1e-6 * self.horizon * (1.5 + int(cell[0]) * (0.02 + 0.0018 * samples_of(policy)))

    def cost(self, task: Task) -> float:
        return len(task.runs) * self.seconds(task.cell, task.policy)

    def block(self, cell: Cell, policy: str) -> int:
        """Return the runs that take about ten seconds, so that little is lost with a task."""
        return max(1, min(20, round(10 / self.seconds(cell, policy))))

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = relative_regret(rows, ["arms", "noise"])
        table.insert(0, "experiment", self.name)
        return table

    def notes(self) -> list[str]:
        notes = super().notes()
        if self.runs != 200:
            notes.append(f"{self.runs} runs of every policy, where the paper has 200.")
        for name in self.policies:
            if name.startswith("IDS") and "(1000)" not in name:
                notes.append(f"{name} stands for the paper's IDS(1000), which is slower.")
        if len(self.instances) < len(INSTANCES):
            notes.append(f"{len(self.instances)} of the paper's 25 cells.")
        if self.prior == "text":
            notes.append(
                "The prior is that of the paper's text, N(0, I); its numbers come from N(0, I/d)."
            )
        return notes

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        percentages = self.percentage_figure(
            f"Mean over {self.runs} runs, each paired with the run of TS in the same world. Below "
            "100 (blue) a policy loses less than TS, above (red, bold) more.",
            lambda narrow: draw_heat_maps(summary, self.rivals, narrow),
        )
        curves = self.curve_figure(
            rows,
            "Mean cumulative regret as a percentage of the total regret of TS; lines that leave a "
            "frame lose more than twice as much. K arms, noise σ.",
            columns=len(NOISES),
        )
        return [*percentages, curves] if percentages else []

    def curves(self, rows: pd.DataFrame, cell: Cell) -> dict[str, Floats]:
        found = super().curves(rows, cell)
        total = found[TS][:, -1].mean()
        return {name: 100 / total * values for name, values in found.items()}

    def draw_cell(self, panel: Axes, rows: pd.DataFrame, cell: Cell) -> None:
        super().draw_cell(panel, rows, cell)
        panel.set_title(f"K = {cell[0]}, σ = {cell[1]:g}")
        panel.set_ylim(0, 200)
        panel.set_xticks([0, self.horizon // 2], ["0", f"{self.horizon // 2:,}"])

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        return section_4_1_1(rows, len(self.instances), self.policies)


def draw_heat_maps(
    summary: pd.DataFrame, policies: list[str], narrow: bool
) -> matplotlib.figure.Figure:
    """Draw a grid of K × σ for each policy, and the colour scale."""
    columns = 1 if narrow else 3
    lines = -(-(len(policies) + 1) // columns)
    arms = list(dict.fromkeys(summary.arms))
    noises = list(dict.fromkeys(summary.noise))
    # On a phone the last line holds nothing but the colour scale.
    heights = [2.5] * (lines - 1) + [0.8] if narrow else [2.9] * lines
    figure = new_figure(4.2 if narrow else 10.5, sum(heights))
    panels = figure.subplots(lines, columns, squeeze=False, height_ratios=heights).ravel()
    for panel, policy in zip(panels, policies, strict=False):
        grid = summary[summary.policy == policy].pivot(
            index="arms", columns="noise", values="percent_of_ts"
        )
        values = grid.reindex(index=arms, columns=noises).to_numpy(dtype=float)
        heat_map(panel, values, arms, [f"{n:g}" for n in noises], policy)
        panel.set_xlabel("noise σ")
        panel.set_ylabel("arms K")
    for panel in panels[len(policies) :]:
        panel.set_axis_off()
    key = panels[len(policies)].inset_axes((0.05, 0.4, 0.9, 0.3 if narrow else 0.12))
    colour_key(key)
    key.set_title("regret in % of TS", fontweight="normal", fontsize=9)
    return figure
