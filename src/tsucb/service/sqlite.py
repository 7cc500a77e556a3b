"""The store of a single machine: one SQLite file, in WAL mode, flushed at every commit."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from tsucb.service.store import AuditRecord, KeyRecord, Logged, Row, Snapshot, StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Up to 3.51.2 a checkpoint at the wrong moment could undo committed writes of a WAL.
LEAST_VERSION = 3_051_003
FILE, LOCK = "events.sqlite", "lock"
FORMAT = 1
KEPT_SNAPSHOTS = 2
CHUNK = 5_000  # events read at a time
NOBODY = 0  # the number of a loop that was deleted while an event of it was on its way
PIECE = 256_000  # bytes of a snapshot that are written together
PAGES = 4_000  # of the WAL, before it is folded into the file

SCHEMA = """
CREATE TABLE loops (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE events (
  position INTEGER PRIMARY KEY, loop INTEGER NOT NULL, time REAL NOT NULL,
  subject TEXT, person TEXT, body BLOB NOT NULL
);
CREATE TABLE given (position INTEGER NOT NULL);
INSERT INTO given VALUES (0);
CREATE INDEX by_subject ON events (subject, loop) WHERE subject IS NOT NULL;
CREATE INDEX by_person ON events (person, loop) WHERE person IS NOT NULL;
CREATE TABLE snapshots (
  loop INTEGER NOT NULL, position INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (loop, position)
) WITHOUT ROWID;
CREATE TABLE keys (
  hash BLOB PRIMARY KEY, loop TEXT, role TEXT NOT NULL, created REAL NOT NULL, expires REAL
) WITHOUT ROWID;
CREATE TABLE documents (
  number INTEGER PRIMARY KEY, loop INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
  body BLOB NOT NULL, UNIQUE (loop, kind, id)
);
CREATE TABLE audit (
  number INTEGER PRIMARY KEY, time REAL NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
  loop TEXT, detail TEXT NOT NULL
);
"""

# Positions are never given twice, even if the last events are deleted.
LAST = "SELECT max((SELECT coalesce(max(position), 0) FROM events), position) FROM given"
KEEP_LAST = f"UPDATE given SET position = ({LAST})"


class SqliteStore:
    """See `Store`.

    Parameters
    ----------
    folder
        Made if it is not there, for its owner alone. One process has it at a time.
    vfs
        SQLite's layer under its files; for tests, which drop what was not flushed.
    """

    shared = False

    def __init__(self, folder: str | os.PathLike[str], *, vfs: str | None = None) -> None:
        check_version(apsw.sqlite_lib_version())
        self.folder = Path(folder)
        make_private(self.folder)
        self._held = _locked(self.folder / LOCK)
        # The writer appends; readers must not wait for it, nor it for them.
        self._writing, self._reading = threading.RLock(), threading.RLock()
        self._keeping = threading.Lock()
        try:
            self._writer = self._connect(vfs)
            self._prepare()
            self._reader = self._connect(vfs)
        except apsw.Error as error:
            self._held.close()
            raise StoreError(f"{self.folder / FILE} cannot be opened: {error}") from error
        self._numbers = {name: n for n, name in self._writer.execute("SELECT * FROM loops")}
        self._last = self._find_last()

    def _connect(self, vfs: str | None) -> apsw.Connection:
        connection = apsw.Connection(str(self.folder / FILE), vfs=vfs)
        connection.set_busy_timeout(10_000)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # with zeros over what was there
        connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")
        return connection

    def _prepare(self) -> None:
        with self._writer:
            found = self._writer.execute("PRAGMA user_version").get
            if found == 0:
                self._writer.execute(SCHEMA)
                self._writer.execute(f"PRAGMA user_version = {FORMAT}")
            elif found != FORMAT:
                raise StoreError(
                    f"{self.folder / FILE} has format {found}, and this version reads {FORMAT}"
                )
            # Earlier versions had no such index. It lists the positions of a loop in order, so that
            # a loop where little happens need not look through the events of the others.
            self._writer.execute("CREATE INDEX IF NOT EXISTS by_loop ON events (loop)")
            # All of a large snapshot but its end, which is in `snapshots` once it is whole.
            self._writer.execute(
                "CREATE TABLE IF NOT EXISTS pieces (loop INTEGER NOT NULL, position INTEGER NOT "
                "NULL, number INTEGER NOT NULL, body BLOB NOT NULL, "
                "PRIMARY KEY (loop, position, number)) WITHOUT ROWID"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """Everything in it is durable at its end, or nothing happened."""
        with self._writing:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except apsw.Error as error:
                if self._writer.in_transaction:
                    with contextlib.suppress(apsw.Error):
                        self._writer.execute("ROLLBACK")
                raise StoreError(f"the log could not be written: {error}") from error
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reading:
            try:
                return self._reader.execute(query, values).fetchall()
            except apsw.Error as error:
                raise StoreError(f"the log could not be read: {error}") from error

    def _find_last(self) -> int:
        return int(self._writer.execute(LAST).get)

    # Events

    def append(self, rows: Sequence[Row]) -> int:
        """See `Store`."""
        with self._writing:
            # After a failed commit nobody knows whether it is in the file.
            if self._last < 0:
                self._last = self._find_last()
            first, self._last = self._last + 1, -1
            numbers = self._numbers
            values = (
                (first + i, numbers.get(r.loop, NOBODY), r.time, r.subject, r.person, r.body)
                for i, r in enumerate(rows)
            )
            with self._transaction() as writer:
                writer.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", values)
            self._last = first + len(rows) - 1
            return first

    def last(self) -> int:
        """See `Store`."""
        return int(self._rows(LAST)[0][0])

    def read(
        self, after: int, loop: str | None = None, until: int | None = None
    ) -> Iterator[Logged]:
        """See `Store`."""
        end = self.last() if until is None else until
        condition = "" if loop is None else f"AND loop = {self._numbers[loop]}"
        names = {number: name for name, number in self._numbers.items()}
        while after < end:
            rows = self._rows(
                "SELECT position, loop, body FROM events WHERE position > ? AND position <= ? "
                f"{condition} ORDER BY position LIMIT {CHUNK}",
                after,
                end,
            )
            for position, number, body in rows:
                yield Logged(position, names.get(number, ""), body)
            if len(rows) < CHUNK:
                return
            after = rows[-1][0]

    def about(self, loop: str, subject: str) -> list[Logged]:
        """See `Store`."""
        rows = self._rows(
            "SELECT position, body FROM events WHERE subject = ? AND loop = ? ORDER BY position",
            subject,
            self._numbers[loop],
        )
        return [Logged(position, loop, body) for position, body in rows]

    def newest(self, loop: str, count: int) -> Iterator[Logged]:
        """See `Store`."""
        first = self._rows(
            "SELECT position FROM events WHERE loop = ? AND subject IS NOT NULL "
            "ORDER BY position DESC LIMIT 1 OFFSET ?",
            self._numbers[loop],
            count - 1,
        )
        return self.read(first[0][0] - 1 if first else 0, loop)

    def forget(self, loop: str, subjects: Sequence[str], person: str | None) -> int:
        """See `Store`."""
        number, found = self._numbers[loop], set(subjects)
        with self._transaction() as writer:
            if person is not None:
                query = "SELECT subject FROM events WHERE person = ? AND loop = ?"
                found.update(subject for (subject,) in writer.execute(query, (person, number)))
            writer.execute(KEEP_LAST)
            before = writer.total_changes()
            for subject in sorted(found):
                writer.execute(
                    "DELETE FROM events WHERE subject = ? AND loop = ?", (subject, number)
                )
            deleted = writer.total_changes() - before
            if deleted:
                _delete_snapshots(writer, number)
        if deleted:
            self._scrub()
        return int(deleted)

    def condense(self, loop: str, position: int, body: bytes, count: int) -> bool:
        """See `Store`."""
        number = self._numbers[loop]
        with self._transaction() as writer:
            query = "SELECT count(*) FROM events WHERE loop = ? AND position <= ?"
            if writer.execute(query, (number, position)).get != count:
                return False
            writer.execute("UPDATE events SET body = ? WHERE position = ?", (body, position))
        # Piece by piece, as appending waits; whoever reads begins with that one event all the same.
        while True:
            with self._transaction() as writer:
                writer.execute(
                    "DELETE FROM events WHERE position IN (SELECT position FROM events WHERE "
                    "loop = ? AND position < ? LIMIT ?)",
                    (number, position, CHUNK),
                )
                if writer.changes() < CHUNK:
                    break
        self._scrub()
        return True

    def _scrub(self) -> None:
        """Leave nothing of what was deleted in the files."""
        with self._writing, contextlib.suppress(apsw.BusyError):
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def clear(self, loop: str) -> None:
        """See `Store`."""
        number = self._numbers[loop]
        with self._transaction() as writer:
            writer.execute(KEEP_LAST)
            writer.execute("DELETE FROM events WHERE loop = ?", (number,))
            _delete_snapshots(writer, number)
        self._scrub()

    # Snapshots

    def save_snapshot(self, loop: str, snapshot: Snapshot, alone: bool = False) -> None:
        """See `Store`."""
        number, kept = self._numbers[loop], 1 if alone else KEPT_SNAPSHOTS
        with self._keeping:  # one at a time, even if nobody waits for it any more
            self._write_pieces(number, *snapshot)
            with self._transaction() as writer:
                query = "SELECT position FROM snapshots WHERE loop = ? ORDER BY position DESC"
                for (old,) in writer.execute(query, (number,)).fetchall()[kept:]:
                    query = "DELETE FROM snapshots WHERE loop = ? AND position = ?"
                    writer.execute(query, (number, old))
            self._drop_pieces(number)

    def _write_pieces(self, number: int, position: int, body: bytes) -> None:
        """Piece by piece, as appending waits; it is there once its end is."""
        with self._transaction() as writer:  # what an earlier one of this position has left
            for table in ("snapshots", "pieces"):
                query = f"DELETE FROM {table} WHERE loop = ? AND position = ?"
                writer.execute(query, (number, position))
        end = max(len(body) - 1, 0) // PIECE * PIECE
        for first in range(0, end, PIECE):
            piece = number, position, first, body[first : first + PIECE]
            with self._transaction() as writer:
                writer.execute("INSERT INTO pieces VALUES (?, ?, ?, ?)", piece)
        with self._transaction() as writer:
            query = "INSERT INTO snapshots VALUES (?, ?, ?)"
            writer.execute(query, (number, position, body[end:]))

    def _drop_pieces(self, number: int) -> None:
        """Delete the pieces of snapshots that are gone, or were never finished."""
        whole = "SELECT position FROM snapshots WHERE loop = pieces.loop"
        query = f"SELECT position, number FROM pieces WHERE loop = ? AND position NOT IN ({whole})"
        for piece in self._rows(query, number):
            with self._transaction() as writer:
                query = "DELETE FROM pieces WHERE loop = ? AND position = ? AND number = ?"
                writer.execute(query, (number, *piece))

    def snapshots(self, loop: str) -> list[Snapshot]:
        """See `Store`."""
        number, found = self._numbers[loop], []
        query = "SELECT position, body FROM snapshots WHERE loop = ? ORDER BY position DESC"
        for position, end in self._rows(query, number):
            query = "SELECT body FROM pieces WHERE loop = ? AND position = ? ORDER BY number"
            pieces = [body for (body,) in self._rows(query, number, position)]
            found.append(Snapshot(position, b"".join([*pieces, end])))
        return found

    def drop_snapshots(self, loop: str) -> None:
        """See `Store`."""
        with self._transaction() as writer:
            _delete_snapshots(writer, self._numbers[loop])

    # Loops

    def loops(self) -> list[str]:
        """See `Store`."""
        return sorted(self._numbers)

    def add_loop(self, name: str) -> None:
        """See `Store`."""
        with self._transaction() as writer:
            writer.execute("INSERT INTO loops (name) VALUES (?)", (name,))
            number = writer.last_insert_rowid()
        self._numbers = {**self._numbers, name: number}

    def remove_loop(self, name: str) -> None:
        """See `Store`."""
        number = self._numbers[name]
        with self._transaction() as writer:
            writer.execute(KEEP_LAST)
            for table in ("events", "snapshots", "pieces", "documents"):
                writer.execute(f"DELETE FROM {table} WHERE loop = ?", (number,))
            writer.execute("DELETE FROM keys WHERE loop = ?", (name,))
            writer.execute("DELETE FROM loops WHERE number = ?", (number,))
        self._numbers = {k: n for k, n in self._numbers.items() if k != name}
        self._scrub()

    # Keys, and the audit trail

    def all_keys(self) -> list[KeyRecord]:
        """See `Store`."""
        return [KeyRecord(*row) for row in self._rows("SELECT * FROM keys ORDER BY created")]

    def save_key(self, key: KeyRecord) -> None:
        """See `Store`."""
        with self._transaction() as writer:
            writer.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", key)

    def delete_key(self, hash: bytes) -> None:
        """See `Store`."""
        with self._transaction() as writer:
            writer.execute("DELETE FROM keys WHERE hash = ?", (hash,))

    def write_audit(self, record: AuditRecord) -> None:
        """See `Store`."""
        with self._transaction() as writer:
            writer.execute("INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?)", record)

    def audit(self, loop: str | None, count: int) -> list[AuditRecord]:
        """See `Store`."""
        query = "SELECT time, who, action, loop, detail FROM audit "
        query += "WHERE ?1 IS NULL OR loop = ?1 ORDER BY number DESC LIMIT ?2"
        return [AuditRecord(*row) for row in self._rows(query, loop, count)]

    # Documents

    def put_document(self, loop: str, kind: str, id: str, body: bytes) -> None:
        """See `Store`."""
        with self._transaction() as writer:
            writer.execute(
                "INSERT INTO documents (loop, kind, id, body) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (loop, kind, id) DO UPDATE SET body = excluded.body",
                (self._numbers[loop], kind, id, body),
            )

    def documents(self, loop: str, kind: str) -> dict[str, bytes]:
        """See `Store`."""
        query = "SELECT id, body FROM documents WHERE loop = ? AND kind = ? ORDER BY number"
        return dict(self._rows(query, self._numbers[loop], kind))

    def delete_document(self, loop: str, kind: str, id: str) -> bool:
        """See `Store`."""
        with self._transaction() as writer:
            writer.execute(
                "DELETE FROM documents WHERE loop = ? AND kind = ? AND id = ?",
                (self._numbers[loop], kind, id),
            )
            return writer.changes() > 0

    # The rest

    def guard(self, loop: str) -> bool:
        """Always: nobody else has the folder."""
        return True

    def guards(self) -> bool:
        """Always."""
        return True

    def release(self) -> None:
        """There is nothing to do."""

    def leads(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """See `Store`."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()
            self._held.close()


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, with the log and the keys in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "getuid") and folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)
        for file in (*folder.glob(f"{FILE}*"), *folder.glob("keys.json"), *folder.glob(LOCK)):
            file.chmod(0o600)
    for name in (FILE, LOCK):  # SQLite gives its other files the same permissions
        (folder / name).touch(mode=0o600)


def _delete_snapshots(writer: apsw.Connection, number: int) -> None:
    for table in ("snapshots", "pieces"):
        writer.execute(f"DELETE FROM {table} WHERE loop = ?", (number,))


def check_version(version: str) -> None:
    """Refuse a SQLite that can lose what it has committed.

    >>> check_version("3.51.2")
    Traceback (most recent call last):
    tsucb.service.store.StoreError: SQLite 3.51.2 can lose committed writes; upgrade apsw ...
    """
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    if major * 1_000_000 + minor * 1_000 + patch < LEAST_VERSION:
        raise StoreError(
            f"SQLite {version} can lose committed writes; upgrade apsw to 3.51.3 or later"
        )


def _locked(path: Path) -> Any:
    """A file that only one process holds open."""
    handle = path.open("a")
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            raise StoreError(
                f"{path.parent} is in use by another process; stop that first"
            ) from None
    return handle
