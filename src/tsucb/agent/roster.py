"""Which arms there are, and where the model's state has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tsucb.agent.calls import (
    COLUMN,
    DECIDED,
    DECISIONS,
    DUE,
    NOTHING,
    PENDING,
    Books,
    Calls,
)
from tsucb.agent.contexts import Arm, listed
from tsucb.agent.ids import decision_id
from tsucb.agent.waiting import ArmRecord, Entries, Open, Waiting
from tsucb.models.model import Model
from tsucb.numeric.arrays import Integers
from tsucb.structure import copied, leaves, refilled


class Offer(NamedTuple):
    """Arms to choose from, and the columns of the state that belong to them."""

    records: tuple[ArmRecord, ...]
    columns: Integers

    @property
    def names(self) -> tuple[Arm, ...]:
        """The names of the arms."""
        return tuple(record.name for record in self.records)


# Along which axis each array of a state has one entry per arm; see `arm_axes`.
Axes: TypeAlias = tuple[int | None, ...] | None


class Batch(NamedTuple):
    """Several decisions that are being made: the counts before them, and what they will open."""

    before: Books
    open: Entries


class Rest(NamedTuple):
    """A list of which a place is being learned, and what is left of it then; None for nothing."""

    id: str
    entry: Open | None


class Undo(NamedTuple):
    """Many rewards that are being learned, and all that was known before them.

    Learned in place: compiled code stays bound to a roster, which takes as long as many decisions.
    """

    before: "Roster"


# What an agent is doing: learning a decision's reward, or that of a place of a list, or many of
# them; deciding several times, or anything else.
Doing: TypeAlias = str | Rest | Undo | Batch | None


class Roster:
    """Everything an agent knows: arms, the model's state, counts, and open decisions.

    What happens one by one (a decision, a reward) changes the arrays in it. What changes more (arms
    that come and go, a history) makes another roster, which then takes the place of this one: so an
    interrupt finds the old or the new, never a mixture.

    Parameters
    ----------
    model
        Which model the state is of.
    columns
        Where the state has each arm, in the order in which the arms were added.
    state, books
        Of the model, and the counts that go with it: one entry for each column.
    open
        The decisions that wait for a reward.
    axes
        See `arm_axes`. They are the model's: a wider one may have its arrays the other way round.
    free
        Columns of no arm, for those that come with the decisions.
    """

    # What every decision and every reward looks up; slots are found at once.
    __slots__ = (
        "axes", "books", "calls", "columns", "counts", "free", "model", "offered", "open",
        "state",
    )  # fmt: skip

    def __init__(
        self, model: Model, columns: dict[ArmRecord, int], state: Any, books: Books,
        open: Waiting, axes: Axes, free: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self.model, self.columns, self.state, self.axes = model, columns, state, axes
        self.books, self.open, self.free = books, open, dict.fromkeys(free)
        self.counts = books.counts.data  # the same numbers: one by one, an array is slow
        # The calls bound to all this, and the offer of all arms; made when needed.
        self.calls: Calls | None = None
        self.offered: Offer | None = None

    @classmethod
    def start(cls, model: Model, records: Iterable[ArmRecord], state: Any) -> "Roster":
        """Before any data."""
        columns = {record: i for i, record in enumerate(records)}
        free = range(len(columns), model.arms(state))
        blank = [ArmRecord("")] * len(free)
        return cls(
            model, columns, state, blank_books([*columns, *blank]), Waiting({}), arm_axes(model),
            free,
        )  # fmt: skip

    @property
    def everyone(self) -> Offer:
        """All arms."""
        if self.offered is None:
            self.offered = self.offer(self.columns)
        return self.offered

    def offer(self, records: Iterable[ArmRecord]) -> Offer:
        """Some of the arms, in this order."""
        some = tuple(records)
        return Offer(some, np.array([self.columns[record] for record in some], dtype=np.int64))

    def copied(self, open: Waiting | None = None) -> "Roster":
        """Another roster with arrays of its own."""
        open = self.open if open is None else open
        state, books = copied(self.state), copied(self.books)
        return Roster(self.model, self.columns, state, books, open, self.axes, self.free)

    @property
    def in_order(self) -> bool:
        """Whether nothing is half done."""
        return not self.counts[PENDING]

    def put_in_order(self, doing: Doing) -> "Roster":
        """Another roster, in which the last call is finished, or was never begun.

        Training that is due is not done here; `counts[PENDING]` still says so.
        """
        if isinstance(doing, Undo) and not self.in_order:
            return doing.before
        books, open = copied(self.books), self.open.copied()
        pending, counts = books.counts[PENDING], books.counts
        if pending == DECIDED and isinstance(doing, Batch):  # nobody has heard of the decisions
            entries = open.entries
            open = Waiting({key: entries[key] for key in entries if key not in doing.open})
            books = copied(doing.before)
        elif pending == DECIDED:
            open.entries.pop(decision_id(int(counts[DECISIONS]), int(books.checksum[0])), None)
            books.chosen[counts[COLUMN]] -= 1
            counts[DECISIONS] -= 1
            books.checksum[0] = books.checksum[1]
        elif pending != NOTHING and isinstance(doing, str):
            if open.decision(doing) is not None:
                open.close(doing)
        elif pending != NOTHING and isinstance(doing, Rest):
            open.entries.pop(doing.id, None)
            if doing.entry is not None:
                open.entries[doing.id] = doing.entry
        books.counts[PENDING] = DUE if pending == DUE else NOTHING
        return Roster(self.model, self.columns, self.state, books, open, self.axes, self.free)

    def widened(self, features: Any, places: Any = None) -> "Roster":
        """Another roster whose contexts have more features, which were 0 in all so far."""
        model = self.model.widened(features)
        state = self.model.widen(self.state, features, places)
        shape = self.model.context_shape(1)
        open = self.open.widened(
            lambda rows: self.model.widened_rows(rows, features, places),
            sum(shape[-1:]),
            len(shape) == 2,
        )
        return Roster(model, self.columns, state, self.books, open, arm_axes(model), self.free)

    def with_room(self, arms: int) -> "Roster":
        """Another roster with at least so many columns of no arm; half as many again as before."""
        count = self.books.chosen.size
        more = max(arms - len(self.free), count // 2, 8)
        books = self.books
        blank = {n: np.zeros(more, getattr(books, n).dtype) for n in PER_COLUMN}
        joined = {n: np.append(getattr(books, n), blank[n]) for n in PER_COLUMN}
        state, free = self.model.extend(self.state, more), [*self.free, *range(count, count + more)]
        return Roster(self.model, self.columns, state, books._replace(**joined), self.open,
                      self.axes, free)  # fmt: skip

    def without(self, records: Iterable[ArmRecord]) -> "Roster":
        """Another roster without some arms, whose columns are free; the state is changed."""
        gone = np.array([self.columns[record] for record in records], dtype=np.int64)
        leaving = set(gone.tolist())
        self.model.release(self.state, gone)
        for name in PER_COLUMN:
            getattr(self.books, name)[gone] = 0
        columns = {record: c for record, c in self.columns.items() if c not in leaving}
        free = [*self.free, *gone.tolist()]
        return Roster(self.model, columns, self.state, self.books, self.open, self.axes, free)

    def admit(self, record: ArmRecord, column: int) -> None:
        """Give an arm a free column."""
        del self.free[column]  # an interrupt from here on loses a column, which saving brings back
        self.columns[record] = column
        self.offered = None

    def with_arms(self, records: Iterable[ArmRecord]) -> "Roster":
        """Another roster with these arms: some leave the state, some are new to it.

        That copies the state, which is as much work as deciding among all arms, however many came
        and went. Where `axes` is None the columns of those that leave stay where they are.
        """
        records = list(records)
        old = [record for record in records if record in self.columns]
        new = [record for record in records if record not in self.columns]
        state, books, free = self.state, self.books, list(self.free)
        columns = {record: self.columns[record] for record in old}
        if self.axes is not None and (len(old) < len(self.columns) or free):
            kept = np.array(list(columns.values()), dtype=np.int64)
            if type(self.model).release is not Model.release:
                state, gone = copied(state), self.columns.keys() - columns.keys()
                self.model.release(state, np.array([self.columns[r] for r in gone], np.int64))
            free = []
            state = columns_of(state, kept, self.axes)
            books = books._replace(**{name: getattr(books, name)[kept] for name in PER_COLUMN})
            columns = {record: i for i, record in enumerate(old)}
        count = books.chosen.size
        if new:
            state = self.model.extend(state, len(new))
            added = blank_books(new)
            joined = {n: np.append(getattr(books, n), getattr(added, n)) for n in PER_COLUMN}
            books = books._replace(**joined)
            columns |= {record: count + i for i, record in enumerate(new)}
        columns = {record: columns[record] for record in records}
        return Roster(self.model, columns, state, books, self.open, self.axes, free)


PER_COLUMN = ("tokens", "chosen", "pulls", "totals")


def blank_books(records: Iterable[ArmRecord]) -> Books:
    """The counts before any data, for these arms."""
    tokens = np.array([record.token for record in records], dtype=np.uint64)
    n = tokens.size
    return Books(
        np.zeros(5, dtype=np.int64),
        np.zeros(2, dtype=np.uint64),
        tokens,
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(n),
    )


def record_of(name: Arm, records: Mapping[Arm, ArmRecord]) -> ArmRecord:
    """The arm of a name, or a sentence that lists the arms."""
    record = records.get(name) if isinstance(name, str | int | np.generic) else None
    if record is None:
        known = listed(records) or "none at all"
        raise ValueError(f"there is no arm {name!r}; the arms are {known}")
    return record


def records_of(names: Sequence[Arm], records: Mapping[Arm, ArmRecord]) -> list[ArmRecord]:
    """The arms of several names, each once."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"arms must be a list of names, such as [{names!r}]")
    found = [record_of(name, records) for name in names]
    if len(set(found)) < len(found):
        raise ValueError("an arm is listed twice among those available; list each once")
    return found


def plain_name(name: Arm) -> Arm:
    """A name as a file can hold it: plain, also for an enumeration's member."""
    plain = name.item() if isinstance(name, np.generic) else name
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise TypeError(f"an arm is named by a string or an integer, not by {name!r}")
    return str.__str__(plain) if isinstance(plain, str) else int(plain)


def columns_of(state: Any, columns: Integers, axes: tuple[int | None, ...]) -> Any:
    """The state of some columns only."""
    parts = (
        x if axis is None else np.take(x, columns, axis)
        for x, axis in zip(leaves(state), axes, strict=True)
    )
    return refilled(state, parts)


def arm_axes(model: Model) -> Axes:
    """Along which axis each array of a state has one entry per arm; None for those without.

    None if the model keeps all arms: then the columns of removed arms stay where they are.
    """
    if model.keeps_arms:
        return None
    one, two = model.start(1), model.start(2)
    if not isinstance(one, tuple):
        return None
    axes: list[int | None] = []
    for first, second in zip(leaves(one), leaves(two), strict=True):
        growing = [i for i in range(first.ndim) if first.shape[i] != second.shape[i]]
        if len(growing) > 1 or any((first.shape[i], second.shape[i]) != (1, 2) for i in growing):
            return None
        axes.append(growing[0] if growing else None)
    return tuple(axes)
