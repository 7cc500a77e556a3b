"""Table 1 as the paper prints it, and the sentences of Section 4.2.1 beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tsucb.paper.experiments.claims import Check, Claim, Finding, check_claims
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


class Percentages:
    """Regret in per cent of that of TS, by day and overall, with 95 % intervals.

    Parameters
    ----------
    summary : columns day, policy, percent_of_ts, ci95_low, ci95_high
    days : how many were measured
    """

    def __init__(self, summary: pd.DataFrame, days: int) -> None:
        self.table = summary.set_index(["day", "policy"])
        self.days = range(1, days + 1)

    def of(self, policy: str, day: int | str = OVERALL) -> float:
        """The percentage."""
        return float(self.table.percent_of_ts[(day, policy)])

    def low(self, policy: str, day: int | str = OVERALL) -> float:
        """The lower end of its interval."""
        return float(self.table.ci95_low[(day, policy)])

    def high(self, policy: str, day: int | str = OVERALL) -> float:
        """The upper end of its interval."""
        return float(self.table.ci95_high[(day, policy)])

    def half_width(self, policy: str) -> float:
        """Of the interval of the overall percentage."""
        return (self.high(policy) - self.low(policy)) / 2

    def overall(self, policy: str) -> str:
        """The overall percentage and its interval, in words."""
        return f"{self.of(policy):.1f} ± {self.half_width(policy):.1f} %"


def lowest_on_most_days(p: Percentages) -> Finding:
    others = [policy for policy in POLICIES if policy != HUNDRED]
    count = sum(p.of(HUNDRED, day) < min(p.of(other, day) for other in others) for day in p.days)
    return Finding(f"{count} of {len(p.days)} days", 2 * count > len(p.days))


def below_on_all_days(policy: str, p: Percentages) -> Finding:
    count = sum(p.high(policy, day) < 100 for day in p.days)
    return Finding(f"{count} of {len(p.days)} days, interval below 100", count == len(p.days))


def comes_to(policy: str, p: Percentages) -> Finding:
    near = abs(p.of(policy) - PAPER[policy][DAYS]) <= max(1.0, p.half_width(policy))
    return Finding(p.overall(policy), near)


def in_this_order(p: Percentages) -> Finding:
    values = [p.of(policy) for policy in (HUNDRED, IDS, ONE)]
    return Finding(" · ".join(f"{v:.1f}" for v in values), values == sorted(values))


def greedy_like_ts(p: Percentages) -> Finding:
    return Finding(p.overall(GREEDY), 85 < p.of(GREEDY) < 115)


def ucb_above_ts(p: Percentages) -> Finding:
    return Finding(p.overall(UCB), p.low(UCB) > 100)


CHECKS: tuple[Check[Percentages], ...] = (
    Check(
        f"{HUNDRED} has the lowest regret on most days",
        "7 of 10 days",
        POLICIES[1:],
        lowest_on_most_days,
    ),
    *(
        Check(
            f"{policy} outperforms TS on all days",
            "10 of 10 days",
            (policy,),
            partial(below_on_all_days, policy),
        )
        for policy in (ONE, HUNDRED, IDS)
    ),
    *(
        Check(
            f"Overall, the regret of {policy} is this share of that of TS",
            f"{PAPER[policy][DAYS]} %",
            (policy,),
            partial(comes_to, policy),
            exact=True,
        )
        for policy in (ONE, HUNDRED, IDS, GREEDY, UCB)
    ),
    Check(
        f"{HUNDRED} slightly outperforms IDS, and IDS slightly {ONE}",
        "88.2 · 88.6 · 89.9",
        (HUNDRED, IDS, ONE),
        in_this_order,
    ),
    Check(
        "Greedy performs similarly to TS", "102.3 %, from 88.5 to 122.3", (GREEDY,), greedy_like_ts
    ),
    Check("UCB is clearly outperformed by TS", "117.1 %", (UCB,), ucb_above_ts),
)


def labelled(find: Callable[[Percentages], Finding], p: Percentages) -> Finding:
    """What was found, marked as found in a generated log."""
    measured, agrees = find(p)
    return Finding(f"{measured} (generated log)", agrees)


def section_4_2_1(
    summary: pd.DataFrame, days: int, policies: tuple[str, ...], generated: bool
) -> list[Claim]:
    """Every sentence of Section 4.2.1 that these numbers can check, in the paper's order.

    A generated log can be asked about the order of the policies, not about the numbers.
    """

    def doubt(check: Check[Percentages]) -> str:
        return "needs the licensed log" if generated and check.exact else ""

    checks = (check._replace(needs=(TS, *check.needs)) for check in CHECKS)
    if generated:
        checks = (check._replace(find=partial(labelled, check.find)) for check in checks)
    return check_claims(checks, Percentages(summary, days), policies, doubt=doubt)
