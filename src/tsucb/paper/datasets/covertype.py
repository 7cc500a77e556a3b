"""UCI Covertype: the kind of forest by 54 cartographic variables."""

from pathlib import Path

from tsucb.paper.datasets.bandits import ClassificationBandit
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.text import Text, one_hot, standardise

FILE = File(
    name="covtype.data.gz",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
    sha256="b01869df22801f347933597e60941a9b5a361d2c050b01c863b2188eba9ff344",
    length=75_169_316,
)


def read(folder: Path) -> ClassificationBandit:
    """54 standardised numbers; the label, 1 to 7, comes last."""
    text = Text(folder, FILE, columns=55)
    *variables, label = text.read(numbers=range(55))
    labels = text.labels(label, first=1, last=7)
    return ClassificationBandit(standardise(one_hot(variables)), labels, arms=7)


COVERTYPE = Dataset(
    name="covertype",
    title="UCI Covertype",
    files=(FILE,),
    rows=581_012,
    features=54,
    arms=7,
    read=read,
)
