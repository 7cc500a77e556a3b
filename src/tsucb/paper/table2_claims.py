"""Table 2 as the paper prints it, and the sentences of Section 4.3.1 beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from tsucb.numeric.arrays import Floats
from tsucb.paper.experiments.claims import (
    Check,
    Claim,
    Finding,
    Rule,
    Verdict,
    both,
    check_claims,
    is_above,
    is_near,
)
from tsucb.paper.experiments.percentages import Percentages, count_below, interval
from tsucb.paper.experiments.rules import above, counted, is_lower, lower_in
from tsucb.policies.names import FIRST

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
NEAR = 3.0  # percentage points


def paper_entry(dataset: str, policy: str) -> tuple[float, float] | None:
    """Return the paper's percentage and half-width for a policy, None if it has none.

    Our Greedy chooses at random among arms that look equally good. The paper's must have taken
    the first: an arm that never paid has a posterior mean of exactly 0, so such ties are common.
    """
    return PAPER.get(dataset, {}).get(GREEDY if policy == FIRST else policy)


def entry_agrees(dataset: str, policy: str, p: Percentages) -> Verdict:
    """Compare the interval with the paper's: no if they are apart, None if ours is too wide."""
    entry = paper_entry(dataset, policy)
    assert entry is not None
    found, (paper, half_width) = p.interval(policy, dataset=dataset), entry
    if found.low > paper + half_width or found.high < paper - half_width:
        return False
    return True if found.half_width <= 2 * half_width else None


def entry_comes_out(dataset: str, policy: str, p: Percentages) -> Finding:
    """Check one entry of the paper's table."""
    found = p.interval(policy, dataset=dataset)
    measured = f"{found.mean:.1f} ({found.low:.1f} to {found.high:.1f})"
    if dataset == "mushroom":
        ours, theirs = (np.median(p.regret[name].loc[dataset]) for name in (policy, TS))
        measured += f"; of medians {100 * ours / theirs:.1f}"
    return Finding(measured, entry_agrees(dataset, policy, p))


def most_entries_come_out(p: Percentages) -> Finding:
    found = [entry_agrees(name, policy, p) for name in SEVEN for policy in POLICIES[1:]]
    yes, no = found.count(True), found.count(False)
    return Finding(f"{yes} of {len(found)}", is_above(ENOUGH, yes, len(found) - no))


def ids_exceeds_by(policy: str, paper: float, p: Percentages) -> Finding:
    """Check by how much IDS exceeds the policy, from the means of the table as in the paper."""
    ratios, errors = [], []
    for name in SEVEN:
        ours, theirs = p.interval(IDS, dataset=name), p.interval(policy, dataset=name)
        ratios.append(ours.mean / theirs.mean)
        errors.append(np.hypot(ours.half_width / ours.mean, theirs.half_width / theirs.mean))
    mean = 100 * (float(np.mean(ratios)) - 1)
    width = 100 * float(np.linalg.norm(np.multiply(ratios, errors))) / len(SEVEN)
    return Finding(f"{mean:.2f} %", is_near(paper, NEAR, mean - width, mean + width))


def greedy_is_lowest(dataset: str, p: Percentages) -> Finding:
    """Check that Greedy has the least regret on a dataset."""
    means = {name: p.interval(name, dataset=dataset).mean for name in POLICIES}
    best = min(means, key=means.__getitem__)
    rival = min((name for name in POLICIES if name != GREEDY), key=means.__getitem__)
    margin = interval(p.difference(GREEDY, rival, dataset=dataset))
    return Finding(f"lowest: {best}", is_lower(margin))


def ucb_is_outperformed(p: Percentages) -> Finding:
    counts = [count_below(p.difference(name, UCB), 0) for name in (TS, ONE, HUNDRED)]
    verdicts = (is_above(len(SEVEN), count.low, count.high) for count in counts)
    number = min(count.number for count in counts)
    return Finding(f"{number} of {len(SEVEN)} datasets", both(*verdicts))


def six(policy: str, p: Percentages) -> Floats:
    """Return the percentages on every dataset but mushroom."""
    return np.vstack([p.of(policy, dataset=name) for name in SIX])


SENTENCES: list[Check[Percentages]] = [
    Check(
        "Entries of the table whose intervals overlap",
        "",
        Rule(
            f"at least {ENOUGH} of the 35 entries agree",
            (*POLICIES[1:], *SEVEN),
            most_entries_come_out,
        ),
    ),
    *(
        Check(
            f"{policy} improves upon TS on every dataset except possibly mushroom",
            "6 of 6",
            counted(
                "below 100 % on all six", (policy, *SIX), "datasets", 6, partial(six, policy), 100
            ),
        )
        for policy in (ONE, HUNDRED)
    ),
    Check(
        f"{HUNDRED} always outperforms {ONE}",
        "7 of 7 datasets",
        lower_in(7, "datasets", HUNDRED, (ONE,))._replace(needs=(ONE, HUNDRED, *SEVEN)),
    ),
    *(
        Check(
            f"On average, the regret of IDS is higher than that of {policy}",
            f"{figure} %",
            Rule(
                f"within {NEAR:.0f} points of the paper's figure",
                (IDS, policy, *SEVEN),
                partial(ids_exceeds_by, policy, figure),
            ),
        )
        for policy, figure in ((HUNDRED, 4.1), (ONE, 0.02))
    ),
    *(
        Check(
            f"Greedy outperforms all others on {dataset}",
            "lowest: Greedy",
            Rule(
                "less regret than the best other policy",
                (*POLICIES[1:], dataset),
                partial(greedy_is_lowest, dataset),
            ),
        )
        for dataset in ("census", "covertype", "jester")
    ),
    *(
        Check(
            f"Greedy is poor on {dataset}",
            f"{PAPER[dataset][GREEDY][0]} %",
            above(GREEDY, dataset=dataset)._replace(needs=(GREEDY, dataset)),
        )
        for dataset in ("mushroom", "statlog")
    ),
    Check(
        "UCB is consistently outperformed by TS and TS-UCB",
        "7 of 7 datasets",
        Rule(
            "more regret than TS and both TS-UCB on all seven datasets",
            (ONE, HUNDRED, UCB, *SEVEN),
            ucb_is_outperformed,
        ),
    ),
]


def entries(datasets: Sequence[str], policies: Sequence[str]) -> list[Check[Percentages]]:
    """Return a check of every entry of the paper's table that was measured."""
    return [
        Check(
            f"{dataset}, {policy}: regret in per cent of that of TS",
            f"{entry[0]} ± {entry[1]}",
            Rule(
                "the 95 % intervals overlap, and ours is at most twice as wide as the paper's",
                (policy, dataset),
                partial(entry_comes_out, dataset, policy),
            ),
            exact=True,
        )
        for dataset in datasets
        for policy in policies
        if (entry := paper_entry(dataset, policy))
    ]


def table_and_section_4_3_1(
    rows: pd.DataFrame, datasets: Sequence[str], policies: Sequence[str], comparable: bool
) -> list[Claim]:
    """Return every entry that was measured, then every sentence of Section 4.3.1.

    Parameters
    ----------
    rows : columns dataset, policy, run, regret
    datasets, policies : those measured
    comparable : whether runs were as long as the paper's
    """

    def doubt(check: Check[Percentages]) -> str:
        return "" if comparable else "other horizons than the paper's"

    checks = [*entries(datasets, policies), *SENTENCES]
    evidence = Percentages(rows, ["dataset"])
    return check_claims(checks, evidence, {*policies, *datasets}, also=(TS,), doubt=doubt)
