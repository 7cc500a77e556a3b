"""What a service does without being asked: waits end, snapshots are taken, old events go."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

from tsucb.service import events
from tsucb.service.events import Compacted, Condensed, Configured, Decided, Passed
from tsucb.service.journal import Overloaded
from tsucb.service.keys import Keys
from tsucb.service.ledger import Ledger
from tsucb.service.loop import Loop
from tsucb.service.relearning import Relearning
from tsucb.service.store import AuditRecord, Store, StoreError

log = logging.getLogger("tsucb.service")

SNAPSHOT_EVENTS, SNAPSHOT_SECONDS = 50_000, 60.0
TICK = 0.25  # seconds between looks at what is due
PATIENCE = 20  # such looks, until what others wrote must be known here
AT_ONCE = 500  # decisions made without the store that are written together
RETENTION_SECONDS = 3_600.0  # between looks for what is too old
DAY = 86_400.0


class Upkeep(Ledger):
    """A ledger that keeps itself; see `Ledger` for the parameters."""

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__(store, **settings)
        self.keys = Keys(store)
        self.started = self.clock()
        self.ready = False
        self.unwritten: deque[tuple[str, Decided]] = deque()  # decisions made without the store
        self._ticking: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()  # one looks at what is due at a time
        self._looked: dict[str, float] = {}  # when a loop was looked through for what is too old
        self._busy: dict[str, asyncio.Lock] = {}  # of each loop, for whoever replaces all of it
        self._guarding = asyncio.Lock()  # the store guards one loop at a time

    # Life

    async def start(self) -> None:
        """Read all loops from the store, and begin to take requests."""
        await self.open()
        self.leading = self.store.leads()
        self._ticking = asyncio.create_task(self._tick())
        self.ready = True

    async def stop(self) -> None:
        """Finish what was begun, and leave a snapshot of every loop."""
        self.ready = False
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        for task in list(self._working):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.leading:
            for loop in list(self.loops.values()):
                with contextlib.suppress(StoreError, Overloaded):
                    await self.store_snapshot(loop)
        await asyncio.to_thread(self.journal.stop)
        await asyncio.sleep(0)  # what the journal has just written is folded
        await self.turns.finish()

    async def _tick(self) -> None:
        """Let waits end, and take snapshots, from time to time."""
        while True:
            await asyncio.sleep(TICK)
            try:
                await self.tick()
            except StoreError as error:  # the next look may find the store well again
                self._lose(error)
            except Overloaded:
                pass
            except Exception:
                log.exception("looking at what is due failed")

    async def tick(self) -> None:
        """Write that time passed where a wait has ended; take snapshots that are due."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        now = self.clock()
        if self.store.shared:
            await self._follow()
        if not self.leading:
            return
        loops = [loop for loop in self.loops.values() if not self.turns.waiting(loop.name)]
        due = [loop.name for loop in loops if loop.due <= now]
        if due:
            await self._append([(name, Passed(now)) for name in due])
        for loop in list(self.loops.values()):
            position, when = self._snapshots.get(loop.name, (loop.position, now))
            self._snapshots.setdefault(loop.name, (position, when))
            news = loop.position - position
            due_now = news >= SNAPSHOT_EVENTS or (news and now - when >= SNAPSHOT_SECONDS)
            if due_now and not self._saving.locked():
                self._begin(self._store_due(loop))
            if now - self._looked.get(loop.name, 0.0) >= RETENTION_SECONDS:
                self._looked[loop.name] = now
                self._begin(self.delete_old(loop))

    async def _store_due(self, loop: Loop) -> None:
        try:
            await self.store_snapshot(loop)
        except StoreError as error:
            self._lose(error)
        except Overloaded:  # later, then
            pass

    # Several servers

    async def _follow(self) -> None:
        """Take in what other servers did, and write what could not be written before."""
        self.leading = await asyncio.to_thread(self.store.leads)
        last = await asyncio.to_thread(self.store.last)
        if self._is_far(last):
            self._leap(last, await self.turns.in_background(self._newest_loops, last))
        after = self.position
        for logged in await asyncio.to_thread(lambda: list(self.store.read(after, until=last))):
            if logged.position > self.position:
                self._fold(logged)
        names = set(await asyncio.to_thread(self.store.loops))
        for gone in self.loops.keys() - names:
            del self.loops[gone]
        await asyncio.to_thread(self.keys.reload)
        if self.lost is not None:
            log.info("the store is back after %.0f s", self.clock() - self.lost)
            self.lost = None
        while self.unwritten:
            some = list(islice(self.unwritten, AT_ONCE))
            await self._append(some)
            for _ in some:
                self.unwritten.popleft()

    def _lose(self, error: StoreError) -> None:
        """Go on from what is known, where the store is that of several servers."""
        if self.store.shared and self.lost is None:
            self.lost = self.clock()
            log.error("the store is lost, deciding from event %d on: %s", self.position, error)

    @property
    def failing(self) -> bool:
        """Whether the store did not take what it was last given, or cannot be reached."""
        return self.journal.failed or self.lost is not None

    # Retention

    async def delete_old(self, loop: Loop) -> bool:
        """Delete events that are older than the loop keeps them; what was learned stays."""
        days = loop.settings.retention_days
        if days is None:
            return False
        name, before = loop.name, self.clock() - days * DAY
        async with self._guarded(name) as mine:
            # Which models have learned from the log must be known here, whoever was asked for them.
            if not (mine and await self._is_up_to_date(name)):
                return False
            old = await self.turns.in_background(self._condensed, name, before)
            done = old is not None and await asyncio.to_thread(self.store.condense, name, *old)
        if done:
            self.audit("server", "retention", loop.name, f"older than {days} days")
        return done

    @contextlib.asynccontextmanager
    async def _guarded(self, name: str) -> AsyncIterator[bool]:
        """Replace a loop, or what its log begins with, here and on no other server; see `Store`."""
        async with self._alone(name), self._guarding:
            mine = await asyncio.to_thread(self.store.guard, name)
            try:
                yield mine
            finally:
                if mine:
                    await asyncio.to_thread(self.store.release)

    def _alone(self, name: str) -> asyncio.Lock:
        """Return the lock of whoever makes, deletes or replaces a loop of this name."""
        return self._busy.setdefault(name, asyncio.Lock())

    async def _is_up_to_date(self, name: str) -> bool:
        """Whether a loop has folded all that is in the log now; waits a moment for that."""
        last = await asyncio.to_thread(self.store.last)
        for _ in range(PATIENCE):
            if self.position >= last:
                break
            await asyncio.sleep(TICK)
        return self.position >= last and name in self.loops and not self.loops[name].stale

    def _condensed(self, name: str, before: float) -> tuple[int, bytes, int] | None:
        """The event that can stand for those before a time: its position, itself, how many.

        The last of them at which a snapshot was taken: who begins with that, and who has come all
        the way, know the same to the last bit from there on.
        """
        loop, found = Loop(name, self._seed), None
        others = self._all_relearned(name)
        for count, logged in enumerate(self.store.read(0, name), start=1):
            event = events.decode(logged.body)
            if event.time > before:
                break
            self._take(loop, logged.position, event)
            others = {n: other for n, other in others.items() if n > logged.position}
            for other in others.values():
                other.fold(event)
            if isinstance(event, Compacted):
                states = {n: other.loop.hold().to_bytes() for n, other in others.items()}
                body = events.encode(Condensed(event.time, loop.hold().to_bytes(), states))
                found = logged.position, body, count
        return found

    def _all_relearned(self, name: str) -> dict[int, Relearning]:
        """For every event in the log that changed the model, one that is to learn again for it."""
        found = {}
        for position in self.loop(name).relearned:
            for logged in self.store.read(position - 1, name, position):  # unless it was deleted
                event = events.decode(logged.body)
                assert isinstance(event, Configured)
                found[position] = Relearning(name, event.settings, self._seed, position)
        return found

    # The audit trail

    def audit(self, who: str, action: str, loop: str | None, detail: str) -> None:
        """Write down an administrative call."""
        self.store.write_audit(AuditRecord(self.clock(), who, action, loop, detail[:2_000]))
