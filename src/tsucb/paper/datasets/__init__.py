"""The seven datasets of the deep bandit benchmark (Riquelme, Tucker and Snoek 2018).

Each is an environment for `tsucb.simulate`, read from the files that its source publishes.
"""

import os
from typing import Any

from tsucb.paper.datasets.files import Dataset, data_folders
from tsucb.paper.datasets.sources import DATASETS

__all__ = ["DATASETS", "Dataset", "data_folders", "fetch", "load"]


def find(name: str) -> Dataset:
    """Return the dataset of a name; raise ValueError, with all names, if there is none."""
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; the datasets are {', '.join(DATASETS)}")
    return DATASETS[name]


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Any:
    """Return the environment of a dataset, read from its files.

    Parameters
    ----------
    name
        adult, census, covertype, financial, jester, mushroom or statlog.
    data_dir
        Where to look first; then where `TSUCB_DATA` points, then the user's cache folder. The
        files lie in a subfolder with the dataset's name.

    References
    ----------
    Riquelme, Tucker and Snoek (2018), Deep Bayesian Bandits Showdown, Appendix A.
    """
    dataset = find(name)
    folder = dataset.find(data_dir)
    if folder is None:
        folders = data_folders(data_dir)
        files = " and ".join(file.name for file in dataset.files)
        raise FileNotFoundError(
            f"dataset {name} is not in {' or '.join(map(str, folders))}; run `tsucb data get "
            f"{name}`, or put {files} into {folders[0] / name}"
        )
    return dataset.load(folder)


def fetch(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Download the files of a dataset that are not there yet; return their paths.

    They go to `data_dir`, else to where `TSUCB_DATA` points, else to the user's cache folder.
    """
    dataset = find(name)
    folder = dataset.find(data_dir) or data_folders(data_dir)[0] / name
    return [str(file.find(folder) or file.fetch(folder)) for file in dataset.files]
