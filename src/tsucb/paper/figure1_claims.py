"""The sentences of Section 4.1.1 of the paper, each beside what was measured."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from tsucb.numeric.arrays import Floats
from tsucb.paper.experiments.claims import (
    Check,
    Claim,
    Finding,
    Rule,
    both,
    check_claims,
    is_above,
    is_below,
    is_near,
)
from tsucb.paper.experiments.percentages import Percentages, count_below, interval
from tsucb.paper.experiments.rules import above, counted, exceeds_by, is_lower, lower_in, near

TS, ONE, HUNDRED, GREEDY, UCB, IDS = "TS", "TS-UCB(1)", "TS-UCB(100)", "Greedy", "UCB", "IDS"
GRID = "IDS-grid"  # IDS as the authors searched it
CELLS = 25
ALL_CELLS = "all 25 cells"
NEAR = 1.0  # percentage points within which a figure of the paper comes out
HALF, MANY = 60, 5  # "almost halves regret in many instances": at most 60 % in 5 cells
WELL = 105  # "performs well compared to TS": at most 105 %
SIMILAR = 10  # "similar": within 10 points
ALMOST_ALWAYS, OFTEN = 20, 9  # cells


def plain_name(policy: str) -> str:
    """Return the policy's name, that of IDS and IDS-grid without their number of samples."""
    name = policy.partition("(")[0]
    return name if name in (IDS, GRID) else policy


def highest(policy: str, bound: float, p: Percentages) -> Finding:
    """Check that the policy's percentage is below the bound in all 25 cells."""
    values = p.of(policy)
    mean, count = values.mean(axis=1), count_below(values, bound)
    arms, noise = p.cells[int(mean.argmax())]
    text = (
        f"{int((mean < 100).sum())} of 25 cells; highest {mean.max():.1f} % "
        f"(K = {arms}, σ = {noise:g})"
    )
    return Finding(text, is_above(CELLS, count.low, count.high))


def below_everywhere(policy: str, bound: float) -> Rule[Percentages]:
    """Return the rule that a policy is below the bound in every cell."""
    words = f"{policy} below {bound:g} % in all 25 cells"
    return Rule(words, (policy,), partial(highest, policy, bound))


def better_of_both(p: Percentages) -> Floats:
    """Return the percentages of TS-UCB(1) or TS-UCB(100), whichever is lower in a cell."""
    one, hundred = p.of(ONE), p.of(HUNDRED)
    return np.where((one.mean(axis=1) < hundred.mean(axis=1))[:, None], one, hundred)


def improves_with_noise(p: Percentages) -> Finding:
    noises = sorted({noise for _, noise in p.cells})
    means = [p.interval(HUNDRED, noise=noise).mean for noise in noises]
    change = interval(p.of(HUNDRED, noise=noises[-1]) - p.of(HUNDRED, noise=noises[0]))
    return Finding(
        f"{' → '.join(f'{mean:.0f}' for mean in means)} % for "
        f"σ = {' → '.join(f'{s:g}' for s in noises)}",
        is_lower(change),
    )


def single_sample_suffices(p: Percentages) -> Finding:
    one, hundred = 100 - p.of(ONE), 100 - p.of(HUNDRED)
    surplus = interval(one - hundred / 2)
    text = f"{100 * one.mean() / hundred.mean():.0f} % of the gain over TS"
    return Finding(text, is_above(0, surplus.low, surplus.high))


def on_both_sides(policy: str, p: Percentages) -> Finding:
    values = p.of(policy)
    mean, below = values.mean(axis=1), count_below(values, 100)
    some_below = is_above(1, below.low, below.high)
    some_above = is_below(CELLS - 1, below.low, below.high)
    return Finding(f"from {mean.min():.0f} to {mean.max():.0f} %", both(some_below, some_above))


def greedy_with_few_arms(p: Percentages) -> Finding:
    greedy, ours = p.interval(GREEDY, arms=3), p.interval(HUNDRED, arms=3)
    apart = interval(p.difference(GREEDY, HUNDRED, arms=3))
    similar = is_near(0, SIMILAR, apart.low, apart.high)
    text = f"K = 3: {greedy.mean:.0f} %, {HUNDRED} {ours.mean:.0f} %"
    return Finding(text, both(is_below(100, greedy.low, greedy.high), similar))


def often_better_than_ids(p: Percentages) -> Finding:
    apart = p.difference(HUNDRED, IDS)
    count = count_below(apart, 0)
    ours, theirs = (p.interval(name).mean for name in (HUNDRED, IDS))
    text = f"{ours:.1f} against {theirs:.1f} %; better in {count} cells"
    as_well = is_lower(interval(apart))
    return Finding(text, both(as_well, is_above(OFTEN, count.low, count.high)))


def excess_checks(kind: str, words: str) -> list[Check[Percentages]]:
    """Return the checks of the excess regret of a kind of IDS."""
    return [
        Check(
            f"On average, excess regret of {words} over {name}",
            f"+{figure} %",
            exceeds_by(kind, name, figure, NEAR),
            exact=True,
        )
        for name, figure in ((HUNDRED, 5.6), (ONE, 3.8))
    ]


CHECKS: list[Check[Percentages]] = [
    *(
        Check(
            f"{name} outperforms TS across the board", "25 of 25 cells", below_everywhere(name, 100)
        )
        for name in (ONE, HUNDRED)
    ),
    Check(
        "TS-UCB almost halves regret in many instances",
        "many",
        counted(
            f"at most {HALF} % of TS in at least {MANY} cells, with 1 or 100 samples",
            (ONE, HUNDRED),
            f"cells at {HALF} % or less",
            MANY,
            better_of_both,
            HALF,
        ),
    ),
    Check(
        "TS-UCB improves more on TS when σ is higher",
        "falls with σ",
        Rule("less % of TS at the largest σ than at the smallest", (HUNDRED,), improves_with_noise),
    ),
    *(
        Check(
            f"Over the 25 instances, regret of {name} in % of that of TS",
            f"{figure} %",
            near(name, figure, NEAR),
            exact=True,
        )
        for name, figure in ((ONE, 67.9), (HUNDRED, 66.6))
    ),
    Check(
        f"{HUNDRED} outperforms {ONE} in most instances",
        "21 of 25 cells",
        lower_in(None, "cells", HUNDRED, (ONE,)),
    ),
    Check(
        f"On average, excess regret of {ONE} over {HUNDRED}",
        "+3.2 %",
        exceeds_by(ONE, HUNDRED, 3.2, NEAR),
        exact=True,
    ),
    Check(
        "Most of the benefit is captured by a single sample",
        "96 % (from its means)",
        Rule("more than half of the gain with 100", (ONE, HUNDRED), single_sample_suffices),
    ),
    *(
        Check(
            f"{name} is inconsistent relative to TS",
            "both sides of 100",
            Rule("some cell below 100 %, another above", (name,), partial(on_both_sides, name)),
        )
        for name in (GREEDY, UCB)
    ),
    Check(
        "Greedy outperforms TS, and is similar to TS-UCB, when there are few arms",
        "below 100, similar",
        Rule(
            f"K = 3: below 100 %, and within {SIMILAR} points of {HUNDRED}",
            (GREEDY, HUNDRED),
            greedy_with_few_arms,
        ),
    ),
    Check("Greedy performs poorly when K is large", "above 100", above(GREEDY, arms=60)),
    Check("UCB performs poorly when the noise is small", "above 100", above(UCB, noise=0.05)),
    Check(
        "TS-UCB almost always outperforms both Greedy and UCB",
        "almost always",
        lower_in(ALMOST_ALWAYS, "cells", HUNDRED, (GREEDY, UCB)),
    ),
    Check(
        "IDS performs well across the board compared to TS",
        "not above 100",
        below_everywhere(IDS, WELL),
    ),
    *excess_checks(IDS, "IDS"),
    Check(
        "TS-UCB performs as well as IDS, and often better",
        "often",
        Rule(
            f"no more regret over all cells, and less in at least {OFTEN} of them",
            (HUNDRED, IDS),
            often_better_than_ids,
        ),
    ),
]


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
            if check.exact and kind in check.rule.needs and names[kind] != f"{kind}(1000)":
                return f"with {names[kind]}"
        return ""

    by_the_authors = excess_checks(GRID, "IDS as the authors searched it") if GRID in names else []
    return check_claims(
        [*CHECKS, *by_the_authors],
        Percentages(rows.assign(policy=rows.policy.map(plain_name)), ["arms", "noise"]),
        {*names, *([ALL_CELLS] if cells == CELLS else [])},
        also=(TS, ALL_CELLS),
        doubt=doubt,
    )
