"""Keep an agent consistent under threads, signal handlers and forks.

A signal handler may raise in the middle of any call, as Ctrl-C does. Python runs handlers between
two of its own instructions, never inside a function of C or compiled code. So a call first prepares
its changes in copies, where it may fail or be interrupted, and then changes the agent by one call
of C: compiled code, an assignment, or `at_once` for several changes that belong together. An
interrupted agent is as it was before the call, or as it is after it.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import starmap
from operator import call
from typing import Any, TypeAlias

Change: TypeAlias = tuple[Any, ...]  # a function of C, and its arguments


def at_once(*changes: Change) -> None:
    """Make several changes in one call of C: no signal handler runs between them.

    >>> known = {"a": 1}
    >>> at_once((known.update, {"b": 2}), (known.pop, "a"))
    >>> known
    {'b': 2}
    """
    tuple(starmap(call, changes))


def check_interpreter() -> None:
    """Raise ImportError in a subinterpreter, where Numba deadlocks."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
        if find_spec(name) is not None:
            interpreters = import_module(name)
            if interpreters.get_current() != interpreters.get_main():
                raise ImportError("agents cannot run in a subinterpreter; start a process instead")


check_interpreter()


class Guard:
    """The lock of an agent, and the lock for writing it to a file.

    A signal handler runs in the thread that it interrupts, which may hold the lock. It may save the
    agent, whose state is consistent at every moment, but not call anything that changes it.
    """

    __slots__ = ("_files", "is_interrupted", "lock")

    def __init__(self) -> None:
        self.lock, self._files = threading.RLock(), threading.RLock()
        # Whether this thread holds the lock: then a signal handler is in the middle of a call.
        self.is_interrupted: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]

    def alone(self) -> Any:
        """Return the lock, for a `with` statement; raise if this thread holds it already."""
        if self.is_interrupted():
            raise RuntimeError(
                "the agent was called from a signal handler in the middle of another call; only "
                "save can be"
            )
        return self.lock

    def writing(self) -> Any:
        """Return the lock for writing files, for a `with` statement.

        A signal handler in the middle of a call gets the lock that its thread holds: another thread
        that writes a file may be waiting for that call.
        """
        return self.lock if self.is_interrupted() else self._files


# All agents of this process; the lock of forking, and the agents' locks that a fork has taken.
AGENTS: "weakref.WeakSet[Any]" = weakref.WeakSet()
_forking = threading.RLock()
_held: list[Any] = []


def _before_fork() -> None:
    """Wait until no other thread is in the middle of a call.

    Each lock is noted before it is taken, and released afterwards if it was taken: a signal handler
    may raise in between, and Python then forks all the same.
    """
    _forking.acquire()
    _held.clear()
    for agent in list(AGENTS):
        _held.append(agent._guard.lock)
        agent._guard.lock.acquire()


def _after_fork_in_parent() -> None:
    while _held:
        _release(_held.pop())
    _release(_forking)


def _release(lock: Any) -> None:
    with contextlib.suppress(RuntimeError):  # it was not taken
        lock.release()


def _after_fork_in_child() -> None:
    """Give every agent a new lock, random stream and ids."""
    agents = list(AGENTS)
    _after_fork_in_parent()
    for agent in agents:
        agent._guard = Guard()  # also in the middle of a call
        agent.reseed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
