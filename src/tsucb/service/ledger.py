"""The log and the loops it has led to: events are written, made durable together, then folded.

    write ──▶ queue ──▶ _flush, in a thread: one transaction ──▶ _settle ──▶ _fold ──▶ Loop.fold
                                 and what others wrote before

While one flush to the disk runs, the changes that come wait for the next: so many of them cost one.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from tsucb.service import events
from tsucb.service.errors import Conflict, NotFound, Overloaded, StoreError, TooLarge
from tsucb.service.events import AnyEvent, Compacted, Configured, Decided
from tsucb.service.loop import REFUSED, REPEATED, TAKEN, Loop, is_remaking
from tsucb.service.replay import Poison, Rebuilder
from tsucb.service.scheduling import SteadyClock, Turns, settled
from tsucb.service.spool import AWAY, Spool
from tsucb.service.state import LoopState
from tsucb.service.store import GONE, Row, Store, Transaction

log = logging.getLogger("tsucb.service")

MOST_ROWS = 2_000  # events of several requests that are written together
AT_ONCE = 200  # events of others that are folded before requests have their turn
SLOW = 0.25  # seconds that decisions wait for a shared store, before they are kept on this disk
FAR = 20_000  # events behind the log, from which on a newer snapshot is looked for
NEAR = 1_000  # events that are folded while a loop waits
RETRY = 0.25  # seconds, before the store is asked again

Found = TypeVar("Found")


NOTHING = Transaction()
# How many events a change erased, and what others wrote before it, up to a position; where that is
# much, loops that know it.
Flushed = tuple[int, Sequence[Row | Loop], int]
Folding = Sequence["asyncio.Future[None]"]  # what threads fold


class Submission(NamedTuple):
    """A change on its way into the log; an empty one looks for news.

    `spooled`: whether it is one decision that may be kept on this disk while the store is away.
    """

    change: Transaction
    spooled: bool
    future: "asyncio.Future[tuple[int, Folding]]"

    @property
    def shares(self) -> bool:
        return bool(self.change.rows) and self.change.plain

    def answer(self, erased: int, folding: Folding = ()) -> None:
        """Tell whoever waits, unless that is gone, or has a decision that is kept on this disk."""
        if not self.future.done():
            self.future.set_result((erased, folding))


class Ledger:
    """Loops over a store, as the log has them; see `Service` for the parameters.

    What is durable is folded in the order of the log. A loop that must be made from the log again,
    as events were deleted or another model is to learn from them, goes on deciding until the new
    one takes its place.
    """

    def __init__(
        self, store: Store, clock: SteadyClock, spool: Spool, *, seed: int | None = None,
        most_unwritten: int = 4_000, compare: bool = False,
    ) -> None:  # fmt: skip
        self.store, self.clock, self.spool, self._seed = store, clock, spool, seed
        self.most_unwritten, self._compare = most_unwritten, compare
        self.replay = Rebuilder(store, clock, seed)
        self.alerts, self.turns = self.replay.alerts, Turns()
        self.loops: dict[str, Loop] = {}
        self._numbered: dict[int, Loop] = {}
        self.position = 0  # of the last event that was folded
        self.leading = False  # whether this process writes snapshots and that time passed
        # Whoever replaces a whole loop, by its number; whoever makes a loop, by 0.
        self.busy: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.saving = asyncio.Lock()  # whoever writes snapshots
        self.unwritten = 0  # events that are not durable yet
        self.commits = 0
        self.failed = False  # whether the store refused what it was last given
        self._queue: deque[Submission] = deque()
        self._wake, self._stopping = asyncio.Event(), False
        self._thread = ThreadPoolExecutor(1, "log")
        self._keeping = ThreadPoolExecutor(1, "spool")  # other threads may wait for the store
        self._read = 0  # the position up to which this thread knows the log
        # Loops to make from the log again, up to which position at least, and who does it.
        self._outdated: dict[int, int] = {}
        self._rebuilding: dict[int, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Make all loops from the log, and begin to write."""
        self.position = self._read = await asyncio.to_thread(self.store.last)
        for loop in await self.turns.in_background(self.replay.all_loops, self.position):
            self.put(loop)
        self._event_loop = asyncio.get_running_loop()
        self._writing = asyncio.create_task(self._write_on())

    async def stop(self) -> None:
        """Write what waits, and end."""
        self._stopping = True
        self._wake.set()
        await self._writing
        self._thread.shutdown()
        self._keeping.shutdown()

    # The loops

    def loop(self, name: str) -> Loop:
        if name not in self.loops:
            raise NotFound(f"there is no loop {name!r}")
        return self.loops[name]

    def put(self, loop: Loop) -> Loop:
        """Let a loop take the place of another by its name."""
        self.remove(loop.name)
        self.loops[loop.name] = self._numbered[loop.number] = loop
        return loop

    def remove(self, name: str) -> None:
        if (old := self.loops.pop(name, None)) is not None:
            self._numbered.pop(old.number, None)

    async def look(self, loop: Loop, function: Callable[[], Found]) -> Found:
        """Return what the function finds in a loop, in the loop's turn; see `Turns`."""
        return await settled(self.turns.do(loop.number, loop.is_slow, function))

    # Writing

    async def write(
        self, pairs: Sequence[tuple[int, AnyEvent]], change: Transaction = NOTHING,
        spooled: bool = False,
    ) -> tuple[list[Row], int]:  # fmt: skip
        """Write events of loops with a change; return them as folded, and how many it erased.

        `spooled`: whether this is a decision that may be kept on this disk while the store is away.
        """
        # One that is larger by itself, as an import of many rewards, does not wait for others.
        if self.unwritten and self.unwritten + len(pairs) > self.most_unwritten:
            raise Overloaded
        if self._stopping:
            raise StoreError("the service is stopping")
        rows = [Row.of(number, event) for number, event in pairs]
        future: asyncio.Future[tuple[int, Folding]] = asyncio.get_running_loop().create_future()
        self._queue.append(Submission(change._replace(rows=rows), spooled, future))
        self.unwritten += len(rows)
        self._wake.set()
        erased, folding = await future
        for each in folding:
            await each
        return rows, erased

    async def append(self, loop: Loop, *happened: AnyEvent, spooled: bool = False) -> list[Row]:
        """Write events of a loop; raise NotFound if it was deleted."""
        pairs = [(loop.number, event) for event in happened]
        rows, _ = await self.write(pairs, spooled=spooled)
        if any(row.result == GONE and row.spooled is None for row in rows):
            raise NotFound(f"there is no loop {loop.name!r}")
        return rows

    async def catch_up(self) -> None:
        """Fold what the log has by now."""
        await self.write([])

    async def _write_on(self) -> None:
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
                while not (await asyncio.wait([flush], timeout=SLOW))[0]:
                    await self._keep_decisions(batch)
                flushed = flush.result()
            except Exception as error:
                if isinstance(error, StoreError):
                    self.failed = True
                    await self._keep_decisions(batch)
                self._refuse(batch, error)
                flushing = None
            else:
                flushing = self._flush_next()  # while what is durable now is folded
                await self._settle(batch, change, flushed)

    def _flush_next(self) -> "tuple[list[Submission], Transaction, asyncio.Future[Flushed]] | None":
        """Begin to write what may share the next transaction; None if nothing waits."""
        batch, rows = list[Submission](), list[Row]()
        while self._queue:
            following = self._queue[0]
            full = len(rows) + len(following.change.rows) > MOST_ROWS
            if batch and (full or not (batch[0].shares and following.shares)):
                break
            batch.append(self._queue.popleft())
            rows += following.change.rows
        if not batch:
            return None
        change = batch[0].change._replace(rows=rows)
        return batch, change, self._event_loop.run_in_executor(self._thread, self._flush, change)

    def _flush(self, change: Transaction) -> Flushed:
        """Write a change, and read what others wrote before it."""
        if self.store.shared and self.failed and change.rows and change.plain:
            raise StoreError(AWAY)
        erased = 0 if change.is_empty else self.store.write(change)
        fresh = [row.position for row in change.rows if row.fresh]
        until = fresh[0] - 1 if fresh else self.store.last()
        news = self._news(until)
        self._read = max([self._read, until, *fresh[-1:]])
        return erased, news, until

    def _news(self, until: int) -> Sequence[Row | Loop]:
        """Read what others wrote up to a position; where that is much, loops that know it."""
        if until <= self._read:
            return []
        if self.store.shared and until - self._read > FAR:
            return self.replay.all_loops(until)
        return list(self.store.read(self._read, until=until))

    async def _settle(self, batch: list[Submission], change: Transaction, flushed: Flushed) -> None:
        """Fold what is durable, and tell whoever waits for it."""
        self.failed = self.failed and change.is_empty and not self.store.shared
        self.commits += not change.is_empty
        erased, news, until = flushed
        try:
            await self._take_in(news, until, batch)
            folding = [[*filter(None, map(self._fold_own, each.change.rows))] for each in batch]
        except Exception as error:
            self._refuse(batch, error)
            return
        for each, works in zip(batch, folding, strict=True):
            self.unwritten -= len(each.change.rows)
            each.answer(erased, works)

    async def _keep_decisions(self, batch: list[Submission]) -> None:
        """Answer decisions of a batch and of the queue once they are on this disk.

        Those of the batch may reach a slow store, too: whoever writes the spool looks for them.
        """
        flushing = [each for each in batch if each.spooled and not each.future.done()]
        queued = [each for each in self._queue if each.spooled]
        if not self.store.shared or not flushing + queued:
            return
        self._queue = deque(each for each in self._queue if not each.spooled)
        rows = [row for each in flushing + queued for row in each.change.rows]
        entries = [(row.loop, row.event) for row in rows]
        try:
            found = await self._event_loop.run_in_executor(self._keeping, self.spool.add, entries)
        except StoreError:
            self._queue.extendleft(reversed(queued))
            return
        self.unwritten -= len(queued)  # the others are still on their way
        for each, row, decision in zip(flushing + queued, rows, found, strict=True):
            row.spooled = decision
            each.answer(0)

    def _refuse(self, batch: list[Submission], error: Exception) -> None:
        for each in batch:
            self.unwritten -= len(each.change.rows)
            if not each.future.done():
                each.future.set_exception(error)

    # Folding

    async def _take_in(
        self, news: Sequence[Row | Loop], until: int, batch: list[Submission]
    ) -> None:
        """Fold what other servers wrote, up to a position, while a batch waits for its turn."""
        since = time.monotonic()
        for count, each in enumerate(news, start=1):
            if isinstance(each, Loop):
                self.put(each)
            else:
                self._fold_from_elsewhere(each)
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
                if time.monotonic() - since > SLOW:
                    await self._keep_decisions(batch)
                    since = time.monotonic()
        self.position = max(self.position, until)

    def _fold_own(self, row: Row) -> "asyncio.Future[None] | None":
        """Fold an event that this server wrote, unless the log had it before or has it not."""
        if self._compare:
            assert events.decode(row.body) == row.event, row.event
        if row.fresh:
            return self._fold(row, own=True)
        row.result = REPEATED if row.position else GONE
        return None

    def _fold_from_elsewhere(self, row: Row) -> None:
        """Fold an event that another server wrote."""
        loop = self._numbered.get(row.loop)
        try:
            row.event = event = events.decode(row.body)
            if loop is not None and isinstance(event, Decided):
                with contextlib.suppress(TooLarge):  # it was taken there
                    loop.admit(event.context, (event.arm_features or {}).values())
        except Exception:
            self._remake(row.loop, row.position)
        else:
            self._fold(row, own=False)

    def _fold(self, row: Row, own: bool) -> "asyncio.Future[None] | None":
        """Fold an event of the log into its loop, at once or in the loop's turn."""
        self.position = max(self.position, row.position)
        loop, row.result = self._numbered.get(row.loop), TAKEN
        if loop is None:
            if not isinstance(row.event, Configured) or not row.event.name:
                return None
            loop = self.put(Loop(row.event.name, row.loop, self._seed))
        if is_remaking(row.event):
            self._remake(row.loop, row.position)
        return self.turns.do(row.loop, loop.is_slow, partial(self._fold_next, row, own))

    def _fold_next(self, row: Row, own: bool) -> None:
        """Fold an event into what is its loop now; in any thread."""
        loop, position, event = self._numbered.get(row.loop), row.position, row.event
        if loop is None or loop.position >= position:
            return
        if isinstance(event, Configured) and self.is_outdated(loop):
            # The model stays until the loop is replaced.
            loop.next_settings = event.settings
            event = Configured(event.time, event.settings.learning_like(loop.settings))
        try:
            row.result = loop.fold(event, position)
        except Exception:  # it is set aside when the loop is made from the log
            loop.position, loop.made, row.result = position, -1, REFUSED
            self._event_loop.call_soon_threadsafe(self._remake, row.loop, position)
        if own and isinstance(event, Compacted) and not self.is_outdated(loop):
            row.state = loop.hold()  # now, and not when more has happened

    # Loops that are made from the log while the old ones go on

    def is_outdated(self, loop: Loop) -> bool:
        """Return whether a loop only decides until what the log makes of it takes its place."""
        return loop.made < self._outdated.get(loop.number, 0)

    def _remake(self, number: int, position: int) -> None:
        """Begin to make a loop from the log again, up to this position at least."""
        self._outdated[number] = max(position, self._outdated.get(number, 0))
        if number not in self._rebuilding:
            self._rebuilding[number] = self.turns.begin(self._rebuild(number))

    async def _rebuild(self, number: int) -> None:
        """Replace a loop by what the log makes of it, until that is up to date."""
        background = partial(self.turns.at_length, "made")
        try:
            while (loop := self._numbered.get(number)) and self.is_outdated(loop):
                try:
                    fresh = await background(
                        partial(self.replay.replayed, loop, until=self.position)
                    )
                    while await background(self.replay.read_on, fresh, self.position) > NEAR:
                        pass
                    replacing = partial(self._replace, loop, fresh)
                    await settled(self.turns.do(number, True, replacing))
                except Conflict:  # more was deleted
                    pass
                except (StoreError, Poison) as error:
                    log.error("loop %r cannot be made from the log: %s", loop.name, error)
                    await asyncio.sleep(RETRY)
        finally:
            self._rebuilding.pop(number, None)
        if loop is not None and self.leading:  # snapshots from before may know what was deleted
            with contextlib.suppress(StoreError, Overloaded, NotFound):
                await self.store_snapshot(loop, alone=True)

    def _replace(self, old: Loop, fresh: Loop) -> None:
        """Let a loop take the place of another, in whose turn this is called; blocks.

        What is delivered meanwhile is folded afterwards, into the new one.
        """
        self.replay.read_on(fresh, old.position)
        fresh.made = max(old.position, fresh.position)
        if self._numbered.get(old.number) is old:
            self.loops[old.name] = self._numbered[old.number] = fresh

    async def rebuilt(self, loop: Loop) -> None:
        """Wait until a loop is what the log makes of it."""
        if (task := self._rebuilding.get(loop.number)) is not None:
            await asyncio.shield(task)

    # Snapshots

    async def store_snapshot(self, loop: Loop, alone: bool = False) -> None:
        """Keep what a loop knows now, so that a start need not read the whole log."""
        async with self.saving:
            taken = await self.hold(loop) if self.leading else None
            if taken is None:
                return
            position, held = taken
            loop.saved = loop.folded, self.clock()
            # Elsewhere: meanwhile there are requests to answer.
            body = await self.turns.in_background(held.to_bytes)
            await asyncio.to_thread(self.store.save_snapshot, loop.number, position, body, alone)

    async def hold(self, loop: Loop) -> tuple[int, LoopState] | None:
        """Return what a loop knows, and the position of an event from which others can go on.

        None if the loop is to be replaced.
        """
        if self.is_outdated(loop):
            return None
        (row,) = await self.append(loop, Compacted(self.clock()))
        return None if row.state is None else (row.position, row.state)
