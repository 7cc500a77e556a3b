"""Connections that nobody can keep busy, and refusals that cost next to nothing."""

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tsucb.service.limits import Door

MOST_HEAD = 256_000  # bytes of a request line with its headers
READING_SECONDS = 30.0  # for a whole request to arrive, from the first connection or byte on


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
