"""The check of a policy, on beliefs of every law."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2

from tsucb.beliefs import (
    Belief,
    BetaBelief,
    GammaBelief,
    GaussianBelief,
    JointGaussianBelief,
    LogitNormalBelief,
    SampleBelief,
)
from tsucb.numeric.arrays import Floats
from tsucb.policies.policy import Choice, Policy, choose
from tsucb.testing.demands import check, demand, near, rounded, same

CHOICES = 2_000
FALSE_ALARM = 1e-6


@check
def check_policy(
    policy: Any, beliefs: Sequence[Belief] | None = None, *, fair_ties: bool = True
) -> None:
    """Check a policy on beliefs of every law, compiled or in plain Python.

    1. It has a printable name.
    2. It plays an arm of the belief, also if there is only one, and gives its reason, a float.
    3. All of its randomness is from `rng`: the same stream gives the same choice.
    4. It does not change the belief.
    5. It breaks ties uniformly (a χ² test that fails a correct policy once in a million).
    6. If it derives from `Policy`: its `probabilities` are not negative and sum to one; where
       `is_exact` says that they come from a formula, it plays the arms with these frequencies.

    Parameters
    ----------
    policy
        Any object with `choose(belief, rng)`.
    beliefs
        Each about four arms or fewer; one of every law of the package by default.
    fair_ties
        False for a policy that prefers some arms on purpose.

    >>> import tsucb
    >>> check_policy(tsucb.Greedy())
    """
    name = getattr(policy, "name", type(policy).__name__)
    demand(
        isinstance(name, str) and name.strip() and name.isprintable(),
        f"the name of {type(policy).__name__} is {name!r}; it must be printable",
    )
    given = example_beliefs() if beliefs is None else list(beliefs)
    for belief in given:
        check_choices(policy, belief)
    single = GaussianBelief([0.1], [1.0], pulls=[1], step=17)
    demand(
        choice_of(policy, single, 0).arm == 0,
        f"{name} does not play the only arm of a belief about one",
    )
    if fair_ties:
        check_ties(policy, name)
    if isinstance(policy, Policy):
        sampled = False  # for probabilities that are counted, one law is enough
        for belief in given:
            exact = policy.is_exact(belief)
            if exact or not sampled:
                check_probabilities(policy, belief, exact)
            sampled = sampled or not exact


def example_beliefs() -> list[Belief]:
    """Return a belief of every law of the package, about four arms each."""
    mean, std = [0.1, 0.2, 0.3, -0.5], [1.0, 0.5, 0.1, 0.8]
    factor = [[1.0, 0.0], [0.5, 0.5], [0.1, -0.3], [0.0, 1.0]]
    draws = np.random.default_rng(0).normal(mean, std, size=(500, 4))
    evidence: dict[str, Any] = {"pulls": [1, 4, 9, 2], "step": 17}
    return [
        BetaBelief([1.0, 3.0, 2.0, 5.0], [2.0, 1.5, 2.0, 9.0], **evidence),
        GammaBelief([1.0, 3.0, 2.0, 6.0], [1.0, 2.0, 2.0, 9.0], **evidence),
        GaussianBelief(mean, std, **evidence),
        JointGaussianBelief(mean, factor, **evidence),
        LogitNormalBelief([-2.0, 0.5, -0.5, -3.0], [1.0, 0.5, 0.1, 2.0], **evidence),
        SampleBelief(draws, **evidence),
    ]


def choice_of(policy: Any, belief: Belief, seed: int) -> Choice:
    """Return what the policy chooses on a new stream."""
    return choose(policy, belief, np.random.default_rng(seed))


def check_choices(policy: Any, belief: Belief) -> None:
    """Check that choices are arms of the belief, with reasons, and repeatable."""
    what = f"{type(policy).__name__} on a belief of law {type(belief.law).__name__}"
    before = copy.deepcopy(belief)
    for seed in range(20):
        choice = choice_of(policy, belief, seed)
        demand(
            isinstance(choice, Choice) and 0 <= choice.arm < belief.mean.size,
            f"{what} returns {choice!r}, which is no arm of the {belief.mean.size}",
        )
        demand(
            isinstance(choice.target, float),
            f"{what} gives the reason {choice.target!r}; it must be a float, NaN for none",
        )
    first, second = ([choice_of(policy, belief, seed) for seed in range(5)] for _ in range(2))
    demand(
        np.array_equal(first, second, equal_nan=True),
        f"{what} chooses differently on the same stream; take all randomness from rng",
    )
    demand(same(before, belief), f"{what} changes the belief; copy before writing")


def counts_of(policy: Any, belief: Belief) -> Floats:
    """Return how often each arm is chosen in CHOICES choices, always on the same stream."""
    rng, counts = np.random.default_rng(1), np.zeros(belief.mean.size)
    for _ in range(CHOICES):
        counts[choose(policy, belief, rng).arm] += 1
    return counts


def check_ties(policy: Any, name: str) -> None:
    """Check that four equal arms are played equally often."""
    belief = GaussianBelief([1.0] * 4, [0.5] * 4, pulls=[5] * 4, step=21)
    counts, expected = counts_of(policy, belief), CHOICES / 4
    statistic = ((counts - expected) ** 2 / expected).sum()
    demand(
        statistic <= chi2.isf(FALSE_ALARM, 3),
        f"{name} plays four equal arms {counts.astype(int).tolist()} times; ties must be broken "
        "uniformly, as tsucb.policies.policy.choose_largest does",
    )


def check_probabilities(policy: Policy, belief: Belief, exact: bool) -> None:
    """Check that probabilities sum to one, and exact ones against the frequencies of choices."""
    what = f"{type(policy).__name__} on a belief of law {type(belief.law).__name__}"
    found = policy.probabilities(belief, repetitions=CHOICES)
    demand(
        found.shape == belief.mean.shape and (found >= 0).all() and abs(found.sum() - 1) < 1e-9,
        f"the probabilities of {what} are {rounded(found)}; they must sum to one",
    )
    if exact:
        frequency = counts_of(policy, belief) / CHOICES
        error = np.sqrt(np.clip(found * (1 - found), 0, None)) + np.sqrt(1 / CHOICES) * (found > 0)
        demand(
            near(frequency, found, error, CHOICES),
            f"{what} plays its arms with frequencies {rounded(frequency)}, but its probabilities "
            f"are {rounded(found)}",
        )
