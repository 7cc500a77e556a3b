"""One vector of coefficients per arm, with a prior that is learned from the data.

In standardised coordinates x̃ⱼ = (xⱼ − centreⱼ) / spreadⱼ, for arm k:

    reward = βₖᵀ(1, x̃) + noise,                noise ~ N(0, σₖ²)
    βₖ | b ~ N(b, diag(τ₀², τ²r₁, …, τ²r_d))   an arm's own part
    b      ~ N(0, diag(V,   ω²r₁, …, ω²r_d))   the arms' common part (rewards centred)

This is the model of `tsucb.models.empirical_bayes` with θ = b and uₖ = βₖ − b. In its notation,
whitened by E^½, the common part has the posterior N(b̂, V̂), V̂⁻¹ = Ω⁻¹ + Σₖ (I − Wₖ),
b̂ = V̂ Σₖ Wₖ gₖ, and arm k

    N(Wₖ(gₖ + b̂),  Wₖ + Wₖ V̂ Wₖ)                                                        (1)

which is the exact marginal posterior of βₖ; an arm never tried has N(b̂, I + V̂) (Lindley and Smith
1972). Its root is Lₖ⁻ᵀ R with I + Lₖ⁻¹ V̂ Lₖ⁻ᵀ = R Rᵀ, both factors upper triangular.

The variances are estimates. Without the guess, the Fisher information of log τ² and log σ² is

    ½ Σₖ (       tr (I − Wₖ)²               tr Wₖ(I − Wₖ)            )
         (       tr Wₖ(I − Wₖ)    nₖ − 2 tr (I − Wₖ) + tr (I − Wₖ)²  )                     (2)

It is small where the two cannot be told apart, as with few rewards per arm. With uₖ the mean of
βₖ − b, ∂uₖ/∂ log(τ²/σ²) = Wₖuₖ: an error of the ratio moves the mean, so V̂ becomes V̂ + Var uₖuₖᵀ.
If the logarithm of a variance has an error of variance v, a normal law becomes Student's with 2/v
degrees of freedom, about as wide as a normal law of e^v times the variance. Here v is the variance
of log τ² in directions without data, and that of log σ² in well-determined directions.

Two rules prevent lock-in: that an arm is never played again because of what *other* arms say about
scales. Every arm has one vote, γₖ/(γₖ + 10), on the common variances, however often it was played,
so an arm "do nothing" that always pays 0 does not drive noise and prior variance to 0. And an arm's
noise is at least the noise in all arms' residuals together, so a few equal rewards do not make an
arm certain. It is estimated from the arm's residuals, and from those of all arms the more alike
these are.

References: Tipping (2001), "Sparse Bayesian learning and the relevance vector machine" (the rⱼ);
Smyth (2004), "Linear models and empirical Bayes methods" (shrinking an arm's noise to the common
one); and those of `tsucb.models.empirical_bayes`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import Natural
from tsucb.compiler import compiled, implements
from tsucb.models.empirical_bayes import (
    GRAIN,
    GREATEST,
    LEAST,
    LEAST_NOISE,
    LEVEL,
    MORE,
    NOISE,
    NOISE_WORTH,
    SLOPES,
    WORTH,
    ArmRegressions,
    LinearLearned,
    Scales,
    activate,
    add_products,
    arm_factors,
    count_down,
    drop_anchor,
    fade_posterior,
    near,
    relative,
    returned,
    reward_votes,
    shared_posterior,
    stepped,
    survey,
    worth_of,
)
from tsucb.models.model import belief, forget, predicted_belief, update
from tsucb.models.random_effects import NORMAL, effects, relative_variance, shape_of
from tsucb.models.regressions import (
    Rows,
    evidence,
    learn,
    predict,
    predict_many,
)
from tsucb.models.state import array, fade_arm, nested, sums
from tsucb.numeric.arrays import Flags, Floats, Integers, largest_of
from tsucb.numeric.stacks import gram, lower_roots, product, transposed

MOST_DOUBT = 1.0  # the largest variance of the logarithm of a variance that widens a posterior
VOTE = 10.0  # an arm with this many determined directions has half a vote
DIFFERENT = 1.0  # the largest relative variance of noise between arms, which is also the guess
DIFFERENT_WORTH = 2.0  # arms that the guess is worth
LEAST_DIFFERENT = 0.01  # the smallest relative variance of noise between arms
FIRM = 50.0  # rewards after which the worth of the guess of the noise has fallen by e
RELEVANCE_WORTH = 5.0  # directions that the guess "all features matter alike" is worth, per feature
LEAST_ARM_NOISE, MOST_ARM_NOISE = 1e-6, 1e15  # limits of an arm's noise, as shares of the common
RELEVANCE_RANGE = 1e4
LARGE = 64  # features; with fewer, a refresh takes three steps
SMALL = 16  # features; with fewer, the next refresh is due after `MORE`, else `MORE_IF_LARGE`
MORE_IF_LARGE = 0.6
MORE_IF_FIXED = 0.1  # without features, where a refresh costs little
MOST_EQUAL = 2.0  # an arm's rewards count as at most this many while all rewards are equal
ABOVE = 0.5  # standard deviations above the mean at which the variance of clicks is evaluated


class AdaptiveState(LinearLearned):
    """Posteriors of K regressions relative to the anchor, and the sums they are made from."""

    common: Floats = array(start=SLOPES, least=LEAST, most=GREATEST)  # ω²
    relevance: Floats = array("coefficient", start=1.0, least=1e-5, most=1e5)  # rⱼ
    arm_noise: Floats = array(
        "arm", start=1.0, least=LEAST_ARM_NOISE / 2, most=MOST_ARM_NOISE
    )  # σₖ² / σ²
    # The noise variance with which each arm learns until the next refresh.
    variance: Floats = array("arm", start=NOISE, least=1e-100)
    # The range of the rewards, relative to the anchor, and whether a third value is between.
    low: Floats = array()
    high: Floats = array()
    mixed: Flags = array(dtype=bool)
    above: Floats = sums("arm", least=0.0)  # weight of the rewards above the lowest
    kind: Floats = array(least=0.0, most=2.0)  # the kind of rewards; see `random_effects`
    level: Floats = array()  # m in `random_effects`
    regressions: Rows = nested(Rows)

    @property
    def pulls(self) -> Floats:
        """How often each arm was played."""
        return self.regressions.pulls

    def check(self, rewards: int) -> None:
        """Raise ValueError also for weights of more rewards than there were."""
        super().check(rewards)
        if (self.weights > rewards * (1 + 1e-9)).any():
            raise ValueError("moments have more weight than there were rewards")

    def merged(self, other: Any, base: Any) -> Self:
        """Return the state with the sums of both, whose rewards may have different ranges."""
        parts = [state for state in (self, other) if state.started[0]]
        ends = {float(end) for state in parts for end in (*state.low, *state.high)}
        mixed = len(ends) > 2 or any(state.mixed[0] for state in parts)
        above = [
            state.above if state.low[0] == min(ends, default=0.0) else state.weights
            for state in (self, other, base)
        ]
        result = super().merged(other, base)
        result.low[0], result.high[0] = min(ends, default=0.0), max(ends, default=0.0)
        result.mixed[0] = mixed
        result.above[:] = above[0] + above[1] - above[2]
        return result


@dataclass(frozen=True)
class AdaptivePosteriors:
    """The posteriors (1), whitened by E^½: n arms with rewards, then one without."""

    tried: Integers  # (n,) the arms with rewards
    scale: Floats  # (p,) E^½, in units of the rewards
    variance: Floats  # (K,) of the noise, in units of the rewards
    common: Floats  # (p,) b̂
    common_root: Floats  # (p, p) V̂^½
    covariance: Floats  # (p, p) V̂
    moment: Floats  # (n + 1, p) gₖ
    inverse: Floats  # (n + 1, p, p) Lₖ⁻¹
    own: Floats  # (n + 1, p, p) Wₖ
    mean: Floats  # (n + 1, p)

    @cached_property
    def root(self) -> Floats:
        """The roots of the covariances, (n + 1, p, p)."""
        return upper_roots(self.inverse, self.common_root)

    def doubtful_roots(self, weights: Floats) -> Floats:
        """Return the roots of covariances that include the uncertainty about the variances."""
        free = self.scale.size - np.einsum("kii->k", self.own)  # tr(I − Wₖ)
        square = 2.0 * free - self.scale.size + np.einsum("kij,kij->k", self.own, self.own)
        prior = square.sum() + WORTH
        both = (free - square).sum()
        # Faded sums may have more determined directions than weight.
        noise = weights.sum() + (square - 2.0 * free).sum()
        noise = max(noise, both * both / prior) + NOISE_WORTH
        covariance = (
            2.0 / (prior * noise - both * both) * np.array([[noise, -both], [-both, prior]])
        )
        of_ratio = min(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1], MOST_DOUBT)
        moved = np.sqrt(of_ratio) * (self.mean - self.common)
        root = np.broadcast_to(self.common_root, self.inverse.shape)
        share = free / np.count_nonzero(self.scale)  # of the coefficients of active features
        parts = np.array([1.0 - share, share])
        doubt = np.minimum(np.einsum("ik,ij,jk->k", parts, covariance, parts), MOST_DOUBT)
        roots = upper_roots(self.inverse, np.concatenate((root, moved[:, :, None]), axis=2))
        roots *= np.exp(0.5 * doubt)[:, None, None]
        return roots


class AdaptiveLinear(ArmRegressions):
    """Linear rewards with nothing to set: no prior, no scaling, no constant, no noise.

    Arm k pays βₖᵀ(1, x) plus normal noise. Empirical Bayes learns the centre and scale of every
    feature, the level and spread of the rewards, the noise, how large coefficients are, which
    features matter, and what the arms have in common (`tsucb.models.empirical_bayes` derives it).
    Decisions do not change when features or rewards are shifted or rescaled. An arm that is added
    later starts at what the other arms have in common.

    Parameters
    ----------
    features
        d, the length of a context; 0 for none. A constant need not be among them.

    >>> import numpy as np
    >>> model = AdaptiveLinear(features=1)
    >>> contexts, arms = np.linspace(20.0, 40.0, 100)[:, None], np.arange(100) % 2
    >>> state = model.fit(2, contexts, arms, 7.0 + contexts[:, 0] * np.where(arms == 0, 1, -1))
    >>> model.belief(state, [30.0], rng=np.random.default_rng(0)).mean.round(1)
    array([ 37., -23.])
    """

    state = AdaptiveState
    merges = True

    features: Natural

    def refresh(self, state: AdaptiveState, steps: int) -> None:
        """Learn scales and prior again; without features, by `random_effects`."""
        scales, state.kind[0] = self.scales(state), NORMAL
        if self.features or not scales.known:
            super().refresh(state, steps)
            return
        weight, above = state.weights, float(state.above.sum())
        mixed, share = bool(state.mixed[0]), above / scales.weight
        shape = shape_of(state.low[0], state.high[0], mixed, share)
        found = effects(weight, state.moments[:, 0, 1], state.square, shape, above)
        state.kind[0], state.level[0] = shape.kind, found.level
        state.spread[0], state.known[0] = scales.spread, True
        state.noise[0] = max(found.noise / scales.spread, LEAST_NOISE)
        state.levels[0] = min(max(state.noise[0] / found.worth, LEAST), GREATEST)
        state.arm_noise[:], state.variance[:] = 1.0, found.noise
        arms = state.regressions
        arms.set_posteriors(found.mean[:, None], np.sqrt(found.variance)[:, None, None])
        arms.information[:] = np.log1p(weight / found.worth)
        if steps:
            state.due[0] = self.rewards_until_due(scales.weight)

    def merged(self, first: Any, second: Any, base: Any) -> Any:
        """Return the state after both histories.

        If all rewards of one are equal, they count as at most `MOST_EQUAL` per arm.
        """
        parts = [first, second, base]
        if first.known[0] or second.known[0]:
            parts = [part if part.known[0] else discounted(part) for part in parts]
        return super().merged(*parts)

    def moved(self, state: AdaptiveState, anchor: Floats) -> AdaptiveState:
        """Return the state with its sums relative to another anchor."""
        result: AdaptiveState = super().moved(state, anchor)
        if state.started[0]:
            for end in (result.low, result.high):
                end += state.anchor[0] - anchor[0]
        return result

    @property
    def steps(self) -> int:
        """Three steps, as one lags behind the rewards; one where steps cost much."""
        return 3 if self.features < LARGE else 1

    @property
    def more(self) -> float:
        """The share of more rewards after which the next refresh is due, more for more features."""
        if not self.features:
            return MORE_IF_FIXED
        return MORE if self.features < SMALL else MORE_IF_LARGE

    @property
    def solves_last(self) -> bool:
        """False, which saves one factorisation per arm, the main cost of a refresh."""
        return False

    def prior(self, state: AdaptiveState, rng: np.random.Generator | None = None) -> None:
        """Set every arm's posterior to N(0, 1), in place; units have no meaning yet."""
        p = self.features + 1
        state.active[0] = True
        state.slopes[0] = state.common[0] = SLOPES / p
        state.regressions.set_posteriors(0.0, np.diag(np.eye(1, p)[0]))

    def extend(self, state: AdaptiveState, arms: int) -> AdaptiveState:
        """Return a state with further arms at the end, which have the common part's posterior."""
        longer = state.joined(self.start(arms))
        longer.arm_noise[-arms:] = max(1.0, state.arm_noise.mean() if state.pulls.size else 1.0)
        self.settle(longer)
        return longer

    def widened(self, features: int) -> "AdaptiveLinear":
        """Return the model for contexts with more features."""
        return AdaptiveLinear(features)

    def predictions(
        self, state: AdaptiveState, contexts: Floats, arms: Integers
    ) -> tuple[Floats, Floats]:
        """Return means, relative to the anchor's, and standard deviations at many contexts."""
        anchor = state.anchor
        z = np.empty((len(contexts), anchor.size))
        z[:, 0] = 1.0
        np.subtract(contexts, anchor[1:], out=z[:, 1:])
        return predict_many(state.regressions, z, arms)

    def scales(self, state: AdaptiveState) -> Scales:
        """Return the scales of rewards and features; note which features have varied, in place."""
        p = self.features + 1
        totals = state.moments[:, 0, :p].sum(axis=0)
        squares = np.einsum("kii->i", state.moments[:, :, :p])
        scales = survey(totals, squares, reward_votes(state))
        state.active[:] = scales.inverse > 0.0
        return scales

    def guess(self, state: AdaptiveState, scales: Scales) -> None:
        """Set all variances to the guess, in place."""
        state.noise[0], state.levels[0] = NOISE, LEVEL
        state.slopes[0] = state.common[0] = SLOPES / max(state.active[1:].sum(), 1)
        state.arm_noise[:] = state.relevance[:] = 1.0

    def solve(self, state: AdaptiveState, scales: Scales) -> AdaptivePosteriors:
        """Return the posteriors (1) that follow from sums and variances."""
        p, tried = self.features + 1, np.flatnonzero(state.weights)
        slopes, common = state.slopes[0], state.common[0]
        scale = np.sqrt(slopes * scales.spread * state.relevance * state.active)
        scale[0] = np.sqrt(state.levels[0] * scales.spread)
        variance = state.arm_noise * (state.noise[0] * scales.spread)
        moments = np.zeros((tried.size + 1, p, p + 1))
        moments[:-1] = state.moments[tried]
        noise = np.append(variance[tried], 1.0)[:, None, None]
        inverse, whole = arm_factors(moments, scales, p - 1, scale, noise)
        own, moment = gram(inverse), whole[:, :, p]
        ratio = np.full(p, np.sqrt(common / slopes))  # Ω^½ in coordinates whitened by E^½
        ratio[0] = np.sqrt(1.0 / state.levels[0])
        information = np.outer(ratio, ratio) * (np.eye(p) - own).sum(axis=0)
        right = ratio * np.einsum("kij,kj->i", own, moment)
        # Reversed twice, so that the root V̂^½ is upper triangular.
        mean, root = shared_posterior(information[::-1, ::-1], right[::-1])
        mean, root = ratio * mean[::-1], root[::-1, ::-1] * ratio
        return AdaptivePosteriors(
            tried=tried,
            scale=scale,
            variance=variance,
            common=mean,
            common_root=root.T,
            covariance=gram(root),
            moment=moment,
            inverse=inverse,
            own=own,
            mean=np.einsum("kij,kj->ki", own, moment + mean),
        )

    def improve(self, state: AdaptiveState, scales: Scales, found: AdaptivePosteriors) -> None:
        """Move noise, variances and relevance by a step, in place."""
        tried, mean, level = found.tried, found.mean[:-1], scales.level
        both = np.einsum("kij,kij->ki", found.root[:-1], found.root[:-1])  # diagonals of W + W V̂ W
        cross = np.einsum("ij,kij->ki", found.covariance, found.own[:-1])  # and of V̂ W
        squared = (mean - found.common) ** 2
        determined = 1.0 - found.covariance.diagonal() - both + 2.0 * cross
        count = state.weights[tried]
        left = np.maximum(count - (1.0 + cross - both).sum(axis=1), 0.0)
        square = state.square[tried] - level * (2.0 * state.moments[tried, 0, -1] - count * level)
        explained = (mean * (found.common - found.moment[:-1] - mean)).sum(axis=1)
        residual = np.maximum(square + found.variance[tried] * explained, 0.0) / scales.spread
        step_noise(state, tried, residual, left)
        step_prior(state, found, squared, determined, scales.weight)

    def install(self, state: AdaptiveState, scales: Scales, found: AdaptivePosteriors) -> None:
        """Write the posteriors into the state, in coordinates relative to the anchor."""
        scale = found.scale[:, None]
        mean = returned(found.mean[:, :, None] * scale, scales, self.features)[:, :, 0]
        mean[:, 0] += scales.level
        roots = found.doubtful_roots(state.weights[found.tried])
        root = returned(roots * scale, scales, self.features)
        information = -2.0 * np.log(np.einsum("kii->ki", found.inverse)).sum(axis=1)
        # Arms without rewards have the last posterior.
        arms, place = state.regressions, np.full(state.weights.size, -1)
        place[found.tried] = np.arange(found.tried.size)
        arms.set_posteriors(mean[place], root[place])
        arms.information[:] = np.maximum(information, 0.0)[place]
        state.variance[:] = found.variance


def discounted(state: AdaptiveState) -> AdaptiveState:
    """Return the state with each arm's rewards counting as at most `MOST_EQUAL`."""
    result = state.copy()
    result.fade(np.minimum(1.0, MOST_EQUAL / np.maximum(state.weights, 1.0)))
    return result


def upper_roots(inverse: Floats, root: Floats) -> Floats:
    """Return the roots Lₖ⁻ᵀ R of (1), given Lₖ⁻¹ and V̂^½."""
    part = gram(transposed(product(inverse, root)))
    part += np.eye(root.shape[-2])
    return product(transposed(inverse), lower_roots(part[:, ::-1, ::-1])[:, ::-1, ::-1])


def step_noise(state: AdaptiveState, tried: Integers, residual: Floats, left: Floats) -> None:
    """Move the common noise and each arm's to their fixed point, in place.

    `residual` has the squared errors of the fit of each tried arm, divided by V, and `left` its
    number of rewards less the directions that they determine.
    """
    vote, total = 1.0 / (left + VOTE), left.sum()
    if total == 0.0:  # sums have faded to a weight below their determined directions
        return
    worth = NOISE_WORTH * np.exp(-total / (FIRM * max(left.size, 1)))
    by_vote = (worth * NOISE + (vote * residual).sum()) / (worth + (vote * left).sum())
    worth = NOISE_WORTH * np.exp(-total / FIRM)
    of_all = (worth * NOISE + residual.sum()) / (worth + total)
    noise = max(near(by_vote, state.noise[0]), LEAST_NOISE)
    worth = arm_noise_worth(residual / noise, left)
    own = (residual + worth * noise) / (left + worth)
    state.noise[0] = noise
    state.arm_noise[:] = max(1.0, of_all / noise)
    state.arm_noise[tried] = np.maximum(own, of_all) / noise
    np.clip(state.arm_noise, LEAST_ARM_NOISE, MOST_ARM_NOISE, out=state.arm_noise)


def arm_noise_worth(residual: Floats, left: Floats) -> float:
    """Return how many rewards the common noise is worth as a guess of an arm's noise.

    In units of the common noise, an arm's residual has mean l τ and variance 2 l τ², where τ is its
    noise and l = left. If τ has the variance c between arms, the best linear estimate of it is
    (residual + w)/(l + w) with w = 2(1 + c)/c; c is estimated from how much residuals differ.
    """
    sizes = left * (left + 2.0)
    guess = DIFFERENT_WORTH * sizes.mean()
    apart = ((residual - left) ** 2 - 2.0 * left).sum()
    differ = (apart + DIFFERENT * guess) / max(sizes.sum() + guess, 1e-9)
    differ = min(max(differ, LEAST_DIFFERENT), DIFFERENT)
    return float(2.0 * (1.0 + differ) / differ)


def step_prior(
    state: AdaptiveState,
    found: AdaptivePosteriors,
    squared: Floats,
    determined: Floats,
    weight: float,
) -> None:
    """Move τ₀², τ², ω² and the relevance of the features to their fixed point, in place.

    For every tried arm and coefficient, `squared` has the squared mean of βₖ − b, and `determined`
    how well it is determined, from 0 to 1. `weight` is the number of all rewards.
    """
    worth = worth_of(weight, squared.size)
    by_slope, known = squared.sum(axis=0), np.maximum(determined.sum(axis=0), 0.0)
    state.levels[0] = stepped(state.levels[0], by_slope[0], known[0], LEVEL, worth)
    slopes = np.flatnonzero(state.active)[1:]
    guess, before, prior = SLOPES / max(slopes.size, 1), state.slopes[0], state.common[0]
    free = np.maximum(determined[:, slopes].sum(axis=1), 0.0)
    vote = 1.0 / (free + VOTE)
    voted = (vote * squared[:, slopes].sum(axis=1)).sum()
    if not slopes.size:
        return
    state.slopes[0] = stepped(before, voted, (vote * free).sum(), guess, worth)
    # For each slope the squared common part over its prior ω²/τ², and how well it is determined.
    common = found.common[slopes] ** 2 * before / prior
    clear = np.maximum(1.0 - found.covariance.diagonal()[slopes] * before / prior, 0.0)
    vote = 1.0 / (clear.sum() + VOTE)
    worth = worth_of(weight, slopes.size + 1)  # all arms tell of these coefficients
    state.common[0] = stepped(prior, vote * common.sum(), vote * clear.sum(), guess, worth)
    top = by_slope[slopes] * before / state.slopes[0] + common * prior / state.common[0]
    relevance = (top * state.relevance[slopes] + RELEVANCE_WORTH) / (
        known[slopes] + clear + RELEVANCE_WORTH
    )
    relevance = np.minimum(np.maximum(relevance, 1.0 / RELEVANCE_RANGE), RELEVANCE_RANGE)
    state.relevance[slopes] = relevance


@implements(belief, AdaptiveLinear)
def belief_of_adaptive(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state.regressions, relative(state.anchor, context, 0.0)[:-1], arms)
    return predicted_belief(model, state, mean, std, arms, step, rng)


@implements(predicted_belief, AdaptiveLinear)
def predicted_belief_of_adaptive(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    # Rounded, so that arms with equal histories are equal to the last bit: chance decides between
    # them, not rounding errors, which would change with the units of the features.
    grain = GRAIN * np.sqrt(state.spread[0])
    kind, low, high, level = state.kind[0], state.low[0], state.high[0], state.level[0]
    for a in range(arms.size):
        std[a] *= np.sqrt(relative_variance(kind, low, high, mean[a] + ABOVE * std[a], level))
        mean[a] = np.rint(mean[a] / grain) * grain + state.anchor[0]
        std[a] = np.rint(std[a] / grain) * grain
    if not state.known[0]:
        # All rewards were equal, and so are the means: arms without rewards come first.
        widest = largest_of(std)
        for a in range(arms.size):
            if state.moments[arms[a], 0, 0] == 0.0:
                std[a] = 2.0 * widest
    pulls, information = evidence(state.regressions, arms)
    return Belief(
        Gaussian(), mean, std, mean, std, pulls, information, step, state.anchor.size, 1.0
    )


@implements(update, AdaptiveLinear)
def update_adaptive(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    full = anchored(state, context, reward)
    learn_posterior(state, arm, full)
    add_to_sums(state, arm, full)


@compiled
def anchored(state, context, reward):  # type: ignore[no-untyped-def]
    """Return φ⁺ of a reward; activate features that vary for the first time, in place."""
    drop_anchor(state, reward, context)
    full = relative(state.anchor, context, reward)
    for j in range(1, full.size - 1):
        if full[j] != 0.0 and not state.active[j]:
            activate(state, j, state.slopes[0] + state.common[0], full[j])
    return full


@compiled
def learn_posterior(state, arm, full):  # type: ignore[no-untyped-def]
    """Update the posterior, in place; return the reward's distance from the mean, in deviations."""
    variance = state.variance[arm]
    surprise, spread = learn(state.regressions, arm, full[:-1], full[-1], variance)
    return surprise / np.sqrt(spread + variance)


@compiled
def add_to_sums(state, arm, full):  # type: ignore[no-untyped-def]
    """Add a reward to the sums, from which the next refresh computes posteriors, in place."""
    y = full[-1]
    if y != 0.0 and not state.known[0]:
        for k in range(state.above.size):
            fade_arm(state, k, min(1.0, MOST_EQUAL / max(state.moments[k, 0, 0], 1.0)))
    note_range(state, arm, y)
    add_products(state.moments[arm], full, 1.0)
    state.square[arm] += y * y
    count_down(state, y)


@compiled
def note_range(state, arm, y):  # type: ignore[no-untyped-def]
    """Update range and kind of the rewards by a reward relative to the anchor, in place."""
    low, high = state.low[0], state.high[0]
    if y != low and y != high and low != high:
        state.mixed[0] = True
    if y < low:
        for k in range(state.above.size):
            state.above[k] = state.moments[k, 0, 0]
        state.low[0] = y
    elif y > low:
        state.above[arm] += 1.0
        state.high[0] = max(y, high)


@implements(forget, AdaptiveLinear)
def forget_adaptive(model, state, weight):  # type: ignore[no-untyped-def]
    """Let the sums of all arms fade; the prior is learned from what remains.

    Covariances are divided by the weight until the next refresh, which computes them exactly.
    """
    for arm in range(state.regressions.pulls.size):
        fade_arm(state, arm, weight)
        fade_posterior(state, arm, weight)
