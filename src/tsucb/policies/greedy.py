"""Greedy choice; and, for comparison, uniformly random choice."""

import numpy as np

from tsucb.checks import Switch
from tsucb.compiler import implements
from tsucb.numeric.arrays import full, place_of_largest
from tsucb.policies.policy import Choice, Policy, choose, choose_largest, probabilities, tie_shares


class Greedy(Policy):
    """Play the arm with the largest posterior mean, and never explore on purpose.

    Parameters
    ----------
    first
        Play the first of several equally good arms instead of one of them at random, as the
        paper's greedy policy does. It may then never try the others.

    >>> import numpy as np, tsucb
    >>> Greedy().choose(tsucb.GaussianBelief(mean=[0.1, 0.3], std=[9, 1]), np.random.default_rng(0))
    Choice(arm=1, target=0.3, favourite=1)
    """

    target_name = "largest mean"

    first: Switch = False

    @property
    def name(self) -> str:
        return "Greedy(first)" if self.first else "Greedy"


class Random(Policy):
    """Play every available arm with the same probability.

    >>> import numpy as np, tsucb
    >>> Random().choose(tsucb.GaussianBelief(mean=[0, 1], std=[1, 1]), np.random.default_rng(0)).arm
    1
    """


@implements(choose, Greedy)
def choose_greedy(policy, belief, rng):  # type: ignore[no-untyped-def]
    if not policy.first:
        return choose_largest(belief.mean, rng)
    arm = place_of_largest(belief.mean)
    return Choice(arm, belief.mean[arm], arm)


@implements(choose, Random)
def choose_random(policy, belief, rng):  # type: ignore[no-untyped-def]
    arm = int(rng.random() * belief.mean.size)
    return Choice(arm, np.nan, arm)


@implements(probabilities, Greedy)
def probabilities_greedy(policy, belief):  # type: ignore[no-untyped-def]
    if policy.first:
        chances = np.zeros(belief.mean.size)
        chances[place_of_largest(belief.mean)] = 1.0
        return chances
    return tie_shares(belief.mean, 1.0)


@implements(probabilities, Random)
def probabilities_random(policy, belief):  # type: ignore[no-untyped-def]
    return full(belief.mean.size, 1 / belief.mean.size)
