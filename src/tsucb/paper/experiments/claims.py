"""The sentences of a paper as checks, and the verdict of a measurement on each.

A verdict is True (yes), False (no) or None (cannot tell). It is None wherever the 95 % interval of
what was measured leaves both answers open, so few runs never make a "yes".
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Evidence = TypeVar("Evidence")
Verdict: TypeAlias = bool | None
Finding: TypeAlias = tuple[str, Verdict]  # what was measured, in words, and the verdict
WORDS = {True: "yes", False: "no", None: "cannot tell"}


@dataclass(frozen=True)
class Interval:
    """A measured number with its 95 % interval; its methods are the verdicts."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.half_width:.1f} %"

    def is_below(self, bound: float) -> Verdict:
        """Return whether the interval lies below the bound.

        >>> [Interval(90, *ends).is_below(100) for ends in ((80, 90), (101, 105), (80, 105))]
        [True, False, None]
        """
        return True if self.high <= bound else False if self.low > bound else None

    def is_above(self, bound: float) -> Verdict:
        """Return whether the interval lies above the bound."""
        return True if self.low >= bound else False if self.high < bound else None

    def is_near(self, target: float, tolerance: float) -> Verdict:
        """Return whether the interval lies within `target` ± `tolerance`."""
        return both(self.is_above(target - tolerance), self.is_below(target + tolerance))


@dataclass(frozen=True)
class Count(Interval):
    """In how many of `total` cells something holds: `mean` by the means of the cells."""

    total: int

    def __str__(self) -> str:
        return f"{self.mean} of {self.total}, 95 % interval {self.low} to {self.high}"


def both(*verdicts: Verdict) -> Verdict:
    """Return no if any verdict is no, else None if any is None, else yes."""
    return False if False in verdicts else None if None in verdicts else True


class Claim(NamedTuple):
    """A sentence of the paper, its figure, what was measured, and the verdict by `rule`."""

    statement: str
    paper: str
    measured: str
    rule: str
    agrees: Verdict


class Check(NamedTuple, Generic[Evidence]):
    """A sentence of the paper, its figure as printed, and how measurements decide on it.

    Parameters
    ----------
    rule : when the verdict is yes, in words
    needs : policies, and whatever else must have been measured
    find : from the evidence of the experiment to a finding
    exact : whether the paper's figure itself must come out, and not an order or a sign
    """

    statement: str
    paper: str
    rule: str
    needs: tuple[str, ...]
    find: Callable[[Evidence], Finding]
    exact: bool = False


def check_claims(
    checks: Iterable[Check[Evidence]],
    evidence: Evidence,
    have: Collection[str],
    doubt: Callable[[Check[Evidence]], str] = lambda check: "",
) -> list[Claim]:
    """Return the claim of every check, in the order of the checks.

    Parameters
    ----------
    evidence : read only by checks that have all they need
    have : what was measured; a check that needs more cannot tell
    doubt : why these measurements cannot decide a check, "" if they can

    >>> lower = Check("a is below b", "1 < 2", "a < b", ("a", "b"), lambda m: (str(m), m[0] < m[1]))
    >>> [claim.agrees for claim in check_claims([lower], (3, 2), {"a", "b"})]
    [False]
    >>> check_claims([lower], (3, 2), {"a"})[0].measured
    'not measured: b'
    """
    claims = []
    for check in checks:
        if missing := [name for name in dict.fromkeys(check.needs) if name not in have]:
            measured, agrees = f"not measured: {', '.join(missing)}", None
        else:
            measured, agrees = check.find(evidence)
            if reason := doubt(check):
                measured, agrees = f"{measured}; {reason}", None
        claims.append(Claim(check.statement, check.paper, measured, check.rule, agrees))
    return claims
