"""Table 1 as the paper prints it, and the sentences of Section 4.2.1 beside what was measured."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tsucb.paper.experiments.claims import Check, Claim, Finding, Rule, both, check_claims
from tsucb.paper.experiments.percentages import Interval, Percentages, interval
from tsucb.paper.experiments.rules import above, is_lower, lower_in, near
from tsucb.policies.names import FIRST

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


class Days(Percentages):
    """Percentages of TS by day; a mean over several days is over all of their runs."""

    def interval(self, policy: str, **where: Any) -> Interval:
        return interval(self.of(policy, **where).reshape(1, -1))


def in_this_order(p: Percentages) -> Finding:
    steps = [interval(p.difference(*pair).reshape(1, -1)) for pair in ((HUNDRED, IDS), (IDS, ONE))]
    text = " · ".join(f"{p.interval(name).mean:.1f}" for name in (HUNDRED, IDS, ONE))
    return Finding(text, both(*map(is_lower, steps)))


def checks(days: int) -> list[Check[Percentages]]:
    """Return the sentences of Section 4.2.1 for a log of some days."""
    others = [name for name in POLICIES if name != HUNDRED]
    return [
        Check(
            f"{HUNDRED} has the lowest regret on most days",
            "7 of 10 days",
            lower_in(None, "days", HUNDRED, others),
        ),
        *(
            Check(
                f"{name} outperforms TS on all days", "10 of 10 days", lower_in(days, "days", name)
            )
            for name in (ONE, HUNDRED, IDS)
        ),
        *(
            Check(
                f"Overall, the regret of {name} is this share of that of TS",
                f"{PAPER[name][DAYS]} %",
                near(name, PAPER[name][DAYS], NEAR),
                exact=True,
            )
            for name in (ONE, HUNDRED, IDS, GREEDY, UCB)
        ),
        Check(
            f"{HUNDRED} slightly outperforms IDS, and IDS slightly {ONE}",
            "88.2 · 88.6 · 89.9",
            Rule("overall in this order", (HUNDRED, IDS, ONE), in_this_order),
        ),
        Check(
            "Greedy performs similarly to TS",
            "102.3 %, from 88.5 to 122.3",
            near(GREEDY, 100, SIMILAR),
        ),
        Check("UCB is clearly outperformed by TS", "117.1 %", above(UCB)),
    ]


def section_4_2_1(rows: pd.DataFrame, policies: tuple[str, ...], generated: bool) -> list[Claim]:
    """Return every sentence of Section 4.2.1 that these numbers can check, in the paper's order.

    A generated log can decide on the order of the policies, not on the paper's figures.
    """

    def doubt(check: Check[Percentages]) -> str:
        return "needs the licensed log" if generated and check.exact else ""

    evidence: Percentages = Days(rows, ["day"])
    found = check_claims(checks(rows.day.nunique()), evidence, policies, also=(TS,), doubt=doubt)
    label = " (generated log)" * generated
    return [claim._replace(measured=claim.measured + label) for claim in found]
