"""UCI US Census 1990: a person's occupation by the 67 other coded answers."""

from pathlib import Path

from tsucb.paper.datasets.bandits import ClassificationBandit
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import one_hot, read_table, standardise

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


def read(folder: Path) -> ClassificationBandit:
    """Return all answers but caseid one-hot, with the label dOccup, of the first 15,317 rows."""
    table = read_table(folder, FILE, names=True, lines=1 + ROWS).drop(columns="caseid")
    labels = table.pop("dOccup").to_numpy()
    answers = [table[name].to_numpy(str) for name in table]
    return ClassificationBandit(standardise(one_hot(answers)), labels, arms=9)


CENSUS = Dataset(
    name="census",
    files=(FILE,),
    rows=ROWS,
    features=385,
    arms=9,
    read=read,
)
