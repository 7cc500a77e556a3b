"""The tables of a store: their columns, the checksum of every row, and the records they hold."""

import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from tsucb.service.errors import StoreError
from tsucb.service.keys import KeyRecord

FORMAT = 3
REMOVED = 2**62  # `first` of a loop that was deleted: beyond every position

# Every table has one more column, the checksum of the others. The first column identifies a row.
TABLES = {
    "last": "position bigint NOT NULL, format integer NOT NULL",
    "loops": "number bigint PRIMARY KEY, name text UNIQUE, first bigint NOT NULL",
    "events": "position {position}, loop bigint NOT NULL, subject text, person text, key text, "
    "body bytea NOT NULL",
    "aside": "number {serial}, what text NOT NULL, loop bigint NOT NULL, reason text NOT NULL, "
    "body bytea NOT NULL",
    "snapshots": "number {serial}, loop bigint NOT NULL, position bigint NOT NULL, "
    "piece bigint NOT NULL, body bytea NOT NULL",
    "keys": "number {serial}, hash bytea NOT NULL, loop bigint NOT NULL, role text NOT NULL, "
    "created double precision NOT NULL, expires double precision, request text",
    "documents": "number {serial}, loop bigint NOT NULL, kind text NOT NULL, id text NOT NULL, "
    "body bytea NOT NULL",
    "audit": "number {serial}, time double precision NOT NULL, who text NOT NULL, "
    "action text NOT NULL, loop text, detail text NOT NULL, key text UNIQUE",
}
INDEXES = """
CREATE INDEX tsucb_by_loop ON tsucb_events (loop, position);
CREATE INDEX tsucb_by_subject ON tsucb_events (subject, loop) WHERE subject IS NOT NULL;
CREATE INDEX tsucb_by_person ON tsucb_events (person, loop) WHERE person IS NOT NULL;
CREATE UNIQUE INDEX tsucb_by_key ON tsucb_events (key, loop) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX tsucb_by_piece ON tsucb_snapshots (loop, position, piece);
CREATE UNIQUE INDEX tsucb_by_hash ON tsucb_keys (hash);
CREATE UNIQUE INDEX tsucb_by_request ON tsucb_keys (request);
CREATE UNIQUE INDEX tsucb_by_id ON tsucb_documents (loop, kind, id);
CREATE VIEW tsucb_log AS SELECT event.* FROM tsucb_events event
  JOIN tsucb_loops ON number = event.loop WHERE position >= first
"""
# The database gives the rows of these tables their numbers, which no checksum covers.
NUMBERED = {name for name, columns in TABLES.items() if "{serial}" in columns}
COLUMNS = {
    name: [column.split()[0] for column in columns.split(", ")] for name, columns in TABLES.items()
}

Execute = Callable[..., list[tuple[Any, ...]]]  # takes a statement and its values, returns rows


class LoopRecord(NamedTuple):
    """A loop; its number is random and never used again, its name may be.

    `name` is None once the loop is deleted. Events before the position `first` are not visible.
    """

    number: int
    name: str | None
    first: int = 0


class AuditRecord(NamedTuple):
    """An administrative call: who did what to which loop; `key` identifies the request.

    Where `detail` is None, `Store.write` fills in how many events were erased.
    """

    time: float
    who: str
    action: str
    loop: str | None
    detail: str | None
    key: str | None = None


class Document(NamedTuple):
    """Bytes about a loop that are no events: an evaluation, settings of a protocol."""

    loop: int
    kind: str
    id: str
    body: bytes


class Piece(NamedTuple):
    """A part of a snapshot."""

    loop: int
    position: int
    piece: int
    body: bytes


class AsideRecord(NamedTuple):
    """A row that was moved out of its table: what it was, and why."""

    what: str
    loop: int
    reason: str
    body: bytes


Record = LoopRecord | KeyRecord | AuditRecord | Document | Piece | AsideRecord
Kind = TypeVar("Kind", LoopRecord, KeyRecord, AuditRecord, Document, Piece, AsideRecord)
# The table of each kind of record, and how many of its columns identify a record: writing one with
# the same values there replaces it.
PLACES: dict[type, tuple[str, int]] = {
    LoopRecord: ("loops", 1),
    KeyRecord: ("keys", 1),
    AuditRecord: ("audit", 0),
    Document: ("documents", 3),
    Piece: ("snapshots", 3),
    AsideRecord: ("aside", 0),
}


class Deleted(NamedTuple):
    """A record to delete, by the columns that identify it."""

    record: Record


def checksum(values: Sequence[Any]) -> int:
    """Return the CRC-32 of some values; the last may be long."""
    *head, last = values
    total = zlib.crc32(repr(head).encode())
    return zlib.crc32(last if isinstance(last, bytes) else repr(last).encode(), total)


def row_checksum(table: str, row: Sequence[Any]) -> int:
    """Return the checksum of a row: its first column is added, unless the database chooses it.

    So PostgreSQL can complete the checksum of an event when it gives it a position.
    """
    return checksum(row[1:]) + (0 if table in NUMBERED else row[0])


def is_sound(table: str, row: Sequence[Any]) -> bool:
    """Return whether a row, with its checksum at the end, is as it was written."""
    try:
        return bool(row_checksum(table, row[:-1]) == row[-1])
    except TypeError:  # SQLite holds any type in any column
        return False


def check_sound(table: str, row: Sequence[Any]) -> None:
    if not is_sound(table, row):
        raise StoreError(f"{named(table, row[0])} is damaged; see tsucb serve --check")


def named(table: str, first: int) -> str:
    """Return what messages call a row, by its first column."""
    return f"event {first}" if table == "events" else f"row {first} of tsucb_{table}"


def selection(table: str, source: str | None = None) -> str:
    """Return the statement that selects whole rows, with their checksums."""
    return f"SELECT {', '.join(COLUMNS[table])}, checksum FROM tsucb_{source or table}"


def select(execute: Execute, kind: type[Kind], rest: str, values: Sequence[Any] = ()) -> list[Kind]:
    """Return records, for the rest of a statement; raise StoreError if one is damaged."""
    table = PLACES[kind][0]
    rows = execute(f"{selection(table)} {rest}", values)
    for row in rows:
        check_sound(table, row)
    return [kind(*row[table in NUMBERED : -1]) for row in rows]


def put(execute: Execute, record: Record) -> None:
    """Write a record, in the place of the one that it is identified with."""
    table, identity = PLACES[type(record)]
    columns = COLUMNS[table][table in NUMBERED :]
    values = record[: len(columns)]
    total = checksum(values) if table in NUMBERED else row_checksum(table, values)
    query = f"INSERT INTO tsucb_{table} ({', '.join(columns)}, checksum)"
    query += f" VALUES ({among([*values, total])})"
    if identity:
        changes = ", ".join(f"{c} = excluded.{c}" for c in (*columns[identity:], "checksum"))
        query += f" ON CONFLICT ({', '.join(columns[:identity])}) DO UPDATE SET {changes}"
    execute(query, (*values, total))


def delete(execute: Execute, record: Record) -> None:
    """Delete the record that has the same identity."""
    table, identity = PLACES[type(record)]
    columns = COLUMNS[table][table in NUMBERED :]
    condition = " AND ".join(f"{column} = ?" for column in columns[:identity])
    execute(f"DELETE FROM tsucb_{table} WHERE {condition}", record[:identity])


def write_last(execute: Execute, position: int) -> None:
    """Write down the last position that was used."""
    query = "UPDATE tsucb_last SET position = ?, checksum = ?"
    execute(query, (position, row_checksum("last", (position, FORMAT))))


def among(values: Collection[Any]) -> str:
    """Return as many marks as there are values, for a list in a statement."""
    return ", ".join("?" * len(values))
