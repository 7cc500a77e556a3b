"""Clicks: logistic regression of each arm on the context, with a prior that is learned.

    P(click) = σ(βₖᵀ(1, x)),        βₖ ~ N((b, 0, …), diag(τ₀², τ²/v₁, …, τ²/v_d))

with vⱼ the variance of feature j. The posterior of βₖ is kept normal. A click or its absence says
something about η = βₖᵀ(1, x) alone, which was N(c, s²) before; mean and variance of η after it are
integrals over one variable (`tsucb.numeric.logistic`), and the normal law that has them takes the
place of the posterior. (Laplace's method takes the mode and the curvature there instead; for rare
clicks, whose posteriors are skewed, the mode is off by a third of a standard deviation and more.)

In effect the click is taken for a normal reward: the one of variance r and value y, both chosen for
this step, that leads to the same mean and variance of η. So, as for linear rewards, everything seen
is in sums Σ z zᵀ/r and Σ z y/r, z = (1, x − first context), which know nothing of the prior; and
the prior can be changed later. Whenever there are half as many rewards again, b, τ₀², τ² and the vⱼ
are learned anew from these sums (by the EM algorithm for the first three, with a guess that is
worth a few arms).

References: Opper (1998), "A Bayesian approach to on-line learning" (assumed density filtering);
Spiegelhalter and Lauritzen (1990), "Sequential updating of conditional probabilities" (for logits);
Chapelle and Li (2011), "An empirical evaluation of Thompson sampling" (Laplace's method for
clicks).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.logit_normal import LogitNormal, moments
from tsucb.checks import whole_number, within
from tsucb.compiler import implements
from tsucb.models import regressions
from tsucb.models.model import Model, believe, check_arm_count, forget, training_due, update
from tsucb.models.regressions import (
    Regressions,
    arm_posterior,
    evidence,
    learn,
    predict,
    relative,
    set_posteriors,
    widen,
)
from tsucb.numeric.arrays import Floats, Integers, copy_to
from tsucb.numeric.logistic import after_click, most_likely_after_click

# The guess before there is evidence, and what it is worth in arms.
LEVEL = 0.5  # τ₀: arms' click rates differ by a factor of e^0.5 = 1.6
LEVEL_FIRST = 1.5  # until the common level is learned
SLOPES = 0.5  # τ² of all features together
WORTH = 4.0
LEVEL_WORTH = 0.1  # of the guess of b, in arms

FIRST, MORE = 8, 0.5  # rewards until the prior is learned first; then with 1.5 times as many
STEPS = 3  # of the EM algorithm, each time
MOST = 1e100

SINCE, DUE, SEEN = range(3)
COMMON, OWN, SLOPE = range(3)  # b, τ₀², τ²


class Sites(NamedTuple):
    """K arms, p = d + 1 coefficients: what was seen, without the prior, and the prior."""

    precision: Floats  # (K, p, p) Σ z zᵀ / r
    shift: Floats  # (K, p) Σ z y / r
    anchor: Floats  # (p,) 0, then the first context
    centre: Floats  # (p,) mean of z
    square: Floats  # (p,) sum of squares around it
    prior: Floats  # (3,) b, τ₀², τ²
    clock: Floats  # (3,) rewards since the prior was learned, until it will be, and in all


class LogisticState(NamedTuple):
    """Posteriors of K regressions of the log-odds, and what they are made from."""

    regressions: Regressions
    sites: Sites

    @property
    def pulls(self) -> Integers:
        """How often each arm was played."""
        return self.regressions.pulls


class LogisticArms(
    Model, NamedTuple("LogisticArms", [("features", int), ("rate", float), ("laplace", bool)])
):
    """Clicks (rewards of 0 and 1, or between): one logistic regression per arm, on the context.

    Beliefs about click rates have normal logits (`LogitNormalBelief`): they are positive, skewed
    where clicks are rare, and never above one.

    Parameters
    ----------
    features
        d, the length of a context; 0 for none. A constant need not be among them, nor need they
        have any particular scale.
    rate
        A guess of how often an arm is clicked. It is forgotten after some dozens of rewards.
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

    __slots__ = ()

    def __new__(cls, features: int, rate: float = 0.05, laplace: bool = False) -> "LogisticArms":
        if not 1e-9 <= rate <= 1 - 1e-9:
            raise ValueError(f"rate must be between 0 and 1, but it is {rate}")
        return super().__new__(
            cls, whole_number("features", features, least=0), float(rate), bool(laplace)
        )

    def start(self, arms: int, rng: np.random.Generator | None = None) -> LogisticState:
        """The state before any data: every arm is clicked at the guessed rate, roughly."""
        arms, p = check_arm_count(arms), self.features + 1
        common = math.log(self.rate / (1 - self.rate))
        root = np.zeros((p, p))  # nothing is known of the features' scales
        root[0, 0] = LEVEL_FIRST
        return LogisticState(
            regressions.start(arms, np.append(common, np.zeros(p - 1)), root),
            Sites(
                precision=np.zeros((arms, p, p)),
                shift=np.zeros((arms, p)),
                anchor=np.zeros(p),
                centre=np.zeros(p),
                square=np.zeros(p),
                prior=np.array([common, LEVEL**2, SLOPES / max(self.features, 1)]),
                clock=np.array([0.0, FIRST, 0.0]),
            ),
        )

    def extend(self, state: LogisticState, arms: int) -> LogisticState:
        """A state with further arms at the end, each with the prior as it was learned."""
        new = self.start(arms)
        old = state.sites
        joined = LogisticState(
            regressions.concatenate(state.regressions, new.regressions),
            Sites(
                np.concatenate((old.precision, new.sites.precision)),
                np.concatenate((old.shift, new.sites.shift)),
                *(array.copy() for array in old[2:]),
            ),
        )
        if old.clock[SEEN] >= FIRST:
            settle(joined)
        return joined

    def trainer(self, states: Sequence[LogisticState]) -> Callable[[], None]:
        """What learns the prior anew from all that these states have seen."""

        def train() -> None:
            for state in states:
                for _ in range(STEPS):
                    learn_prior(state, math.log(self.rate / (1 - self.rate)))
                settle(state)
                clock = state.sites.clock
                clock[SINCE], clock[DUE] = 0.0, max(FIRST, math.ceil(MORE * clock[SEEN]))

        return train

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d,), the same for all arms; none without features."""
        return (self.features,) if self.features else ()

    def coefficients(self, state: LogisticState, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the log-odds at x = 0, and of every coefficient."""
        mean, root = arm_posterior(state.regressions, arm)
        anchor = state.sites.anchor[1:]
        mean[0] -= anchor @ mean[1:]
        root[0] -= anchor @ root[1:]
        return mean, np.sqrt((root**2).sum(axis=1))

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The log-odds at x = 0, then the features."""
        return ["constant", *features]

    def check_rewards(self, rewards: Floats) -> Floats:
        """The rewards, or a sentence on what is wrong with them."""
        if not ((rewards >= 0) & (rewards <= 1)).all():
            raise ValueError("a click is 1 and none is 0, or a reward between; rescale the rewards")
        return rewards

    def check_state(self, state: LogisticState, rewards: int) -> None:
        """Raise a ValueError for sums or posteriors that data cannot have led to."""
        sites, pulls = state.sites, state.pulls
        regressions.check_triangular(state.regressions)
        if (pulls < 0).any() or (pulls > rewards).any() or not 0 <= sites.clock[SEEN] <= rewards:
            raise ValueError("counts of pulls that cannot be")
        diagonal = np.einsum("kii->ki", sites.precision)
        symmetric = np.allclose(sites.precision, sites.precision.transpose(0, 2, 1), atol=0)
        if (diagonal < 0).any() or (sites.square < 0).any() or not symmetric:
            raise ValueError("sums of squares that cannot be")
        if not all(within(array, MOST) for array in (*sites, *state.regressions)):
            raise ValueError("a posterior that cannot be")
        variances = sites.prior[OWN:]
        if not ((variances > 1e-12) & (variances < 1e12)).all() or abs(sites.prior[COMMON]) > 1e6:
            raise ValueError("a prior that cannot be")
        if sites.clock[SINCE] < 0 or sites.clock[DUE] < 1:
            raise ValueError("a clock that cannot be")
        if (state.regressions.information < 0).any():
            raise ValueError("information that cannot be")


def standardising(sites: Sites) -> Floats:
    """A with z̃ = A z: the constant, and features of mean 0 and variance 1 as far as is known."""
    variance = sites.square[1:] / max(sites.clock[SEEN], 1.0)
    scale = np.where(variance > 1e-300, 1 / np.sqrt(np.maximum(variance, 1e-300)), 1.0)
    A = np.diag(np.append(1.0, scale))
    A[1:, 0] = -scale * sites.centre[1:]
    return A


def posteriors(sites: Sites) -> tuple[Floats, Floats, Floats]:
    """Mean (K, p), covariance root (K, p, p) and information (K,) in standardised coordinates."""
    A = standardising(sites)
    p = len(A)
    common, own, slope = sites.prior
    scale = np.sqrt(np.append(own, np.full(p - 1, slope)))
    # In units of the prior, precisions are I + (positive semidefinite): nothing can go wrong.
    turn = scale[:, None] * A
    whole = np.eye(p) + turn @ sites.precision @ turn.T
    prior = np.append(common / scale[0], np.zeros(p - 1))
    lower = np.linalg.cholesky(whole)
    inverse = np.linalg.inv(lower)
    moment = sites.shift @ turn.T + prior
    mean = np.einsum("kji,kj->ki", inverse, np.einsum("kij,kj->ki", inverse, moment))
    root = scale[:, None] * inverse.transpose(0, 2, 1)
    information = 2 * np.log(np.einsum("kii->ki", lower)).sum(axis=1)
    return mean * scale, root, np.maximum(information, 0.0)


def settle(state: LogisticState) -> None:
    """Put the posteriors that prior and sums lead to in place."""
    A = standardising(state.sites)
    mean, root, information = posteriors(state.sites)
    set_posteriors(state.regressions, mean @ A, A.T @ root)
    state.regressions.information[:] = information


def learn_prior(state: LogisticState, guess: float) -> None:
    """One step of the EM algorithm for b, τ₀² and τ², from the arms that were tried."""
    sites = state.sites
    tried = state.pulls > 0
    count, d = int(tried.sum()), sites.centre.size - 1
    mean, root, _ = posteriors(sites)
    variance = (root**2).sum(axis=2)[tried]
    mean = mean[tried]
    prior = sites.prior
    prior[COMMON] = (mean[:, 0].sum() + LEVEL_WORTH * guess) / (count + LEVEL_WORTH)
    level = ((mean[:, 0] - prior[COMMON]) ** 2 + variance[:, 0]).sum()
    prior[OWN] = (level + WORTH * LEVEL**2) / (count + WORTH)
    if d:
        slopes = (mean[:, 1:] ** 2 + variance[:, 1:]).sum() / d
        prior[SLOPE] = (slopes + WORTH * SLOPES / d) / (count + WORTH)


@implements(believe, LogisticArms)
def believe_logistic(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    anchor = state.sites.anchor
    centre, scale = predict(state.regressions, relative(anchor, context), arms)
    mean, std = moments(centre, scale)
    pulls, information = evidence(state.regressions, arms)
    return Belief(
        LogitNormal(centre, scale), mean, std, mean, std, pulls, information, step, anchor.size, 1.0
    )


@implements(update, LogisticArms)
def update_logistic(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    sites = state.sites
    clock, anchor = sites.clock, sites.anchor
    if clock[SEEN] == 0.0:
        copy_to(anchor[1:], context)
    z = relative(anchor, context)
    centres, scales = predict(state.regressions, z, np.array([arm]))
    centre, scale = centres[0], scales[0]
    if model.laplace:
        shift, part = most_likely_after_click(centre, scale, reward)
    else:
        shift, part = after_click(centre, scale, reward)
    # The normal reward that moves the mean so far and takes this part of the variance away.
    value = centre + scale * shift / part
    variance = scale * scale * (1.0 - part) / part
    learn(state.regressions, arm, z, value, variance)
    clock[SINCE] += 1.0
    clock[SEEN] += 1.0
    for i in range(z.size):
        away = z[i] - sites.centre[i]
        sites.centre[i] += away / clock[SEEN]
        sites.square[i] += away * (z[i] - sites.centre[i])
        sites.shift[arm, i] += z[i] * value / variance
        for j in range(z.size):
            sites.precision[arm, i, j] += z[i] * z[j] / variance


@implements(training_due, LogisticArms)
def prior_due(model, state):  # type: ignore[no-untyped-def]
    clock = state.sites.clock
    return clock[SINCE] >= clock[DUE]


@implements(forget, LogisticArms)
def forget_logistic(model, state, part, weight):  # type: ignore[no-untyped-def]
    """Let the sums of one arm fade; the prior stays, as it is learned from what remains.

    Until it is learned anew, where that is exact, the covariance is divided by the weight.
    """
    sites, arms, clock = state.sites, state.regressions, state.sites.clock
    if arms.pulls[part] == 0.0:
        return
    # Mean and variance of the features stay, and count for fewer contexts.
    before, kept = clock[SEEN], weight * arms.pulls[part]
    clock[SEEN] = max(before - arms.pulls[part] + kept, kept)
    for i in range(sites.square.size):
        sites.square[i] *= clock[SEEN] / before
        sites.shift[part, i] *= weight
        for j in range(sites.square.size):
            sites.precision[part, i, j] *= weight
    arms.information[part] *= weight
    arms.pulls[part] *= weight
    widen(arms, part, 1.0 / np.sqrt(weight))
