"""UCI Covertype: the kind of forest by 54 cartographic variables."""

from pathlib import Path
from typing import TYPE_CHECKING

from tsucb.numeric.arrays import Integers
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

FILE = File(
    name="covtype.data.gz",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
    sha256="b01869df22801f347933597e60941a9b5a361d2c050b01c863b2188eba9ff344",
    length=75_169_316,
)


def read_columns(folder: Path) -> "tuple[pd.DataFrame, Integers]":
    """Return all numbers but the last, which is the label, 1 to 7."""
    table = read_table(folder, FILE)
    return table, table.pop(table.columns[-1]).to_numpy() - 1


COVERTYPE = Dataset(
    name="covertype",
    files=(FILE,),
    rows=581_012,
    features=54,
    arms=7,
    columns=read_columns,
)
