"""The sentences of a paper as checks, and the verdict of a measurement on each.

A verdict is True (yes), False (no) or None (cannot tell). It is None wherever the 95 % interval of
what was measured leaves both answers open, so few runs never make a "yes".
"""

from collections.abc import Callable, Collection, Iterable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Evidence = TypeVar("Evidence")
Verdict: TypeAlias = bool | None
Finding: TypeAlias = tuple[str, Verdict]  # what was measured, in words, and the verdict
WORDS = {True: "yes", False: "no", None: "cannot tell"}


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


def is_below(bound: float, low: float, high: float) -> Verdict:
    """Return whether the interval from `low` to `high` lies below the bound.

    >>> is_below(100, 80, 90), is_below(100, 101, 105), is_below(100, 80, 105)
    (True, False, None)
    """
    return True if high <= bound else False if low > bound else None


def is_above(bound: float, low: float, high: float) -> Verdict:
    """Return whether the interval lies above the bound."""
    return is_below(-bound, -high, -low)


def is_near(target: float, tolerance: float, low: float, high: float) -> Verdict:
    """Return whether the interval lies within `target` ± `tolerance`.

    >>> is_near(5.0, 1.0, 4.5, 5.5), is_near(5.0, 1.0, 2.0, 3.0), is_near(5.0, 1.0, 3.0, 5.0)
    (True, False, None)
    """
    return both(is_above(target - tolerance, low, high), is_below(target + tolerance, low, high))


def both(*verdicts: Verdict) -> Verdict:
    """Return no if any verdict is no, else None if any is None, else yes."""
    return False if False in verdicts else None if None in verdicts else True


def check_claims(
    checks: Iterable[Check[Evidence]],
    evidence: Evidence,
    have: Collection[str],
    *,
    also: tuple[str, ...] = (),
    doubt: Callable[[Check[Evidence]], str] = lambda check: "",
) -> list[Claim]:
    """Return the claim of every check, in the order of the checks.

    Parameters
    ----------
    evidence : read only by checks that have all they need
    have : what was measured; a check that needs more cannot tell
    also : what every check needs beside its own needs
    doubt : why these measurements cannot decide a check, "" if they can

    >>> lower = Check("a is below b", "1 < 2", "a < b", ("a", "b"), lambda m: (str(m), m[0] < m[1]))
    >>> [claim.agrees for claim in check_claims([lower], (3, 2), {"a", "b"})]
    [False]
    >>> check_claims([lower], (3, 2), {"a"})[0].measured
    'not measured: b'
    """
    claims = []
    for check in checks:
        if missing := [name for name in (*also, *check.needs) if name not in have]:
            measured, agrees = f"not measured: {', '.join(missing)}", None
        else:
            measured, agrees = check.find(evidence)
            if reason := doubt(check):
                measured, agrees = f"{measured}; {reason}", None
        claims.append(Claim(check.statement, check.paper, measured, check.rule, agrees))
    return claims
