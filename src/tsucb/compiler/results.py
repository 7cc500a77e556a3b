"""Return arrays and named tuples of compiled code to Python without running Python code.

Numba calls the class of each named tuple that it returns, and unpickles the class of arrays for
each array. If a signal handler raises in there, Numba goes on with a missing object, which crashes
the interpreter. Here `tuple.__new__`, which is C, makes the tuples.
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
    """Numba's type of a value that `box_result` turns into a Python object."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(name=f"ResultType({kind})")


@register_model(ResultType)
class ResultModel(models.StructModel):  # type: ignore[misc]
    """A structure with the value as its only member."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("value", kind.kind)])


@intrinsic
def to_python(_, value):  # type: ignore[no-untyped-def]
    """Return the value as a `ResultType`, which goes to Python."""

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
    """Return a Python object for the value, whose reference it takes over."""
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
    """Return a NumPy array; as Numba does, but without unpickling the class of arrays."""
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
    """Return a Python object, which is stored with the compiled function."""
    return c.env_manager.read_const(c.env_manager.add_const(value))
