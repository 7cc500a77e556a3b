"""UCI Statlog (Shuttle), the training part: the state of a radiator by nine indicators."""

from pathlib import Path
from typing import TYPE_CHECKING

from tsucb.numeric.arrays import Integers
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

FILE = File(
    name="shuttle.trn",
    # UCI's own copy is compressed with the old Unix `compress`; the benchmark's authors' is plain.
    url="https://storage.googleapis.com/bandits_datasets/shuttle.trn",
    sha256="c215a6f9536ec438771559bdf66e074de85d7761de4cebcd699bd5d524a8fc4a",
    length=1_153_517,
)


def read_columns(folder: Path) -> "tuple[pd.DataFrame, Integers]":
    """Return all numbers but the last, which is the label, 1 to 7."""
    table = read_table(folder, FILE, separator=" ")
    return table, table.pop(table.columns[-1]).to_numpy() - 1


STATLOG = Dataset(
    name="statlog",
    files=(FILE,),
    rows=43_500,
    features=9,
    arms=7,
    columns=read_columns,
)
