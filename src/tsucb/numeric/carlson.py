"""Carlson's rule: what an observation does to the triangular square root of a covariance.

With the root upper triangular, v = rootᵀx, and αⱼ = r + v₀² + … + vⱼ², of which the last, α, is
the noise variance r and the spread at x together, the root is multiplied by the triangular root of
I − v vᵀ/α:

    rootᵢⱼ ← rootᵢⱼ √(αⱼ₋₁/αⱼ) − (rootᵢ₀v₀ + … + rootᵢⱼ₋₁vⱼ₋₁) vⱼ / √(αⱼ₋₁αⱼ)

Along a row each entry waits for the sum of those before it, so rows are what vector instructions
go over: four by four numbers are loaded, transposed in registers, and so put back.

Reference: Carlson (1973), "Fast triangular formulation of the square root filter".
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tsucb.compiler import compiled
from tsucb.numeric.eights import FEW, FUSED, MOST_SHORT, ONE, plus_product, spread_out

# Rows of the room (5, d) for an update: v, √αⱼ, the factors of the rule, and root v.
V, DEVIATION, KEEP, TAKE, PRODUCT = range(5)
FOUR = ir.VectorType(ONE, 4)


@compiled
def set_factors(room, noise_variance):  # type: ignore[no-untyped-def]
    """From v, the factors of the rule for every column; root v is 0 yet. Returns the spread vᵀv."""
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
def absorb(root, begin, room):  # type: ignore[no-untyped-def]
    """The rule for the root that begins at a place of an array; the room takes root v as it was."""
    features = room.shape[1]
    head, flat = features % 4, root.reshape(-1)
    for i in range(head):
        row = begin + i * features
        for j in range(i, features):
            number = flat[row + j]
            flat[row + j] = number * room[KEEP, j] - room[PRODUCT, i] * room[TAKE, j]
            room[PRODUCT, i] += number * room[V, j]
    together = features if features <= MOST_SHORT else FEW
    for first in range(head, features, together):
        for j in range(first, features, 4):
            absorb_four(root, begin + j, room, j, first, min(first + together, j + 4))


@intrinsic
def absorb_four(_, root, place, room, j, first, stop):  # type: ignore[no-untyped-def]
    """The rule for columns j … j + 3, of which the first number is at a place, and some rows.

    What is below the diagonal is 0 and stays so.
    """

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        _, place, _, j, first, stop = arguments
        data = context.make_array(root)(context, builder, arguments[0]).data
        space = context.make_array(room)(context, builder, arguments[2])
        features, number = builder.extract_value(space.shape, 1), j.type

        def plus(*numbers: Any) -> Any:
            total, *rest = numbers
            for more in rest:
                total = builder.add(total, more)
            return total

        def at(row: int, column: Any) -> Any:
            return builder.gep(space.data, [plus(builder.mul(features, number(row)), column)])

        def four(address: Any) -> Any:
            return builder.bitcast(address, FOUR.as_pointer())

        v, keep, take = (
            [spread_out(builder, builder.load(at(row, plus(j, number(c)))), 4) for c in range(4)]
            for row in (V, KEEP, TAKE)
        )
        with cgutils.for_range_slice(builder, first, stop, number(4)) as (i, _):
            rows = [
                four(builder.gep(data, [plus(place, builder.mul(features, plus(i, number(r))))]))
                for r in range(4)
            ]
            columns = transposed(builder, [builder.load(row, align=8) for row in rows])
            products = four(at(PRODUCT, i))
            total = builder.load(products, align=8)
            for c, column in enumerate(columns):
                kept = builder.fmul(column, keep[c], flags=FUSED)
                taken = builder.fmul(total, take[c], flags=FUSED)
                columns[c] = builder.fsub(kept, taken, flags=FUSED)
                total = plus_product(builder, total, column, v[c])
            builder.store(total, products, align=8)
            for row, numbers in zip(rows, transposed(builder, columns), strict=True):
                builder.store(numbers, row, align=8)
        return context.get_dummy_value()

    return types.void(root, types.intp, room, types.intp, types.intp, types.intp), code


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of four rows of four numbers."""

    def mixed(one: Any, other: Any, *places: int) -> Any:
        kind = ir.VectorType(ir.IntType(32), 4)
        return builder.shuffle_vector(one, other, ir.Constant(kind, places))

    a, b, c, d = rows
    even = mixed(a, b, 0, 4, 2, 6), mixed(c, d, 0, 4, 2, 6)
    odd = mixed(a, b, 1, 5, 3, 7), mixed(c, d, 1, 5, 3, 7)
    return [
        *(mixed(*pair, 0, 1, 4, 5) for pair in (even, odd)),
        *(mixed(*pair, 2, 3, 6, 7) for pair in (even, odd)),
    ]
