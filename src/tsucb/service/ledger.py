"""The log and the loops it has led to: events are written, then folded."""

import asyncio
import contextlib
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from tsucb.service import events
from tsucb.service.errors import Conflict, NotFound, Overloaded, StoreError, TooLarge
from tsucb.service.events import (
    AnyEvent,
    Compacted,
    Configured,
    Decided,
    Forgot,
    Rewarded,
)
from tsucb.service.journal import Journal, Outcome, Outcomes, Spool
from tsucb.service.loop import REFUSED, REPEATED, TAKEN, Loop
from tsucb.service.relearning import fold_for
from tsucb.service.scheduling import SteadyClock, Turns
from tsucb.service.state import LoopState
from tsucb.service.store import (
    MODEL,
    AuditRecord,
    Erasure,
    Logged,
    Place,
    Row,
    Store,
    Transaction,
    set_aside,
)

log = logging.getLogger("tsucb.service")

FAR = 20_000  # events behind the log, from which on a newer snapshot is looked for
NEAR = 1_000  # events that are folded while a loop waits
RETRY = 0.25  # seconds, before the store is asked again
GONE = Outcome("gone")  # an event of a loop that was deleted
NOTHING = Transaction()

Found = TypeVar("Found")


class Poison(Exception):
    """An event that cannot be folded."""

    def __init__(self, position: int, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.position = position


class Ledger:
    """Loops over a store, as the log has them; see `Service` for the parameters.

    `journal` writes. What is durable is delivered here in the order of the log, and folded. A loop
    that must be made from the log again, as events were deleted or another model is to learn from
    them, goes on deciding until the new one takes its place.
    """

    def __init__(
        self, store: Store, clock: SteadyClock, spool: Spool, *, seed: int | None = None,
        most_waiting: int = 4_000, compare: bool = False,
    ) -> None:  # fmt: skip
        self.store, self.clock, self.spool, self._seed = store, clock, spool, seed
        self._most_waiting, self._compare = most_waiting, compare
        self.loops: dict[str, Loop] = {}
        self._numbered: dict[int, Loop] = {}
        self.position = 0  # of the last event that was folded
        self.leading = False  # whether this process writes snapshots and that time passed
        self.alerts: dict[str, str] = {}  # what somebody should look at, by what it is about
        self.turns = Turns()
        # Whoever replaces a whole loop, by its number; whoever makes a loop, by 0.
        self.busy: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.saving = asyncio.Lock()  # whoever writes snapshots
        # Loops to make from the log again, up to which position at least, and who does it.
        self._outdated: dict[int, int] = {}
        self._rebuilding: dict[int, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Make all loops from the log, and begin to write."""
        self.position = await asyncio.to_thread(self.store.last)
        for loop in await self.turns.in_background(self._all_replayed, self.position):
            self.put(loop)
        self._event_loop = asyncio.get_running_loop()
        self.journal = Journal(
            self.store, self._deliver, self._catch_up, self.position, self.spool,
            self._most_waiting,
        )  # fmt: skip

    # The loops

    def loop(self, name: str) -> Loop:
        """Return the loop of a name."""
        if name not in self.loops:
            raise NotFound(f"there is no loop {name!r}")
        return self.loops[name]

    def put(self, loop: Loop) -> Loop:
        """Put a loop in its place."""
        self.remove(loop.name)
        self.loops[loop.name] = self._numbered[loop.number] = loop
        return loop

    def remove(self, name: str) -> None:
        """Forget a loop."""
        if (old := self.loops.pop(name, None)) is not None:
            self._numbered.pop(old.number, None)

    async def look(self, loop: Loop, function: Callable[[], Found]) -> Found:
        """Return what the function finds in a loop, in the loop's turn; see `Turns`."""
        return await self.turns.wait(loop.number, loop.is_slow, function)

    # Reading the log

    def replayed(self, loop: Loop, snapshots: bool = True, until: int | None = None) -> Loop:
        """Make a loop from the log: from the last snapshot that can be read, or from the start.

        Events that cannot be folded are set aside. Blocks.
        """
        while True:
            fresh = Loop(loop.name, loop.number, self._seed)
            for position, body in self.store.snapshots(loop.number) if snapshots else ():
                if body is not None and (until is None or position <= until):
                    with contextlib.suppress(ValueError):
                        fresh.restore(body, position)
                        break
            try:
                self.read_on(fresh, until)
            except Poison as poison:
                self._set_aside(loop, poison)
            except Conflict:
                snapshots = False  # they know what was deleted, or have the model of before
            else:
                fresh.made = fresh.position
                return fresh

    def _all_replayed(self, until: int) -> list[Loop]:
        """Make all loops from the log up to a position; blocks."""
        known = self.store.loops().items()
        loops = [self.replayed(Loop(*each, self._seed), until=until) for each in known]
        for loop in loops:
            loop.settings.warm()
        return loops

    def read_on(self, loop: Loop, until: int | None, known: int | None = None) -> int:
        """Fold what the log has after a loop's position, and return how many events; blocks.

        A loop that begins at the start of the log has the model of the last change to one that
        relearns, by the position `known`, else by `until`. Raise Conflict if a loop that begins
        later must begin there: events were deleted, or another model is to learn.
        """
        first, count = loop.position, 0
        change = self.store.relearned(loop.number, until if known is None else known)
        model: Any = change and events.decode(change.body)
        for logged in self.store.read(first, loop.number, until):
            try:
                event = events.decode(logged.body)
                if not first and change is not None and logged.position <= change.position:
                    fold_for(model.settings, loop, event, logged.position)
                elif is_remaking(event) and (first or not isinstance(event, Forgot)):
                    raise Conflict("the log of the loop was changed meanwhile; try again")
                else:
                    loop.fold(event, logged.position)
                count += 1
            except (StoreError, Conflict):
                raise
            except Exception as error:
                raise Poison(logged.position, error) from error
        return count

    def _set_aside(self, loop: Loop, poison: Poison) -> None:
        """Move an event that cannot be folded out of the log; every server makes the loop again."""
        now, position, reason = self.clock(), poison.position, str(poison)[:1_000]
        log.error("event %d of loop %r was set aside: %s", position, loop.name, reason)
        self.alerts[f"event {position}"] = f"event {position} of {loop.name!r} is set aside"
        audit = AuditRecord(now, "server", "set aside", loop.name, f"{position}: {reason}")
        erasure = Erasure(set_aside, loop.number, (position, reason))
        self.store.write(Transaction([row(loop.number, Forgot(now))], [audit], erasure))

    # Writing

    async def write(
        self, pairs: Sequence[tuple[int, AnyEvent]], change: Transaction = NOTHING,
        spooled: bool = False,
    ) -> tuple[list[Outcome], int]:  # fmt: skip
        """Write events of loops with a change; return what became of each, and how many it erased.

        `spooled`: whether this is a decision that may be kept on this disk while the store is away.
        """
        rows = [row(number, event) for number, event in pairs]
        return await self.journal.write(change._replace(rows=rows), spooled)

    async def append(self, loop: Loop, *happened: AnyEvent, spooled: bool = False) -> list[Outcome]:
        """Write events of a loop; raise NotFound if it was deleted."""
        pairs = [(loop.number, event) for event in happened]
        outcomes, _ = await self.write(pairs, spooled=spooled)
        if GONE in outcomes:
            raise NotFound(f"there is no loop {loop.name!r}")
        return outcomes

    def _catch_up(self, after: int, until: int) -> list[Logged] | list[Loop]:
        """Read what others wrote; where that is much, loops from their newest snapshots. Blocks."""
        if self.store.shared and until - after > FAR:
            return self._all_replayed(until)
        return list(self.store.read(after, until=until))

    # Folding

    def _deliver(self, news: Any, until: int, written: Iterable[tuple[Row, Place]]) -> Outcomes:
        """Fold what is durable now; events of a slow loop in a thread, in their order."""
        for each in news:
            if isinstance(each, Loop):
                self.put(each)
            else:
                self._fold_from_elsewhere(each)
        self.position = max(self.position, until)
        outcomes: list[Outcome | asyncio.Future[Outcome]] = []
        for each, (position, fresh) in written:
            if self._compare:
                assert events.decode(each.body) == each.event, each.event
            if fresh:
                outcomes.append(self._fold(position, each.loop, each.event, own=True))
            else:
                outcomes.append(Outcome(REPEATED, position) if position else GONE)
        return outcomes

    def _fold_from_elsewhere(self, logged: Logged) -> None:
        """Fold an event that another server wrote."""
        position, number, body = logged
        loop = self._numbered.get(number)
        try:
            event = events.decode(body)
            if loop is not None and isinstance(event, Decided):
                with contextlib.suppress(TooLarge):  # it was taken there
                    loop.admit(event.context, (event.arm_features or {}).values())
        except Exception:
            self._remake(number, position)
        else:
            self._fold(position, number, event, own=False)

    def _fold(
        self, position: int, number: int, event: AnyEvent, own: bool
    ) -> "Outcome | asyncio.Future[Outcome]":
        """Fold the event at a position into its loop, at once or in the loop's turn."""
        self.position = max(self.position, position)
        loop = self._numbered.get(number)
        if loop is None:
            if not isinstance(event, Configured) or not event.name:
                return Outcome(TAKEN, position, fresh=True)
            loop = self.put(Loop(event.name, number, self._seed))
        if is_remaking(event):
            self._remake(number, position)
        work = partial(self._fold_next, position, number, event, own)
        return self.turns.do(number, loop.is_slow, work)

    def _fold_next(self, position: int, number: int, event: AnyEvent, own: bool) -> Outcome:
        """Fold an event into what is its loop now; in any thread."""
        loop, held = self._numbered.get(number), None
        if loop is None or loop.position >= position:
            return Outcome(TAKEN, position, fresh=True)
        if isinstance(event, Configured) and self.is_outdated(loop):
            # The model stays until the loop is replaced.
            loop.next_settings = event.settings
            event = Configured(event.time, event.settings.learning_like(loop.settings))
        try:
            result = loop.fold(event, position)
        except Exception:  # it is set aside when the loop is made from the log
            loop.position, loop.made, result = position, -1, REFUSED
            self._event_loop.call_soon_threadsafe(self._remake, number, position)
        if own and isinstance(event, Compacted) and not self.is_outdated(loop):
            held = loop.hold()  # now, and not when more has happened
        return Outcome(result, position, fresh=True, held=held)

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
        background = self.turns.in_background
        try:
            while (loop := self._numbered.get(number)) and self.is_outdated(loop):
                try:
                    fresh = await background(partial(self.replayed, loop, until=self.position))
                    while await background(self.read_on, fresh, self.position) > NEAR:
                        pass
                    await self.turns.wait(number, True, partial(self._replace, loop, fresh))
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
        self.read_on(fresh, old.position)
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
        (outcome,) = await self.append(loop, Compacted(self.clock()))
        return None if outcome.held is None else (outcome.position, outcome.held)


def is_remaking(event: AnyEvent) -> bool:
    """Return whether every server must make the loop from the log again after this event."""
    return isinstance(event, Forgot) or (isinstance(event, Configured) and event.relearn)


def row(loop: int, event: AnyEvent) -> Row:
    """Return an event of a loop as the store takes it."""
    key = None
    if isinstance(event, Decided) and event.key is not None:
        key = f"d{event.key}"
    elif isinstance(event, Rewarded) and event.key is not None:
        # Lengths keep ids, slots and keys apart, which may hold any character.
        key = f"r{len(event.id)}:{len(event.slot)}:{event.id}{event.slot}{event.key}"
    elif isinstance(event, Configured) and event.relearn:
        key = f"{MODEL}{secrets.token_hex(8)}"
    subject, person = getattr(event, "id", None), getattr(event, "person", None)
    return Row(loop, subject, person, key, events.encode(event), event)
