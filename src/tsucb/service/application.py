"""The ASGI application that uvicorn calls, and its limits of requests and connections.

Paths are split at slashes as they come over the wire and decoded afterwards, so an id may contain a
slash. There is no web framework between uvicorn and the protocols: a request of 1.4 kB takes 47 µs
of processor time with uvicorn and msgspec alone, 68 with Starlette, 190 with FastAPI.
"""

import asyncio
import functools
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tsucb.service.errors import HttpProblem, Overloaded
from tsucb.service.http import Answer, Call, Headers, as_problem
from tsucb.service.keys import KeyRecord
from tsucb.service.monitoring import ServiceMetrics
from tsucb.service.native import Native
from tsucb.service.page import HEALTH, STATIC, Page
from tsucb.service.personalizer import Personalizer
from tsucb.service.service import Service

log = logging.getLogger("tsucb.service")

PIECE = 1_000_000  # bytes of a file that are sent at a time
MOST_HEAD = 256_000  # bytes of a request line with its headers
READING_SECONDS = 30.0  # within which a request must arrive, from the connection or first byte on
REWARDS_FIRST = 1.5  # times the limit of other requests is the limit of rewards
SOON = 0.03  # seconds that requests may wait for the processor before the limit falls
INTERVAL = 0.1  # seconds over which waits are averaged
LEAST_REQUESTS = 16  # below which the limit does not fall
MORE = 1.1  # the factor by which the limit rises in an interval
STRANGERS = 0.25  # share of all connections that may be without a key
MOST_RATES = 10_000  # keys with a bucket of tokens; beyond it all buckets start again

OPEN = (*HEALTH, *STATIC)  # paths that are answered while the service starts
TIMED = ("decide", "reward", "activate", "rank")  # operations with a latency of their own
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds

# Headers of every answer; pages add their own.
SAFE: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]

# The whole answer to a request past capacity, in a form for both protocols.
BODY = b'{"error":{"code":"TooManyRequests","message":"%s"}}' % str(Overloaded()).encode()
REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n"
    b"x-ms-error-code: TooManyRequests\r\nretry-after: 1\r\n%scontent-length: %d\r\n\r\n%s"
) % (b"".join(b"%s: %s\r\n" % header for header in SAFE), len(BODY), BODY)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of the application.

    Parameters
    ----------
    most_bytes
        Bytes of a request's body.
    most_requests, most_connections
        Requests and connections at the same time; see `Door`.
    rate
        Requests per second and key; None for no limit.
    """

    most_bytes: Annotated[int, Meta(ge=1)] = 1_000_000
    most_requests: Annotated[int, Meta(ge=1)] = 256
    most_connections: Annotated[int, Meta(ge=1)] = 10_000
    rate: Annotated[float, Meta(gt=0)] | None = None


class Rates:
    """A token bucket for every key, which allows `per_second` requests and a burst of as many.

    >>> now = [0.0]
    >>> rates = Rates(2, lambda: now[0])
    >>> [rates.allows("key") for _ in range(3)]
    [True, True, False]
    >>> now[0] = 0.5
    >>> rates.allows("key")
    True
    """

    def __init__(self, per_second: float | None, monotonic: Callable[[], float]) -> None:
        self.per_second, self._monotonic = per_second, monotonic
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def allows(self, key: str) -> bool:
        """Take a token from the bucket of a key; return False if there is none."""
        if self.per_second is None:
            return True
        now, most = self._monotonic(), max(self.per_second, 1.0)
        tokens, when = self._buckets.get(key, (most, now))
        tokens = min(most, tokens + (now - when) * self.per_second)
        if key not in self._buckets and len(self._buckets) >= MOST_RATES:
            self._buckets.clear()
        self._buckets[key] = (tokens - 1.0 if tokens >= 1.0 else tokens), now
        return tokens >= 1.0


class Door:
    """Counts requests and connections, and refuses those beyond the limits.

    Requests beyond `limit` are refused as soon as they arrive, which bounds the wait of all others.
    The limit is at most `most_requests`, and falls while requests wait for the processor: the last
    of 256 requests of 0.1 ms each waits 26 ms, but four times as long if other programs have three
    quarters of the machine. Waits are averaged: a single pause of the process delays hundreds of
    requests. The time of flushes of the log does not count, as refusing requests would not shorten
    it. Requests with a reward have a higher limit, as they complete decisions that were made
    already.

    A connection is a stranger until a request with a valid key arrives on it. Beyond
    `most_connections` in all, and beyond a quarter of it for strangers, the oldest stranger is
    disconnected.
    """

    def __init__(self, most_requests: int, most_connections: int) -> None:
        self.most_requests, self.most_connections = most_requests, most_connections
        self.limit = float(most_requests)
        self.requests = self.connections = 0
        self.refused = self.sent_away = 0  # requests and connections, since the start
        self._since, self._waited, self._count = 0.0, 0.0, 0  # of the waits in an interval
        self._strangers: dict[Connection, None] = {}  # the oldest first

    def has_room(self, url: bytes) -> bool:
        """Return whether to answer a request that arrives."""
        if self.requests < self.limit or not url.startswith((b"/v1/", b"/personalizer/")):
            return True
        return b"reward" in url and self.requests < self.limit * REWARDS_FIRST

    def note_wait(self, now: float, waited: float) -> None:
        """Adapt the limit, by the seconds that a request has waited for the processor until now."""
        self._count += 1
        self._waited += waited
        if now - self._since > INTERVAL:
            mean = self._waited / self._count
            factor = max(SOON / mean, 0.5) if mean > SOON else MORE
            self.limit = min(max(self.limit * factor, LEAST_REQUESTS), self.most_requests)
            self._since, self._waited, self._count = now, 0.0, 0

    def enter(self, connection: "Connection") -> None:
        """Count a new connection; disconnect the oldest stranger if there are too many."""
        self.connections += 1
        self._strangers[connection] = None
        many = len(self._strangers) > max(STRANGERS * self.most_connections, 1)
        if many or self.connections > self.most_connections:
            self.sent_away += 1
            oldest = next(iter(self._strangers))
            self._strangers.pop(oldest)  # it closes later, and must not be chosen again
            oldest.transport.abort()

    def welcome(self, connection: "Connection | None") -> None:
        """Note that a request with a valid key arrived on a connection."""
        self._strangers.pop(connection, None)  # type: ignore[arg-type]

    def leave(self, connection: "Connection") -> None:
        """Forget a connection that was closed."""
        self.connections -= 1
        self._strangers.pop(connection, None)


class Connection(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, with limits of time and size for requests that arrive.

    A timer runs only while a request is incomplete, so a request that arrives in one piece costs
    nothing. Beyond the limit of `Door`, such a request is refused without being parsed: that takes
    a tenth of the time of an answer. Others are refused by `Application`.
    """

    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes of headers that are incomplete
    _part = ""  # what is incomplete of a request: its "head", its "body", or nothing

    def __init__(self, config: Any, *others: Any, **more: Any) -> None:
        super().__init__(config, *others, **more)
        self.door: Door = config.app.door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, and count the connection."""
        super().connection_made(transport)
        self._start_timer()
        self.door.enter(self)

    def data_received(self, data: bytes) -> None:
        """Parse some bytes; check the size of headers, and the time of an incomplete request."""
        if self.door.requests >= self.door.limit and self._refuse(data):
            return
        super().data_received(data)
        if not self._part:
            self._stop_timer()
            return
        self._head += len(data) if self._part == "head" else 0
        if self._head > MOST_HEAD:
            self.send_400_response("The headers are too long.")
        self._start_timer()

    def _refuse(self, data: bytes) -> bool:
        """Answer one whole request that there is no room for; return False for anything else."""
        # Answers leave in the order of their requests: no other may be unanswered.
        if self._part or self.pipeline or not (self.cycle is None or self.cycle.response_complete):
            return False
        head, end, body = data.partition(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        if not (end and line.startswith(b"POST ") and line.endswith(b" HTTP/1.1")):
            return False
        fields = b"\r\n%s\r\n" % fields.lower()
        # Where the request ends must be beyond doubt: a proxy in front must see the same.
        if b"transfer-encoding" in fields or fields.count(b"content-length") != 1:
            return False
        if b"\r\ncontent-length: %d\r\n" % len(body) not in fields or self.door.has_room(line[5:]):
            return False
        self.door.refused += 1
        self.transport.write(REFUSAL)
        self._stop_timer()
        if self.timeout_keep_alive_task is None:  # else it goes on from the last other answer
            self.on_response_complete()
        return True

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self._part, self._head = "head", 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        self._part = "body"
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Count the request; note when it arrived, and whether there is room for it."""
        self._part = ""
        if not self.cycle.response_complete:
            scope: Any = self.cycle.scope
            scope["arrived"], scope["has_room"] = time.monotonic(), self.door.has_room(self.url)
            self.door.requests += 1
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Free what was read of the request now, while it is in the caches of the processor."""
        if not self._part and not self.pipeline:
            self.cycle = self.scope = self.headers = None  # type: ignore[assignment]
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and forget the connection."""
        self._stop_timer()
        self.door.leave(self)
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(READING_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Application:
    """The ASGI application; while the service starts, it answers only the paths of health.

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
        self, service: Service, options: Options, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.service, self.options, self._monotonic = service, options, monotonic
        self.door = Door(options.most_requests, options.most_connections)
        self.registry = CollectorRegistry()
        answers = Counter(
            "tsucb_answers", "Requests answered.", ["protocol", "status"], registry=self.registry
        )
        seconds = Histogram(
            "tsucb_answer_seconds", "Time from a whole request to its answer.",
            ["protocol", "operation"], buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        # To find the counter for some labels takes 3 µs, to count 0.6.
        self._counters = functools.cache(
            lambda protocol, operation, status: (
                answers.labels(protocol, status), seconds.labels(protocol, operation)
            )
        )  # fmt: skip
        ProcessCollector(namespace="tsucb", registry=self.registry)
        self.registry.register(ServiceMetrics(service, self.door))
        self.rates = Rates(options.rate, monotonic)
        self.ready = False  # whether the first loop can decide
        self.failed: Exception | None = None  # why the service could not be started
        # Called when the service has started; called if it could not be started.
        self.prepare: Callable[[], Awaitable[None]] | None = None
        self.give_up: Callable[[], None] = lambda: None
        self.protocols: dict[str, Any] = {"v1": Native(), "personalizer": Personalizer()}
        self.page = Page(service, self.registry, lambda: self.ready)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See the specification of ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        try:
            answer = await self.answer(scope, receive)
        finally:
            self.door.requests -= "arrived" in scope
        headers, size = [*SAFE, *answer.headers], len(answer.body)
        if answer.file is not None:
            size = os.fstat(answer.file.fileno()).st_size
        if answer.status != 204:
            headers += [(b"content-type", answer.kind), (b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.file is not None:
            with answer.file as file:  # uvicorn waits with the next piece for a slow client
                while piece := await asyncio.to_thread(file.read, PIECE):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": answer.body})

    async def answer(self, scope: Any, receive: Any) -> Answer:
        """Return the answer to any request; errors become answers of its protocol."""
        began = self._monotonic()
        path = [unquote(part) for part in scope["raw_path"].decode("latin-1").split("/")[1:]]
        path = path or [""]  # for OPTIONS *
        protocol = self.protocols.get(path[0], self.page)
        try:
            body = await self._body(receive)
            if "arrived" in scope:
                now = time.monotonic()
                self.door.note_wait(now, now - scope["arrived"])
            if not self.ready and path[0] not in OPEN:
                message = "the service is starting; try again soon"
                raise HttpProblem(503, "NotReady", message, [(b"retry-after", b"1")])
            if not scope.get("has_room", True):
                self.door.refused += 1
                raise Overloaded
            call = Call(
                self.service, scope["method"], path, scope["raw_path"], scope["query_string"],
                dict(scope["headers"]), body, scope["scheme"] == "https",
            )  # fmt: skip
            call.holder = self.holder(call)
            if call.holder is not None:
                if not self.rates.allows(call.holder.name):
                    raise Overloaded
                self.door.welcome(scope.get("connection"))
            answer: Answer = await protocol.answer(call)
        except Exception as error:
            problem = as_problem(error)
            if problem.status == 500:
                log.error("%s", problem, extra={"trace": traceback.format_exc()})
            answer = protocol.problem(problem)
        self._count(path, answer.status, self._monotonic() - began)
        return answer

    def _count(self, path: list[str], status: int, seconds: float) -> None:
        """Count an answer for Prometheus."""
        protocol = path[0] if path[0] in self.protocols else "page"
        operation = path[-1] if path[-1] in TIMED else "other"
        count, time = self._counters(protocol, operation, status)
        count.inc()
        time.observe(seconds)

    def holder(self, call: Call) -> KeyRecord | None:
        """Return the record of the key of a request; None without a valid key."""
        key = call.header(b"ocp-apim-subscription-key")
        if not key:
            scheme, _, key = call.header(b"authorization").partition(" ")
            if scheme.lower() != "bearer":
                return None
        return self.service.keys.holder(key.strip(), self.service.clock()) if key else None

    async def _body(self, receive: Any) -> bytes:
        most, body = self.options.most_bytes, bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpProblem(400, "Disconnected", "the client closed the connection")
            body += message.get("body", b"")
            if len(body) > most:
                raise HttpProblem(413, "TooLarge", f"a request has at most {most:,} bytes")
            if not message.get("more_body", False):
                return bytes(body)

    async def _live(self, receive: Any, send: Any) -> None:
        """Start the service in the background, so that health is answered; stop it at the end."""
        await receive()  # lifespan.startup
        starting = asyncio.create_task(self._start())
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await starting
        self.ready = False
        if self.failed is None:
            await self.service.stop()
        await send({"type": "lifespan.shutdown.complete"})

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
