"""Does TS-UCB improve on Thompson sampling with other posteriors of a network?

Table 2 of the paper has one posterior, Neural-Linear's. This experiment adds three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from tsucb.checks import whole_number
from tsucb.models import BootstrappedHeads, DeepEnsemble, LastLayerLaplace, NeuralLinear, Training
from tsucb.pages.figures import Figure, legend_above, panel_for_each, style
from tsucb.paper.experiments.claims import TS, Claim, Finding, relative_regret
from tsucb.paper.experiments.experiment import Cell, Experiment, check_names, name_axes
from tsucb.paper.table2 import RUNS, WHEEL, Table2, draw_interval, finish_panel, present

if TYPE_CHECKING:
    import matplotlib.figure

MEMBERS = 5  # of the ensemble, as in the paper that proposed deep ensembles
POSTERIORS: dict[str, Callable[..., Any]] = {
    "Neural-Linear": NeuralLinear,
    "deep ensemble": partial(DeepEnsemble, members=MEMBERS),
    "bootstrapped heads": BootstrappedHeads,
    "last-layer Laplace": LastLayerLaplace,
}
REFERENCE, ENSEMBLE, *_ = POSTERIORS
RIVALS = ("TS-UCB(1)", "TS-UCB(100)")
POLICIES = (TS, *RIVALS)
TOGETHER = 100  # runs of an ensemble that train at once; with other posteriors, all runs do
SMALL = "statlog"  # a dataset for a quick look, beside the wheel, which needs no data


@dataclass(frozen=True, kw_only=True)
class Posteriors(Table2):
    """The datasets of Table 2, each with four posteriors and three policies.

    In a run all posteriors and policies meet the same rows.

    Parameters
    ----------
    posteriors : some of the names in `POSTERIORS`
    batches : mini-batches of a training
    """

    posteriors: tuple[str, ...] = tuple(POSTERIORS)
    batches: int = 100

    name: ClassVar[str] = "posteriors"
    title: ClassVar[str] = "TS-UCB under four posteriors of networks"
    axes: ClassVar[tuple[str, ...]] = ("dataset", "posterior")
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 4, "horizon": 300, "batches": 30, "policies": POLICIES},
        "full": {"runs": RUNS, "policies": POLICIES},
    }

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Self:
        """Return the experiment at a scale; quick takes the wheel, and a small dataset if found."""
        if scale == "quick" and chosen.get("datasets") is None:
            found = SMALL in present(chosen.get("data_dir"))
            chosen["datasets"] = (WHEEL, SMALL) if found else (WHEEL,)
        return super().at(scale, **chosen)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("posterior", self.posteriors, POSTERIORS)
        whole_number("batches", self.batches)

    def cells(self) -> Sequence[Cell]:
        return [(dataset, posterior) for dataset in self.datasets for posterior in self.posteriors]

    def steps(self, cell: Cell) -> int:
        return super().steps(cell[:1])

    def block(self, cell: Cell, policy: str) -> int:
        return min(self.runs, TOGETHER) if cell[1] == ENSEMBLE else self.runs

    def seconds(self, cell: Cell, policy: str) -> float:
        return super().seconds(cell, policy) * (MEMBERS if cell[1] == ENSEMBLE else 1)

    def model(self, cell: Cell, environment: Any) -> Any:
        training = Training(memory=self.steps(cell), batches=self.batches)
        return POSTERIORS[str(cell[1])](environment.context_shape[0], training=training)

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        return relative_regret(rows, self.axes)

    def notes(self) -> list[str]:
        notes = Experiment.notes(self)
        if self.runs != RUNS or not self.comparable or self.batches != 100:
            notes.append(
                f"Small: {self.runs} runs of {self.steps((self.datasets[0],)):,} steps with "
                f"{self.batches} mini-batches a training; in full it is {RUNS} runs, as long and "
                "as much training as in the paper's Table 2."
            )
        if SMALL not in self.datasets:
            notes.append(
                f"Without {SMALL}: not asked for, or not found; `tsucb data list` shows where "
                "datasets belong."
            )
        return notes

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        return self.regret_figures(
            rows,
            partial(self.draw, summary),
            f"Mean over {self.runs} runs, each paired with the run of TS on the same rows and with "
            "the same posterior, with its 95 % interval.",
        )

    def draw(self, summary: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw every posterior's percentages with their intervals, one panel per dataset."""
        figure, panels = panel_for_each(self.datasets, 2 if narrow else 4, narrow, 2.2)
        middle = (len(self.rivals) - 1) / 2
        for name, panel in zip(self.datasets, panels, strict=True):
            here: Any = summary[(summary.dataset == name) & (summary.policy != TS)]
            for row in here.itertuples():
                offset = (self.rivals.index(row.policy) - middle) / (len(self.rivals) + 1)
                place = self.posteriors.index(row.posterior) + offset
                draw_interval(panel, row, place, style(row.policy)["color"], **dot(row.policy))
            finish_panel(panel, name, self.posteriors)
        for policy in self.rivals:
            panels[0].plot([], [], "o", **dot(policy), label=style(policy)["label"])
        name_axes(figure, "regret in % of TS")
        legend_above(figure, panels[0], narrow)
        return figure

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        groups = {name: [name] for name in POSTERIORS} | {"every posterior": list(POSTERIORS)}
        claims = []
        for name, group in groups.items():
            for policy in RIVALS:
                needs = dict.fromkeys((TS, policy, *group))
                absent = [each for each in needs if each not in self.policies + self.posteriors]
                measured, agrees = improves(policy, group, summary)
                if absent:
                    measured, agrees = f"not measured: {', '.join(absent)}", None
                claims.append(
                    Claim(
                        f"{policy} improves upon TS with {name}",
                        "yes" if name == REFERENCE else "not in the paper",
                        measured,
                        "95 % interval below 100 on some dataset, and above 100 on none",
                        agrees,
                    )
                )
        return claims


def improves(policy: str, posteriors: list[str], summary: pd.DataFrame) -> Finding:
    """Check that intervals lie below 100 on some dataset, and above 100 on none.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"posterior": "p", "policy": "x", "percent_of_ts": [90.0, 97.0],
    ...                       "ci95_low": [85.0, 92.0], "ci95_high": [95.0, 102.0]})
    >>> improves("x", ["p"], table)
    ('mean 93.5 %; interval below 100 in 1 of 2, above in 0', True)
    """
    mine = summary[(summary.policy == policy) & summary.posterior.isin(posteriors)]
    below, above = int((mine.ci95_high < 100).sum()), int((mine.ci95_low > 100).sum())
    percent = float(np.mean(mine.percent_of_ts))
    words = f"mean {percent:.1f} %; interval below 100 in {below} of {len(mine)}, above in {above}"
    return words, None if not below and not above else above == 0


def dot(policy: str) -> dict[str, Any]:
    """Return matplotlib's options for a policy's dot: hollow where its line would be dashed."""
    import matplotlib

    look = style(policy)
    solid = look.get("linestyle", "-") == "-"
    return {
        "color": look["color"],
        "markerfacecolor": look["color"] if solid else matplotlib.rcParams["axes.facecolor"],
        "markersize": 4.5,
    }
