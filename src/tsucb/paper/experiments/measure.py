"""Measure an experiment, on the cores of this machine or on a Dask cluster, with the same loop."""

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

import pandas as pd
from rich.console import Console
from rich.live import Live

import tsucb
from tsucb.checks import whole_number
from tsucb.display import time_span
from tsucb.extras import require
from tsucb.paper.experiments.experiment import Experiment, Task
from tsucb.paper.experiments.folder import Folder, code_identity
from tsucb.paper.experiments.processes import processes
from tsucb.paper.experiments.report import Result, write_results

QUIET = 30  # seconds between two lines of progress where the output is not a terminal
PATIENCE = 10  # seconds in which a scheduler must answer


def measure(experiment: Experiment, task: Task, code: str) -> tuple[pd.DataFrame, float]:
    """Run one task, here or on a worker; return its rows and the seconds it took.

    Raise ValueError if this worker's code is not `code`.
    """
    if code_identity() != code:
        raise ValueError(
            f"a worker has other code of tsucb ({tsucb.__version__}, {code_identity()}) than this "
            f"process ({code}); install the same version on all workers"
        )
    start = time.perf_counter()
    rows = experiment.run(task.cell, task.policy, task.runs)
    return rows, time.perf_counter() - start


@contextmanager
def executor(workers: int, cluster: str | None, apart: bool) -> Iterator[Executor]:
    """Yield the pool that runs tasks: a Dask cluster, processes (if `apart`), or threads.

    Threads are enough for compiled loops, which drop the GIL. On an error or an interrupt, tasks
    that have not started are cancelled.
    """
    if cluster is None and apart:
        with processes(workers) as pool:
            yield pool
    elif cluster is None:
        pool = ThreadPoolExecutor(workers, thread_name_prefix="task")
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    else:
        client = connect(cluster)
        pool = client.get_executor(pure=False)  # never reuse the result of an earlier call
        try:
            yield pool
        except CancelledError:
            raise ConnectionError(
                f"the Dask cluster at {cluster} went away; start it again, and the same command "
                "continues where this one stopped"
            ) from None
        except Exception as error:
            if type(error).__name__ == "KilledWorker":  # a class of an optional package
                raise ConnectionError(
                    f"every worker of {cluster} that took a certain task died; see what their logs "
                    "say (out of memory?), and the same command continues where this one stopped"
                ) from None
            if isinstance(error, RuntimeError) and "deserialization" in str(error):
                raise ValueError(
                    f"the scheduler at {cluster} cannot read the tasks: it has other code of "
                    "tsucb; install the same version on all machines"
                ) from None
            raise
        finally:
            pool.shutdown(wait=False)
            client.close()


def connect(address: str):  # type: ignore[no-untyped-def]  # distributed is optional
    """Return a client of the Dask scheduler at the address; raise ValueError if none answers."""
    import logging

    require("cluster", "distributed")
    import distributed

    # `executor` reports errors of the cluster, in one sentence.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        return distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no Dask scheduler answers at {address!r} ({error}); start one with "
            "'dask scheduler' and give its address, such as tcp://10.0.0.1:8786"
        ) from None


def reproduce(
    experiment: Experiment,
    out: Path | str,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    other_code: bool = False,
    console: Console | None = None,
) -> Result:
    """Measure what is missing in the folder `out`, then write its tables, figures and report.

    Parameters
    ----------
    experiment : what to measure
    out : a new folder, or one of the same settings, which is continued
    workers : tasks at once on this machine; the experiment's own choice if None
    cluster : address of a Dask scheduler to run the tasks there instead
    other_code : whether to continue a folder that another state of this package has begun
    console : where progress is shown; nowhere if None
    """
    if workers is not None:
        whole_number("workers", workers)
    at_once = workers or experiment.workers()
    console = console or Console(quiet=True, force_terminal=False)
    with (
        executor(at_once, cluster, experiment.apart) as pool,
        closing(Folder(Path(out), experiment, other_code=other_code)) as folder,
    ):
        experiment.prepare()
        pending = ordered(experiment, folder.pending())
        shared = experiment if cluster else experiment.beside(at_once)
        with Progress(experiment, pending, console) as progress:
            code = code_identity()
            running = {pool.submit(measure, shared, task, code): task for task in pending}
            for future in as_completed(running):
                task = running.pop(future)
                folder.store(task, *future.result())
                progress.done(task)
        console.print("Drawing the figures and writing the report ...")
        return write_results(folder)


def ordered(experiment: Experiment, pending: list[Task]) -> list[Task]:
    """Return the tasks with the longest first, so that cores finish at about the same time.

    Processes begin with one task of each cell: two of the same cell would both compile its code.
    """
    order = sorted(pending, key=experiment.cost, reverse=True)
    if not experiment.apart:
        return order
    first = {task.cell: task for task in reversed(order)}
    return sorted(order, key=lambda task: first[task.cell] != task)


class Progress:
    """Show cells done, steps per second and time left: in a terminal live, else now and then.

    The time left weights the tasks by `Experiment.cost`, as some take a hundred times longer.
    """

    def __init__(self, experiment: Experiment, pending: list[Task], console: Console) -> None:
        self.experiment, self.console = experiment, console
        self.every, self.open = experiment.tasks(), set(pending)
        self.cost, self.steps = sum(map(experiment.cost, pending)), 0
        self.start = self.last = time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if not self.open:
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
        if self.steps:
            self.console.print(self.line())

    def done(self, task: Task) -> None:
        """Count a finished task."""
        self.open.remove(task)
        self.steps += self.experiment.steps(task.cell) * len(task.runs)
        now = time.monotonic()
        if self.live is None and now - self.last > QUIET:
            self.last = now
            self.console.print(self.line())

    def line(self) -> str:
        """Return the line to show."""
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
            return counts + f"starting, {time_span(elapsed)} (the first time, code is compiled)"
        speed = self.steps / max(elapsed, 1e-9)
        span = elapsed * (1 - fraction) / fraction if left else elapsed
        return counts + f"{speed:,.0f} steps/s · {time_span(span)}{' left' if left else ''}"
