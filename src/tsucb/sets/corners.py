"""Sets with corners, boxes and polytopes: how TS-UCB finds its arm.

If f is at least the largest mean, all ratios (f − ⟨μ, a⟩)/‖a‖ are positive. The smallest is then at
a corner, because the largest value of the convex function ⟨μ, a⟩ + α‖a‖ is. Dinkelbach's (1967)
iteration, which is Newton's method for the α at which that value reaches f, goes from corner to
better corner: it takes finitely many steps and is as exact as `optimistic`.

If f is less, as it may be for every second draw, the smallest ratio is negative: it belongs to the
arm with the largest (⟨μ, a⟩ − f)/‖a‖, which may lie inside. This problem is convex. With weights
w ≥ 0 of corners v, b = Σ w_v v and c_v = ⟨μ, v⟩ − f, it is to

    maximise Σ w_v c_v − ‖b‖²/2,

because its maximum over the length of w is half the squared ratio; the arm is b/Σw. The corner that
improves this most has the largest ⟨μ − Σb, v⟩, with Σ the uncertainty, and `support` finds it. So
corners enter one by one, those whose weight would become negative leave (Lawson and Hanson 1974),
and at most d + 1 corners are held at a time. It ends at the optimum, in any dimension. If f is
below 0 and the origin is in the set, the weights grow without bound: the origin is the arm, as it
is certain and pays more than f.

References: Dinkelbach (1967), "On nonlinear fractional programming"; Lawson and Hanson (1974),
"Solving least squares problems", chapter 23.
"""

import math

import numpy as np

from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import copy_to, inner, total
from tsucb.sets.arm_set import ArmSet, least_ratio, optimistic, ratio_at, support

ENOUGH = 1e-13  # a corner whose relative gain is smaller counts as no improvement
MOST_STEPS = 100_000


class Cornered(ArmSet):
    """A convex set with finitely many corners."""


@implements(least_ratio, Cornered)
def least_ratio_cornered(arms, mean, root, f, point):  # type: ignore[no-untyped-def]
    highest = support(arms, mean, point)
    if f < highest:
        return surest(arms, mean, root, f, highest, point)
    ratio = ratio_at(mean, root, f, point)
    trial = np.empty(point.size)
    for _ in range(MOST_STEPS):
        optimistic(arms, mean, root, ratio if ratio < np.inf else 1.0, trial)
        better = ratio_at(mean, root, f, trial)
        if not better < ratio:
            break
        ratio = better
        copy_to(point, trial)
    return ratio


@compiled
def surest(arms, mean, root, f, highest, point):  # type: ignore[no-untyped-def]
    """Return the least ratio where f is below the largest mean; see the module's docstring."""
    d = mean.size
    corners, seen = np.empty((d + 2, d)), np.empty((d + 2, d))
    gains, weights, solved = np.zeros(d + 2), np.zeros(d + 2), np.zeros(d + 2)
    factor = np.empty((d + 2, d + 2))
    direction, b = np.empty(d), np.empty(d)
    held, gain = 0, highest - f
    for _ in range(MOST_STEPS):
        # The corner in `point` enters.
        for i in range(d):
            corners[held, i] = point[i]
            seen[held, i] = 0.0
            for k in range(d):
                seen[held, i] += root[k, i] * point[k]
        gains[held] = inner(mean, point) - f
        weights[held] = 0.0
        held, unbounded = reweigh(corners, seen, gains, weights, solved, factor, held + 1)
        if unbounded:
            break
        for i in range(d):
            b[i] = 0.0
            for n in range(held):
                b[i] += weights[n] * seen[n, i]
        for k in range(d):
            direction[k] = mean[k] - inner(root[k], b)
        gain = support(arms, direction, point) - f
        if gain <= ENOUGH * (abs(f) + abs(highest) + 1e-300) or held > d:
            break
    whole = total(weights[:held])
    for i in range(d):
        point[i] = 0.0
        for n in range(held):
            point[i] += weights[n] / whole * corners[n, i]
    return ratio_at(mean, root, f, point)


@compiled
def reweigh(corners, seen, gains, weights, solved, factor, held):  # type: ignore[no-untyped-def]
    """Find the best weights of the corners, and drop corners whose weight would be negative.

    Return how many corners stay, and whether the weights can grow without bound.
    """
    while held > 0:
        singular = solve(seen, gains, solved, factor, held)
        # Move the weights towards `solved`, or along it where the last corner is a combination of
        # the others, as far as all stay positive.
        step, out = (np.inf if singular else 1.0), -1
        for n in range(held):
            change = solved[n] if singular else solved[n] - weights[n]
            if change < 0.0 and -weights[n] / change < step:
                step, out = -weights[n] / change, n
        if out < 0:
            for n in range(held):
                weights[n] = solved[n]
            return held, singular
        for n in range(held):
            weights[n] += step * (solved[n] if singular else solved[n] - weights[n])
        held -= 1
        for n in range(out, held):
            weights[n], gains[n] = weights[n + 1], gains[n + 1]
            for i in range(corners.shape[1]):
                corners[n, i], seen[n, i] = corners[n + 1, i], seen[n + 1, i]
    return held, False


@compiled
def solve(seen, gains, solved, factor, held):  # type: ignore[no-untyped-def]
    """Solve for the weights at which no corner gains, with a Cholesky factor; return False.

    If the last corner is a combination of the others, put the direction from them to it into
    `solved` instead, and return True.
    """
    for n in range(held):
        for m in range(n + 1):
            rest = inner(seen[n], seen[m])
            size = rest
            for k in range(m):
                rest -= factor[n, k] * factor[m, k]
            if m < n:
                factor[n, m] = rest / factor[m, m]
            elif n == held - 1 and rest <= 1e-14 * size:
                for k in range(n):
                    solved[k] = -factor[n, k]
                solve_transposed(factor, solved, n)
                solved[n] = 1.0
                return True
            else:
                factor[n, n] = math.sqrt(max(rest, 1e-300))
    for n in range(held):
        solved[n] = gains[n]
        for k in range(n):
            solved[n] -= factor[n, k] * solved[k]
        solved[n] /= factor[n, n]
    solve_transposed(factor, solved, held)
    return False


@compiled
def solve_transposed(factor, solved, size):  # type: ignore[no-untyped-def]
    """Solve factorᵀ x = solved in place, with the first `size` rows."""
    for n in range(size - 1, -1, -1):
        for k in range(n + 1, size):
            solved[n] -= factor[k, n] * solved[k]
        solved[n] /= factor[n, n]
