"""Values laid out in memory as machine code has them: handed over once, then by their address.

Machine code that is called with a `Kept` reads its fields as if it were the named tuple. What they
are is part of the type, so Numba's removal of dead code sees that arrays come from an argument.

Numba would compile code that takes a value apart, for each type anew, and longer than much of what
is then done with it. The memory is written here instead: a number, an array's address and shape,
what a random generator is called by. None of it has an owner there, as compiled code counts
references to what has one, and each count takes as long as ten products.
"""

import ctypes
import functools
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

NOBODY = 0  # the owner of what is kept, and the Python object it belongs to


class KeptType(types.Type):  # type: ignore[misc]
    """Numba's type of a `Kept`: of the named tuple that is there."""

    def __init__(self, contents: Any) -> None:
        self.contents = contents
        super().__init__(name=f"Kept({contents})")


class Kept:
    """A named tuple in memory; its arrays belong to whoever made it, and are kept alive here."""

    __slots__ = ("address", "kind", "memory", "values")

    def __init__(self, values: Any) -> None:
        self.values, self.kind = values, KeptType(numba.typeof(values))
        self.memory: NDArray[Any] = np.array(numbers(values), layout(self.kind.contents))
        self.address: int = self.memory.ctypes.data

    def __index__(self) -> int:
        return self.address


@functools.cache
def layout(kind: Any) -> Any:
    """How a value of this Numba type lies in memory, as a type of NumPy's."""
    if isinstance(kind, types.Array):
        return np.dtype((np.int64, 5 + 2 * kind.ndim))
    if isinstance(kind, types.NumPyRandomGeneratorType):
        return np.dtype((np.int64, 9))
    if isinstance(kind, types.BaseTuple):
        parts = [(str(place), layout(part)) for place, part in enumerate(kind)]
        return np.dtype(parts, align=True)
    return np.dtype(np.int64) if isinstance(kind, KeptType) else as_dtype(kind)


def numbers(value: Any) -> Any:
    """The numbers that lie there."""
    if isinstance(value, tuple):
        return tuple(map(numbers, value))
    if isinstance(value, np.ndarray):
        shape = value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides
        return NOBODY, NOBODY, *shape
    if isinstance(value, np.random.Generator):
        calls: Any = value.bit_generator.ctypes
        functions = (
            ctypes.cast(function, ctypes.c_void_p).value
            for function in (calls.next_uint64, calls.next_uint32, calls.next_double)
        )
        state = calls.state_address, calls.state.value, *functions, calls.bit_generator.value
        return NOBODY, *state, NOBODY, NOBODY
    return value.address if isinstance(value, Kept) else value


def keepable(value: Any) -> bool:
    """Whether a value is made of nothing but numbers, arrays, and tuples of them."""
    if isinstance(value, tuple):
        return all(map(keepable, value))
    return isinstance(value, bool | int | float | np.number | np.bool | np.ndarray)


@typeof_impl.register(Kept)
def typeof_kept(kept, _):  # type: ignore[no-untyped-def]
    return kept.kind


register_model(KeptType)(models.OpaqueModel)


@unbox(KeptType)
def unbox_kept(kind, address, c):  # type: ignore[no-untyped-def]
    # Of Python's ways to read a whole number, the one that is fast for such large ones.
    kinds = ir.FunctionType(c.pyapi.ulonglong, [c.pyapi.pyobj])
    name = "PyLong_AsUnsignedLongLongMask"
    read = cgutils.get_or_insert_function(c.builder.module, kinds, name)
    number = c.builder.call(read, [address])
    return NativeValue(c.builder.inttoptr(number, c.context.get_value_type(kind)))


@infer_getattr
class KeptFields(AttributeTemplate):  # type: ignore[misc]
    """The types of the fields."""

    key = KeptType

    def generic_resolve(self, kept: Any, name: str) -> Any:
        """That of one field; None if there is none of the name."""
        contents = kept.contents
        return contents.types[contents.fields.index(name)] if name in contents.fields else None


@lower_getattr_generic(KeptType)
def read_field(context, builder, kind, address, name):  # type: ignore[no-untyped-def]
    contents, number = kind.contents, kind.contents.fields.index(name)
    whole = builder.bitcast(address, context.get_data_type(contents).as_pointer())
    place = cgutils.gep_inbounds(builder, whole, 0, number)
    value = context.unpack_value(builder, contents.types[number], place)
    return impl_ret_borrowed(context, builder, contents.types[number], value)


@intrinsic
def borrowed(_, array):  # type: ignore[no-untyped-def]
    """An array that belongs to someone else, who keeps it for as long as it is used."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        value = make_array(array)(context, builder, arguments[0])
        value.meminfo = cgutils.get_null_value(value.meminfo.type)
        return value._getvalue()

    return array(array), code
