"""Several servers over one database: they know the same, one leads, and losing it is survived."""

import asyncio
import json
import math
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.service.conftest import PATIENCE, run, running, until
from tsucb.service import events
from tsucb.service.application import Application, Options
from tsucb.service.errors import Conflict, StoreError
from tsucb.service.events import Decided
from tsucb.service.http import Call
from tsucb.service.loop import LATE, TAKEN
from tsucb.service.personalizer import Personalizer, evaluations
from tsucb.service.personalizer.routes import moment
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings
from tsucb.service.spool import ALL, MARK, MARK_SECONDS, Spool, merge_marks
from tsucb.service.store import Erasure, Transaction, forget


@pytest.fixture
def stores():
    """Return a function that opens a store at an address; close all stores at the end."""
    opened = []

    def opener(*addresses):
        from tsucb.service.postgres import PostgresStore

        opened.extend(PostgresStore(address) for address in addresses)
        return opened[-len(addresses) :]

    yield opener
    for store in opened:
        store.close()


async def in_step(*services: Service) -> None:
    """Let all servers read the events that others wrote."""
    for _ in range(2):
        for service in services:
            await service.upkeep.tick()
            while service.turns.working:  # what they began, and what came of that
                await asyncio.gather(*service.turns.working)


def test_two_servers_know_the_same(schema, stores, clock):
    async def main():
        first, second = stores(schema, schema)
        async with running(first, clock) as one, running(second, clock) as two:
            assert (one.ledger.leading, two.ledger.leading) == (True, False)
            await one.create(
                "drinks", LoopSettings(reward_wait=600.0, learn_early=True), ["tea", "milk"]
            )
            await in_step(one, two)
            here, there = one.loop("drinks"), two.loop("drinks")
            key = await one.issue_key(here, "decide", "test")
            await in_step(two)
            assert two.keys.holder(key, clock()) is not None
            for n in range(30):
                decision = await (one if n % 2 else two).decide(
                    here if n % 2 else there, {"n": n}, person="ann" if n % 3 else "bob"
                )
                # Whoever was asked, any of them takes the reward, and knows it is for it.
                taker, loop = (two, there) if n % 2 else (one, here)
                assert await taker.reward(loop, decision.id, n % 4) == TAKEN
            await in_step(one, two)
            assert here.counts.learned == 30
            assert here.digest() == there.digest()
            # Both at once: positions are dense, nothing is skipped.
            await asyncio.gather(
                *(s.decide(x, {"n": n}) for n in range(40) for s, x in ((one, here), (two, there)))
            )
            await in_step(one, two)
            assert here.digest() == there.digest()
            clock.pass_by(601)
            await in_step(one, two)
            assert (len(here.open_decisions), here.counts.defaults) == (0, 80)
            assert here.digest() == there.digest()
            # What one forgets, all forget.
            assert await one.forget(here, person="ann") == 40
            await in_step(one, two)
            assert one.loop("drinks").digest() == two.loop("drinks").digest()
            assert two.loop("drinks").counts.decisions == 90
            await one.delete("drinks", "test")
            await in_step(two)
            assert not two.loops

    run(main)


def test_another_leads_when_the_leader_is_gone(schema, stores, clock):
    async def main():
        first, second = stores(schema, schema)
        leader = Service(first, clock=clock)
        await leader.start()
        async with running(second, clock) as other:
            assert (leader.ledger.leading, other.ledger.leading) == (True, False)
            await leader.stop()
            first.close()
            # The database takes a moment to see that the session has ended.
            await until(lambda: other.ledger.leading)

    run(main)


def test_without_its_database_a_server_goes_on_deciding(
    schema, stores, clock, monkeypatch, tmp_path
):
    async def main():
        (store,) = stores(schema)
        async with running(store, clock, folder=str(tmp_path)) as service:
            await service.create("drinks", LoopSettings(learn_early=True), ["tea", "milk"])
            loop, write = service.loop("drinks"), store.write

            def fail(change):
                raise StoreError("the database is gone")

            before = await service.decide(loop, {"n": 0})
            monkeypatch.setattr(store, "write", fail)
            made = [await service.decide(loop, {"n": n}) for n in range(5)]
            assert (len(service.spool), service.ledger.failed) == (5, True)
            with pytest.raises(StoreError):  # a reward is not acknowledged
                await service.reward(loop, before.id, 1.0)
            monkeypatch.setattr(store, "write", write)
            await service.upkeep.tick()
            assert (len(service.spool), service.ledger.failed) == (0, False)
            for decision in made:
                assert await service.reward(loop, decision.id, 1.0) == TAKEN
            assert await service.reward(loop, made[0].id, 1.0) == LATE
            assert service.replayed(service.loop("drinks"), False).digest() == loop.digest()

    run(main)


def test_a_database_that_stops_and_comes_back(mortal_database, stores, clock, tmp_path):
    """The real server is stopped: deciding goes on, says so, and catches up afterwards."""

    async def main():
        address = mortal_database.address
        first, second = stores(address, address)
        kept = {"folder": str(tmp_path)}
        async with running(first, clock) as one, running(second, clock, **kept) as two:
            await one.create(
                "drinks", LoopSettings(reward_wait=600.0, learn_early=True), ["tea", "milk"]
            )
            await until(lambda: "drinks" in two.loops)
            here, there = one.loop("drinks"), two.loop("drinks")
            before = [await one.decide(here, {"n": n}) for n in range(5)]
            page = Application(two, Options()).page
            page._is_ready = lambda: True
            await asyncio.to_thread(mortal_database.stop)
            made = [await two.decide(there, {"n": n}, key=f"k{n}") for n in range(5)]
            again = await two.decide(there, {"n": 0}, key="k0")
            assert again.id == made[0].id
            assert len(two.spool) == 5
            health = page.health("readyz")
            state = json.loads(health.body)
            assert (health.status, state["store"], state["unwritten"]) == (200, "failing", 5)
            assert "when the store was lost" in state["deciding"]
            for id in (before[0].id, made[0].id):  # a reward is not acknowledged
                with pytest.raises(StoreError):
                    await two.reward(there, id, 1.0)
            await until(lambda: one.upkeep.lost is not None)  # who is asked nothing notices, too
            await asyncio.to_thread(mortal_database.start)
            await until(
                lambda: one.upkeep.lost is None and two.upkeep.lost is None and not two.spool
            )
            assert json.loads(page.health("readyz").body)["store"] == "working"
            for decision in (*before, *made):
                assert await two.reward(two.loop("drinks"), decision.id, 1.0) == TAKEN
            await until(lambda: one.ledger.position == two.ledger.position)
            await until(lambda: not one.turns.left + two.turns.left)  # folds in threads
            assert (
                here.digest() == there.digest() == one.replayed(one.loop("drinks"), False).digest()
            )
            assert sorted([one.ledger.leading, two.ledger.leading]) == [False, True]

    run(main)


@pytest.mark.parametrize("looks", [True, False])
def test_who_falls_behind_goes_on_from_the_newest_snapshot(
    schema, stores, clock, monkeypatch, looks
):
    async def main():
        first, second = stores(schema, schema)
        async with running(first, clock) as one, running(second, clock) as two:
            two.upkeep.ticking.cancel()
            for name in ("drinks", "quiet"):
                await one.create(name, LoopSettings(), ["tea", "milk"])
            await two.upkeep.tick()
            old, here = two.loop("drinks"), one.loop("drinks")
            for n in range(40):
                event = await one.decide(here, {"n": n})
                await one.reward(here, event.id, n % 2)
                if n == 35:
                    await one.ledger.store_snapshot(here)
            monkeypatch.setattr("tsucb.service.ledger.FAR", 20)
            read = []
            decode = events.decode
            monkeypatch.setattr(
                "tsucb.service.ledger.events.decode", lambda body: read.append(0) or decode(body)
            )
            if looks:
                await two.upkeep.tick()
            else:  # what it writes itself comes behind what it has missed
                await two.decide(old, {"n": 0})
            assert len(read) < 30
            assert two.loop("drinks") is not old
            await in_step(one, two)
            assert here.digest() == two.loop("drinks").digest()
            assert two.loop("quiet").digest() == one.loop("quiet").digest()

    run(main)


def test_another_model_is_learned_everywhere(schema, stores, clock):
    async def main():
        first, second = stores(schema, schema)
        async with running(first, clock) as one, running(second, clock) as two:
            await one.create("drinks", LoopSettings(), ["tea", "milk"])
            await in_step(one, two)
            for n in range(30):
                event = await one.decide(one.loop("drinks"), {"n": n})
                await one.reward(one.loop("drinks"), event.id, n % 2)
            await two.upkeep.tick()
            # Asked of the one that does not lead.
            await two.configure(two.loop("drinks"), {"model": "BernoulliArms"}, "test")
            await two.decide(two.loop("drinks"), {"n": 0})
            await in_step(one, two)
            await asyncio.gather(*one.turns.working)
            loops = [service.loop("drinks") for service in (one, two)]
            assert loops[0].settings.model == "BernoulliArms"
            assert loops[0].digest() == loops[1].digest()
            assert one.replayed(one.loop("drinks"), False).digest() == loops[0].digest()

    run(main)


def test_who_has_not_heard_of_a_model_deletes_nothing_from_under_it(
    schema, stores, clock, monkeypatch
):
    async def main():
        first, second = stores(schema, schema)
        async with running(first, clock) as one, running(second, clock) as two:
            settings = LoopSettings(retention_days=1, learn_early=True)
            await one.create("drinks", settings, ["tea", "milk"])
            for service in (one, two):
                service.upkeep.ticking.cancel()
            one.upkeep.cleaned = math.inf  # it would delete by itself
            await in_step(one, two)
            for n in range(30):
                event = await one.decide(one.loop("drinks"), {"n": n})
                await one.reward(one.loop("drinks"), event.id, n % 2)
            await one.ledger.store_snapshot(one.loop("drinks"))
            clock.pass_by(2 * 86_400)
            await in_step(one, two)
            condensed = one.upkeep.condensed

            def slow(*arguments):  # the other model comes when the leader has just looked
                found = condensed(*arguments)
                change = two.configure(two.loop("drinks"), {"model": "BernoulliArms"}, "test")
                asyncio.run_coroutine_threadsafe(change, requests).result()
                return found

            requests = asyncio.get_running_loop()
            with monkeypatch.context() as patch:
                patch.setattr(one.upkeep, "condensed", slow)
                with pytest.raises(Conflict, match="changed meanwhile"):
                    await one.upkeep.delete_old(one.loop("drinks"))
            await in_step(one, two)
            assert await one.upkeep.delete_old(one.loop("drinks"))
            await in_step(one, two)
            digests = {service.loop("drinks").digest() for service in (one, two)}
            assert digests == {two.replayed(two.loop("drinks"), False).digest()}
            assert int(two.loop("drinks").arms_summary()["pulls"].sum()) == 30

    run(main)


def test_an_evaluation_runs_until_its_server_is_gone(schema, stores, clock, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(evaluations, "evaluate", lambda *_: go_on.wait(PATIENCE))

    def calls(service, id):
        call = Call(service, "PUT", ["evaluations", id], b"", b"", {}, b"", False)
        call.path_values, call.loop, call.protocol = [id], service.loop("drinks"), Personalizer()
        return call

    async def status(call):
        return (await evaluations.documents(call, evaluations.EVALUATION))[call.id]["status"]

    async def ends(call):
        while (found := await status(call)) == "Running":
            await asyncio.sleep(0.02)
        return found

    async def main():
        first, second = stores(schema, schema)
        leader = Service(first, clock=clock)
        await leader.start()
        async with running(second, clock) as other:
            await leader.create("drinks", LoopSettings(), ["tea", "milk"])
            await in_step(other)
            asked = evaluations.EvaluationContract("e", moment(0), moment(1e9))
            here, there = calls(leader, "e"), calls(other, "e")
            await evaluations.put_evaluation(here, asked)
            assert [await status(here), await status(there)] == ["Running", "Running"]
            # It is done while the store is away, and written when that is back.
            write, tried = first.write, []

            def fail(change):
                tried.append(change)
                raise StoreError("the database is gone")

            monkeypatch.setattr(evaluations, "RETRY", 0.01)
            monkeypatch.setattr(first, "write", fail)
            go_on.set()
            await until(lambda: len(tried) > 3)
            assert await status(there) == "Running"
            monkeypatch.setattr(first, "write", write)
            assert [await ends(there), await ends(here)] == ["Succeeded", "Succeeded"]
            go_on.clear()
            here, there = calls(leader, "f"), calls(other, "f")
            await evaluations.put_evaluation(here, asked)
            assert await status(there) == "Running"
            await leader.stop()
            first.close()
            assert await ends(there) == "Failed"
            go_on.set()

    run(main)


def test_two_services_in_one_database_lead_both(database, stores, clock):
    import psycopg

    names = "north", "south"
    with psycopg.connect(database, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
    found = stores(*(f"{database}&options=-csearch_path%3D{name}" for name in names))
    assert [store.lead(0.0)[0] for store in found] == [True, True]


def test_a_slow_start_is_not_ended_by_the_database(schema, stores, monkeypatch):
    """On a busy machine, seconds may pass between two statements."""
    from tsucb.service.postgres import PostgresStore

    stores(schema)
    execute = PostgresStore._execute

    def slow(self, name, query, values=()):
        time.sleep(1.3)
        return execute(self, name, query, values)

    monkeypatch.setattr(PostgresStore, "_execute", slow)
    (store,) = stores(schema)
    assert store.loops() == {}


def test_a_database_that_is_not_there_is_one_sentence():
    pytest.importorskip("psycopg", reason="the PostgreSQL store needs tsucb[postgres]")
    from tsucb.service.postgres import PostgresStore

    with pytest.raises(StoreError, match="the log could not be written"):
        PostgresStore("postgresql://nobody@127.0.0.1:1/nothing")


def test_decisions_made_without_the_database_survive_a_stop(
    mortal_database, stores, clock, tmp_path
):
    """They are on this machine's disk when answered, and in the log after the next start."""

    async def main():
        address = mortal_database.address
        (store,) = stores(address)
        kept = {"folder": str(tmp_path)}
        async with running(store, clock, **kept) as service:
            await service.create("drinks", LoopSettings(learn_early=True), ["tea", "milk"])
            loop = service.loop("drinks")
            await asyncio.to_thread(mortal_database.stop)
            made = [await service.decide(loop, {"n": n}, key=f"k{n}") for n in range(20)]
        store.close()
        await asyncio.to_thread(mortal_database.start)
        (store,) = stores(address)
        async with running(store, clock, **kept) as service:
            await until(lambda: not len(service.spool))
            loop = service.loop("drinks")
            assert [await service.reward(loop, each.id, 1.0) for each in made] == [TAKEN] * 20
            assert await service.decide(loop, {"n": 3}, key="k3") == made[3]
            assert loop.counts.decisions == 20
            assert len(Spool(tmp_path)) == 0

    run(main)


def test_a_decision_whose_acknowledgement_was_lost_is_written_once(
    schema, stores, clock, monkeypatch, tmp_path
):
    async def main():
        (store,) = stores(schema)
        async with running(store, clock, folder=str(tmp_path)) as service:
            service.upkeep.ticking.cancel()
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop, write = service.loop("drinks"), store.write

            def lose(change):
                write(change)
                raise StoreError("the connection was lost")

            monkeypatch.setattr(store, "write", lose)
            first = await service.decide(loop, {"n": 0})
            monkeypatch.setattr(store, "write", write)
            with pytest.raises(StoreError, match="cannot be reached"):
                # Another server may decide by this id, too: only the log could tell.
                await service.decide(loop, {"n": 1}, id="visit")
            later = await service.decide(loop, {"n": 1})
            # A repeat that comes while the first request still waits for the database.
            same = await asyncio.gather(
                *(service.decide(loop, {"n": n}, key="k") for n in range(5))
            )
            assert same == [same[0]] * 5
            assert len(service.spool) == 3
            await service.upkeep.tick()
            assert len(service.spool) == 0
            log = [events.decode(row.body) for row in store.read(0, loop.number)]
            decided = [each.id for each in log if isinstance(each, events.Decided)]
            assert decided == [first.id, later.id, same[0].id]
            assert set(loop.open_decisions) == set(decided)

    run(main)


def test_what_is_kept_while_others_are_written_stays(schema, stores, clock, monkeypatch, tmp_path):
    async def main():
        (store,) = stores(schema)
        async with running(store, clock, folder=str(tmp_path)) as service:
            service.upkeep.ticking.cancel()
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop = service.loop("drinks")
            service.ledger.failed = True
            first = await service.decide(loop, {"n": 0})
            missing = service.upkeep.missing

            def slow(entries):  # the database is lost again for a moment
                service.ledger.failed = True
                deciding = service.decide(loop, {"n": 1}, key="k")
                kept.append(asyncio.run_coroutine_threadsafe(deciding, requests).result())
                service.ledger.failed = False
                return missing(entries)

            def lose(change):
                raise StoreError("the database is gone")

            kept, requests = [], asyncio.get_running_loop()
            with monkeypatch.context() as patch:
                patch.setattr(service.upkeep, "missing", slow)
                await service.upkeep.tick()
            assert (len(service.spool), list(loop.open_decisions)) == (1, [first.id])
            assert len(Spool(tmp_path)) == 1
            with monkeypatch.context() as patch:  # and is lost while the only one is written
                patch.setattr(store, "write", lose)
                with pytest.raises(StoreError, match="gone"):
                    await service.upkeep.tick()
            assert (len(service.spool), len(Spool(tmp_path))) == (1, 1)
            await service.upkeep.tick()
            assert (len(service.spool), len(loop.open_decisions)) == (0, 2)
            assert await service.decide(loop, {"n": 1}, key="k") == kept[0]

    run(main)


def test_two_servers_that_cannot_know_of_each_other_decide_for_one_request(
    schema, stores, clock, tmp_path
):
    """Both decisions were acknowledged, so both are in the log, and take their rewards."""

    async def main():
        first, second = stores(schema, schema)
        async with (
            running(first, clock, folder=str(tmp_path)) as one,
            running(second, clock) as two,
        ):
            one.upkeep.ticking.cancel()
            await one.create("drinks", LoopSettings(), ["tea", "milk"])
            await in_step(two)
            one.ledger.failed = True  # as if the database were away
            kept = await one.decide(one.loop("drinks"), {"n": 0}, key="k")
            made = await two.decide(two.loop("drinks"), {"n": 0}, key="k")
            await in_step(one, two)
            assert set(one.loop("drinks").open_decisions) == {kept.id, made.id}
            for event in (kept, made):
                assert await two.reward(two.loop("drinks"), event.id, 1.0) == TAKEN
            assert await one.decide(one.loop("drinks"), {"n": 0}, key="k") == made
            await in_step(one, two)
            assert one.loop("drinks").digest() == two.loop("drinks").digest()
            # By an id of the client's own it can only be one decision: no server decides without
            # the log, and all of them give the same answer.
            one.ledger.failed = True
            with pytest.raises(StoreError, match="cannot be reached"):
                await one.decide(one.loop("drinks"), {"n": 0}, key="m", id="own")
            stands = await two.decide(two.loop("drinks"), {"n": 0}, key="m", id="own")
            assert await two.reward(two.loop("drinks"), "own", 1.0) == TAKEN
            await in_step(one, two)
            assert await one.decide(one.loop("drinks"), {"n": 0}, key="m", id="own") == stands
            assert len(await one.history(one.loop("drinks"), "own")) == 2, "and its reward"

    run(main)


def test_who_appends_does_not_wait_for_those_who_read(schema, stores, clock):
    """As clients look up their decisions one after the other, and a database may answer late."""

    async def main():
        first, second = stores(schema, schema)
        async with running(first, clock) as one, running(second, clock) as two:
            two.upkeep.ticking.cancel()
            await one.create("drinks", LoopSettings(), ["tea", "milk"])
            await two.upkeep.tick()
            await one.decide(one.loop("drinks"), {"n": 0}, id="elsewhere")
            go_on, held = threading.Event(), threading.Event()

            def read():
                with second._locks["reader"]:
                    held.set()
                    go_on.wait(PATIENCE)

            reading = asyncio.create_task(asyncio.to_thread(read))
            await asyncio.to_thread(held.wait)
            try:
                deciding = two.decide(two.loop("drinks"), {"n": 1}, id="here")
                await asyncio.wait_for(deciding, 60)
            finally:
                go_on.set()
            await reading
            assert set(two.loop("drinks").open_decisions) == {"elsewhere", "here"}

    run(main)


@pytest.mark.parametrize("how", ["forget", "clear"])
def test_what_is_deleted_is_not_written_again_from_this_disk(schema, stores, clock, tmp_path, how):
    """A decision that a slow store took after all is on this disk, too, until the next look."""

    async def main():
        (store,) = stores(schema)
        async with running(store, clock, folder=str(tmp_path)) as service:
            service.upkeep.ticking.cancel()
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop = service.loop("drinks")
            both = await service.decide(loop, {"n": 0}, person="ann")
            only = await service.decide(loop, {"n": 1}, person="ann")
            store.write(Transaction(erasure=Erasure(forget, loop.number, ((only.id,), None))))
            service.spool.add([(loop.number, both), (loop.number, only)])
            if how == "forget":
                await service.forget(loop, person="ann")
            else:
                await service.clear(loop, "test")
            await service.upkeep.tick()
            assert not store.about(loop.number, both.id) + store.about(loop.number, only.id)
            assert len(Spool(tmp_path)) == len(service.loop("drinks").open_decisions) == 0

    run(main)


@pytest.mark.parametrize("how", ["person", "id", "clear"])
def test_what_one_server_deletes_another_does_not_write_from_its_disk(
    schema, stores, clock, tmp_path, how
):
    """The other server is cut off and cannot know; its later writes must not restore anything."""

    async def main():
        first, second = stores(schema, schema)
        kept = {"folder": str(tmp_path)}
        async with running(first, clock) as one, running(second, clock, **kept) as two:
            two.upkeep.ticking.cancel()
            await one.create("drinks", LoopSettings(), ["tea", "milk"])
            await two.upkeep.tick()
            loop = two.loop("drinks")
            two.ledger.failed = True  # as if the database were away
            made = [
                await two.decide(loop, {"n": n}, person=p) for n, p in enumerate(["ann", "bob"])
            ]
            here = one.loop("drinks")
            if how == "person":
                await one.forget(here, person="ann")
            elif how == "id":
                await one.forget(here, [made[0].id])
            else:
                await one.clear(here, "test")
            clock.pass_by(10)
            later = await two.decide(loop, {"n": 2}, person="ann")
            assert len(two.spool) == 3
            await in_step(two, one)
            assert len(Spool(tmp_path)) == 0
            stays = [later] if how == "clear" else [made[1], later]
            for service in (one, two):
                assert set(service.loop("drinks").open_decisions) == {each.id for each in stays}
            assert not any(first.about(loop.number, each.id) for each in made if each not in stays)
            # Neither name nor id is in the marks that did this, and later there are fewer.
            marks = first.documents(loop.number, MARK)
            assert not any("ann" in id or made[0].id in id for id in marks)
            clock.pass_by(MARK_SECONDS)
            merge_marks(first, loop.number, clock() - MARK_SECONDS + 1)
            assert list(first.documents(loop.number, MARK)) == [ALL]
            two.spool.add([(loop.number, made[1]), (loop.number, made[0])])
            first.write(Transaction(erasure=Erasure(forget, loop.number, ([made[1].id], None))))
            await two.upkeep.tick()
            assert not any(first.about(loop.number, each.id) for each in made)

    run(main)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_decision_does_not_wait_for_a_slow_store(
    schema, stores, clock, monkeypatch, tmp_path, arrives
):
    """It is kept on the local disk after a moment, and exactly once in the log."""

    async def main():
        (store,) = stores(schema)
        async with running(store, clock, folder=str(tmp_path)) as service:
            service.upkeep.ticking.cancel()
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop, write, go_on = service.loop("drinks"), store.write, threading.Event()

            def slow(change):
                go_on.wait()
                if not arrives:
                    raise StoreError("the database is gone")
                return write(change)

            monkeypatch.setattr(store, "write", slow)
            # The first is being written, the others wait behind it.
            made = [await service.decide(loop, {"n": n}, key=f"k{n}") for n in range(3)]
            assert (len(service.spool), service.upkeep.failing) == (3, False)
            rewarding = asyncio.create_task(service.reward(loop, made[0].id, 1.0))
            with pytest.raises(StoreError, match="not written yet"):
                await rewarding
            monkeypatch.setattr(store, "write", write)
            go_on.set()
            await service.upkeep.tick()
            assert len(service.spool) == 0
            log = [events.decode(row.body) for row in store.read(0, loop.number)]
            decided = [each.id for each in log if isinstance(each, events.Decided)]
            assert decided == [each.id for each in made]
            for each in made:
                assert await service.reward(loop, each.id, 1.0) == TAKEN

    run(main)


def test_many_decisions_are_written_by_few_statements(schema, stores, clock, monkeypatch, tmp_path):
    """Otherwise a slow database would receive them more slowly than they come."""

    async def main():
        (store,) = stores(schema)
        async with running(store, clock, folder=str(tmp_path)) as service:
            service.upkeep.ticking.cancel()
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop = service.loop("drinks")
            service.ledger.failed = True
            made = [await service.decide(loop, {"n": n}, key=f"k{n}") for n in range(120)]
            assert len(service.spool) == 120
            execute, count = store._execute, Counter[str]()

            def counted(name, query, values=()):
                count[name] += 1
                return execute(name, query, values)

            monkeypatch.setattr(store, "_execute", counted)
            monkeypatch.setattr("tsucb.service.upkeep.AT_ONCE", 50)
            await service.upkeep.tick()
            assert len(service.spool) == 0
            assert count.total() < 30
            assert list(loop.open_decisions) == [each.id for each in made]

    run(main)


def test_what_others_wrote_is_folded_in_pieces(schema, stores, clock, monkeypatch, tmp_path):
    """A server that was paused has much to fold, and decides meanwhile."""

    async def main():
        first, second = stores(schema, schema)
        kept = {"folder": str(tmp_path)}
        async with running(first, clock) as one, running(second, clock, **kept) as two:
            two.upkeep.ticking.cancel()
            await one.create("drinks", LoopSettings(), ["tea", "milk"])
            await two.upkeep.tick()
            for n in range(40):
                await one.decide(one.loop("drinks"), {"n": n})
            monkeypatch.setattr("tsucb.service.ledger.AT_ONCE", 5)
            monkeypatch.setattr("tsucb.service.ledger.SLOW", 0.0)
            happened, deciding = list[str](), list[asyncio.Task[Decided]]()
            fold = two.ledger._fold_from_elsewhere

            def counted(logged):
                if not happened:
                    deciding.append(asyncio.create_task(two.decide(two.loop("drinks"), {"n": 0})))
                    deciding[0].add_done_callback(lambda _: happened.append("decided"))
                happened.append("folded")
                fold(logged)

            monkeypatch.setattr(two.ledger, "_fold_from_elsewhere", counted)
            await two.upkeep.tick()
            made = await deciding[0]
            assert happened.index("decided") <= 20
            monkeypatch.undo()
            await in_step(two, one)
            assert made.id in one.loop("drinks").open_decisions
            assert one.loop("drinks").digest() == two.loop("drinks").digest()

    run(main)


def test_a_statement_that_was_given_up_writes_nothing_later(
    mortal_database, stores, clock, tmp_path
):
    """The database's process for it stops, and goes on when another has written the decision."""

    async def main():
        (store,) = stores(mortal_database.address)
        async with running(store, clock, folder=str(tmp_path)) as service:
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop = service.loop("drinks")
            process = store._connections["writer"].info.backend_pid
            os.kill(process, signal.SIGSTOP)
            try:
                made = await service.decide(loop, {"n": 0})
                await until(lambda: service.upkeep.lost is not None)
            finally:
                os.kill(process, signal.SIGCONT)
            await until(lambda: not len(service.spool))
            await until(lambda: not Path(f"/proc/{process}").exists())
            log = [events.decode(row.body) for row in store.read(0, loop.number)]
            assert [e.id for e in log if isinstance(e, events.Decided)] == [made.id]

    run(main)


def test_a_leader_leads_whatever_else_waits_for_the_database(schema, stores, clock, monkeypatch):
    async def main():
        monkeypatch.setattr("tsucb.service.postgres.LEASE", 1.0)
        first, second = stores(schema, schema)
        async with running(first, clock) as one, running(second, clock) as two:
            go_on = threading.Event()
            monkeypatch.setattr(first, "last", go_on.wait)
            # Whatever many requests wait for takes the threads that all share.
            reading = [asyncio.to_thread(go_on.wait) for _ in range(50)]
            waiting = asyncio.gather(*reading)
            await asyncio.sleep(2.0)
            assert (one.ledger.leading, two.ledger.leading) == (True, False)
            go_on.set()
            await waiting
            monkeypatch.undo()

            def fail(time):
                raise StoreError("the database is gone")

            monkeypatch.setattr(first, "lead", fail)
            await until(lambda: two.ledger.leading)
            assert not one.ledger.leading

    run(main)


def test_a_paused_server_stops_nobody(schema, stores, clock):
    """It holds a lock in the middle of a transaction, and never goes on."""

    async def main():
        paused, working = stores(schema, schema)
        async with running(working, clock) as service:
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop = service.loop("drinks")
            paused._execute("writer", "BEGIN")
            paused._execute("writer", "UPDATE tsucb_last SET position = position")
            paused._lock_loops(lambda *query: paused._execute("writer", *query), [loop.number])
            await service.decide(loop, {"n": 1})
            await service.forget(loop, ["nobody"])
            with pytest.raises(StoreError, match="idle-in-transaction timeout"):
                paused._execute("writer", "COMMIT")

    run(main)


def test_a_paused_leader_is_replaced(schema, stores, monkeypatch):
    monkeypatch.setattr("tsucb.service.postgres.LEASE", 0.3)
    one, two = stores(schema, schema)
    assert one.lead(5.0) == (True, 5.0)
    assert one.lead(4.0) == (True, 5.0)
    assert two.lead(9.0) == (False, 5.0)
    time.sleep(0.4)
    assert two.lead(6.0) == (True, 6.0)
    assert one.lead(6.5) == (False, 6.0)
    two.resign()
    assert one.lead(7.0) == (True, 7.0)


def test_a_killed_leader_is_replaced_before_its_lease_ends(schema, stores, monkeypatch):
    monkeypatch.setattr("tsucb.service.postgres.LEASE", 1_000.0)
    one, two = stores(schema, schema)
    assert one.lead(5.0) == (True, 5.0)
    assert two.lead(6.0) == (False, 5.0)
    one._connections["leader"].close()  # as the system does for a process that was killed
    deadline = time.monotonic() + PATIENCE
    while not two.lead(6.0)[0]:  # until the database has noticed
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert one.lead(7.0) == (False, 6.0)


def test_a_paused_database_is_noticed(mortal_database, stores, clock, tmp_path):
    async def main():
        (store,) = stores(mortal_database.address)
        async with running(store, clock, folder=str(tmp_path)) as service:
            await service.create("drinks", LoopSettings(learn_early=True), ["tea", "milk"])
            loop = service.loop("drinks")
            before = await service.decide(loop, {"n": 0})
            mortal_database.signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                made = [await service.decide(loop, {"n": n}) for n in range(5)]
                assert time.monotonic() - began < 5.0
                with pytest.raises(StoreError):
                    await service.reward(loop, before.id, 1.0)
                await until(lambda: service.upkeep.failing)
            finally:
                mortal_database.signal(signal.SIGCONT)
            await until(lambda: not service.upkeep.failing and not len(service.spool))
            for event in (before, *made):
                assert await service.reward(service.loop("drinks"), event.id, 1.0) == TAKEN

    run(main)


def test_the_event_loop_never_waits_for_the_store(schema, stores, clock, monkeypatch, tmp_path):
    async def main():
        (store,) = stores(schema)
        here, execute = threading.get_ident(), store._execute
        calls = []

        def watched(name, query, values=()):
            calls.append(query)
            assert threading.get_ident() != here, query
            return execute(name, query, values)

        monkeypatch.setattr(store, "_execute", watched)
        async with running(store, clock, folder=str(tmp_path)) as service:
            await service.create("drinks", LoopSettings(learn_early=True), ["tea", "milk"])
            loop = service.loop("drinks")
            for n in range(20):
                event = await service.decide(loop, {"n": n}, key=f"k{n}", id=f"i{n}", person="ann")
                await service.reward(loop, event.id, n % 2)
                await service.reward(loop, event.id, n % 2)
                await service.decide(loop, {"n": n}, key=f"k{n}", id=f"i{n}")
            await service.configure(loop, {"model": "BernoulliArms"}, "test")
            await service.issue_key(loop, "decide", "test")
            await service.put_document(loop, "a", "b", b"c")
            await service.forget(service.loop("drinks"), ["i3"])
            await service.clear(service.loop("drinks"), "test")
            await service.upkeep.tick()
            call = Call(service, "PUT", ["evaluations", "e"], b"", b"", {}, b"", False)
            call.path_values, call.loop, call.protocol = (
                ["e"],
                service.loop("drinks"),
                Personalizer(),
            )
            await evaluations.put_evaluation(
                call, evaluations.EvaluationContract("e", moment(0), moment(1e9))
            )
            await evaluations.delete_document(call)
            await service.delete("drinks", "test")
        assert len(calls) > 100

    run(main)
