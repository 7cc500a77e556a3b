"""TS-UCB, the rule of Baek and Farias (2023)."""

import math
from typing import NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief, JointGaussianBelief
from tsucb.beliefs.best import best_mean
from tsucb.compiled import implements, inlined
from tsucb.policies.policy import Policy, choose, probabilities, sample_count
from tsucb.policies.ts_ucb_probabilities import ratio, ts_ucb_probabilities


class TSUCB(Policy, NamedTuple("TSUCB", [("samples", float)])):
    """Play the arm that minimises (f̃ − estimate) / radius.

    f̃ is the mean reward of the best arm, averaged over m draws from the posterior; the ratio
    Ψ(a) = (f̃ − μ̂(a)) / (U(a) − μ̂(a)) weighs what an arm is expected to lose against how
    uncertain it is. The factor by which a radius is scaled cancels, so there is nothing to tune.

    Parameters
    ----------
    samples
        m, the number of posterior draws in f̃; 1 costs what Thompson sampling costs, 100 is a
        little better. With `math.inf` f̃ is the exact expectation, an integral; for jointly
        normal arms, where there is no such integral, 10,000 draws.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.5], std=[1.0, 0.01])
    >>> TSUCB(samples=100).choose(belief, np.random.default_rng(0))
    0

    Reference: Baek and Farias (2023), "TS-UCB: Improving on Thompson Sampling With Little to No
    Additional Computation", Section 3, equation `eq:defratio1`.
    """

    __slots__ = ()

    def __new__(cls, samples: float = 100) -> "TSUCB":
        return super().__new__(cls, sample_count(samples))

    @property
    def name(self) -> str:
        return "TS-UCB(∞)" if self.samples == math.inf else f"TS-UCB({self.samples})"

    def is_exact(self, belief: Belief) -> bool:
        return not isinstance(belief, JointGaussianBelief)


@implements(choose, TSUCB)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    return least_ratio(belief, best_mean(belief, policy.samples, rng), rng)


@inlined
def least_ratio(belief, f, rng):  # type: ignore[no-untyped-def]
    """The arm with the smallest Ψ(a); each of several equal ones with the same probability."""
    estimate, radius = belief.estimate, belief.radius
    winner, lowest, ties = 0, np.inf, 0
    for a in range(estimate.size):
        psi = ratio(f, estimate[a], radius[a])
        if psi < lowest:
            winner, lowest, ties = a, psi, 1
        elif psi == lowest:
            ties += 1
            if rng.random() * ties < 1.0:
                winner = a
    return winner


@implements(probabilities, TSUCB)
def _(policy, belief):  # type: ignore[no-untyped-def]
    return ts_ucb_probabilities(belief, policy.samples)
