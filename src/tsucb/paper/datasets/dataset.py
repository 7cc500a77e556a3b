"""A dataset: its files, its size, and how it is read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tsucb.paper.datasets.files import (
    File,
    data_folders,
    existing_file,
    find_file,
    is_genuine,
    read_content,
)


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


def find_dataset(dataset: Dataset, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the first folder that holds all the files of a dataset; None if there is none."""
    for folder in data_folders(data_dir):
        if all(find_file(folder / dataset.name, file) for file in dataset.files):
            return folder / dataset.name
    return None
