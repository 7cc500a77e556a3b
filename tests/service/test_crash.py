"""Nothing acknowledged is lost: not when the process is killed, not when the power fails."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.service.conftest import run, running
from tests.service.power import Disk, Files
from tests.service.stress import alone, full_disk, jump, kill, partition, pause, together
from tsucb.service import events
from tsucb.service.events import Decided, Rewarded
from tsucb.service.settings import LoopSettings
from tsucb.service.sqlite import SqliteStore


def test_one_server_under_faults(tmp_path):
    """`make stress-serve` is the long version."""
    report = alone(tmp_path, [kill, full_disk, jump, pause], 1.0)
    assert (report.faults, report.count > 10) == (4, True)


def test_three_servers_under_faults(tmp_path):
    report = together(tmp_path, [pause, partition, jump, kill], 1.0)
    assert (report.faults, report.count > 10) == (4, True)


@pytest.mark.parametrize("safe", [True, False])
def test_what_was_answered_survives_a_power_failure(tmp_path: Path, clock, safe):
    """After every answer the power fails. Without flushing, this would show what gets lost."""
    disk, rng = Disk(), random.Random(0)
    vfs = Files(f"watched-{safe}", disk)
    lost = 0

    async def main() -> None:
        nonlocal lost
        store = SqliteStore(tmp_path / "data", vfs=f"watched-{safe}")
        if not safe:
            store._connections["writer"].execute("PRAGMA synchronous = NORMAL")
        async with running(store, clock) as service:
            await service.create("drinks", LoopSettings(), ["tea", "milk"])
            loop, answered = service.loop("drinks"), set[str]()
            for number in range(40):
                found = await asyncio.gather(
                    *(service.decide(loop, {"n": number}) for _ in range(1 + number % 3))
                )
                for event in found:
                    answered.add(event.id)
                    await service.reward(loop, event.id, 1.0)
                disk.image(tmp_path / str(number), rng)
                left = SqliteStore(tmp_path / str(number))
                log = [events.decode(row.body) for row in left.read(0)]
                decided = {event.id for event in log if isinstance(event, Decided)}
                rewarded = {event.id for event in log if isinstance(event, Rewarded)}
                lost += len(answered - decided) + len(answered - rewarded)
                left.close()
        store.close()

    run(main)
    vfs.unregister()
    assert (lost == 0) == safe
