"""Theorems 1 and 2 and Lemma 1 of the paper, each beside what was measured."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tsucb.paper.experiments.claims import Check, Claim, Finding, check_claims

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

FORMS = {
    "theorem 1": "O(√(K T log T))",
    "theorem 2": "O(d log T √T)",
    "theorem 2, ball": "O(d log T √T)",
}
LEMMAS = ("lemma 1, K-armed", "lemma 1, linear")
LONG = 100_000  # before this step, regret may still be in its first, linear stretch
OURS = "TS-UCB"
ANY_OF_OURS = "TS-UCB with any number of samples"


class Evidence(NamedTuple):
    """The tables of the experiment, and its longest horizon."""

    summary: pd.DataFrame
    exponents: pd.DataFrame
    escapes: pd.DataFrame
    horizon: int


def titled(name: str) -> str:
    """The name with a capital at its beginning, and those it has.

    >>> titled("lemma 1, K-armed")
    'Lemma 1, K-armed'
    """
    return name[:1].upper() + name[1:]


def below_the_bound(theorem: str, policy: str, e: Evidence) -> Finding:
    here = e.summary[(e.summary.experiment == theorem) & (e.summary.policy == policy)]
    percent = float((100 * here.ci95_high / here.bound).max())
    return Finding(f"at most {percent:.1f} % of it (upper end of 95 %)", percent <= 100)


def steepest(theorem: str, e: Evidence) -> pd.Series:
    """The exponent of TS-UCB that is most above that of the bound."""
    ours = e.exponents[
        (e.exponents.experiment == theorem) & e.exponents.policy.str.startswith(OURS)
    ]
    return ours.iloc[int((ours.exponent - ours.exponent_of_bound).argmax())]


def grows_no_faster(theorem: str, e: Evidence) -> Finding:
    worst = steepest(theorem, e)
    slower = bool(worst.ci95_low <= worst.exponent_of_bound)
    text = (
        f"largest {worst.exponent:.2f}, 95 % interval {worst.ci95_low:.2f} to "
        f"{worst.ci95_high:.2f} ({worst.policy}, {worst.setting})"
    )
    if e.horizon < LONG and not slower:
        return Finding(f"{text}; too short a horizon to tell", None)
    return Finding(text, slower)


def rarely_escapes(lemma: str, side: str, e: Evidence) -> Finding:
    here = e.escapes[(e.escapes.lemma == lemma) & (e.escapes.side == side)]
    longest = here.iloc[-1]
    return Finding(
        f"{longest.escapes} of {longest.replications:,} runs, so at most "
        f"{longest.upper95:.1e}; the farthest was {longest.closest:.2f} radii away",
        bool((here.upper95 <= here.bound).all()),
    )


def checks(e: Evidence, policies: Sequence[str]) -> list[Check[Evidence]]:
    """The statements about the policies measured, and those about any policy."""
    ours = [policy for policy in policies if policy.startswith(OURS)]
    found: list[Check[Evidence]] = []
    for theorem, form in FORMS.items():
        if theorem not in set(e.summary.experiment):
            continue
        found += [
            Check(
                f"{titled(theorem)}: the Bayes regret of {policy} is below the bound at every "
                "horizon",
                "below 100 % of it",
                (policy,),
                partial(below_the_bound, theorem, policy),
            )
            for policy in ours
        ]
        bound = e.exponents[e.exponents.experiment == theorem].exponent_of_bound
        exponent = steepest(theorem, e).exponent_of_bound if ours else bound.max()
        found.append(
            Check(
                f"{titled(theorem)}: the regret of TS-UCB grows no faster than {form}",
                f"T to the power {exponent:.2f} in the last decade",
                (ANY_OF_OURS,),
                partial(grows_no_faster, theorem),
            )
        )
    for lemma in LEMMAS:
        for side, sign in (("above", "U"), ("below", "L")):
            T = e.escapes.horizon.max()
            found.append(
                Check(
                    f"{titled(lemma)}: a mean lies {side} its bound {sign}(A) with probability "
                    "at most T⁻³",
                    f"{float(T) ** -3:.1e} at T = {T}",
                    (),
                    partial(rarely_escapes, lemma, side),
                )
            )
    return found


def section_3(e: Evidence, policies: Sequence[str]) -> list[Claim]:
    """Every statement of Section 3 that these numbers can check."""
    have = {*policies}
    if any(policy.startswith(OURS) for policy in policies):
        have.add(ANY_OF_OURS)
    return check_claims(checks(e, policies), e, have)
