"""Kill a service at random moments under load, and count what it has learned afterwards.

    python -m tests.service.stress --kills 200

Clients decide, reward and repeat whatever was not answered, with the same keys. In the end every
reward must have been learned exactly once, and the log alone must give the state of the service.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.service.conftest import PATIENCE, stopped, until
from tsucb.service.client import AsyncClient
from tsucb.service.service import Service
from tsucb.service.sqlite import SqliteStore

CONFIG = """
[loops.sums]
arms = ["a", "b", "c"]
aggregation = "sum"
reward_wait = 86400
[loops.firsts]
arms = ["a", "b", "c"]
reward_wait = 86400
"""
CLIENTS = 8


@dataclass
class Report:
    """What was acknowledged, and what came of it."""

    kills: int = 0
    decisions: int = 0
    rewards: int = 0
    expected: dict[str, float] = field(default_factory=dict)  # sums by decision
    rewarded: set[str] = field(default_factory=set)  # of the loop where the first reward counts


def free_port() -> int:
    """Find a port that no outgoing connection is ever given, one to the port itself included."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def start(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tsucb", "serve", "--data", str(folder / "data")]
    command += ["--port", str(port), "--config", str(folder / "config.toml")]
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


async def answers(server: "subprocess.Popen[bytes]", folder: Path, port: int) -> None:
    """Wait until the server listens."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError((folder / "server.log").read_text()[-2_000:])
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("the server does not start")


async def visitors(url: str, keys: dict[str, dict[str, str]], report: Report, stop: asyncio.Event,
                   number: int) -> None:  # fmt: skip
    """Decide and reward, over and over, until told to stop."""
    rng = random.Random(number)
    retries = 10_000
    async with (
        AsyncClient(url, loop="sums", key=keys["sums"]["decide"], retries=retries) as sums,
        AsyncClient(url, loop="firsts", key=keys["firsts"]["decide"], retries=retries) as firsts,
    ):
        while not stop.is_set():
            context = {"n": rng.randrange(5), "city": rng.choice(["Rome", "Oslo"])}
            decision = await sums.decide(context)
            for _ in range(3):
                value = float(rng.randrange(1, 100))
                await sums.reward(decision.id, value)
                report.rewards += 1
                report.expected[decision.id] = report.expected.get(decision.id, 0.0) + value
            other = await firsts.decide(context)
            await firsts.reward(other.id, rng.random())
            report.decisions += 2
            report.rewards += 1
            report.rewarded.add(other.id)


async def stress(folder: Path, kills: int, pause: float) -> Report:
    """Serve, load, kill; then stop in good order."""
    (folder / "config.toml").write_text(CONFIG)
    port, report, stop = free_port(), Report(), asyncio.Event()
    url, rng = f"http://127.0.0.1:{port}", random.Random(0)
    server, tasks = start(folder, port), []
    try:
        await answers(server, folder, port)
        keys = json.loads((folder / "data" / "keys.json").read_text())
        for number in range(CLIENTS):
            tasks.append(asyncio.create_task(visitors(url, keys, report, stop, number)))
        for number in range(kills):
            before = report.rewards
            await asyncio.sleep(rng.random() * pause)
            # A slow machine gets the time it needs to do anything.
            await until(lambda before=before: report.rewards > before)  # type: ignore[misc]
            server.send_signal(signal.SIGKILL)
            server.wait()
            report.kills += 1
            server = start(folder, port)
            await answers(server, folder, port)
            if kills > 10 and number % 10 == 9:
                print(f"{number + 1} kills, {report.rewards:,} rewards", flush=True)
        before = report.rewards
        await until(lambda: report.rewards > before)
        stop.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        stopped(server)
    assert server.returncode == 0, (folder / "server.log").read_text()[-2_000:]
    return report


def check(folder: Path, report: Report) -> None:
    """Compare what clients were told with what the log makes of it."""
    store = SqliteStore(folder / "data")
    service = Service(store)
    sums, firsts = (service.replayed(name, snapshots=False) for name in ("sums", "firsts"))
    found = {id: waiting.slots[0].total for id, waiting in sums.waiting.items()}
    assert {id: found.get(id) for id in report.expected} == report.expected
    assert not report.rewarded & firsts.waiting.keys()
    assert firsts.agent is not None
    # A client that was cut off in the middle may have left a decision that nobody knows of.
    assert firsts.counts.learned == len(report.rewarded)
    assert int(firsts.agent.arms_summary()["pulls"].sum()) == len(report.rewarded)
    for loop in (sums, firsts):
        assert service.replayed(loop.name).digest() == loop.digest()
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pause", type=float, default=2.0, help="at most, seconds between kills")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        report = asyncio.run(stress(Path(name), options.kills, options.pause))
        check(Path(name), report)
    print(
        f"{report.kills} kills in {time.monotonic() - began:.0f} s: {report.decisions:,} decisions "
        f"and {report.rewards:,} rewards acknowledged, each learned exactly once"
    )


if __name__ == "__main__":
    main()
