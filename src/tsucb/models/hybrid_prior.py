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
that it had (`gone`): what it taught of θ is kept, what was its own is not.

The sums have the reward as a last column, φ⁺ = (φ, y), so that one matrix holds all of them. They
are relative to the first context, arm and reward (the anchor), add up over agents, and are
standardised anew at any time: an affine map of x and z maps φ linearly.

The numbers σ², τ₀², τ², ω² are refreshed as `tsucb.models.empirical_bayes` does it, by one step of
MacKay's (1992) fixed point with a weak prior that is worth a few observations. In NumPy, as a
refresh is rare, and to compile it would take far longer than all refreshes of a day; but for two
kernels instead of BLAS, which wakes threads: on a busy machine that takes longer than the product.

Where rewards fade, with γ each time, all sums do alike. So a common factor is enough
(`faded`, f): the true sums are f times those stored, covariances those stored over
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
    FIRST,
    GAP,
    GREATEST,
    LEAST,
    LEAST_NOISE,
    LEVEL,
    MORE,
    NOISE,
    NOISE_WORTH,
    ROUNDING,
    SLOPES,
    STEP,
    WORTH,
    LinearLearned,
    check_products,
)
from tsucb.models.regressions import Shared
from tsucb.models.state import array, counts, nested, sums
from tsucb.numeric.arrays import Floats, Integers, copy_rows
from tsucb.numeric.matrices import factorise, invert

# Blocks of shared coefficients, with a variance each: those of the context's features, of the
# arms', and of their products. The constant, and features that have not varied, are in none.
CONTEXT, ARM, CROSSED = range(3)
NONE = 3

BLOCK = 64  # rows that stay in a fast cache while they are multiplied

# The guess for an arm's own slopes, all together: as its own level. Small, see `LEVEL`.
OWN_SLOPES = LEVEL


class HybridState(LinearLearned):
    """The posterior of the shared coefficients θ, of every arm's own, and what they are made from.

    `theta` is a single regression on φ, relative to the anchor. Sums are of the arms that are
    present, but for `gram`, of all rewards, and `gone` and `votes`, of the arms that left.
    """

    gram: Floats = sums("column", "column", symmetric=True)  # Σ φ⁺φ⁺ᵀ over all rewards
    gone: Floats = sums("column", "column", symmetric=True)  # Σₖ Sₖᵀ Wₖ Sₖ
    votes: Floats = sums(3)  # Σ n/(n+1), Σ y/(n+1), Σ y²/(n+1)
    shared: Floats = array(3, start=SLOPES, least=LEAST, most=GREATEST)  # ω² of every block
    # The noise variance with which is learned until the next refresh.
    variance: Floats = array(start=NOISE, least=1e-100)
    faded: Floats = array(start=1.0, least=LEAST, most=1.0)  # what is left since the last refresh
    unknown: Floats = array("own", "own")  # the root of an arm's own effect before its rewards
    own: Floats = array("arm", "own", "own")  # given θ, an arm's own has covariance own ownᵀ
    pulls: Integers = counts("arm")
    theta: Shared = nested(Shared)

    def check(self, rewards: int) -> None:
        """Raise ValueError also for sums of products that no data has."""
        super().check(rewards)
        for matrix in (self.gram, self.gone):
            check_products(matrix)
        weight = max(self.gram[0, 0], self.weights.max(initial=0.0))
        if weight * self.faded[0] > rewards:
            raise ValueError("moments have more weight than there were rewards")


class Scales(NamedTuple):
    """What all rewards and rows so far say about scales."""

    weight: float  # of everything seen
    level: float  # mean reward, every arm counting alike
    spread: float  # V, the variance of the rewards; 1 while they are all equal
    known: bool  # whether two different rewards are known
    centre: Floats  # (1 + d,) of the row's features, relative to the anchor
    inverse: Floats  # (1 + d,) 1 / standard deviation, 0 where one has not varied


class Fit(NamedTuple):
    """The posterior in whitened coordinates, of n arms with rewards."""

    mean: Floats  # (P,) of θ, over its prior's standard deviations
    root: Floats  # (P, P) A^−½, lower triangular: the covariance is rootᵀ root
    scale: Floats  # (P,) the prior's standard deviations
    own: Floats  # (n, q, q) Lₖ⁻¹, where E^½ Σvvᵀ E^½ / σ² + I = Lₖ Lₖᵀ
    sums: Floats  # (n, q, P + 1) Lₖ⁻¹ E^½ Sₖ⁺ / σ


def survey(state: HybridState) -> Scales:
    """Centre and spread of the features, by weight; of the rewards, by arm."""
    gram, features = state.gram, state.anchor.size
    centre, inverse = np.zeros(features), np.zeros(features)
    weight = float(gram[0, 0])
    if weight <= 0.0:
        return Scales(0.0, 0.0, 1.0, False, centre, inverse)
    count = state.weights
    vote = 1.0 / (count + BALANCE)
    present = np.array([vote @ count, vote @ state.moments[:, 0, -1], vote @ state.square])
    votes, level, total = (state.votes + present).tolist()
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


def guesses(scales: Scales, context: int, size: int) -> tuple[Floats, float, Integers]:
    """Return the guesses of `shared` and `slopes`, and the block of every coefficient."""
    varies = scales.inverse > 0.0
    d = varies.size - 1
    block = np.full(size, NONE)
    block[1 : context + 1][varies[1 : context + 1]] = CONTEXT
    block[context + 1 : d + 1][varies[context + 1 :]] = ARM
    if size > d + 1:
        both = np.outer(varies[1 : context + 1], varies[context + 1 :])
        block[d + 1 :][both.ravel()] = CROSSED
    counts = np.maximum(np.bincount(block, minlength=4)[:3], 1)
    return SLOPES / counts, OWN_SLOPES / counts[CONTEXT], block


def refresh(state: HybridState, context: int, learning: bool) -> None:
    """Standardise anew, put the posteriors in place, and let the numbers take a step."""
    for each in (state.gram, state.gone, state.votes, state.moments, state.square):
        each *= state.faded[0]
    state.faded[0] = 1.0
    size, q = state.active.size, state.moments.shape[1]
    scales = survey(state)
    shared_guess, slopes_guess, block = guesses(scales, context, size)
    if not scales.known or not state.known[0]:
        state.noise[0], state.levels[0], state.slopes[0] = NOISE, LEVEL, slopes_guess
        state.shared[:] = shared_guess
    noise = state.noise[0] * scales.spread
    state.variance[0] = noise
    state.active[:] = block < NONE
    state.active[0] = True
    scale = np.sqrt(np.append(state.shared, 0.0)[block] * scales.spread)
    scale[0] = np.sqrt(scales.spread)
    own_scale = np.sqrt(np.where(block[:q] < NONE, state.slopes[0], 0.0) * scales.spread)
    own_scale[0] = np.sqrt(state.levels[0] * scales.spread)

    # Every arm with rewards.
    deviation, tried = np.sqrt(noise), np.flatnonzero(state.weights)
    whole = standardised(state.moments[tried], scales, context)
    whole[:, 1:] -= scales.centre[1:q, None] * whole[:, :1]
    whole[:, 1:] *= scales.inverse[1:q, None]
    whole *= own_scale[:, None] / deviation
    own = inverse_roots(np.eye(q) + whole[:, :, :q] * own_scale / deviation)
    whole = own @ whole

    # The reduced sums, and the posterior of θ from them, whitened by its prior.
    reduced = standardised(state.gram - state.gone, scales, context)
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
    state.unknown[:] = state.own[:] = own_back
    state.own[tried] = own_back @ own.transpose(0, 2, 1)
    state.theta.set_posteriors(both[:, 0], both[:, 1:])
    state.theta.information[0] = max(-2.0 * np.log(np.abs(root.diagonal())).sum(), 0.0)

    state.spread[0], state.known[0] = scales.spread, scales.known
    if not learning:
        return
    weight = scales.weight
    state.due[0] = 1.0 if weight < FIRST else max(np.ceil(MORE * weight), np.ceil(GAP * size))
    if scales.known:
        # What the rewards are worth in their own covariance is their number, at the right scale.
        quadratic = max(reduced[size, size] - noise * (right * mean).sum(), 0.0) / scales.spread
        sigma = (quadratic + NOISE_WORTH * NOISE) / (weight + NOISE_WORTH)
        levels, slopes = own_evidence(fit, block, noise)
        step(state.levels, *levels, LEVEL)
        step(state.slopes, *slopes, slopes_guess)
        step(state.shared, *shared_evidence(fit, block), shared_guess)
        state.noise[0] = max(near(sigma, state.noise[0]), LEAST_NOISE)


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


def near(new: Any, old: Any) -> Any:
    """Return the new values, at most a factor STEP away from the old ones."""
    return np.clip(new, old / STEP, old * STEP)


def step(variances: Floats, found: Any, determined: Any, guess: Any) -> None:
    """Move variances to the fixed point, in place: squared effects, whitened, by their count."""
    new = (found * variances + WORTH * guess) / (determined + WORTH)
    variances[:] = near(new, variances)


def shared_evidence(fit: Fit, block: Integers) -> tuple[Floats, Floats]:
    """Return squared effects and determined directions of the blocks of shared coefficients."""
    determined = np.maximum(1.0 - (fit.root**2).sum(axis=0), 0.0)
    both: Any = [np.bincount(block, x, minlength=4)[:3] for x in (fit.mean**2, determined)]
    return both[0], both[1]


def own_evidence(fit: Fit, block: Integers, noise: float) -> list[tuple[float, float]]:
    """Return the same for the levels and for the slopes of the arms that are present."""
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
    return [
        (
            (effect[:, columns] ** 2).sum(),
            np.maximum(1.0 - variance[:, columns], 0.0).sum(),
        )
        for columns in ([0], np.flatnonzero(block[:q] < NONE))
    ]
