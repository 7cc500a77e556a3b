"""Break a service under load in every way, and count what it has learned afterwards.

    python -m tests.service.stress --kills 200 --faults 20 --seconds 60

One server over SQLite is killed, its disk is full, its clock jumps. Three servers over PostgreSQL
are paused, as is their database; proxies between them drop or delay everything; their clocks jump
and differ. Clients decide, reward, and repeat unanswered requests with the same keys, at any
server. In the end a reader of its own looks at the tables: every decision and every reward that was
acknowledged must be there exactly once, and the service must have learned exactly that.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec

from tests.service.conftest import PATIENCE, Database, a_database, stopped, until

CONFIG = """
[loops.sums]
arms = ["a", "b", "c"]
aggregation = "sum"
reward_wait = 604800
most_open = 1000000
[loops.firsts]
arms = ["a", "b", "c"]
reward_wait = 600
learn_early = true
"""
LOOPS = ("sums", "firsts")
CLIENTS = 8
DAY = 86_400.0


def free_port() -> int:
    """Find a port that no outgoing connection is ever given, one to the port itself included."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


class Report:
    """The acknowledged requests, and the longest times without an answer."""

    def __init__(self) -> None:
        self.decisions: dict[str, dict[str, str]] = {name: {} for name in LOOPS}  # ids to arms
        self.rewards: dict[str, dict[str, dict[str, float]]] = {name: {} for name in LOOPS}
        self.faults = 0
        # By fault: the longest time without a decision by an intact server, and without a leader
        # while an intact server could lead.
        self.gaps: dict[str, float] = {}
        self.leaderless: dict[str, float] = {}
        self.lag = 0.0  # the largest delay of this process, which lengthens the gaps

    @staticmethod
    def note(longest: dict[str, float], fault: str, seconds: float) -> None:
        longest[fault] = max(longest.get(fault, 0.0), seconds)

    @property
    def count(self) -> int:
        """Return the number of acknowledged rewards."""
        return sum(len(keys) for loop in self.rewards.values() for keys in loop.values())

    def sentence(self) -> str:
        decisions = sum(len(found) for found in self.decisions.values())
        gaps, leaderless = (
            ", ".join(f"{gap:.1f} s ({name})" for name, gap in found.items())
            for found in (self.gaps, self.leaderless)
        )
        return (
            f"{self.faults} faults: {decisions:,} decisions and {self.count:,} rewards "
            f"acknowledged, each learned exactly once; longest that a server which was not broken "
            f"did not decide: {gaps}; that none led: {leaderless or '0 s'}; that the clients were "
            f"late themselves: {self.lag:.1f} s"
        )


class Proxy:
    """Stands between a server and its database, and drops or delays what passes."""

    def __init__(self, target: str) -> None:
        self.target, self.delay, self.dropping = target, 0.0, False
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_unix_connection(self.target)
        self._writers |= {writer, there_writer}
        await asyncio.gather(self._pipe(reader, there_writer), self._pipe(there_reader, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                while self.dropping:
                    await asyncio.sleep(0.05)
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()

    def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()


class Running:
    """A server in a process of its own, with a clock that can be set."""

    def __init__(self, folder: Path, postgres: str | None = None) -> None:
        self.folder, self.postgres = folder, postgres
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.broken = free_port(), False
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "config.toml").write_text(CONFIG)
        self.skew(0.0)
        self.start()

    def skew(self, seconds: float) -> None:
        """Let the clock of the machine jump."""
        (self.folder / "skew").write_text(str(seconds))

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.service.stress", "--serve", str(self.folder)]
        command += ["--port", str(self.port)]
        if self.postgres is not None:
            command += ["--postgres", self.postgres]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    async def is_ready(self) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise RuntimeError((self.folder / "server.log").read_text()[-2_000:])
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get(f"{self.url}/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise TimeoutError("the server does not start")


def serve(folder: Path, port: int, postgres: str | None) -> None:
    """Be a server whose clock is that of the machine and what a file says."""
    from tsucb.service import server

    def wall() -> float:
        try:
            return time.time() + float((folder / "skew").read_text() or 0)
        except (OSError, ValueError):  # it is just being written
            return time.time()

    server.Service = partial(server.Service, clock=wall, steady=time.monotonic)  # type: ignore
    options = {"data": str(folder / "data"), "port": port, "postgres": postgres}
    server.set_up_logging(as_json=True)
    server.Server(server.read_settings(folder / "config.toml", {}, options)).run()


class Load:
    """Clients that decide and reward until they are told to stop."""

    def __init__(
        self, servers: list[Running], keys: dict[str, Any], report: Report, pace: float
    ) -> None:
        self.servers, self.keys, self.report, self.pace = servers, keys, report, pace
        self.stop, self.fault = asyncio.Event(), "nothing"

    async def post(
        self, http: httpx.AsyncClient, server: Running, loop: str, word: str, body: dict[str, Any]
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[loop]['decide']}"}
        return await http.post(f"{server.url}/v1/loops/{loop}/{word}", json=body, headers=headers)

    async def call(
        self, http: httpx.AsyncClient, loop: str, word: str, body: dict[str, Any], rng: Any
    ) -> dict[str, Any]:
        """Send a request to any server until one answers."""
        began = time.monotonic()
        while True:
            try:
                answer = await self.post(http, rng.choice(self.servers), loop, word, body)
                if answer.status_code == 200:
                    found: dict[str, Any] = answer.json()
                    return found
                assert answer.status_code in (404, 429, 503), answer.text
                # Another server may not have heard of the decision yet, but will.
                patience = PATIENCE if len(self.servers) > 1 else 0.0
                assert answer.status_code != 404 or time.monotonic() - began < patience, answer.text
            except httpx.HTTPError:
                pass
            await asyncio.sleep((0.05 + self.pace) * rng.random())

    async def visit(self, number: int) -> None:
        rng, report, visits = random.Random(number), self.report, 0
        async with httpx.AsyncClient(timeout=2.0) as http:
            while not self.stop.is_set():
                for loop in LOOPS:
                    await asyncio.sleep(2 * self.pace * rng.random())
                    visits += 1
                    key = f"{number}-{visits}-{loop}"
                    context = {"n": rng.randrange(5), "city": rng.choice(["Rome", "Oslo"])}
                    body = {"context": context, "key": key}
                    if rng.random() < 0.3:
                        body["id"] = f"visit {number}-{visits}"
                    found = await self.call(http, loop, "decide", body, rng)
                    report.decisions[loop][found["id"]] = found["arm"]
                    for n in range(3 if loop == "sums" else 1):
                        value = float(rng.randrange(1, 100))
                        reward = {"id": found["id"], "reward": value, "key": f"{key}-{n}"}
                        await self.call(http, loop, "reward", reward, rng)
                        rewards = report.rewards[loop].setdefault(found["id"], {})
                        rewards[reward["key"]] = value
                    if rng.random() < 0.1:  # a client that lost its answer
                        again = await self.call(http, loop, "decide", body, rng)
                        # A server that is cut off cannot know what another one answered, and gives
                        # the decision another id.
                        assert again == found or (len(self.servers) > 1 and "id" not in body)
                        report.decisions[loop][again["id"]] = again["arm"]
                        await self.call(http, loop, "reward", reward, rng)

    async def watch(self, server: Running) -> None:
        """Decide at one server every 50 ms or so; measure how long it does not answer.

        Nothing is measured while the server is broken, and from then until its next answer.
        """
        decisions, since = self.report.decisions["firsts"], None
        async with httpx.AsyncClient(timeout=2.0) as http:
            while True:
                await asyncio.sleep(max(0.05, self.pace / 2))
                answered, body = False, {"context": {"n": 1}}
                with contextlib.suppress(httpx.HTTPError):
                    answer = await self.post(http, server, "firsts", "decide", body)
                    answered = answer.status_code == 200
                    if answered:
                        decisions[answer.json()["id"]] = answer.json()["arm"]
                now = time.monotonic()
                if server.broken:
                    since = None
                elif since is not None:
                    self.report.note(self.report.gaps, self.fault, now - since)
                if answered and not server.broken:
                    since = now

    async def watch_leader(self) -> None:
        """Measure how long no server leads, while there is one that is not broken."""

        async def leads(server: Running) -> bool:
            with contextlib.suppress(httpx.HTTPError, ValueError):
                state = (await http.get(f"{server.url}/readyz")).json()
                return state["leads"] and not server.broken and state["store"] == "working"
            return False

        async with httpx.AsyncClient(timeout=0.5) as http:
            since = time.monotonic()
            while True:
                await asyncio.sleep(0.1)
                led = any(await asyncio.gather(*map(leads, self.servers)))
                if led or all(server.broken for server in self.servers):
                    since = time.monotonic()
                self.report.note(self.report.leaderless, self.fault, time.monotonic() - since)

    async def watch_this_process(self) -> None:
        """Measure how late the clients are themselves."""
        while True:
            due = time.monotonic() + 0.05
            await asyncio.sleep(0.05)
            self.report.lag = max(self.report.lag, time.monotonic() - due)


# Faults: each breaks something, waits, mends it, and returns.

Fault = Callable[["Scene", random.Random, float], Awaitable[None]]


class Scene(NamedTuple):
    """The processes that a fault may hit, and the pace of the clients."""

    servers: list[Running]
    proxies: list[Proxy]
    database: Database | None
    pace: float


async def kill(scene: Scene, rng: random.Random, seconds: float) -> None:
    server = rng.choice(scene.servers)
    server.broken = True
    server.kill()
    server.start()
    await server.is_ready()
    server.broken = False


async def pause(scene: Scene, rng: random.Random, seconds: float) -> None:
    server = rng.choice(scene.servers)
    server.broken = True
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    server.process.send_signal(signal.SIGCONT)
    server.broken = False


async def pause_database(scene: Scene, rng: random.Random, seconds: float) -> None:
    assert scene.database is not None
    for server in scene.servers:  # all servers use this database
        server.broken = True
    scene.database.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    scene.database.signal(signal.SIGCONT)
    for server in scene.servers:
        server.broken = False


async def partition(scene: Scene, rng: random.Random, seconds: float) -> None:
    number = rng.randrange(len(scene.proxies))
    scene.servers[number].broken, scene.proxies[number].dropping = True, True
    await asyncio.sleep(seconds)
    scene.servers[number].broken, scene.proxies[number].dropping = False, False


async def delay(scene: Scene, rng: random.Random, seconds: float) -> None:
    """Let the database answer a server late, which is no reason not to decide, nor to lead."""
    number = rng.randrange(len(scene.proxies))
    scene.proxies[number].delay = 0.2
    await asyncio.sleep(seconds)
    scene.proxies[number].delay = 0.0


async def jump(scene: Scene, rng: random.Random, seconds: float) -> None:
    server = rng.choice(scene.servers)
    for skew in (rng.choice([-DAY, -3_600.0, -300.0, 300.0, DAY]), 0.0):
        server.skew(skew)
        await asyncio.sleep(min(seconds, 2.0))


async def full_disk(scene: Scene, rng: random.Random, seconds: float) -> None:
    """No file of the server may grow any more."""
    server = rng.choice(scene.servers)
    server.broken = True
    least = min(file.stat().st_size for file in (server.folder / "data").glob("events.sqlite*"))
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (least, -1))
    await asyncio.sleep(min(seconds, 2.0))
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    server.broken = False


async def run(scene: Scene, faults: list[Fault], seconds: float, end: float) -> Report:
    """Let faults happen under load, one after the other, as long as there is time."""
    report = Report()
    for server in scene.servers:
        await server.is_ready()
    keys: dict[str, Any] = {}
    for server in scene.servers:
        with contextlib.suppress(OSError):
            keys |= json.loads((server.folder / "data" / "keys.json").read_text())
    load, rng = Load(scene.servers, keys, report, scene.pace), random.Random(0)
    tasks = [asyncio.create_task(load.visit(n)) for n in range(CLIENTS)]
    await until(lambda: report.count > 10)
    watching = [asyncio.create_task(load.watch(server)) for server in scene.servers]
    watching.append(asyncio.create_task(load.watch_this_process()))
    if scene.database is not None:
        watching.append(asyncio.create_task(load.watch_leader()))
    try:
        for fault in faults:
            if time.monotonic() > end:
                break
            before, load.fault = report.count, fault.__name__
            await fault(scene, rng, seconds)
            report.faults += 1
            await until(lambda before=before: report.count > before or any(t.done() for t in tasks))  # type: ignore[misc]
            for task in tasks:
                if task.done():
                    task.result()  # which says what went wrong
            await asyncio.sleep(rng.random())
            if report.faults % 10 == 0:
                print(f"{report.faults} faults, {report.count:,} rewards", flush=True)
        load.stop.set()
        await asyncio.gather(*tasks)
    finally:
        for task in (*tasks, *watching):
            task.cancel()
    await same_state(scene, keys)
    return report


async def same_state(scene: Scene, keys: dict[str, Any]) -> None:
    """Wait until all servers know the same."""
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        for _ in range(200):
            states = set()
            for server in scene.servers:
                for loop in LOOPS:
                    headers = {"authorization": f"Bearer {keys[loop]['administer']}"}
                    url = f"{server.url}/v1/loops/{loop}/state"
                    states.add((loop, (await http.get(url, headers=headers)).text))
            if len(states) == len(LOOPS):
                return
            await asyncio.sleep(0.1)
    raise AssertionError("the servers do not know the same")


# The reader, which knows nothing of the service but its tables


def read_log(rows: Iterator[tuple[str, bytes]], report: Report) -> None:
    """Compare the events of the log, by the names of their loops, with what was acknowledged."""
    decided: dict[str, dict[str, str]] = {name: {} for name in LOOPS}
    earned: dict[str, dict[str, dict[str, float]]] = {name: {} for name in LOOPS}
    for loop, body in rows:
        event = msgspec.msgpack.decode(body)
        if event["kind"] == "decided":
            assert event["id"] not in decided[loop], f"decision {event['id']} is there twice"
            decided[loop][event["id"]] = event["picks"][0]["arm"]
        elif event["kind"] == "rewarded":
            assert event["id"] in decided[loop], "a reward before its decision"
            keys = earned[loop].setdefault(event["id"], {})
            assert event["key"] not in keys, f"reward {event['key']} is there twice"
            keys[event["key"]] = event["value"]
    for name in LOOPS:
        missing = dict(report.decisions[name].items() - decided[name].items())
        assert not missing, f"{len(missing)} are not in the log as acknowledged"
        assert earned[name] == report.rewards[name], "the log has other rewards"


def learned(folder: Path, postgres: str | None, report: Report) -> None:
    """Compare what the log leads to with what was acknowledged."""
    from tsucb.service.loop import Loop
    from tsucb.service.service import Service
    from tsucb.service.sqlite import SqliteStore
    from tsucb.service.store import Store

    if postgres is None:
        store: Store = SqliteStore(folder)
    else:
        from tsucb.service.postgres import PostgresStore

        store = PostgresStore(postgres)
    try:
        query = "SELECT name, body FROM tsucb_events JOIN tsucb_loops ON number = loop"
        read_log(iter(store._rows(f"{query} ORDER BY position")), report)  # type: ignore[arg-type]
        assert not list(store.damage())
        assert not store.set_aside()
        service = Service(store)
        numbers = store.loops()
        sums, firsts = (
            service.replayed(Loop(name, numbers[name]), snapshots=False) for name in LOOPS
        )
        found = {id: open.slots[0].total for id, open in sums.open_decisions.items()}
        for id, rewards in report.rewards["sums"].items():
            assert found[id] == sum(rewards.values())
        counts = firsts.counts
        assert counts.rewards == counts.learned - counts.defaults == len(report.rewards["firsts"])
        assert int(firsts.arms_summary()["pulls"].sum()) == counts.learned
        for loop in (sums, firsts):
            assert service.replayed(loop).digest() == loop.digest()
    finally:
        store.close()


def alone(
    folder: Path, faults: list[Fault], seconds: float, end: float = math.inf, pace: float = 0.0
) -> Report:
    """Break one server over SQLite."""
    server = Running(folder)
    try:
        report = asyncio.run(run(Scene([server], [], None, pace), faults, seconds, end))
    finally:
        stopped(server.process)
    assert server.process.returncode == 0, (folder / "server.log").read_text()[-2_000:]
    learned(folder / "data", None, report)
    return report


def together(
    folder: Path, faults: list[Fault], seconds: float, end: float = math.inf, pace: float = 0.0
) -> Report:
    """Break three servers over PostgreSQL, and what is between them."""

    async def main(database: Database) -> Report:
        proxies = [Proxy(f"{database.folder}/.s.PGSQL.5432") for _ in range(3)]
        servers = []
        try:
            for number, proxy in enumerate(proxies):
                address = f"postgresql://tsucb@127.0.0.1:{await proxy.start()}/postgres"
                servers.append(Running(folder / str(number), address))
                await servers[-1].is_ready()  # the first makes the keys
            return await run(Scene(servers, proxies, database, pace), faults, seconds, end)
        finally:
            for server in servers:
                await asyncio.to_thread(stopped, server.process)
            for proxy in proxies:
                proxy.close()

    with a_database() as database:
        report = asyncio.run(main(database))
        learned(folder, database.address, report)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of a server over SQLite")
    parser.add_argument("--faults", type=int, default=20, help="of each kind")
    parser.add_argument("--seconds", type=float, default=60.0, help="that a pause lasts")
    parser.add_argument("--minutes", type=float, default=120.0, help="for each part, at most")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between a client's visits")
    parser.add_argument("--parts", nargs="+", help="such as 'three servers'; all by default")
    parser.add_argument("--kinds", nargs="+", help="of faults, such as 'delay'; all by default")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--postgres", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve, options.port, options.postgres)
        return
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    parts: dict[str, tuple[Any, list[Fault]]] = {
        "kills": (alone, [kill] * options.kills),
        "one server": (alone, [full_disk, jump, pause] * options.faults),
        "three servers": (
            together, [pause, kill, partition, jump, pause_database, delay] * options.faults
        ),
    }  # fmt: skip
    for name in options.parts or parts:
        part, faults = parts[name]
        faults = [each for each in faults if each.__name__ in (options.kinds or [each.__name__])]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            end = began + 60 * options.minutes
            report = part(Path(folder), faults, options.seconds, end, options.pace)
        print(f"{name}, {time.monotonic() - began:.0f} s: {report.sentence()}", flush=True)


if __name__ == "__main__":
    main()
