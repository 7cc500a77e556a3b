"""Where the files of the datasets are, how to open them, and how to fetch them.

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
from typing import IO, NamedTuple

from tsucb.files import cache_folder, written_whole

SLACK = 1 << 16  # bytes that any copy of a file may have more
MOST_BYTES = 1 << 30  # of a download; the longest file, census, has a third of it


class File(NamedTuple):
    """One file of a dataset, as its source publishes it.

    `sha256` and `length` are of the content: uncompressed, and without the blank lines at its end,
    which copies of the same file have or lack. `prefix` says that the file goes on beyond `length`
    bytes and that only its beginning is verified; `convert` makes the file from what the source
    publishes, where that is no text.
    """

    name: str
    url: str
    sha256: str
    length: int
    prefix: bool = False
    convert: Callable[[Path], bytes] | None = None


def data_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders searched for datasets, in order: the one given, `TSUCB_DATA`, the user's cache.

    >>> data_folders("here")[0]
    PosixPath('here')
    """
    chosen = [folder for folder in (data_dir, os.environ.get("TSUCB_DATA")) if folder]
    return [*(Path(folder) for folder in chosen), cache_folder() / "data"]


def find_file(folder: Path, file: File) -> Path | None:
    """The file in a dataset's folder, plain or with `.gz` added; `None` if neither is there."""
    plain = file.name.removesuffix(".gz")
    for name in (plain, f"{plain}.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def existing_file(folder: Path, file: File) -> Path:
    """The file in a dataset's folder, or an error that names it."""
    path = find_file(folder, file)
    if path is None:
        raise FileNotFoundError(f"{folder} holds no {file.name}; its source is {file.url}")
    return path


def read_content(file: File, path: Path) -> bytes:
    """The content of a dataset's file, uncompressed; of one that goes on, the beginning.

    A file is read no further than the dataset is long, with room for other line ends, so that one
    that is much longer, or expands to much more, is refused before it fills the memory.
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
    """Whether the content is the file's, whatever its line ends and the blank lines at its end."""
    content = content.replace(b"\r\n", b"\n")
    content = content[: file.length] if file.prefix else content.rstrip()
    return len(content) == file.length and hashlib.sha256(content).hexdigest() == file.sha256


def fetch_file(file: File, folder: Path) -> Path:
    """Download a file into a folder, verify its checksum, and only then put it in place.

    Raises
    ------
    ConnectionError
        It cannot be downloaded; the message says what to put where by hand.
    ValueError
        What was downloaded is not the file expected; nothing is left behind.
    """
    try:
        import pooch
    except ImportError:
        raise ValueError(
            "downloading needs pooch; install it with: pip install 'tsucb[data]'"
        ) from None

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
        except OSError as error:  # every error of requests is one
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
    """More came than a file may have."""


class Bounded:
    """A file that takes no more than so many bytes."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self.file = file
        self.left = most

    def write(self, data: bytes) -> int:
        """Write, unless that would be too much."""
        self.left -= len(data)
        if self.left < 0:
            raise TooLong
        return self.file.write(data)

    def flush(self) -> None:
        """Hand on what is buffered."""
        self.file.flush()
