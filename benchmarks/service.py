"""Speed of the decision service: decisions and rewards per second, durable, with their latencies.

    python benchmarks/service.py --rate 1000      half the target: latencies
    python benchmarks/service.py                  as fast as it goes

Starts `tsucb serve` in a process of its own, and loads it from this one over keep-alive
connections: every visit is a decision among 10 arms in a context of 20 features, then its reward.
The client and the server share the machine.
"""

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ARMS, FEATURES = 10, 20
CONFIG = """
[loops.bench]
arms = [{arms}]
reward_wait = 600
"""


class Connection:
    """A keep-alive connection that posts JSON; far cheaper than a client library."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str
    ) -> None:
        self.reader, self.writer = reader, writer
        self.head = f"Host: x\r\nAuthorization: Bearer {key}\r\nContent-Length: "

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        head = f"POST /v1/loops/bench/{path} HTTP/1.1\r\n{self.head}{len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        top = await self.reader.readuntil(b"\r\n\r\n")
        status, size = int(top[9:12]), 0
        at = top.find(b"content-length: ")
        if at >= 0:
            size = int(top[at + 16 : top.index(b"\r\n", at)])
        return status, await self.reader.readexactly(size) if size else b""


async def load(
    port: int, key: str, seconds: float, clients: int, rate: float | None
) -> tuple[list[float], list[float], int]:
    """Return latencies of decisions and of rewards, and how many requests were refused."""
    decide: list[float] = []
    reward: list[float] = []
    refused = 0
    rng = random.Random(0)
    contexts = [
        json.dumps({"context": {f"x{i}": rng.gauss(0, 1) for i in range(FEATURES)}}).encode()
        for _ in range(500)
    ]
    end = time.perf_counter() + seconds

    async def visits(number: int) -> None:
        nonlocal refused
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connection, rng = Connection(reader, writer, key), random.Random(number)
        gap = clients / rate if rate else 0.0
        due = time.perf_counter() + rng.random() * gap
        while (now := time.perf_counter()) < end:
            if gap:
                if due > now:
                    await asyncio.sleep(due - now)
                # The latency counts from when the visit is due, even if the request is late.
                began, due = due, due + gap
            else:
                began = now
            status, body = await connection.post("decide", rng.choice(contexts))
            if status == 429:
                refused += 1
                await asyncio.sleep(0.05)
                continue
            assert status == 200, body
            done = time.perf_counter()
            decide.append(done - began)
            id = body[7 : body.index(b'"', 7)].decode()
            status, body = await connection.post("reward", b'{"id":"%s","reward":1}' % id.encode())
            if status == 429:
                refused += 1
                continue
            assert status == 200, body
            reward.append(time.perf_counter() - done)
        writer.close()

    await asyncio.gather(*(visits(number) for number in range(clients)))
    return decide, reward, refused


def main() -> None:
    """Start a server, load it, print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, help="visits per second; as many as possible if absent"
    )
    parser.add_argument("--data", type=Path, help="a folder on the disk to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.data) as name:
        folder = Path(name)
        names = ", ".join(f'"arm{i}"' for i in range(ARMS))
        (folder / "config.toml").write_text(CONFIG.format(arms=names))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "tsucb", "serve", "--data", str(folder / "data")]
        command += ["--config", str(folder / "config.toml"), "--port", str(port)]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            key = json.loads((folder / "data" / "keys.json").read_text())["bench"]["decide"]
            asyncio.run(load(port, key, 2.0, options.clients, options.rate))
            before, began = cpu(server.pid), time.perf_counter()
            decide, reward, refused = asyncio.run(
                load(port, key, options.seconds, options.clients, options.rate)
            )
            spent, used = time.perf_counter() - began, cpu(server.pid) - before
        finally:
            server.terminate()
            server.wait()
    requests = len(decide) + len(reward)
    print(f"{len(decide) / spent:,.0f} decisions + {len(reward) / spent:,.0f} rewards per second")
    for what, found in (("decision", decide), ("reward", reward)):
        low, high, top = np.quantile(found, (0.5, 0.99, 0.999)) * 1e3
        print(f"{what}: median {low:.1f} ms, p99 {high:.1f} ms, p99.9 {top:.1f} ms")
    print(f"refused {refused:,}; {1e6 * used / requests:.0f} µs of the server's CPU per request")


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
