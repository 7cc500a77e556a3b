"""The fold: what becomes of decisions and rewards as time goes by."""

import asyncio
import math
import threading
from typing import Any

import pytest

from tests.service.conftest import PATIENCE, Clock, run, running
from tsucb.service import events
from tsucb.service.errors import NotFound, Overloaded, StoreError
from tsucb.service.events import Decided, Rewarded
from tsucb.service.loop import LATE, REPEATED, TAKEN, Loop
from tsucb.service.questions import Question, Wanted
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings, changed
from tsucb.service.state import LoopState

ARMS = ["tea", "milk", "juice"]
WAIT = 600.0


def log_gives(service: Service, name: str = "drinks", **how: Any) -> Loop:
    """Make a loop from the log."""
    return service.replayed(service.loop(name), **how)


async def made(service: Service, name: str = "drinks", **settings: Any) -> Loop:
    settings = {"reward_wait": WAIT, "learn_early": True, **settings}
    await service.create(name, LoopSettings(**settings), ARMS)
    return service.loop(name)


def pulls(loop: Loop) -> int:
    return int(loop.arms_summary()["pulls"].sum())


def learned(loop: Loop) -> float:
    """Return the sum of all rewards learned."""
    summary = loop.arms_summary()
    return float((summary["pulls"] * summary["mean_reward"].fillna(0)).sum())


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("seconds", "counts"), [(WAIT - 1, True), (WAIT + 1, False)])
def test_a_reward_around_the_end_of_the_wait(open_store, clock, restart, seconds, counts):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, default_reward=0.25)
            event = await service.decide(loop, {"hour": 9})
            if not restart:
                clock.pass_by(seconds)
                assert await service.reward(loop, event.id, 1.0) == (TAKEN if counts else LATE)
                assert (pulls(loop), learned(loop)) == (1, 1.0 if counts else 0.25)
                return
        clock.pass_by(seconds)
        async with running(open_store(), clock) as service:
            loop = service.loop("drinks")
            assert await service.reward(loop, event.id, 1.0) == (TAKEN if counts else LATE)
            assert (pulls(loop), learned(loop)) == (1, 1.0 if counts else 0.25)
            assert loop.counts.late == (0 if counts else 1)

    run(main)


def test_waits_end_without_requests(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, default_reward=0.5)
            for hour in range(3):
                await service.decide(loop, {"hour": hour})
                clock.pass_by(10)
            clock.pass_by(WAIT - 30)
            await service.upkeep.tick()
            assert (len(loop.open_decisions), learned(loop)) == (2, 0.5)
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (len(loop.open_decisions), learned(loop), loop.counts.defaults) == (0, 1.5, 3)

    run(main)


def test_no_default_reward_means_nothing_is_learned(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, default_reward=None)
            await service.decide(loop, None)
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (pulls(loop), loop.counts.defaults, len(loop.open_decisions)) == (0, 1, 0)
            assert loop.arms_summary()["open"].sum() == 0

    run(main)


def test_the_first_reward_counts_and_repeats_do_not(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            event = await service.decide(loop, {"hour": 9})
            assert await service.reward(loop, event.id, 1.0) == TAKEN
            assert await service.reward(loop, event.id, 0.5) == LATE
            assert (pulls(loop), learned(loop)) == (1, 1.0)
            event = await service.decide(loop, {"hour": 9})
            assert await service.reward(loop, event.id, 1.0, key="k") == TAKEN
            assert await service.reward(loop, event.id, 1.0, key="k") == REPEATED
            assert (pulls(loop), learned(loop)) == (2, 2.0)

    run(main)


@pytest.mark.parametrize("restart", [False, True])
def test_sums_count_every_key_once(open_store, clock, restart):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, aggregation="sum")
            event = await service.decide(loop, {"hour": 9})
            assert await service.reward(loop, event.id, 1.0, key="a") == TAKEN
            assert await service.reward(loop, event.id, 2.0) == TAKEN
            if not restart:
                assert await service.reward(loop, event.id, 1.0, key="a") == REPEATED
        async with running(open_store(), clock) as service:
            loop = service.loop("drinks")
            assert await service.reward(loop, event.id, 1.0, key="a") == REPEATED
            assert await service.reward(loop, event.id, 4.0, key="b") == TAKEN
            assert pulls(loop) == 0
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (pulls(loop), learned(loop)) == (1, 7.0)

    run(main)


def test_deferred_decisions_count_once_activated(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            used = await service.decide(loop, {"hour": 9}, deferred=True)
            unused = await service.decide(loop, {"hour": 10}, deferred=True)
            early = await service.decide(loop, {"hour": 11}, deferred=True)
            assert await service.activate(loop, used.id) == TAKEN
            assert await service.activate(loop, used.id) == REPEATED
            await service.reward(loop, used.id, 1.0)
            await service.reward(loop, unused.id, 1.0)
            await service.reward(loop, early.id, 0.5)
            assert learned(loop) == 1.0
            await service.activate(loop, early.id)
            assert learned(loop) == 1.5
            clock.pass_by(WAIT)
            assert await service.activate(loop, unused.id) == LATE
            assert (learned(loop), pulls(loop), loop.counts.never_activated) == (1.5, 2, 1)

    run(main)


def test_learning_when_the_wait_is_over(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, learn_early=False)
            good, bad = [await service.decide(loop, {"hour": n}) for n in range(2)]
            assert await service.reward(loop, good.id, 1.0) == TAKEN
            assert await service.reward(loop, good.id, 0.5) == REPEATED
            assert pulls(loop) == 0
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (pulls(loop), learned(loop), loop.counts.learned) == (2, 1.0, 2)
            assert loop.tally.whole().rewards == 2
            assert await service.reward(loop, bad.id, 1.0) == LATE

    run(main)


def test_slots_have_arms_of_their_own(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            slots = [Wanted("top", {"height": 2}), Wanted("side", None, ["tea"]), Wanted("end")]
            event = await service.decide(loop, {"hour": 9}, slots=slots)
            assert sorted(pick.arm for pick in event.picks) == sorted(ARMS)
            assert event.picks[1].arm != "tea"
            given = [
                Rewarded(service.clock(), event.id, value, slot)
                for slot, value in (("top", 1), ("end", 0.5))
            ]
            assert await service.reward_all(loop, given, strict=True) == [TAKEN] * 2
            with pytest.raises(ValueError, match="no slot 'bottom'"):
                await service.reward(loop, event.id, 1.0, slot="bottom")
            with pytest.raises(ValueError, match="name of a slot"):
                await service.reward(loop, event.id, 1.0)
            assert (pulls(loop), learned(loop)) == (2, 1.5)
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            assert (pulls(loop), learned(loop)) == (3, 1.5)
            with pytest.raises(ValueError, match="no arm to choose for slot '3'"):
                await service.decide(loop, None, slots=[Wanted(str(i)) for i in range(4)])

    run(main)


def test_lists_are_those_of_the_agent(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, exploration=0.3)
            for n in range(40):
                slots = [Wanted(str(place)) for place in range(3)]
                event = await service.decide(loop, {"n": n}, slots=slots)
                places = [pick.arm for pick in event.picks]
                assert sorted(places) == sorted(ARMS)
                for place, pick in enumerate(event.picks):
                    assert pick.arms == [arm for arm in ARMS if arm not in places[:place]]
                    assert sum(pick.chances) == pytest.approx(1)
                    assert pick.favourite in pick.arms
                    assert len(pick.seen) == 8 * (4 * len(pick.arms) + 2)
                    assert await service.reward(loop, event.id, place, slot=pick.slot) == TAKEN
            assert (pulls(loop), len(loop.open_decisions)) == (120, 0)
            assert log_gives(service, snapshots=False).digest() == loop.digest()
            # Nothing has happened to an agent that was only asked.
            digest = loop.learner.digest()
            ranking = loop.learner.rank({"n": 1}, 2)
            assert (len(ranking), loop.learner.digest()) == (2, digest)
            with pytest.raises(ValueError, match="a list of 4 cannot be made of 3 arms"):
                loop.learner.rank({"n": 1}, 4)

    run(main)


def test_a_repeated_request_gets_the_same_decision(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, exploration=1.0)
            by_key = [await service.decide(loop, {"n": n}, key="k") for n in range(5)]
            by_id = await asyncio.gather(
                *(service.decide(loop, {"n": n}, id="seven") for n in range(20))
            )
            assert len({event.id for event in by_key}) == 1
            assert len({event.picks[0].arm for event in by_id}) == 1
            assert loop.counts.decisions == 2

    run(main)


@pytest.mark.parametrize("text", ["a\0b", "", "x" * 257])
def test_what_a_store_cannot_hold_is_refused_before_it_is_asked(open_store, clock, text):
    """One such row would make the whole batch of writes fail."""

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            for what in ("id", "key", "person"):
                with pytest.raises(
                    ValueError, match=r"may hold any character but NUL|1 to 256 char"
                ):
                    await service.decide(loop, None, **{what: text})
            with pytest.raises(NotFound):
                await service.reward(loop, text, 1.0)
            with pytest.raises(NotFound):
                await service.activate(loop, text)
            event = await service.decide(loop, None)
            with pytest.raises(ValueError, match="a key"):
                await service.reward(loop, event.id, 1.0, key=text)
            assert await service.forget(loop, [text]) == 0
            assert not service.upkeep.failing
            assert await service.reward(loop, event.id, 1.0) == TAKEN

    run(main)


def test_probabilities_are_those_of_the_floor(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, exploration=0.2)
            event = await service.decide(loop, {"n": 1}, [*ARMS, "water"], excluded=["milk"])
            (pick,) = event.picks
            assert pick.arms == ["tea", "juice", "water"]
            assert sorted(pick.chances) == pytest.approx([0.2 / 3, 0.2 / 3, 0.8 + 0.2 / 3])
            assert pick.chances[pick.arms.index(pick.favourite)] == max(pick.chances)
            assert list(loop.arms) == [*ARMS, "water"]

    run(main)


def test_an_apprentice_plays_the_baseline_and_learns(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, mode="apprentice")
            for _ in range(20):
                event = await service.decide(loop, None, ["milk", "tea"])
                assert (event.picks[0].arm, event.picks[0].chances) == ("milk", [1.0, 0.0])
                await service.reward(loop, event.id, 1.0)
            assert (pulls(loop), loop.tally.whole().rewards) == (20, 20)
            await service.configure(loop, {"mode": "logging"}, "test")
            event = await service.decide(loop, None, ["milk", "tea"])
            await service.reward(loop, event.id, 1.0)
            assert (pulls(loop), loop.tally.whole().rewards) == (20, 21)

    run(main)


def test_the_log_gives_the_same_state_to_the_last_bit(open_store, clock):
    """With everything that can happen in it: late, repeated, deferred, arms that come and go."""

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, exploration=0.1)
            ids: list[str] = []
            for n in range(150):
                context = {"n": n % 7, "city": f"c{n % 5}"} if n > 20 else {"n": n % 3}
                event = await service.decide(loop, context, deferred=n % 5 == 0)
                ids.append(event.id)
                clock.pass_by(7)
                if n % 10 == 0:
                    await service.activate(loop, event.id)
                if n % 3:
                    await service.reward(loop, ids[2 * (n // 4)], math.sin(n))
                if n == 50:
                    await service.change_arms(loop, ["water"], ["milk"], "test")
                if n == 100:
                    await service.configure(
                        loop, {"exploration": 0.3, "policy": "TS-UCB(3)"}, "test"
                    )
                    await service.ledger.store_snapshot(loop)
            digest, counts = loop.digest(), loop.counts
            assert min(counts.defaults, counts.late, counts.never_activated, counts.learned) > 5
            assert log_gives(service, snapshots=False).digest() == digest
            assert log_gives(service).digest() == digest
        store = open_store()
        store.drop_snapshots(store.loops()["drinks"])
        async with running(store, clock) as service:
            assert service.loop("drinks").digest() == digest

    run(main)


def test_arms_that_come_with_their_features(open_store, clock):
    """New arms are predicted from the features they share with known ones."""

    async def main():
        async with running(open_store(), clock) as service:
            settings = LoopSettings(
                model="HybridLinear",
                learn_early=True,
                reward_wait=WAIT,
                exploration=0.2,
                most_arms=100,
            )
            await service.create("news", settings)
            loop = service.loop("news")
            for n in range(120):
                features = {f"story {n + i}": {"sport": (n + i) % 2, "age": i} for i in range(4)}
                event = await service.decide(
                    loop, {"fan": n % 2}, list(features), arm_features=features
                )
                await service.reward(loop, event.id, features[event.picks[0].arm]["sport"])
                if n == 60:
                    await service.ledger.store_snapshot(loop)
            fresh = {"old sport": {"sport": 1, "age": 9}, "old news": {"sport": 0, "age": 9}}
            asked = Question({"fan": 1}, arm_features=fresh)
            picks = [asked.fill(loop, list(fresh))[0] for _ in range(30)]
            assert all(pick.favourite == "old sport" for pick in picks)
            digest = loop.digest()
            assert not loop.arms, "they come with the decisions"
            assert log_gives(service, "news", snapshots=False).digest() == digest
            assert log_gives(service, "news").digest() == digest
        async with running(open_store(), clock) as service:
            assert service.loop("news").digest() == digest

    run(main)


def test_a_snapshot_that_cannot_be_read_is_passed_over(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            for n in range(20):
                event = await service.decide(loop, {"n": n})
                await service.reward(loop, event.id, n % 2)
            digest = loop.digest()
        store = open_store()
        ((position, body), *_) = store.snapshots(store.loops()["drinks"])
        for damaged in (b"", body[:-40], b"\xc1" + body[1:]):
            store.save_snapshot(store.loops()["drinks"], position, damaged)
            async with running(store, clock) as service:
                assert service.loop("drinks").digest() == digest

    run(main)


def test_nobody_waits_while_a_snapshot_is_written(open_store, clock, monkeypatch):
    """A snapshot holds the state at the moment it was taken; later events do not change it."""
    begun, go_on, to_bytes = threading.Event(), threading.Event(), LoopState.to_bytes

    def slow(held):
        begun.set()
        assert go_on.wait(PATIENCE)
        return to_bytes(held)

    async def main():
        async with running(open_store(), clock) as service:
            service.upkeep.ticking.cancel()  # it might take a snapshot, too
            loop = await made(service, aggregation="sum")
            seen = [await service.decide(loop, {"n": n}) for n in range(20)]
            later = await service.decide(loop, {"n": 20}, deferred=True)
            await service.reward(loop, seen[0].id, 1.0, key="a")
            monkeypatch.setattr(LoopState, "to_bytes", slow)
            saving = asyncio.create_task(service.ledger.store_snapshot(loop))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            position, digest = loop.position, loop.digest()
            try:
                for event in seen:  # everything that changes what waits
                    await service.reward(loop, event.id, 2.0, key="b")
                await service.activate(loop, later.id)
                await service.decide(loop, {"new": 1.0})
                clock.pass_by(WAIT)
                await service.upkeep.tick()
                assert pulls(loop) == 22
            finally:
                go_on.set()
            await saving
            ((found, body), *_) = service.store.snapshots(loop.number)
            assert found == position
            taken = Loop("drinks")
            taken.restore(body, position)
            assert taken.digest() == digest == log_gives(service, until=position).digest()
            assert log_gives(service).digest() == loop.digest()

    run(main)


def test_a_large_snapshot_is_written_in_pieces(open_store, clock, monkeypatch):
    from tsucb.service import store as stores

    monkeypatch.setattr(stores, "PIECE", 1_000)

    def pieces(store):
        return store._rows("SELECT count(*) FROM tsucb_snapshots WHERE piece >= 0")[0][0]

    async def main():
        store = open_store()
        async with running(store, clock) as service:
            service.upkeep.ticking.cancel()
            loop = await made(service)
            for n in range(50):
                await service.decide(loop, {"n": n}, person="ann" if n % 2 else None)
            await service.ledger.store_snapshot(loop)
            whole = list(store.snapshots(loop.number))
            assert [len(body) > 5_000 for _, body in whole] == [True]
            assert pieces(store) == (len(whole[0][1]) + 999) // 1_000
            # The process ends in the middle of the next: it is as if that had not been begun.
            write, left = store._transaction, iter(range(4))

            def failing(name):
                if next(left, None) is None:
                    raise StoreError("the process ends")
                return write(name)

            monkeypatch.setattr(store, "_transaction", failing)
            with pytest.raises(StoreError, match="ends"):
                store.save_snapshot(loop.number, loop.position + 1, whole[0][1])
            monkeypatch.setattr(store, "_transaction", write)
            assert list(store.snapshots(loop.number)) == whole
            assert pieces(store) > (len(whole[0][1]) + 999) // 1_000
            # Nothing of the forgotten person is left, also in snapshots that are saved late.
            await service.forget(loop, person="ann")
            loop = service.loop("drinks")
            (only,) = store.snapshots(loop.number)
            assert pieces(store) == (len(only[1]) + 999) // 1_000
            assert log_gives(service).digest() == loop.digest()
            await service.ledger.store_snapshot(loop)
            assert len(list(store.snapshots(loop.number))) == 2

    run(main)


def test_a_store_that_fails_acknowledges_nothing(open_store, clock, monkeypatch):
    async def main():
        store = open_store()
        async with running(store, clock) as service:
            loop = await made(service)
            event = await service.decide(loop, {"hour": 9})
            digest, write = loop.digest(), store.write

            def fail(change):
                raise StoreError("the disk is full")

            def fail_late(change):
                write(change)
                raise StoreError("the disk is slow")

            service.upkeep.ticking.cancel()  # it would find what was written
            monkeypatch.setattr(store, "write", fail)
            with pytest.raises(StoreError, match="full"):
                await service.reward(loop, event.id, 1.0)
            assert loop.digest() == digest
            service.ledger.failed = False  # or a shared store would not be asked
            monkeypatch.setattr(store, "write", fail_late)
            with pytest.raises(StoreError, match="slow"):
                await service.reward(loop, event.id, 1.0)
            assert loop.digest() == digest
            # The reward is in the log although it was said to have failed: it counts, once.
            service.ledger.failed = False
            monkeypatch.setattr(store, "write", write)
            assert await service.reward(loop, event.id, 1.0) == LATE
            assert (pulls(loop), learned(loop)) == (1, 1.0)

    run(main)


def test_capacity_is_refused_not_queued(open_store, clock):
    async def main():
        async with running(open_store(), clock, most_unwritten=50) as service:
            loop = await made(service, most_open=10)
            found = await asyncio.gather(
                *(service.decide(loop, {"n": n}) for n in range(100)), return_exceptions=True
            )
            refused = [e for e in found if isinstance(e, Overloaded)]
            assert len(refused) >= 50
            assert sum(isinstance(e, Decided) for e in found) == 100 - len(refused)
            with pytest.raises(Overloaded) as error:
                await service.decide(loop, {"n": 0})
            assert error.value.seconds >= 1

    run(main)


def test_forgetting_a_person_leaves_no_trace(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop, twin = await made(service), await made(service, "twin")
            for n in range(30):
                clock.pass_by(1)
                event = await service.decide(loop, {"n": n}, person="ann" if n % 3 else "bob")
                await service.reward(loop, event.id, n % 2)
                if n % 3 == 0:  # the twin has never heard of ann
                    same = Decided(**{f: getattr(event, f) for f in event.__struct_fields__})
                    await service.ledger.append(twin, same)
                    await service.reward(twin, event.id, n % 2)
            await service.ledger.store_snapshot(loop)
            assert await service.forget(loop, person="ann") == 40
            loop = service.loop("drinks")
            assert loop.counts == twin.counts
            assert learned(loop) == learned(twin)
            left = [events.decode(row.body) for row in service.store.read(0, loop.number)]
            assert {e.person for e in left if isinstance(e, Decided)} == {"bob"}
            assert log_gives(service).digest() == loop.digest()
            event = await service.decide(loop, {"n": 1})
            assert await service.reward(loop, event.id, 1.0) == TAKEN

    run(main)


@pytest.mark.parametrize("how", ["forget", "clear", "delete"])
def test_nothing_of_what_was_deleted_is_left_in_the_files(tmp_path, clock, how):
    from tsucb.service.sqlite import SqliteStore

    def left() -> int:
        files = (tmp_path / "data").glob("events.sqlite*")
        return sum(file.read_bytes().count(b"a certain person") for file in files)

    async def main():
        store = SqliteStore(tmp_path / "data")
        async with running(store, clock) as service:
            loop = await made(service)
            for n in range(50):
                person = "a certain person" if n % 2 else "another"
                note = {"note": f"{person} {n}"}
                event = await service.decide(loop, note, id=f"{person} {n}", person=person)
                await service.reward(loop, event.id, 1.0)
            await service.ledger.store_snapshot(loop)
            assert left() > 50
            if how == "forget":
                assert await service.forget(loop, person="a certain person") == 50
            elif how == "clear":
                await service.reset(loop, "test")  # what was learned would stay
                await service.clear(loop, "test")
            else:
                await service.delete("drinks", "test")
            assert left() == 0
        store.close()

    run(main)


def test_clearing_and_deleting(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            old = await service.decide(loop, {"n": 1})
            await service.clear(loop, "test")
            loop = service.loop("drinks")
            assert (list(loop.arms), loop.counts.decisions) == (ARMS, 0)
            with pytest.raises(NotFound):
                await service.reward(loop, old.id, 1.0)
            event = await service.decide(loop, {"n": 1})
            await service.reward(loop, event.id, 1.0)
            last = service.ledger.position
            await service.delete("drinks", "test")
            assert service.store.loops() == {}
            loop = await made(service)
            assert service.ledger.position == last + 2  # positions are never given twice
            actions = [record.action for record in service.store.audit(None, 9)]
            assert actions == ["create", "delete", "clear", "create"]

    run(main)


def test_a_folder_has_one_service(tmp_path):
    from tsucb.service.sqlite import SqliteStore

    store = SqliteStore(tmp_path / "data")
    with pytest.raises(StoreError, match="in use by another process"):
        SqliteStore(tmp_path / "data")
    store.close()


def test_a_copy_while_running_is_a_whole_store(clock, tmp_path):
    from tsucb.service.sqlite import FILE, SqliteStore, backup

    async def main():
        store = SqliteStore(tmp_path / "data")
        async with running(store, clock) as service:
            loop = await made(service)
            for n in range(10):
                event = await service.decide(loop, {"n": n})
                await service.reward(loop, event.id, 1.0)
            digest = loop.digest()
            (tmp_path / "copy").mkdir()
            backup(tmp_path / "data", tmp_path / "copy" / FILE)
            with pytest.raises(StoreError, match="is there already"):
                backup(tmp_path / "data", tmp_path / "copy" / FILE)
            await service.decide(loop, {"n": 0})
        store.close()
        restored = SqliteStore(tmp_path / "copy")
        async with running(restored, clock) as service:
            assert service.loop("drinks").digest() == digest
        restored.close()

    run(main)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exploration": 1.5}, r"<= 1.0 - at `\$.exploration`"),
        ({"reward_wait": 0}, r"> 0.0 - at `\$.reward_wait`"),
        ({"policy": "Best"}, "unknown policy 'Best'"),
        ({"policy": "TS+5%"}, "give the floor as exploration"),
        ({"model": "Magic"}, "Invalid enum value 'Magic'"),
        ({"model": "NIGLinear"}, "Invalid enum value 'NIGLinear'"),
        ({"mode": "off"}, "Invalid enum value 'off'"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"aggregation": 1}, "aggregation"),
        ({"most_arms": 0}, r">= 1 - at `\$.most_arms`"),
        ({"model": "BernoulliArms", "default_reward": -1.0}, "reward"),
        ({"reward_range": [1, 0]}, "reward_range"),
    ],
)
def test_settings_are_checked(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        changed(LoopSettings(), change)


def test_a_clock_that_goes_back_ends_no_wait_twice(open_store):
    clock = Clock()

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            event = await service.decide(loop, {"n": 1})
            clock.pass_by(-100)
            other = await service.decide(loop, {"n": 2})
            assert await service.reward(loop, event.id, 1.0) == TAKEN
            clock.pass_by(100 + WAIT - 50)
            assert await service.reward(loop, other.id, 1.0) == LATE
            assert log_gives(service, snapshots=False).digest() == loop.digest()

    run(main)
