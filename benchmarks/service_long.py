"""The decision service over ten million events: memory, restart, and what the log alone gives.

    python benchmarks/service_long.py                        ten million; half an hour, 10 GB
    python benchmarks/service_long.py --events 200_000       a minute

A process fills a log: it writes, folds and takes snapshots by the service's own code, only many
requests at a time and not over HTTP. Deciding changes nothing, so most decisions repeat one of
1,000 that are made for every hundred thousand. Visits come 1,000 a second by a clock of their own;
seven of ten are rewarded within the wait of 60 seconds, the others never. It is killed without
warning. Then `tsucb serve` is started on what is left, timed until it is ready, and killed again;
the snapshots are deleted, and it is started once more: now it has to learn from the whole log, and
must know the same to the last bit.
"""

import argparse
import asyncio
import heapq
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tsucb.service.events import Decided, Rewarded
from tsucb.service.questions import Question
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings
from tsucb.service.sqlite import FILE, SqliteStore

LOOP = "long"
VISITS_PER_SECOND, WAIT, REWARDED = 1_000, 60.0, 0.7
AT_ONCE = 500  # visits that are written together
POOL, FRESH = 1_000, 100_000  # decisions that are repeated, and how often
LINES = 20  # of the report


async def fill(folder: Path, events: int, arms: int, features: int) -> None:
    """Write a log of this many events, with progress; then wait to be killed."""
    # The clock ends two minutes ago, so that all waits are over when the log is served.
    start = time.time() - 120 - events / (1 + REWARDED) / VISITS_PER_SECOND
    now, rng = [start], random.Random(0)
    contexts = [{f"x{i}": round(rng.gauss(0, 1), 4) for i in range(features)} for _ in range(POOL)]
    store = SqliteStore(folder)
    service = Service(store, clock=lambda: now[0], seed=0)
    await service.start()
    names = [f"arm{i}" for i in range(arms)]
    await service.create(LOOP, LoopSettings(reward_wait=WAIT), names)
    loop, due, begun = service.loop(LOOP), list[tuple[float, str]](), time.perf_counter()

    def decided(number: int) -> Decided:
        place = rng.randrange(POOL)
        id, key = service.new_id(), f"request {number}"
        if rng.random() < REWARDED:
            heapq.heappush(due, (now[0] + rng.random() * WAIT * 0.9, id))
        return Decided(
            now[0], id, contexts[place], picks[place], *loop.settings.rule_names(), key=key
        )

    visits, marks = 0, [events * (n + 1) // LINES for n in range(LINES)]
    while marks:
        if visits % FRESH == 0:
            picks = [Question(context).fill(loop, names) for context in contexts]
        now[0] += AT_ONCE / VISITS_PER_SECOND
        happened: list[Any] = []
        while due and due[0][0] <= now[0]:
            id = heapq.heappop(due)[1]
            happened.append(Rewarded(now[0], id, rng.random(), key=id))
        happened += [decided(visits + n) for n in range(AT_ONCE)]
        await service.ledger.append(loop, *happened)
        visits += AT_ONCE
        if service.ledger.position >= marks[0]:
            marks.pop(0)
            line = {
                "events": service.ledger.position,
                "decisions": loop.counts.decisions,
                "rewards": loop.counts.rewards,
                "memory": int(Path("/proc/self/statm").read_text().split()[1]) * 4096,
                "seconds": time.perf_counter() - begun,
                "snapshot": max(
                    [len(body or b"") for _, body in store.snapshots(loop.number)], default=0
                ),
                "waiting": len(loop.open_decisions),
                "last": not marks,
            }
            print(json.dumps(line), flush=True)
    await asyncio.sleep(600)  # until it is killed


def filled(folder: Path, options: argparse.Namespace) -> None:
    """Let a process fill the log, print its output, and kill it."""
    command = [sys.executable, __file__, "--fill", "--data", str(folder)]
    for name in ("events", "arms", "features"):
        command += [f"--{name}", str(getattr(options, name))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    print("    events   decisions     rewards   memory   snapshot   waiting   events per second")
    before, since = 0, 0.0
    for text in process.stdout:
        line = json.loads(text)
        speed = (line["events"] - before) / (line["seconds"] - since)
        before, since = line["events"], line["seconds"]
        print(
            f"{line['events']:10,}  {line['decisions']:10,}  {line['rewards']:10,}  "
            f"{line['memory'] / 1e6:4.0f} MB  {line['snapshot'] / 1e6:6.1f} MB  "
            f"{line['waiting']:8,}  {speed:18,.0f}",
            flush=True,
        )
        if line["last"]:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()


class Served:
    """`tsucb serve` on a folder, until it is killed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        port = self.url.rpartition(":")[2]
        command = [sys.executable, "-m", "tsucb", "serve", "--data", str(folder), "--port", port]
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/readyz").close()
                break
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError("the server does not start") from None
                time.sleep(0.02)
        self.seconds = time.perf_counter() - began
        self.key = json.loads((folder / "keys.json").read_text())["server"]

    def get(self, path: str) -> Any:
        """Return the answer to a request."""
        request = urllib.request.Request(f"{self.url}/v1/loops/{LOOP}{path}")
        request.add_header("Authorization", f"Bearer {self.key}")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def memory(self) -> float:
        """Return the memory of the server in megabytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def kill(self) -> None:
        """Kill the server without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def main() -> None:
    """Fill, kill, restart, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=lambda text: int(text.replace("_", "")), default=10**7)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--data", type=Path, help="a folder on the disk to be measured")
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        asyncio.run(fill(options.data, options.events, options.arms, options.features))
        return
    folder = Path(tempfile.mkdtemp(dir=options.data))
    try:
        filled(folder, options)
        size = sum(file.stat().st_size for file in folder.glob(f"{FILE}*"))
        print(f"on the disk: {size / 1e9:.2f} GB, {size / options.events:.0f} bytes an event")
        first = Served(folder)
        while first.get("")["waiting"]:
            time.sleep(0.2)
        state = first.get("/state")
        print(f"ready from the snapshot after {first.seconds:.1f} s, {first.memory():.0f} MB")
        first.kill()
        store = SqliteStore(folder)
        store.drop_snapshots(store.loops()[LOOP])
        store.close()
        second = Served(folder)
        same = second.get("/state") == state
        print(f"ready from the log alone after {second.seconds:.0f} s, {second.memory():.0f} MB")
        second.kill()
        print(f"event {state['position']:,}: {'the same' if same else 'ANOTHER'} state hash")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
