"""Linear until the data bends, and right again after the world has changed: the default model.

Two beliefs learn from the same rewards: `AdaptiveLinear` of the features as they are, and the same
with curves of the context as further features (`tsucb.models.curves`). Both keep sums alone. At
every refresh, some 35 times in a million rewards, their marginal likelihoods are compared,

    log p(rewards | variances) = −½ Σₖ [nₖ log σₖ² + log |Mₖ| + Σ y²/σₖ² − gₖᵀWₖgₖ]
                                 −½ [log |I + R| − rᵀ(I + R)⁻¹r]

in the notation of `tsucb.models.empirical_bayes`: the first line integrates over what arms have of
their own, the second over what they have in common. Curves that explain nothing cost likelihood, by
the determinants. The curved belief decides once it is e⁵ times as likely, with many features more,
until it is less likely than the linear one. While the linear one decides, the other only adds to
its sums.

A belief of finitely many curves understates its error away from what it was played for, the more,
the more rewards there are: its variance falls as 1/n, that of a regression whose curves grow in
number falls as n^⅓/n. So the *radius* of all arms is widened by one factor, (c + n/m)^⅙, or by the
ratio of both beliefs' noise while the linear one decides. That leaves TS-UCB's decisions alone.

Every reward is also compared with the prediction of the belief that decides, by a test that raises
a false alarm in at most one of 100 lives (`tsucb.models.change`). After an alarm what was known
counts little. A small share of the decisions look again at arms that were left alone.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.checks import Natural, NotNegative, whole_number
from tsucb.compiler import compiled, implements
from tsucb.models.adaptive_linear import (
    AdaptiveLinear,
    AdaptiveState,
    add_to_sums,
    anchored,
    learn_posterior,
)
from tsucb.models.change import (
    LITTLE,
    NONE,
    Change,
    NoticedChange,
    count_reward,
    look_again,
    notice,
    surprising,
)
from tsucb.models.curves import ROWS, Curves, keep_row, with_curves
from tsucb.models.empirical_bayes import SETTLED
from tsucb.models.model import (
    Model,
    belief,
    forget,
    learn_many,
    places_of,
    predicted_belief,
    shared_names,
    training_due,
    update,
)
from tsucb.models.regressions import widen
from tsucb.models.state import State, array, fade_arm, filled, nested
from tsucb.numeric.arrays import Flags, Floats, Integers
from tsucb.record import derived

CURVES = 64
MOST_CURVES = 256
MOST_CURVED_FEATURES = 500  # of a context: with more there are no curves
LOOKS = 0.01  # share of decisions that look again at an arm that was left alone, at most
EVIDENCE = 5.0  # logarithm of how much likelier the curved belief must be to decide
PER_FEATURE = 0.05  # and more for each feature, as every learned relevance flatters the likelihood
STEPS = 2  # that the variances of the curved belief take at a refresh
FIRST_STEPS = 10  # and when its curves are made
UNDERSTATED = 20.0  # cube of the factor by which a curved belief understates its variance
UNDERSTATED_BY = 8.0  # rewards of an arm in which that cube grows by 1
REPEATED = 3.0  # changes after which more are expected
RATE = 3.0  # of forgetting, in noticed changes per reward
LEAST_WEIGHT = 0.9  # of a reward for the next one, however often rewards change
LEAST_SHARE = 0.4  # of all rewards that the curved belief must have seen to decide
ALL_LEARNED = 1_000  # rewards that the curved belief learns; then half of them, until it decides


def curve_count(name: str, value: float) -> int:
    """Return a number of curves; raise ValueError if it is too large."""
    count = whole_number(name, value, least=0)
    if count > MOST_CURVES:
        raise ValueError(f"{name} must be at most {MOST_CURVES}, but it is {count}")
    return count


class CurvedState(State):
    """Both beliefs, what curves are made from, and the test of change."""

    linear: AdaptiveState = nested(AdaptiveState)
    curved: AdaptiveState = nested(AdaptiveState)
    curves: Curves = nested(Curves)
    change: Change = nested(Change)
    bends: Flags = array(dtype=bool)  # whether the curved belief decides
    doubt: Floats = array(start=1.0, least=1.0)  # radius of a confidence interval, in deviations

    least_arm: ClassVar[float] = 0.0  # of the rows that are kept

    @classmethod
    def started(cls, parts: dict[str, State]) -> Self:
        """Return the state before any data, given those within it."""
        return cls._make(
            parts[name] if name in parts else filled(field, {})
            for name, field in cls._declared.items()
        )

    @property
    def pulls(self) -> Floats:
        """How often each arm was played."""
        return self.linear.pulls

    def check(self, rewards: int) -> None:
        """Raise ValueError also for curves that were never made, and rows of unknown arms."""
        super().check(rewards)
        if self.bends[0] and not self.curves.frozen[0]:
            raise ValueError("curves that decide must have been made")
        arms = self.curves.arms
        if not (
            (arms >= self.least_arm) & (arms < max(self.pulls.size, 1)) & (arms == np.rint(arms))
        ).all():
            raise ValueError("rows must be of arms that there are")


class CurvedModel(Model):
    """What the models that bend have in common: two beliefs, one linear and one with curves.

    A subclass has the fields `linear`, `curved` and `looks`, and the methods

    - `at_curves(features, places, count)`: return features and places of the widened curved model,
    - `learn_rows(state, rows, arms, rewards)`: let the curved belief learn from rows with curves,
    - `recover(state)`: forget after an alarm, in place,
    - `gain(state)`: return how much likelier the curved belief is, as a logarithm,
    - `forget_as(state, change)`: forget what a merged change has forgotten, in place.
    """

    merges = True

    def start(self: Any, arms: int, rng: np.random.Generator | None = None) -> Any:
        """Return the state before any data."""
        parts = {"linear": self.linear.start(arms), "curved": self.unused(arms)}
        parts |= {"curves": self.blank_curves(), "change": Change.blank({"arm": arms})}
        return self.state.started(parts)

    def unused(self: Any, arms: int) -> Any:
        """Return the curved state until there are curves: zeros, which use up no memory."""
        return self.curved.state.blank({"arm": arms, **self.curved.sizes()})

    def blank_curves(self: Any) -> Curves:
        """Return curves before any row of features, none where there are none."""
        count = max(self.curved.features - self.linear.features, 0)
        row = len(self.linear.axes()["row"]) - 1
        return Curves.blank({"feature": row if count else 0, "curve": count})

    def extend(self: Any, state: Any, arms: int) -> Any:
        """Return a state with further arms at the end, which start where the others are."""
        frozen = state.curves.frozen[0]
        curved = self.curved.extend(state.curved, arms) if frozen else None
        return state.copy()._replace(
            linear=self.linear.extend(state.linear, arms),
            curved=curved or self.unused(self.arms(state) + arms),
            change=state.change.joined(Change.blank({"arm": arms})),
        )

    def widen(self: Any, state: Any, features: Any, places: Any = None) -> Any:
        """Return a state of the widened model: the further features were 0 in every context so far.

        They have no part in curves that were made before.
        """
        wide = self.widened(features)
        old, new = self.linear.axes(places)["row"][1:], wide.linear.axes()["row"][1:]
        curved, curves = wide.unused(self.arms(state)), wide.blank_curves()
        bends, count = state.bends.copy(), curves.phases.size
        if count and state.curves.phases.size:
            sizes, at = {"feature": len(new), "curve": count}, {"feature": shared_names(old, new)}
            curves = state.curves.widened(sizes, at)
            if curves.frozen[0]:
                curved = self.curved.widen(state.curved, *self.at_curves(features, places, count))
        else:
            bends[:] = False
        linear = self.linear.widen(state.linear, features, places)
        return state.copy()._replace(linear=linear, curved=curved, curves=curves, bends=bends)

    def settle(self: Any, state: Any) -> None:
        """Put the posteriors in place that follow from the sums and the prior as it is."""
        self.linear.settle(state.linear)
        if state.curves.frozen[0]:
            self.curved.settle(state.curved)

    def coefficients(self: Any, state: Any, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the linear belief's coefficients."""
        found: tuple[Floats, Floats] = self.linear.coefficients(state.linear, arm)
        return found

    def parameter_names(self: Any, features: Sequence[str]) -> Sequence[str]:
        """Return the names of the linear belief's coefficients."""
        names: Sequence[str] = self.linear.parameter_names(features)
        return names

    def changes(self, state: Any) -> list[NoticedChange]:
        """Return the last changes that were noticed, the oldest first."""
        history: list[NoticedChange] = state.change.history()
        return history

    # --- learning ---

    def trainer(self, states: Sequence[Any]) -> Callable[[], None]:
        """Return a function that learns the priors of these states again."""

        def train() -> None:
            for state in states:
                self.refresh(state)

        return train

    def refresh(self: Any, state: Any) -> None:
        """Forget after an alarm, make curves when it is time, and learn both priors again."""
        if state.change.alarm[0] != NONE:
            self.recover(state)
            state.linear.due[0] = 0.0
        if state.curves.kept[0] >= ROWS:
            self.make_curves(state, *state.curves.rows())
        elif state.curves.frozen[0]:
            self.curved.refresh(state.curved, STEPS)
        if state.linear.due[0] <= 0.0:  # or the linear belief would not be what it is alone
            self.linear.refresh(state.linear, self.linear.steps)
        self.choose_belief(state)

    def make_curves(
        self: Any, state: Any, contexts: Floats, arms: Integers, rewards: Floats
    ) -> None:
        """Freeze the curves, and let the curved belief learn from these rows, in place."""
        self.curved.prior(state.curved)
        state.curves.freeze(contexts[:ROWS])
        self.learn_rows(state.curved, state.curves.wide(contexts), arms, rewards)
        self.curved.refresh(state.curved, FIRST_STEPS)

    def choose_belief(self: Any, state: Any) -> None:
        """Let the likelier of the two beliefs decide, in place."""
        share = state.curved.weight / max(state.linear.weight, 1.0)
        if not (state.curves.frozen[0] and state.curved.known[0] and share >= LEAST_SHARE):
            state.bends[0], state.doubt[0] = False, 1.0
            return
        needed = EVIDENCE + PER_FEATURE * state.curves.centre.size
        state.bends[0] = self.gain(state) > (0.0 if state.bends[0] else needed)
        if state.bends[0]:
            each = state.curved.weight / self.arms(state)
            state.doubt[0] = (UNDERSTATED + each / UNDERSTATED_BY) ** (1 / 6)
        else:
            noise = [part.noise[0] * part.spread[0] for part in (state.linear, state.curved)]
            state.doubt[0] = max(noise[0] / noise[1], 1.0)

    # --- merging ---

    def merged(self: Any, first: Any, second: Any, base: Any) -> Any:
        """Return the state of both histories; if one has noticed a change, both have.

        Sums of curves add up if both had the same when they were one. Otherwise the curves of the
        one that has seen more go on, and have not seen what the other has.
        """
        if len({state.curves.phases.size for state in (first, second, base)}) > 1:
            raise ValueError(
                "agents with different numbers of curves cannot be merged; make them with the same "
                "model, or copy one"
            )
        change = first.change.merged(second.change, base.change)
        one, two, old = (state.copy() for state in (first, second, base))
        for state in (one, two, old):
            self.forget_as(state, change)
        linear = self.linear.merged(one.linear, two.linear, old.linear)
        result = one._replace(linear=linear, change=change)
        if base.curves.frozen[0]:
            curved = self.curved.merged(one.curved, two.curved, old.curved)
            result = result._replace(curved=curved)
        elif self.curved.features:
            result = self.with_curves_of_either(result, one, two, old)
        self.choose_belief(result)
        return result

    def with_curves_of_either(self: Any, result: Any, one: Any, two: Any, old: Any) -> Any:
        """Return the merged state with the curves of two that had none when they were one."""
        begun = int(old.curves.kept[0])
        if not (one.curves.frozen[0] or two.curves.frozen[0]):
            parts = zip(one.curves.rows(), two.curves.rows(begun), strict=True)
            contexts, arms, rewards = (np.concatenate(pair) for pair in parts)
            if len(arms) >= ROWS:
                self.make_curves(result, contexts, arms, rewards)
                self.curved.refresh(result.curved, SETTLED)
            else:
                curves = result.curves
                curves.contexts[: len(arms)], curves.kept[0] = contexts, len(arms)
                curves.arms[: len(arms)], curves.rewards[: len(arms)] = arms, rewards
            return result
        if two.curved.weight > one.curved.weight:
            one, two = two, one
        result = result._replace(curved=one.curved, curves=one.curves)
        contexts, arms, rewards = two.curves.rows(begun)
        self.learn_rows(result.curved, result.curves.wide(contexts), arms, rewards)
        self.curved.refresh(result.curved, SETTLED)
        result.curved.pulls[:] = result.linear.pulls
        return result


class AdaptiveCurves(CurvedModel):
    """Rewards that bend if the data says so, and that may change; nothing to set.

    As `AdaptiveLinear`, and two things more. Where rewards bend or features interact, random
    Fourier features of the context join the features, by marginal likelihood, and only there. And a
    test that looks at every reward notices when rewards have changed; what was known then counts
    little. What it noticed is in `changes`.

    Parameters
    ----------
    features
        d, the length of a context; 0 for none. A constant need not be among them.
    curves
        The number of curves. With 0, or with more than 500 features, it stays linear.
    looks
        The share of decisions that look again at an arm that was left alone, to see whether it has
        become better: at most this, and less where nothing changes for long. With 0 there are none.

    >>> import numpy as np
    >>> model = AdaptiveCurves(features=1)
    >>> x, arms = np.linspace(-2.0, 2.0, 400)[:, None], np.arange(400) % 2
    >>> state = model.fit(2, x[::-1], arms, np.cos(2 * x[::-1, 0]) * np.where(arms == 0, 1, -1))
    >>> bool(state.bends[0]), model.belief(state, [0.0], rng=np.random.default_rng(0)).mean.round(1)
    (True, array([ 1., -1.]))
    """

    state = CurvedState

    features: Natural
    curves: Annotated[int, curve_count] = CURVES
    looks: NotNegative = LOOKS
    linear: AdaptiveLinear = derived()
    curved: AdaptiveLinear = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Make the linear and the curved model; without curves the second is of no features."""
        d = values["features"]
        values["linear"] = AdaptiveLinear(d)
        bent = values["curves"] and 0 < d <= MOST_CURVED_FEATURES
        values["curved"] = AdaptiveLinear(d + values["curves"] if bent else 0)

    def widened(self, features: int) -> "AdaptiveCurves":
        """Return the model for contexts with more features."""
        return AdaptiveCurves(features, self.curves, self.looks)

    def at_curves(self, features: int, places: Any, count: int) -> tuple[int, list[int]]:
        """Return the features of the widened curved model, and the places of those it has now."""
        wide = features + count
        return wide, [*places_of(places, self.features), *range(features, wide)]

    def predictions(
        self, state: CurvedState, contexts: Floats, arms: Integers
    ) -> tuple[Floats, Floats]:
        """Return the moments of the belief that decides."""
        if state.bends[0]:
            return self.curved.predictions(state.curved, state.curves.wide(contexts), arms)
        return self.linear.predictions(state.linear, contexts, arms)

    def learn_rows(
        self, state: AdaptiveState, rows: Floats, arms: Integers, rewards: Floats
    ) -> None:
        """Let the curved belief learn from rows with curves, in place."""
        learn_many(self.curved, state, rows, arms, rewards)

    def recover(self, state: CurvedState) -> None:
        """Let what was known before an alarm count little, in place."""
        fade_all(state, state.change.recover(state.linear.weights))

    def forget_as(self, state: CurvedState, change: Change) -> None:
        """Forget what a merged change has forgotten, in place."""
        fade_all(state, np.exp(change.faded - state.change.faded))

    def gain(self, state: CurvedState) -> float:
        """Return by how much the curved belief is likelier, on the rewards that it has seen."""
        columns = np.append(np.arange(self.features + 1), self.curved.features + 1)
        linear = state.linear.copy()
        linear.moments[:] = state.curved.moments[:, : self.features + 1][:, :, columns]
        linear.square[:] = state.curved.square
        return log_evidence(self.curved, state.curved) - log_evidence(self.linear, linear)


def fade_all(state: CurvedState, factors: Floats) -> None:
    """Multiply the sums of each arm by its factor, in place, in both halves."""
    state.linear.fade(factors)
    if state.curves.frozen[0]:  # memory that stays zero is not used up
        state.curved.fade(factors)


def log_evidence(model: AdaptiveLinear, state: AdaptiveState) -> float:
    """Return the logarithm of the marginal likelihood, but for a constant; see the top."""
    scales = model.scales(state)
    if not scales.known:
        return 0.0
    found = model.solve(state, scales)
    tried, variance = found.tried, found.variance[found.tried]
    count, level = state.weights[tried], scales.level
    square = state.square[tried] - level * (2.0 * state.moments[tried, 0, -1] - count * level)
    moment, own = found.moment[:-1], found.own[:-1]
    right = np.einsum("kij,kj->ki", own, moment)
    own_part = (square / variance).sum() - np.einsum("ki,ki->", moment, right)
    own_part += (count * np.log(variance)).sum()
    own_part -= 2.0 * np.log(np.einsum("kii->ki", found.inverse[:-1])).sum()
    # The prior of the common part in coordinates whitened by E^½, as in `AdaptiveLinear.solve`.
    prior = np.full(found.scale.size, np.log(state.common[0] / state.slopes[0]))
    prior[0] = -np.log(state.levels[0])
    total = right.sum(axis=0)
    shared = prior.sum() - np.linalg.slogdet(found.covariance)[1]
    shared -= total @ found.covariance @ total
    return float(-0.5 * (own_part + shared))


@compiled
def policy_belief(model, state, found, arms, step, count):  # type: ignore[no-untyped-def]
    """Return the belief as a policy gets it: with wider intervals, and a look if one is due.

    Looks are divided among `count` arms.
    """
    if state.doubt[0] != 1.0:
        radius = np.empty(arms.size)
        for a in range(arms.size):
            radius[a] = found.std[a] * state.doubt[0]
        found = Belief(
            found.law, found.mean, found.std, found.estimate, radius,
            found.pulls, found.information, found.step, found.dimension, found.prior_std,
        )  # fmt: skip
    variances = state.curved.variance if state.bends[0] else state.linear.variance
    look_again(state.change, model.looks, found, arms, step, count, variances)
    return found


@implements(belief, AdaptiveCurves)
def belief_of_curved(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    # One call for both: less to compile.
    half, known, features = model.linear, state.linear, context.copy()
    if state.bends[0]:
        half, known, features = model.curved, state.curved, with_curves(state.curves, context)
    found = belief(half, known, features, arms, step, rng)
    return policy_belief(model, state, found, arms, step, state.change.played.size)


@implements(predicted_belief, AdaptiveCurves)
def predicted_belief_of_curved(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    half, known = model.linear, state.linear
    if state.bends[0]:
        half, known = model.curved, state.curved
    found = predicted_belief(half, known, mean, std, arms, step, rng)
    return policy_belief(model, state, found, arms, step, state.change.played.size)


@implements(update, AdaptiveCurves)
def update_curved(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    change, curves = state.change, state.curves
    frozen, bends = curves.frozen[0], state.bends[0]
    row = wide = anchored(state.linear, context.copy(), reward)
    z, pulls = learn_posterior(state.linear, arm, row), state.curved.regressions.pulls
    widely = frozen and (bends or change.life[0] < ALL_LEARNED or pulls[arm] % 2 == 1)
    if widely:
        wide = anchored(state.curved, with_curves(curves, context), reward)
    if bends:
        z = learn_posterior(state.curved, arm, wide)
    elif frozen:
        pulls[arm] += 1
    elif curves.phases.size > 0:
        keep_row(curves, context, arm, reward)
    if state.linear.known[0] and surprising(change, model.looks, arm, pulls.size, z):
        doubt(state, arm)
    add_to_sums(state.linear, arm, row)
    if widely:
        add_to_sums(state.curved, arm, wide)
    if state.linear.known[0]:
        notice(change, arm, pulls.size, z)
    else:
        count_reward(change, arm)
    if change.changes[0] >= REPEATED:
        fade_in_turn(state)


@compiled
def doubt(state, arm):  # type: ignore[no-untyped-def]
    """Let what was known of an arm count little, in place, and have posteriors follow from it."""
    weight = LITTLE / max(state.linear.moments[arm, 0, 0], LITTLE)
    fade_both(state, arm, weight, np.log(weight))
    state.linear.due[0] = 0.0


@compiled
def fade_both(state, arm, weight, fading):  # type: ignore[no-untyped-def]
    """Let what was seen of an arm count `weight` times as much, in place; `fading` is its log."""
    state.change.faded[arm] = max(state.change.faded[arm] + fading, -1e9)
    fade_arm(state.linear, arm, weight)
    if state.curves.frozen[0]:
        fade_arm(state.curved, arm, weight)


@compiled
def fade_in_turn(state):  # type: ignore[no-untyped-def]
    """Let what was seen of one arm after the other count less, at the rate of noticed changes."""
    change, arms = state.change, state.change.faded.size
    arm, rate = int(change.life[0]) % arms, RATE * change.changes[0] / change.life[0]
    fading = arms * np.log(max(1.0 - rate, LEAST_WEIGHT))
    weight = np.exp(fading)
    fade_both(state, arm, weight, fading)
    widen(state.linear.regressions, arm, 1.0 / np.sqrt(weight))
    if state.bends[0]:
        widen(state.curved.regressions, arm, 1.0 / np.sqrt(weight))


@implements(training_due, AdaptiveCurves)
def training_due_curved(model, state):  # type: ignore[no-untyped-def]
    return (
        state.linear.due[0] <= 0.0 or state.curves.kept[0] >= ROWS or state.change.alarm[0] != NONE
    )


@implements(forget, AdaptiveCurves)
def forget_curved(model, state, weight):  # type: ignore[no-untyped-def]
    forget(model.linear, state.linear, weight)
    if state.curves.frozen[0]:
        forget(model.curved, state.curved, weight)
