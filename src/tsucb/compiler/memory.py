"""Named tuples in memory as compiled code lays them out: written once, then passed by address.

Compiled code reads the fields of a `Kept` as if it were the named tuple. Numba would find out the
type of every field and take the tuple apart at each call, which costs more than deciding among ten
arms.

The arrays in a `Kept` are lent (see `tsucb.compiler.lent`). The layout of every type is read from
Numba's data models, field by field and by name.
"""

import ctypes
import functools
from typing import Any, Self

import numba
import numba.np.random.generator_core  # registers the data model of generators
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import default_manager
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numpy.typing import NDArray

from tsucb.compiler.lent import lent


class KeptType(types.Type):  # type: ignore[misc]
    """Numba's type of a `Kept`; `contents` is the type of the named tuple at the address."""

    def __init__(self, contents: Any) -> None:
        self.contents, self.instance_class = contents, contents.instance_class
        self.fields, self.types = contents.fields, contents.types
        super().__init__(name=f"Kept({contents})")


register_model(KeptType)(models.OpaqueModel)


class Kept(int):
    """The address of a named tuple in memory; keeps the memory and the tuple's arrays alive."""

    values: Any
    kind: KeptType
    memory: NDArray[Any]

    def __new__(cls, values: Any) -> Self:
        """Write the named tuple to memory of its own."""
        traits = traits_of(values)
        if traits not in KINDS:
            kind = KeptType(lent(numba.typeof(values)))
            KINDS[traits] = kind, layout(kind.contents)
        kind, form = KINDS[traits]
        memory = np.array(numbers(values), form)
        kept = super().__new__(cls, memory.ctypes.data)
        kept.values, kept.kind, kept.memory = values, kind, memory
        return kept


# Numba's type of a named tuple and its layout in memory, by the traits of its fields.
KINDS: dict[Any, tuple[KeptType, np.dtype[Any]]] = {}


def traits_of(value: Any) -> Any:
    """Return everything that Numba's type of a value depends on, ten times as fast as the type."""
    if type(value) is np.ndarray:
        return value.dtype, value.ndim, value.flags.num
    if isinstance(value, tuple):
        return type(value), *map(traits_of, value)
    if type(value) in (bool, float) or (type(value) is int and value.bit_length() < 64):
        return type(value)
    return numba.typeof(value)


@functools.cache
def layout(kind: Any) -> np.dtype[Any]:
    """Return the memory layout of a Numba type, as a structured NumPy type."""
    if isinstance(kind, types.Number | types.Boolean):
        return np.dtype(str(kind)) if isinstance(kind, types.Number) else np.dtype(np.uint8)
    if isinstance(kind, types.BaseTuple):
        return np.dtype([(str(n), layout(part)) for n, part in enumerate(kind)], align=True)
    model = default_manager.lookup(kind)
    if isinstance(model, models.StructModel):
        names = model._fields
        parts = [(name, layout(model.get_member_fe_type(name))) for name in names]
        return np.dtype(parts, align=True)
    if isinstance(model.get_value_type(), ir.PointerType):
        return np.dtype(np.uintp)
    raise TypeError(f"a value of type {kind} cannot be written to memory")


def numbers(value: Any) -> Any:
    """Return the numbers to write to memory for a value, nested as in `layout`."""
    if isinstance(value, tuple):
        return tuple(map(numbers, value))
    if isinstance(value, np.ndarray):
        return array_numbers(value)
    if isinstance(value, np.random.Generator):
        return generator_numbers(value)
    return value


ARRAY_FIELDS = layout(numba.typeof(np.zeros(0))).names or ()


def array_numbers(array: NDArray[Any]) -> Any:
    """Return the fields of a lent array, in Numba's order."""
    fields = {
        "meminfo": 0, "parent": 0, "nitems": array.size, "itemsize": array.itemsize,
        "data": array.ctypes.data, "shape": array.shape, "strides": array.strides,
    }  # fmt: skip
    return tuple([fields[name] for name in ARRAY_FIELDS])


def generator_numbers(rng: np.random.Generator) -> Any:
    """Return the fields of a random generator, in Numba's order."""
    calls: Any = rng.bit_generator.ctypes
    fields = {"parent": 0, "meminfo": 0, "state": calls.state.value}
    fields |= {"state_address": calls.state_address, "bit_generator": calls.bit_generator.value}
    for name in ("next_uint64", "next_uint32", "next_double"):
        address = ctypes.cast(getattr(calls, name), ctypes.c_void_p).value
        fields[f"fnptr_{name}"] = address or 0

    def ordered(kind: np.dtype[Any]) -> Any:
        return tuple(
            ordered(kind[name]) if kind[name].names else fields[name] for name in kind.names or ()
        )

    return ordered(layout(GENERATOR))


GENERATOR = numba.typeof(np.random.default_rng(0))


def keepable(value: Any) -> bool:
    """Return whether a value consists of numbers, arrays, and tuples of them only."""
    if isinstance(value, tuple):
        return all(map(keepable, value))
    return isinstance(value, bool | int | float | np.number | np.bool | np.ndarray)


def by_address(value: Any) -> Any:
    """Return a `Kept` of a named tuple for compiled code, or the tuple itself if it has others."""
    return Kept(value) if keepable(value) else value


@typeof_impl.register(Kept)
def typeof_kept(kept, _):  # type: ignore[no-untyped-def]
    return kept.kind


@unbox(KeptType)
def unbox_kept(kind, kept, c):  # type: ignore[no-untyped-def]
    number = c.pyapi.long_as_ulonglong(kept)
    return NativeValue(c.builder.inttoptr(number, c.context.get_value_type(kind)))


@infer_getattr
class KeptFields(AttributeTemplate):  # type: ignore[misc]
    """Tell Numba the types of the fields of a `Kept`."""

    key = KeptType

    def generic_resolve(self, kept: Any, name: str) -> Any:
        """Return the type of a field; None if there is no field of this name."""
        if name not in kept.fields:
            return None
        kind = kept.types[kept.fields.index(name)]
        return KeptType(kind) if is_record(kind) else kind


@lower_getattr_generic(KeptType)
def read_field(context, builder, kind, address, name):  # type: ignore[no-untyped-def]
    number, form = kind.fields.index(name), layout(kind.contents).fields
    member, (_, offset, *_) = kind.types[number], form[str(number)]  # type: ignore[index]
    place = builder.gep(address, [ir.IntType(64)(offset)], inbounds=True)
    if is_record(member):
        return place
    place = builder.bitcast(place, context.get_data_type(member).as_pointer())
    if isinstance(member, types.Array):
        return builder.load(place)  # Numba would read it field by field
    return context.unpack_value(builder, member, place)


def is_record(kind: Any) -> bool:
    """Return whether a field of this Numba type is a named tuple, and so passed by address."""
    return isinstance(kind, types.BaseNamedTuple) and len(kind) > 0
