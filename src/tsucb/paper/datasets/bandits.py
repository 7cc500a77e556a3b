"""Bandits made from a table of data.

Every run meets the rows in an order of its own.

Reference: Riquelme, Tucker and Snoek (2018), Deep Bayesian Bandits Showdown, Appendix A.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.compiler import compiled, implements
from tsucb.environments.environment import Environment, advance, begin, reward
from tsucb.numeric.arrays import Floats, Integers


class TableWorld(NamedTuple):
    """One run through a table: the order of its rows, and the current step."""

    order: NDArray[np.int32]  # rows in the order of the run, final up to this step
    parameters: Floats  # drawn once per run
    context: Floats
    means: Floats  # (K,)
    available: Integers  # (K,) all arms
    noise: Floats  # (1,)


def matrix(name: str, rows: ArrayLike) -> Floats:
    """Return the rows as a finite matrix; raise ValueError otherwise."""
    array = np.ascontiguousarray(rows, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, (rows, features) in shape, but the shape is {array.shape}"
        )
    return array


class Table(Environment):
    """A bandit whose `contexts` (rows, features) are the rows of a table."""

    @property
    def contexts(self) -> Floats:
        """(rows, features)."""
        raise NotImplementedError(f"{type(self).__name__} must have a field contexts")

    @property
    def rows(self) -> int:
        """The number of rows."""
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


class ClassificationBandit(Table):
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
def new_world(rows, features, arms, parameters):  # type: ignore[no-untyped-def]
    """Return the world of a run before its first step, with room for `parameters` numbers."""
    return TableWorld(
        np.arange(rows).astype(np.int32),
        np.zeros(parameters),
        np.empty(features),
        np.zeros(arms),
        np.arange(arms),
        np.zeros(1),
    )


@compiled
def next_row(world, step, rng):  # type: ignore[no-untyped-def]
    """Draw one of the rows that have not come yet: a shuffle with one swap per step."""
    rows = world.order.size
    if step > rows:
        raise ValueError("the run is longer than the table; shorten the horizon")
    other = rng.integers(step - 1, rows)
    row = world.order[other]
    world.order[other] = world.order[step - 1]
    world.order[step - 1] = row
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


@implements(reward, ClassificationBandit)
def reward_mean(environment, world, arm):  # type: ignore[no-untyped-def]
    return world.means[arm]
