"""What the terminal shows while an experiment is measured."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

from tsucb.paper.experiments.experiment import Experiment, Task

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(42), duration(150), duration(7500)
    ('42 s', '2 min 30 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Progress:
    """Cells done, steps per second and time left: one live line, or a line now and then in a log.

    The time left weighs the tasks by `Experiment.cost`, as some take a hundred times longer.
    """

    def __init__(
        self, experiment: Experiment, pending: list[Task], console: Console | None
    ) -> None:
        self.experiment = experiment
        self.console = console
        every = experiment.tasks()
        self.total = len(every)
        self.finished = self.total - len(pending)
        self.cells = len({task.cell for task in every})
        self.open = Counter(task.cell for task in pending)
        self.cost_left = sum(map(experiment.cost, pending))
        self.cost_done = 0.0
        self.steps = 0
        self.start = self.last = time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console is None:
            return self
        if self.finished and self.open:
            self.console.print(
                f"Continuing: {self.finished:,} of {self.total:,} tasks are finished already."
            )
        if self.console.is_terminal and self.open:
            from rich.live import Live

            self.live = Live(get_renderable=self.line, console=self.console, transient=True)
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()
        if self.console is not None and self.cost_done:
            self.console.print(self.line())

    def done(self, task: Task) -> None:
        """Count a finished task."""
        cost = self.experiment.cost(task)
        self.open[task.cell] -= 1
        self.open += Counter()  # drops the cells with none left
        self.finished += 1
        self.cost_left -= cost
        self.cost_done += cost
        self.steps += self.experiment.steps(task.cell) * len(task.runs)
        now = time.monotonic()
        if self.console is not None and self.live is None and now - self.last > 30:
            self.last = now
            self.console.print(self.line())

    def line(self) -> str:
        """The state in one line."""
        elapsed = time.monotonic() - self.start
        fraction = self.cost_done / max(self.cost_done + self.cost_left, 1e-9)
        bar = "━" * round(20 * fraction) + "╌" * (20 - round(20 * fraction))
        counts = (
            f"{bar} {self.cells - len(self.open)}/{self.cells} cells · "
            f"{self.finished:,}/{self.total:,} tasks · "
        )
        if not self.cost_done:
            return counts + f"starting, {duration(elapsed)} (the first time, code is compiled)"
        speed = self.steps / max(elapsed, 1e-9)
        left = (
            f"{duration(elapsed * (1 - fraction) / fraction)} left"
            if self.open
            else duration(elapsed)
        )
        return counts + f"{speed:,.0f} steps/s · {left}"
