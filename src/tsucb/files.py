"""Write files atomically, lock and read them, and find the user's cache folder."""

import glob
import os
import secrets
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: temporary files of killed processes are then not removed
    fcntl = None  # type: ignore[assignment]

ASIDE = ".part"  # suffix of unfinished files


def cache_folder() -> Path:
    """Return the user's cache folder: `TSUCB_CACHE`, or the platform's usual place."""
    if chosen := os.environ.get("TSUCB_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or str(Path.home())
    elif sys.platform == "darwin":
        root = str(Path.home() / "Library" / "Caches")
    else:
        root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "tsucb"


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` once all of it is on the disk.

    On any error the old file stays unchanged. The new file gets the permissions of the old one, or
    the usual ones; if `path` is a link, the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}; make it before writing there")
    _sweep(target)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}{ASIDE}")
    try:
        with _new(aside) as file:
            yield file
            file.flush()
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), _mode(target))
            os.fsync(file.fileno())
            os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    _flush_folder(target.parent)


def _new(path: Path) -> BinaryIO:
    """Open a new file that only the user may read, locked so that `_sweep` keeps it."""
    while True:
        file = open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
        if fcntl is None:
            return file
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write the content to the path, all of it or nothing.

    UTF-8 cannot encode half of a surrogate pair, as a name from outside may have it: it becomes a
    `?`.
    """
    with written_whole(path) as file:
        file.write(content.encode(errors="replace") if isinstance(content, str) else content)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the values of a TOML file; raise ValueError if it cannot be parsed."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {' '.join(str(error).split())}") from None


def _mode(target: Path) -> int:
    """Return the permissions of the file, or of a new file if there is none."""
    with suppress(OSError):
        return target.stat().st_mode & 0o7777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _sweep(target: Path) -> None:
    """Remove the unfinished files of killed processes: nobody holds their locks."""
    if fcntl is None:
        return
    for left in target.parent.glob(f".{glob.escape(target.name)}.*{ASIDE}"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def locked(path: str | os.PathLike[str]) -> int:
    """Open and lock a file or a folder; return the handle, whose closing releases the lock.

    Raise BlockingIOError if another process holds the lock. On Windows there are no locks.
    """
    # NFS locks a file only if it is open for writing.
    handle = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _flush_folder(folder: Path) -> None:
    """Flush the folder, so that the renaming survives a power failure."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
