"""One coefficient per arm and hashed column, of which a context has few: a diagonal posterior.

A row is what compiled code takes as any other context, a vector of numbers: column, value, column,
value, … . A value of 0 is none, so a row can be made longer by zeros. Column 0 is the arm's
constant, which need not be among them.

Everything is in units of the noise, as for `NIGLinear`: coefficient j of an arm is believed to be
N(μⱼ, σ²uⱼ) with 1/uⱼ = 1/ρ + Pⱼ, where ρ is its prior variance and Pⱼ the precision that data gave
it. A reward y at x updates all of them together as Bayes' rule has it, and what is then correlated
is taken to be independent, with the same means and variances (Opper 1998):

    s = 1 + Σ xⱼ²uⱼ        e = y − Σ xⱼμⱼ        μⱼ ← μⱼ + uⱼxⱼe/s        Pⱼ ← Pⱼ + xⱼ²/(s − xⱼ²uⱼ)

What the other coefficients leave open counts as noise, so no coefficient learns too much from one
reward. As only u, not μ, depends on ρ, the prior can change at any time.

σ² and ρ come from how well rewards were predicted before they were seen. With the sums E of e²/s,
and T of the same if every arm had its constant only, recent rewards counting more, σ² is E per
reward, and T/E − 1 the ratio of signal to noise R; ρ is R over the mean of Σ xⱼ². As coefficients
that share their credit look more certain apart than they are together, R is kept below 1.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.gaussian import Gaussian
from tsucb.checks import truth, whole_number, within
from tsucb.compiler import compiled, implements
from tsucb.models.model import Model, believe, check_arm_count, update
from tsucb.numeric.arrays import Floats, Integers, taken

# Places in `HashedState.numbers`: the mean of all rewards, their number, the sum of Σ xⱼ², and with
# recent rewards counting more, their weight, E and T.
LEVEL, COUNT, SIZE, WEIGHT, ERROR, SPREAD = range(6)
MEAN, PRECISION = range(2)  # places in the last axis of `HashedState.columns`

MOST_BITS = 24  # 2²⁴ columns of ten arms take 2.7 GB
MOST_ROW = 2**20
MOST = 1e100  # of anything in a state

CONSTANT = 1.0  # prior precision of an arm's constant: as if it had paid the mean reward once
FIRST_RATIO, CAUTION = 0.5, 100.0  # R before any reward, and the rewards that it counts for
LEAST_RATIO, MOST_RATIO = 0.02, 1.0
RECENT = 200.0  # after i more, the n-th reward counts ((n + 200)/(n + i + 200))²
LEAST_NOISE = 1e-12  # of the rewards' variance


class HashedState(NamedTuple):
    """What is believed of K arms and D columns: `columns` (D, K, 2) has every μⱼ and Pⱼ.

    All that a context needs of a column lies side by side. An arm's column 0 is relative to the
    mean of all rewards. `totals` (K,) are sums of rewards.
    """

    pulls: Integers
    totals: Floats
    information: Floats
    columns: Floats
    numbers: Floats


class HashedLinear(
    Model, NamedTuple("HashedLinear", [("bits", int), ("crossed", bool), ("features", int)])
):
    """Linear rewards of very many features, of which a context has few; nothing else to set.

    An agent with this model reads dictionaries and rows of tables as they come: every category, and
    every number, standardised by what was seen, has the column that its hash says, out of 2^bits.
    Coefficients are independent a posteriori, which is an approximation: `docs/sparse.md` says when
    it fails. Noise and prior are learned.

    Parameters
    ----------
    bits
        There are 2^bits columns. Ten arms take 42 MB at 18 bits, once all columns are in use.
    crossed
        Whether all pairs of features have columns, too.
    features
        For rows that were laid out before: twice the number of columns that they name, with the
        values, (column, value, column, value, …). 0: an agent reads contexts as they come.

    >>> import numpy as np
    >>> model = HashedLinear(bits=8, features=4)
    >>> rows, arms = np.array([[7, 1, 9, 2.0], [7, 1, 0, 0]] * 50), np.arange(100) % 2
    >>> state = model.fit(2, rows, arms, np.where(arms == 0, 3.0, -1.0))
    >>> model.belief(state, rows[1], rng=np.random.default_rng(0)).mean.round(1)
    array([ 2.5, -1. ])

    Reference: Opper (1998), "A Bayesian approach to on-line learning"; Weinberger and others
    (2009), "Feature hashing for large scale multitask learning".
    """

    __slots__ = ()

    def __new__(cls, bits: int = 18, crossed: bool = False, features: int = 0) -> "HashedLinear":
        model = super().__new__(
            cls,
            whole_number("bits", bits),
            truth("crossed", crossed),
            whole_number("features", features, least=0),
        )
        model.check_settings()
        return model

    def check_settings(self) -> None:
        """Raise a ValueError for more columns than can be, or half a pair."""
        if not 1 <= self.bits <= MOST_BITS:
            raise ValueError(f"bits must be from 1 to {MOST_BITS}, but it is {self.bits}")
        if self.features % 2 or not 0 <= self.features <= MOST_ROW:
            raise ValueError(
                "features must be even, as a row is pairs of a column and a value, and at most "
                f"{MOST_ROW:,}, but it is {self.features}"
            )

    def start(self, arms: int, rng: np.random.Generator | None = None) -> HashedState:
        """The state before any data. Memory is used up only as columns are."""
        count = check_arm_count(arms)
        columns = np.zeros((2**self.bits, count, 2))
        pulls, totals, information = np.zeros(count, np.int64), np.zeros(count), np.zeros(count)
        return HashedState(pulls, totals, information, columns, np.zeros(6))

    def extend(self, state: HashedState, arms: int) -> HashedState:
        """A state with further arms at the end, of which nothing is known but the mean reward."""
        new = self.start(arms)
        return HashedState(
            np.append(state.pulls, new.pulls),
            np.append(state.totals, new.totals),
            np.append(state.information, new.information),
            np.concatenate((state.columns, new.columns), axis=1),
            state.numbers.copy(),
        )

    def widened(self, features: int) -> "HashedLinear":
        """The model for longer rows."""
        return HashedLinear(self.bits, self.crossed, features)

    def widen(self, state: HashedState, features: int, places: Any = None) -> HashedState:
        """The same state: it does not depend on how long rows are."""
        return state

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One row of pairs, the same for all arms."""
        return (self.features,) if self.features else ()

    def coefficients(self, state: HashedState, arm: int) -> tuple[Floats, Floats]:
        """Of the constant alone: columns have no names."""
        noise, _ = outlook(state.numbers, np.zeros(0))
        mean, precision = state.columns[0, arm]
        std = np.sqrt(noise / (CONSTANT + precision))
        return np.array([state.numbers[LEVEL] + mean]), np.array([std])

    def parameter_names(self, features: Sequence[str]) -> Sequence[str]:
        """The constant alone."""
        return ["constant"]

    def check_state(self, state: HashedState, rewards: int) -> None:
        """Raise a ValueError for numbers that data cannot have led to."""
        if (state.pulls < 0).any() or (state.pulls > rewards).any():
            raise ValueError("counts of pulls that cannot be")
        numbers = state.numbers
        if not all(within(array, MOST) for array in state) or (numbers[COUNT:] < 0).any():
            raise ValueError("sums that cannot be")
        if (state.columns[:, :, PRECISION] < 0).any() or (state.information < 0).any():
            raise ValueError("a precision that cannot be")
        if numbers[COUNT] > rewards or not numbers[WEIGHT] <= max(numbers[COUNT], 1.0):
            raise ValueError("more rewards than were learned")


@compiled
def outlook(numbers, context):  # type: ignore[no-untyped-def]
    """The variance of the noise, and the prior precision 1/ρ of a coefficient in its units."""
    size = 0.0
    for j in range(1, context.size, 2):
        size += context[j] * context[j]
    typical = (numbers[SIZE] + size) / (numbers[COUNT] + 1.0)
    weight = max(numbers[WEIGHT], 1.0)
    noise = max(numbers[ERROR], LEAST_NOISE * numbers[SPREAD]) / weight
    if noise == 0.0:  # until two rewards differ nothing is known of their scale
        noise = 1.0
    caution = CAUTION * noise
    ratio = (numbers[SPREAD] + caution * (1.0 + FIRST_RATIO)) / (numbers[ERROR] + caution) - 1.0
    ratio = min(max(ratio, LEAST_RATIO), MOST_RATIO)
    return noise, typical / ratio if typical > 0.0 else 1.0


@compiled
def column_of(number, columns):  # type: ignore[no-untyped-def]
    """The column that a row names; the constant's for a number that is none, so never beyond."""
    return int(number) if 0.0 <= number < columns else 0


@implements(believe, HashedLinear)
def believe_hashed(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    noise, prior = outlook(state.numbers, context)
    columns, n = state.columns, arms.size
    mean, std = np.empty(n), np.empty(n)
    for a in range(n):
        mean[a] = state.numbers[LEVEL] + columns[0, arms[a], MEAN]
        std[a] = 1.0 / (CONSTANT + columns[0, arms[a], PRECISION])
    for j in range(1, context.size, 2):
        x = context[j]
        if x != 0.0:
            i = column_of(context[j - 1], columns.shape[0])
            for a in range(n):
                mean[a] += x * columns[i, arms[a], MEAN]
                std[a] += x * x / (prior + columns[i, arms[a], PRECISION])
    for a in range(n):
        std[a] = np.sqrt(noise * std[a])
    pulls, information = taken(state.pulls, arms), taken(state.information, arms)
    return Belief(Gaussian(), mean, std, mean, std, pulls, information, step, columns.shape[0], 1.0)


@implements(update, HashedLinear)
def update_hashed(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    numbers, columns = state.numbers, state.columns
    _, prior = outlook(numbers, context)
    if numbers[COUNT] == 0.0:
        numbers[LEVEL] = reward
    expected = numbers[LEVEL] + columns[0, arm, MEAN]
    spread, size = 1.0 / (CONSTANT + columns[0, arm, PRECISION]), 0.0
    for j in range(1, context.size, 2):
        x = context[j]
        if x != 0.0:
            i = column_of(context[j - 1], columns.shape[0])
            expected += x * columns[i, arm, MEAN]
            spread += x * x / (prior + columns[i, arm, PRECISION])
            size += x * x
    error, total = reward - expected, 1.0 + spread
    observe(columns, 0, arm, 1.0, CONSTANT, error, total)
    for j in range(1, context.size, 2):
        if context[j] != 0.0:
            i = column_of(context[j - 1], columns.shape[0])
            observe(columns, i, arm, context[j], prior, error, total)
    state.information[arm] += np.log(total)
    learn_numbers(state, arm, reward, error * error / total, size)


@compiled
def observe(columns, i, arm, x, prior, error, total):  # type: ignore[no-untyped-def]
    """What one coefficient learns from an error, of which `total` is the variance."""
    u = 1.0 / (prior + columns[i, arm, PRECISION])
    columns[i, arm, MEAN] += u * x * error / total
    # The rest of the variance is at least the noise, which rounding could miss.
    columns[i, arm, PRECISION] += x * x / max(total - x * x * u, 1.0)


@compiled
def learn_numbers(state, arm, reward, surprise, size):  # type: ignore[no-untyped-def]
    """Count a reward whose prediction has erred by so much, and move the mean of all rewards."""
    numbers, pulls = state.numbers, state.pulls[arm] + CONSTANT
    plain = reward - (state.totals[arm] + CONSTANT * numbers[LEVEL]) / pulls
    fading = 1.0 - 2.0 / (numbers[COUNT] + RECENT)
    numbers[WEIGHT] = numbers[WEIGHT] * fading + 1.0
    numbers[ERROR] = numbers[ERROR] * fading + surprise
    numbers[SPREAD] = numbers[SPREAD] * fading + plain * plain * pulls / (pulls + 1.0)
    numbers[COUNT] += 1.0
    numbers[SIZE] += size
    shift = (reward - numbers[LEVEL]) / numbers[COUNT]
    numbers[LEVEL] += shift
    for k in range(state.pulls.size):  # what arms have shown of themselves stays where it is
        precision = state.columns[0, k, PRECISION]
        state.columns[0, k, MEAN] -= shift * precision / (CONSTANT + precision)
    state.totals[arm] += reward
    state.pulls[arm] += 1
