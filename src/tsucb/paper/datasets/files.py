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
from typing import Any, NamedTuple

from tsucb.extras import require
from tsucb.files import cache_folder, written_whole

SLACK = 1 << 16  # bytes by which a copy of a file may be longer
MOST_BYTES = 1 << 30  # of a download; the longest file, census, has a third of that


class File(NamedTuple):
    """One file of a dataset, as its source publishes it.

    `sha256` and `length` are of the uncompressed content, without the blank lines with which some
    copies end. With `prefix`, only the first `length` bytes are read and verified. `convert` turns
    a published file that is not text into CSV.
    """

    url: str
    sha256: str
    length: int
    prefix: bool = False
    convert: Callable[[Path], bytes] | None = None

    @property
    def name(self) -> str:
        """The file's name in the dataset's folder."""
        path = Path(self.url.rpartition("/")[2])
        return path.name if self.convert is None else f"{path.stem}.csv"

    def find(self, folder: Path) -> Path | None:
        """Return the path in a dataset's folder, plain or with `.gz` added, or None."""
        plain = self.name.removesuffix(".gz")
        found = (folder / name for name in (plain, f"{plain}.gz"))
        return next((path for path in found if path.is_file()), None)

    def read(self, path: Path) -> bytes:
        """Return the content of the file, uncompressed; with `prefix` only its beginning.

        Raise ValueError for a file that is, or expands to, more than twice as long as expected,
        before it fills the memory. Windows' line ends do not make a file that long.
        """
        most = 2 * self.length + SLACK
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as source:
                content = source.read(most + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is no whole gzip file ({error}); delete it and get it again"
            ) from None
        if len(content) > most and not self.prefix:
            raise ValueError(
                f"{path} is another file: its content is longer than {most:,} bytes, where "
                f"{self.length:,} were expected; delete it and get it again"
            )
        return content[:most]

    def verifies(self, content: bytes) -> bool:
        """Return whether the checksum is right, whatever the line ends and final blank lines.

        >>> File("", hashlib.sha256(b"1\\n2").hexdigest(), 3).verifies(b"1\\r\\n2\\r\\n")
        True
        """
        content = content.replace(b"\r\n", b"\n")
        content = content[: self.length] if self.prefix else content.rstrip()
        return len(content) == self.length and hashlib.sha256(content).hexdigest() == self.sha256

    def fetch(self, folder: Path) -> Path:
        """Download the file into a folder if its checksum is right; return its path.

        Raises
        ------
        ConnectionError
            The file cannot be downloaded; the message says how to get it by hand.
        ValueError
            The downloaded file is not the one expected; nothing is left behind.
        """
        what = "save the table in it as CSV, and put that" if self.convert else "and put it"
        by_hand = f"download {self.url} by hand, {what} at {folder / self.name}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as aside:
            part = Path(aside) / self.name
            try:
                download(self.url, part)
            except OSError as error:  # the base class of all errors of requests
                answered = getattr(error, "response", None) is not None
                reason = str(error) if answered else type(error).__name__
                raise ConnectionError(f"cannot reach {self.url} ({reason}); {by_hand}") from None
            except ValueError as error:
                raise ValueError(f"{error}: {by_hand}") from None
            if self.convert is not None:
                part.write_bytes(self.convert(part))
            genuine = False
            with suppress(ValueError):
                genuine = self.verifies(self.read(part))
            if not genuine:
                raise ValueError(
                    f"what came from {self.url} is not the file expected (its checksum differs): "
                    f"{by_hand}"
                )
            with written_whole(folder / self.name) as target, part.open("rb") as source:
                shutil.copyfileobj(source, target)
        return folder / self.name


def download(url: str, path: Path) -> None:
    """Download to a file, with a bar in a terminal; raise ValueError beyond `MOST_BYTES`."""
    require("paper", "requests")
    import requests
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress

    bar = Progress(
        *Progress.get_default_columns(),
        DownloadColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with requests.get(url, stream=True, timeout=30) as answer, path.open("wb") as file, bar:
        answer.raise_for_status()
        length = answer.headers.get("content-length")
        task = bar.add_task(path.name, total=length and int(length))
        for piece in answer.iter_content(1 << 16):
            bar.advance(task, file.write(piece))
            if file.tell() > MOST_BYTES:
                raise ValueError(f"what came from {url} is longer than {MOST_BYTES:,} bytes")


class Dataset(NamedTuple):
    """A dataset of the deep bandit benchmark (Riquelme, Tucker and Snoek 2018).

    `rows`, `features` and `arms` are the sizes of the bandit of the unaltered files. `environment`
    makes that bandit from the contents of the files.
    """

    name: str
    files: tuple[File, ...]
    rows: int
    features: int
    arms: int
    environment: Callable[..., Any]

    def find(self, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the first folder that has all the files; None if there is none."""
        for folder in data_folders(data_dir):
            if all(file.find(folder / self.name) for file in self.files):
                return folder / self.name
        return None

    def contents(self, folder: Path) -> list[bytes]:
        """Return the contents of the files in a folder, without verifying them."""
        return [file.read(file.find(folder) or folder / file.name) for file in self.files]

    def load(self, folder: Path) -> Any:
        """Return the bandit of the files in a folder; raise ValueError for a wrong checksum."""
        contents = self.contents(folder)
        for file, content in zip(self.files, contents, strict=True):
            if not file.verifies(content):
                raise ValueError(
                    f"{file.find(folder)} is not the file of dataset {self.name} (its checksum "
                    "differs): truncated or altered; delete it and run `tsucb data get "
                    f"{self.name}`"
                )
        environment = self.environment(*contents)
        found = (environment.rows, environment.features, environment.arms)
        assert found == (self.rows, self.features, self.arms), found
        return environment


def data_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders to search for datasets: `data_dir`, `TSUCB_DATA`, the user's cache.

    >>> data_folders("here")[0]
    PosixPath('here')
    """
    chosen = [folder for folder in (data_dir, os.environ.get("TSUCB_DATA")) if folder]
    return [*(Path(folder) for folder in chosen), cache_folder() / "data"]
