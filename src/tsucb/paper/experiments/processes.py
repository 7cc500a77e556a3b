"""Processes of this machine for tasks that compile or train networks, each with its own JAX.

Threads of one process would wait for each other: between two trainings for Python's lock, and on a
CPU for the training of another task.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread

from tsucb.compiler.cache import private_folder, processor_name

# Environment variables that JAX reads on import, unless the user has set them.
VARIABLES = {
    # The networks are small, so several threads would mostly wait for each other; and with one
    # thread the results do not depend on the number of cores.
    "NPROC": "1",
    # Several processes share one accelerator.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # Processes share compiled code, even what compiles fast.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


@contextmanager
def processes(workers: int) -> Iterator[Executor]:
    """Yield a pool of processes; terminate them if the work is not finished."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin)
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise ChildProcessError(
            "a process with a task was ended from outside (out of memory?), or could not "
            "start; with fewer --workers the same command continues where this one stopped"
        ) from None
    finally:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        pool.shutdown(cancel_futures=True)


def begin() -> None:
    """Set up a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on an interrupt the parent terminates it
    Thread(target=end_with_parent, daemon=True).start()
    folder = private_folder(f"xla-{processor_name()}")
    cache = {} if folder is None else {"JAX_COMPILATION_CACHE_DIR": str(folder)}
    for name, value in {**VARIABLES, **cache}.items():
        os.environ.setdefault(name, value)


def end_with_parent() -> None:
    """End this process when its parent ends, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
