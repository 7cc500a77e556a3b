"""Compile functions with Numba, choose them by type, and never run a stale one from the cache.

Two facts of Numba shape this file. A compiled function that receives other compiled functions as
arguments misses the disk cache in every process; so policies, models and environments are named
tuples, and a `generic` function picks the implementation by the class of its first argument. And
the disk cache does not notice a change in *another* file that a cached function calls; so the
cache folder is named after a hash of the package's sources.
"""

import functools
import getpass
import hashlib
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
from numba import types
from numba.core.caching import FunctionCache
from numba.extending import overload

from tsucb.files import cache_folder

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be reordered (that is what lets them use vector instructions), but infinities and NaN
# keep their meaning: an untried arm has an infinite radius. Division by zero gives infinity.
OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
}


@functools.cache
def kernel_folder() -> Path:
    """Where machine code is cached: one folder for each state of the package's sources."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for version in (numba.__version__, llvmlite.__version__, sys.version, platform.machine()):
        digest.update(version.encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    for root in (cache_folder(), Path(tempfile.gettempdir()) / f"tsucb-{getpass.getuser()}"):
        folder = root / f"kernels-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:  # a read-only home: fall back to the temporary folder
            continue
        return folder
    raise OSError(f"cannot write compiled code to {cache_folder()}; set TSUCB_CACHE to a folder")


class OwnClassesCache(FunctionCache):  # type: ignore[misc]
    """A disk cache without classes from outside the package.

    The index of the cache holds the classes of the arguments. One from a user's script could not
    be found by the next program, which would then fail to read the whole index.
    """

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code for these argument types, if all classes are the package's."""
        if all(_is_own(kind) for kind in getattr(sig, "args", sig)):
            super().save_overload(sig, data)


def _is_own(kind: Any) -> bool:
    if isinstance(kind, types.BaseNamedTuple):
        if kind.instance_class.__module__.partition(".")[0] != "tsucb":
            return False
        return all(_is_own(field) for field in kind.types)
    if isinstance(kind, types.StructRef):
        return all(_is_own(field) for field in kind.field_dict.values())
    return True


def compiled(function: F, nogil: bool = True) -> F:
    """Compile a function on its first call; keep the machine code on disk; drop the GIL, or not."""
    result: F = numba.njit(nogil=nogil, **OPTIONS)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(kernel_folder())
    try:
        result.__dict__["_cache"] = OwnClassesCache(function)
    finally:
        numba.config.CACHE_DIR = before
    return result


def inlined(function: F) -> F:
    """Compile a small helper for use inside compiled functions only (it is cached with them)."""
    result: F = numba.njit(nogil=True, **OPTIONS)(function)
    return result


Condition = Callable[..., bool]


def implementations(
    function: Callable[..., Any],
) -> dict[type, list[tuple[Condition, Callable[..., Any]]]]:
    """The compiled implementations of a `generic` function, by class."""
    table: dict[type, list[tuple[Condition, Callable[..., Any]]]] = function.__dict__.setdefault(
        "implementations", {}
    )
    return table


def generic(function: F, inline: str = "never") -> F:
    """Let compiled code call `function(first, …)`, implemented for each class of `first`.

    In plain Python the function itself runs, typically `return first.method(…)`. In compiled
    code the implementation registered with `@implements(function, cls)` is compiled in.
    """
    table = implementations(function)

    @overload(function, jit_options=OPTIONS, strict=False, inline=inline)
    def pick(*arguments: Any) -> Callable[..., Any] | None:
        first = arguments[0]
        if not isinstance(first, types.BaseNamedTuple):
            return None
        for condition, implementation in table.get(first.instance_class, []):
            if condition(*arguments):
                return implementation
        return None

    return function


def generic_inlined(function: F) -> F:
    """A `generic` function whose body is copied to where it is called.

    For the few that the loop calls at every step: the reference counts of all the arrays in their
    arguments then need no upkeep (15 % of a step at ten arms), at the price of slower compilation.
    """
    return generic(function, inline="always")


def implements(
    function: Callable[..., Any], *classes: type, where: Condition = lambda *_: True
) -> Callable[[F], F]:
    """Register the compiled implementation of a `generic` function for the classes given.

    Of several for one class, the first registered is taken whose `where` holds for the Numba
    types of the arguments; the others are then not compiled.
    """

    def register(implementation: F) -> F:
        for cls in classes:
            implementations(function).setdefault(cls, []).append((where, implementation))
        return implementation

    return register


def second_is_real(first: Any, second: Any, *rest: Any) -> bool:
    """Whether the second argument is a float, as `math.inf` is, and not a whole number."""
    return isinstance(second, types.Float)
