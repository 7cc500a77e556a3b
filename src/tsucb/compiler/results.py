"""Results of compiled code as Python objects, made without running any Python code.

Numba calls the class of a named tuple for each one that it returns, and unpickles the class of
arrays for each array. A signal handler may raise in there, and Numba then goes on with a missing
object, which crashes the interpreter. Here tuples are made by `tuple.__new__`, which is C.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import box, intrinsic, models, register_model


def runs_python(kind: Any) -> bool:
    """Return whether Numba runs Python code to return a value of this type."""
    if isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple):
        return any(map(runs_python, kind))
    return isinstance(kind, types.Array | types.BaseNamedTuple)


class ResultType(types.Type):  # type: ignore[misc]
    """Numba's type of a value on its way to Python."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(name=f"ResultType({kind})")


@register_model(ResultType)
class ResultModel(models.StructModel):  # type: ignore[misc]
    """The value is the only member."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("value", kind.kind)])


@intrinsic
def to_python(_, value):  # type: ignore[no-untyped-def]
    """Mark a value as one that goes to Python."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        result = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        result.value = arguments[0]
        context.nrt.incref(builder, value, arguments[0])
        return result._getvalue()

    return ResultType(value)(value), code


@box(ResultType)
def box_result(kind, value, c):  # type: ignore[no-untyped-def]
    result = cgutils.create_struct_proxy(kind)(c.context, c.builder, value=value)
    return python_object(c, kind.kind, result.value)


def python_object(c: Any, kind: Any, value: Any) -> Any:
    """Return a value as a Python object, with the reference that it holds."""
    if isinstance(kind, types.Array):
        return python_array(c, kind, value)
    if not isinstance(kind, types.BaseTuple):
        return c.box(kind, value)
    items = c.pyapi.tuple_new(len(kind))
    for place, member in enumerate(kind):
        item = python_object(c, member, c.builder.extract_value(value, place))
        c.pyapi.tuple_setitem(items, place, item)
    if not isinstance(kind, types.BaseNamedTuple):
        return items
    new, cls = constant(c, tuple.__new__), constant(c, kind.instance_class)
    made = c.pyapi.call_function_objargs(new, [cls, items])
    c.pyapi.decref(items)
    return made


def python_array(c: Any, kind: Any, value: Any) -> Any:
    """Do what Numba does for an array, which unpickles the class of arrays each time."""
    number = ir.IntType(32)
    place = cgutils.alloca_once_value(c.builder, value)
    arguments = [
        c.builder.bitcast(place, c.pyapi.voidptr), constant(c, np.ndarray), number(kind.ndim),
        number(int(kind.mutable)), constant(c, np.dtype(str(kind.dtype))),
    ]  # fmt: skip
    signature = ir.FunctionType(c.pyapi.pyobj, [each.type for each in arguments])
    adapt = cgutils.get_or_insert_function(
        c.builder.module, signature, "NRT_adapt_ndarray_to_python_acqref"
    )
    made = c.builder.call(adapt, arguments)
    c.context.nrt.decref(c.builder, kind, value)
    return made


def constant(c: Any, value: Any) -> Any:
    """Return a Python object that is stored beside the compiled function."""
    return c.env_manager.read_const(c.env_manager.add_const(value))
