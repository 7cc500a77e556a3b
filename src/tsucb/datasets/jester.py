"""Jester, part 1: recommend one of eight jokes to a user who rated 32 others."""

import io
import zipfile
from pathlib import Path

import numpy as np

from tsucb.datasets.bandits import JesterBandit
from tsucb.datasets.dataset import Dataset
from tsucb.datasets.files import File, existing_file
from tsucb.datasets.text import Text

JOKES = 40
NOT_RATED = 99


def csv_from_archive(archive: bytes) -> bytes:
    """The sheet of the source's zipped Excel file as CSV: hundredths, and no more digits."""
    try:
        import xlrd  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(
            "jester comes as an Excel file, which needs xlrd; "
            "install it with: pip install 'tsucb[data]'"
        ) from None

    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        name = next(name for name in files.namelist() if name.endswith(".xls"))
        sheet = xlrd.open_workbook(file_contents=files.read(name)).sheet_by_index(0)
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


def read(folder: Path) -> JesterBandit:
    """The 40 jokes rated most, and the users who rated all of them.

    The first column of the file counts a user's ratings; 99 means not rated.
    """
    text = Text(existing_file(folder, FILE), columns=101)
    ratings = np.column_stack(text.read(numbers=range(101))[1:])
    wrong = (np.abs(ratings) > 10) & (ratings != NOT_RATED)
    if wrong.any():
        row, joke = np.argwhere(wrong)[0]
        raise text.error(row, f"joke {joke + 1} is rated {ratings[row, joke]:g}, not -10 to 10")
    counts = (ratings != NOT_RATED).sum(axis=0)
    popular = np.sort(np.argsort(-counts, kind="stable")[:JOKES])
    ratings = ratings[:, popular]
    return JesterBandit(ratings[(ratings != NOT_RATED).all(axis=1)])


JESTER = Dataset(
    name="jester",
    title="Jester, part 1",
    files=(FILE,),
    rows=19_181,
    features=32,
    arms=8,
    read=read,
)
