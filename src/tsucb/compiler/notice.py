"""Tell the user on a terminal that a first compilation is under way."""

import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import TextIO

from numba.core import event

FUNCTION, PASS = "numba:compile", "numba:run_pass"  # a function has many passes
PATIENCE = 1.0  # seconds of compiling before the notice is printed


class Notice(event.Listener):  # type: ignore[misc]
    """Print one sentence, then a count of functions that is cleared when the compiler is done.

    Parameters
    ----------
    stream
        A terminal.
    clock
        Returns seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.depth = self.functions = 0
        self.began = self.spent = 0.0
        self.announced = False

    def on_start(self, event: event.Event) -> None:
        """Count a function; show the count after `PATIENCE` seconds of compiling."""
        if event.kind == FUNCTION:
            if self.depth == 0:
                self.began = self.clock()
            self.depth += 1
            self.functions += 1
        if self.depth:
            self.show()

    def show(self) -> None:
        """Print the sentence if it was not printed yet, and the count."""
        elapsed = self.spent + self.clock() - self.began
        if elapsed < PATIENCE:
            return
        if not self.announced:
            self.announced = True
            self.stream.write("tsucb compiles for this machine; the next start loads the result.\n")
        self.stream.write(f"\r  {self.functions} functions, {elapsed:.0f} s")
        self.stream.flush()

    def on_end(self, event: event.Event) -> None:
        """Clear the count when the outermost function is compiled."""
        if event.kind != FUNCTION:
            return
        self.depth -= 1
        if self.depth == 0:
            self.spent += self.clock() - self.began
            if self.announced:
                self.stream.write("\r\033[K")
                self.stream.flush()


def announce_compilation() -> None:
    """Register the notice if errors go to a terminal, and this process is not a worker."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if terminal and multiprocessing.parent_process() is None:
        notice = Notice(sys.stderr)
        event.register(FUNCTION, notice)
        event.register(PASS, notice)
