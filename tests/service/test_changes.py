"""One transaction per change of state: a fault at any statement leaves the old or the new state."""

import asyncio
import math
from typing import Any

import pytest

from tests.service.conftest import run, running
from tests.service.test_loop import ARMS, made
from tsucb.service.errors import NotFound, StoreError
from tsucb.service.keys import GRACE, ROLES
from tsucb.service.loop import Loop
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings
from tsucb.service.store import Store
from tsucb.service.tables import Document

WRITING = ("writer", "keeper")  # connections


class Faults:
    """Counts the statements that write, and lets one of them fail before or after it is done."""

    def __init__(self, store: Store, monkeypatch: Any) -> None:
        self.execute = store._execute
        self.left, self.late, self.happened = -1, False, False
        monkeypatch.setattr(store, "_execute", self)

    def __call__(self, name: str, query: str, values: Any = ()) -> Any:
        if name not in WRITING or self.left < 0:
            return self.execute(name, query, values)
        self.left -= 1
        if self.left >= 0:
            return self.execute(name, query, values)
        self.happened = True
        if self.late:
            self.execute(name, query, values)
        raise StoreError(f"a fault at {query[:40]!r}")

    def arm(self, statement: int, late: bool) -> None:
        self.left, self.late, self.happened = statement, late, False


async def create(service: Service, loop: Loop, key: str) -> None:
    await service.create(f"{loop.name}-new", LoopSettings(), ["x"], key=key)


async def delete(service: Service, loop: Loop, key: str) -> None:
    await service.delete(loop.name, "test", key=key)


async def configure(service: Service, loop: Loop, key: str) -> None:
    document = Document(loop.number, "words", "one", b"first")
    await service.configure(loop, {"exploration": 0.5}, "test", key=key, documents=[document])


async def relearn(service: Service, loop: Loop, key: str) -> None:
    await service.configure(loop, {"model": "BernoulliArms"}, "test", key=key)


async def arms(service: Service, loop: Loop, key: str) -> None:
    await service.change_arms(loop, ["water"], ["milk"], "test", key=key)


async def reset(service: Service, loop: Loop, key: str) -> None:
    await service.reset(loop, "test", key=key)


async def import_model(service: Service, loop: Loop, key: str) -> None:
    data = service.loop("source").learner.to_bytes()
    await service.import_model(loop, data, "test", key=key)


async def forget(service: Service, loop: Loop, key: str) -> None:
    await service.forget(loop, person="ann", key=key)


async def clear(service: Service, loop: Loop, key: str) -> None:
    await service.clear(loop, "test", key=key)


async def rotate(service: Service, loop: Loop, key: str) -> None:
    await service.issue_key(loop, "decide", "test", key=key)


def is_done(action: Any, service: Service, name: str) -> bool:
    """Return whether the store has the state after an action."""
    numbers = service.store.loops()
    if action is create:
        keys = {key.role for key in service.store.all_keys() if key.loop == f"{name}-new"}
        return f"{name}-new" in numbers and keys == set(ROLES)
    if action is delete:
        return name not in numbers and not [k for k in service.store.all_keys() if k.loop == name]
    loop = service.replayed(Loop(name, numbers[name]))
    if action is configure:
        words = service.store.documents(loop.number, "words")
        return loop.settings.exploration == 0.5 and words == {"one": b"first"}
    if action is relearn:
        return loop.settings.model == "BernoulliArms" and loop.arms_summary()["pulls"].sum() == 4
    if action is arms:
        return list(loop.arms) == ["tea", "juice", "water"]
    if action is reset:
        return not loop.open_decisions and loop.arms_summary()["pulls"].sum() == 0
    if action is import_model:
        return list(loop.arms) == ["p", "q"]
    if action is forget:
        return loop.counts.decisions == 3
    if action is clear:
        return loop.counts.decisions == 0 and loop.arms_summary()["pulls"].sum() == 4
    keys = [key for key in service.store.all_keys() if (key.loop, key.role) == (name, "decide")]
    ends = sorted(key.expires or math.inf for key in keys if key.expires != service.clock())
    return ends == [service.clock() + GRACE, math.inf]  # the old key and one new one


def stored(store: Store, name: str) -> Any:
    """Return what the store has about a loop, except snapshots and Compacted events."""
    number = store.loops().get(name, 0)
    log = [row.body for row in store.read(0, number) if b"compacted" not in row.body]
    return (
        number, log, sorted(key for key in store.all_keys() if key.loop == name),
        store.documents(number, "words"), len(store.audit(name, 99)),
        f"{name}-new" in store.loops(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "action",
    [create, delete, configure, relearn, arms, reset, import_model, forget, clear, rotate],
    ids=lambda action: action.__name__,
)
def test_a_fault_at_any_statement(open_store, clock, monkeypatch, action):
    async def main():
        store = open_store()
        async with running(store, clock) as service:
            service.upkeep.ticking.cancel()
            await service.create("source", LoopSettings(), ["p", "q"])
            faults = Faults(store, monkeypatch)
            for number in range(200):
                name = f"loop{number}"
                loop = await made(service, name)
                for n in range(6):
                    event = await service.decide(loop, {"n": n}, person="ann" if n % 2 else "bob")
                    if n < 4:
                        await service.reward(loop, event.id, n % 2)
                before = stored(store, name)
                faults.arm(number // 2, bool(number % 2))
                try:
                    await action(service, loop, f"k{number}")
                except StoreError:
                    assert faults.happened
                faults.left = -1
                assert stored(store, name) == before or is_done(action, service, name)
                for at_once in (True, False):  # repeats
                    if not at_once:
                        await service.upkeep.tick()  # as it does by itself
                        while service.turns.working:
                            await asyncio.gather(*service.turns.working)
                    try:
                        await action(service, service.loops.get(name, loop), f"k{number}")
                    except StoreError:
                        assert (at_once, store.shared) == (True, True), "until the next look"
                        continue
                    assert is_done(action, service, name)
                    if action is not delete:
                        now = service.loop(name)
                        assert service.replayed(now, snapshots=False).digest() == now.digest()
                if not faults.happened:
                    break
            assert number > 4
            assert not faults.happened

    run(main)


def test_a_fault_at_any_statement_of_the_first_start(tmp_path, request, clock, monkeypatch):
    """The keys in the file are those that work, at whichever statement the start fails."""
    from tsucb.service.sqlite import SqliteStore

    wanted = {"news": {"arms": ["a", "b"]}, "default": {"model": "HybridLinear"}}

    async def main():
        for number in range(200):
            kept: dict[str, Any] = {}
            store = SqliteStore(tmp_path / str(number))
            async with running(store, clock) as service:
                with monkeypatch.context() as patch:
                    faults = Faults(store, patch)
                    faults.arm(number // 2, bool(number % 2))
                    try:
                        await service.prepare(wanted, kept.update)
                    except StoreError:
                        assert faults.happened
                    faults.left = -1
            store.close()
            store = SqliteStore(tmp_path / str(number))
            async with running(store, clock) as service:
                await service.prepare(wanted, kept.update)
                assert set(service.loops) == set(wanted)
                assert service.keys.holder(kept["server"], clock()).loop is None
                for name in wanted:
                    assert service.keys.holder(kept[name]["decide"], clock()).loop == name
                before = len(store.audit(None, 99))
                await service.prepare(wanted, kept.update)
                assert len(store.audit(None, 99)) == before
            store.close()
            if not faults.happened:
                break
        assert number > 10

    run(main)


def test_what_a_file_says_is_brought_about_and_what_it_does_not_say_stays(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            wanted: dict[str, Any] = {"news": {"arms": ["a", "b"], "mode": "online"}}
            await service.prepare(wanted, lambda keys: None)
            loop = service.loop("news")
            await service.configure(loop, {"mode": "apprentice", "exploration": 0.3}, "test")
            await service.change_arms(loop, ["c"], ["a"], "test")
            position = loop.position
            await service.prepare(wanted, lambda keys: None)
            assert (loop.settings.mode, loop.settings.exploration) == ("online", 0.3)
            assert list(loop.arms) == ["b", "c"], "what a call removed does not come back"
            assert loop.position == position + 1
            await service.prepare(wanted, lambda keys: None)
            assert loop.position == position + 1, "a start that changes nothing writes nothing"
            wanted["news"]["arms"] = ["a", "b", "d"]
            await service.prepare(wanted, lambda keys: None)
            assert list(loop.arms) == ["b", "c", "d"]

    run(main)


def test_events_in_flight_do_not_join_a_later_loop_of_the_name(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            old = await made(service)
            event = await service.decide(old, {"n": 1})
            await service.delete("drinks", "test")
            new = await made(service)
            assert new.number != old.number
            for late in (service.reward(old, event.id, 1.0), service.decide(old, {"n": 2})):
                with pytest.raises(NotFound):
                    await late
            assert (new.counts.decisions, list(new.arms)) == (0, ARMS)
            with pytest.raises(NotFound):
                await service.reward(new, event.id, 1.0)

    run(main)


def test_a_model_that_the_loop_could_not_learn_with_is_refused(open_store, clock):
    import tsucb

    def model(arms, **settings):
        return tsucb.Agent(arms, **settings).to_bytes()

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            with pytest.raises(ValueError, match="its arm 1 is no text"):
                await service.import_model(loop, model([1, 2]), "test")
            with pytest.raises(ValueError, match=r"it forgets by 0\.9, and the loop by 1"):
                await service.import_model(loop, model(["p"], forgetting=0.9), "test")
            await service.import_model(loop, model(["p", "q"], max_open=1), "test")
            ids = [(await service.decide(loop, {"n": n})).id for n in range(5)]
            for id in ids:
                await service.reward(loop, id, 1.0)
            assert loop.arms_summary()["pulls"].sum() == 5

    run(main)
