"""Curves: an arm is a number from an interval, such as a price, and its reward a smooth function.

The function is ⟨θ, φ(x)⟩ with polynomials or splines φ, so the arms are the points of a curve in d
dimensions. The functions to maximise over the interval have few local maxima: a grid that is fine
for φ finds all of them, and a golden-section search refines each.
"""

import math
from typing import Any, ClassVar

import numpy as np

from tsucb.checks import Count, Finite, finite, positive
from tsucb.compiler import compiled, implements, run
from tsucb.models.linear import Linear
from tsucb.numeric.arrays import Floats
from tsucb.record import derived
from tsucb.sets.arm_set import (
    ArmSet,
    bound_at,
    features,
    least_ratio,
    optimistic,
    ratio_at,
    support,
)

GRID = 24  # points of the grid per degree of a polynomial, or per piece of a spline
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
SHRINKS = 45  # golden sections, which shrink two cells of the grid to 1e-9 of their length
SMOOTH = 0.25  # share of the interval over which a spline's prior is correlated
NUGGET = 1e-6  # added to the prior variance of a spline, so that the covariance has a root


class Curve(ArmSet):
    """An interval of numbers with d features each."""

    resolution: ClassVar[str]  # the field with the number of degrees or pieces

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
        """Return the model of rewards with noise of standard deviation `noise`.

        Under its prior, the function has mean `level` everywhere and standard deviation `spread`
        on average over the interval.
        """
        noise, spread = positive("noise", noise), positive("spread", spread)
        level = finite("level", level)
        mean, covariance = self.prior()
        variance = np.einsum("nd,de,ne->n", self.rows, covariance, self.rows).mean()
        return Linear(self.dimension, noise, level * mean, spread**2 / variance * covariance)

    def prior(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the constant 1, and the prior covariance up to a factor."""
        raise NotImplementedError(f"{type(self).__name__} must have a method prior()")


class Polynomial(Curve):
    """Numbers from an interval, rewarded by a polynomial: d = degree + 1 Legendre polynomials.

    Parameters
    ----------
    low, high
        The ends of the interval.
    degree
        The degree of the polynomial.

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
        """Return independent coefficients with the same variance."""
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
        """Return coefficients that are more correlated the closer their pieces are."""
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
    """Return ⟨mean, row⟩ + alpha · radius if f is NaN, else (⟨mean, row⟩ − f) / radius."""
    return bound_at(mean, root, alpha, row) if f != f else -ratio_at(mean, root, f, row)


@compiled
def height_at(arms, x, mean, root, alpha, f, at, row):  # type: ignore[no-untyped-def]
    """Return the height at a point x; `at` and `row` are space for the point and its features."""
    at[0] = x
    features(arms, at, row)
    return height(mean, root, alpha, f, row)


@compiled
def highest(arms, mean, root, alpha, f, point):  # type: ignore[no-untyped-def]
    """Return the largest height on the interval: refine every local maximum of the grid."""
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
