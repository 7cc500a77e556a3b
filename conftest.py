"""Settings of all tests and examples."""

import gc
import os
import sys
import zlib
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import matplotlib
from hypothesis import settings

# Collecting during imports frees almost nothing.
gc.disable()

matplotlib.use("Agg")
# The same examples every time, and no deadline: a first call may compile for seconds.
settings.register_profile("tsucb", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("tsucb")

# The adapters' examples need the libraries that they adapt to.
collect_ignore = [
    f"src/tsucb/adapters/{library}.py"
    for library, needed in {"river": "river", "obp": "torch"}.items()
    if find_spec(library) is None or find_spec(needed) is None
]


def pytest_collection_finish() -> None:
    """Collect garbage again, rarely, and only among objects that the tests make."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def compile_in_turn() -> None:
    """Let one process of the tests compile a function while others wait for its machine code.

    A byte of a file is locked for each function and signature.
    """
    import fcntl

    from tsucb.compiler.cache import FOLDER, private_folder
    from tsucb.compiler.dispatch import Compiled

    folder = private_folder(FOLDER)
    if folder is None:
        return
    locks = open(folder / "tests.lock", "ab")  # noqa: SIM115, open until the process ends
    compile_now = Compiled.compile

    def compile(self: Any, sig: Any) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}{sig}"
        place = zlib.crc32(name.encode())
        with suppress(OSError):  # the system suspects a deadlock
            fcntl.lockf(locks, fcntl.LOCK_EX, 1, place)
        try:
            return compile_now(self, sig)
        finally:
            fcntl.lockf(locks, fcntl.LOCK_UN, 1, place)

    Compiled.compile = compile


if "PYTEST_XDIST_WORKER" in os.environ and sys.platform != "win32":
    compile_in_turn()
