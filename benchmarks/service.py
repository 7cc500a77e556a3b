"""Speed of the decision service: decisions and rewards per second, durable, with their latencies.

    python benchmarks/service.py                  as fast as it goes
    python benchmarks/service.py --rate 1000      this many visits per second, answered or not
    python benchmarks/service.py --overload       its capacity, then 1, 1.5 and 3 times as much
    python benchmarks/service.py --rate 300 --beside   while another loop widens, exports, evaluates
    python benchmarks/service.py --rate 300 --loops 10000 --connections 10000   among these

`--out` adds what was measured to a CSV file, from which the page on the service is filled.

Starts `tsucb serve` in a process of its own, and loads it from this one over keep-alive
connections: every visit is a decision among 10 arms in a context of 20 features, then its reward,
which is learned when the wait of 5 seconds is over.
With a rate, visits are due when they are due: their delay counts, and one that is refused does not
come back. The client and the server share the machine, unless each is given processors of its own:

    python benchmarks/service.py --overload --server-cores 0,1 --client-cores 2,3
"""

import argparse
import asyncio
import contextlib
import csv
import itertools
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop

from tsucb.service.client import Client, ServiceError

ARMS, FEATURES = 10, 20
OPENED, MOST_CONNECTIONS = 400, 1_000  # connections before visitors come, and at most
PATIENCE = 2.0  # seconds for the last visits to end
WARM_UP = 7.0  # seconds before anything is measured: longer than a decision waits
CONFIG = """
[loops.bench]
arms = [{arms}]
reward_wait = 5
[loops.other]
arms = [{arms}]
reward_wait = 0.5
"""


class Server(NamedTuple):
    """A server that runs: its process, port and key."""

    pid: int
    port: int
    key: str
    other: str  # the key of the other loop
    loops: list[str]  # that visitors come to
    ready: float  # seconds from the start until it was ready


class Connection(asyncio.Protocol):
    """A keep-alive connection that posts JSON; far cheaper than a client library."""

    def __init__(self, key: str) -> None:
        self.head = f"Host: x\r\nAuthorization: Bearer {key}\r\nContent-Length: "
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Take an answer, once it is whole."""
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        at = head.find(b"content-length: ")
        if not found or len(body) < (size := int(head[at + 16 :].split(b"\r", 1)[0])):
            return
        self.data = body[size:]
        if self.answer is not None and not self.answer.done():
            self.answer.set_result((int(head[9:12]), body[:size]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionResetError())

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        self.answer = asyncio.get_running_loop().create_future()
        head = f"POST /v1/loops/{path} HTTP/1.1\r\n{self.head}{len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        return await self.answer


@dataclass
class Found:
    """Latencies in seconds of what was answered and of what was refused; how many gave up."""

    decide: list[float] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # by how much this process began a visit late
    lost: int = 0
    offered: int = 0
    seconds: float = 0.0
    used: float = 0.0  # seconds of the server's processor


class Load:
    """Visits to a server."""

    def __init__(self, server: Server) -> None:
        rng = random.Random(0)
        self.server, self.found, self.idle = server, Found(), deque[Connection]()
        self.connections = 0
        self.contexts = [
            json.dumps({"context": {f"x{i}": rng.gauss(0, 1) for i in range(FEATURES)}}).encode()
            for _ in range(500)
        ]

    async def connect(self) -> Connection:
        """Open a connection."""
        self.connections += 1
        _, found = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self.server.key), "127.0.0.1", self.server.port
        )
        return found

    async def visit(self, connection: Connection, due: float) -> None:
        """Decide, then reward; `due` is when the visit should have begun."""
        found = self.found
        found.late.append(time.perf_counter() - due)
        loop = random.choice(self.server.loops)
        status, body = await connection.post(f"{loop}/decide", random.choice(self.contexts))
        done = time.perf_counter()
        if status == 429:
            found.refused.append(done - due)
            return
        assert status == 200, body
        found.decide.append(done - due)
        id = body[7 : body.index(b'"', 7)]
        status, body = await connection.post(f"{loop}/reward", b'{"id":"%s","reward":1}' % id)
        (found.reward if status == 200 else found.refused).append(time.perf_counter() - done)

    async def closed(self, seconds: float, clients: int) -> Found:
        """Let each client visit again and again, as fast as it is answered."""
        connections = [await self.connect() for _ in range(clients)]
        before, begun = cpu(self.server.pid), time.perf_counter()
        end = begun + seconds

        async def visits(connection: Connection) -> None:
            while (now := time.perf_counter()) < end:
                refused = len(self.found.refused)
                await self.visit(connection, now)
                if len(self.found.refused) > refused:
                    await asyncio.sleep(0.05)
            connection.transport.close()

        await asyncio.gather(*(visits(connection) for connection in connections))
        self.found.seconds = time.perf_counter() - begun
        self.found.used = cpu(self.server.pid) - before
        return self.found

    async def open(self, seconds: float, rate: float, opened: int) -> Found:
        """Let visitors come at a rate, whatever becomes of them."""
        for _ in range(opened):
            self.idle.append(connection := await self.connect())
            # A request with a valid key: strangers would have to make room.
            await connection.post(f"{self.server.loops[0]}/estimates", b"{}")
        before = cpu(self.server.pid)
        begun, tasks = time.perf_counter(), set[asyncio.Task[None]]()
        end, rng = begun + seconds, random.Random(1)
        due = begun

        async def come(due: float) -> None:
            with contextlib.suppress(IndexError):
                connection = self.idle.popleft()
                await self._serve(connection, due)
                return
            if self.connections >= max(MOST_CONNECTIONS, opened):
                self.found.lost += 1
                return
            await self._serve(await self.connect(), due)

        while (now := time.perf_counter()) < end:
            while due <= now:
                self.found.offered += 1
                task = asyncio.create_task(come(due))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due += rng.expovariate(rate)
            await asyncio.sleep(0.001)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=PATIENCE)
            self.found.lost += len(left)
        self.found.seconds = time.perf_counter() - begun
        self.found.used = cpu(self.server.pid) - before
        return self.found

    async def _serve(self, connection: Connection, due: float) -> None:
        try:
            await self.visit(connection, due)
            self.idle.append(connection)
        except OSError:
            self.found.lost += 1
            self.connections -= 1


def measured(
    server: Server, seconds: float, clients: int, rate: float | None, opened: int = OPENED
) -> Found:
    """Load a server, and return what it did."""
    load = Load(server)
    uvloop.run(load.closed(seconds, clients) if rate is None else load.open(seconds, rate, opened))
    return load.found


@contextlib.contextmanager
def serving(data: Path | None, loops: int = 0, cores: set[int] | None = None) -> Iterator[Server]:
    """Start `tsucb serve` in a process of its own, until the end of the block.

    Visitors come to one loop, or to this many. The server runs on the given processors, or on any.
    """
    with tempfile.TemporaryDirectory(dir=data) as name:
        folder = Path(name)
        names = ", ".join(f'"arm{i}"' for i in range(ARMS))
        many = [f"many{n}" for n in range(loops)]
        text = CONFIG.format(arms=names)
        for name in many:
            text += f"[loops.{name}]\narms = [{names}]\n"
        (folder / "config.toml").write_text(text)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "tsucb", "serve", "--data", str(folder / "data")]
        command += ["--config", str(folder / "config.toml"), "--port", str(port)]
        server, begun = subprocess.Popen(command, stderr=subprocess.DEVNULL), time.monotonic()
        if cores:
            os.sched_setaffinity(server.pid, cores)
        try:
            wait_until_ready(port)
            ready = time.monotonic() - begun
            keys = json.loads((folder / "data" / "keys.json").read_text())
            key, other = keys["server"], keys["other"]["administer"]
            yield Server(server.pid, port, key, other, many or ["bench"], ready)
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def busy_beside(server: Server) -> Iterator[None]:
    """Let the other loop widen, relearn, export and evaluate until the end of the block."""
    stop, done = threading.Event(), Counter[str]()

    def work() -> None:
        url = f"http://127.0.0.1:{server.port}"
        with Client(url, loop="other", key=server.other, timeout=300) as client:
            for n in itertools.count():
                if stop.is_set():
                    return
                width = 10 * (n % 30 + 1)  # ten new names with every decision, up to 300
                decision = client.decide({f"x{i}": random.random() for i in range(width)})
                client.reward(decision.id, float(n % 2))
                done["decisions"] += 1
                if n % 20 == 19:
                    client.export()
                    with contextlib.suppress(ServiceError):
                        client.evaluate({"greedy": {"policy": "Greedy"}})
                    client.configure(forgetting=0.999 - 1e-6 * n)  # learns from the log again
                    done["exports, evaluations, relearnings"] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        print("beside:", ", ".join(f"{count} {what}" for what, count in done.items()))


def wait_until_ready(port: int) -> None:
    """Wait until /readyz answers 200."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as asked:
            asked.sendall(b"GET /readyz HTTP/1.0\r\nHost: x\r\n\r\n")
            if asked.recv(100).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.1)


def line(what: str, found: list[float]) -> None:
    """Print the quantiles of latencies."""
    if found:
        low, high, top = np.quantile(found, (0.5, 0.99, 0.999)) * 1e3
        print(f"  {what}: median {low:.1f} ms, p99 {high:.1f} ms, p99.9 {top:.1f} ms")


def summary(what: str, found: Found) -> dict[str, Any]:
    """Return what a server did as a row of the results: visits per second, latencies in ms."""
    rate, asked = found.offered / found.seconds, max(len(found.late), 1)
    row: dict[str, Any] = {"case": what, "offered": round(rate) or ""}
    row["finished"] = round(len(found.reward) / found.seconds)
    row["refused"] = round(100 * len(found.refused) / asked, 1)  # per cent of the visits
    row["lost"] = found.lost
    for name in ("refused", "decide", "reward", "late"):
        values = getattr(found, name)
        quantiles = np.quantile(values, (0.5, 0.99)) * 1e3 if values else ["", ""]
        row[f"{name}_median"], row[f"{name}_p99"] = (x and round(float(x), 1) for x in quantiles)
    return row


def add_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a CSV file of the same columns, or begin the file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)


def show(what: str, found: Found) -> float:
    """Print what a server did; return how many visits it finished per second."""
    done = len(found.reward) / found.seconds
    print(f"{what}: {len(found.decide) / found.seconds:,.0f} decisions + {done:,.0f} rewards / s")
    line("decision", found.decide)
    line("reward", found.reward)
    line("refusal", found.refused)
    line("of these, the client itself was late by", found.late)
    requests = len(found.decide) + len(found.reward) + len(found.refused)
    print(
        f"  refused {len(found.refused):,}, gave up {found.lost:,} of {found.offered:,}; "
        f"{1e6 * found.used / max(requests, 1):.0f} µs of the server's CPU per request, "
        f"{len(found.reward) / max(found.used, 1e-9):,.0f} visits per second of CPU"
    )
    return done


def main() -> None:
    """Start a server, load it, print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, help="64, or for --overload 256")
    parser.add_argument("--rate", type=float, help="visits per second; else as many as possible")
    parser.add_argument("--overload", action="store_true", help="1.5 and 3 times its capacity")
    parser.add_argument("--data", type=Path, help="a folder on the disk to be measured")
    parser.add_argument(
        "--loops", type=int, default=0, help="visitors come to this many, not to one"
    )
    parser.add_argument("--connections", type=int, default=OPENED, help="open with --rate")
    parser.add_argument("--beside", action="store_true", help="keep another loop busy meanwhile")
    parser.add_argument("--out", type=Path, help="a CSV file to add the results to")
    parser.add_argument("--server-cores", type=numbers, help="processors of the server: 0,1")
    parser.add_argument("--client-cores", type=numbers, help="processors of this process: 2,3")
    options = parser.parse_args()
    if options.client_cores:
        os.sched_setaffinity(0, options.client_cores)
    clients = options.clients or (256 if options.overload else 64)
    raise_limit(options.connections)
    with serving(options.data, options.loops, options.server_cores) as server:
        if options.loops:
            print(f"ready after {server.ready:.0f} s, with {memory(server.pid):.0f} MB")
        before = memory(server.pid)
        measured(server, WARM_UP, clients, None)

        def tell(what: str, found: Found) -> float:
            done = show(what, found)
            if options.out:
                opened = clients if options.rate is None else options.connections
                sizes = {"connections": opened, "loops": options.loops or 1}
                sizes |= {"ready": round(server.ready, 1), "memory_before": round(before)}
                sizes |= {"memory_after": round(memory(server.pid))}
                add_row(options.out, summary(what, found) | sizes)
            return done

        with busy_beside(server) if options.beside else contextlib.nullcontext():
            found = measured(server, options.seconds, clients, options.rate, options.connections)
        if options.loops:
            print(f"in the end {memory(server.pid):.0f} MB")
        capacity = tell(case_of(options, clients), found)
        for times in (1.0, 1.5, 3.0) if options.overload else ():
            found = measured(server, options.seconds, clients, times * capacity)
            done = tell(f"{times:g} times as many visits", found)
            print(f"  goodput: {done / capacity:.0%} of the capacity")


def numbers(text: str) -> set[int]:
    """Return the numbers of a list with commas."""
    return {int(part) for part in text.split(",")}


def case_of(options: argparse.Namespace, clients: int) -> str:
    """Return the name of what is measured."""
    if options.rate is None:
        return f"as fast as it goes, {clients} connections"
    if options.loops:
        return f"{options.loops:,} loops, {options.connections:,} connections"
    beside = ", beside a busy loop" if options.beside else ""
    return f"{options.rate:,g} a second{beside}"


def raise_limit(connections: int) -> None:
    """Let this process, and the server that it starts, open this many connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if connections + 200 > hard:
        raise SystemExit(f"this machine allows {hard:,} open files, too few for the connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(connections + 200, 4_096), hard))


def memory(pid: int) -> float:
    """Return the megabytes of memory that a process has."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1e3


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
