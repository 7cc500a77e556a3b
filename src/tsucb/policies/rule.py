"""What every policy shares: a name, a rule, and fair ties."""

from typing import Any

import numpy as np

from tsucb.belief import Belief, Floats
from tsucb.compiled import compiled, generic, inlined


@generic
def choose(policy: Any, belief: Any, rng: np.random.Generator) -> int:
    """The arm that the policy plays, as an index into the arms of the belief."""
    return int(policy.choose(belief, rng))


class Policy:
    """A rule that turns a belief into an arm.

    A policy holds hyper-parameters only: whatever was learned is in the belief, whatever is
    random comes from `rng`. Ties are broken uniformly at random.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name the paper prints."""
        return type(self).__name__

    def choose(self, belief: Belief, rng: np.random.Generator) -> int:
        """The arm to play, as an index into the arms of the belief."""
        return int(_choose(self, belief, rng))

    def __str__(self) -> str:
        return self.name


@compiled
def _choose(policy, belief, rng):  # type: ignore[no-untyped-def]
    return choose(policy, belief, rng)


@inlined
def largest(scores: Floats, rng: np.random.Generator) -> int:
    """The index of the largest score; each of several equal ones with the same probability."""
    winner = 0
    ties = 1
    for a in range(1, scores.size):
        if scores[a] > scores[winner]:
            winner = a
            ties = 1
        elif scores[a] == scores[winner]:
            ties += 1
            if rng.random() * ties < 1.0:
                winner = a
    return winner


def whole_number(name: str, value: float, least: int) -> int:
    """The value as an integer of at least `least`, or a sentence on what is wrong."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, but it is {value!r}")
    return int(value)
