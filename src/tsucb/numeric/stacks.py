"""Products and triangular factors of stacks of matrices, in blocks.

For matrices of a hundred rows BLAS wakes threads, and on a busy machine waiting for them takes
longer than all the arithmetic: 8 s of processor time instead of 0.8 s in one thread. The blocks
here are smaller than the size from which BLAS does so. Blocks of zeros are skipped, so a product of
two triangular matrices costs a sixth.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tsucb.numeric.arrays import Floats

BLOCK = 60  # rows and columns; OpenBLAS wakes threads from 64³ multiplications on
NEAR = 2**18  # numbers that stay in a fast cache


def blocks(size: int) -> list[slice]:
    """Return the blocks of an axis."""
    return [slice(first, min(first + BLOCK, size)) for first in range(0, size, BLOCK)]


def parts(stack: Floats) -> Iterator[Any]:
    """Yield slices of a stack, each with as many matrices as stay in a fast cache."""
    if stack.ndim == 2:
        yield ...
        return
    few = max(1, NEAR // (stack.shape[1] * stack.shape[2]))
    for first in range(0, len(stack), few):
        yield slice(first, first + few)


def transposed(stack: Floats) -> Floats:
    """Return the transposes of all matrices."""
    return stack.swapaxes(-1, -2)


def product(left: Floats, right: Floats) -> Floats:
    """Return left @ right, (…, m, k) by (…, k, n), of matrices or stacks of them."""
    rows, inner, columns = *left.shape[-2:], right.shape[-1]
    if max(rows, inner, columns) <= BLOCK:
        return left @ right
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = np.broadcast_to(left, (*stack, rows, inner))
    right = np.broadcast_to(right, (*stack, inner, columns))
    out = np.zeros((*stack, rows, columns))
    for n in parts(out):
        add_product(out[n], left[n], right[n], False)
    return out


def gram(stack: Floats) -> Floats:
    """Return XᵀX of every matrix X."""
    if max(stack.shape[-2:]) <= BLOCK:
        return transposed(stack) @ stack
    out = np.zeros((*stack.shape[:-2], stack.shape[-1], stack.shape[-1]))
    for n in parts(out):
        add_product(out[n], transposed(stack[n]), stack[n], True)
    return out


def add_product(out: Floats, left: Floats, right: Floats, symmetric: bool) -> None:
    """Add left @ right to `out`, in place; compute only half of a symmetric product."""
    for l in blocks(left.shape[-1]):
        some = [i for i in blocks(left.shape[-2]) if left[..., i, l].any()]
        for j in blocks(right.shape[-1]):
            if right[..., l, j].any():
                for i in some:
                    if not symmetric or i.start <= j.start:
                        out[..., i, j] += left[..., i, l] @ right[..., l, j]
    if symmetric:
        for i in blocks(out.shape[-1]):
            out[..., i.stop :, i] = transposed(out[..., i, i.stop :])


def lower_roots(stack: Floats) -> Floats:
    """Return L of each matrix I + (positive semidefinite) = L Lᵀ."""
    size = stack.shape[-1]
    if size <= BLOCK:
        return block_roots(stack)
    out = stack.copy()
    for n in parts(stack):
        factorise(out[n])
    return out


def factorise(stack: Floats) -> list[Floats]:
    """Replace each matrix by its L; return the inverses of L's diagonal blocks."""
    size, inverses = stack.shape[-1], list[Any]()
    for i in blocks(size):
        rest = slice(i.stop, size)
        stack[..., i, i] = block_roots(stack[..., i, i])
        inverses.append(np.linalg.inv(stack[..., i, i]))
        stack[..., rest, i] = product(stack[..., rest, i], transposed(inverses[-1]))
        stack[..., rest, rest] -= gram(transposed(stack[..., rest, i]))
        stack[..., i, rest] = 0.0
    return inverses


def block_roots(stack: Floats) -> Floats:
    """Return `lower_roots` of matrices with at most `BLOCK` rows."""
    lower: Any
    try:
        lower = np.linalg.cholesky(stack)
    except np.linalg.LinAlgError:  # rounding has taken an eigenvalue below 1, even below 0
        values, vectors = np.linalg.eigh(stack)
        half = np.sqrt(np.maximum(values, 1.0))[..., None] * transposed(vectors)
        upper: Any = np.linalg.qr(half, mode="r")
        signs = np.where(np.einsum("...ii->...i", upper) < 0, -1.0, 1.0)
        lower = transposed(upper * signs[..., None])
    return np.asarray(lower, np.float64)


def inverse_roots(stack: Floats) -> Floats:
    """Return L⁻¹ of each matrix I + (positive semidefinite) = L Lᵀ."""
    size = stack.shape[-1]
    if size <= BLOCK:
        return np.asarray(np.linalg.inv(block_roots(stack)), np.float64)
    lower, out = stack.copy(), np.zeros(stack.shape)
    for n in parts(stack):
        for i, here in zip(blocks(size), factorise(lower[n]), strict=True):
            before = slice(0, i.start)
            sides = product(lower[n][..., i, before], out[n][..., before, before])
            out[n][..., i, before], out[n][..., i, i] = -product(here, sides), here
    return out
