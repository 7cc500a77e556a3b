"""Thompson sampling."""

from typing import NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief, JointGaussianBelief, draw
from tsucb.beliefs.best import best_probabilities
from tsucb.compiled import implements
from tsucb.policies.policy import Policy, choose, largest, probabilities


class Thompson(Policy, NamedTuple("Thompson", [])):
    """Play the arm that is best in one draw from the posterior.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 5.0], std=[0.1, 0.1])
    >>> Thompson().choose(belief, np.random.default_rng(0))
    1

    Reference: Thompson (1933), "On the likelihood that one unknown probability exceeds another".
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        return "TS"

    def is_exact(self, belief: Belief) -> bool:
        return not isinstance(belief, JointGaussianBelief)


@implements(choose, Thompson)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    means = np.empty(belief.mean.size)
    draw(belief, rng, means)
    return largest(means, rng)


@implements(probabilities, Thompson)
def _(policy, belief):  # type: ignore[no-untyped-def]
    return best_probabilities(belief)
