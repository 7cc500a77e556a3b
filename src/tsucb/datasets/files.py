"""Where the files of the datasets are, how to open them, and how to fetch them.

A dataset `NAME` lives in a subfolder `NAME` of a data folder, its files as their source publishes
them, compressed with gzip or not.
"""

import gzip
import hashlib
import os
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tsucb.files import cache_folder


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
    convert: Callable[[bytes], bytes] | None = None


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


def read_bytes(path: Path) -> bytes:
    """The content of a file, uncompressed if its name ends in `.gz`."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is no whole gzip file ({error}); delete it and get it again"
        ) from None


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
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as aside:
        part = Path(aside) / file.name
        download = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
        try:
            download(file.url, str(part), None)
        except OSError as error:  # every error of requests is one
            answered = getattr(error, "response", None) is not None
            reason = str(error) if answered else type(error).__name__
            raise ConnectionError(f"cannot reach {file.url} ({reason}); {by_hand}") from None
        if file.convert is not None:
            part.write_bytes(file.convert(part.read_bytes()))
        if not verify_file(file, part):
            raise ValueError(
                f"what came from {file.url} is not the file expected (its checksum differs): "
                f"{by_hand}"
            )
        os.replace(part, folder / file.name)
    return folder / file.name


def verify_file(file: File, path: Path) -> bool:
    """Whether a file's content has the length and checksum it should have."""
    try:
        content = read_bytes(path)
    except ValueError:
        return False
    content = content[: file.length] if file.prefix else content.rstrip()
    return len(content) == file.length and hashlib.sha256(content).hexdigest() == file.sha256
