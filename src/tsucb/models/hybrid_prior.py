"""The prior of hybrid rewards, learned from the rewards: what arms share, and what is their own.

With x the context and z the features of an arm, both standardised by what was seen, and
φ = (1, x, z, x⊗z), v = (1, x) the first part of φ, arm k pays

    reward = θᵀφ + uₖᵀv + noise,       noise ~ N(0, σ²)
    θ  ~ N(0, diag(V, ω_c², …, ω_a², …, ω_×², …))     shared by all arms (rewards centred)
    uₖ ~ N(0, diag(τ₀², τ², …))                       the arm's own

Given θ the arms are independent, and the uₖ can be integrated out. Of an arm only the sums
Sₖ = Σ vφᵀ and Yₖ = Σ vy matter; the first columns of Sₖ are Σ vvᵀ. With E the own prior covariance
and Wₖ = (Σ vvᵀ + σ²E⁻¹)⁻¹, an observation (φ, v, y) of arm k tells of θ just what the observation

    φ − Sₖᵀ Wₖ v,   y − Yₖᵀ Wₖ v,   with noise variance σ² (1 + vᵀ Wₖ v)                      (1)

would tell of it alone: one rank-one update, whatever the number of arms. And all of them together
tell what the reduced sums Σ φφᵀ − Σₖ Sₖᵀ Wₖ Sₖ tell. An arm that leaves stays in them with the Wₖ
that it had (`Learned.gone`): what it taught of θ is kept, what was its own is not.

The sums have the reward as a last column, φ⁺ = (φ, y), so that one matrix holds all of them. They
are relative to the first context, arm and reward (the anchor), add up over agents, and are
standardised anew at any time: an affine map of x and z maps φ linearly.

The numbers σ², τ₀², τ², ω² are refreshed as `tsucb.models.empirical_bayes` does it, by one step of
MacKay's (1992) fixed point with a weak prior that is worth a few observations.

References: Li, Chu, Langford and Schapire (2010), "A contextual-bandit approach to personalized
news article recommendation" (hybrid models, and the reduced sums); Henderson (1975), "Best linear
unbiased estimation and prediction under a selection model"; MacKay (1992), "Bayesian
interpolation".
"""

from typing import NamedTuple

import numpy as np

from tsucb.compiled import compiled, inlined
from tsucb.models.empirical_bayes import (
    BALANCE,
    DUE,
    FIRST,
    GAP,
    KNOWN,
    LEAST_NOISE,
    LEVEL,
    MORE,
    NOISE,
    NOISE_WORTH,
    ROUNDING,
    SINCE,
    SLOPES,
    SPREAD,
    WORTH,
    factorise,
    invert,
    near,
)
from tsucb.numeric.arrays import Floats, copy_rows

# Places in `Learned.numbers`: σ², τ₀², τ², and ω² of the context, of the arms' features, and of
# their products, as shares of V.
SIGMA, TAU0, TAU, CONTEXT, ARM, CROSSED = range(6)

# The guess for an arm's own slopes, all together: as its own level. Small, see `LEVEL`.
OWN_SLOPES = LEVEL


class Learned(NamedTuple):
    """What is kept beside the sums of every arm: P coefficients, of the d features of a row."""

    gram: Floats  # (P + 1, P + 1) Σ φ⁺φ⁺ᵀ over all rewards
    gone: Floats  # (P + 1, P + 1) Σₖ Sₖᵀ Wₖ Sₖ over the arms that left
    votes: Floats  # (3,) of the arms that left: Σ n/(n+1), and Σ y/(n+1), Σ y²/(n+1)
    anchor: Floats  # (1 + d,) y₀, then x₀ and z₀
    active: Floats  # (P,) 1 for the constant and for each feature that has varied
    numbers: Floats  # (6,) see above
    variance: Floats  # (1,) the noise variance with which is learned until the next refresh
    unknown: Floats  # (q, q) the root of an arm's own effect before any of its rewards
    clock: Floats  # (5,) as in `tsucb.models.empirical_bayes`


class Scales(NamedTuple):
    """What all rewards and rows so far say about scales."""

    weight: float  # of everything seen
    level: float  # mean reward, every arm counting alike
    spread: float  # V, the variance of the rewards; 1 while they are all equal
    known: bool  # whether two different rewards are known
    centre: Floats  # (1 + d,) of the row's features, relative to the anchor
    inverse: Floats  # (1 + d,) 1 / standard deviation, 0 where one has not varied


class Refreshed(NamedTuple):
    """The posterior N(mean, root rootᵀ) of θ, and the root of each arm's σ² Wₖ."""

    mean: Floats  # (P,)
    root: Floats  # (P, P)
    own: Floats  # (K, q, q)
    information: float


@inlined
def survey(learned, sums, square):  # type: ignore[no-untyped-def]
    """Centre and spread of the features, by weight; of the rewards, by arm."""
    gram, features, last = learned.gram, learned.anchor.size, learned.gram.shape[0] - 1
    votes, level, total = learned.votes[0], learned.votes[1], learned.votes[2]
    for k in range(square.size):
        vote = 1.0 / (sums[k, 0, 0] + BALANCE)
        votes += sums[k, 0, 0] * vote
        level += vote * sums[k, 0, last]
        total += vote * square[k]
    centre, inverse = np.zeros(features), np.zeros(features)
    weight = gram[0, 0]
    if weight <= 0.0:
        return Scales(0.0, 0.0, 1.0, False, centre, inverse)
    level, total = level / votes, total / votes
    spread = total - level * level
    known = spread > ROUNDING * total
    for j in range(1, features):
        centre[j] = gram[0, j] / weight
        mean_square = gram[j, j] / weight
        variance = mean_square - centre[j] * centre[j]
        if variance > ROUNDING * mean_square:
            inverse[j] = 1.0 / np.sqrt(variance)
    return Scales(weight, level, spread if known else 1.0, known, centre, inverse)


@inlined
def standardising(scales, context, size):  # type: ignore[no-untyped-def]
    """The matrix that maps φ⁺ to standardised features and centred rewards."""
    centre, inverse = scales.centre, scales.inverse
    d = centre.size - 1
    matrix = np.zeros((size + 1, size + 1))
    matrix[0, 0] = 1.0
    matrix[size, size], matrix[size, 0] = 1.0, -scales.level
    for j in range(1, d + 1):
        matrix[j, j], matrix[j, 0] = inverse[j], -centre[j] * inverse[j]
    place = d + 1
    if size > place:  # (x − c)(z − e) = xz − ez·x − cx·z + ce
        for i in range(1, context + 1):
            for j in range(context + 1, d + 1):
                scale = inverse[i] * inverse[j]
                matrix[place, place] = scale
                matrix[place, i] = -centre[j] * scale
                matrix[place, j] = -centre[i] * scale
                matrix[place, 0] = centre[i] * centre[j] * scale
                place += 1
    return matrix


@inlined
def guesses(learned, scales, context):  # type: ignore[no-untyped-def]
    """What the numbers are before there is evidence, and the block of every coefficient."""
    d, size = learned.anchor.size - 1, learned.active.size
    block = np.zeros(size, np.int64)
    counts = np.zeros(6)
    for j in range(1, d + 1):
        kind = CONTEXT if j <= context else ARM
        if scales.inverse[j] > 0.0:
            block[j] = kind
            counts[kind] += 1.0
    place = d + 1
    if size > place:
        for i in range(1, context + 1):
            for j in range(context + 1, d + 1):
                if block[i] > 0 and block[j] > 0:
                    block[place] = CROSSED
                    counts[CROSSED] += 1.0
                place += 1
    guess = np.empty(6)
    guess[SIGMA], guess[TAU0] = NOISE, LEVEL
    guess[TAU] = OWN_SLOPES / max(counts[CONTEXT], 1.0)
    for kind in (CONTEXT, ARM, CROSSED):
        guess[kind] = SLOPES / max(counts[kind], 1.0)
    return guess, block


@compiled
def refresh(learned, sums, square, context, learning):  # type: ignore[no-untyped-def]
    """Standardise anew, find the posteriors, and let the numbers take a step."""
    size, own_size = learned.active.size, sums.shape[1]
    clock, numbers = learned.clock, learned.numbers
    scales = survey(learned, sums, square)
    guess, block = guesses(learned, scales, context)
    fresh = not scales.known or clock[KNOWN] == 0.0
    for i in range(6):
        if fresh:
            numbers[i] = guess[i]
    noise = numbers[SIGMA] * scales.spread
    learned.variance[0] = noise
    scale, own_scale = np.zeros(size), np.zeros(own_size)
    scale[0], own_scale[0] = np.sqrt(scales.spread), np.sqrt(numbers[TAU0] * scales.spread)
    for j in range(1, size):
        if block[j] > 0:
            scale[j] = np.sqrt(numbers[block[j]] * scales.spread)
        learned.active[j] = 1.0 if block[j] > 0 else 0.0
    for j in range(1, own_size):
        if block[j] > 0:
            own_scale[j] = np.sqrt(numbers[TAU] * scales.spread)

    # Every arm with rewards: its factor L, and L⁻¹ E^½ Sₖ / σ, one below the other.
    map_ = standardising(scales, context, size)
    tried = np.flatnonzero(sums[:, 0, 0])
    rows = own_size * tried.size
    stack = np.empty((rows, size + 1))
    for n in range(tried.size):
        copy_rows(stack[n * own_size : (n + 1) * own_size], sums[tried[n]])
    stack = np.dot(stack, transposed(map_))
    factors = np.zeros((rows, own_size))
    piece, inner = np.empty((own_size, size + 1)), np.empty((own_size, own_size))
    for n in range(tried.size):
        first = n * own_size
        for i in range(own_size):
            for j in range(size + 1):  # row i of the map, which is triangular with two entries
                piece[i, j] = map_[i, i] * stack[first + i, j]
                if i > 0:
                    piece[i, j] += map_[i, 0] * stack[first, j]
        for i in range(own_size):
            for j in range(own_size):
                inner[i, j] = own_scale[i] * piece[i, j] * own_scale[j] / noise
            inner[i, i] += 1.0
        inverse = inverse_root(inner)
        for i in range(own_size):
            for j in range(own_size):
                factors[first + i, j] = inverse[i, j]
            for j in range(size + 1):
                total = 0.0
                for l in range(i + 1):
                    total += inverse[i, l] * own_scale[l] * piece[l, j]
                stack[first + i, j] = total / np.sqrt(noise)

    # The reduced sums, and the posterior of θ from them, whitened by its prior.
    reduced = np.dot(map_, np.dot(learned.gram - learned.gone, transposed(map_)))
    reduced -= np.dot(transposed(stack), stack)
    precision, right = np.empty((size, size)), np.empty(size)
    for i in range(size):
        for j in range(size):
            precision[i, j] = scale[i] * reduced[i, j] * scale[j] / noise
        precision[i, i] += 1.0
        right[i] = scale[i] * reduced[i, size] / noise
    root = inverse_root(precision)  # A⁻¹ = rootᵀ root
    whitened = applied_twice(root, right)

    result = placed(whitened, root, scale, map_, scales.level)
    own = np.zeros((square.size, own_size, own_size))
    place_own(learned.unknown, np.eye(own_size), own_scale, map_)
    for k in range(square.size):
        copy_rows(own[k], learned.unknown)
    for n in range(tried.size):
        inverse = factors[n * own_size : (n + 1) * own_size]
        place_own(own[tried[n]], inverse, own_scale, map_)

    if scales.known and learning:
        # What the rewards are worth in their own covariance is their number, at the right scale.
        quadratic = reduced[size, size]
        for i in range(size):
            quadratic -= noise * right[i] * whitened[i]
        worth = scales.weight + NOISE_WORTH
        sigma = (max(quadratic, 0.0) / scales.spread + NOISE_WORTH * NOISE) / worth
        step_shared(numbers, guess, block, whitened, root)
        step_own(numbers, guess, block, stack, factors, whitened, root, scale, noise)
        numbers[SIGMA] = max(near(sigma, numbers[SIGMA]), LEAST_NOISE)
    clock[SINCE], clock[SPREAD] = 0.0, scales.spread
    clock[KNOWN] = 1.0 if scales.known else 0.0
    weight = scales.weight
    clock[DUE] = 1.0 if weight < FIRST else max(np.ceil(MORE * weight), np.ceil(GAP * size))
    return Refreshed(result[0], result[1], own, result[2])


@inlined
def inverse_root(matrix):  # type: ignore[no-untyped-def]
    """L⁻¹ of a positive definite matrix L Lᵀ, which is used up."""
    out = np.empty(matrix.shape)
    factorise(matrix)
    invert(matrix, out)
    return out


@inlined
def applied_twice(matrix, vector):  # type: ignore[no-untyped-def]
    """matrixᵀ matrix vector, for a lower triangular matrix."""
    out = np.zeros(vector.size)
    for i in range(vector.size):
        entry = 0.0
        for j in range(i + 1):
            entry += matrix[i, j] * vector[j]
        for j in range(i + 1):
            out[j] += entry * matrix[i, j]
    return out


@inlined
def transposed(matrix):  # type: ignore[no-untyped-def]
    """The transposed matrix, stored by rows."""
    rows, columns = matrix.shape
    out = np.empty((columns, rows))
    for i in range(rows):
        for j in range(columns):
            out[j, i] = matrix[i, j]
    return out


@inlined
def placed(whitened, root, scale, map_, level):  # type: ignore[no-untyped-def]
    """Mean, root and information of θ, as coefficients of φ relative to the anchor."""
    size = whitened.size
    mean, out, information = np.zeros(size), np.zeros((size, size)), 0.0
    mean[0] = level
    for i in range(size):
        information -= 2.0 * np.log(root[i, i])
        for j in range(size):  # θ = mapᵀ scale · whitened; the map has few entries
            entry = map_[i, j] * scale[i]
            if entry != 0.0:
                mean[j] += entry * whitened[i]
                for l in range(i, size):
                    out[j, l] += entry * root[l, i]
    return mean, out, max(information, 0.0)


@inlined
def place_own(out, inverse, own_scale, map_):  # type: ignore[no-untyped-def]
    """The root of σ² Wₖ, relative to the anchor: mapᵀ E^½ L⁻ᵀ."""
    size = own_scale.size
    for i in range(size):
        for l in range(size):
            out[i, l] = map_[i, i] * own_scale[i] * inverse[l, i]
    for i in range(1, size):
        for l in range(size):
            out[0, l] += map_[i, 0] * own_scale[i] * inverse[l, i]


@inlined
def step_shared(numbers, guess, block, whitened, root):  # type: ignore[no-untyped-def]
    """The fixed point for ω² of the three blocks of shared coefficients."""
    for kind in (CONTEXT, ARM, CROSSED):
        top, bottom = WORTH * guess[kind], WORTH
        for j in range(1, block.size):
            if block[j] == kind:
                variance = 0.0
                for l in range(j, block.size):
                    variance += root[l, j] * root[l, j]
                top += whitened[j] * whitened[j] * numbers[kind]
                bottom += max(1.0 - variance, 0.0)
        numbers[kind] = near(top / bottom, numbers[kind])


@inlined
def step_own(numbers, guess, block, stack, factors, whitened, root, scale, noise):  # type: ignore[no-untyped-def]
    """The fixed point for τ₀² and τ², from the arms that are present."""
    size, own_size = whitened.size, factors.shape[1]
    deviation = np.sqrt(noise)
    turned = np.empty((size, size))  # scale · A^−½ / σ
    for i in range(size):
        for l in range(size):
            turned[i, l] = scale[i] * root[l, i] / deviation
    left = np.empty((stack.shape[0], size))
    copy_rows(left, stack)  # without the column of rewards
    spread = np.dot(left, turned)
    for n in range(stack.shape[0]):
        total = stack[n, size]
        for j in range(size):
            total -= left[n, j] * scale[j] * whitened[j]
        stack[n, size] = total / deviation
    tops, bottoms = np.zeros(2), np.zeros(2)
    line = np.empty(size)
    for n in range(0, stack.shape[0], own_size):
        for i in range(own_size):
            if i > 0 and block[i] == 0:
                continue
            effect, variance = 0.0, 0.0
            for l in range(size):
                line[l] = 0.0
            for l in range(i, own_size):
                entry = factors[n + l, i]
                effect += entry * stack[n + l, size]
                variance += entry * entry
                for j in range(size):
                    line[j] += entry * spread[n + l, j]
            for j in range(size):
                variance += line[j] * line[j]
            tops[min(i, 1)] += effect * effect
            bottoms[min(i, 1)] += max(1.0 - variance, 0.0)
    for kind, place in ((TAU0, 0), (TAU, 1)):
        value = (tops[place] * numbers[kind] + WORTH * guess[kind]) / (bottoms[place] + WORTH)
        numbers[kind] = near(value, numbers[kind])
