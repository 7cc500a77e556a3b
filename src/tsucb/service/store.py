"""The store of a service: one SQL schema and one `write` for two databases."""

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tsucb.service.errors import Conflict, StoreError
from tsucb.service.events import AnyEvent, Configured, Decided, Rewarded, encode
from tsucb.service.keys import KeyRecord
from tsucb.service.tables import (
    COLUMNS,
    FORMAT,
    INDEXES,
    REMOVED,
    TABLES,
    AsideRecord,
    AuditRecord,
    Deleted,
    Document,
    Execute,
    LoopRecord,
    Piece,
    Record,
    among,
    check_sound,
    delete,
    is_sound,
    named,
    put,
    row_checksum,
    select,
    selection,
    write_last,
)

KEPT_SNAPSHOTS = 2
CHUNK = 5_000  # events read, or deleted, at a time
ROWS = 50  # of other tables that are checked at a time: they may be as long as a `PIECE`
PIECE = 256_000  # bytes of a snapshot that are written together
GONE = "gone"  # the result of an event whose loop was deleted
MODEL = "m"  # first letter of the keys of events after which another model learns from the log


class Row(msgspec.Struct, eq=False):
    """An event of a loop: on its way into the log, or read from it.

    Parameters
    ----------
    loop : the loop's number
    subject, person, key : the id of the decision that the event is about, the person it was made
        for, and the key of the request, which the log takes once for each loop; or None
    body, event : the encoded event, and the event itself for the fold
    position : in the log, in the order of commits; 0 if the loop is gone
    fresh : whether this process wrote the event; False if its key was in the log before
    result, state : what the fold returned; what the loop knew after a `Compacted`
    spooled : the decision that is on this server's disk instead, and not in the log yet
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
        """Return the row of an event, with the columns by which it can be found."""
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
        """The columns beside position and checksum."""
        return self.loop, self.subject, self.person, self.key, self.body


class Erasure(NamedTuple):
    """A deletion of events: `function`(execute, loop, *arguments) returns how many it deleted."""

    function: Callable[..., int]
    loop: int
    arguments: tuple[Any, ...] = ()


class Transaction(NamedTuple):
    """One change of state: all of it is written in one transaction, or nothing.

    Parameters
    ----------
    rows : events to append; with an erasure, only if that found something
    records : loops, keys, documents and records of the audit trail to write or to delete
    erasure : events to delete
    keep : which of the rows to append, as `keep`(execute, rows) returns them while nobody else can
        erase events of their loops
    """

    rows: Sequence[Row] = ()
    records: Sequence[Record | Deleted] = ()
    erasure: Erasure | None = None
    keep: Callable[[Execute, Sequence[Row]], list[Row]] | None = None

    @property
    def plain(self) -> bool:
        """Whether it only appends events, as decisions and rewards do."""
        return not self.records and self.erasure is None and self.keep is None

    @property
    def is_empty(self) -> bool:
        return self.plain and not self.rows


# Erasures


def remove(execute: Execute, loop: int) -> int:
    """Delete a loop with everything of it; `Store.sweep` deletes its events and snapshots."""
    put(execute, LoopRecord(loop, None, REMOVED))
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
    """Replace the body of the event at `position`, and delete the events before it.

    Raise Conflict if there are not `events` of them any more, or if another model has learned from
    them by an event after `known`: the body does not hold what that model learned.
    """
    last = visible(execute, "loop = ? AND position = ?", loop, position)
    ((count,),) = execute(COUNT, (loop, position))
    if not last or count != events or relearned(execute, loop, known + 1, REMOVED):
        raise Conflict("the log of the loop was changed meanwhile; try again")
    total = row_checksum("events", (position, *last[0].columns[:-1], body))
    query = "UPDATE tsucb_events SET body = ?, checksum = ? WHERE position = ?"
    execute(query, (body, total, position))
    (record,) = select(execute, LoopRecord, "WHERE number = ?", (loop,))
    put(execute, record._replace(first=position))
    return events


def set_aside(execute: Execute, loop: int, place: int, reason: str, table: str = "events") -> int:
    """Move a row out of its table, by its first column, and say why."""
    first = COLUMNS[table][0]
    for row in execute(f"{selection(table)} WHERE {first} = ?", (place,)):
        body = row[-2] if table == "events" else repr(row).encode()
        put(execute, AsideRecord(named(table, place), loop, reason, body))
    query = f"DELETE FROM tsucb_{table} WHERE {first} = ? RETURNING {first}"
    return len(execute(query, (place,)))


COUNT = "SELECT count(*) FROM tsucb_log WHERE loop = ? AND position <= ?"
KEYED = (
    "SELECT position FROM tsucb_events JOIN tsucb_loops ON number = loop "
    "WHERE key = ? AND loop = ? AND name IS NOT NULL"
)
DROP_SNAPSHOTS = "DELETE FROM tsucb_snapshots WHERE loop = ?"
FIRST = "SELECT first FROM tsucb_loops WHERE number = ?"


def relearned(execute: Execute, loop: int, first: int, last: int) -> list[Row]:
    """Return the events at positions `first` to `last` after which another model learns."""
    condition = "key >= 'm' AND key < 'n' AND loop = ? AND position BETWEEN ? AND ?"
    return visible(execute, condition, loop, first, last)


def visible(execute: Execute, condition: str, *values: Any) -> list[Row]:
    """Return visible events in order; raise StoreError if one is damaged."""
    query = f"{selection('events', 'log')} WHERE {condition} ORDER BY position"
    return [row_of(found) for found in execute(query, values)]


def row_of(found: tuple[Any, ...]) -> Row:
    """Return an event from its columns; raise StoreError if it is damaged."""
    check_sound("events", found)
    position, loop, subject, person, key, body, _ = found
    return Row(loop, subject, person, key, body, position=position)


class Store:
    """Events, snapshots, keys, documents and the audit trail in an SQL database.

    All methods block and may be called from any thread. What they write is durable when they
    return. Subclasses say how one database is connected to, and how it appends.
    """

    shared = False  # whether other processes append to the log too
    BEGIN = "BEGIN"
    CHANGES = "writer"  # the connection for changes of state that are more than events
    POSITION, SERIAL = "bigint PRIMARY KEY", "bigserial PRIMARY KEY"
    LAST = "SELECT position FROM tsucb_last"
    _locks: dict[str, Any]  # one for every connection, by its purpose

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)  # of this process, among those that share the database

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

    def _lock_loops(self, execute: Execute, loops: Collection[int]) -> None:
        """Wait until no other process erases events of these loops."""

    def _keep_last(self, execute: Execute) -> None:
        """Write down the last position before events are deleted, so that it is not used again."""

    def _scrub(self) -> None:
        """Overwrite what was deleted in the files of the database."""

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

    def _rows(
        self, query: str, values: Sequence[Any] = (), name: str = "reader"
    ) -> list[tuple[Any, ...]]:
        with self._locks[name]:
            return self._execute(name, query, values)

    def _prepare(self, execute: Execute, where: str, empty: bool) -> None:
        """Make the tables in an empty database; raise StoreError if they are of another version."""
        if empty:
            for name, columns in TABLES.items():
                given = columns.format(position=self.POSITION, serial=self.SERIAL)
                execute(f"CREATE TABLE tsucb_{name} ({given}, checksum bigint NOT NULL)")
            for statement in INDEXES.split(";\n"):
                execute(statement)
            execute("INSERT INTO tsucb_last VALUES (0, ?, 0)", (FORMAT,))
            write_last(execute, 0)
        if execute("SELECT format FROM tsucb_last") != [(FORMAT,)]:
            raise StoreError(f"{where} has another format than {FORMAT}, which this version reads")

    def write(self, change: Transaction) -> int:
        """Write one change of state, all or nothing; return how many events it erased."""
        erasure, rows, erased = change.erasure, change.rows, 0
        with self._transaction(self.CHANGES) as execute:
            if erasure is not None:
                self._lock_loops(execute, [erasure.loop])
                self._keep_last(execute)
                erased = erasure.function(execute, erasure.loop, *erasure.arguments)
                if erased and rows:  # which tell every server to read the log again
                    execute(DROP_SNAPSHOTS, (erasure.loop,))
            for record in change.records:
                if isinstance(record, Deleted):
                    delete(execute, record.record)
                    continue
                if isinstance(record, AuditRecord) and record.detail is None:
                    record = record._replace(detail=f"{erased} events")
                put(execute, record)
            if change.keep is not None:
                self._lock_loops(execute, {row.loop for row in rows})
                rows = change.keep(execute, rows)
            if rows and (erased or erasure is None):
                self._append(execute, rows)
        if erasure is not None:
            with contextlib.suppress(StoreError):  # what is left goes with the next one
                self.sweep(erasure.loop)
        return erased

    def sweep(self, only: int | None = None) -> None:
        """Delete the events that are not visible any more, of one loop or of all.

        This many at a time, as appending waits meanwhile.
        """
        query = (
            "DELETE FROM tsucb_events WHERE position IN (SELECT position FROM tsucb_events "
            "WHERE loop = ? AND position < ? LIMIT ?) RETURNING position"
        )
        for loop, _, first in select(self._rows, LoopRecord, "WHERE first > 0"):
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
        return map(row_of, self._scan(after, loop, until))

    def _scan(
        self, after: int, loop: int | None, until: int | None = None, name: str = "news"
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of events; of one loop, only of those that are visible."""
        end = self.last() if until is None else until
        # The ledger reads what others wrote on a connection of its own, and so need not wait for
        # what clients look up.
        condition, which, first = "", list[int](), list[tuple[int]]()
        if loop is not None:
            name, condition, which = "reader", "AND loop = ?", [loop]
            first = self._rows(FIRST, which)
        after = max([after, *(number - 1 for (number,) in first)])
        query = f"{selection('events')} WHERE position > ? AND position <= ?"
        query = f"{query} {condition} ORDER BY position LIMIT ?"
        while after < end:
            rows = self._rows(query, (after, end, *which, CHUNK), name)
            if which and self._rows(FIRST, which) != first:
                raise Conflict("the log of the loop was condensed meanwhile; try again")
            yield from rows
            after = rows[-1][0] if len(rows) == CHUNK else end

    def about(self, loop: int, subject: str) -> list[bytes]:
        """Return the events about one decision, encoded."""
        found = visible(self._rows, "subject = ? AND loop = ?", subject, loop)
        return [row.body for row in found]

    def at(self, loop: int, position: int) -> bytes | None:
        """Return the event at a position, encoded; None if it was erased."""
        found = visible(self._rows, "loop = ? AND position = ?", loop, position)
        return found[0].body if found else None

    def relearned(self, loop: int, until: int | None) -> Row | None:
        """Return the last change to a model that learns from the log."""
        found = relearned(self._rows, loop, 0, self.last() if until is None else until)
        return found[-1] if found else None

    def keyed(self, loop: int, key: str) -> int | None:
        """Return the position of the event that a request with a key led to."""
        found = self._rows(KEYED, (key, loop))
        return int(found[0][0]) if found else None

    def having(self, column: str, values: Sequence[str]) -> set[tuple[int, str]]:
        """Return the loop and the value of every event that has one of the values in a column."""
        query = f"SELECT loop, {column} FROM tsucb_events WHERE {column} IN ({among(values)})"
        return set(self._rows(query, values))

    def count(self, loop: int, until: int) -> int:
        """Return how many events of a loop there are up to a position."""
        return int(self._rows(COUNT, (loop, until))[0][0])

    def newest(self, loop: int, count: int) -> Iterator[Row]:
        """Yield the last events of a loop in order, `count` of which are about decisions."""
        query = (
            "SELECT position FROM tsucb_events WHERE loop = ? AND subject IS NOT NULL "
            "ORDER BY position DESC LIMIT 1 OFFSET ?"
        )
        first = self._rows(query, (loop, count - 1))
        return self.read(first[0][0] - 1 if first else 0, loop)

    def set_aside(self) -> list[AsideRecord]:
        """Return all rows that were moved out of their tables."""
        return select(self._rows, AsideRecord, "ORDER BY number")

    # Snapshots

    def save_snapshot(self, loop: int, position: int, body: bytes, alone: bool = False) -> None:
        """Keep a snapshot, and of older ones only the newest; none if it is to be `alone`.

        It is written in pieces, between which events are appended, the first one last: without that
        it is no snapshot.
        """
        with self._locks["snapshot"]:
            self._drop_snapshot(loop, position)
            for number in reversed(range(-(-len(body) // PIECE))):
                piece = body[number * PIECE : (number + 1) * PIECE]
                with self._transaction("keeper") as execute:
                    put(execute, Piece(loop, position, number, piece))
            query = (
                "SELECT position, min(piece) FROM tsucb_snapshots WHERE loop = ? "
                "GROUP BY position ORDER BY position DESC"
            )
            left = 1 if alone else KEPT_SNAPSHOTS
            for each, first in self._rows(query, (loop,)):
                left -= first == 0
                if left < 0 or first > 0:  # an older one, or one that was never finished
                    self._drop_snapshot(loop, each)

    def _drop_snapshot(self, loop: int, position: int) -> None:
        """Delete a snapshot piece by piece, the first one first, as appending waits."""
        query = "SELECT piece FROM tsucb_snapshots WHERE loop = ? AND position = ? ORDER BY piece"
        for (piece,) in self._rows(query, (loop, position)):
            with self._transaction("keeper") as execute:
                delete(execute, Piece(loop, position, piece, b""))

    def snapshots(self, loop: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the positions and bodies of a loop's snapshots, the newest first.

        The body of one that is damaged is None.
        """
        query = "SELECT position FROM tsucb_snapshots WHERE loop = ? AND piece = 0"
        for (position,) in self._rows(f"{query} ORDER BY position DESC", (loop,)):
            query = f"{selection('snapshots')} WHERE loop = ? AND position = ? ORDER BY piece"
            pieces = self._rows(query, (loop, position))
            sound = all(is_sound("snapshots", piece) for piece in pieces)
            yield position, b"".join(piece[-2] for piece in pieces) if sound else None

    def drop_snapshots(self, loop: int) -> None:
        with self._transaction() as execute:
            execute(DROP_SNAPSHOTS, (loop,))

    # Loops, keys, documents, the audit trail

    def loops(self) -> dict[str, int]:
        """Return the numbers of the loops that are not deleted, by their names in order."""
        found = select(self._rows, LoopRecord, "ORDER BY name")
        return {name: number for number, name, _ in found if name is not None}

    def all_keys(self) -> list[KeyRecord]:
        """Return the keys of the server and of all loops."""
        names = {0: None, **{number: name for name, number in self.loops().items()}}
        found = select(self._rows, KeyRecord, "")
        return [key._replace(loop=names[key.number]) for key in found if key.number in names]

    def documents(self, loop: int, kind: str) -> dict[str, bytes]:
        """Return documents by their ids, in the order in which `write` first put them."""
        rest = "WHERE loop = ? AND kind = ? ORDER BY number"
        found = select(self._rows, Document, rest, (loop, kind))
        return {document.id: document.body for document in found}

    def audit(self, loop: str | None, count: int) -> list[AuditRecord]:
        """Return the last records of the audit trail, of one loop or of all, the newest first."""
        condition, values = ("", []) if loop is None else ("WHERE loop = ?", [loop])
        rest = f"{condition} ORDER BY number DESC LIMIT ?"
        return select(self._rows, AuditRecord, rest, (*values, count))

    def tidy(self, now: float) -> None:
        """Delete keys that have expired, and events that are not visible any more."""
        with self._transaction("keeper") as execute:
            execute("DELETE FROM tsucb_keys WHERE expires <= ?", (now,))
        self.sweep()

    def is_audited(self, key: str) -> bool:
        """Return whether an administrative request with this key was done before."""
        return bool(self._rows("SELECT 1 FROM tsucb_audit WHERE key = ?", (key,)))

    # Damage

    def damage(self) -> Iterator[str]:
        """Yield one sentence about everything that is damaged; reads the whole database."""
        try:
            yield from self._structure()
            for table, row in self._damaged():
                yield f"{self._described(table, row)} is damaged"
        except StoreError as error:
            yield str(error)

    def _damaged(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield every damaged row, with its table."""
        for table in TABLES:
            rows = self._scan(0, None, REMOVED, "reader") if table == "events" else self._all(table)
            yield from ((table, row) for row in rows if not is_sound(table, row))

    def _all(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table with their checksums."""
        first, after, count = COLUMNS[table][0], -1, ROWS
        query = f"{selection(table)} WHERE {first} > ? ORDER BY {first} LIMIT ?"
        while count == ROWS:
            rows = self._rows(query, (after, ROWS))
            yield from rows
            count, after = len(rows), rows[-1][0] if rows else after

    def _described(self, table: str, row: Sequence[Any]) -> str:
        """Return what messages call a row."""
        if table not in ("events", "snapshots"):
            return named(table, row[0])
        found = self._rows("SELECT name FROM tsucb_loops WHERE number = ?", (row[1],))
        of = f"of loop {found[0][0] if found else row[1]!r}"
        if table == "events":
            return f"event {row[0]} {of}"
        return f"the snapshot {of} at {row[2]}"

    def repair(self) -> list[str]:
        """Set aside damaged rows, delete damaged snapshots; return what was done.

        Rows about loops, and that of the last position, are completed instead: from the name as it
        reads, and from the events.
        """
        done, hit = list[str](), set[int]()  # loops whose snapshots must go
        for table, row in list(self._damaged()):
            what = self._described(table, row)
            if table in ("last", "loops"):
                with self._transaction() as execute:
                    self._complete(execute, table, row)
                done.append(f"{what} was completed: compare it with what you expect")
            elif table == "snapshots":
                self._rows("DELETE FROM tsucb_snapshots WHERE number = ?", row[:1], "keeper")
                hit.add(row[1])
            else:
                loop = row[1] if table == "events" else 0
                erasure = Erasure(set_aside, loop, (row[0], "damaged", table))
                self.write(Transaction(erasure=erasure))
                done.append(f"{what} was set aside")
                hit |= {loop} - {0}
        names = {number: name for name, number in self.loops().items()}
        for number in names if hit - names.keys() else hit:
            self.drop_snapshots(number)
            done.append(f"the snapshots of loop {names[number]!r} were deleted")
        return done

    def _complete(self, execute: Execute, table: str, row: Sequence[Any]) -> None:
        """Write a damaged row again that cannot be missed."""
        if table == "loops":  # what is before `first` was deleted, or is replaced by what follows
            put(execute, LoopRecord(row[0], row[1], REMOVED if row[1] is None else 0))
            return
        position = 0
        for name in ("events", "snapshots"):
            ((found,),) = execute(f"SELECT coalesce(max(position), 0) FROM tsucb_{name}")
            position = max(position, found)
        write_last(execute, position)

    # Several servers

    def servers(self) -> set[str]:
        """Return the names of the processes that use this database now."""
        return {self.name}

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
