"""Bandits made from a table of data: classification, portfolios, jokes and mushrooms.

Every run draws its own order of the rows.

Reference: Riquelme, Tucker and Snoek (2018), Deep Bayesian Bandits Showdown, Appendix A.
"""

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.compiler import compiled, implements
from tsucb.environments.environment import (
    Environment,
    World,
    advance,
    begin,
    fill_normal,
    reward,
)
from tsucb.numeric.arrays import Floats


def matrix(name: str, rows: ArrayLike) -> Floats:
    """Return the rows as a finite matrix; raise ValueError otherwise."""
    array = np.ascontiguousarray(rows, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, (rows, features) in shape, but the shape is {array.shape}"
        )
    return array


class Table(Environment):
    """A bandit whose first field is a table (rows, features); each step takes a row of it."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self[0])

    @property
    def features(self) -> int:
        """d, the length of a context."""
        return int(self[0].shape[1])

    @property
    def context_shape(self) -> tuple[int, ...]:
        """One vector (d,), the same for all arms."""
        return (self.features,)

    @property
    def longest(self) -> int:
        """The most steps of a run: a row comes only once."""
        return self.rows


class ClassificationBandit(Table):
    """A row's features are the context; the arm of its label pays 1, all others pay 0.

    Parameters
    ----------
    contexts
        (rows, d).
    labels
        (rows,), from 0 to K − 1.
    arms
        K; one more than the largest label by default.

    >>> bandit = ClassificationBandit([[0.0], [1.0], [2.0]], labels=[0, 1, 0])
    >>> rng = np.random.default_rng(0)
    >>> context, means, _ = bandit.advance(bandit.begin(rng), 1, rng)
    >>> context, means
    (array([2.]), array([1., 0.]))
    """

    contexts: Annotated[Any, matrix]
    labels: Any
    arms: Any = None

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Check that every row has a label, and count the arms."""
        rows, arms = values["contexts"], values["arms"]
        classes = np.ascontiguousarray(values["labels"], dtype=np.int64)
        count = int(classes.max(initial=0)) + 1 if arms is None else int(arms)
        if classes.shape != (len(rows),) or (classes < 0).any() or (classes >= count).any():
            raise ValueError(
                f"labels must be {len(rows)} whole numbers, one per row, from 0 to {count - 1}"
            )
        values |= {"labels": classes, "arms": count}


@compiled
def new_world(rows, features, arms, drawn):  # type: ignore[no-untyped-def]
    """Return the world of a run before its first step, with room for `drawn` numbers.

    Its parameters are the rows in the order of the run, shuffled up to the current step, and the
    numbers drawn once for the run.
    """
    parameters = np.arange(rows).astype(np.int32), np.zeros(drawn)
    return World(parameters, np.empty(features), np.zeros(arms), np.arange(arms), np.zeros(1))


@compiled
def next_row(world, step, rng):  # type: ignore[no-untyped-def]
    """Draw a row that has not come yet, as one swap of a shuffle."""
    order, _ = world.parameters
    if step > order.size:
        raise ValueError("the run is longer than the table; shorten the horizon")
    other = rng.integers(step - 1, order.size)
    row = order[other]
    order[other] = order[step - 1]
    order[step - 1] = row
    return row


@implements(begin, ClassificationBandit)
def begin_classification(environment, rng):  # type: ignore[no-untyped-def]
    rows, features = environment.contexts.shape
    return new_world(rows, features, environment.arms, 0)


@implements(advance, ClassificationBandit)
def advance_classification(environment, world, step, rng):  # type: ignore[no-untyped-def]
    row = next_row(world, step, rng)
    world.context[:] = environment.contexts[row]
    world.means[:] = 0.0
    world.means[environment.labels[row]] = 1.0
    return world.context, world.means, world.available


PORTFOLIOS = 8
NOISE = 0.01  # standard deviation for the first portfolio; the k-th has k times as much


class PortfolioBandit(Table):
    """Choose one of eight portfolios of d stocks; the context is the stocks' returns.

    Portfolio k pays xᵀwₖ plus N(0, (0.01 k)²), k = 1, …, 8. Its weights are drawn for every run,
    uniform in (−1, 1)^d and scaled to unit norm.

    Parameters
    ----------
    contexts
        (days, d) returns.
    """

    contexts: Annotated[Any, matrix]
    arms = PORTFOLIOS


@implements(begin, PortfolioBandit)
def begin_portfolios(environment, rng):  # type: ignore[no-untyped-def]
    rows, stocks = environment.contexts.shape
    world = new_world(rows, stocks, PORTFOLIOS, PORTFOLIOS * stocks)
    weights = world.parameters[1].reshape(PORTFOLIOS, stocks)
    for a in range(PORTFOLIOS):
        for i in range(stocks):
            weights[a, i] = rng.uniform(-1.0, 1.0)
        weights[a] /= math.sqrt((weights[a] ** 2).sum())
    return world


@implements(advance, PortfolioBandit)
def advance_portfolios(environment, world, step, rng):  # type: ignore[no-untyped-def]
    weights = world.parameters[1].reshape(PORTFOLIOS, world.context.size)
    world.context[:] = environment.contexts[next_row(world, step, rng)]
    for a in range(PORTFOLIOS):
        world.means[a] = (world.context * weights[a]).sum()
    fill_normal(world.noise, NOISE, rng)
    return world.context, world.means, world.available


@implements(reward, PortfolioBandit)
def reward_portfolios(environment, world, arm):  # type: ignore[no-untyped-def]
    return world.means[arm] + (arm + 1) * world.noise[0]


CHOICES = 8  # jokes to recommend from


class JesterBandit(Table):
    """Recommend one of eight jokes to a user whose ratings of all others are the context.

    The eight jokes are drawn for every run. The reward is the user's rating.

    Parameters
    ----------
    ratings
        (users, jokes), all of them.
    """

    ratings: Annotated[Any, matrix]
    arms = CHOICES

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Raise ValueError if there are too few jokes."""
        jokes = values["ratings"].shape[1]
        if jokes <= CHOICES:
            raise ValueError(f"more than {CHOICES} jokes are needed, but there are {jokes} columns")

    @property
    def features(self) -> int:
        """d, the number of other jokes."""
        return int(self.ratings.shape[1]) - CHOICES


@implements(begin, JesterBandit)
def begin_jester(environment, rng):  # type: ignore[no-untyped-def]
    rows, jokes = environment.ratings.shape
    world = new_world(rows, jokes - CHOICES, CHOICES, jokes)
    world.parameters[1][:] = rng.permutation(jokes)
    return world


@implements(advance, JesterBandit)
def advance_jester(environment, world, step, rng):  # type: ignore[no-untyped-def]
    ratings, jokes = environment.ratings[next_row(world, step, rng)], world.parameters[1]
    for i in range(world.context.size):
        world.context[i] = ratings[int(jokes[i])]
    for a in range(CHOICES):
        world.means[a] = ratings[int(jokes[world.context.size + a])]
    return world.context, world.means, world.available


# The rewards of eating an edible mushroom, and a poisonous one with bad or good luck.
EDIBLE, HARM, LUCK = 5.0, -35.0, 5.0


class MushroomBandit(Table):
    """Arm 1 is to eat the mushroom; arm 0, not to, pays nothing.

    An edible one pays 5; a poisonous one pays −35 or 5, each with probability ½. Rows are drawn
    with replacement, so a run can be of any length.

    Parameters
    ----------
    contexts
        (rows, d).
    edible
        (rows,), true or false.
    """

    contexts: Annotated[Any, matrix]
    edible: Any
    arms = 2
    longest = np.iinfo(np.int64).max

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Turn `edible` into truth values; raise ValueError unless there is one per row."""
        rows, safe = values["contexts"], np.ascontiguousarray(values["edible"], dtype=np.bool_)
        if safe.shape != (len(rows),):
            raise ValueError(f"edible must have one entry for each of the {len(rows)} rows")
        values["edible"] = safe


@implements(begin, MushroomBandit)
def begin_mushroom(environment, rng):  # type: ignore[no-untyped-def]
    return new_world(0, environment.contexts.shape[1], 2, 0)


@implements(advance, MushroomBandit)
def advance_mushroom(environment, world, step, rng):  # type: ignore[no-untyped-def]
    row = rng.integers(0, environment.contexts.shape[0])
    world.context[:] = environment.contexts[row]
    world.means[1] = EDIBLE if environment.edible[row] else 0.5 * (HARM + LUCK)
    world.noise[0] = rng.random()
    return world.context, world.means, world.available


@implements(reward, MushroomBandit)
def reward_mushroom(environment, world, arm):  # type: ignore[no-untyped-def]
    if arm == 0 or world.means[1] == EDIBLE:
        return world.means[arm]
    return HARM if world.noise[0] < 0.5 else LUCK
