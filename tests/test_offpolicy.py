"""The value of other policies, recovered from a logged run."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tsucb
from tsucb.logs import Estimate, OffPolicy, target_probabilities

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks are run from the repository

from benchmarks.against_obp import make_log as made_log
from benchmarks.coverage import Log, estimate


def logged_run(steps: int, seed: int):
    """Play Thompson sampling on a contextual bandit; return the log with its propensities."""
    bandit = tsucb.ContextualLinearBandit(arms=4, features=3, noise=0.3, prior_variance=1.0)
    rng = np.random.default_rng(seed)
    world = bandit.begin(rng)
    model = bandit.model()
    # What the policies to be evaluated know: a little, learned before the log begins.
    state = model.start(bandit.arms)
    for t in range(60):
        context, _, _ = bandit.advance(world, t + 1, rng)
        model.update(state, context, t % bandit.arms, bandit.reward(world, t % bandit.arms))
    # An agent that thinks rewards noisier than they are explores for longer: a better log.
    cautious = tsucb.ContextualLinear(features=3, noise=3.0)
    agent = tsucb.Agent(
        range(bandit.arms), model=cautious, policy=tsucb.Thompson(), seed=seed, keep_beliefs=True
    )
    contexts, means, arm, reward, propensity = [], [], [], [], []
    for t in range(steps):
        context, truth, _ = bandit.advance(world, t + 1, rng)
        decision = agent.choose(context)
        contexts.append(context.copy())
        means.append(truth.copy())
        arm.append(decision.arm)
        propensity.append(decision.probability)
        reward.append(bandit.reward(world, arm[-1]))
        agent.reward(decision.id, reward[-1])
    return model, state, np.array(contexts), np.array(means), (arm, reward, propensity)


@pytest.fixture(scope="module")
def run():
    return logged_run(1000, seed=4)


@pytest.mark.parametrize(
    "policy", [tsucb.Greedy(), tsucb.TSUCB(1), tsucb.TSUCB(math.inf), tsucb.Thompson()], ids=str
)
def test_recovers_the_value_of_other_policies(run, policy) -> None:
    model, state, contexts, means, log = run
    target, predicted = target_probabilities(
        policy, model, state, contexts, np.random.default_rng(0)
    )
    truth = (target * means).sum(axis=1).mean()
    found = OffPolicy(*log)
    plain, robust = found.inverse_propensity(target), found.doubly_robust(target, predicted)
    # 95 % intervals, but the four policies are alike and the estimates of one log go together:
    # another seed would fail about one time in ten.
    assert plain.low < truth < plain.high
    assert robust.low < truth < robust.high
    assert robust.error < plain.error
    assert 1 <= robust.effective_size <= len(contexts)


def test_the_logging_policy_itself(run) -> None:
    """With the policy's own probabilities all weights are one: the plain mean of the log."""
    *_, (arm, reward, propensity) = run
    target = np.zeros((len(arm), 4))
    target[np.arange(len(arm)), arm] = propensity
    estimate = OffPolicy(arm, reward, propensity).inverse_propensity(target)
    assert estimate.value == pytest.approx(np.mean(reward))
    assert estimate.effective_size == pytest.approx(len(arm))


def test_by_hand() -> None:
    target, predicted = [[1.0, 0.0], [0.5, 0.5]], [[2.0, 9.0], [1.0, 3.0]]
    estimate = OffPolicy([0, 1], [3.0, 1.0], [0.5, 0.25]).doubly_robust(target, predicted)
    # 2 + 1/0.5 · (3 − 2) = 4 and (1 + 3)/2 + 0.5/0.25 · (1 − 3) = −2
    assert estimate.value == pytest.approx(1.0)
    assert estimate.error == pytest.approx(3.0)
    assert estimate.effective_size == pytest.approx(2.0)


def test_refuses() -> None:
    good = ([0, 1], [1.0, 1.0], [0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
    for wrong, words in [
        ((*good[:2], [0.0, 0.5], good[3]), "propensity must be above 0"),
        ((good[0], [1.0], *good[2:]), "vectors of one length"),
        ((*good[:3], [[1.0, 0.0]]), "one row for each of 2 events"),
        (([0, 2], *good[1:]), "arm must lie between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            OffPolicy(*wrong[:3]).inverse_propensity(wrong[3])


# Refusing to guess.


def test_agrees_with_open_bandit_pipeline() -> None:
    """`python benchmarks/against_obp.py` prints these, by version 0.4.1 of it."""
    log = made_log()
    given, target = OffPolicy(log["arm"], log["reward"], log["propensity"]), log["target"]
    played = log["propensity"][np.arange(2_000), log["arm"]]
    assert given.inverse_propensity(target).value == pytest.approx(0.7500028954072434, rel=1e-12)
    assert given.self_normalised(target).value == pytest.approx(0.7703401767087551, rel=1e-12)
    robust = given.doubly_robust(target, log["predicted"])
    assert robust.value == pytest.approx(0.7709661958228669, rel=1e-12)
    switched = given.switch(target, log["predicted"], largest=1.5)
    assert switched.value == pytest.approx(0.7668231989463411, rel=1e-12)
    # With the propensities of the arms played only, the same value, and about the same error.
    alone = OffPolicy(log["arm"], log["reward"], played).doubly_robust(target, log["predicted"])
    assert alone.value == pytest.approx(robust.value, rel=1e-12)
    assert alone.error == pytest.approx(robust.error, rel=0.05)
    assert robust.trusted
    assert robust.uncovered == 0.0
    assert robust.largest_weight == pytest.approx(
        (target[np.arange(2_000), log["arm"]] / played).max()
    )


def no_overlap(share: float = 0.0, size: int = 2_000) -> tuple[Any, ...]:
    """Return a log of arm 0 alone, or with a share of uniform choices; rewards 0.9 and 0.1."""
    rng = np.random.default_rng(0)
    chances = np.tile([1 - share / 2, share / 2], (size, 1))
    arm = (rng.random(size) < share / 2).astype(int)
    reward = (rng.random(size) < np.where(arm == 0, 0.9, 0.1)).astype(float)
    return arm, reward, chances, np.tile([0.5, 0.5], (size, 1))


@pytest.mark.parametrize("estimator", [OffPolicy.inverse_propensity, OffPolicy.self_normalised])
@pytest.mark.parametrize("whole", [True, False])
def test_without_overlap_there_is_no_number(estimator: Any, whole: bool) -> None:
    """The failure of the issue: looks fine, with a large effective size, and is wrong."""
    arm, reward, chances, target = no_overlap()
    given = chances if whole else chances[np.arange(arm.size), arm]
    found = estimator(OffPolicy(arm, reward, given), target)
    assert math.isnan(found.value)
    assert not found.trusted
    assert found.uncovered == pytest.approx(0.5)
    assert found.effective_size == 0.0
    assert "cannot speak about 50.0 %" in found.reason
    assert "cannot speak about" in repr(found)
    # The best and the worst that arm 1 could be.
    bounds = estimator(OffPolicy(arm, reward, given, rewards_between=(0, 1)), target)
    assert bounds.bounded
    assert bounds.low < 0.45 < 0.95 < bounds.high
    assert bounds.high - bounds.low < 0.55
    # A twentieth of uniform choices is enough to know.
    arm, reward, chances, target = no_overlap(0.1)
    answered = estimator(OffPolicy(arm, reward, chances), target)
    assert answered.low < 0.5 < answered.high


def test_few_decisions_with_all_the_weight() -> None:
    """Rewards with bounds have an interval by betting, those without have none."""
    arm, reward, chances, target = no_overlap(0.0005)  # half a decision can be expected
    assert arm.sum() < 5
    found = OffPolicy(arm, reward, chances).inverse_propensity(target)
    assert found.trusted
    assert 0 <= found.low < 0.5 < found.high <= 1
    assert found.low <= found.value <= found.high
    few = OffPolicy(arm, 3 * reward + arm, chances).inverse_propensity(target)
    assert math.isnan(few.value)
    assert math.isnan(few.low)
    assert few.effective_size == 0.0
    assert "carry the whole estimate" in few.reason
    assert "rewards_between, if rewards have bounds" in few.reason
    bounded = OffPolicy(arm, 3 * reward + arm, chances, rewards_between=(0, 4))
    assert bounded.inverse_propensity(target).trusted
    # With a few of them there is an unbiased number, and still no interval.
    arm, reward, chances, target = no_overlap(0.007)
    more = OffPolicy(arm, 3 * reward, chances).inverse_propensity(target)
    assert more.value == pytest.approx(1.5, abs=4 * more.error)
    assert math.isnan(more.low)
    assert "(no interval): about" in repr(more)


def floor_log(seed: int, clicks: float, size: int = 5_000, floor: float = 0.05) -> tuple[Any, ...]:
    """Return a log of four arms with a floor, of which the first is always the favourite."""
    rng = np.random.default_rng(seed)
    chances = np.tile([1 - 0.75 * floor, *[floor / 4] * 3], (size, 1))
    arm = (rng.random((size, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    reward = (rng.random(size) < np.where(arm == 0, 0.3, clicks)).astype(float)
    return arm, reward, chances, np.tile([0.0, 1.0, 0.0, 0.0], (size, 1))


def test_intervals_hold_when_the_clicks_failed_to_come() -> None:
    """About 62 decisions, and six clicks, tell what the second arm earns: 10 %."""
    covered, widths, prediction = 0, [], np.tile([0.3, 0.1, 0.1, 0.1], (5_000, 1))
    for seed in range(100):
        *logged, target = floor_log(seed, 0.1)
        log = OffPolicy(*logged)
        for found in (log.inverse_propensity(target), log.doubly_robust(target, prediction)):
            assert found.trusted
            covered += found.low <= 0.1 <= found.high
            widths.append(found.high - found.low)
    assert covered >= 186  # 93 % of 200; betting covers in more than 95 %
    assert np.median(widths) < 0.3  # an exact binomial interval has 0.17
    # No click at all: the interval says what may be, and does not shrink to a point.
    arm, reward, chances, target = floor_log(0, 0.0)
    found = OffPolicy(arm, reward, chances).doubly_robust(target, prediction)
    assert found.low == 0.0
    assert 0.05 < found.high < 0.2


@pytest.mark.parametrize("tail", [2.2, 3.0])
def test_intervals_are_wider_where_tails_are_heavy(tail: float) -> None:
    """Student's t with all degrees of freedom would cover 81 to 90 % here."""
    rng, covered, half = np.random.default_rng(0), 0, np.full((400, 2), 0.5)
    for _ in range(300):
        arm, reward = rng.integers(2, size=400), rng.pareto(tail, size=400)
        found = OffPolicy(arm, reward, half).inverse_propensity(half)
        assert found.trusted
        covered += found.low < 1 / (tail - 1) < found.high
    assert covered >= 0.93 * 300  # 94.5 % or more in larger samples


def test_rewards_missing_by_arm_are_noticed() -> None:
    """Of the second arm every other reward is lost: half of what it earns would be missing."""
    rng = np.random.default_rng(0)
    arm = rng.integers(2, size=2_000)
    reward = (rng.random(2_000) < 0.2).astype(float)
    come = (arm == 0) | (rng.random(2_000) < 0.5)
    target = np.tile([0.0, 1.0], (2_000, 1))
    for chances in (np.full((2_000, 2), 0.5), np.full(2_000, 0.5)):
        assert OffPolicy(arm, reward, chances).inverse_propensity(target).trusted
        kept = OffPolicy(arm[come], reward[come], chances[come])
        found = kept.inverse_propensity(target[come])
        assert math.isnan(found.value)
        assert found.effective_size == 0.0
        assert not found.bounded or chances.ndim == 1  # by one propensity it is a gap
    whole = OffPolicy(arm[come], reward[come], np.full((come.sum(), 2), 0.5))
    assert (
        "rewards of some arms are missing more often"
        in whole.inverse_propensity(target[come]).reason
    )
    # Half of arm 1 is lost, so the weights of arm 0 have a mean above one.
    other = OffPolicy(arm[come], reward[come], np.full(come.sum(), 0.5))
    assert "the weights have a mean of 1.3" in other.inverse_propensity(1 - target[come]).reason
    # A sentence about one policy is not said of the next.
    assert "the weights have a mean" not in other.inverse_propensity(target[come]).reason


def test_switch_says_which_part_it_predicts() -> None:
    arm, reward, chances, target = no_overlap(0.02)
    guess = np.tile([0.9, 0.2], (arm.size, 1))
    log = OffPolicy(arm, reward, chances, rewards_between=(0, 1))
    found = log.switch(target, guess, largest=10)
    # Arm 1 has weight 50, so half of the policy is taken from the prediction.
    assert found.value == pytest.approx(0.5 * 0.9 + 0.5 * 0.2, abs=4 * found.error)
    assert found.bounded
    assert "that part is predicted" in found.reason
    arm, reward, chances, target = no_overlap(0.2)
    assert OffPolicy(arm, reward, chances).switch(target, guess, largest=100).trusted


def test_a_small_gap_is_borne_and_a_large_one_is_not() -> None:
    """First pulls are not random; a few of them among many decisions change nothing."""
    arm, reward, chances, target = no_overlap(0.5)
    chances[:1] = [1.0, 0.0]
    arm[:1] = 0
    assert OffPolicy(arm, reward, chances).inverse_propensity(target).trusted
    chances[:200] = [1.0, 0.0]
    arm[:200] = 0
    assert not OffPolicy(arm, reward, chances).inverse_propensity(target).trusted


def test_differences_are_known_better_than_values() -> None:
    log = made_log()
    given = OffPolicy(log["arm"], log["reward"], log["propensity"])
    target, guess = log["target"], log["predicted"]
    other = 0.9 * target + 0.1 / target.shape[1]
    found = given.difference(target, guess, other)
    values = [given.doubly_robust(each, guess) for each in (target, other)]
    assert found.value == pytest.approx(values[0].value - values[1].value)
    assert found.error < values[0].error / 3
    # Against the policy that logged: the same, whether its other probabilities are known or not.
    played = log["propensity"][np.arange(2_000), log["arm"]]
    whole = given.difference(target, guess)
    alone = OffPolicy(log["arm"], log["reward"], played).difference(target, guess)
    assert whole.value == pytest.approx(alone.value, abs=3 * whole.error)
    assert alone.value == pytest.approx(values[0].value - log["reward"].mean())
    nothing = given.difference(target, guess, target)
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensity": [0.5, 0.0, 0.5]}, "every propensity must be above 0"),
        ({"propensity": [0.5, 1.5, 0.5]}, "at most 1"),
        ({"propensity": [[0.5, 0.6]] * 3}, "sum to 1"),
        ({"propensity": [[1.5, -0.5]] * 3}, "not be negative"),
        ({"propensity": [0.5, 0.5]}, "vectors of one length"),
        ({"target": [[0.5, 0.6]] * 3}, "at most 1 in sum"),
        ({"target": [[1.5, -0.5]] * 3}, "not negative"),
        ({"target": [0.5, 0.5, 0.5]}, "matrices with one row"),
        ({"target": [[0.5, math.nan]] * 3}, "finite number"),
        ({"arm": [0, 1, 2]}, "arm must lie between 0 and 1"),
        ({"arm": [0, 0.5, 1]}, "arm must be whole numbers"),
        ({"arm": ["a", "b", "a"]}, "arm must be whole numbers"),
        ({"propensity": 0.5}, "vectors of one length"),
        ({"reward": [0.0, math.nan, 1.0]}, "every reward must be a finite number"),
        ({"predicted": [[0.5, 0.5]]}, "matrices with one row"),
        ({"rewards_between": (0.5, 1)}, "rewards were said to lie between 0.5 and 1"),
    ],
)
def test_impossible_logs_are_refused(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "arm": [0, 1, 0],
        "reward": [0.0, 1.0, 1.0],
        "propensity": [0.5, 0.5, 0.5],
        "target": [[0.5, 0.5]] * 3,
        "predicted": [[0.5, 0.5]] * 3,
    }

    def robust(target: Any, predicted: Any, **log: Any) -> Estimate:
        return OffPolicy(**log).doubly_robust(target, predicted)

    robust(**good)
    with pytest.raises(ValueError, match=message):
        robust(**good | change)


@pytest.mark.parametrize("logger", ["TS", "TS-UCB(100)+5%"])
def test_intervals_cover_on_logs_of_policies_that_learn(logger: str) -> None:
    """150 logs of 1,500 decisions; `benchmarks/coverage.py` has 1,000 and more kinds of them."""
    given, covered = 0, 0
    for seed in range(150):
        log = Log(4, logger, 1_500, seed, "normal rewards")
        for name, target in log.targets.items():
            for found in estimate(log, target).values():
                assert found.trusted == (not math.isnan(found.low))
                given += found.trusted
                covered += found.trusted and found.low < log.truth[name] < found.high
    if logger == "TS":  # nearly all its weights are hopeless, and are said to be
        assert given < 0.25 * 150 * 12
    else:
        assert given > 0.25 * 150 * 12
        # The estimates of one log go together: about 150 independent ones, and 3.5 of their errors.
        assert 0.89 < covered / given < 0.99
