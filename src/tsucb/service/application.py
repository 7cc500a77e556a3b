"""The application that uvicorn calls.

Paths are split as they come over the wire and only then decoded, so that an id may contain a
slash. No framework stands between the server and the protocols: a request of 1.4 kB takes 47 µs of
the processor with uvicorn and msgspec alone, 68 with Starlette, 190 with FastAPI.
"""

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import unquote

from tsucb.service.connections import Door, Rates
from tsucb.service.http import Answer, Headers, HttpProblem, Request, as_problem, overloaded
from tsucb.service.keys import Holder
from tsucb.service.metrics import Metrics
from tsucb.service.native import Native
from tsucb.service.page import Page
from tsucb.service.personalizer import Personalizer
from tsucb.service.service import Service

log = logging.getLogger("tsucb.service")

PIECE = 1_000_000  # bytes of a file that are sent at a time

# For everything; the page adds its own.
SAFE: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]


@dataclass(frozen=True)
class Options:
    """How much the application takes.

    Parameters
    ----------
    most_bytes : of a body
    most_requests : at the same time; see `Door`
    most_connections : at the same time
    rate : requests per second and key, None for any number
    """

    most_bytes: int = 1_000_000
    most_requests: int = 256
    most_connections: int = 10_000
    rate: float | None = None


class Application:
    """The ASGI application.

    It answers from the start: health at once, everything else once the service is ready.

    Parameters
    ----------
    service
        Started and stopped with the server.
    options
        Limits.
    monotonic
        A clock in seconds that never goes back.
    """

    def __init__(
        self,
        service: Service,
        options: Options = Options(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service, self.options, self._monotonic = service, options, monotonic
        self.door = Door(options.most_requests, options.most_connections)
        self.metrics = Metrics(service, self.door)
        self.rates = Rates(options.rate, monotonic)
        self.ready = False  # whether the first loop can decide
        self.failed: Exception | None = None  # why the service could not be started
        # What else happens when it starts and stops; and if it could not be started.
        self.prepare: Callable[[], Awaitable[None]] | None = None
        self.finish: Callable[[], None] = lambda: None
        self.give_up: Callable[[], None] = lambda: None
        self.protocols: dict[str, Any] = {
            "v1": Native(service), "personalizer": Personalizer(service),
        }  # fmt: skip
        self.page = Page(service, self.metrics, lambda: self.ready)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See the specification of ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        try:
            answer = await self.answer(scope, receive)
        finally:
            if scope.get("counted"):
                self.door.requests -= 1
        headers = [*SAFE, *answer.headers]
        if answer.file is not None:
            await self._send_file(answer, answer.file, headers, send)
            return
        if answer.status != 204:
            headers.append((b"content-type", answer.kind))
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _send_file(
        self, answer: Answer, file: IO[bytes], headers: list[tuple[bytes, bytes]], send: Any
    ) -> None:
        """Send a file in pieces: uvicorn waits with the next for a client that is slow."""
        with file:
            size = os.fstat(file.fileno()).st_size
            headers += [(b"content-type", answer.kind), (b"content-length", b"%d" % size)]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            while piece := await asyncio.to_thread(file.read, PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def answer(self, scope: Any, receive: Any) -> Answer:
        """Return the answer to a request, whatever it is."""
        began = self._monotonic()
        path = [unquote(part) for part in scope["raw_path"].decode("latin-1").split("/")[1:]]
        path = path or [""]  # of OPTIONS *
        protocol = self.protocols.get(path[0], self.page)
        try:
            body = await self._body(scope, receive)  # a slow client takes nobody's place
            if (arrived := scope.get("arrived")) is not None:
                self.door.came_to(time.monotonic() - arrived)
            if protocol is not self.page:
                self._check_room(path, bool(scope.get("counted")))
            request = Request(
                scope["method"], path, scope["raw_path"], scope["query_string"],
                dict(scope["headers"]), body,
                scope["scheme"] == "https", (scope.get("client") or ("",))[0],
            )  # fmt: skip
            holder = self.holder(request)
            if holder is not None:
                if not self.rates.allows(holder.name):
                    raise overloaded(1)
                if (connection := scope.get("connection")) is not None:
                    self.door.welcome(connection)
            answer: Answer = await protocol.answer(request, holder)
        except Exception as error:
            answer = self._problem(protocol, error)
        self.metrics.answered(path, answer.status, self._monotonic() - began)
        return answer

    def _check_room(self, path: list[str], counted: bool) -> None:
        """Raise a HttpProblem if the service has not started, or there are too many requests."""
        if not self.ready:
            raise HttpProblem(
                503, "NotReady", "the service is starting; try again soon", [(b"retry-after", b"1")]
            )
        self.door.requests -= counted  # does not count against itself
        full = not self.door.has_room(reward="reward" in path)
        self.door.requests += counted
        if full:
            self.door.refused += 1
            raise overloaded(1)

    def holder(self, request: Request) -> Holder | None:
        """Return who asks, by the key that came with the request."""
        key = request.header(b"ocp-apim-subscription-key")
        if not key:
            scheme, _, key = request.header(b"authorization").partition(" ")
            if scheme.lower() != "bearer":
                return None
        return self.service.keys.holder(key.strip(), self.service.clock()) if key else None

    def _problem(self, protocol: Any, error: Exception) -> Answer:
        problem = as_problem(error)
        if problem.status == 500:
            log.error("%s", problem.message, extra={"trace": traceback.format_exc()})
        found: Answer = protocol.problem(problem)
        return found

    async def _body(self, scope: Any, receive: Any) -> bytes:
        most, size = self.options.most_bytes, 0
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpProblem(400, "Disconnected", "the client closed the connection")
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise HttpProblem(413, "TooLarge", f"a request has at most {most:,} bytes")
            if not message.get("more_body", False):
                return part if not parts else b"".join([*parts, part])
            parts.append(part)

    async def _live(self, receive: Any, send: Any) -> None:
        """Start the service while health is answered already; stop it at the end."""
        starting: asyncio.Task[None] | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                starting = asyncio.create_task(self._start())
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                assert starting is not None
                await starting
                self.ready = False
                self.finish()
                if self.failed is None:
                    await self.service.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        try:
            await self.service.start()
            if self.prepare is not None:
                await self.prepare()
            self.ready = True
        except Exception as error:
            self.failed = error
            log.error("the service could not be started: %s", error, exc_info=error)
            self.give_up()
