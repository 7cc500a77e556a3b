"""A server in a thread of the test, reached over real connections."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from tests.service.conftest import PATIENCE
from tsucb.service.application import Application, Connection, Options
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings
from tsucb.service.sqlite import SqliteStore
from tsucb.service.store import Store

LOOP = "drinks"


class Served:
    """A service behind HTTP, and the keys of its loop."""

    def __init__(self, service: Service, application: Application, url: str) -> None:
        self.service, self.application, self.url = service, application, url
        self.keys: dict[str, str] = {}
        self.server_key = ""
        self.event_loop: Any = None
        self.clients: list[Any] = []  # closed before the server stops, which would wait for them

    @property
    def loop(self) -> Any:
        return self.service.loop(LOOP)


@contextlib.contextmanager
def served(
    folder: Path, clock: Any, *, tls: tuple[str, str] | None = None, options: Options | None = None,
    most_unwritten: int = 4_000, store: Store | None = None, **settings: Any,
) -> Iterator[Served]:  # fmt: skip
    """Serve one loop on a free port, until the end of the block; in SQLite without a store."""
    store = store or SqliteStore(folder)
    service = Service(store, clock=clock, seed=1, most_unwritten=most_unwritten)
    application = Application(service, options or Options(), monotonic=clock)
    free = socket.socket(proto=socket.IPPROTO_TCP)  # proto is needed for TCP_NODELAY
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        application, log_level="warning", ssl_certfile=certificate, ssl_keyfile=key, ws="none",
        http=Connection,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    found = Served(service, application, f"{'https' if tls else 'http'}://127.0.0.1:{port}")
    ready, failed = threading.Event(), list[BaseException]()

    async def main() -> None:
        found.event_loop = asyncio.get_running_loop()
        task = asyncio.create_task(server.serve([free]))
        while not (server.started and application.ready) and not task.done():
            await asyncio.sleep(0.005)
            assert application.failed is None, application.failed
        if LOOP not in service.loops:
            chosen = LoopSettings(**{"learn_early": True, **settings})
            found.keys = await service.create(LOOP, chosen)
            found.server_key = await service.issue_key(None, "administer", "test")
        ready.set()
        while not server.should_exit:
            await asyncio.sleep(0.01)
        for connection in list(server.server_state.connections):
            connection.transport.abort()  # clients may have closed their connections
        await task
        await asyncio.sleep(0)

    def serve() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE)  # compiling may take long
        assert not failed, failed
        yield found
    finally:
        for client in found.clients:
            client.close()
        server.should_exit = True
        thread.join(PATIENCE)
        free.close()
        store.close()
    assert not failed, failed
