"""Processes of this machine for tasks that train networks, each with a JAX of its own.

In threads of one process such tasks would wait for each other: for Python's lock between two
trainings, and on a processor for the only training at a time.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread

import llvmlite.binding

from tsucb.compiler.cache import kernel_folder

# What JAX in such a process reads when it is imported, unless the user has said otherwise.
SURROUNDINGS = {
    # A processor's networks are small: more threads on one would wait for each other most of the
    # time. And so no digit depends on the number of cores.
    "NPROC": "1",
    # Several processes share one accelerator.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # What one process has compiled, all others find.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


@contextmanager
def processes(workers: int) -> Iterator[Executor]:
    """A pool of so many processes, which are ended when the work is not finished."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin)
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise ChildProcessError(
            "a process that measured a task was ended from outside (out of memory?), or could not "
            "start; with fewer --workers the same command continues where this one stopped"
        ) from None
    finally:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        pool.shutdown(cancel_futures=True)


def begin() -> None:
    """What such a process does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    Thread(target=end_with_parent, daemon=True).start()
    folder = kernel_folder(frozenset()) / f"xla-{llvmlite.binding.get_host_cpu_name()}"
    for name, value in {**SURROUNDINGS, "JAX_COMPILATION_CACHE_DIR": str(folder)}.items():
        os.environ.setdefault(name, value)


def end_with_parent() -> None:
    """End this process when its parent is gone, however that went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
