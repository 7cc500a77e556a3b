"""Upper confidence bounds: the forms that the paper compares with, and two classics.

Each policy plays the arm with the largest bound; they differ in the width of the bound.
"""

import functools
import math
from typing import Annotated

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.law import upper_quantiles
from tsucb.beliefs.sampling import sampled_upper_quantiles
from tsucb.checks import NotNegative, Share, whole_number
from tsucb.compiler import class_of, compiled, hook, implements, offers
from tsucb.numeric.special import chi_squared_quantile_upper
from tsucb.policies.policy import Policy, choose, choose_largest, probabilities, tie_shares


class UpperBound(Policy):
    """A policy that plays the largest of `bounds`."""

    target_name = "largest bound"


class HoeffdingUCB(UpperBound):
    """The K-armed bound of the paper: estimate + √(3 log T / N), equation (4).

    Parameters
    ----------
    horizon
        T, the number of steps that will be played.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.BetaBelief(alpha=[2, 2], beta=[2, 2], pulls=[10, 1000])
    >>> HoeffdingUCB(horizon=10_000).choose(belief, np.random.default_rng(0)).arm
    0

    Reference: Auer, Cesa-Bianchi and Fischer (2002); Baek and Farias (2023), Section 3.2.
    """

    printed_name = "UCB"

    horizon: Annotated[int, functools.partial(whole_number, least=2)]


class UCB1(UpperBound):
    """Estimate + √(2 log t / N), which needs no horizon.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.BetaBelief(alpha=[2, 2], beta=[2, 2], pulls=[10, 1000], step=1011)
    >>> UCB1().choose(belief, np.random.default_rng(0)).arm
    0

    Reference: Auer, Cesa-Bianchi and Fischer (2002), Figure 1.
    """


class OFUL(UpperBound):
    """The UCB of Figure 1: optimism in the face of uncertainty for linear rewards.

    The bound is mean + (σ √(2 log(√det V / (δ √det λI))) + √λ S) ‖x‖_{V⁻¹}, with
    λ = σ² / prior variance and V = λI + Σ xxᵀ of the arm. As the posterior covariance is σ² V⁻¹,
    this is mean + (√(information + 2 log(1/δ)) + S / prior_std) · std.

    Parameters
    ----------
    delta
        δ, the probability with which the confidence set may miss.
    norm_bound
        S, a bound on the Euclidean norm of the parameters.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0, 0.5], std=[1, 0.1])
    >>> OFUL().choose(belief, np.random.default_rng(0)).arm
    0

    Reference: Abbasi-Yadkori, Pál and Szepesvári (2011), Theorem 2.
    """

    printed_name = "UCB"

    delta: Share = 1e-4
    norm_bound: NotNegative = 1.0


class ChiSquaredUCB(UpperBound):
    """The UCB of Tables 1 and 2: a Bayesian bound that holds for all of the parameters at once.

    The bound is mean + √q · std with q the quantile of a χ² distribution with d degrees of
    freedom at 1 − 1/(1 + t): the d-dimensional credible ellipsoid, seen from one direction.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0, 0.5], std=[1, 0.1], step=100, dimension=50)
    >>> ChiSquaredUCB().choose(belief, np.random.default_rng(0)).arm
    0
    """

    printed_name = "UCB"


class BayesUCB(UpperBound):
    """The quantile of each arm's posterior at 1 − 1/(t logᶜ t).

    Parameters
    ----------
    c
        The power of the logarithm: 5 in the proofs, 0 in practice.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.BetaBelief(alpha=[2, 30], beta=[2, 20], step=100)
    >>> BayesUCB().choose(belief, np.random.default_rng(0)).arm
    0

    Reference: Kaufmann, Cappé and Garivier (2012), "On Bayesian upper confidence bounds".
    """

    printed_name = "Bayes-UCB"

    c: NotNegative = 0.0

    def has_formula(self, belief: Belief) -> bool:
        return offers(upper_quantiles, type(belief.law))


@hook
def bounds(policy, belief, rng):  # type: ignore[no-untyped-def]
    """Return the upper confidence bound of every arm; laws without quantiles draw from `rng`."""


@implements(choose, UpperBound)
def choose_largest_bound(policy, belief, rng):  # type: ignore[no-untyped-def]
    return choose_largest(bounds(policy, belief, rng), rng)


@implements(probabilities, UpperBound)
def probabilities_of_bounds(policy, belief):  # type: ignore[no-untyped-def]
    return tie_shares(bounds(policy, belief, None), 1.0)


@implements(bounds, HoeffdingUCB)
def bounds_hoeffding(policy, belief, rng):  # type: ignore[no-untyped-def]
    return belief.estimate + np.sqrt(3 * math.log(policy.horizon) / belief.pulls)


@implements(bounds, UCB1)
def bounds_ucb1(policy, belief, rng):  # type: ignore[no-untyped-def]
    t = max(belief.step, 2)  # log 1 = 0 would leave the bound of an untried arm undefined
    return belief.estimate + np.sqrt(2 * math.log(t) / belief.pulls)


@implements(bounds, OFUL)
def bounds_oful(policy, belief, rng):  # type: ignore[no-untyped-def]
    confidence = 2 * math.log(1 / policy.delta)
    bias = policy.norm_bound / belief.prior_std
    out = np.empty(belief.mean.size)
    for a in range(out.size):
        width = math.sqrt(belief.information[a] + confidence) + bias
        out[a] = belief.mean[a] + width * belief.std[a]
    return out


@implements(bounds, ChiSquaredUCB)
def bounds_chi_squared(policy, belief, rng):  # type: ignore[no-untyped-def]
    width = math.sqrt(chi_squared_quantile_upper(1 / (1 + belief.step), belief.dimension))
    return belief.mean + width * belief.std


@implements(bounds, BayesUCB, where=lambda _, belief, __: offers(upper_quantiles, class_of(belief)))
def bounds_bayes(policy, belief, rng):  # type: ignore[no-untyped-def]
    out = np.empty(belief.mean.size)
    upper_quantiles(belief, tail_at(belief.step, policy.c), out)
    return out


@implements(bounds, BayesUCB)
def bounds_bayes_sampled(policy, belief, rng):  # type: ignore[no-untyped-def]
    out = np.empty(belief.mean.size)
    sampled_upper_quantiles(belief, tail_at(belief.step, policy.c), rng, out)
    return out


@compiled
def tail_at(step, c):  # type: ignore[no-untyped-def]
    """Return 1/(t logᶜ t)."""
    t = max(step, 2)  # at t = 1 the level is 0 and every bound is minus infinity
    return min(0.5, 1 / (t * math.log(t) ** c))
