"""How many requests and connections the service takes, from whom, and how they arrive."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 256_000  # bytes of a request line with its headers
READING_SECONDS = 30.0  # for a whole request to arrive, from the first connection or byte on
REWARDS_FIRST = 1.5  # times as many requests, before those that finish a visit are refused too
SOON = 0.03  # seconds in which the application should come to a request
LEAST_REQUESTS = 16  # that are answered at the same time, however slow the machine
FEWER, MORE = 0.98, 0.1  # how the limit changes with a request that waited longer, or not
STRANGERS = 0.25  # the share of all connections that may be without a key


class Rates:
    """A bucket of tokens for every key: this many requests a second, and a burst of as many.

    Parameters
    ----------
    per_second
        None for no limit.
    monotonic
        A clock in seconds that never goes back.

    >>> now = [0.0]
    >>> rates = Rates(2, lambda: now[0])
    >>> [rates.allows("key") for _ in range(3)]
    [True, True, False]
    >>> now[0] = 0.5
    >>> rates.allows("key")
    True
    """

    MOST = 10_000  # keys that are remembered; beyond it all buckets are full again

    def __init__(
        self, per_second: float | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_second, self._monotonic = per_second, monotonic
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, key: str) -> bool:
        """Return whether the holder of a key may ask now, and count the request."""
        if self.per_second is None:
            return True
        now, most = self._monotonic(), max(self.per_second, 1.0)
        tokens, when = self._buckets.get(key, (most, now))
        tokens = min(most, tokens + (now - when) * self.per_second)
        if key not in self._buckets and len(self._buckets) >= self.MOST:
            self._buckets.clear()
        self._buckets[key] = (tokens - 1.0 if tokens >= 1.0 else tokens), now
        return tokens >= 1.0


class Door:
    """Counts requests and connections, and says whether there is room for more.

    Requests beyond `limit` are refused as soon as they arrive, so nobody waits longer than this
    many take. It is at most `most_requests`, and lower while requests wait for the processor: of
    256 that take 0.15 ms each the last waits 40 ms, but four times as long where other programs
    have three quarters of the machine. Time that passes while the log is flushed does not count, as
    to refuse requests would not shorten it. Those that bring a reward are refused last, as they
    finish what was begun. A
    connection is a stranger until a request with a valid key came by it. Beyond `most_connections`,
    and beyond a quarter of them for strangers, the stranger that has been there longest has to go.
    """

    def __init__(self, most_requests: int, most_connections: int) -> None:
        self.most_requests, self.most_connections = most_requests, most_connections
        self.limit = float(most_requests)
        self.requests = self.connections = 0
        self.refused = self.sent_away = 0  # requests and connections, since the start
        self._strangers: dict[Connection, None] = {}  # the one that came first is first

    def has_room(self, reward: bool = False) -> bool:
        """Return whether one more request can be answered."""
        return self.requests < self.limit * (REWARDS_FIRST if reward else 1.0)

    def came_to(self, waited: float) -> None:
        """Note how many seconds a request waited for the application to come to it."""
        if waited > SOON:
            self.limit = max(self.limit * FEWER, min(LEAST_REQUESTS, self.most_requests))
        elif self.limit < self.most_requests:
            self.limit = min(self.limit + MORE, self.most_requests)

    def enter(self, guest: "Connection") -> None:
        """Let a connection in; send another away, or this one, if there are too many."""
        self.connections += 1
        self._strangers[guest] = None
        many = len(self._strangers) > max(STRANGERS * self.most_connections, 1)
        if many or self.connections > self.most_connections:
            self.sent_away += 1
            next(iter(self._strangers)).send_away()

    def welcome(self, guest: "Connection") -> None:
        """Note that a request with a valid key came by a connection."""
        self._strangers.pop(guest, None)

    def leave(self, guest: "Connection") -> None:
        """Forget a connection that was closed."""
        self.connections -= 1
        self._strangers.pop(guest, None)


def refusal(seconds: int = 1) -> bytes:
    """Return the whole answer to a request past capacity, as both protocols understand it."""
    message = f"the service is at its capacity; try again in {seconds} s"
    body = f'{{"error":{{"code":"TooManyRequests","message":"{message}"}}}}'
    head = (
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n"
        f"x-ms-error-code: TooManyRequests\r\nretry-after: {seconds}\r\ncache-control: no-store\r\n"
        f"x-content-type-options: nosniff\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


REFUSAL = refusal()


class Connection(HttpToolsProtocol):
    """Uvicorn's connection, with limits on how requests arrive; others are in `http`.

    A timer runs only while a request is on its way: one that arrives whole costs nothing. Where the
    application has no room, a request that arrives whole is refused before it is parsed: that takes
    a tenth of the time, so that refusing does not use up what answering needs.
    """

    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes since the last request was complete, while its headers are not
    _in_head, _complete = True, False

    def __init__(self, config: Any, *others: Any, **more: Any) -> None:
        super().__init__(config, *others, **more)
        self.door: Door = config.app.door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client a while to send something."""
        super().connection_made(transport)
        self._watch()
        self.door.enter(self)

    def data_received(self, data: bytes) -> None:
        """Check what came, and how much of it."""
        if self.door.requests >= self.door.limit and self._is_refused(data):
            self.door.refused += 1
            self._rest()
            if self.timeout_keep_alive_task is not None:
                self._unset_keepalive_if_required()
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
            self.transport.write(REFUSAL)
            return
        self._complete = False
        super().data_received(data)
        if self._complete:
            self._rest()
            return
        self._head += len(data) if self._in_head else 0
        if self._head > MOST_HEAD:
            self.send_400_response("The headers are too long.")
        self._watch()

    def _is_refused(self, data: bytes) -> bool:
        """Return whether this is a whole request to one of the protocols with no room for it."""
        if not data.startswith((b"POST /v1/", b"POST /personalizer/")):
            return False
        idle = self._in_head and not self._head and not self.pipeline
        if not idle or (self.cycle is not None and not self.cycle.response_complete):
            return False
        end = data.find(b"\r\n\r\n")
        if end < 0 or self.door.has_room(reward=b"reward" in data[: data.index(b"\r\n")]):
            return False
        _, found, rest = data[: end + 2].lower().partition(b"\r\ncontent-length:")
        length = rest[: rest.index(b"\r\n")].strip() if found else b""
        return length.isdigit() and end + 4 + int(length) == len(data)

    def on_headers_complete(self) -> None:
        """From here on the application counts what comes."""
        self._in_head, self._head = False, 0
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Count the request, before the application comes to it."""
        self._in_head = self._complete = True
        if not self.cycle.response_complete:
            self.cycle.scope["counted"] = True  # type: ignore[typeddict-unknown-key]
            self.cycle.scope["arrived"] = time.monotonic()  # type: ignore[typeddict-unknown-key]
            self.door.requests += 1
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nobody any more."""
        self._rest()
        self.door.leave(self)
        super().connection_lost(exc)

    def send_away(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def _watch(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(READING_SECONDS, self.transport.abort)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
