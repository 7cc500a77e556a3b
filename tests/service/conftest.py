"""Fixtures: a service over each kind of store, on a clock that tests set."""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apsw", reason="the service needs tsucb[serve]")
pytest.importorskip("msgspec", reason="the service needs tsucb[serve]")

from tsucb.service.service import Service
from tsucb.service.sqlite import SqliteStore
from tsucb.service.store import Store

PATIENCE = 300.0  # seconds that anything may take on a busy machine


class Clock:
    """A clock that moves only when a test calls `pass_by`."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Database:
    """A PostgreSQL server for tests, which can be stopped and started again."""

    def __init__(self) -> None:
        pytest.importorskip("psycopg", reason="the PostgreSQL store needs tsucb[postgres]")
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not programs:
            pytest.skip("there is no PostgreSQL; install Debian's package postgresql")
        user: dict[str, Any] = {}
        self.folder, self._programs = (
            Path(tempfile.mkdtemp(prefix="tsucb-pg-")),
            programs[-1].parent,
        )
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            try:
                found = pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
            os.chown(self.folder, found.pw_uid, found.pw_gid)
            user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        self._quiet: dict[str, Any] = {
            "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder, **user,
        }  # fmt: skip
        command = [self._programs / "initdb", "-D", self.folder / "data", "-A", "trust"]
        subprocess.run([*command, "-U", "tsucb", "-N"], check=True, **self._quiet)
        self.address = f"postgresql://tsucb@/postgres?host={self.folder}"
        self.start()

    def start(self) -> None:
        """Start the server; return when it takes connections."""
        command = [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder]
        self._server = subprocess.Popen([*command, "-c", "listen_addresses="], **self._quiet)
        deadline = time.monotonic() + PATIENCE
        while subprocess.run([self._programs / "pg_isready", "-qh", self.folder]).returncode:
            if self._server.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("PostgreSQL does not start")
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        """Send a signal to the server and all of its processes."""
        found = [self._server.pid]
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it may have ended
                if int(entry.read_text().rpartition(")")[2].split()[1]) == self._server.pid:
                    found.append(int(entry.parent.name))
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """Stop the server without waiting for connections to close."""
        stopped(self._server, signal.SIGINT)


def stopped(process: "subprocess.Popen[Any]", number: int = signal.SIGTERM) -> None:
    """Send a signal to a process, and kill it if it does not end."""
    try:
        if process.poll() is None:
            process.send_signal(number)
        process.wait(60)
    finally:
        process.kill()  # does nothing if the process has ended
        process.wait()


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    """Return the address of a PostgreSQL server started for these tests."""
    with a_database() as found:
        yield found.address


@pytest.fixture
def mortal_database() -> Iterator[Database]:
    """Return a PostgreSQL server that a test may stop."""
    with a_database() as found:
        yield found


@contextmanager
def a_database() -> Iterator[Database]:
    """Yield a PostgreSQL server; stop it at the end, also after an error."""
    found = Database()
    try:
        yield found
    finally:
        found.stop()
        shutil.rmtree(found.folder, ignore_errors=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true; fail after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        await asyncio.sleep(0.02)


@pytest.fixture
def schema(database: str) -> str:
    """Return the address of an empty schema in the database."""
    import psycopg

    name = f"s{secrets.token_hex(6)}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{database}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Return a function that closes the store and opens it again."""
    opened: list[Store] = []
    if request.param == "postgres":
        address = request.getfixturevalue("schema")
        from tsucb.service.postgres import PostgresStore

    def opener() -> Store:
        while opened:
            opened.pop().close()
        new: Store = (
            SqliteStore(tmp_path / "data") if request.param == "sqlite" else PostgresStore(address)
        )
        opened.append(new)
        return new

    yield opener
    while opened:
        opened.pop().close()


@asynccontextmanager
async def running(store: Store, clock: Clock, **settings: Any) -> AsyncIterator[Service]:
    """Yield a running service; stop it at the end."""
    service = Service(store, **{"clock": clock, "seed": 1, "compare": True, **settings})
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an asynchronous test."""
    asyncio.run(main())


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[str, str]:
    """Return the paths of a certificate for this machine and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    names = str(folder / "certificate.pem"), str(folder / "key.pem")
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=IP:127.0.0.1", "-out", names[0], "-keyout", names[1]],
            check=True, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no openssl to make a certificate with")
    return names
