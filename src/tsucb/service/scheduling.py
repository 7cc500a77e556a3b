"""When things happen: a clock that never goes back, and the work on each loop in its turn."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from tsucb.service.errors import Problem

log = logging.getLogger("tsucb.service")

Found = TypeVar("Found")

SLOWER = 0.1  # share of the time that passes by which a clock that is ahead goes slower
LOOP_THREADS = 2  # for folding and deciding of slow loops
BACKGROUND_THREADS = 5  # for exporting and relearning, and to wait for processes
WAIT = 60.0  # seconds that a process waits for more work
NICE = 5  # by which these threads, on Linux, and processes leave the processor to requests
# Of what may take minutes, this many of a kind have a thread at a time: others find one meanwhile.
LONG = {"asked": 2, "made": 2}

_waiting: list[tuple[BaseProcess, Connection]] = []  # processes without work, and connections


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


async def settled(found: "Found | asyncio.Future[Found]") -> Found:
    """Return what is there, or will be; whoever waits for it may go, and the work goes on."""
    return await asyncio.shield(found) if isinstance(found, asyncio.Future) else found


def in_process(function: Callable[..., Found], *arguments: Any) -> Found:
    """Return what a function returns in another process; blocks.

    What compiles holds the lock of the interpreter for as long as a second. One process that has
    finished waits for the next function for a while, as a new one imports for seconds.
    """
    while True:
        waited = bool(_waiting)
        child, here = _waiting.pop() if waited else _started()
        try:
            here.send((function, arguments))
            found, error = here.recv()
            break
        except (EOFError, OSError):
            here.close()
            child.join()
            if not waited:
                raise RuntimeError("the process that was to work has ended") from None
    if _waiting:
        here.close()
    else:
        _waiting.append((child, here))
    if error is not None:
        raise error
    result: Found = found
    return result


def _started() -> tuple[BaseProcess, Connection]:
    """Return a new process that works, and the connection to it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=work, args=(there,), daemon=True)
    child.start()
    there.close()
    return child, here


def work(there: Connection) -> None:
    """Call the functions that come, and send what they return or raise, until none comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    lower_priority()
    with contextlib.suppress(EOFError, OSError):  # the server has no more, or has ended
        while there.poll(WAIT):
            function, arguments = there.recv()
            try:
                there.send((function(*arguments), None))
            except Exception as error:
                there.send((None, error))


def lower_priority() -> None:
    """Leave the processor to others: the thread that calls does so on Linux, elsewhere nobody."""
    if sys.platform == "linux":
        os.nice(NICE)


class Turns:
    """Runs work on each loop one after the other, in the order of the calls.

    Work on a quick loop runs at once, in the event loop. Work on a slow one, and all that comes
    while some of it is left, runs in a thread: other loops are answered meanwhile. Evaluations and
    whatever else takes seconds have threads of their own, so that they never keep a reward waiting;
    what waits for the store alone uses those of `asyncio.to_thread`.
    """

    def __init__(self) -> None:
        # Work that is not done, by loop. A lock lets in whoever came first, but says too early that
        # it is free.
        self.left: Counter[int] = Counter()
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[Any]] = set()  # that do it
        self.working: set[asyncio.Task[Any]] = set()  # what `begin` has begun
        self._threads = ThreadPoolExecutor(LOOP_THREADS, "loop", lower_priority)
        self._background = ThreadPoolExecutor(BACKGROUND_THREADS, "background", lower_priority)
        self._long = {kind: asyncio.Semaphore(most) for kind, most in LONG.items()}

    def do(
        self, loop: int, slow: bool, work: Callable[[], Found]
    ) -> "Found | asyncio.Future[Found]":
        """Return the result of `work`, or a future of it if it runs in a thread."""
        if not slow and not self.left[loop]:
            return work()
        self.left[loop] += 1
        task = asyncio.create_task(self._do_in_thread(loop, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _do_in_thread(self, loop: int, work: Callable[[], Found]) -> Found:
        try:
            async with self._locks[loop]:
                running = asyncio.get_running_loop()
                return await running.run_in_executor(self._threads, work)
        finally:
            self.left[loop] -= 1

    async def in_background(self, function: Callable[..., Found], *arguments: Any) -> Found:
        """Return what a function returns that may take seconds."""
        running = asyncio.get_running_loop()
        return await running.run_in_executor(self._background, function, *arguments)

    async def at_length(self, kind: str, function: Callable[..., Found], *arguments: Any) -> Found:
        """Return what a function returns that may take minutes: what a client asked, or a loop."""
        async with self._long[kind]:
            return await self.in_background(function, *arguments)

    def begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin something for which nobody waits."""
        task = asyncio.create_task(work)
        self.working.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self.working.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Problem):  # the store is away, or the loop is gone
            log.warning("work in the background was put off: %s", error)
        elif error is not None:
            log.error("work in the background failed: %s", error, exc_info=error)

    async def cancel(self) -> None:
        """Cancel whatever `begin` has begun."""
        for task in list(self.working):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Problem):
                await task

    async def finish(self) -> None:
        """Wait until nothing is left to do, and end the threads."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._threads.shutdown()
        self._background.shutdown(wait=False, cancel_futures=True)
