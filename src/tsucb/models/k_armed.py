"""K independent arms without context, with successes, counts or normal rewards."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.beta import Beta
from tsucb.beliefs.gamma import Gamma
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import Finite, Positive, Switch
from tsucb.compiler import compiled, implements
from tsucb.models.model import Model, belief, update
from tsucb.models.state import State, counts, sums
from tsucb.numeric.arrays import Floats, take

FADED = 1e-200  # fewer pulls than these are forgotten


class ArmTotals(State):
    """What K independent arms have earned: pulls N and summed rewards."""

    pulls: Floats = counts("arm")
    rewards: Floats = sums("arm")


class KArmed(Model):
    """The base class of models without context, whose states are the arms' totals."""

    state = ArmTotals
    merges = True

    @property
    def initial_pulls(self: Any) -> int:  # type: ignore[override]
        """One pull of every arm if the estimates are average rewards, else none."""
        return 1 if self.empirical else 0

    def coefficients(self, state: ArmTotals, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the arm's mean reward."""
        belief = self.belief(state, None, [arm], rng=np.random.default_rng(0))
        return belief.mean, belief.std

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """Return the name of the one parameter."""
        return ["mean reward"]

    def check_state(self, state: ArmTotals, rewards: int, whole: bool = True) -> None:
        """Raise ValueError also for totals that no rewards of the model add up to."""
        super().check_state(state, rewards, whole)
        # Where everything is forgotten, rounding makes the ratio of the two meaningless.
        self.check_rewards(state.rewards / np.maximum(state.pulls, FADED) * (1 - 1e-9))


class BernoulliArms(KArmed):
    """Arms that succeed with unknown probabilities, independent Beta(alpha, beta) a priori.

    A reward strictly between 0 and 1 counts as that fraction of a success: the posterior is
    Beta(alpha + Σ r, beta + Σ (1 − r)).

    Parameters
    ----------
    alpha, beta
        The Beta prior of every arm.
    empirical
        If True, estimate and radius are the paper's: the average reward, and 1/√N (equation (4)
        without the factor √(3 log T), which cancels in TS-UCB); every arm is pulled once first. If
        False, they are the posterior's mean and standard deviation, as in the linear models.

    >>> import numpy as np
    >>> model = BernoulliArms()
    >>> state = model.fit(arms=2, contexts=None, pulled=[0, 0, 1], rewards=[1, 1, 0])
    >>> model.belief(state, rng=np.random.default_rng(0)).mean
    array([0.75      , 0.33333333])

    Reference: Baek and Farias (2023), Sections 2.1 and 3.2.
    """

    alpha: Positive = 1.0
    beta: Positive = 1.0
    empirical: Switch = True

    def check_rewards(self, rewards: Floats) -> Floats:
        """Return the rewards; raise ValueError if one is no probability."""
        if not ((rewards >= 0) & (rewards <= 1)).all():
            raise ValueError("a Bernoulli reward lies between 0 and 1; rescale the rewards")
        return rewards


class PoissonArms(KArmed):
    """Arms that pay counts (orders, calls) with unknown rates, independent gammas a priori.

    The posterior is Gamma(shape + Σ r, rate + N); its mean is (shape + Σ r) / (rate + N). Rewards
    need not be whole numbers, but must not be negative.

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

    shape: Positive = 1.0
    rate: Positive = 1.0
    empirical: Switch = False

    def check_rewards(self, rewards: Floats) -> Floats:
        """Return the rewards; raise ValueError if one is no count."""
        if not ((rewards >= 0) & (rewards <= self.largest)).all():
            raise ValueError(
                f"a count must not be negative, infinite, or beyond {self.largest:g}; check the "
                "rewards"
            )
        return rewards


class GaussianArms(KArmed):
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

    noise: Positive = 1.0
    prior_mean: Finite = 0.0
    prior_std: Positive = 1.0
    empirical: Switch = True


@implements(belief, BernoulliArms)
def belief_of_bernoulli(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    n, weight = arms.size, model.alpha + model.beta
    alpha, beta, mean, std = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for a in range(n):
        total = state.rewards[arms[a]]
        alpha[a] = model.alpha + total
        beta[a] = model.beta + state.pulls[arms[a]] - total
        mean[a] = alpha[a] / (alpha[a] + beta[a])
        std[a] = np.sqrt(mean[a] * (1 - mean[a]) / (alpha[a] + beta[a] + 1))
    prior_std = np.sqrt(model.alpha * model.beta / (weight + 1)) / weight
    return belief_with(Beta(alpha, beta), model, state, arms, mean, std, step, weight, prior_std)


@implements(belief, PoissonArms)
def belief_of_poisson(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    n, weight = arms.size, model.rate
    shape, rate, mean, std = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for a in range(n):
        shape[a] = model.shape + state.rewards[arms[a]]
        rate[a] = model.rate + state.pulls[arms[a]]
        mean[a] = shape[a] / rate[a]
        std[a] = np.sqrt(shape[a]) / rate[a]
    prior_std = np.sqrt(model.shape) / model.rate
    return belief_with(Gamma(shape, rate), model, state, arms, mean, std, step, weight, prior_std)


@implements(belief, GaussianArms)
def belief_of_gaussian(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    mean, std = np.empty(arms.size), np.empty(arms.size)
    weight = (model.noise / model.prior_std) ** 2
    for a in range(arms.size):
        whole = weight + state.pulls[arms[a]]
        mean[a] = (weight * model.prior_mean + state.rewards[arms[a]]) / whole
        std[a] = model.noise / np.sqrt(whole)
    return belief_with(Gaussian(), model, state, arms, mean, std, step, weight, model.prior_std)


# Nine parameters: what the three beliefs above differ in, and what they were asked.
@compiled
def belief_with(law, model, state, arms, mean, std, step, weight, prior_std):  # type: ignore[no-untyped-def]
    """Return the belief with this law and its moments; the prior counts as `weight` pulls.

    In an empirical model, estimate and radius are the average reward and 1/√N.
    """
    pulls, information, estimate, radius = take(state.pulls, arms), np.empty(arms.size), mean, std
    if model.empirical:
        estimate, radius = np.empty(arms.size), np.empty(arms.size)
    for a in range(arms.size):
        information[a] = np.log1p(pulls[a] / weight)
        if model.empirical:
            estimate[a] = state.rewards[arms[a]] / pulls[a] if pulls[a] > 0 else 0.0
            radius[a] = 1.0 / np.sqrt(pulls[a])
    return Belief(law, mean, std, estimate, radius, pulls, information, step, 1, prior_std)


@implements(update, KArmed)
def update_totals(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    state.pulls[arm] += 1
    state.rewards[arm] += reward
