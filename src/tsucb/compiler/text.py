"""Bytes that cross between Python and compiled code without reference counts."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox
from numba.np.arrayobj import make_array, populate_array


class Lent(types.Bytes):  # type: ignore[misc]
    """Numba's type of bytes that the caller keeps alive during the call; no reference counts."""


register_model(Lent)(models.ArrayModel)
LENT_BYTES = Lent(types.uint8, 1, "C", readonly=True)


@unbox(Lent)
def unbox_lent(kind, given, c):  # type: ignore[no-untyped-def]
    place = cgutils.alloca_once(c.builder, c.pyapi.cstring)
    size = cgutils.alloca_once(c.builder, c.pyapi.py_ssize_t)
    good = c.pyapi.bytes_as_string_and_size(given, place, size)
    value = lent(c.context, c.builder, kind, c.builder.load(place), c.builder.load(size))
    return NativeValue(value, is_error=c.builder.not_(good))


def lent(context: Any, builder: Any, kind: Any, data: Any, count: Any) -> Any:
    """Return `count` bytes at an address as a value of the type `Lent`."""
    array = make_array(kind)(context, builder)
    populate_array(array, data, [count], [context.get_constant(types.intp, 1)], 1, None)
    return array._getvalue()


@intrinsic
def bytes_of(_, numbers, count):  # type: ignore[no-untyped-def]
    """Return the bytes of the first `count` numbers; Python copies them."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = make_array(numbers)(context, builder, arguments[0])
        data = builder.bitcast(array.data, cgutils.voidptr_t)
        return lent(context, builder, LENT_BYTES, data, builder.mul(arguments[1], array.itemsize))

    return LENT_BYTES(numbers, count), code
