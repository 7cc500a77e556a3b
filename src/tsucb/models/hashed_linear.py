"""One coefficient per arm and hashed column, with a diagonal posterior, for sparse contexts.

A row is a vector of pairs (column, value, column, value, …), which compiled code takes like any
other context. A value of 0 means that the column is absent, so a row can be padded with zeros.
Column 0 is the arm's constant, which need not be in a row.

Everything is in units of the noise, as in `NIGLinear`: the posterior of an arm's coefficient j is
N(μⱼ, σ²uⱼ) with 1/uⱼ = 1/ρ + Pⱼ, where ρ is the prior variance and Pⱼ the precision from data. A
reward y at x updates all coefficients by Bayes' rule. Their correlations are then dropped; means
and variances stay (Opper 1998):

    s = 1 + Σ xⱼ²uⱼ        e = y − Σ xⱼμⱼ        μⱼ ← μⱼ + uⱼxⱼe/s        Pⱼ ← Pⱼ + xⱼ²/(s − xⱼ²uⱼ)

The uncertainty about the other coefficients counts as noise, so no coefficient learns too much from
one reward. As only u depends on ρ, not μ, the prior can change at any time.

A column that always has the value a cannot be told from the constant; with separate coefficients
both would soon look certain. So columns with the same value at all of the first 20 rewards are
anchored: from then on x is relative to a, and the constant includes their effect. If such a column
varies later, even by being absent, the prior variance of other columns says nothing about its
coefficient β: all of an arm's mean reward may be due to it. So ν²/(n + 1), the share of one of n
anchored columns in the mean square of rewards ν², counts as one observation of (βa)². Each reward
at which anchored columns varied is another: the increase of its squared error over the expected one
without them, weighted by their part of the prediction's variance. The mean of these observations
is the prior variance in units of a, and never less than that of other columns.

σ² and ρ are estimated from how well rewards were predicted. With the sum E of e²/s, and the sum T
of the same if every arm only had its constant (recent rewards count more in both), σ² is E per
reward, the ratio of signal to noise is R = T/E − 1, and ρ is R over the mean of Σ xⱼ². Coefficients
that share their credit look more certain apart than they are together, so R is kept below 1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import LARGEST, Count, Natural, Switch
from tsucb.compiler import compiled, implements
from tsucb.models.model import Model, belief, update
from tsucb.models.state import MOST_REWARDS, State, array, counts
from tsucb.numeric.arrays import Floats, full, take

MEAN, PRECISION = range(2)  # places on the last axis of `HashedState.columns`
COLUMN, VALUE = range(2)  # places on the last axis of `HashedState.anchors`

MOST_BITS = 24  # 2²⁴ columns of ten arms take 2.7 GB
MOST_ROW = 2**20

CONSTANT = 1.0  # prior precision of an arm's constant: as if the arm had paid the mean reward once
FIRST_RATIO, CAUTION = 0.5, 100.0  # the guess of R, and the rewards that the guess is worth
LEAST_RATIO, MOST_RATIO = 0.02, 1.0  # limits of R
RECENT = 200.0  # after i more rewards, the n-th has the weight ((n + 200)/(n + i + 200))²
LEAST_NOISE = 1e-12  # share of the rewards' variance
MOST_ERROR = 2 * LARGEST  # two rewards are never further apart
MOST_EFFECT = LARGEST**2  # the most that one reward adds to `effect`, so that the sum stays finite
SETTLED = 20.0  # rewards; of columns that are 0 in half of the rows, 1 in 500,000 is anchored


class HashedState(State):
    """The posterior of K arms and D columns.

    `columns` has for each column the μⱼ and Pⱼ of all arms side by side, as a decision reads them.
    An arm's column 0 is relative to the mean of all rewards. In `weight`, `error` (E) and `spread`
    (T) recent rewards count more. The first `anchored` rows of `anchors` are the columns that did
    not vary in the first rewards, with their values; `place` has each column's row, counted from 1,
    or 0.
    """

    pulls: Floats = counts("arm")
    totals: Floats = array("arm")
    information: Floats = array("arm", least=0.0)
    columns: Floats = array("column", "arm", 2)
    anchors: Floats = array("column", 2)
    place: Floats = array("column", least=0.0)
    anchored: Floats = array(least=0.0)
    level: Floats = array()  # the mean of all rewards
    learned: Floats = array(least=0.0, most=MOST_REWARDS)  # number of rewards
    size: Floats = array(least=0.0)  # the sum of Σ xⱼ² over rewards
    weight: Floats = array(least=0.0, most=MOST_REWARDS)
    error: Floats = array(least=0.0)
    spread: Floats = array(least=0.0)
    # Over rewards at which anchored columns varied: the sum of weights, and the weighted sum of
    # observations of (βa)².
    varied: Floats = array(least=0.0, most=MOST_REWARDS)
    effect: Floats = array()

    def check(self, rewards: int) -> None:
        """Raise ValueError also for negative precisions, wrong anchors, and too many rewards."""
        super().check(rewards)
        if (self.columns[:, :, PRECISION] < 0).any():
            raise ValueError("precisions must not be negative")
        places = np.arange(min(self.anchored[0], self.place.size))
        listed = self.anchors[: places.size, COLUMN]
        known = ((listed >= 1) & (listed < self.place.size) & (listed == np.floor(listed))).all()
        if (
            not known
            or np.count_nonzero(self.place) != self.anchored[0]
            or (self.place[listed.astype(np.int64)] != places + 1).any()
        ):
            raise ValueError("anchors and the places of their columns must match")
        if self.learned[0] > rewards or not self.weight[0] <= max(self.learned[0], 1.0):
            raise ValueError("learned and weight must not exceed the number of rewards")


class HashedLinear(Model):
    """Linear rewards of very many features, of which a context has few; nothing else to set.

    An agent with this model reads dictionaries and rows of tables as they come. Every category, and
    every number (which is standardised), is hashed to one of 2^bits columns. Coefficients are
    independent a posteriori, which is an approximation: the page on sparse contexts says when it
    fails. Noise and prior are learned.

    Parameters
    ----------
    bits
        There are 2^bits columns. Ten arms take 42 MB at 18 bits, once all columns are in use.
    crossed
        Whether all pairs of features have columns, too.
    features
        The length of a context, if contexts are rows of pairs (column, value, column, value, …); 0
        if an agent is to read contexts as they come.

    >>> import numpy as np
    >>> model = HashedLinear(bits=8, features=4)
    >>> rows, arms = np.array([[7, 1, 9, 2.0], [7, 1, 0, 0]] * 50), np.arange(100) % 2
    >>> state = model.fit(2, rows, arms, np.where(arms == 0, 3.0, -1.0))
    >>> model.belief(state, rows[1], rng=np.random.default_rng(0)).mean.round(1)
    array([ 2.5, -1. ])

    Reference: Opper (1998), "A Bayesian approach to on-line learning"; Weinberger and others
    (2009), "Feature hashing for large scale multitask learning".
    """

    state = HashedState

    bits: Count = 18
    crossed: Switch = False
    features: Natural = 0

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Raise ValueError for too many bits, or rows that are too long or of odd length."""
        if values["bits"] > MOST_BITS:
            raise ValueError(f"bits must be from 1 to {MOST_BITS}, but it is {values['bits']}")
        if values["features"] % 2 or values["features"] > MOST_ROW:
            raise ValueError(
                "features must be even, as a row is pairs of a column and a value, and at most "
                f"{MOST_ROW:,}, but it is {values['features']}"
            )

    def sizes(self) -> dict[str, int]:
        """Return the number of columns; memory is only used for columns that are."""
        return {"column": 2**self.bits}

    def widened(self, features: int) -> "HashedLinear":
        """Return the model for longer rows."""
        return HashedLinear(self.bits, self.crossed, features)

    def widen(self, state: HashedState, features: int, places: Any = None) -> HashedState:
        """Return the state itself, which does not depend on the length of rows."""
        return state

    def coefficients(self, state: HashedState, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the constant only: columns have no names."""
        noise, _ = outlook(state, np.zeros(0))
        mean, precision = state.columns[0, arm]
        std = np.sqrt(noise / (CONSTANT + precision))
        return state.level + mean, np.array([std])

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """Return the name of the constant only."""
        return ["constant"]


@compiled
def outlook(state, context):  # type: ignore[no-untyped-def]
    """Return the noise variance σ², and a coefficient's prior precision 1/ρ in units of it.

    The context is a row relative to the anchors.
    """
    size = 0.0
    for j in range(1, context.size, 2):
        size += context[j] * context[j]
    typical = (state.size[0] + size) / (state.learned[0] + 1.0)
    weight = max(state.weight[0], 1.0)
    noise = max(state.error[0], LEAST_NOISE * state.spread[0]) / weight
    if noise == 0.0:  # until two rewards differ their scale is unknown
        noise = 1.0
    caution = CAUTION * noise
    ratio = (state.spread[0] + caution * (1.0 + FIRST_RATIO)) / (state.error[0] + caution) - 1.0
    ratio = min(max(ratio, LEAST_RATIO), MOST_RATIO)
    return noise, typical / ratio if typical > 0.0 else 1.0


@compiled
def column_of(number, columns):  # type: ignore[no-untyped-def]
    """Return a number in a row as a column; raise ValueError if there is no such column."""
    if not 0.0 <= number < columns or number != np.floor(number):
        raise ValueError("a row names its columns by whole numbers from 0 to 2**bits - 1")
    return int(number)


@compiled
def relative(state, context):  # type: ignore[no-untyped-def]
    """Return a row with all anchored columns first, whose values are relative to the anchors."""
    n = int(state.anchored[0])
    row = np.zeros(2 * n + context.size)
    for p in range(n):
        row[2 * p] = state.anchors[p, COLUMN]
        row[2 * p + 1] = -state.anchors[p, VALUE]
    for j in range(1, context.size, 2):
        x = context[j]
        if x != 0.0:
            p = int(state.place[column_of(context[j - 1], state.place.size)])
            if p > 0:
                row[2 * p - 1] += x
            else:
                row[2 * n + j - 1], row[2 * n + j] = context[j - 1], x
    return row


@compiled
def anchored_columns(state):  # type: ignore[no-untyped-def]
    """Return the number of anchored columns; 0 during the first `SETTLED` rewards."""
    return int(state.anchored[0]) if state.learned[0] >= SETTLED else 0


@compiled
def settled(state, context):  # type: ignore[no-untyped-def]
    """Return the row of a context to which coefficients apply, with anchored columns first."""
    return relative(state, context) if anchored_columns(state) > 0 else context.copy()


@compiled
def prior_precisions(state, row, noise, prior):  # type: ignore[no-untyped-def]
    """Return the prior precision of each column of a settled row, in its order."""
    n, precisions = anchored_columns(state), full(row.size // 2, prior)
    square = state.level[0] * state.level[0] + state.spread[0] / max(state.weight[0], 1.0)
    variance = (square / (n + 1.0) + max(state.effect[0], 0.0)) / (1.0 + state.varied[0])
    if variance > 0.0:
        for p in range(n):
            value = state.anchors[p, VALUE]
            precisions[p] = min(prior, noise * value * value / variance)
    return precisions


@implements(belief, HashedLinear)
def belief_of_hashed(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    row = settled(state, context)
    noise, prior = outlook(state, row)
    priors = prior_precisions(state, row, noise, prior)
    columns, n = state.columns, arms.size
    mean, std = np.empty(n), np.empty(n)
    for a in range(n):
        mean[a] = state.level[0] + columns[0, arms[a], MEAN]
        std[a] = 1.0 / (CONSTANT + columns[0, arms[a], PRECISION])
    for j in range(1, row.size, 2):
        x = row[j]
        if x != 0.0:
            i = column_of(row[j - 1], columns.shape[0])
            for a in range(n):
                mean[a] += x * columns[i, arms[a], MEAN]
                std[a] += x * x / (priors[j // 2] + columns[i, arms[a], PRECISION])
    for a in range(n):
        std[a] = np.sqrt(noise * std[a])
    pulls, information = take(state.pulls, arms), take(state.information, arms)
    return Belief(Gaussian(), mean, std, mean, std, pulls, information, step, columns.shape[0], 1.0)


@implements(update, HashedLinear)
def update_hashed(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    columns, row = state.columns, settled(state, context)
    noise, prior = outlook(state, row)
    priors = prior_precisions(state, row, noise, prior)
    level = reward if state.learned[0] == 0.0 else state.level[0]
    expected = level + columns[0, arm, MEAN]
    spread, size = 1.0 / (CONSTANT + columns[0, arm, PRECISION]), 0.0
    varied, unknown = 0.0, 0.0  # the part of `spread` due to anchored columns; and per (βa)²
    for j in range(1, row.size, 2):
        x = row[j]
        if x != 0.0:
            i = column_of(row[j - 1], columns.shape[0])
            known = priors[j // 2] + columns[i, arm, PRECISION]
            expected += x * columns[i, arm, MEAN]
            spread += x * x / known
            size += x * x
            if j // 2 < anchored_columns(state):
                varied += x * x / known
                unknown += (x / state.anchors[j // 2, VALUE]) ** 2 * priors[j // 2] / known
    error, total = min(max(reward - expected, -MOST_ERROR), MOST_ERROR), 1.0 + spread
    state.level[0] = level
    if unknown > 0.0:
        weight = varied / total
        excess = error * error - noise * (total - varied)
        state.varied[0] += weight
        state.effect[0] += min(max(weight * excess / unknown, -MOST_EFFECT), MOST_EFFECT)
    observe(columns, 0, arm, 1.0, CONSTANT, error, total)
    for j in range(1, row.size, 2):
        if row[j] != 0.0:
            i = column_of(row[j - 1], columns.shape[0])
            observe(columns, i, arm, row[j], priors[j // 2], error, total)
    state.information[arm] += np.log(total)
    learn_numbers(state, arm, reward, error * error / total, size)
    if state.learned[0] == 1.0:
        list_columns(state, context)
    elif state.learned[0] <= SETTLED and state.anchored[0] > 0.0:
        drop_varied(state, relative(state, context))
        if state.learned[0] == SETTLED:
            anchor_columns(state, prior)


@compiled
def list_columns(state, context):  # type: ignore[no-untyped-def]
    """List the columns of the first row with their values: no others can be constant."""
    n = 0
    for j in range(1, context.size, 2):
        i, x = int(context[j - 1]), context[j]
        if x != 0.0 and i > 0:
            if state.place[i] == 0.0:
                state.place[i] = n + 1.0
                state.anchors[n, COLUMN] = i
                n += 1
            state.anchors[int(state.place[i]) - 1, VALUE] += x  # features may share a column
    state.anchored[0] = n


@compiled
def drop_varied(state, row):  # type: ignore[no-untyped-def]
    """Take columns off the list that are not 0 in a row relative to the anchors."""
    n, left = int(state.anchored[0]), 0
    for p in range(n):
        i, value = int(state.anchors[p, COLUMN]), state.anchors[p, VALUE]
        state.place[i] = state.anchors[p, COLUMN] = state.anchors[p, VALUE] = 0.0
        if row[2 * p + 1] == 0.0:
            state.anchors[left, COLUMN], state.anchors[left, VALUE] = i, value
            left += 1
            state.place[i] = left
    state.anchored[0] = left


@compiled
def anchor_columns(state, prior):  # type: ignore[no-untyped-def]
    """Add means and variances of the anchored columns to each arm's constant, in place."""
    columns = state.columns
    for k in range(state.pulls.size):
        variance = 1.0 / (CONSTANT + columns[0, k, PRECISION])
        for p in range(int(state.anchored[0])):
            i, x = int(state.anchors[p, COLUMN]), state.anchors[p, VALUE]
            columns[0, k, MEAN] += x * columns[i, k, MEAN]
            variance += x * x / (prior + columns[i, k, PRECISION])
            columns[i, k, MEAN] = columns[i, k, PRECISION] = 0.0
        columns[0, k, PRECISION] = max(1.0 / variance - CONSTANT, 0.0)


@compiled
def observe(columns, i, arm, x, prior, error, total):  # type: ignore[no-untyped-def]
    """Update one coefficient by an error with the variance `total`, in place."""
    u = 1.0 / (prior + columns[i, arm, PRECISION])
    columns[i, arm, MEAN] += u * x * error / total
    # The difference is at least the noise, 1, but for rounding.
    columns[i, arm, PRECISION] += x * x / max(total - x * x * u, 1.0)


@compiled
def learn_numbers(state, arm, reward, surprise, size):  # type: ignore[no-untyped-def]
    """Count a reward with the squared error `surprise`; move the mean of all rewards, in place."""
    pulls = state.pulls[arm] + CONSTANT
    plain = reward - (state.totals[arm] + CONSTANT * state.level[0]) / pulls
    fading = 1.0 - 2.0 / (state.learned[0] + RECENT)
    state.weight[0] = state.weight[0] * fading + 1.0
    state.error[0] = state.error[0] * fading + surprise
    state.spread[0] = state.spread[0] * fading + plain * plain * pulls / (pulls + 1.0)
    state.learned[0] += 1.0
    state.size[0] += size
    shift = (reward - state.level[0]) / state.learned[0]
    state.level[0] += shift
    for k in range(state.pulls.size):  # what data say about an arm's constant does not move
        precision = state.columns[0, k, PRECISION]
        state.columns[0, k, MEAN] -= shift * precision / (CONSTANT + precision)
    state.totals[arm] += reward
    state.pulls[arm] += 1
