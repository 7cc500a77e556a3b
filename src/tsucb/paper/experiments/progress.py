"""The progress of an experiment in the terminal."""

import time
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
        self.every, self.open = experiment.tasks(), set(pending)
        self.cost, self.steps = sum(map(experiment.cost, pending)), 0
        self.start = self.last = time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if self.console is None or not self.open:
            return self
        if finished := len(self.every) - len(self.open):
            self.console.print(
                f"Continuing: {finished:,} of {len(self.every):,} tasks are finished already."
            )
        if self.console.is_terminal:
            self.live = Live(get_renderable=self.line, console=self.console, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
        if self.console is not None and self.steps:
            self.console.print(self.line())

    def done(self, task: Task) -> None:
        """Count a finished task."""
        self.open.remove(task)
        self.steps += self.experiment.steps(task.cell) * len(task.runs)
        now = time.monotonic()
        if self.console is not None and self.live is None and now - self.last > QUIET:
            self.last = now
            self.console.print(self.line())

    def line(self) -> str:
        """Return the state in one line."""
        elapsed = time.monotonic() - self.start
        left = list(self.open)  # a copy, as tasks end while this is shown
        fraction = 1 - sum(map(self.experiment.cost, left)) / max(self.cost, 1e-9)
        cells, to_do = ({task.cell for task in tasks} for tasks in (self.every, left))
        total = len(self.every)
        counts = (
            f"{'━' * round(20 * fraction):╌<20} {len(cells) - len(to_do)}/{len(cells)} cells · "
            f"{total - len(left):,}/{total:,} tasks · "
        )
        if not self.steps:
            return counts + f"starting, {duration(elapsed)} (the first time, code is compiled)"
        speed = self.steps / max(elapsed, 1e-9)
        rest = (
            duration(elapsed * (1 - fraction) / fraction) + " left" if left else duration(elapsed)
        )
        return counts + f"{speed:,.0f} steps/s · {rest}"
