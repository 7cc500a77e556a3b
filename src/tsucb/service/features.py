"""Features as clients send them, flattened: names to numbers, strings, booleans or None."""

from collections.abc import Mapping
from typing import Any

from tsucb.service.events import Features

DEEPEST = 8  # objects within objects
MOST = 1_000  # features of one context, arm or slot
LONGEST = 1_000  # characters of a name or a text

_SCALARS = (float, int, str, bool, type(None))


def flat(given: Any) -> Features | None:
    """Flatten one object, or a list of objects that belong together; None if there are none.

    Names of objects within objects are joined with dots, entries of arrays of numbers are named by
    their places. Names that begin with _ are left out, as Personalizer does.

    >>> flat([{"user": {"age": 31, "_internal": 1}}, {"size": [1.5, 2]}])
    {'user.age': 31, 'size.0': 1.5, 'size.1': 2}
    """
    if given is None:
        return None
    found: Features = {}
    for each in given if isinstance(given, list) else [given]:
        if not isinstance(each, Mapping):
            raise ValueError(f"features are an object, or a list of objects, not {kind(each)}")
        _add(found, "", each, 1)
    return found or None


def _add(found: Features, prefix: str, given: Mapping[str, Any], depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"features are nested more than {DEEPEST} deep")
    for name, value in given.items():
        if name[:1] == "_":
            continue
        whole = prefix + name
        if type(value) in _SCALARS:
            if value.__class__ is str and len(value) > LONGEST:
                raise ValueError(f"the text of feature {whole[:60]!r} is longer than {LONGEST:,}")
            if value.__class__ is int:
                check_integer(whole, value)
            found[whole] = value
        elif isinstance(value, Mapping):
            _add(found, f"{whole}.", value, depth + 1)
        elif isinstance(value, list):
            _add_list(found, whole, value, depth)
        else:
            raise ValueError(f"feature {whole[:60]!r} is {kind(value)}")
        if len(whole) > LONGEST:
            raise ValueError(f"the name of a feature is longer than {LONGEST:,} characters")
        if len(found) > MOST:
            raise ValueError(f"there are more than {MOST:,} features")


def _add_list(found: Features, name: str, values: list[Any], depth: int) -> None:
    if all(type(value) in (int, float) for value in values):
        for place, value in enumerate(values[: MOST + 1]):
            if value.__class__ is int:
                check_integer(name, value)
            found[f"{name}.{place}"] = value
    elif all(isinstance(value, Mapping) for value in values):
        for value in values[: MOST + 1]:
            _add(found, f"{name}.", value, depth + 1)
    else:
        raise ValueError(f"feature {name[:60]!r} is an array, which may only hold numbers")


def check_integer(name: str, value: int) -> None:
    """Raise ValueError if an integer is too large for the log."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(
            f"the integer of feature {name[:60]!r} is beyond 64 bits; send a number with a point, "
            "or a text"
        )


def kind(value: Any) -> str:
    """Return the name of a value's kind in JSON."""
    names = {str: "a text", bool: "a boolean", int: "a number", float: "a number", list: "an array"}
    return "nothing" if value is None else names.get(type(value), "an object")
