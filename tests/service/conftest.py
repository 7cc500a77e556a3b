"""A service on a clock that tests set, over every store there is."""

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
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apsw", reason="the service needs tsucb[serve]")
pytest.importorskip("msgspec", reason="the service needs tsucb[serve]")

from tsucb.service.service import Service
from tsucb.service.sqlite import SqliteStore
from tsucb.service.store import Store


class Clock:
    """A clock that only goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def database(tmp_path_factory) -> Iterator[str]:
    """The address of a PostgreSQL server that is started for these tests."""
    pytest.importorskip("psycopg", reason="the PostgreSQL store needs tsucb[postgres]")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip("there is no PostgreSQL; install Debian's package postgresql")
    folder, programs = Path(tempfile.mkdtemp(prefix="tsucb-pg-")), programs[-1].parent
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # which PostgreSQL refuses to run as
        try:
            found = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        os.chown(folder, found.pw_uid, found.pw_gid)
        user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    data = folder / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-A", "trust", "-U", "tsucb", "-N"], check=True,
        cwd=folder, **quiet,
    )  # fmt: skip
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="], cwd=folder,
        **quiet,
    )  # fmt: skip
    address = f"postgresql://tsucb@/postgres?host={folder}"
    for _ in range(600):
        if not subprocess.run([programs / "pg_isready", "-q", "-h", folder]).returncode:
            break
        time.sleep(0.05)
    yield address
    server.send_signal(signal.SIGINT)  # do not wait for connections
    server.wait(20)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def schema(database: str) -> str:
    """The address of an empty schema in it."""
    import psycopg

    name = f"s{secrets.token_hex(6)}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{database}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store anew, each time."""
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
    """A service that stops in the end."""
    service = Service(store, clock=clock, seed=1, **settings)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test that awaits things."""
    asyncio.run(main())


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[str, str]:
    """A certificate for this machine, and its key."""
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
