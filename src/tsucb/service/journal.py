"""Group commit: while one flush to the disk runs, the events that come wait for the next."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

from tsucb.service.store import Row, Store, StoreError

# Called in the event loop with rows that are durable and their first position; returns what became
# of each, or a future of it.
Committed = Callable[[Sequence[Row], int], "Sequence[str | asyncio.Future[str]]"]


class Overloaded(Exception):
    """More waits to be written than may wait; `seconds` is when to try again."""

    def __init__(self, seconds: int = 1) -> None:
        super().__init__("the service is at its capacity; try again later")
        self.seconds = seconds


class Journal:
    """Appends events to a store from one thread, all that wait at a time.

    Parameters
    ----------
    store
        Where to.
    committed
        Folds what is durable now, and says what became of every event.
    most_waiting
        Beyond it `append` refuses.
    """

    def __init__(self, store: Store, committed: Committed, most_waiting: int = 4_000) -> None:
        self._store, self._committed, self.most_waiting = store, committed, most_waiting
        self._loop = asyncio.get_running_loop()
        self._rows: list[Row] = []
        self._futures: list[asyncio.Future[str]] = []
        self.waiting = 0  # events that are not durable yet
        self._wake, self._stopping = threading.Condition(), False
        self.commits = 0
        self.failed = False  # whether the last commit was refused by the store
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, rows: Sequence[Row]) -> "list[asyncio.Future[str]]":
        """Have events written; each future tells what became of its event, once it is durable."""
        if self.waiting + len(rows) > self.most_waiting:
            raise Overloaded
        futures = [self._loop.create_future() for _ in rows]
        with self._wake:
            if self._stopping:
                raise StoreError("the service is stopping")
            self._rows.extend(rows)
            self._futures.extend(futures)
            self._wake.notify()
        self.waiting += len(rows)
        return futures

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._rows and not self._stopping:
                    self._wake.wait()
                if not self._rows:
                    return
                rows, futures = self._rows, self._futures
                self._rows, self._futures = [], []
            try:
                first = self._store.append(rows)
            except Exception as error:
                self._loop.call_soon_threadsafe(self._refuse, futures, error)
            else:
                self._loop.call_soon_threadsafe(self._done, rows, futures, first)

    def _done(
        self, rows: Sequence[Row], futures: "Sequence[asyncio.Future[str]]", first: int
    ) -> None:
        self.failed = False
        self.commits += 1
        try:
            found = self._committed(rows, first)
        except Exception as error:
            self._refuse(futures, error)
            return
        self.waiting -= len(futures)
        for future, what in zip(futures, found, strict=True):
            if isinstance(what, asyncio.Future):
                what.add_done_callback(partial(_pass_on, future))
            elif not future.done():  # the client may have gone
                future.set_result(what)

    def _refuse(self, futures: "Sequence[asyncio.Future[str]]", error: Exception) -> None:
        self.failed = True
        self.waiting -= len(futures)
        for future in futures:
            if not future.done():
                future.set_exception(error)

    def stop(self) -> None:
        """Write what waits, and end the thread; the futures are done in the event loop, after."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()


def _pass_on(future: "asyncio.Future[str]", found: "asyncio.Future[str]") -> None:
    """Give one future the result of another."""
    if future.done():
        return
    if (error := found.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(found.result())
