"""Boxes: a range for every feature."""

import math
from typing import Any

import numpy as np

from tsucb.checks import floats, within
from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import copy_to, inner
from tsucb.sets.arm_set import bound_at, optimistic, support
from tsucb.sets.corners import Cornered

# Up to this many features UCB and TS-UCB look at all 2ᵈ corners: 65,536 in less than 2 ms. Beyond,
# they climb: the problem is NP-hard, as it contains maximum cut.
MOST_ENUMERATED = 16


class Box(Cornered):
    """All vectors with low ≤ a ≤ high, entry by entry.

    With up to 16 features all policies find their arm exactly. With more, `OFUL`, `ChiSquaredUCB`,
    `BayesUCB`, and `TSUCB` where f̃ exceeds every estimate, play a corner that no change of a single
    entry improves, the best of 2d + 1 climbs; Thompson sampling and greedy stay exact.

    Parameters
    ----------
    low, high
        The ends of every feature's range (d,).

    >>> import numpy as np
    >>> from tsucb.sets.arm_set import support
    >>> arm = np.empty(2)
    >>> support(Box(low=[0.0, 0.0], high=[1.0, 5.0]), np.array([1.0, -1.0]), arm), arm
    (1.0, array([1., 0.]))
    """

    low: Any
    high: Any

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Turn the ends into vectors; raise ValueError if they do not make a box."""
        ends = [floats(name, values[name]) for name in ("low", "high")]
        if ends[0].ndim != 1 or ends[0].size == 0 or ends[0].shape != ends[1].shape:
            raise ValueError(
                "low and high must be vectors of the same length, one entry per feature, but their "
                f"shapes are {ends[0].shape} and {ends[1].shape}"
            )
        if not within(ends[0]) or not within(ends[1]) or not (ends[0] <= ends[1]).all():
            raise ValueError("low and high must be finite, and no entry of low above that of high")
        values["low"], values["high"] = ends

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.low.size)


@implements(support, Box)
def support_box(arms, direction, point):  # type: ignore[no-untyped-def]
    value = 0.0
    for i in range(point.size):
        point[i] = arms.high[i] if direction[i] > 0.0 else arms.low[i]
        value += direction[i] * point[i]
    return value


@implements(optimistic, Box)
def optimistic_box(arms, mean, root, alpha, point):  # type: ignore[no-untyped-def]
    if point.size <= MOST_ENUMERATED:
        return best_corner(arms, mean, root, alpha, point)
    return climb(arms, mean, root, alpha, point)


@compiled
def best_corner(arms, mean, root, alpha, point):  # type: ignore[no-untyped-def]
    """Return the best value of all corners, listed in Gray code: one entry changes at a time."""
    d = point.size
    seen = np.zeros(d)  # rootᵀ · corner
    for i in range(d):
        point[i] = arms.low[i]
        for k in range(d):
            seen[k] += root[i, k] * point[i]
    expected = inner(mean, point)
    code, chosen = 0, 0
    best = expected + alpha * math.sqrt(inner(seen, seen))
    for n in range(1, 2**d):
        i, rest = 0, n
        while rest & 1 == 0:
            rest >>= 1
            i += 1
        code ^= 1 << i
        step = arms.high[i] - arms.low[i]
        if code & (1 << i) == 0:
            step = -step
        expected += step * mean[i]
        square = 0.0
        for k in range(d):
            seen[k] += step * root[i, k]
            square += seen[k] * seen[k]
        value = expected + alpha * math.sqrt(square)
        if value > best:
            best, chosen = value, code
    for i in range(d):
        point[i] = arms.high[i] if chosen & (1 << i) else arms.low[i]
    return bound_at(mean, root, alpha, point)


@compiled
def climb(arms, mean, root, alpha, point):  # type: ignore[no-untyped-def]
    """Return the best value of 2d + 1 climbs, from the supports of mean and mean ± α · column.

    The columns are those of the root.
    """
    d = point.size
    corner, direction = np.empty(d), np.empty(d)
    best = -np.inf
    for start in range(2 * d + 1):
        sign = 1.0 if start <= d else -1.0
        column = start if start <= d else start - d
        for i in range(d):
            direction[i] = mean[i]
            if column > 0:
                direction[i] += sign * alpha * root[i, column - 1]
        support(arms, direction, corner)
        value = climb_from(arms, mean, root, alpha, corner)
        if value > best:
            best = value
            copy_to(point, corner)
    return best


@compiled
def climb_from(arms, mean, root, alpha, corner):  # type: ignore[no-untyped-def]
    """Change the entry that gains most, until none gains; return the value reached."""
    d = corner.size
    value = bound_at(mean, root, alpha, corner)
    while True:
        entry, reached = -1, value + 1e-14 * abs(value)
        for i in range(d):
            before = corner[i]
            corner[i] = other_end(arms, i, before)
            trial = bound_at(mean, root, alpha, corner)
            corner[i] = before
            if trial > reached:
                entry, reached = i, trial
        if entry < 0:
            return value
        corner[entry] = other_end(arms, entry, corner[entry])
        value = reached


@compiled
def other_end(arms, i, end):  # type: ignore[no-untyped-def]
    """Return the other end of the range of feature i."""
    return arms.low[i] if end == arms.high[i] else arms.high[i]
