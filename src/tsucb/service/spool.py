"""Decisions made while the database is away, kept on this machine's disk until it is back."""

import os
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tsucb.service import events
from tsucb.service.events import Decided
from tsucb.service.store import StoreError

FILE = "unwritten"
MOST = 10_000  # decisions

Entry = tuple[int, Decided]  # the number of the loop, and the decision


class Spool:
    """A file of decisions; what `add` has taken survives a kill and a power failure.

    Parameters
    ----------
    folder
        Of this server alone; None keeps nothing, and takes nothing.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self._entries: dict[tuple[int, str], Decided] = {}
        self._keys: dict[tuple[int, str], Decided] = {}
        self._lock = threading.Lock()  # the journal adds, upkeep removes
        if self.path is not None and self.path.exists():
            self._remember(read(self.path.read_bytes()))

    def __len__(self) -> int:
        return len(self._entries)

    def _remember(self, entries: Iterable[Entry]) -> None:
        for loop, event in entries:
            self._entries[loop, event.id] = event
            if event.key is not None:
                self._keys[loop, event.key] = event

    def find(self, loop: int, id: str | None, key: str | None) -> Decided | None:
        """Return a decision that is not in the log yet, by its id or the key of its request."""
        found = None if key is None else self._keys.get((loop, key))
        return found if found is not None or id is None else self._entries.get((loop, id))

    def entries(self) -> list[Entry]:
        """Return all decisions, in the order in which they were made."""
        return [(loop, event) for (loop, _), event in self._entries.items()]

    def add(self, entries: list[Entry]) -> list[Decided]:
        """Keep decisions, on the disk when this returns; return them. Blocks.

        In the place of one that repeats the request of another there is that one.
        """
        if self.path is None or len(self) + len(entries) > MOST:
            raise StoreError("the store cannot be reached; try again later")
        with self._lock:
            keys, fresh, found = dict(self._keys), list[Entry](), list[Decided]()
            for loop, event in entries:
                known = event if event.key is None else keys.setdefault((loop, event.key), event)
                if known is event:
                    fresh.append((loop, event))
                found.append(known)
            self._write(fresh, "ab")
            self._remember(fresh)
            return found

    def _write(self, entries: list[Entry], mode: str) -> None:
        assert self.path is not None
        try:
            with open(self.path, mode, opener=private) as file:
                file.write(b"".join(line(loop, events.encode(event)) for loop, event in entries))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path} could not be written: {error}") from error

    def remove(self, entries: list[Entry]) -> None:
        """Forget decisions that are in the log; others may have been added meanwhile. Blocks."""
        with self._lock:
            for loop, event in entries:
                self._entries.pop((loop, event.id), None)
                self._keys.pop((loop, event.key or ""), None)
            if self.path is not None and self._entries:
                whole, self.path = self.path, self.path.with_suffix(".part")
                try:
                    self._write(self.entries(), "wb")
                    self.path.replace(whole)
                finally:
                    self.path = whole
            elif self.path is not None:
                self.path.unlink(missing_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file that its owner alone can read."""
    return os.open(path, flags, 0o600)


def line(loop: int, body: bytes) -> bytes:
    """Return a decision as a line of JSON, with its checksum."""
    return msgspec.json.encode((loop, body, zlib.crc32(body))) + b"\n"


def read(data: bytes) -> list[Entry]:
    """Return the decisions of a file, up to the first that is not whole."""
    found: list[Entry] = []
    for text in data.split(b"\n")[:-1]:
        try:
            loop, body, total = msgspec.json.decode(text, type=tuple[int, bytes, int])
        except msgspec.MsgspecError:
            break
        if zlib.crc32(body) != total:
            break
        event = events.decode(body)
        assert isinstance(event, Decided)
        found.append((loop, event))
    return found
