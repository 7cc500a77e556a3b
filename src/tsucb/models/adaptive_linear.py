"""One vector of coefficients per arm, and a prior that fits itself to the data."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import flushed, whole_number, within
from tsucb.compiler import compiled, implements
from tsucb.models import regressions
from tsucb.models.empirical_bayes import (
    DUE,
    KNOWN,
    LEAST_ARM_NOISE,
    LEAST_NOISE,
    LEVEL,
    NOISE,
    OMEGA,
    PASSES,
    SINCE,
    SLOPES,
    SMALL,
    SPREAD,
    STARTED,
    TAU,
    Learned,
    Posteriors,
    blank,
    refresh,
)
from tsucb.models.model import (
    Model,
    believe,
    believe_predicted,
    check_arm_count,
    forget,
    training_due,
    update,
)
from tsucb.models.regressions import (
    Regressions,
    Rows,
    arm_posterior,
    evidence,
    learn,
    predict,
    predict_many,
    relative,
    set_posteriors,
    set_spread,
    widen,
)
from tsucb.numeric.arrays import Floats, Integers, copy_to, largest_of


class AdaptiveState(NamedTuple):
    """Posteriors of K regressions relative to the anchor, and what they are made from."""

    regressions: Regressions
    learned: Learned

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.regressions.pulls


PER_ARM = ("gram", "moment", "square", "noise", "variance")
SETTLED = 30  # steps of the numbers after which they depend on the sums alone
MOST = 1e100  # of anything in a state: sums of squares, and slopes over tiny spreads
GRAIN = 2.0**-36  # of the rewards' spread: arms that differ by less are equal


class AdaptiveLinear(Model, NamedTuple("AdaptiveLinear", [("features", int)])):
    """Linear rewards with nothing to set: no prior, no scaling, no constant, no noise.

    Arm k pays βₖᵀ(1, x) plus normal noise. Centre and scale of every feature, level and spread of
    the rewards, the noise, how large coefficients are, which features matter, and what the arms
    have in common are all learned by empirical Bayes (`tsucb.models.empirical_bayes` derives it).
    Decisions do not change when features or rewards are shifted or rescaled. An arm that is added
    later starts where its siblings are.

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

    __slots__ = ()

    def __new__(cls, features: int) -> "AdaptiveLinear":
        return super().__new__(cls, whole_number("features", features, least=0))

    def start(self, arms: int, rng: np.random.Generator | None = None) -> AdaptiveState:
        """The state before any data: every arm N(0, 1), in units that have no meaning yet."""
        arms, p = check_arm_count(arms), self.features + 1
        root = np.zeros((p, p))
        root[0, 0] = 1.0
        return AdaptiveState(
            regressions.start(arms, np.zeros(p), root),
            Learned(
                gram=np.zeros((arms, p, p)),
                moment=np.zeros((arms, p)),
                square=np.zeros(arms),
                anchor=np.zeros(p),
                active=np.eye(1, p)[0],
                numbers=np.array([NOISE, LEVEL, SLOPES / p, SLOPES / p]),
                relevance=np.ones(p),
                noise=np.ones(arms),
                variance=np.full(arms, NOISE),
                clock=np.array([0.0, 1.0, 0.0, 1.0, 0.0]),
            ),
        )

    def extend(self, state: AdaptiveState, arms: int) -> AdaptiveState:
        """A state with further arms at the end, each with what is known of arms never tried."""
        old, new = state.learned, self.start(arms)
        noise = np.full(arms, max(1.0, old.noise.mean() if old.noise.size else 1.0))
        joined = {
            name: np.concatenate((getattr(old, name), getattr(new.learned, name)))
            for name in ("gram", "moment", "square", "variance")
        }
        return placed(
            AdaptiveState(
                regressions.concatenate(state.regressions, new.regressions),
                copied(old)._replace(**joined, noise=np.concatenate((old.noise, noise))),
            )
        )

    def widened(self, features: int) -> "AdaptiveLinear":
        """The model for contexts with more features."""
        return AdaptiveLinear(features)

    def widen(self, state: AdaptiveState, features: int, places: Any = None) -> AdaptiveState:
        """A state of the widened model: the further features were 0 in every context so far."""
        old = state.learned
        wider = AdaptiveLinear(features).start(max(old.square.size, 1))
        new = Learned._make(
            array[: old.square.size].copy() if name in PER_ARM else array
            for name, array in wider.learned._asdict().items()
        )
        at = np.append(0, 1 + (np.arange(self.features) if places is None else places))
        n = at.size
        new.gram[np.ix_(np.arange(old.square.size), at, at)] = old.gram[:, :n, :n]
        new.moment[:, at] = old.moment[:, :n]
        new.square[:], new.noise[:], new.variance[:] = old.square, old.noise, old.variance
        for name in ("anchor", "active", "relevance"):
            getattr(new, name)[at] = getattr(old, name)[:n]
        new.numbers[:], new.clock[:] = old.numbers, old.clock
        p = features + 1
        blank = regressions.start(old.square.size, np.zeros(p), np.eye(1, p).T @ np.eye(1, p))
        return placed(AdaptiveState(blank._replace(pulls=state.pulls.copy()), new))

    def merged(
        self, first: AdaptiveState, second: AdaptiveState, base: AdaptiveState
    ) -> AdaptiveState:
        """Sums add up; scales, noise and prior are found anew from the sums of all."""
        one, other, before = first.learned, second.learned, base.learned
        if not one.clock[STARTED]:
            one, other = other, one
        result = copied(one)
        moved = shifted(other, one.anchor) if other.clock[STARTED] else other
        start = shifted(before, one.anchor) if before.clock[STARTED] else before
        for name in ("gram", "moment", "square"):
            getattr(result, name)[:] += getattr(moved, name) - getattr(start, name)
        if (result.gram[:, 0, 0] < 0).any():
            raise ValueError("the base has seen more than what was learned from it")
        posteriors = type(first.regressions)._make(array.copy() for array in first.regressions)
        posteriors.pulls[:] = first.pulls + second.pulls - base.pulls
        merged = AdaptiveState(posteriors, result)
        if result.clock[STARTED]:
            result.clock[KNOWN] = 0.0  # the numbers begin anew
            refreshed(merged, SETTLED, True)
        return merged

    def trainer(self, states: Sequence[AdaptiveState]) -> Callable[[], None]:
        """What learns the prior anew from all that these states have seen."""

        def train() -> None:
            for state in states:
                refreshed(state, PASSES if self.features < SMALL else 1, True)

        return train

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d,), the same for all arms; none without features."""
        return (self.features,) if self.features else ()

    def predictions(
        self, state: AdaptiveState, contexts: Floats, arms: Integers
    ) -> tuple[Floats, Floats]:
        """Moments of the arms' rewards at many contexts, relative to the anchor."""
        anchor = state.learned.anchor
        z = np.empty((len(contexts), anchor.size))
        z[:, 0] = 1.0
        np.subtract(contexts, anchor[1:], out=z[:, 1:])
        return predict_many(state.regressions, z, arms)

    def coefficients(self, state: AdaptiveState, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the reward at x = 0, and of every coefficient."""
        mean, root = arm_posterior(state.regressions, arm)
        anchor = state.learned.anchor
        mean[0] += anchor[0] - anchor[1:] @ mean[1:]
        root[0] -= anchor[1:] @ root[1:]
        return mean, np.sqrt((root**2).sum(axis=1))

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The reward at x = 0, then the features."""
        return ["constant", *features]

    def check_state(self, state: AdaptiveState, rewards: int) -> None:
        """Raise a ValueError for sums, numbers or posteriors that data cannot have led to."""
        learned = state.learned
        regressions.check_triangular(state.regressions)
        weight = learned.gram[:, 0, 0]
        diagonal = np.einsum("kii->ki", learned.gram)
        symmetric = np.allclose(learned.gram, learned.gram.transpose(0, 2, 1), rtol=1e-9, atol=0)
        if (diagonal < 0).any() or (learned.square < 0).any() or not symmetric:
            raise ValueError("sums of squares that cannot be")
        if (weight > rewards).any() or (state.pulls < 0).any() or (state.pulls > rewards).any():
            raise ValueError("counts of pulls that cannot be")
        positive = (learned.numbers, learned.relevance, learned.noise, learned.variance)
        if not all(((x > 0) & (x <= MOST)).all() for x in positive):
            raise ValueError("variances that cannot be")
        if (
            learned.numbers[0] < LEAST_NOISE / 2
            or learned.noise.min(initial=1) < LEAST_ARM_NOISE / 2
        ):
            raise ValueError("noise that cannot be")
        clock = learned.clock
        flags = np.isin([clock[KNOWN], clock[STARTED], *learned.active], (0.0, 1.0)).all()
        if not flags or clock[SINCE] < 0 or clock[DUE] < 1 or not clock[SPREAD] > 0:
            raise ValueError("a clock that cannot be")
        sums = (learned.gram, learned.moment, learned.square, learned.anchor, clock)
        if not all(within(x, MOST) for x in (*sums, *state.regressions)):
            raise ValueError("a posterior that cannot be")
        if (flushed(learned.anchor) != learned.anchor).any():
            raise ValueError("an anchor that cannot be")
        if (state.regressions.information < 0).any() or not within(clock[[SINCE, DUE]], 2.0**53):
            raise ValueError("information that cannot be")
        numbers = learned.numbers
        if not ((numbers >= 1e-15) & (numbers <= 1e9)).all() or numbers[OMEGA] > 1e9 * numbers[TAU]:
            raise ValueError("variances that cannot be")
        relevance = (learned.relevance >= 1e-5) & (learned.relevance <= 1e5)
        if not relevance.all() or not (learned.noise <= 1e15).all():
            raise ValueError("relevance or noise that cannot be")


def copied(learned: Learned) -> Learned:
    """The same with arrays of its own."""
    return Learned._make(array.copy() for array in learned)


def shifted(learned: Learned, anchor: Floats) -> Learned:
    """The same sums, relative to another anchor."""
    y, x = learned.anchor[0] - anchor[0], learned.anchor[1:] - anchor[1:]
    result = copied(learned)
    result.anchor[:] = anchor
    result.square[:] += 2 * y * learned.moment[:, 0] + y * y * learned.gram[:, 0, 0]
    result.moment[:] += y * learned.gram[:, :, 0]
    result.moment[:, 1:] += x * result.moment[:, :1]
    result.gram[:, 1:, :] += x[:, None] * result.gram[:, :1, :]
    result.gram[:, :, 1:] += x * result.gram[:, :, :1]
    return result


def placed(state: AdaptiveState) -> AdaptiveState:
    """The state with its posteriors put in place anew, which does not count as a refresh."""
    clock = state.learned.clock
    if clock[STARTED]:
        since, due = clock[SINCE], clock[DUE]
        refreshed(state, 1, False)
        clock[SINCE], clock[DUE] = since, due
    return state


def refreshed(state: AdaptiveState, passes: int, learning: bool) -> None:
    """Learn the prior anew, or not, and put the posteriors in place."""
    arms = state.regressions
    if isinstance(arms, Rows):  # whose arrays have the shape of the result
        refresh(state.learned, Posteriors(arms.mean, arms.root, arms.information), passes, learning)
        return
    posteriors = blank(*state.learned.moment.shape)
    refresh(state.learned, posteriors, passes, learning)
    set_posteriors(arms, posteriors.mean, posteriors.root)
    arms.information[:] = posteriors.information


@implements(believe, AdaptiveLinear)
def believe_adaptive(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state.regressions, relative(state.learned.anchor, context), arms)
    return believe_predicted(model, state, mean, std, arms, step, rng)


@implements(believe_predicted, AdaptiveLinear)
def believe_predicted_adaptive(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    learned = state.learned
    # Arms with the same history are equal to the last bit, so that chance decides between them and
    # not rounding, which another unit of the features would change.
    grain = GRAIN * np.sqrt(learned.clock[SPREAD])
    for a in range(arms.size):
        mean[a] = np.rint(mean[a] / grain) * grain + learned.anchor[0]
        std[a] = np.rint(std[a] / grain) * grain
    if learned.clock[KNOWN] == 0.0:
        # All rewards were equal, and so are the means: arms that were never tried come first.
        widest = largest_of(std)
        for a in range(arms.size):
            if learned.gram[arms[a], 0, 0] == 0.0:
                std[a] = 2.0 * widest
    pulls, information = evidence(state.regressions, arms)
    return Belief(
        Gaussian(), mean, std, mean, std, pulls, information, step, learned.anchor.size, 1.0
    )


@implements(update, AdaptiveLinear)
def update_adaptive(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    learned = state.learned
    clock, anchor = learned.clock, learned.anchor
    if clock[STARTED] == 0.0:
        clock[STARTED] = 1.0
        anchor[0] = reward
        copy_to(anchor[1:], context)
    z, y = relative(anchor, context), reward - anchor[0]
    add_to_sums(learned, arm, z, y)
    clock[SINCE] += 1.0
    if clock[KNOWN] == 0.0 and y != 0.0:  # the first different reward gives all its scale
        clock[DUE] = clock[SINCE]
    for j in range(1, z.size):
        if z[j] != 0.0 and learned.active[j] == 0.0:
            activate(state, j, z[j])
    learn(state.regressions, arm, z, y, learned.variance[arm])


@implements(training_due, AdaptiveLinear)
def refresh_due(model, state):  # type: ignore[no-untyped-def]
    clock = state.learned.clock
    return clock[SINCE] >= clock[DUE]


@compiled
def add_to_sums(learned, arm, z, y):  # type: ignore[no-untyped-def]
    """Take one observation into the sums, skipping the features that are zero."""
    gram, moment = learned.gram, learned.moment
    for i in range(z.size):
        if z[i] != 0.0:
            zi = z[i]
            for j in range(z.size):
                gram[arm, i, j] += zi * z[j]
            moment[arm, i] += zi * y
    learned.square[arm] += y * y


@compiled
def activate(state, j, z):  # type: ignore[no-untyped-def]
    """A feature varies for the first time, between refreshes: its coefficients get the prior.

    No reward so far says anything about them, so they are independent of all others. The spread of
    the feature is not known yet; the size of its first step serves until the next refresh.
    """
    learned = state.learned
    learned.active[j] = 1.0
    variance = learned.clock[SPREAD] * (learned.numbers[TAU] + learned.numbers[OMEGA])
    std = np.sqrt(variance) / abs(z)
    for k in range(learned.square.size):
        set_spread(state.regressions, k, j, std)


@implements(forget, AdaptiveLinear)
def forget_adaptive(model, state, part, weight):  # type: ignore[no-untyped-def]
    """Let the sums of one arm fade; the prior stays, as it is learned from what remains.

    Until the next refresh, where that is exact, the covariance is divided by the weight.
    """
    state.learned.gram[part] *= weight
    state.learned.moment[part] *= weight
    state.learned.square[part] *= weight
    state.regressions.information[part] *= weight
    state.regressions.pulls[part] *= weight
    widen(state.regressions, part, 1.0 / np.sqrt(weight))
