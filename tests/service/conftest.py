"""A service on a clock that tests set, over every store there is."""

import asyncio
import subprocess
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


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store anew, each time."""
    opened: list[Store] = []

    def opener() -> Store:
        while opened:
            opened.pop().close()
        opened.append(SqliteStore(tmp_path / "data"))
        return opened[-1]

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
