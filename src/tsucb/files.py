"""Files that are there whole or not at all, and the folder for what can be made again."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: what a killed process left aside then stays there
    fcntl = None  # type: ignore[assignment]

ASIDE = ".part"  # how the names of unfinished files end


def cache_folder() -> Path:
    """The user's cache folder for this package: `TSUCB_CACHE`, or the platform's usual place."""
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
    """A file to write to, which takes the place of `path` once everything is on the disk.

    Whatever happens before, the old file stays as it was. The new one has the old one's mode, or
    the usual one; a link stays a link, and what it points to is replaced.
    """
    target = Path(os.path.realpath(path))
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
    """A new file for the user alone, locked until it is closed: `_sweep` leaves it alone."""
    while True:
        file = open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
        if fcntl is None:
            return file
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # swept away by another process before it was locked


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Put the content at the path, whole or not at all."""
    with written_whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _mode(target: Path) -> int:
    """The permissions of the file, or those a new one gets."""
    with suppress(OSError):
        return target.stat().st_mode & 0o7777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _sweep(target: Path) -> None:
    """Remove what killed processes have left beside the file: what nobody holds a lock on."""
    if fcntl is None:
        return
    for left in target.parent.glob(f".{_escaped(target.name)}.*{ASIDE}"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _escaped(name: str) -> str:
    """The name as a pattern that matches nothing else."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _flush_folder(folder: Path) -> None:
    """Make the renaming itself survive a power failure, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
