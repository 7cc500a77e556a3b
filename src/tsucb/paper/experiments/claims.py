"""The sentences of a paper as checks, and the verdict of a measurement on each.

A verdict is True (yes), False (no) or None (cannot tell). It is None wherever the 95 % interval of
the measurement leaves both answers open, so a "yes" never comes from too few runs.
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
    """A measured number with its 95 % interval; its methods return verdicts."""

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
    """The number of cells, of `total`, in which something holds; `mean` is by the cells' means."""

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
    """A sentence of the paper, its figure as printed, and how to decide on it from measurements.

    Parameters
    ----------
    rule : when the verdict is yes, in words
    needs : names of the policies and of anything else that must have been measured
    find : function from the experiment's evidence to a finding
    exact : whether the paper's figure itself must come out, not just an order or a sign
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
    evidence : passed to each check that has all it needs
    have : what was measured; the verdict of a check that needs more is None
    doubt : function that says why these measurements cannot decide a check, "" if they can

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
