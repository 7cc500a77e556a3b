"""Arms with features, linear until the data bends, and right again after the world has changed.

As `tsucb.models.adaptive_curves`, with `HybridLinear` in place of `AdaptiveLinear`: one of two
beliefs has curves of the whole row, context and arm's features, as further features of the arm.
The marginal likelihood of a hybrid model, in the notation of `tsucb.models.empirical_bayes`, is

    log p(rewards | variances) = −½ [n log σ² + Σₖ log |Mₖ| + log |I + R| + yᵀC⁻¹y]

What rewards taught of θ is not kept apart by arms. So after an alarm of one arm its own effect is
forgotten, as if the arm had left and come back, and all that was known counts less. After an alarm
of all arms what was known counts like a few rewards.

Arms come and go, and most may be new. So a gambler who bets on an arm starts with his share at the
number of rewards of all arms, whatever the number of arms: together they have 1. And an arm's
first reward is expected to deviate as the last ones of other arms have.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Self

import numpy as np

from tsucb.checks import Natural, NotNegative, Switch
from tsucb.compiler import compiled, implements
from tsucb.models.adaptive_curves import (
    ALL_LEARNED,
    CURVES,
    FIRST_STEPS,
    LEAST_WEIGHT,
    LOOKS,
    MOST_CURVED_FEATURES,
    RATE,
    REPEATED,
    CurvedModel,
    CurvedState,
    curve_count,
    policy_belief,
)
from tsucb.models.change import (
    ALL,
    FAST,
    NONE,
    OTHERS,
    SLOW,
    Change,
    NoticedChange,
    count_reward,
    notice,
    surprising,
)
from tsucb.models.curves import ROWS, add_curves, keep_row, with_curves
from tsucb.models.empirical_bayes import HALF
from tsucb.models.hybrid_linear import HybridLinear, HybridState, learn_row
from tsucb.models.model import belief, forget, places_of, shared_names, training_due, update
from tsucb.models.state import array, nested
from tsucb.numeric.arrays import Floats, Integers
from tsucb.record import derived

LEFT_ARM = -1.0  # in place of the index of an arm that has left
MOST_OF_IT = 0.5  # of the evidence: with more, one arm has changed
LEFT = 20.0  # rewards that what was known is worth after all arms have changed


class HybridCurvedState(CurvedState):
    """Both beliefs, what curves are made from, and the test of change."""

    linear: HybridState = nested(HybridState)  # type: ignore[assignment]
    curved: HybridState = nested(HybridState)  # type: ignore[assignment]
    recent: Floats = array(2)  # mean deviation of the last rewards, whatever their arms
    fading: Floats = array(most=0.0)  # logarithm of the weight of the first reward
    doubted: Floats = array(start=NONE, least=NONE, most=2.0**53)  # an arm to be forgotten
    tried: Floats = array(least=0.0, most=2.0**53)  # arms with rewards

    least_arm = LEFT_ARM

    def select(self, arms: Integers) -> Self:
        """Return the state of these arms, in this order; rows of others are kept for the curves."""
        curves, places = self.curves.copy(), {float(arm): n for n, arm in enumerate(arms)}
        kept = slice(int(curves.kept[0]))
        curves.arms[kept] = [places.get(arm, LEFT_ARM) for arm in curves.arms[kept].tolist()]
        result = super().select(arms)._replace(curves=curves)
        result.tried[0] = np.count_nonzero(result.pulls)
        return result


class HybridCurves(CurvedModel):
    """Arms described by features, whose rewards may bend and may change; nothing to set.

    As `HybridLinear`, and two things more. Where rewards bend or features interact, random Fourier
    features of a row join the features, by marginal likelihood, and only there. And a test that
    looks at every reward notices when rewards have changed; what was known then counts little. What
    it noticed is in `changes`.

    Parameters
    ----------
    features, context, crossed, own_slopes
        As for `HybridLinear`.
    curves
        The number of curves. With 0, or with more than 500 features, it stays linear.
    looks
        The share of decisions that look again at an arm that was left alone, to see whether it has
        become better: at most this, and less where nothing changes for long. With 0 there are none.

    >>> import numpy as np
    >>> model = HybridCurves(features=1)
    >>> z = np.array([[20.0], [30.0], [40.0]])
    >>> state = model.start(arms=3)
    >>> for reward in (5.0, 5.1, 4.9):
    ...     model.update(state, z, 0, reward)
    ...     model.update(state, z, 1, 2 * reward)
    >>> model.belief(state, z, rng=np.random.default_rng(0)).mean.round(1)  # the third never tried
    array([ 5.2,  9.8, 14. ])
    """

    state = HybridCurvedState
    largest = HybridLinear.largest

    features: Natural
    context: Natural = 0
    crossed: Switch = True
    own_slopes: Switch = True
    curves: Annotated[int, curve_count] = CURVES
    looks: NotNegative = LOOKS
    linear: HybridLinear = derived()
    curved: HybridLinear = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Make the linear and the curved model; without curves the second is of no features."""
        a, c, count = values["features"], values["context"], values["curves"]
        linear = HybridLinear(a, c, values["crossed"], values["own_slopes"])
        values["crossed"], values["own_slopes"] = linear.crossed, linear.own_slopes
        values["linear"] = values["curved"] = linear
        bent = count and 0 < a + c <= MOST_CURVED_FEATURES
        values["curved"] = HybridLinear(
            *((a + count, c, linear.crossed, linear.own_slopes, count) if bent else (0,))
        )

    def widened(self, features: tuple[int, int]) -> "HybridCurves":
        """Return the model for more features, given their numbers in the context and in an arm."""
        wide = self.linear.widened(features)
        return HybridCurves(
            wide.features, wide.context, wide.crossed, wide.own_slopes, self.curves, self.looks
        )

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """Return the shape of a matrix with a row per arm: the context's features, then its own."""
        return self.linear.context_shape(arms)

    def extend(self, state: HybridCurvedState, arms: int) -> HybridCurvedState:
        """Return a state with further arms at the end, which were left alone from now on."""
        longer: HybridCurvedState = super().extend(state, arms)
        longer.change.played[-arms:] = state.change.life
        return longer

    def release(self, state: HybridCurvedState, arms: Integers) -> None:
        """Forget the arms' own effects, in place; keep what their rewards say about θ."""
        self.linear.release(state.linear, arms)
        if state.curves.frozen[0]:
            if not state.bends[0]:  # only its sums have seen the last rewards
                self.curved.settle(state.curved)
            self.curved.release(state.curved, arms)

    def at_curves(self, features: tuple[int, int], places: Any, count: int) -> tuple[Any, Any]:
        """Return the features of the widened curved model, and the places of those it has now."""
        (c, a), (context, arm) = features, places or (None, None)
        arm = [*places_of(arm, self.features), *range(a, a + count)]
        return (c, a + count), (context, arm)

    def learn_rows(self, state: HybridState, rows: Floats, arms: Integers, rewards: Floats) -> None:
        """Let the curved belief learn from rows with curves, in place."""
        learn_all(self.curved, state, rows, arms, rewards)

    def refresh(self, state: HybridCurvedState) -> None:
        """Forget what is in doubt, make curves when it is time, and learn both priors again."""
        if state.doubted[0] != NONE:
            self.forget_arms(state, [int(state.doubted[0])])
            state.doubted[0] = NONE
        if state.linear.faded[0] < HALF:
            state.linear.due[0] = 0.0
        super().refresh(state)

    def recover(self, state: HybridCurvedState) -> None:
        """Let what was known before an alarm count little, in place."""
        change, arm = state.change, self.changed_arm(state.change)
        left = OTHERS if arm >= 0 else min(OTHERS, LEFT / max(state.linear.weight, LEFT))
        if arm >= 0:
            self.forget_arms(state, [arm])
        told = NoticedChange(int(change.life[0]), arm, 0.0)
        change.note(told if arm >= 0 else told._replace(arm=None, weight=left))
        fade_shared(state, left)
        change.take_back()
        state.recent[:] = 0.0

    def changed_arm(self, change: Change) -> int:
        """Return the arm that has most of the evidence after an alarm, or ALL."""
        won = change.capital.sum(axis=1)
        return int(won.argmax()) if won.max() >= MOST_OF_IT * change.common.sum() else int(ALL)

    def forget_arms(self, state: HybridCurvedState, arms: Sequence[int]) -> None:
        """Forget the arms' own effects, which go on as new ones do, in place."""
        if len(arms):
            pulls = state.pulls.copy()
            self.release(state, np.array(arms, dtype=np.int64))
            state.linear.pulls[:] = pulls
            state.curved.pulls[:] = pulls if state.curves.frozen[0] else 0
            state.change.faded[arms] -= 1.0
            state.linear.due[0] = 0.0

    def merged(
        self, first: HybridCurvedState, second: HybridCurvedState, base: HybridCurvedState
    ) -> HybridCurvedState:
        """Return the state of both histories; if one has noticed a change, both have."""
        parts, least = [first.copy(), second.copy(), base.copy()], min(first.fading, second.fading)
        for state in parts:
            fade_shared(state, float(np.exp(least - state.fading)[0]))
            self.linear.scales(state.linear)  # multiplies `faded` out
            if state.curves.frozen[0]:
                self.curved.scales(state.curved)
        result: HybridCurvedState = super().merged(*parts)
        result.fading[:], result.tried[0] = least, np.count_nonzero(result.pulls)
        return result

    def forget_as(self, state: HybridCurvedState, change: Change) -> None:
        """Forget the arms' own effects that a merged change has forgotten, in place."""
        self.forget_arms(state, np.flatnonzero(change.faded < state.change.faded).tolist())

    def gain(self, state: HybridCurvedState) -> float:
        """Return by how much the curved belief is likelier, on the rewards that it has seen."""
        axes, wide = self.linear.axes(), self.curved.axes()
        at, _ = shared_names(wide["column"], axes["column"])
        seen, linear = state.curved, state.linear.copy()
        linear.gram[:], linear.gone[:] = seen.gram[np.ix_(at, at)], seen.gone[np.ix_(at, at)]
        linear.moments[:], linear.faded[:] = seen.moments[:, :, at], seen.faded
        linear.square[:], linear.votes[:] = seen.square, seen.votes
        curved = log_evidence(self.curved, seen.copy())
        gain = curved - log_evidence(self.linear, linear)
        if gain > 0.0:  # compare with variances as good as those of the curved belief
            self.linear.refresh(linear, FIRST_STEPS)
            gain = curved - log_evidence(self.linear, linear)
        return gain


HYBRID = HybridCurves, HybridLinear  # the models of arms that have features beside a context


def log_evidence(model: HybridLinear, state: HybridState) -> float:
    """Return the logarithm of the marginal likelihood, but for a constant; see the top."""
    scales = model.scales(state)
    if not scales.known:
        return 0.0
    found = model.solve(state, scales)
    determinants = np.log(np.einsum("kii->ki", found.inverse)).sum()
    determinants += np.log(found.root.diagonal()).sum()
    return float(determinants - 0.5 * (scales.weight * np.log(found.noise) + found.residual))


@compiled
def learn_all(model, state, rows, arms, rewards):  # type: ignore[no-untyped-def]
    """Learn from rows of the arms that were played, unless they have left, in place."""
    for i in range(arms.size):
        if arms[i] >= 0:
            learn_row(model, state, rows, i, arms[i], rewards[i], False)


@compiled
def fade_shared(state, weight):  # type: ignore[no-untyped-def]
    """Let all that was seen count `weight` times as much, in place."""
    state.fading[0] = max(state.fading[0] + np.log(weight), -1e9)
    state.linear.faded[0] *= weight
    if state.curves.frozen[0]:
        state.curved.faded[0] *= weight


@compiled
def add_curves_to(curves, context, arms):  # type: ignore[no-untyped-def]
    """Return a matrix in which the rows of these arms have their curves behind them."""
    out = np.empty((context.shape[0], context.shape[1] + curves.phases.size))
    for a in range(arms.size):
        add_curves(curves, context[arms[a]], out[arms[a]])
    return out


@implements(belief, HybridCurves)
def belief_of_hybrid_curves(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    # One call for both: less to compile.
    half, known, rows = model.linear, state.linear, context
    if state.bends[0]:
        half, known, rows = model.curved, state.curved, add_curves_to(state.curves, context, arms)
    found = belief(half, known, rows, arms, step, rng)
    return policy_belief(model, state, found, arms, step, state.tried[0])


@implements(update, HybridCurves)
def update_hybrid_curves(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    change, curves, linear, pulls = state.change, state.curves, state.linear, state.curved.pulls
    frozen, bends, recent = curves.frozen[0], state.bends[0], change.recent[arm]
    if linear.pulls[arm] == 0:
        state.tried[0] += 1.0
    z = learn_row(model.linear, linear, context, arm, arm, reward, True)
    if frozen and (bends or change.life[0] < ALL_LEARNED or pulls[arm] % 2 == 1):
        row = with_curves(curves, context[arm]).reshape(1, -1)
        wide = learn_row(model.curved, state.curved, row, 0, arm, reward, bends)
        z = wide if bends else z
    elif frozen:
        pulls[arm] += 1
    elif curves.phases.size > 0:
        keep_row(curves, context[arm], arm, reward)
    if not linear.known[0]:
        count_reward(change, arm)
        return
    if surprising(change, model.looks, arm, state.tried[0], z):
        state.doubted[0] = arm
    if recent[0] == 0.0:
        recent[:] = state.recent
    change.arm_rewards[arm] = change.rewards[0]  # see the top of this file
    notice(change, arm, 1.0, z)
    if change.rewards[0] > 0.0:
        state.recent[0] += FAST * (z - state.recent[0])
        state.recent[1] += SLOW * (z - state.recent[1])
    if change.changes[0] >= REPEATED:
        rate = RATE * change.changes[0] / change.life[0]
        fade_shared(state, max(1.0 - rate, LEAST_WEIGHT))


@implements(training_due, HybridCurves)
def training_due_hybrid_curves(model, state):  # type: ignore[no-untyped-def]
    return (
        state.linear.due[0] <= 0.0
        or state.linear.faded[0] < HALF
        or state.curves.kept[0] >= ROWS
        or state.change.alarm[0] != NONE
        or state.doubted[0] != NONE
    )


@implements(forget, HybridCurves)
def forget_hybrid_curves(model, state, weight):  # type: ignore[no-untyped-def]
    forget(model.linear, state.linear, weight)
    if state.curves.frozen[0]:
        forget(model.curved, state.curved, weight)
