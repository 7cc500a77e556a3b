"""Table 1: personalised news articles, day by day, from a click log.

Below the experiment are the checks of the sentences of Section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from tsucb.files import cache_folder
from tsucb.pages.figures import Figure, heat_map, new_figure
from tsucb.paper.experiments.claims import (
    Check,
    Claim,
    Finding,
    Interval,
    Percentages,
    both,
    interval,
    lower_in,
    mean_is_above,
    mean_is_near,
    relative_regret,
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
)
from tsucb.paper.news.bandit import NewsBandit
from tsucb.paper.news.clicks import fit_clicks
from tsucb.paper.news.day import SkippedLines, gzip_checksum, is_generated, log_files
from tsucb.paper.news.generate import make_news
from tsucb.paper.news.parser import read_day
from tsucb.policies import ChiSquaredUCB
from tsucb.policies.names import FIRST, samples_of

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

OVERALL = "overall"
DAYS = 10
# Regret in per cent of TS, as the paper prints it: days 1 to 10, then overall.
PAPER = {
    "TS-UCB(1)": (91.0, 86.3, 85.8, 92.5, 91.1, 85.1, 96.2, 90.7, 92.3, 88.1, 89.9),
    "TS-UCB(100)": (89.1, 82.2, 84.1, 91.6, 89.8, 83.7, 96.3, 89.5, 88.8, 86.4, 88.2),
    "IDS(1000)": (90.0, 84.8, 84.8, 90.9, 90.9, 83.2, 94.0, 90.0, 90.4, 86.7, 88.6),
    "Greedy": (106.1, 100.6, 122.3, 107.0, 100.7, 105.6, 88.5, 106.9, 92.4, 93.1, 102.3),
    "UCB": (106.2, 121.9, 124.9, 123.8, 110.7, 102.2, 121.8, 119.8, 116.4, 122.8, 117.1),
    "TS": (100.0,) * 11,
}
PAPER[FIRST] = PAPER["Greedy"]  # the paper does not say how its Greedy breaks ties
NEAR, SIMILAR = 1.0, 15.0  # points: of the paper's figure, and of TS
# Generated days have a tenth of the lines of real ones. So that runs last about as long, each takes
# a larger share of the visits; and an article needs fewer impressions for a click model.
SMALL = {"lines": 200_000, "fraction": 0.1, "impressions": 1_000}
READING = Lock()  # tasks are threads, and each day must be read only once


@dataclass(frozen=True, kw_only=True)
class Table1(Experiment):
    """Section 4.2 of the paper: ten days of news, 136 binary features, ten articles at a time.

    Parameters
    ----------
    days : how many days of the log, from the first
    fraction : share of a day's visits in a run; every run draws its own visits
    impressions : articles displayed more often than this get a click model and can be arms
    log : folder of the log's files; without one, a log is generated
    lines : of a generated day
    strict : whether malformed lines of the log are an error
    """

    days: int = DAYS
    fraction: float = 0.02
    impressions: int = 5_000
    log: str | None = field(default=None, compare=False)
    lines: int = field(default=1_500_000, compare=False)
    strict: bool = field(default=False, compare=False)

    name: ClassVar[str] = "table1"
    title: ClassVar[str] = "Table 1: personalised news articles"
    axes: ClassVar[tuple[str, ...]] = ("day",)
    columns: ClassVar[int] = 5
    ucb: ClassVar[Any] = ChiSquaredUCB()
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 10, "days": 2, "policies": POLICIES},
        "full": {"runs": 20, "days": DAYS, "policies": POLICIES},
    }

    @classmethod
    def at(cls, scale: str, **chosen: Any) -> Self:
        """Return the experiment at a scale; without a log, the generated days are small."""
        small = {} if chosen.get("log") is not None else SMALL
        return super().at(scale, **small | {k: v for k, v in chosen.items() if v is not None})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.days <= DAYS:
            raise ValueError(f"days must be 1 to {DAYS}, as in the paper, but it is {self.days}")
        if self.log is not None:
            self.files()

    def settings(self) -> dict[str, Any]:
        """Return what decides the numbers: for the log, the files' names, sizes and checksums."""
        if self.log is None:
            log = f"generated, {self.lines} lines a day"
        else:
            log = ", ".join(
                f"{path.name} ({path.stat().st_size} bytes, checksum {gzip_checksum(path)})"
                for path in self.files()
            )
        return super().settings() | {"generated": self.generated, "log": log}

    @property
    def generated(self) -> bool:
        """Whether the log is generated, and not Yahoo!'s."""
        return self.log is None or any(map(is_generated, self.files()))

    def files(self) -> list[Path]:
        """Return the files of the days; generate them first if no log is given."""
        if self.log is None:
            folder = cache_folder() / "news" / f"generated-{self.lines}-{self.seed}"
            if not folder.exists() or len(log_files(folder)) < self.days:
                make_news(folder, days=self.days, lines=self.lines, seed=self.seed)
        else:
            folder = Path(self.log)
        files = log_files(folder)[: self.days]
        if len(files) < self.days:
            raise ValueError(
                f"{folder} has a log of {len(files)} days, but {self.days} are asked for"
            )
        return files

    def read(self, path: Path) -> tuple[NewsBandit, tuple[SkippedLines, ...]]:
        """Return the bandit of one file of the log, and the lines skipped in it."""
        with READING:
            return read_bandit(path, self.fraction, self.impressions, self.strict)

    def environment(self, cell: Cell) -> NewsBandit:
        return self.read(self.files()[int(cell[0]) - 1])[0]

    def prepare(self) -> None:
        """Read every day, and fit its click model."""
        for path in self.files():
            self.read(path)

    def cells(self) -> Sequence[Cell]:
        return [(day,) for day in range(1, self.days + 1)]

    def steps(self, cell: Cell) -> int:
        return self.environment(cell).steps

    def block(self, cell: Cell, policy: str) -> int:
        return 5 if policy.startswith("IDS") else 10

    def seconds(self, cell: Cell, policy: str) -> float:
        """Return the seconds of updating 136 × 136 numbers a step, and of draws for ten arms."""
        return 1.0 + 0.007 * samples_of(policy)

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        days = super().summary(rows)
        # All runs of all days as one cell, each still paired with the run of TS on the same day.
        together = rows.assign(run=rows.day * self.runs + rows.run)
        overall = relative_regret(together, []).assign(day=OVERALL)
        table = pd.concat([days.astype({"day": object}), overall], ignore_index=True)
        table["experiment"] = self.name + " (generated log)" * self.generated
        table["paper_percent"] = [
            PAPER[policy][DAYS if day == OVERALL else day - 1] if policy in PAPER else np.nan
            for day, policy in zip(table.day, table.policy, strict=True)
        ]
        return table

    def notes(self) -> list[str]:
        notes = super().notes()
        if self.generated:
            notes.append(
                "GENERATED LOG. These clicks are not Yahoo!'s: the paper's numbers need the "
                "licensed R6B log, and only the order of the policies can be compared with them."
            )
        for path in self.files():
            if problems := self.read(path)[1]:
                notes.append(f"Skipped in {path.name}: {'; '.join(map(str, problems))}.")
        if self.runs != 20 or self.days != DAYS:
            notes.append(
                f"{self.runs} runs on each of {self.days} days; the paper has 20 on each of 10."
            )
        return notes

    def heading(self, text: str) -> str:
        """Return the heading of a panel, marked if the log is generated."""
        return text + " · generated log" * self.generated

    def draw_cell(self, panel: Axes, rows: pd.DataFrame, cell: Cell) -> None:
        super().draw_cell(panel, rows, cell)
        panel.set_title(self.heading(f"day {cell[0]}"))

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        label = "Generated log. " * self.generated
        return self.regret_figures(
            rows,
            partial(self.draw, summary),
            f"{label}Mean over {self.runs} runs, each paired with the run of TS on the same "
            "visits; below, the mean over the days, measured and as the paper prints it.",
            f"{label}Mean cumulative regret, in clicks.",
        )

    def draw(self, summary: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw the table: days downwards, policies across; then both overall lines."""
        figure = new_figure(4.2 if narrow else 8, 0.32 * self.days + 2)
        top, bottom = figure.subplots(2, 1, height_ratios=(self.days, 2), sharex=True)
        grid = summary.pivot(index="day", columns="policy", values="percent_of_ts")[self.rivals]
        days = list(range(1, self.days + 1))
        short = [p.replace("(1000)", "") for p in self.rivals] if narrow else self.rivals
        values = grid.loc[days].to_numpy(dtype=float)
        heat_map(top, values, days, short, self.heading("day by day"))
        printed = summary[summary.day == OVERALL].set_index("policy").paper_percent[self.rivals]
        lines = np.array([grid.loc[OVERALL].to_numpy(dtype=float), printed.to_numpy(dtype=float)])
        heat_map(bottom, lines, ["measured", "paper"], short, "overall")
        return figure

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        """Return every sentence of Section 4.2.1.

        A generated log can decide on the order of the policies, not on the paper's figures.
        """
        generated = self.generated
        claims = Days(rows, self.axes).claims(
            section_4_2_1(self.days),
            lambda check: "needs the licensed log" if generated and check.exact else "",
        )
        label = " (generated log)" * generated
        return [claim._replace(measured=claim.measured + label) for claim in claims]


@lru_cache(maxsize=DAYS)
def read_bandit(
    path: Path, fraction: float, impressions: int, strict: bool
) -> tuple[NewsBandit, tuple[SkippedLines, ...]]:
    """Return the bandit of one file of the log, and the lines skipped in it."""
    day = read_day(path, strict=strict)
    clicks = fit_clicks(day, impressions=impressions)
    return NewsBandit.of(day, clicks, fraction), day.problems


class Days(Percentages):
    """Percentages of TS by day; a mean over several days is the mean over all of their runs."""

    def interval(self, policy: str, **where: Any) -> Interval:
        return interval(self.of(policy, **where).reshape(1, -1))


def ids_is_between(p: Percentages) -> Finding:
    """Check that IDS has more regret than TS-UCB(100) and less than TS-UCB(1)."""
    steps = [interval(p.difference(*pair).reshape(1, -1)) for pair in ((HUNDRED, IDS), (IDS, ONE))]
    text = " · ".join(f"{p.interval(name).mean:.1f}" for name in (HUNDRED, IDS, ONE))
    return text, both(*(step.is_below(0) for step in steps))


def section_4_2_1(days: int) -> list[Check]:
    """Return the checks of the sentences of Section 4.2.1, for a log of this many days."""
    others = [name for name in POLICIES if name != HUNDRED]
    lowest = f"{HUNDRED} has the lowest regret on most days"
    share = "Overall, the regret of {} is this share of that of TS"
    return [
        lower_in(lowest, "7 of 10 days", None, "days", HUNDRED, others),
        *(
            lower_in(f"{name} outperforms TS on all days", "10 of 10 days", days, "days", name)
            for name in (ONE, HUNDRED, IDS)
        ),
        *(
            mean_is_near(share.format(name), f"{figure} %", name, figure, NEAR, exact=True)
            for name in (ONE, HUNDRED, IDS, GREEDY, UCB)
            for figure in (PAPER[name][DAYS],)
        ),
        Check(
            f"{HUNDRED} slightly outperforms IDS, and IDS slightly {ONE}",
            "88.2 · 88.6 · 89.9",
            "overall in this order",
            ids_is_between,
        ),
        mean_is_near(
            "Greedy performs similarly to TS", "102.3 %, from 88.5 to 122.3", GREEDY, 100, SIMILAR
        ),
        mean_is_above("UCB is clearly outperformed by TS", "117.1 %", UCB),
    ]
