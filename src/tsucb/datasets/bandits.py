"""Bandits made of a table of data: the problems of the deep bandit benchmark.

Every run meets the rows in an order of its own.

Reference: Riquelme, Tucker and Snoek (2018), Deep Bayesian Bandits Showdown, Appendix A.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.compiled import implements, inlined
from tsucb.environments.environment import Environment, advance, begin, fill_normal, pay
from tsucb.numeric.arrays import Floats, Integers

# The rewards of eating a mushroom: an edible one, and a poisonous one that does harm or does not.
EDIBLE, HARM, LUCK = 5.0, -35.0, 5.0
JESTER_ARMS = 8
PORTFOLIOS = 8
PORTFOLIO_NOISE = 0.01  # of the first portfolio; that of the k-th is k times as large


class TableWorld(NamedTuple):
    """One run through a table: the order of its rows, and the current step."""

    order: NDArray[np.int32]  # rows, in the order in which they come: settled up to this step
    parameters: Floats  # drawn once per run
    context: Floats
    means: Floats  # (K,)
    available: Integers  # (K,) all arms
    noise: Floats  # (1,)


class Table(Environment):
    """What all tables share. `contexts` are (rows, features)."""

    __slots__ = ()

    contexts: Floats

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(self.contexts)

    @property
    def features(self) -> int:
        """d, the length of a context."""
        return int(self.contexts.shape[1])

    @property
    def context_shape(self) -> tuple[int, ...]:
        """One vector (d,), the same for all arms."""
        return (self.features,)

    @property
    def longest(self) -> int:
        """The most steps a run can have: a row comes only once."""
        return self.rows

    def __reduce__(self) -> Any:  # the fields are not always the arguments of the constructor
        return type(self)._make, (tuple(self),)  # type: ignore[attr-defined, arg-type]


class ClassificationBandit(
    Table,
    NamedTuple("ClassificationBandit", [("contexts", Floats), ("labels", Integers), ("arms", int)]),
):
    """A row's features are the context, and the arm of its label pays 1, all others 0.

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

    __slots__ = ()

    def __new__(
        cls, contexts: ArrayLike, labels: ArrayLike, arms: int | None = None
    ) -> "ClassificationBandit":
        rows = _table(contexts)
        classes = np.ascontiguousarray(labels, dtype=np.int64)
        count = int(classes.max(initial=0)) + 1 if arms is None else int(arms)
        if classes.shape != (len(rows),) or (classes < 0).any() or (classes >= count).any():
            raise ValueError(
                f"labels must be {len(rows)} whole numbers, one per row, from 0 to {count - 1}"
            )
        return super().__new__(cls, rows, classes, count)


class MushroomBandit(Table, NamedTuple("MushroomBandit", [("contexts", Floats), ("edible", Any)])):
    """Arm 1 eats the mushroom, arm 0 does not and pays nothing.

    An edible one pays 5; a poisonous one pays −35 or 5, each with probability ½. Rows are drawn
    with replacement, so a run can be of any length.

    Parameters
    ----------
    contexts
        (rows, d).
    edible
        (rows,), true or false.
    """

    __slots__ = ()

    def __new__(cls, contexts: ArrayLike, edible: ArrayLike) -> "MushroomBandit":
        rows, safe = _table(contexts), np.ascontiguousarray(edible, dtype=np.bool_)
        if safe.shape != (len(rows),):
            raise ValueError(f"edible must have one entry for each of the {len(rows)} rows")
        return super().__new__(cls, rows, safe)

    @property
    def arms(self) -> int:  # type: ignore[override]
        """Leave it, or eat it."""
        return 2

    @property
    def longest(self) -> int:
        """There is no end to draws with replacement."""
        return np.iinfo(np.int64).max


class JesterBandit(Table, NamedTuple("JesterBandit", [("contexts", Floats)])):
    """Recommend one of the last eight jokes to a user whose ratings of the others are known.

    Which jokes those are is drawn for every run. The reward is the user's rating.

    Parameters
    ----------
    contexts
        (users, jokes), all ratings.
    """

    __slots__ = ()

    def __new__(cls, ratings: ArrayLike) -> "JesterBandit":
        rows = _table(ratings)
        if rows.shape[1] <= JESTER_ARMS:
            raise ValueError(
                f"more than {JESTER_ARMS} jokes are needed, but ratings has {rows.shape[1]} columns"
            )
        return super().__new__(cls, rows)

    @property
    def arms(self) -> int:  # type: ignore[override]
        """The jokes to choose from."""
        return JESTER_ARMS

    @property
    def features(self) -> int:
        """The other jokes."""
        return int(self.contexts.shape[1]) - JESTER_ARMS


class PortfolioBandit(Table, NamedTuple("PortfolioBandit", [("contexts", Floats)])):
    """Choose one of eight portfolios of d stocks by the stocks' returns.

    Portfolio k pays xᵀwₖ plus N(0, (0.01 k)²), k = 1, …, 8. Its weights are drawn for every run,
    uniform in (−1, 1)^d and scaled to unit norm.

    Parameters
    ----------
    contexts
        (days, d) returns.
    """

    __slots__ = ()

    def __new__(cls, contexts: ArrayLike) -> "PortfolioBandit":
        return super().__new__(cls, _table(contexts))

    @property
    def arms(self) -> int:  # type: ignore[override]
        """The portfolios."""
        return PORTFOLIOS


def _table(contexts: ArrayLike) -> Floats:
    """The contexts as a finite matrix with rows, or a sentence on what is wrong."""
    array = np.ascontiguousarray(contexts, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(
            f"contexts must be finite, (rows, features) in shape, but the shape is {array.shape}"
        )
    return array


@inlined
def world_of(rows, features, arms, parameters):  # type: ignore[no-untyped-def]
    return TableWorld(
        np.arange(rows).astype(np.int32),
        np.zeros(parameters),
        np.empty(features),
        np.zeros(arms),
        np.arange(arms),
        np.zeros(1),
    )


@inlined
def next_row(world, step, rng):  # type: ignore[no-untyped-def]
    """One of the rows that have not come yet, each as likely: a shuffle, one swap per step."""
    rows = world.order.size
    if step > rows:
        raise ValueError("the run is longer than the table; shorten the horizon")
    other = rng.integers(step - 1, rows)
    row = world.order[other]
    world.order[other] = world.order[step - 1]
    world.order[step - 1] = row
    return row


@implements(begin, ClassificationBandit)
def _(environment, rng):  # type: ignore[no-untyped-def]
    rows, features = environment.contexts.shape
    return world_of(rows, features, environment.arms, 0)


@implements(advance, ClassificationBandit)
def _(environment, world, step, rng):  # type: ignore[no-untyped-def]
    row = next_row(world, step, rng)
    world.context[:] = environment.contexts[row]
    world.means[:] = 0.0
    world.means[environment.labels[row]] = 1.0
    return world.context, world.means, world.available


@implements(begin, MushroomBandit)
def _(environment, rng):  # type: ignore[no-untyped-def]
    return world_of(0, environment.contexts.shape[1], 2, 0)


@implements(advance, MushroomBandit)
def _(environment, world, step, rng):  # type: ignore[no-untyped-def]
    row = rng.integers(0, environment.contexts.shape[0])
    world.context[:] = environment.contexts[row]
    world.means[1] = EDIBLE if environment.edible[row] else 0.5 * (HARM + LUCK)
    world.noise[0] = rng.random()
    return world.context, world.means, world.available


@implements(pay, MushroomBandit)
def _(environment, world, arm):  # type: ignore[no-untyped-def]
    if arm == 0 or world.means[1] == EDIBLE:
        return world.means[arm]
    return HARM if world.noise[0] < 0.5 else LUCK


@implements(begin, JesterBandit)
def _(environment, rng):  # type: ignore[no-untyped-def]
    rows, jokes = environment.contexts.shape
    world = world_of(rows, jokes - JESTER_ARMS, JESTER_ARMS, jokes)
    world.parameters[:] = rng.permutation(jokes)
    return world


@implements(advance, JesterBandit)
def _(environment, world, step, rng):  # type: ignore[no-untyped-def]
    ratings = environment.contexts[next_row(world, step, rng)]
    for i in range(world.context.size):
        world.context[i] = ratings[int(world.parameters[i])]
    for a in range(JESTER_ARMS):
        world.means[a] = ratings[int(world.parameters[world.context.size + a])]
    return world.context, world.means, world.available


@implements(pay, ClassificationBandit, JesterBandit)
def _(environment, world, arm):  # type: ignore[no-untyped-def]
    return world.means[arm]


@implements(begin, PortfolioBandit)
def _(environment, rng):  # type: ignore[no-untyped-def]
    rows, stocks = environment.contexts.shape
    world = world_of(rows, stocks, PORTFOLIOS, PORTFOLIOS * stocks)
    weights = world.parameters.reshape(PORTFOLIOS, stocks)
    for a in range(PORTFOLIOS):
        for i in range(stocks):
            weights[a, i] = rng.uniform(-1.0, 1.0)
        weights[a] /= math.sqrt((weights[a] ** 2).sum())
    return world


@implements(advance, PortfolioBandit)
def _(environment, world, step, rng):  # type: ignore[no-untyped-def]
    stocks = world.context.size
    world.context[:] = environment.contexts[next_row(world, step, rng)]
    for a in range(PORTFOLIOS):
        weights = world.parameters[a * stocks : (a + 1) * stocks]
        world.means[a] = (world.context * weights).sum()
    fill_normal(world.noise, PORTFOLIO_NOISE, rng)
    return world.context, world.means, world.available


@implements(pay, PortfolioBandit)
def _(environment, world, arm):  # type: ignore[no-untyped-def]
    return world.means[arm] + (arm + 1) * world.noise[0]
