"""Vector instructions for triangular matrices: eight numbers at a time.

LLVM vectorises a loop after it has proved or checked that reads and writes do not overlap, and runs
the rest of the loop one number at a time. For the rows of a triangle, which all have other lengths,
that takes as long as the whole square. So this module writes the instructions itself: eight numbers
are two registers of AVX2, or one of AVX-512.

Arrays are stored by rows (C order) and may have any shape; a place is an index into `array.flat`.
"""

import itertools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ONE = ir.DoubleType()
FOUR, EIGHT = ir.VectorType(ONE, 4), ir.VectorType(ONE, 8)
FUSED = ("contract",)  # a product and its sum may be one instruction
# Rows of the work array `room` (5, d) for an update of a root; see `tsucb.numeric.carlson`.
V, DEVIATION, KEEP, TAKE, PRODUCT = range(5)


def spread_out(builder: Any, number: Any, times: int = 8) -> Any:
    """Return a vector with the same number in every entry."""
    nothing = ir.Constant(ir.VectorType(number.type, times), ir.Undefined)
    first = ir.Constant(ir.IntType(32), 0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), times), None)
    one = builder.insert_element(nothing, number, first)
    return builder.shuffle_vector(one, nothing, everywhere)


def copying(rooted: bool) -> Any:
    """Return an intrinsic that copies eight numbers of an array; their square roots, if `rooted`.

    copy_eight(target, place, source, first) does target[place + l] = source[first + l] for l < 8.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def eight(n: int) -> Any:
            array = context.make_array(signature.args[n])(context, builder, arguments[n])
            return eight_at(builder, array.data, arguments[n + 1])

        numbers = builder.load(eight(2), align=8)
        if rooted:
            kind = ir.FunctionType(EIGHT, [EIGHT])
            root = cgutils.get_or_insert_function(builder.module, kind, "llvm.sqrt.v8f64")
            numbers = builder.call(root, [numbers])
        builder.store(numbers, eight(0), align=8)
        return context.get_dummy_value()

    def function(_, target, place, source, first):  # type: ignore[no-untyped-def]
        return types.void(target, types.intp, source, types.intp), code

    return intrinsic(function)


copy_eight, copy_roots = copying(False), copying(True)


TOGETHER = 4  # vectors multiplied at once, so that the matrix is read once for all of them


def multiplying(end: str, vectors: int, wide: int, rise: int = 0) -> Any:
    """Return an intrinsic that multiplies vectors by columns of a matrix.

    It stores the products if `end` is "put", adds them if "add", adds their squares if "square".

    put_products(sums, start, x, first, rows, count, matrix, place, stride) does

        sums[start + 8r + l] = Σ x[first + r · d + n] · matrix[place + rows[first + n] · stride + l]

    over n < count, for several vectors r of length d and eight columns l, or for one vector and
    several times eight columns (`wide`). Sums stay in registers. `rows` is None for 0, 1, 2, ….
    Each further block of eight columns sums `rise` rows more, up to all `rows`: 8 in a triangle.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays: list[Any] = [
            context.make_array(kind)(context, builder, value)
            if isinstance(kind, types.Array)
            else None
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        _, start, _, first, _, _, _, _, _ = arguments
        length = builder.extract_value(arrays[2].shape, signature.args[2].ndim - 1)
        starts = [builder.add(first, builder.mul(length, length.type(r))) for r in range(vectors)]

        def factor_at(place: Any) -> Any:
            kind, x = signature.args[2], arrays[2]
            address = (
                cgutils.get_item_pointer(context, builder, kind, x, [place])  # x may have strides
                if kind.ndim == 1
                else builder.gep(x.data, [place])
            )
            return spread_out(builder, builder.load(address))

        totals = sum_products(builder, arrays, arguments, starts, factor_at, wide, rise)
        for w, r in itertools.product(range(wide), range(vectors)):
            target = eight_at(builder, arrays[0].data, plus(builder, start, 8 * (w + r)))
            found = builder.load(totals[w][r])
            if end == "add":
                found = builder.fadd(builder.load(target, align=8), found)
            if end == "square":
                found = plus_product(builder, builder.load(target, align=8), found, found)
            builder.store(found, target, align=8)
        return context.get_dummy_value()

    # One parameter for each name in the formula above.
    def function(_, sums, start, x, first, rows, count, matrix, place, stride):  # type: ignore[no-untyped-def]
        number = types.intp
        return types.void(sums, number, x, number, rows, number, matrix, number, number), code

    return intrinsic(function)


def sum_products(
    builder: Any,
    arrays: list[Any],
    arguments: Any,
    starts: list[Any],
    factor_at: Callable[[Any], Any],
    wide: int,
    rise: int,
) -> list[list[Any]]:
    """Write the loop over n of `multiplying`; return the sums' addresses by columns and vector."""
    _, _, _, _, _, count, _, place, stride = arguments
    rows, matrix = arrays[4], arrays[6].data
    totals = [[cgutils.alloca_once(builder, EIGHT) for _ in starts] for _ in range(wide)]
    for total in itertools.chain(*totals):
        builder.store(ir.Constant(EIGHT, None), total)
    begin = count.type(0)
    for w in range(wide):
        with cgutils.for_range_slice(builder, begin, count, count.type(1)) as (n, _):
            places = [builder.add(start, n) for start in starts]
            row = n if rows is None else builder.load(builder.gep(rows.data, [places[0]]))
            where = builder.add(place, builder.mul(row, stride))
            factors = [factor_at(each) for each in places]
            for v in range(w, wide):
                column = eight_at(builder, matrix, plus(builder, where, 8 * v))
                numbers = builder.load(column, align=8)
                for total, factor in zip(totals[v], factors, strict=True):
                    more = plus_product(builder, builder.load(total), factor, numbers)
                    builder.store(more, total)
        if not rise:
            break
        begin, count = count, plus(builder, count, rise)
        if rows is not None:
            most = builder.extract_value(rows.shape, 0)
            count = builder.select(builder.icmp_signed("<", count, most), count, most)
    return totals


def eight_at(builder: Any, data: Any, place: Any) -> Any:
    """Return the address of a place, as a pointer to eight numbers."""
    return builder.bitcast(builder.gep(data, [place]), EIGHT.as_pointer())


def plus(builder: Any, place: Any, more: int) -> Any:
    """Return place + more."""
    return builder.add(place, place.type(more))


def plus_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    """Return total + one · other."""
    return builder.fadd(total, builder.fmul(one, other, flags=FUSED), flags=FUSED)


put_products, add_squares = (multiplying(end, TOGETHER, 1) for end in ("put", "square"))
put_eight, add_eight_squares = (multiplying(end, 1, 1) for end in ("put", "square"))
put_thirty_two, add_thirty_two, add_thirty_two_squares = (
    multiplying(end, 1, 4) for end in ("put", "add", "square")
)
put_sixteen = multiplying("put", 1, 2, rise=8)  # for triangles


@intrinsic
def absorb_four(_, root, place, room, j, first, stop):  # type: ignore[no-untyped-def]
    """Update columns j to j + 3 of rows `first` to `stop` − 1 of a root by Carlson's rule.

    `place` is the place of row 0, column j. Numbers below the diagonal are 0 and stay 0.
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
    """Return the four columns of a matrix, given its four rows."""

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
