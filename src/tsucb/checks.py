"""Numbers that users give, checked once and answered in one sentence."""

import math
from numbers import Real

LARGEST = 1e100  # of rewards and features: products of two and their sums must stay finite


def whole_number(name: str, value: float, least: int = 1) -> int:
    """The value as an integer of at least `least`, or a sentence on what is wrong.

    >>> whole_number("arms", 3.0)
    3
    >>> whole_number("arms", 2.5)
    Traceback (most recent call last):
    ValueError: arms must be a whole number of at least 1, but it is 2.5
    """
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, but it is {value!r}")
    return int(value)


def positive(name: str, value: float) -> float:
    """The value as a positive finite number, or a sentence on what is wrong."""
    if not isinstance(value, Real) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, but it is {value!r}")
    return float(value)


def between(name: str, value: float, low: float, high: float) -> float:
    """The value as a number above `low` and at most `high`, or a sentence on what is wrong."""
    if not isinstance(value, Real) or not low < value <= high:
        raise ValueError(f"{name} must be above {low:g} and at most {high:g}, but it is {value!r}")
    return float(value)
