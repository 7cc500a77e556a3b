"""What a service does without being asked: waits end, snapshots are taken, old events go."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from itertools import islice
from typing import Any

import msgspec

from tsucb.service import events
from tsucb.service.alerts import free_share
from tsucb.service.errors import Overloaded, StoreError
from tsucb.service.events import Compacted, Condensed, Configured, Decided, Passed
from tsucb.service.journal import Entry
from tsucb.service.keys import Keys
from tsucb.service.ledger import Ledger
from tsucb.service.loop import Loop
from tsucb.service.relearning import Relearning
from tsucb.service.store import AuditRecord, Change, Condense, Store

log = logging.getLogger("tsucb.service")

# A snapshot is due after this many events of a loop; after so many seconds, if there were some.
SNAPSHOT_EVENTS, SNAPSHOT_SECONDS = 50_000, 60.0
SOME_EVENTS, SNAPSHOT_HOURS = 500, 3_600.0  # where there were fewer, after this many seconds
AT_LEAST, PARTS = 200, 20  # loops that a look goes through; of more, this part
TICK = 0.25  # seconds between looks at what is due
PATIENCE = 20  # such looks, until what others wrote must be known here
AT_ONCE = 500  # decisions made without the store that are written together
RETENTION_SECONDS = 3_600.0  # between looks for what is too old
DAY = 86_400.0
MOST_CHECKED = 200_000  # events that are checked before requests are taken; more, meanwhile
SKEW = 5.0  # seconds that the clock of the machine may differ before somebody should look at it


class Upkeep(Ledger):
    """A ledger that keeps itself; see `Ledger` for the parameters."""

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__(store, **settings)
        self.keys = Keys(store)
        self.started = self.clock()
        self.ready = False
        self._ticking: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()  # one looks at what is due at a time
        self._looked: dict[int, float] = {}  # when a loop was looked through for what is too old
        self._swept, self._next = 0.0, 0  # the next loop to look at
        # Whoever replaces a whole loop, by its number; whoever makes a loop, by 0.
        self._busy: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    # Life

    async def start(self) -> None:
        """Read all loops from the store, and begin to take requests."""
        self.leading, time = await asyncio.to_thread(self.store.lead, self.clock())
        if time is not None:  # all servers go by the time of the leader
            self.clock.begin(time)
        large = await asyncio.to_thread(self.store.last) > MOST_CHECKED
        if not large:
            damaged = await asyncio.to_thread(lambda: list(islice(self.store.damage(), 10)))
            if damaged:
                raise StoreError(
                    f"the log is damaged: {'; '.join(damaged)}. Restore a backup, or set aside "
                    "what is damaged with tsucb serve --repair"
                )
        await self.turns.in_background(self.open)
        await asyncio.to_thread(self.keys.reload)
        self.clock.begin(max([self.clock(), *(loop.now for loop in self.loops.values())]))
        self.begin_writing()
        if large:
            self._begin(self._check())
        self._ticking = asyncio.create_task(self._tick())
        self.ready = True

    async def _check(self) -> None:
        """Look through a log that is too large to be checked before the start."""
        for sentence in await asyncio.to_thread(lambda: list(self.store.damage())):
            log.error("%s; see tsucb serve --check", sentence)
            self.alerts[sentence] = sentence

    async def stop(self) -> None:
        """Finish what was begun, and leave a snapshot of every loop that has changed."""
        self.ready = False
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        with contextlib.suppress(StoreError, Overloaded):
            await self._write_spool()
        for task in list(self._working):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for loop in list(self.loops.values()) if self.leading else ():
            if loop.folded != self._snapshots.get(loop.number, (0, 0.0))[0]:
                with contextlib.suppress(StoreError, Overloaded, LookupError):
                    await self.store_snapshot(loop)
        await self.journal.stop()
        await asyncio.to_thread(self.store.resign)
        await self.turns.finish()
        if len(self.unwritten):
            log.warning(
                "%d decisions could not be written to the store: they are in %s, and will be "
                "written when this server starts again", len(self.unwritten), self.unwritten.path
            )  # fmt: skip

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
        if self.store.shared or self.journal.failed:
            await self._follow()
        if not self.store.shared:
            self.clock.follow(None, forward=not any(x.waiting for x in self.loops.values()))
        self._watch_clock()
        now = self.clock()
        if not self.leading:
            return
        loops = list(self.loops.values())
        due = [x.number for x in loops if x.due <= now and not self.turns.waiting(x.number)]
        if due:
            await self._write(Change(), [(number, Passed(now)) for number in due])
        some = max(AT_LEAST, len(loops) // PARTS)
        for loop in loops[self._next : self._next + some]:
            self._look_at(loop, now)
        self._next = self._next + some if self._next + some < len(loops) else 0
        if now - self._swept >= RETENTION_SECONDS:
            self._swept = now
            await asyncio.to_thread(self.store.sweep)

    def _look_at(self, loop: Loop, now: float) -> None:
        """Begin to take a snapshot that is due, and to delete what is too old."""
        folded, when = self._snapshots.setdefault(loop.number, (loop.folded, now))
        news = loop.folded - folded
        pause = SNAPSHOT_SECONDS if news >= SOME_EVENTS else SNAPSHOT_HOURS
        is_due = news >= SNAPSHOT_EVENTS or (news and now - when >= pause)
        if is_due and not self._saving.locked():
            self._begin(self._store_due(loop))
        if now - self._looked.get(loop.number, 0.0) >= RETENTION_SECONDS:
            self._looked[loop.number] = now
            self._begin(self._delete_due(loop))

    async def _store_due(self, loop: Loop) -> None:
        try:
            await self.store_snapshot(loop)
        except StoreError as error:
            self._lose(error)
        except (Overloaded, LookupError):  # later, then; or the loop is gone
            pass

    async def _delete_due(self, loop: Loop) -> None:
        with contextlib.suppress(StoreError, ValueError, LookupError):  # the next look does it
            await self.delete_old(loop)

    def _watch_clock(self) -> None:
        skew = self.clock.skew
        if abs(skew) > SKEW:
            self.alerts["clock"] = f"the clock of this machine is {skew:+.0f} s off"
        else:
            self.alerts.pop("clock", None)

    # Several servers

    async def _follow(self) -> None:
        """Take in what other servers did, and write what could not be written before."""
        self.leading, time = await asyncio.to_thread(self.store.lead, self.clock())
        if time is not None and not self.leading:
            self.clock.follow(time, forward=True)
        elif time is not None:
            self.clock.follow(None, forward=not any(x.waiting for x in self.loops.values()))
        self.lag = await asyncio.to_thread(self.store.last) - self.position
        await self.journal.look()
        known = dict(self.loops)
        numbers = await asyncio.to_thread(self.store.loops)
        for name, loop in known.items():
            if numbers.get(name) != loop.number and self.loops.get(name) is loop:
                self._remove(name)
        await asyncio.to_thread(self.keys.reload)
        if self.lost is not None:
            log.info("the store is back after %.0f s", self.clock() - self.lost)
            self.lost = None
        await self._write_spool()

    async def _write_spool(self) -> None:
        """Write the decisions that were made without the store."""
        if not len(self.unwritten):
            return
        entries = self.unwritten.entries()
        missing = await self.turns.read(self._missing, entries)
        for first in range(0, len(missing), AT_ONCE):
            outcomes, _ = await self._write(Change(), missing[first : first + AT_ONCE])
            if any(outcome.kept is not None for outcome in outcomes):  # the store is lost again
                return
        await asyncio.to_thread(self.unwritten.remove, entries)

    def _missing(self, entries: list[Entry]) -> list[Entry]:
        """Return the decisions that the log does not have; blocks.

        Where another server decided for a repeat of the request, both decisions were acknowledged:
        this one is written without the key, which is the other's. If the client gave the id, it can
        only be rewarded as one decision: the one that is in the log stands.
        """
        found = []
        for number, event in entries:
            history = [events.decode(row.body) for row in self.store.about(number, event.id)]
            if event in history:
                continue
            if event.key is not None and self.store.keyed(number, f"d{event.key}") is not None:
                if any(isinstance(each, Decided) and each.key == event.key for each in history):
                    log.warning("another server decided %r, too; its decision stands", event.id)
                    continue
                event = msgspec.structs.replace(event, key=None)
            found.append((number, event))
        return found

    def _lose(self, error: StoreError) -> None:
        """Go on from what is known, where the store is that of several servers."""
        if self.store.shared and self.lost is None:
            self.lost = self.clock()
            log.error("the store is lost, deciding from event %d on: %s", self.position, error)

    @property
    def disk_free(self) -> float:
        """The share of this server's disk that is free."""
        return free_share(self.folder)

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
        before = self.clock() - days * DAY
        async with self._busy[loop.number]:
            # Which models have learned from the log must be known here, whoever was asked for them.
            if not await self._is_up_to_date(loop.number):
                return False
            known = self.position
            found = await self.turns.in_background(self._condensed, loop, before)
            if found is None:
                return False
            condense = Condense(loop.number, *found, known)
            detail = f"older than {days} days"
            audit = AuditRecord(self.clock(), "server", "retention", loop.name, detail)
            await self._write(Change(condense=condense, audit=[audit]))
        return True

    async def _is_up_to_date(self, number: int) -> bool:
        """Return whether a loop has folded all that is in the log now; waits a moment for that."""
        last = await asyncio.to_thread(self.store.last)
        for _ in range(PATIENCE):
            if self.position >= last:
                break
            await asyncio.sleep(TICK)
        loop = self._numbered.get(number)
        return self.position >= last and loop is not None and not loop.stale

    def _condensed(self, old: Loop, before: float) -> tuple[int, bytes, int] | None:
        """Return the event that can stand for those before a time: its position, itself, how many.

        The last of them at which a snapshot was taken: who begins with that, and who has come all
        the way, know the same to the last bit from there on.
        """
        loop, found = Loop(old.name, old.number, self._seed), None
        others = self._all_relearned(old)
        for count, logged in enumerate(self.store.read(0, old.number), start=1):
            event = events.decode(logged.body)
            if event.time > before:
                break
            self._take(loop, logged.position, event)
            others = {n: other for n, other in others.items() if n > logged.position}
            for other in others.values():
                other.fold(event, logged.position)
            if isinstance(event, Compacted):
                states = {n: other.loop.hold().to_bytes() for n, other in others.items()}
                body = events.encode(Condensed(event.time, loop.hold().to_bytes(), states))
                found = logged.position, body, count
        return found

    def _all_relearned(self, loop: Loop) -> dict[int, Relearning]:
        """For every event in the log that changed the model, one that is to learn again for it."""
        found = {}
        for position in loop.relearned:
            if (body := self.store.at(loop.number, position)) is not None:
                event = events.decode(body)
                assert isinstance(event, Configured)
                found[position] = Relearning(loop, event.settings, position)
        return found
