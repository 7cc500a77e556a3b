"""TS-UCB, the rule of Baek and Farias (2023): see `choose_ts_ucb` and `ratios`."""

import math

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.best import expected_best
from tsucb.beliefs.law import IndependentLaw
from tsucb.beliefs.sampling import f_tilde
from tsucb.compiler import compiled, implements, offers
from tsucb.numeric.arrays import Floats
from tsucb.policies.joint_probabilities import is_joint, ts_ucb_shares
from tsucb.policies.policy import Choice, Policy, SampleCount, choose, winner


class TSUCB(Policy):
    """Play the arm that minimises (f̃ − estimate) / radius.

    f̃ is the mean reward of the best arm, averaged over m draws from the posterior. The ratio
    Ψ(a) = (f̃ − μ̂(a)) / (U(a) − μ̂(a)) weighs what an arm is expected to lose against how
    uncertain it is. A factor that scales all radii cancels, so there is nothing to tune.

    Parameters
    ----------
    samples
        m, the number of posterior draws in f̃. One, the default, costs what Thompson sampling
        costs; more make decisions nearly deterministic, which gains a little on average and makes
        bad runs worse. With `math.inf` f̃ is the exact expectation, an integral; 10,000 draws
        replace it under a law that does not offer it, such as that of jointly normal arms.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.5], std=[1.0, 0.01])
    >>> TSUCB(samples=100).choose(belief, np.random.default_rng(0)).arm
    0

    Reference: Baek and Farias (2023), "TS-UCB: Improving on Thompson Sampling With Little to No
    Additional Computation", Section 3, equation (1).
    """

    printed_name = "TS-UCB({samples})"
    target_name = "f̃"

    samples: SampleCount = 1

    def has_formula(self, belief: Belief) -> bool:
        if self.samples == math.inf:
            return offers(expected_best, type(belief.law))
        # The Fourier series of the average converges with the m-fold smoothness of one draw.
        smooth = self.samples == 1 or self.samples * belief.law.smoothness() >= 2
        independent = isinstance(belief.law, IndependentLaw)
        return independent and smooth and not belief.law.is_coarse(belief)

    def estimated(self, belief: Belief) -> tuple[Floats, Floats] | None:
        return ts_ucb_shares(belief, self.samples) if is_joint(belief) else None


@implements(choose, TSUCB)
def choose_ts_ucb(policy, belief, rng):  # type: ignore[no-untyped-def]
    """Draw f̃, and play the arm with the smallest ratio Ψ."""
    f = f_tilde(belief, policy.samples, rng)
    arm = winner(ratios(belief, f), -1.0, rng)  # the smallest, ties broken at random
    return Choice(arm, f, arm)


@compiled
def ratios(belief, f):  # type: ignore[no-untyped-def]
    """Return Ψ(a) = (f − estimate) / radius of every arm."""
    estimate, radius = belief.estimate, belief.radius
    psi = np.empty(estimate.size)
    for a in range(estimate.size):
        ratio = (f - estimate[a]) / radius[a]
        # Two kinds of arms go first: never tried (infinite radius), and certain to reach f (0 / 0).
        psi[a] = ratio if radius[a] < np.inf and ratio == ratio else -np.inf
    return psi
