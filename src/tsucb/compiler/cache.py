"""Keep machine code on disk between processes: one file per function and signature.

A file's name is a hash of everything that the code depends on: the function, the types of its
arguments, options, versions, the processor, and the sources that it can come from. The same text is
inside the file, under a checksum, and is compared when the file is read. A file is written under
another name and then renamed, so processes need no lock and no index. Unpickling runs code, so a
file is read only if nobody but the user or root can have written it. If reading fails, the function
is compiled.
"""

import functools
import hashlib
import logging
import os
import pickle
import platform
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba import types
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from tsucb.compiler.memory import KeptType
from tsucb.files import cache_folder

PACKAGE = Path(__file__).parent.parent
# Folders of the package whose code is only compiled into functions of these folders.
APART = (
    "adapters", "agent", "cli", "contexts", "evaluation", "logs", "pages", "paper", "service",
    "sets", "testing",
)  # fmt: skip
FOLDER = "tsucb-kernels"
NAME = re.compile(r"[\w.]+-[0-9a-f]{32}\.kernel(\.[0-9a-f]{16}\.part)?")
MAGIC = b"tsucb kernel 1\n"
DAY = 24 * 3600
LIFETIME = 30 * DAY  # seconds after its last use until a file is removed
# Settings of Numba that change the code.
SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX")

log = logging.getLogger(__name__)


class KernelCache:
    """The machine code of one function by signature, as Numba's dispatcher asks for it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options

    @property
    def cache_path(self) -> str | None:
        """The folder of the files; None if there is no folder that only this user can write to."""
        folder = private_folder(FOLDER)
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the machine code for these argument types; None if it has to be compiled."""
        try:
            rtsys.initialize(
                target
            )  # finished code needs no more; loading the compiler takes 0.3 s
            key = self._key(signature, target.codegen())
            content = None if key is None else read_file(self._name(key), key)
            if content is None:
                return None
            found = CompileResult._rebuild(target, *pickle.loads(content))
            return found if found.signature.args == arguments_of(signature) else None
        except Exception:
            log.debug("%s is compiled again", self._function.__qualname__, exc_info=True)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write machine code for these argument types to disk, if another process can use it."""
        # Code with an address in it, such as that of a C function, is valid in this process only.
        if result.library.has_dynamic_globals:
            return
        try:
            key = self._key(signature, result.target_context.codegen())
            if key is not None:
                write_file(self._name(key), key, dumps(result._reduce()))
        except Exception:  # a full or read-only disk; something that cannot be pickled
            log.debug("%s is not kept", self._function.__qualname__, exc_info=True)

    def _key(self, signature: Any, codegen: Any) -> bytes | None:
        """Return all that the code depends on; None if another process cannot have equal code."""
        function, kinds = self._function, arguments_of(signature)
        classes = [cls for kind in kinds for cls in classes_in(kind)]
        modules = frozenset([function.__module__, *(cls.__module__ for cls in classes)])
        if function.__closure__ or "__main__" in modules or not all(map(is_importable, classes)):
            return None
        lines = [
            f"{function.__module__}.{function.__qualname__}",
            hashlib.sha256(function.__code__.co_code).hexdigest(),
            *map(str, kinds),
            *(f"{cls.__module__}.{cls.__qualname__}" for cls in classes),
            *(f"{name}={value}" for name, value in sorted(self._options.items())),
            *(f"{name}={getattr(numba.config, name, None)}" for name in SETTINGS),
            os.environ.get("TSUCB_COMPILER", ""),
            *map(str, codegen.magic_tuple()),
            identity(modules),
        ]
        return "\n".join(lines).encode()

    def _name(self, key: bytes) -> str:
        module = self._function.__module__.rpartition(".")[2]
        name = re.sub(r"[^\w.]", "", f"{module}.{self._function.__qualname__}")[:100]
        return f"{name}-{hashlib.sha256(key).hexdigest()[:32]}.kernel"


def arguments_of(signature: Any) -> tuple[Any, ...]:
    """Return the types of the arguments of a signature, or of a tuple of types."""
    return tuple(getattr(signature, "args", signature))


def classes_in(kind: Any) -> Iterator[type]:
    """Yield the classes of the named tuples in a Numba type."""
    if isinstance(kind, types.BaseNamedTuple | KeptType):
        yield kind.instance_class
    for part in kind.types if isinstance(kind, types.BaseTuple | KeptType) else ():
        yield from classes_in(part)


def is_importable(cls: type) -> bool:
    """Return whether the class is found by its module and name, as another process looks it up."""
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


# Files


def read_file(name: str, key: bytes) -> bytes | None:
    """Return the content of a file written for this key; None if there is no trusted file."""
    folder = private_folder(FOLDER)
    if folder is None:
        return None
    path = folder / name
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or not is_own(about):
            return None
        data = file.read()
    if about.st_mtime < time.time() - DAY:
        with suppress(OSError):  # a filled cache that cannot be written to works as well
            os.utime(path)
    head, body = data[: len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    size = int.from_bytes(body[:8], "little")
    if head != MAGIC + hashlib.sha256(body).digest() or body[8 : 8 + size] != key:
        return None
    return body[8 + size :]


def write_file(name: str, key: bytes, content: bytes) -> None:
    """Write a file for this key, completely or not at all."""
    folder = private_folder(FOLDER)
    if folder is None:
        return
    body = len(key).to_bytes(8, "little") + key + content
    aside = folder / f"{name}.{secrets.token_hex(8)}.part"
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(aside, folder / name)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    remove_old(folder)


@functools.cache
def remove_old(folder: Path) -> None:
    """Remove files of this module that nobody has used for `LIFETIME`, once per process."""
    for path in folder.iterdir():
        unfinished = path.name.endswith(".part")
        if NAME.fullmatch(path.name):
            with suppress(OSError):
                about = path.lstat()
                old = about.st_mtime < time.time() - (DAY if unfinished else LIFETIME)
                if old and stat.S_ISREG(about.st_mode):
                    path.unlink()


@functools.cache
def private_folder(name: str) -> Path | None:
    """Return a folder in the user's cache that nobody else can write to; make it if needed.

    Return None if there is none.
    """
    try:
        folder = Path(os.path.realpath(cache_folder())) / name
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(missing):
            with suppress(FileExistsError):  # another process has just made it
                place.mkdir(mode=0o700)
        if is_private(folder):
            return folder
        log.warning("machine code is not kept: other users can write to %s", folder)
    except (OSError, RuntimeError) as error:  # no home, or a home that cannot be written
        log.info("machine code is not kept: %s", error)
    return None


def is_private(folder: Path) -> bool:
    """Return whether no other user can write to the folder, or replace it by another."""
    about = folder.lstat()
    if stat.S_ISLNK(about.st_mode) or not is_own(about):
        return False
    for place in folder.parents:
        about = place.lstat()
        allowed = stat.S_IWGRP if is_own_group(about.st_gid) else 0
        if about.st_mode & stat.S_ISVTX:  # such as /tmp: others can add files but not rename ours
            allowed = stat.S_IWGRP | stat.S_IWOTH
        if stat.S_ISLNK(about.st_mode) or not is_own(about, allowed):
            return False
    return True


def is_own(about: os.stat_result, allowed: int = 0) -> bool:
    """Return whether a file belongs to the user or root, and no other user can write to it.

    `allowed` are mode bits, of group or others, that may be set all the same. On a system without
    users, return True.
    """
    if not hasattr(os, "getuid"):
        return True
    writable = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~allowed
    return about.st_uid in (0, os.getuid()) and not writable


def is_own_group(group: int) -> bool:
    """Return whether the user is the group's only member, as on systems with umask 002."""
    try:
        import grp
        import pwd

        user, found = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    return found.gr_name == user and set(found.gr_mem) <= {user}


def processor_name() -> str:
    """Return LLVM's name of this machine's processor."""
    return str(llvmlite.binding.get_host_cpu_name())


# Sources


@functools.cache
def identity(modules: frozenset[str] = frozenset()) -> str:
    """Return a hash of versions, and of all sources that the modules' code can come from."""
    digest = hashlib.sha256()
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.version
    digest.update("\n".join((*versions, platform.machine())).encode())
    further = (path for name in modules for path in further_sources(name))
    for path in sorted({*core_sources(), *further}):
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def core_sources() -> tuple[Path, ...]:
    """Return the files of the package whose code may be compiled into any function."""
    return tuple(
        path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in APART
    )


@functools.cache
def apart_sources() -> tuple[Path, ...]:
    """Return the files with compiled functions in the `APART` folders."""
    files = (path for part in APART for path in (PACKAGE / part).rglob("*.py"))
    return tuple(path for path in files if b"tsucb.compiler" in path.read_bytes())


def further_sources(name: str) -> Iterable[Path]:
    """Return the files, other than `core_sources`, that a module's code can come from.

    For a module of another package these are all files of that package.
    """
    module, top = sys.modules[name], sys.modules.get(name.partition(".")[0])
    own = Path(module.__file__ or "")
    if own in core_sources():
        return ()
    if own.is_relative_to(PACKAGE):
        return (own, *apart_sources())
    if "." in name and top is not None and top.__file__:
        return Path(top.__file__).parent.rglob("*.py")
    return (own,)
