"""Checks of numbers that users pass: return the value to use, or raise with one sentence."""

import functools
import sys
from collections.abc import Callable
from numbers import Real
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

# The largest reward, feature or setting. A variance is the square of a sum of products of two of
# them: it must stay finite for very long sums.
LARGEST = 1e30
# Smaller numbers count as 0: a quotient by the square of any other must stay finite.
SMALLEST = 1e-30
MOST = sys.float_info.max  # whole numbers beyond it, such as 10**400, are not finite floats
# The errors that values of a damaged or forged file can cause.
MISFITS = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError,
    RecursionError,
)  # fmt: skip
LONGEST_SHOWN = 80  # letters of a value in a message


def shown(value: Any) -> str:
    """Return the repr of a value for a message, cut if it is long."""
    try:
        text = repr(value[:LONGEST_SHOWN] if isinstance(value, str | bytes) else value)
    except ValueError:  # a number of thousands of digits
        return f"a huge {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def whole_number(name: str, value: float, least: int = 1) -> int:
    """Return the value as an int of at least `least`; raise ValueError otherwise.

    >>> whole_number("arms", 3.0)
    3
    >>> whole_number("arms", 2.5)
    Traceback (most recent call last):
    ValueError: arms must be a whole number of at least 1, but it is 2.5
    """
    number = isinstance(value, Real) and not isinstance(value, bool) and abs(value) <= MOST
    if not number or value != int(value) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, but it is {shown(value)}"
        )
    return int(value)


def truth(name: str, value: bool) -> bool:
    """Return the value if it is True or False; raise TypeError otherwise.

    >>> truth("crossed", "no")
    Traceback (most recent call last):
    TypeError: crossed must be True or False, but it is 'no'
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, but it is {shown(value)}")
    return value


def number(words: str, good: Callable[[float], bool]) -> Callable[[str, float], float]:
    """Return a check that returns a good number as a float; the words say what a value must.

    >>> positive("noise", 1e-200)
    Traceback (most recent call last):
    ValueError: noise must be positive and finite, from 1e-30 to 1e+30, but it is 1e-200
    """

    def check(name: str, value: float) -> float:
        if not isinstance(value, Real) or not good(value):
            raise ValueError(f"{name} must {words}, but it is {shown(value)}")
        return float(value)

    return check


positive = number(
    f"be positive and finite, from {SMALLEST:g} to {LARGEST:g}",
    lambda x: SMALLEST <= x <= LARGEST,
)
finite = number(f"be finite, at most ±{LARGEST:g}", lambda x: abs(x) <= LARGEST)
not_negative = number("be finite and not negative", lambda x: 0 <= x <= MOST)
share = number("lie between 0 and 1", lambda x: 0 < x < 1)


def floats(name: str, values: Any) -> NDArray[np.float64]:
    """Return a new array of the numbers; raise ValueError for anything else.

    >>> floats("prior_mean", [1, 10**400])[0]
    Traceback (most recent call last):
    ValueError: prior_mean has a whole number that is too large for a float
    """
    try:
        given = np.asarray(values)
        # NumPy would drop imaginary parts and convert times.
        if given.dtype.kind not in "biufO":
            raise TypeError
        return np.array(given, dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{name} has a whole number that is too large for a float") from None
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, but it is {shown(values)}") from None


def flush_tiny(values: Any) -> Any:
    """Return the numbers with 0 for those smaller than SMALLEST."""
    return np.where(np.abs(values) < SMALLEST, 0.0, values)


def within(values: Any, largest: float = LARGEST) -> bool:
    """Return whether all numbers are within ±`largest`; NaN is not."""
    return bool((np.abs(values) <= largest).all())


def between(name: str, value: float, low: float, high: float) -> float:
    """Return the value as a float above `low` and at most `high`; raise ValueError otherwise."""
    words = f"be above {low:g} and at most {high:g}"
    return number(words, lambda x: low < x <= high)(name, value)


# Types of a record's fields, each with its check.
Availability = Annotated[float, functools.partial(between, low=0, high=1)]
Count = Annotated[int, whole_number]
Natural = Annotated[int, functools.partial(whole_number, least=0)]
Finite = Annotated[float, finite]
NotNegative = Annotated[float, not_negative]
Share = Annotated[float, share]
Positive = Annotated[float, positive]
Switch = Annotated[bool, truth]
