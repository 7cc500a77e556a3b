"""States: what a model has learned, as arrays that declare their own axes and rules.

    class ArmTotals(State):
        pulls: Integers = counts("arm")
        rewards: Floats = sums("arm")

Each field says what its axes are, whether two histories add, whether it fades when old rewards
count less, and its bounds. Starting, adding and selecting arms, widening, merging, fading and
checking a loaded file follow from that, once, in this file. A field that is neither a sum nor a
count is what the model makes of those: its `settle` computes it again where they were changed.

An axis is a name, whose size the model gives, or a number. A scalar is an array of one number,
which compiled code can change in place.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tsucb.compiler import class_of, in_compiled_code
from tsucb.numeric.arrays import Floats, Integers, aligned, copy_of
from tsucb.record import Record

Sizes = Mapping[str, int]
# For an axis, which of its places are kept, and where they are in the wider state.
Places = Mapping[str, tuple[Integers, Integers]]

MOST = 1e100  # of any number in a state: its square is finite
MOST_REWARDS = 2.0**53  # more cannot be counted one by one


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
    """Declare an array with these axes; all of its entries are `start` before any data."""
    return Axes(axes, start, np.dtype(dtype), False, False, least, most)


def sums(*axes: str | int, least: float = -MOST) -> Any:
    """Declare sums over rewards: two histories add, and fading multiplies them."""
    return Axes(axes, 0.0, np.dtype(np.float64), True, True, least, MOST)


def counts(*axes: str | int) -> Any:
    """Declare whole numbers of rewards, which add, and which fade where a model forgets."""
    return Axes(axes, 0, np.dtype(np.int64), True, True, 0, MOST_REWARDS)


def nested(kind: type["State"]) -> Any:
    """Declare a state within a state."""
    return kind


class State(Record):
    """What a model has learned: arrays and other states, declared as its fields."""

    _declared: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._declared = cls._declared | {n: vars(cls)[n] for n in cls._declarations()}

    @classmethod
    def _declarations(cls) -> list[str]:
        return [n for n, x in vars(cls).items() if isinstance(x, Axes | type)]

    def __new__(cls, *values: Any, **named: Any) -> Self:
        return cls._make(values if values else [named[name] for name in cls._fields])

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def blank(cls, sizes: Sizes) -> Self:
        """Return the state with all entries as they start, for these sizes of the axes."""
        return cls._make(
            filled(field, sizes) if isinstance(field, Axes) else field.blank(sizes)
            for field in cls._declared.values()
        )

    def _map(self, change: Callable[..., Any], inner: Callable[..., Any], *others: Any) -> Self:
        """Return the state of change(field, array, …) of arrays and inner(state, …) of states."""
        return self._make(
            change(field, *values) if isinstance(field, Axes) else inner(*values)
            for field, *values in zip(self._declared.values(), self, *others, strict=True)
        )

    def copy(self) -> Self:
        """Return the state with arrays of its own."""
        return self._map(lambda _, value: copy_of(value), lambda state: state.copy())

    def select(self, arms: Integers) -> Self:
        """Return the state of some of the arms, in the order given."""

        def take(field: Axes, value: NDArray[Any]) -> NDArray[Any]:
            if "arm" not in field.names:
                return value.copy()
            return np.ascontiguousarray(value.take(arms, axis=field.names.index("arm")))

        return self._map(take, lambda state: state.select(arms))

    def joined(self, other: "State") -> Self:
        """Return the state with the arms of another behind its own; all else is its own."""

        def join(field: Axes, value: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
            if "arm" not in field.names:
                return value.copy()
            both = np.concatenate((value, more.astype(value.dtype)), field.names.index("arm"))
            return np.ascontiguousarray(both)

        return self._map(join, lambda state, more: state.joined(more), other)

    def widened(self, sizes: Sizes, places: Places) -> Self:
        """Return the state for axes of these sizes; old entries are at `places`, others start."""

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
        """Return what this state and another have learned since they were one, `base`."""

        def add(field: Axes, one: Any, two: Any, before: Any) -> Any:
            return one + two - before if field.adds else one.copy()

        return self._map(add, lambda one, two, before: one.merged(two, before), other, base)

    def coefficients(self, arm: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of an arm's parameters; none by default."""
        return np.zeros(0), np.zeros(0)

    @classmethod
    def is_all_sums(cls) -> bool:
        """Return whether all of the state are sums by arm, so that `fade_arm` forgets all of it."""
        return bool(cls._declared) and all(
            isinstance(field, Axes) and field.fades and field.names[:1] == ("arm",)
            for field in cls._declared.values()
        )

    def check(self, rewards: int) -> None:
        """Raise ValueError if a number is outside of its bounds, or counts exceed the rewards."""
        for (name, field), value in zip(self._declared.items(), self, strict=True):
            if isinstance(value, State):
                value.check(rewards)
                continue
            most = (
                min(field.most, rewards) if field.dtype == np.int64 and field.fades else field.most
            )
            if not ((value >= field.least) & (value <= most)).all():
                raise ValueError(f"{name} must be from {field.least:g} to {most:g}")


def filled(field: Axes, sizes: Sizes) -> NDArray[Any]:
    """Return an array of a field as it starts, for these sizes of the axes."""
    shape = tuple(sizes[n] if isinstance(n, str) else n for n in field.names) or (1,)
    if field.dtype != np.float64:
        return np.full(shape, field.start, field.dtype)
    out = aligned(shape)
    if field.start:  # memory that stays zero is not used up
        out[...] = field.start
    return out


def fade_arm(state: State, arm: int, weight: float) -> None:
    """Let what was seen of one arm count `weight` times as much, in place, in compiled code."""


def fader(state: Any, arm: Any, weight: Any) -> Callable[..., None]:
    """Return `fade_arm` for a Numba type of states: a loop over each field that fades."""
    lines = ["def fade(state, arm, weight):", "    return"]
    for name, field in class_of(state)._declared.items():
        if isinstance(field, Axes) and field.fades and field.names[:1] == ("arm",):
            index = "".join(f", i{n}" for n in range(1, len(field.names)))
            loops = [
                f"{'    ' * n}for i{n} in range(state.{name}.shape[{n}]):"
                for n in range(1, len(field.names))
            ]
            change = f"{'    ' * len(field.names)}state.{name}[arm{index}] *= weight"
            lines[-1:-1] = [*loops, change]
    place: dict[str, Any] = {"__name__": __name__}
    exec(compile("\n".join(lines), __file__, "exec"), place)
    code: Callable[..., None] = place["fade"]
    return code


in_compiled_code(fade_arm, fader)
