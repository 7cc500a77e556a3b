"""Types of arrays, and short loops over them for compiled code."""

import math
import mmap
import os
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import compiled
from tsucb.compiler.vectors import put_eight, put_thirty_two

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


LINE = 64  # bytes that a processor reads from its memory at once
PAGES = 65_536  # bytes of an array that has memory pages of its own


def aligned(shape: tuple[int, ...]) -> Floats:
    """Return zeros that begin at a cache line, so that no block of eight spans two lines."""
    size = math.prod(shape)
    room = untouched(size + LINE // 8)
    skipped = -room.ctypes.data % LINE // 8
    return room[skipped : skipped + size].reshape(shape)


def untouched(size: int) -> Floats:
    """Return zeros; many of them take no memory until something is written there.

    `np.zeros` does not promise that: it may be given memory that was in use before.
    """
    if 8 * size >= PAGES:
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
        with suppress(OSError):  # a process may have only so many pieces of memory
            return np.frombuffer(mmap.mmap(-1, 8 * size, **private), np.float64)
    return np.zeros(size)


def copy_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy; one of nothing but zeros takes no memory until something is written there."""
    # As integers: −0 is no zero here.
    if values.nbytes < PAGES or values.dtype != np.float64 or values.view(np.int64).any():
        return values.copy()
    return aligned(values.shape)


# For compiled code: these loops compile faster than NumPy's functions. Assigning one array to a
# part of another takes two seconds to compile, because of the text of an error.
@compiled
def copy_to(target, source):  # type: ignore[no-untyped-def]
    """Set target[:] = source, for vectors of the same length."""
    for i in range(target.size):
        target[i] = source[i]


@compiled
def take(values, places):  # type: ignore[no-untyped-def]
    """Return values[places]."""
    out = np.empty(places.size, values.dtype)
    for i in range(places.size):
        out[i] = values[places[i]]
    return out


@compiled
def full(size, value):  # type: ignore[no-untyped-def]
    """Return np.full(size, value)."""
    out = np.empty(size)
    for i in range(size):
        out[i] = value
    return out


@compiled
def total(values):  # type: ignore[no-untyped-def]
    """Return values.sum()."""
    out = 0.0
    for i in range(values.size):
        out += values[i]
    return out


@compiled
def inner(one, other):  # type: ignore[no-untyped-def]
    """Return (one * other).sum()."""
    out = 0.0
    for i in range(one.size):
        out += one[i] * other[i]
    return out


@compiled
def weighted_rows(x, matrix, out):  # type: ignore[no-untyped-def]
    """Set out = xᵀ matrix."""
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


@compiled
def add_multiple(target, factor, values):  # type: ignore[no-untyped-def]
    """Add factor * values to target."""
    for i in range(target.size):
        target[i] += factor * values[i]


@compiled
def largest_of(values):  # type: ignore[no-untyped-def]
    """Return values.max()."""
    return values[place_of_largest(values)]


@compiled
def place_of_largest(values):  # type: ignore[no-untyped-def]
    """Return the place of the first of the largest numbers."""
    place = 0
    for i in range(1, values.size):
        if values[i] > values[place]:
            place = i
    return place


@compiled
def quantiles(table, share, out):  # type: ignore[no-untyped-def]
    """Set out[a] to the quantile `share` of column a of the table, interpolated as in NumPy."""
    rows = table.shape[0]
    place = share * (rows - 1)
    below = int(place)
    column = np.empty(rows)
    for a in range(out.size):
        for i in range(rows):
            column[i] = table[i, a]
        put_in_place(column, below)
        out[a] = column[below]
        if place > below:
            above = column[below + 1]
            for i in range(below + 2, rows):
                above = min(above, column[i])
            if above > out[a]:  # they may both be infinite
                out[a] += (place - below) * (above - out[a])


@compiled
def put_in_place(values, k):  # type: ignore[no-untyped-def]
    """Reorder the values so that the k-th smallest is at place k (Hoare's algorithm).

    No larger value is before it, and no smaller one after it.
    """
    first, last = 0, values.size - 1
    while first < last:
        middle, i, j = values[k], first, last
        while i <= j:
            while values[i] < middle:
                i += 1
            while middle < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if j < k:
            first = i
        if k < i:
            last = j
