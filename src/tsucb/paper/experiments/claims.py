"""The sentences of a paper as a table of checks, and what a measurement makes of them."""

from collections.abc import Callable, Collection, Iterable
from typing import Generic, NamedTuple, TypeVar

Evidence = TypeVar("Evidence")


class Claim(NamedTuple):
    """A sentence of the paper beside what was measured.

    `agrees` is None where the measurement cannot decide (a policy left out, too few runs);
    `measured` then says why.
    """

    statement: str
    paper: str
    measured: str
    agrees: bool | None


class Finding(NamedTuple):
    """What was measured, in words, and whether the paper's sentence holds; None: undecided."""

    measured: str
    agrees: bool | None


class Check(NamedTuple, Generic[Evidence]):
    """A sentence of the paper, and how to check it.

    Parameters
    ----------
    statement : the sentence
    paper : its figure, as printed
    needs : policies, and whatever else must have been measured
    find : from the evidence of the experiment to what was found
    exact : whether the paper's figure itself must come out, and not an order or a sign
    """

    statement: str
    paper: str
    needs: tuple[str, ...]
    find: Callable[[Evidence], Finding]
    exact: bool = False


def no_doubt(check: "Check[Evidence]") -> str:
    """Every check can be decided."""
    return ""


def check_claims(
    checks: Iterable["Check[Evidence]"],
    evidence: Evidence,
    have: Collection[str],
    *,
    doubt: Callable[["Check[Evidence]"], str] = no_doubt,
) -> list[Claim]:
    """Every check against the evidence, in the order given.

    Parameters
    ----------
    evidence : asked only by checks that have all they need
    have : what was measured; a check that needs more stays undecided
    doubt : why a check cannot be decided by these measurements, "" if it can

    >>> lower = Check("a is below b", "1 < 2", ("a", "b"), lambda m: Finding(str(m), m[0] < m[1]))
    >>> [claim.agrees for claim in check_claims([lower], (3, 2), {"a", "b"})]
    [False]
    >>> check_claims([lower], (3, 2), {"a"})[0].measured
    'not measured: b'
    """
    claims = []
    for check in checks:
        if missing := [name for name in check.needs if name not in have]:
            finding = Finding(f"not measured: {', '.join(missing)}", None)
        else:
            finding = check.find(evidence)
            if why := doubt(check):
                finding = Finding(f"{finding.measured}; {why}", None)
        claims.append(Claim(check.statement, check.paper, *finding))
    return claims
