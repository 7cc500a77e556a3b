"""Connections that nobody can keep busy by sending slowly, or a request's head without end."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 256_000  # bytes of a request line with its headers
READING_SECONDS = 30.0  # for a whole request to arrive, from the first connection or byte on


class Connection(HttpToolsProtocol):
    """Uvicorn's, with limits on how a request arrives; see `http.Problem` for all others.

    A timer runs only while a request is on its way: one that arrives whole costs nothing.
    """

    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes since the last request was complete, while its headers are not
    _in_head, _complete = True, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give it a while to say something."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Look at what came, and whether it is enough."""
        self._complete = False
        super().data_received(data)
        if self._complete:
            self._rest()
            return
        self._head += len(data) if self._in_head else 0
        if self._head > MOST_HEAD:
            self.send_400_response("The headers are too long.")
        self._watch()

    def on_headers_complete(self) -> None:
        """From here on the application counts what comes."""
        self._in_head, self._head = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is here."""
        self._in_head = self._complete = True
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(READING_SECONDS, self.transport.abort)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
