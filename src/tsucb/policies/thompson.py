"""Thompson sampling."""

from typing import NamedTuple

import numpy as np

from tsucb.beliefs.best import best_probabilities
from tsucb.beliefs.law import draw
from tsucb.compiled import implements, offers
from tsucb.policies.policy import Policy, choose, largest, probabilities


class Thompson(Policy, NamedTuple("Thompson", [])):
    """Play the arm that is best in one draw from the posterior.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 5.0], std=[0.1, 0.1])
    >>> Thompson().choose(belief, np.random.default_rng(0)).arm
    1

    Reference: Thompson (1933), "On the likelihood that one unknown probability exceeds another".
    """

    __slots__ = ()

    target_name = "largest draw"

    @property
    def name(self) -> str:
        return "TS"

    def needs_of(self, law: type) -> bool:
        return offers(best_probabilities, law)


@implements(choose, Thompson)
def choose_thompson(policy, belief, rng):  # type: ignore[no-untyped-def]
    means = np.empty(belief.mean.size)
    draw(belief, rng, means)
    return largest(means, rng)


@implements(probabilities, Thompson)
def probabilities_thompson(policy, belief):  # type: ignore[no-untyped-def]
    return best_probabilities(belief)
