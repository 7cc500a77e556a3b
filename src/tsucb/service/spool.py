"""Decisions made while the database is away, on the disk of this server.

They are written when it is back, unless they were deleted meanwhile: another server that deletes
decisions of an id, of a person or of a whole loop cannot reach this disk. So it leaves a *mark* in
the database, a document with the time of the deletion, and what a spool writes goes into the log in
one transaction that leaves out the decisions that were made before a mark of theirs.

A mark of an id or person is a hash, with the loop's random number as key, so that neither can be
read from it. Whoever has the database can still test a guess: that somebody was forgotten. Hence
after `MARK_SECONDS` the marks of a loop become one, of all its decisions until then: a spool that
is older than that keeps none which may be of somebody who was forgotten.
"""

import math
import os
import threading
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw

from tsucb.service import events
from tsucb.service.errors import StoreError
from tsucb.service.events import Decided
from tsucb.service.store import Erasure, Row, Store, Transaction
from tsucb.service.tables import Document, Execute, among, delete, put, select

FILE = "unwritten.sqlite"
MOST_SPOOLED = 10_000  # decisions
AWAY = "the store cannot be reached; try again later"
MARK, ALL = "forgotten", "all"  # the kind of the marks, and the id of one of all decisions
MARK_SECONDS = 30 * 86_400.0  # for which the hash of an id or person is kept
AHEAD = 5.0  # seconds by which the clock of a server that is cut off may be ahead

Entry = tuple[int, Decided]  # the number of the loop, and the decision


class Spool:
    """What `add` has taken survives a power failure.

    The folder is this server's alone; without one, nothing is taken.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self._entries: dict[tuple[int, str | None], Decided] = {}
        self._keys: dict[tuple[int, str | None], Decided] = {}
        self._lock = threading.Lock()  # the ledger adds, upkeep removes
        if self.path is not None and self.path.exists():
            for loop, body in self._execute("SELECT loop, body FROM unwritten ORDER BY rowid"):
                self._remember(loop, events.decode(body))

    def __len__(self) -> int:
        return len(self._entries)

    def _execute(self, query: str, rows: Sequence[tuple[Any, ...]] = ((),)) -> list[Any]:
        """Execute a statement for every row, in one transaction."""
        assert self.path is not None
        try:
            self.path.touch(mode=0o600)
            with apsw.Connection(str(self.path)) as file:
                file.execute("PRAGMA secure_delete = ON")  # what is deleted may be of a person
                file.execute("CREATE TABLE IF NOT EXISTS unwritten (loop, id, body)")
                file.execute("CREATE INDEX IF NOT EXISTS by_id ON unwritten (id, loop)")
                found = file.executemany(query, rows).fetchall()
        except (apsw.Error, OSError) as error:
            raise StoreError(f"{self.path} could not be used: {error}") from error
        return found

    def _remember(self, loop: int, event: Decided) -> None:
        self._entries[loop, event.id] = event
        if event.key is not None:
            self._keys[loop, event.key] = event

    def find(self, loop: int, id: str | None, key: str | None) -> Decided | None:
        """Return a decision that is not in the log yet, by its id or the key of its request."""
        return self._keys.get((loop, key)) or self._entries.get((loop, id))

    def entries(self) -> list[Entry]:
        return [(loop, event) for (loop, _), event in self._entries.items()]

    def add(self, entries: list[Entry]) -> list[Decided]:
        """Keep decisions, on the disk when this returns; return them. Blocks.

        In the place of one that repeats the request of another there is that one.
        """
        if self.path is None or len(self) + len(entries) > MOST_SPOOLED:
            raise StoreError(AWAY)
        with self._lock:
            keys, fresh, found = dict(self._keys), list[Entry](), list[Decided]()
            for loop, event in entries:
                known = event if event.key is None else keys.setdefault((loop, event.key), event)
                if known is event:
                    fresh.append((loop, event))
                found.append(known)
            rows = [(loop, event.id, events.encode(event)) for loop, event in fresh]
            self._execute("INSERT INTO unwritten VALUES (?, ?, ?)", rows)
            for loop, event in fresh:
                self._remember(loop, event)
            return found

    def remove(self, entries: list[Entry]) -> None:
        """Forget decisions that are in the log; others may have been added meanwhile. Blocks."""
        with self._lock:
            for loop, event in entries:
                self._entries.pop((loop, event.id), None)
                self._keys.pop((loop, event.key), None)
            rows = [(loop, event.id) for loop, event in entries]
            self._execute("DELETE FROM unwritten WHERE loop = ? AND id = ?", rows)


def marks(loop: int, time: float, ids: Iterable[str], person: str | None) -> list[Document]:
    """Return the marks of a deletion: of decisions by their ids, and of all of a person."""
    persons = [] if person is None else [person]
    found = [*(hashed(loop, "id", id) for id in ids), *(hashed(loop, "person", p) for p in persons)]
    return [mark(loop, each, time) for each in found]


def mark(loop: int, id: str, time: float) -> Document:
    return Document(loop, MARK, id, repr(time).encode())


def hashed(loop: int, what: str, text: str) -> str:
    key = loop.to_bytes(8, "big")
    return blake2b(f"{what} {text}".encode(), digest_size=16, key=key).hexdigest()


def unmarked(execute: Execute, rows: Sequence[Row]) -> list[Row]:
    """Return the decisions among these that were made after every mark of theirs."""
    known = [
        {ALL, *(document.id for document in marks(row.loop, 0.0, [row.event.id], row.person))}
        for row in rows
    ]
    loops, ids = {row.loop for row in rows}, set[str]().union(*known)
    rest = f"WHERE kind = ? AND loop IN ({among(loops)}) AND id IN ({among(ids)})"
    found = select(execute, Document, rest, (MARK, *loops, *ids))
    until = {(loop, id): float(body) + AHEAD for loop, _, id, body in found}
    return [
        row
        for row, some in zip(rows, known, strict=True)
        if row.event.time > max(until.get((row.loop, id), -math.inf) for id in some)
    ]


def merge_marks(store: Store, loop: int, before: float) -> None:
    """Replace the marks of a loop that were made before a time by one of all decisions."""
    known = {id: float(body) for id, body in store.documents(loop, MARK).items()}
    if any(id != ALL and time < before for id, time in known.items()):
        store.write(Transaction(erasure=Erasure(merged, loop, (before,))))


def merged(execute: Execute, loop: int, before: float) -> int:
    """Do what `merge_marks` says, while nobody else erases events of the loop."""
    known = select(execute, Document, "WHERE loop = ? AND kind = ?", (loop, MARK))
    old = {id: float(body) for _, _, id, body in known if id == ALL or float(body) < before}
    for id in old:
        delete(execute, mark(loop, id, 0.0))
    put(execute, mark(loop, ALL, max(old.values())))
    return 0
