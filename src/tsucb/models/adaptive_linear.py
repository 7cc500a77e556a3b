"""One vector of coefficients per arm, and a prior that fits itself to the data."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import Natural
from tsucb.compiler import compiled, implements
from tsucb.models.empirical_bayes import (
    GREATEST,
    LEAST,
    LEAST_ARM_NOISE,
    NOISE,
    PASSES,
    SLOPES,
    SMALL,
    LinearLearned,
    blank,
    refresh,
)
from tsucb.models.model import (
    Model,
    believe,
    believe_predicted,
    forget,
    training_due,
    update,
)
from tsucb.models.regressions import (
    Regressions,
    evidence,
    learn,
    predict,
    predict_many,
    relative,
    set_spread,
    widen,
)
from tsucb.models.state import Places, array, nested
from tsucb.numeric.arrays import Floats, Integers, copy_to, largest_of

SETTLED = 30  # steps of the numbers after which they depend on the sums alone
GRAIN = 2.0**-36  # of the rewards' spread: arms that differ by less are equal


class AdaptiveState(LinearLearned):
    """Posteriors of K regressions relative to the anchor, and what they are made from."""

    common: Floats = array(start=SLOPES, least=LEAST, most=GREATEST)  # ω²
    relevance: Floats = array("coefficient", start=1.0, least=1e-5, most=1e5)  # rⱼ
    arm_noise: Floats = array("arm", start=1.0, least=LEAST_ARM_NOISE / 2, most=1e15)  # σₖ² / σ²
    # The noise variance with which each arm learns until the next refresh.
    variance: Floats = array("arm", start=NOISE, least=1e-100)
    regressions: Regressions = nested(Regressions)

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.regressions.pulls

    def merged(self, other: Any, base: Any) -> Self:
        """Return the state with the sums of both; posteriors are left to `settle`."""
        moved, before = (
            state.shifted(self.anchor)._replace(regressions=self.regressions)
            for state in (other, base)
        )
        result = super().merged(moved, before)
        result.pulls[:] = self.pulls + other.pulls - base.pulls
        if (result.weights < 0).any():
            raise ValueError("the base has seen more than what was learned from it")
        return result

    def shifted(self, anchor: Floats) -> Self:
        """Return the state with the same sums, relative to another anchor."""
        result = self.copy()
        if self.started[0]:
            y, x = self.anchor[0] - anchor[0], self.anchor[1:] - anchor[1:]
            result.square[:] += 2 * y * self.moments[:, 0, -1] + y * y * self.weights
            result.moments[:, :, -1] += y * self.moments[:, :, 0]
            result.moments[:, 1:] += x[:, None] * result.moments[:, :1]
            result.moments[:, :, 1:-1] += x * result.moments[:, :, :1]
            result.anchor[:] = anchor
        return result


class AdaptiveLinear(Model):
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

    state = AdaptiveState
    merges = True

    features: Natural

    def sizes(self) -> dict[str, int]:
        """Return p = d + 1 for everything but columns, which have the reward, too."""
        p = self.features + 1
        return {"coefficient": p, "own": p, "row": p, "column": p + 1}

    def prior(self, state: AdaptiveState, rng: np.random.Generator | None = None) -> None:
        """Give every arm N(0, 1), in units that have no meaning yet, in place."""
        state.active[0] = True
        state.slopes[0] = state.common[0] = SLOPES / (self.features + 1)
        self.settle(state)

    def settle(self, state: AdaptiveState) -> None:
        """Put the posteriors in place that follow from sums and prior."""
        if state.started[0]:
            refreshed(state, 1, False)
        else:
            root = np.zeros((self.features + 1, self.features + 1))
            root[0, 0] = 1.0
            state.regressions.set_posteriors(0.0, root)

    def extend(self, state: AdaptiveState, arms: int) -> AdaptiveState:
        """Return a state with further arms at the end, which start where the others are."""
        longer = state.joined(self.start(arms))
        longer.arm_noise[-arms:] = max(1.0, state.arm_noise.mean() if state.pulls.size else 1.0)
        self.settle(longer)
        return longer

    def widened(self, features: int) -> "AdaptiveLinear":
        """Return the model for contexts with more features."""
        return AdaptiveLinear(features)

    def places(self, wide: "AdaptiveLinear", features: Integers | None) -> Places:
        """Return where constant, features and reward are in a state of the wide model."""
        new = np.append(0, 1 + (np.arange(self.features) if features is None else features))
        both = np.arange(new.size), new
        column = np.append(both[0], self.features + 1), np.append(new, wide.features + 1)
        return {"coefficient": both, "own": both, "row": both, "column": column}

    def merged(
        self, first: AdaptiveState, second: AdaptiveState, base: AdaptiveState
    ) -> AdaptiveState:
        """Return the state of both histories; scales, noise and prior are learned from scratch."""
        if not first.started[0]:
            first, second = second, first
        result: AdaptiveState = super().merged(first, second, base)
        if result.started[0]:
            result.known[0] = False  # the numbers begin at the guess
            refreshed(result, SETTLED, True)
        return result

    def trainer(self, states: Sequence[AdaptiveState]) -> Callable[[], None]:
        """What learns the prior anew from all that these states have seen."""

        def train() -> None:
            for state in states:
                refreshed(state, PASSES if self.features < SMALL else 1, True)

        return train

    def predictions(
        self, state: AdaptiveState, contexts: Floats, arms: Integers
    ) -> tuple[Floats, Floats]:
        """Moments of the arms' rewards at many contexts, relative to the anchor."""
        anchor = state.anchor
        z = np.empty((len(contexts), anchor.size))
        z[:, 0] = 1.0
        np.subtract(contexts, anchor[1:], out=z[:, 1:])
        return predict_many(state.regressions, z, arms)

    def coefficients(self, state: AdaptiveState, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the reward at x = 0, and of every coefficient."""
        means, roots = state.regressions.by_arm()
        mean, root, anchor = means[arm].copy(), roots[arm].copy(), state.anchor
        mean[0] += anchor[0] - anchor[1:] @ mean[1:]
        root[0] -= anchor[1:] @ root[1:]
        return mean, np.sqrt((root**2).sum(axis=1))

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The reward at x = 0, then the features."""
        return ["constant", *features]

    def check_state(self, state: AdaptiveState, rewards: int) -> None:
        """Raise ValueError also for weights of more rewards than there were."""
        super().check_state(state, rewards)
        if (state.weights > rewards).any():
            raise ValueError("moments have more weight than there were rewards")


def refreshed(state: AdaptiveState, passes: int, learning: bool) -> None:
    """Learn the prior again, or not, and put the posteriors in place."""
    posteriors = blank(*state.moments.shape[:2])
    refresh(state, posteriors, passes, learning)
    state.regressions.set_posteriors(posteriors.mean, posteriors.root)
    state.regressions.information[:] = posteriors.information


@implements(believe, AdaptiveLinear)
def believe_adaptive(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = predict(state.regressions, relative(state.anchor, context), arms)
    return believe_predicted(model, state, mean, std, arms, step, rng)


@implements(believe_predicted, AdaptiveLinear)
def believe_predicted_adaptive(model, state, mean, std, arms, step, rng):  # type: ignore[no-untyped-def]
    # Arms with the same history are equal to the last bit, so that chance decides between them and
    # not rounding, which another unit of the features would change.
    grain = GRAIN * np.sqrt(state.spread[0])
    for a in range(arms.size):
        mean[a] = np.rint(mean[a] / grain) * grain + state.anchor[0]
        std[a] = np.rint(std[a] / grain) * grain
    if not state.known[0]:
        # All rewards were equal, and so are the means: arms that were never tried come first.
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
    anchor = state.anchor
    if not state.started[0]:
        state.started[0] = True
        anchor[0] = reward
        copy_to(anchor[1:], context)
    z, y = relative(anchor, context), reward - anchor[0]
    add_to_sums(state, arm, z, y)
    state.due[0] -= 1.0
    if not state.known[0] and y != 0.0:  # the first different reward gives all its scale
        state.due[0] = 0.0
    for j in range(1, z.size):
        if z[j] != 0.0 and not state.active[j]:
            activate(state, j, z[j])
    learn(state.regressions, arm, z, y, state.variance[arm])


@implements(training_due, AdaptiveLinear)
def refresh_due(model, state):  # type: ignore[no-untyped-def]
    return state.due[0] <= 0.0


@compiled
def add_to_sums(state, arm, z, y):  # type: ignore[no-untyped-def]
    """Add one observation to the sums, skipping features that are zero."""
    moments, p = state.moments, z.size
    for i in range(p):
        if z[i] != 0.0:
            zi = z[i]
            for j in range(p):
                moments[arm, i, j] += zi * z[j]
            moments[arm, i, p] += zi * y
    state.square[arm] += y * y


@compiled
def activate(state, j, z):  # type: ignore[no-untyped-def]
    """Give the coefficients of a feature that varies for the first time their prior.

    No reward so far says anything about them, so they are independent of all others. The spread of
    the feature is not known yet; the size of its first step serves until the next refresh.
    """
    state.active[j] = True
    std = np.sqrt(state.spread[0] * (state.slopes[0] + state.common[0])) / abs(z)
    for k in range(state.square.size):
        set_spread(state.regressions, k, j, std)


@implements(forget, AdaptiveLinear)
def forget_adaptive(model, state, part, weight):  # type: ignore[no-untyped-def]
    """Let the sums of one arm fade; the prior stays, as it is learned from what remains.

    Until the next refresh, where that is exact, the covariance is divided by the weight.
    """
    state.moments[part] *= weight
    state.square[part] *= weight
    state.regressions.information[part] *= weight
    state.regressions.pulls[part] *= weight
    widen(state.regressions, part, 1.0 / np.sqrt(weight))
