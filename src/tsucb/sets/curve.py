"""Curves: an arm is a number from an interval, a price or a dose, and its reward a smooth function.

The function is ⟨θ, φ(x)⟩ with φ polynomials or splines, so the arms are the points of a curve in d
dimensions. What is to be maximised over the interval has few hills: a grid that is fine for φ finds
all of them, and each is climbed by golden section to the last digits.
"""

import math
from typing import Any, ClassVar

import numpy as np

from tsucb.checks import Count, Finite, finite, positive
from tsucb.compiler import compiled, implements, run
from tsucb.models.linear import Linear
from tsucb.numeric.arrays import Floats, inner
from tsucb.record import derived
from tsucb.sets.arm_set import ArmSet, features, least_ratio, optimistic, radius, support

GRID = 24  # points for each degree of a polynomial, and for each piece of a spline
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
SHRINKS = 45  # golden sections: two cells of the grid become 1e-9 of that
SMOOTH = 0.25  # of the interval: the distance over which a spline's prior is correlated
NUGGET = 1e-6  # of its variance, so that it has a root


class Curve(ArmSet):
    """An interval of numbers with d features each."""

    # The field that counts the pieces or degrees, for each of which the grid has GRID points.
    resolution: ClassVar[str]

    low: Finite
    high: Finite
    grid: Floats = derived()
    rows: Floats = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Derive a grid and its features; raise ValueError for an empty interval."""
        low, high = values["low"], values["high"]
        if not low < high:
            raise ValueError(f"low must be below high, but they are {low} and {high}")
        values |= {"grid": np.zeros(0), "rows": np.zeros((0, 0))}
        bare = cls._make(values[name] for name in cls._fields)
        values["grid"] = np.linspace(low, high, GRID * values[cls.resolution] + 1)
        values["rows"] = bare.features_of(values["grid"])

    @property
    def coordinates(self) -> int:
        """An arm is one number."""
        return 1

    def features_of(self, points: Floats) -> Floats:
        """Return the features of points (n,) as rows (n, d)."""
        rows = np.empty((len(points), self.dimension))
        for point, row in zip(points, rows, strict=True):
            run(features, self, np.array([float(point)]), row)
        return rows

    def model(self, noise: float, level: float = 0.0, spread: float = 1.0) -> Linear:
        """Return the model of rewards that scatter by `noise` around the function.

        Before data, the function is `level` everywhere, give or take `spread`.
        """
        noise, spread = positive("noise", noise), positive("spread", spread)
        level = finite("level", level)
        mean, covariance = self.prior()
        # As wide as asked for on average over the interval.
        variance = np.einsum("nd,de,ne->n", self.rows, covariance, self.rows).mean()
        return Linear(self.dimension, noise, level * mean, spread**2 / variance * covariance)

    def prior(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the constant 1, and the shape of the prior covariance."""
        raise NotImplementedError(f"{type(self).__name__} must have a method prior()")


class Polynomial(Curve):
    """Numbers from an interval, rewarded by a polynomial: d = degree + 1 Legendre polynomials.

    Parameters
    ----------
    low, high
        The ends of the interval.
    degree
        Of the polynomial.

    >>> import numpy as np
    >>> Polynomial(low=0, high=10, degree=2).features_of(np.array([0.0, 5.0, 10.0]))
    array([[ 1. , -1. ,  1. ],
           [ 1. ,  0. , -0.5],
           [ 1. ,  1. ,  1. ]])
    """

    resolution = "degree"

    degree: Count = 3

    @property
    def dimension(self) -> int:
        """d, the number of features of a point."""
        return self.degree + 1

    def prior(self) -> tuple[Floats, Floats]:
        """Return independent coefficients of the same size."""
        return np.eye(self.dimension)[0], np.eye(self.dimension)


class Spline(Curve):
    """Numbers from an interval, rewarded by a smooth function: d = pieces + 3 cubic B-splines.

    Parameters
    ----------
    low, high
        The ends of the interval.
    pieces
        The number of cubic pieces, of the same length.

    >>> import numpy as np
    >>> Spline(low=0, high=1, pieces=2).features_of(np.array([0.5])).round(3)
    array([[0.   , 0.167, 0.667, 0.167, 0.   ]])
    """

    resolution = "pieces"

    pieces: Count = 6

    @property
    def dimension(self) -> int:
        """d, the number of features of a point."""
        return self.pieces + 3

    def prior(self) -> tuple[Floats, Floats]:
        """Return coefficients that differ less the closer they are."""
        d = self.dimension
        apart = np.subtract.outer(np.arange(d), np.arange(d)) / (SMOOTH * self.pieces)
        return np.ones(d), np.exp(-0.5 * apart**2) + NUGGET * np.eye(d)


@implements(features, Polynomial)
def features_polynomial(arms, point, out):  # type: ignore[no-untyped-def]
    """Use (k + 1) P_{k+1} = (2k + 1) z P_k − k P_{k−1}, with z from −1 to 1."""
    z = 2.0 * (point[0] - arms.low) / (arms.high - arms.low) - 1.0
    out[0] = 1.0
    out[1] = z
    for k in range(1, out.size - 1):
        out[k + 1] = ((2 * k + 1) * z * out[k] - k * out[k - 1]) / (k + 1)


@implements(features, Spline)
def features_spline(arms, point, out):  # type: ignore[no-untyped-def]
    """Compute the four B-splines that are not zero on the piece with the point."""
    u = (point[0] - arms.low) / (arms.high - arms.low) * arms.pieces
    piece = min(max(int(u), 0), arms.pieces - 1)
    t = u - piece
    for i in range(out.size):
        out[i] = 0.0
    out[piece] = (1.0 - t) ** 3 / 6.0
    out[piece + 1] = (4.0 - 6.0 * t * t + 3.0 * t**3) / 6.0
    out[piece + 2] = (1.0 + 3.0 * t + 3.0 * t * t - 3.0 * t**3) / 6.0
    out[piece + 3] = t**3 / 6.0


@implements(support, Curve)
def support_curve(arms, direction, point):  # type: ignore[no-untyped-def]
    return highest(arms, direction, arms.rows, 0.0, np.nan, point)


@implements(optimistic, Curve)
def optimistic_curve(arms, mean, root, alpha, point):  # type: ignore[no-untyped-def]
    return highest(arms, mean, root, alpha, np.nan, point)


@implements(least_ratio, Curve)
def least_ratio_curve(arms, mean, root, f, point):  # type: ignore[no-untyped-def]
    return -highest(arms, mean, root, 0.0, f, point)


@compiled
def height(mean, root, alpha, f, row):  # type: ignore[no-untyped-def]
    """Return ⟨mean, row⟩ + alpha · radius; (⟨mean, row⟩ − f) / radius if f is a number."""
    expected = inner(mean, row)
    if f == f:
        return (expected - f) / radius(root, row)
    return expected + alpha * radius(root, row) if alpha > 0.0 else expected


@compiled
def height_at(arms, x, mean, root, alpha, f, at, row):  # type: ignore[no-untyped-def]
    """Return the height at a point x; `at` and `row` are space for the point and its features."""
    at[0] = x
    features(arms, at, row)
    return height(mean, root, alpha, f, row)


@compiled
def highest(arms, mean, root, alpha, f, point):  # type: ignore[no-untyped-def]
    """Return the largest height on the interval: climb every hill that the grid shows."""
    grid, rows = arms.grid, arms.rows
    last = grid.size - 1
    heights = np.empty(grid.size)
    for n in range(grid.size):
        heights[n] = height(mean, root, alpha, f, rows[n])
    row, at, best = np.empty(rows.shape[1]), np.empty(1), -np.inf
    for n in range(grid.size):
        if (n > 0 and heights[n - 1] > heights[n]) or (n < last and heights[n + 1] > heights[n]):
            continue
        if heights[n] > best:
            best, point[0] = heights[n], grid[n]
        low, high = grid[max(n - 1, 0)], grid[min(n + 1, last)]
        x, y = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        left = height_at(arms, x, mean, root, alpha, f, at, row)
        right = height_at(arms, y, mean, root, alpha, f, at, row)
        for _ in range(SHRINKS):
            if left >= right:
                high, y, right = y, x, left
                x = high - GOLDEN * (high - low)
                left = height_at(arms, x, mean, root, alpha, f, at, row)
            else:
                low, x, left = x, y, right
                y = low + GOLDEN * (high - low)
                right = height_at(arms, y, mean, root, alpha, f, at, row)
        if max(left, right) > best:
            best, point[0] = max(left, right), x if left >= right else y
    return best
