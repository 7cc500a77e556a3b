"""UCI Statlog (Shuttle), the training part: the state of a radiator by nine indicators."""

from pathlib import Path

from tsucb.paper.datasets.bandits import ClassificationBandit
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table, standardise

FILE = File(
    name="shuttle.trn",
    # UCI's own copy is compressed with the old Unix `compress`; the benchmark's authors' is plain.
    url="https://storage.googleapis.com/bandits_datasets/shuttle.trn",
    sha256="c215a6f9536ec438771559bdf66e074de85d7761de4cebcd699bd5d524a8fc4a",
    length=1_153_517,
)


def read(folder: Path) -> ClassificationBandit:
    """Return the bandit of nine standardised numbers; the label, 1 to 7, comes last."""
    table = read_table(folder, FILE, separator=" ").to_numpy(float)
    return ClassificationBandit(standardise(table[:, :-1]), table[:, -1] - 1, arms=7)


STATLOG = Dataset(
    name="statlog",
    files=(FILE,),
    rows=43_500,
    features=9,
    arms=7,
    read=read,
)
