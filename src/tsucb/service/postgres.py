"""The store of several machines: one PostgreSQL database, one leader, any number of servers.

Every server appends to the same log and folds it from the newest snapshot on, so every one of them
knows the same; one that has fallen far behind takes the newest snapshot again. A commit takes the
row with the last position, and so the lock on it, until it is durable: positions are dense, and in
the order of commits. One server at a time holds an advisory lock: it leads, which means that it
writes the snapshots and that time passed; another takes over when it is gone.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from tsucb.service.store import AuditRecord, KeyRecord, Logged, Row, Snapshot, StoreError

FORMAT = 1
KEPT_SNAPSHOTS = 2
CHUNK = 5_000  # events read at a time
# The numbers of the advisory locks; any will do that nobody else uses. Beside the first two there
# is a hash of the schema, and of the loop: a database may hold several services.
LEADER, GUARD, SETUP = 721_809_451, 721_809_452, 721_809_453

SCHEMA = """
CREATE TABLE IF NOT EXISTS tsucb_format (version integer NOT NULL);
CREATE TABLE IF NOT EXISTS tsucb_last (position bigint NOT NULL);
CREATE TABLE IF NOT EXISTS tsucb_loops (name text PRIMARY KEY);
CREATE TABLE IF NOT EXISTS tsucb_events (
  position bigint PRIMARY KEY, loop text NOT NULL, time double precision NOT NULL,
  subject text, person text, body bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS tsucb_by_subject ON tsucb_events (subject, loop)
  WHERE subject IS NOT NULL;
CREATE INDEX IF NOT EXISTS tsucb_by_person ON tsucb_events (person, loop)
  WHERE person IS NOT NULL;
CREATE INDEX IF NOT EXISTS tsucb_by_loop ON tsucb_events (loop, position);
CREATE TABLE IF NOT EXISTS tsucb_snapshots (
  loop text NOT NULL, position bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (loop, position)
);
CREATE TABLE IF NOT EXISTS tsucb_keys (
  hash bytea PRIMARY KEY, loop text, role text NOT NULL, created double precision NOT NULL,
  expires double precision
);
CREATE TABLE IF NOT EXISTS tsucb_documents (
  number bigserial PRIMARY KEY, loop text NOT NULL, kind text NOT NULL, id text NOT NULL,
  body bytea NOT NULL, UNIQUE (loop, kind, id)
);
CREATE TABLE IF NOT EXISTS tsucb_audit (
  number bigserial PRIMARY KEY, time double precision NOT NULL, who text NOT NULL,
  action text NOT NULL, loop text, detail text NOT NULL
);
INSERT INTO tsucb_last SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM tsucb_last);
INSERT INTO tsucb_format SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM tsucb_format);
"""

# Nobody else appends or deletes until the end of the transaction.
ALONE = "SELECT position FROM tsucb_last FOR UPDATE"


# Whether a session holds a guard.
GUARDED = (
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND "
    "pid = pg_backend_pid() AND granted)"
)


class PostgresStore:
    """See `Store`.

    Parameters
    ----------
    address
        A connection string, such as postgresql://user@host/database.
    """

    shared = True

    def __init__(self, address: str) -> None:
        self._address = address
        # Appending must not wait for reading, nor for snapshots; the locks of the leader and of who
        # guards a loop live as long as their sessions.
        self._writing = {name: threading.RLock() for name in ("writer", "keeper", "guard")}
        self._reading = threading.RLock()
        self._connections: dict[str, psycopg.Connection[Any] | None] = {}
        self._leading = self._closed = False
        with self._transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP,))
            cursor.execute(SCHEMA)
            cursor.execute("SELECT version FROM tsucb_format")
            found = cursor.fetchone()
        if found is None or found[0] != FORMAT:
            raise StoreError(f"the database has another format than {FORMAT}")

    def _connected(self, name: str) -> "psycopg.Connection[Any]":
        """A connection of its own for each purpose, made again after it broke."""
        if self._closed:
            raise StoreError("the store is closed")
        connection = self._connections.get(name)
        if connection is None or connection.closed:
            # A network that swallows everything is noticed within seconds.
            connection = psycopg.connect(
                self._address, autocommit=True, connect_timeout=5, keepalives_idle=5,
                keepalives_interval=2, keepalives_count=3, tcp_user_timeout=10_000,
            )  # fmt: skip
            connection.execute("SET synchronous_commit = on")
            self._connections[name] = connection
        return connection

    @contextlib.contextmanager
    def _transaction(self, name: str = "writer") -> Iterator["psycopg.Cursor[Any]"]:
        """Everything in it is durable at its end, or nothing happened."""
        with self._writing[name]:
            try:
                connection = self._connected(name)
                with connection.transaction(), connection.cursor() as cursor:
                    yield cursor
            except psycopg.Error as error:
                raise StoreError(f"the log could not be written: {one_line(error)}") from error

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._reading:
            try:
                return self._connected("reader").execute(query, values).fetchall()
            except psycopg.Error as error:
                raise StoreError(f"the log could not be read: {one_line(error)}") from error

    # Events

    def append(self, rows: Sequence[Row]) -> int:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE tsucb_last SET position = position + %s RETURNING position", (len(rows),)
            )
            found = cursor.fetchone()
            assert found is not None
            first = int(found[0]) - len(rows) + 1
            with cursor.copy(
                "COPY tsucb_events (position, loop, time, subject, person, body) FROM STDIN BINARY"
            ) as copy:
                copy.set_types(["int8", "text", "float8", "text", "text", "bytea"])
                for place, row in enumerate(rows):
                    copy.write_row((first + place, *row))
        return first

    def last(self) -> int:
        """See `Store`."""
        return int(self._rows("SELECT position FROM tsucb_last")[0][0])

    def read(
        self, after: int, loop: str | None = None, until: int | None = None
    ) -> Iterator[Logged]:
        """See `Store`."""
        end = self.last() if until is None else until
        while after < end:
            rows = self._rows(
                "SELECT position, loop, body FROM tsucb_events WHERE position > %s AND "
                "position <= %s AND (%s::text IS NULL OR loop = %s) ORDER BY position LIMIT %s",
                after, end, loop, loop, CHUNK,
            )  # fmt: skip
            for position, name, body in rows:
                yield Logged(position, name, bytes(body))
            if len(rows) < CHUNK:
                return
            after = rows[-1][0]

    def about(self, loop: str, subject: str) -> list[Logged]:
        """See `Store`."""
        rows = self._rows(
            "SELECT position, body FROM tsucb_events WHERE subject = %s AND loop = %s "
            "ORDER BY position",
            subject,
            loop,
        )
        return [Logged(position, loop, bytes(body)) for position, body in rows]

    def newest(self, loop: str, count: int) -> Iterator[Logged]:
        """See `Store`."""
        first = self._rows(
            "SELECT position FROM tsucb_events WHERE loop = %s AND subject IS NOT NULL "
            "ORDER BY position DESC LIMIT 1 OFFSET %s",
            loop,
            count - 1,
        )
        return self.read(first[0][0] - 1 if first else 0, loop)

    def forget(self, loop: str, subjects: Sequence[str], person: str | None) -> int:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute(ALONE)
            cursor.execute(
                "DELETE FROM tsucb_events WHERE loop = %s AND subject IN (SELECT "
                "unnest(%s::text[]) UNION SELECT subject FROM tsucb_events WHERE person = %s "
                "AND loop = %s)",
                (loop, list(subjects), person, loop),
            )
            deleted = cursor.rowcount
            if deleted:
                cursor.execute("DELETE FROM tsucb_snapshots WHERE loop = %s", (loop,))
        return deleted

    def condense(self, loop: str, position: int, body: bytes, count: int) -> bool:
        """See `Store`."""
        with self._transaction("guard") as cursor:  # if that session is gone, so is the guard
            cursor.execute(ALONE)
            cursor.execute(
                "SELECT count(*) FROM tsucb_events WHERE loop = %s AND position <= %s",
                (loop, position),
            )
            if cursor.fetchall() != [(count,)]:
                return False
            cursor.execute(GUARDED, (GUARD,))
            if cursor.fetchall() != [(True,)]:
                return False
            cursor.execute(
                "UPDATE tsucb_events SET body = %s WHERE position = %s", (body, position)
            )
        with self._transaction() as cursor:
            cursor.execute(
                "DELETE FROM tsucb_events WHERE loop = %s AND position < %s", (loop, position)
            )
        return True

    def clear(self, loop: str) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM tsucb_events WHERE loop = %s", (loop,))
            cursor.execute("DELETE FROM tsucb_snapshots WHERE loop = %s", (loop,))

    # Snapshots

    def save_snapshot(self, loop: str, snapshot: Snapshot, alone: bool = False) -> None:
        """See `Store`."""
        with self._transaction("keeper") as cursor:
            cursor.execute(
                "INSERT INTO tsucb_snapshots VALUES (%s, %s, %s) ON CONFLICT (loop, position) "
                "DO UPDATE SET body = excluded.body",
                (loop, *snapshot),
            )
            cursor.execute(
                "DELETE FROM tsucb_snapshots WHERE loop = %s AND position NOT IN (SELECT position "
                "FROM tsucb_snapshots WHERE loop = %s ORDER BY position DESC LIMIT %s)",
                (loop, loop, 1 if alone else KEPT_SNAPSHOTS),
            )

    def snapshots(self, loop: str) -> list[Snapshot]:
        """See `Store`."""
        query = "SELECT position, body FROM tsucb_snapshots WHERE loop = %s ORDER BY position DESC"
        return [Snapshot(position, bytes(body)) for position, body in self._rows(query, loop)]

    def drop_snapshots(self, loop: str) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM tsucb_snapshots WHERE loop = %s", (loop,))

    # Loops

    def loops(self) -> list[str]:
        """See `Store`."""
        return [name for (name,) in self._rows("SELECT name FROM tsucb_loops ORDER BY name")]

    def add_loop(self, name: str) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute("INSERT INTO tsucb_loops VALUES (%s)", (name,))

    def remove_loop(self, name: str) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            for table in ("events", "snapshots", "documents", "keys"):
                cursor.execute(f"DELETE FROM tsucb_{table} WHERE loop = %s", (name,))
            cursor.execute("DELETE FROM tsucb_loops WHERE name = %s", (name,))

    # Keys, documents, the audit trail

    def all_keys(self) -> list[KeyRecord]:
        """See `Store`."""
        rows = self._rows("SELECT * FROM tsucb_keys ORDER BY created")
        return [KeyRecord(bytes(hash), *rest) for hash, *rest in rows]

    def save_key(self, key: KeyRecord) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO tsucb_keys VALUES (%s, %s, %s, %s, %s) ON CONFLICT (hash) "
                "DO UPDATE SET expires = excluded.expires",
                key,
            )

    def delete_key(self, hash: bytes) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM tsucb_keys WHERE hash = %s", (hash,))

    def put_document(self, loop: str, kind: str, id: str, body: bytes) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO tsucb_documents (loop, kind, id, body) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (loop, kind, id) DO UPDATE SET body = excluded.body",
                (loop, kind, id, body),
            )

    def documents(self, loop: str, kind: str) -> dict[str, bytes]:
        """See `Store`."""
        rows = self._rows(
            "SELECT id, body FROM tsucb_documents WHERE loop = %s AND kind = %s ORDER BY number",
            loop,
            kind,
        )
        return {id: bytes(body) for id, body in rows}

    def delete_document(self, loop: str, kind: str, id: str) -> bool:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute(
                "DELETE FROM tsucb_documents WHERE loop = %s AND kind = %s AND id = %s",
                (loop, kind, id),
            )
            return cursor.rowcount > 0

    def write_audit(self, record: AuditRecord) -> None:
        """See `Store`."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO tsucb_audit (time, who, action, loop, detail) "
                "VALUES (%s, %s, %s, %s, %s)",
                record,
            )

    def audit(self, loop: str | None, count: int) -> list[AuditRecord]:
        """See `Store`."""
        rows = self._rows(
            "SELECT time, who, action, loop, detail FROM tsucb_audit WHERE %s::text IS NULL OR "
            "loop = %s ORDER BY number DESC LIMIT %s",
            loop,
            loop,
            count,
        )
        return [AuditRecord(*row) for row in rows]

    # The rest

    def guard(self, loop: str) -> bool:
        """See `Store`."""
        query = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema() || '.' || %s))"
        with self._transaction("guard") as cursor:
            return bool(cursor.execute(query, (GUARD, loop)).fetchall()[0][0])

    def guards(self) -> bool:
        """See `Store`."""
        try:
            with self._transaction("guard") as cursor:
                return bool(cursor.execute(GUARDED, (GUARD,)).fetchall()[0][0])
        except StoreError:
            return False

    def release(self) -> None:
        """See `Store`."""
        with contextlib.suppress(StoreError), self._transaction("guard") as cursor:
            cursor.execute("SELECT pg_advisory_unlock_all()")

    def leads(self) -> bool:
        """Whether this session has the lock; takes it if it is free."""
        with self._reading:
            try:
                before = self._connections.get("leader")
                connection = self._connected("leader")
                if self._leading and connection is before:
                    connection.execute("SELECT 1")  # the session, and with it the lock, is alive
                    return True
                query = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
                row = connection.execute(query, (LEADER,)).fetchone()
                self._leading = bool(row and row[0])
            except (psycopg.Error, StoreError):
                self._leading = False
            return self._leading

    def close(self) -> None:
        """See `Store`."""
        with contextlib.ExitStack() as locks:
            for lock in (*self._writing.values(), self._reading):
                locks.enter_context(lock)
            self._closed = True
            for connection in self._connections.values():
                if connection is not None:
                    connection.close()
            self._connections.clear()
            self._leading = False


def one_line(error: Exception) -> str:
    """What went wrong, on one line."""
    return " ".join(str(error).split())
