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
MacKay's (1992) fixed point with a weak prior that is worth a few observations. In NumPy, as a
refresh is rare, and to compile it would take far longer than all refreshes of a day; but for two
kernels instead of BLAS, which wakes threads: on a busy machine that takes longer than the product.

Where rewards fade, with γ each time, all sums do alike. So a common factor is enough
(`Learned.clock[FADED]`, f): the true sums are f times those stored, covariances those stored over
f. What (1) subtracts is the same for both; and a new observation counts in stored units as one of
weight 1/f, that is of noise variance f σ². An arm without rewards has nothing to forget: its root
is stored as it is. A refresh multiplies f out, and is exact.

References: Li, Chu, Langford and Schapire (2010), "A contextual-bandit approach to personalized
news article recommendation" (hybrid models, and the reduced sums); Henderson (1975), "Best linear
unbiased estimation and prediction under a selection model"; MacKay (1992), "Bayesian
interpolation".
"""

from typing import Any, NamedTuple

import numpy as np

from tsucb.compiler import compiled
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
    STEP,
    WORTH,
)
from tsucb.numeric.arrays import Floats, Integers, copy_rows
from tsucb.numeric.matrices import factorise, invert

# Places in `Learned.numbers`: σ², τ₀², τ², and ω² of the context, of the arms' features, and of
# their products, as shares of V.
SIGMA, TAU0, TAU, CONTEXT, ARM, CROSSED = range(6)
# A further place in `Learned.clock`: how much is left of what was stored at the last refresh.
FADED = 5

BLOCK = 64  # rows that stay in a fast cache while they are multiplied

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
    clock: Floats  # (6,) as in `tsucb.models.empirical_bayes`, and FADED


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


class Fit(NamedTuple):
    """The posterior in whitened coordinates, of n arms with rewards."""

    mean: Floats  # (P,) of θ, over its prior's standard deviations
    root: Floats  # (P, P) A^−½, lower triangular: the covariance is rootᵀ root
    scale: Floats  # (P,) the prior's standard deviations
    own: Floats  # (n, q, q) Lₖ⁻¹, where E^½ Σvvᵀ E^½ / σ² + I = Lₖ Lₖᵀ
    sums: Floats  # (n, q, P + 1) Lₖ⁻¹ E^½ Sₖ⁺ / σ


def survey(learned: Learned, sums: Floats, square: Floats) -> Scales:
    """Centre and spread of the features, by weight; of the rewards, by arm."""
    gram, features = learned.gram, learned.anchor.size
    centre, inverse = np.zeros(features), np.zeros(features)
    weight = float(gram[0, 0])
    if weight <= 0.0:
        return Scales(0.0, 0.0, 1.0, False, centre, inverse)
    count = sums[:, 0, 0]
    vote = 1.0 / (count + BALANCE)
    present = np.array([vote @ count, vote @ sums[:, 0, -1], vote @ square])
    votes, level, total = (learned.votes + present).tolist()
    level, total = level / votes, total / votes
    spread = total - level * level
    known = spread > ROUNDING * total
    centre[1:] = gram[0, 1:features] / weight
    mean_square = gram.diagonal()[1:features] / weight
    variance = mean_square - centre[1:] ** 2
    varies = np.flatnonzero(variance > ROUNDING * mean_square)
    inverse[1 + varies] = 1.0 / np.sqrt(variance[varies])
    return Scales(weight, level, spread if known else 1.0, known, centre, inverse)


def standardised(values: Floats, scales: Scales, context: int) -> Floats:
    """φ⁺ along the last axis, with standardised features and centred rewards."""
    centre, inverse = scales.centre, scales.inverse
    d, size = centre.size - 1, values.shape[-1] - 1
    x, z, products = _parts(context, d, size)
    out = np.empty(values.shape)
    one = values[..., :1]
    out[..., :1], out[..., size:] = one, values[..., size:] - scales.level * one
    out[..., 1 : d + 1] = (values[..., 1 : d + 1] - centre[1:] * one) * inverse[1:]
    if size > d + 1:  # (x − c)(z − e) = xz − ez·x − cx·z + ce
        table = values[..., products].reshape(*values.shape[:-1], context, d - context)
        table = table - values[..., x, None] * centre[z] - values[..., None, z] * centre[x, None]
        table = (table + one[..., None] * np.outer(centre[x], centre[z])) * np.outer(
            inverse[x], inverse[z]
        )
        out[..., products] = table.reshape(out[..., products].shape)
    return out


def returned(values: Floats, scales: Scales, context: int) -> Floats:
    """Coefficients of standardised features, one row each, as those of φ."""
    centre, inverse = scales.centre, scales.inverse
    d, size = centre.size - 1, len(values)
    x, z, products = _parts(context, d, size)
    out = np.empty(values.shape)
    out[1 : d + 1] = values[1 : d + 1] * inverse[1:, None]
    out[0] = values[0] - (centre[1:, None] * out[1 : d + 1]).sum(axis=0)
    if size > d + 1:
        table = values[products].reshape(context, d - context, -1)
        table = table * np.outer(inverse[x], inverse[z])[..., None]
        out[products] = table.reshape(out[products].shape)
        out[x] -= (table * centre[z, None]).sum(axis=1)
        out[z] -= (table * centre[x, None, None]).sum(axis=0)
        out[0] += (table * np.outer(centre[x], centre[z])[..., None]).sum(axis=(0, 1))
    return out


def _parts(context: int, d: int, size: int) -> tuple[slice, slice, slice]:
    """Where φ has the features of the context, those of the arm, and the products."""
    return slice(1, context + 1), slice(context + 1, d + 1), slice(d + 1, size)


def guesses(scales: Scales, context: int, size: int) -> tuple[Floats, Integers]:
    """What the numbers are before there is evidence, and the block of every coefficient."""
    varies = scales.inverse > 0.0
    d = varies.size - 1
    block = np.zeros(size, dtype=np.int64)
    block[1 : context + 1] = CONTEXT * varies[1 : context + 1]
    block[context + 1 : d + 1] = ARM * varies[context + 1 :]
    if size > d + 1:
        both = np.outer(varies[1 : context + 1], varies[context + 1 :])
        block[d + 1 :] = CROSSED * both.ravel()
    counts = np.maximum(np.bincount(block, minlength=6), 1)
    guess = np.array([NOISE, LEVEL, OWN_SLOPES, SLOPES, SLOPES, SLOPES])
    guess[CONTEXT:] /= counts[CONTEXT:]
    guess[TAU] /= counts[CONTEXT]
    return guess, block


def refresh(
    learned: Learned, sums: Floats, square: Floats, context: int, learning: bool
) -> Refreshed:
    """Standardise anew, find the posteriors, and let the numbers take a step."""
    size, q = learned.active.size, sums.shape[1]
    clock, numbers = learned.clock, learned.numbers
    scales = survey(learned, sums, square)
    guess, block = guesses(scales, context, size)
    if not scales.known or clock[KNOWN] == 0.0:
        numbers[:] = guess
    noise = numbers[SIGMA] * scales.spread
    learned.variance[0] = noise
    learned.active[:] = block > 0
    learned.active[0] = 1.0
    scale = np.sqrt(np.where(block > 0, numbers[block], 0.0) * scales.spread)
    scale[0] = np.sqrt(scales.spread)
    own_scale = np.sqrt(np.where(block[:q] > 0, numbers[TAU], 0.0) * scales.spread)
    own_scale[0] = np.sqrt(numbers[TAU0] * scales.spread)

    # Every arm with rewards.
    deviation, tried = np.sqrt(noise), np.flatnonzero(sums[:, 0, 0])
    whole = standardised(sums[tried], scales, context)
    whole[:, 1:] -= scales.centre[1:q, None] * whole[:, :1]
    whole[:, 1:] *= scales.inverse[1:q, None]
    whole *= own_scale[:, None] / deviation
    own = inverse_roots(np.eye(q) + whole[:, :, :q] * own_scale / deviation)
    whole = own @ whole

    # The reduced sums, and the posterior of θ from them, whitened by its prior.
    reduced = standardised(learned.gram - learned.gone, scales, context)
    reduced = standardised(reduced.T, scales, context)
    flat = whole.reshape(-1, size + 1)
    reduced -= product(flat, flat)
    right = scale * reduced[:size, size] / noise
    root = inverse_roots(
        np.eye(size) + scale[:, None] * reduced[None, :size, :size] * scale / noise
    )[0]
    mean = np.einsum("ij,i->j", root, np.einsum("ij,j->i", root, right))
    fit = Fit(mean, root, scale, own, whole)

    # The same in coordinates relative to the anchor.
    both = returned(scale[:, None] * np.column_stack((mean, root.T)), scales, context)
    both[0, 0] += scales.level
    own_back = np.diag(own_scale * np.append(1.0, scales.inverse[1:q]))
    own_back[0, 1:] = -scales.centre[1:q] * own_back.diagonal()[1:]
    learned.unknown[:] = own_back
    roots = np.tile(own_back, (square.size, 1, 1))
    roots[tried] = own_back @ own.transpose(0, 2, 1)
    information = -2.0 * np.log(np.abs(root.diagonal())).sum()

    if scales.known and learning:
        # What the rewards are worth in their own covariance is their number, at the right scale.
        quadratic = max(reduced[size, size] - noise * (right * mean).sum(), 0.0) / scales.spread
        sigma = (quadratic + NOISE_WORTH * NOISE) / (scales.weight + NOISE_WORTH)
        step(numbers, TAU0, *own_evidence(fit, block, noise), guess)
        step(numbers, CONTEXT, *shared_evidence(fit, block), guess)
        numbers[SIGMA] = np.maximum(near(sigma, numbers[SIGMA]), LEAST_NOISE)
    weight = scales.weight
    clock[SINCE], clock[SPREAD], clock[KNOWN] = 0.0, scales.spread, float(scales.known)
    clock[DUE] = 1.0 if weight < FIRST else max(np.ceil(MORE * weight), np.ceil(GAP * size))
    return Refreshed(both[:, 0], both[:, 1:], roots, max(information, 0.0))


def inverse_roots(matrices: Floats) -> Floats:
    """L⁻¹ of each matrix I + (positive semidefinite) = L Lᵀ."""
    out: Floats = factored(matrices)
    broken = np.flatnonzero(~np.isfinite(out).all(axis=(1, 2)))
    if broken.size:  # only rounding takes an eigenvalue below 1
        values, vectors = np.linalg.eigh(matrices[broken])
        half = np.sqrt(np.maximum(values, 1.0))[..., None] * vectors.swapaxes(-1, -2)
        upper: Any = np.linalg.qr(half, mode="r")
        out[broken] = np.linalg.inv(upper.swapaxes(-1, -2))
    return out


@compiled
def factored(matrices):  # type: ignore[no-untyped-def]
    """`inverse_roots`, not finite for a matrix that has none."""
    out = np.empty(matrices.shape)
    upper = np.empty(matrices.shape[1:])
    for n in range(matrices.shape[0]):
        copy_rows(upper, matrices[n])
        factorise(upper)
        invert(upper, out[n])
    return out


@compiled
def product(left, right):  # type: ignore[no-untyped-def]
    """leftᵀ right."""
    out = np.zeros((left.shape[1], right.shape[1]))
    for first in range(0, left.shape[0], BLOCK):
        last = min(first + BLOCK, left.shape[0])
        fours = last - (last - first) % 4
        for i in range(out.shape[0]):
            for k in range(first, fours, 4):
                w, x, y, z = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
                for j in range(out.shape[1]):
                    out[i, j] += (w * right[k, j] + x * right[k + 1, j]) + (
                        y * right[k + 2, j] + z * right[k + 3, j]
                    )
            for k in range(fours, last):
                for j in range(out.shape[1]):
                    out[i, j] += left[k, i] * right[k, j]
    return out


def near(new: Floats, old: Floats) -> Floats:
    """The new value, at most a factor STEP away from the old one."""
    return np.clip(new, old / STEP, old * STEP)


def step(numbers: Floats, first: int, found: Floats, determined: Floats, guess: Floats) -> None:
    """The fixed point for some of the numbers, from squared effects, whitened, and their count."""
    part = slice(first, first + found.size)
    new = (found * numbers[part] + WORTH * guess[part]) / (determined + WORTH)
    numbers[part] = near(new, numbers[part])


def shared_evidence(fit: Fit, block: Integers) -> tuple[Floats, Floats]:
    """Squared effects and determined directions of the three blocks of shared coefficients."""
    determined = np.maximum(1.0 - (fit.root**2).sum(axis=0), 0.0)
    both: Any = [np.bincount(block, x, minlength=6)[CONTEXT:] for x in (fit.mean**2, determined)]
    return both[0], both[1]


def own_evidence(fit: Fit, block: Integers, noise: float) -> tuple[Floats, Floats]:
    """The same for the level and the slopes of the arms that are present."""
    size, q = fit.mean.size, fit.own.shape[1]
    shared, rewards = fit.sums[:, :, :size], fit.sums[:, :, size]
    turned = fit.own.transpose(0, 2, 1)
    deviation = np.sqrt(noise)
    residual = (rewards - np.einsum("kip,p->ki", shared, fit.scale * fit.mean)) / deviation
    effect = np.einsum("kij,kj->ki", turned, residual)
    spread = np.ascontiguousarray(fit.scale[:, None] * fit.root.T / deviation)
    lines = np.ascontiguousarray(shared.reshape(-1, size).T)
    about = turned @ product(lines, spread).reshape(-1, q, size)
    variance = (fit.own**2).sum(axis=1) + (about**2).sum(axis=2)
    found, determined = np.zeros(2), np.zeros(2)
    for place, columns in enumerate(([0], np.flatnonzero(block[:q]))):
        found[place] = (effect[:, columns] ** 2).sum()
        determined[place] = np.maximum(1.0 - variance[:, columns], 0.0).sum()
    return found, determined
