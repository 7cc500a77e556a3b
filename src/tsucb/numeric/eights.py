"""Eight numbers at a time, for compiled code that goes through triangular matrices.

A compiler makes vector instructions of a loop if it can prove that what is written is not what is
read, or checks it before each loop; and what is left over at the end it does one by one. For the
rows of a triangle, each of another length, that takes as long as to go through the whole square.
So here the instructions are spelled out: eight numbers are two registers of AVX2, one of AVX-512.

Arrays are stored by rows, and may have any shape; places in them are counted from the very first
entry, as in `array.flat`.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tsucb.compiled import inlined

ONE = ir.DoubleType()
EIGHT = ir.VectorType(ONE, 8)
FUSED = ("contract",)  # a product and its sum may be one instruction


@inlined
def add_rows(target, first, last, matrix, places, weights):  # type: ignore[no-untyped-def]
    """target[j] += Σ weights[n] · matrix[places[n] + j], first ≤ j < last, for four rows n.

    Blocks of eight end where the rows do, and may begin before their first numbers, where there
    must be zeros: left of a diagonal.
    """
    head = last % 8
    for j in range(first, head):
        add_one(target, j, matrix, places, weights)
    for j in range(max(head, first - (first - head) % 8), last, 8):
        add_eight(target, j, matrix, places, weights)


def adding(kind: Any) -> Any:
    """`add_rows` for as many numbers as the kind has."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def numbers(n: int, place: Any) -> Any:
            array = context.make_array(signature.args[n])(context, builder, arguments[n])
            return builder.bitcast(builder.gep(array.data, [place]), kind.as_pointer())

        j = arguments[1]
        result = numbers(0, j)
        total = builder.load(result, align=8)
        for place, weight in zip(
            *(cgutils.unpack_tuple(builder, arguments[n]) for n in (3, 4)), strict=True
        ):
            row = builder.load(numbers(2, builder.add(place, j)), align=8)
            factor = weight if kind is ONE else spread_out(builder, weight)
            product = builder.fmul(factor, row, flags=FUSED)
            total = builder.fadd(total, product, flags=FUSED)
        builder.store(total, result, align=8)
        return context.get_dummy_value()

    def function(_, target, j, matrix, places, weights):  # type: ignore[no-untyped-def]
        return types.void(target, types.intp, matrix, places, weights), code

    return intrinsic(function)


def spread_out(builder: Any, number: Any) -> Any:
    """Eight times the same number, of any kind."""
    nothing = ir.Constant(ir.VectorType(number.type, 8), ir.Undefined)
    first = ir.Constant(ir.IntType(32), 0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), 8), None)
    one = builder.insert_element(nothing, number, first)
    return builder.shuffle_vector(one, nothing, everywhere)


add_one, add_eight = adding(ONE), adding(EIGHT)


@intrinsic
def entry(_, array, place):  # type: ignore[no-untyped-def]
    """array.flat[place]."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(array)(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [arguments[1]]))

    return array.dtype(array, types.intp), code


@intrinsic
def set_entry(_, array, place, value):  # type: ignore[no-untyped-def]
    """array.flat[place] = value."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(array)(context, builder, arguments[0]).data
        builder.store(arguments[2], builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), code


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


TOGETHER = 4  # vectors that are multiplied at once, so that a matrix is read once for all of them


def multiplying(squared: bool) -> Any:
    """What adds products of four vectors with eight columns of a matrix, or their squares.

    add_products(sums, vectors, first, count, matrix, place, stride) does

        sums[r, l] += Σ vectors[first + r, n] · matrix[place + n · stride + l],  n < count

    for four vectors r; and for the eight numbers l that begin at a place of the matrix, with those
    that lie below them, a stride apart. The products stay in registers until they are added up.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(n: int) -> Any:
            return context.make_array(signature.args[n])(context, builder, arguments[n])

        def eight(data: Any, where: Any) -> Any:
            return builder.bitcast(builder.gep(data, [where]), EIGHT.as_pointer())

        def plus_product(total: Any, one: Any, other: Any) -> Any:
            product = builder.fmul(one, other, flags=FUSED)
            return builder.fadd(total, product, flags=FUSED)

        _, _, first, count, _, place, stride = arguments
        vectors, matrix = array(1), array(4).data
        length = builder.extract_value(vectors.shape, 1)
        starts, totals = [], []
        for r in range(TOGETHER):
            row = builder.mul(builder.add(first, first.type(r)), length)
            starts.append(builder.gep(vectors.data, [row]))
            totals.append(cgutils.alloca_once(builder, EIGHT))
            builder.store(ir.Constant(EIGHT, None), totals[r])
        with cgutils.for_range(builder, count) as loop:
            where = builder.add(place, builder.mul(loop.index, stride))
            numbers = builder.load(eight(matrix, where), align=8)
            for start, total in zip(starts, totals, strict=True):
                factor = spread_out(builder, builder.load(builder.gep(start, [loop.index])))
                builder.store(plus_product(builder.load(total), factor, numbers), total)
        for r, total in enumerate(totals):
            target, found = eight(array(0).data, first.type(8 * r)), builder.load(total)
            before = builder.load(target, align=8)
            after = plus_product(before, found, found) if squared else builder.fadd(before, found)
            builder.store(after, target, align=8)
        return context.get_dummy_value()

    def function(_, sums, vectors, first, count, matrix, place, stride):  # type: ignore[no-untyped-def]
        number = types.intp
        return types.void(sums, vectors, number, number, matrix, number, number), code

    return intrinsic(function)


add_products, add_squares = multiplying(False), multiplying(True)
