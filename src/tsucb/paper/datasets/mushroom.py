"""UCI Mushroom: eat it or not, by 22 attributes."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from tsucb.compiler import implements
from tsucb.environments.environment import advance, begin, reward
from tsucb.paper.datasets.bandits import Table, matrix, new_world
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import one_hot, read_table

FILE = File(
    name="agaricus-lepiota.data",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/mushroom/agaricus-lepiota.data",
    sha256="5f337a91aba07bec5caaad73decfce48dcc34b265e8fe864652699ef39a5178e",
    length=373_703,
)
# The rewards of eating a mushroom: an edible one, and a poisonous one that does harm or does not.
EDIBLE, HARM, LUCK = 5.0, -35.0, 5.0


class MushroomBandit(Table):
    """Arm 1 eats the mushroom, arm 0 does not and pays nothing.

    An edible one pays 5; a poisonous one pays −35 or 5, each with probability ½. Rows are drawn
    with replacement, so a run can be of any length.

    Parameters
    ----------
    contexts
        (rows, d).
    edible
        (rows,), true or false.
    """

    contexts: Annotated[Any, matrix]
    edible: Any

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Turn `edible` into truth values, one a row."""
        rows, safe = values["contexts"], np.ascontiguousarray(values["edible"], dtype=np.bool_)
        if safe.shape != (len(rows),):
            raise ValueError(f"edible must have one entry for each of the {len(rows)} rows")
        values["edible"] = safe

    @property
    def arms(self) -> int:
        """Leave it, or eat it."""
        return 2

    @property
    def longest(self) -> int:
        """There is no end to draws with replacement."""
        return np.iinfo(np.int64).max


@implements(begin, MushroomBandit)
def begin_mushroom(environment, rng):  # type: ignore[no-untyped-def]
    return new_world(0, environment.contexts.shape[1], 2, 0)


@implements(advance, MushroomBandit)
def advance_mushroom(environment, world, step, rng):  # type: ignore[no-untyped-def]
    row = rng.integers(0, environment.contexts.shape[0])
    world.context[:] = environment.contexts[row]
    world.means[1] = EDIBLE if environment.edible[row] else 0.5 * (HARM + LUCK)
    world.noise[0] = rng.random()
    return world.context, world.means, world.available


@implements(reward, MushroomBandit)
def reward_mushroom(environment, world, arm):  # type: ignore[no-untyped-def]
    if arm == 0 or world.means[1] == EDIBLE:
        return world.means[arm]
    return HARM if world.noise[0] < 0.5 else LUCK


def read(folder: Path) -> MushroomBandit:
    """Return one-hot attributes, not standardised; '?' (unknown) is a category of its own."""
    table = read_table(folder, FILE)
    label = table.pop(table.columns[0]).to_numpy(str)
    return MushroomBandit(one_hot(table), edible=label == "e")


MUSHROOM = Dataset(
    name="mushroom",
    files=(FILE,),
    rows=8_124,
    features=117,
    arms=2,
    read=read,
)
