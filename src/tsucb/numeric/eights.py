"""Eight numbers at a time, for compiled code that goes through triangular matrices.

A compiler makes vector instructions of a loop if it can prove that what is written is not what is
read, or checks it before each loop; and what is left over at the end it does one by one. For the
rows of a triangle, each of another length, that takes as long as to go through the whole square.
So here the instructions are spelled out: eight numbers are two registers of AVX2, one of AVX-512.

Arrays are stored by rows, and may have any shape; places in them are counted from the very first
entry, as in `array.flat`.
"""

import itertools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tsucb.compiler import compiled

ONE = ir.DoubleType()
EIGHT = ir.VectorType(ONE, 8)
FUSED = ("contract",)  # a product and its sum may be one instruction


def spread_out(builder: Any, number: Any, times: int = 8) -> Any:
    """Several times the same number, of any kind."""
    nothing = ir.Constant(ir.VectorType(number.type, times), ir.Undefined)
    first = ir.Constant(ir.IntType(32), 0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), times), None)
    one = builder.insert_element(nothing, number, first)
    return builder.shuffle_vector(one, nothing, everywhere)


def copying(rooted: bool) -> Any:
    """What writes eight numbers of an array into another, or their square roots.

    copy_eight(target, place, source, first) does target[place + l] = source[first + l], l < 8.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def eight(n: int) -> Any:
            array = context.make_array(signature.args[n])(context, builder, arguments[n])
            where = builder.gep(array.data, [arguments[n + 1]])
            return builder.bitcast(where, EIGHT.as_pointer())

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


@intrinsic
def fetch(_, array, place):  # type: ignore[no-untyped-def]
    """Have the processor get what lies around a place of an array, which will be read soon.

    Beyond the end of the array that does nothing.
    """

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(array)(context, builder, arguments[0]).data
        whole = ir.IntType(32)
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        where = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [where, whole(0), whole(2), whole(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), code


# Matrices with longer rows are gone through a few rows at a time, from left to right, so that the
# processor sees what comes next. Down their columns each number would be waited for, above all
# where rows lie a power of two apart.
MOST_SHORT, FEW = 200, 8
TOGETHER = 4  # vectors that are multiplied at once, so that a matrix is read once for all of them


def multiplying(end: str, vectors: int, wide: int, rise: int = 0) -> Any:
    """What multiplies vectors with columns of a matrix, and puts or adds that, or adds its squares.

    put_products(sums, start, x, first, rows, count, matrix, place, stride) does

        sums[start + 8r + l] = Σ x[first + r · d + n] · matrix[place + rows[n] · stride + l]

    with n < count, for several vectors r of length d, or for one and several eights of columns l.
    Products stay in registers until they are added up. The numbers of rows are None for 0, 1, 2, …;
    each further eight of columns has `rise` rows more, if there are as many: 8 in a triangle.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(n: int) -> Any:
            return context.make_array(signature.args[n])(context, builder, arguments[n])

        def eight(data: Any, where: Any) -> Any:
            return builder.bitcast(builder.gep(data, [where]), EIGHT.as_pointer())

        def plus(place: Any, more: int) -> Any:
            return builder.add(place, place.type(more))

        def factor_at(place: Any) -> Any:
            kind = signature.args[2]
            address = (
                cgutils.get_item_pointer(context, builder, kind, x, [place])  # which may have gaps
                if kind.ndim == 1
                else builder.gep(x.data, [place])
            )
            return spread_out(builder, builder.load(address))

        _, start, _, first, _, count, _, place, stride = arguments
        numbered = isinstance(signature.args[4], types.Array)
        sums, x, matrix = array(0).data, array(2), array(6).data
        length = builder.extract_value(x.shape, signature.args[2].ndim - 1)
        starts = [builder.add(first, builder.mul(length, length.type(r))) for r in range(vectors)]
        totals = [[cgutils.alloca_once(builder, EIGHT) for _ in starts] for _ in range(wide)]
        for total in itertools.chain(*totals):
            builder.store(ir.Constant(EIGHT, None), total)
        begin = count.type(0)
        for w in range(wide):
            with cgutils.for_range_slice(builder, begin, count, count.type(1)) as (n, _):
                row = builder.load(builder.gep(array(4).data, [n])) if numbered else n
                where = builder.add(place, builder.mul(row, stride))
                factors = [factor_at(builder.add(r, n)) for r in starts]
                for v in range(w, wide):
                    numbers = builder.load(eight(matrix, plus(where, 8 * v)), align=8)
                    for total, factor in zip(totals[v], factors, strict=True):
                        more = plus_product(builder, builder.load(total), factor, numbers)
                        builder.store(more, total)
            if not rise:
                break
            begin, count = count, plus(count, rise)
            if numbered:
                most = builder.extract_value(array(4).shape, 0)
                count = builder.select(builder.icmp_signed("<", count, most), count, most)
        for w, r in itertools.product(range(wide), range(vectors)):
            target, found = eight(sums, plus(start, 8 * (w + r))), builder.load(totals[w][r])
            if end == "add":
                found = builder.fadd(builder.load(target, align=8), found)
            if end == "square":
                found = plus_product(builder, builder.load(target, align=8), found, found)
            builder.store(found, target, align=8)
        return context.get_dummy_value()

    def function(_, sums, start, x, first, rows, count, matrix, place, stride):  # type: ignore[no-untyped-def]
        number = types.intp
        return types.void(sums, number, x, number, rows, number, matrix, number, number), code

    return intrinsic(function)


def plus_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    """total + one · other."""
    return builder.fadd(total, builder.fmul(one, other, flags=FUSED), flags=FUSED)


put_products, add_squares = (multiplying(end, TOGETHER, 1) for end in ("put", "square"))
put_eight, add_eight_squares = (multiplying(end, 1, 1) for end in ("put", "square"))
put_thirty_two, add_thirty_two, add_thirty_two_squares = (
    multiplying(end, 1, 4) for end in ("put", "add", "square")
)
put_sixteen = multiplying("put", 1, 2, rise=8)  # of a triangle


@compiled
def weighted_rows(x, matrix, out):  # type: ignore[no-untyped-def]
    """out = xᵀ matrix."""
    rows, columns = matrix.shape
    if columns < 8:
        for j in range(columns):
            out[j] = 0.0
            for i in range(rows):
                out[j] += x[i] * matrix[i, j]
        return
    rest = columns - columns % 32
    for j in range(0, rest, 32):
        put_thirty_two(out, j, x, 0, None, rows, matrix, j, columns)
    for block in range(rest, columns, 8):
        j = min(block, columns - 8)
        put_eight(out, j, x, 0, None, rows, matrix, j, columns)
