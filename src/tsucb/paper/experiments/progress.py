"""The progress of an experiment in the terminal."""

import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.live import Live

from tsucb.paper.experiments.experiment import Experiment, Task

QUIET = 30  # seconds between two lines where the output is not a terminal


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(42), duration(150), duration(7500)
    ('42 s', '2 min 30 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if not minutes:
        return f"{rest} s"
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


class Progress:
    """Cells done, steps per second and time left: a live line, or a line now and then in a log.

    The time left weights the tasks by `Experiment.cost`, as some take a hundred times longer.
    """

    def __init__(
        self, experiment: Experiment, pending: list[Task], console: Console | None
    ) -> None:
        self.experiment, self.console = experiment, console
        every = experiment.tasks()
        self.total, self.finished = len(every), len(every) - len(pending)
        self.cells = len({task.cell for task in every})
        self.open = Counter(task.cell for task in pending)
        self.cost_left, self.cost_done = sum(map(experiment.cost, pending)), 0.0
        self.steps = 0
        self.start = self.last = time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if self.console is None or not self.open:
            return self
        if self.finished:
            self.console.print(
                f"Continuing: {self.finished:,} of {self.total:,} tasks are finished already."
            )
        if self.console.is_terminal:
            self.live = Live(get_renderable=self.line, console=self.console, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
        if self.console is not None and self.cost_done:
            self.console.print(self.line())

    def done(self, task: Task) -> None:
        """Count a finished task."""
        cost = self.experiment.cost(task)
        self.open[task.cell] -= 1
        self.open += Counter()  # drop the cells with no task left
        self.finished += 1
        self.cost_left -= cost
        self.cost_done += cost
        self.steps += self.experiment.steps(task.cell) * len(task.runs)
        now = time.monotonic()
        if self.console is not None and self.live is None and now - self.last > QUIET:
            self.last = now
            self.console.print(self.line())

    def line(self) -> str:
        """Return the state in one line."""
        elapsed = time.monotonic() - self.start
        fraction = self.cost_done / max(self.cost_done + self.cost_left, 1e-9)
        bar = ("━" * round(20 * fraction)).ljust(20, "╌")
        counts = (
            f"{bar} {self.cells - len(self.open)}/{self.cells} cells · "
            f"{self.finished:,}/{self.total:,} tasks · "
        )
        if not self.cost_done:
            return counts + f"starting, {duration(elapsed)} (the first time, code is compiled)"
        left = duration(elapsed * (1 - fraction) / fraction) + " left"
        speed = self.steps / max(elapsed, 1e-9)
        return counts + f"{speed:,.0f} steps/s · {left if self.open else duration(elapsed)}"
