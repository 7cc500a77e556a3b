"""Rules on percentages of TS: the words, the needs and the verdict from one declaration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tsucb.numeric.arrays import Floats
from tsucb.paper.experiments.claims import (
    Finding,
    Rule,
    Verdict,
    is_above,
    is_below,
    is_near,
)
from tsucb.paper.experiments.percentages import Interval, Percentages, count_below


def above(policy: str, bound: float = 100, **where: Any) -> Rule[Percentages]:
    """Return the rule that the policy's mean over these cells is above the bound."""
    words = f"{policy} above {bound:g} %"
    return on_mean(words, policy, where, lambda *ends: is_above(bound, *ends))


def near(policy: str, target: float, points: float, **where: Any) -> Rule[Percentages]:
    """Return the rule that the policy's mean over these cells is near a target."""
    words = f"{policy} within {points:g} points of {target:g} %"
    return on_mean(words, policy, where, lambda *ends: is_near(target, points, *ends))


def on_mean(
    words: str, policy: str, where: dict[str, Any], verdict: Callable[..., Verdict]
) -> Rule[Percentages]:
    """Return a rule on the interval of a policy's mean over the cells with these values."""

    def find(p: Percentages) -> Finding:
        found = p.interval(policy, **where)
        return Finding(str(found), verdict(found.low, found.high))

    places = "".join(f", {name} = {value}" for name, value in where.items())
    return Rule(words + places, (policy,), find)


def exceeds_by(policy: str, other: str, percent: float, points: float) -> Rule[Percentages]:
    """Return the rule that a policy's regret exceeds another's by so many per cent."""

    def find(p: Percentages) -> Finding:
        found = p.excess(policy, other)
        text = f"{found.mean:+.1f} ± {found.half_width:.1f} %"
        return Finding(text, is_near(percent, points, found.low, found.high))

    words = f"within {points:g} point{'s' * (points != 1)} of {percent:+g} %"
    return Rule(words, (policy, other), find)


def lower_in(
    least: int | None, cells: str, policy: str, others: Sequence[str] = ("TS",)
) -> Rule[Percentages]:
    """Return the rule that a policy has less regret than all others in at least so many cells.

    None stands for more than half of the cells.
    """
    rivals = " and ".join(others)
    number = "more than half of the" if least is None else f"at least {least}"
    words = f"less regret than {rivals} in {number} {cells}"
    needs = tuple(name for name in (policy, *others) if name != "TS")
    return counted(words, needs, cells, least, lambda p: p.margin(policy, others))


def counted(
    words: str, needs: Sequence[str], cells: str, least: int | None,
    values: Callable[[Percentages], Floats], bound: float = 0.0,
) -> Rule[Percentages]:  # fmt: skip
    """Return a rule on the number of cells in which values (cells, runs) are below a bound."""

    def find(p: Percentages) -> Finding:
        count = count_below(values(p), bound)
        needed = count.total // 2 + 1 if least is None else least
        return Finding(f"{count} {cells}", is_above(needed, count.low, count.high))

    return Rule(words, tuple(needs), find)


def is_lower(found: Interval) -> Verdict:
    """Return whether a difference in points is below zero."""
    return is_below(0, found.low, found.high)
