"""Records: classes of settings, each declared by its annotated fields alone.

    class TSUCB(Policy):
        samples: SampleCount = 100

is a class with a checked constructor and a readable `repr`. Equality and hash depend on the class,
and on the numbers in arrays. The check of a field is a function `check(name, value)` that returns
the value to keep, or raises; it stands in the annotation:

    SampleCount = Annotated[float, sample_count]

Compiled code reads a record as the named tuple that it is.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY
from inspect import Parameter
from operator import itemgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from tsucb.display import html_table

Check = Callable[[str, Any], Any]
_DERIVED: Any = object()


def derived(*, init: Literal[False] = False) -> Any:
    """Declare a field that `Record.prepare` computes; the constructor does not take it."""
    return _DERIVED


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(derived,))
class RecordType(type):
    """Turn the annotated fields of a class into a named tuple; see the top of this file."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        namespace.setdefault("__slots__", ())
        cls: Any = super().__new__(mcls, name, bases, namespace)
        fields = {} if not bases else dict(cls._parameters)
        keyword_only = False
        for field, hint in own_hints(cls).items():
            if hint is KW_ONLY:
                keyword_only = True
                continue
            default = namespace.get(field, Parameter.empty)
            kind = Parameter.KEYWORD_ONLY if keyword_only else Parameter.POSITIONAL_OR_KEYWORD
            fields[field] = Parameter(field, kind, default=default, annotation=hint)
        cls._parameters, cls._fields = fields, tuple(fields)
        for place, field in enumerate(fields):
            setattr(cls, field, property(itemgetter(place)))
        taken = [p for p in fields.values() if p.default is not _DERIVED]
        cls.__signature__ = inspect.Signature(taken)
        cls._checks = [(p.name, check) for p in taken for check in checks_of(p.annotation)]
        return cls


def own_hints(cls: type) -> dict[str, Any]:
    """Return the annotations of the fields that a class declares, without inherited ones."""
    names = inspect.get_annotations(cls)
    hints = get_type_hints(cls, include_extras=True) if names else {}
    return {n: hints[n] for n in names if get_origin(hints[n]) is not ClassVar}


def checks_of(hint: Any) -> list[Check]:
    """Return the checks in an annotation."""
    return [x for x in get_args(hint)[1:] if callable(x)] if get_origin(hint) is Annotated else []


class Record(tuple[Any, ...], metaclass=RecordType):
    """A named tuple of settings or of arrays, made from annotated fields."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _parameters: ClassVar[Mapping[str, Parameter]] = {}
    __signature__: ClassVar[inspect.Signature] = inspect.Signature()
    _checks: ClassVar[list[tuple[str, Check]]] = []

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        try:
            bound = cls.__signature__.bind(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        for name, check in cls._checks:
            values[name] = check(name, values[name])
        cls.prepare(values)
        return cls._make(values[name] for name in cls._fields)

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Check the fields against each other, and compute the derived ones, in place."""

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """Return a record with these values of all fields, unchecked."""
        return tuple.__new__(cls, values)

    def _asdict(self) -> dict[str, Any]:
        """Return the values of all fields by name; Numba expects this method of a named tuple."""
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> Self:
        """Return a record with some fields replaced, unchecked."""
        return self._make((self._asdict() | changes).values())

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments for this record."""
        return {name: getattr(self, name) for name in self.__signature__.parameters}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(map(equal, self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        values = (x.tobytes() if isinstance(x, np.ndarray) else x for x in self)
        return hash((type(self), *values))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        default = self.__signature__.parameters
        shown = (f"{n}={x!r}" for n, x in self._passed().items() if x != default[n].default)
        return f"{type(self).__name__}({', '.join(shown)})"

    def _passed(self) -> dict[str, Any]:
        """Return the settings as a user would pass them."""
        default = self.__signature__.parameters
        return {n: as_passed(x, default[n].default) for n, x in self.settings().items()}

    def _repr_html_(self) -> str:
        """Show the settings as a table in a notebook, under the first line of the class."""
        summary = (inspect.getdoc(type(self)) or "").partition("\n")[0]
        rows = [[n, repr(x)] for n, x in self._passed().items()]
        title = f"{type(self).__name__}: {summary}"
        return html_table(["setting", "value"], rows or [["none", ""]], caption=title)

    def __reduce__(self) -> Any:
        return type(self)._make, (tuple(self),)


def equal(first: Any, second: Any) -> bool:
    """Return whether two fields are equal, arrays entry by entry."""
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and np.array_equal(first, second)
    return bool(first == second)


def as_passed(value: Any, default: Any) -> Any:
    """Return a field as a user would pass it.

    Where the default is a number, an array of equal numbers, or a multiple of the unit matrix, is
    that number.
    """
    if not isinstance(value, np.ndarray):
        return value
    square = value.ndim == 2 and value.shape[0] == value.shape[1]
    values = value.diagonal() if square and (value == np.diag(value.diagonal())).all() else value
    same = values.size and (values == values.flat[0]).all() and isinstance(default, float)
    return values.flat[0].item() if same else value.tolist()
