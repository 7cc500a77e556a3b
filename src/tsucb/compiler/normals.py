"""Normals sixteen at a time, for compiled code that needs very many.

The ziggurat of `bursts` looks into tables and now and then draws again, so it makes one number
after the other. The method of Box and Muller is nothing but arithmetic, the same for every number:
with u and v uniform, and r = √(−2 ln u),

    r cos 2πv  and  r sin 2πv

are two independent normals. Eight pairs are made side by side in vector instructions, eight numbers
in two registers of AVX2 or one of AVX-512. A processor without them takes more instructions for the
same numbers: what is rounded, and when, is spelled out. A plain loop makes the same bits, but LLVM
vectorises it less well: 0.93 ns instead of 0.64 for each of 112 numbers that `raise_to_normals`
raises.

- u = 2 − x, where the 52 bits behind the point of x in [1, 2) are random. Of u = 2ᵉ m, with m from
  √½ to √2, the logarithm is e ln 2 + 2 artanh s with s = (m − 1) / (m + 1), a polynomial in s². The
  largest |z| is √(2 · 52 ln 2) = 8.5, which a normal exceeds once in 10¹⁷.
- The angle is drawn between −45° and 45°, as t from −1 to 1; its sine and cosine are polynomials in
  t². Of the 12 bits that t leaves over, one says which of the two normals takes which, and one the
  sign of the cosine: turned by 0, 90, 180 or 270°, that covers the circle.

The polynomials, interpolated at Chebyshev points, err by less than 2e-15. The bits are those of
`bursts`, so a burst may go on with either: sixteen normals take its next sixteen states.

Reference: Box and Muller (1958), "A note on the generation of random normal deviates".
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tsucb.compiler.dispatch import compiled
from tsucb.compiler.vectors import spread_out

# Of SplitMix64: from one state to the next, and what it multiplies by.
STEP = 0x9E3779B97F4A7C15
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

AT_ONCE = 16
LANES = AT_ONCE // 2

LOGARITHM = (  # −4 artanh(s) / s, in s²
    -4.0, -1.3333333333329742, -0.800000000715871, -0.5714283807018999, -0.4444652859676664,
    -0.36253103648793467, -0.3357896755882906,
)  # fmt: skip
SINE = (  # sin(πt / 4) / t, in t²
    0.7853981633974446, -0.08074551218803203, 0.0024903945673303176, -3.657619203728008e-05,
    3.1333832519492286e-07, -1.7364866256031063e-09,
)  # fmt: skip
COSINE = (  # cos(πt / 4), in t²
    0.9999999999999994, -0.3084251375340237, 0.015854344243628037, -0.00032599188609438583,
    3.590858531293817e-06, -2.4608988273833177e-08, 1.1349506223723438e-10,
)  # fmt: skip

WHOLE = ir.VectorType(ir.IntType(64), LANES)
REAL = ir.VectorType(ir.DoubleType(), LANES)
ONE = 0x3FF0000000000000  # the bits of 1.0: no sign, an exponent of 1023, and 52 zeros
FRACTION = 0x000FFFFFFFFFFFFF
SIGN = 0x8000000000000000
ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
COUNT = 0x4330000000000000  # the bits of 2⁵²: with a small number in their end, 2⁵² plus it
# None of the liberties that Numba takes with sums and products elsewhere: it leaves alone what has
# a flag, and this one is about the sign of zero.
EXACT = ("nsz",)


class Eight:
    """Eight numbers side by side; operators on it write the instruction for all eight."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _with(self, whole: str, real: str, other: Any) -> "Eight":
        other = other if isinstance(other, Eight) else self.constant([other] * LANES)
        exact = {} if self.value.type == WHOLE else {"flags": EXACT}
        instruction = getattr(self.builder, real if exact else whole)
        return Eight(self.builder, instruction(self.value, other.value, **exact))

    def constant(self, numbers: list[Any]) -> "Eight":
        """Return constants of the same type."""
        return Eight(self.builder, ir.Constant(self.value.type, numbers))

    def __add__(self, other: Any) -> "Eight":
        return self._with("add", "fadd", other)

    def __sub__(self, other: Any) -> "Eight":
        return self._with("sub", "fsub", other)

    def __mul__(self, other: Any) -> "Eight":
        return self._with("mul", "fmul", other)

    def __truediv__(self, other: Any) -> "Eight":
        return self._with("", "fdiv", other)

    def __xor__(self, other: Any) -> "Eight":
        return self._with("xor", "", other)

    def __or__(self, other: Any) -> "Eight":
        return self._with("or_", "", other)

    def __and__(self, other: Any) -> "Eight":
        return self._with("and_", "", other)

    def __rshift__(self, other: int) -> "Eight":
        return self._with("lshr", "", other)

    def __lshift__(self, other: int) -> "Eight":
        return self._with("shl", "", other)

    def real(self) -> "Eight":
        """Return the floats that have these bits."""
        return Eight(self.builder, self.builder.bitcast(self.value, REAL))

    def whole(self) -> "Eight":
        """Return the bits of these floats."""
        return Eight(self.builder, self.builder.bitcast(self.value, WHOLE))

    def call(self, name: str, *others: "Eight") -> "Eight":
        """Call an LLVM intrinsic."""
        kind = ir.FunctionType(REAL, [REAL] * (1 + len(others)))
        name = f"llvm.{name}.v{LANES}f64"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        values = [self.value, *(other.value for other in others)]
        return Eight(self.builder, self.builder.call(function, values))

    def polynomial(self, coefficients: tuple[float, ...]) -> "Eight":
        """Evaluate a polynomial by Horner's scheme, with fused steps: the same bits everywhere."""
        *others, result = (self.constant([c] * LANES) for c in coefficients)
        for coefficient in reversed(others):
            result = result.call("fma", self, coefficient)
        return result

    def larger(self, other: "Eight") -> "Eight":
        """Return the larger of each pair."""
        more = self.builder.fcmp_ordered(">", other.value, self.value)
        return Eight(self.builder, self.builder.select(more, other.value, self.value))

    def smaller(self, other: "Eight") -> "Eight":
        """Return the smaller of each pair."""
        less = self.builder.fcmp_ordered("<", other.value, self.value)
        return Eight(self.builder, self.builder.select(less, other.value, self.value))

    def extreme(self, which: str) -> Any:
        """Return the "min" or "max" of the eight."""
        kind = ir.FunctionType(ir.DoubleType(), [REAL])
        name = f"llvm.vector.reduce.f{which}.v{LANES}f64"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [self.value], fastmath=("nnan",))

    def or_if(self, bit: "Eight", other: "Eight") -> "Eight":
        """Return the other's numbers where the bit is 1, else these."""
        chosen = self.builder.icmp_unsigned("!=", bit.value, ir.Constant(WHOLE, None))
        return Eight(self.builder, self.builder.select(chosen, other.value, self.value))


def mixed(state: Eight) -> Eight:
    """Return 64 random bits for each state of SplitMix64; see `bursts.bits`."""
    z = (state ^ (state >> 30)) * FIRST_FACTOR
    z = (z ^ (z >> 27)) * SECOND_FACTOR
    return z ^ (z >> 31)


def box_muller(first: Eight, second: Eight) -> tuple[Eight, Eight]:
    """Return twice eight normals, from two times 64 random bits each."""
    x = ((first >> 12) | ONE).real()
    u = x.constant([2.0] * LANES) - x
    shifted = u.whole() + (ONE - ROOT_HALF)  # now the exponent goes up at √½ and not at 1
    exponent = ((shifted >> 52) | COUNT).real() - (2.0**52 + 1023)
    m = ((shifted & FRACTION) + ROOT_HALF).real()
    s = (m - 1.0) / (m + 1.0)
    rest = s * (s * s).polynomial(LOGARITHM)
    squared = exponent.call("fma", exponent.constant([-2.0 * math.log(2.0)] * LANES), rest)
    radius = squared.call("sqrt")
    t = ((second >> 12) | ONE).real()
    t = t + t - 3.0
    sine = radius * t * (t * t).polynomial(SINE)
    cosine = radius * (t * t).polynomial(COSINE)
    cosine = (cosine.whole() ^ ((second << 63) & SIGN)).real()
    swapped = second & 2
    return cosine.or_if(swapped, sine), sine.or_if(swapped, cosine)


def next_normals(builder: Any, state: Any) -> tuple[Eight, Eight]:
    """Return sixteen normals, from the next states of the burst."""
    start = Eight(builder, spread_out(builder, state))
    ahead = [[(n + 1) * STEP % 2**64 for n in range(k, k + LANES)] for k in (0, LANES)]
    return box_muller(*(mixed(start + start.constant(steps)) for steps in ahead))


def visit(builder: Any, count: Any, state: Any, use: Callable[[Eight, Any], None]) -> Any:
    """Call `use(eight normals, place)` for places 0, 8, … below `count`; return the next state."""
    number = count.type
    last = builder.and_(builder.add(count, number(AT_ONCE - 1)), number(-AT_ONCE))
    with cgutils.for_range_slice(builder, number(0), last, number(AT_ONCE)) as (i, _):
        here = builder.add(state, builder.mul(i, number(STEP)))
        for eight, start in zip(next_normals(builder, here), (0, LANES), strict=True):
            use(eight, builder.add(i, number(start)))
    return builder.add(state, builder.mul(last, number(STEP)))


def eight_of(context: Any, builder: Any, kind: Any, array: Any) -> Callable[[Any], Any]:
    """Return a function from a place in `array.flat` to the address of the eight numbers there."""
    data = context.make_array(kind)(context, builder, array).data
    return lambda place: builder.bitcast(builder.gep(data, [place]), REAL.as_pointer())


@intrinsic
def put_normals(_, out, place, count, state):  # type: ignore[no-untyped-def]
    """Write `count` normals to `out.flat` from a place on; return the burst's next state.

    They come in sixteens: there must be room for all of the last sixteen.
    """

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place, count, state = arguments
        target = eight_of(context, builder, out, array)

        def put(z, n):  # type: ignore[no-untyped-def]
            builder.store(z.value, target(builder.add(place, n)), align=8)

        return visit(builder, count, state, put)

    return types.uint64(out, types.intp, types.intp, types.uint64), code


@compiled
def raise_to_normals(best, mean, std, state):  # type: ignore[no-untyped-def]
    """Raise each number to a draw of N(mean, std²) of its own, where that is more.

    Their count must be a multiple of sixteen. Returns the lowest number then, and the next state.
    """
    return _raise_apart(best, mean, std, state)


@intrinsic
def _raise_apart(_, best, mean, std, state):  # type: ignore[no-untyped-def]
    """Do `raise_to_normals` in a function that LLVM does not inline; it has many constants."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.function.attributes.add("noinline")
        array, mean, std, state = arguments
        size = builder.extract_value(context.make_array(best)(context, builder, array).shape, 0)
        mean, std = (Eight(builder, spread_out(builder, number)) for number in (mean, std))
        numbers = eight_of(context, builder, best, array)
        lowest = cgutils.alloca_once_value(builder, ir.Constant(REAL, [math.inf] * LANES))

        def lift(z, n):  # type: ignore[no-untyped-def]
            target = numbers(n)
            before = Eight(builder, builder.load(target, align=8))
            after = before.larger(z.call("fma", std, mean))
            builder.store(after.value, target, align=8)
            builder.store(Eight(builder, builder.load(lowest)).smaller(after).value, lowest)

        state = visit(builder, size, state, lift)
        least = Eight(builder, builder.load(lowest)).extreme("min")
        return context.make_tuple(builder, signature.return_type, [least, state])

    result = types.Tuple((types.float64, types.uint64))
    return result(best, types.float64, types.float64, types.uint64), code


@compiled
def highest_normal(mean, std, count, state):  # type: ignore[no-untyped-def]
    """Return the highest draw of N(mean[n], std[n]²) with n < count, and the next state.

    The count must be a multiple of sixteen.
    """
    return _highest_apart(mean, std, count, state)


@intrinsic
def _highest_apart(_, mean, std, count, state):  # type: ignore[no-untyped-def]
    """Do `highest_normal` in a function that LLVM does not inline."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.function.attributes.add("noinline")
        means, stds = (
            eight_of(context, builder, kind, array)
            for kind, array in zip((mean, std), arguments[:2], strict=True)
        )
        highest = cgutils.alloca_once_value(builder, ir.Constant(REAL, [-math.inf] * LANES))

        def lift(z, n):  # type: ignore[no-untyped-def]
            m, s = (Eight(builder, builder.load(at(n), align=8)) for at in (means, stds))
            drawn = z.call("fma", s, m)
            builder.store(Eight(builder, builder.load(highest)).larger(drawn).value, highest)

        state = visit(builder, arguments[2], arguments[3], lift)
        best = Eight(builder, builder.load(highest)).extreme("max")
        return context.make_tuple(builder, signature.return_type, [best, state])

    result = types.Tuple((types.float64, types.uint64))
    return result(mean, std, types.intp, types.uint64), code
