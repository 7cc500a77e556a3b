"""The store of a single machine: one SQLite file, in WAL mode, flushed at every commit."""

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from tsucb.files import locked
from tsucb.service.errors import Conflict, StoreError
from tsucb.service.store import KEYED, Row, Store
from tsucb.service.tables import Execute, checksum, write_last

# Up to 3.51.2 a checkpoint at the wrong moment could undo committed writes of a WAL.
LEAST_VERSION = 3_051_003
FILE, LOCK = "events.sqlite", "lock"
# Writes nothing if the loop is gone, or has an event of this key.
INSERT = (
    "INSERT INTO tsucb_events SELECT ?, number, ?, ?, ?, ?, ? FROM tsucb_loops "
    "WHERE number = ? AND name IS NOT NULL "
    "ON CONFLICT (key, loop) WHERE key IS NOT NULL DO NOTHING RETURNING position"
)
PAGES = 4_000  # of the WAL, before it is folded into the file


class SqliteStore(Store):
    """See `Store`; the folder is readable by its owner alone, and one process has it at a time.

    `vfs` is SQLite's layer under its files; for tests, which drop what was not flushed.
    """

    BEGIN = "BEGIN IMMEDIATE"
    POSITION, SERIAL = "INTEGER PRIMARY KEY", "INTEGER PRIMARY KEY AUTOINCREMENT"
    # The table is only written before events are deleted: one page less in every commit.
    LAST = (
        "SELECT max((SELECT coalesce(max(position), 0) FROM tsucb_events), position) "
        "FROM tsucb_last"
    )

    def __init__(self, folder: str | os.PathLike[str], *, vfs: str | None = None) -> None:
        super().__init__()
        check_version(apsw.sqlite_lib_version())
        self.folder, self._vfs = Path(folder), vfs
        make_private(self.folder)
        try:
            self._lock_file = os.fdopen(locked(self.folder / LOCK))
        except BlockingIOError:
            message = f"{self.folder} is in use by another process; stop that first"
            raise StoreError(message) from None
        # The writer appends; readers must not wait for it, nor it for them.
        self._locks = {name: threading.RLock() for name in ("writer", "reader", "snapshot")}
        self._locks["keeper"], self._locks["news"] = self._locks["writer"], self._locks["reader"]
        path = self.folder / FILE
        try:
            self._connections = dict.fromkeys(("writer", "keeper"), self._connect(vfs))
            self._connections |= dict.fromkeys(("reader", "news"), self._connect(vfs))
        except (apsw.Error, OSError) as error:
            self._lock_file.close()
            raise StoreError(f"{path} cannot be opened: {error}") from error
        self._last = -1
        try:
            with self._transaction() as execute:
                tables = execute("SELECT name FROM sqlite_schema")
                if tables and ("tsucb_last",) not in tables:
                    raise StoreError(f"{path} holds something else, or was written by an "
                                     "earlier version; give an empty folder")  # fmt: skip
                self._prepare(execute, str(path), not tables)
        except BaseException:
            self.close()
            raise

    def _connect(self, vfs: str | None) -> apsw.Connection:
        connection = apsw.Connection(str(self.folder / FILE), vfs=vfs)
        connection.set_busy_timeout(10_000)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # overwrite what is deleted with zeros
        connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")
        return connection

    def _execute(self, name: str, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connections[name].execute(query, tuple(values)).fetchall()
        except apsw.ConstraintError as error:
            raise Conflict(f"it is there already: {error}") from error
        except (apsw.Error, UnicodeDecodeError) as error:  # the latter from damaged texts
            done = "read" if name in ("reader", "news") else "written"
            raise StoreError(f"the log could not be {done}: {error}") from error

    def _roll_back(self, name: str) -> None:
        self._last = -1  # after a failed commit nobody knows whether it is in the file
        if self._connections[name].in_transaction:
            with contextlib.suppress(apsw.Error):
                self._connections[name].execute("ROLLBACK")

    def _keep_last(self, execute: Execute) -> None:
        write_last(execute, execute(self.LAST)[0][0])

    def _append(self, execute: Execute, rows: Sequence[Row]) -> None:
        if self._last < 0:
            self._last = int(execute(self.LAST)[0][0])
        for row in rows:
            position = self._last + 1
            loop, *columns = row.columns
            if execute(INSERT, (position, *columns, checksum(row.columns) + position, loop)):
                row.position, row.fresh, self._last = position, True, position
            else:
                known = execute(KEYED, (row.key, loop))
                row.position, row.fresh = known[0][0] if known else 0, False

    def _scrub(self) -> None:
        with self._locks["writer"], contextlib.suppress(apsw.BusyError):
            self._connections["writer"].execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _structure(self) -> list[str]:
        path = self.folder / FILE
        try:  # on a connection of its own: this may take minutes, for which nobody else waits
            with contextlib.closing(self._connect(self._vfs)) as connection:
                found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        except apsw.Error as error:
            found = [str(error)]
        return [] if found == ["ok"] else [f"{path}: {text}" for text in found]

    def close(self) -> None:
        with self._locks["writer"], self._locks["reader"]:
            for connection in set(self._connections.values()):
                connection.close()
            self._lock_file.close()


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, with the log and the keys in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "getuid") and folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)
        for file in (*folder.glob(f"{FILE}*"), *folder.glob("keys.json"), *folder.glob(LOCK)):
            file.chmod(0o600)
    for name in (FILE, LOCK):  # SQLite gives its other files the same permissions
        (folder / name).touch(mode=0o600)


def backup(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write a copy of a store as of now, also while a service writes to it.

    To restore it, put it into an empty folder under the name `events.sqlite`.
    """
    source = Path(folder) / FILE
    if not source.is_file():
        raise StoreError(f"there is no log in {folder}")
    if Path(path).exists():
        raise StoreError(f"{path} is there already; give another name")
    try:
        Path(path).touch(mode=0o600)
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(10_000)
        connection.execute("VACUUM INTO ?", (str(path),))
        connection.close()
    except (apsw.Error, OSError) as error:
        raise StoreError(f"{source} cannot be copied: {error}") from error


def check_version(version: str) -> None:
    """Refuse a SQLite that can lose what it has committed.

    >>> check_version("3.51.2")
    Traceback (most recent call last):
    tsucb.service.errors.StoreError: SQLite 3.51.2 can lose committed writes; upgrade apsw ...
    """
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    if major * 1_000_000 + minor * 1_000 + patch < LEAST_VERSION:
        raise StoreError(
            f"SQLite {version} can lose committed writes; upgrade apsw to 3.51.3 or later"
        )
