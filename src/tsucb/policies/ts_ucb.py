"""TS-UCB, the rule of Baek and Farias (2023)."""

from typing import NamedTuple

import numpy as np

from tsucb.belief import draw
from tsucb.compiled import implements, inlined
from tsucb.policies.rule import Policy, choose, largest, whole_number


class TSUCB(Policy, NamedTuple("TSUCB", [("samples", int)])):
    """Play the arm that minimises (f̃ − estimate) / radius.

    f̃ is the mean reward of the best arm, averaged over m draws from the posterior; the ratio
    Ψ(a) = (f̃ − μ̂(a)) / (U(a) − μ̂(a)) weighs what an arm is expected to lose against how
    uncertain it is. The factor by which a radius is scaled cancels, so there is nothing to tune.

    Parameters
    ----------
    samples
        m, the number of posterior draws in f̃; 1 costs what Thompson sampling costs, 100 is a
        little better.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.5], std=[1.0, 0.01])
    >>> TSUCB(samples=100).choose(belief, np.random.default_rng(0))
    0

    Reference: Baek and Farias (2023), "TS-UCB: Improving on Thompson Sampling With Little to No
    Additional Computation", Section 3, equation `eq:defratio1`.
    """

    __slots__ = ()

    def __new__(cls, samples: int = 100) -> "TSUCB":
        return super().__new__(cls, whole_number("samples", samples, least=1))

    @property
    def name(self) -> str:
        return f"TS-UCB({self.samples})"


@implements(choose, TSUCB)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    f = best_mean(belief, policy.samples, rng)
    score = np.empty(belief.mean.size)
    for a in range(score.size):
        score[a] = -ratio(f, belief.estimate[a], belief.radius[a])
    return largest(score, rng)


@inlined
def best_mean(belief, samples, rng):  # type: ignore[no-untyped-def]
    """f̃: the best arm's mean reward, averaged over posterior draws."""
    means = np.empty(belief.mean.size)
    total = 0.0
    for _ in range(samples):
        draw(belief, rng, means)
        total += means.max()
    return total / samples


@inlined
def ratio(f, estimate, radius):  # type: ignore[no-untyped-def]
    """Ψ(a), with the limits where it is not a number: a certain arm and an untried one."""
    if radius == 0.0:  # certain: nothing to learn, so worth playing only if nothing beats it
        return -np.inf if estimate >= f else np.inf
    if radius == np.inf:  # never tried: nothing is known, so play it first
        return -np.inf
    return (f - estimate) / radius
