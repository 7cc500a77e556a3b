"""Totals of runs, and what they are in per cent of the best library's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.defaults import cells
from benchmarks.defaults.contestants import (
    CONTESTANTS,
    DEFAULT,
    GREEDY,
    GRID,
    LIBRARY,
    MODEL,
    NAMED,
    POLICY,
)
from benchmarks.defaults.problems import STANDARDISED, VARIANTS

CONSTANT = "best constant arm"
MAIN = [c.name for c in CONTESTANTS if c.role in (DEFAULT, GREEDY, LIBRARY)]
LIBRARIES = [c.name for c in CONTESTANTS if c.role == LIBRARY]
POLICIES = [c.name for c in CONTESTANTS if c.role in (DEFAULT, GREEDY, POLICY)]
MODELS = [c.name for c in CONTESTANTS if c.role == MODEL]
OURS = next(c.name for c in CONTESTANTS if c.role == DEFAULT)
PURELY_GREEDY = next(c.name for c in CONTESTANTS if c.role == GREEDY)
COLUMNS = ["dataset", "features", "rewards", "steps", "contestant", "seed"]
PROBLEM = ["dataset", "features", "rewards", "steps"]

Key = tuple[Any, ...]  # a problem: dataset, features, rewards, steps


class Ratio(NamedTuple):
    """A percentage of another's total, with its 95 % interval."""

    percent: float
    half: float  # half the width of the interval; nan from one run
    runs: int

    def __str__(self) -> str:
        return f"{self.percent:.1f}" + ("" if np.isnan(self.half) else f" ± {self.half:.1f}")


Totals = dict[str, "pd.Series[Any]"]  # contestant → totals by seed
Scores = dict[Key, dict[str, Ratio]]


class Selection(NamedTuple):
    """Which of the finished runs a report is of."""

    datasets: Sequence[str]
    steps: Sequence[int]
    seeds: Sequence[int]
    contestants: Sequence[str] = tuple(NAMED)
    variants: Sequence[tuple[str, str]] = tuple(VARIANTS)

    def has(self, cell: dict[str, Any]) -> bool:
        """Return whether a finished cell is selected; the best constant arm always is."""
        names = (*self.contestants, CONSTANT)
        return (
            cell["dataset"] in self.datasets
            and cell["steps"] in self.steps
            and cell["seed"] in self.seeds
            and cell["contestant"] in names
            and (cell["features"], cell["rewards"]) in self.variants
        )


def frame(out: Path, chosen: Selection) -> pd.DataFrame:
    """Return the finished runs that are selected, in the order of the tables."""
    rows = [cell for cell in cells.finished(out) if chosen.has(cell)]
    table = pd.DataFrame(rows, columns=[*COLUMNS, "total", "seconds", "version", "note"])
    table["total"] = table.total.astype(float)
    variants = [f"{f} {r}" for f, r in VARIANTS]
    names = [*NAMED, CONSTANT]
    order = pd.DataFrame(
        {
            "steps": table.steps,
            "dataset": table.dataset.map(list(chosen.datasets).index),
            "variant": (table.features + " " + table.rewards).map(variants.index),
            "contestant": table.contestant.map(names.index),
            "seed": table.seed,
        }
    )
    return table.loc[order.sort_values(list(order.columns)).index].reset_index(drop=True)


def by_problem(table: pd.DataFrame) -> dict[Key, Totals]:
    """Return the totals of each contestant on each problem, by seed."""
    runs: dict[Key, Totals] = {}
    for key, group in table.dropna(subset="total").groupby([*PROBLEM, "contestant"], sort=False):
        *problem, contestant = key
        runs.setdefault(tuple(problem), {})[str(contestant)] = group.set_index("seed").total
    return runs


def best_of(totals: Totals, names: Sequence[str]) -> str | None:
    """Return who has the largest mean on the seeds that all have.

    Contestants with less than half of the seeds of the most complete are left out: they were cut
    off. The best of several means is a little lucky, which does not favour what is compared.
    """
    present = {name: totals[name] for name in names if name in totals}
    most = max((len(t) for t in present.values()), default=0)
    present = {name: t for name, t in present.items() if 2 * len(t) >= most}
    shared = set.intersection(*(set(t.index) for t in present.values())) if present else set()
    if not shared:
        return None
    means = {name: float(t.loc[sorted(shared)].mean()) for name, t in present.items()}
    return max(means, key=lambda name: means[name])


def ratio(mine: "pd.Series[Any]", other: "pd.Series[Any]") -> Ratio | None:
    """Return Σ mine / Σ other over the seeds that both have, in per cent.

    The interval is that of a ratio of means of pairs: the residuals mine − ratio · other have mean
    zero, and their standard error over the mean of the other is the ratio's (delta method).
    """
    seeds = mine.index.intersection(other.index)
    a, b = mine.loc[seeds].to_numpy(), other.loc[seeds].to_numpy()
    if not len(seeds) or b.mean() <= 0:
        return None
    value = a.mean() / b.mean()
    half = np.nan
    if len(seeds) > 1:
        error = (a - value * b).std(ddof=1) / np.sqrt(len(seeds)) / b.mean()
        half = 100 * stats.t.ppf(0.975, len(seeds) - 1) * error
    return Ratio(100 * value, half, len(seeds))


def references(runs: dict[Key, Totals]) -> dict[Key, str]:
    """Return the best library on each problem where its total is positive.

    Where no library was measured at all, the best of our own policies takes its place.
    """
    measured = any(name in totals for totals in runs.values() for name in LIBRARIES)
    found = {p: best_of(totals, LIBRARIES if measured else POLICIES) for p, totals in runs.items()}
    return {p: best for p, best in found.items() if best and runs[p][best].mean() > 0}


def percentages(runs: dict[Key, Totals]) -> Scores:
    """Return all rewards in per cent of the best library's, problem by problem."""
    out: Scores = {}
    for problem, best in references(runs).items():
        totals = runs[problem]
        found = {name: ratio(t, totals[best]) for name, t in totals.items()}
        out[problem] = {name: r for name, r in found.items() if r is not None}
    return out


def lead(runs: dict[Key, Totals], name: str) -> Ratio | None:
    """Return how far we are ahead of another on average over the problems that both played.

    The unit is one per cent of the best library's reward. The streams of one seed and dataset are
    the same in all its problems: they are averaged before the standard error over the seeds is
    taken. Datasets are independent of each other.
    """
    best = references(runs)
    found: dict[str, list[pd.Series[Any]]] = {}
    for problem in best:
        totals = runs[problem]
        if OURS in totals and name in totals:
            ours, other, unit = totals[OURS], totals[name], totals[best[problem]]
            seeds = ours.index.intersection(other.index).intersection(unit.index)
            if len(seeds):
                ahead = 100 * (ours.loc[seeds] - other.loc[seeds]) / unit.loc[seeds].mean()
                found.setdefault(problem[0], []).append(ahead)
    if not found:
        return None
    problems = sum(map(len, found.values()))
    mean = sum(float(ahead.mean()) for each in found.values() for ahead in each) / problems
    variance, freedom = 0.0, 0
    for each in found.values():
        by_seed = pd.concat(each, axis=1).mean(axis=1)
        variance += float(by_seed.var(ddof=1)) / len(by_seed) * (len(each) / problems) ** 2
        freedom += len(by_seed) - 1
    half = stats.t.ppf(0.975, freedom) * np.sqrt(variance) if freedom else np.nan
    return Ratio(mean, float(half), problems)


def grid(runs: dict[Key, Totals]) -> dict[Key, tuple[str, Ratio]]:
    """Return the best fixed prior, and our reward in per cent of its, problem by problem.

    The fixed priors are tuned on standardised features and rewards as they are; the same decisions
    are possible on the other variants of the dataset.
    """
    out: dict[Key, tuple[str, Ratio]] = {}
    priors = [c.name for c in CONTESTANTS if c.role == GRID]
    for problem, totals in runs.items():
        prepared = runs.get((problem[0], STANDARDISED, "as is", problem[3]), {})
        best = best_of(prepared, priors)
        found = ratio(totals[OURS], prepared[best]) if best and OURS in totals else None
        if best and found:
            out[problem] = best, found
    return out
