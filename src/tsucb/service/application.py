"""The application that uvicorn calls.

Paths are taken apart as they come over the wire and only then decoded, so that an id may contain a
slash. Nothing else stands between the server and the protocols: a framework would take longer than
the decision.
"""

import asyncio
import logging
import os
import traceback
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import unquote

from tsucb.service.http import Answer, Headers, Problem, Request, as_problem, overloaded
from tsucb.service.keys import Holder
from tsucb.service.limits import Rates
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
    most_requests : at the same time; more are refused
    rate : requests per second and key, None for any number
    """

    most_bytes: int = 1_000_000
    most_requests: int = 2_000
    rate: float | None = None


class Application:
    """The ASGI application.

    Parameters
    ----------
    service
        Started and stopped with the server.
    options
        Limits.
    """

    def __init__(self, service: Service, options: Options = Options()) -> None:  # noqa: B008
        self.service, self.options = service, options
        self.metrics = Metrics(service)
        self.rates = Rates(options.rate, service.clock)
        self.requests = 0  # that are being answered
        native = Native(service)
        self.protocols: dict[str, Any] = {"v1": native, "personalizer": Personalizer(service)}
        self.page = Page(service, self.metrics, native)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See the specification of ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        answer = await self.answer(scope, receive)
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
        """A piece at a time: uvicorn waits with the next for a client that is slow."""
        with file:
            size = os.fstat(file.fileno()).st_size
            headers += [(b"content-type", answer.kind), (b"content-length", b"%d" % size)]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            while piece := await asyncio.to_thread(file.read, PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def answer(self, scope: Any, receive: Any) -> Answer:
        """The answer to a request, whatever it is."""
        path = [unquote(part) for part in scope["raw_path"].decode("latin-1").split("/")[1:]]
        protocol = self.protocols.get(path[0], self.page)
        try:
            body = await self._body(scope, receive)  # a slow client takes nobody's place
        except Problem as error:
            return self._problem(protocol, error)
        if self.requests >= self.options.most_requests:
            return self._problem(protocol, overloaded(1))
        self.requests += 1
        try:
            request = Request(
                scope["method"], path, scope["raw_path"], scope["query_string"],
                dict(scope["headers"]), body,
                scope["scheme"] == "https", (scope.get("client") or ("",))[0],
            )  # fmt: skip
            holder = self.holder(request)
            if holder is not None and not self.rates.allows(holder.name):
                raise overloaded(1)
            answer: Answer = await protocol.answer(request, holder)
        except Exception as error:
            answer = self._problem(protocol, error)
        finally:
            self.requests -= 1
        self.metrics.answered(path[0], answer.status)
        return answer

    def holder(self, request: Request) -> Holder | None:
        """Who asks, by the key that came with the request."""
        key = request.header(b"ocp-apim-subscription-key")
        if not key:
            scheme, _, key = request.header(b"authorization").partition(" ")
            if scheme.lower() != "bearer":
                return None
        return self.service.keys.holder(key.strip(), self.service.clock()) if key else None

    def _problem(self, protocol: Any, error: Exception) -> Answer:
        problem = as_problem(error)
        if problem.status >= 500:
            log.error("%s", problem.message, extra={"trace": traceback.format_exc()})
        if problem.status == 429:
            self.metrics.refused += 1
        found: Answer = protocol.problem(problem)
        return found

    async def _body(self, scope: Any, receive: Any) -> bytes:
        most, size = self.options.most_bytes, 0
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "Disconnected", "the client went away")
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise Problem(413, "TooLarge", f"a request has at most {most:,} bytes")
            if not message.get("more_body", False):
                return part if not parts else b"".join([*parts, part])
            parts.append(part)

    async def _live(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.service.start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.service.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
