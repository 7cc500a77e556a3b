"""Clicks: a logistic regression of each arm on the context, with a learned prior.

    P(click) = σ(βₖᵀ(1, x)),        βₖ ~ N((b, 0, …), diag(τ₀², τ²/v₁, …, τ²/v_d))

with vⱼ the variance of feature j. The posterior of βₖ is kept normal. A reward only depends on
η = βₖᵀ(1, x), which was N(c, s²) before; the mean and variance of η after the reward are integrals
over one variable (`tsucb.numeric.logistic`), and the normal law with this mean and variance
replaces the posterior. (Laplace's method takes the mode and the curvature there instead. For rare
clicks, whose posteriors are skewed, the mode is off by a third of a standard deviation and more.)

So a click counts as a normal reward, of the value y and variance r that lead to the same mean and
variance of η. As for linear rewards, all data are in sums Σ z zᵀ/r and Σ z y/r with
z = (1, x − first context). They do not depend on the prior, which can be changed later: each time
there are half as many rewards again, b, τ₀², τ² and the vⱼ are learned again from these sums (the
first three by the EM algorithm, with a guess that is worth a few arms). Without features an arm's
clicks and pulls are all data, and its posterior is computed from them by quadrature.

References: Opper (1998), "A Bayesian approach to on-line learning" (assumed density filtering);
Spiegelhalter and Lauritzen (1990), "Sequential updating of conditional probabilities" (for logits);
Chapelle and Li (2011), "An empirical evaluation of Thompson sampling" (Laplace's method for
clicks).
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.logit_normal import LogitNormal, moments
from tsucb.checks import Natural, Switch, number
from tsucb.compiler import implements
from tsucb.models.empirical_bayes import (
    ArmRegressions,
    Learned,
    Scales,
    activate,
    add_products,
    arm_factors,
    drop_anchor,
    fade_posterior,
    relative,
    returned,
    survey,
)
from tsucb.models.model import belief, forget, update
from tsucb.models.regressions import Rows, evidence, learn, predict
from tsucb.models.state import array, fade_arm, nested, sums
from tsucb.numeric.arrays import Floats
from tsucb.numeric.logistic import after_click, most_likely_after_click

# The guess before there is evidence.
LEVELS = 0.25  # τ₀²: arms' click rates differ by a factor of e^0.5 = 1.6
LEVEL_FIRST = 3.0  # τ₀ until the common level is learned
SLOPES = 0.5  # τ², for all features together
WORTH = 4.0  # arms that the guess is worth
LEVEL_WORTH = 0.1  # arms that the rate of all rewards is worth, as a guess of b
EXTRA = 1.0  # information that an arm's rewards may have beyond n p (1 − p)
LEAST_CLICKS = 3.0  # clicks, and rewards without one, before arms learn from each other

FIRST, MORE = 8, 0.5  # rewards before the prior is learned; then after this share of more rewards
MOST_LEVEL, MOST_VARIANCE = 1e3, 1e6  # limits of log-odds and their variances
STEPS = 3  # of the EM algorithm, at each refresh
NODES = np.linspace(-8.0, 8.0, 161)  # of the quadrature, in standard deviations


class LogisticState(Learned):
    """Posteriors of K regressions of the log-odds, and the sums they are made from.

    `moments` are Σ z zᵀ/r with Σ z y/r as a last column; `totals` begins with the number of
    contexts.
    """

    level: Floats = array(least=-MOST_LEVEL, most=MOST_LEVEL)  # b
    totals: Floats = sums("coefficient")  # Σ z
    squares: Floats = sums("coefficient", least=0.0)  # Σ z²
    clicks: Floats = sums("arm", least=0.0)  # Σ rewards
    regressions: Rows = nested(Rows)

    @property
    def pulls(self) -> Floats:
        """How often each arm was played."""
        return self.regressions.pulls

    def check(self, rewards: int) -> None:
        """Raise ValueError also for more contexts than rewards."""
        super().check(rewards)
        if not 0 <= self.totals[0] <= rewards * (1 + 1e-9):
            raise ValueError("totals must not have more contexts than there were rewards")


class LogisticPosteriors(NamedTuple):
    """The posteriors of the log-odds' coefficients, whitened by the prior's standard deviations."""

    scale: Floats  # (p,) E^½
    mean: Floats  # (K, p)
    inverse: Floats  # (K, p, p) Lₖ⁻¹: the covariances are Lₖ⁻ᵀ Lₖ⁻¹


class LogisticArms(ArmRegressions):
    """Clicks (rewards of 0 and 1, or between): one logistic regression per arm, on the context.

    Beliefs about click rates have normal logits (`LogitNormalBelief`): rates are between 0 and 1,
    and skewed where clicks are rare.

    Parameters
    ----------
    features
        d, the length of a context; 0 for none. A constant need not be among them, nor need they
        have any particular scale.
    rate
        A guess of an arm's click rate, used until there were three clicks.
    laplace
        Approximate the posterior by Laplace's method instead of by its mean and variance.

    >>> import numpy as np
    >>> model = LogisticArms(features=1)
    >>> x, arms = np.linspace(-2, 2, 400)[:, None], np.arange(400) % 2
    >>> state = model.fit(2, x, arms, ((x[:, 0] > 0) == (arms == 0)).astype(float))
    >>> belief = model.belief(state, [1.5], rng=np.random.default_rng(0))
    >>> bool(belief.mean[0] > 0.9), bool(belief.mean[1] < 0.1)
    (True, True)
    """

    state = LogisticState
    largest = 1e20  # smaller than elsewhere, as sums are divided by the variances r

    features: Natural
    rate: Annotated[float, number("be between 0 and 1", lambda x: 1e-9 <= x <= 1 - 1e-9)] = 0.05
    laplace: Switch = False

    @property
    def steps(self) -> int:
        """Three steps of the EM algorithm."""
        return STEPS

    def prior(self, state: LogisticState, rng: np.random.Generator | None = None) -> None:
        """Write a wide prior around the guessed rate into a blank state, in place."""
        p = self.features + 1
        state.active[0], state.due[0] = True, FIRST
        # Nothing is known of the features' scales yet.
        common = math.log(self.rate / (1 - self.rate))
        mean, std = common * np.eye(1, p)[0], LEVEL_FIRST * np.eye(1, p)[0]
        state.regressions.set_posteriors(mean, np.diag(std))

    def settle(self, state: LogisticState) -> None:
        """Install the posteriors that follow from the sums, once the prior was learned."""
        if state.known[0]:
            super().settle(state)

    def refresh(self, state: LogisticState, steps: int) -> None:
        """Learn the prior again, once there were `LEAST_CLICKS`, and as many other rewards."""
        clicks, count = state.clicks.sum(), state.totals[0]
        if min(clicks, count - clicks) >= LEAST_CLICKS or state.known[0]:
            super().refresh(state, steps)
        else:  # rewards that fade leave no posterior wider than the first prior
            state.due[0] = FIRST
            np.minimum(state.regressions.root, LEVEL_FIRST, out=state.regressions.root)

    def rewards_until_due(self, weight: float) -> float:
        """Return after how many rewards the next refresh is due, given the weight of all so far."""
        return max(FIRST, math.ceil(MORE * weight))

    def scales(self, state: LogisticState) -> Scales:
        """Return the scales of the features; note which of them have varied, in place."""
        scales = survey(state.totals, state.squares, (1.0, 0.0, 0.0))._replace(known=True)
        state.active[:] = scales.inverse > 0.0
        return scales

    def guess(self, state: LogisticState, scales: Scales) -> None:
        """Set b to the rate of all rewards, and τ₀² and τ² to the guess, in place."""
        state.level[0], state.levels[0] = pooled(state), LEVELS
        state.slopes[0] = SLOPES / max(self.features, 1)

    def solve(self, state: LogisticState, scales: Scales) -> LogisticPosteriors:
        """Return the posteriors that follow from sums and prior."""
        p = self.features + 1
        # The uncertainty about b adds to the variance between arms.
        tried = max(int(np.count_nonzero(state.pulls)), 1)
        levels = state.levels * (1.0 + 1.0 / tried) + 1.0 / (state.clicks.sum() + 0.5)
        if not self.features:
            return solve_without_features(state, levels[0])
        scale = np.sqrt(np.append(levels, np.full(p - 1, state.slopes)) * state.active)
        # Normal rewards in place of rare clicks have too much information: n rewards at the rate p
        # have no more than n p (1 − p) about the log-odds.
        most = state.clicks * (1.0 - state.clicks / np.maximum(state.pulls, 1e-9)) + EXTRA
        excess = np.maximum(state.weights / np.maximum(most, EXTRA), 1.0)[:, None, None]
        inverse, whole = arm_factors(state.moments, scales, p - 1, scale, excess)
        moment = whole[:, :, p]
        moment[:, 0] += state.level / scale[0]
        mean = np.einsum("kji,kj->ki", inverse, np.einsum("kij,kj->ki", inverse, moment))
        return LogisticPosteriors(scale, mean, inverse)

    def improve(self, state: LogisticState, scales: Scales, found: LogisticPosteriors) -> None:
        """Take a step of the EM algorithm for b, τ₀² and τ², with the tried arms, in place."""
        tried, d = state.pulls > 0, self.features
        count = int(tried.sum())
        mean = (found.mean * found.scale)[tried]
        variance = ((found.inverse**2).sum(axis=1) * found.scale**2)[tried]
        level = (mean[:, 0].sum() + LEVEL_WORTH * pooled(state)) / (count + LEVEL_WORTH)
        state.level[0] = min(max(level, -MOST_LEVEL), MOST_LEVEL)
        levels = ((mean[:, 0] - state.level) ** 2 + variance[:, 0]).sum()
        state.levels[0] = min((levels + WORTH * LEVELS) / (count + WORTH), MOST_VARIANCE)
        if d:
            slopes = (mean[:, 1:] ** 2 + variance[:, 1:]).sum() / d
            state.slopes[0] = min((slopes + WORTH * SLOPES / d) / (count + WORTH), MOST_VARIANCE)

    def install(self, state: LogisticState, scales: Scales, found: LogisticPosteriors) -> None:
        """Write the posteriors into the state, in coordinates relative to the anchor."""
        both = np.concatenate((found.mean[:, :, None], found.inverse.swapaxes(1, 2)), axis=2)
        both = returned(both * found.scale[:, None], scales, self.features)
        state.regressions.set_posteriors(both[:, :, 0], both[:, :, 1:])
        information = -2.0 * np.log(np.einsum("kii->ki", found.inverse)).sum(axis=1)
        state.regressions.information[:] = np.maximum(information, 0.0)

    def check_rewards(self, rewards: Floats) -> Floats:
        """Return the rewards; raise ValueError if one is not from 0 to 1."""
        if not ((rewards >= 0) & (rewards <= 1)).all():
            raise ValueError("a click is 1 and none is 0, or a reward between; rescale the rewards")
        return rewards


def solve_without_features(state: LogisticState, levels: float) -> LogisticPosteriors:
    """Return the posteriors of the log-odds, by quadrature over each arm's clicks and pulls."""
    from scipy.special import digamma, polygamma

    yes, no = state.clicks, np.maximum(state.pulls - state.clicks, 0.0)
    # Nodes around a normal approximation: with Jeffreys' prior, rates have a beta law.
    precision = (state.pulls > 0) / (polygamma(1, yes + 0.5) + polygamma(1, no + 0.5))
    total = precision + 1.0 / levels
    centre = precision * (digamma(yes + 0.5) - digamma(no + 0.5)) + state.level / levels
    nodes = (centre / total)[:, None] + NODES / np.sqrt(total)[:, None]
    density = -(yes[:, None] * np.logaddexp(0.0, -nodes) + no[:, None] * np.logaddexp(0.0, nodes))
    density -= (nodes - state.level) ** 2 / (2.0 * levels)
    chance = np.exp(density - density.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    mean = (chance * nodes).sum(axis=1, keepdims=True)
    std = np.sqrt((chance * (nodes - mean) ** 2).sum(axis=1))
    scale = math.sqrt(levels)
    return LogisticPosteriors(np.array([scale]), mean / scale, std[:, None, None] / scale)


def pooled(state: LogisticState) -> float:
    """Return the log-odds of a click over all rewards."""
    clicks = state.clicks.sum() + 0.5
    return math.log(clicks / (state.totals[0] + 1.0 - clicks))


@implements(belief, LogisticArms)
def belief_of_logistic(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    anchor = state.anchor
    centre, scale = predict(state.regressions, relative(anchor, context, 0.0)[:-1], arms)
    mean, std = moments(centre, scale)
    pulls, information = evidence(state.regressions, arms)
    return Belief(
        LogitNormal(centre, scale), mean, std, mean, std, pulls, information, step, anchor.size, 1.0
    )


@implements(update, LogisticArms)
def update_logistic(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    drop_anchor(state, 0.0, context)
    full = relative(state.anchor, context, 0.0)
    z = full[:-1]
    if state.known[0]:
        for j in range(1, z.size):
            if z[j] != 0.0 and not state.active[j]:
                activate(state, j, state.slopes[0], z[j])
    centres, scales = predict(state.regressions, z, np.array([arm]))
    centre, scale = centres[0], scales[0]
    if model.laplace:
        shift, part = most_likely_after_click(centre, scale, reward)
    else:
        shift, part = after_click(centre, scale, reward)
    # The normal reward that moves the mean and shrinks the variance by as much.
    value = centre + scale * shift / part
    variance = scale * scale * (1.0 - part) / part
    learn(state.regressions, arm, z, value, variance)
    state.due[0] -= 1.0
    state.clicks[arm] += reward
    full[z.size] = value
    add_products(state.moments[arm], full, 1.0 / variance)
    for i in range(z.size):
        state.totals[i] += z[i]
        state.squares[i] += z[i] * z[i]


@implements(forget, LogisticArms)
def forget_logistic(model, state, weight):  # type: ignore[no-untyped-def]
    """Let the sums of all arms fade; the prior is learned from what remains.

    Covariances are divided by the weight until the next refresh, which computes them exactly.
    """
    arms = state.regressions
    for k in range(arms.pulls.size):
        if arms.pulls[k] == 0.0:
            continue
        # Mean and variance of the features stay, with the weight of fewer contexts.
        seen, kept = state.totals[0], weight * arms.pulls[k]
        left = max(seen - arms.pulls[k] + kept, kept) / seen
        fade_arm(state, k, weight)
        for i in range(state.totals.size):
            state.totals[i] *= left
            state.squares[i] *= left
        fade_posterior(state, k, weight)
