"""What Python and machine code hand each other, without the cost that Numba's own ways have.

A `Kept` is a named tuple in memory, handed over once, then by its address. Machine code that is
called with it reads its fields as if it were the named tuple. What they are is part of the type,
so Numba's removal of dead code sees that arrays come from an argument. `LENT_BYTES` are read where
they are; `text_from` and `bytes_of` go back to Python.
"""

from typing import Any, cast

import numba
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
from numba.np.arrayobj import _empty_nd_impl, make_array, populate_array

from tsucb.compiled import compiled, undisturbed


class KeptType(types.Type):  # type: ignore[misc]
    """Numba's type of a `Kept`: of the named tuple that is there."""

    def __init__(self, contents: Any) -> None:
        self.contents = contents
        super().__init__(name=f"Kept({contents})")


class Kept(int):
    """The address of a named tuple in memory, which lives as long as this does."""

    kind: KeptType
    _alive: tuple[Any, Any]

    def __new__(cls, values: Any) -> "Kept":
        contents, keep = numba.typeof(values), cast(Any, _keep)
        # Not `keep(values)`, which takes a Kept among the values for any whole number.
        memory = undisturbed(lambda: keep.compile((contents,))(values))
        kept = super().__new__(cls, memory.ctypes.data)
        kept.kind, kept._alive = KeptType(contents), (memory, values)
        return kept


@typeof_impl.register(Kept)
def typeof_kept(kept, _):  # type: ignore[no-untyped-def]
    return kept.kind


register_model(KeptType)(models.OpaqueModel)


@unbox(KeptType)
def unbox_kept(kind, address, c):  # type: ignore[no-untyped-def]
    return NativeValue(c.pyapi.long_as_voidptr(address))


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


@compiled
def _keep(values):  # type: ignore[no-untyped-def]
    return stored(values)


@intrinsic
def stored(_, values):  # type: ignore[no-untyped-def]
    """The bytes of a value as machine code has it, less who owns its arrays.

    Compiled code counts references to what it owns, and each count takes as long as ten products.
    """
    memory = types.Array(types.uint8, 1, "C")

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = context.get_data_type(values)
        size = context.get_constant(types.intp, context.get_abi_sizeof(kind))
        array = _empty_nd_impl(context, builder, memory, [size])
        value = without_owner(context, builder, values, arguments[0])
        context.pack_value(builder, values, value, builder.bitcast(array.data, kind.as_pointer()))
        return array._getvalue()

    return memory(values), code


@intrinsic
def borrowed(_, value):  # type: ignore[no-untyped-def]
    """A value whose arrays belong to someone else, who keeps them for as long as they are used."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return without_owner(context, builder, value, arguments[0])

    return value(value), code


def without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """The value with arrays that belong to nobody: itself, or all in a tuple."""
    if isinstance(kind, types.Array):
        array = make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for i, part in enumerate(kind):
            inner = without_owner(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, inner, i)
    return value


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
