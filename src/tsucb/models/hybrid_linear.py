"""Arms with features: coefficients that all arms share, and an effect of each arm's own.

With x the context and z the features of an arm, both standardised, φ = (1, x, z, x⊗z), and
v = (1, x) the first part of φ, arm k pays

    reward = θᵀφ + uₖᵀv + noise,       noise ~ N(0, σ²)
    θ  ~ N(0, diag(V, ω_c², …, ω_a², …, ω_×², …))     shared by all arms (rewards centred)
    uₖ ~ N(0, diag(τ₀², τ², …))                       the arm's own

Given θ the arms are independent, and the uₖ can be integrated out. With Sₖ = Σ vφᵀ, Yₖ = Σ vy, E
the prior covariance of uₖ, and (not whitened) Wₖ = (Σ vvᵀ + σ²E⁻¹)⁻¹, an observation (φ, v, y) of
arm k changes the posterior of θ like an observation

    φ − Sₖᵀ Wₖ v,   y − Yₖᵀ Wₖ v,   with noise variance σ² (1 + vᵀ Wₖ v)                      (1)

of θ alone: one rank-one update, whatever the number of arms. All observations together have the
reduced sums Σ φφᵀ − Σₖ Sₖᵀ Wₖ Sₖ. An arm that is removed stays in these with its last Wₖ (`gone`):
what it said about θ is kept, its own effect is not.

The rest is as in `tsucb.models.empirical_bayes`; the sums have the reward as a last column,
φ⁺ = (φ, y), so one matrix has all of them.

Where rewards fade by γ at each reward, all sums fade alike, so one common factor f (`faded`) is
enough: the true sums are f times the stored ones, the true covariances the stored ones over f. What
(1) subtracts is the same for both. In stored units a new observation has the weight 1/f, that is
the noise variance f σ². The root of an arm without rewards, which has nothing to forget, is stored
without f. A refresh multiplies f out, and is exact.

References: Li, Chu, Langford and Schapire (2010), "A contextual-bandit approach to personalized
news article recommendation" (hybrid models, and the reduced sums); Henderson (1975), "Best linear
unbiased estimation and prediction under a selection model".
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.joint_gaussian import JointGaussian
from tsucb.checks import Natural, Switch
from tsucb.compiler import compiled, implements
from tsucb.models.empirical_bayes import (
    BALANCE,
    GRAIN,
    GREATEST,
    HALF,
    LEAST,
    LEAST_NOISE,
    LEVEL,
    NOISE,
    NOISE_WORTH,
    SLOPES,
    LearnedPrior,
    LinearLearned,
    Scales,
    add_products,
    arm_factors,
    check_products,
    count_down,
    drop_anchor,
    mend_products,
    near,
    returned,
    reward_votes,
    shared_posterior,
    shift_by,
    standardised,
    stepped,
    survey,
    worth_of,
)
from tsucb.models.model import belief, forget, places_of, training_due, update
from tsucb.models.regressions import Shared, learn
from tsucb.models.state import array, counts, nested, sums
from tsucb.numeric.arrays import Floats, Integers, full, take
from tsucb.numeric.stacks import gram, product, transposed

# Blocks of shared coefficients, each with a variance: the context's features, the arms' features,
# their products, and curves. The constant, and features that have not varied, are in none.
CONTEXT, ARM, CROSSED, CURVED, NONE = range(5)

OWN_SLOPES = LEVEL  # the guess for all of an arm's own slopes together: small, see `LEVEL`
SMALL = 40  # coefficients up to which a refresh solves again after the last step
ROUNDING = 1e-9  # share of a sum that may be rounding
MOST_CROSSED = 1_000  # products of features of context and arms; with more there are none


class HybridState(LinearLearned):
    """The posteriors of θ and of each arm's own effect, and the sums they are made from.

    `theta` is a single regression on φ, relative to the anchor. `gram` is a sum over all rewards,
    `gone` and `votes` are sums over arms that were removed, the others over the present arms.
    """

    gram: Floats = sums("column", "column")  # Σ φ⁺φ⁺ᵀ over all rewards
    gone: Floats = sums("column", "column")  # Σₖ Sₖᵀ Wₖ Sₖ
    votes: Floats = sums(3)  # Σ n/(n+1), Σ y/(n+1), Σ y²/(n+1)
    shared: Floats = array("block", start=SLOPES, least=LEAST, most=GREATEST)  # ω² of every block
    # The noise variance of rewards until the next refresh.
    variance: Floats = array(start=NOISE, least=1e-100)
    faded: Floats = array(start=1.0, least=LEAST, most=1.0)  # f
    unknown: Floats = array(
        "own", "own"
    )  # root of the covariance of an arm's effect before rewards
    own: Floats = array("arm", "own", "own")  # and given θ and the arm's rewards
    pulls: Floats = counts("arm")
    theta: Shared = nested(Shared)

    @property
    def weight(self) -> float:
        """The number of all rewards, also of removed arms; less if they fade."""
        return float(self.gram[0, 0] * self.faded[0])

    def merged(self, other: Any, base: Any) -> Self:
        """Return the state with the sums of both; the caller computes posteriors from them."""
        result = super().merged(other, base)
        mend_products(result.gram)
        mend_products(result.gone)
        return result

    def check(self, rewards: int) -> None:
        """Raise ValueError also for sums of products that no data has."""
        super().check(rewards)
        check_products("gram", self.gram)
        check_products("gone", self.gone)
        weight = max(self.gram[0, 0], self.weights.max(initial=0.0))
        if weight * self.faded[0] > rewards * (1 + 1e-9):
            raise ValueError("moments have more weight than there were rewards")


class HybridPosteriors(NamedTuple):
    """The whitened posteriors of θ and of n arms with rewards."""

    noise: float  # σ², in units of the rewards
    scale: Floats  # (P,) Ω^½
    own_scale: Floats  # (q,) E^½
    block: Integers  # (P,) of every coefficient
    mean: Floats  # (P,) of θ
    root: Floats  # (P, P) B
    inverse: Floats  # (n, q, q) Lₖ⁻¹
    sums: Floats  # (n, q, P + 1) Lₖ⁻¹ E^½ Sₖ⁺ / σ²
    residual: float  # yᵀC⁻¹y of all rewards y with their covariance C


class HybridLinear(LearnedPrior):
    """Arms described by features, with nothing to set: rewards of an arm tell about the others.

    An arm with features z pays in the context x

        θᵀ(1, x, z, x⊗z) + uᵀ(1, x) + noise,

    with θ shared by all arms and u the arm's own, which starts at 0 and grows with its data.
    Empirical Bayes learns the centre and scale of every feature, the level and noise of the
    rewards, and how large θ and the arms' own effects are (`tsucb.models.hybrid_linear` derives
    it), so decisions do not change when features or rewards are shifted or rescaled.

    The context of a step is a matrix with one row (x, z) per arm; x is the same in all rows. A
    decision costs O(n P²) for n available arms and P shared coefficients, whatever the number of
    known arms; a reward costs O(P²).

    Parameters
    ----------
    features
        The number of an arm's features.
    context
        The number of the context's features, which come first in a row.
    crossed
        Whether there are coefficients for the products x⊗z. Beyond 1,000 products there are none.
    own_slopes
        Whether an arm's own effect depends on the context; otherwise it is a constant.
    curves
        How many of the features, the last ones, are curves of a row (`tsucb.models.curves`): they
        are in no products, and a variance of their own says how large their coefficients are.

    >>> import numpy as np
    >>> model = HybridLinear(features=1)
    >>> z = np.array([[20.0], [30.0], [40.0]])
    >>> state = model.start(arms=3)
    >>> for reward in (5.0, 5.1, 4.9):
    ...     model.update(state, z, 0, reward)
    ...     model.update(state, z, 1, 2 * reward)
    >>> model.belief(state, z, rng=np.random.default_rng(0)).mean.round(1)  # the third never tried
    array([ 5.2,  9.8, 14. ])
    """

    state = HybridState
    merges = True
    largest = 1e20  # squares of products of two features are finite

    features: Natural
    context: Natural = 0
    crossed: Switch = True
    own_slopes: Switch = True
    curves: Natural = 0

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Switch products off if there are none or too many, and own slopes without a context."""
        a, c = values["features"] - values["curves"], values["context"]
        if a < 0:
            raise ValueError(f"curves must be at most features, but they are {-a} more")
        values["crossed"] &= 0 < a * c <= MOST_CROSSED
        values["own_slopes"] &= c > 0

    @property
    def coefficient_count(self) -> int:
        """P, the number of shared coefficients."""
        crossed = (self.features - self.curves) * self.context if self.crossed else 0
        return 1 + self.context + self.features + crossed

    @property
    def own_count(self) -> int:
        """q, the number of an arm's own coefficients."""
        return 1 + self.context if self.own_slopes else 1

    def axes(self, places: Any = None) -> dict[str, Sequence[Any]]:
        """Return the names of the entries of a row, of φ, of v, and of φ⁺.

        `places` are the places of the context's features and those of the arms' features.
        """
        context, arm = places or (None, None)
        x = [("context", place) for place in places_of(context, self.context)]
        z = [("arm", place) for place in places_of(arm, self.features)]
        row = ["constant", *x, *z]
        paired = z[: self.features - self.curves]
        coefficients = [*row, *(itertools.product(x, paired) if self.crossed else ())]
        own = row[: self.own_count]
        column = [*coefficients, "reward"]
        blocks = range(NONE if self.curves else CURVED)
        return {
            "row": row, "coefficient": coefficients, "own": own, "column": column, "block": blocks,
        }  # fmt: skip

    def prior(self, state: HybridState, rng: np.random.Generator | None = None) -> None:
        """Write the prior into a blank state, in place; units have no meaning yet."""
        state.active[0] = True
        state.slopes[0] = OWN_SLOPES
        state.unknown[0, 0] = state.own[:, 0, 0] = np.sqrt(LEVEL)
        state.theta.set_posteriors(0.0, np.diag(np.eye(1, self.coefficient_count)[0]))

    def extend(self, state: HybridState, arms: int) -> HybridState:
        """Return a state with further arms at the end, without rewards."""
        longer = state.joined(self.start(arms))
        longer.own[-arms:] = state.unknown
        return longer

    def release(self, state: HybridState, arms: Integers) -> None:
        """Forget the arms' own effects, in place; keep what their rewards say about θ."""
        moments, count = state.moments[arms], state.weights[arms]
        lines = product(transposed(state.own[arms]), moments)  # Wₖ = own ownᵀ / σ²
        taught = gram(lines.reshape(-1, lines.shape[2])) / state.variance
        state.gone[:] += at_most_seen(state, taught)
        vote = 1.0 / (state.faded * count + BALANCE)
        totals = count, moments[:, 0, -1], state.square[arms]
        state.votes[:] += [(vote * total).sum() for total in totals]
        state.moments[arms], state.own[arms] = 0.0, state.unknown
        state.square[arms], state.pulls[arms] = 0.0, 0

    def widened(self, features: tuple[int, int]) -> "HybridLinear":
        """Return the model for more features, given their numbers in the context and in an arm.

        If there are too many products, it has none.
        """
        c, a = features
        crossed = self.crossed or not (self.context and self.features > self.curves)
        return HybridLinear(a, c, crossed, self.own_slopes or not self.context, self.curves)

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """Return the shape of a matrix with a row per arm: the context's features, then its own."""
        return (arms, self.context + self.features)

    def coefficients(self, state: HybridState, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of θ, for features relative to the first row."""
        variance = (state.theta.root[0] ** 2).sum(axis=1) / state.faded[0]
        return state.theta.mean[0].copy(), np.sqrt(variance)

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """Return the names of the constant, the features of a row, and the products."""
        products = [
            f"{x} × {z}" for x in features[: self.context] for z in features[self.context :]
        ]
        return ["constant", *features, *(products if self.crossed else [])]

    @property
    def solves_last(self) -> bool:
        """Whether a refresh solves again after the last step of the variances."""
        return bool(self.coefficient_count <= SMALL)

    def moved(self, state: HybridState, anchor: Floats) -> HybridState:
        """Return the state with its sums relative to another anchor."""
        result: HybridState = super().moved(state, anchor)
        if state.started[0]:
            shift, (n, total, _) = shift_by(state.anchor - anchor), state.votes
            y = -shift.level
            for name in ("gram", "gone"):
                getattr(result, name)[:] = self._both_ways(getattr(state, name), shift)
            result.votes[1:] += y * n, 2 * y * total + y * y * n
        return result

    def _both_ways(self, gram: Floats, scales: Scales) -> Floats:
        """Return sums Σ φ⁺φ⁺ᵀ for standardised features and rewards."""
        return standardised(standardised(gram, scales, self.context).T, scales, self.context)

    def scales(self, state: HybridState) -> Scales:
        """Return the scales of rewards and features, after multiplying all sums by `faded`."""
        for each in (state.gram, state.gone, state.votes, state.moments, state.square):
            each *= state.faded[0]
        state.faded[0] = 1.0
        row = state.anchor.size
        votes = state.votes + reward_votes(state)
        return survey(state.gram[0, :row], state.gram.diagonal()[:row], votes)

    def blocks(self, scales: Scales) -> Integers:
        """Return the block of every coefficient."""
        varies, c, row = scales.inverse > 0.0, self.context, scales.inverse.size
        block = np.full(self.coefficient_count, NONE)
        block[1 : c + 1][varies[1 : c + 1]] = CONTEXT
        block[c + 1 : row][varies[c + 1 :]] = ARM
        curves = row - self.curves
        block[curves:row][varies[curves:]] = CURVED
        if self.crossed:
            block[row:][np.outer(varies[1 : c + 1], varies[c + 1 : curves]).ravel()] = CROSSED
        return block

    def guesses(self, scales: Scales) -> tuple[Floats, float]:
        """Return the guesses of `shared` and of `slopes`."""
        counts = np.maximum(np.bincount(self.blocks(scales), minlength=NONE)[:NONE], 1)
        blocks = NONE if self.curves else CURVED
        return SLOPES / counts[:blocks], OWN_SLOPES / counts[CONTEXT]

    def guess(self, state: HybridState, scales: Scales) -> None:
        """Set all variances to the guess, in place."""
        state.noise[0], state.levels[0] = NOISE, LEVEL
        state.shared[:], state.slopes[0] = self.guesses(scales)

    def solve(self, state: HybridState, scales: Scales) -> HybridPosteriors:
        """Return the posteriors that follow from sums and variances."""
        block, q, spread = self.blocks(scales), self.own_count, scales.spread
        noise = state.noise[0] * spread
        scale = np.sqrt(np.append(state.shared, (0.0, 0.0))[block] * spread)
        scale[0] = np.sqrt(spread)
        own_scale = np.sqrt(np.where(block[:q] < NONE, state.slopes, 0.0) * spread)
        own_scale[0] = np.sqrt(state.levels[0] * spread)
        moments = state.moments[np.flatnonzero(state.weights)]
        inverse, whole = arm_factors(moments, scales, self.context, own_scale, noise)
        whole = product(inverse, whole)
        reduced = self._both_ways(state.gram - state.gone, scales) / noise
        reduced -= gram(whole.reshape(-1, whole.shape[2]))
        right = scale * reduced[:-1, -1]
        mean, root = shared_posterior(scale[:, None] * reduced[:-1, :-1] * scale, right)
        residual = max(reduced[-1, -1] - (right * mean).sum(), 0.0)
        return HybridPosteriors(
            noise, scale, own_scale, block, mean, root, inverse, whole, residual
        )

    def improve(self, state: HybridState, scales: Scales, found: HybridPosteriors) -> None:
        """Move noise and variances by a step, in place."""
        shared, slopes = self.guesses(scales)
        # With the right variances, the expected residual is the number of rewards.
        noise = (found.residual * state.noise[0] + NOISE_WORTH * NOISE) / (
            scales.weight + NOISE_WORTH
        )
        squared, determined = own_effects(found)
        columns = found.block[: squared.size] == CONTEXT
        own = squared[columns].sum(), determined[columns].sum()
        worth = worth_of(scales.weight, found.mean.size + found.inverse[:, 0].size)
        state.levels[0] = stepped(state.levels[0], squared[0], determined[0], LEVEL, worth)
        state.slopes[0] = stepped(state.slopes[0], *own, slopes, worth)
        determined = np.maximum(1.0 - (found.root**2).sum(axis=0), 0.0)
        for block, guess in enumerate(shared):
            here = found.block == block
            both = (found.mean[here] ** 2).sum(), determined[here].sum()
            state.shared[block] = stepped(state.shared[block], *both, guess, worth)
        state.noise[0] = max(near(noise, state.noise[0]), LEAST_NOISE)

    def install(self, state: HybridState, scales: Scales, found: HybridPosteriors) -> None:
        """Write the posteriors into the state, in coordinates relative to the anchor."""
        both = found.scale[:, None] * np.column_stack((found.mean, found.root.T))
        both = returned(both, scales, self.context)
        both[0, 0] += scales.level
        state.theta.set_posteriors(both[:, 0], both[:, 1:])
        state.theta.information[0] = max(-2.0 * np.log(found.root.diagonal()).sum(), 0.0)
        back = returned(np.diag(found.own_scale), scales, self.context)
        state.unknown[:] = state.own[:] = back
        state.own[np.flatnonzero(state.weights)] = back @ transposed(found.inverse)
        state.variance[0] = found.noise
        state.active[:] = found.block < NONE
        state.active[0] = True


def at_most_seen(state: HybridState, gone: Floats) -> Floats:
    """Return the sums of removed arms, scaled down if they exceed the sums of all rewards.

    This only happens if columns differ so much in size that `own` has lost its digits.
    """
    whole, wanted = state.gram.diagonal(), gone.diagonal()
    room = np.maximum(whole - state.gone.diagonal(), 0.0) + ROUNDING * whole
    shares = np.divide(room, wanted, out=np.ones(whole.size), where=wanted > room)
    return np.asarray(gone * shares.min())


def own_effects(found: HybridPosteriors) -> tuple[Floats, Floats]:
    """Return squared means and determined directions of the uₖ, by coefficient, over all arms."""
    size, turned = found.mean.size, transposed(found.inverse)
    shared = found.sums[:, :, :size] * found.scale
    left = found.sums[:, :, size] - np.einsum("kij,j->ki", shared, found.mean)
    effect = np.einsum("kij,kj->ki", turned, left)
    spread = product(shared.reshape(-1, size), found.root.T).reshape(shared.shape)
    about = product(turned, spread)
    variance = (found.inverse**2).sum(axis=1) + (about**2).sum(axis=2)
    return (effect**2).sum(axis=0), np.maximum(1.0 - variance, 0.0).sum(axis=0)


@compiled
def expanded(model, anchor, context, k, phi):  # type: ignore[no-untyped-def]
    """Write φ of an arm's row, relative to the anchor."""
    c, d = model.context, anchor.size - 1
    phi[0] = 1.0
    for j in range(d):
        phi[1 + j] = context[k, j] - anchor[1 + j]
    if model.crossed:
        place = d + 1
        for i in range(1, c + 1):
            for j in range(c + 1, d + 1 - model.curves):
                phi[place] = phi[i] * phi[j]
                place += 1


@compiled
def reduce(state, k, noise, phi, v, weights):  # type: ignore[no-untyped-def]
    """Integrate out the arm's own effect, in place: replace φ by φ − Sₖᵀ Wₖ v, see (1).

    Write rootᵀv of the arm to `v`, and Wₖv to `weights`. Return Yₖᵀ Wₖ v, and the variance
    σ² vᵀ Wₖ v of the arm's own effect given θ.
    """
    q, size = v.size, phi.size
    root, sums = state.own, state.moments
    variance = 0.0
    for l in range(q):
        component = 0.0
        for i in range(q):
            component += root[k, i, l] * phi[i]
        v[l] = component
        variance += component * component
    told = 0.0
    if sums[k, 0, 0] > 0.0:
        for i in range(q):
            weight = 0.0
            for l in range(q):
                weight += root[k, i, l] * v[l]
            weights[i] = weight / noise
        for i in range(q):
            told += weights[i] * sums[k, i, size]
            for j in range(size):
                phi[j] -= weights[i] * sums[k, i, j]
    return told, variance


@implements(belief, HybridLinear)
def belief_of_hybrid(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    root, center = state.theta.root[0], state.theta.mean[0]
    n, size, q = arms.size, state.active.size, state.own.shape[1]
    noise, spread, anchor = state.variance[0], state.spread[0], state.anchor
    wider = 1.0 / np.sqrt(state.faded[0])
    mean, std, alone, factor = np.empty(n), np.empty(n), np.empty(n), np.zeros((n, size))
    phi, v, weights = np.empty(size), np.empty(q), np.empty(q)
    # Rounded, so that arms with equal histories are equal to the last bit: see `AdaptiveLinear`.
    grain = GRAIN * np.sqrt(spread)
    for a in range(n):
        k = arms[a]
        expanded(model, anchor, context, k, phi)
        # The effect of features that have not varied among rewarded rows is unknown.
        unseen = 0.0
        for j in range(1 + model.context, size):
            if phi[j] != 0.0 and not state.active[j]:
                unseen += state.shared[block_of(model, anchor, j)]
        told, variance = reduce(state, k, noise, phi, v, weights)
        expected, shared = told, 0.0
        for i in range(size):
            x = phi[i]
            if x != 0.0:
                expected += x * center[i]
                for j in range(i, size):  # the root is triangular
                    factor[a, j] += x * root[i, j]
        for j in range(size):
            factor[a, j] *= wider
            shared += factor[a, j] * factor[a, j]
        if state.moments[k, 0, 0] > 0.0:  # the root of an arm without rewards is stored without f
            variance *= wider * wider
        variance += unseen * spread
        mean[a] = np.rint(expected / grain) * grain + anchor[0]
        std[a] = np.rint(np.sqrt(shared + variance) / grain) * grain
        alone[a] = np.sqrt(variance)
    pulls, information = take(state.pulls, arms), full(n, state.theta.information[0])
    law = JointGaussian(factor, alone)
    return Belief(law, mean, std, mean, std, pulls, information, step, size, 1.0)


@implements(update, HybridLinear)
def update_hybrid(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learn_row(model, state, context, arm, arm, reward, True)


@compiled
def learn_row(model, state, context, k, arm, reward, deciding):  # type: ignore[no-untyped-def]
    """Learn the reward of an arm, whose row is number k, in place.

    Return its distance from the mean that was believed, in standard deviations. Unless `deciding`,
    only sums are learned, from which the next refresh computes posteriors; return 0.
    """
    drop_anchor(state, reward, context[k])
    size, q, y = state.active.size, state.own.shape[1], reward - state.anchor[0]
    full, v, weights = np.empty(size + 1), np.empty(q), np.empty(q)
    phi = full[:size]
    expanded(model, state.anchor, context, k, phi)
    full[size] = y
    count_down(state, y)
    for j in range(1, size):
        if phi[j] != 0.0 and not state.active[j]:
            activate_shared(model, state, j, phi[j])
    left, z = state.faded[0], 0.0  # see the top of this file
    if deciding:
        noise = left * state.variance[0]
        if state.moments[arm, 0, 0] == 0.0:
            for i in range(q):
                for l in range(q):
                    state.own[arm, i, l] *= np.sqrt(left)
        remaining = phi.copy()
        told, variance = reduce(state, arm, state.variance[0], remaining, v, weights)
        surprise, spread = learn(state.theta, 0, remaining, y - told, noise + variance)
        shrink_own(state.own[arm], v, noise, variance)
        z = surprise * np.sqrt(left / (spread + noise + variance))
    add_products(state.moments[arm], full, 1.0 / left)
    add_products(state.gram, full, 1.0 / left)
    state.square[arm] += y * y / left
    state.pulls[arm] += 1
    return z


@implements(training_due, HybridLinear)
def refresh_due(model, state):  # type: ignore[no-untyped-def]
    return state.due[0] <= 0.0 or state.faded[0] < HALF


@implements(forget, HybridLinear)
def forget_hybrid(model, state, weight):  # type: ignore[no-untyped-def]
    """Let all sums fade; the prior is learned from what remains.

    Covariances are divided by `faded` until the next refresh, which computes them exactly.
    """
    state.faded[0] *= weight
    state.theta.information[0] *= weight
    state.theta.pulls[0] *= weight
    for k in range(state.pulls.size):
        state.pulls[k] *= weight


@compiled
def shrink_own(root, v, noise, spread):  # type: ignore[no-untyped-def]
    """Update the root of an arm's own effect, given θ, by Potter's rule; v = rootᵀ(1, x)."""
    q = v.size
    total = spread + noise
    shrink = 1.0 / (total + np.sqrt(noise * total))
    for i in range(q):
        e = 0.0
        for l in range(q):
            e += root[i, l] * v[l]
        for l in range(q):
            root[i, l] -= shrink * e * v[l]


@compiled
def block_of(model, anchor, j):  # type: ignore[no-untyped-def]
    """Return the block of coefficient j, which is not the constant."""
    if j >= anchor.size:
        return CROSSED
    if j >= anchor.size - model.curves:
        return CURVED
    return ARM if j > model.context else CONTEXT


@compiled
def activate_shared(model, state, j, x):  # type: ignore[no-untyped-def]
    """Write the prior of a feature that varies for the first time; see `activate`."""
    state.active[j] = True
    spread, left = state.spread[0], state.faded[0]
    block = block_of(model, state.anchor, j)
    state.theta.root[0, j, j] = np.sqrt(left * spread * state.shared[block]) / abs(x)
    if j < state.own.shape[1]:
        std = np.sqrt(spread * state.slopes[0]) / abs(x)
        state.unknown[j, j] = std
        for k in range(state.pulls.size):
            state.own[k, j, j] = std if state.moments[k, 0, 0] == 0.0 else np.sqrt(left) * std
