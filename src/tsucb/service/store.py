"""Where a service keeps what it must not lose: one SQL schema and one `write` for two databases."""

import contextlib
import secrets
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tsucb.service.errors import Conflict, StoreError
from tsucb.service.events import AnyEvent, Configured, Decided, Rewarded, encode
from tsucb.service.keys import DroppedKey, KeyRecord

FORMAT = 2
KEPT_SNAPSHOTS = 2
CHUNK = 5_000  # events read, or deleted, at a time
PIECE = 256_000  # bytes of a snapshot that are written together
GONE = "gone"  # what becomes of an event of a loop that was deleted
MODEL = "m"  # begins the keys of events after which another model learns from the log


class Row(msgspec.Struct, eq=False):
    """An event of a loop: on its way into the log, or read from it.

    Parameters
    ----------
    loop : the loop's number
    subject, person, key : the decision that the event is about, by its id; whose decision it is;
        the request, of which the log takes each key of a loop once. None where there is none
    body, event : what is written, and what it encodes, for the fold
    position : where it is in the log, in the order of commits; 0 if its loop is gone
    fresh : whether this wrote it there; False if its key was there before
    result, state : what the fold made of it; what the loop knew after an event that compacted it
    spooled : the decision that is on this machine's disk instead, and not in the log yet
    """

    loop: int
    subject: str | None
    person: str | None
    key: str | None
    body: bytes
    event: Any = None
    position: int = 0
    fresh: bool = False
    result: str = GONE
    state: Any = None
    spooled: Decided | None = None

    @classmethod
    def of(cls, loop: int, event: AnyEvent) -> "Row":
        """Return an event of a loop with what it can be found by."""
        key = None
        if isinstance(event, Decided) and event.key is not None:
            key = f"d{event.key}"
        elif isinstance(event, Rewarded) and event.key is not None:
            # Lengths keep ids, slots and keys apart, which may hold any character.
            key = f"r{len(event.id)}:{len(event.slot)}:{event.id}{event.slot}{event.key}"
        elif isinstance(event, Configured) and event.relearn:
            key = f"{MODEL}{secrets.token_hex(8)}"
        subject, person = getattr(event, "id", None), getattr(event, "person", None)
        return cls(loop, subject, person, key, encode(event), event)

    @property
    def columns(self) -> tuple[Any, ...]:
        """What is written of it beside position and checksum."""
        return self.loop, self.subject, self.person, self.key, self.body


class LoopRecord(NamedTuple):
    """A loop: its number is random and never used again, its name may be."""

    number: int
    name: str


class AuditRecord(NamedTuple):
    """Who did what to which loop; `key` identifies the request.

    Where `detail` is None, `Store.write` says how many events were erased.
    """

    time: float
    who: str
    action: str
    loop: str | None
    detail: str | None
    key: str | None = None


class Document(NamedTuple):
    """Something else about a loop: an evaluation, settings of a protocol."""

    loop: int
    kind: str
    id: str
    body: bytes


Record = LoopRecord | KeyRecord | DroppedKey | AuditRecord | Document
# How each kind of record is written; a key's last field, the name of its loop, is not.
WRITES: dict[type[Record], str] = {
    LoopRecord: "INSERT INTO tsucb_loops (number, name) VALUES (?, ?)",
    KeyRecord: (
        "INSERT INTO tsucb_keys VALUES (?, ?, ?, ?, ?) ON CONFLICT (hash) "
        "DO UPDATE SET expires = excluded.expires"
    ),
    DroppedKey: "DELETE FROM tsucb_keys WHERE hash = ?",
    AuditRecord: (
        "INSERT INTO tsucb_audit (time, who, action, loop, detail, key) VALUES (?, ?, ?, ?, ?, ?)"
    ),
    Document: (
        "INSERT INTO tsucb_documents (loop, kind, id, body) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (loop, kind, id) DO UPDATE SET body = excluded.body"
    ),
}


Execute = Callable[..., list[tuple[Any, ...]]]  # takes a statement and its values, returns rows


class Erasure(NamedTuple):
    """Deletes events of a loop inside a transaction: `function` returns how many.

    It is one of those below, called with `Execute`, the loop, and the arguments.
    """

    function: Callable[..., int]
    loop: int
    arguments: tuple[Any, ...] = ()


class Transaction(NamedTuple):
    """One change of state: all of it is written in one transaction, or nothing.

    Parameters
    ----------
    rows : events to append; with an erasure, only if that found something
    records : loops, keys, documents and records of the audit trail to write
    erasure : events to delete
    """

    rows: Sequence[Row] = ()
    records: Sequence[Record] = ()
    erasure: Erasure | None = None

    @property
    def plain(self) -> bool:
        """Whether it only appends events, as decisions and rewards do."""
        return not self.records and self.erasure is None

    @property
    def is_empty(self) -> bool:
        return self.plain and not self.rows


SCHEMA = """
CREATE TABLE tsucb_last (position bigint NOT NULL, format integer NOT NULL);
INSERT INTO tsucb_last VALUES (0, {format});
CREATE TABLE tsucb_loops (
  number bigint PRIMARY KEY, name text UNIQUE, first bigint NOT NULL DEFAULT 0
);
CREATE TABLE tsucb_events (
  position {position}, loop bigint NOT NULL, subject text, person text, key text,
  body bytea NOT NULL, checksum bigint NOT NULL
);
CREATE INDEX tsucb_by_loop ON tsucb_events (loop, position);
CREATE INDEX tsucb_by_subject ON tsucb_events (subject, loop) WHERE subject IS NOT NULL;
CREATE INDEX tsucb_by_person ON tsucb_events (person, loop) WHERE person IS NOT NULL;
CREATE UNIQUE INDEX tsucb_by_key ON tsucb_events (key, loop) WHERE key IS NOT NULL;
CREATE TABLE tsucb_aside (
  position bigint PRIMARY KEY, loop bigint NOT NULL, body bytea NOT NULL, reason text NOT NULL
);
CREATE TABLE tsucb_snapshots (
  loop bigint NOT NULL, position bigint NOT NULL, piece bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (loop, position, piece)
);
CREATE TABLE tsucb_keys (
  hash bytea PRIMARY KEY, loop bigint NOT NULL, role text NOT NULL,
  created double precision NOT NULL, expires double precision
);
CREATE TABLE tsucb_documents (
  number {serial}, loop bigint NOT NULL, kind text NOT NULL, id text NOT NULL,
  body bytea NOT NULL, UNIQUE (loop, kind, id)
);
CREATE TABLE tsucb_audit (
  number {serial}, time double precision NOT NULL, who text NOT NULL, action text NOT NULL,
  loop text, detail text NOT NULL, key text UNIQUE
);
"""
REMOVED = 2**62  # `first` of a loop that was deleted: all of its events are to go
COLUMNS = "position, loop, subject, person, key, body, checksum"

COUNT = (
    "SELECT count(*) FROM tsucb_events JOIN tsucb_loops ON number = loop "
    "WHERE loop = ? AND position <= ? AND position >= first"
)
KEYED = (
    "SELECT position FROM tsucb_events JOIN tsucb_loops ON number = loop "
    "WHERE key = ? AND loop = ? AND name IS NOT NULL"
)
DROP_SNAPSHOTS = "DELETE FROM tsucb_snapshots WHERE loop = ?"
WHOLE = -1  # the piece of a snapshot that holds the checksum of the others
FIRST = "SELECT first FROM tsucb_loops WHERE number = ?"
LEARNED_AGAIN = (
    "SELECT position, body FROM tsucb_events JOIN tsucb_loops ON number = loop "
    "WHERE key >= 'm' AND key < 'n' AND loop = ? AND position >= first"
)


def checksum(row: Row) -> int:
    """Return the checksum of an event, to which the store adds its position."""
    head = f"{row.loop} {row.subject!r} {row.person!r} {row.key!r}".encode()
    return zlib.crc32(row.body, zlib.crc32(head))


def remove(execute: Execute, loop: int) -> int:
    """Delete a loop with everything of it; `Store.sweep` deletes its events and snapshots."""
    query = "UPDATE tsucb_loops SET name = NULL, first = ? WHERE number = ?"
    execute(query, (REMOVED, loop))
    for table in ("documents", "keys"):
        execute(f"DELETE FROM tsucb_{table} WHERE loop = ?", (loop,))
    return 0


def forget(execute: Execute, loop: int, subjects: Sequence[str], person: str | None) -> int:
    """Delete decisions with their rewards, by their ids or by the person."""
    query, found = "DELETE FROM tsucb_events WHERE loop = ? AND subject", []
    if person is not None:
        theirs = "IN (SELECT subject FROM tsucb_events WHERE loop = ? AND person = ?)"
        found += execute(f"{query} {theirs} RETURNING position", (loop, loop, person))
    for subject in subjects:
        found += execute(f"{query} = ? RETURNING position", (loop, subject))
    return len(found)


def condense(
    execute: Execute, loop: int, position: int, body: bytes, events: int, known: int
) -> int:
    """Let an event replace all events of a loop up to its position, `events` of them.

    Raise Conflict if there are not this many any more, or if another model has learned from them by
    an event after `known`: the body does not hold what it learned.
    """
    query = "SELECT subject, person, key FROM tsucb_events WHERE loop = ? AND position = ?"
    found = execute(query, (loop, position))
    changed = execute(f"{LEARNED_AGAIN} AND position > ?", (loop, known))
    if changed or not found or execute(COUNT, (loop, position)) != [(events,)]:
        raise Conflict("the log of the loop was changed meanwhile; try again")
    subject, person, key = found[0]
    total = checksum(Row(loop, subject, person, key, body)) + position
    query = "UPDATE tsucb_events SET body = ?, checksum = ? WHERE position = ?"
    execute(query, (body, total, position))
    execute("UPDATE tsucb_loops SET first = ? WHERE number = ?", (position, loop))
    return events


def set_aside(execute: Execute, loop: int, position: int, reason: str) -> int:
    """Move an event out of the log, and say why."""
    query = (
        "INSERT INTO tsucb_aside SELECT position, loop, body, ? FROM tsucb_events "
        "WHERE position = ? AND loop = ?"
    )
    execute(query, (reason, position, loop))
    query = "DELETE FROM tsucb_events WHERE position = ? AND loop = ? RETURNING position"
    return len(execute(query, (position, loop)))


class Store:
    """Events, snapshots, keys, documents and the audit trail in an SQL database.

    All methods block and may be called from any thread. What they write is durable when they
    return. Subclasses say how one database is connected to, and how it appends.
    """

    shared = False  # whether other processes append to the log too
    BEGIN = "BEGIN"
    CHANGES = "writer"  # the connection for changes of state that are more than events
    POSITION, SERIAL = "bigint PRIMARY KEY", "bigserial PRIMARY KEY"
    SCHEMA = SCHEMA
    LAST = "SELECT position FROM tsucb_last"
    _locks: dict[str, Any]  # one for every connection, by its purpose

    # What a database must say

    def _execute(self, name: str, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement on a connection; raise `StoreError` if that fails."""
        raise NotImplementedError

    def _roll_back(self, name: str) -> None:
        """End a transaction that failed, in whatever state it is."""
        raise NotImplementedError

    def _append(self, execute: Execute, rows: Sequence[Row]) -> None:
        """Append rows, and set the position of each, and whether it is fresh."""
        raise NotImplementedError

    def _lock_loop(self, execute: Execute, loop: int) -> None:
        """Wait until no other process erases events of a loop."""

    def _keep_last(self, execute: Execute) -> None:
        """Write down the last position before events are deleted, so that it is not used again."""

    def _scrub(self) -> None:
        """Leave nothing of what was deleted in the files."""

    def _structure(self) -> list[str]:
        """Return what the database itself finds damaged."""
        return []

    # Transactions

    @contextlib.contextmanager
    def _transaction(self, name: str = "writer") -> Iterator[Execute]:
        """Everything executed in it is durable at its end, or nothing happened."""
        with self._locks[name]:
            try:
                self._execute(name, self.BEGIN)
                yield partial(self._execute, name)
                self._execute(name, "COMMIT")
            except BaseException:
                self._roll_back(name)
                raise

    def _rows(self, query: str, *values: Any, name: str = "reader") -> list[tuple[Any, ...]]:
        with self._locks[name]:
            return self._execute(name, query, values)

    def _prepare(self, execute: Execute, where: str, empty: bool) -> None:
        """Make the tables in an empty database; raise StoreError if they are of another version."""
        schema = self.SCHEMA.format(format=FORMAT, position=self.POSITION, serial=self.SERIAL)
        for statement in schema.split(";\n")[:-1] if empty else ():
            execute(statement)
        if execute("SELECT format FROM tsucb_last") != [(FORMAT,)]:
            raise StoreError(f"{where} has another format than {FORMAT}, which this version reads")

    def write(self, change: Transaction) -> int:
        """Write one change of state, all or nothing; return how many events it erased."""
        erasure, erased = change.erasure, 0
        with self._transaction(self.CHANGES) as execute:
            if erasure is not None:
                self._lock_loop(execute, erasure.loop)
                self._keep_last(execute)
                erased = erasure.function(execute, erasure.loop, *erasure.arguments)
                if erased and change.rows:  # which tell every server to read the log again
                    execute(DROP_SNAPSHOTS, (erasure.loop,))
            for record in change.records:
                if isinstance(record, AuditRecord) and record.detail is None:
                    record = record._replace(detail=f"{erased} events")
                query = WRITES[type(record)]
                execute(query, record[: query.count("?")])
            if change.rows and (erased or erasure is None):
                self._append(execute, change.rows)
        if erasure is not None:
            with contextlib.suppress(StoreError):  # what is left goes with the next one
                self.sweep(erasure.loop)
        return erased

    def sweep(self, only: int | None = None) -> None:
        """Delete what no reader sees any more, of one loop or of all.

        Some at a time, as appending waits meanwhile.
        """
        query = (
            "DELETE FROM tsucb_events WHERE position IN (SELECT position FROM tsucb_events "
            "WHERE loop = ? AND position < ? LIMIT ?) RETURNING position"
        )
        for loop, first in self._rows("SELECT number, first FROM tsucb_loops WHERE first > 0"):
            deleted = CHUNK if only in (None, loop) else 0
            while deleted == CHUNK:
                with self._transaction("keeper") as execute:
                    deleted = len(execute(query, (loop, first, CHUNK)))
                    if first == REMOVED:
                        execute(DROP_SNAPSHOTS, (loop,))
        self._scrub()

    # Events

    def last(self) -> int:
        """Return the position of the last event, 0 if there is none."""
        return int(self._rows(self.LAST, name="news")[0][0])

    def read(self, after: int, loop: int | None = None, until: int | None = None) -> Iterator[Row]:
        """Yield the events after a position and at most `until`, of one loop or of all, in order.

        A damaged event raises a `StoreError` that names it.
        """
        for row, damaged in self._scan(after, loop, until):
            if damaged:
                place = row.position
                raise StoreError(f"event {place} of the log is damaged; see tsucb serve --check")
            yield row

    def _scan(
        self, after: int, loop: int | None, until: int | None = None
    ) -> Iterator[tuple[Row, bool]]:
        """Yield events, and whether their checksums are wrong."""
        end = self.last() if until is None else until
        # Whoever appends reads what others did: for that it does not wait for what clients look up.
        name, condition, which = "news", "", list[int]()
        if loop is not None:
            name, condition, which = "reader", "AND loop = ?", [loop]
        first = self._rows(FIRST, *which) if which else []
        after = max([after, *(number - 1 for (number,) in first)])
        query = (
            f"SELECT {COLUMNS} FROM tsucb_events WHERE position > ? AND position <= ? "
            f"{condition} ORDER BY position LIMIT ?"
        )
        rows: list[tuple[Any, ...]] = []
        while after < end:
            rows = self._rows(query, after, end, *which, CHUNK, name=name)
            if which and self._rows(FIRST, *which) != first:
                raise Conflict("the log of the loop was condensed meanwhile; try again")
            for position, number, subject, person, key, body, total in rows:
                row = Row(number, subject, person, key, body, position=position)
                yield row, checksum(row) + position != total
            after = rows[-1][0] if len(rows) == CHUNK else end

    def about(self, loop: int, subject: str) -> list[bytes]:
        """Return the events about one decision, encoded."""
        query = (
            "SELECT body FROM tsucb_events JOIN tsucb_loops ON number = loop "
            "WHERE subject = ? AND loop = ? AND position >= first ORDER BY position"
        )
        return [body for (body,) in self._rows(query, subject, loop)]

    def at(self, loop: int, position: int) -> bytes | None:
        """Return the event at a position, None if it was erased."""
        found = next(self.read(position - 1, loop, position), None)
        return None if found is None else found.body

    def keyed(self, loop: int, key: str) -> int | None:
        """Return the position of the event that a request with a key led to."""
        found = self._rows(KEYED, key, loop)
        return int(found[0][0]) if found else None

    def having(self, column: str, values: Sequence[str]) -> set[tuple[int, str]]:
        """Return the loops with events that have one of the values in a column, each with it."""
        marks = ", ".join("?" * len(values))
        query = f"SELECT loop, {column} FROM tsucb_events WHERE {column} IN ({marks})"
        return set(self._rows(query, *values))

    def relearned(self, loop: int, until: int | None) -> tuple[int, bytes] | None:
        """Return the last change to a model that learns from the log: its position, and itself."""
        end = self.last() if until is None else until
        found = self._rows(f"{LEARNED_AGAIN} AND position <= ? ORDER BY position", loop, end)
        return found[-1] if found else None

    def count(self, loop: int, until: int) -> int:
        """Return how many events of a loop there are up to a position."""
        return int(self._rows(COUNT, loop, until)[0][0])

    def newest(self, loop: int, count: int) -> Iterator[Row]:
        """Yield the last events of a loop in order, `count` of which are about decisions."""
        query = (
            "SELECT position FROM tsucb_events WHERE loop = ? AND subject IS NOT NULL "
            "ORDER BY position DESC LIMIT 1 OFFSET ?"
        )
        first = self._rows(query, loop, count - 1)
        return self.read(first[0][0] - 1 if first else 0, loop)

    def set_aside(self) -> list[tuple[Any, ...]]:
        """Return position, loop and reason of every event that was moved out of the log."""
        return self._rows("SELECT position, loop, reason FROM tsucb_aside ORDER BY position")

    # Snapshots

    def save_snapshot(self, loop: int, position: int, body: bytes, alone: bool = False) -> None:
        """Keep a snapshot, and of older ones only the newest; none if it is to be `alone`.

        It is written in pieces, between which events are appended. The last is the checksum of all:
        only with that it is a snapshot.
        """
        most = 1 if alone else KEPT_SNAPSHOTS
        pieces = [(first, body[first : first + PIECE]) for first in range(0, len(body), PIECE)]
        with self._locks["snapshot"]:
            self._drop_snapshot(loop, position)
            for number, piece in (*pieces, (WHOLE, b"%d" % zlib.crc32(body))):
                with self._transaction("keeper") as execute:
                    query = "INSERT INTO tsucb_snapshots VALUES (?, ?, ?, ?)"
                    execute(query, (loop, position, number, piece))
            query = (
                "SELECT position, min(piece) FROM tsucb_snapshots WHERE loop = ? "
                "GROUP BY position ORDER BY position DESC"
            )
            whole = 0
            for each, first in self._rows(query, loop):
                whole += first == WHOLE
                if whole > most or first != WHOLE:  # an older one, or one that was never finished
                    self._drop_snapshot(loop, each)

    def _drop_snapshot(self, loop: int, position: int) -> None:
        """Delete a snapshot: its checksum first, then piece by piece, as appending waits."""
        query = "SELECT piece FROM tsucb_snapshots WHERE loop = ? AND position = ? ORDER BY piece"
        for (piece,) in self._rows(query, loop, position):
            with self._transaction("keeper") as execute:
                query = "DELETE FROM tsucb_snapshots WHERE loop = ? AND position = ? AND piece = ?"
                execute(query, (loop, position, piece))

    def snapshots(self, loop: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the positions and bodies of a loop's snapshots, the newest first.

        The body of one that is damaged is None.
        """
        query = "SELECT position, body FROM tsucb_snapshots WHERE loop = ? AND piece = ?"
        for position, total in self._rows(f"{query} ORDER BY position DESC", loop, WHOLE):
            query = "SELECT body FROM tsucb_snapshots WHERE loop = ? AND position = ? AND piece > ?"
            rows = self._rows(f"{query} ORDER BY piece", loop, position, WHOLE)
            body = b"".join(piece for (piece,) in rows)
            yield position, body if b"%d" % zlib.crc32(body) == total else None

    def drop_snapshots(self, loop: int) -> None:
        with self._transaction() as execute:
            execute(DROP_SNAPSHOTS, (loop,))

    # Loops, keys, documents, the audit trail

    def loops(self) -> dict[str, int]:
        query = "SELECT name, number FROM tsucb_loops WHERE name IS NOT NULL ORDER BY name"
        return dict(self._rows(query))

    def all_keys(self) -> list[KeyRecord]:
        query = (
            "SELECT hash, loop, role, created, expires, name FROM tsucb_keys "
            "LEFT JOIN tsucb_loops ON number = loop WHERE loop = 0 OR name IS NOT NULL "
            "ORDER BY created"
        )
        return [KeyRecord(*row) for row in self._rows(query)]

    def documents(self, loop: int, kind: str) -> dict[str, bytes]:
        """Return documents by their ids, in the order in which `write` first put them."""
        query = "SELECT id, body FROM tsucb_documents WHERE loop = ? AND kind = ? ORDER BY number"
        return dict(self._rows(query, loop, kind))

    def delete_document(self, loop: int, kind: str, id: str) -> None:
        with self._transaction() as execute:
            query = "DELETE FROM tsucb_documents WHERE loop = ? AND kind = ? AND id = ?"
            execute(query, (loop, kind, id))

    def audit(self, loop: str | None, count: int) -> list[AuditRecord]:
        """Return the last records of the audit trail, of one loop or of all, the newest first."""
        condition, values = ("", []) if loop is None else ("WHERE loop = ?", [loop])
        query = (
            "SELECT time, who, action, loop, detail, key FROM tsucb_audit "
            f"{condition} ORDER BY number DESC LIMIT ?"
        )
        return [AuditRecord(*row) for row in self._rows(query, *values, count)]

    def is_audited(self, key: str) -> bool:
        """Return whether an administrative request with this key was done before."""
        return bool(self._rows("SELECT 1 FROM tsucb_audit WHERE key = ?", key))

    # Damage

    def damage(self) -> Iterator[str]:
        """Yield one sentence about everything that is damaged; reads the whole database."""
        try:
            yield from self._structure()
            for name, number in self.loops().items():
                for row, damaged in self._scan(0, number):
                    if damaged:
                        yield f"event {row.position} of loop {name!r} is damaged"
                for position, body in self.snapshots(number):
                    if body is None:
                        yield f"the snapshot of loop {name!r} at {position} is damaged"
        except StoreError as error:
            yield str(error)

    def repair(self) -> list[str]:
        """Set aside events that are damaged, delete damaged snapshots; return what was done."""
        done = []
        for name, number in self.loops().items():
            damaged = [row.position for row, damaged in self._scan(0, number) if damaged]
            for position in damaged:
                self.write(Transaction(erasure=Erasure(set_aside, number, (position, "damaged"))))
                done.append(f"event {position} of loop {name!r} was set aside")
            if damaged or any(body is None for _, body in self.snapshots(number)):
                self.drop_snapshots(number)
                done.append(f"the snapshots of loop {name!r} were deleted")
        return done

    # Several servers

    def lead(self, time: float) -> tuple[bool, float | None]:
        """Take or renew the lease of the leader, which writes snapshots and that time passed.

        `time` is the caller's. Return whether this process leads, and the leader's time.
        """
        return True, None

    def resign(self) -> None:
        """Give up the lease of the leader."""

    def settle(self) -> None:
        """Wait until everything that this process began to append is in the log, or never will."""

    def close(self) -> None:
        raise NotImplementedError
