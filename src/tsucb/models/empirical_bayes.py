"""The prior of linear rewards, learned from the rewards: scales, noise, and what arms share.

The model, in standardised coordinates x̃ⱼ = (xⱼ − centreⱼ) / spreadⱼ, for arm k:

    reward = βₖᵀ(1, x̃) + noise,                noise ~ N(0, σₖ²)
    βₖ | b ~ N(b, diag(τ₀², τ²r₁, …, τ²r_d))   what an arm has of its own
    b      ~ N(0, diag(V,   ω²r₁, …, ω²r_d))   what the arms have in common (rewards centred)

Given the numbers σₖ², τ₀², τ², ω², rⱼ everything is normal. With D the own prior covariance, Gₖ and
hₖ the arm's Σ x̃x̃ᵀ and Σ x̃y, and (in coordinates whitened by D^½)

    Mₖ = I + D^½ Gₖ D^½ / σₖ²,   Wₖ = Mₖ⁻¹,   gₖ = D^½ hₖ / σₖ²,   Ω = diag(V/τ₀², ω²/τ², …)

the common part has the posterior N(b̂, V̂), V̂⁻¹ = Ω⁻¹ + Σₖ (I − Wₖ), b̂ = V̂ Σₖ Wₖ gₖ, and arm k

    N(Wₖ(gₖ + b̂),  Wₖ + Wₖ V̂ Wₖ)                                                        (1)

which is the exact marginal posterior of βₖ; an arm never tried has N(b̂, I + V̂) (Lindley and Smith
1972). Its root is Lₖ⁻ᵀ R with Mₖ = Lₖ Lₖᵀ and I + Lₖ⁻¹ V̂ Lₖ⁻ᵀ = R Rᵀ, both factors upper triangular
and of matrices I + (positive semidefinite), so collinear features and more features than rewards
do no harm.

The numbers are those that maximise the marginal likelihood, times a weak prior on each that is
worth a few observations (the constants below); one step of MacKay's (1992) fixed point per refresh:

    variance ← (squared posterior means + worth · guess) / (well-determined directions + worth)

where the well-determined directions of τ² are γ = Σ (1 − posterior variance / prior variance), and
for the noise the n − γ that are left. Two things protect from lock-in, that is from an arm that is
not played any more because of what *other* arms taught about scale. Every arm has one vote,
γₖ/(γₖ + 10), on the common numbers, however often it was played: an arm "do nothing" that always
pays 0 does not drive noise and prior variance to 0. And an arm's noise is at least what all arms'
residuals together say, so a few equal rewards of an arm do not make it certain.

Nothing that was seen is kept but sums, relative to the first context and the first reward (the
anchor): they add up over agents, fade by multiplication, and are standardised anew at any time.

References: MacKay (1992), "Bayesian interpolation"; Tipping (2001), "Sparse Bayesian learning and
the relevance vector machine" (the rⱼ); Lindley and Smith (1972), "Bayes estimates for the linear
model"; Smyth (2004), "Linear models and empirical Bayes methods" (an arm's noise shrunk to all).
"""

from typing import NamedTuple

import numpy as np

from tsucb.checks import LARGEST, flushed
from tsucb.compiler import compiled
from tsucb.models.state import MOST_REWARDS, State, array, sums
from tsucb.numeric.arrays import Flags, Floats
from tsucb.numeric.matrices import (
    backwards,
    factorise,
    invert,
    mirror,
    multiply,
    multiply_lower,
    multiply_upper,
    square,
    transpose,
)

# The guess before there is evidence, as shares of the variance V of the rewards.
NOISE = 0.5  # noise: half of what is seen. Doubt is safe: an arm that may be noise is tried again.
SLOPES = 0.25  # all slopes together: an arm's own part, and the same again for the common part
LEVEL = 0.05  # of arms' levels. Small, or one unlucky reward condemns an arm in all contexts.

# What the guess is worth, against the votes of the arms (at most 1 each).
WORTH = 2.0  # of variances of coefficients
NOISE_WORTH = 4.0  # of the noise
VOTE = 10.0  # an arm with this many determined directions has half a vote
ARM_NOISE_WORTH = 4.0  # observations that the common noise is worth for one arm's noise
RELEVANCE_WORTH = 5.0  # directions that "all features matter alike" is worth for one feature
BALANCE = 1.0  # V counts every arm alike, an arm of n rewards with weight n / (n + 1)

# Limits.
STEP = 10.0  # a variance changes at most by this factor per refresh
LEAST_NOISE = 1e-8  # of V: rewards that are an exact function of the context
LEAST_ARM_NOISE = 1e-6  # of the common noise
RELEVANCE_RANGE = 1e4
LEAST, GREATEST = 1e-15, 1e9  # of any variance of coefficients, as a share of V
ROUNDING = 1e-14  # a variance below this share of the mean square is rounding

# When to refresh.
FIRST = 6  # after each of the first rewards
MORE, MORE_IF_LARGE = 0.5, 0.6  # then with 1.5 times as many rewards; 1.6 with many coefficients
PASSES, SMALL = 2, 16  # with few coefficients a refresh takes two steps: no delay of one refresh
GAP = 0.125  # but not before so many rewards per coefficient: a refresh costs K p³, a decision K p²


class Learned(State):
    """What was seen, relative to the anchor, and the prior as it is now.

    K arms; φ, the P factors of an observation, begins with v, the q that an arm has coefficients of
    its own for; φ⁺ = (φ, y − y₀). Variances are shares of V.
    """

    moments: Floats = sums("arm", "own", "column")  # Σ v φ⁺ᵀ; [k, 0, 0] is the weight of arm k
    anchor: Floats = array("row", most=LARGEST, least=-LARGEST)  # y₀, then x₀
    active: Flags = array("coefficient", dtype=bool)  # the constant, and features that have varied
    levels: Floats = array(start=LEVEL, least=LEAST, most=GREATEST)  # τ₀²
    slopes: Floats = array(start=SLOPES, least=LEAST, most=GREATEST)  # τ²
    due: Floats = array(start=1.0, least=-MOST_REWARDS, most=MOST_REWARDS)  # rewards until refresh
    started: Flags = array(dtype=bool)  # whether there is an anchor

    @property
    def weights(self) -> Floats:
        """What each arm has seen: the number of its rewards, unless they fade."""
        return self.moments[:, 0, 0]

    def check(self, rewards: int) -> None:
        """Raise ValueError also for sums of products that no data has."""
        super().check(rewards)
        check_products(self.moments[:, :, : self.moments.shape[1]])
        if (flushed(self.anchor) != self.anchor).any():
            raise ValueError("anchor must not be closer to 0 than the smallest feature is")


class LinearLearned(Learned):
    """The same for rewards with normal noise, of a scale that is learned, too."""

    square: Floats = sums("arm", least=0.0)  # Σ (y − y₀)²
    noise: Floats = array(start=NOISE, least=LEAST_NOISE / 2, most=GREATEST)  # σ²
    spread: Floats = array(start=1.0, least=1e-100)  # V
    known: Flags = array(dtype=bool)  # whether two different rewards are known


def check_products(matrices: Floats) -> None:
    """Raise ValueError for matrices Σ v vᵀ that are not symmetric, or have negative diagonals."""
    if not np.allclose(matrices, matrices.swapaxes(-1, -2), rtol=1e-9, atol=0):
        raise ValueError("moments must be symmetric")
    if (np.einsum("...ii->...i", matrices) < 0).any():
        raise ValueError("moments must have diagonals that are not negative")


class Posteriors(NamedTuple):
    """Of every arm's coefficients on z, N(mean, root rootᵀ), and what was learned about them."""

    mean: Floats  # (K, p)
    root: Floats  # (K, p, p)
    information: Floats  # (K,)


class Survey(NamedTuple):
    """What all rewards and contexts so far say about scales."""

    weight: float  # of everything seen
    level: float  # mean reward, every arm counting alike
    spread: float  # V, the variance of the rewards; 1 while they are all equal
    known: bool  # whether two different rewards are known
    features: int  # that have varied
    centre: Floats  # (p,) of z; 0 for the constant
    inverse: Floats  # (p,) 1 / standard deviation of each feature, 0 where it has not varied


class Factors(NamedTuple):
    """Of every arm, in whitened coordinates."""

    inverse: Floats  # (K, p, p) Lₖ⁻¹
    own: Floats  # (K, p, p) Wₖ
    moment: Floats  # (K, p) gₖ
    square: Floats  # (K,) Σ (y − level)²


class Common(NamedTuple):
    """The posterior N(mean, root rootᵀ) of what the arms have in common, whitened."""

    mean: Floats
    root: Floats
    covariance: Floats


class Sums(NamedTuple):
    """What the step of the numbers needs: over the arms (p,), and of every arm (K,)."""

    distance: Floats  # (p,) Σₖ (βₖ − b̂)²
    determined: Floats  # (p,) Σₖ (1 − posterior variance of βₖ − b)
    residual: Floats  # (K,) squared error of the fit, over V
    used: Floats  # (K,) directions that the fit has used up
    slopes: Floats  # (K,) Σⱼ (βₖ − b̂)² over the slopes
    determined_slopes: Floats  # (K,)


def blank(arms: int, p: int) -> Posteriors:
    """Room for the posteriors of so many arms and coefficients."""
    return Posteriors(np.zeros((arms, p)), np.zeros((arms, p, p)), np.zeros(arms))


@compiled
def refresh(state, posteriors, passes, learning):  # type: ignore[no-untyped-def]
    """Standardise anew, find all posteriors (1), and let the numbers take a step.

    Of several passes the posteriors of the last are left. The step after it is for the next
    refresh: so posteriors and step share one factorisation per arm, which is what it costs.
    """
    arms, p = state.moments.shape[:2]
    found = survey(state)
    guess = SLOPES / max(found.features, 1)
    if not found.known or not state.known[0]:
        state.noise[0], state.levels[0], state.slopes[0], state.common[0] = (
            NOISE,
            LEVEL,
            guess,
            guess,
        )
        for k in range(arms):
            state.arm_noise[k] = 1.0
        for j in range(p):
            state.relevance[j] = 1.0
    inverse, own = np.empty((arms, p, p)), np.empty((arms, p, p))
    factors = Factors(inverse, own, np.zeros((arms, p)), np.zeros(arms))
    scale, omega = np.empty(p), np.empty(p)
    for _ in range(passes):
        scale[0], omega[0] = np.sqrt(state.levels[0] * found.spread), 1.0 / state.levels[0]
        for j in range(1, p):
            own = np.sqrt(state.slopes[0] * found.spread * state.relevance[j])
            scale[j], omega[j] = own * found.inverse[j], state.common[0] / state.slopes[0]
        common = common_part(state, found, scale, omega, factors)
        sums = each_arm(state, found, scale, common, factors, posteriors)
        if found.known and learning:
            step_noise(state, sums)
            step_prior(state, found, guess, omega, common, sums)
    state.spread[0], state.known[0] = found.spread, found.known
    if learning:
        more = MORE if p <= SMALL else MORE_IF_LARGE
        weight = found.weight
        state.due[0] = 1.0 if weight < FIRST else max(np.ceil(more * weight), np.ceil(GAP * p))


@compiled
def survey(state):  # type: ignore[no-untyped-def]
    """Centre and spread of the features, by weight; of the rewards, by arm."""
    arms, p = state.moments.shape[:2]
    weight, votes, level, square = 0.0, 0.0, 0.0, 0.0
    centre, inverse = np.zeros(p), np.zeros(p)
    for k in range(arms):
        n = state.moments[k, 0, 0]
        vote = 1.0 / (n + BALANCE)
        weight += n
        votes += n * vote
        level += vote * state.moments[k, 0, p]
        square += vote * state.square[k]
        for j in range(1, p):
            centre[j] += state.moments[k, 0, j]
            inverse[j] += state.moments[k, j, j]
    if weight <= 0.0:
        return Survey(0.0, 0.0, 1.0, False, 0, centre, inverse)
    level, square = level / votes, square / votes
    spread = square - level * level
    known = spread > ROUNDING * square
    features = 0
    inverse[0] = 1.0
    for j in range(1, p):
        centre[j] /= weight
        mean_square = inverse[j] / weight
        variance = mean_square - centre[j] * centre[j]
        inverse[j] = 0.0
        if variance > ROUNDING * mean_square:
            inverse[j] = 1.0 / np.sqrt(variance)
            features += 1
        state.active[j] = inverse[j] > 0.0
    return Survey(weight, level, spread if known else 1.0, known, features, centre, inverse)


@compiled
def common_part(state, found, scale, omega, factors):  # type: ignore[no-untyped-def]
    """Factorise every arm's Mₖ, and find what the arms have in common."""
    arms, p = state.moments.shape[:2]
    level = found.level
    right, precision, matrix = np.zeros(p), np.zeros((p, p)), np.empty((p, p))
    for i in range(p):
        precision[i, i] = 1.0 / omega[i]
    for k in range(arms):
        n = state.moments[k, 0, 0]
        if n == 0.0:
            continue
        variance = state.arm_noise[k] * state.noise[0] * found.spread
        g, inverse, own = factors.moment[k], factors.inverse[k], factors.own[k]
        whiten(state.moments[k], found.centre, scale, level, variance, matrix, g)
        factors.square[k] = state.square[k] - 2 * level * state.moments[k, 0, p] + n * level * level
        factorise(matrix)
        invert(matrix, inverse)
        multiply_lower(inverse, inverse, own)
        for i in range(p):
            precision[i, i] += 1.0
            for j in range(p):
                precision[i, j] -= own[i, j]
                right[i] += own[i, j] * g[j]
    # A lower root of the inverse comes from factors of the matrix read backwards.
    mean, root, covariance = np.zeros(p), np.empty((p, p)), np.empty((p, p))
    backwards(precision, matrix)
    factorise(matrix)
    invert(matrix, precision)
    transpose(precision, root)
    multiply_lower(precision, precision, matrix)
    backwards(root, precision)
    backwards(matrix, covariance)
    for i in range(p):
        for j in range(p):
            mean[i] += covariance[i, j] * right[j]
    return Common(mean, precision, covariance)


@compiled
def each_arm(state, found, scale, common, factors, posteriors):  # type: ignore[no-untyped-def]
    """The posterior (1) of every arm, and the sums for the next step."""
    arms, p = state.moments.shape[:2]
    sums = Sums(
        np.zeros(p), np.zeros(p), np.zeros(arms), np.zeros(arms), np.zeros(arms), np.zeros(arms)
    )
    root, one, two = np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    # An arm never tried.
    fresh = np.empty((p, p))
    for i in range(p):
        for j in range(p):
            one[i, j] = common.covariance[i, j]
        one[i, i] += 1.0
    mirror(one, two)
    factorise(two)
    mirror(two, fresh)
    for k in range(arms):
        state.variance[k] = state.arm_noise[k] * state.noise[0] * found.spread
        if state.moments[k, 0, 0] == 0.0:
            install(posteriors, k, common.mean, fresh, scale, found.centre, found.level)
            posteriors.information[k] = 0.0
            continue
        inverse, own, g = factors.inverse[k], factors.own[k], factors.moment[k]
        # root = Lₖ⁻ᵀ R, where R Rᵀ = I + S Sᵀ and S = Lₖ⁻¹ V̂^½
        transpose(inverse, two)
        multiply(two, common.root, one)
        transpose(one, two)
        square(two, one)
        mirror(one, two)
        factorise(two)
        mirror(two, one)
        multiply_upper(inverse, one, root)
        mean = np.zeros(p)
        for i in range(p):
            for j in range(p):
                mean[i] += own[i, j] * (g[j] + common.mean[j])
        install(posteriors, k, mean, root, scale, found.centre, found.level)
        information = 0.0
        for i in range(p):
            information -= 2.0 * np.log(inverse[i, i])
        posteriors.information[k] = max(information, 0.0)
        fit = 0.0
        for i in range(p):
            both, cross = 0.0, 0.0  # diagonals of W + W V̂ W and of V̂ W
            for j in range(p):
                both += root[i, j] * root[i, j]
                cross += common.covariance[i, j] * own[i, j]
            different = mean[i] - common.mean[i]
            free = 1.0 - (both + common.covariance[i, i] - 2 * cross)
            sums.distance[i] += different * different
            sums.determined[i] += free
            if i > 0 and found.inverse[i] > 0.0:
                sums.slopes[k] += different * different
                sums.determined_slopes[k] += free
            sums.used[k] += 1.0 + cross - both
            fit += mean[i] * (common.mean[i] - g[i] - mean[i])
        noise = state.arm_noise[k] * state.noise[0]
        sums.residual[k] = max(0.0, factors.square[k] / found.spread + noise * fit)
    return sums


@compiled
def step_noise(state, sums):  # type: ignore[no-untyped-def]
    """The fixed point for the noise: of the votes, of all arms together, and of each arm."""
    arms = state.square.size
    top, bottom = NOISE_WORTH * NOISE, NOISE_WORTH
    all_top, all_bottom = top, bottom
    for k in range(arms):
        left = max(state.moments[k, 0, 0] - sums.used[k], 0.0)
        if state.moments[k, 0, 0] > 0.0:
            all_top += sums.residual[k]
            all_bottom += left
            top += sums.residual[k] / (left + VOTE)
            bottom += left / (left + VOTE)
    sigma = max(near(top / bottom, state.noise[0]), LEAST_NOISE)
    for k in range(arms):
        left = max(state.moments[k, 0, 0] - sums.used[k], 0.0)
        own = (sums.residual[k] + ARM_NOISE_WORTH * sigma) / (left + ARM_NOISE_WORTH)
        state.arm_noise[k] = max(max(own, all_top / all_bottom) / sigma, LEAST_ARM_NOISE)
    state.noise[0] = sigma


@compiled
def step_prior(state, found, guess, omega, common, sums):  # type: ignore[no-untyped-def]
    """The fixed point for τ₀², τ², ω² and the relevance of the features."""
    arms, p = state.moments.shape[:2]
    relevance = state.relevance
    state.levels[0] = near(
        (sums.distance[0] * state.levels[0] + WORTH * LEVEL)
        / (max(sums.determined[0], 0.0) + WORTH),
        state.levels[0],
    )
    before = state.slopes[0]
    top, bottom = WORTH * guess, WORTH
    for k in range(arms):
        if state.moments[k, 0, 0] > 0.0:
            free = max(sums.determined_slopes[k], 0.0)
            top += sums.slopes[k] * before / (free + VOTE)
            bottom += free / (free + VOTE)
    state.slopes[0] = near(top / bottom, before)
    if found.features == 0:
        return
    top, bottom = 0.0, 0.0
    known = np.zeros(p)  # how well the common part of each slope is determined
    for j in range(1, p):
        if found.inverse[j] > 0.0:
            known[j] = max(1.0 - common.covariance[j, j] / omega[j], 0.0)
            top += common.mean[j] * common.mean[j] * before
            bottom += known[j]
    vote = 1.0 / (bottom + VOTE)
    state.common[0] = near((vote * top + WORTH * guess) / (vote * bottom + WORTH), state.common[0])
    for j in range(1, p):
        if found.inverse[j] > 0.0:
            square = common.mean[j] * common.mean[j]
            top = sums.distance[j] / state.slopes[0] + square / state.common[0]
            bottom = max(sums.determined[j], 0.0) + known[j]
            r = (top * relevance[j] * before + RELEVANCE_WORTH) / (bottom + RELEVANCE_WORTH)
            relevance[j] = min(max(r, 1.0 / RELEVANCE_RANGE), RELEVANCE_RANGE)


@compiled
def near(new, old):  # type: ignore[no-untyped-def]
    """The new value, at most a factor STEP away from the old one."""
    return min(max(new, old / STEP), old * STEP)


@compiled
def whiten(moments, centre, scale, level, variance, out, g):  # type: ignore[no-untyped-def]
    """M = I + D^½ G D^½ / σ² and g = D^½ h / σ² of one arm; `scale` is D^½ over the spreads."""
    p = centre.size
    n = moments[0, 0]
    for i in range(p):
        factor = scale[i] / variance
        lack = centre[i] * n - moments[i, 0]  # the constant's centre is 0
        for j in range(p):
            centred = moments[i, j] - centre[i] * moments[0, j] + lack * centre[j]
            out[i, j] = centred * factor * scale[j]
        out[i, i] += 1.0
        g[i] = factor * (moments[i, p] - centre[i] * moments[0, p] + level * lack)


@compiled
def install(posteriors, arm, whitened, root, scale, centre, level):  # type: ignore[no-untyped-def]
    """Put the posterior N(whitened, root rootᵀ) in place, in coordinates relative to the anchor."""
    p = whitened.size
    mean, out = posteriors.mean[arm], posteriors.root[arm]
    constant = whitened[0] * scale[0] + level
    for j in range(p):
        out[0, j] = scale[0] * root[0, j]
    for i in range(1, p):
        mean[i] = whitened[i] * scale[i]
        constant -= centre[i] * mean[i]
        for j in range(p):
            out[i, j] = scale[i] * root[i, j]
            out[0, j] -= centre[i] * out[i, j]
    mean[0] = constant
