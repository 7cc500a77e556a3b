"""The log and what it has led to: events are written, then folded; nothing else changes a loop."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from tsucb.service import events
from tsucb.service.errors import Conflict, NotFound, Overloaded, StoreError, TooLarge
from tsucb.service.events import (
    Activated,
    AnyEvent,
    Compacted,
    Configured,
    Decided,
    Forgot,
    Rewarded,
)
from tsucb.service.journal import Journal, Outcome, Spool
from tsucb.service.loop import REFUSED, REPEATED, TAKEN, Loop
from tsucb.service.relearning import Relearning
from tsucb.service.scheduling import SteadyClock, Turns
from tsucb.service.state import LoopHeld
from tsucb.service.store import (
    MODEL,
    AuditRecord,
    Change,
    Logged,
    Place,
    Row,
    SetAside,
    Snapshot,
    Store,
)

log = logging.getLogger("tsucb.service")

FAR = 20_000  # events behind the log, from which on a newer snapshot is looked for
NEAR = 1_000  # events that are folded while requests wait
RETRY = 0.25  # seconds, before the store is asked again
GONE = Outcome("gone")  # an event of a loop that was deleted

Found = TypeVar("Found")
Tail = list[tuple[int, AnyEvent]]  # events with their positions


class Poison(Exception):
    """An event that cannot be folded."""

    def __init__(self, position: int, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.position = position


class Ledger:
    """Loops over a store, as the log has them.

    Parameters
    ----------
    store
        Where everything is kept.
    clock, steady
        Tell the time in seconds since 1970, and seconds that pass without jumps. If only a clock
        is given, it is taken for both.
    seed
        Of random draws; None: arbitrary.
    most_waiting
        This many events may wait to be written; beyond it requests are refused.
    folder
        Where decisions are kept that are made while a shared store is away; None: nowhere.
    compare
        Whether every event that is folded is compared with what the log makes of it, for tests.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        seed: int | None = None,
        most_waiting: int = 4_000,
        folder: str | None = None,
        compare: bool = False,
    ) -> None:
        if steady is None:
            steady = time.monotonic if clock is time.time else clock
        self.store, self.clock, self._seed = store, SteadyClock(clock, steady), seed
        self._most_waiting, self._compare = most_waiting, compare
        self.folder, self.unwritten = folder, Spool(folder)
        self.loops: dict[str, Loop] = {}
        self._numbered: dict[int, Loop] = {}
        self.position = 0  # of the last event that was folded
        self.leading = False  # whether this process writes snapshots and that time passed
        self.lost: float | None = None  # since when a shared store cannot be reached
        self.lag = 0  # events of the log that are not folded yet
        self.alerts: dict[str, str] = {}  # what somebody should look at, by what it is about
        # Events folded before the last snapshots of loops, and when these were taken.
        self._snapshots: dict[int, tuple[int, float]] = {}
        self._taken: dict[int, tuple[int, LoopHeld] | None] = {}  # by who asked for `_held`
        self._working: set[asyncio.Task[Any]] = set()
        self._saving = asyncio.Lock()  # whoever writes snapshots
        self._tails: dict[int, list[Tail]] = {}  # of loops of which others are being made
        self._rebuilding: dict[int, asyncio.Task[None]] = {}
        self.turns = Turns()

    def open(self) -> None:
        """Read all loops from the store; blocks."""
        self.position = self.store.last()
        for name, number in self.store.loops().items():
            self._put(self.replayed(Loop(name, number, self._seed), until=self.position))
            self.loops[name].settings.warm()

    def begin_writing(self) -> None:
        """Begin to write, in the event loop."""
        self._running = asyncio.get_running_loop()
        self.journal = Journal(
            self.store, self._deliver, self._catch_up, self.position, self.unwritten,
            self._most_waiting,
        )  # fmt: skip

    # Reading

    def loop(self, name: str) -> Loop:
        """Return the loop of a name."""
        if name not in self.loops:
            raise NotFound(f"there is no loop {name!r}")
        return self.loops[name]

    async def look(self, loop: Loop, function: Callable[[], Found]) -> Found:
        """Return what the function finds in a loop, in the loop's turn; see `Turns`."""
        found = self.turns.do(loop.number, loop.is_slow, function)
        return await found if isinstance(found, asyncio.Future) else found

    def replayed(self, loop: Loop, snapshots: bool = True, until: int | None = None) -> Loop:
        """Make a loop from the log: from the last snapshot that can be read, or from the start.

        Events that cannot be folded are set aside. Blocks.
        """
        while True:
            try:
                return self._replay(loop, snapshots, until)
            except Poison as poison:
                self._set_aside(loop, poison)
            except Conflict:  # it was condensed meanwhile
                continue

    def _replay(self, loop: Loop, snapshots: bool, until: int | None) -> Loop:
        fresh = Loop(loop.name, loop.number, self._seed)
        for snapshot in self.store.snapshots(loop.number) if snapshots else []:
            if until is not None and snapshot.position > until:
                continue
            with contextlib.suppress(ValueError):
                fresh.restore(snapshot.body, snapshot.position)
                break
        first = fresh.position
        for logged in self.store.read(first, loop.number, until):
            try:
                event = events.decode(logged.body)
                if isinstance(event, Forgot) and first:  # the snapshot knows what was deleted
                    return self._replay(loop, False, until)
                self._take(fresh, logged.position, event)
            except (Poison, StoreError, Conflict):
                raise
            except Exception as error:
                raise Poison(logged.position, error) from error
        return fresh

    def _set_aside(self, loop: Loop, poison: Poison) -> None:
        """Move an event that cannot be folded out of the log; every server makes the loop again."""
        now, position, reason = self.clock(), poison.position, str(poison)[:1_000]
        log.error("event %d of loop %r was set aside: %s", position, loop.name, reason)
        self.alerts[f"event {position}"] = f"event {position} of {loop.name!r} is set aside"
        self.store.write(
            Change(
                [row(loop.number, Forgot(now))],
                aside=SetAside(loop.number, position, reason),
                audit=[AuditRecord(now, "server", "set aside", loop.name, f"{position}: {reason}")],
            )
        )

    def _take(self, loop: Loop, position: int, event: AnyEvent) -> str:
        """Fold an event of the log; for some, the log has to be read up to there, which blocks."""
        learned = None
        if is_relearning(event):
            assert isinstance(event, Configured)
            relearning = Relearning(loop, event.settings, position)
            for logged in self.store.read(0, loop.number, position - 1):
                relearning.fold(events.decode(logged.body), logged.position)
            learned = relearning.loop
        return loop.fold(event, position, learned)

    # Writing

    async def _write(
        self, change: Change, pairs: Sequence[tuple[int, AnyEvent]] = ()
    ) -> tuple[list[Outcome], int]:
        """Write a change with events of loops, fold these, and say what became of each."""
        rows = [row(number, event) for number, event in pairs]
        happened = [event for _, event in pairs]
        return await self.journal.write(change._replace(rows=rows), happened)

    async def _append(self, loop: Loop, *happened: AnyEvent) -> list[Outcome]:
        """Write events of a loop."""
        rows = [row(loop.number, event) for event in happened]
        outcomes, _ = await self.journal.write(Change(rows), happened)
        if GONE in outcomes:
            raise NotFound(f"there is no loop {loop.name!r}")
        return outcomes

    def _catch_up(self, after: int, until: int) -> list[Logged] | list[Loop]:
        """Read what others wrote; where that is much, loops from their newest snapshots. Blocks."""
        if self.store.shared and until - after > FAR:
            loops = self.store.loops().items()
            return [self.replayed(Loop(*each, self._seed), until=until) for each in loops]
        return list(self.store.read(after, until=until))

    def _deliver(
        self, news: Any, until: int, entries: Iterable[tuple[Place, int, AnyEvent]]
    ) -> "list[Outcome | asyncio.Future[Outcome]]":
        """Fold what is durable now; events of a slow loop in a thread, in their order."""
        for each in news or ():
            if isinstance(each, Loop):
                self._put(each)
            else:
                self._fold(each.position, each.loop, None, each.body)
        self.position = max(self.position, until)
        outcomes: list[Outcome | asyncio.Future[Outcome]] = []
        for place, number, event in entries:
            if self._compare:
                assert events.decode(events.encode(event)) == event, event
            if place.fresh:
                outcomes.append(self._fold(place.position, number, event))
            else:
                known = place.position > 0
                outcomes.append(Outcome(REPEATED, place.position) if known else GONE)
        return outcomes

    def _fold(
        self, position: int, number: int, event: AnyEvent | None, body: bytes = b""
    ) -> "Outcome | asyncio.Future[Outcome]":
        """Fold the event at a position into its loop, at once or in the loop's turn."""
        self.position = max(self.position, position)
        loop, taken = self._numbered.get(number), Outcome(TAKEN, position, fresh=True)
        if loop is not None and loop.position >= position:
            return taken
        try:
            event = events.decode(body) if event is None else event
            if loop is not None and body and isinstance(event, Decided):  # decided elsewhere
                with contextlib.suppress(TooLarge):  # it was taken there
                    loop.admit(event.context, (event.arm_features or {}).values())
        except Exception as error:
            return taken if loop is None else self._refused(loop, position, error)
        if loop is None:
            if not isinstance(event, Configured) or not event.name:
                return taken
            loop = self._put(Loop(event.name, number, self._seed))  # made elsewhere
        for tail in self._tails.get(number, ()):
            tail.append((position, event))
        if isinstance(event, Forgot) or is_relearning(event):
            self._begin_rebuild(loop)
        if isinstance(event, Configured) and loop.stale:  # the model stays until it is replaced
            loop.next_settings = event.settings
            event = Configured(event.time, event.settings.learning_like(loop.settings))
        work = partial(self._take_and_hold, loop, position, event)
        return self.turns.do(number, loop.is_slow, work)

    def _take_and_hold(self, loop: Loop, position: int, event: AnyEvent) -> Outcome:
        try:
            found = self._take(loop, position, event)
        except Exception as error:
            return self._refused(loop, position, error)
        if isinstance(event, Compacted) and loop.number in self._taken and not loop.stale:
            # Now, and not when whoever asked for it is awake again and more has happened.
            self._taken[loop.number] = position, loop.hold()
        return Outcome(found, position, fresh=True)

    def _refused(self, loop: Loop, position: int, error: Exception) -> Outcome:
        """Have an event set aside that cannot be folded; in any thread."""
        loop.position, loop.stale = position, True
        work = self._put_aside(loop, Poison(position, error))
        self._running.call_soon_threadsafe(self._begin, work)
        return Outcome(REFUSED, position, fresh=True)

    async def _put_aside(self, loop: Loop, poison: Poison) -> None:
        while True:
            try:
                await asyncio.to_thread(self._set_aside, loop, poison)
                await self.journal.look()
                return
            except StoreError:
                await asyncio.sleep(RETRY)

    # Loops that are made from the log while the old ones go on

    def _put(self, loop: Loop) -> Loop:
        """Put a loop in its place."""
        self._remove(loop.name)
        self.loops[loop.name] = self._numbered[loop.number] = loop
        self._snapshots.pop(loop.number, None)
        return loop

    def _remove(self, name: str) -> None:
        if (old := self.loops.pop(name, None)) is not None:
            self._numbered.pop(old.number, None)

    @contextlib.contextmanager
    def _tail(self, loop: Loop) -> Iterator[Tail]:
        """Collect the events of a loop that are folded meanwhile."""
        tail: Tail = []
        tails = self._tails.setdefault(loop.number, [])
        tails.append(tail)
        try:
            yield tail
        finally:
            tails.remove(tail)

    def _begin_rebuild(self, loop: Loop) -> None:
        """Have a loop made from the log; this one goes on as it is meanwhile."""
        loop.stale = True
        if loop.number not in self._rebuilding:
            self._rebuilding[loop.number] = self._begin(self._rebuild(loop))

    async def _rebuild(self, loop: Loop) -> None:
        """Replace a loop by what the log makes of it; the old one decides meanwhile."""
        try:
            fresh = None
            while fresh is None:
                try:
                    fresh = await self._made_again(loop)
                except (StoreError, Conflict) as error:
                    log.error("loop %r cannot be made from the log: %s", loop.name, error)
                    await asyncio.sleep(RETRY)
        finally:
            self._rebuilding.pop(loop.number, None)
        if self._numbered.get(loop.number) is not loop:
            return  # it was deleted or replaced meanwhile
        self._put(fresh)
        if self.leading:  # those from before may know what was deleted since
            with contextlib.suppress(StoreError, Overloaded, NotFound):
                await self.store_snapshot(fresh, alone=True)

    async def _made_again(self, loop: Loop) -> Loop | None:
        """Make a loop from the log; None if what was deleted meanwhile may be in it."""
        with self._tail(loop) as tail:
            fresh = await self.turns.in_background(
                partial(self.replayed, loop, until=self.position)
            )
            near = 0 if fresh.is_slow else NEAR
            while len(tail) > near or any(is_relearning(event) for _, event in tail):
                some, tail[:] = tail[:], []
                if any(isinstance(event, Forgot) for _, event in some):
                    return None
                await self.turns.in_background(self._take_all, fresh, some)
            if any(isinstance(event, Forgot) for _, event in tail):
                return None
            self._take_all(fresh, tail)
            return fresh

    def _take_all(self, loop: Loop, tail: Tail) -> None:
        for position, event in tail:
            if position > loop.position:
                self._take(loop, position, event)

    # Snapshots

    async def store_snapshot(self, loop: Loop, alone: bool = False) -> None:
        """Keep what a loop knows now, so that a start need not read the whole log."""
        async with self._saving:
            taken = await self._held(loop) if self.leading else None
            if taken is None:
                return
            position, held = taken
            self._snapshots[loop.number] = loop.folded, self.clock()
            # Elsewhere: meanwhile there are requests to answer.
            snapshot = Snapshot(position, await self.turns.in_background(held.to_bytes))
            await asyncio.to_thread(self.store.save_snapshot, loop.number, snapshot, alone)

    async def _held(self, loop: Loop) -> tuple[int, LoopHeld] | None:
        """Return what a loop knows, and the position of an event from which others can go on.

        None if the loop is to be replaced.
        """
        self._taken[loop.number] = None
        try:
            if not loop.stale:
                await self._append(loop, Compacted(self.clock()))
        finally:
            taken = self._taken.pop(loop.number, None)
        return taken

    # Work in the background

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work in the background failed: %s", error, exc_info=error)


def is_relearning(event: AnyEvent) -> bool:
    """Return whether the log has to be read for an event to be folded."""
    return isinstance(event, Configured) and event.relearn


def row(loop: int, event: AnyEvent) -> Row:
    """Return an event of a loop as the store takes it."""
    if isinstance(event, Decided):
        key = None if event.key is None else f"d{event.key}"
        return Row(loop, event.id, event.person, key, events.encode(event))
    if isinstance(event, Rewarded):
        # Lengths keep ids, slots and keys apart, which may hold any character.
        name = f"r{len(event.id)}:{len(event.slot)}:{event.id}{event.slot}{event.key}"
        return Row(loop, event.id, None, None if event.key is None else name, events.encode(event))
    if isinstance(event, Configured) and event.relearn:
        return Row(loop, None, None, f"{MODEL}{secrets.token_hex(8)}", events.encode(event))
    subject = event.id if isinstance(event, Activated) else None
    return Row(loop, subject, None, None, events.encode(event))
