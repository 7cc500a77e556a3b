"""Checks on percentages of TS: rule, needs and verdict from one declaration."""

from collections.abc import Callable, Sequence
from typing import Any

from tsucb.numeric.arrays import Floats
from tsucb.paper.experiments.claims import Check, Finding, Verdict, is_above, is_below, is_near
from tsucb.paper.experiments.percentages import Interval, Percentages, count_below


def above(
    statement: str, paper: str, policy: str, bound: float = 100, **where: Any
) -> Check[Percentages]:
    """Return the check that the policy's mean over these cells is above the bound."""

    def verdict(found: Interval) -> Verdict:
        return is_above(bound, found.low, found.high)

    return on_mean(statement, paper, f"{policy} above {bound:g} %", policy, verdict, where)


def near(
    statement: str, paper: str, policy: str, target: float, points: float, exact: bool = False
) -> Check[Percentages]:
    """Return the check that the policy's mean over all cells is near a target."""

    def verdict(found: Interval) -> Verdict:
        return is_near(target, points, found.low, found.high)

    rule = f"{policy} within {points:g} points of {target:g} %"
    return on_mean(statement, paper, rule, policy, verdict, {})._replace(exact=exact)


def on_mean(
    statement: str, paper: str, rule: str, policy: str, verdict: Callable[[Interval], Verdict],
    where: dict[str, Any],
) -> Check[Percentages]:  # fmt: skip
    """Return a check on the interval of a policy's mean over the cells with these values."""

    def find(p: Percentages) -> Finding:
        found = p.interval(policy, **where)
        return str(found), verdict(found)

    places = "".join(f", {name} = {value}" for name, value in where.items())
    return Check(statement, paper, rule + places, (policy,), find)


def exceeds_by(
    statement: str, policy: str, other: str, percent: float, points: float
) -> Check[Percentages]:
    """Return the check that a policy's regret exceeds another's by the paper's percentage."""

    def find(p: Percentages) -> Finding:
        found = p.excess(policy, other)
        text = f"{found.mean:+.1f} ± {found.half_width:.1f} %"
        return text, is_near(percent, points, found.low, found.high)

    rule = f"within {points:g} point{'s' * (points != 1)} of {percent:+g} %"
    return Check(statement, f"+{percent} %", rule, (policy, other), find, exact=True)


def lower_in(
    statement: str, paper: str, least: int | None, cells: str, policy: str,
    others: Sequence[str] = ("TS",),
) -> Check[Percentages]:  # fmt: skip
    """Return the check that a policy has less regret than all others in at least `least` cells.

    None stands for more than half of the cells.
    """
    number = "more than half of the" if least is None else f"at least {least}"
    rule = f"less regret than {' and '.join(others)} in {number} {cells}"
    needs = tuple(name for name in (policy, *others) if name != "TS")
    find = counting(cells, least, lambda p: p.margin(policy, others))
    return Check(statement, paper, rule, needs, find)


def counting(
    cells: str, least: int | None, values: Callable[[Percentages], Floats], bound: float = 0.0
) -> Callable[[Percentages], Finding]:
    """Return a finding on the number of cells in which values (cells, runs) are below a bound."""

    def find(p: Percentages) -> Finding:
        count = count_below(values(p), bound)
        needed = count.total // 2 + 1 if least is None else least
        return f"{count} {cells}", is_above(needed, count.low, count.high)

    return find


def is_lower(found: Interval) -> Verdict:
    """Return whether a difference in points is below zero."""
    return is_below(0, found.low, found.high)
