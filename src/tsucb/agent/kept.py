"""Values kept in memory where machine code finds them: handed over once, then by their address.

Machine code that is called with a `Kept` reads its fields as if it were the named tuple. What they
are is part of the type, so Numba's removal of dead code sees that arrays come from an argument.
"""

from typing import Any

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
from numba.np.arrayobj import _empty_nd_impl, make_array

from tsucb.compiled import compiled, undisturbed


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
        self.memory = undisturbed(lambda: _keep(values))
        self.address: int = self.memory.ctypes.data

    def __index__(self) -> int:
        return self.address


@typeof_impl.register(Kept)
def typeof_kept(kept, _):  # type: ignore[no-untyped-def]
    return kept.kind


register_model(KeptType)(models.OpaqueModel)


@unbox(KeptType)
def unbox_kept(kind, address, c):  # type: ignore[no-untyped-def]
    number = c.pyapi.long_as_longlong(address)
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
