"""The log and what it has led to: events are written, then folded; nothing else changes a loop."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from tsucb.service import events
from tsucb.service.errors import NotFound
from tsucb.service.events import AnyEvent, Compacted, Configured, Decided, Forgot
from tsucb.service.journal import Journal
from tsucb.service.loop import SLOW, TAKEN, Loop
from tsucb.service.relearning import Relearning
from tsucb.service.state import LoopHeld
from tsucb.service.store import Logged, Row, Snapshot, Store, StoreError
from tsucb.service.turns import Turns

log = logging.getLogger("tsucb.service")

FAR = 20_000  # events behind the log, from which on a newer snapshot is looked for
RETRY = 0.25  # seconds, before the store is asked again

Found = TypeVar("Found")


class Ledger:
    """Loops over a store, as the log has them.

    Parameters
    ----------
    store
        Where everything is kept.
    clock
        Tells the time in seconds since 1970.
    seed
        Of random draws; None: arbitrary.
    most_waiting
        So many events may wait to be written; beyond it requests are refused.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        seed: int | None = None,
        most_waiting: int = 4_000,
    ) -> None:
        self.store, self.clock, self._seed = store, clock, seed
        self._most_waiting = most_waiting
        self.loops: dict[str, Loop] = {}
        self.position = 0  # of the last event that was folded
        self.leading = False  # whether this process writes snapshots and that time passed
        self.lost: float | None = None  # since when a shared store cannot be reached
        self._snapshots: dict[str, tuple[int, float]] = {}  # positions and times of the last ones
        self._taken: dict[str, tuple[int, LoopHeld]] = {}  # and not yet stored
        self._working: set[asyncio.Task[Any]] = set()
        self._saving = asyncio.Lock()  # whoever writes snapshots, or deletes them
        self._deleting: set[str] = set()  # loops whose events this process deletes
        self._prepared: dict[str, Relearning] = {}  # for changes of models on their way to the log
        self.turns = Turns()

    async def open(self) -> None:
        """Read all loops from the store and compile for them, in a thread; begin to write."""
        await self.turns.in_background(self._read_loops)
        self.journal = Journal(self.store, self._committed, self._most_waiting)

    def _read_loops(self) -> None:
        self.position = self.store.last()
        for name in self.store.loops():
            self.loops[name] = self.replayed(name)
            self.loops[name].settings.warm()

    # Reading

    def loop(self, name: str) -> Loop:
        """The loop of a name."""
        if name not in self.loops:
            raise NotFound(f"there is no loop {name!r}")
        return self.loops[name]

    def replayed(self, name: str, snapshots: bool = True, until: int | None = None) -> Loop:
        """A loop as the log has it, from the last snapshot that can be read or from the start."""
        loop = Loop(name, self._seed)
        for snapshot in self.store.snapshots(name) if snapshots else []:
            with contextlib.suppress(ValueError):
                loop = Loop.restored(name, snapshot.position, snapshot.body, self._seed)
                break
        first = loop.position
        for logged in self.store.read(first, name, until):
            event = events.decode(logged.body)
            if isinstance(event, Forgot) and first:  # the snapshot knows what was deleted since
                return self.replayed(name, False, until)
            self._take(loop, logged.position, event)
        return loop

    def _take(
        self, loop: Loop, position: int, event: AnyEvent, relearning: Relearning | None = None
    ) -> str:
        """Fold an event of the log; for some, the log has to be read up to there."""
        learned = None
        if isinstance(event, Configured) and event.relearn:
            if relearning is None:
                relearning = Relearning(loop.name, event.settings, self._seed, position)
            learned = self._relearned(relearning, position - 1)
        loop.position = position
        return loop.fold(event, learned)

    def _relearned(self, relearning: Relearning, until: int) -> Loop:
        """Learn from the log, from where it was left on; blocks."""
        loop = relearning.loop
        for logged in self.store.read(loop.position, loop.name, until):
            relearning.fold(events.decode(logged.body))
            loop.position = logged.position
        return loop

    # Writing

    async def _append(self, pairs: Sequence[tuple[str, AnyEvent]]) -> list[str]:
        """Write events, fold them, and say what became of each."""
        if self.lost is not None:
            raise StoreError("the store cannot be reached; try again later")
        rows = [
            Row(
                name,
                event.time,
                events.subject(event),
                event.person if isinstance(event, Decided) else None,
                events.encode(event),
            )
            for name, event in pairs
        ]
        futures = self.journal.append(rows)
        if len(futures) == 1:
            return [await futures[0]]
        return list(await asyncio.gather(*futures))

    async def _append_one(self, loop: Loop, event: AnyEvent) -> str:
        return (await self._append([(loop.name, event)]))[0]

    def _committed(self, rows: Sequence[Row], first: int) -> "list[str | asyncio.Future[str]]":
        """Fold events that are durable now; those of a slow loop in a thread, in their order."""
        if first != self.position + 1:
            self._catch_up(first - 1)
        found: list[str | asyncio.Future[str]] = []
        for position, row in enumerate(rows, start=first):
            found.append(self._fold(Logged(position, row.loop, row.body)))
        return found

    def _catch_up(self, until: int) -> None:
        """Fold what others wrote, or what was written although it was said to have failed."""
        if self.store.shared and self._is_far(until):
            self._leap(until, self._newest_loops(until))
        for logged in self.store.read(self.position, until=until):
            self._fold(logged)

    def _fold(self, logged: Logged) -> "str | asyncio.Future[str]":
        self.position = logged.position
        loop = self.loops.get(logged.loop)
        if loop is not None and loop.position >= logged.position:
            return TAKEN
        event = events.decode(logged.body)
        if self.store.shared and isinstance(event, Decided) and loop is not None:
            width = loop.width_after(event.context, (event.arm_features or {}).values())
            loop.growing = loop.growing or loop.numbers(width) > SLOW
        if loop is None and isinstance(event, Configured) and self.store.shared:
            loop = self.loops[logged.loop] = Loop(logged.loop, self._seed)  # made elsewhere
        if loop is None:
            return TAKEN
        relearning = self._prepared.get(loop.name)
        if isinstance(event, Forgot):
            self._prepared.pop(loop.name, None)  # it has learned what is to be forgotten
            if loop.name not in self._deleting:
                self._begin_rebuild(loop)
        elif isinstance(event, Configured) and event.relearn and not prepared(relearning, event):
            self._begin_rebuild(loop)
            loop.position = logged.position
            return TAKEN
        work = partial(self._take_and_hold, loop, logged.position, event, relearning)
        return self.turns.do(loop.name, loop.is_slow, work)

    def _take_and_hold(
        self, loop: Loop, position: int, event: AnyEvent, relearning: Relearning | None
    ) -> str:
        found = self._take(loop, position, event, relearning)
        if isinstance(event, Compacted) and self.leading and not loop.stale:
            # Now, and not when whoever asked for it is awake again and more has happened.
            self._taken[loop.name] = loop.position, loop.hold()
        return found

    async def look(self, loop: Loop, function: Callable[[], Found]) -> Found:
        """Return what the function finds in a loop, in the loop's turn; see `Turns`."""
        found = self.turns.do(loop.name, loop.is_slow, function)
        return await found if isinstance(found, asyncio.Future) else found

    # Loops that are made from the log while the old ones go on

    def _newest_loops(self, until: int) -> list[Loop]:
        """All loops from their newest snapshots, which are nearer than where they are here."""
        return [self.replayed(name, until=until) for name in self.store.loops()]

    def _is_far(self, last: int) -> bool:
        """Whether a newer snapshot is nearer to an event than what is known here."""
        return last - self.position > FAR

    def _leap(self, to: int, loops: Sequence[Loop]) -> None:
        """Go on from loops that have folded all events up to a position."""
        for loop in loops:
            self._replace(loop)
        self.position = max(self.position, to)

    def _replace(self, loop: Loop) -> None:
        """Put a loop in its place; what was folded while it was made is folded here too."""
        for logged in self.store.read(loop.position, loop.name, until=self.position):
            self._take(loop, logged.position, events.decode(logged.body))
        self.loops[loop.name] = loop

    def _begin_rebuild(self, loop: Loop) -> None:
        """Have a loop made from the log; this one goes on as it is meanwhile."""
        loop.stale = True
        self._begin(self._rebuild(loop.name))

    async def _rebuild(self, name: str) -> None:
        """Replace a loop by what the log makes of it; the old one decides meanwhile."""
        while True:
            try:
                loop = await self.turns.in_background(self.replayed, name)
                self._replace(loop)
                break
            except StoreError:
                await asyncio.sleep(RETRY)
        if self.leading:  # those from before may know what was deleted since
            await self.store_snapshot(loop, alone=True)

    # Snapshots

    async def store_snapshot(self, loop: Loop, alone: bool = False) -> None:
        """Keep what a loop knows now, so that a start need not read the whole log."""
        async with self._saving:
            if loop.stale:
                return
            await self._append_one(loop, Compacted(self.clock()))
            taken = self._taken.pop(loop.name, None)
            if taken is None:  # this process leads no more
                return
            position, held = taken
            self._snapshots[loop.name] = position, self.clock()
            # Elsewhere: meanwhile there are requests to answer.
            snapshot = Snapshot(position, await self.turns.in_background(held.to_bytes))
            await asyncio.to_thread(self.store.save_snapshot, loop.name, snapshot, alone)

    # Work in the background

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have something done in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work in the background failed: %s", error, exc_info=error)


def prepared(relearning: Relearning | None, event: Configured) -> bool:
    """Whether this process has learned for a change of the model; else it was asked elsewhere."""
    return relearning is not None and relearning.settings == event.settings
