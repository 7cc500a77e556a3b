"""Read the tables of the datasets, and turn their columns into features.

`Dataset.load` has verified the checksum of every file before, so nothing here checks the contents.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from tsucb.numeric.arrays import Floats
from tsucb.paper.datasets.files import File, existing_file, read_content


def read_table(
    folder: Path, file: File, *, separator: str = ",", skip: int = 0, names: bool = False,
    lines: int | None = None,
) -> "pd.DataFrame":  # fmt: skip
    """Return a file of separated text as a data frame, its words without blanks around them.

    Parameters
    ----------
    skip : how many lines to leave out at the beginning
    names : whether the first line has the names of the columns
    lines : how many lines to read at most
    """
    content = read_content(file, existing_file(folder, file))
    if lines is not None:
        content = b"\n".join(content.split(b"\n", lines)[:lines])
    table: pd.DataFrame = csv.read_csv(
        pa.BufferReader(content),
        csv.ReadOptions(skip_rows=skip, autogenerate_column_names=not names),
        csv.ParseOptions(delimiter=separator, quote_char=False),
        csv.ConvertOptions(null_values=[]),
    ).to_pandas()
    words = table.select_dtypes(exclude="number").columns
    table[words] = table[words].apply(lambda column: column.str.strip())
    return table


def one_hot(table: "pd.DataFrame") -> Floats:
    """Return numbers as they are and a 0-1 column for each word, (rows, features) in shape.

    >>> import pandas as pd
    >>> one_hot(pd.DataFrame({"size": [0.5, 2.0], "known": ["yes", "no"]}))
    array([[0.5, 0. , 1. ],
           [2. , 1. , 0. ]])
    """
    columns = [table[name].to_numpy() for name in table]
    return np.column_stack(
        [
            column if column.dtype.kind in "if" else column[:, None] == np.unique(column)
            for column in columns
        ]
    ).astype(np.float64, copy=False)


def standardise(features: Floats) -> Floats:
    """Return every column with mean 0 and standard deviation 1; a constant one becomes 0.

    >>> standardise(np.array([[1.0, 7.0], [3.0, 7.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    features = np.ascontiguousarray(features)  # so that sums are taken in the same order
    spread = features.std(axis=0)
    spread[spread == 0] = 1.0
    return np.asarray((features - features.mean(axis=0)) / spread)
