"""Group commit: while one flush to the disk runs, the events that come wait for the next."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tsucb.service.events import AnyEvent, Decided
from tsucb.service.spool import Spool
from tsucb.service.store import Change, Place, Store, StoreError, Written

MOST_ROWS = 2_000  # events of several requests that are written together


class Overloaded(Exception):
    """More waits to be written than may wait; `seconds` is when to try again."""

    def __init__(self, seconds: int = 1) -> None:
        super().__init__("the service is at its capacity; try again later")
        self.seconds = seconds


class Outcome(NamedTuple):
    """What became of an event: a word, its position in the log, and whether it is new there.

    `kept` is a decision that is on this machine's disk, and not in the log yet.
    """

    result: str
    position: int = 0
    fresh: bool = False
    kept: Decided | None = None


Outcomes = Sequence["Outcome | asyncio.Future[Outcome]"]  # futures of what a thread folds


class Submission(NamedTuple):
    """A change on its way into the log, with the events of its rows; None to look for news."""

    change: Change | None
    events: Sequence[AnyEvent]
    future: "asyncio.Future[tuple[list[Outcome], int]]"

    @property
    def plain(self) -> bool:
        """Whether it may share a transaction with others."""
        return self.change is not None and self.change.plain

    def give(self, found: "Outcomes", erased: int, _: Any = None) -> None:
        """Tell whoever waits what became of the events."""
        if not self.future.done():  # the client may have gone
            known = [one.result() if isinstance(one, asyncio.Future) else one for one in found]
            self.future.set_result((known, erased))


class Delivery(NamedTuple):
    """What is durable now: what others wrote up to a position, then rows of this server."""

    news: Any  # what `catch_up` returned
    until: int
    entries: Sequence[tuple[Place, int, AnyEvent]]  # place, number of the loop, event


class Journal:
    """Writes to a store from one thread, and delivers what the log has in its order.

    Parameters
    ----------
    store
        Where to.
    deliver
        Called in the event loop: folds what is durable now, and says what became of each event.
    catch_up
        Called in the thread: reads what the log has after one position up to another.
    position
        Of the last event that was folded.
    spool
        Takes the decisions that are made while a shared store is away.
    most_waiting
        Beyond it `submit` refuses.
    """

    def __init__(
        self, store: Store, deliver: Callable[[Delivery], Outcomes],
        catch_up: Callable[[int, int], Any], position: int, spool: Spool,
        most_waiting: int = 4_000,
    ) -> None:  # fmt: skip
        self._store, self._deliver, self._catch_up = store, deliver, catch_up
        self._delivered, self._spool, self.most_waiting = position, spool, most_waiting
        self._loop = asyncio.get_running_loop()
        self._submissions: list[Submission] = []
        self.waiting = 0  # events that are not durable yet
        self._wake, self._stopping = threading.Condition(), False
        self.commits = 0
        self.failed = False  # whether the store refused what it was last given
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    async def write(
        self, change: Change | None, events: Sequence[AnyEvent] = ()
    ) -> tuple[list[Outcome], int]:
        """Write a change; return what became of its events, and how many it erased."""
        if self.waiting + len(events) > self.most_waiting:
            raise Overloaded
        future: asyncio.Future[tuple[list[Outcome], int]] = self._loop.create_future()
        with self._wake:
            if self._stopping:
                raise StoreError("the service is stopping")
            self._submissions.append(Submission(change, events, future))
            self._wake.notify()
        self.waiting += len(events)
        return await future

    async def look(self) -> None:
        """Fold what the log has by now."""
        await self.write(None)

    def _next(self) -> list[Submission]:
        """Wait for work; return what is to be written in one transaction."""
        with self._wake:
            while not self._submissions and not self._stopping:
                self._wake.wait()
            count = rows = 0
            for submission in self._submissions:
                rows += len(submission.events)
                if count and (not submission.plain or rows > MOST_ROWS):
                    break
                count += 1
                if not submission.plain:
                    break
            batch, self._submissions = self._submissions[:count], self._submissions[count:]
            return batch

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._commit(batch)
            except Exception as error:
                self._loop.call_soon_threadsafe(self._refuse, batch, error)

    def _commit(self, batch: list[Submission]) -> None:
        if self._store.shared and self.failed and batch[0].plain:
            self._keep(batch, StoreError("the store cannot be reached; try again later"))
            return
        written = Written([])
        try:
            if (change := batch[0].change) is not None:
                if len(batch) > 1:
                    rows = [row for each in batch for row in each.change.rows]  # type: ignore[union-attr]
                    change = Change(rows)
                written = self._store.write(change)
            fresh = [place.position for place in written.places if place.fresh]
            until = fresh[0] - 1 if fresh else self._store.last()
            news = None
            if until > self._delivered:
                news = self._catch_up(self._delivered, until)
        except StoreError as error:
            if not self._store.shared or not batch[0].plain:
                raise
            self._keep(batch, error)
            return
        self._delivered = max([self._delivered, until, *fresh[-1:]])
        self._loop.call_soon_threadsafe(self._done, batch, written, news, until)

    def _keep(self, batch: list[Submission], error: StoreError) -> None:
        """Put decisions aside while the store is away; refuse everything else."""
        kept, rest, entries = list[Submission](), list[Submission](), list[tuple[int, Decided]]()
        for each in batch:
            first = each.events[0]
            if len(each.events) == 1 and isinstance(first, Decided) and each.change is not None:
                kept.append(each)
                entries.append((each.change.rows[0].loop, first))
            else:
                rest.append(each)
        outcomes = []
        try:
            outcomes = [Outcome("kept", kept=event) for event in self._spool.add(entries)]
        except StoreError:
            kept, rest = [], batch
        self._loop.call_soon_threadsafe(self._refuse, rest, error)
        self._loop.call_soon_threadsafe(self._settle, kept, outcomes)

    def _done(self, batch: list[Submission], written: Written, news: Any, until: int) -> None:
        wrote = batch[0].change is not None
        self.failed = self.failed and not (wrote or self._store.shared)
        self.commits += wrote
        rows = [row for each in batch if each.change is not None for row in each.change.rows]
        happened = [event for each in batch for event in each.events]
        numbers = [row.loop for row in rows]
        # A change that erases nothing appends nothing.
        places = written.places or [Place(0, False)] * len(rows)
        try:
            entries = list(zip(places, numbers, happened, strict=True))
            outcomes = self._deliver(Delivery(news, until, entries))
        except Exception as error:
            self._refuse(batch, error)
            return
        self._settle(batch, outcomes, written.erased)

    def _settle(self, batch: list[Submission], outcomes: "Outcomes", erased: int = 0) -> None:
        left = iter(outcomes)
        for each in batch:
            found = [next(left) for _ in each.events]
            self.waiting -= len(found)
            later = [one for one in found if isinstance(one, asyncio.Future)]
            if later:  # those of slow loops
                asyncio.gather(*later).add_done_callback(partial(each.give, found, erased))
            else:
                each.give(found, erased)

    def _refuse(self, batch: list[Submission], error: Exception) -> None:
        self.failed = self.failed or isinstance(error, StoreError)
        for each in batch:
            self.waiting -= len(each.events)
            if not each.future.done():  # the client may have gone
                each.future.set_exception(error)

    def stop(self) -> None:
        """Write what waits, and end the thread; the futures are done in the event loop, after."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()
