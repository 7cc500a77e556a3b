"""What an agent knows of its arms: columns of the model's state, counts, and open decisions.

A decision or a reward changes the arrays in a `Knowledge`, by one call of compiled code each.
Anything larger (arms that come and go, wider contexts, training, a history) makes another
`Knowledge`, which then takes the place of this one in one assignment. So an exception from outside
finds the old or the new, never a mixture.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tsucb.agent.machine import (
    CLOSED,
    DUE,
    OBSERVATIONS,
    PER_COLUMN,
    Books,
    padded,
    split_of,
)
from tsucb.agent.open_decisions import (
    LEARNED,
    QUEUED,
    OpenTable,
    close_row,
    empty_table,
    open_rows,
    packed_table,
)
from tsucb.checks import flushed
from tsucb.compiler import compiled
from tsucb.contexts.readers import Arm
from tsucb.contexts.values import listed, shown
from tsucb.models.model import Model, learn_many, training_due, trains, update
from tsucb.models.state import State
from tsucb.numeric.arrays import Floats, Integers
from tsucb.step import runs_compiled
from tsucb.structure import copied, leaves

MOST_NUMBERS = 2**30  # of a state that grows with contexts: 8 GB


class Offer(NamedTuple):
    """Arms to choose from, and the columns of the state that belong to them."""

    names: tuple[Arm, ...]
    columns: Integers


class Knowledge:
    """Everything an agent has learned; see the top of this module.

    Parameters
    ----------
    model, state
        The model, as wide as the contexts so far, and its state.
    arms
        The column of every arm, in the order in which the arms were added; those that come with the
        decisions by their last use.
    books, table
        The counts of every column, and the open decisions.
    free
        Columns of no arm, for those that come with the decisions.
    departed
        Names of arms that left while decisions for them were open.
    """

    # Slots are found faster.
    __slots__ = ("_everyone", "arms", "books", "departed", "free", "machine", "model",
                 "names", "state", "table", "wanted", "width")  # fmt: skip

    def __init__(
        self, model: Model, state: Any, arms: Mapping[Arm, int], books: Books, table: OpenTable,
        free: Iterable[int] = (), departed: Iterable[Arm] = (),
    ) -> None:  # fmt: skip
        self.model, self.state, self.arms = model, state, OrderedDict(arms)
        self.books, self.table = books, table
        self.free, self.departed = dict.fromkeys(free), list(departed)
        self._everyone: Offer | None = None
        self.width = sum(model.context_shape(1)[-1:])  # of a row
        self.names: list[Any] = [None] * books.chosen.size  # of the arm in every column
        for name, column in self.arms.items():
            self.names[column] = name
        # What decides and learns, bound to all this; None while something is to be done before.
        self.machine: Any = None
        # The arms as they are to be from the next call on; -1 for the column of a new one.
        self.wanted: dict[Arm, int] | None = None

    @classmethod
    def start(cls, model: Model, names: Iterable[Arm], state: Any) -> "Knowledge":
        """Return what is known before any data."""
        arms = {name: i for i, name in enumerate(names)}
        count = model.arms(state)
        books = blank_books(count)
        for name, column in arms.items():
            books.tokens[column] = token_of(name)
        free = range(len(arms), count)
        return cls(model, state, arms, books, empty_table(0), free)

    @property
    def everyone(self) -> Offer:
        """All arms."""
        if self._everyone is None:
            self._everyone = self.offer(self.arms)
        return self._everyone

    @property
    def selects(self) -> bool:
        """Whether the state of some of the arms is a state: not if it remembers their indices."""
        return isinstance(self.state, State) and not self.model.keeps_arms

    def offer(self, names: Iterable[Arm]) -> Offer:
        """Return some of the arms, in this order."""
        some = tuple(names)
        return Offer(some, np.array([self.arms[name] for name in some], dtype=np.int64))

    def changed(self, **parts: Any) -> "Knowledge":
        """Return another `Knowledge` with some parts replaced."""
        names = ("model", "state", "arms", "books", "table", "free", "departed")
        return Knowledge(**{name: parts.get(name, getattr(self, name)) for name in names})

    def copied(self) -> "Knowledge":
        """Return another with a state and counts of its own; the open decisions are shared."""
        return self.changed(state=copied(self.state), books=copied(self.books))

    def trained(self) -> "Knowledge":
        """Return another, whose model has been trained."""
        new = self.copied()
        self.model.trainer([new.state])()
        new.books.counts[DUE] = 0
        return new

    # Learning

    def learned(
        self, columns: Integers, rows: Floats, rewards: Floats, observed: bool
    ) -> "Knowledge":
        """Return another after rewards for rows as wide as the model; training when it is due.

        `observed`: they are of no decision that was counted before.
        """
        new = self.copied()
        if not runs_compiled(new.model):
            learn_plainly(new.model, new.state, columns, rows, rewards)
        elif len(new.model.context_shape(1)) == 2:
            room = np.zeros(new.model.context_shape(new.books.chosen.size))
            learn_rows(new.model, new.state, room, flushed(rows), columns, rewards)
        else:
            learn_many(new.model, new.state, flushed(rows), columns, rewards)
        np.add.at(new.books.pulls, columns, 1)
        np.add.at(new.books.totals, columns, rewards)
        if observed:
            np.add.at(new.books.chosen, columns, 1)
        new.books.counts[OBSERVATIONS if observed else CLOSED] += columns.size
        return new

    def drained(self) -> "Knowledge":
        """Return another that has learned the queued rewards, and closed their decisions."""
        table = packed_table(self.table)
        queued = slice(int(table.sizes[QUEUED]))
        queue, rewards = table.queue[queued].copy(), table.rewards[queued].copy()
        rows = np.zeros((queue.size, sum(self.model.context_shape(1)[-1:])))
        for line, i in zip(rows, queue.tolist(), strict=True):
            values = table.values[table.starts[i] : table.starts[i] + table.lengths[i]]
            padded(values, split_of(self.model), line)
        new = self.learned(table.arms[queue], rows, rewards, observed=False)
        table.sizes[[LEARNED, QUEUED]] = 0
        for i in queue.tolist():
            close_row(table, i)
        return new.changed(table=table)

    # Columns

    def admit(self, name: Arm, column: int) -> None:
        """Give an arm that came with a decision a free column, which has its token already."""
        self.free.pop(column, None)
        self.names[column] = name
        self.arms[name] = column
        self._everyone = None

    def with_room(self, arms: int) -> "Knowledge":
        """Return another with at least this many free columns, and half as many columns again."""
        count = self.books.chosen.size
        more = max(arms - len(self.free), count // 2, 8)
        state = self.model.extend(self.state, more)
        books = joined_books(self.books, blank_books(more))
        return self.changed(
            state=state, books=books, free=[*self.free, *range(count, count + more)]
        )

    def without(self, names: Iterable[Arm]) -> "Knowledge":
        """Return another without some arms, whose columns are then free."""
        leaving = {name: self.arms[name] for name in names}
        gone = np.array(list(leaving.values()), dtype=np.int64)
        new = self.copied()
        self.model.release(new.state, gone)
        for name in PER_COLUMN:
            getattr(new.books, name)[gone] = 0
        places = np.arange(self.books.chosen.size)
        places[gone] = -1
        arms = {name: column for name, column in self.arms.items() if name not in leaving}
        table, departed = self._moved(places)
        free = [*self.free, *gone.tolist()]
        return new.changed(arms=arms, table=table, departed=departed, free=free)

    def with_arms(self, wanted: Mapping[Arm, int]) -> "Knowledge":
        """Return another with these arms alone, in this order; column -1 stands for a new arm.

        That copies the state, which is as much work as deciding among all arms, however many came
        and went. Where arms cannot be selected, the columns of those that leave stay.
        """
        old = {name: column for name, column in wanted.items() if column >= 0}
        new = [name for name, column in wanted.items() if column < 0]
        state, books, free = self.state, self.books, list(self.free)
        count = books.chosen.size
        places, staying = np.full(count, -1), np.array(list(old.values()), dtype=np.int64)
        if self.selects and (len(old) < len(self.arms) or free):
            if type(self.model).release is not Model.release:
                state, here = copied(state), set(old.values())
                gone = [column for column in self.arms.values() if column not in here]
                self.model.release(state, np.array(gone, dtype=np.int64))
            free, state = [], state.select(staying)
            books = books._replace(**{name: getattr(books, name)[staying] for name in PER_COLUMN})
            places[staying] = np.arange(staying.size)
            old = {name: i for i, name in enumerate(old)}
        else:
            places[staying] = staying
        count = books.chosen.size
        if new:
            state, books = (
                self.model.extend(state, len(new)),
                joined_books(books, blank_books(len(new))),
            )
        for i, name in enumerate(new):
            books.tokens[count + i] = token_of(name)
        columns = old | {name: count + i for i, name in enumerate(new)}
        table, departed = self._moved(places)
        arms = {name: columns[name] for name in wanted}
        return self.changed(
            state=state, books=books, arms=arms, table=table, departed=departed, free=free
        )

    def arm_name(self, column: int) -> Arm:
        """Return the name of the arm of an open decision, which may have left."""
        name: Arm = self.names[column] if column >= 0 else self.departed[-1 - column]
        return name

    def _moved(self, places: Integers) -> tuple[OpenTable, list[Arm]]:
        """Return the open decisions with other columns of the arms, -1 for those that leave."""
        table, rows = self.table, open_rows(self.table)
        arms, names = table.arms.copy(), dict[Arm, int]()
        before = arms[rows]
        after = np.full(rows.size, -1)
        here = before >= 0
        after[here] = places[before[here]]
        arms[rows] = after
        for row, arm in zip(rows[after < 0].tolist(), before[after < 0].tolist(), strict=True):
            arms[row] = -1 - names.setdefault(self.arm_name(arm), len(names))
        return table._replace(arms=arms), list(names)

    # Contexts

    def widened(self, features: Any, places: Any = None) -> "Knowledge":
        """Return another whose contexts have more features, which were 0 in all so far."""
        model = self.model.widened(features)
        one, two = (sum(a.size for a in leaves(model.start(n))) for n in (1, 2))
        if one + (two - one) * (self.books.chosen.size - 1) > MOST_NUMBERS:
            raise ValueError(
                f"with {shown(features)} columns, {len(self.arms):,} arms would need more than "
                f"{8 * MOST_NUMBERS / 1e9:.0f} GB; give fewer features, or model="
                "tsucb.HashedLinear()"
            )
        state = self.model.widen(self.state, features, places)
        return self.changed(model=model, state=state)


def learn_plainly(
    model: Model, state: Any, columns: Integers, rows: Floats, rewards: Floats
) -> None:
    """Learn rewards one after the other by a model's own `update`, training when it is due."""
    train = None
    for column, x, value in zip(columns.tolist(), rows, rewards.tolist(), strict=True):
        context = np.zeros(model.context_shape(model.arms(state)) or (0,))
        context[column if context.ndim == 2 else ...] = flushed(x)
        model.update(state, context, column, value)
        if trains(model) and training_due(model, state):
            train = train or model.trainer([state])
            train()


def learn_rows(
    model: Any, state: Any, room: Floats, rows: Floats, arms: Integers, rewards: Floats
) -> None:
    """Do what `tsucb.models.model.learn_many` does where every arm has a row."""
    done, train = 0, None
    while done < arms.size:
        done = _learn_rows(model, state, room, rows, arms, rewards, done)
        if training_due(model, state):
            train = train or model.trainer([state])
            train()


@compiled
def _learn_rows(model, state, room, rows, arms, rewards, first):  # type: ignore[no-untyped-def]
    """Learn from observation `first` on, until training is due; return the number of the next."""
    for i in range(first, arms.size):
        for j in range(room.shape[1]):
            room[arms[i], j] = rows[i, j]
        update(model, state, room, arms[i], rewards[i])
        if training_due(model, state):
            return i + 1
    return arms.size


def blank_books(columns: int) -> Books:
    """Return the counts before any data, for columns of no arm."""
    return Books(
        np.zeros(4, dtype=np.int64),
        np.zeros(1, dtype=np.uint64),
        np.zeros(columns, dtype=np.uint64),
        np.zeros(columns, dtype=np.int64),
        np.zeros(columns, dtype=np.int64),
        np.zeros(columns),
    )


def joined_books(books: Books, more: Books) -> Books:
    """Return counts with further columns."""
    return books._replace(
        **{name: np.append(getattr(books, name), getattr(more, name)) for name in PER_COLUMN}
    )


def token_of(name: Arm) -> int:
    """Return 64 bits that tell an arm's name apart."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little")


def plain_name(name: Any) -> Arm:
    """Return an arm's name as a plain string or integer, also of an enumeration's member."""
    plain = name.item() if isinstance(name, np.generic) else name
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise TypeError(f"an arm is named by a string or an integer, not by {shown(name)}")
    return str.__str__(plain) if isinstance(plain, str) else int(plain)


def known_name(name: Any, arms: Mapping[Arm, int]) -> Arm:
    """Return the name of an arm that there is; raise ValueError otherwise."""
    if not isinstance(name, str | int | np.generic) or name not in arms:
        known = listed(arms) or "none at all"
        raise ValueError(f"there is no arm {shown(name)}; the arms are {known}")
    return plain_name(name)


def check_unique(names: tuple[Any, ...]) -> None:
    """Raise ValueError if an arm is listed twice."""
    if len(set(names)) < len(names):
        raise ValueError("an arm is listed twice among those available; list each once")
