"""Group commit: while one flush to the disk runs, the events that come wait for the next."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tsucb.service import events
from tsucb.service.errors import Overloaded, StoreError
from tsucb.service.events import Decided
from tsucb.service.scheduling import settled
from tsucb.service.state import LoopState
from tsucb.service.store import Place, Row, Store, Transaction, Written

MOST_ROWS = 2_000  # events of several requests that are written together
SPOOL = "unwritten.sqlite"
MOST_SPOOLED = 10_000  # decisions
AWAY = "the store cannot be reached; try again later"

Entry = tuple[int, Decided]  # the number of the loop, and the decision


class Outcome(NamedTuple):
    """What became of an event: a word, its position in the log, and whether it is new there.

    `kept` is a decision that is on this machine's disk, and not in the log yet. `held` is what the
    loop knew after an event that compacted it.
    """

    result: str
    position: int = 0
    fresh: bool = False
    kept: Decided | None = None
    held: LoopState | None = None


Outcomes = Sequence["Outcome | asyncio.Future[Outcome]"]  # futures of what a thread folds


class Submission(NamedTuple):
    """A change on its way into the log; an empty one looks for news.

    `spooled`: whether it is one decision that may be kept on this disk while the store is away.
    """

    change: Transaction
    spooled: bool
    future: "asyncio.Future[tuple[Outcomes, int]]"

    @property
    def shares(self) -> bool:
        """Whether it may share a transaction with others."""
        return bool(self.change.rows) and self.change.plain


# What is durable now: a change of this server, after what others wrote up to a position.
Flushed = tuple[Written, Any, int]


class Journal:
    """Writes to a store, one transaction after the other, and delivers the log in its order.

    `catch_up` reads what others wrote after one position up to another, in a thread. `deliver` gets
    that and its last position, and every row with its place; it folds them in the event loop, and
    says what became of each row. The log is folded up to `position` when the journal begins. The
    spool takes decisions while a shared store is away. Past `most_waiting` events, `write` refuses.
    """

    def __init__(
        self, store: Store, deliver: Callable[[Any, int, Iterable[tuple[Row, Place]]], Outcomes],
        catch_up: Callable[[int, int], Any], position: int, spool: "Spool", most_waiting: int,
    ) -> None:  # fmt: skip
        self._store, self._deliver, self._catch_up = store, deliver, catch_up
        self._delivered, self._spool, self.most_waiting = position, spool, most_waiting
        self._queue: deque[Submission] = deque()
        self._wake, self._stopping = asyncio.Event(), False
        self.waiting = 0  # events that are not durable yet
        self.commits = 0
        self.failed = False  # whether the store refused what it was last given
        self._thread = ThreadPoolExecutor(1, "journal")
        self._running = asyncio.create_task(self._run())

    async def write(self, change: Transaction, spooled: bool = False) -> tuple[list[Outcome], int]:
        """Write a change; return what became of its rows, and how many events it erased."""
        # One that is larger by itself, as an import of many rewards, does not wait for others.
        if self.waiting and self.waiting + len(change.rows) > self.most_waiting:
            raise Overloaded
        if self._stopping:
            raise StoreError("the service is stopping")
        future = asyncio.get_running_loop().create_future()
        self._queue.append(Submission(change, spooled, future))
        self.waiting += len(change.rows)
        self._wake.set()
        found, erased = await settled(future)
        return [await settled(each) for each in found], erased

    async def look(self) -> None:
        """Fold what the log has by now."""
        await self.write(Transaction())

    async def stop(self) -> None:
        """Write what waits, and end."""
        self._stopping = True
        self._wake.set()
        await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        flushing = None
        while flushing or self._queue or not self._stopping:
            if flushing is None:
                self._wake.clear()
                if not self._queue:
                    await self._wake.wait()
                flushing = self._flush_next()
                continue
            batch, change, flush = flushing
            try:
                flushed = await flush
            except Exception as error:
                await self._fail(batch, error)
                flushing = None
            else:
                flushing = self._flush_next()  # while what is durable now is folded
                self._settle(batch, change, flushed)

    def _flush_next(self) -> "tuple[list[Submission], Transaction, asyncio.Future[Flushed]] | None":
        """Begin to write what may share the next transaction; None if nothing waits."""
        batch, rows = list[Submission](), list[Row]()
        while self._queue:
            following = self._queue[0]
            many = len(rows) + len(following.change.rows) > MOST_ROWS
            if batch and (many or not (batch[0].shares and following.shares)):
                break
            batch.append(self._queue.popleft())
            rows += following.change.rows
        if not batch:
            return None
        change = batch[0].change._replace(rows=rows)
        running = asyncio.get_running_loop()
        return batch, change, running.run_in_executor(self._thread, self._flush, change)

    def _flush(self, change: Transaction) -> Flushed:
        if self._store.shared and self.failed and change.rows and change.plain:
            raise StoreError(AWAY)
        written: Written = ([], 0) if change.is_empty else self._store.write(change)
        fresh = [place.position for place in written[0] if place.fresh]
        until = fresh[0] - 1 if fresh else self._store.last()
        news = self._catch_up(self._delivered, until) if until > self._delivered else ()
        self._delivered = max([self._delivered, until, *fresh[-1:]])
        return written, news, until

    def _settle(self, batch: list[Submission], change: Transaction, flushed: Flushed) -> None:
        """Fold what is durable, and tell whoever waits for it."""
        self.failed = self.failed and change.is_empty and not self._store.shared
        self.commits += not change.is_empty
        (places, erased), news, until = flushed
        places = places or [Place(0, False)] * len(change.rows)  # erases nothing, appends nothing
        try:
            outcomes = iter(self._deliver(news, until, zip(change.rows, places, strict=True)))
        except Exception as error:
            self._refuse(batch, error)
        else:
            for each in batch:
                self._give(each, [next(outcomes) for _ in each.change.rows], erased)

    async def _fail(self, batch: list[Submission], error: Exception) -> None:
        """Keep decisions on this disk while a shared store is away; refuse everything else."""
        away = self._store.shared and isinstance(error, StoreError)
        self.failed = self.failed or isinstance(error, StoreError)
        kept = [each for each in batch if away and each.spooled]
        entries: Any = [(row.loop, row.event) for each in kept for row in each.change.rows]
        try:
            found = await asyncio.to_thread(self._spool.add, entries) if kept else []
        except StoreError:
            kept, found = [], []
        for each, event in zip(kept, found, strict=True):
            self._give(each, [Outcome("kept", kept=event)])
        self._refuse([each for each in batch if not (kept and each.spooled)], error)

    def _give(self, to: Submission, outcomes: Outcomes, erased: int = 0) -> None:
        self.waiting -= len(outcomes)
        to.future.set_result((outcomes, erased))

    def _refuse(self, batch: list[Submission], error: Exception) -> None:
        for each in batch:
            self.waiting -= len(each.change.rows)
            each.future.set_exception(error)


class Spool:
    """Decisions made while the database is away: what `add` has taken survives a power failure.

    The folder is this server's alone; without one, nothing is taken.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.path = None if folder is None else Path(folder) / SPOOL
        self._entries: dict[tuple[int, str | None], Decided] = {}
        self._keys: dict[tuple[int, str | None], Decided] = {}
        self._lock = threading.Lock()  # the journal adds, upkeep removes
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
        """Return all decisions, in the order in which they were made."""
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
