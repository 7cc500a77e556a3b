"""How much a client may ask for."""

from collections.abc import Callable


class Rates:
    """A bucket of tokens for every key: so many requests a second, and a burst of as many.

    Parameters
    ----------
    per_second
        None for no limit.
    clock
        Tells the time in seconds.

    >>> now = [0.0]
    >>> rates = Rates(2, lambda: now[0])
    >>> [rates.allows("key") for _ in range(3)]
    [True, True, False]
    >>> now[0] = 0.5
    >>> rates.allows("key")
    True
    """

    MOST = 10_000  # keys that are remembered; beyond it all start anew

    def __init__(self, per_second: float | None, clock: Callable[[], float]) -> None:
        self.per_second, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, key: str) -> bool:
        """Whether the holder of a key may ask now; it counts as asked."""
        if self.per_second is None:
            return True
        now, most = self._clock(), max(self.per_second, 1.0)
        tokens, when = self._buckets.get(key, (most, now))
        tokens = min(most, tokens + (now - when) * self.per_second)
        if key not in self._buckets and len(self._buckets) >= self.MOST:
            self._buckets.clear()
        self._buckets[key] = (tokens - 1.0 if tokens >= 1.0 else tokens), now
        return tokens >= 1.0
