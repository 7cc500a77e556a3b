"""Datasets and their files: find, read, verify and download them.

A dataset `NAME` lives in a subfolder `NAME` of a data folder, its files as their source publishes
them, compressed with gzip or not.
"""

import gzip
import hashlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from tsucb.extras import require
from tsucb.files import cache_folder, written_whole

SLACK = 1 << 16  # bytes that a copy of a file may have more
MOST_BYTES = 1 << 30  # of a download; the longest file, census, has a third of it


class File(NamedTuple):
    """One file of a dataset, as its source publishes it.

    `sha256` and `length` are of the uncompressed content without blank lines at its end, which
    some copies have. With `prefix`, only the first `length` bytes are read and verified. `convert`
    makes the file from what the source publishes if that is not text.
    """

    name: str
    url: str
    sha256: str
    length: int
    prefix: bool = False
    convert: Callable[[Path], bytes] | None = None


class Dataset(NamedTuple):
    """A dataset of the deep bandit benchmark (Riquelme, Tucker and Snoek 2018).

    `rows`, `features` and `arms` are those of the whole, unaltered files. `environment` makes the
    bandit from a folder with the files, without verifying them.
    """

    name: str
    files: tuple[File, ...]
    rows: int
    features: int
    arms: int
    environment: Callable[[Path], Any]

    def load(self, folder: Path) -> Any:
        """Read the files in a folder; raise ValueError unless their checksums are right."""
        for file in self.files:
            path = existing_file(folder, file)
            if not is_genuine(file, read_content(file, path)):
                raise ValueError(
                    f"{path} is not the file of dataset {self.name} (its checksum differs): "
                    f"truncated or altered; delete it and run `tsucb data get {self.name}`"
                )
        environment = self.environment(folder)
        found = (environment.rows, environment.features, environment.arms)
        assert found == (self.rows, self.features, self.arms), found
        return environment


def data_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders searched for datasets: `data_dir`, `TSUCB_DATA`, the user's cache.

    >>> data_folders("here")[0]
    PosixPath('here')
    """
    chosen = [folder for folder in (data_dir, os.environ.get("TSUCB_DATA")) if folder]
    return [*(Path(folder) for folder in chosen), cache_folder() / "data"]


def find_dataset(dataset: Dataset, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the first folder that holds all the files of a dataset; None if there is none."""
    for folder in data_folders(data_dir):
        if all(find_file(folder / dataset.name, file) for file in dataset.files):
            return folder / dataset.name
    return None


def find_file(folder: Path, file: File) -> Path | None:
    """Return the file in a dataset's folder, plain or with `.gz` added; None without either."""
    plain = file.name.removesuffix(".gz")
    for name in (plain, f"{plain}.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def existing_file(folder: Path, file: File) -> Path:
    """Return the file in a dataset's folder; raise FileNotFoundError if it is missing."""
    path = find_file(folder, file)
    if path is None:
        raise FileNotFoundError(f"{folder} holds no {file.name}; its source is {file.url}")
    return path


def read_content(file: File, path: Path) -> bytes:
    """Return the content of a dataset's file, uncompressed; with `prefix` its beginning.

    A file that is much longer than the dataset, or expands to much more, is refused before it
    fills the memory. Other line ends are allowed for.
    """
    most = 2 * file.length + SLACK
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as source:
            content = source.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is no whole gzip file ({error}); delete it and get it again"
        ) from None
    if len(content) > most and not file.prefix:
        raise ValueError(
            f"{path} is another file: its content is longer than {most:,} bytes, where "
            f"{file.length:,} were expected; delete it and get it again"
        )
    return content[:most]


def is_genuine(file: File, content: bytes) -> bool:
    """Return whether the checksum is right, whatever the line ends and blank lines at the end."""
    content = content.replace(b"\r\n", b"\n")
    content = content[: file.length] if file.prefix else content.rstrip()
    return len(content) == file.length and hashlib.sha256(content).hexdigest() == file.sha256


def fetch_file(file: File, folder: Path) -> Path:
    """Download a file into a folder; put it in place only if its checksum is right.

    Raises
    ------
    ConnectionError
        The file cannot be downloaded; the message says how to get it by hand.
    ValueError
        The downloaded file is not the one expected; nothing is left behind.
    """
    require("paper", "pooch")
    import pooch

    what = "save the table in it as CSV, and put that" if file.convert else "and put it"
    by_hand = f"download {file.url} by hand, {what} at {folder / file.name}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(suffix=Path(file.name).suffix) as part:
        download = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
        try:
            download(file.url, Bounded(part, MOST_BYTES), None)
        except TooLong:
            raise ValueError(
                f"what came from {file.url} is longer than {MOST_BYTES:,} bytes: {by_hand}"
            ) from None
        except OSError as error:  # the base class of all errors of requests
            answered = getattr(error, "response", None) is not None
            reason = str(error) if answered else type(error).__name__
            raise ConnectionError(f"cannot reach {file.url} ({reason}); {by_hand}") from None
        part.flush()
        if file.convert is not None:
            converted = file.convert(Path(part.name))
            part.seek(0)
            part.truncate()
            part.write(converted)
            part.flush()
        genuine = False
        with suppress(ValueError):
            genuine = is_genuine(file, read_content(file, Path(part.name)))
        if not genuine:
            raise ValueError(
                f"what came from {file.url} is not the file expected (its checksum differs): "
                f"{by_hand}"
            )
        part.seek(0)
        with written_whole(folder / file.name) as target:
            shutil.copyfileobj(part, target)
    return folder / file.name


class TooLong(Exception):
    """A download is longer than a file may be."""


class Bounded:
    """A file that raises `TooLong` when more than `most` bytes are written."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self.file = file
        self.left = most

    def write(self, data: bytes) -> int:
        """Write the data."""
        self.left -= len(data)
        if self.left < 0:
            raise TooLong
        return self.file.write(data)

    def flush(self) -> None:
        """Flush the file."""
        self.file.flush()
