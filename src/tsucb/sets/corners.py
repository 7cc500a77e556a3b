"""Sets with corners: what boxes and polytopes have in common is how TS-UCB finds its arm.

If f is at least the largest mean, all ratios (f − ⟨μ, a⟩)/‖a‖ are positive and the smallest is at a
corner, as the largest of the convex function ⟨μ, a⟩ + α‖a‖ is. Dinkelbach's (1967) iteration,
Newton's method for the α at which that reaches f, goes from corner to better corner: finitely many
steps, as exact as `optimistic`.

If f is less, which one draw in two may be, it is the best of the negative ratios that counts: the
arm with the largest (⟨μ, a⟩ − f)/‖a‖, which may lie inside. That problem is convex. With weights w
≥ 0 of corners v, b = Σ w_v v and c_v = ⟨μ, v⟩ − f, it is to

    maximise Σ w_v c_v − ‖b‖²/2,

as over the length of w this is half the squared ratio; the arm is b/Σw. The corner that would
improve it most is the one with the largest ⟨μ − Σb, v⟩, which `support` finds: so corners come in
one by one, weights that become negative go (Lawson and Hanson 1974), and at most d + 1 corners are
ever held. It ends with the optimum, in any dimension. If f is below 0 and the set has the origin in
it, nothing bounds the weights: the origin is certain, and pays more than f.

References: Dinkelbach (1967), "On nonlinear fractional programming"; Lawson and Hanson (1974),
"Solving least squares problems", chapter 23.
"""

import math

import numpy as np

from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import copy_to, inner, total
from tsucb.sets.arm_set import ArmSet, least_ratio, optimistic, ratio_at, support

ENOUGH = 1e-13  # a corner that improves less, as a share of what is compared, is no improvement
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
    """Return the least ratio where f is below the largest mean; see the top of this file."""
    d = mean.size
    corners, seen = np.empty((d + 2, d)), np.empty((d + 2, d))
    gains, weights, solved = np.zeros(d + 2), np.zeros(d + 2), np.zeros(d + 2)
    gram = np.empty((d + 2, d + 2))
    direction, b = np.empty(d), np.empty(d)
    held, gain = 0, highest - f
    for _ in range(MOST_STEPS):
        # `point` is the corner that comes in.
        for i in range(d):
            corners[held, i] = point[i]
            seen[held, i] = 0.0
            for k in range(d):
                seen[held, i] += root[k, i] * point[k]
        gains[held] = inner(mean, point) - f
        weights[held] = 0.0
        held, endless = reweigh(corners, seen, gains, weights, solved, gram, held + 1)
        if endless:
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
def reweigh(corners, seen, gains, weights, solved, gram, held):  # type: ignore[no-untyped-def]
    """Find the best weights of the corners, and drop corners whose weight would be negative.

    Return how many corners stay, and whether the weights can grow without bound.
    """
    while held > 0:
        singular = solve(seen, gains, solved, gram, held)
        # From the weights towards `solved`, or along it where the last corner is a combination of
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
def solve(seen, gains, solved, gram, held):  # type: ignore[no-untyped-def]
    """Solve for the weights at which no corner gains any more, by Cholesky's method.

    If the last corner is a combination of the others, put the direction from them to it into
    `solved` and return True.
    """
    for n in range(held):
        for m in range(n + 1):
            rest = inner(seen[n], seen[m])
            size = rest
            for k in range(m):
                rest -= gram[n, k] * gram[m, k]
            if m < n:
                gram[n, m] = rest / gram[m, m]
            elif n == held - 1 and rest <= 1e-14 * size:
                for k in range(n - 1, -1, -1):
                    solved[k] = -gram[n, k]
                    for j in range(k + 1, n):
                        solved[k] -= gram[j, k] * solved[j]
                    solved[k] /= gram[k, k]
                solved[n] = 1.0
                return True
            else:
                gram[n, n] = math.sqrt(max(rest, 1e-300))
    for n in range(held):
        solved[n] = gains[n]
        for k in range(n):
            solved[n] -= gram[n, k] * solved[k]
        solved[n] /= gram[n, n]
    for n in range(held - 1, -1, -1):
        for k in range(n + 1, held):
            solved[n] -= gram[k, n] * solved[k]
        solved[n] /= gram[n, n]
    return False
