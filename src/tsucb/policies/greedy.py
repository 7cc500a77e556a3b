"""Play what looks best now; and, for comparison, play anything."""

from typing import NamedTuple

import numpy as np

from tsucb.compiled import implements
from tsucb.policies.rule import Policy, choose, largest, probabilities, tied


class Greedy(Policy, NamedTuple("Greedy", [])):
    """Play the arm with the largest posterior mean, and never explore on purpose.

    >>> import numpy as np, tsucb
    >>> Greedy().choose(tsucb.GaussianBelief(mean=[0.1, 0.3], std=[9, 1]), np.random.default_rng(0))
    1
    """

    __slots__ = ()


class Random(Policy, NamedTuple("Random", [])):
    """Play every available arm with the same probability.

    >>> import numpy as np, tsucb
    >>> Random().choose(tsucb.GaussianBelief(mean=[0, 1], std=[1, 1]), np.random.default_rng(0))
    1
    """

    __slots__ = ()


@implements(choose, Greedy)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    return largest(belief.mean, rng)


@implements(choose, Random)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    return int(rng.random() * belief.mean.size)


@implements(probabilities, Greedy)
def _(policy, belief):  # type: ignore[no-untyped-def]
    return tied(belief.mean)


@implements(probabilities, Random)
def _(policy, belief):  # type: ignore[no-untyped-def]
    return np.full(belief.mean.size, 1 / belief.mean.size)
