"""Figure 1: regret relative to Thompson sampling on 25 synthetic contextual bandits.

Below the experiment are the checks of the sentences of Section 4.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from tsucb.checks import whole_number
from tsucb.environments import ContextualLinearBandit
from tsucb.numeric.arrays import Floats
from tsucb.pages.figures import Figure, colour_key, heat_map, new_figure
from tsucb.paper.experiments.claims import (
    TS,
    Check,
    Claim,
    Finding,
    Percentages,
    both,
    count_below,
    counting,
    exceeds_by,
    interval,
    lower_in,
    mean_is_above,
    mean_is_near,
)
from tsucb.paper.experiments.experiment import (
    GREEDY,
    HUNDRED,
    ONE,
    UCB,
    Cell,
    Experiment,
    check_names,
)
from tsucb.policies import OFUL
from tsucb.policies.names import samples_of

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

ARMS = (3, 5, 10, 20, 60)
NOISES = (0.05, 0.1, 0.5, 1.0, 2.0)
INSTANCES = tuple((arms, noise) for arms in ARMS for noise in NOISES)
POLICIES = (TS, ONE, HUNDRED, GREEDY, UCB, "IDS(1000)")
FEATURES = 10
IDS, GRID = "IDS", "IDS-grid"  # with any number of samples; GRID with the authors' grid search
NEAR = 1.0  # percentage points within which a figure of the paper comes out
HALF, MANY = 60, 5  # "almost halves regret in many instances": at most 60 % in 5 cells
WELL = 105  # "performs well compared to TS": at most 105 %
SIMILAR = 10  # "similar": within 10 points
ALMOST_ALWAYS, OFTEN = 20, 9  # "almost always" and "often": in this many cells


def parse_cell(text: str) -> tuple[int, float]:
    """Return the cell written as arms:noise on the command line.

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
    columns: ClassVar[int] = len(NOISES)
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
        whole_number("horizon", self.horizon)

    def cells(self) -> Sequence[Cell]:
        return self.instances

    def environment(self, cell: Cell) -> ContextualLinearBandit:
        variance = 1 / FEATURES if self.prior == "code" else 1.0
        return ContextualLinearBandit(int(cell[0]), FEATURES, float(cell[1]), variance)

    def steps(self, cell: Cell) -> int:
        return self.horizon

    def seconds(self, cell: Cell, policy: str) -> float:
        """Return the seconds of one run on one core: a time per step, per arm and per sample."""
        return 1e-6 * self.horizon * (1.5 + int(cell[0]) * (0.02 + 0.0018 * samples_of(policy)))

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

    def draw(self, summary: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw a grid of K × σ for each policy, and the colour scale."""
        columns = 1 if narrow else 3
        lines = -(-(len(self.rivals) + 1) // columns)
        arms, noises = list(dict.fromkeys(summary.arms)), list(dict.fromkeys(summary.noise))
        # On a phone the last line holds only the colour scale.
        heights = [2.5] * (lines - 1) + [0.8] if narrow else [2.9] * lines
        figure = new_figure(4.2 if narrow else 10.5, sum(heights))
        panels = figure.subplots(lines, columns, squeeze=False, height_ratios=heights).ravel()
        for panel, policy in zip(panels, self.rivals, strict=False):
            grid = summary[summary.policy == policy].pivot(
                index="arms", columns="noise", values="percent_of_ts"
            )
            values = grid.reindex(index=arms, columns=noises).to_numpy(dtype=float)
            heat_map(panel, values, arms, [f"{n:g}" for n in noises], policy)
            panel.set(xlabel="noise σ", ylabel="arms K")
        for panel in panels[len(self.rivals) :]:
            panel.set_axis_off()
        key = panels[len(self.rivals)].inset_axes((0.05, 0.4, 0.9, 0.3 if narrow else 0.12))
        colour_key(key)
        key.set_title("regret in % of TS", fontweight="normal", fontsize=9)
        return figure

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        figures = self.regret_figures(
            rows,
            partial(self.draw, summary),
            f"Mean over {self.runs} runs, each paired with the run of TS in the same world. Below "
            "100 (blue) a policy loses less than TS, above (red, bold) more.",
            "Mean cumulative regret as a percentage of the total regret of TS; lines that leave a "
            "frame lose more than twice as much. K arms, noise σ.",
        )
        return figures if self.rivals else []

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
        """Return every sentence of Section 4.1.1; all of them are about all 25 cells.

        The checks say IDS for IDS of any number of samples: the paper's 1,000 if measured.
        """
        chosen = {plain_name(name): name for name in sorted(self.policies, key=is_the_papers)}
        names = {name: plain for plain, name in chosen.items()}
        kept = rows[rows.policy.isin(names)]
        percentages = Percentages(kept.assign(policy=kept.policy.map(names)), self.axes)
        searched = excess_checks(GRID, "IDS as the authors searched it") if GRID in chosen else []

        def doubt(check: Check) -> str:
            if len(self.instances) < len(INSTANCES):
                return f"{len(self.instances)} of the 25 cells"
            others = [chosen[kind] for kind in (IDS, GRID) if kind in percentages.asked]
            others = [name for name in others if not is_the_papers(name)]
            return f"with {others[0]}" if check.exact and others else ""

        return percentages.claims([*CHECKS, *searched], doubt)


def plain_name(policy: str) -> str:
    """Return the policy's name, for IDS and IDS-grid without the number of samples."""
    name = policy.partition("(")[0]
    return name if name in (IDS, GRID) else policy


def is_the_papers(policy: str) -> bool:
    """Return whether a policy, if it is a kind of IDS, has the paper's 1,000 samples."""
    return plain_name(policy) == policy or policy.endswith("(1000)")


def below_everywhere(statement: str, paper: str, policy: str, bound: float = 100) -> Check:
    """Return the check that a policy's percentage is below the bound in all 25 cells."""

    def find(p: Percentages) -> Finding:
        values = p.of(policy)
        mean, count = values.mean(axis=1), count_below(values, bound)
        arms, noise = p.table.index[int(mean.argmax())]
        below, most = int((mean < 100).sum()), f"{mean.max():.1f} % (K = {arms}, σ = {noise:g})"
        return f"{below} of 25 cells; highest {most}", count.is_above(len(INSTANCES))

    rule = f"{policy} below {bound:g} % in all 25 cells"
    return Check(statement, paper, rule, find)


def better_of_both(p: Percentages) -> Floats:
    """Return the percentages of TS-UCB(1) or TS-UCB(100), whichever is lower in a cell."""
    one, hundred = p.of(ONE), p.of(HUNDRED)
    return np.where((one.mean(axis=1) < hundred.mean(axis=1))[:, None], one, hundred)


def improves_with_noise(p: Percentages) -> Finding:
    noises = sorted(p.table.index.unique("noise"))
    means = [p.interval(HUNDRED, noise=noise).mean for noise in noises]
    change = interval(p.of(HUNDRED, noise=noises[-1]) - p.of(HUNDRED, noise=noises[0]))
    falls = " → ".join(f"{mean:.0f}" for mean in means)
    return f"{falls} % for σ = {' → '.join(f'{s:g}' for s in noises)}", change.is_below(0)


def single_sample_suffices(p: Percentages) -> Finding:
    one, hundred = 100 - p.of(ONE), 100 - p.of(HUNDRED)
    surplus = interval(one - hundred / 2)
    text = f"{100 * one.mean() / hundred.mean():.0f} % of the gain over TS"
    return text, surplus.is_above(0)


def on_both_sides(policy: str, p: Percentages) -> Finding:
    values = p.of(policy)
    mean, below = values.mean(axis=1), count_below(values, 100)
    verdict = both(below.is_above(1), below.is_below(len(INSTANCES) - 1))
    return f"from {mean.min():.0f} to {mean.max():.0f} %", verdict


def greedy_with_few_arms(p: Percentages) -> Finding:
    greedy, ours = p.interval(GREEDY, arms=3), p.interval(HUNDRED, arms=3)
    apart = interval(p.difference(GREEDY, HUNDRED, arms=3))
    text = f"K = 3: {greedy.mean:.0f} %, {HUNDRED} {ours.mean:.0f} %"
    return text, both(greedy.is_below(100), apart.is_near(0, SIMILAR))


def often_better_than_ids(p: Percentages) -> Finding:
    apart = p.difference(HUNDRED, IDS)
    count = count_below(apart, 0)
    ours, theirs = (p.interval(name).mean for name in (HUNDRED, IDS))
    text = f"{ours:.1f} against {theirs:.1f} %; better in {count} cells"
    return text, both(interval(apart).is_below(0), count.is_above(OFTEN))


def excess_checks(kind: str, words: str) -> list[Check]:
    """Return the checks of the excess regret of a kind of IDS."""
    sentence = f"On average, excess regret of {words} over"
    return [
        exceeds_by(f"{sentence} {name}", kind, name, figure, NEAR)
        for name, figure in ((HUNDRED, 5.6), (ONE, 3.8))
    ]


CHECKS: list[Check] = [
    *(
        below_everywhere(f"{name} outperforms TS across the board", "25 of 25 cells", name)
        for name in (ONE, HUNDRED)
    ),
    Check(
        "TS-UCB almost halves regret in many instances",
        "many",
        f"at most {HALF} % of TS in at least {MANY} cells, with 1 or 100 samples",
        counting(f"cells at {HALF} % or less", MANY, better_of_both, HALF),
    ),
    Check(
        "TS-UCB improves more on TS when σ is higher",
        "falls with σ",
        "less % of TS at the largest σ than at the smallest",
        improves_with_noise,
    ),
    *(
        mean_is_near(
            f"Over the 25 instances, regret of {name} in % of that of TS",
            f"{figure} %",
            name,
            figure,
            NEAR,
            exact=True,
        )
        for name, figure in ((ONE, 67.9), (HUNDRED, 66.6))
    ),
    lower_in(
        f"{HUNDRED} outperforms {ONE} in most instances",
        "21 of 25 cells",
        None,
        "cells",
        HUNDRED,
        (ONE,),
    ),
    exceeds_by(f"On average, excess regret of {ONE} over {HUNDRED}", ONE, HUNDRED, 3.2, NEAR),
    Check(
        "Most of the benefit is captured by a single sample",
        "96 % (from its means)",
        "more than half of the gain with 100",
        single_sample_suffices,
    ),
    *(
        Check(
            f"{name} is inconsistent relative to TS",
            "both sides of 100",
            "some cell below 100 %, another above",
            partial(on_both_sides, name),
        )
        for name in (GREEDY, UCB)
    ),
    Check(
        "Greedy outperforms TS, and is similar to TS-UCB, when there are few arms",
        "below 100, similar",
        f"K = 3: below 100 %, and within {SIMILAR} points of {HUNDRED}",
        greedy_with_few_arms,
    ),
    mean_is_above("Greedy performs poorly when K is large", "above 100", GREEDY, arms=60),
    mean_is_above("UCB performs poorly when the noise is small", "above 100", UCB, noise=0.05),
    lower_in(
        "TS-UCB almost always outperforms both Greedy and UCB",
        "almost always",
        ALMOST_ALWAYS,
        "cells",
        HUNDRED,
        (GREEDY, UCB),
    ),
    below_everywhere(
        "IDS performs well across the board compared to TS", "not above 100", IDS, WELL
    ),
    *excess_checks(IDS, "IDS"),
    Check(
        "TS-UCB performs as well as IDS, and often better",
        "often",
        f"no more regret over all cells, and less in at least {OFTEN} of them",
        often_better_than_ids,
    ),
]
