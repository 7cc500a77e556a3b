"""Read the values of a context in any form: numbers, categories and missing values."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import LARGEST, shown

Cell = float | str | None  # how a value is read: a number, a category, or missing


def values_of(context: Any) -> tuple[dict[str, Any], bool]:
    """Return the values of a context by feature, and True if the context has no names."""
    if hasattr(context, "_asdict"):  # a named tuple
        context = context._asdict()
    if isinstance(context, Mapping):
        return values_by_name(list(context), list(context.values())), False
    if hasattr(context, "columns"):
        if len(context) != 1:
            raise ValueError(f"a context is one row, but the table has {len(context)} rows")
        names = list(context.columns)
        return values_by_name(names, [next(iter(context[name])) for name in unique(names)]), False
    if hasattr(context, "index") and hasattr(context, "items"):  # a pandas.Series
        return values_by_name(list(context.index), list(context)), False
    if hasattr(context, "keys"):  # a row of a database
        names = list(context.keys())
        return values_by_name(names, [context[name] for name in names]), False
    if hasattr(context, "toarray"):  # a sparse row
        context = context.toarray()
    if not isinstance(context, list | tuple):
        if isinstance(context, str | bytes) or not hasattr(context, "__array__"):
            raise TypeError(
                "features are given as a dictionary, a row of a table or a list of numbers, not as "
                f"{kind_of(context)}"
            )
        context = array_of(context)
        if context.ndim == 2 and len(context) == 1:
            context = context[0]
        if context.ndim != 1:
            raise ValueError(f"a context is one row, but the array has the shape {context.shape}")
        context = objects_of(context)
    elif len(context) == 1 and isinstance(context[0], list | tuple | np.ndarray | Mapping):
        return values_of(context[0])
    if not len(context):
        raise ValueError("a context must have at least one number, but it is empty")
    return {f"x{i}": value for i, value in enumerate(context)}, True


def values_by_name(names: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of features by name; raise ValueError if a name comes twice."""
    return dict(zip(unique([feature_name(name) for name in names]), values, strict=True))


def feature_name(name: Any) -> str:
    """Return the name of a feature as a string; raise TypeError if it cannot be one."""
    if isinstance(name, str):
        return str(name)
    # The columns of a table without names have numbers.
    if isinstance(name, Integral) and not isinstance(name, bool):
        return str(int(name))
    raise TypeError(f"features are named by strings, not by {shown(name)}")


def unique(names: Sequence[Any]) -> Sequence[Any]:
    """Return the names; raise ValueError if one comes twice."""
    if len(set(names)) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        raise ValueError(f"a context has the features {listed(twice)} twice; rename one of them")
    return names


def cell_of(name: str, value: Any, coded: bool) -> Cell:
    """Return the value of a feature as a number, a category, or None if it is missing.

    A number of a `coded` feature is a category.
    """
    kind = type(value)
    if kind is str or value is None or (kind is float and not coded and abs(value) <= LARGEST):
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, Enum):
        return str(value.value) if isinstance(value.value, str) else value.name
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value)) if coded else float(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
    elif isinstance(value, Real | Decimal):
        try:
            number = float(value)
        except (OverflowError, ValueError):
            number = np.inf
        if number != number:
            return None
        if not -LARGEST <= number <= LARGEST:
            raise ValueError(
                f"the feature {shown(name)} is {number}, but numbers must lie within "
                f"±{LARGEST:g}; give None where it is not known"
            )
        if not coded:
            return number
        whole: Any = value
        return str(int(whole)) if number.is_integer() else str(number)
    pandas = sys.modules.get("pandas")
    if pandas is not None and (value is pandas.NA or value is pandas.NaT):
        return None
    raise TypeError(wrong_kind(name, value))


def wrong_kind(name: str, value: Any) -> str:
    """Return the message that refuses a value, with advice where there is any."""
    advice = ""
    if isinstance(value, list | tuple | set | frozenset | Mapping | np.ndarray):
        advice = "; give each of its entries a name of its own"
    elif isinstance(value, date | time | timedelta | np.datetime64 | np.timedelta64):
        advice = "; give what matters about it as numbers, such as the hour"
    elif isinstance(value, complex | np.complexfloating):
        advice = "; give its real and its imaginary part as two features"
    elif isinstance(value, bytes):
        advice = "; decode it to a string"
    return (
        f"the feature {shown(name)} is {kind_of(value)}, but it must be a number, a boolean, a "
        f"string or None{advice}"
    )


def array_of(values: Any) -> NDArray[Any]:
    """Return the values as an array, with None for masked ones."""
    if isinstance(values, np.ma.MaskedArray):
        objects = np.array(np.ma.getdata(values), dtype=object)
        objects[np.ma.getmaskarray(values)] = None
        return objects
    return np.asarray(values)


def objects_of(table: NDArray[Any]) -> list[Any]:
    """Return the entries of a vector as Python objects (times stay NumPy's), or a table's rows."""
    return list(table) if table.ndim != 1 or table.dtype.kind in "mM" else table.tolist()


def rows_of(table: Any, names: Iterable[Any] | None = None) -> list[Any]:
    """Return the rows of a data frame, a mapping of names to columns, a matrix or a list.

    With `names`, return these columns of a data frame or a mapping only.
    """
    if hasattr(table, "toarray"):
        table = table.toarray()
    if isinstance(table, Mapping) or hasattr(table, "columns"):
        names = unique(list(getattr(table, "columns", table) if names is None else names))
        columns = [column(table, name) for name in names]
        lengths = sorted({len(column) for column in columns})
        if len(lengths) > 1:
            raise ValueError(f"the columns of a table must be equally long, not {lengths}")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not isinstance(table, Iterable) or isinstance(table, str | bytes | Set):
        raise TypeError(f"a table is a data frame, a matrix or a list, not {kind_of(table)}")
    return list(table)


def column(table: Any, name: Any) -> list[Any]:
    """Return a column of a table as a list: an array of mixed values would hold only strings."""
    values = table[name]
    if hasattr(values, "__array__"):
        return objects_of(array_of(values))
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(
            f"the column {shown(name)} of a table must be a list, not {kind_of(values)}"
        )
    return list(values)


def is_code(label: str) -> bool:
    """Return whether a category may also be given as an integer."""
    digits = label.removeprefix("-").isdecimal() and len(label) < 20
    return digits and str(int(label)) == label


def listed(names: Iterable[Any]) -> str:
    """Return the first five names as text, for a message."""
    some = list(islice(names, 6))
    return ", ".join(map(shown, some[:5])) + (", …" if len(some) > 5 else "")


def kind_of(value: Any) -> str:
    """Return the name of a value's type with its article, for a message."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
