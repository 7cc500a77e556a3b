"""Thompson sampling."""

from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.best import best_probabilities, conceivable
from tsucb.beliefs.law import IndependentLaw, draw
from tsucb.compiler import class_of, implements, offers
from tsucb.numeric.arrays import Floats
from tsucb.policies.joint_probabilities import is_joint, thompson_shares
from tsucb.policies.policy import Policy, at_least_rarest, choose, choose_largest, probabilities


class Thompson(Policy):
    """Play the arm that is best in one draw from the posterior.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 5.0], std=[0.1, 0.1])
    >>> Thompson().choose(belief, np.random.default_rng(0)).arm
    1

    Reference: Thompson (1933), "On the likelihood that one unknown probability exceeds another".
    """

    printed_name = "TS"
    target_name = "largest draw"

    def has_formula(self, belief: Belief) -> bool:
        offered = offers(best_probabilities, type(belief.law))
        return offered and not belief.law.is_coarse(belief)

    def estimated(self, belief: Belief) -> tuple[Floats, Floats] | None:
        return thompson_shares(belief) if is_joint(belief) else None


@implements(choose, Thompson)
def choose_thompson(policy, belief, rng):  # type: ignore[no-untyped-def]
    means = np.empty(belief.mean.size)
    draw(belief, rng, means)
    return choose_largest(means, rng)


def independent(policy: Any, belief: Any) -> bool:
    """Return whether a belief of this Numba type has independent arms."""
    return issubclass(class_of(belief), IndependentLaw)


@implements(probabilities, Thompson, where=independent)
def probabilities_thompson(policy, belief):  # type: ignore[no-untyped-def]
    least, ends = conceivable(belief)
    return at_least_rarest(best_probabilities(belief), ends >= least)


@implements(probabilities, Thompson)
def probabilities_thompson_samples(policy, belief):  # type: ignore[no-untyped-def]
    return best_probabilities(belief)
