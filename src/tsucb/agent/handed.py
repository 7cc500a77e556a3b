"""Bytes and text that Python and an agent's machine code hand each other, at little cost.

A context is read where its bytes lie, as whoever calls keeps them; ids, and what a policy saw, are
copied once, by Python.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox
from numba.np.arrayobj import make_array, populate_array


class Lent(types.Bytes):  # type: ignore[misc]
    """Numba's type of bytes that the caller keeps for as long as the call: nobody counts."""


register_model(Lent)(models.ArrayModel)
LENT_BYTES = Lent(types.uint8, 1, "C", readonly=True)


@unbox(Lent)
def unbox_lent(kind, given, c):  # type: ignore[no-untyped-def]
    place = cgutils.alloca_once(c.builder, c.pyapi.cstring)
    size = cgutils.alloca_once(c.builder, c.pyapi.py_ssize_t)
    good = c.pyapi.bytes_as_string_and_size(given, place, size)
    data, count = c.builder.load(place), c.builder.load(size)
    value = lent(c.context, c.builder, kind, data, count)
    return NativeValue(value, is_error=c.builder.not_(good))


def lent(context: Any, builder: Any, kind: Any, data: Any, count: Any) -> Any:
    """So many bytes at a place."""
    array = make_array(kind)(context, builder)
    populate_array(array, data, [count], [context.get_constant(types.intp, 1)], 1, None)
    return array._getvalue()


@intrinsic
def bytes_of(_, numbers, count):  # type: ignore[no-untyped-def]
    """The bytes of the first so many numbers, for Python, which makes a copy of them."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = make_array(numbers)(context, builder, arguments[0])
        data = builder.bitcast(array.data, cgutils.voidptr_t)
        return lent(context, builder, LENT_BYTES, data, builder.mul(arguments[1], array.itemsize))

    return LENT_BYTES(numbers, count), code


@intrinsic
def text_from(_, letters, first):  # type: ignore[no-untyped-def]
    """The string of the letters from the first one, for Python, which makes a copy of it."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = make_array(letters)(context, builder, arguments[0])
        text = cgutils.create_struct_proxy(types.unicode_type)(context, builder)
        text.data = builder.bitcast(builder.gep(array.data, [arguments[1]]), text.data.type)
        text.length = builder.sub(array.nitems, arguments[1])
        text.kind = context.get_constant(types.int32, 1)  # bytes for each letter
        text.is_ascii = context.get_constant(types.uint32, 1)
        text.hash = context.get_constant(types.intp, -1)  # not known
        text.meminfo = cgutils.get_null_value(text.meminfo.type)
        text.parent = cgutils.get_null_value(text.parent.type)
        return text._getvalue()

    return types.unicode_type(letters, first), code
