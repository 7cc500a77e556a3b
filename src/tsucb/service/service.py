"""All loops of a process, and what can be asked of them, whatever the protocol."""

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tsucb.agent import Agent
from tsucb.service import events
from tsucb.service.events import (
    Activated,
    AnyEvent,
    ArmsChanged,
    Compacted,
    Condensed,
    Configured,
    Decided,
    Features,
    Forgot,
    Imported,
    Passed,
    Pick,
    Reset,
    Rewarded,
)
from tsucb.service.journal import Journal, Overloaded
from tsucb.service.keys import ROLES, Keys
from tsucb.service.loop import REPEATED, TAKEN, Loop, Relearning, model_name
from tsucb.service.settings import LoopSettings, changed
from tsucb.service.store import AuditRecord, Logged, Row, Snapshot, Store, StoreError

log = logging.getLogger("tsucb.service")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST_ID = 256  # characters of an id, or of an arm's name
SNAPSHOT_EVENTS, SNAPSHOT_SECONDS = 50_000, 60.0
TICK = 0.25  # seconds between looks at what is due
MOST_UNWRITTEN = 10_000  # decisions that are kept until the database is back
AT_ONCE = 500  # of those that are then written together
FAR = 20_000  # events behind the log, from which on a newer snapshot is looked for
NEAR = 1_000  # events that are folded while requests wait
RETENTION_SECONDS = 3_600.0  # between looks for what is too old
DAY = 86_400.0


class NotFound(LookupError):
    """There is no such loop, or decision."""


class Conflict(ValueError):
    """It is there already."""


class Wanted(NamedTuple):
    """A slot to be filled: its name, its features, and which arms it must not have."""

    name: str = ""
    features: Features | None = None
    excluded: Sequence[str] = ()
    baseline: str | None = None


ONE = (Wanted(),)


class Service:
    """Loops over a store; to be used in one event loop.

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

    `start` reads what the store has; `stop` leaves snapshots.
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
        self.keys = Keys(store)
        self.position = 0  # of the last event that was folded
        self.started = clock()
        self.ready = False
        self._snapshots: dict[str, tuple[int, float]] = {}  # positions and times of the last ones
        self._taken: dict[str, Snapshot] = {}  # and not yet stored
        self._ticking: asyncio.Task[None] | None = None
        self.leading = False  # whether this process writes snapshots and that time passed
        self.unwritten: deque[tuple[str, Decided]] = deque()  # decisions made without the store
        self._random: list[str] = []
        self.lost: float | None = None  # since when a shared store cannot be reached
        self._working: set[asyncio.Task[Any]] = set()
        self._deleting: set[str] = set()  # loops whose events this process deletes
        self._prepared: dict[str, Relearning] = {}  # for changes of models on their way to the log
        self._looked: dict[str, float] = {}  # when a loop was looked through for what is too old
        self._busy = asyncio.Lock()  # whoever replaces a whole loop

    # Life

    async def start(self) -> None:
        """Read all loops from the store, and begin to take requests."""
        self.position = self.store.last()
        for name in self.store.loops():
            self.loops[name] = self.replayed(name)
            self.loops[name].settings.warm()
        self.journal = Journal(self.store, self._committed, self._most_waiting)
        self.leading = self.store.leads()
        self._ticking = asyncio.create_task(self._tick())
        self.ready = True

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
        now = self.clock()
        if self.store.shared:
            await self._follow()
        if not self.leading:
            return
        due = [loop.name for loop in self.loops.values() if loop.due <= now]
        if due:
            await self._append([(name, Passed(now)) for name in due])
        for loop in list(self.loops.values()):
            position, when = self._snapshots.get(loop.name, (loop.position, now))
            self._snapshots.setdefault(loop.name, (position, when))
            news = loop.position - position
            if news >= SNAPSHOT_EVENTS or (news and now - when >= SNAPSHOT_SECONDS):
                await self.store_snapshot(loop)
            if now - self._looked.get(loop.name, 0.0) >= RETENTION_SECONDS:
                self._looked[loop.name] = now
                self._begin(self.delete_old(loop))

    async def _follow(self) -> None:
        """Take in what other servers did, and write what could not be written before."""
        self.leading = await asyncio.to_thread(self.store.leads)
        last = await asyncio.to_thread(self.store.last)
        if last - self.position > FAR:
            self._leap(last, await asyncio.to_thread(self._newest_loops, last))
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

    def _newest_loops(self, until: int) -> list[Loop]:
        """All loops from their newest snapshots, which are nearer than where they are here."""
        return [self.replayed(name, until=until) for name in self.store.loops()]

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

    async def store_snapshot(self, loop: Loop) -> None:
        """Keep what a loop knows now, so that a start need not read the whole log."""
        if loop.stale:
            return
        await self._append_one(loop, Compacted(self.clock()))
        snapshot = self._taken.pop(loop.name, None)
        if snapshot is None:  # another of the same loop was quicker, or this process leads no more
            return
        self._snapshots[loop.name] = snapshot.position, self.clock()
        await asyncio.to_thread(self.store.save_snapshot, loop.name, snapshot)

    # The log

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

    def _committed(self, rows: Sequence[Row], first: int) -> list[str]:
        """Fold events that are durable now."""
        if first != self.position + 1:
            self._catch_up(first - 1)
        found = []
        for position, row in enumerate(rows, start=first):
            found.append(self._fold(Logged(position, row.loop, row.body)))
        return found

    def _catch_up(self, until: int) -> None:
        """Fold what others wrote, or what was written although it was said to have failed."""
        if until - self.position > FAR and self.store.shared:
            self._leap(until, self._newest_loops(until))
        for logged in self.store.read(self.position, until=until):
            self._fold(logged)

    def _fold(self, logged: Logged) -> str:
        self.position = logged.position
        loop = self.loops.get(logged.loop)
        if loop is not None and loop.position >= logged.position:
            return TAKEN
        event = events.decode(logged.body)
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
        found = self._take(loop, logged.position, event, relearning)
        if isinstance(event, Compacted) and self.leading and not loop.stale:
            # Now, and not when whoever asked for it is awake again and more has happened.
            self._taken[loop.name] = Snapshot(loop.position, loop.snapshot())
        return found

    def _begin_rebuild(self, loop: Loop) -> None:
        """Have a loop made from the log; this one goes on as it is meanwhile."""
        loop.stale = True
        self._begin(self._rebuild(loop.name))

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have something done in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work in the background failed: %s", error, exc_info=error)

    # Loops

    def loop(self, name: str) -> Loop:
        """The loop of a name."""
        if name not in self.loops:
            raise NotFound(f"there is no loop {name!r}")
        return self.loops[name]

    async def create(
        self, name: str, settings: LoopSettings, arms: Sequence[str] = (), who: str = "server"
    ) -> dict[str, str]:
        """Make a loop, and return its keys by their roles: they are not shown again."""
        if not NAME.fullmatch(name):
            raise ValueError(
                "the name of a loop has up to 64 letters, digits, dots, dashes and underscores, "
                f"the first a letter or digit; {name[:80]!r} does not"
            )
        check_arms(arms)
        await asyncio.to_thread(settings.warm)
        async with self._busy:
            if name in self.loops:
                raise Conflict(f"there is a loop {name!r} already")
            await asyncio.to_thread(self.store.add_loop, name)
            loop = Loop(name, self._seed)
            loop.position = self.position
            self.loops[name] = loop
            now = self.clock()
            pairs: list[tuple[str, AnyEvent]] = [(name, Configured(now, settings))]
            if arms:
                pairs.append((name, ArmsChanged(now, add=list(arms))))
            await self._append(pairs)
            keys = {role: self.keys.issue(name, role, now) for role in ROLES}
        self.audit(who, "create", name, msgspec.json.encode(settings).decode())
        return keys

    async def delete(self, name: str, who: str) -> None:
        """Delete a loop with everything that was ever written about it."""
        self.loop(name)
        async with self._busy:
            del self.loops[name]
            await asyncio.to_thread(self.store.remove_loop, name)
            self.keys.drop(name)
        self.audit(who, "delete", name, "")

    async def configure(
        self, loop: Loop, changes: dict[str, Any], who: str, relearn: bool = True
    ) -> LoopSettings:
        """Change some settings of a loop.

        Another model learns from the log first, in the background, and takes over when it knows all
        that the log holds; or with `relearn` False it begins anew.
        """
        try:
            settings = changed(loop.settings, changes)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None
        await asyncio.to_thread(settings.warm)
        if relearn and loop.agent is not None and not settings.learns_like(loop.settings):
            async with self._busy:
                relearning = Relearning(loop.name, settings, self._seed)
                await asyncio.to_thread(self._nearly_relearned, relearning)
                self._prepared[loop.name] = relearning
                try:
                    event = Configured(self.clock(), settings, relearn=True)
                    await self._append_one(loop, event)
                finally:
                    self._prepared.pop(loop.name, None)
            await self.store_snapshot(self.loop(loop.name))  # nobody should have to do that again
        else:
            await self._append_one(loop, Configured(self.clock(), settings))
        self.audit(who, "configure", loop.name, msgspec.json.encode(changes).decode())
        return settings

    def _nearly_relearned(self, relearning: Relearning) -> None:
        """Learn from the log until few events are left; blocks."""
        while (last := self.store.last()) - relearning.loop.position > NEAR:
            self._relearned(relearning, last)
            relearning.loop.position = last

    async def change_arms(
        self, loop: Loop, add: Sequence[str], remove: Sequence[str], who: str
    ) -> None:
        """Add arms to a loop, and remove some."""
        check_arms(add)
        for arm in remove:
            if arm not in loop.arms:
                raise NotFound(f"there is no arm {arm!r}")
        self._check_room(loop, loop.unknown(add))
        event = ArmsChanged(self.clock(), add=list(add), remove=list(remove))
        await self._append_one(loop, event)
        detail = msgspec.json.encode({"add": list(add), "remove": list(remove)}).decode()
        self.audit(who, "arms", loop.name, detail)

    def _check_room(self, loop: Loop, new: Sequence[str]) -> None:
        most = loop.settings.most_arms
        if len(loop.arms) + len(new) > most:
            raise ValueError(
                f"the loop knows {len(loop.arms):,} arms and takes at most {most:,}; remove some, "
                "or raise most_arms"
            )

    async def reset(self, loop: Loop, who: str) -> None:
        """Forget what a loop has learned."""
        await self._append_one(loop, Reset(self.clock()))
        self.audit(who, "reset", loop.name, "")

    async def import_model(self, loop: Loop, data: bytes, who: str) -> None:
        """Let what another agent learned take the place of what a loop learned."""
        agent = Agent.from_bytes(data)
        theirs = model_name(agent)
        if theirs != loop.settings.model:
            raise ValueError(f"it is a {theirs}, and the loop has a {loop.settings.model}")
        if len(agent.arms) > loop.settings.most_arms:
            raise ValueError(f"it has {len(agent.arms):,} arms, more than the loop takes")
        await self._append_one(loop, Imported(self.clock(), data))
        self.audit(who, "import", loop.name, "")

    # Decisions

    async def decide(
        self,
        loop: Loop,
        context: Features | None,
        arms: Sequence[str] | None = None,
        *,
        arm_features: dict[str, Features] | None = None,
        excluded: Sequence[str] = (),
        slots: Sequence[Wanted] = ONE,
        id: str | None = None,
        deferred: bool = False,
        key: str | None = None,
        person: str | None = None,
        ranked: bool = False,
    ) -> Decided:
        """Decide, and return once the decision is durable.

        A repeat, by its id or by the key of its request, gets the decision that was made before.
        """
        if id is not None and (not id or len(id) > LONGEST_ID):
            raise ValueError(f"an id has 1 to {LONGEST_ID} characters")
        if (made := self._made_before(loop, id, key)) is not None:
            return await self.decision(loop, made)
        if (unwritten := self._unwritten(loop, id, key)) is not None:
            return unwritten
        if loop.full:
            raise Overloaded(int(min(max(loop.due - self.clock(), 1), 60)))
        offered = list(loop.arms) if arms is None else list(arms)
        if arms is not None:
            check_arms(offered)
            new = loop.unknown(offered)
            if new:
                self._check_room(loop, new)
                await self._append_one(loop, ArmsChanged(self.clock(), add=new))
        if is_list(loop, slots) and not loop.settings.is_warm(lists=True):
            await asyncio.to_thread(loop.settings.warm, lists=True)
        picks = fill(loop, context, offered, set(excluded), slots, arm_features)
        if id is None:
            id = self._new_id()
        ranking = ranked_arms(offered, picks[0]) if ranked else None
        rule = loop.rule
        event = Decided(
            self.clock(), id, context, picks, rule.name, rule.target_name, deferred, key, person,
            arm_features, ranking,
        )  # fmt: skip
        try:
            found = await self._append_one(loop, event)
        except StoreError as error:
            self._lose(error)
            if not self.store.shared or len(self.unwritten) >= MOST_UNWRITTEN:
                raise
            # Without the database of all servers one goes on deciding from what it knows.
            self.unwritten.append((loop.name, event))
            return event
        if found == REPEATED:
            return await self.decision(loop, self._made_before(loop, id, key) or id)
        return event

    def _new_id(self) -> str:
        """The time, then 52 random bits: new ids are neighbours in the index of a long log."""
        if not self._random:  # from the system by the thousand, as each call to it costs
            many = secrets.token_hex(13 * 500)
            self._random = [many[i : i + 13] for i in range(0, len(many), 13)]
        return f"{int(self.clock() * 1e3) % 2**44:011x}{self._random.pop()}"

    def _made_before(self, loop: Loop, id: str | None, key: str | None) -> str | None:
        """The id of the decision that waits already by this id, or for a request of this key."""
        made = loop.by_key.get(key, id) if key is not None else id
        waiting = loop.waiting.get(made) if made is not None else None
        return None if waiting is None or waiting.deadline <= self.clock() else made

    def _unwritten(self, loop: Loop, id: str | None, key: str | None = None) -> Decided | None:
        """A decision that is not in the log yet, by its id or the key of its request."""
        for name, event in self.unwritten:
            if name == loop.name and (event.id == id or (key is not None and event.key == key)):
                return event
        return None

    async def reward(
        self, loop: Loop, id: str, value: float, *, slot: str = "", key: str | None = None
    ) -> str:
        """Take a reward, and return once it is durable: what became of it."""
        return (await self.rewards(loop, id, [(slot, value)], key=key))[0]

    async def rewards(
        self, loop: Loop, id: str, values: Sequence[tuple[str, float]], *, key: str | None = None
    ) -> list[str]:
        """The same for several slots."""
        for _, value in values:
            check_reward(loop, value)
        waiting = loop.waiting.get(id)
        if waiting is None:
            if self._unwritten(loop, id) is not None:
                raise StoreError(f"decision {id!r} is not written yet; try again later")
            history = await self.history(loop, id)
            before = {(e.key, e.slot) for e in history if isinstance(e, Rewarded)}
            if key is not None and all((key, slot) in before for slot, _ in values):
                return [REPEATED] * len(values)
            slots = {pick.slot for pick in first_decision(history, id).picks}
        else:
            slots = {slot.name for slot in waiting.slots}
        for slot, _ in values:
            if slot not in slots:
                what = f"has no slot {slot!r}" if slot else "needs the name of a slot"
                raise ValueError(f"a reward for decision {id!r} {what}")
        now = self.clock()
        return await self._append(
            [(loop.name, Rewarded(now, id, float(value), slot, key)) for slot, value in values]
        )

    async def activate(self, loop: Loop, id: str) -> str:
        """Put a deferred decision to use."""
        if id not in loop.waiting:
            await self.decision(loop, id)
        return await self._append_one(loop, Activated(self.clock(), id))

    async def decision(self, loop: Loop, id: str) -> Decided:
        """A decision that was made before, from the log."""
        return first_decision(await self.history(loop, id), id)

    async def history(self, loop: Loop, id: str) -> list[AnyEvent]:
        """Everything that happened to a decision."""
        found = await asyncio.to_thread(self.store.about, loop.name, id)
        return [events.decode(logged.body) for logged in found]

    def newest(self, loop: Loop, count: int) -> Iterator[AnyEvent]:
        """The last events about decisions of a loop, in order; blocks."""
        return (events.decode(logged.body) for logged in self.store.newest(loop.name, count))

    # Deletion

    async def forget(
        self, loop: Loop, ids: Sequence[str] = (), person: str | None = None, who: str = "server"
    ) -> int:
        """Delete decisions with all that was learned from them, and say how many events went."""
        async with self._deleting_from(loop.name):
            deleted = await asyncio.to_thread(self.store.forget, loop.name, ids, person)
            if deleted:
                loop.stale = True  # until it is made anew
                await self._append_one(loop, Forgot(self.clock()))
                await self._rebuild(loop.name)
        # Who was forgotten is not written down.
        self.audit(who, "forget", loop.name, f"{deleted} events")
        return deleted

    @contextlib.asynccontextmanager
    async def _deleting_from(self, name: str) -> AsyncIterator[None]:
        """Only one at a time; and whoever does it sees to the loop, not the fold of `Forgot`."""
        async with self._busy:
            self._deleting.add(name)
            try:
                yield
            finally:
                self._deleting.discard(name)

    async def clear(self, loop: Loop, who: str) -> None:
        """Delete the log of a loop; its settings and what it learned stay."""
        async with self._deleting_from(loop.name):
            settings, agent = loop.settings, loop.agent
            await asyncio.to_thread(self.store.clear, loop.name)
            fresh = Loop(loop.name, self._seed)
            fresh.position = loop.position
            self.loops[loop.name] = fresh
            now = self.clock()
            pairs: list[tuple[str, AnyEvent]] = [
                (loop.name, Forgot(now)),
                (loop.name, Configured(now, settings)),
            ]
            if agent is not None:
                pairs.append((loop.name, Imported(now, agent.to_bytes())))
            await self._append(pairs)
        self.audit(who, "clear", loop.name, "")

    async def _rebuild(self, name: str) -> None:
        """Replace a loop by what the log makes of it; the old one decides meanwhile."""
        while True:
            try:
                loop = await asyncio.to_thread(self.replayed, name)
                self._replace(loop)
                break
            except StoreError:
                await asyncio.sleep(TICK)
        if self.leading:
            await self.store_snapshot(loop)

    async def delete_old(self, loop: Loop) -> bool:
        """Delete events that are older than the loop keeps them; what was learned stays."""
        days = loop.settings.retention_days
        if days is None:
            return False
        async with self._busy:
            old = await asyncio.to_thread(self._condensed, loop.name, self.clock() - days * DAY)
            done = old is not None and await asyncio.to_thread(self.store.condense, loop.name, *old)
        if done:
            self.audit("server", "retention", loop.name, f"older than {days} days")
        return done

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
                states = {n: other.loop.snapshot() for n, other in others.items()}
                body = events.encode(Condensed(event.time, loop.snapshot(), states))
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


def prepared(relearning: Relearning | None, event: Configured) -> bool:
    """Whether this process has learned for a change of the model; else it was asked elsewhere."""
    return relearning is not None and relearning.settings == event.settings


def first_decision(history: Sequence[AnyEvent], id: str) -> Decided:
    """The decision that a history begins with."""
    for event in history:
        if isinstance(event, Decided):
            return event
    raise NotFound(f"there is no decision {id!r}")


def fill(
    loop: Loop,
    context: Features | None,
    offered: list[str],
    excluded: set[str],
    slots: Sequence[Wanted],
    arm_features: dict[str, Features] | None,
) -> list[Pick]:
    """An arm for every slot, none twice.

    Slots that are all alike are one list of the agent's. Those with features, exclusions or a
    baseline of their own are filled one after the other, by the same rule: each from what is left.
    """
    if is_list(loop, slots):
        left = [arm for arm in offered if arm not in excluded]
        if len(left) < len(slots):
            raise ValueError(
                f"there is no arm to choose for slot {slots[len(left)].name!r}; offer at least one"
            )
        return loop.propose_list(context, left, [slot.name for slot in slots], arm_features)
    picks: list[Pick] = []
    for slot in slots:
        taken = excluded.union(slot.excluded, (pick.arm for pick in picks))
        arms = [arm for arm in offered if arm not in taken]
        if not arms:
            where = f" for slot {slot.name!r}" if slot.name else ""
            raise ValueError(f"there is no arm to choose{where}; offer at least one")
        baseline = slot.baseline if slot.baseline in arms else None
        picks.append(
            loop.propose(
                context,
                arms,
                slot=slot.name,
                features=slot.features,
                baseline=baseline,
                arm_features=arm_features,
            )
        )
    return picks


def is_list(loop: Loop, slots: Sequence[Wanted]) -> bool:
    """Whether the slots are the places of one list, from which an arm may be left out."""
    plain = all(slot == Wanted(slot.name) for slot in slots)
    return plain and len(slots) > 1 and loop.settings.mode == "online"


def ranked_arms(offered: Sequence[str], pick: Pick) -> list[str]:
    """All arms: the chosen one first, then those it was chosen from; others keep their places."""
    import numpy as np

    means = np.frombuffer(pick.seen)[2 : 2 + len(pick.arms)]
    order = sorted(range(len(pick.arms)), key=lambda i: (pick.arms[i] != pick.arm, -means[i]))
    ranked = iter([pick.arms[i] for i in order])
    chosen_from = set(pick.arms)
    return [next(ranked) if arm in chosen_from else arm for arm in offered]


def check_arms(arms: Sequence[str]) -> None:
    """Complain about names that arms cannot have."""
    for arm in arms:
        if not arm or len(arm) > LONGEST_ID:
            raise ValueError(f"the name of an arm has 1 to {LONGEST_ID} characters")
    if len(set(arms)) < len(arms):
        raise ValueError("an arm is listed twice; list each once")


def check_reward(loop: Loop, value: float) -> None:
    """Complain about a reward that the loop cannot take."""
    if loop.settings.reward_range is not None:
        low, high = loop.settings.reward_range
        if not low <= value <= high:
            raise ValueError(f"a reward is {low:g} to {high:g} here, not {value:g}")
    if loop.agent is not None:
        loop.agent.check_reward(value)
