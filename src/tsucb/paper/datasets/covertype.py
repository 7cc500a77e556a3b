"""UCI Covertype: the kind of forest by 54 cartographic variables."""

from pathlib import Path

from tsucb.paper.datasets.bandits import ClassificationBandit
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table, standardise

FILE = File(
    name="covtype.data.gz",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
    sha256="b01869df22801f347933597e60941a9b5a361d2c050b01c863b2188eba9ff344",
    length=75_169_316,
)


def read(folder: Path) -> ClassificationBandit:
    """Return the bandit of 54 standardised numbers; the label, 1 to 7, comes last."""
    table = read_table(folder, FILE).to_numpy(float)
    return ClassificationBandit(standardise(table[:, :-1]), table[:, -1] - 1, arms=7)


COVERTYPE = Dataset(
    name="covertype",
    files=(FILE,),
    rows=581_012,
    features=54,
    arms=7,
    read=read,
)
