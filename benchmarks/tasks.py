"""Tasks of a benchmark: several at once, up to a time limit, with what is done in a file.

Options of the benchmarks that use it:

    --processes N   do N tasks at once, each in a process with one thread (default: 1)
    --minutes M     stop after M minutes; what is done is kept (default: no limit)

The same command continues where it was stopped. Every row has the commit that was measured; where
there is no Git, set the environment variable COMMIT.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import TimeoutError, get_context
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from benchmarks.output import commit
from benchmarks.peers.__main__ import ONE_CORE

Task = TypeVar("Task")
Result = TypeVar("Result")
Row = dict[str, Any]
NO_LIMIT = 1e6  # minutes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how many tasks are done at once, and for how long."""
    add = parser.add_argument
    add("--processes", type=int, default=1, metavar="N", help="do N tasks at once, a core each")
    add("--minutes", type=float, default=NO_LIMIT, metavar="M", help="stop; what is done is kept")


def results(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    processes: int = 1,
    minutes: float = NO_LIMIT,
) -> Iterator[tuple[Task, Result]]:
    """Yield tasks with their results, as they are done, until all are done or the time is over."""
    end, waiting = time.monotonic() + 60.0 * minutes, list(tasks)
    if processes == 1:
        for task in waiting:
            if time.monotonic() > end:
                return
            yield task, function(task)
        return
    os.environ.update(ONE_CORE)  # the processes read it when they import NumPy
    with get_context("spawn").Pool(processes) as pool:
        done = pool.imap_unordered(_Numbered(function), enumerate(waiting))
        for _ in waiting:
            try:
                number, result = done.next(max(end - time.monotonic(), 0.0))
            except TimeoutError:
                return
            yield waiting[number], result


class _Numbered:
    """Call a function with the second of a pair, a task, and return the first with the result."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, numbered: tuple[int, Any]) -> tuple[int, Any]:
        number, task = numbered
        return number, self.function(task)


def measure(
    path: Path,
    function: Callable[[Task], Sequence[Row]],
    tasks: Sequence[Task],
    key: Callable[[Task], Row],
    processes: int = 1,
    minutes: float = NO_LIMIT,
) -> pd.DataFrame:
    """Do the tasks of which the file has no rows; return all its rows, in the order of the tasks.

    The key of a task is what all its rows, and no others, have in common.
    """
    places = {tuple(key(task).values()): number for number, task in enumerate(tasks)}
    names = list(key(tasks[0])) if tasks else []

    def place(row: Row) -> int:
        """Return the number of a row's task; rows of other tasks are last."""
        return places.get(tuple(row[name] for name in names), len(places))

    rows: list[Any] = pd.read_csv(path).to_dict("records") if path.exists() else []
    done, version = {place(row) for row in rows}, commit()
    left = [task for number, task in enumerate(tasks) if number not in done]
    for task, found in results(function, left, processes, minutes):
        rows += [{**key(task), **row, "commit": version} for row in found]
        rows.sort(key=place)
        aside = path.with_suffix(".part")
        pd.DataFrame(rows).to_csv(aside, index=False)
        aside.replace(path)
        print(f"{len(left)} tasks:", *key(task).values(), flush=True)
    return pd.DataFrame(rows)
