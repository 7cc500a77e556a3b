"""The sentences of Section 4.1.1 of the paper, each beside what was measured."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tsucb.paper.experiments.claims import (
    Check,
    Checks,
    Claim,
    Finding,
    both,
    check_claims,
    is_above,
    is_below,
    is_near,
)
from tsucb.paper.experiments.percentages import Percentages, count_below, interval

if TYPE_CHECKING:
    import pandas as pd

TS, ONE, HUNDRED, GREEDY, UCB, IDS = "TS", "TS-UCB(1)", "TS-UCB(100)", "Greedy", "UCB", "IDS"
GRID = "IDS-grid"  # IDS as the authors searched it
CELLS = 25
ALL_CELLS = "all 25 cells"
NEAR = 1.0  # percentage points within which a figure of the paper comes out
NEAR_RULE = "within 1 point of the paper's figure"
HALF, MANY = 60, 5  # "almost halves regret in many instances": at most 60 % in 5 cells
WELL = 105  # "performs well compared to TS": at most 105 %
SIMILAR = 10  # "similar": within 10 points
ALMOST_ALWAYS, OFTEN = 20, 9  # cells

CHECKS: Checks[Percentages] = Checks()
GRID_CHECKS: Checks[Percentages] = Checks()  # the paper's figures, with the authors' search


def plain_name(policy: str) -> str:
    """Return the policy's name, that of IDS and IDS-grid without their number of samples."""
    name = policy.partition("(")[0]
    return name if name in (IDS, GRID) else policy


def below_in_every_cell(policy: str, bound: float, p: Percentages) -> Finding:
    """Check that the policy's percentage is below the bound in all 25 cells."""
    mean, count = p.of(policy).mean(axis=1), count_below(p.of(policy), bound)
    arms, noise = p.cells[int(mean.argmax())]
    below = int((mean < 100).sum())
    text = f"{below} of 25 cells; highest {mean.max():.1f} % (K = {arms}, σ = {noise:g})"
    return Finding(text, is_above(CELLS, count.low, count.high))


def comes_to(policy: str, paper: float, p: Percentages) -> Finding:
    """Check that the policy's mean over the cells is the paper's."""
    found = p.interval(policy)
    return Finding(str(found), is_near(paper, NEAR, found.low, found.high))


def exceeds_by(policy: str, other: str, paper: float, p: Percentages) -> Finding:
    """Check that the policy's regret exceeds the other's by the paper's per cent."""
    found = p.excess(policy, other)
    text = f"{found.mean:+.1f} ± {found.half_width:.1f} %"
    return Finding(text, is_near(paper, NEAR, found.low, found.high))


for name in (ONE, HUNDRED):
    CHECKS.add(
        f"{name} outperforms TS across the board",
        "25 of 25 cells",
        name,
        rule="below 100 % in all 25 cells",
    )(partial(below_in_every_cell, name, 100))


@CHECKS.add(
    "TS-UCB almost halves regret in many instances",
    "many",
    ONE,
    HUNDRED,
    rule=f"at most {HALF} % of TS in at least {MANY} cells, with 1 or 100 samples",
)
def almost_halves(p: Percentages) -> Finding:
    one, hundred = p.of(ONE), p.of(HUNDRED)
    better = np.where((one.mean(axis=1) < hundred.mean(axis=1))[:, None], one, hundred)
    count = count_below(better, HALF)
    return Finding(f"{count} cells at {HALF} % or less", is_above(MANY, count.low, count.high))


@CHECKS.add(
    "TS-UCB improves more on TS when σ is higher",
    "falls with σ",
    HUNDRED,
    rule="a lower percentage at the largest σ than at the smallest",
)
def improves_with_noise(p: Percentages) -> Finding:
    noises = sorted({noise for _, noise in p.cells})
    found = [p.interval(HUNDRED, noise=noise) for noise in noises]
    text = " → ".join(f"{each.mean:.0f}" for each in found)
    change = interval(p.of(HUNDRED, noise=noises[-1]) - p.of(HUNDRED, noise=noises[0]))
    return Finding(
        f"{text} % for σ = {' → '.join(f'{s:g}' for s in noises)}",
        is_below(0, change.low, change.high) if len(noises) > 1 else None,
    )


for name, figure in ((ONE, 67.9), (HUNDRED, 66.6)):
    CHECKS.add(
        f"Over the 25 instances, regret of {name} in % of that of TS",
        f"{figure} %",
        name,
        rule=NEAR_RULE,
        exact=True,
    )(partial(comes_to, name, figure))


@CHECKS.add(
    f"{HUNDRED} outperforms {ONE} in most instances",
    "21 of 25 cells",
    ONE,
    HUNDRED,
    rule="less regret in more than half of the cells",
)
def better_with_more_samples(p: Percentages) -> Finding:
    count = count_below(p.difference(HUNDRED, ONE), 0)
    return Finding(f"{count} cells", is_above(CELLS // 2 + 1, count.low, count.high))


CHECKS.add(
    f"On average, excess regret of {ONE} over {HUNDRED}",
    "+3.2 %",
    ONE,
    HUNDRED,
    rule=NEAR_RULE,
    exact=True,
)(partial(exceeds_by, ONE, HUNDRED, 3.2))


@CHECKS.add(
    "Most of the benefit is captured by a single sample",
    "96 % (from its means)",
    ONE,
    HUNDRED,
    rule=f"{ONE} gains more than half of what {HUNDRED} gains over TS",
)
def single_sample_suffices(p: Percentages) -> Finding:
    one, hundred = 100 - p.of(ONE), 100 - p.of(HUNDRED)
    surplus = interval(one - hundred / 2)
    text = f"{100 * one.mean() / hundred.mean():.0f} % of the gain over TS"
    return Finding(text, is_above(0, surplus.low, surplus.high))


def on_both_sides(policy: str, p: Percentages) -> Finding:
    """Check that the policy is better than TS in some cells and worse in others."""
    values = p.of(policy)
    mean, below = values.mean(axis=1), count_below(values, 100)
    text = f"from {mean.min():.0f} to {mean.max():.0f} %"
    some_below = is_above(1, below.low, below.high)
    return Finding(text, both(some_below, is_below(CELLS - 1, below.low, below.high)))


for name in (GREEDY, UCB):
    CHECKS.add(
        f"{name} is inconsistent relative to TS",
        "both sides of 100",
        name,
        rule="below 100 % in some cell, above in another",
    )(partial(on_both_sides, name))


@CHECKS.add(
    "Greedy outperforms TS, and is similar to TS-UCB, when there are few arms",
    "below 100, similar",
    GREEDY,
    HUNDRED,
    rule=f"K = 3: below 100 %, and within {SIMILAR} points of {HUNDRED}",
)
def greedy_with_few_arms(p: Percentages) -> Finding:
    greedy, ours = p.interval(GREEDY, arms=3), p.interval(HUNDRED, arms=3)
    apart = interval(p.difference(GREEDY, HUNDRED, arms=3))
    similar = is_near(0, SIMILAR, apart.low, apart.high)
    text = f"K = 3: {greedy.mean:.0f} %, {HUNDRED} {ours.mean:.0f} %"
    return Finding(text, both(is_below(100, greedy.low, greedy.high), similar))


@CHECKS.add(
    "Greedy performs poorly when K is large", "above 100", GREEDY, rule="K = 60: above 100 %"
)
def greedy_with_many_arms(p: Percentages) -> Finding:
    greedy = p.interval(GREEDY, arms=60)
    return Finding(f"K = 60: {greedy.mean:.0f} %", is_above(100, greedy.low, greedy.high))


@CHECKS.add(
    "UCB performs poorly when the noise is small", "above 100", UCB, rule="σ = 0.05: above 100 %"
)
def ucb_with_little_noise(p: Percentages) -> Finding:
    ucb = p.interval(UCB, noise=0.05)
    return Finding(f"σ = 0.05: {ucb.mean:.0f} %", is_above(100, ucb.low, ucb.high))


@CHECKS.add(
    "TS-UCB almost always outperforms both Greedy and UCB",
    "almost always",
    HUNDRED,
    GREEDY,
    UCB,
    rule=f"less regret than both in at least {ALMOST_ALWAYS} cells",
)
def better_than_greedy_and_ucb(p: Percentages) -> Finding:
    count = count_below(p.margin(HUNDRED, (GREEDY, UCB)), 0)
    return Finding(f"{HUNDRED} in {count} cells", is_above(ALMOST_ALWAYS, count.low, count.high))


CHECKS.add(
    "IDS performs well across the board compared to TS",
    "not above 100",
    IDS,
    rule=f"at most {WELL} % in all 25 cells",
)(partial(below_in_every_cell, IDS, WELL))

for kind, checks, words in (
    (IDS, CHECKS, "IDS"),
    (GRID, GRID_CHECKS, "IDS as the authors searched it"),
):
    for name, figure in ((HUNDRED, 5.6), (ONE, 3.8)):
        checks.add(
            f"On average, excess regret of {words} over {name}",
            f"+{figure} %",
            kind,
            name,
            rule=NEAR_RULE,
            exact=True,
        )(partial(exceeds_by, kind, name, figure))


@CHECKS.add(
    "TS-UCB performs as well as IDS, and often better",
    "often",
    HUNDRED,
    IDS,
    rule=f"no more regret over all cells, and less in at least {OFTEN} of them",
)
def often_better_than_ids(p: Percentages) -> Finding:
    apart = p.difference(HUNDRED, IDS)
    overall, count = interval(apart), count_below(apart, 0)
    ours, theirs = (p.interval(name).mean for name in (HUNDRED, IDS))
    text = f"{ours:.1f} against {theirs:.1f} %; better in {count} cells"
    as_well = is_below(0, overall.low, overall.high)
    return Finding(text, both(as_well, is_above(OFTEN, count.low, count.high)))


def section_4_1_1(rows: pd.DataFrame, cells: int, policies: tuple[str, ...]) -> list[Claim]:
    """Return every sentence that these numbers can check, in the paper's order.

    Parameters
    ----------
    rows : columns arms, noise, policy, run, regret
    cells : the number of cells; the paper's sentences are about all 25
    policies : those measured
    """
    names = {plain_name(policy): policy for policy in policies}

    def doubt(check: Check[Percentages]) -> str:
        for kind in (IDS, GRID):
            if check.exact and kind in check.needs and names[kind] != f"{kind}(1000)":
                return f"with {names[kind]}"
        return ""

    checks = (*CHECKS, *(GRID_CHECKS if GRID in names else ()))
    return check_claims(
        (check._replace(needs=(TS, *check.needs, ALL_CELLS)) for check in checks),
        Percentages(rows.assign(policy=rows.policy.map(plain_name)), ["arms", "noise"]),
        {*names, *([ALL_CELLS] if cells == CELLS else [])},
        doubt=doubt,
    )
