"""Normals sixteen at a time, for compiled code that needs very many.

The ziggurat of `bursts` looks into tables and now and then draws again, so it makes one number
after the other. The method of Box and Muller only needs arithmetic, the same for every number: with
u and v uniform, and r = √(−2 ln u),

    r cos 2πv  and  r sin 2πv

are two independent normals. Vector instructions make eight pairs at once: eight numbers are two
registers of AVX2 or one of AVX-512. A processor without these takes more instructions and gets the
same numbers, because every rounding is written out. (LLVM vectorises a plain loop less well:
TS-UCB(100) and IDS(1000) took a fifth to a third longer with it.)

- u = 2 − x, where the 52 bits behind the point of x in [1, 2) are random. With u = 2ᵉ m, m from √½
  to √2, and s = (m − 1) / (m + 1), the logarithm of u is e ln 2 + 2 artanh s; artanh s / s is a
  polynomial in s². The largest |z| is √(2 · 52 ln 2) = 8.5, which a normal exceeds once in 10¹⁷.
- The angle is drawn between −45° and 45°, as t from −1 to 1; its sine and cosine are polynomials in
  t². Of the 12 bits that t does not use, one swaps the two normals and one is the sign of the
  cosine: these turn the angle by 0, 90, 180 or 270°, which covers the circle.

The polynomials, interpolated at Chebyshev points, err by less than 2e-15. The random bits are those
of `bursts`, so the two can take turns: sixteen normals use the next sixteen states of a burst.

Reference: Box and Muller (1958), "A note on the generation of random normal deviates".
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tsucb.compiler.dispatch import compiled
from tsucb.compiler.vectors import spread_out

# The constants of SplitMix64: the step from one state to the next, and two factors.
STEP = 0x9E3779B97F4A7C15
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

AT_ONCE = 16
SIXTEEN_STEPS = AT_ONCE * STEP % 2**64
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
COUNT = 0x4330000000000000  # the bits of 2⁵²; with a small number in the last bits, 2⁵² plus it
# Keeps Numba from reordering these sums and products: it adds its own flags only where there are
# none, and this one is only about the sign of zero.
EXACT = ("nsz",)


def operator(whole: str, real: str = "") -> Callable[["Eight", Any], "Eight"]:
    """Return an operator on eight integers (LLVM's instruction `whole`) or floats (`real`)."""

    def apply(self: "Eight", other: Any) -> "Eight":
        other = other if isinstance(other, Eight) else self.constant(other)
        if self.value.type == WHOLE:
            return Eight(self.builder, getattr(self.builder, whole)(self.value, other.value))
        made = getattr(self.builder, real)(self.value, other.value, flags=EXACT)
        return Eight(self.builder, made)

    return apply


class Eight:
    """Eight numbers in a vector; its operators write LLVM instructions for all eight."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    __add__, __sub__ = operator("add", "fadd"), operator("sub", "fsub")
    __mul__, __truediv__ = operator("mul", "fmul"), operator("", "fdiv")
    __xor__, __or__, __and__ = operator("xor"), operator("or_"), operator("and_")
    __rshift__, __lshift__ = operator("lshr"), operator("shl")

    def constant(self, number: Any) -> "Eight":
        """Return the same constant eight times."""
        return Eight(self.builder, ir.Constant(self.value.type, [number] * LANES))

    def bits(self, kind: Any) -> "Eight":
        """Return the same bits as numbers of another type."""
        return Eight(self.builder, self.builder.bitcast(self.value, kind))

    def polynomial(self, coefficients: tuple[float, ...]) -> "Eight":
        """Evaluate a polynomial by Horner's scheme, in fused steps, so with equal bits anywhere."""
        *others, result = map(self.constant, coefficients)
        for coefficient in reversed(others):
            result = result.call("fma", self, coefficient)
        return result

    def call(self, name: str, *others: "Eight") -> "Eight":
        """Call an LLVM intrinsic."""
        kind = ir.FunctionType(REAL, [REAL] * (1 + len(others)))
        name = f"llvm.{name}.v{LANES}f64"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        values = [self.value, *(other.value for other in others)]
        return Eight(self.builder, self.builder.call(function, values))

    def or_if(self, bit: "Eight", other: "Eight") -> "Eight":
        """Return the other's numbers where `bit` is not 0, and these elsewhere."""
        chosen = self.builder.icmp_unsigned("!=", bit.value, ir.Constant(WHOLE, None))
        return Eight(self.builder, self.builder.select(chosen, other.value, self.value))


def mixed(state: Eight) -> Eight:
    """Return 64 random bits for each state of SplitMix64; see `bursts.bits`."""
    z = (state ^ (state >> 30)) * FIRST_FACTOR
    z = (z ^ (z >> 27)) * SECOND_FACTOR
    return z ^ (z >> 31)


def box_muller(first: Eight, second: Eight) -> tuple[Eight, Eight]:
    """Return two times eight normals, each pair from two times 64 random bits."""
    x = ((first >> 12) | ONE).bits(REAL)
    u = x.constant(2.0) - x
    shifted = u.bits(WHOLE) + (ONE - ROOT_HALF)  # the exponent now goes up at √½, not at 1
    exponent = ((shifted >> 52) | COUNT).bits(REAL) - (2.0**52 + 1023)
    m = ((shifted & FRACTION) + ROOT_HALF).bits(REAL)
    s = (m - 1.0) / (m + 1.0)
    rest = s * (s * s).polynomial(LOGARITHM)
    squared = exponent.call("fma", exponent.constant(-2.0 * math.log(2.0)), rest)
    radius = squared.call("sqrt")
    t = ((second >> 12) | ONE).bits(REAL)
    t = t + t - 3.0
    sine = radius * t * (t * t).polynomial(SINE)
    cosine = radius * (t * t).polynomial(COSINE)
    cosine = (cosine.bits(WHOLE) ^ ((second << 63) & SIGN)).bits(REAL)
    swapped = second & 2
    return cosine.or_if(swapped, sine), sine.or_if(swapped, cosine)


@intrinsic
def put_sixteen_normals(_, out, place, state):  # type: ignore[no-untyped-def]
    """Write sixteen normals to `out.flat[place:]`, from the next sixteen states of the burst."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place, state = arguments
        data = context.make_array(out)(context, builder, array).data
        start = spread_out(builder, state)
        ahead = [[(n + 1) * STEP % 2**64 for n in range(k, k + LANES)] for k in (0, LANES)]
        states = (builder.add(start, ir.Constant(WHOLE, steps)) for steps in ahead)
        for n, eight in enumerate(box_muller(*(mixed(Eight(builder, s)) for s in states))):
            target = builder.gep(data, [builder.add(place, place.type(n * LANES))])
            builder.store(eight.value, builder.bitcast(target, REAL.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.uint64), code


@compiled
def put_normals(out, place, count, state):  # type: ignore[no-untyped-def]
    """Write `count` normals to `out.flat[place:]`; return the burst's next state.

    Writes sixteen at a time, so there must be room for `count` rounded up to a multiple of 16.
    """
    for i in range(0, count, AT_ONCE):
        put_sixteen_normals(out, place + i, state)
        state += np.uint64(SIXTEEN_STEPS)
    return state
