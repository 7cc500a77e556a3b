"""The probability with which TS-UCB plays each arm, when the arms are independent.

Ψ(a) = (f̃ − estimate(a)) / radius(a) is a straight line in f̃, so the lower envelope of the lines
cuts the real axis into intervals with one winner each, and the probability of an arm is that of f̃
falling into its interval. With one sample f̃ is the best of one draw, whose distribution function
is F = Πₖ Fₖ. With m samples f̃ is the average of m such values, whose distribution function follows
from the m-th power of the characteristic function of one.

>>> from tsucb import TSUCB, GaussianBelief
>>> TSUCB(1).probabilities(GaussianBelief(mean=[0.0, 0.0, -0.5], std=[1.0, 2.0, 2.5])).round(3)
array([0.145, 0.547, 0.308])
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tsucb.beliefs.best import (
    best_cdf,
    conceivable,
    expected_best,
    hazards,
    inside,
    narrowest,
    nodes_between,
    outline,
)
from tsucb.beliefs.law import reward_at, variable_at
from tsucb.compiler import compiled, implements
from tsucb.numeric.arrays import add_multiple, inner, largest_of, total
from tsucb.numeric.special import normal_cdf
from tsucb.policies.envelope import breakpoints
from tsucb.policies.policy import at_least_rarest, probabilities, tie_shares
from tsucb.policies.thompson import independent
from tsucb.policies.ts_ucb import TSUCB, ratios

FREQUENCIES = 2048  # the largest number of terms of the Fourier series
NEGLIGIBLE = 1e-12  # absolute value of the characteristic function that is treated as zero
STAGE = 120.0  # length of a stage in units of the finest scale in it
SHARP = 1e-9  # the first finest scale beside a certain arm, in units of the narrowest other
PHASE = 8.0  # radians by which e^(itx) may turn in one panel of 8 nodes: an error of 1e-8


def needs_expectation(policy: Any, belief: Any) -> bool:
    """Return whether f̃ is E[max]: for infinitely many samples, or arms that are not independent."""
    samples = policy.types[policy.fields.index("samples")]
    return isinstance(samples, types.Float) or not independent(policy, belief)


@implements(probabilities, TSUCB, where=needs_expectation)
def probabilities_of_expectation(policy, belief):  # type: ignore[no-untyped-def]
    return winners(belief, expected_best(belief))


@implements(probabilities, TSUCB)
def probabilities_ts_ucb(policy, belief):  # type: ignore[no-untyped-def]
    """Return P(arm is chosen), to 1e-8 with one sample and to 1e-6 with more."""
    samples = policy.samples
    arms, _, _, floor, ceiling, certain = outline(belief)
    none_better = best_cdf(belief, arms, floor) if certain else 0.0
    lowest, ends = conceivable(belief)
    low, high = reward_at(belief, lowest)[0], reward_at(belief, largest_of(ends))[0]
    points = breakpoints(belief.estimate, belief.radius, low, high)
    below = np.zeros(points.size)  # P(floor < f̃ ≤ point)
    if arms.size > 0 and samples > 1:
        average_cdf(belief, samples, points, below)
    elif arms.size > 0:
        for i in range(1, points.size - 1):
            u = min(max(variable_at(belief, points[i]), floor), ceiling)
            below[i] = best_cdf(belief, arms, u) - none_better
    below[0], below[-1] = 0.0, 1.0 - none_better**samples
    out, possible = np.zeros(belief.mean.size), winners(belief, low)
    for i in range(points.size - 1):
        middle = 0.5 * (points[i] + points[i + 1])
        winning = winners(belief, middle)
        add_multiple(out, max(below[i + 1] - below[i], 0.0), winning)
        if points[i] < middle < points[i + 1]:
            add_multiple(possible, 1.0, winning)
    if certain:
        add_multiple(out, none_better**samples, winners(belief, reward_at(belief, floor)[0]))
    return at_least_rarest(out, possible)


@compiled
def winners(belief, f):  # type: ignore[no-untyped-def]
    """Return the probability with which each arm is chosen at f̃ = f; ties share it equally."""
    return tie_shares(ratios(belief, f), -1.0)


class Stage(NamedTuple):
    """A part of the range of one draw, as `average_cdf` takes it.

    ψ fades from 1 at `fade` to 0 at `stop`, on a scale of `width`; the width of the last stage,
    which does not fade, is infinite. `below` is F at `stop`.
    """

    start: float
    stop: float
    fade: float
    width: float
    below: float


@compiled
def average_cdf(belief, samples, points, out):  # type: ignore[no-untyped-def]
    """Fill `out` with P(floor < f̃ ≤ point), f̃ being the average of m draws of the best arm.

    With φ the characteristic function of one draw, that of the average is φ(t/m)ᵐ, and
    P(f̃ ≤ x) = 1/2 − Σⱼ Im(φ(tⱼ/m)ᵐ e^(−i tⱼ x)) / (π (j + 1/2)) with tⱼ = (j + 1/2) 2π / period,
    up to the chance that f̃ lies further than the period from x.

    A wide range with a narrow arm in it needs too many frequencies. So the range is split into
    stages, each at most STAGE times as long as the finest scale in it. In a stage the measure of
    one draw is multiplied by ψ, which is 1 at first and fades to 0 at the end of the stage. The
    stage adds the m-fold convolution of this measure, less that of the stage before. As ψ is
    smooth, so is the difference, and the series converges fast: with a sharp cut instead of ψ
    it is off by 1e-3. The measure before the first stage is that of a certain arm, if there is one;
    that stage is so short that its sharp beginning does not matter.

    Reference: Davies (1973), "Numerical inversion of a characteristic function".
    """
    shape = outline(belief)
    arms, high, scale, floor, ceiling, certain = shape
    chance = best_cdf(belief, arms, floor) if certain else 0.0
    atom = np.array([reward_at(belief, floor)[0]]), np.array([chance])
    before = Stage(floor, floor, floor, np.inf, chance)
    finest = narrowest(high, scale, floor) * (SHARP if certain else 1.0)
    out[:] = 0.0
    while before.stop < ceiling:
        start = before.stop
        stop = max(floor + STAGE * finest, start + 0.5 * STAGE * finest)
        if not start < stop < ceiling:
            stop = ceiling
        fade = 0.5 * (start + stop)
        width = (stop - fade) / 12.0 if stop < ceiling else np.inf
        below = best_cdf(belief, arms, stop) if stop < ceiling else 1.0
        stage = Stage(start, stop, fade, width, below)
        add_stage(belief, shape, before, stage, atom, samples, points, out)
        finest = min(narrowest(high, scale, fade), width)
        before = stage


@compiled
def add_stage(belief, shape, before, stage, atom, samples, points, out):  # type: ignore[no-untyped-def]
    """Add the contribution of a stage to the distribution function of f̃ at the points."""
    terms = np.empty(points.size)
    span, count = np.inf, 0.0
    while True:
        value, after, earlier = stage_masses(belief, shape, before, stage, span, atom)
        sum_after, sum_earlier = min(total(after), 1.0), total(earlier)
        gained = max(sum_after**samples - sum_earlier**samples, 0.0)
        mean = inner(after, value) / sum_after
        variance = 0.0
        for i in range(after.size):
            variance += after[i] * (value[i] - mean) ** 2
        variance /= sum_after
        # Bernstein's inequality: beyond this distance f̃ falls with chance 1e-10 at most.
        bound = 23.0 * (value[-1] - value[0]) / (3.0 * samples)
        reach = bound + math.sqrt(bound * bound + 46.0 * variance / samples)
        low, top = max(mean - reach, value[0]), min(mean + reach, value[-1])
        if gained < NEGLIGIBLE or not variance > 0.0 or not top > low:
            low, top = mean, mean
            break
        step = 2.0 * math.pi / (top - low)
        if count == 0.0:
            # φᵐ vanishes beyond about 8 / (standard deviation of f̃), or later if some arms are
            # narrow. The nodes of this first round only serve this estimate.
            count = 8.0 * math.sqrt(samples / variance) / step + 16.0
        else:
            vanished = fourier_sum(
                value - mean, after, earlier, samples, step, int(count), points - mean, terms
            )
            if vanished or count >= FREQUENCIES:
                break
            count *= 3.0
        count = min(count, FREQUENCIES)
        span = PHASE * samples / (step * count)
    for i in range(points.size):
        if points[i] >= top:
            out[i] += gained
        elif points[i] > low:
            out[i] += min(max(0.5 * gained - terms[i] / math.pi, 0.0), gained)


@compiled
def stage_masses(belief, shape, before, stage, span, atom):  # type: ignore[no-untyped-def]
    """Return rewards, and the masses of one draw there: after the stage, and after the one before.

    Nodes are at most `span` apart in rewards. Those below the stage are placed again, no finer than
    this stage needs.
    """
    arms, high, scale, floor, _, _ = shape
    nodes, weights = nodes_between(belief, high, scale, floor, stage.start, 3 * before.width, span)
    value, mass = masses_so_far(belief, arms, high, nodes, weights, before.below, atom[0], atom[1])
    earlier = fade_out(mass, nodes, 0.5 * (before.fade + before.stop), before.width)
    nodes, weights = nodes_between(
        belief, high, scale, stage.start, stage.stop, 3 * stage.width, span
    )
    value, mass = masses_so_far(belief, arms, high, nodes, weights, stage.below, value, mass)
    return value, fade_out(mass, nodes, 0.5 * (stage.fade + stage.stop), stage.width), earlier


@compiled
def fade_out(mass, nodes, middle, width):  # type: ignore[no-untyped-def]
    """Return the masses times ψ, which is below 1 at the last masses only, those at `nodes`."""
    out = mass.copy()
    if width < np.inf:
        for i in range(nodes.size):
            out[mass.size - nodes.size + i] *= normal_cdf((middle - nodes[i]) / width)
    return out


@compiled
def masses_so_far(belief, arms, high, nodes, weights, below, old_value, old_mass):  # type: ignore[no-untyped-def]
    """Return the old rewards and masses of one draw, followed by those at the nodes.

    `below` is the sum of all these masses.
    """
    before = old_value.size
    value, mass = np.empty(before + nodes.size), np.empty(before + nodes.size)
    for i in range(before):
        value[i], mass[i] = old_value[i], old_mass[i]
    best, _, hazard = hazards(belief, arms, nodes, inside(high, nodes))
    new = 0.0
    for i in range(nodes.size):
        rate = 0.0
        for k in range(arms.size):
            rate += hazard[k, i]
        value[before + i] = reward_at(belief, nodes[i])[0]
        mass[before + i] = weights[i] * best[i] * rate
        new += mass[before + i]
    # Scale the new masses to their known sum: the m-th power would multiply an error of it by m.
    if new > 0.0:
        factor = max(below - total(old_mass), 0.0) / new
        for i in range(before, mass.size):
            mass[i] *= factor
    return value, mass


@compiled
def fourier_sum(value, after, earlier, samples, step, count, points, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the sum of `count` frequencies; return whether the last were negligible.

    `earlier` may be shorter than `after`: the stage before ended at fewer nodes.
    """
    out[:] = 0.0
    angle = step / samples
    cosine, sine = np.cos(0.5 * angle * value), np.sin(0.5 * angle * value)
    turn_cosine, turn_sine = np.cos(angle * value), np.sin(angle * value)
    quiet = 0
    for j in range(count):
        old_real, old_imaginary = power(earlier, cosine, sine, samples)
        real, imaginary = power(after, cosine, sine, samples)
        real -= old_real
        imaginary -= old_imaginary
        for i in range(value.size):
            c = cosine[i] * turn_cosine[i] - sine[i] * turn_sine[i]
            sine[i] = cosine[i] * turn_sine[i] + sine[i] * turn_cosine[i]
            cosine[i] = c
        # Fade the last terms out, in case the series has not converged by then.
        fade = math.exp(-30.0 * ((j + 0.5) / FREQUENCIES) ** 8) / (j + 0.5)
        for i in range(points.size):
            shift = (j + 0.5) * step * points[i]
            out[i] += fade * (imaginary * math.cos(shift) - real * math.sin(shift))
        quiet = quiet + 1 if abs(real) + abs(imaginary) < NEGLIGIBLE else 0
        if quiet == 8:
            return True
    return False


@compiled
def power(mass, cosine, sine, samples):  # type: ignore[no-untyped-def]
    """Return real and imaginary part of (Σ mass (cosine + i sine))ᵐ."""
    real, imaginary = 0.0, 0.0
    for i in range(mass.size):
        real += mass[i] * cosine[i]
        imaginary += mass[i] * sine[i]
    modulus = (real * real + imaginary * imaginary) ** (0.5 * samples)
    phase = samples * math.atan2(imaginary, real)
    return modulus * math.cos(phase), modulus * math.sin(phase)
