"""All loops of a process, and what can be asked of them, whatever the protocol."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tsucb.agent import Agent
from tsucb.service import events
from tsucb.service.errors import Conflict, NotFound, TooLarge
from tsucb.service.events import (
    Activated,
    AnyEvent,
    ArmsChanged,
    Configured,
    Decided,
    Features,
    Forgot,
    Imported,
    Reset,
    Rewarded,
)
from tsucb.service.journal import Overloaded
from tsucb.service.keys import ADMINISTER, GRACE, GRANTS, ROLES
from tsucb.service.loop import MOST_NUMBERS, REPEATED, SLOW, Loop
from tsucb.service.relearning import Relearning, model_name
from tsucb.service.settings import LoopSettings, changed
from tsucb.service.slots import ONE, Wanted, fill, is_list, ranked_arms
from tsucb.service.store import Store, StoreError
from tsucb.service.upkeep import Upkeep

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST_ID = 256  # characters of an id, or of an arm's name
NUL = "\0"  # which PostgreSQL has no place for
MOST_UNWRITTEN = 10_000  # decisions that are kept until the database is back
MOST_TURNS = 500  # calls that wait for the turn of a slow loop
NEAR = 1_000  # events that are folded while requests wait


class GivenReward(NamedTuple):
    """A reward as a client reports it; `key` is the same in a repeat of the request."""

    id: str
    slot: str
    value: float
    key: str | None


class Service(Upkeep):
    """Loops over a store; to be used in one event loop.

    See `Ledger` for the parameters. `start` reads what the store has; `stop` leaves snapshots.
    """

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__(store, **settings)
        self._random: list[str] = []

    # Loops

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
        await self.turns.in_background(settings.warm)
        async with self._alone(name):
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
        async with self._alone(name), self._saving:
            self.loop(name)
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
        await self.turns.in_background(settings.warm)
        if relearn and loop.agent is not None and not settings.learns_like(loop.settings):
            settings = await self._relearn(loop.name, settings, changes)
            await self.store_snapshot(self.loop(loop.name))  # nobody should have to do that again
        else:
            await self._append_one(loop, Configured(self.clock(), settings))
        self.audit(who, "configure", loop.name, msgspec.json.encode(changes).decode())
        return settings

    async def _relearn(
        self, name: str, settings: LoopSettings, changes: dict[str, Any]
    ) -> LoopSettings:
        """Have another model learn from the log and take over; the settings there are then."""
        async with self._guarded(name) as mine:
            if not mine:
                raise Conflict(
                    "another server learns from the log of this loop, or deletes from it; try again"
                )
            relearning = Relearning(name, settings, self._seed)
            await self.turns.in_background(self._nearly_relearned, relearning)
            # What else was changed meanwhile stays changed.
            settings = changed(self.loop(name).settings, changes)
            if not settings.learns_like(relearning.settings):
                raise Conflict("the model was changed meanwhile; try again")
            relearning.settings = settings
            if not await asyncio.to_thread(self.store.guards):
                raise StoreError("the store was lost meanwhile; try again")
            self._prepared[name] = relearning
            try:
                event = Configured(self.clock(), settings, relearn=True)
                await self._append_one(self.loop(name), event)
            finally:
                self._prepared.pop(name, None)
            if not await asyncio.to_thread(self.store.guards):
                # Some of what it has learned from may be gone: only the log can tell.
                self._begin_rebuild(self.loop(name))
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
        if new:
            self._check_growth(loop, loop.width, len(new))

    def _check_growth(self, loop: Loop, width: int, new_arms: int = 0) -> None:
        """Raise TooLarge before a model grows beyond what fits; note that it becomes a slow one."""
        after = loop.numbers(width, new_arms)
        if after > MOST_NUMBERS and (new_arms or width > loop.width):
            raise TooLarge(
                f"with {width:,} columns of features for {len(loop.arms) + new_arms:,} arms the "
                "model would be too large; use fewer names of features, fewer categories or fewer "
                "arms"
            )
        loop.growing = loop.growing or after > SLOW

    def issue_server_key(self, who: str, grace: float = GRACE) -> str:
        """Issue a key of the server; the old one works for this many seconds more."""
        key = self.keys.issue(None, ADMINISTER, self.clock(), grace)
        self.audit(who, "keys", None, "server")
        return key

    def issue_key(self, loop: Loop, role: str, who: str, grace: float = GRACE) -> str:
        """Issue a key of a loop; the old ones of the role work for this many seconds more."""
        if role not in GRANTS:
            raise ValueError(f"a role is one of {', '.join(GRANTS)}, not {role[:40]!r}")
        key = self.keys.issue(loop.name, role, self.clock(), grace)
        self.audit(who, "keys", loop.name, role)
        return key

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
        may_add: bool = True,
    ) -> Decided:
        """Decide, and return once the decision is durable.

        A repeat, by its id or by the key of its request, gets the decision that was made before.
        """
        for what, given in (("an id", id), ("a key", key), ("a person", person)):
            check_text(what, given)
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
                if not may_add:
                    raise ValueError(f"there is no arm {new[0]!r}, and this key may not add it")
                self._check_room(loop, new)
                await self._append_one(loop, ArmsChanged(self.clock(), add=new))
        if is_list(loop, slots) and not loop.settings.is_warm(lists=True):
            await self.turns.in_background(partial(loop.settings.warm, lists=True))
        if self.turns.waiting(loop.name) > MOST_TURNS:
            raise Overloaded
        for slot in slots if slots[0].features else ONE:
            whole = loop.with_slot(context, slot.features)
            self._check_growth(loop, loop.width_after(whole, (arm_features or {}).values()))
        picks = await self.look(
            loop, partial(fill, loop, context, offered, set(excluded), slots, arm_features)
        )
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
        """Take rewards for several slots of a decision, all or none."""
        given = [GivenReward(id, slot, value, key) for slot, value in values]
        found = await self.reward_all(loop, given, strict=True)
        return [str(each) for each in found]

    async def reward_all(
        self, loop: Loop, given: "Sequence[GivenReward]", strict: bool = False
    ) -> list[str | Exception]:
        """Take rewards in one write, all or none; return what became of each.

        Instead of one that cannot be taken there is the error, or with `strict` it is raised and
        none is taken.
        """
        most = self.journal.most_waiting
        if len(given) > most:
            raise TooLarge(f"a request has at most {most:,} rewards, not {len(given):,}")
        found: list[str | Exception | None] = []
        pairs: list[tuple[str, AnyEvent]] = []
        for reward in given:
            try:
                repeated = await self._check_given(loop, reward)
            except (LookupError, ValueError) as error:
                if strict:
                    raise
                found.append(error)
                continue
            found.append(REPEATED if repeated else None)
            if not repeated:
                event = Rewarded(
                    self.clock(), reward.id, float(reward.value), reward.slot, reward.key
                )
                pairs.append((loop.name, event))
        outcomes = iter(await self._append(pairs) if pairs else ())
        return [next(outcomes) if each is None else each for each in found]

    async def _check_given(self, loop: Loop, given: "GivenReward") -> bool:
        """Raise an error if a reward cannot be taken; return whether it came before."""
        id, slot, value, key = given
        check_text("a key", key)
        check_reward(loop, value)
        waiting = loop.waiting.get(id)
        if waiting is None:
            if self._unwritten(loop, id) is not None:
                raise StoreError(f"decision {id!r} is not written yet; try again later")
            history = await self.history(loop, id)
            before = {(e.key, e.slot) for e in history if isinstance(e, Rewarded)}
            slots = {pick.slot for pick in first_decision(history, id).picks}
            if key is not None and (key, slot) in before:
                return True
        else:
            slots = {slot.name for slot in waiting.slots}
        if slot not in slots:
            what = f"has no slot {slot!r}" if slot else "needs the name of a slot"
            raise ValueError(f"a reward for decision {id!r} {what}")
        return False

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
        if NUL in id:  # as no id that was given out
            return []
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
        ids = [id for id in ids if NUL not in id]
        check_text("a person", person)
        async with self._deleting_from(loop.name):
            loop = self.loop(loop.name)  # which may be another by now
            async with self._saving:
                deleted = await asyncio.to_thread(self.store.forget, loop.name, ids, person)
                loop.stale = loop.stale or deleted > 0  # until it is made anew
            if deleted:
                await self._append_one(loop, Forgot(self.clock()))
                await self._rebuild(loop.name)
        # Who was forgotten is not written down.
        self.audit(who, "forget", loop.name, f"{deleted} events")
        return deleted

    @contextlib.asynccontextmanager
    async def _deleting_from(self, name: str) -> AsyncIterator[None]:
        """Only one at a time; and whoever does it sees to the loop, not the fold of `Forgot`."""
        async with self._alone(name):
            self._deleting.add(name)
            try:
                yield
            finally:
                self._deleting.discard(name)

    async def clear(self, loop: Loop, who: str) -> None:
        """Delete the log of a loop; its settings and what it learned stay."""
        async with self._deleting_from(loop.name):
            loop = self.loop(loop.name)
            settings, agent = loop.settings, loop.agent
            async with self._saving:
                await asyncio.to_thread(self.store.clear, loop.name)
                fresh = Loop(loop.name, self._seed)
                fresh.position = loop.position
                loop.stale, self.loops[loop.name] = True, fresh
            now = self.clock()
            pairs: list[tuple[str, AnyEvent]] = [
                (loop.name, Forgot(now)),
                (loop.name, Configured(now, settings)),
            ]
            if agent is not None:
                pairs.append((loop.name, Imported(now, agent.to_bytes())))
            await self._append(pairs)
        self.audit(who, "clear", loop.name, "")


def first_decision(history: Sequence[AnyEvent], id: str) -> Decided:
    """The decision that a history begins with."""
    for event in history:
        if isinstance(event, Decided):
            return event
    raise NotFound(f"there is no decision {id!r}")


def check_text(what: str, given: str | None) -> None:
    """Complain about what the stores cannot find again, or only at a cost."""
    if given is not None and not 1 <= len(given) <= LONGEST_ID:
        raise ValueError(f"{what} has 1 to {LONGEST_ID} characters")
    if given is not None and NUL in given:
        raise ValueError(f"{what} may hold any character but NUL")


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
