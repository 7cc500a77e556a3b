"""Stock returns: eight portfolios of 21 stocks."""

from pathlib import Path

import numpy as np

from tsucb.datasets.bandits import PortfolioBandit
from tsucb.datasets.dataset import Dataset
from tsucb.datasets.files import File, existing_file
from tsucb.datasets.text import Text

FILE = File(
    name="raw_stock_contexts",
    url="https://storage.googleapis.com/bandits_datasets/raw_stock_contexts",
    sha256="ca5b8ea4a6b73c9cbda3d0354150b7d9aedbeb76701edb377e6fd9225b9dcc7e",
    length=1_987_116,
)


def read(folder: Path) -> PortfolioBandit:
    """The raw daily price differences of 21 stocks, below a header of their names."""
    text = Text(existing_file(folder, FILE), columns=21, separator=" ", header=1)
    return PortfolioBandit(np.column_stack(text.read(numbers=range(21))))


FINANCIAL = Dataset(
    name="financial",
    title="Stock returns, from the benchmark's authors",
    files=(FILE,),
    rows=3_713,
    features=21,
    arms=8,
    read=read,
)
