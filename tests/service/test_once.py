"""Once is once: repeats, lost acknowledgements, events that cannot be folded, damage."""

import asyncio
import random
import re

import pytest

from tests.service.conftest import run, running
from tests.service.test_loop import ARMS, WAIT, learned, log_gives, made, pulls
from tsucb.logs.decision_log import joined
from tsucb.service import events
from tsucb.service.errors import StoreError, TooLarge
from tsucb.service.events import Decided, Rewarded
from tsucb.service.export import log_rows
from tsucb.service.loop import REFUSED, REPEATED, TAKEN, Loop
from tsucb.service.server import ServerSettings, look_through
from tsucb.service.settings import LoopSettings
from tsucb.service.sqlite import FILE, SqliteStore
from tsucb.service.store import Erasure, Row, Transaction, set_aside
from tsucb.service.tables import COLUMNS, NUMBERED


@pytest.mark.parametrize("restart", [False, True])
def test_repeats_count_once_for_as_long_as_the_log_has_them(open_store, clock, restart):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, exploration=1.0)
            first = await service.decide(loop, {"n": 1}, id="visit", key="a")
            assert await service.reward(loop, "visit", 1.0, key="r") == TAKEN
            clock.pass_by(1)
            if restart:
                service.loop("drinks")
        async with running(open_store(), clock) as service:
            loop = service.loop("drinks")
            for _ in range(5):
                assert await service.decide(loop, {"n": 1}, id="visit", key="a") == first
                assert await service.reward(loop, "visit", 1.0, key="r") == REPEATED
            assert (loop.counts.decisions, pulls(loop)) == (1, 1)
            # The id is used again: a decision of its own, which only its own requests repeat.
            for n in range(20):
                second = await service.decide(loop, {"n": 2}, id="visit", key=f"b{n}")
                if second.picks[0].arm != first.picks[0].arm:
                    break
                await service.reward(loop, "visit", 0.0, key=f"s{n}")
                clock.pass_by(1)
            decisions = loop.counts.decisions
            assert await service.decide(loop, {"n": 2}, id="visit", key=f"b{n}") == second
            assert await service.decide(loop, {"n": 2}, id="visit") == second
            assert await service.decide(loop, {"n": 1}, id="visit", key="a") == first
            assert await service.reward(loop, "visit", 1.0, key="r") == REPEATED
            clock.pass_by(1)
            assert await service.reward(loop, "visit", 0.25, key="t") == TAKEN
            assert await service.decide(loop, {"n": 2}, id="visit", key=f"b{n}") == second
            assert loop.counts.decisions == decisions
            # The export joins every reward with its own decision.
            log = [events.decode(row.body) for row in service.store.read(0, loop.number)]
            table = joined(list(log_rows(LoopSettings(), log, loop.now)))
            made_then = [event.picks[0].arm for event in log if isinstance(event, Decided)]
            assert table["arm"].tolist() == made_then
            assert table["reward"].tolist() == [1.0, *[0.0] * n, 0.25]

    run(main)


def test_a_lost_acknowledgement_writes_nothing_twice(open_store, clock, monkeypatch):
    async def main():
        store = open_store()
        async with running(store, clock) as service:
            loop = await made(service, aggregation="sum", exploration=1.0)
            event = await service.decide(loop, {"n": 0})
            write = store.write

            def lose(change: Transaction):
                write(change)
                monkeypatch.setattr(store, "write", write)
                raise StoreError("the connection was lost")

            monkeypatch.setattr(store, "write", lose)
            with pytest.raises(StoreError):
                await service.decide(loop, {"n": 1}, key="a")
            await service.upkeep.tick()
            again = await service.decide(loop, {"n": 1}, key="a")
            monkeypatch.setattr(store, "write", lose)
            with pytest.raises(StoreError):
                await service.reward(loop, event.id, 2.0, key="r")
            await service.upkeep.tick()
            assert await service.reward(loop, event.id, 2.0, key="r") == REPEATED
            log = [events.decode(row.body) for row in store.read(0, loop.number)]
            decided = [each for each in log if isinstance(each, Decided)]
            assert [each.id for each in decided] == [event.id, again.id]
            assert sum(isinstance(each, Rewarded) for each in log) == 1
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (pulls(loop), learned(loop)) == (2, 2.0)

    run(main)


@pytest.mark.parametrize("live", [True, False])
def test_an_event_that_cannot_be_folded_is_set_aside(open_store, clock, monkeypatch, live):
    """Every other event counts, and later starts succeed."""

    async def main():
        store = open_store()
        async with running(store, clock) as service:
            loop = await made(service)
            ids = [(await service.decide(loop, {"n": n}, id=f"d{n}")).id for n in range(5)]
            fold = Loop.fold

            def poisoned(self, event, position):
                if getattr(event, "value", None) == 13.0:
                    self.counts.rewards += 1  # half done
                    raise MemoryError("no\0 room")
                return fold(self, event, position)

            if live:
                monkeypatch.setattr(Loop, "fold", poisoned)
            else:
                service.upkeep.ticking.cancel()
            await service.reward(loop, ids[0], 1.0)
            if live:
                assert await service.reward(loop, ids[1], 13.0) == REFUSED
                assert await service.reward(service.loop("drinks"), ids[2], 1.0) == TAKEN
                while service.turns.working:
                    await asyncio.gather(*service.turns.working)
                loop = service.loop("drinks")
                assert "set aside" in " ".join(service.alerts.values())
            else:  # written by another server, say
                event = Rewarded(clock(), ids[1], 13.0)
                store.write(Transaction([Row.of(loop.number, event)]))
                store.write(Transaction([Row(loop.number, None, None, None, b"nonsense")]))
                await service.reward(loop, ids[2], 1.0)
        monkeypatch.setattr(Loop, "fold", poisoned)
        store = open_store()
        async with running(store, clock) as service:
            loop = service.loop("drinks")
            assert (loop.counts.rewards, pulls(loop)) == (2, 2)
            aside = store.set_aside()
            assert len(aside) == (1 if live else 2)
            assert sum("no room" in each.reason for each in aside) == 1
            assert await service.reward(loop, ids[1], 1.0) == TAKEN
            assert log_gives(service, snapshots=False).digest() == loop.digest()
            assert store.audit("drinks", 9)[-2].action == "set aside"

    run(main)


def test_what_a_decide_key_can_make_is_bounded(open_store, clock):
    """A thousand arms with a thousand features need 16 GB: either is refused after the other."""

    async def main():
        async with running(open_store(), clock) as service:
            arms, context = [f"a{n}" for n in range(1_000)], {f"x{n}": 1.0 for n in range(999)}
            wide, many = await made(service, "wide"), await made(service, "many")
            await service.decide(wide, context)
            await service.decide(many, {"x": 1.0}, arms[:-3])  # and the three that it has
            with pytest.raises(TooLarge, match="model would be too large"):
                await service.decide(wide, context, arms[:-3])
            with pytest.raises(TooLarge, match="model would be too large"):
                await service.decide(many, context)
            assert (len(wide.arms), many.counts.decisions) == (3, 1)

    run(main)


async def some_history(folder, clock):
    store = SqliteStore(folder)
    async with running(store, clock) as service:
        await service.create("drinks", LoopSettings(reward_wait=WAIT), ARMS)
        loop = service.loop("drinks")
        for n in range(200):
            event = await service.decide(loop, {"n": n, "city": f"c{n % 9}"}, person=f"p{n}")
            await service.reward(loop, event.id, n % 2)
    store._scrub()
    store.close()


def everything(store):
    """Return the contents of the tables, read directly and through their indexes."""
    found = []
    for table in ("last", "loops", "events", "snapshots", "keys", "audit"):
        try:
            found.append(store._rows(f"SELECT * FROM tsucb_{table}"))
            found.append(store._structure())
        except StoreError as error:
            found.append(str(error))
    return found


def test_damage_is_noticed_and_named(tmp_path, clock):
    """After a flipped byte anywhere in the file, the start reports it and loads nothing wrong."""

    async def main():
        await some_history(tmp_path / "data", clock)
        data = (tmp_path / "data" / FILE).read_bytes()
        store = SqliteStore(tmp_path / "data")
        whole = everything(store)
        store.close()
        rng, noticed = random.Random(0), 0
        for n in range(24):
            place = rng.randrange(len(data))
            damaged = bytearray(data)
            damaged[place] ^= 1 << rng.randrange(8)
            folder = tmp_path / str(n)
            folder.mkdir()
            (folder / FILE).write_bytes(damaged)
            try:
                store = SqliteStore(folder)
            except StoreError:
                noticed += 1
                continue
            try:
                if everything(store) == whole:
                    continue  # a byte that holds nothing, as between the rows of a page
                async with running(store, clock):
                    raise AssertionError(f"bit of byte {place} is flipped, and nobody notices")
            except StoreError:
                noticed += 1
            finally:
                store.close()
        assert noticed > 12

    run(main)


def other(value):
    """Return another value of the type of a column."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, str):
        return chr(ord(value[0]) ^ 1) + value[1:]
    return 7 if value is None else value + 1


def tables_and_columns():
    return [
        (table, column)
        for table, columns in COLUMNS.items()
        for column in columns
        if not (table in NUMBERED and column == "number")  # which only say what came first
    ]


@pytest.mark.parametrize(("table", "column"), tables_and_columns())
def test_a_value_that_was_changed_in_any_table_is_noticed(open_store, clock, table, column):
    """A check names it, the next start refuses the log, and after a repair the service starts."""

    async def main():
        store = open_store()
        async with running(store, clock) as service:
            service.upkeep.ticking.cancel()
            await service.create("drinks", LoopSettings(reward_wait=WAIT), ARMS)
            loop = service.loop("drinks")
            ids = [(await service.decide(loop, {"n": n}, person="ann")).id for n in range(4)]
            await service.reward(loop, ids[0], 1.0, key="k")
            await service.put_document(loop, "words", "one", b"first")
            erasure = Erasure(set_aside, loop.number, (loop.position, "a test"))
            store.write(Transaction(erasure=erasure))
            await service.ledger.store_snapshot(loop)
        store = open_store()
        assert not list(store.damage())
        first = COLUMNS[table][0]
        rows = store._rows(f"SELECT {first}, {column} FROM tsucb_{table} ORDER BY {first}")
        place, value = rows[-1]
        with store._transaction() as execute:
            query = f"UPDATE tsucb_{table} SET {column} = ? WHERE {first} = ?"
            execute(query, (other(value), place))
        (sentence,) = list(store.damage())
        assert sentence.endswith("is damaged")
        with pytest.raises(StoreError, match=f"the log is damaged: {re.escape(sentence)}"):
            async with running(store, clock):
                pass
        if (table, column) not in {("last", "format"), ("loops", "number")}:  # only a copy helps
            assert store.repair()
            async with running(store, clock) as service:
                assert len(service.loops) == 1
                assert not list(store.damage())

    run(main)


def test_repair_sets_aside_what_is_damaged(tmp_path, clock, capsys):
    async def main():
        await some_history(tmp_path / "data", clock)
        store = SqliteStore(tmp_path / "data")
        (number,) = store.loops().values()
        position = next(row.position for row in store.read(50, number) if b"rewarded" in row.body)
        with store._transaction() as execute:
            execute("UPDATE tsucb_events SET body = ? WHERE position = ?", (b"no", position))
        assert list(store.damage()) == [f"event {position} of loop 'drinks' is damaged"]
        with pytest.raises(StoreError, match=f"event {position} of loop 'drinks' is damaged"):
            async with running(store, clock):
                pass
        store.close()
        settings = ServerSettings(data=str(tmp_path / "data"))
        with pytest.raises(ValueError, match=f"event {position} of loop 'drinks' is damaged"):
            look_through(settings, repair=False)
        look_through(settings, repair=True)
        assert f"event {position} of loop 'drinks' was set aside" in capsys.readouterr().out
        look_through(settings, repair=False)
        assert capsys.readouterr().out.endswith("the log is whole\n")
        store = SqliteStore(tmp_path / "data")
        assert [each.what for each in store.set_aside()] == [f"event {position}"]
        async with running(store, clock) as service:
            loop = service.loop("drinks")
            assert sum(each.slots[0].total is None for each in loop.open_decisions.values()) == 1
        store.close()

    run(main)
