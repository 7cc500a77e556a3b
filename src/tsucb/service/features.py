"""Features as clients send them, made flat: names to numbers, strings, booleans or nothing."""

from collections.abc import Mapping
from typing import Any

from tsucb.service.events import Features

DEEPEST = 8  # objects within objects
MOST = 1_000  # features of one context, arm or slot
LONGEST = 1_000  # characters of a name or a text

_SCALARS = (float, int, str, bool, type(None))


def flat(given: Any) -> Features | None:
    """One object, or a list of objects that are taken together, as flat features.

    Objects within objects are named with dots, entries of arrays of numbers by their places. Names
    that begin with _ are left out, as Personalizer does. None if nothing was given.

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
            found[f"{name}.{place}"] = value
    elif all(isinstance(value, Mapping) for value in values):
        for value in values[: MOST + 1]:
            _add(found, f"{name}.", value, depth + 1)
    else:
        raise ValueError(f"feature {name[:60]!r} is an array, which may only hold numbers")


def kind(value: Any) -> str:
    """What a value of JSON is called."""
    names = {str: "a text", bool: "a boolean", int: "a number", float: "a number", list: "an array"}
    return "nothing" if value is None else names.get(type(value), "an object")
