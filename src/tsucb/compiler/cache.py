"""Where machine code is kept between processes: slow without it, but never wrong or impossible.

Numba's disk cache does not notice a change in *another* file that a cached function calls, and it
unpickles what it finds. So each folder is named after a hash of every source its code can come
from, belongs to the user (or root) alone, and whatever cannot be read or written is compiled anew.
"""

import atexit
import functools
import hashlib
import os
import pickle
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba import types
from numba.core.caching import CompileResultCacheImpl, IndexDataCacheFile, _Cache
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from tsucb.compiler.memory import KeptType
from tsucb.files import cache_folder

PACKAGE = Path(__file__).parent.parent
# Parts of the package whose code is compiled into nobody else's: they count for their own only.
APART = ("adapters", "cli", "logs", "paper", "service", "sets", "testing")
LIFETIME = 30 * 24 * 3600  # seconds after which a folder that nobody used may go


class KernelCache(_Cache):  # type: ignore[misc]
    """The machine code of one function, in a folder for the classes of each signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        version = "".join(map(str, sys.version_info[:2])) + getattr(sys, "abiflags", "")
        self._name = re.sub(r"[^\w.]", "", name) + f"-py{version}"
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The folder of the package's own classes."""
        return str(kernel_folder(frozenset()))

    def enable(self) -> None:
        """Use the cache, as is the default."""
        self._enabled = True

    def disable(self) -> None:
        """Compile everything anew."""
        self._enabled = False

    def flush(self) -> None:
        """Forget the package's own entries."""
        self._file(frozenset()).flush()

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The machine code for these argument types; None if it is not there or is damaged."""
        try:
            modules = self._modules(signature)
            if modules is None:
                return None
            if modules:  # whatever compiler extensions they need
                target.refresh()
            rtsys.initialize(target)  # all that finished code needs; the compiler loads for 0.3 s
            key = self._key(signature, target.codegen())
            digest, code = self._file(modules).load(key)
            if hashlib.sha256(code).digest() != digest:
                return None
            return CompileResultCacheImpl.rebuild(self, target, pickle.loads(code))
        except Exception:  # nothing there, or whatever a damaged file makes of unpickling
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep the machine code for these argument types, if it can be found and read again."""
        modules = self._modules(signature)
        # What was compiled with an address in it, of a C function say, is of this process alone.
        if modules is None or data.library.has_dynamic_globals:
            return
        key = self._key(signature, data.codegen)
        code = dumps(CompileResultCacheImpl.reduce(self, data))
        file = self._file(modules)
        with suppress(OSError):  # a full or read-only disk
            try:
                file.save(key, (hashlib.sha256(code).digest(), code))
            except Exception:  # a damaged index: begin a new one
                file.flush()
                file.save(key, (hashlib.sha256(code).digest(), code))

    def _modules(self, signature: Any) -> frozenset[str] | None:
        """Modules, beside the package's own, that the code depends on; None if not importable."""
        found: set[str] = {self._function.__module__}
        for kind in getattr(signature, "args", signature):
            for cls in _classes(kind):
                if not _importable(cls):
                    return None
                found.add(cls.__module__)
        if "__main__" in found:
            return None
        return frozenset(name for name in found if not _is_core(name))

    def _file(self, modules: frozenset[str]) -> IndexDataCacheFile:
        return IndexDataCacheFile(str(kernel_folder(modules)), self._name, "")

    def _key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        code = hashlib.sha256(self._function.__code__.co_code).hexdigest()
        return signature, codegen.magic_tuple(), code


def _classes(kind: Any) -> Iterable[type]:
    """The classes of the named tuples in a Numba type."""
    if isinstance(kind, types.BaseNamedTuple):
        yield kind.instance_class
    kept = [kind.contents] if isinstance(kind, KeptType) else []
    for part in (*kept, *(kind.types if isinstance(kind, types.BaseTuple) else ())):
        yield from _classes(part)


def _importable(cls: type) -> bool:
    """Whether another process finds the very same class by its name."""
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls and cls.__module__ != "__main__"


def _is_core(module: str) -> bool:
    package, _, rest = module.partition(".")
    return package == PACKAGE.name and rest.partition(".")[0] not in APART


@functools.cache
def kernel_folder(modules: frozenset[str]) -> Path:
    """The folder for code that depends on the package and on these other modules."""
    name = f"kernels-{identity(modules)[:16]}"
    with suppress(OSError, RuntimeError):  # no home, or a home that cannot be written
        folder = Path(os.path.realpath(cache_folder())) / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _is_private(folder):
            with suppress(OSError):  # a filled cache that cannot be written is a good one
                os.utime(folder)
                _clear_old(folder)
            return folder
    folder = _own_folder() / name
    folder.mkdir(exist_ok=True)
    return folder


def processor_name() -> str:
    """Return LLVM's name of this machine's processor."""
    return str(llvmlite.binding.get_host_cpu_name())


@functools.cache
def _own_folder() -> Path:
    """A new folder for this process alone, for want of a better place."""
    folder = Path(tempfile.mkdtemp(prefix="tsucb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_private(folder: Path) -> bool:
    """Whether nobody but the user (or root) can put anything into the folder, or in its place."""
    if not hasattr(os, "getuid"):
        return True
    for place in (folder, *folder.parents):
        found = place.lstat()
        writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder such as /tmp others can add files, but not replace ours.
        if writable and (place == folder or not found.st_mode & stat.S_ISVTX):
            return False
        if stat.S_ISLNK(found.st_mode) or found.st_uid not in (0, os.getuid()):
            return False
    return True


def _clear_old(folder: Path) -> None:
    """Remove the folders beside this one that have not been used for long."""
    for other in folder.parent.glob("kernels-*"):
        if other != folder and other.lstat().st_mtime < time.time() - LIFETIME:
            shutil.rmtree(other, ignore_errors=True)


@functools.cache
def identity(modules: frozenset[str] = frozenset()) -> str:
    """A hash of what machine code depends on: versions, and all sources it can come from."""
    digest = hashlib.sha256()
    for version in (numba.__version__, llvmlite.__version__, sys.version, platform.machine()):
        digest.update(version.encode())
    files = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in APART]
    for name in modules:
        files += _sources(sys.modules[name])
    for path in sorted(set(files)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _sources(module: ModuleType) -> list[Path]:
    """The files of the package a module belongs to; of ours, those of its folder."""
    file = Path(module.__file__ or "")
    names = module.__name__.split(".")
    if names[0] == PACKAGE.name:
        return sorted((PACKAGE / names[1]).rglob("*.py"))
    top = sys.modules.get(names[0])
    if len(names) > 1 and top is not None and top.__file__:
        return sorted(Path(top.__file__).parent.rglob("*.py"))
    return [file]
