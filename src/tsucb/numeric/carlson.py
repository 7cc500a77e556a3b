"""Carlson's rule: update the triangular square root of a covariance by an observation.

Let the root be upper triangular, v = rootᵀx, and αⱼ = r + v₀² + … + vⱼ², with r the noise variance.
The last αⱼ is α, the variance of the observation. The root is multiplied by the triangular root of
I − v vᵀ/α:

    rootᵢⱼ ← rootᵢⱼ √(αⱼ₋₁/αⱼ) − (rootᵢ₀v₀ + … + rootᵢⱼ₋₁vⱼ₋₁) vⱼ / √(αⱼ₋₁αⱼ)

Along a row each entry needs the sum over those before it. So vector instructions work on four rows
at a time: they load four by four numbers, transpose them in registers, and store them back.

Reference: Carlson (1973), "Fast triangular formulation of the square root filter".
"""

import numpy as np

from tsucb.compiler import compiled
from tsucb.compiler.vectors import DEVIATION, KEEP, PRODUCT, TAKE, V, absorb_four

# Matrices with rows longer than MOST_SHORT are read FEW rows at a time, from left to right, so that
# the processor loads ahead. Going down their columns it would wait for each number, most of all
# where rows are a power of two apart.
MOST_SHORT, FEW = 255, 8


@compiled
def set_factors(room, noise_variance):  # type: ignore[no-untyped-def]
    """Write the factors of the rule for room[V] into the work array; return the spread vᵀv.

    Also set room[PRODUCT], in which `absorb` adds up root v, to 0.
    """
    features, spread = room.shape[1], 0.0
    for j in range(features):
        spread += room[V, j] * room[V, j]
        room[DEVIATION, j] = noise_variance + spread
    for j in range(features):
        room[DEVIATION, j] = np.sqrt(room[DEVIATION, j])
        room[PRODUCT, j] = 0.0
    before = np.sqrt(noise_variance)
    for j in range(features):
        after = room[DEVIATION, j]
        room[KEEP, j], room[TAKE, j] = before / after, room[V, j] / (before * after)
        before = after
    return spread


@compiled
def absorb(root, arm, room):  # type: ignore[no-untyped-def]
    """Apply the rule to root[arm]; write the old root times v into room[PRODUCT]."""
    features = room.shape[1]
    begin, head = arm * features * features, features % 4
    for i in range(head):
        for j in range(i, features):
            number = root[arm, i, j]
            root[arm, i, j] = number * room[KEEP, j] - room[PRODUCT, i] * room[TAKE, j]
            room[PRODUCT, i] += number * room[V, j]
    together = features if features <= MOST_SHORT else FEW
    for first in range(head, features, together):
        for j in range(first, features, 4):
            absorb_four(root, begin + j, room, j, first, min(first + together, j + 4))
