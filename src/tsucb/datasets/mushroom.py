"""UCI Mushroom: eat it or not, by 22 attributes."""

from pathlib import Path

import numpy as np

from tsucb.datasets.bandits import MushroomBandit
from tsucb.datasets.dataset import Dataset
from tsucb.datasets.files import File, existing_file
from tsucb.datasets.text import Text, one_hot

FILE = File(
    name="agaricus-lepiota.data",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/mushroom/agaricus-lepiota.data",
    sha256="5f337a91aba07bec5caaad73decfce48dcc34b265e8fe864652699ef39a5178e",
    length=373_703,
)


def read(folder: Path) -> MushroomBandit:
    """One-hot attributes, not standardised; '?' (unknown) is a category of its own."""
    text = Text(existing_file(folder, FILE), columns=23)
    label, *attributes = text.read(numbers=())
    wrong = (label != "e") & (label != "p")
    if wrong.any():
        row = int(np.argmax(wrong))
        raise text.error(row, f"the class is '{label[row]}', neither e (edible) nor p (poisonous)")
    return MushroomBandit(one_hot(attributes), edible=label == "e")


MUSHROOM = Dataset(
    name="mushroom",
    title="UCI Mushroom",
    files=(FILE,),
    rows=8_124,
    features=117,
    arms=2,
    read=read,
)
