"""How many processor cores this process may use: the usual number of workers."""

import os


def cores() -> int:
    """The cores this process may run on, which can be fewer than the machine has.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
