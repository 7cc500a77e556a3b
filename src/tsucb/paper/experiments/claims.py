"""The sentences of a paper as checks, and the verdict of a measurement on each.

A verdict is True (yes), False (no) or None (cannot tell). It is None wherever the 95 % interval of
the measurement leaves both answers open, so a "yes" never comes from too few runs. Checks are about
`Percentages`: regret in per cent of that of Thompson sampling.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval, percent_of

Verdict: TypeAlias = bool | None
Finding: TypeAlias = tuple[str, Verdict]  # what was measured, in words, and the verdict
TS = "TS"
WORDS = {True: "yes", False: "no", None: "cannot tell"}


@dataclass(frozen=True)
class Interval:
    """A measured number with its 95 % interval; its methods return verdicts."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.half_width:.1f} %"

    def is_below(self, bound: float) -> Verdict:
        """Return whether the interval lies below the bound.

        >>> [Interval(90, *ends).is_below(100) for ends in ((80, 90), (101, 105), (80, 105))]
        [True, False, None]
        """
        return True if self.high <= bound else False if self.low > bound else None

    def is_above(self, bound: float) -> Verdict:
        """Return whether the interval lies above the bound."""
        return True if self.low >= bound else False if self.high < bound else None

    def is_near(self, target: float, tolerance: float) -> Verdict:
        """Return whether the interval lies within `target` ± `tolerance`."""
        return both(self.is_above(target - tolerance), self.is_below(target + tolerance))


@dataclass(frozen=True)
class Count(Interval):
    """The number of cells, of `total`, in which something holds; `mean` is by the cells' means."""

    total: int

    def __str__(self) -> str:
        return f"{self.mean} of {self.total}, 95 % interval {self.low} to {self.high}"


def both(*verdicts: Verdict) -> Verdict:
    """Return no if any verdict is no, else None if any is None, else yes."""
    return False if False in verdicts else None if None in verdicts else True


class Claim(NamedTuple):
    """A sentence of the paper, its figure, what was measured, and the verdict by `rule`."""

    statement: str
    paper: str
    measured: str
    rule: str
    agrees: Verdict


class Check(NamedTuple):
    """A sentence of the paper, its figure as printed, and how to decide on it from measurements.

    Parameters
    ----------
    rule : when the verdict is yes, in words
    find : function from the percentages of TS to a finding
    exact : whether the paper's figure itself must come out, not just an order or a sign
    """

    statement: str
    paper: str
    rule: str
    find: "Callable[[Percentages], Finding]"
    exact: bool = False


# Percentages of the regret of TS


def interval(values: Floats) -> Interval:
    """Return the mean of values (cells, runs) over independent cells and runs, and its interval.

    >>> interval(np.array([[1.0, 2.0, 3.0]]))
    Interval(mean=2.0, low=-0.48..., high=4.48...)
    """
    cells, runs = values.shape
    mean = float(values.mean())
    if runs < 2:
        return Interval(mean, -np.inf, np.inf)
    error = np.sqrt((values.var(axis=1, ddof=1) / runs).sum()) / cells
    width = float(stdtrit(cells * (runs - 1), 0.975) * error)
    return Interval(mean, mean - width, mean + width)


def count_below(values: Floats, bound: float) -> Count:
    """Return in how many cells the mean over the runs of values (cells, runs) is below the bound.

    A cell's true mean is taken to follow Student's distribution around its measured mean. The
    interval is that of the number of true means below the bound, with independent cells.
    """
    cells, runs = values.shape
    mean = values.mean(axis=1)
    number = int((mean < bound).sum())
    if runs < 2:
        return Count(number, 0, cells, cells)
    error = np.maximum(values.std(axis=1, ddof=1) / np.sqrt(runs), 1e-12)
    law = np.ones(1)  # probabilities of 0, 1, … cells below the bound
    for probability in stdtr(runs - 1, (bound - mean) / error):
        law = np.convolve(law, [1 - probability, probability])
    low, high = np.searchsorted(law.cumsum(), (0.025, 0.975))
    return Count(number, int(low), int(min(high, cells)), cells)


def add_percent(rows: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Return the rows with a column `percent`: 100 · regret / (regret of TS in the same run).

    It is NaN without TS, and in a run in which TS lost nothing.

    Parameters
    ----------
    rows : columns `axes`, policy, run, regret
    axes : names of the columns that make a cell
    """
    key = [*axes, "run"]
    base = rows.loc[rows.policy == TS, [*key, "regret"]]
    paired = rows.merge(base, on=key, how="left", suffixes=("", "_ts"))
    return paired.assign(percent=percent_of(*paired[["regret", "regret_ts"]].to_numpy().T))


class Percentages:
    """Regret in per cent of that of TS in every cell, each run paired with the run of TS.

    `rows` and `axes` are those of `add_percent`. `table` has a sorted line per cell
    and a sorted column per policy and run. `asked` has the names
    that `of` was asked for, and whether they were measured.
    """

    def __init__(self, rows: pd.DataFrame, axes: Sequence[str]) -> None:
        self.rows, index, self.asked = rows, list(axes), dict[str, bool]()
        table = add_percent(rows, index).pivot(
            index=index, columns=["policy", "run"], values="percent"
        )
        self.table = table.sort_index(axis=1)

    def of(self, policy: str, **where: Any) -> Floats:
        """Return the percentages (cells, runs), of the cells whose columns have these values.

        They are NaN if TS, the policy or such cells were not measured.
        """
        chosen = np.ones(len(self.table), dtype=bool)
        there = {name: name in self.table for name in (TS, policy)}
        for name, value in where.items():
            here = self.table.index.get_level_values(name) == value
            there[str(value)] = bool(here.any())
            chosen &= here
        self.asked |= there
        if not all(there.values()):
            return np.full((max(1, chosen.sum()), self.rows.run.nunique()), np.nan)
        return self.table[policy].to_numpy()[chosen]

    def claims(
        self, checks: Iterable[Check], doubt: Callable[[Check], str] = lambda check: ""
    ) -> list[Claim]:
        """Return the claim of every check, undecided if what it asks for was not measured.

        `doubt` says why these measurements cannot decide a check, "" if they can.
        """
        claims = []
        for check in checks:
            self.asked.clear()
            measured, agrees = check.find(self)
            if absent := [name for name, there in self.asked.items() if not there]:
                measured, agrees = f"not measured: {', '.join(absent)}", None
            elif reason := doubt(check):
                measured, agrees = f"{measured}; {reason}", None
            claims.append(Claim(check.statement, check.paper, measured, check.rule, agrees))
        return claims

    def interval(self, policy: str, **where: Any) -> Interval:
        """Return the mean over these cells, and its 95 % interval."""
        return interval(self.of(policy, **where))

    def difference(self, policy: str, other: str, **where: Any) -> Floats:
        """Return how many points the policy is above the other (cells, runs)."""
        return np.asarray(self.of(policy, **where) - self.of(other, **where))

    def margin(self, policy: str, others: Sequence[str]) -> Floats:
        """Return how many points the policy is above the best of the others, cell by cell."""
        rivals = np.stack([self.of(other) for other in others])
        best = rivals.mean(axis=2).argmin(axis=0)
        return np.asarray(self.of(policy) - rivals[best, np.arange(best.size)])


def relative_regret(rows: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Return the mean regret of every policy in every cell, and its percentage of that of TS.

    The percentage is the mean over runs of 100 · Reg(policy)/Reg(TS), each run paired with the run
    of TS of the same number (Section 4.1 of the paper), with Student's 95 % interval. It is NaN
    without TS, and in a cell in which TS lost nothing in some run. `rows` and `axes` are those of
    `add_percent`.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"day": 1, "policy": ["TS", "TS", "UCB", "UCB"],
    ...                      "run": [0, 1, 0, 1], "regret": [2.0, 4.0, 1.0, 4.0]})
    >>> relative_regret(rows, ["day"])[["policy", "regret_mean", "percent_of_ts"]]
      policy  regret_mean  percent_of_ts
    0     TS          3.0          100.0
    1    UCB          2.5           75.0
    """
    table = []
    for group, part in add_percent(rows, axes).groupby([*axes, "policy"], sort=False):
        mean, error, *_ = mean_interval(part.regret.to_numpy())
        percent, _, low, high = mean_interval(part.percent.to_numpy())
        table.append([*group, len(part), mean, error, percent, low, high])
    numbers = ["runs", "regret_mean", "regret_se", "percent_of_ts", "ci95_low", "ci95_high"]
    return pd.DataFrame(table, columns=[*axes, "policy", *numbers])


# Checks of sentences about percentages


def mean_is_above(
    statement: str, paper: str, policy: str, bound: float = 100, **where: Any
) -> Check:
    """Return the check that the policy's mean over these cells is above the bound."""

    def find(p: Percentages) -> Finding:
        found = p.interval(policy, **where)
        return str(found), found.is_above(bound)

    places = "".join(f", {name} = {value}" for name, value in where.items())
    return Check(statement, paper, f"{policy} above {bound:g} %{places}", find)


def mean_is_near(
    statement: str, paper: str, policy: str, target: float, points: float, exact: bool = False
) -> Check:
    """Return the check that the policy's mean over all cells is near a target."""

    def find(p: Percentages) -> Finding:
        found = p.interval(policy)
        return str(found), found.is_near(target, points)

    rule = f"{policy} within {points:g} points of {target:g} %"
    return Check(statement, paper, rule, find, exact)


def exceeds_by(statement: str, policy: str, other: str, percent: float, points: float) -> Check:
    """Return the check that a policy's regret exceeds another's by the paper's percentage.

    Like all of the paper's figures, the excess is the mean of the ratios of paired runs.
    """

    def find(p: Percentages) -> Finding:
        excess = interval(100 * (p.of(policy) / p.of(other) - 1))
        return f"{excess.mean:+.1f} ± {excess.half_width:.1f} %", excess.is_near(percent, points)

    rule = f"within {points:g} point{'s' * (points != 1)} of {percent:+g} %"
    return Check(statement, f"+{percent} %", rule, find, exact=True)


def lower_in(
    statement: str, paper: str, least: int | None, cells: str, policy: str,
    others: Sequence[str] = (TS,),
) -> Check:  # fmt: skip
    """Return the check that a policy has less regret than all others in at least `least` cells.

    `least` is None for more than half of the cells; `cells` is the word for them in the rule.
    """
    number = "more than half of the" if least is None else f"at least {least}"
    rule = f"less regret than {' and '.join(others)} in {number} {cells}"
    find = counting(cells, least, lambda p: p.margin(policy, others))
    return Check(statement, paper, rule, find)


def counting(
    cells: str, least: int | None, values: Callable[[Percentages], Floats], bound: float = 0.0
) -> Callable[[Percentages], Finding]:
    """Return a function that finds in how many cells values (cells, runs) are below a bound."""

    def find(p: Percentages) -> Finding:
        count = count_below(values(p), bound)
        return f"{count} {cells}", count.is_above(count.total // 2 + 1 if least is None else least)

    return find
