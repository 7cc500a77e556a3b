"""What every set of infinitely many arms implements: the features of an arm, and three searches.

An arm is a point of a compact set. It pays ⟨θ, a⟩ plus noise, where a are its features: the point
itself or, on a curve, a function of it. With μ an estimate of θ and S a root of its uncertainty
SSᵀ, so that ‖a‖ = |Sᵀa| is the radius of the arm's interval:

| search | finds the arm with | needed by |
|---|---|---|
| `support(arms, direction, point)` | the largest ⟨direction, a⟩ | Thompson sampling, greedy, f̃ |
| `optimistic(arms, mean, root, alpha, point)` | the largest ⟨μ, a⟩ + α ‖a‖, α ≥ 0 | UCB |
| `least_ratio(arms, mean, root, f, point)` | the smallest (f − ⟨μ, a⟩) / ‖a‖ | TS-UCB |

The last two are related: the smallest ratio is the smallest α at which the largest ⟨μ, a⟩ + α ‖a‖
reaches f, and the same arm attains both. Each search puts the arm into `point` and returns the
value.
"""

import math
from typing import Any

from tsucb.compiler import compiled, hook, implements
from tsucb.numeric.arrays import Floats, copy_to, inner
from tsucb.record import Record


class ArmSet(Record):
    """A compact set of arms."""

    @property
    def dimension(self) -> int:
        """d, the number of features of an arm."""
        raise NotImplementedError(f"{type(self).__name__} must have a property dimension")

    @property
    def coordinates(self) -> int:
        """The length of a point: that of its features, except on a curve."""
        return self.dimension


@hook
def features(arms: Any, point: Floats, out: Floats) -> None:
    """Fill `out` with the features of an arm."""


@hook
def support(arms: Any, direction: Floats, point: Floats) -> float:
    """Return the largest ⟨direction, a⟩."""


@hook
def optimistic(arms: Any, mean: Floats, root: Floats, alpha: float, point: Floats) -> float:
    """Return the largest ⟨mean, a⟩ + alpha · |rootᵀ a|, for alpha ≥ 0."""


@hook
def least_ratio(arms: Any, mean: Floats, root: Floats, f: float, point: Floats) -> float:
    """Return the smallest (f − ⟨mean, a⟩) / |rootᵀ a|."""


@implements(features, ArmSet)
def features_are_the_point(arms, point, out):  # type: ignore[no-untyped-def]
    copy_to(out, point)


@compiled
def radius(root, arm):  # type: ignore[no-untyped-def]
    """Return |rootᵀ arm|."""
    square = 0.0
    for j in range(root.shape[1]):
        component = 0.0
        for i in range(arm.size):
            component += root[i, j] * arm[i]
        square += component * component
    return math.sqrt(square)


@compiled
def bound_at(mean, root, alpha, arm):  # type: ignore[no-untyped-def]
    """Return ⟨mean, arm⟩ + alpha · |rootᵀ arm|."""
    value = inner(mean, arm)
    if alpha > 0.0:
        value += alpha * radius(root, arm)
    return value


@compiled
def ratio_at(mean, root, f, arm):  # type: ignore[no-untyped-def]
    """Return (f − ⟨mean, arm⟩) / |rootᵀ arm|; for a certain arm ∞, or −∞ if it reaches f."""
    lost, width = f - inner(mean, arm), radius(root, arm)
    if width == 0.0:
        return math.inf if lost > 0.0 else -math.inf
    return lost / width
