"""Nested tuples of numbers and arrays, such as states, models and policies: copy, stack and save.

To be saved, a value becomes JSON and a list of arrays. To be loaded, it is put together by a
template that has its structure, types and shapes: a file never says which code to run.
"""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.numeric.arrays import copy_of
from tsucb.record import Record

Arrays = list[NDArray[Any]]


class WrongSettings(Exception):
    """The file is valid but was saved with other settings."""


def leaves(value: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays in a value of nested tuples, in order."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from leaves(part)


def map_arrays(function: Callable[..., NDArray[Any]], *values: Any) -> Any:
    """Return the first value with each array replaced by a function of it.

    Further values have the same structure; the function also gets their arrays at the same place.
    """
    first = values[0]
    if isinstance(first, np.ndarray):
        return function(*values)
    if not isinstance(first, tuple):
        return first
    return _like(first, [map_arrays(function, *parts) for parts in zip(*values, strict=True)])


def copied(value: Any) -> Any:
    """Return the value with arrays of its own; a deep copy if it is no tuple or array."""
    if isinstance(value, tuple | np.ndarray):
        return map_arrays(copy_of, value)
    return copy.deepcopy(value)


def side_by_side(values: list[Any]) -> list[Any]:
    """Return copies of the values whose arrays are rows of common arrays; see `stacked`."""
    together = map_arrays(lambda *arrays: np.stack(arrays), *values)
    return [map_arrays(lambda array, n=n: array[n], together) for n in range(len(values))]


def stacked(values: Sequence[Any]) -> Any:
    """Return one value that has the arrays of all values on a new first axis, without copying.

    Several values must come from `side_by_side`, in its order.

    >>> values = side_by_side([(np.zeros(2),), (np.ones(2),)])
    >>> stacked(values)[0][1, 0] = 5.0
    >>> values[1]
    (array([5., 1.]),)
    """
    if len(values) == 1:
        return map_arrays(lambda array: array[None], values[0])
    return map_arrays(_stack_of, *values)


def _stack_of(*rows: NDArray[Any]) -> NDArray[Any]:
    """Return the array whose rows these are; raise ValueError if there is none."""
    stack, shape = rows[0].base, (len(rows), *rows[0].shape)
    if (
        stack is None
        or stack.shape != shape
        or [r.ctypes.data for r in rows] != [r.ctypes.data for r in stack]
    ):
        raise ValueError("values to be stacked must lie side by side; call side_by_side first")
    return stack


def _like(template: Any, parts: list[Any]) -> Any:
    """Return a tuple of the template's class."""
    return type(template)._make(parts) if hasattr(template, "_make") else tuple(parts)


def pack(value: Any, arrays: Arrays) -> Any:
    """Return the value as JSON, and append its arrays to the list."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return [pack(part, arrays) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"a {type(value).__name__} cannot be saved; a model's state and settings must consist of "
        "numbers, arrays and tuples of them"
    )


def unpack(packed: Any, arrays: Arrays, template: Any) -> Any:
    """Return a packed value; raise ValueError if its structure, types or shapes are others.

    The template has those that it must have.
    """
    if isinstance(template, np.ndarray):
        array = _array(packed, arrays)
        if array.shape != template.shape or array.dtype != template.dtype:
            raise ValueError(
                f"an array of {array.dtype} {array.shape} where {template.dtype} "
                f"{template.shape} belongs"
            )
        if not np.isfinite(array).all():
            raise ValueError("an array with entries that are not finite")
        return copy_of(array).view(type(template))
    if isinstance(template, tuple):
        if not isinstance(packed, list) or len(packed) != len(template):
            raise ValueError(f"{len(template)} parts were expected")
        return _like(
            template, [unpack(p, arrays, t) for p, t in zip(packed, template, strict=True)]
        )
    if isinstance(template, float) and type(packed) in (int, float):
        return float(packed)
    if type(packed) is not type(template):
        raise ValueError(f"{packed!r} where a {type(template).__name__} belongs")
    return packed


def _array(packed: Any, arrays: Arrays) -> NDArray[Any]:
    """Return the array that a packed value names by its number; raise ValueError otherwise."""
    number = packed.get("array") if isinstance(packed, dict) else None
    if type(number) is not int or not 0 <= number < len(arrays):
        raise ValueError(f"{packed!r} where an array belongs")
    return arrays[number]


def pack_object(record: Any, arrays: Arrays) -> dict[str, Any]:
    """Return a model or policy as the name of its class, and its settings (some are records)."""
    settings = record.settings() if isinstance(record, Record) else {}
    if hasattr(record, "described"):  # among its settings is code, which no file can hold
        settings = record.described()
    return {
        "class": type(record).__name__,
        "fields": {
            name: pack_object(value, arrays) if isinstance(value, Record) else pack(value, arrays)
            for name, value in settings.items()
        },
    }


def unpack_object(
    saved: dict[str, Any], arrays: Arrays, classes: Iterable[type], given: Any
) -> Any:
    """Return a saved model or policy of one of the classes, or `given` if it is equal.

    Raise WrongSettings if `given` is another, or is needed because the class has code in it.
    """
    name, fields, classes = saved["class"], saved["fields"], list(classes)
    if given is None:
        cls = next((cls for cls in classes if cls.__name__ == name), None)
        if cls is None or hasattr(cls, "described"):
            part = "not part of tsucb" if cls is None else "made with code of yours"
            raise WrongSettings(f"was saved with {name}, which is {part}; give it to load")
        return cls(**{k: _setting(value, arrays, classes) for k, value in fields.items()})
    ours: Arrays = []
    mine = pack_object(given, ours)
    if written_out(mine, ours) != written_out(saved, arrays):
        raise WrongSettings(
            f"was saved with other settings: its {name} differs from the {type(given).__name__} "
            "given; load it without, or with the same"
        )
    return given


def _setting(packed: Any, arrays: Arrays, classes: list[type]) -> Any:
    """Return a setting as the constructor, which checks it, takes it."""
    if isinstance(packed, dict) and "class" in packed:
        return unpack_object(packed, arrays, classes, None)
    if isinstance(packed, dict):
        return _array(packed, arrays)
    return tuple(packed) if isinstance(packed, list) else packed


def written_out(packed: Any, arrays: Arrays) -> str:
    """Return a packed value as one text, with the numbers of its arrays."""

    def inserted(value: Any) -> Any:
        if isinstance(value, list):
            return [inserted(part) for part in value]
        if isinstance(value, dict) and "array" not in value:
            return {name: inserted(part) for name, part in value.items()}
        return {"array": _array(value, arrays).tolist()} if isinstance(value, dict) else value

    return json.dumps(inserted(packed), sort_keys=True)
