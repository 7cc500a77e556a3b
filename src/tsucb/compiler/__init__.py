"""Compile functions with Numba and choose them by class; the one folder with private Numba."""

from tsucb.compiler.dispatch import (
    MissingImplementation,
    Stream,
    class_of,
    compiled,
    generic,
    held,
    hook,
    implements,
    in_compiled_code,
    offers,
    run,
    shared,
)
from tsucb.compiler.notice import announce_compilation

__all__ = [
    "MissingImplementation",
    "Stream",
    "class_of",
    "compiled",
    "generic",
    "held",
    "hook",
    "implements",
    "in_compiled_code",
    "offers",
    "run",
    "shared",
]

announce_compilation()
