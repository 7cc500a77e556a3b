"""Jester, part 1: recommend one of eight jokes to a user who rated 32 others."""

import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from tsucb.compiler import implements
from tsucb.environments.environment import advance, begin, reward
from tsucb.extras import require
from tsucb.paper.datasets.bandits import Table, matrix, new_world, next_row, reward_mean
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table

JOKES = 40
ARMS = 8
NOT_RATED = 99
MOST_BYTES = 1 << 27  # of the Excel file


def csv_from_archive(path: Path) -> bytes:
    """Return the sheet of the source's zipped Excel file as CSV, with two decimals.

    The checksum is of the CSV, so the archive is not verified yet: check its size before unpacking.
    """
    require("paper", "xlrd")  # jester comes as an Excel file
    import xlrd  # type: ignore[import-untyped]

    try:
        with zipfile.ZipFile(path) as files:
            members = [m for m in files.infolist() if m.filename.endswith(".xls")]
            if len(members) != 1 or members[0].file_size > MOST_BYTES:
                raise ValueError(
                    "the archive of jester holds no single Excel file of up to "
                    f"{MOST_BYTES:,} bytes"
                )
            sheet = xlrd.open_workbook(file_contents=files.read(members[0])).sheet_by_index(0)
    except (zipfile.BadZipFile, zlib.error, xlrd.XLRDError) as error:
        raise ValueError(f"the archive of jester is no zipped Excel file: {error}") from None
    rows = (sheet.row_values(row) for row in range(sheet.nrows))
    lines = (",".join(f"{round(float(value), 2):g}" for value in row) for row in rows)
    return "\n".join(lines).encode()


FILE = File(
    name="jester-data-1.csv",
    url="https://goldberg.berkeley.edu/jester-data/jester-data-1.zip",
    sha256="d01c8619c8d87112969515f274a50d0d6a8918591f25131700fe1d8e4262d161",
    length=11_712_552,
    convert=csv_from_archive,
)


class JesterBandit(Table):
    """Recommend one of the last eight jokes to a user whose ratings of the others are known.

    Which jokes those are is drawn for every run. The reward is the user's rating.

    Parameters
    ----------
    ratings
        (users, jokes), all of them.
    """

    ratings: Annotated[Any, matrix]

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Raise ValueError for too few jokes."""
        jokes = values["ratings"].shape[1]
        if jokes <= ARMS:
            raise ValueError(f"more than {ARMS} jokes are needed, but there are {jokes} columns")

    @property
    def arms(self) -> int:
        """The jokes to choose from."""
        return ARMS

    @property
    def rows(self) -> int:
        """Users."""
        return len(self.ratings)

    @property
    def features(self) -> int:
        """The other jokes."""
        return int(self.ratings.shape[1]) - ARMS


@implements(begin, JesterBandit)
def begin_jester(environment, rng):  # type: ignore[no-untyped-def]
    rows, jokes = environment.ratings.shape
    world = new_world(rows, jokes - ARMS, ARMS, jokes)
    world.parameters[:] = rng.permutation(jokes)
    return world


@implements(advance, JesterBandit)
def advance_jester(environment, world, step, rng):  # type: ignore[no-untyped-def]
    ratings = environment.ratings[next_row(world, step, rng)]
    for i in range(world.context.size):
        world.context[i] = ratings[int(world.parameters[i])]
    for a in range(ARMS):
        world.means[a] = ratings[int(world.parameters[world.context.size + a])]
    return world.context, world.means, world.available


implements(reward, JesterBandit)(reward_mean)


def read(folder: Path) -> JesterBandit:
    """Return the 40 jokes rated most, and the users who rated all of them.

    The first column of the file counts a user's ratings; 99 means not rated.
    """
    ratings = read_table(folder, FILE).to_numpy(float)[:, 1:]
    counts = (ratings != NOT_RATED).sum(axis=0)
    popular = np.sort(np.argsort(-counts, kind="stable")[:JOKES])
    ratings = ratings[:, popular]
    return JesterBandit(ratings[(ratings != NOT_RATED).all(axis=1)])


JESTER = Dataset(
    name="jester",
    files=(FILE,),
    rows=19_181,
    features=32,
    arms=8,
    read=read,
)
