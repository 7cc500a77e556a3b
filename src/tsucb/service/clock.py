"""Time that never goes back: what waits and limits are measured by."""

from collections.abc import Callable

SLOWER = 0.1  # share of the time that passes by which a clock that is ahead goes slower


class SteadyClock:
    """Seconds since 1970 that go on evenly, whatever happens to the clock of the machine.

    It begins with the time of the wall clock and goes on with `steady`, which does not jump. A
    clock that is ahead of the wall clock, or of the leader of several servers, goes slower until it
    is not.

    Parameters
    ----------
    wall
        Tells the time in seconds since 1970.
    steady
        Tells seconds that pass, from any start.

    >>> wall, steady = [1e9], [0.0]
    >>> clock = SteadyClock(lambda: wall[0], lambda: steady[0])
    >>> wall[0] -= 3600; steady[0] += 2
    >>> clock(), clock.skew
    (1000000002.0, -3602.0)
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall, self._steady = wall, steady
        self._time, self._seen = wall(), steady()
        self._ahead = 0.0  # seconds to lose

    def __call__(self) -> float:
        """Return the time."""
        seen = self._steady()
        passed, self._seen = max(seen - self._seen, 0.0), seen
        lost = min(self._ahead, SLOWER * passed)
        self._ahead -= lost
        self._time += passed - lost
        return self._time

    @property
    def skew(self) -> float:
        """Seconds by which the wall clock is ahead of this one."""
        return self._wall() - self()

    def begin(self, time: float) -> None:
        """Set the time, before anything was written at another."""
        self._time, self._seen = time, self._steady()

    def follow(self, time: float | None, forward: bool) -> None:
        """Come nearer to a time, None for the wall clock's; jump to it only if `forward`."""
        if time is None and self._steady is self._wall:
            return
        gap = (self._wall() if time is None else time) - self()
        self._ahead = max(-gap, 0.0)
        if forward:
            self._time += max(gap, 0.0)
