"""Helpers of all checks: demands that fail with a sentence, and bounds in standard errors."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from tsucb.compiler import MissingImplementation
from tsucb.models.structure import leaves

P = ParamSpec("P")

# A normal is farther from its mean, in standard deviations, once in 1.7 million times.
FAR = 5.0


def demand(holds: Any, sentence: str) -> None:
    """Raise AssertionError with this sentence unless the demand holds."""
    if not holds:
        raise AssertionError(sentence)


def check(function: Callable[P, None]) -> Callable[P, None]:
    """Decorate a check: a missing implementation, which says what to write, fails it, too."""

    @functools.wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            function(*arguments, **options)
        except (MissingImplementation, NotImplementedError) as error:
            raise AssertionError(str(error)) from error

    return checked


def near(found: ArrayLike, expected: ArrayLike, error: ArrayLike, count: int) -> bool:
    """Return whether averages over `count` draws are as expected, within FAR standard errors.

    Parameters
    ----------
    error
        The standard deviation of one draw.
    """
    # Beside the standard errors, allow for rounding and for the effect of a single draw.
    scale = np.asarray(error) * (FAR / np.sqrt(count) + FAR / count)
    slack = scale + 1e-9 * (1 + np.abs(expected))
    return bool((np.abs(np.asarray(found) - expected) <= slack).all())


def demand_fields(one: Any, two: Any, fields: Iterable[str], sentence: str,
                  tolerance: float = 1e-8) -> None:  # fmt: skip
    """Demand that two beliefs agree in these fields; `{field}` in the sentence is the field."""
    for field in fields:
        pair = getattr(one, field), getattr(two, field)
        agree = np.allclose(*pair, rtol=tolerance, atol=tolerance * 1e-3)
        demand(agree, sentence.format(field=field))


def same(first: Any, second: Any) -> bool:
    """Return whether two values, of nested tuples, have equal arrays."""
    pairs = list(zip(leaves(first), leaves(second), strict=True))
    return all(np.array_equal(one, two, equal_nan=one.dtype.kind == "f") for one, two in pairs)


def rounded(values: ArrayLike) -> str:
    """Return numbers as text for a sentence."""
    return np.array2string(np.asarray(values, dtype=np.float64), precision=4, separator=", ")
