"""Arms with features: coefficients that all arms share, and an effect of every arm's own."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.hybrid_gaussian import HybridGaussian
from tsucb.checks import flushed, truth, whole_number, within
from tsucb.compiler import compiled, implements
from tsucb.models.empirical_bayes import (
    BALANCE,
    DUE,
    KNOWN,
    LEAST_NOISE,
    LEVEL,
    NOISE,
    SINCE,
    SLOPES,
    SPREAD,
    STARTED,
)
from tsucb.models.hybrid_prior import ARM, CONTEXT, CROSSED, FADED, TAU, Learned, refresh
from tsucb.models.model import Model, believe, check_arm_count, forget, training_due, update
from tsucb.models.regressions import Rows, check_triangular, learn
from tsucb.numeric.arrays import Floats, Integers, copy_rows, copy_to, filled, taken
from tsucb.structure import copied as everything_copied

MOST = 1e100  # of anything in a state
GRAIN = 2.0**-36  # of the rewards' spread: arms that differ by less are equal
SETTLED = 30  # steps of the numbers after which they depend on the sums alone
SMALL = 40  # coefficients: up to so many, a refresh takes two steps
HALF = 0.5  # when so much is left of what was known at the last refresh, the next is due
MOST_CROSSED = 1_000  # products of features of the context and of arms; with more there are none


class Own(NamedTuple):
    """What is known of each arm alone: of K arms, with q own coefficients of P in all."""

    root: Floats  # (K, q, q) given θ, the arm's own effect has the covariance root rootᵀ
    sums: Floats  # (K, q, P + 1) Σ v φ⁺ᵀ
    square: Floats  # (K,) Σ (y − y₀)²
    pulls: Integers  # (K,)


class HybridState(NamedTuple):
    """The posterior of the shared coefficients θ, of every arm's own, and what they are made from.

    `theta` is a single regression on φ, relative to the anchor.
    """

    theta: Rows
    own: Own
    learned: Learned

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.own.pulls


class HybridLinear(
    Model,
    NamedTuple(
        "HybridLinear",
        [("features", int), ("context", int), ("crossed", bool), ("own_slopes", bool)],
    ),
):
    """Arms described by features, with nothing to set: what is learned of one tells of the others.

    An arm with features z pays in the context x

        θᵀ(1, x, z, x⊗z) + uᵀ(1, x) + noise,

    with θ shared by all arms and u the arm's own, which starts at 0 and grows with its data. Centre
    and scale of every feature, level and noise of the rewards, and how much is shared and how much
    is the arms' own are learned by empirical Bayes (`tsucb.models.hybrid_prior` derives it), so
    decisions do not change when features or rewards are shifted or rescaled.

    The context of a step is a matrix with one row (x, z) per arm, x being the same in all of them.
    A decision costs O(n P²) for n arms that are offered and P shared coefficients, whatever the
    number of arms known; a reward O(P²).

    Parameters
    ----------
    features
        How many features an arm has.
    context
        How many features the context has, which come first in a row.
    crossed
        Whether there are coefficients for the products x⊗z. There are none beyond 1,000 products.
    own_slopes
        Whether an arm's own effect depends on the context; otherwise it is a constant.

    >>> import numpy as np
    >>> model = HybridLinear(features=1)
    >>> z = np.array([[20.0], [30.0], [40.0]])
    >>> state = model.start(arms=3)
    >>> for reward in (5.0, 5.1, 4.9):
    ...     model.update(state, z, 0, reward)
    ...     model.update(state, z, 1, 2 * reward)
    >>> model.belief(state, z, rng=np.random.default_rng(0)).mean.round(1)  # the third never tried
    array([ 5.2,  9.8, 13.9])
    """

    __slots__ = ()

    shares_parameters = True

    def __new__(
        cls, features: int, context: int = 0, crossed: bool = True, own_slopes: bool = True
    ) -> "HybridLinear":
        a = whole_number("features", features, least=0)
        c = whole_number("context", context, least=0)
        return super().__new__(cls, a, c, truth("crossed", crossed) and 0 < a * c <= MOST_CROSSED,
                               truth("own_slopes", own_slopes) and c > 0)  # fmt: skip

    @property
    def coefficient_count(self) -> int:
        """P, the number of shared coefficients."""
        crossed = self.features * self.context if self.crossed else 0
        return 1 + self.context + self.features + crossed

    @property
    def own_count(self) -> int:
        """q, the number of an arm's own coefficients."""
        return 1 + self.context if self.own_slopes else 1

    def start(self, arms: int, rng: np.random.Generator | None = None) -> HybridState:
        """The state before any data, in units that have no meaning yet."""
        arms, p, q = check_arm_count(arms), self.coefficient_count, self.own_count
        root = np.zeros((1, p, p))
        root[0, 0, 0] = 1.0
        theta = Rows(root, np.zeros((1, p)), np.zeros(1, dtype=np.int64), np.zeros(1))
        learned = Learned(
            gram=np.zeros((p + 1, p + 1)),
            gone=np.zeros((p + 1, p + 1)),
            votes=np.zeros(3),
            anchor=np.zeros(1 + self.context + self.features),
            active=np.eye(1, p)[0],
            numbers=np.array([NOISE, LEVEL, LEVEL, SLOPES, SLOPES, SLOPES]),
            variance=np.full(1, NOISE),
            unknown=np.zeros((q, q)),
            clock=np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]),
        )
        learned.unknown[0, 0] = np.sqrt(LEVEL)
        return HybridState(theta, blank(arms, p, learned.unknown), learned)

    def extend(self, state: HybridState, arms: int) -> HybridState:
        """A state with further arms at the end, of which nothing is known but their features."""
        new = blank(arms, self.coefficient_count, state.learned.unknown)
        joined = Own._make(
            np.concatenate((old, more)) for old, more in zip(state.own, new, strict=True)
        )
        return HybridState(state.theta, joined, state.learned)

    def release(self, state: HybridState, arms: Integers) -> None:
        """Let some arms go, in place: what they taught of all arms stays, their own effect goes."""
        if state.learned.clock[STARTED] and len(arms):
            let_go(state.own, state.learned, np.asarray(arms, dtype=np.int64))

    def widened(self, features: tuple[int, int]) -> "HybridLinear":  # type: ignore[override]
        """The model for contexts and arms with more features: so many of the context and of arms.

        With too many for all products it has none from then on.
        """
        c, a = features
        crossed = self.crossed or not (self.context and self.features)
        return HybridLinear(a, c, crossed, self.own_slopes or not self.context)

    def widen(  # type: ignore[override]
        self, state: HybridState, features: tuple[int, int], places: Any = None
    ) -> HybridState:
        """A state of the widened model: the further features were 0 in every context so far.

        `places` are those of the features so far, of the context and of arms; the first by default.
        """
        wide = self.widened(features)
        new = wide.start(max(state.own.square.size, 1))
        rows = self._row_places(wide, places)
        keep, place = self._coefficient_places(wide, rows)
        old, learned = state.learned, new.learned
        for name in ("gram", "gone"):
            getattr(learned, name)[np.ix_(place, place)] = getattr(old, name)[np.ix_(keep, keep)]
        for name in ("votes", "clock", "variance", "numbers"):
            getattr(learned, name)[:] = getattr(old, name)
        learned.anchor[np.append(0, 1 + rows)] = old.anchor
        arms = state.own.square.size
        own = Own._make(array[:arms].copy() for array in new.own)
        lines = np.append(0, 1 + rows)[: self.own_count]
        own.sums[np.ix_(np.arange(arms), lines, place)] = state.own.sums[:, :, keep]
        own.square[:], own.pulls[:] = state.own.square, state.own.pulls
        theta = new.theta._replace(pulls=state.theta.pulls.copy())
        return put_in_place(wide, HybridState(theta, own, learned))

    def widened_rows(self, rows: Floats, features: tuple[int, int], places: Any = None) -> Floats:
        """Rows of this model as rows of the widened one."""
        wide = self.widened(features)
        out = np.zeros((len(rows), wide.context + wide.features))
        out[:, self._row_places(wide, places)] = rows
        return out

    def _row_places(self, wide: "HybridLinear", places: Any) -> Integers:
        """Where the features of a row are in one of the wide model."""
        x, z = places or (np.arange(self.context), np.arange(self.features))
        return np.concatenate((x, wide.context + z)).astype(np.int64)

    def _coefficient_places(
        self, wide: "HybridLinear", rows: Integers
    ) -> tuple[Integers, Integers]:
        """Which columns of the sums the wide model has too, and where."""
        c, a = self.context, self.features
        keep, place = list(range(1 + c + a)), [0, *(1 + rows).tolist()]
        if self.crossed and wide.crossed:
            keep += range(1 + c + a, 1 + c + a + c * a)
            first = 1 + wide.context + wide.features
            z = (rows[c:] - wide.context).tolist()
            place += [first + i * wide.features + j for i in rows[:c].tolist() for j in z]
        keep.append(self.coefficient_count)
        place.append(wide.coefficient_count)
        return np.array(keep), np.array(place)

    def merged(self, first: HybridState, second: HybridState, base: HybridState) -> HybridState:
        """Sums add up; scales, noise and prior are found anew from the sums of all."""
        if not first.learned.clock[STARTED]:
            first, second = second, first
        anchor = first.learned.anchor
        result: HybridState = everything_copied(first)
        for state, sign in ((second, 1), (base, -1)):
            if state.learned.clock[STARTED]:
                add_sums(result, self._shift(state.learned.anchor - anchor), state, sign)
        if (result.own.sums[:, 0, 0] < 0).any() or result.learned.gram[0, 0] < 0:
            raise ValueError("the base has seen more than what was learned from it")
        result.theta.pulls[:] += second.theta.pulls - base.theta.pulls
        clock = result.learned.clock
        if clock[STARTED]:
            clock[KNOWN] = 0.0  # the numbers begin anew
            for _ in range(SETTLED):
                install(result, self.context, True)
            install(result, self.context, False)
        return result

    def trainer(self, states: Sequence[HybridState]) -> Callable[[], None]:
        """What learns the prior anew from all that these states have seen."""

        def train() -> None:
            for state in states:
                install(state, self.context, True)
                if self.coefficient_count <= SMALL:  # what was learned of the numbers counts now
                    install(state, self.context, False)

        return train

    def _shift(self, offset: Floats) -> Floats:
        """The matrix that maps φ⁺ to that relative to an anchor that is so much lower."""
        size, c, d = self.coefficient_count, self.context, self.context + self.features
        matrix = np.eye(size + 1)
        matrix[size, 0] = offset[0]
        matrix[1 : d + 1, 0] = offset[1:]
        place = d + 1
        for i in range(1, c + 1) if self.crossed else ():
            for j in range(c + 1, d + 1):
                matrix[place, [i, j, 0]] = offset[j], offset[i], offset[i] * offset[j]
                place += 1
        return matrix

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """A row for every arm: the context's features, then the arm's."""
        return (arms, self.context + self.features)

    def coefficients(self, state: HybridState, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the shared coefficients, relative to the first row."""
        variance = (state.theta.root[0] ** 2).sum(axis=1) / state.learned.clock[FADED]
        return state.theta.mean[0].copy(), np.sqrt(variance)

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The constant, the features of a row, and the products."""
        products = [
            f"{x} × {z}" for x in features[: self.context] for z in features[self.context :]
        ]
        return ["constant", *features, *(products if self.crossed else [])]

    def check_settings(self) -> None:
        """Raise a ValueError for sizes that the constructor would not have made."""
        if self != HybridLinear(*self):
            raise ValueError("settings that contradict each other")

    def check_state(self, state: HybridState, rewards: int) -> None:
        """Raise a ValueError for sums, numbers or posteriors that data cannot have led to."""
        theta, own, learned = state
        check_triangular(theta)
        if (own.pulls < 0).any() or (own.pulls > rewards).any() or (own.square < 0).any():
            raise ValueError("counts of pulls that cannot be")
        for gram in (learned.gram, learned.gone):
            if (np.diag(gram) < 0).any() or not np.allclose(gram, gram.T, rtol=1e-9, atol=0):
                raise ValueError("sums of squares that cannot be")
        weights = own.sums[:, 0, 0]
        if learned.gram[0, 0] > rewards or (weights < 0).any() or (weights > rewards).any():
            raise ValueError("more rewards than were counted")
        numbers, clock = learned.numbers, learned.clock
        if (numbers < 0).any() or not within(numbers, 1e9) or numbers[0] < LEAST_NOISE / 2:
            raise ValueError("variances that cannot be")
        flags = np.isin([clock[KNOWN], clock[STARTED], *learned.active], (0.0, 1.0)).all()
        if not flags or clock[SINCE] < 0 or clock[DUE] < 1 or not clock[SPREAD] > 0:
            raise ValueError("a clock that cannot be")
        if not 0 < clock[FADED] <= 1:
            raise ValueError("a share that cannot be left")
        if not learned.variance[0] > 0 or not within(clock[[SINCE, DUE]], 2.0**53):
            raise ValueError("a noise or a clock that cannot be")
        arrays = (*theta, own.root, own.sums, own.square, *learned)
        if not all(within(x, MOST) for x in arrays) or (theta.information < 0).any():
            raise ValueError("a posterior that cannot be")
        if (flushed(learned.anchor) != learned.anchor).any():
            raise ValueError("an anchor that cannot be")


def blank(arms: int, p: int, root: Floats) -> Own:
    """Arms of which nothing is known."""
    sums = np.zeros((arms, len(root), p + 1))
    return Own(np.tile(root, (arms, 1, 1)), sums, np.zeros(arms), np.zeros(arms, dtype=np.int64))


def add_sums(state: HybridState, shift: Floats, other: HybridState, sign: int) -> None:
    """Add the sums of another state, or subtract them, once they are relative to this anchor."""
    size, q = shift.shape[0] - 1, state.own.root.shape[1]
    mine, theirs = state.learned, other.learned
    mine.gram[:] += sign * shift @ theirs.gram @ shift.T
    mine.gone[:] += sign * shift @ theirs.gone @ shift.T
    y, votes = shift[size, 0], theirs.votes
    mine.votes[:] += sign * np.array(
        [votes[0], votes[1] + y * votes[0], votes[2] + 2 * y * votes[1] + y * y * votes[0]]
    )
    sums = other.own.sums
    state.own.square[:] += sign * (
        other.own.square + 2 * y * sums[:, 0, size] + y * y * sums[:, 0, 0]
    )
    state.own.sums[:] += sign * np.einsum("ij,kjl,ml->kim", shift[:q, :q], sums, shift)
    state.own.pulls[:] += sign * other.own.pulls


def put_in_place(model: HybridLinear, state: HybridState) -> HybridState:
    """The state with its posteriors put in place anew, which does not count as a refresh."""
    clock = state.learned.clock
    if clock[STARTED]:
        since, due = clock[SINCE], clock[DUE]
        install(state, model.context, False)
        clock[SINCE], clock[DUE] = since, due
    return state


def install(state: HybridState, context: int, learning: bool) -> None:
    """Refresh, and replace all posteriors."""
    theta, own, learned = state
    for sums in (learned.gram, learned.gone, learned.votes, own.sums, own.square):
        sums *= learned.clock[FADED]
    learned.clock[FADED] = 1.0
    new = refresh(learned, own.sums, own.square, context, learning)
    theta.mean[0], theta.root[0], theta.information[0] = (
        new.mean,
        np.triu(new.root),
        new.information,
    )
    own.root[:] = new.own


@compiled
def let_go(own, learned, arms):  # type: ignore[no-untyped-def]
    """Take the sums of some arms, with the weights they have now, to those of the arms gone."""
    size, q = own.sums.shape[2], own.sums.shape[1]
    line, left = np.empty(size), learned.clock[FADED]
    for n in range(arms.size):
        k = arms[n]
        sums, root = own.sums[k], own.root[k]
        if sums[0, 0] == 0.0:
            continue
        for l in range(q):  # W = Σ over the columns of the root, over the noise
            for j in range(size):
                line[j] = 0.0
            for i in range(q):
                for j in range(size):
                    line[j] += root[i, l] * sums[i, j]
            for i in range(size):
                factor = line[i] / learned.variance[0]
                for j in range(size):
                    learned.gone[i, j] += factor * line[j]
        vote = 1.0 / (left * sums[0, 0] + BALANCE)
        learned.votes[0] += vote * sums[0, 0]
        learned.votes[1] += vote * sums[0, size - 1]
        learned.votes[2] += vote * own.square[k]
        for i in range(q):
            for j in range(size):
                sums[i, j] = 0.0
        copy_rows(root, learned.unknown)
        own.square[k] = 0.0
        own.pulls[k] = 0


@compiled
def expanded(model, anchor, context, k, phi):  # type: ignore[no-untyped-def]
    """φ of an arm's row, relative to the anchor."""
    c, d = model.context, anchor.size - 1
    phi[0] = 1.0
    for j in range(d):
        phi[1 + j] = context[k, j] - anchor[1 + j]
    if model.crossed:
        place = d + 1
        for i in range(1, c + 1):
            for j in range(c + 1, d + 1):
                phi[place] = phi[i] * phi[j]
                place += 1


@compiled
def reduce(own, k, noise, phi, v, weights):  # type: ignore[no-untyped-def]
    """What φ comes to once the arm's own effect is integrated out, in place; see (1) of the prior.

    `v` takes rootᵀv of the arm, and `weights` Wₖv. Returns what its rewards so far say, and the
    variance that its own effect has given θ.
    """
    q, size = v.size, phi.size
    root, sums = own.root, own.sums
    variance = 0.0
    for l in range(q):
        component = 0.0
        for i in range(q):
            component += root[k, i, l] * phi[i]
        v[l] = component
        variance += component * component
    said = 0.0
    if sums[k, 0, 0] > 0.0:
        for i in range(q):
            weight = 0.0
            for l in range(q):
                weight += root[k, i, l] * v[l]
            weights[i] = weight / noise
        for i in range(q):
            said += weights[i] * sums[k, i, size]
            for j in range(size):
                phi[j] -= weights[i] * sums[k, i, j]
    return said, variance


@implements(believe, HybridLinear)
def believe_hybrid(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    own, learned = state.own, state.learned
    root, center = state.theta.root[0], state.theta.mean[0]
    n, size, q = arms.size, learned.active.size, own.root.shape[1]
    noise, spread, anchor = learned.variance[0], learned.clock[SPREAD], learned.anchor
    wider = 1.0 / np.sqrt(learned.clock[FADED])
    mean, std, alone, factor = np.empty(n), np.empty(n), np.empty(n), np.zeros((n, size))
    phi, v, weights = np.empty(size), np.empty(q), np.empty(q)
    # Arms with the same history are equal to the last bit: see `AdaptiveLinear`.
    grain = GRAIN * np.sqrt(spread)
    first_arm, first_crossed = 1 + model.context, anchor.size
    for a in range(n):
        k = arms[a]
        expanded(model, anchor, context, k, phi)
        # A feature that no rewarded row had, or that all of them had alike: its effect is unknown.
        unseen = 0.0
        for j in range(first_arm, size):
            if phi[j] != 0.0 and learned.active[j] == 0.0:
                unseen += learned.numbers[ARM if j < first_crossed else CROSSED]
        said, variance = reduce(own, k, noise, phi, v, weights)
        expected, shared = said, 0.0
        for i in range(size):
            x = phi[i]
            if x != 0.0:
                expected += x * center[i]
                for j in range(i, size):  # the root is triangular
                    factor[a, j] += x * root[i, j]
        for j in range(size):
            factor[a, j] *= wider
            shared += factor[a, j] * factor[a, j]
        if own.sums[k, 0, 0] > 0.0:  # of an arm without rewards nothing has faded
            variance *= wider * wider
        variance += unseen * spread
        mean[a] = np.rint(expected / grain) * grain + anchor[0]
        std[a] = np.rint(np.sqrt(shared + variance) / grain) * grain
        alone[a] = np.sqrt(variance)
    pulls, information = taken(own.pulls, arms), filled(n, state.theta.information[0])
    law = HybridGaussian(factor, alone)
    return Belief(law, mean, std, mean, std, pulls, information, step, size, 1.0)


@implements(update, HybridLinear)
def update_hybrid(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    own, learned = state.own, state.learned
    clock, anchor = learned.clock, learned.anchor
    if clock[STARTED] == 0.0:
        clock[STARTED] = 1.0
        anchor[0] = reward
        copy_to(anchor[1:], context[arm])
    size, q, y = learned.active.size, own.root.shape[1], reward - anchor[0]
    full, v, weights = np.empty(size + 1), np.empty(q), np.empty(q)
    phi = full[:size]
    expanded(model, anchor, context, arm, phi)
    full[size] = y
    clock[SINCE] += 1.0
    if clock[KNOWN] == 0.0 and y != 0.0:  # the first different reward gives all its scale
        clock[DUE] = clock[SINCE]
    for j in range(1, size):
        if phi[j] != 0.0 and learned.active[j] == 0.0:
            activate(model, state, j, phi[j])
    left = clock[FADED]  # see the top of `tsucb.models.hybrid_prior`
    noise = left * learned.variance[0]
    if own.sums[arm, 0, 0] == 0.0:
        for i in range(q):
            for l in range(q):
                own.root[arm, i, l] *= np.sqrt(left)
    remaining = phi.copy()
    said, variance = reduce(own, arm, learned.variance[0], remaining, v, weights)
    learn(state.theta, 0, remaining, y - said, noise + variance)
    shrink_own(own.root[arm], v, noise, variance)
    for i in range(size + 1):
        if full[i] != 0.0:
            weighed = full[i] / left
            for j in range(size + 1):
                learned.gram[i, j] += weighed * full[j]
    for i in range(q):
        weighed = full[i] / left
        for j in range(size + 1):
            own.sums[arm, i, j] += weighed * full[j]
    own.square[arm] += y * y / left
    own.pulls[arm] += 1


@implements(training_due, HybridLinear)
def refresh_due(model, state):  # type: ignore[no-untyped-def]
    clock = state.learned.clock
    return clock[SINCE] >= clock[DUE] or clock[FADED] < HALF


@implements(forget, HybridLinear)
def forget_hybrid(model, state, part, weight):  # type: ignore[no-untyped-def]
    """Let all sums fade; the prior stays, as it is learned from what remains.

    Until the next refresh, where that is exact, covariances are divided by what is left.
    """
    state.learned.clock[FADED] *= weight
    state.theta.information[0] *= weight
    state.theta.pulls[0] *= weight
    for k in range(state.own.pulls.size):
        state.own.pulls[k] *= weight


@compiled
def shrink_own(root, v, noise, spread):  # type: ignore[no-untyped-def]
    """Potter's rule for an arm's own effect, given θ; v = rootᵀ(1, x)."""
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
def activate(model, state, j, x):  # type: ignore[no-untyped-def]
    """A feature varies for the first time, between refreshes: its coefficients get the prior.

    See `tsucb.models.adaptive_linear.activate`.
    """
    learned, own = state.learned, state.own
    learned.active[j] = 1.0
    spread, numbers, left = learned.clock[SPREAD], learned.numbers, learned.clock[FADED]
    block = CONTEXT if j <= model.context else (ARM if j < learned.anchor.size else CROSSED)
    state.theta.root[0, j, j] = np.sqrt(left * spread * numbers[block]) / abs(x)
    if j < own.root.shape[1]:
        std = np.sqrt(spread * numbers[TAU]) / abs(x)
        learned.unknown[j, j] = std
        for k in range(own.square.size):
            own.root[k, j, j] = std if own.sums[k, 0, 0] == 0.0 else np.sqrt(left) * std
