"""The decisions that wait for a reward: each by itself, or all of a batch as arrays.

A batch is one entry however many decisions it has, and no id is written before somebody asks for
it: what an id says, the number of the decision and the checksum, is where it is found by.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.agent.contexts import Arm
from tsucb.agent.ids import decision_id, decision_ids, parsed
from tsucb.compiler import compiled
from tsucb.numeric.arrays import Floats, Integers

Checksums: TypeAlias = NDArray[np.uint64]
# Batches smaller than this keep those that are closed.
SMALL = 64


class ArmRecord:
    """An arm, from when it is added until it is removed; another of the same name is another."""

    __slots__ = ("name", "token")

    def __init__(self, name: Arm) -> None:
        self.name = name
        self.token = int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little")


# A decision that waits for its reward: its arm, or those of a list in their order; the bytes of its
# context, or of the rows of these arms; and when it was made.
Open: TypeAlias = tuple[ArmRecord | tuple[ArmRecord, ...], bytes, float]


def arms_of(decision: Open) -> tuple[ArmRecord, ...]:
    """The arm of a decision, or those of a list."""
    records = decision[0]
    return records if isinstance(records, tuple) else (records,)


class Together:
    """Decisions that were made at once, each for one arm: arrays instead of many small objects.

    Parameters
    ----------
    numbers, checksums
        (N,) what their ids are made of; the numbers ascend.
    records, places
        The arms that were offered, and the place of each decision's arm among them.
    contexts
        One row each.
    time
        When they were made.
    key
        What it is kept under, by default the first number.
    waits
        (N,) 1 for those that still wait, by default all; at least one does.
    """

    __slots__ = (
        "checksums", "contexts", "key", "left", "numbers", "places", "records", "time", "waits",
    )  # fmt: skip

    def __init__(
        self, numbers: Integers, checksums: Checksums, records: tuple[ArmRecord, ...],
        places: Integers, contexts: Floats, time: float, key: int | None = None,
        waits: NDArray[np.uint8] | None = None,
    ) -> None:  # fmt: skip
        self.numbers, self.checksums, self.records = numbers, checksums, records
        self.places, self.contexts, self.time = places, contexts, time
        self.key = int(numbers[0]) if key is None else key
        self.waits = np.ones(numbers.size, dtype=np.uint8) if waits is None else waits
        # How many wait, and a row before which none does.
        self.left = np.array([np.count_nonzero(self.waits), 0])

    def __len__(self) -> int:
        return int(self.left[0])

    def row(self, number: int, checksum: int) -> int | None:
        """Where one of them is that waits."""
        numbers = self.numbers
        row, size = number - numbers.item(0), numbers.size
        if not 0 <= row < size or numbers.item(row) != number:  # some before it are not here
            row = int(numbers.searchsorted(number))
            if row == size or numbers.item(row) != number:
                return None
        waits = self.waits.item(row) and self.checksums.item(row) == checksum
        return row if waits else None

    def decision(self, row: int) -> Open:
        """One of them."""
        return self.records[self.places[row]], self.contexts[row].tobytes(), self.time

    def decisions(self) -> Iterator[tuple[str, Open]]:
        """Those that wait, by their ids."""
        rows = np.flatnonzero(self.waits)
        ids = decision_ids(self.numbers[rows], self.checksums[rows])
        return zip(ids, map(self.decision, rows.tolist()), strict=True)

    def only(self, waits: NDArray[np.uint8], contexts: Floats | None = None) -> "Together":
        """The same where only these wait; without the others if those are the most."""
        numbers, checksums, places = self.numbers, self.checksums, self.places
        contexts = self.contexts if contexts is None else contexts
        if waits.size >= SMALL and 2 * np.count_nonzero(waits) < waits.size:
            rows = np.flatnonzero(waits)
            numbers, checksums, places = numbers[rows], checksums[rows], places[rows]
            contexts, waits = contexts[rows], waits[rows]
        return Together(
            numbers, checksums, self.records, places, contexts, self.time, self.key, waits
        )


# By id; a batch by a number, which ascends from batch to batch. In the order in which they were
# made.
Entries: TypeAlias = dict[str | int, Open | Together]


class Closing(NamedTuple):
    """Decisions that are about to be closed, in the order asked for, and what waits then.

    `places` (N,) says which of the `records` the arm of each is; `contexts` has a row each.
    """

    records: list[ArmRecord]
    places: Integers
    contexts: Floats
    after: "Waiting"


class NotOpen(LookupError):
    """An id under which no decision waits."""


class Waiting:
    """All decisions that wait for a reward.

    To drop the oldest takes effect at once: an interrupt finds each of them there, or dropped. Who
    adds a batch, or closes a decision, takes it back or finishes it after an interrupt, in a copy.
    """

    __slots__ = ("_beyond", "_eldest", "_found", "_keys", "_order", "beyond", "entries")

    def __init__(self, entries: Entries, keys: Sequence[int] | None = None) -> None:
        self.entries = entries
        # What may be a batch: anything, or what has one of these keys.
        some = entries.values() if keys is None else map(entries.get, keys)
        batches = [entry for entry in some if isinstance(entry, Together)]
        # Of all batches, some of which may be gone.
        self._keys = [batch.key for batch in batches]
        # How many decisions there are beyond one for each entry; one by one, an array is slow.
        self._beyond = np.array([sum(map(len, batches)) - len(batches)])
        self.beyond = self._beyond.data
        # For dropping the oldest: its key, and those of what came then; some may be closed. Not the
        # first key of the dictionary: to find that takes long once many were deleted.
        self._eldest: str | int | None = None
        self._order: Iterator[str | int] = iter(())
        # The decision of a batch that was looked at last: its id, its batch and its row.
        self._found: tuple[str, Together, int]

    def __len__(self) -> int:
        return len(self.entries) + int(self.beyond[0])

    @property
    def places(self) -> int:
        """How many rewards are waited for: each place of a list counts."""
        entries = self.entries.values()
        return sum(len(e) if isinstance(e, Together) else len(arms_of(e)) for e in entries)

    def by_arm(self) -> "Counter[ArmRecord]":
        """How many rewards are waited for of every arm."""
        alone = [entry for entry in self.entries.values() if isinstance(entry, tuple)]
        count = Counter([record for entry in alone for record in arms_of(entry)])
        for batch in map(self.entries.get, self._keys):
            if isinstance(batch, Together):
                of_each = np.bincount(batch.places, batch.waits, len(batch.records))
                count.update(dict(zip(batch.records, of_each.astype(int).tolist(), strict=True)))
        return count

    def decision(self, id: str) -> Open | None:
        """The decision of an id; None if there is none."""
        found = self.entries.get(id)
        if type(found) is tuple:
            return found
        place = self._place(id)
        if place is None:
            return None
        self._found = id, *place
        return place[0].decision(place[1])

    def decisions(self) -> dict[str, Open]:
        """Each by itself."""
        found: dict[str, Open] = {}
        for id, entry in self.entries.items():
            if isinstance(entry, Together):
                found.update(entry.decisions())
            else:
                found[id] = entry  # type: ignore[index]
        return found

    def _place(self, id: str) -> tuple[Together, int] | None:
        """The batch that a decision is of, and which row of it."""
        known = parsed(id) if self._keys and isinstance(id, str) else None
        if known is None:
            return None
        number, checksum = known
        n = bisect_right(self._keys, number) - 1
        batch = self.entries.get(self._keys[n]) if n >= 0 else None
        row = batch.row(number, checksum) if isinstance(batch, Together) else None
        return None if row is None else (batch, row)  # type: ignore[return-value]

    def add(self, batch: Together) -> None:
        """Open all decisions of a batch, newer than any."""
        if len(self._keys) > 2 * len(self.entries) + SMALL:
            self._keys = [key for key in self._keys if key in self.entries]
        self._keys.append(batch.key)
        self.beyond[0] += len(batch) - 1
        self.entries[batch.key] = batch

    def close(self, id: str) -> None:
        """Close the decision that was looked at last."""
        if self.entries.pop(id, None) is None:
            found, batch, row = self._found
            assert found == id
            if len(batch) == 1:
                del self.entries[batch.key]
                return
            batch.waits[row] = 0
            batch.left[0] -= 1
            self.beyond[0] -= 1
            self._shrink(batch)

    def _shrink(self, batch: Together) -> None:
        """Have a batch without its closed decisions, if those are the most."""
        if batch.waits.size >= SMALL and 2 * len(batch) < batch.waits.size:
            self.entries[batch.key] = batch.only(batch.waits)

    def drop_oldest(self, most: int) -> None:
        """Close the oldest where there are more than so many."""
        while (excess := len(self) - most) > 0:
            entry = None if self._eldest is None else self.entries.get(self._eldest)
            if isinstance(entry, Together) and len(entry) > 1:
                close_first(entry.waits, entry.left, self._beyond, min(excess, len(entry) - 1))
                self._shrink(entry)
            elif entry is not None:
                self.entries.pop(self._eldest, None)  # type: ignore[arg-type]
            else:
                self._eldest = next(self._order, None)
                if self._eldest is None:
                    self._order = iter(list(self.entries))

    def copied(self) -> "Waiting":
        """Another one, which can be changed without changing this one."""
        entries = dict(self.entries)
        for key in self._keys:
            batch = entries.get(key)
            if isinstance(batch, Together):
                entries[key] = batch.only(batch.waits.copy())
        return Waiting(entries, self._keys)

    def before(self, time: float) -> tuple[dict[str, Open], "Waiting"]:
        """The decisions made before a time, and what waits without them."""
        old = {key: entry for key, entry in self.entries.items() if _made(entry) < time}
        rest = {key: entry for key, entry in self.entries.items() if key not in old}
        return Waiting(old).decisions(), Waiting(rest)

    def widened(self, widen: Callable[[Floats], Floats], width: int, per_arm: bool) -> "Waiting":
        """The same with contexts of another width: `widen` gives the new rows for old ones."""
        alone = [entry for entry in self.entries.values() if isinstance(entry, tuple)]
        lines = [len(arms_of(entry)) if per_arm else 1 for entry in alone]
        rows = np.frombuffer(b"".join(x for _, x, _ in alone))
        wide, first = widen(rows.reshape(sum(lines), width)), 0
        count = iter(lines)
        entries: Entries = {}
        for key, entry in self.entries.items():
            if isinstance(entry, Together):
                entries[key] = entry.only(entry.waits.copy(), widen(entry.contexts))
            else:
                last = first + next(count)
                entries[key] = entry[0], wide[first:last].tobytes(), entry[2]
                first = last
        return Waiting(entries)

    def closing(
        self, numbers: Integers, checksums: Checksums, ids: Sequence[str] | None = None
    ) -> Closing:
        """What is needed to close these decisions, of one arm each; nothing is changed.

        `NotOpen` for the first that is not open, or is twice among them. They are given by what
        their ids are made of, and by the ids where some may be others.
        """
        records: list[ArmRecord] = []
        first: dict[tuple[ArmRecord, ...], int] = {}  # where the arms of an offer begin in them

        def begin(offered: tuple[ArmRecord, ...]) -> int:
            if offered not in first:
                first[offered] = len(records)
                records.extend(offered)
            return first[offered]

        places = np.full(numbers.size, -1, dtype=np.int64)
        rows: list[tuple[Integers, Floats]] = []  # of which decisions, and their contexts
        entries = dict(self.entries)
        for key, some in self._by_batch(numbers):
            batch = entries.get(key)
            if isinstance(batch, Together):
                waits, found = batch.waits.copy(), np.empty(some.size, dtype=np.int64)
                wanted = numbers[some], checksums[some]
                take_rows(batch.numbers, batch.checksums, waits, *wanted, found)
                if found.min() < 0:
                    some, found = some[found >= 0], found[found >= 0]
                places[some] = begin(batch.records) + batch.places[found]
                rows.append((some, batch.contexts[found]))
                if waits.any():
                    entries[key] = batch.only(waits)
                else:
                    del entries[key]
        alone, contexts = np.flatnonzero(places < 0), []
        for n in alone.tolist():
            id = decision_id(int(numbers[n]), int(checksums[n])) if ids is None else ids[n]
            entry = entries.get(id)
            if not isinstance(entry, tuple):
                raise NotOpen(id)
            if isinstance(entry[0], tuple):
                raise TypeError(f"{id!r} is a list; give its rewards to reward")
            places[n] = begin((entry[0],))
            contexts.append(entry[1])
            del entries[id]
        if contexts:
            matrix = np.frombuffer(b"".join(contexts))
            rows.append((alone, matrix.reshape(alone.size, matrix.size // alone.size)))
        after = Waiting(entries, self._keys)
        return Closing(records, places, _stacked(rows, numbers.size), after)

    def _by_batch(self, numbers: Integers) -> Iterator[tuple[int, Integers]]:
        """The keys of the batches that have decisions of these numbers, if any do, and which."""
        keys = np.array(self._keys, dtype=np.int64)
        batch = keys.searchsorted(numbers, side="right") - 1
        order = np.argsort(batch, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(batch[order])) + 1):
            if some.size and batch[some[0]] >= 0:
                yield int(keys[batch[some[0]]]), some


def _made(entry: Open | Together) -> float:
    return entry.time if isinstance(entry, Together) else entry[2]


def _stacked(parts: list[tuple[Integers, Floats]], count: int) -> Floats:
    """One matrix of the parts, each with the rows it has in it, which ascend."""
    if len(parts) == 1:
        return parts[0][1]
    matrix = np.empty((count, parts[0][1].shape[1] if parts else 0))
    for rows, part in parts:
        matrix[rows] = part
    return matrix


@compiled
def close_first(waits, left, beyond, count):  # type: ignore[no-untyped-def]
    """Close the first of the rows that wait, fewer than all."""
    closed = 0
    while closed < count:
        closed += waits[left[1]]
        waits[left[1]] = 0
        left[1] += 1
    left[0] -= count
    beyond[0] -= count


@compiled
def take_rows(numbers, checksums, waits, wanted, sums, rows):  # type: ignore[no-untyped-def]
    """Write where wanted decisions are, and that they do not wait; -1 for those that did not."""
    row = -1
    for i in range(wanted.size):
        row += 1  # most come in the order in which they were made
        if row >= numbers.size or numbers[row] != wanted[i]:
            row = np.searchsorted(numbers, wanted[i])
        there = row < numbers.size and numbers[row] == wanted[i] and checksums[row] == sums[i]
        rows[i] = -1
        if there and waits[row]:
            rows[i], waits[row] = row, 0
