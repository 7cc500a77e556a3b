"""The sources of the seven datasets: their files, how they are read, and their size.

A reader returns the bandit, or the columns and labels of a classification, from a folder with the
files, whose checksums were verified before.
"""

import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsucb.extras import require
from tsucb.numeric.arrays import Integers
from tsucb.paper.datasets.bandits import (
    ClassificationBandit,
    JesterBandit,
    MushroomBandit,
    PortfolioBandit,
)
from tsucb.paper.datasets.files import Dataset, File
from tsucb.paper.datasets.tables import one_hot, read_table, standardise

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
AUTHORS = "https://storage.googleapis.com/bandits_datasets"  # of the benchmark


Columns = tuple[pd.DataFrame, Integers]  # raw columns, numbers and words; labels from 0


ADULT_FILES = (
    File(
        name="adult.data",
        url=f"{UCI}/adult/adult.data",
        sha256="ea895aae047aa83ca757e3024a029be8b11806c656ad2c5b1efd8cec28af19ad",
        length=3_974_303,
    ),
    File(
        name="adult.test",
        url=f"{UCI}/adult/adult.test",
        sha256="cef936265eaa826d9b44c86da611553fb99772b632b60ef8577a97fe8efdb2e3",
        length=2_003_151,
    ),
)
OCCUPATION = 6  # the column of adult with the label


def read_adult(folder: Path) -> Columns:
    """Return Adult: occupation by the other columns of the 1994 census, without rows with '?'.

    The labels of income end with a dot in the second part ('>50K.'). The benchmark takes them as
    words of their own, which makes 94 features of 92, and so does this.
    """
    # adult.test opens with a comment line.
    parts = [read_table(folder, file, skip=n) for n, file in enumerate(ADULT_FILES)]
    table = pd.concat(parts)
    table = table[~(table == "?").any(axis=1)]
    occupation = table.pop(table.columns[OCCUPATION]).to_numpy(str)
    return table, np.unique(occupation, return_inverse=True)[1]


CENSUS_FILE = File(
    name="USCensus1990.data.txt",
    url=f"{UCI}/census1990-mld/USCensus1990.data.txt",
    # Of the first 15,317 rows and the header.
    sha256="5264e6550c83544d14685d6cccd21f84e1ef255af0aeb2f820efd7759892e8d3",
    length=2_212_876,
    prefix=True,
)
# One-hot, the whole file of 2,458,285 rows would fill gigabytes; a run needs 10,000 rows.
CENSUS_ROWS = 15_317


def read_census(folder: Path) -> Columns:
    """Return US Census 1990: occupation by the 67 other coded answers, as words."""
    table = read_table(folder, CENSUS_FILE, names=True, lines=1 + CENSUS_ROWS)
    labels = table.pop("dOccup").to_numpy()
    return table.drop(columns="caseid").astype(str), labels


COVERTYPE_FILE = File(
    name="covtype.data.gz",
    url=f"{UCI}/covtype/covtype.data.gz",
    sha256="b01869df22801f347933597e60941a9b5a361d2c050b01c863b2188eba9ff344",
    length=75_169_316,
)


def read_covertype(folder: Path) -> Columns:
    """Return Covertype: the kind of forest, 1 to 7, by 54 cartographic variables."""
    return label_last(read_table(folder, COVERTYPE_FILE))


STATLOG_FILE = File(
    name="shuttle.trn",
    # UCI's own copy is compressed with the old Unix `compress`.
    url=f"{AUTHORS}/shuttle.trn",
    sha256="c215a6f9536ec438771559bdf66e074de85d7761de4cebcd699bd5d524a8fc4a",
    length=1_153_517,
)


def read_statlog(folder: Path) -> Columns:
    """Return the training part of Shuttle: the state of a radiator, 1 to 7, by nine indicators."""
    return label_last(read_table(folder, STATLOG_FILE, separator=" "))


def label_last(table: pd.DataFrame) -> Columns:
    """Return the columns and labels of a table whose last column is the label, from 1."""
    return table, table.pop(table.columns[-1]).to_numpy() - 1


FINANCIAL_FILE = File(
    name="raw_stock_contexts",
    url=f"{AUTHORS}/raw_stock_contexts",
    sha256="ca5b8ea4a6b73c9cbda3d0354150b7d9aedbeb76701edb377e6fd9225b9dcc7e",
    length=1_987_116,
)


def read_financial(folder: Path) -> Any:
    """Return the raw daily price differences of 21 stocks, below a header of their names."""
    table = read_table(folder, FINANCIAL_FILE, separator=" ", skip=1)
    return PortfolioBandit(table.to_numpy(float))


JOKES = 40
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


JESTER_FILE = File(
    name="jester-data-1.csv",
    url="https://goldberg.berkeley.edu/jester-data/jester-data-1.zip",
    sha256="d01c8619c8d87112969515f274a50d0d6a8918591f25131700fe1d8e4262d161",
    length=11_712_552,
    convert=csv_from_archive,
)


def read_jester(folder: Path) -> Any:
    """Return the 40 jokes rated most, and the users who rated all of them.

    The first column of the file counts a user's ratings; 99 means not rated.
    """
    ratings = read_table(folder, JESTER_FILE).to_numpy(float)[:, 1:]
    counts = (ratings != NOT_RATED).sum(axis=0)
    popular = np.sort(np.argsort(-counts, kind="stable")[:JOKES])
    ratings = ratings[:, popular]
    return JesterBandit(ratings[(ratings != NOT_RATED).all(axis=1)])


MUSHROOM_FILE = File(
    name="agaricus-lepiota.data",
    url=f"{UCI}/mushroom/agaricus-lepiota.data",
    sha256="5f337a91aba07bec5caaad73decfce48dcc34b265e8fe864652699ef39a5178e",
    length=373_703,
)


def read_mushroom(folder: Path) -> Any:
    """Return 22 one-hot attributes, not standardised; '?' (unknown) is a category of its own."""
    table = read_table(folder, MUSHROOM_FILE)
    label = table.pop(table.columns[0]).to_numpy(str)
    return MushroomBandit(one_hot(table), edible=label == "e")


COLUMNS: dict[str, Callable[[Path], Columns]] = {
    "adult": read_adult,
    "census": read_census,
    "covertype": read_covertype,
    "statlog": read_statlog,
}


def classify(name: str, folder: Path) -> ClassificationBandit:
    """Return the bandit of a classification, its features standardised."""
    table, labels = COLUMNS[name](folder)
    return ClassificationBandit(standardise(one_hot(table)), labels)


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("adult", ADULT_FILES, 45_222, 94, 14, partial(classify, "adult")),
        Dataset("census", (CENSUS_FILE,), CENSUS_ROWS, 385, 9, partial(classify, "census")),
        Dataset("covertype", (COVERTYPE_FILE,), 581_012, 54, 7, partial(classify, "covertype")),
        Dataset("financial", (FINANCIAL_FILE,), 3_713, 21, 8, read_financial),
        Dataset("jester", (JESTER_FILE,), 19_181, 32, 8, read_jester),
        Dataset("mushroom", (MUSHROOM_FILE,), 8_124, 117, 2, read_mushroom),
        Dataset("statlog", (STATLOG_FILE,), 43_500, 9, 7, partial(classify, "statlog")),
    )
}
