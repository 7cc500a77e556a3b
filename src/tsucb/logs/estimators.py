"""Estimate what another policy would have earned, from a log with propensities.

The log holds the arm played, its reward, and its propensity: the probability with which it was
chosen, or better the probabilities of all arms. An agent with a floor (`Agent(exploration=0.05)`)
knows them exactly. The policy to be evaluated may be any that does not know the reward before it
chooses: a fixed one, or one that has learned from the earlier decisions of the log.

There are two kinds of 95 % intervals. If many decisions carry the estimate, Student's t: the
heavier the tails, the fewer the degrees of freedom. If few do, and rewards are bounded as clicks
are, betting (`betting_bound`), which needs no normal approximation: it holds also when the clicks
of a rarely tried arm failed to come. That is proved if neither the policy that logged nor the one
evaluated learns meanwhile; `benchmarks/coverage.py` measures how often intervals of both kinds
contain the truth if they do. If few decisions carry the estimate and rewards have no known bounds,
there is no interval; if the log never tried what the policy would do, there is no value.
`Estimate.reason` says why.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.checks import floats, shown
from tsucb.models.model import Model
from tsucb.numeric.arrays import Floats, Integers

Range = tuple[float, float]

# The number of decisions that must carry an estimate for Student's t: if rewards have bounds, if
# they have none, and if only the propensities of the arms played are known.
WITH_BOUNDS, WITHOUT_BOUNDS, ONE_PROPENSITY = 12.0, 8.0, 64.0
# Clicks failed to come if Σ (weight · reward)² is a smaller share of its expectation.
FAILED = 0.1
LARGEST_WEIGHT = 1e9  # a larger weight is treated as an arm that the log never tried
# The gap of a log is ignored if it can move the value by at most this share of the error.
NEGLIGIBLE = 0.05
CERTAIN = 1e-6  # largest rounding error of a sum of probabilities
MISFIT = "rewards of some arms are missing more often than others', or the propensities are wrong"
FALSE_ALARM = 0.001  # probability of finding wrong propensities in a sound log
BET_ERROR = 0.025  # probability that a bound by betting does not hold
HALVINGS = 40  # of the interval in which such a bound is searched


class Estimate(NamedTuple):
    """The estimated mean reward of a policy.

    Parameters
    ----------
    value : the estimate; NaN where the log cannot give it
    error : its standard error
    low, high : its 95 % interval; bounds where `bounded`; NaN where neither is possible
    effective_size : (Σw)²/Σw², decisions of the policy itself that would tell as much; 0 if none
    events : n, decisions in the log
    uncovered : the share of the policy's decisions that the log cannot speak about
    largest_weight : the largest number of decisions that one decision of the log counts for
    bounded : whether low and high include all that the uncovered share could earn
    reason : why there is no value or no interval, in a sentence; "" if there are both

    >>> Estimate(0.5, 0.1, 0.3, 0.7, 80.0, 100)
    0.5 (0.3 to 0.7), as 80 of 100 decisions
    """

    value: float
    error: float
    low: float
    high: float
    effective_size: float
    events: int
    uncovered: float = 0.0
    largest_weight: float = 1.0
    bounded: bool = False
    reason: str = ""

    @property
    def trusted(self) -> bool:
        """Whether there are a value and its interval."""
        return not self.reason

    def __repr__(self) -> str:
        found = interval(self)
        if self.reason:
            return self.reason if found == "–" else f"{found}: {self.reason}"
        return f"{found}, as {self.effective_size:,.0f} of {self.events:,} decisions"


UNKNOWN = Estimate(math.nan, math.nan, math.nan, math.nan, 0.0, 0)


class _Weights(NamedTuple):
    """A policy, or the difference of two, as weights on the decisions of a log.

    `more` and `less` are the shares that the log cannot speak about, of the policy and of the one
    it is compared with.
    """

    mass: Floats  # (N, K) the probabilities, or their difference, where the log can speak
    played: Floats  # (N,) weight of the arm played
    each: Floats | None  # (N, K) weights of all arms; None if only those of arms played are known
    more: float = 0.0
    less: float = 0.0
    misfit: str = ""

    @property
    def uncovered(self) -> float:
        return self.more + self.less

    def moment(self, power: int) -> float:
        """Return Σ wᵖ; if all propensities are known, its expectation before arms are drawn."""
        if self.each is None:
            return float((self.played**power).sum())
        return float((self.mass * self.each ** (power - 1)).sum())  # Σ e wᵖ with w = mass / e


class OffPolicy:
    """What other policies would have earned on a log with propensities.

    Every method takes `target`, (N, K): the probability with which the policy evaluated would have
    chosen each arm. Some take `predicted`, (N, K): a guess at the mean reward of every arm, such as
    the mean of a model's belief. It may use the earlier decisions of the log, but not the same or
    later ones. All methods return an `Estimate`.

    Parameters
    ----------
    arm, reward
        (N,) the arm that was played, and its reward.
    propensity
        The probability with which the arm was chosen (N,), or better those of all arms (N, K): then
        the share that the log cannot speak about is known exactly. With (N,) it is judged by the
        mean of the weights, an interval takes more decisions, and intervals are too narrow on some
        logs of policies that learn, such as Thompson sampling.
    rewards_between
        The least and the largest possible reward; by default 0 and 1 if all rewards are 0 or 1.
        With it there is an interval also where few decisions carry the estimate, and bounds where
        the log has gaps.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.integers(2, size=400)
    >>> always_1 = np.tile([0.0, 1.0], (400, 1))
    >>> log = OffPolicy(arm, arm + rng.normal(size=400), np.full(400, 0.5))
    >>> log.inverse_propensity(always_1)
    1.118 (0.9377 to 1.299), as 221 of 400 decisions
    >>> never_tried = OffPolicy(np.zeros(400, dtype=int), rng.random(400), np.ones(400))
    >>> never_tried.inverse_propensity(always_1).reason
    'the log cannot speak about 100.0 % of what the policy would do, as it never tried that'
    """

    def __init__(
        self,
        arm: ArrayLike,
        reward: ArrayLike,
        propensity: ArrayLike,
        *,
        rewards_between: Range | None = None,
    ) -> None:
        played = np.asarray(arm)
        kind = played.dtype.kind
        if kind not in "biuf" or (kind == "f" and (np.floor(played) != played).any()):
            raise ValueError("arm must be whole numbers, the arms counted from 0")
        self._arm: Integers = played.astype(np.int64)
        self._reward: Floats = floats("reward", reward)
        known = floats("propensity", propensity)
        n = self._size = self._arm.size
        shapes = self._arm.shape, self._reward.shape, known.shape[:1]
        if shapes != ((n,),) * 3 or n < 2:
            raise ValueError(
                "arm, reward and propensity must be vectors of one length, at least 2, but their "
                f"shapes are {self._arm.shape}, {self._reward.shape} and {known.shape}; propensity "
                "may also be a matrix with one column per arm"
            )
        if not np.isfinite(self._reward).all():
            raise ValueError("every reward must be a finite number; leave events without one out")
        self._rows = np.arange(n)
        self._chances: Floats | None = None
        self._misfit = ""
        if known.ndim == 2:
            self._check_arms(known.shape[1])
            if not ((known >= 0).all() and (abs(known.sum(axis=1) - 1) < CERTAIN).all()):
                raise ValueError("the propensities of all arms must not be negative, and sum to 1")
            self._chances = known
            self._misfit = misfit(self._arm, known)
        self._played: Floats = known if known.ndim == 1 else known[self._rows, self._arm]
        if not ((self._played > 0) & (self._played <= 1 + CERTAIN)).all():
            raise ValueError("every propensity must be above 0 and at most 1")
        self._between = self._bounds(rewards_between)

    def inverse_propensity(self, target: ArrayLike) -> Estimate:
        """Return the mean of target(arm)/propensity · reward (Horvitz and Thompson 1952)."""
        return self.doubly_robust(target, np.zeros(np.shape(target)))

    def self_normalised(self, target: ArrayLike) -> Estimate:
        """Return Σ weight · reward / Σ weight, which moves along if all rewards move.

        Slightly biased, and often much less variable than `inverse_propensity`. Where the log has
        gaps, it is the mean over what the log can speak about.

        Reference: Swaminathan and Joachims (2015), "The self-normalized estimator for
        counterfactual learning".
        """
        weights = self._weights(self._probabilities(target))
        weight, total = weights.played, float(weights.played.sum())
        value = float(weight @ self._reward) / total if total > 0 else 0.0
        covered = 1 - weights.uncovered
        # To first order the estimate is the mean of these terms, over what the log can speak about.
        share = total / self._size / covered if total > 0 and covered > 0 else 1.0
        terms = covered * value + weight * (self._reward - value) / share
        return self._estimate(terms, np.full(weights.mass.shape, value), weights)

    def doubly_robust(self, target: ArrayLike, predicted: ArrayLike) -> Estimate:
        """Return the reward predicted for the policy, corrected by the weighted errors.

        The mean of Σₐ target(a) predicted(a) + target(arm)/propensity · (reward − predicted(arm)).
        Unbiased whatever is predicted; the better the prediction, the narrower the interval.

        Reference: Dudík, Langford and Li (2011), "Doubly robust policy evaluation and learning".
        """
        weights = self._weights(self._probabilities(target))
        guess = self._usable(self._matrix("predicted", predicted), weights)
        return self._estimate(self._terms(guess, weights), guess, weights)

    def switch(self, target: ArrayLike, predicted: ArrayLike, *, largest: float = 20.0) -> Estimate:
        """Return the doubly robust estimate, with the prediction alone where weights are large.

        It has a value where the other methods refuse, but no interval, as nothing in the log says
        how wrong the prediction is there; bounds, if `rewards_between` was given. `error` is that
        of the observed part. The propensities of all arms are needed.

        Parameters
        ----------
        target, predicted
            See the class.
        largest
            τ, the largest weight target/propensity; beyond it the prediction is used.

        Reference: Wang, Agarwal and Dudík (2017), "Optimal and adaptive off-policy evaluation in
        contextual bandits".
        """
        if self._chances is None:
            raise ValueError(
                "switch needs the propensities of all arms: a matrix, one row per event"
            )
        if not largest > 0:
            raise ValueError(f"largest must be positive, but it is {shown(largest)}")
        chances = self._probabilities(target)
        weights = self._weights(chances, largest)
        guess = self._matrix("predicted", predicted)
        terms = self._terms(guess, weights)
        found = self._estimate(terms, guess, weights)
        if weights.uncovered <= CERTAIN:
            return found
        filled = float(((chances - weights.mass) * guess).sum(axis=1).mean())
        reason = f"{_missing(weights.uncovered)}; that part is predicted"
        return found._replace(value=float(terms.mean()) + filled, reason=reason)

    def difference(
        self, target: ArrayLike, predicted: ArrayLike, other: ArrayLike | None = None
    ) -> Estimate:
        """Return how much more one policy earns than another, paired by decision, doubly robust.

        Decisions at which both policies choose alike do not matter, so a difference is often known
        better than either value. `other`, (N, K), are the probabilities of the policy to compare
        with; None for the policy that logged.
        """
        guess, chances = self._matrix("predicted", predicted), self._probabilities(target)
        minus = self._chances if other is None else self._probabilities(other)
        weights = self._weights(chances, minus=minus)
        guess = self._usable(guess, weights)
        terms = self._terms(guess, weights)
        if minus is None:  # the policy that logged has weight 1 at every decision
            terms, weights = terms - self._reward, weights._replace(played=weights.played - 1)
        return self._estimate(terms, guess, weights)

    def _check_arms(self, arms: int) -> None:
        if self._arm.min() < 0 or self._arm.max() >= arms:
            raise ValueError(f"arm must lie between 0 and {arms - 1}")

    def _matrix(self, name: str, values: ArrayLike) -> Floats:
        """Return the values as a finite matrix (N, K); raise ValueError otherwise."""
        array = floats(name, values)
        arms = None if self._chances is None else self._chances.shape[1]
        if array.ndim != 2 or len(array) != self._size or arms not in (None, array.shape[1]):
            raise ValueError(
                f"target and predicted must be matrices with one row for each of {self._size} "
                f"events and one column per arm, but the shape of {name} is {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"every entry of {name} must be a finite number")
        return array

    def _probabilities(self, target: ArrayLike) -> Floats:
        """Return the probabilities of a policy; raise ValueError if they cannot be ones."""
        chances = self._matrix("target", target)
        self._check_arms(chances.shape[1])
        if not ((chances >= 0).all() and (chances.sum(axis=1) <= 1 + CERTAIN).all()):
            raise ValueError("target must be probabilities: not negative, at most 1 in sum")
        return chances

    def _weights(
        self, target: Floats, largest: float = math.inf, minus: Floats | None = None
    ) -> _Weights:
        """Return the weights of a policy, or of its difference to the policy `minus`."""
        mass: Floats = target if minus is None else target - minus
        played: Floats = mass[self._rows, self._arm] / self._played
        if self._chances is None:
            missing, wrong = 0.0, ""
            for policy in (target,) if minus is None else (target, minus):
                short, why = self._gap(policy)
                missing, wrong = missing + short, wrong or why
            return _Weights(mass, played, None, missing, misfit=wrong)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(mass == 0, 0.0, mass / self._chances)
        covered = np.abs(each) <= min(largest, LARGEST_WEIGHT)
        each = np.where(covered, each, 0.0)
        gone = np.where(covered, 0.0, mass) / self._size
        return _Weights(
            np.where(covered, mass, 0.0),
            np.where(covered[self._rows, self._arm], played, 0.0),
            each,
            float(gone[gone > 0].sum()),
            -float(gone[gone < 0].sum()),
            self._misfit,
        )

    def _gap(self, target: Floats) -> tuple[float, str]:
        """Return the share of a policy that the log lacks, and a sentence if its weights are wrong.

        The mean of the weights is 1 if nothing is missing. If it is more, propensities are wrong.
        """
        weight = target[self._rows, self._arm] / self._played
        mean, short = float(weight.mean()), float(target.sum(axis=1).mean() - weight.mean())
        chance = 4 * float(weight.std(ddof=1)) / math.sqrt(self._size) + CERTAIN
        wrong = ""
        if mean - 1 > 4 * math.sqrt(float((weight**2).mean()) / self._size) + CERTAIN:
            wrong = f"the weights have a mean of {mean:.3g} where it is 1: {MISFIT}"
        return (short if short > chance else 0.0), wrong

    def _usable(self, guess: Floats, weights: _Weights) -> Floats:
        """Return the predictions; zeros if the log has a gap, but it is unknown in which arms."""
        return guess if self._chances is not None or not weights.uncovered else 0 * guess

    def _terms(self, guess: Floats, weights: _Weights) -> Floats:
        """Return the terms (N,) whose mean is the doubly robust estimate of the covered part."""
        direct: Floats = (weights.mass * guess).sum(axis=1)
        return direct + weights.played * (self._reward - guess[self._rows, self._arm])

    def _estimate(self, terms: Floats, guess: Floats, weights: _Weights) -> Estimate:
        """Return the estimate whose value is the mean of `terms`, with its interval or a reason."""
        from scipy.stats import t

        weight, missing, mean = weights.played, weights.uncovered, float(terms.mean())
        squares, largest = float((weight**2).sum()), float(np.abs(weight).max())
        size = float(np.abs(weight).sum()) ** 2 / squares if squares > 0 else 0.0
        between = self._between
        least, most = between or (float(self._reward.min()), float(self._reward.max()))
        error, tails = self._error(terms, guess, weights)
        found = Estimate(mean, error, math.nan, math.nan, size, self._size, missing, largest)
        nothing = found._replace(value=math.nan, effective_size=0.0)
        if weights.misfit:
            return nothing._replace(reason=weights.misfit)
        if missing > CERTAIN and missing * (most - least) > NEGLIGIBLE * error:
            found = nothing._replace(reason=f"{_missing(missing)}, as it never tried that")
            if between is None:
                return found
        whole = weights.each is not None
        carriers = self._carriers(weights)
        needed = WITHOUT_BOUNDS if between is None else WITH_BOUNDS
        if carriers >= (needed if whole else ONE_PROPENSITY):
            width = error * float(t.ppf(0.975, max(min(self._size, tails) / 2 - 1, 2.0)))
            low, high = mean - width, mean + width
        elif between is not None and whole:
            low, high = self._bet(guess, weights, between)
            found = found._replace(value=min(max(found.value, low), high))
        elif found.reason:
            return found
        else:  # the value is unbiased, but pure chance if less than one decision carries it
            help = "rewards_between, if rewards have bounds" if whole else "all probabilities"
            few = (
                f"about {carriers:.0f} of {self._size:,} decisions carry the whole estimate, too "
                f"few for an interval; give a longer log, one with more exploration, or {help}"
            )
            return (found if carriers >= 1 else nothing)._replace(reason=few)
        low += weights.more * least - weights.less * most
        high += weights.more * most - weights.less * least
        return found._replace(low=low, high=high, bounded=bool(found.reason))

    def _error(self, terms: Floats, guess: Floats, weights: _Weights) -> tuple[float, float]:
        """Return the standard error of the mean of the terms, and how many decisions carry it.

        This number is (Σ squares)² / Σ fourth powers, small if the tails are heavy. Without bounds
        the error is at least the one expected from the weights and the spread of rewards within
        arms, as rare rewards may not have come.
        """
        came = (terms - terms.mean()) ** 2
        squares, fourth = float(came.sum()), float((came**2).sum())
        carriers = squares**2 / fourth if fourth > 0 else math.inf
        if self._between is None:
            errors = self._reward - guess[self._rows, self._arm]
            counts = np.maximum(np.bincount(self._arm), 1)
            errors -= (np.bincount(self._arm, errors) / counts)[self._arm]
            direct = (weights.mass * guess).sum(axis=1)
            expected = self._size * direct.var() + (errors**2).mean() * weights.moment(2)
            squares = max(squares, float(expected))
        return math.sqrt(squares / (self._size * (self._size - 1))), carriers

    def _carriers(self, weights: _Weights) -> float:
        """Return the number of decisions that carry the estimate.

        It follows from the weights, which are known before the rewards. Without bounds, it is at
        most the number of rewards that differ from their median. With bounds, it is at most the
        number that carries the weighted distances to each bound: with clicks, the clicks and the
        decisions without one. It is 0 if clicks failed to come where weights are large.
        """
        second = weights.moment(2)
        if second == 0:
            return math.inf
        by_weight = second**2 / weights.moment(4)
        if self._between is None:
            usual = float(np.median(self._reward))
            return min(by_weight, float(np.count_nonzero(self._reward != usual)))
        counts = [by_weight]
        for end in self._between:
            distance = (self._reward - end) ** 2
            weighted = weights.played**2 * distance
            seen, usual = float(weighted.sum()), float(distance.mean())
            if seen <= FAILED * usual * second:
                return 0.0
            counts.append(by_weight * usual**2 / float((distance**2).mean()))
            counts.append(seen**2 / float((weighted**2).sum()))
        return min(counts)

    def _bet(self, guess: Floats, weights: _Weights, between: Range) -> Range:
        """Return the interval by betting on the doubly robust terms."""
        assert weights.each is not None
        least, most = between
        guess = np.clip(guess, least, most)
        # Known before the rewards, unless a policy that logged or is evaluated learned from them.
        variance = weights.moment(2) / self._size * ((most - least) / 2) ** 2
        # The most by which a prediction may move a term against the bet, so that stakes stay large.
        limit = math.sqrt(self._size * variance) / 2
        ends = []
        for sign in (1.0, -1.0):
            mass, each = sign * weights.mass, sign * weights.each
            with np.errstate(divide="ignore"):
                room = limit / np.abs(each)
            near = np.where(
                each > 0, np.minimum(guess, least + room), np.maximum(guess, most - room)
            )
            direct = (mass * near).sum(axis=1)
            errors = self._reward - near[self._rows, self._arm]
            swing = np.minimum(each * (least - near), each * (most - near)).min(axis=1)
            terms = direct + sign * weights.played * errors
            bound = betting_bound(terms, float((direct + swing).min()), variance)
            # The value is at least this one, with all rewards at the worse bound.
            worst = np.where(mass > 0, least, most)
            ends.append(sign * max(bound, float((mass * worst).sum(axis=1).mean())))
        return ends[0], ends[1]

    def _bounds(self, between: Range | None) -> Range | None:
        """Return the bounds of rewards: those given, checked; else 0 and 1 if all are 0 or 1."""
        if between is None:
            return (0.0, 1.0) if np.isin(self._reward, (0.0, 1.0)).all() else None
        least, most = map(float, between)
        low, high = float(self._reward.min()), float(self._reward.max())
        if not least <= low <= high <= most:
            raise ValueError(
                f"rewards were said to lie between {least:g} and {most:g}, but the log has rewards "
                f"from {low:g} to {high:g}"
            )
        return least, most


def betting_bound(terms: Floats, least: float, variance: float) -> float:
    """Return a lower bound of the mean of the terms, wrong in at most 2.5 of 100 cases.

    A gambler who starts with 1 and bets λ on every term being above m has Π (1 + λ (term − m)).
    If the mean is m or less, that reaches 40 with probability 1/40 at most, however the terms are
    distributed; so every m for which it reaches 40 is excluded. The gambler splits the money over
    four λ.

    Parameters
    ----------
    terms
        (n,) The bound is about the average of their means, each given the earlier terms.
    least
        No term can be below this number.
    variance
        A guess at the variance of a term, made without looking at the terms. The bound then holds
        whatever the guess, and is sharpest if the variance is between it and a thousandth of it.

    Reference: Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by
    betting".

    >>> clicks = np.repeat([0.0, 1.0], [90, 10])
    >>> round(betting_bound(clicks, 0.0, 0.25), 3), round(-betting_bound(-clicks, -1.0, 0.25), 3)
    (0.031, 0.228)
    """
    goal = math.log(1 / BET_ERROR)
    usual = math.sqrt(2 * goal / (terms.size * variance)) * 3.0 ** np.arange(4)
    low, high = least, float(terms.mean())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if not least < middle < high:
            break
        bets = np.minimum(usual, 0.9 / (middle - least))
        logs = np.array([np.log1p(bet * (terms - middle)).sum() for bet in bets])
        if np.logaddexp.reduce(logs) - math.log(logs.size) >= goal:
            low = middle
        else:
            high = middle
    return low


def misfit(arm: Integers, chances: Floats, names: Any = None) -> str:
    """Return a sentence if some arm was played far more or less often than its propensities say.

    Parameters
    ----------
    arm
        (N,) the arms played.
    chances
        (N, K) the propensities of all arms.
    names
        (K,) of the arms; numbers by default.

    >>> misfit(np.repeat([0, 1], [300, 100]), np.full((400, 2), 0.5)).partition(":")[0]
    'arm 0 was played 300 times where its propensities add up to 200'
    """
    from scipy.stats import norm

    counts, expected = np.bincount(arm, minlength=chances.shape[1]), chances.sum(axis=0)
    # The constant 4 is for arms that are hardly ever played, whose counts are far from normal.
    spread = np.sqrt((chances * (1 - chances)).sum(axis=0) + 4)
    far = (counts - expected) / spread
    worst = int(np.abs(far).argmax())
    if abs(far[worst]) < norm.isf(FALSE_ALARM / 2 / far.size):
        return ""
    name = worst if names is None else repr(names[worst])
    return (
        f"arm {name} was played {counts[worst]:,} times where its propensities add up to "
        f"{expected[worst]:,.0f}: {MISFIT}"
    )


def _missing(share: float) -> str:
    """Return a sentence about the share that the log cannot speak about."""
    return f"the log cannot speak about {100 * share:.1f} % of what the policy would do"


def target_probabilities(
    policy: Any, model: Model, state: Any, contexts: ArrayLike, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return what a policy would choose at every context, and what its model predicts.

    Parameters
    ----------
    policy
        The policy to evaluate.
    model, state
        The policy's knowledge; the state is not updated.
    contexts
        (N, …) the contexts of the log.
    rng
        For models that draw part of their belief, such as `NIGLinear`.

    Returns
    -------
    target, predicted
        (N, K) each, for `OffPolicy.doubly_robust`.
    """
    beliefs = [model.belief(state, context, rng=rng) for context in np.asarray(contexts)]
    target = np.array([policy.probabilities(belief) for belief in beliefs])
    return target, np.array([belief.mean for belief in beliefs])


def interval(found: Estimate, sign: bool = False, digits: int = 4) -> str:
    """Return an estimate as text: its value with the interval, its bounds, or a dash.

    >>> interval(Estimate(0.125, 0.01, 0.1, 0.15, 90, 100)), interval(UNKNOWN)
    ('0.125 (0.1 to 0.15)', '–')
    """
    form = f"{'+' if sign else ''}.{digits}g"
    if found.bounded:
        return f"between {found.low:{form}} and {found.high:{form}}"
    if math.isnan(found.value):
        return "–"
    if found.reason or math.isnan(found.low):
        return f"{found.value:{form}} (no interval)"
    return f"{found.value:{form}} ({found.low:{form}} to {found.high:{form}})"
