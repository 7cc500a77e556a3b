"""Table 1 as the paper prints it, and the sentences of Section 4.2.1 beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

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
from tsucb.paper.experiments.percentages import Interval, Percentages, count_below, interval
from tsucb.policies.names import FIRST

if TYPE_CHECKING:
    import pandas as pd

POLICIES = ("TS", "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
TS, ONE, HUNDRED, IDS, GREEDY, UCB = POLICIES
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

CHECKS: Checks[Percentages] = Checks()


def overall(p: Percentages, policy: str) -> Interval:
    """Return the mean over all runs of all days, as the paper's last line has it."""
    return interval(p.of(policy).reshape(1, -1))


@CHECKS.add(
    f"{HUNDRED} has the lowest regret on most days",
    "7 of 10 days",
    *POLICIES[1:],
    rule="lowest on more than half of the days",
)
def lowest_on_most_days(p: Percentages) -> Finding:
    count = count_below(p.margin(HUNDRED, [name for name in POLICIES if name != HUNDRED]), 0)
    return Finding(f"{count} days", is_above(count.total // 2 + 1, count.low, count.high))


def below_on_all_days(policy: str, p: Percentages) -> Finding:
    """Check that the policy is below 100 % on every day."""
    count = count_below(p.of(policy), 100)
    return Finding(f"{count} days", is_above(count.total, count.low, count.high))


for name in (ONE, HUNDRED, IDS):
    CHECKS.add(
        f"{name} outperforms TS on all days",
        "10 of 10 days",
        name,
        rule="below 100 % on every day",
    )(partial(below_on_all_days, name))


def comes_to(policy: str, p: Percentages) -> Finding:
    """Check that the overall percentage is the paper's."""
    found = overall(p, policy)
    return Finding(str(found), is_near(PAPER[policy][DAYS], NEAR, found.low, found.high))


for name in (ONE, HUNDRED, IDS, GREEDY, UCB):
    CHECKS.add(
        f"Overall, the regret of {name} is this share of that of TS",
        f"{PAPER[name][DAYS]} %",
        name,
        rule="within 1 point of the paper's figure",
        exact=True,
    )(partial(comes_to, name))


@CHECKS.add(
    f"{HUNDRED} slightly outperforms IDS, and IDS slightly {ONE}",
    "88.2 · 88.6 · 89.9",
    HUNDRED,
    IDS,
    ONE,
    rule="overall in this order",
)
def in_this_order(p: Percentages) -> Finding:
    steps = [interval(p.difference(*pair).reshape(1, -1)) for pair in ((HUNDRED, IDS), (IDS, ONE))]
    text = " · ".join(f"{overall(p, name).mean:.1f}" for name in (HUNDRED, IDS, ONE))
    return Finding(text, both(*(is_below(0, step.low, step.high) for step in steps)))


@CHECKS.add(
    "Greedy performs similarly to TS",
    "102.3 %, from 88.5 to 122.3",
    GREEDY,
    rule=f"overall within {SIMILAR:.0f} points of 100 %",
)
def greedy_is_like_ts(p: Percentages) -> Finding:
    greedy = overall(p, GREEDY)
    return Finding(str(greedy), is_near(100, SIMILAR, greedy.low, greedy.high))


@CHECKS.add("UCB is clearly outperformed by TS", "117.1 %", UCB, rule="overall above 100 %")
def ucb_is_above_ts(p: Percentages) -> Finding:
    ucb = overall(p, UCB)
    return Finding(str(ucb), is_above(100, ucb.low, ucb.high))


def label_generated(find: Callable[[Percentages], Finding], p: Percentages) -> Finding:
    """Return the finding, marked as made in a generated log."""
    measured, agrees = find(p)
    return Finding(f"{measured} (generated log)", agrees)


def section_4_2_1(rows: pd.DataFrame, policies: tuple[str, ...], generated: bool) -> list[Claim]:
    """Return every sentence of Section 4.2.1 that these numbers can check, in the paper's order.

    A generated log can decide on the order of the policies, not on the paper's figures.
    """

    def doubt(check: Check[Percentages]) -> str:
        return "needs the licensed log" if generated and check.exact else ""

    checks = (check._replace(needs=(TS, *check.needs)) for check in CHECKS)
    if generated:
        checks = (check._replace(find=partial(label_generated, check.find)) for check in checks)
    return check_claims(checks, Percentages(rows, ["day"]), policies, doubt=doubt)
