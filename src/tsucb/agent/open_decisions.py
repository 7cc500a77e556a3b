"""Open decisions: one row each in a table of arrays, which compiled code reads and writes.

A row holds a decision's number and checksum (its id), the time, the arm's column and the numbers to
learn from, as wide as they were when the decision was made. Rows are appended in the order of their
numbers, so an id is found by bisection. Every function below that changes the table is one call of
compiled code: no exception can come between two changes that belong together.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import compiled
from tsucb.numeric.arrays import Floats, Integers

Checksums: TypeAlias = NDArray[np.uint64]

LONGEST_ID = 36  # 19 digits, a hyphen and 16 digits
NEWLINE, HYPHEN, DIGITS, LETTERS = 10, 45, 48, 87  # 0 to 9, a to f

# Entries of `OpenTable.sizes`: the first row that may be open and the end of the rows; open ids and
# open rows; numbers in use; the most open ids; rows whose rewards are queued, and those learned.
FIRST, END, IDS, ROWS, USED, LIMIT, QUEUED, LEARNED = range(8)
CLOSED_ROW, SINGLE = -1, 0  # of `places`; 1, 2, … for the places of a list
NOT_SPLIT = -1  # the rows of a model have no part of the context and part of the arm
LEAST_ROWS = 64


class OpenTable(NamedTuple):
    """The rows of open decisions; see the top of this module.

    sizes: (8,) see `FIRST`, …; numbers, checksums, times: (C,) of the decisions.
    arms: (C,) the arm's column; −1 − i for entry i of `Knowledge.departed`, an arm that left.
    places: (C,) SINGLE, the place in a list counted from 1, or CLOSED_ROW.
    starts, lengths: (C,) where `values` has the numbers of the row. With features of arms the first
    is the number of the context's columns, which come next, and then those of the arm.
    queue, rewards: (C,) rows whose rewards are known, in the order in which to learn them.
    values: (V,) the numbers of all rows.
    """

    sizes: Integers
    numbers: Integers
    checksums: Checksums
    times: Floats
    arms: Integers
    places: Integers
    starts: Integers
    lengths: Integers
    queue: Integers
    rewards: Floats
    values: Floats


def empty_table(limit: int, rows: int = LEAST_ROWS, numbers: int = 8 * LEAST_ROWS) -> OpenTable:
    """Return a table with room for some rows, and for some numbers in all of them."""
    sizes = np.zeros(8, dtype=np.int64)
    sizes[LIMIT] = limit
    whole = [np.zeros(rows, dtype=np.int64) for _ in range(6)]
    numbers_, arms, places, starts, lengths, queue = whole
    return OpenTable(
        sizes, numbers_, np.zeros(rows, dtype=np.uint64), np.zeros(rows), arms, places, starts,
        lengths, queue, np.zeros(rows), np.zeros(numbers),
    )  # fmt: skip


class UnknownDecision(LookupError):
    """A reward for a decision that is not open: never made, or closed before.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "blue"], features=1, seed=0)
    >>> agent.reward("7-1", 1.0)
    Traceback (most recent call last):
    tsucb.agent.open_decisions.UnknownDecision: decision '7-1' was never made by this agent; check \
the id
    """


class OpenDecisions:
    """The open decisions of an agent: a table, and the ids that others gave them.

    Parameters
    ----------
    learner
        Whose knowledge has the table.
    limit
        The most decisions that are open; beyond it the oldest are dropped.
    """

    __slots__ = ("given", "learner", "limit")

    def __init__(self, learner: Any, limit: int) -> None:
        self.learner, self.limit = learner, limit
        self.given: dict[str, tuple[int, int]] = {}  # numbers and checksums by such ids
        self.table.sizes[LIMIT] = limit

    @property
    def table(self) -> OpenTable:
        """The rows of the open decisions."""
        table: OpenTable = self.learner.known.table
        return table

    def __len__(self) -> int:
        return int(self.table.sizes[IDS])

    def find(self, id: Any) -> tuple[int, int, int]:
        """Return the first row of an open decision or list, its arm's column and its place.

        The row is negative if there is none, or if the learner has to be prepared first.
        """
        if self.given and id in self.given:
            id = decision_id(*self.given[id])
        if type(id) is not str or not id.isascii():
            return -1, 0, 0
        found: tuple[int, int, int] = self.learner.known.machine.find(id.encode() + b"\n")
        return found

    def find_many(self, ids: Sequence[str]) -> Integers:
        """Return the rows of decisions, -1 for those that are not open."""
        numbers, checksums = parsed_ids(ids)
        if self.given:
            for i, id in enumerate(ids):
                if id in self.given:
                    numbers[i], checksums[i] = self.given[id]
        return self.rows_of(numbers, checksums)

    def rows_of(self, numbers: Integers, checksums: Checksums) -> Integers:
        """Return the rows of decisions with these numbers and checksums, -1 where none is open."""
        rows = np.zeros(numbers.size, dtype=np.int64)
        find_rows(self.table, numbers, checksums, rows)
        return rows

    def name(self, id: str, number: int, checksum: int) -> None:
        """Let a decision that was just opened be found under an id given by others."""
        if len(self.given) > 2 * len(self) + LEAST_ROWS:  # forget those that are closed
            self.given = {id: key for id, key in self.given.items() if self.find(id)[0] >= 0}
        self.given[id] = number, checksum

    def ids(self, rows: Integers) -> list[str]:
        """Return the ids of the decisions or lists in rows."""
        names = decision_ids(self.table.numbers[rows], self.table.checksums[rows])
        if self.given:
            others = {decision_id(*key): id for id, key in self.given.items()}
            names = [others.get(name, name) for name in names]
        return names


PER_ROW = ("numbers", "checksums", "times", "arms", "places", "lengths")


def open_rows(table: OpenTable) -> Integers:
    """Return the places of the open rows, oldest first."""
    first, end = table.sizes[[FIRST, END]]
    rows: Integers = first + np.flatnonzero(table.places[first:end] != CLOSED_ROW)
    return rows


def packed_table(table: OpenTable, rows: int = 0, numbers: int = 0) -> OpenTable:
    """Return another table with the open rows alone, and room for at least this many more."""
    there = open_rows(table)
    lengths = table.lengths[there]
    total = int(lengths.sum())
    new = empty_table(int(table.sizes[LIMIT]), there.size + rows, total + numbers)
    n = there.size
    for name in PER_ROW:
        getattr(new, name)[:n] = getattr(table, name)[there]
    new.starts[:n] = np.cumsum(lengths) - lengths
    copy_values(table.starts[there], lengths, table.values, new.starts, new.values)
    new.sizes[[END, IDS, ROWS, USED]] = n, table.sizes[IDS], n, total
    waiting = table.queue[table.sizes[LEARNED] : table.sizes[QUEUED]]
    if waiting.size:
        new.queue[: waiting.size] = np.searchsorted(there, waiting)
        new.rewards[: waiting.size] = table.rewards[table.sizes[LEARNED] : table.sizes[QUEUED]]
        new.sizes[QUEUED] = waiting.size
    return new


def roomier_table(table: OpenTable, rows: int, numbers: int) -> OpenTable:
    """Return the table with room for this many more rows and numbers, and as many again."""
    count, used = int(table.sizes[ROWS]), int(table.lengths[open_rows(table)].sum())
    return packed_table(table, max(2 * rows, count, LEAST_ROWS), max(2 * numbers, used))


def same_key(table: OpenTable, row: int) -> Integers:
    """Return the open rows of one decision or list."""
    last = row + 1
    if table.places[row] != SINGLE:
        end = int(table.sizes[END])
        while last < end and table.places[last] > 1 and table.numbers[last] == table.numbers[row]:
            last += 1
    return np.arange(row, last)


# Compiled


@compiled
def copy_values(starts, lengths, values, new_starts, new_values):  # type: ignore[no-untyped-def]
    """Copy rows of numbers to other places."""
    for i in range(starts.size):
        for j in range(lengths[i]):
            new_values[new_starts[i] + j] = values[starts[i] + j]


@compiled
def has_room(table, rows, numbers):  # type: ignore[no-untyped-def]
    """Return whether so many rows and numbers fit, after moving open rows forward if that helps."""
    sizes = table.sizes
    if sizes[END] + rows <= table.numbers.size and sizes[USED] + numbers <= table.values.size:
        return True
    if 2 * (sizes[ROWS] + rows) > table.numbers.size or sizes[QUEUED] > 0:
        return False
    total = 0
    for i in range(sizes[FIRST], sizes[END]):
        if table.places[i] != CLOSED_ROW:
            total += table.lengths[i]
    if 2 * (total + numbers) > table.values.size:
        return False
    to, used = 0, 0
    for i in range(sizes[FIRST], sizes[END]):
        if table.places[i] != CLOSED_ROW:
            table.numbers[to], table.checksums[to] = table.numbers[i], table.checksums[i]
            table.times[to], table.arms[to] = table.times[i], table.arms[i]
            table.places[to], length = table.places[i], table.lengths[i]
            for j in range(length):
                table.values[used + j] = table.values[table.starts[i] + j]
            table.starts[to], table.lengths[to] = used, length
            to += 1
            used += length
    sizes[FIRST], sizes[END], sizes[USED] = 0, to, used
    return True


@compiled
def add_row(table, number, checksum, time, arm, place, values, split):  # type: ignore[no-untyped-def]
    """Append an open row, for which there is room; with features of arms, `split` goes first."""
    sizes = table.sizes
    row, at = sizes[END], sizes[USED]
    table.numbers[row], table.checksums[row], table.times[row] = number, checksum, time
    table.arms[row], table.places[row], table.starts[row] = arm, place, at
    if split != NOT_SPLIT:
        table.values[at] = split
        at += 1
    for j in range(values.size):
        table.values[at + j] = values[j]
    table.lengths[row] = at + values.size - table.starts[row]
    sizes[USED] = at + values.size
    sizes[END] += 1
    sizes[ROWS] += 1
    sizes[IDS] += place <= 1


@compiled
def close_row(table, row):  # type: ignore[no-untyped-def]
    """Close an open row. A list counts as open until the last of its places is closed."""
    sizes, place = table.sizes, table.places[row]
    table.places[row] = CLOSED_ROW
    sizes[ROWS] -= 1
    if place == SINGLE:
        sizes[IDS] -= 1
    else:
        left = False
        for step in (-1, 1):
            i = row + step
            while sizes[FIRST] <= i < sizes[END] and table.numbers[i] == table.numbers[row]:
                left |= table.places[i] > SINGLE and table.checksums[i] == table.checksums[row]
                i += step
        sizes[IDS] -= not left
    if sizes[ROWS] == 0:
        sizes[FIRST], sizes[END], sizes[USED] = 0, 0, 0
    while sizes[FIRST] < sizes[END] and table.places[sizes[FIRST]] == CLOSED_ROW:
        sizes[FIRST] += 1


@compiled
def drop_oldest(table):  # type: ignore[no-untyped-def]
    """Close the oldest decisions beyond the limit; whole lists at a time."""
    sizes = table.sizes
    while sizes[IDS] > sizes[LIMIT]:
        before = sizes[IDS]
        while sizes[IDS] == before:
            close_row(table, sizes[FIRST])


@compiled
def find_row(table, number, checksum):  # type: ignore[no-untyped-def]
    """Return the first open row of an id, or -1."""
    low, high = table.sizes[FIRST], table.sizes[END]
    end = high
    while low < high:
        middle = (low + high) // 2
        if table.numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    while low < end and table.numbers[low] == number:
        if table.checksums[low] == checksum and table.places[low] != CLOSED_ROW:
            return low
        low += 1
    return -1


@compiled
def find_rows(table, numbers, checksums, rows):  # type: ignore[no-untyped-def]
    """Write the first open row of every id, or -1."""
    for i in range(numbers.size):
        last = rows[i - 1] + 1 if i else table.sizes[FIRST]
        near = 0 < last < table.sizes[END] and table.numbers[last] == numbers[i]
        if near and table.checksums[last] == checksums[i] and table.places[last] != CLOSED_ROW:
            rows[i] = last  # most come in the order in which they were made
        else:
            rows[i] = find_row(table, numbers[i], checksums[i])


# Ids


def decision_id(number: int, checksum: int) -> str:
    """Return the id of a decision: its number, and a checksum over all decisions up to it.

    A process that was killed and goes on from an older file numbers its decisions again; the
    checksum keeps a reward for one that was lost from being taken for another's, as decisions with
    the same id have the same arm and context.
    """
    return f"{number}-{checksum:x}"


def decision_ids(numbers: Integers, checksums: Checksums) -> list[str]:
    """Return `decision_id` of many."""
    letters = np.empty(numbers.size * (LONGEST_ID + 1), dtype=np.uint8)
    first = write_ids(letters, numbers, checksums)
    return letters[first:].tobytes().decode("ascii").split("\n")[:-1]


def parsed_ids(ids: Sequence[str]) -> tuple[Integers, Checksums]:
    """Return the numbers and the checksums in ids; 0 where `decision_id` did not make them."""
    lines = b"".join(_line(id) for id in ids)
    numbers, checksums = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.uint64)
    read_ids(np.frombuffer(lines, np.uint8), numbers, checksums)
    return numbers, checksums


def _line(id: str) -> bytes:
    if isinstance(id, str) and id.isascii() and "\n" not in id:
        return id.encode() + b"\n"
    return b"\n"


def leading_number(id: str) -> int:
    """Return the number at the beginning of an id; 0 if there is none."""
    number = id.partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 20 else 0


@compiled
def write_id(letters, end, number, checksum):  # type: ignore[no-untyped-def]
    """Write `decision_id` into the letters before an end; return where it begins."""
    at = end
    while True:
        at -= 1
        digit = checksum & np.uint64(15)
        letters[at] = digit + (np.uint64(DIGITS) if digit < 10 else np.uint64(LETTERS))
        checksum >>= np.uint64(4)
        if checksum == 0:
            break
    at -= 1
    letters[at] = HYPHEN
    while True:
        at -= 1
        letters[at] = DIGITS + number % 10
        number //= 10
        if number == 0:
            break
    return at


@compiled
def write_ids(letters, numbers, checksums):  # type: ignore[no-untyped-def]
    """Write all ids, each before a newline; return where the first begins."""
    at = letters.size
    for i in range(numbers.size - 1, -1, -1):
        at -= 1
        letters[at] = NEWLINE
        at = write_id(letters, at, numbers[i], checksums[i])
    return at


@compiled
def read_id(text, at):  # type: ignore[no-untyped-def]
    """Read an id that ends with a newline: number (0 if it is none), checksum, where it ends."""
    first, number, checksum = at, 0, np.uint64(0)
    while DIGITS <= text[at] < DIGITS + 10:
        number = 10 * number + (text[at] - DIGITS)
        at += 1
    good = first < at < first + 19 and text[first] != DIGITS and text[at] == HYPHEN
    at += text[at] == HYPHEN
    first = at
    while DIGITS <= text[at] < DIGITS + 10 or LETTERS + 10 <= text[at] < LETTERS + 16:
        digit = text[at] - (DIGITS if text[at] < LETTERS else LETTERS)
        checksum = checksum << np.uint64(4) | np.uint64(digit)
        at += 1
    good &= first < at <= first + 16 and (text[first] != DIGITS or at == first + 1)
    good &= text[at] == NEWLINE
    while text[at] != NEWLINE:
        at += 1
    return (number, checksum, at + 1) if good else (0, np.uint64(0), at + 1)


@compiled
def read_ids(text, numbers, checksums):  # type: ignore[no-untyped-def]
    """Read ids, each before a newline; 0 for what is none."""
    at = 0
    for i in range(numbers.size):
        numbers[i], checksums[i], at = read_id(text, at)
