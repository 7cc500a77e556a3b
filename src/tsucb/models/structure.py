"""Values made of numbers, arrays and tuples of them: states, models, policies.

They are taken apart into JSON and arrays to be saved, and put together again by a template that
says what belongs where: a file never says which code to run.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.numeric.arrays import copy_of
from tsucb.record import Record

Arrays = list[NDArray[Any]]


class WrongSettings(Exception):
    """The file is valid but was saved with other settings."""


def leaves(value: Any) -> Iterator[NDArray[Any]]:
    """The arrays in a value of nested tuples, in order."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from leaves(part)


def refilled(template: Any, arrays: Iterator[NDArray[Any]]) -> Any:
    """A value of nested named tuples like the template, with other arrays in it."""
    if isinstance(template, np.ndarray):
        return next(arrays)
    if not isinstance(template, tuple):
        return template
    return _like(template, [refilled(part, arrays) for part in template])


def copied(value: Any) -> Any:
    """The value with arrays of its own; of whatever else it is made, a deep copy."""
    if isinstance(value, tuple | np.ndarray):
        return refilled(value, (copy_of(array) for array in leaves(value)))
    return copy.deepcopy(value)


def side_by_side(values: list[Any]) -> list[Any]:
    """The same values, the arrays of each now rows of arrays in which all lie; see `stacked`."""
    stacks = [np.stack(arrays) for arrays in zip(*map(leaves, values), strict=True)]
    return [
        refilled(value, (stack[number] for stack in stacks)) for number, value in enumerate(values)
    ]


def stacked(values: Sequence[Any]) -> Any:
    """One value, whose arrays have those of all values on their first axis, and share their memory.

    The values must lie `side_by_side`, unless there is only one.

    >>> values = side_by_side([(np.zeros(2),), (np.ones(2),)])
    >>> stacked(values)[0][1, 0] = 5.0
    >>> values[1]
    (array([5., 1.]),)
    """
    if len(values) == 1:
        return refilled(values[0], (array[None] for array in leaves(values[0])))
    bases = []
    for arrays in zip(*map(leaves, values), strict=True):
        base = arrays[0].base
        if (
            base is None
            or base.shape != (len(values), *arrays[0].shape)
            or any(
                row.ctypes.data != array.ctypes.data
                for row, array in zip(base, arrays, strict=True)
            )
        ):
            raise ValueError("values to be used as one must lie side by side")
        bases.append(base)
    return refilled(values[0], iter(bases))


def _like(template: Any, parts: list[Any]) -> Any:
    """A tuple of the template's class."""
    return type(template)._make(parts) if hasattr(template, "_make") else tuple(parts)


def pack(value: Any, arrays: Arrays) -> Any:
    """The value as JSON; its arrays are appended to the list."""
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
    """The packed value, which must have the structure, types and shapes of the template."""
    if isinstance(template, np.ndarray):
        array = _taken(packed, arrays)
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


def _taken(packed: Any, arrays: Arrays) -> NDArray[Any]:
    number = packed.get("array") if isinstance(packed, dict) else None
    if type(number) is not int or not 0 <= number < len(arrays):
        raise ValueError(f"{packed!r} where an array belongs")
    return arrays[number]


def pack_object(record: Any, arrays: Arrays) -> dict[str, Any]:
    """Return a model or policy as its class's name and its settings, which may be records, too."""
    settings = record.settings() if isinstance(record, Record) else {}
    if hasattr(record, "described"):  # it has code among its settings, which no file can hold
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
    """Return a model or policy of one of the classes as it was saved, or `given` if it is equal."""
    name, fields, classes = saved["class"], saved["fields"], list(classes)
    if given is None:
        cls = next((cls for cls in classes if cls.__name__ == name), None)
        if cls is None or hasattr(cls, "described"):
            part = "not part of tsucb" if cls is None else "made with code of yours"
            raise WrongSettings(f"was saved with {name}, which is {part}; give it to load")
        return cls(**{k: _setting(value, arrays, classes) for k, value in fields.items()})
    ours: Arrays = []
    mine = pack_object(given, ours)
    if mine["class"] != name or not _same(mine["fields"], ours, fields, arrays):
        raise WrongSettings(
            f"was saved with other settings: its {name} differs from the {type(given).__name__} "
            "given; load it without, or with the same"
        )
    return given


def _setting(packed: Any, arrays: Arrays, classes: list[type]) -> Any:
    """Return a setting as the constructor takes it, which checks it."""
    if isinstance(packed, dict) and "class" in packed:
        return unpack_object(packed, arrays, classes, None)
    if isinstance(packed, dict):
        return _taken(packed, arrays)
    return tuple(packed) if isinstance(packed, list) else packed


def _same(first: Any, arrays: Arrays, second: Any, others: Arrays) -> bool:
    """Whether two packed values are equal, arrays included."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        if "array" in first:
            mine, theirs = _taken(first, arrays), _taken(second, others)
            # Not `array_equal`, which takes an interrupt for a difference.
            return mine.shape == theirs.shape and bool((mine == theirs).all())
        return all(_same(first[k], arrays, second[k], others) for k in first)
    if isinstance(first, list) and isinstance(second, list):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(_same(a, arrays, b, others) for a, b in pairs)
    return type(first) is type(second) and bool(first == second)
