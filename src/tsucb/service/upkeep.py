"""What a service does without being asked: waits end, snapshots are taken, old events go."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import msgspec

from tsucb.service import events
from tsucb.service.errors import Conflict, Overloaded, StoreError
from tsucb.service.events import AnyEvent, Compacted, Condensed, Passed
from tsucb.service.keys import Keys
from tsucb.service.ledger import Ledger
from tsucb.service.loop import Loop
from tsucb.service.spool import MARK_SECONDS, Entry, merge_marks, unmarked
from tsucb.service.store import Erasure, Transaction, condense
from tsucb.service.tables import AuditRecord

log = logging.getLogger("tsucb.service")

# A snapshot is due after this many events of a loop; or after this many seconds, if there were any.
SNAPSHOT_EVENTS, SNAPSHOT_SECONDS = 50_000, 60.0
SOME_EVENTS, SNAPSHOT_HOURS = 500, 3_600.0  # where there were fewer, after this many seconds
AT_LEAST, PARTS = 200, 20  # loops that a look goes through; of more, this part
TICK = 0.25  # seconds between looks at what is due
AT_ONCE = 500  # decisions made without the store that are written together
CLEANING_SECONDS = 3_600.0  # between looks for what is too old
DAY = 86_400.0
MOST_CHECKED = 200_000  # events that are checked before requests are taken; more, meanwhile
SKEW = 5.0  # seconds that the clock of the machine may differ before somebody should look at it


class Upkeep:
    """Keeps a ledger, and keys that other servers may change: looks four times a second.

    The disk with the folder is watched, if there is one.
    """

    def __init__(self, ledger: Ledger, keys: Keys, folder: str | None) -> None:
        self.ledger, self.keys, self.folder = ledger, keys, folder
        self.store, self.clock, self.turns = ledger.store, ledger.clock, ledger.turns
        self.started = self.clock()
        self.lost: float | None = None  # since when a shared store cannot be reached
        self.lag = 0  # events of the log that are not folded yet
        self.ticking: asyncio.Future[Any] | None = None
        self._looking = asyncio.Lock()  # one looks at what is due at a time
        # Who leads is settled in a thread of its own: all others may wait for a slow database.
        self._leading = ThreadPoolExecutor(1, "lead")
        self._next = 0  # the next loop to look at
        self.cleaned = 0.0  # when what is too old was last deleted

    # Life

    async def start(self) -> None:
        """Read all loops from the store, and begin to take requests."""
        ledger, store = self.ledger, self.store
        ledger.leading, time = await asyncio.to_thread(store.lead, self.clock())
        if time is not None:  # all servers go by the time of the leader
            self.clock.begin(time)
        large = await asyncio.to_thread(store.last) > MOST_CHECKED
        if not large:
            damaged = await asyncio.to_thread(lambda: list(islice(store.damage(), 10)))
            if damaged:
                raise StoreError(
                    f"the log is damaged: {'; '.join(damaged)}. Restore a backup, or set aside "
                    "what is damaged with tsucb serve --repair"
                )
        await ledger.start()
        await asyncio.to_thread(self.keys.reload)
        self.clock.begin(max([self.clock(), *(loop.now for loop in ledger.loops.values())]))
        if large:
            self.turns.begin(self._check())
        repeating = self._repeat(self.lead), self._repeat(self.look)
        self.ticking = asyncio.gather(*repeating)

    async def _check(self) -> None:
        """Look through a log that is too large to be checked before the start."""
        for sentence in await asyncio.to_thread(lambda: list(self.store.damage())):
            log.error("%s; see tsucb serve --check", sentence)
            self.ledger.alerts[sentence] = sentence

    async def stop(self) -> None:
        """Finish what was begun, and leave a snapshot of every loop that has changed."""
        ledger, spool = self.ledger, self.ledger.spool
        if self.ticking is not None:
            self.ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.ticking
        with contextlib.suppress(StoreError, Overloaded):
            await self._write_spool()
        await self.turns.cancel()
        for loop in list(ledger.loops.values()) if ledger.leading else ():
            if loop.folded != loop.saved[0]:
                with contextlib.suppress(StoreError, Overloaded, LookupError):
                    await ledger.store_snapshot(loop)
        await ledger.stop()
        await asyncio.get_running_loop().run_in_executor(self._leading, self.store.resign)
        self._leading.shutdown()
        await self.turns.finish()
        if len(spool):
            log.warning(
                "%d decisions could not be written to the store: they are in %s, and will be "
                "written when this server starts again", len(spool), spool.path
            )  # fmt: skip

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                await work()
            except StoreError as error:  # the next look may find the store well again
                self.lose(error)
            except (Overloaded, Conflict):  # the next look may have more luck
                pass
            except Exception:
                log.exception("looking at what is due failed")

    async def tick(self) -> None:
        """Do once what is done four times a second."""
        await self.lead()
        await self.look()

    async def lead(self) -> None:
        """Renew the lease of the leader, or take one that ran out; go by the leader's time."""
        ledger, time = self.ledger, None
        if self.store.shared:
            running = asyncio.get_running_loop()
            work = running.run_in_executor(self._leading, self.store.lead, self.clock())
            try:
                ledger.leading, time = await work
            except StoreError:
                ledger.leading = False  # without the database there is nothing to lead
                raise
        following = time is not None and not ledger.leading
        still = not any(
            loop.open_decisions for loop in ledger.loops.values()
        )  # no wait would end early
        self.clock.follow(time if following else None, forward=still or following)
        self.watch_clock()

    async def look(self) -> None:
        """Write that time passed where a wait has ended; begin what else is due."""
        async with self._looking:
            if self.store.shared or self.ledger.failed:
                await self._follow()
            if self.ledger.leading:
                await self._do_due(list(self.ledger.loops.values()), self.clock())

    async def _do_due(self, loops: list[Loop], now: float) -> None:
        due = [x.number for x in loops if x.due <= now and not self.turns.left[x.number]]
        if due:
            await self.ledger.write([(number, Passed(now)) for number in due])
        some = max(AT_LEAST, len(loops) // PARTS)
        for loop in loops[self._next : self._next + some]:
            self._look_at(loop, now)
        self._next = self._next + some if self._next + some < len(loops) else 0
        if now - self.cleaned >= CLEANING_SECONDS:
            self.cleaned = now
            self.turns.begin(self._clean())

    def _look_at(self, loop: Loop, now: float) -> None:
        """Begin to take a snapshot that is due."""
        if not loop.saved[1]:  # it was just made from the log
            loop.saved = loop.folded, now
        folded, when = loop.saved
        news = loop.folded - folded
        pause = SNAPSHOT_SECONDS if news >= SOME_EVENTS else SNAPSHOT_HOURS
        is_due = news >= SNAPSHOT_EVENTS or (news and now - when >= pause)
        if is_due and not self.ledger.saving.locked():
            self.turns.begin(self.ledger.store_snapshot(loop))

    def watch_clock(self) -> None:
        skew = self.clock.skew
        if abs(skew) > SKEW:
            self.ledger.alerts["clock"] = f"the clock of this machine is {skew:+.0f} s off"
        else:
            self.ledger.alerts.pop("clock", None)

    # Several servers

    async def _follow(self) -> None:
        """Take in what other servers did, and write what could not be written before."""
        ledger, store = self.ledger, self.store
        self.lag = await asyncio.to_thread(store.last) - ledger.position
        await ledger.catch_up()
        known = dict(ledger.loops)
        numbers = await asyncio.to_thread(store.loops)
        for name, loop in known.items():
            if numbers.get(name) != loop.number and ledger.loops.get(name) is loop:
                ledger.remove(name)
        await asyncio.to_thread(self.keys.reload)
        if self.lost is not None:
            log.info("the store is back after %.0f s", self.clock() - self.lost)
            self.lost = None
        await self._write_spool()

    async def _write_spool(self) -> None:
        """Write the decisions that were made without the store."""
        spool = self.ledger.spool
        if not len(spool):
            return
        entries = spool.entries()
        # A statement that was given up could still write them, too.
        await asyncio.to_thread(self.store.settle)
        for first in range(0, len(entries), AT_ONCE):
            some = entries[first : first + AT_ONCE]
            if missing := await asyncio.to_thread(self.missing, some):
                await self.ledger.write(missing, Transaction(keep=unmarked))
            await asyncio.to_thread(spool.remove, some)

    def missing(self, entries: list[Entry]) -> list[tuple[int, AnyEvent]]:
        """Return the decisions that the log does not have; blocks.

        Where another server decided for a repeat of the request, both decisions were acknowledged:
        this one is written without the key, which is the other's.
        """
        found: list[tuple[int, AnyEvent]] = []
        ids = self.store.having("subject", [event.id for _, event in entries])
        keys = self.store.having("key", [f"d{event.key}" for _, event in entries])
        for number, event in entries:
            if (number, event.id) in ids:
                continue
            if (number, f"d{event.key}") in keys:
                event = msgspec.structs.replace(event, key=None)
            found.append((number, event))
        return found

    def lose(self, error: StoreError) -> None:
        """Go on from what is known, where the store is that of several servers."""
        if self.store.shared and self.lost is None:
            self.lost, position = self.clock(), self.ledger.position
            log.error("the store is lost, deciding from event %d on: %s", position, error)

    @property
    def disk_free(self) -> float:
        """The share of this server's disk that is free; 1 if there is no folder."""
        if self.folder is None:
            return 1.0
        usage = shutil.disk_usage(self.folder)
        return usage.free / usage.total

    @property
    def failing(self) -> bool:
        """Whether the store did not take what it was last given, or cannot be reached."""
        return self.ledger.failed or self.lost is not None

    # Retention

    async def _clean(self) -> None:
        """Delete what is too old, and what no reader sees any more."""
        for loop in list(self.ledger.loops.values()):
            with contextlib.suppress(Conflict, Overloaded):  # then an hour later
                await self.delete_old(loop)
            if self.store.shared:
                before = self.clock() - MARK_SECONDS
                await asyncio.to_thread(merge_marks, self.store, loop.number, before)
        await asyncio.to_thread(self.store.tidy, self.clock())

    async def delete_old(self, loop: Loop) -> bool:
        """Delete events that are older than the loop keeps them; what was learned stays."""
        days = loop.settings.retention_days
        if days is None:
            return False
        before = self.clock() - days * DAY
        async with self.ledger.busy[loop.number]:
            # Which models have learned from the log must be known here, whoever was asked for them.
            await self.ledger.catch_up()
            now = self.ledger.loops.get(loop.name)
            if now is None or self.ledger.is_outdated(now):
                return False
            known = self.ledger.position
            found = await self.turns.at_length("made", self.condensed, loop, before, known)
            if found is None:
                return False
            detail = f"older than {days} days"
            audit = AuditRecord(self.clock(), "server", "retention", loop.name, detail)
            erasure = Erasure(condense, loop.number, (*found, known))
            await self.ledger.write([], Transaction(records=[audit], erasure=erasure))
        return True

    def condensed(self, old: Loop, before: float, known: int) -> tuple[int, bytes, int] | None:
        """Return the event that can stand for those before a time: its position, itself, how many.

        The last of them at which a snapshot was taken: who begins with that, and who has come all
        the way, know the same to the last bit from there on.
        """
        found = None
        for count, row in enumerate(self.store.read(0, old.number), start=1):
            event = events.decode(row.body)
            if event.time > before:
                break
            if isinstance(event, Compacted):
                found = row.position, event.time, count
        if found is None:
            return None
        (position, time, count), loop = found, Loop(old.name, old.number)
        self.ledger.replay.read_on(loop, position, known)
        return position, events.encode(Condensed(time, loop.hold().to_bytes())), count
