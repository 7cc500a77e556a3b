"""How many requests and connections the service takes, and from whom."""

import time
from collections.abc import Callable
from typing import Protocol

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


class Guest(Protocol):
    """A connection that can be sent away."""

    def send_away(self) -> None:
        """Close it at once."""


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
        self._strangers: dict[Guest, None] = {}  # the one that came first is first

    def has_room(self, reward: bool = False) -> bool:
        """Return whether one more request can be answered."""
        return self.requests < self.limit * (REWARDS_FIRST if reward else 1.0)

    def came_to(self, waited: float) -> None:
        """Note how many seconds a request waited for the application to come to it."""
        if waited > SOON:
            self.limit = max(self.limit * FEWER, min(LEAST_REQUESTS, self.most_requests))
        elif self.limit < self.most_requests:
            self.limit = min(self.limit + MORE, self.most_requests)

    def enter(self, guest: Guest) -> None:
        """Let a connection in; send another away, or this one, if there are too many."""
        self.connections += 1
        self._strangers[guest] = None
        many = len(self._strangers) > max(STRANGERS * self.most_connections, 1)
        if many or self.connections > self.most_connections:
            self.sent_away += 1
            next(iter(self._strangers)).send_away()

    def welcome(self, guest: Guest) -> None:
        """Note that a request with a valid key came by a connection."""
        self._strangers.pop(guest, None)

    def leave(self, guest: Guest) -> None:
        """Forget a connection that was closed."""
        self.connections -= 1
        self._strangers.pop(guest, None)
