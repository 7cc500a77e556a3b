"""K independent arms without context: successes, counts or normal rewards."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.beta import Beta
from tsucb.beliefs.gamma import Gamma
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import LARGEST, positive, truth, within
from tsucb.compiler import compiled, implements
from tsucb.models.model import Model, believe, check_arm_count, forget, update
from tsucb.numeric.arrays import Floats, Integers, taken

FADED = 1e-200  # pulls that are forgotten


class ArmTotals(NamedTuple):
    """What K independent arms have earned: pulls N (K,) and summed rewards (K,)."""

    pulls: Integers
    rewards: Floats


class KArmed(Model):
    """What the K-armed models share: no context, and totals as a state."""

    __slots__ = ()
    empirical: bool

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        return 1 if self.empirical else 0

    def start(self, arms: int, rng: np.random.Generator | None = None) -> ArmTotals:
        """The state before any data."""
        arms = check_arm_count(arms)
        return ArmTotals(np.zeros(arms, dtype=np.int64), np.zeros(arms))

    def extend(self, state: ArmTotals, arms: int) -> ArmTotals:
        """A state with further arms at the end, each with the prior."""
        new = self.start(arms)
        return ArmTotals(*(np.concatenate(pair) for pair in zip(state, new, strict=True)))

    def merged(self, first: ArmTotals, second: ArmTotals, base: ArmTotals) -> ArmTotals:
        """Pulls and rewards add up."""
        return ArmTotals._make(a + b - c for a, b, c in zip(first, second, base, strict=True))

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """K-armed models have no context."""
        return ()

    def coefficients(self, state: ArmTotals, arm: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the arm's mean reward."""
        belief = self.belief(state, None, [arm], rng=np.random.default_rng(0))
        return belief.mean, belief.std

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The one parameter is the mean reward."""
        return ["mean reward"]

    def check_state(self, state: ArmTotals, rewards: int) -> None:
        """Totals must be those of rewards that could have come."""
        if (state.pulls < 0).any() or (state.pulls > rewards).any():
            raise ValueError("counts of pulls that cannot be")
        # What is forgotten fades to nothing, where the two are rounded differently.
        tried = state.pulls > FADED
        self.check_rewards(state.rewards[tried] / state.pulls[tried] * (1 - 1e-9))
        if not within(state.rewards[~tried], LARGEST * FADED):
            raise ValueError("rewards without pulls")


class BernoulliArms(
    KArmed, NamedTuple("BernoulliArms", [("alpha", float), ("beta", float), ("empirical", bool)])
):
    """Arms that succeed with unknown probabilities, independent Beta(alpha, beta) a priori.

    A reward strictly between 0 and 1 counts as that fraction of a success: the posterior is
    Beta(alpha + Σ r, beta + Σ (1 − r)).

    Parameters
    ----------
    alpha, beta
        The Beta prior of every arm.
    empirical
        True: estimate and radius are the paper's, the average reward and 1/√N (equation (4)
        without the factor √(3 log T), which cancels in TS-UCB), and every arm is pulled once
        first. False: posterior mean and standard deviation, as in the linear models.

    >>> import numpy as np
    >>> model = BernoulliArms()
    >>> state = model.fit(arms=2, contexts=None, pulled=[0, 0, 1], rewards=[1, 1, 0])
    >>> model.belief(state, rng=np.random.default_rng(0)).mean
    array([0.75      , 0.33333333])

    Reference: Baek and Farias (2023), Sections 2.1 and 3.2.
    """

    __slots__ = ()

    def __new__(
        cls, alpha: float = 1.0, beta: float = 1.0, empirical: bool = True
    ) -> "BernoulliArms":
        return super().__new__(
            cls, positive("alpha", alpha), positive("beta", beta), bool(empirical)
        )

    def check_rewards(self, rewards: Floats) -> Floats:
        """The rewards, or a sentence on what is wrong with them."""
        if not ((rewards >= 0) & (rewards <= 1)).all():
            raise ValueError("a Bernoulli reward lies between 0 and 1; rescale the rewards")
        return rewards


class PoissonArms(
    KArmed, NamedTuple("PoissonArms", [("shape", float), ("rate", float), ("empirical", bool)])
):
    """Arms that pay counts (orders, calls) with unknown rates, independent gammas a priori.

    The posterior is Gamma(shape + Σ r, rate + N); its mean is (shape + Σ r) / (rate + N). A reward
    need not be whole, but not negative.

    Parameters
    ----------
    shape, rate
        The gamma prior of every arm's rate; its mean is shape / rate.
    empirical
        Estimate and radius as in `BernoulliArms`.

    >>> import numpy as np
    >>> model = PoissonArms()
    >>> state = model.fit(arms=2, contexts=None, pulled=[0, 0, 1], rewards=[4, 1, 0])
    >>> model.belief(state, rng=np.random.default_rng(0)).mean
    array([2. , 0.5])
    """

    __slots__ = ()

    def __new__(
        cls, shape: float = 1.0, rate: float = 1.0, empirical: bool = False
    ) -> "PoissonArms":
        return super().__new__(
            cls, positive("shape", shape), positive("rate", rate), bool(empirical)
        )

    def check_rewards(self, rewards: Floats) -> Floats:
        """The rewards, or a sentence on what is wrong with them."""
        if not ((rewards >= 0) & (rewards <= self.largest)).all():
            raise ValueError(
                f"a count must not be negative, infinite, or beyond {self.largest:g}; check the "
                "rewards"
            )
        return rewards


class GaussianArms(
    KArmed,
    NamedTuple(
        "GaussianArms",
        [("noise", float), ("prior_mean", float), ("prior_std", float), ("empirical", bool)],
    ),
):
    """Arms with normal rewards of known noise, independent normal means a priori.

    Parameters
    ----------
    noise
        σ, the standard deviation of a reward around its arm's mean.
    prior_mean, prior_std
        The normal prior of every arm's mean.
    empirical
        Estimate and radius as in `BernoulliArms`.

    >>> import numpy as np
    >>> model = GaussianArms(noise=1.0)
    >>> state = model.fit(arms=2, contexts=None, pulled=[0, 1], rewards=[2.0, 0.0])
    >>> model.belief(state, rng=np.random.default_rng(0)).mean
    array([1., 0.])
    """

    __slots__ = ()

    def __new__(
        cls,
        noise: float = 1.0,
        prior_mean: float = 0.0,
        prior_std: float = 1.0,
        empirical: bool = True,
    ) -> "GaussianArms":
        if not within(prior_mean):
            raise ValueError(
                f"prior_mean must be finite, at most ±{LARGEST:g}, but it is {prior_mean}"
            )
        return super().__new__(
            cls,
            positive("noise", noise),
            float(prior_mean),
            positive("prior_std", prior_std),
            truth("empirical", empirical),
        )


@implements(believe, BernoulliArms)
def believe_bernoulli(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    n = arms.size
    alpha, beta, mean, std = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    estimate, radius, information = np.empty(n), np.empty(n), np.empty(n)
    pulls = taken(state.pulls, arms)
    prior = model.alpha + model.beta
    for a in range(n):
        alpha[a] = model.alpha + state.rewards[arms[a]]
        beta[a] = model.beta + pulls[a] - state.rewards[arms[a]]
        mean[a] = alpha[a] / (alpha[a] + beta[a])
        std[a] = np.sqrt(mean[a] * (1 - mean[a]) / (alpha[a] + beta[a] + 1))
        information[a] = np.log1p(pulls[a] / prior)
        estimate[a], radius[a] = _interval(
            model.empirical, state.rewards[arms[a]], pulls[a], mean[a], std[a]
        )
    prior_std = np.sqrt(model.alpha * model.beta / (prior + 1)) / prior
    return Belief(
        Beta(alpha, beta), mean, std, estimate, radius, pulls, information, step, 1, prior_std
    )


@implements(believe, PoissonArms)
def believe_poisson(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    n = arms.size
    shape, rate, mean, std = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    estimate, radius, information = np.empty(n), np.empty(n), np.empty(n)
    pulls = taken(state.pulls, arms)
    for a in range(n):
        total = state.rewards[arms[a]]
        shape[a] = model.shape + total
        rate[a] = model.rate + pulls[a]
        mean[a] = shape[a] / rate[a]
        std[a] = np.sqrt(shape[a]) / rate[a]
        information[a] = np.log1p(pulls[a] / model.rate)
        estimate[a], radius[a] = _interval(model.empirical, total, pulls[a], mean[a], std[a])
    prior_std = np.sqrt(model.shape) / model.rate
    return Belief(
        Gamma(shape, rate), mean, std, estimate, radius, pulls, information, step, 1, prior_std
    )


@implements(believe, GaussianArms)
def believe_gaussian(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    n = arms.size
    mean, std, estimate, radius = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    information = np.empty(n)
    pulls = taken(state.pulls, arms)
    # The prior weighs as much as (σ / prior_std)² pulls that all paid prior_mean.
    weight = (model.noise / model.prior_std) ** 2
    for a in range(n):
        total = state.rewards[arms[a]]
        mean[a] = (weight * model.prior_mean + total) / (weight + pulls[a])
        std[a] = model.noise / np.sqrt(weight + pulls[a])
        information[a] = np.log1p(pulls[a] / weight)
        estimate[a], radius[a] = _interval(model.empirical, total, pulls[a], mean[a], std[a])
    return Belief(
        Gaussian(), mean, std, estimate, radius, pulls, information, step, 1, model.prior_std
    )


@compiled
def _interval(empirical, total, pulls, mean, std):  # type: ignore[no-untyped-def]
    """Estimate and radius: the average reward and 1/√N, or the posterior's."""
    if not empirical:
        return mean, std
    return (total / pulls if pulls > 0 else 0.0), 1.0 / np.sqrt(pulls)


@implements(update, KArmed)
def update_totals(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    state.pulls[arm] += 1
    state.rewards[arm] += reward


@implements(forget, KArmed)
def forget_totals(model, state, part, weight):  # type: ignore[no-untyped-def]
    state.pulls[part] *= weight
    state.rewards[part] *= weight
