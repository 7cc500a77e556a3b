"""Triangular matrices in compiled code.

By loops: the linear algebra of LAPACK takes seconds to compile, and wakes threads for matrices of
a hundred rows, which on a busy machine takes longer than all the arithmetic. Four rows at a time:
a quarter of the traffic through the row that is made.
"""

import numpy as np

from tsucb.compiler import compiled


@compiled
def factorise(matrix):  # type: ignore[no-untyped-def]
    """Replace a positive definite matrix by U, upper triangular: matrix = UᵀU.

    Only the upper half of the matrix is read.
    """
    p = matrix.shape[0]
    for i in range(p):
        fours = i - i % 4
        for k in range(0, fours, 4):
            w, x, y, z = matrix[k, i], matrix[k + 1, i], matrix[k + 2, i], matrix[k + 3, i]
            for j in range(i, p):
                matrix[i, j] -= (w * matrix[k, j] + x * matrix[k + 1, j]) + (
                    y * matrix[k + 2, j] + z * matrix[k + 3, j]
                )
        for k in range(fours, i):
            x = matrix[k, i]
            for j in range(i, p):
                matrix[i, j] -= x * matrix[k, j]
        d = 1.0 / np.sqrt(matrix[i, i])
        for j in range(i):
            matrix[i, j] = 0.0
        for j in range(i, p):
            matrix[i, j] *= d


@compiled
def invert(upper, out):  # type: ignore[no-untyped-def]
    """The transposed inverse of an upper triangular matrix, which is lower triangular."""
    p = upper.shape[0]
    for i in range(p):
        d = 1.0 / upper[i, i]
        for j in range(p):
            out[i, j] = 0.0
        fours = i - i % 4
        for k in range(0, fours, 4):
            w, x, y, z = upper[k, i], upper[k + 1, i], upper[k + 2, i], upper[k + 3, i]
            for j in range(k + 4):
                out[i, j] -= d * (
                    (w * out[k, j] + x * out[k + 1, j]) + (y * out[k + 2, j] + z * out[k + 3, j])
                )
        for k in range(fours, i):
            x = upper[k, i]
            for j in range(k + 1):
                out[i, j] -= d * (x * out[k, j])
        out[i, i] = d


@compiled
def multiply(left, right, out):  # type: ignore[no-untyped-def]
    """out = leftᵀ right, of an upper and a lower triangular matrix: lower triangular."""
    p = out.shape[0]
    for i in range(p):
        for j in range(p):
            out[i, j] = 0.0
        add_rows(left, right, out, i, 0, i + 1)


@compiled
def multiply_lower(left, right, out):  # type: ignore[no-untyped-def]
    """out = leftᵀ right, of two lower triangular matrices."""
    p = out.shape[0]
    for i in range(p):
        for j in range(p):
            out[i, j] = 0.0
        add_rows(left, right, out, i, i, p)


@compiled
def multiply_upper(left, right, out):  # type: ignore[no-untyped-def]
    """out = leftᵀ right, of a lower and an upper triangular matrix: upper triangular."""
    p = out.shape[0]
    for i in range(p):
        for j in range(p):
            out[i, j] = 0.0
        fours = p - (p - i) % 4
        for k in range(i, fours, 4):
            w, x, y, z = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
            for j in range(k, p):
                out[i, j] += (w * right[k, j] + x * right[k + 1, j]) + (
                    y * right[k + 2, j] + z * right[k + 3, j]
                )
        for k in range(fours, p):
            x = left[k, i]
            for j in range(k, p):
                out[i, j] += x * right[k, j]


@compiled
def add_rows(left, right, out, i, first, last):  # type: ignore[no-untyped-def]
    """Row i of leftᵀ right, for a lower triangular right, from its rows first … last − 1."""
    fours = last - (last - first) % 4
    for k in range(first, fours, 4):
        w, x, y, z = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
        for j in range(k + 4):
            out[i, j] += (w * right[k, j] + x * right[k + 1, j]) + (
                y * right[k + 2, j] + z * right[k + 3, j]
            )
    for k in range(fours, last):
        x = left[k, i]
        for j in range(k + 1):
            out[i, j] += x * right[k, j]


@compiled
def square(upper, out):  # type: ignore[no-untyped-def]
    """The upper half of I + upperᵀ upper, for an upper triangular matrix."""
    p = out.shape[0]
    for i in range(p):
        for j in range(i, p):
            out[i, j] = 0.0
        out[i, i] = 1.0
        fours = i + 1 - (i + 1) % 4
        for k in range(0, fours, 4):
            w, x, y, z = upper[k, i], upper[k + 1, i], upper[k + 2, i], upper[k + 3, i]
            for j in range(i, p):
                out[i, j] += (w * upper[k, j] + x * upper[k + 1, j]) + (
                    y * upper[k + 2, j] + z * upper[k + 3, j]
                )
        for k in range(fours, i + 1):
            x = upper[k, i]
            for j in range(i, p):
                out[i, j] += x * upper[k, j]


@compiled
def transpose(matrix, out):  # type: ignore[no-untyped-def]
    """out = matrixᵀ."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = matrix[j, i]


@compiled
def mirror(matrix, out):  # type: ignore[no-untyped-def]
    """The upper half of a matrix reflected in the other diagonal; below it, zeros.

    Of U with UᵀU = the mirrored matrix it makes R with R Rᵀ = the matrix.
    """
    p = out.shape[0]
    for i in range(p):
        for j in range(i):
            out[i, j] = 0.0
        for j in range(i, p):
            out[i, j] = matrix[p - 1 - j, p - 1 - i]


@compiled
def backwards(matrix, out):  # type: ignore[no-untyped-def]
    """The matrix with its rows and columns in reverse order."""
    p = out.shape[0]
    for i in range(p):
        for j in range(p):
            out[i, j] = matrix[p - 1 - i, p - 1 - j]
