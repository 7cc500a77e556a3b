"""Arms with features: coefficients that all arms share, and an effect of every arm's own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.hybrid_gaussian import HybridGaussian
from tsucb.checks import Natural, Switch
from tsucb.compiler import compiled, implements
from tsucb.models.empirical_bayes import BALANCE, LEVEL
from tsucb.models.hybrid_prior import ARM, CONTEXT, CROSSED, HybridState, refresh
from tsucb.models.model import Model, believe, forget, training_due, update
from tsucb.models.regressions import learn
from tsucb.models.state import Places
from tsucb.numeric.arrays import Floats, Integers, copy_rows, copy_to, filled, taken

GRAIN = 2.0**-36  # of the rewards' spread: arms that differ by less are equal
SETTLED = 30  # steps of the numbers after which they depend on the sums alone
SMALL = 40  # coefficients: up to so many, a refresh takes two steps
HALF = 0.5  # when so much is left of what was known at the last refresh, the next is due
MOST_CROSSED = 1_000  # products of features of the context and of arms; with more there are none


class HybridLinear(Model):
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

    state = HybridState
    shares_parameters = True
    merges = True

    features: Natural
    context: Natural = 0
    crossed: Switch = True
    own_slopes: Switch = True

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Leave off products that there are none of, or too many, and slopes without a context."""
        a, c = values["features"], values["context"]
        values["crossed"] &= 0 < a * c <= MOST_CROSSED
        values["own_slopes"] &= c > 0

    @property
    def coefficient_count(self) -> int:
        """P, the number of shared coefficients."""
        crossed = self.features * self.context if self.crossed else 0
        return 1 + self.context + self.features + crossed

    @property
    def own_count(self) -> int:
        """q, the number of an arm's own coefficients."""
        return 1 + self.context if self.own_slopes else 1

    def sizes(self) -> dict[str, int]:
        """Return P and q, and the length of an anchor and of φ⁺."""
        size, row = self.coefficient_count, 1 + self.context + self.features
        return {"coefficient": size, "own": self.own_count, "row": row, "column": size + 1}

    def prior(self, state: HybridState, rng: np.random.Generator | None = None) -> None:
        """Put the beliefs in place that there are in units that have no meaning yet."""
        state.active[0] = True
        state.slopes[0] = LEVEL
        self.settle(state)

    def settle(self, state: HybridState) -> None:
        """Put the posteriors in place that follow from sums and prior."""
        if state.started[0]:
            refresh(state, self.context, False)
        else:
            root = np.zeros((self.coefficient_count, self.coefficient_count))
            root[0, 0] = 1.0
            state.theta.set_posteriors(0.0, root)
            state.unknown[0, 0] = state.own[:, 0, 0] = np.sqrt(LEVEL)

    def extend(self, state: HybridState, arms: int) -> HybridState:
        """Return a state with further arms at the end, of which only the features are known."""
        longer = state.joined(self.start(arms))
        longer.own[-arms:] = state.unknown
        return longer

    def release(self, state: HybridState, arms: Integers) -> None:
        """Let some arms go, in place: what they taught of all arms stays, their own effect goes."""
        if state.started[0] and len(arms):
            let_go(state, np.asarray(arms, dtype=np.int64))

    def widened(self, features: tuple[int, int]) -> "HybridLinear":
        """The model for contexts and arms with more features: so many of the context and of arms.

        With too many for all products it has none from then on.
        """
        c, a = features
        crossed = self.crossed or not (self.context and self.features)
        return HybridLinear(a, c, crossed, self.own_slopes or not self.context)

    def places(self, wide: "HybridLinear", features: Any) -> Places:
        """Return where features, coefficients and reward are in a state of the wide model.

        `features` are the places of the features of the context and of arms; the first by default.
        """
        rows = self._row_places(wide, features)
        row = np.append(0, 1 + rows)
        keep, place = self._coefficient_places(wide, rows)
        last = self.coefficient_count, wide.coefficient_count
        return {
            "row": (np.arange(row.size), row),
            "own": (np.arange(self.own_count), row[: self.own_count]),
            "coefficient": (keep, place),
            "column": (np.append(keep, last[0]), np.append(place, last[1])),
        }

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
        return np.array(keep), np.array(place)

    def merged(self, first: HybridState, second: HybridState, base: HybridState) -> HybridState:
        """Return the state of both histories; scales, noise and prior are learned from scratch."""
        if not first.started[0]:
            first, second = second, first
        moved, before = (self._shifted(state, first.anchor) for state in (second, base))
        theta = first.theta  # which is computed from the sums
        result = first.merged(moved._replace(theta=theta), before._replace(theta=theta))
        result.theta.pulls[:] += second.theta.pulls - base.theta.pulls
        if (result.weights < 0).any() or result.gram[0, 0] < 0:
            raise ValueError("the base has seen more than what was learned from it")
        if result.started[0]:
            result.known[0] = False  # the numbers begin at the guess
            for _ in range(SETTLED):
                refresh(result, self.context, True)
        self.settle(result)
        return result

    def trainer(self, states: Sequence[HybridState]) -> Callable[[], None]:
        """What learns the prior anew from all that these states have seen."""

        def train() -> None:
            for state in states:
                refresh(state, self.context, True)
                if self.coefficient_count <= SMALL:  # what was learned of the numbers counts now
                    refresh(state, self.context, False)

        return train

    def _shifted(self, state: HybridState, anchor: Floats) -> HybridState:
        """Return the state with the same sums, relative to another anchor."""
        result = state.copy()
        if not state.started[0]:
            return result
        shift, q = self._shift(state.anchor - anchor), self.own_count
        y, (n, first, _) = state.anchor[0] - anchor[0], state.votes
        result.anchor[:] = anchor
        result.gram[:], result.gone[:] = (shift @ x @ shift.T for x in (state.gram, state.gone))
        result.votes[1:] += y * n, 2 * y * first + y * y * n
        result.square[:] += 2 * y * state.moments[:, 0, -1] + y * y * state.weights
        result.moments[:] = np.einsum("ij,kjl,ml->kim", shift[:q, :q], state.moments, shift)
        return result

    def _shift(self, offset: Floats) -> Floats:
        """Return the matrix that maps φ⁺ to that relative to an anchor lower by `offset`."""
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
        variance = (state.theta.root[0] ** 2).sum(axis=1) / state.faded[0]
        return state.theta.mean[0].copy(), np.sqrt(variance)

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The constant, the features of a row, and the products."""
        products = [
            f"{x} × {z}" for x in features[: self.context] for z in features[self.context :]
        ]
        return ["constant", *features, *(products if self.crossed else [])]


@compiled
def let_go(state, arms):  # type: ignore[no-untyped-def]
    """Move the sums of some arms, with the weights they have now, to those of the arms gone."""
    q, size = state.moments.shape[1:]
    line, left = np.empty(size), state.faded[0]
    for n in range(arms.size):
        k = arms[n]
        moments, root = state.moments[k], state.own[k]
        if moments[0, 0] == 0.0:
            continue
        for l in range(q):  # W = Σ over the columns of the root, over the noise
            for j in range(size):
                line[j] = 0.0
            for i in range(q):
                for j in range(size):
                    line[j] += root[i, l] * moments[i, j]
            for i in range(size):
                factor = line[i] / state.variance[0]
                for j in range(size):
                    state.gone[i, j] += factor * line[j]
        vote = 1.0 / (left * moments[0, 0] + BALANCE)
        state.votes[0] += vote * moments[0, 0]
        state.votes[1] += vote * moments[0, size - 1]
        state.votes[2] += vote * state.square[k]
        for i in range(q):
            for j in range(size):
                moments[i, j] = 0.0
        copy_rows(root, state.unknown)
        state.square[k] = 0.0
        state.pulls[k] = 0


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
def reduce(state, k, noise, phi, v, weights):  # type: ignore[no-untyped-def]
    """What φ comes to once the arm's own effect is integrated out, in place; see (1) of the prior.

    `v` takes rootᵀv of the arm, and `weights` Wₖv. Returns what its rewards so far say, and the
    variance that its own effect has given θ.
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
    root, center = state.theta.root[0], state.theta.mean[0]
    n, size, q = arms.size, state.active.size, state.own.shape[1]
    noise, spread, anchor = state.variance[0], state.spread[0], state.anchor
    wider = 1.0 / np.sqrt(state.faded[0])
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
            if phi[j] != 0.0 and not state.active[j]:
                unseen += state.shared[ARM if j < first_crossed else CROSSED]
        said, variance = reduce(state, k, noise, phi, v, weights)
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
        if state.moments[k, 0, 0] > 0.0:  # of an arm without rewards nothing has faded
            variance *= wider * wider
        variance += unseen * spread
        mean[a] = np.rint(expected / grain) * grain + anchor[0]
        std[a] = np.rint(np.sqrt(shared + variance) / grain) * grain
        alone[a] = np.sqrt(variance)
    pulls, information = taken(state.pulls, arms), filled(n, state.theta.information[0])
    law = HybridGaussian(factor, alone)
    return Belief(law, mean, std, mean, std, pulls, information, step, size, 1.0)


@implements(update, HybridLinear)
def update_hybrid(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    anchor = state.anchor
    if not state.started[0]:
        state.started[0] = True
        anchor[0] = reward
        copy_to(anchor[1:], context[arm])
    size, q, y = state.active.size, state.own.shape[1], reward - anchor[0]
    full, v, weights = np.empty(size + 1), np.empty(q), np.empty(q)
    phi = full[:size]
    expanded(model, anchor, context, arm, phi)
    full[size] = y
    state.due[0] -= 1.0
    if not state.known[0] and y != 0.0:  # the first different reward gives all its scale
        state.due[0] = 0.0
    for j in range(1, size):
        if phi[j] != 0.0 and not state.active[j]:
            activate(model, state, j, phi[j])
    left = state.faded[0]  # see the top of `tsucb.models.hybrid_prior`
    noise = left * state.variance[0]
    if state.moments[arm, 0, 0] == 0.0:
        for i in range(q):
            for l in range(q):
                state.own[arm, i, l] *= np.sqrt(left)
    remaining = phi.copy()
    said, variance = reduce(state, arm, state.variance[0], remaining, v, weights)
    learn(state.theta, 0, remaining, y - said, noise + variance)
    shrink_own(state.own[arm], v, noise, variance)
    for i in range(size + 1):
        if full[i] != 0.0:
            weighed = full[i] / left
            for j in range(size + 1):
                state.gram[i, j] += weighed * full[j]
    for i in range(q):
        weighed = full[i] / left
        for j in range(size + 1):
            state.moments[arm, i, j] += weighed * full[j]
    state.square[arm] += y * y / left
    state.pulls[arm] += 1


@implements(training_due, HybridLinear)
def refresh_due(model, state):  # type: ignore[no-untyped-def]
    return state.due[0] <= 0.0 or state.faded[0] < HALF


@implements(forget, HybridLinear)
def forget_hybrid(model, state, part, weight):  # type: ignore[no-untyped-def]
    """Let all sums fade; the prior stays, as it is learned from what remains.

    Until the next refresh, where that is exact, covariances are divided by what is left.
    """
    state.faded[0] *= weight
    state.theta.information[0] *= weight
    state.theta.pulls[0] *= weight
    for k in range(state.pulls.size):
        state.pulls[k] *= weight


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
    state.active[j] = True
    spread, left = state.spread[0], state.faded[0]
    block = CONTEXT if j <= model.context else (ARM if j < state.anchor.size else CROSSED)
    state.theta.root[0, j, j] = np.sqrt(left * spread * state.shared[block]) / abs(x)
    if j < state.own.shape[1]:
        std = np.sqrt(spread * state.slopes[0]) / abs(x)
        state.unknown[j, j] = std
        for k in range(state.pulls.size):
            state.own[k, j, j] = std if state.moments[k, 0, 0] == 0.0 else np.sqrt(left) * std
