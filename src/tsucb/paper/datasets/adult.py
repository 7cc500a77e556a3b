"""UCI Adult: a person's occupation by the other columns of the 1994 census."""

from pathlib import Path

import numpy as np
import pandas as pd

from tsucb.numeric.arrays import Integers
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table

SOURCE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
FILES = (
    File(
        name="adult.data",
        url=f"{SOURCE}/adult.data",
        sha256="ea895aae047aa83ca757e3024a029be8b11806c656ad2c5b1efd8cec28af19ad",
        length=3_974_303,
    ),
    File(
        name="adult.test",
        url=f"{SOURCE}/adult.test",
        sha256="cef936265eaa826d9b44c86da611553fb99772b632b60ef8577a97fe8efdb2e3",
        length=2_003_151,
    ),
)
OCCUPATION = 6


def read_columns(folder: Path) -> tuple[pd.DataFrame, Integers]:
    """Return both parts together, without the rows that have a missing value ('?').

    The labels of income end with a dot in the second part ('>50K.'). The benchmark takes them as
    words of their own, which makes 94 features of 92, and so does this.
    """
    # adult.test opens with a comment line.
    parts = [read_table(folder, file, skip=n) for n, file in enumerate(FILES)]
    table = pd.concat(parts)
    table = table[~(table == "?").any(axis=1)]
    occupation = table.pop(table.columns[OCCUPATION]).to_numpy(str)
    return table, np.unique(occupation, return_inverse=True)[1]


ADULT = Dataset(
    name="adult",
    files=FILES,
    rows=45_222,
    features=94,
    arms=14,
    columns=read_columns,
)
