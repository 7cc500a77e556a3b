"""Arrays and bytes without reference counts: their owner keeps them alive while compiled code runs.

Numba counts references to each array at each call, which takes as long as ten multiplications.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import (
    NativeValue,
    intrinsic,
    lower_builtin,
    lower_cast,
    models,
    register_model,
    type_callable,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array


class LentArray(types.Array):  # type: ignore[misc]
    """Numba's type of an array that its owner keeps alive; a view of it is an ordinary array."""


@register_model(LentArray)
class LentModel(models.ArrayModel):  # type: ignore[misc]
    """An array's fields, without a counted reference among them."""

    def traverse(self, builder: Any) -> list[Any]:
        """Return no member that counts references."""
        return []

    def inner_models(self) -> list[Any]:
        """Return no member that counts references."""
        return []


@lower_cast(LentArray, types.Array)
def cast_lent(context, builder, source, target, value):  # type: ignore[no-untyped-def]
    return value  # it has no owner, so nothing is counted later either


def lent(kind: Any) -> Any:
    """Return the Numba type with all arrays in it lent."""
    if isinstance(kind, types.Array):
        name, readonly = f"lent {kind.name}", not kind.mutable
        return LentArray(
            kind.dtype, kind.ndim, kind.layout, readonly=readonly, name=name, aligned=kind.aligned
        )
    if not isinstance(kind, types.BaseTuple) or not len(kind):
        return kind
    members = tuple(map(lent, kind))
    if not isinstance(kind, types.BaseNamedTuple):
        return types.Tuple(members)
    if isinstance(kind, types.NamedUniTuple):
        return types.NamedUniTuple(members[0], len(members), kind.instance_class)
    return types.NamedTuple(members, kind.instance_class)


def borrowed(value: Any) -> Any:
    """Return the value; in compiled code, with all arrays in it lent.

    For arguments, which the caller keeps alive, or together with `still_needed`.
    """
    return value


@type_callable(borrowed)
def type_borrowed(_):  # type: ignore[no-untyped-def]
    return lambda value: lent(value)


@lower_builtin(borrowed, types.Any)
def borrow(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
    return without_owner(context, builder, signature.args[0], arguments[0])


def still_needed(value: Any) -> None:
    """Do nothing, but keep the value alive in compiled code up to here.

    Otherwise compiled code would free a value of its own as soon as it is borrowed, its last use.
    """


@type_callable(still_needed)
def type_still_needed(_):  # type: ignore[no-untyped-def]
    return lambda value: types.none


@lower_builtin(still_needed, types.Any)
def need(context, *_):  # type: ignore[no-untyped-def]
    return context.get_dummy_value()


def without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return the LLVM value with the owners of all its arrays removed."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for place, member in enumerate(kind):
            part = builder.extract_value(value, place)
            value = builder.insert_value(
                value, without_owner(context, builder, member, part), place
            )
    return value


class LentBytes(types.Bytes):  # type: ignore[misc]
    """Numba's type of Python's bytes as an argument or a result, without reference counts."""


register_model(LentBytes)(models.ArrayModel)
LENT_BYTES = LentBytes(types.uint8, 1, "C", readonly=True)


@unbox(LentBytes)
def unbox_bytes(kind, given, c):  # type: ignore[no-untyped-def]
    place = cgutils.alloca_once(c.builder, c.pyapi.cstring)
    size = cgutils.alloca_once(c.builder, c.pyapi.py_ssize_t)
    good = c.pyapi.bytes_as_string_and_size(given, place, size)
    value = bytes_at(c.context, c.builder, c.builder.load(place), c.builder.load(size))
    return NativeValue(value, is_error=c.builder.not_(good))


def bytes_at(context: Any, builder: Any, address: Any, count: Any) -> Any:
    """Return `count` bytes at an address as a value of the type `LENT_BYTES`."""
    array = make_array(LENT_BYTES)(context, builder)
    populate_array(array, address, [count], [context.get_constant(types.intp, 1)], 1, None)
    return array._getvalue()


@intrinsic
def bytes_of(_, numbers, count):  # type: ignore[no-untyped-def]
    """Return the bytes of the first `count` numbers of an array; Python copies them."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = make_array(numbers)(context, builder, arguments[0])
        address = builder.bitcast(array.data, cgutils.voidptr_t)
        return bytes_at(context, builder, address, builder.mul(arguments[1], array.itemsize))

    return LENT_BYTES(numbers, count), code
