"""Balls and ellipsoids around the origin: finding an arm is solving one equation in one unknown.

In coordinates in which the set is the unit ball, and along the eigenvectors of the uncertainty
Σ = SSᵀ with eigenvalues σᵢ², consider the curve

    v(x)ᵢ = μᵢ / (1 − x σᵢ²),        −∞ < x < 1/σ²_max.

The arm v/|v| maximises ⟨μ, a⟩ + α‖a‖ for α = x ‖v‖, and the maximum is |v|. The reason: with
ρ = x|v| and any a of the ball

    α‖a‖ ≤ ρ‖a‖²/2 + α²/(2ρ),    and    ⟨μ, a⟩ + ρ‖a‖²/2    is largest at v/|v|,

because the second derivative of its Lagrangian, −|v| (I − xΣ), is negative definite; and at v/|v|
the first inequality is an equality. (For x < 0 the problem is concave, so a stationary point is
enough.) So

- UCB solves x ‖v(x)‖ = α for x,
- TS-UCB solves |v(x)| = f̃ for x.

Both left sides increase in x, so each equation has at most one root, even where the problem is not
convex. It has none if μ has no component along the widest axis and the left side stays below its
goal. Then v gets the component along that axis that reaches the goal, of either sign (the "hard
case" of trust-region problems). This happens before the first reward, when μ = 0.

Reference: Moré and Sorensen (1983), "Computing a trust region step".
"""

import math
from typing import Any

import numpy as np

from tsucb.checks import Count, Positive, floats, within
from tsucb.compiler import compiled, hook, implements
from tsucb.numeric.arrays import Floats, inner
from tsucb.numeric.eigen import symmetric_eigen
from tsucb.record import derived
from tsucb.sets.arm_set import ArmSet, bound_at, least_ratio, optimistic, ratio_at, support

ROUNDS = 200  # at most, of bisection; Newton's method takes five
PRECISE = 1e-15  # relative


class Round(ArmSet):
    """An image of the unit ball under a linear map."""


class Ball(Round):
    """All vectors of length at most `radius`.

    Parameters
    ----------
    features
        d.
    radius
        The length of the longest arms.

    >>> import numpy as np
    >>> from tsucb.sets.arm_set import support
    >>> arm = np.empty(2)
    >>> support(Ball(2), np.array([3.0, 4.0]), arm), arm
    (5.0, array([0.6, 0.8]))
    """

    features: Count
    radius: Positive = 1.0

    @property
    def dimension(self) -> int:
        """d."""
        return self.features


class Ellipsoid(Round):
    """All a with aᵀ shape⁻¹ a ≤ 1: around the origin, with squared half-axes shape's eigenvalues.

    Parameters
    ----------
    shape
        A symmetric positive definite matrix (d, d), or the squared half-axes (d,) along the
        coordinates.

    >>> import numpy as np
    >>> from tsucb.sets.arm_set import support
    >>> arm = np.empty(2)
    >>> support(Ellipsoid([4.0, 1.0]), np.array([1.0, 0.0]), arm), arm
    (2.0, array([2., 0.]))
    """

    shape: Any
    axes: Floats = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Derive the axes, the shape's Cholesky factor; raise ValueError if it has none."""
        given = floats("shape", values["shape"])
        matrix = np.diag(given) if given.ndim == 1 else given
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise ValueError(
                f"shape must be a square matrix or squared half-axes, not of shape {given.shape}"
            )
        if not within(matrix) or not np.allclose(matrix, matrix.T):
            raise ValueError("shape must be symmetric and finite")
        smallest = np.linalg.eigvalsh(matrix).min()
        if not smallest > 0:
            raise ValueError(
                f"shape must be positive definite, but its smallest eigenvalue is {smallest:g}"
            )
        values |= {"shape": matrix.copy(), "axes": np.linalg.cholesky(matrix)}

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.axes)


@hook
def inward(arms, vector, out):  # type: ignore[no-untyped-def]
    """Fill `out` with coefficients, such as θ, in the coordinates of the unit ball."""


@hook
def outward(arms, vector, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the arm of a point of the unit ball."""


@implements(inward, Ball)
@implements(outward, Ball)
def scale_by_radius(arms, vector, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = arms.radius * vector[i]


@implements(inward, Ellipsoid)
def times_axes_transposed(arms, vector, out):  # type: ignore[no-untyped-def]
    for j in range(out.size):
        total = 0.0
        for i in range(j, out.size):
            total += arms.axes[i, j] * vector[i]
        out[j] = total


@implements(outward, Ellipsoid)
def times_axes(arms, vector, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        total = 0.0
        for j in range(i + 1):
            total += arms.axes[i, j] * vector[j]
        out[i] = total


@implements(support, Round)
def support_round(arms, direction, point):  # type: ignore[no-untyped-def]
    inside = np.empty(point.size)
    inward(arms, direction, inside)
    length = math.sqrt(inner(inside, inside))
    if length == 0.0:  # all arms are equally good
        inside[0] = 1.0
    else:
        for i in range(inside.size):
            inside[i] /= length
    outward(arms, inside, point)
    return length


@implements(optimistic, Round)
def optimistic_round(arms, mean, root, alpha, point):  # type: ignore[no-untyped-def]
    if alpha <= 0.0:
        return support(arms, mean, point)
    solve_on_curve(arms, mean, root, alpha, True, point)
    return bound_at(mean, root, alpha, point)


@implements(least_ratio, Round)
def least_ratio_round(arms, mean, root, f, point):  # type: ignore[no-untyped-def]
    if f <= 0.0:  # no support is negative; the origin pays 0 for certain
        point[:] = 0.0
    else:
        solve_on_curve(arms, mean, root, f, False, point)
    return ratio_at(mean, root, f, point)


@compiled
def solve_on_curve(arms, mean, root, goal, upper, point):  # type: ignore[no-untyped-def]
    """Put the arm v(x)/|v(x)| into `point`, for the x with x‖v(x)‖ = goal or |v(x)| = goal.

    The first is solved if `upper`, else the second. The unknown is g = 1 − x σ²_max > 0 in place of
    x: with rᵢ = σᵢ²/σ²_max the denominators are (1 − rᵢ) + g rᵢ, which lose no digits when g is
    tiny. In units of σ_max, the left side is (1 − g)ᵏ √Σ rᵢᵏ vᵢ², with k = 1 if `upper`, else 0.
    """
    d = mean.size
    turned, ratios, vectors, widest, spread = spectrum(arms, mean, root)
    if upper:
        goal *= spread
    v = np.empty(d)
    length = math.sqrt(inner(turned, turned))
    # Bracket the root: below `low` a single component exceeds the goal, above `high` all together
    # do not reach it.
    low = 0.0 if upper or goal >= length else 1.0
    for i in range(d):
        r, size = ratios[i], abs(turned[i])
        if upper:
            size *= math.sqrt(r)
            low = max(low, (size - goal * (1.0 - r)) / (size + goal * r))
        else:
            low = max(low, (size / goal - (1.0 - r)) / r)
    if upper:
        high = length / (length + goal)
    else:
        high = min(1.0, length / goal) if goal >= length else length / (goal * ratios.min())
    if low == 0.0:
        value, _ = reach(turned, ratios, 0.0, upper, v)
        if value < goal:  # the hard case
            v[widest] = math.sqrt(goal * goal - value * value)
            return put_arm(arms, vectors, v, point)
    # Newton's method for 1/value, which is almost linear in g; where a step would leave the
    # bracket, bisection instead.
    g = low if low > 0.0 else 0.5 * high
    for _ in range(ROUNDS):
        value, slope = reach(turned, ratios, g, upper, v)
        if abs(value - goal) <= PRECISE * goal:
            break
        if value > goal:
            low = g
        else:
            high = g
        trial = g + value * (value - goal) / (-slope * goal)
        if not low < trial < high:
            trial = math.sqrt(low) * math.sqrt(high) if low > 0.0 else 0.5 * high
        if abs(trial - g) <= PRECISE * g or high - low <= PRECISE * high:
            break
        g = trial
    return put_arm(arms, vectors, v, point)


@compiled
def spectrum(arms, mean, root):  # type: ignore[no-untyped-def]
    """Return μ along the eigenvectors of Σ, the eigenvalues divided by the largest, the vectors.

    After these, the index of the largest eigenvalue and its square root.
    """
    d = mean.size
    inside, rows = np.empty(d), np.empty((d, root.shape[1]))
    inward(arms, mean, inside)
    for j in range(root.shape[1]):
        inward(arms, root[:, j], rows[:, j])
    matrix = np.empty((d, d))
    for i in range(d):
        for k in range(i + 1):
            matrix[i, k] = inner(rows[i], rows[k])
            matrix[k, i] = matrix[i, k]
    values, vectors = symmetric_eigen(matrix)
    widest = values.argmax()
    largest = values[widest]
    turned = np.zeros(d)
    for i in range(d):
        values[i] = min(max(values[i] / largest, 1e-300), 1.0)
        for k in range(d):
            turned[i] += vectors[k, i] * inside[k]
    values[widest] = 1.0  # exactly, whatever the division was compiled to
    return turned, values, vectors, widest, math.sqrt(largest)


@compiled
def reach(turned, ratios, g, upper, v):  # type: ignore[no-untyped-def]
    """Set v to v(g); return the left side of the equation in the goal's units, and its slope."""
    square, falling = 0.0, 0.0
    for i in range(v.size):
        if turned[i] == 0.0:  # then v is 0 even if the denominator is, too
            v[i] = 0.0
            continue
        denominator = (1.0 - ratios[i]) + g * ratios[i]
        v[i] = turned[i] / denominator
        term = v[i] * v[i] * ratios[i] if upper else v[i] * v[i]
        square += term
        falling += term * ratios[i] / denominator
    value = math.sqrt(square)
    slope = -falling / value if value > 0.0 else 0.0
    if upper:
        return (1.0 - g) * value, (1.0 - g) * slope - value
    return value, slope


@compiled
def put_arm(arms, vectors, v, point):  # type: ignore[no-untyped-def]
    """Put the arm of v/|v| into `point`, with v along the eigenvectors."""
    d = v.size
    length = math.sqrt(inner(v, v))
    inside = np.zeros(d)
    for k in range(d):
        for i in range(d):
            inside[k] += vectors[k, i] * v[i]
        inside[k] /= length
    outward(arms, inside, point)
