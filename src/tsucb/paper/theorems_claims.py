"""Theorems 1 and 2 and Lemma 1 of the paper, each beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pandas as pd
from scipy.special import betaincinv

from tsucb.paper.experiments.claims import Check, Claim, Finding, Rule, Verdict, check_claims

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


def capitalise(name: str) -> str:
    """Return the name with a capital at its beginning, and the others that it has.

    >>> capitalise("lemma 1, K-armed")
    'Lemma 1, K-armed'
    """
    return name[:1].upper() + name[1:]


def all_below(low: pd.Series, high: pd.Series, bound: pd.Series) -> Verdict:
    """Return yes if all intervals lie below their bounds, no if one lies above, else None."""
    return True if (high <= bound).all() else False if (low > bound).any() else None


def below_the_bound(theorem: str, policy: str, e: Evidence) -> Finding:
    """Check the regret of a policy against the bound at every horizon."""
    here = e.summary[(e.summary.experiment == theorem) & (e.summary.policy == policy)]
    percent = float((100 * here.ci95_high / here.bound).max())
    verdict = all_below(here.ci95_low, here.ci95_high, here.bound)
    return Finding(f"at most {percent:.1f} % of it (upper end of 95 %)", verdict)


def exponents_of_ours(theorem: str, e: Evidence) -> pd.DataFrame:
    """Return the growth exponents of TS-UCB, the one farthest above its bound first."""
    table = e.exponents[e.exponents.experiment == theorem]
    ours = table[table.policy.str.startswith(OURS)]
    above = ours.exponent - ours.exponent_of_bound
    return ours.loc[above.sort_values(ascending=False, kind="stable").index]


def grows_no_faster(theorem: str, e: Evidence) -> Finding:
    """Check the growth exponents of TS-UCB against those of the bound."""
    ours = exponents_of_ours(theorem, e)
    worst = ours.iloc[0]
    verdict = all_below(ours.ci95_low, ours.ci95_high, ours.exponent_of_bound)
    text = (
        f"largest {worst.exponent:.2f}, 95 % interval {worst.ci95_low:.2f} to "
        f"{worst.ci95_high:.2f} ({worst.policy}, {worst.setting})"
    )
    if e.horizon < LONG and verdict is False:
        return Finding(f"{text}; too short a horizon to tell", None)
    return Finding(text, verdict)


def rarely_escapes(lemma: str, side: str, e: Evidence) -> Finding:
    """Check how often a mean was outside its bounds against T⁻³."""
    here = e.escapes[(e.escapes.lemma == lemma) & (e.escapes.side == side)]
    count, n = here.escapes.clip(lower=1), here.replications
    low = betaincinv(count, n - count + 1, 0.05).where(here.escapes > 0, 0.0)  # Clopper, Pearson
    longest = here.iloc[-1]
    return Finding(
        f"{longest.escapes} of {longest.replications:,} runs, so at most "
        f"{longest.upper95:.1e}; the farthest was {longest.closest:.2f} radii away",
        all_below(low, here.upper95, here.bound),
    )


def checks(e: Evidence, policies: Sequence[str]) -> list[Check[Evidence]]:
    """Return the statements about the policies measured, and those about any policy."""
    ours = [policy for policy in policies if policy.startswith(OURS)]
    found: list[Check[Evidence]] = []
    for theorem, form in FORMS.items():
        if theorem not in set(e.summary.experiment):
            continue
        words = "the 95 % interval is below the bound at every horizon"
        found += [
            Check(
                f"{capitalise(theorem)}: the Bayes regret of {policy} is below the bound at every "
                "horizon",
                "below 100 % of it",
                Rule(words, (policy,), partial(below_the_bound, theorem, policy)),
            )
            for policy in ours
        ]
        bound = e.exponents[e.exponents.experiment == theorem].exponent_of_bound
        exponent = exponents_of_ours(theorem, e).exponent_of_bound.iloc[0] if ours else bound.max()
        words = "every 95 % interval of an exponent is below that of the bound"
        found.append(
            Check(
                f"{capitalise(theorem)}: the regret of TS-UCB grows no faster than {form}",
                f"T to the power {exponent:.2f} in the last decade",
                Rule(words, (ANY_OF_OURS,), partial(grows_no_faster, theorem)),
            )
        )
    for lemma in LEMMAS:
        for side, sign in (("above", "U"), ("below", "L")):
            T, words = e.escapes.horizon.max(), "the 95 % upper bound is at most T⁻³ for every T"
            found.append(
                Check(
                    f"{capitalise(lemma)}: a mean lies {side} its bound {sign}(A) with probability "
                    "at most T⁻³",
                    f"{float(T) ** -3:.1e} at T = {T}",
                    Rule(words, (), partial(rarely_escapes, lemma, side)),
                )
            )
    return found


def section_3(e: Evidence, policies: Sequence[str]) -> list[Claim]:
    """Return every statement of Section 3 that these numbers can check."""
    have = {*policies}
    if any(policy.startswith(OURS) for policy in policies):
        have.add(ANY_OF_OURS)
    return check_claims(checks(e, policies), e, have)
