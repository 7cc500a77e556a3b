"""Decisions made while the database is away, on the disk of this server."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from tsucb.service import events
from tsucb.service.errors import StoreError
from tsucb.service.events import Decided

FILE = "unwritten.sqlite"
MOST_SPOOLED = 10_000  # decisions
AWAY = "the store cannot be reached; try again later"

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
