"""UCI US Census 1990: a person's occupation by the 67 other coded answers."""

from pathlib import Path

import numpy as np

from tsucb.paper.datasets.bandits import ClassificationBandit
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.text import Text, one_hot, standardise

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
    """All answers one-hot, caseid left out; the label is dOccup; the first 15,317 rows."""
    text = Text(folder, FILE, columns=69, header=1, limit=1 + ROWS)
    names = text.content.split(b"\n", 1)[0].decode("utf-8", errors="replace").strip().split(",")
    if "caseid" not in names or "dOccup" not in names:
        raise ValueError(f"{text.path}, line 1: no column names with caseid and dOccup among them")
    columns = dict(zip(names, text.read(numbers=range(69)), strict=True))
    del columns["caseid"]
    labels = text.labels(columns.pop("dOccup"), first=0, last=8)
    answers = [column.astype(np.int64).astype(str) for column in columns.values()]
    return ClassificationBandit(standardise(one_hot(answers)), labels, arms=9)


CENSUS = Dataset(
    name="census",
    title="UCI US Census 1990",
    files=(FILE,),
    rows=ROWS,
    features=385,
    arms=9,
    read=read,
)
