"""The store of several machines: one PostgreSQL database, one leader, any number of servers.

Every server appends to the same log and folds it from the newest snapshot on, so all of them know
the same. Events are appended by one statement, which takes the next positions and with them a lock
on the row of the last one: positions increase in the order of commits, and a server that is paused
never holds that lock. Transactions of more statements are ended by the database when their server
is paused. One server at a time has a lease, which it renews: it leads, which means that it writes
the snapshots and that time passed; another takes over when its connection ends, or the lease.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import psycopg

from tsucb.service.errors import Conflict, StoreError
from tsucb.service.store import Row, Store, Transaction
from tsucb.service.tables import Execute, among, checksum

SETUP = 721_809_453  # the number of an advisory lock; any will do that nobody else uses
IS_EMPTY = "SELECT to_regclass('tsucb_last') IS NULL"
LEASE = 2.0  # seconds for which a server leads after it was last heard of
IDLE = 1_000  # milliseconds after which the transaction of a paused server is ended
# Seconds that a statement may take before the database counts as lost, by connection.
PATIENCE = {"writer": 2.0, "leader": 1.0, "reader": 20.0, "news": 20.0, "keeper": 20.0}
WATCH = 0.1  # seconds between looks at statements that take too long
ATTEMPTS = 5  # to append, where another server writes the same keys at the same time

# Without a checksum: it is written all the time, and only says who leads.
LEASE_TABLE = """
CREATE TABLE tsucb_lease (
  holder text NOT NULL, until timestamptz NOT NULL, time double precision NOT NULL
)
"""

# The snapshot of a statement is older than its locks: a key that another server wrote meanwhile
# violates the unique index, and the statement is executed again.
APPEND = """
WITH given AS (
  SELECT * FROM unnest(?::bigint[], ?::text[], ?::text[], ?::text[], ?::bytea[], ?::bigint[])
    WITH ORDINALITY AS given (loop, subject, person, key, body, checksum, number)
), known AS (
  SELECT given.number, event.position
  FROM given JOIN tsucb_events event ON event.key = given.key AND event.loop = given.loop
), fresh AS (
  SELECT given.*, row_number() OVER (ORDER BY number) AS place FROM given
  WHERE number NOT IN (SELECT number FROM known)
    AND loop IN (SELECT number FROM tsucb_loops WHERE name IS NOT NULL)
), moved AS (
  UPDATE tsucb_last SET position = position + (SELECT count(*) FROM fresh),
    checksum = checksum + (SELECT count(*) FROM fresh)
  RETURNING position - (SELECT count(*) FROM fresh) AS before
), written AS (
  INSERT INTO tsucb_events (position, loop, subject, person, key, body, checksum)
  SELECT before + place, loop, subject, person, key, body, checksum + before + place
  FROM fresh, moved
)
SELECT number, position, false FROM known
UNION ALL SELECT number, before + place, true FROM fresh, moved
"""

# What a broken connection was told to write may still be on its way to its process.
WRITING = "writer", "keeper"
END_OTHERS = """
SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()
"""

# The holder is a server with its connection: a leader that was killed has none, and one that was
# paused does not renew its lease.
LEAD = """
WITH taken AS (
  UPDATE tsucb_lease SET holder = ?::text || pg_backend_pid(), time = greatest(time, ?),
    until = clock_timestamp() + make_interval(secs => ?)
  WHERE starts_with(holder, ?)
    OR NOT until BETWEEN clock_timestamp() AND clock_timestamp() + make_interval(secs => ?)
    OR split_part(holder, ' ', 2) NOT IN (SELECT pid::text FROM pg_stat_activity)
  RETURNING time
)
SELECT true, time FROM taken
UNION ALL SELECT false, time FROM tsucb_lease WHERE NOT EXISTS (SELECT FROM taken)
"""


class PostgresStore(Store):
    """See `Store`; the address is like postgresql://user@host/database."""

    shared = True
    CHANGES = "keeper"  # which has more time: an erasure may have much to do

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        # Appending must not wait for reading, nor for snapshots.
        self._locks = {name: threading.RLock() for name in (*PATIENCE, "snapshot")}
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        self._deadlines: dict[str, float] = {}  # of statements that are executed now
        self._closed = threading.Event()
        at_once = partial(self._execute, "writer")
        ((empty,),) = at_once(IS_EMPTY)
        if empty:
            with self._transaction() as execute:
                execute("SELECT pg_advisory_xact_lock(?)", (SETUP,))
                ((empty,),) = execute(IS_EMPTY)  # another server may have made them meanwhile
                self._prepare(execute, "the database", empty)
        else:  # no transaction, which the database would end where this process has to wait
            self._prepare(at_once, "the database", empty=False)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    # Connections

    def _connected(self, name: str) -> "psycopg.Connection[Any]":
        """Return the connection of a purpose, made again after it broke."""
        if self._closed.is_set():
            raise StoreError("the store is closed")
        connection = self._connections.get(name)
        if connection is None or connection.closed:
            # A network that swallows everything is noticed within seconds.
            connection = psycopg.connect(
                self._address, autocommit=True, connect_timeout=3, keepalives_idle=5,
                keepalives_interval=2, keepalives_count=3, tcp_user_timeout=10_000,
            )  # fmt: skip
            self._connections[name] = connection
            self._deadlines[name] = time.monotonic() + PATIENCE[name]
            timeouts = {"lock_timeout": 1_500 * IDLE // 1_000, "statement_timeout": 20_000,
                        "idle_in_transaction_session_timeout": IDLE}  # fmt: skip
            mark = f"'tsucb {self.name} {name}'"
            values = {"application_name": mark, "synchronous_commit": "on", **timeouts}
            connection.execute("; ".join(f"SET {what} = {v}" for what, v in values.items()))
            if name in WRITING and (False,) in connection.execute(END_OTHERS).fetchall():
                connection.close()
                raise StoreError("the database has not ended a connection that broke")
        return connection

    def _watch(self) -> None:
        """Break connections whose statement takes too long: a paused database does not say so."""
        while not self._closed.wait(WATCH):
            now = time.monotonic()
            for name, deadline in list(self._deadlines.items()):
                connection = self._connections.get(name)
                if now > deadline and connection is not None and not connection.closed:
                    self._deadlines.pop(name, None)
                    with contextlib.suppress(OSError, psycopg.Error):
                        line = socket.socket(fileno=socket.dup(connection.fileno()))
                        line.shutdown(socket.SHUT_RDWR)
                        line.close()

    def _prepare(self, execute: Execute, where: str, empty: bool) -> None:
        super()._prepare(execute, where, empty)
        if empty:
            execute(LEASE_TABLE)
            execute("INSERT INTO tsucb_lease VALUES ('', '-infinity', 0)")

    def _execute(self, name: str, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            connection = self._connected(name)
            self._deadlines[name] = time.monotonic() + PATIENCE[name]  # connecting took its own
            cursor = connection.execute(query.replace("?", "%s"), values or None)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.errors.UniqueViolation as error:
            raise Conflict(f"it is there already: {one_line(error)}") from error
        except psycopg.Error as error:
            done = "read" if name in ("reader", "news") else "written"
            raise StoreError(f"the log could not be {done}: {one_line(error)}") from error
        finally:
            self._deadlines.pop(name, None)

    def _roll_back(self, name: str) -> None:
        connection = self._connections.get(name)
        if connection is not None:
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:
                connection.close()

    # Writing

    def write(self, change: Transaction) -> int:
        """See `Store`; events alone are appended by one statement."""
        if not change.plain:
            return super().write(change)
        with self._locks["writer"]:
            for _ in range(ATTEMPTS):
                with contextlib.suppress(Conflict):
                    self._append(partial(self._execute, "writer"), change.rows)
                    return 0
        raise StoreError("other servers write the same keys; try again")

    def _append(self, execute: Execute, rows: Sequence[Row]) -> None:
        # The statement takes each key once: of several rows with one key the first.
        first: dict[Any, Row] = {}
        for number, row in enumerate(rows):
            first.setdefault(number if row.key is None else (row.loop, row.key), row)
        given = list(first.values())
        values = zip(*((*row.columns, checksum(row.columns)) for row in given), strict=True)
        found = execute(APPEND, [list(column) for column in values])
        for row in rows:
            row.position, row.fresh = 0, False
        for number, position, fresh in found:
            given[number - 1].position, given[number - 1].fresh = position, fresh
        for row in rows:
            if row.key is not None:
                row.position = first[row.loop, row.key].position

    def _lock_loops(self, execute: Execute, loops: Collection[int]) -> None:
        query = f"SELECT number FROM tsucb_loops WHERE number IN ({among(loops)})"
        execute(f"{query} ORDER BY number FOR UPDATE", tuple(loops))

    # Several servers

    def servers(self) -> set[str]:
        query = "SELECT split_part(application_name, ' ', 2) FROM pg_stat_activity"
        found = self._rows(f"{query} WHERE starts_with(application_name, 'tsucb ')")
        return {self.name, *(name for (name,) in found)}

    def lead(self, time: float) -> tuple[bool, float | None]:
        with self._locks["leader"]:
            holder = f"{self.name} "
            values = holder, time, LEASE, holder, LEASE
            ((leads, when),) = self._execute("leader", LEAD, values)
            return leads, when

    def settle(self) -> None:
        """See `Store`; to connect again ends what was left of a broken connection."""
        for name in WRITING:
            self._rows("SELECT 1", name=name)

    def resign(self) -> None:
        with self._locks["leader"], contextlib.suppress(StoreError):
            query = "UPDATE tsucb_lease SET until = '-infinity' WHERE starts_with(holder, ?)"
            self._execute("leader", query, (f"{self.name} ",))

    def close(self) -> None:
        self._closed.set()
        with contextlib.ExitStack() as locks:
            for lock in self._locks.values():
                locks.enter_context(lock)
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())
