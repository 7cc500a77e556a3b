"""Integrals of the logistic function under a normal law, for models of clicks.

With η ~ N(centre, scale²), integrals of the logistic function σ(η) are computed by the trapezoidal
rule, which converges exponentially for functions as smooth as these. With a step of 0.8 standard
deviations the normal density adds an error of exp(−2π²/0.64) = 4e-14; the poles of σ at ±iπ add
exp(−2π²/0.8) = 2e-11 if the step in η is 0.8 too.
"""

import math

from tsucb.compiler import compiled

STEP = 0.8  # in η or in its standard deviations, whichever is finer
REACH = 6.4  # standard deviations to each side
WIDEST = 100.0  # where σ is like a step: centre and scale of wider laws are scaled down to this
LEAST = 1e-16  # share of the variance that a reward takes away; smaller ones are rounding
NARROW = 1e-3  # below this scale two terms of Taylor's series are enough: errors of 1e-12


@compiled
def logistic(eta):  # type: ignore[no-untyped-def]
    """Return σ(η) = 1 / (1 + exp(−η))."""
    return 1.0 / (1.0 + math.exp(-eta))


@compiled
def mesh_of(scale):  # type: ignore[no-untyped-def]
    """Return the step in standard deviations, and the number of steps to each side.

    The integrand may grow as fast as exp(η), which moves its peak by up to `scale`.
    """
    step = STEP / max(1.0, scale)
    return step, math.ceil((REACH + scale) / step)


@compiled
def logistic_moments(centre, scale):  # type: ignore[no-untyped-def]
    """Return mean and standard deviation of σ(η)."""
    if scale > WIDEST:
        centre, scale = centre * (WIDEST / scale), WIDEST
    middle = logistic(centre)
    slope = middle * (1.0 - middle)
    if scale < NARROW:
        return middle + 0.5 * scale * scale * slope * (1.0 - 2.0 * middle), scale * slope
    step, count = mesh_of(scale)
    total, first, second = 0.0, 0.0, 0.0
    for n in range(-count, count + 1):
        z = n * step
        weight = math.exp(-0.5 * z * z)
        # Relative to the middle, so that the variance of a narrow law keeps its digits.
        away = logistic(centre + scale * z) - middle
        total += weight
        first += weight * away
        second += weight * away * away
    first /= total
    return middle + first, math.sqrt(max(second / total - first * first, 0.0))


@compiled
def after_click(centre, scale, reward):  # type: ignore[no-untyped-def]
    """Return the mean of z = (η − centre)/scale after a reward, and 1 minus its variance.

    A reward of 1 has the probability σ(η). One between 0 and 1 counts as a fraction of a click: its
    likelihood is σ(η)^reward (1 − σ(η))^(1 − reward).
    """
    if scale > WIDEST:
        centre, scale = centre * (WIDEST / scale), WIDEST
    if scale < NARROW:
        chance = logistic(centre)
        seen = chance * (1.0 - chance) * scale * scale
        return scale * (reward - chance) / (1.0 + seen), seen / (1.0 + seen)
    step, count = mesh_of(scale)
    total, first, second = 0.0, 0.0, 0.0
    for n in range(-count, count + 1):
        z = n * step
        eta = centre + scale * z
        weight = math.exp(-0.5 * z * z)
        if reward == 1.0:
            weight *= logistic(eta)
        elif reward == 0.0:
            weight *= logistic(-eta)
        else:
            weight *= logistic(eta) ** reward * logistic(-eta) ** (1.0 - reward)
        total += weight
        first += weight * z
        second += weight * z * z
    mean = first / total
    return mean, max(1.0 - (second / total - mean * mean), LEAST)


@compiled
def most_likely_after_click(centre, scale, reward):  # type: ignore[no-untyped-def]
    """Return what `after_click` returns, by Laplace's method: from mode and curvature there."""
    if scale > WIDEST:
        centre, scale = centre * (WIDEST / scale), WIDEST
    low, high, z = scale * (reward - 1.0), scale * reward, 0.0  # the mode is between these
    for _ in range(100):
        chance = logistic(centre + scale * z)
        slope = z - scale * (reward - chance)
        if slope > 0.0:
            high = z
        else:
            low = z
        trial = z - slope / (1.0 + scale * scale * chance * (1.0 - chance))
        if not low <= trial <= high:
            trial = 0.5 * (low + high)
        if abs(trial - z) < 1e-13 * (1.0 + abs(z)):
            break
        z = trial
    chance = logistic(centre + scale * z)
    seen = chance * (1.0 - chance) * scale * scale
    return z, max(seen / (1.0 + seen), LEAST)
