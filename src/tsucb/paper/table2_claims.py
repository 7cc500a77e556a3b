"""Table 2 as the paper prints it, and the sentences of Section 4.3.1 beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.paper.experiments.claims import Check, Claim, Finding, check_claims
from tsucb.policies.names import FIRST

if TYPE_CHECKING:
    import pandas as pd

POLICIES = ("TS", "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
TS, ONE, HUNDRED, IDS, GREEDY, UCB = POLICIES

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


def paper_entry(dataset: str, policy: str) -> tuple[float, float] | None:
    """The paper's percentage and half-width for a policy, if it has one.

    Our Greedy chooses at random among arms that look equally good. The paper's must have taken
    the first: an arm that never paid has a posterior mean of exactly 0, so such ties are common.
    """
    return PAPER.get(dataset, {}).get(GREEDY if policy == FIRST else policy)


class Percentages:
    """Regret in per cent of that of TS, by dataset and policy, with 95 % intervals.

    Parameters
    ----------
    summary : columns dataset, policy, percent_of_ts, ci95_low, ci95_high, regret_median
    """

    def __init__(self, summary: pd.DataFrame) -> None:
        self.rows: dict[tuple[Any, Any], Any] = {
            (row.dataset, row.policy): row for row in summary.itertuples()
        }

    def of(self, policy: str, dataset: str) -> float:
        """The percentage."""
        return float(self.rows[dataset, policy].percent_of_ts)

    def interval(self, policy: str, dataset: str) -> tuple[float, float]:
        """The ends of its interval."""
        row = self.rows[dataset, policy]
        return float(row.ci95_low), float(row.ci95_high)

    def of_medians(self, policy: str, dataset: str) -> float:
        """The percentage that the median regret is of the median regret of TS."""
        median = {name: self.rows[dataset, name].regret_median for name in (policy, TS)}
        return float(100 * median[policy] / median[TS])

    def overlaps(self, policy: str, dataset: str) -> bool:
        """Whether the interval and the paper's have a point in common."""
        entry = paper_entry(dataset, policy)
        assert entry is not None
        low, high = self.interval(policy, dataset)
        return low <= entry[0] + entry[1] and high >= entry[0] - entry[1]


def entry_overlaps(dataset: str, policy: str, p: Percentages) -> Finding:
    low, high = p.interval(policy, dataset)
    measured = f"{p.of(policy, dataset):.1f} ({low:.1f} to {high:.1f})"
    if dataset == "mushroom":
        measured += f"; of medians {p.of_medians(policy, dataset):.1f}"
    return Finding(measured, p.overlaps(policy, dataset))


def most_entries_overlap(p: Percentages) -> Finding:
    agreeing = [p.overlaps(policy, name) for name in SEVEN for policy in POLICIES[1:]]
    return Finding(f"{sum(agreeing)} of {len(agreeing)}", sum(agreeing) >= ENOUGH)


def below_on_six(policy: str, p: Percentages) -> Finding:
    count = sum(p.interval(policy, name)[1] < 100 for name in SIX)
    return Finding(f"{count} of 6, interval below 100", count == 6)


def better_with_more_samples(p: Percentages) -> Finding:
    count = sum(p.of(HUNDRED, name) < p.of(ONE, name) for name in SEVEN)
    return Finding(f"{count} of 7 datasets", count == 7)


def ids_exceeds_by(policy: str, paper: float, p: Percentages) -> Finding:
    ratios = [p.of(IDS, name) / p.of(policy, name) for name in SEVEN]
    mean = 100 * (float(np.mean(ratios)) - 1)
    return Finding(f"{mean:.2f} %", abs(mean - paper) < 3)


def greedy_is_lowest(dataset: str, p: Percentages) -> Finding:
    best = min(POLICIES, key=lambda policy: p.of(policy, dataset))
    return Finding(f"lowest: {best}", best == GREEDY)


def greedy_is_poor(dataset: str, p: Percentages) -> Finding:
    return Finding(f"{p.of(GREEDY, dataset):.1f} %", p.interval(GREEDY, dataset)[0] > 100)


def ucb_is_outperformed(p: Percentages) -> Finding:
    count = sum(
        p.interval(UCB, name)[0] > 100
        and p.of(UCB, name) > max(p.of(ONE, name), p.of(HUNDRED, name))
        for name in SEVEN
    )
    return Finding(f"{count} of 7 datasets", count == 7)


SENTENCES: tuple[Check[Percentages], ...] = (
    Check(
        "Entries of the table whose intervals overlap",
        "",
        (*POLICIES[1:], *SEVEN),
        most_entries_overlap,
    ),
    *(
        Check(
            f"{policy} improves upon TS on every dataset except possibly mushroom",
            "6 of 6",
            (policy, *SIX),
            partial(below_on_six, policy),
        )
        for policy in (ONE, HUNDRED)
    ),
    Check(
        f"{HUNDRED} always outperforms {ONE}",
        "7 of 7 datasets",
        (ONE, HUNDRED, *SEVEN),
        better_with_more_samples,
    ),
    *(
        Check(
            f"On average, the regret of IDS is higher than that of {policy}",
            f"{paper} %",
            (IDS, policy, *SEVEN),
            partial(ids_exceeds_by, policy, paper),
        )
        for policy, paper in ((HUNDRED, 4.1), (ONE, 0.02))
    ),
    *(
        Check(
            f"Greedy outperforms all others on {name}",
            "lowest: Greedy",
            (*POLICIES[1:], name),
            partial(greedy_is_lowest, name),
        )
        for name in ("census", "covertype", "jester")
    ),
    *(
        Check(
            f"Greedy is poor on {name}",
            f"{PAPER[name][GREEDY][0]} %",
            (GREEDY, name),
            partial(greedy_is_poor, name),
        )
        for name in ("mushroom", "statlog")
    ),
    Check(
        "UCB is consistently outperformed by TS and TS-UCB",
        "7 of 7 datasets",
        (ONE, HUNDRED, UCB, *SEVEN),
        ucb_is_outperformed,
    ),
)


def entries(datasets: Sequence[str], policies: Sequence[str]) -> list[Check[Percentages]]:
    """Every entry of the paper's table; it agrees where the two 95 % intervals overlap."""
    return [
        Check(
            f"{dataset}, {policy}: regret in per cent of that of TS",
            f"{entry[0]} ± {entry[1]}",
            (policy, dataset),
            partial(entry_overlaps, dataset, policy),
            exact=True,
        )
        for dataset in datasets
        for policy in policies
        if (entry := paper_entry(dataset, policy))
    ]


def table_and_section_4_3_1(
    summary: pd.DataFrame, datasets: Sequence[str], policies: Sequence[str], comparable: bool
) -> list[Claim]:
    """Every entry that was measured, then every sentence of Section 4.3.1.

    Parameters
    ----------
    comparable : whether runs were as long as the paper's
    """

    def doubt(check: Check[Percentages]) -> str:
        return "" if comparable else "other horizons than the paper's"

    checks = [*entries(datasets, policies), *SENTENCES]
    return check_claims(
        [check._replace(needs=(TS, *check.needs)) for check in checks],
        Percentages(summary),
        {*policies, *datasets},
        doubt=doubt,
    )
