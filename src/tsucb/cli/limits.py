"""Bounds on the numbers of the command line, beyond which they can only be mistakes."""

import os

from tsucb.checks import whole_number


def bounded(option: str, value: int, most: int, least: int = 1) -> int:
    """Return the value of an option; raise ValueError if it is not from `least` to `most`.

    >>> bounded("runs", 10**12, most=10**6)
    Traceback (most recent call last):
    ValueError: runs must be at most 1,000,000, but it is 1,000,000,000,000
    """
    whole_number(option, value, least)
    if value > most:
        raise ValueError(f"{option} must be at most {most:,}, but it is {value:,}")
    return value


def machine_memory() -> float:
    """Return the bytes of memory of this machine; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows
        return float("inf")


def check_memory(what: str, needed: float) -> None:
    """Raise ValueError if this machine cannot hold the bytes needed."""
    if needed > machine_memory():
        raise ValueError(
            f"{what} need about {needed / 2**30:,.0f} GiB of memory, and this machine has "
            f"{machine_memory() / 2**30:,.0f}; give smaller numbers"
        )
