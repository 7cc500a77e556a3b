"""What every policy shares: a name, a rule, and fair ties."""

import math
from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.checks import whole_number
from tsucb.compiled import compiled, generic, generic_inlined, implementations, inlined
from tsucb.numeric.arrays import Floats


@generic_inlined
def choose(policy: Any, belief: Any, rng: np.random.Generator) -> int:
    """The arm that the policy plays, as an index into the arms of the belief."""
    return int(policy.choose(belief, rng))


@generic
def probabilities(policy: Any, belief: Any) -> Floats:
    """The probability with which the policy plays each arm, where there is a formula for it."""
    return np.asarray(policy.probabilities(belief))


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

    def is_exact(self, belief: Belief) -> bool:
        """Whether `probabilities(belief)` is computed by a formula, not from repeated choices."""
        return type(self) in implementations(probabilities)

    def probabilities(
        self, belief: Belief, rng: np.random.Generator | None = None, repetitions: int = 10_000
    ) -> Floats:
        """The probability with which `choose` plays each arm; they sum to one.

        By a formula where there is one. There is none for sampling from jointly normal arms, nor
        for IDS with finitely many samples: then these are the frequencies of `repetitions`
        choices, with one more choice spread evenly so that no arm has probability zero.
        `is_exact` tells which.

        Parameters
        ----------
        belief
            From a model or made by hand.
        rng, repetitions
            For the frequencies; by default every call repeats the same stream.

        >>> import tsucb
        >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.0, 1.0], std=[1.0, 1.0, 0.0])
        >>> tsucb.Thompson().probabilities(belief).round(4)
        array([0.1461, 0.1461, 0.7079])
        """
        if self.is_exact(belief):
            return np.asarray(_probabilities(self, belief))
        stream = np.random.default_rng(0) if rng is None else rng
        loop = _counts if type(self) in implementations(choose) else _counts.py_func  # type: ignore[attr-defined]
        counts: Floats = loop(self, belief, stream, repetitions)
        return (counts + 1 / counts.size) / (repetitions + 1)

    def __str__(self) -> str:
        return self.name


@compiled
def _choose(policy, belief, rng):  # type: ignore[no-untyped-def]
    return choose(policy, belief, rng)


@compiled
def _probabilities(policy, belief):  # type: ignore[no-untyped-def]
    return probabilities(policy, belief)


@compiled
def _counts(policy, belief, rng, repetitions):  # type: ignore[no-untyped-def]
    counts = np.zeros(belief.mean.size)
    for _ in range(repetitions):
        counts[choose(policy, belief, rng)] += 1.0
    return counts


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


@inlined
def tied(scores: Floats) -> Floats:
    """The probability with which `largest` returns each index."""
    best = scores == scores.max()
    shares: Floats = best / best.sum()
    return shares


def sample_count(value: float) -> float:
    """The number of posterior samples: a whole number, or `math.inf` for exact integrals."""
    return value if value == math.inf else whole_number("samples", value, least=1)
