"""A copy of a store, also while it is served."""

import os
from pathlib import Path

import apsw

from tsucb.service.sqlite import FILE
from tsucb.service.store import StoreError


def backup(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write a copy of a store as of now, also while a service writes to it.

    To restore it, put it into an empty folder under the name `events.sqlite`.
    """
    source = Path(folder) / FILE
    if not source.is_file():
        raise StoreError(f"there is no log in {folder}")
    if Path(path).exists():
        raise StoreError(f"{path} is there already; give another name")
    try:
        Path(path).touch(mode=0o600)  # for its owner alone, as the log is; SQLite fills it
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(10_000)
        connection.execute("VACUUM INTO ?", (str(path),))
        connection.close()
    except apsw.Error as error:
        raise StoreError(f"{source} cannot be copied: {error}") from error
