"""The log: other models learn from it, and events that are too old are deleted."""

import asyncio
import time
from typing import Any

import pytest

from tests.service.conftest import run, running
from tests.service.test_loop import ARMS, WAIT, learned, made, pulls
from tsucb.service import events
from tsucb.service.errors import Conflict, NotFound
from tsucb.service.events import Condensed, Decided
from tsucb.service.loop import TAKEN, Loop
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings
from tsucb.service.store import Erasure, Transaction, condense, forget
from tsucb.service.upkeep import DAY


async def visits(service: Service, loop: Loop, clock: Any, count: int, **more: Any) -> list[str]:
    """Make decisions and reward two thirds of them; the last ones have no reward yet."""
    ids: list[str] = []
    for n in range(count):
        event = await service.decide(loop, {"n": n % 7, "city": f"c{n % 3}"}, **more)
        ids.append(event.id)
        clock.pass_by(20)
        if n >= 5 and n % 3:
            await service.reward(loop, ids[n - 5], float(n % 2))
    return ids


def assert_the_log_gives_it(service: Service, loop: Loop) -> None:
    digest = loop.digest()
    assert service.replayed(loop).digest() == digest
    assert service.replayed(loop, snapshots=False).digest() == digest


def test_another_model_learns_from_the_log(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, exploration=0.3)
            ids = await visits(service, loop, clock, 60)
            await service.change_arms(loop, ["water"], ["milk"], "test")
            before = pulls(loop), learned(loop), len(loop.open_decisions)
            assert min(before) > 5
            await service.configure(loop, {"model": "BernoulliArms"}, "test")
            loop = service.loop("drinks")
            assert type(loop.learner.model).__name__ == "BernoulliArms"
            assert (pulls(loop), learned(loop), len(loop.open_decisions)) == before
            assert await service.reward(loop, ids[-1], 1.0) == TAKEN
            assert pulls(loop) == before[0] + 1
            assert_the_log_gives_it(service, loop)
            # To arms that come with the decisions, and back to those that are known.
            await service.configure(loop, {"model": "HybridLinear"}, "test")
            loop = service.loop("drinks")
            new = {"cocoa": {"hot": 1}, "tea": {"hot": 1}}
            await visits(service, loop, clock, 10, arms=list(new), arm_features=new)
            await service.configure(loop, {"model": "BernoulliArms"}, "test")
            loop = service.loop("drinks")
            assert "cocoa" in loop.arms
            assert pulls(loop) > before[0] + 1
            assert_the_log_gives_it(service, loop)
            await service.configure(loop, {"model": "HybridLinear"}, "test", relearn=False)
            assert (pulls(loop), len(loop.open_decisions)) == (0, 0)
            assert_the_log_gives_it(service, loop)
            digest = loop.digest()
        store = open_store()
        store.drop_snapshots(store.loops()["drinks"])
        async with running(store, clock) as service:
            assert service.loop("drinks").digest() == digest

    run(main)


def meanwhile(service: Service, monkeypatch: Any, work: Any) -> None:
    """Let something happen while a loop is made from the log, the next time one is."""
    replayed, requests, left = service.replayed, asyncio.get_running_loop(), [work]

    def slow(*arguments: Any, **how: Any) -> Loop:
        fresh = replayed(*arguments, **how)
        while left:
            asyncio.run_coroutine_threadsafe(left.pop()(), requests).result()
        return fresh

    monkeypatch.setattr(service.ledger.replay, "replayed", slow)


@pytest.mark.parametrize("near", [5, 1_000])
def test_what_came_while_it_learned_is_learned_too(open_store, clock, monkeypatch, near):
    monkeypatch.setattr("tsucb.service.ledger.NEAR", near)

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            await visits(service, loop, clock, 20)
            meanwhile(service, monkeypatch, lambda: visits(service, loop, clock, 20))
            await service.configure(loop, {"model": "BernoulliArms"}, "test")
            loop = service.loop("drinks")
            assert pulls(loop) == loop.counts.learned > 20
            assert_the_log_gives_it(service, loop)

    run(main)


def test_what_is_too_old_leaves_the_log_and_not_the_memory(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            service.upkeep.ticking.cancel()  # it looks by itself, too
            loop = await made(service, retention_days=2, exploration=0.2)
            old = await visits(service, loop, clock, 20, person="ann")
            assert not await service.upkeep.delete_old(loop)
            for day in range(5):
                clock.pass_by(DAY)
                await service.ledger.store_snapshot(loop)
                young = await visits(service, loop, clock, 10)
                if day == 3:  # among what stays: it has learned from what goes
                    await service.configure(loop, {"model": "BernoulliArms"}, "test")
                    loop = service.loop("drinks")
            digest, position, learnt = loop.digest(), loop.position, pulls(loop)
            assert await service.upkeep.delete_old(loop)
            assert not await service.upkeep.delete_old(loop)
            log = [events.decode(row.body) for row in service.store.read(0, loop.number)]
            assert isinstance(log[0], Condensed)
            assert clock() - 3 * DAY < log[0].time <= clock() - 2 * DAY
            assert all(event.time >= log[0].time for event in log)
            assert service.replayed(loop, False, until=position).digest() == digest
            assert pulls(loop) == learnt
            assert_the_log_gives_it(service, loop)
            with pytest.raises(NotFound):
                await service.decision(loop, old[0])
            assert (await service.decision(loop, young[0])).id == young[0]
            # What was deleted no other model can learn; the one of that time still knows it.
            await service.configure(loop, {"model": "HybridLinear"}, "test")
            assert 0 < pulls(service.loop("drinks")) < learnt
            await service.configure(loop, {"model": "BernoulliArms"}, "test")
            loop = service.loop("drinks")
            assert pulls(loop) == learnt
            assert_the_log_gives_it(service, loop)
            # From then on by itself.
            clock.pass_by(3 * DAY)
            await service.ledger.store_snapshot(loop)
            clock.pass_by(3 * DAY)
            await service.upkeep.tick()
            await asyncio.gather(*service.turns.working)
            left = [events.decode(row.body) for row in service.store.read(0, loop.number)]
            assert not [event for event in left if isinstance(event, Decided)]
            assert_the_log_gives_it(service, loop)
            actions = [record.action for record in service.store.audit("drinks", 9)]
            assert actions.count("retention") == 2

    run(main)


def test_nothing_is_kept_of_whom_a_late_snapshot_knew(open_store, clock):
    """A snapshot from before the deletion is stored after it: no start may use it."""

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            await visits(service, loop, clock, 20, person="ann")
            await service.ledger.store_snapshot(loop)
            (snapshot, *_) = service.store.snapshots(loop.number)
            await visits(service, loop, clock, 5, person="bob")
            await service.forget(loop, person="ann")
            service.store.drop_snapshots(loop.number)
            service.store.save_snapshot(loop.number, *snapshot)
            loop = service.loop("drinks")
            assert service.replayed(loop).digest() == loop.digest()
            assert loop.counts.decisions == 5

    run(main)


def test_rewards_that_a_model_cannot_take_leave_nothing_open(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            settings = LoopSettings(
                model="BernoulliArms", aggregation="sum", reward_wait=WAIT, default_reward=None
            )
            await service.create("drinks", settings, ARMS)
            loop = service.loop("drinks")
            event = await service.decide(loop, None)
            for key in "ab":
                await service.reward(loop, event.id, 1.0, key=key)
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (loop.counts.refused, pulls(loop)) == (1, 0)
            assert loop.arms_summary()["open"].sum() == 0

    run(main)


@pytest.mark.parametrize("before", [True, False])
def test_what_is_deleted_while_a_loop_takes_its_place_is_not_in_it(
    open_store, clock, monkeypatch, before
):
    """As another server may delete: just before, or just after the loop is replaced."""

    async def main():
        async with running(open_store(), clock) as service:
            loop, ledger, requests = await made(service), service.ledger, asyncio.get_running_loop()
            for n in range(12):
                event = await service.decide(loop, {"n": n}, person=("ann", "bob", "eve")[n % 3])
                await service.reward(loop, event.id, n % 2)
            replace, left = ledger._replace, [0]

            def erase() -> None:
                if left:
                    left.pop()
                    change = Transaction(erasure=Erasure(forget, loop.number, ([], "bob")))
                    happened = [(loop.number, events.Forgot(clock()))]
                    asyncio.run_coroutine_threadsafe(ledger.write(happened, change), requests)
                    known = ledger._outdated[loop.number]
                    while ledger._outdated[loop.number] == known:
                        time.sleep(0.001)

            def slow(old: Loop, fresh: Loop) -> None:
                if before:
                    erase()
                replace(old, fresh)
                erase()

            monkeypatch.setattr(ledger, "_replace", slow)
            await service.forget(loop, person="ann")
            while service.turns.working:
                await asyncio.gather(*service.turns.working)
            loop = service.loop("drinks")
            assert not left
            assert not ledger.is_outdated(loop)
            assert loop.counts.decisions == 4
            assert_the_log_gives_it(service, loop)

    run(main)


def test_arms_that_come_and_go_are_counted_in_bounded_room():
    from tsucb.service.state import MOST_ARMS, OTHERS, Tally

    tally = Tally(spans=[])
    for n in range(5_000):
        tally.played(float(n), f"arm {n}")
        tally.played(float(n), "evergreen")
    assert max(len(span.arms) for span in tally.spans) <= 2 * MOST_ARMS
    whole = tally.whole()
    assert (whole.arms["evergreen"], sum(whole.arms.values())) == (5_000, 10_000)
    assert whole.arms[OTHERS] > 4_000


def test_nothing_is_deleted_from_under_a_model_that_learns(open_store, clock, monkeypatch):
    """And other changes made meanwhile are kept."""

    async def main():
        async with running(open_store(), clock) as service:
            service.upkeep.ticking.cancel()
            loop = await made(service, retention_days=1)
            await visits(service, loop, clock, 20)
            await service.ledger.store_snapshot(loop)
            clock.pass_by(2 * DAY)

            async def work():
                assert not await service.upkeep.delete_old(loop)
                await service.configure(loop, {"exploration": 0.5}, "test")
                assert loop.settings.model == "AdaptiveCurves"  # which decides until then
                # Another server, which has not heard of the new model, cannot delete either.
                known = service.store.last() - 2
                erasure = Erasure(condense, loop.number, (loop.position, b"", 1, known))
                change = Transaction(erasure=erasure)
                with pytest.raises(Conflict):
                    await asyncio.to_thread(service.store.write, change)

            meanwhile(service, monkeypatch, work)
            settings = await service.configure(loop, {"model": "BernoulliArms"}, "test")
            loop = service.loop("drinks")
            assert (settings.exploration, loop.settings) == (0.5, settings)
            assert pulls(loop) == loop.counts.learned > 5
            assert await service.upkeep.delete_old(loop)
            (first, *_) = service.store.read(0, loop.number)
            assert isinstance(events.decode(first.body), Condensed)
            assert_the_log_gives_it(service, loop)

    run(main)


def test_who_reads_a_log_that_is_condensed_begins_anew(open_store, clock, monkeypatch):
    from tsucb.service import store as stores

    monkeypatch.setattr(stores, "CHUNK", 10)

    async def main():
        async with running(open_store(), clock) as service:
            service.upkeep.ticking.cancel()
            loop = await made(service, retention_days=1)
            await visits(service, loop, clock, 20)
            await service.ledger.store_snapshot(loop)
            clock.pass_by(2 * DAY)
            reading = service.store.read(0, loop.number)
            next(reading)
            assert await service.upkeep.delete_old(loop)
            with pytest.raises(Conflict, match="condensed meanwhile"):
                list(reading)
            assert_the_log_gives_it(service, loop)

    run(main)
