"""All loops of a process, and what can be asked of them, whatever the protocol."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from tsucb.agent.learner import Learner
from tsucb.service import events
from tsucb.service.errors import Conflict, NotFound, Overloaded, StoreError, TooLarge
from tsucb.service.events import AnyEvent, Decided, Features, Rewarded
from tsucb.service.keys import ADMINISTER, GRACE, GRANTS, ROLES, Keys
from tsucb.service.ledger import Ledger
from tsucb.service.loop import REPEATED, Loop
from tsucb.service.questions import ONE, Question, ranked_arms
from tsucb.service.replay import model_of
from tsucb.service.scheduling import SteadyClock
from tsucb.service.settings import LoopSettings, changed, loop_settings
from tsucb.service.spool import ALL, Spool, mark, marks
from tsucb.service.state import LoopCounts, Tally
from tsucb.service.store import Erasure, Row, Store, Transaction, condense, forget, remove
from tsucb.service.tables import AuditRecord, Deleted, Document, LoopRecord, Record
from tsucb.service.upkeep import Upkeep

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST_ID = 256  # characters of an id, or of an arm's name
NUL = "\0"  # which PostgreSQL has no place for
MOST_TURNS = 500  # calls that wait for the turn of a slow loop
FILE_ARMS = "file", "arms"  # the document with the arms that the file of settings named last


class Service:
    """Loops over a store; to be used in one event loop.

    `start` reads what the store has; `stop` leaves snapshots. `ledger` writes the log and folds it
    into the loops, `upkeep` does what is due. Administrative calls write everything they change in
    one transaction, with its record in the audit trail; `key` identifies the request, so that a
    repeat of it changes nothing.

    Parameters
    ----------
    store
        Where everything is kept.
    clock, steady
        Tell the time in seconds since 1970, and seconds that pass without jumps. If only a clock
        is given, it is taken for both.
    folder
        Where decisions are kept that are made while a shared store is away; None: nowhere.
    settings
        `seed` of random draws, None for an arbitrary one; `most_unwritten`: this many events may
        wait to be written, beyond it requests are refused; `compare`: whether every event that is
        folded is compared with what the log makes of it, for tests.
    """

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None, folder: str | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        if steady is None:
            steady = time.monotonic if clock is time.time else clock
        self.store, self.clock, self.keys = store, SteadyClock(clock, steady), Keys(store)
        self.spool = Spool(folder)
        self._issuing = asyncio.Lock()  # keys, one after the other
        self.serving = False  # whether requests would have to wait for this process
        self.ledger = ledger = Ledger(store, self.clock, self.spool, **settings)
        self.upkeep = Upkeep(ledger, self.keys, folder)
        self.start, self.stop = self.upkeep.start, self.upkeep.stop
        self.loops, self.alerts, self.turns = ledger.loops, ledger.alerts, ledger.turns
        self.loop, self.look, self.replayed = ledger.loop, ledger.look, ledger.replay.replayed

    # Loops

    async def create(
        self, name: str, settings: LoopSettings, arms: Sequence[str] = (), who: str = "server",
        key: str | None = None,
    ) -> dict[str, str]:  # fmt: skip
        """Make a loop, and return its keys by their roles: they are not shown again."""
        keys, records, pairs = await self._creation(name, settings, arms, who, key)
        async with self.ledger.busy[0]:
            if await self._is_repeat("create", name, key):  # whose keys were lost with the answer
                loop = self.loop(name)
                return {role: await self.issue_key(loop, role, who, grace=0.0) for role in ROLES}
            if name in self.loops:
                raise Conflict(f"there is a loop {name!r} already")
            await self.ledger.write(pairs, Transaction(records=records))
            self.keys.take(records)
        return keys

    async def _creation(
        self, name: str, settings: LoopSettings, arms: Sequence[str], who: str,
        key: str | None = None,
    ) -> tuple[dict[str, str], list[Record], list[tuple[int, AnyEvent]]]:  # fmt: skip
        """Return the keys of a new loop, and the records and events to be written for it."""
        check_loop(name)
        check_arms(arms)
        await self._warm(settings)
        loop, now = LoopRecord(secrets.randbits(62), name), self.clock()
        detail = msgspec.json.encode(settings).decode()
        audit = AuditRecord(now, who, "create", name, detail, scoped("create", name, key))
        happened: list[AnyEvent] = [events.Configured(now, settings, name=name)]
        if arms:
            happened.append(events.ArmsChanged(now, add=list(arms)))
        keys, issued = self.keys.issue(loop.number, name, ROLES, now)
        return keys, [loop, audit, *issued], [(loop.number, event) for event in happened]

    async def _warm(self, settings: LoopSettings, lists: bool = False) -> None:
        """Compile what requests to a loop with these settings need."""
        if not settings.is_warm(lists):
            await self.turns.in_background(settings.warm, lists, self.serving)

    async def prepare(
        self, wanted: dict[str, dict[str, Any]], keep: Callable[[dict[str, Any]], None]
    ) -> None:
        """Make the loops that a file of settings names, and bring others to these settings.

        On the first start the server gets its key. `keep` is called with all new keys, by the names
        of loops, before they are valid: should anything fail between, they are made again.
        """
        new, records, pairs = dict[str, Any](), list[Record](), list[tuple[int, AnyEvent]]()
        if self.keys.newest(None, ADMINISTER) is None:
            keys, issued = self.keys.issue(0, None, [ADMINISTER], self.clock())
            records += issued
            new["server"] = keys[ADMINISTER]
        for name, given in wanted.items():
            if name not in self.loops:
                settings, arms = loop_settings(LoopSettings(), given)
                new[name], made, happened = await self._creation(name, settings, arms, "file")
                records += [*made, file_arms(happened[0][0], arms)]
                pairs += happened
        if new:
            await asyncio.to_thread(keep, new)
            await self.ledger.write(pairs, Transaction(records=records))
            self.keys.take(records)
        for name, given in wanted.items():
            await self._bring(self.loop(name), given)
        self.serving = True

    async def _bring(self, loop: Loop, given: dict[str, Any]) -> None:
        """Change what a file says otherwise than the loop has it; arms it added before, may go."""
        _, arms = loop_settings(loop.settings, given)
        await self.configure(loop, {k: v for k, v in given.items() if k != "arms"}, "file")
        kind, id = FILE_ARMS
        body = (await self.documents(loop, kind)).get(id, b"[]")
        known = msgspec.json.decode(body, type=list[str])
        loop = self.loop(loop.name)
        if new := [arm for arm in loop.unknown(arms) if arm not in known]:
            document = file_arms(loop.number, arms)
            await self.change_arms(loop, new, (), "file", documents=[document])

    async def delete(self, name: str, who: str, key: str | None = None) -> None:
        """Delete a loop with everything that was ever written about it."""
        if await self._is_repeat("delete", name, key):
            return
        loop = self.loop(name)
        async with self.ledger.busy[loop.number]:
            await self._administer(
                loop, who, "delete", "", key, erasure=Erasure(remove, loop.number)
            )
            if self.loops.get(name) is loop:
                self.ledger.remove(name)
            self.keys.drop(loop.number)

    async def issue_key(
        self, loop: Loop | None, role: str, who: str, grace: float = GRACE, key: str | None = None
    ) -> str:
        """Return a new key of a loop, or of the server; the old ones work for `grace` seconds more.

        A repeat of the request gets another key, and the one that the first answer had is invalid.
        """
        if role not in GRANTS:
            raise ValueError(f"a role is one of {', '.join(GRANTS)}, not {role[:40]!r}")
        check_text("a key", key)
        number, name = (0, None) if loop is None else (loop.number, loop.name)
        request = scoped(f"keys {role}", name or "", key)
        async with self._issuing:
            await asyncio.to_thread(self.keys.reload)  # another server may have issued keys
            now = self.clock()
            keys, records = self.keys.issue(number, name, [role], now, grace, request)
            audit = AuditRecord(now, who, "keys", name, role)
            await self.ledger.write([], Transaction(records=[*records, audit]))
            self.keys.take(records)
        return keys[role]

    async def _is_repeat(self, action: str, name: str, key: str | None) -> bool:
        """Return whether this was done to a loop before, for a request with this key."""
        check_text("a key", key)
        found = scoped(action, name, key)
        if found is None or not await asyncio.to_thread(self.store.is_audited, found):
            return False
        await self.ledger.catch_up()  # it may be in the log, and not known here yet
        return True

    async def _administer(
        self, loop: Loop, who: str, action: str, detail: str | None, key: str | None,
        *happened: AnyEvent, documents: Sequence[Document] = (), erasure: Erasure | None = None,
    ) -> int:  # fmt: skip
        """Write what an administrative call changes; return how many events it erased."""
        if await self._is_repeat(action, loop.name, key):
            return 0
        once, short = scoped(action, loop.name, key), detail and detail[:2_000]
        audit = AuditRecord(self.clock(), who, action, loop.name, short, once)
        change = Transaction(records=[audit, *documents], erasure=erasure)
        _, erased = await self.ledger.write([(loop.number, event) for event in happened], change)
        return erased

    async def configure(
        self, loop: Loop, changes: dict[str, Any], who: str, relearn: bool = True, *,
        key: str | None = None, documents: Sequence[Document] = (),
    ) -> LoopSettings:  # fmt: skip
        """Change some settings of a loop, and documents about it; nothing if they are as given.

        Another model learns from the log first, in the background, and takes over when it knows all
        that the log holds; with `relearn` False it begins with nothing.
        """
        before = loop.next_settings or loop.settings
        settings = changed(before, changes)
        if settings == before and not documents:
            return settings
        await self._warm(settings)
        relearn = relearn and loop.learner is not None and not settings.learns_like(before)
        detail = msgspec.json.encode(changes).decode()
        event = events.Configured(self.clock(), settings, relearn)
        await self._administer(loop, who, "configure", detail, key, event, documents=documents)
        if relearn:
            await self.ledger.rebuilt(loop)
        return self.loop(loop.name).settings

    async def change_arms(
        self, loop: Loop, add: Sequence[str], remove: Sequence[str], who: str, *,
        key: str | None = None, documents: Sequence[Document] = (),
    ) -> None:  # fmt: skip
        check_arms(add)
        if await self._is_repeat("arms", loop.name, key):
            return
        if unknown := [arm for arm in remove if arm not in loop.arms]:
            raise NotFound(f"there is no arm {unknown[0]!r}")
        self._check_room(loop, loop.unknown(add))
        event = events.ArmsChanged(self.clock(), add=list(add), remove=list(remove))
        detail = msgspec.json.encode({"add": event.add, "remove": event.remove}).decode()
        await self._administer(loop, who, "arms", detail, key, event, documents=documents)

    def _check_room(self, loop: Loop, new: Sequence[str]) -> None:
        most = loop.settings.most_arms
        if len(loop.arms) + len(new) > most:
            raise ValueError(
                f"the loop knows {len(loop.arms):,} arms and takes at most {most:,}; remove some, "
                "or raise most_arms"
            )
        if new:
            loop.admit(None, (), len(new))

    async def reset(self, loop: Loop, who: str, key: str | None = None) -> None:
        await self._administer(loop, who, "reset", "", key, events.Reset(self.clock()))

    async def import_model(self, loop: Loop, data: bytes, who: str, key: str | None = None) -> None:
        """Let what another agent learned take the place of what a loop learned."""
        learner = await self.turns.in_background(Learner.from_bytes, data)
        (theirs, forgetting), settings = model_of(learner), loop.settings
        if theirs != settings.model:
            raise ValueError(f"it is a {theirs}, and the loop has a {settings.model}")
        if forgetting != settings.forgetting:
            raise ValueError(
                f"it forgets by {forgetting:g}, and the loop by {settings.forgetting:g}; set "
                "forgetting first"
            )
        if strange := [arm for arm in learner.arms if not isinstance(arm, str)]:
            raise ValueError(
                f"its arm {strange[0]!r} is no text, as arms of loops are; make it from an agent "
                "whose arms have texts for names"
            )
        if len(learner.arms) > settings.most_arms:
            raise ValueError(f"it has {len(learner.arms):,} arms, more than the loop takes")
        await self._administer(loop, who, "import", "", key, events.Imported(self.clock(), data))

    # Decisions

    async def decide(
        self, loop: Loop, context: Features | None, arms: Sequence[str] | None = None, **others: Any
    ) -> Decided:
        """Decide, and return once the decision is durable; `others` are fields of a `Question`.

        A repeat, by the key of its request or while it waits by its id, gets the decision that was
        made before.
        """
        asked = Question(context, arms, **others)
        id, key = asked.id, asked.key
        for what, given in (("an id", id), ("a key", key), ("a person", asked.person)):
            check_text(what, given)
        if (before := await self._made_before(loop, id, key)) is not None:
            return before
        if loop.full:
            raise Overloaded(int(min(max(loop.due - self.clock(), 1), 60)))
        offered = await self._offered(loop, arms, asked.may_add)
        if asked.is_list(loop):
            await self._warm(loop.settings, lists=True)
        if self.turns.left[loop.number] > MOST_TURNS:
            raise Overloaded
        for slot in asked.slots if asked.slots[0].features else ONE:
            whole = loop.with_slot(context, slot.features)
            loop.admit(whole, (asked.arm_features or {}).values())
        held = loop.is_held(asked.person)
        picks = await self.look(loop, partial(asked.fill, loop, offered, held))
        if id is None:
            id = self.new_id()
        elif key is None:
            key = self.new_id()  # ids may be used again, and writing this one may be repeated
        event = Decided(
            self.clock(), id, context, picks, *loop.settings.rule_names(), asked.deferred, key,
            asked.person, asked.arm_features,
            ranked_arms(offered, picks[0]) if asked.ranked else None, held,
        )  # fmt: skip
        # Without the store nobody knows whether another server decided by an id of the client's.
        (row,) = await self.ledger.append(loop, event, spooled=asked.id is None)
        if row.spooled is not None:
            if self.ledger.failed:
                self.upkeep.lose(StoreError("a decision could not be written"))
            return row.spooled
        if row.result == REPEATED:
            return await self._repeated(loop, row)
        return event

    async def _offered(self, loop: Loop, arms: Sequence[str] | None, may_add: bool) -> list[str]:
        """Return the arms to choose from, after adding those that are not known."""
        if arms is None:
            return list(loop.arms)
        check_arms(arms)
        if new := loop.unknown(arms):
            if not may_add:
                raise ValueError(f"there is no arm {new[0]!r}, and this key may not add it")
            self._check_room(loop, new)
            await self.ledger.append(loop, events.ArmsChanged(self.clock(), add=new))
        return list(arms)

    def new_id(self) -> str:
        """The time, then 52 random bits: new ids are neighbours in the index of a long log."""
        return f"{int(self.clock() * 1e3) % 2**44:011x}{secrets.token_hex(7)[:13]}"

    async def _made_before(self, loop: Loop, id: str | None, key: str | None) -> Decided | None:
        """Return the decision that waits by this id, or that a request of this key led to.

        Only where it need not be looked for in the log: writing it finds the rest.
        """
        if (kept := self.spool.find(loop.number, None, key)) is not None:
            return kept
        open, position = None if id is None else loop.open_decisions.get(id), None
        waits = open is not None and open.deadline > self.clock()
        if key is not None and (waits or loop.full):
            # The key tells an earlier decision by this id from the one that waits.
            position = await asyncio.to_thread(self.store.keyed, loop.number, f"d{key}")
        if open is not None and waits:
            position = position or open.position
        return None if position is None else await self._decision_at(loop, position)

    async def _repeated(self, loop: Loop, row: Row) -> Decided:
        """Return the decision that one in the log repeats."""
        if loop.due <= self.clock():  # as any other event, a repeat ends waits that are over
            await self.ledger.append(loop, events.Passed(self.clock()))
        open = loop.open_decisions.get(row.event.id)
        position = open.position if row.fresh and open is not None else row.position
        return await self._decision_at(loop, position)

    async def _decision_at(self, loop: Loop, position: int) -> Decided:
        body = await asyncio.to_thread(self.store.at, loop.number, position)
        event = None if body is None else events.decode(body)
        if not isinstance(event, Decided):
            raise NotFound("the decision was deleted")
        return event

    async def reward(
        self, loop: Loop, id: str, value: float, *, slot: str = "", key: str | None = None
    ) -> str:
        """Take a reward, and return once it is durable: what became of it."""
        event = Rewarded(self.clock(), id, float(value), slot, key)
        (found,) = await self.reward_all(loop, [event], strict=True)
        return str(found)

    async def reward_all(
        self, loop: Loop, given: Sequence[Rewarded], strict: bool = False
    ) -> list[str | Exception]:
        """Take rewards in one write, all or none; return what became of each.

        Instead of one that cannot be taken there is the error, or with `strict` it is raised and
        none is taken.
        """
        most = self.ledger.most_unwritten
        if len(given) > most:
            raise TooLarge(f"a request has at most {most:,} rewards, not {len(given):,}")
        errors: list[Exception | None] = []
        for reward in given:
            try:
                await self._check_given(loop, reward)
                errors.append(None)
            except (LookupError, ValueError) as error:
                if strict:
                    raise
                errors.append(error)
        happened = [each for each, error in zip(given, errors, strict=True) if error is None]
        rows = iter(await self.ledger.append(loop, *happened) if happened else ())
        return [next(rows).result if error is None else error for error in errors]

    async def _check_given(self, loop: Loop, given: Rewarded) -> None:
        check_text("a key", given.key)
        check_reward(loop, given.value)
        open = loop.open_decisions.get(given.id)
        if open is not None:
            slots = {slot.name for slot in open.slots}
        elif self.spool.find(loop.number, given.id, None) is not None:
            raise StoreError(f"decision {given.id!r} is not written yet; try again later")
        else:
            slots = {pick.slot for pick in (await self.decision(loop, given.id)).picks}
        if given.slot not in slots:
            what = f"has no slot {given.slot!r}" if given.slot else "needs the name of a slot"
            raise ValueError(f"a reward for decision {given.id!r} {what}")

    async def activate(self, loop: Loop, id: str) -> str:
        """Put a deferred decision to use."""
        if id not in loop.open_decisions:
            await self.decision(loop, id)
        return (await self.ledger.append(loop, events.Activated(self.clock(), id)))[0].result

    async def decision(self, loop: Loop, id: str) -> Decided:
        """Return the decision that waits by an id, or else the last one made by it."""
        if (open := loop.open_decisions.get(id)) is not None:
            return await self._decision_at(loop, open.position)
        for event in reversed(await self.history(loop, id)):
            if isinstance(event, Decided):
                return event
        raise NotFound(f"there is no decision {id!r}")

    async def history(self, loop: Loop, id: str) -> list[AnyEvent]:
        """Return everything that happened to a decision."""
        if NUL in id:  # as no id that was given out
            return []
        return [*map(events.decode, await asyncio.to_thread(self.store.about, loop.number, id))]

    # Documents

    async def documents(self, loop: Loop, kind: str) -> dict[str, bytes]:
        """Return all documents of a kind by their ids, in the order in which they were made."""
        return await asyncio.to_thread(self.store.documents, loop.number, kind)

    async def put_document(self, loop: Loop, kind: str, id: str, body: bytes) -> None:
        change = Transaction(records=[Document(loop.number, kind, id, body)])
        await self.ledger.write([], change)

    async def delete_document(self, loop: Loop, kind: str, id: str) -> None:
        gone = Deleted(Document(loop.number, kind, id, b""))
        await self.ledger.write([], Transaction(records=[gone]))

    # Deletion

    async def forget(
        self, loop: Loop, ids: Sequence[str] = (), person: str | None = None, who: str = "server",
        key: str | None = None,
    ) -> int:  # fmt: skip
        """Delete decisions with all that was learned from them; return how many events went."""
        check_text("a person", person)
        known, now = [id for id in ids if NUL not in id], self.clock()  # NUL is in no id
        erasure = Erasure(forget, loop.number, (known, person))
        left = marks(loop.number, now, known, person) if self.store.shared else []
        async with self.ledger.busy[loop.number]:
            # Who was forgotten is not written down, only how many events.
            event = events.Forgot(now)
            erased = await self._administer(
                loop, who, "forget", None, key, event, documents=left, erasure=erasure
            )
            await self.ledger.rebuilt(loop)
        return erased

    async def clear(self, loop: Loop, who: str, key: str | None = None) -> None:
        """Delete the log of a loop; its settings and what it learned stay."""
        if await self._is_repeat("clear", loop.name, key):
            await self.ledger.rebuilt(loop)
            return
        number = loop.number
        async with self.ledger.busy[number]:
            loop = self.loop(loop.name)
            taken = await self.ledger.hold(loop)
            if taken is not None:
                position, held = taken
                count = await asyncio.to_thread(self.store.count, number, position)
                await self.ledger.catch_up()  # what was changed before the count is known now
            if taken is None or self.ledger.is_outdated(loop):
                raise Conflict("decisions are being deleted; try again")
            held.counts, held.tally, held.open_decisions = LoopCounts(), Tally(spans=[]), {}
            body = await self.turns.in_background(held.to_bytes)
            now = self.clock()
            body = events.encode(events.Condensed(now, body))
            erasure = Erasure(condense, number, (position, body, count, position))
            left = [mark(number, ALL, now)] if self.store.shared else []
            await self._administer(
                loop, who, "clear", "", key, events.Forgot(now), documents=left, erasure=erasure
            )
            await self.ledger.rebuilt(loop)


def scoped(action: str, name: str, key: str | None) -> str | None:
    """Return the key of a request as the audit trail has it: one for each action and loop."""
    return None if key is None else f"{action} {name} {key}"


def file_arms(loop: int, arms: Sequence[str]) -> Document:
    return Document(loop, *FILE_ARMS, msgspec.json.encode(list(arms)))


def check_loop(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            "the name of a loop has up to 64 letters, digits, dots, dashes and underscores, "
            f"the first a letter or digit; {name[:80]!r} does not"
        )


def check_text(what: str, given: str | None) -> None:
    """Raise ValueError for a text that the stores cannot find again, or only at a cost."""
    if given is not None and not 1 <= len(given) <= LONGEST_ID:
        raise ValueError(f"{what} has 1 to {LONGEST_ID} characters")
    if given is not None and NUL in given:
        raise ValueError(f"{what} may hold any character but NUL")


def check_arms(arms: Sequence[str]) -> None:
    for arm in arms:
        if not arm or len(arm) > LONGEST_ID:
            raise ValueError(f"the name of an arm has 1 to {LONGEST_ID} characters")
    if len(set(arms)) < len(arms):
        raise ValueError("an arm is listed twice; list each once")


def check_reward(loop: Loop, value: float) -> None:
    if loop.settings.reward_range is not None:
        low, high = loop.settings.reward_range
        if not low <= value <= high:
            raise ValueError(f"a reward is {low:g} to {high:g} here, not {value:g}")
    if loop.learner is not None:
        loop.learner.check_reward(value)
