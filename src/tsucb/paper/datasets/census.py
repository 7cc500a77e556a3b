"""UCI US Census 1990: a person's occupation by the 67 other coded answers."""

from pathlib import Path
from typing import TYPE_CHECKING

from tsucb.numeric.arrays import Integers
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

FILE = File(
    name="USCensus1990.data.txt",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/census1990-mld/USCensus1990.data.txt",
    # Of the first 15,317 rows and the header.
    sha256="5264e6550c83544d14685d6cccd21f84e1ef255af0aeb2f820efd7759892e8d3",
    length=2_212_876,
    prefix=True,
)
# One-hot, the whole file of 2,458,285 rows would fill gigabytes; a run needs 10,000 rows.
ROWS = 15_317


def read_columns(folder: Path) -> "tuple[pd.DataFrame, Integers]":
    """Return all answers but caseid, as words, and the label dOccup, of the first 15,317 rows."""
    table = read_table(folder, FILE, names=True, lines=1 + ROWS).drop(columns="caseid")
    labels = table.pop("dOccup").to_numpy()
    return table.astype(str), labels


CENSUS = Dataset(
    name="census",
    files=(FILE,),
    rows=ROWS,
    features=385,
    arms=9,
    columns=read_columns,
)
