"""Priors learned from the rewards by empirical Bayes: the common part of three models.

A reward of arm k is linear in factors φ. The first of them, v, have coefficients of the arm's own:

    reward = θᵀφ + uₖᵀv + noise,    noise ~ N(0, σₖ²)
    θ  ~ N(0, Ω)                    shared by all arms (rewards centred)
    uₖ ~ N(0, E)                    the arm's own

With x the features of the context and z those of an arm, standardised by all that was seen:

| model | φ | v | what else is learned |
|---|---|---|---|
| `AdaptiveLinear` | (1, x) | (1, x) | every arm's noise, every feature's relevance |
| `HybridLinear` | (1, x, z, x⊗z) | (1, x) | |
| `LogisticArms` | (1, x) | (1, x) | θ = (b, 0, …); a click stands for a reward of known noise |

Ω and E are diagonal. Given them and the noise everything is normal, and of an arm only the sums
Sₖ = Σ vφᵀ and Σ vy matter; the first columns of Sₖ are Σ vvᵀ. In coordinates whitened by E^½, with

    Mₖ = I + E^½ (Σ vvᵀ) E^½ / σₖ² = Lₖ Lₖᵀ,    Wₖ = Mₖ⁻¹,    gₖ = E^½ (Σ vy) / σₖ²           (1)

the arm's own effect has the covariance Wₖ, given θ. Once it is integrated out, the rewards enter
the posterior of θ through a matrix R and a vector r, for which each model has a formula. Whitened
by Ω^½, θ has the posterior

    N(BᵀB r, BᵀB),    BᵀB = (I + R)⁻¹                                                        (2)

Every matrix to be factorised is I + (positive semidefinite), so collinear features and more
features than rewards do no harm.

The variances maximise the marginal likelihood times a weak prior on each of them, which is worth a
few observations (the constants below). A refresh takes some steps of MacKay's (1992) fixed point

    variance ← (squared posterior means + worth · guess) / (well-determined directions + worth)  (3)

where the number of well-determined directions is γ = Σ (1 − posterior variance / prior variance),
and for the noise the n − γ that are left. The more rewards there are for each coefficient, the less
the guess is worth; in the end it is worth nothing.

Data are only kept as sums, relative to the first context and the first reward (the anchor). Sums of
several agents add up, they fade by multiplication, and they can be standardised again at any time:
an affine map of x and z maps φ linearly. Between refreshes, posteriors learn by rank-one updates.
There is a refresh each time there are 1.5 times as many rewards, some 35 times in a million. It is
plain NumPy, for all arms at once, and needs no compiling.

References: MacKay (1992), "Bayesian interpolation"; Lindley and Smith (1972), "Bayes estimates for
the linear model".
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tsucb.checks import LARGEST, flush_tiny
from tsucb.compiler import compiled, implements
from tsucb.models.model import Model, places_of, training_due
from tsucb.models.regressions import widen
from tsucb.models.state import MOST_REWARDS, State, array, sums
from tsucb.numeric.arrays import Flags, Floats, copy_to
from tsucb.numeric.stacks import inverse_roots

# The guess of each variance before there is evidence, as a share of the variance V of the rewards.
NOISE = 0.5  # Much noise is a safe guess: an arm whose rewards may be noise is tried again.
SLOPES = 0.25  # All slopes of an arm's own together; the same again for the common part.
LEVEL = 0.05  # The arms' levels. Small, or one unlucky reward condemns an arm in all contexts.

# What these guesses are worth.
WORTH = 2.0  # directions, for variances of coefficients, before any reward
LASTING = 50.0  # rewards per coefficient after which that is a quarter
NOISE_WORTH = 4.0  # rewards, for the noise
BALANCE = 1.0  # in V an arm with n rewards has the weight n / (n + BALANCE), so arms count alike

# Limits.
STEP = 10.0  # a variance changes at most by this factor per step
LEAST_NOISE = 1e-8  # share of V; so small if rewards are an exact function of the context
LEAST, GREATEST = 1e-15, 1e9  # limits of the variances of coefficients, as shares of V
ROUNDING = 1e-14  # a variance below this share of the mean square is rounding
NO_VARIANCE = 1e-64  # a feature, or the rewards, with a smaller variance count as constant
JUMP = 1e4  # when V has changed by this factor, a refresh takes SETTLED steps
GRAIN = 2.0**-36  # share of the rewards' spread; arms that differ by less are equal

# When to refresh.
FIRST = 6  # after each of this many rewards
MORE = 0.5  # then after this share of more rewards
GAP = 0.125  # but not before this many per coefficient: a refresh costs K p³, a decision K p²
SETTLED = 30  # steps after which the variances only depend on the sums
HALF = 0.5  # a refresh is due at once if what was known counts less than this share


class Learned(State):
    """Sums over the rewards, relative to the anchor, and the prior as it is now.

    K arms have q coefficients of their own; φ has P entries, and φ⁺ = (φ, reward − first reward)
    has one more. Variances are shares of V.
    """

    moments: Floats = sums("arm", "own", "column")  # Σ v φ⁺ᵀ; [k, 0, 0] is the weight of arm k
    anchor: Floats = array("row", most=LARGEST, least=-LARGEST)  # first reward, then first features
    active: Flags = array("coefficient", dtype=bool)  # the constant, and features that have varied
    levels: Floats = array(start=LEVEL, least=LEAST, most=GREATEST)  # in E, of the constant
    slopes: Floats = array(start=SLOPES, least=LEAST, most=GREATEST)  # in E, of every feature
    due: Floats = array(start=1.0, least=-MOST_REWARDS, most=MOST_REWARDS)  # rewards until refresh
    started: Flags = array(dtype=bool)  # whether there is an anchor
    spread: Floats = array(start=1.0, least=1e-100)  # V
    known: Flags = array(dtype=bool)  # whether two different rewards were seen, so that V is known

    @property
    def weights(self) -> Floats:
        """The number of each arm's rewards; less if they fade."""
        return self.moments[:, 0, 0]

    @property
    def weight(self) -> float:
        """The number of all rewards; less if they fade."""
        return float(self.weights.sum())

    def merged(self, other: Any, base: Any) -> Self:
        """Return the state with the sums of both; the caller computes posteriors from them."""
        mine = {name: part for name, part in self._asdict().items() if isinstance(part, State)}
        result = super().merged(other._replace(**mine), base._replace(**mine))
        for name in mine:
            pulls = [getattr(state, name).pulls for state in (result, other, base)]
            pulls[0] += pulls[1] - pulls[2]
            if (pulls[0] < 0).any() or (result.weights < 0).any():
                raise ValueError("the base has more rewards than the states that come from it")
        mend_products(result.moments[:, :, : result.moments.shape[1]])
        return result

    def check(self, rewards: int) -> None:
        """Raise ValueError also for sums of products that no data has."""
        super().check(rewards)
        check_products("moments", self.moments[:, :, : self.moments.shape[1]])
        if (flush_tiny(self.anchor) != self.anchor).any():
            raise ValueError("anchor must not be closer to 0 than the smallest feature is")


class LinearLearned(Learned):
    """`Learned` for models of rewards with normal noise, which is learned, too."""

    square: Floats = sums("arm", least=0.0)  # Σ (y − y₀)²
    noise: Floats = array(start=NOISE, least=LEAST_NOISE / 2, most=GREATEST)  # σ²


def mend_products(matrices: Floats) -> None:
    """Make sums Σ v vᵀ symmetric again after rounding, and their diagonals ≥ 0, in place."""
    matrices[:] = (matrices + matrices.swapaxes(-1, -2)) / 2
    diagonal = np.einsum("...ii->...i", matrices)
    np.maximum(diagonal, 0.0, out=diagonal)


def check_products(name: str, matrices: Floats) -> None:
    """Raise ValueError for sums Σ v vᵀ that are not symmetric, or have negative diagonals."""
    diagonal = np.einsum("...ii->...i", matrices)
    if (diagonal < 0).any():
        raise ValueError(f"{name} must not have negative sums of squares")
    root = np.sqrt(diagonal)
    apart = np.abs(matrices - matrices.swapaxes(-1, -2))
    if (apart > 1e-9 * root[..., None] * root[..., None, :]).any():
        raise ValueError(f"{name} must be symmetric")


class Scales(NamedTuple):
    """Centre and scale of rewards and of the features of a row, relative to the anchor."""

    level: float  # mean reward, every arm counting alike
    centre: Floats  # mean of each feature; 0 for the constant, which is first
    inverse: Floats  # 1 / standard deviation; 0 for a feature that has not varied
    spread: float = 1.0  # V, the variance of the rewards; 1 while they are all equal
    known: bool = False  # whether there were two different rewards
    weight: float = 0.0  # number of rewards, less if they fade


def survey(totals: Floats, squares: Floats, votes: Any) -> Scales:
    """Return the scales, given the sums Σ φ and Σ φ² of a row, and the `reward_votes`."""
    weight = float(totals[0])
    if weight <= 0.0:
        return Scales(0.0, np.zeros(totals.size), np.eye(1, totals.size)[0])
    level, square = votes[1] / votes[0], votes[2] / votes[0]
    spread = square - level * level
    known = spread > max(ROUNDING * square, NO_VARIANCE)
    centre = totals / weight
    centre[0] = 0.0
    mean_square = squares / weight
    variance = mean_square - centre * centre
    varies = variance > np.maximum(ROUNDING * mean_square, NO_VARIANCE)
    inverse = np.where(varies, 1.0 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
    return Scales(level, centre, inverse, spread if known else 1.0, bool(known), weight)


def reward_votes(state: LinearLearned) -> Floats:
    """Return Σ n/(n + 1), Σₖ Σ y/(n + 1) and Σₖ Σ y²/(n + 1) over arms of n rewards."""
    vote = 1.0 / (state.weights + BALANCE)
    return np.array([vote @ state.weights, vote @ state.moments[:, 0, -1], vote @ state.square])


def standardised(values: Floats, scales: Scales, context: int) -> Floats:
    """Return sums for standardised features and rewards, given those with φ⁺ on the last axis.

    The first `context` features of a row are the context's; each of them times each of the next
    ones is a product in φ, as many as there are.
    """
    centre, inverse = scales.centre, scales.inverse
    row, size, one = centre.size, values.shape[-1] - 1, values[..., :1]
    out = one * np.concatenate((-centre, np.zeros(size - row), [-scales.level]))
    out += values
    out[..., :row] *= inverse
    if size > row:  # (x − c)(z − e) = xz − e·x − c·z + ce
        x, z = slice(1, context + 1), slice(context + 1, context + 1 + (size - row) // context)
        table = values[..., row:size].reshape(*values.shape[:-1], context, (size - row) // context)
        table = table - values[..., x, None] * centre[z] - values[..., None, z] * centre[x, None]
        table += one[..., None] * np.outer(centre[x], centre[z])
        table *= np.outer(inverse[x], inverse[z])
        out[..., row:size] = table.reshape(out[..., row:size].shape)
    return out


def standardised_own(moments: Floats, scales: Scales) -> Floats:
    """Return sums for standardised features, given those with v on the last axis but one."""
    q = moments.shape[-2]
    out = -scales.centre[:q, None] * moments[..., :1, :]
    out += moments
    out *= scales.inverse[:q, None]
    return out


def returned(values: Floats, scales: Scales, context: int) -> Floats:
    """Return coefficients of φ, given those of standardised features on the last axis but one."""
    centre, inverse = scales.centre, scales.inverse
    size, row = values.shape[-2], min(values.shape[-2], centre.size)
    out = np.empty(values.shape)
    out[..., :row, :] = values[..., :row, :] * inverse[:row, None]
    out[..., 0, :] -= np.einsum("i,...ij->...j", centre[1:row], out[..., 1:row, :])
    if size > row:
        x, z = slice(1, context + 1), slice(context + 1, context + 1 + (size - row) // context)
        table = values[row:].reshape(context, (size - row) // context, -1)
        table = table * np.outer(inverse[x], inverse[z])[..., None]
        out[row:] = table.reshape(out[row:].shape)
        out[x] -= (table * centre[z, None]).sum(axis=1)
        out[z] -= (table * centre[x, None, None]).sum(axis=0)
        out[0] += (table * np.outer(centre[x], centre[z])[..., None]).sum(axis=(0, 1))
    return out


def arm_factors(
    moments: Floats, scales: Scales, context: int, own_scale: Floats, variance: Any
) -> tuple[Floats, Floats]:
    """Return Lₖ⁻¹ of (1), (n, q, q), and E^½ Sₖ⁺ / σₖ², (n, q, P + 1), of n arms."""
    whole = standardised_own(standardised(moments, scales, context), scales)
    whole *= own_scale[:, None] / variance
    q = own_scale.size
    matrices = whole[:, :, :q] * own_scale
    matrices += np.eye(q)
    return inverse_roots(matrices), whole


def shared_posterior(information: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Return the mean of θ and B, both of (2), given R and r."""
    root = inverse_roots(np.eye(right.size) + information)
    return np.einsum("ij,i->j", root, np.einsum("ij,j->i", root, right)), root


def near(new: float, old: float) -> float:
    """Return the new value, or the nearest within a factor STEP of the old one."""
    return float(min(max(new, old / STEP), old * STEP))


def worth_of(weight: float, coefficients: int) -> float:
    """Return how many directions the guess of a variance is worth after this many rewards."""
    return WORTH / (1.0 + weight / (LASTING * max(coefficients, 1))) ** 2


def stepped(old: float, squared: float, determined: float, guess: float, worth: float) -> float:
    """Return a variance after the step (3), given squared means divided by it."""
    new = (squared * old + worth * guess) / (max(determined, 0.0) + worth)
    return min(max(near(new, old), LEAST), GREATEST)


class LearnedPrior(Model):
    """The base class of models that learn their prior: when they do, and how sums are moved.

    A model has the attribute `context`, the number of features in a row that are the context's, and
    the methods

    - `scales(state)`: return the scales of rewards and features,
    - `guess(state, scales)`: set the variances to the guess, in place,
    - `solve(state, scales)`: return the whitened posteriors that follow from sums and variances,
    - `improve(state, scales, found)`: move the variances by a step, given these, in place,
    - `install(state, scales, found)`: write these into the state, relative to the anchor.
    """

    @property
    def steps(self) -> int:
        """The number of steps that the variances take at a refresh."""
        return 1

    @property
    def more(self) -> float:
        """The share of more rewards after which the next refresh is due."""
        return MORE

    @property
    def solves_last(self) -> bool:
        """Whether a refresh solves again after the last step of the variances."""
        return True

    def refresh(self: Any, state: Any, steps: int) -> None:
        """Standardise again, move the variances by some steps, and install the posteriors."""
        scales = self.scales(state)
        if not (scales.known and state.known[0]):
            self.guess(state, scales)
        elif steps and not 1.0 / JUMP < scales.spread / state.spread[0] < JUMP:
            steps = SETTLED
        state.spread[0], state.known[0] = scales.spread, scales.known
        found = self.solve(state, scales)
        for number in range(steps if scales.known else 0):
            self.improve(state, scales, found)
            if number + 1 < steps or self.solves_last:
                found = self.solve(state, scales)
        self.install(state, scales, found)
        if steps:
            state.due[0] = self.rewards_until_due(scales.weight)

    def rewards_until_due(self, weight: float) -> float:
        """Return after how many rewards the next refresh is due, given the weight of all so far."""
        if weight < FIRST:
            return 1.0
        return max(math.ceil(self.more * weight), math.ceil(GAP * self.sizes()["coefficient"]))

    def settle(self, state: Any) -> None:
        """Install the posteriors that follow from the sums, without learning the prior again."""
        if state.started[0]:
            self.refresh(state, 0)
        else:
            self.prior(state)

    def trainer(self, states: Sequence[Any]) -> Callable[[], None]:
        """Return a function that refreshes these states."""

        def train() -> None:
            for state in states:
                self.refresh(state, self.steps)

        return train

    def merged(self, first: Any, second: Any, base: Any) -> Any:
        """Return the state after both histories; scales, noise and prior are learned again."""
        if not first.started[0]:
            first, second = second, first
        second, base = (self.moved(state, first.anchor) for state in (second, base))
        result = super().merged(first, second, base)
        if result.started[0]:
            result.known[0] = False
            self.refresh(result, SETTLED)
        return result

    def moved(self: Any, state: Any, anchor: Floats) -> Any:
        """Return the state with its sums relative to another anchor."""
        result = state.copy()
        if state.started[0]:
            shift = shift_by(state.anchor - anchor)
            y, total = -shift.level, state.moments[:, 0, -1]
            moments = standardised(state.moments, shift, self.context)
            result.moments[:] = standardised_own(moments, shift)
            result.square[:] += 2 * y * total + y * y * state.weights
            result.anchor[:] = anchor
        return result


def shift_by(offset: Floats) -> Scales:
    """Return scales with which `standardised` adds the offset to rewards and features."""
    return Scales(-offset[0], np.append(0.0, -offset[1:]), np.ones(offset.size))


class ArmRegressions(LearnedPrior):
    """The base class of models with one regression per arm on (1, x), relative to the anchor."""

    @property
    def context(self: Any) -> int:
        """The number of features in a row, all of which are the context's."""
        return int(self.features)

    def axes(self, places: Any = None) -> dict[str, Sequence[Any]]:
        """Return the names of coefficients: the constant and the features; of columns, + reward."""
        row = ["constant", *places_of(places, self.context)]
        return {"coefficient": row, "own": row, "row": row, "column": [*row, "reward"]}

    def coefficients(self, state: Any, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the value at x = 0 and of each coefficient."""
        means, roots = state.regressions.by_arm()
        mean, root, anchor = means[arm].copy(), roots[arm].copy(), state.anchor
        mean[0] += anchor[0] - anchor[1:] @ mean[1:]
        root[0] -= anchor[1:] @ root[1:]
        return mean, np.sqrt((root**2).sum(axis=1))

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """Return the name of the value at x = 0, then those of the features."""
        return ["constant", *features]


@implements(training_due, LearnedPrior)
def refresh_due(model, state):  # type: ignore[no-untyped-def]
    return state.due[0] <= 0.0


@compiled
def drop_anchor(state, reward, row):  # type: ignore[no-untyped-def]
    """Make the first reward and its row of features the anchor, in place."""
    if not state.started[0]:
        state.started[0] = True
        state.anchor[0] = reward
        copy_to(state.anchor[1:], row)


@compiled
def count_down(state, y):  # type: ignore[no-untyped-def]
    """Count down to the next refresh; the first reward unlike the anchor's makes it due at once."""
    state.due[0] -= 1.0
    if not state.known[0] and y != 0.0:
        state.due[0] = 0.0


@compiled
def relative(anchor, context, reward):  # type: ignore[no-untyped-def]
    """Return φ⁺ = (1, x, y), with context and reward relative to the anchor."""
    full = np.empty(anchor.size + 1)
    full[0] = 1.0
    for j in range(1, anchor.size):
        full[j] = context[j - 1] - anchor[j]
    full[anchor.size] = reward - anchor[0]
    return full


@compiled
def add_products(sums, full, weight):  # type: ignore[no-untyped-def]
    """Add weight · φ⁺φ⁺ᵀ to sums that have its first rows; skip rows that are zero."""
    for i in range(sums.shape[0]):
        if full[i] != 0.0:
            factor = weight * full[i]
            for j in range(full.size):
                sums[i, j] += factor * full[j]


@compiled
def activate(state, j, variance, z):  # type: ignore[no-untyped-def]
    """Write the prior of a feature that varies for the first time into all arms' posteriors.

    No reward so far depends on its coefficients, so they are independent of all others. The spread
    of the feature is not known yet; the size of its first step replaces it until the next refresh.
    """
    state.active[j] = True
    std = np.sqrt(state.spread[0] * variance) / abs(z)
    for k in range(state.moments.shape[0]):
        state.regressions.root[k, j, j] = std


@compiled
def fade_posterior(state, arm, weight):  # type: ignore[no-untyped-def]
    """Let an arm's posterior know less, in place; a refresh computes it exactly.

    If it knows next to nothing, it is left to the refresh how wide the prior is.
    """
    arms = state.regressions
    arms.information[arm] *= weight
    arms.pulls[arm] *= weight
    widen(arms, arm, 1.0 / np.sqrt(max(weight, HALF)))
    if weight < HALF:
        state.due[0] = min(state.due[0], 1.0)  # after the reward that follows
