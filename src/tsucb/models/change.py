"""A test of whether rewards have changed, which may be read after every reward.

Every reward is compared with what was believed of it: z is its distance from the mean, in standard
deviations of the prediction. As long as the belief is right, z has mean 0 whatever the law of the
noise, and nobody can win by betting on its sign. The test bets, as a gambler with capital 1 whose
share 1/(n(n + 1)) enters the game at reward n:

    capital ← (capital + 1/(n(n + 1))) · (1 + λ(z − δ))

λ follows the recent mean m of z, over some 10 and some 30 rewards; δ, on the side of m, is the
deviation that is not held against the belief, as no model fits exactly. Rewards below what was
believed count from a tenth of a standard deviation on, those above it from a half on: a belief that
still learns expects too little of the arms it plays, and there is nothing to recover from.

While nothing changes the capital has mean 1 at most, so it reaches 100 with probability 1/100 at
most, over the whole life (Ville 1939). One gambler plays on the rewards of all arms, and one on
those of each; K of them have 1/K each. What they win together is the evidence for a change.

An arm that is not played gives no evidence. So an arm that was left alone for its *turn* is looked
at again, each of K arms after (K − 1) / share rewards: the share of looks is 1 % at most, and falls
as 1/√n once nothing has changed for long. By how much a reward is more than k = 1¼ standard
deviations above its prediction is added up, whether it was a look or not. While that sum is above 0
the arm is looked at again at once; if it exceeds 1¼, what was known of the arm counts little, and
the policy finds out whether it has become better. That is a CUSUM test which samples rarely until
it becomes suspicious.

It must not suspect an arm more often because the arm is played more often. Such a sum exceeds h as
often as exp(−2kh) says, for normal rewards. So a reward that comes after the share o of an arm's
turn has to be log(1/o)/(2k) higher to make the arm suspect.

References: Shafer and Vovk (2019), "Game-theoretic foundations for probability and finance"; Shin,
Ramdas and Rinaldo (2022), "E-detectors: a nonparametric framework for sequential change detection";
Banerjee and Veeravalli (2012), "Data-efficient quickest change detection with on-off observation
control".
"""

from typing import Any, NamedTuple, Self

import numpy as np

from tsucb.compiler import compiled
from tsucb.models.state import MOST_REWARDS, State, array
from tsucb.numeric.arrays import Floats, Integers, largest_of

ALARM = 100.0  # capital: a false alarm in at most one of 100 lives
FAST, SLOW = 0.1, 0.03  # weight of a reward in the recent mean
BELOW, ABOVE = 0.1, 0.5  # deviations, in standard deviations, that are not held against the belief
BET = 0.5  # no bet loses more than this share of the capital at any z that was seen before
LEAST = 0.1  # and no bet more than 1 − this
WARM = 100  # rewards before the first bet: the belief learns its prior
SQUARE_WORTH = 10.0  # rewards that a variance of z of 1 is worth
LIKELY = 2.0  # |z| that is expected even if it was not seen
REMEMBERED = 16  # changes

LOOKS_FEWER = 1_300.0  # rewards without a change, after which looks become fewer
TAKING_TURNS = 2.0  # arms among which looks are divided, at least: with two arms there are few
WIDE = 10.0  # standard deviation of an arm to look at, in distances from the best arm
FAR = 2.0  # standard deviations of the noise: an arm further below the best waits for longer
GOLDEN = 0.6180339887498949  # its multiples are spread evenly, modulo 1
SURPRISING = 1.25  # standard deviations: rewards above it add up, and may come to it
MOST_SURPRISING = 3.0  # standard deviations that one reward counts: a rare click has far more
LITTLE = 1.0  # rewards that what was known of an arm is worth once looks have been surprising

LEFT = 2.0  # rewards that what was known of an arm that changed is worth afterwards
OTHERS = 0.3  # share of what was known of other arms
NONE, ALL, GONE = -1.0, -2.0, -3.0  # in place of an arm's index


class NoticedChange(NamedTuple):
    """A change that was noticed.

    `step` counts rewards; `arm` is the arm whose rewards have changed, its index for a model and
    its name for an agent, or None for all; `weight` is how much what was known before counts since.
    """

    step: int
    arm: int | str | None
    weight: float

    def __str__(self) -> str:
        whose = "all arms" if self.arm is None else repr(self.arm)
        return (
            f"after {self.step:,} rewards: those of {whose} had changed; what was known before "
            f"counts {100 * self.weight:.2g} %"
        )


class Change(State):
    """The gamblers, one for each arm and two rates, and one for all arms; what was noticed."""

    life: Floats = array(least=0.0, most=MOST_REWARDS)  # rewards in all
    warming: Floats = array(start=WARM, least=0.0, most=WARM)  # rewards until the first bet
    rewards: Floats = array(least=0.0, most=MOST_REWARDS)  # since the last change
    arm_rewards: Floats = array("arm", least=0.0, most=MOST_REWARDS)
    recent: Floats = array("arm", 2)  # m
    square: Floats = array("arm", start=1.0, least=0.0)  # mean of z²
    widest: Floats = array("arm", start=LIKELY, least=LIKELY)  # largest |z|
    capital: Floats = array("arm", 2, least=0.0)
    common: Floats = array(2, least=0.0)  # capital of those who play on all arms
    alarm: Floats = array(start=NONE, least=ALL, most=MOST_REWARDS)  # what is to be forgotten
    played: Floats = array("arm", least=0.0, most=MOST_REWARDS)  # `life` at an arm's last reward
    surprise: Floats = array("arm", least=0.0)  # sum of what looks found above the prediction
    faded: Floats = array("arm", most=0.0)  # logarithm of the weight of each arm's first reward
    noticed: Floats = array(REMEMBERED, 3, least=GONE)  # step, arm and weight of the last changes
    changes: Floats = array(least=0.0, most=MOST_REWARDS)

    def select(self, arms: Integers) -> Self:
        """Return the same for some of the arms; changes of others are remembered as of nobody."""
        result = super().select(arms)
        places = {float(arm): float(place) for place, arm in enumerate(arms)} | {ALL: ALL}
        result.noticed[:, 1] = [places.get(arm, GONE) for arm in self.noticed[:, 1].tolist()]
        return result

    def take_back(self) -> None:
        """Let all gamblers begin again, in place, with what was noticed as it is."""
        kept = ("life", "warming", "played", "faded", "noticed", "changes")
        blank = type(self).blank({"arm": self.faded.size})
        for name in self._fields:
            if name not in kept:
                getattr(self, name)[...] = getattr(blank, name)

    def recover(self, weights: Floats) -> Floats:
        """Return by how much to multiply the sums of each arm after an alarm; note it, in place.

        Given is the weight of what each arm has seen.
        """
        few = np.minimum(OTHERS, LEFT / np.maximum(weights, LEFT))
        arm = self.alarm[0]
        factors = few
        if arm >= 0.0:
            factors = np.full(few.size, OTHERS)
            factors[int(arm)] = few[int(arm)]
        left = factors[int(arm)] if arm >= 0 else (factors @ weights) / max(weights.sum(), 1.0)
        self.note(NoticedChange(int(self.life[0]), int(arm) if arm >= 0 else None, float(left)))
        self.faded[:] = np.maximum(self.faded + np.log(factors), -1e9)
        self.take_back()
        return factors

    def note(self, change: NoticedChange) -> None:
        """Add a change to those that are remembered, in place."""
        count = int(self.changes[0])
        if count >= REMEMBERED:
            self.noticed[:-1] = self.noticed[1:]
        place = min(count, REMEMBERED - 1)
        self.noticed[place] = change.step, ALL if change.arm is None else change.arm, change.weight
        self.changes[0] += 1.0

    def history(self) -> list[NoticedChange]:
        """Return the changes that are remembered, the oldest first."""
        count = min(int(self.changes[0]), REMEMBERED)
        return [
            NoticedChange(int(step), int(arm) if arm >= 0 else None, weight)
            for step, arm, weight in self.noticed[:count].tolist()
            if arm != GONE
        ]

    def merged(self, other: Any, base: Any) -> Self:
        """Return the changes that both have noticed; the gamblers begin again."""
        result = self.copy()
        result.take_back()
        result.life[0] += other.life[0] - base.life[0]
        before = base.history()
        for change in other.history():
            if change not in before:
                result.note(change)
        result.faded[:] = np.minimum(self.faded, other.faded)
        result.played[:] = np.maximum(self.played, other.played)
        return result


@compiled
def share_of_looks(change, looks):  # type: ignore[no-untyped-def]
    """Return the share of decisions that look again, at most `looks`."""
    return looks * min(1.0, np.sqrt(LOOKS_FEWER / (change.rewards[0] + 1.0)))


@compiled
def overdue(change, looks, arm, count):  # type: ignore[no-untyped-def]
    """Return for how many of its turns an arm, one of `count`, was left alone."""
    age, turns = change.life[0] - change.played[arm], max(count - 1.0, TAKING_TURNS)
    return age * share_of_looks(change, looks) / turns


@compiled
def look_again(change, looks, belief, arms, step, count, variances):  # type: ignore[no-untyped-def]
    """Widen the belief about an arm that is due for a look, in place; of several, the oldest.

    An arm that is far below the best here waits until it is overdue, or less far below in another
    context. While rewards of n decisions are outstanding, as in a batch, one decision in n + 1
    looks. Given are the number of arms that take turns, and the variance of the noise, of each arm
    or of all.
    """
    chosen, outstanding = 0, max(step - 1.0 - change.life[0], 0.0)
    if (step * GOLDEN) % 1.0 >= max(1.0 / (outstanding + 1.0), share_of_looks(change, looks)):
        return
    for a in range(arms.size):
        if change.surprise[arms[a]] > 0.0:
            chosen = a
            break
        if change.played[arms[a]] < change.played[arms[chosen]]:
            chosen = a
    arm, below = arms[chosen], largest_of(belief.mean) - belief.mean[chosen]
    far = max(below / (FAR * np.sqrt(variances[min(arm, variances.size - 1)])), 1.0)
    if change.surprise[arm] > 0.0 or overdue(change, looks, arm, count) >= np.sqrt(far):
        belief.std[chosen] = max(belief.std[chosen], WIDE * below)
        belief.radius[chosen] = max(belief.radius[chosen], WIDE * below)


@compiled
def surprising(change, looks, arm, count, z):  # type: ignore[no-untyped-def]
    """Add up surprises of one of `count` arms, in place; return whether it may be better now."""
    total = change.surprise[arm] + min(z, MOST_SURPRISING) - SURPRISING
    if change.surprise[arm] <= 0.0:
        turns = max(overdue(change, looks, arm, count), 1e-9)
        total += min(np.log(turns), 0.0) / (2.0 * SURPRISING)
    suspected = total > SURPRISING
    change.surprise[arm] = 0.0 if suspected else max(total, 0.0)
    return suspected


@compiled
def count_reward(change, arm):  # type: ignore[no-untyped-def]
    """Count a reward of an arm, in place."""
    change.life[0] += 1.0
    change.played[arm] = change.life[0]


@compiled
def notice(change, arm, count, z):  # type: ignore[no-untyped-def]
    """Bet on a reward of one of `count` arms, z from what was believed; alarm, in place."""
    count_reward(change, arm)
    if change.warming[0] > 0.0:
        change.warming[0] -= 1.0
        return
    change.rewards[0] += 1.0
    change.arm_rewards[arm] += 1.0
    n, t, won, won_by_all = change.arm_rewards[arm], change.rewards[0], 0.0, 0.0
    limit, square = BET / change.widest[arm], max(change.square[arm], 1.0)
    for i in range(2):
        m = change.recent[arm, i]
        edge = ABOVE if m > 0.0 else -BELOW
        far = m - edge if abs(m) > abs(edge) else 0.0
        bet = min(max(far / (square + m * m), -limit), limit)
        factor = max(1.0 + bet * (z - edge), LEAST)
        change.capital[arm, i] = (change.capital[arm, i] + 1.0 / (n * (n + 1.0))) * factor
        change.common[i] = (change.common[i] + 1.0 / (t * (t + 1.0))) * factor
        won += change.capital[arm, i] / 2.0
        won_by_all += change.common[i] / 2.0
        rate = FAST if i == 0 else SLOW
        change.recent[arm, i] += max(rate, 1.0 / (n + 5.0)) * (z - m)
    change.square[arm] += (z * z - change.square[arm]) / (n + SQUARE_WORTH)
    change.widest[arm] = max(change.widest[arm], abs(z))
    won /= count
    if won + won_by_all >= 2.0 * ALARM:
        change.alarm[0] = ALL if won_by_all >= won else arm
