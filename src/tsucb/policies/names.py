"""The names of policies on the command line and in results."""

import math
import re
from collections.abc import Callable
from typing import Any

from tsucb.checks import shown
from tsucb.policies.exploring import Exploring
from tsucb.policies.greedy import Greedy, Random
from tsucb.policies.ids import IDS, GridIDS
from tsucb.policies.policy import Policy, can_choose
from tsucb.policies.thompson import Thompson
from tsucb.policies.ts_ucb import TSUCB
from tsucb.policies.ucb import OFUL, ChiSquaredUCB, HoeffdingUCB

SAMPLED: dict[str, Callable[[float], Policy]] = {
    "TS-UCB": TSUCB,
    "IDS": IDS,
    "IDS-grid": GridIDS,
}
PLAIN = {policy.name: policy for policy in (Thompson(), Greedy(), Greedy(first=True), Random())}
MOST_SAMPLES = 10_000_000  # in a name
FIRST = Greedy(first=True).name


def named_policy(name: str, **special: Policy) -> Policy:
    """Return the policy of a printed name: TS, Greedy, TS-UCB(m), … or one of `special`.

    Parameters
    ----------
    name : as printed, such as "TS-UCB(100)"
    special : policies of further names, such as `UCB=OFUL(delta=0.01)`

    >>> named_policy("TS-UCB(100)").name
    'TS-UCB(100)'
    >>> named_policy("TS+2.5%")
    Exploring(policy=Thompson(), epsilon=0.025)
    """
    if name in special:
        return special[name]
    if match := re.fullmatch(r"(.+)\+([0-9.]{1,12})%", name):
        try:
            share = float(match[2]) / 100
        except ValueError:
            raise ValueError(f"{match[2]!r} is no percentage; write {match[1]}+5%") from None
        return Exploring(named_policy(match[1], **special), share)
    if name in PLAIN:
        return PLAIN[name]
    if match := re.fullmatch(rf"({'|'.join(SAMPLED)})\(([0-9]+|∞)\)", name):
        kind, number = match.groups()
        if number == "∞":
            return SAMPLED[kind](math.inf)
        samples = int(number[:9])  # which is too many digits already
        if not 1 <= samples <= MOST_SAMPLES:
            raise ValueError(
                f"the samples of {kind} must be at least 1 and at most {MOST_SAMPLES:,}, or ∞ for "
                f"the limit of many, but they are {shown(number)}"
            )
        return SAMPLED[kind](samples)
    known = ", ".join([*(f"{kind}(m)" for kind in SAMPLED), *PLAIN, *special])
    raise ValueError(
        f"unknown policy {shown(name)}; give one of {known}, m being a number of samples or ∞; "
        "any of them with +5% plays a random arm in 5 % of the decisions"
    )


def samples_of(name: str) -> int:
    """Return the number of samples in a policy's name, 1 where there is none.

    >>> samples_of("IDS(1000)"), samples_of("TS-UCB(∞)"), samples_of("Greedy(first)")
    (1000, 1, 1)
    """
    match = re.search(r"\(([0-9]+)\)", name)
    return int(match[1]) if match else 1


def check_policy(policy: Any, name: str = "policy") -> Any:
    """Return the policy given, or of this printed name; raise TypeError for anything else.

    >>> check_policy("TS-UCB(10)")
    TSUCB(samples=10)
    """
    if isinstance(policy, str):
        return named_policy(policy)
    return can_choose(name, policy)


def usual_ucb(model: Any, horizon: int) -> Policy:
    """Return the policy that the paper calls UCB for this kind of model.

    `HoeffdingUCB` for arms without features, `OFUL` for linear models that know their noise, and
    `ChiSquaredUCB` for those that learn it. `Forgetting` has the bound of the model inside.
    """
    model = getattr(model, "model", model)
    if not hasattr(model, "features"):
        return HoeffdingUCB(horizon)
    return OFUL() if hasattr(model, "noise") else ChiSquaredUCB()
