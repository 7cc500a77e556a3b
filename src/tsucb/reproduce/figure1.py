"""Figure 1: regret relative to Thompson sampling on 25 synthetic contextual bandits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tsucb.reproduce.drawing import (
    colour_key,
    heat_map,
    new_figure,
    regret_curves,
)
from tsucb.reproduce.experiment import (
    Cell,
    Claim,
    Experiment,
    Figure,
    Task,
    cell_seed,
    named_policy,
    relative_regret,
)

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

ARMS = (3, 5, 10, 20, 60)
NOISES = (0.05, 0.1, 0.5, 1.0, 2.0)
INSTANCES = tuple((arms, noise) for arms in ARMS for noise in NOISES)
POLICIES = ("TS", "TS-UCB(1)", "TS-UCB(100)", "Greedy", "UCB", "IDS(1000)")
FEATURES = 10
POINTS = 50  # of a regret curve


def parse_cell(text: str) -> tuple[int, float]:
    """A cell as typed on the command line, arms:noise.

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
class Figure1(Experiment):
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
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 10, "policies": (*POLICIES[:-1], "IDS(100)")},
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
        if not self.instances or len(set(self.instances)) < len(self.instances):
            raise ValueError("name at least one cell, and none twice")
        if self.prior not in ("code", "text"):
            raise ValueError(f"the prior is code or text, not {self.prior!r}")
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least 1, but it is {self.horizon}")
        for name in self.policies:
            self.policy(name)

    def policy(self, name: str) -> Any:
        """The policy of a printed name; UCB is OFUL here."""
        from tsucb import OFUL

        return named_policy(name, UCB=OFUL(delta=1e-4, norm_bound=1.0))

    def cells(self) -> Sequence[Cell]:
        return self.instances

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        import tsucb

        arms, noise = int(cell[0]), float(cell[1])
        bandit = tsucb.ContextualLinearBandit(
            arms, FEATURES, noise, prior_variance=1 / FEATURES if self.prior == "code" else 1.0
        )
        simulation = tsucb.simulate(
            bandit,
            bandit.model(),
            [self.policy(policy)],
            horizon=self.horizon,
            runs=runs,
            seed=cell_seed(self.seed, *cell),
            workers=1,
            checkpoints=POINTS,
            progress=False,
        )
        return curve_rows(simulation, runs)

    def steps(self, cell: Cell) -> int:
        return self.horizon

    def cost(self, task: Task) -> float:
        """A fixed part per step, and one per arm and posterior draw."""
        match = re.search(r"\((\d+)\)", task.policy)
        draws = int(match[1]) if match else 1
        return len(task.runs) * self.horizon * (1.0 + int(task.cell[0]) * (0.03 + 0.01 * draws))

    def block(self, cell: Cell, policy: str) -> int:
        return 5 if policy.startswith("IDS") else 20

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = relative_regret(rows, ["arms", "noise"])
        table.insert(0, "experiment", self.name)
        return table

    def notes(self) -> list[str]:
        notes = []
        if self.runs != 200:
            notes.append(f"{self.runs} runs of every policy, where the paper has 200.")
        for name in self.policies:
            if name.startswith("IDS") and name != "IDS(1000)":
                notes.append(f"{name} stands for the paper's IDS(1000), which is slower.")
        if len(self.instances) < len(INSTANCES):
            notes.append(f"{len(self.instances)} of the paper's 25 cells.")
        if self.prior == "text":
            notes.append(
                "The prior is that of the paper's text, N(0, I); its numbers come from N(0, I/d)."
            )
        if "TS" not in self.policies:
            notes.append("Percentages need TS, which was left out.")
        return notes

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        others = [p for p in self.policies if p != "TS"]
        found = []
        if "TS" in self.policies and others:
            found.append(
                Figure(
                    "figure1",
                    "Regret as a percentage of Thompson sampling’s",
                    f"Mean over {self.runs} runs, each paired with the run of TS in the same "
                    "world. Below 100 (blue) a policy loses less than TS, above (red) more.",
                    lambda narrow: draw_heat_maps(summary, others, narrow),
                )
            )
            found.append(
                Figure(
                    "curves",
                    "Regret over time",
                    "Mean cumulative regret as a percentage of the total regret of TS; lines that "
                    "leave a frame lose more than twice as much. K arms, noise σ."
                    + (" Narrow screens see the corners of the grid." * (len(self.instances) > 6)),
                    lambda narrow: draw_curves(rows, self, narrow),
                )
            )
        return found

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        return section_4_1_1(rows, self)


def curve_rows(simulation: Any, runs: range) -> pd.DataFrame:
    """One row per run of a simulation with one policy: its regret, and its curve."""
    import pandas as pd

    curves = simulation.regret[0]
    return pd.DataFrame(
        {"run": list(runs), "regret": curves[:, -1], "curve": list(curves.astype(np.float32))}
    )


def draw_heat_maps(
    summary: pd.DataFrame, policies: list[str], narrow: bool
) -> matplotlib.figure.Figure:
    """A grid of K × σ for each policy, and the colour scale."""
    columns = 1 if narrow else 3
    lines = -(-(len(policies) + 1) // columns)
    arms = list(dict.fromkeys(summary.arms))
    noises = list(dict.fromkeys(summary.noise))
    figure = new_figure(4.2 if narrow else 10.5, (2.5 if narrow else 2.9) * lines)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
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
    key = panels[len(policies)].inset_axes((0.05, 0.5, 0.9, 0.12))
    colour_key(key)
    key.set_title("regret in % of TS", fontweight="normal", fontsize=9)
    return figure


def draw_curves(rows: pd.DataFrame, experiment: Figure1, narrow: bool) -> matplotlib.figure.Figure:
    """Regret over time in every cell, relative to the final regret of TS."""
    arms = sorted({k for k, _ in experiment.instances})
    noises = sorted({s for _, s in experiment.instances})
    if narrow:
        arms = arms if len(arms) < 3 else [arms[0], arms[-1]]
        noises = noises if len(noises) < 4 else [noises[0], noises[len(noises) // 2], noises[-1]]
        arms, noises = noises, arms  # type: ignore[assignment]  # the longer axis downwards
    figure = new_figure(4.2 if narrow else 10.5, 1.7 * len(arms) + 0.6)
    panels = figure.subplots(len(arms), len(noises), sharex=True, sharey=True, squeeze=False)
    for (i, j), panel in np.ndenumerate(panels):
        cell = (noises[j], arms[i]) if narrow else (arms[i], noises[j])
        here = rows[(rows.arms == cell[0]) & (rows.noise == cell[1])]
        if here.empty:
            panel.set_axis_off()
            continue
        scale = 100 / here.regret[here.policy == "TS"].mean()
        curves = {
            policy: scale * np.stack(here.curve[here.policy == policy].tolist())
            for policy in experiment.policies
        }
        points = next(iter(curves.values())).shape[1]
        steps = np.linspace(experiment.horizon / points, experiment.horizon, points)
        regret_curves(panel, steps, curves, f"K = {cell[0]}, σ = {cell[1]:g}")
        panel.set_ylim(0, 200)
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("regret, % of TS’s total", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3 if narrow else 6)
    return figure


class Percentages:
    """Regret of the cells' policies in per cent of TS, run by run, for the claims."""

    def __init__(self, rows: pd.DataFrame, experiment: Figure1) -> None:
        self.cells = experiment.instances
        table = rows.pivot(index=["arms", "noise"], columns=["policy", "run"], values="regret")
        regret = {p: table[p].loc[list(self.cells)].to_numpy() for p in experiment.policies}
        self.of = {p: 100 * values / regret["TS"] for p, values in regret.items()}  # (cells, runs)

    def mean(self, policy: str) -> NDArray[np.float64]:
        """Mean over the runs, of every cell."""
        return np.asarray(self.of[policy].mean(axis=1))

    def where(self, policy: str, *, arms: int | None = None, noise: float | None = None) -> float:
        """Mean over the cells with that many arms, or that noise."""
        chosen = [k == arms or s == noise for k, s in self.cells]
        return float(self.mean(policy)[chosen].mean())

    def overall(self, policy: str) -> tuple[float, float]:
        """Mean over runs and cells, and the half-width of its 95 % interval."""
        values = self.of[policy]
        return float(values.mean()), half_width(values)

    def excess(self, policy: str, other: str) -> tuple[float, float]:
        """By how many per cent the policy's regret exceeds the other's, mean over the cells."""
        top, bottom = self.of[policy], self.of[other]
        ratio = top.mean(axis=1, keepdims=True) / bottom.mean(axis=1, keepdims=True)
        # The error of a ratio of means, to first order, is that of these deviations.
        deviations = (top - ratio * bottom) / bottom.mean(axis=1, keepdims=True)
        return 100 * (float(ratio.mean()) - 1), 100 * half_width(deviations)


def half_width(values: NDArray[np.float64]) -> float:
    """Of the 95 % interval of the mean over independent cells (cells, runs) of means over runs."""
    cells, runs = values.shape
    if runs < 2:
        return float("nan")
    return float(1.96 * np.sqrt((values.var(axis=1, ddof=1) / runs).sum()) / cells)


def section_4_1_1(rows: pd.DataFrame, experiment: Figure1) -> list[Claim]:
    """Every sentence of Section 4.1.1 that these numbers can check, in the paper's order."""
    ids = next((p for p in experiment.policies if p.startswith("IDS")), "IDS(1000)")
    have = set(experiment.policies)
    whole = len(experiment.instances) == len(INSTANCES)
    p = Percentages(rows, experiment) if "TS" in have else None
    n = len(experiment.instances)
    claims = []

    def claim(
        statement: str,
        paper: str,
        needs: tuple[str, ...],
        check: Callable[[Percentages], tuple[str, bool]],
    ) -> None:
        missing = [name for name in ("TS", *needs) if name not in have]
        if missing or p is None:
            claims.append(Claim(statement, paper, f"not measured: {', '.join(missing)}", None))
        elif not whole:
            claims.append(Claim(statement, paper, f"needs all 25 cells, not {n}", None))
        else:
            measured, agrees = check(p)
            claims.append(Claim(statement, paper, measured, bool(agrees)))

    def near(paper: float, mean: float, width: float) -> bool:
        return abs(mean - paper) <= max(1.0, width)

    def number(policy: str, paper: float) -> None:
        def check(p: Percentages) -> tuple[str, bool]:
            mean, width = p.overall(policy)
            return f"{mean:.1f} ± {width:.1f} %", near(paper, mean, width)

        statement = f"Over the 25 instances, the regret of {policy} is this share of that of TS"
        claim(statement, f"{paper} %", (policy,), check)

    def excess(policy: str, other: str, paper: float) -> None:
        def check(p: Percentages) -> tuple[str, bool]:
            mean, width = p.excess(policy, other)
            return f"{mean:+.1f} ± {width:.1f} %", near(paper, mean, width)

        statement = f"On average, the regret of {policy} is higher than that of {other} by"
        claim(statement, f"+{paper} %", (policy, other), check)

    one, hundred = "TS-UCB(1)", "TS-UCB(100)"
    for policy in (one, hundred):

        def across(p: Percentages, policy: str = policy) -> tuple[str, bool]:
            mean = p.mean(policy)
            worst = int(mean.argmax())
            arms, noise = p.cells[worst]
            below = int((mean < 100).sum())
            text = f"{below} of 25 cells; highest {mean[worst]:.1f} % (K = {arms}, σ = {noise:g})"
            return text, below == 25

        claim(f"{policy} outperforms TS across the board", "25 of 25 cells", (policy,), across)

    def halving(p: Percentages) -> tuple[str, bool]:
        low = np.minimum(p.mean(one), p.mean(hundred))
        return f"{(low <= 60).sum()} of 25 cells at 60 % or less", (low <= 60).sum() >= 5

    claim("TS-UCB almost halves regret in many instances", "many", (one, hundred), halving)

    def trend(p: Percentages) -> tuple[str, bool]:
        means = [p.where(hundred, noise=noise) for noise in NOISES]
        text = " → ".join(f"{m:.0f}" for m in means)
        return f"{text} % for σ = {' → '.join(f'{s:g}' for s in NOISES)}", means[-1] < means[0]

    claim("TS-UCB improves more when σ is higher", "falls with σ", (hundred,), trend)
    number(one, 67.9)
    number(hundred, 66.6)

    def better(p: Percentages) -> tuple[str, bool]:
        count = int((p.mean(hundred) < p.mean(one)).sum())
        return f"{count} of 25 cells", abs(count - 21) <= 3

    claim(f"{hundred} outperforms {one} in most cells", "21 of 25 cells", (one, hundred), better)
    excess(one, hundred, 3.2)

    def single(p: Percentages) -> tuple[str, bool]:
        share = (100 - p.overall(one)[0]) / (100 - p.overall(hundred)[0])
        return f"{100 * share:.0f} % of the gain over TS", share > 0.5

    claim(
        "Most of the benefit is captured by a single sample",
        f"{100 * (100 - 67.9) / (100 - 66.6):.0f} % (from its means)",
        (one, hundred),
        single,
    )
    for policy in ("Greedy", "UCB"):

        def inconsistent(p: Percentages, policy: str = policy) -> tuple[str, bool]:
            mean = p.mean(policy)
            return f"from {mean.min():.0f} to {mean.max():.0f} %", mean.min() < 100 < mean.max()

        claim(
            f"{policy} is inconsistent: better than TS in some cells, worse in others",
            "both sides of 100",
            (policy,),
            inconsistent,
        )

    def few_arms(p: Percentages) -> tuple[str, bool]:
        greedy, ts_ucb = (p.where(q, arms=ARMS[0]) for q in ("Greedy", hundred))
        text = f"K = 3: {greedy:.0f} %, {hundred} {ts_ucb:.0f} %"
        return text, greedy < 100 and abs(greedy - ts_ucb) < 10

    claim(
        "Greedy outperforms TS, and is similar to TS-UCB, when there are few arms",
        "below 100, similar",
        ("Greedy", hundred),
        few_arms,
    )

    def many_arms(p: Percentages) -> tuple[str, bool]:
        greedy = p.where("Greedy", arms=ARMS[-1])
        return f"K = 60: {greedy:.0f} %", greedy > 100

    claim("Greedy performs poorly when K is large", "above 100", ("Greedy",), many_arms)

    def little_noise(p: Percentages) -> tuple[str, bool]:
        ucb = p.where("UCB", noise=NOISES[0])
        return f"σ = 0.05: {ucb:.0f} %", ucb > 100

    claim("UCB performs poorly when the noise is small", "above 100", ("UCB",), little_noise)

    def beats_both(p: Percentages) -> tuple[str, bool]:
        rival = np.minimum(p.mean("Greedy"), p.mean("UCB"))
        count = int((p.mean(hundred) < rival).sum())
        return f"{hundred} in {count} of 25 cells", count >= 20

    claim(
        "TS-UCB almost always outperforms both Greedy and UCB",
        "almost always",
        (hundred, "Greedy", "UCB"),
        beats_both,
    )

    def ids_well(p: Percentages) -> tuple[str, bool]:
        below = int((p.mean(ids) < 100).sum())
        return f"{below} of 25 cells below 100 %", below == 25

    claim("IDS performs well across the board compared to TS", "below 100", (ids,), ids_well)
    excess(ids, hundred, 5.6)
    excess(ids, one, 3.8)

    def often(p: Percentages) -> tuple[str, bool]:
        count = int((p.mean(hundred) <= p.mean(ids)).sum())
        return f"{hundred} in {count} of 25 cells", count >= 13

    claim("TS-UCB performs as well as IDS, and often better", "often", (hundred, ids), often)
    return claims
