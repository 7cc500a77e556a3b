"""Choices agree with probabilities on awkward beliefs, for every policy and law.

Ties, no spread and infinite spread, spreads that differ by 1e8, one arm and 300, Betas and gammas
far below 1, floats too coarse for the law: never a NaN, never zero for an arm that was chosen, and
always within a time that is bounded.
"""

import math
import time

import numpy as np
import pytest

import tsucb
from tsucb.compiler import held
from tsucb.policies.policy import RAREST, count_choices

RNG = np.random.default_rng(3)
CHOICES = 2_000
SAMPLING = [
    tsucb.Thompson(),
    tsucb.TSUCB(1),
    tsucb.TSUCB(2),
    tsucb.TSUCB(25),
    tsucb.TSUCB(math.inf),
    tsucb.IDS(10),
    tsucb.IDS(math.inf),
    tsucb.GridIDS(10),
]
OTHERS = [
    tsucb.Greedy(),
    tsucb.Greedy(first=True),
    tsucb.Random(),
    tsucb.HoeffdingUCB(horizon=100),
    tsucb.UCB1(),
    tsucb.OFUL(),
    tsucb.ChiSquaredUCB(),
    tsucb.BayesUCB(),
]


def scales(arms: int, decades: float) -> np.ndarray:
    out = 10 ** -RNG.uniform(0, decades, arms)
    out[0], out[-1] = 1.0, 10.0**-decades
    return out


def spread_out(arms: int, decades: float) -> tsucb.Belief:
    """Return normals of all sizes, the narrowest where the wide ones are contested."""
    std = scales(arms, decades)
    mean = RNG.normal(size=arms) * std
    mean[-1] = (mean + 0.5 * std)[:-1].max()
    return tsucb.GaussianBelief(mean, std)


G, B, M = tsucb.GaussianBelief, tsucb.BetaBelief, tsucb.GammaBelief
NORMALS = {
    "one arm": G([0.3], [0.2]),
    "one certain arm": G([0.3], [0.0]),
    "one infinite arm": G([0.3], [np.inf]),
    "equal": G(np.zeros(4), np.ones(4)),
    "equal but for one": G([0, 0, 0, -0.1], np.ones(4)),
    "all certain": G([0.7, 0.7, 0.2], np.zeros(3)),
    "one certain and best": G([0.7, 0.2], [0.0, 0.0]),
    "certain or not": G([0.1, 0.7, 0.7], [1.0, 0.0, 0.0]),
    "certain, tied with others": G([0.7, 0.2], [0.0, 1e-9], radius=[0.1, 0.1]),
    "infinite beside finite": G([0.0, 1.0], [np.inf, 1.0]),
    "two infinite": G([0.0, 1.0, 2.0], [np.inf, np.inf, 1.0]),
    "infinite, with a radius": G([0.0, 1.0], [np.inf, 1.0], radius=[1.0, 1.0]),
    "all infinite": G([0.0, 1.0], [np.inf, np.inf]),
    "a thousandth": spread_out(3, 3),
    "a millionth": spread_out(3, 6),
    "a hundred-millionth": spread_out(4, 8),
    "rare": G([0.0, -8.3], [1.0, 1.0]),
    "hardly ever": G([0.0, 1.0, -99.0], [0.1, 0.1, 1.0]),
    "coarse floats": G([1e6, 1e6 + 1e-9], [1e-9, 2e-9]),
    "finer than floats": G([1.0, 1.0], [3e-17, 3e-17]),
    "huge": G([1e150, -1e150], [1e160, 1e158]),
    "tiny": G([1e-200, 0.0], [1e-200, 2e-200]),
    "300 arms": G(RNG.normal(size=300), RNG.uniform(0.1, 1, 300)),
    "300 equal arms": G(np.zeros(300), np.ones(300)),
    "300 arms of all sizes": spread_out(300, 8),
}
OTHER_LAWS = {
    "Beta, one arm": B([2.0], [3.0]),
    "Beta 0.01": B([0.01, 0.01], [0.01, 0.01]),
    "Beta 0.01, unequal": B([0.01, 0.02, 0.01], [0.01, 0.01, 0.03]),
    "Beta 0.001 and 1": B([0.001, 1.0], [0.001, 1.0]),
    "Beta 1e-12": B([1e-12, 1.0], [1.0, 1e-12]),
    "Beta 0.3": B([0.3, 0.4], [0.4, 0.3]),
    "Jeffreys": B([0.5, 0.5, 1.5], [0.5, 0.5, 0.5]),
    "Beta, certain and not": B([5e7, 1.0], [5e7, 1.0]),
    "300 uniform arms": B(np.ones(300), np.ones(300)),
    "gamma, one arm": M([2.0], [3.0]),
    "gamma 0.01": M([0.01, 0.01], [1.0, 2.0]),
    "gamma 0.3": M([0.3, 0.5], [1.0, 2.0]),
    "gamma 1e-9 and 1": M([1e-9, 1.0], [1e-9, 1.0]),
    "gamma, rates 1e6 apart": M([1.0, 1e6], [1.0, 1e6]),
    "300 gammas": M(np.full(300, 2.0), RNG.uniform(0.5, 2, 300)),
    "draws with ties": tsucb.SampleBelief([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]),
    "one draw": tsucb.SampleBelief([[1.0, 1.0, 0.0]]),
    "joint": tsucb.JointGaussianBelief([0.0, 0.1, 0.1], [[1, 0], [0.5, 0.5], [0.5, 0.5]]),
    "joint, without spread": tsucb.JointGaussianBelief([0.1, 0.1], [[0.0], [0.0]]),
}
CASES = {
    f"{policy.name}-{kind}": (policy, belief)
    for beliefs, policies in ((NORMALS, SAMPLING + OTHERS), (OTHER_LAWS, SAMPLING))
    for kind, belief in beliefs.items()
    for policy in policies
}


@pytest.mark.parametrize(("policy", "belief"), CASES.values(), ids=CASES)
def test_choices_agree_with_probabilities(policy: tsucb.Policy, belief: tsucb.Belief) -> None:
    began = time.process_time()
    policy.probabilities(belief, repetitions=1)
    choices = CHOICES if belief.arms < 100 else 200
    if getattr(policy, "samples", 0) == math.inf:  # each takes as long as many others
        choices = 50 if isinstance(belief.law, tsucb.beliefs.JointGaussian) else 200
    counts = np.zeros(belief.arms)
    count_choices(policy, belief, held(np.random.default_rng(5)), counts, choices)
    found = policy.probabilities(belief, np.random.default_rng(6), repetitions=choices)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(found >= 0)
    assert np.all(found[counts > 0] >= min(RAREST, 1 / (choices + 1)) * (1 - 1e-6))
    # 2,000 numbers at 5 standard errors of one or, where both are frequencies, two samples:
    # false alarms 1 in 800. Where few choices are expected, six are let through.
    samples = 1 if policy.is_exact(belief) else 2
    error = np.sqrt(samples * found * (1 - found) / choices)
    assert np.all(np.abs(counts / choices - found) <= 5 * error + 6 * (found > 0) / choices)
    # Without compilation none takes a second; with it, some tens.
    assert time.process_time() - began < 120


def test_rare_arms_are_given_a_floor() -> None:
    """P(N(−8.3, 1) > N(0, 1)) is 2.2e-9; beyond 12 standard deviations nothing is ever drawn."""
    found = tsucb.Thompson().probabilities(tsucb.GaussianBelief([0.0, -8.8], [1.0, 1.0]))
    assert found[1] == pytest.approx(RAREST, rel=1e-6)  # truly 2.4e-10
    found = tsucb.Thompson().probabilities(tsucb.GaussianBelief([0.0, -99.0], [1.0, 1.0]))
    assert found[1] == 0.0
    wide = tsucb.GaussianBelief([0.0, -7.0], [0.1, 1.0])
    for samples in (1, 2, 30):
        assert RAREST * (1 - 1e-6) <= tsucb.TSUCB(samples).probabilities(wide)[1] < 1
    bounded = tsucb.BetaBelief([90, 1], [10, 9], estimate=[0.9, -9.0], radius=[0.05, 1.0])
    for samples in (1, 2):  # the second arm's line crosses the first one's beyond 1
        assert tsucb.TSUCB(samples).probabilities(bounded)[1] == 0.0


def test_what_falls_back_to_repeated_choices() -> None:
    exact = {kind: tsucb.TSUCB(2).is_exact(b) for kind, b in (NORMALS | OTHER_LAWS).items()}
    assert exact["a hundred-millionth"]
    assert exact["certain or not"]
    assert exact["300 uniform arms"]
    for kind in ("infinite beside finite", "coarse floats", "Beta 0.01", "Jeffreys", "joint"):
        assert not exact[kind]
    assert tsucb.TSUCB(1).is_exact(OTHER_LAWS["Jeffreys"])
    assert not tsucb.Thompson().is_exact(OTHER_LAWS["Beta 0.01"])
    assert not tsucb.Thompson().is_exact(OTHER_LAWS["gamma 0.01"])


@pytest.mark.parametrize("samples", [2, 3, 10, 100])
def test_equal_draws_average_to_themselves(samples: int) -> None:
    """0.7 + 0.7 + … divided by their number may be the float above, and no arm reaches it."""
    for value in RNG.uniform(size=50):
        belief = tsucb.GaussianBelief([value, 0.0], [0.0, 0.0])
        choice = tsucb.TSUCB(samples).choose(belief, np.random.default_rng(0))
        assert choice == (0, value, 0)
