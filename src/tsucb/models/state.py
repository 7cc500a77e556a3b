"""States: what a model has learned, as arrays that declare their axes and rules.

    class ArmTotals(State):
        pulls: Floats = counts("arm")
        rewards: Floats = sums("arm")

A field declares its axes, its bounds, whether two histories add, and whether it fades when old
rewards count less. From these declarations this file derives how a state starts, how arms are added
and selected, and how states are widened, merged, faded and checked. A field that is neither a sum
nor a count is computed from sums and counts: `Model.settle` does it again after they were changed.

An axis is a name, whose size the model gives, or a number, its size. A scalar is an array of one
number, which compiled code can change in place.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tsucb.compiler import class_of, in_compiled_code
from tsucb.numeric.arrays import Floats, Integers, aligned, copy_of
from tsucb.record import Record

Sizes = Mapping[str, int]
# By axis: the places that are kept, and where they are in the wider state.
Places = Mapping[str, tuple[Integers, Integers]]

MOST = 1e100  # the largest number in a state: its square is finite
MOST_REWARDS = 2.0**53  # a float cannot count more one by one


class Axes(NamedTuple):
    """The declaration of a field: an array with these axes, and its rules."""

    names: tuple[str | int, ...]
    start: float
    dtype: DTypeLike
    adds: bool
    fades: bool
    least: float
    most: float


def array(
    *axes: str | int,
    start: float = 0.0,
    dtype: DTypeLike = np.float64,
    least: float = -MOST,
    most: float = MOST,
) -> Any:
    """Declare an array with these axes, whose entries are `start` before any data."""
    return Axes(axes, start, np.dtype(dtype), False, False, least, most)


def sums(*axes: str | int, least: float = -MOST) -> Any:
    """Declare sums over rewards: two histories add, and fading multiplies."""
    return Axes(axes, 0.0, np.dtype(np.float64), True, True, least, MOST)


def counts(*axes: str | int, dtype: DTypeLike = np.float64) -> Any:
    """Declare numbers of rewards: two histories add, and fading multiplies.

    They are floats by default, so that beliefs have one type whether or not rewards fade.
    """
    return Axes(axes, 0.0, np.dtype(dtype), True, True, 0, MOST_REWARDS)


def nested(kind: type["State"]) -> Any:
    """Declare a state within a state."""
    return kind


class State(Record):
    """What a model has learned: arrays and other states, declared as its fields."""

    _declared: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: x for name, x in vars(cls).items() if isinstance(x, Axes | type)}
        cls._declared = cls._declared | own

    def __new__(cls, *values: Any, **named: Any) -> Self:
        return cls._make(values if values else [named[name] for name in cls._fields])

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def blank(cls, sizes: Sizes) -> Self:
        """Return the state before any data, for these sizes of the axes."""
        return cls._make(
            filled(field, sizes) if isinstance(field, Axes) else field.blank(sizes)
            for field in cls._declared.values()
        )

    def _map(self, change: Callable[..., Any], inner: Callable[..., Any], *others: Any) -> Self:
        """Return a state made by change(field, array, …) of arrays and inner(state, …) of states.

        The arguments `…` are the same fields of the other states.
        """
        return self._make(
            change(field, *values) if isinstance(field, Axes) else inner(*values)
            for field, *values in zip(self._declared.values(), self, *others, strict=True)
        )

    def copy(self) -> Self:
        """Return the state with arrays of its own."""
        return self._map(lambda _, value: copy_of(value), lambda state: state.copy())

    def select(self, arms: Integers) -> Self:
        """Return the state of these arms, in this order."""

        def take(field: Axes, value: NDArray[Any]) -> NDArray[Any]:
            if "arm" not in field.names:
                return value.copy()
            return np.ascontiguousarray(value.take(arms, axis=field.names.index("arm")))

        return self._map(take, lambda state: state.select(arms))

    def joined(self, other: "State") -> Self:
        """Return this state with the arms of another behind its own."""

        def join(field: Axes, value: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
            if "arm" not in field.names:
                return value.copy()
            both = np.concatenate((value, more.astype(value.dtype)), field.names.index("arm"))
            return np.ascontiguousarray(both)

        return self._map(join, lambda state, more: state.joined(more), other)

    def widened(self, sizes: Sizes, places: Places) -> Self:
        """Return the state for axes of these sizes: old entries at `places`, others as at start."""

        def widen(field: Axes, value: NDArray[Any]) -> NDArray[Any]:
            if not field.names:
                return value.copy()
            shape = [(str(name), size) for name, size in zip(field.names, value.shape, strict=True)]
            out = filled(field, {**dict(shape), **sizes}).astype(value.dtype, copy=False)
            kept = [places.get(name, (np.arange(k), np.arange(k))) for name, k in shape]
            out[np.ix_(*(new for _, new in kept))] = value[np.ix_(*(old for old, _ in kept))]
            return out

        return self._map(widen, lambda state: state.widened(sizes, places))

    def merged(self, other: Any, base: Any) -> Self:
        """Return this state with what `other` has learned since both were `base`."""

        def add(field: Axes, one: Any, two: Any, before: Any) -> Any:
            return one + two - before if field.adds else one.copy()

        return self._map(add, lambda one, two, before: one.merged(two, before), other, base)

    def coefficients(self, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of an arm's parameters; none by default."""
        return np.zeros(0), np.zeros(0)

    @classmethod
    def sums_by_arm(cls) -> dict[str, Axes]:
        """Return the fields that are sums or counts, with a part for each arm on the first axis."""
        arrays = {n: field for n, field in cls._declared.items() if isinstance(field, Axes)}
        return {n: x for n, x in arrays.items() if x.fades and x.names[:1] == ("arm",)}

    @classmethod
    def is_all_sums(cls) -> bool:
        """Return whether all fields are sums by arm, so that `fade_arm` forgets everything."""
        return 0 < len(cls._declared) == len(cls.sums_by_arm())

    def fade(self, weights: Floats) -> None:
        """Multiply the sums of each arm by its weight, in place."""
        for name in self.sums_by_arm():
            values = getattr(self, name)
            values *= weights.reshape(-1, *(1,) * (values.ndim - 1))

    def check(self, rewards: int) -> None:
        """Raise ValueError if a number is out of bounds, or a count larger than `rewards`."""
        for (name, field), value in zip(self._declared.items(), self, strict=True):
            if isinstance(value, State):
                value.check(rewards)
                continue
            is_count = field.fades and field.most == MOST_REWARDS
            most = min(field.most, rewards) if is_count else field.most
            if not ((value >= field.least) & (value <= most)).all():
                raise ValueError(f"{name} must be from {field.least:g} to {most:g}")


def filled(field: Axes, sizes: Sizes) -> NDArray[Any]:
    """Return an array of a field before any data, for these sizes of the axes."""
    shape = tuple(sizes[n] if isinstance(n, str) else n for n in field.names) or (1,)
    if field.dtype != np.float64:
        return np.full(shape, field.start, field.dtype)
    out = aligned(shape)
    if field.start:  # memory that stays zero is not used up
        out[...] = field.start
    return out


def fade_arm(state: State, arm: int, weight: float) -> None:
    """Multiply the sums of an arm by a weight, in place, in compiled code."""


def fader(state: Any, arm: Any, weight: Any) -> Callable[..., None]:
    """Return the code of `fade_arm` for a Numba type of states: a loop over each sum by arm."""
    lines = ["def fade(state, arm, weight):"]
    for name, field in class_of(state).sums_by_arm().items():
        axes = range(1, len(field.names))
        lines += [f"{'    ' * n}for i{n} in range(state.{name}.shape[{n}]):" for n in axes]
        index = ", ".join(["arm", *(f"i{n}" for n in axes)])
        lines.append(f"{'    ' * len(field.names)}state.{name}[{index}] *= weight")
    lines.append("    return")
    place: dict[str, Any] = {"__name__": __name__}
    exec(compile("\n".join(lines), __file__, "exec"), place)
    code: Callable[..., None] = place["fade"]
    return code


in_compiled_code(fade_arm, fader)
