"""An argument of compiled code that decides whether other threads can run Python meanwhile.

Numba's `nogil` is an option of a function, which would have to be compiled twice.
"""

from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, models, register_model, unbox


class UnlockType(types.Type):  # type: ignore[misc]
    """Numba's type of a bool: whether to release the interpreter's lock during the call.

    It must be the type of the last argument, as others are converted with the lock.
    """


UNLOCK = UnlockType("Unlock")
register_model(UnlockType)(models.BooleanModel)


@unbox(UnlockType)
def unbox_unlock(kind, given, c):  # type: ignore[no-untyped-def]
    wanted = cgutils.is_not_null(c.builder, c.pyapi.object_istrue(given))
    thread = cgutils.alloca_once_value(c.builder, cgutils.get_null_value(cgutils.voidptr_t))
    with c.builder.if_then(wanted, likely=False):
        c.builder.store(c.pyapi.save_thread(), thread)

    def lock() -> None:
        with c.builder.if_then(wanted, likely=False):
            c.pyapi.restore_thread(c.builder.load(thread))

    return NativeValue(wanted, cleanup=lock)
