"""What is known about a dataset before it is read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tsucb.datasets.files import File, data_folders, find_file


class Dataset(NamedTuple):
    """A dataset of the deep bandit benchmark (Riquelme, Tucker and Snoek 2018).

    `rows`, `features` and `arms` are what the whole, unaltered files give; `read` makes the
    environment from a folder that holds the files.
    """

    name: str
    title: str
    files: tuple[File, ...]
    rows: int
    features: int
    arms: int
    read: Callable[[Path], Any]

    def load(self, folder: Path) -> Any:
        """Read the files in a folder, and refuse any but the whole, unaltered dataset."""
        environment = self.read(folder)
        found = {
            "rows": environment.rows,
            "features": environment.features,
            "arms": environment.arms,
        }
        for what, count in found.items():
            expected = getattr(self, what)
            if count != expected:
                names = " and ".join(file.name for file in self.files)
                raise ValueError(
                    f"{names} in {folder} give {count:,} {what} where {expected:,} were expected: "
                    f"truncated or altered; get the dataset again with `tsucb data get {self.name}`"
                )
        return environment


def find_dataset(dataset: Dataset, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The first folder that holds all the files of a dataset; `None` if there is none."""
    for folder in data_folders(data_dir):
        if all(find_file(folder / dataset.name, file) for file in dataset.files):
            return folder / dataset.name
    return None
