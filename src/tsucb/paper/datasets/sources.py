"""The seven datasets: their files, their sizes, and how each becomes a bandit.

The functions `read_…` get the contents of files whose checksums were verified.
"""

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from tsucb.extras import require
from tsucb.numeric.arrays import Floats, Integers
from tsucb.paper.datasets.bandits import (
    ClassificationBandit,
    JesterBandit,
    MushroomBandit,
    PortfolioBandit,
)
from tsucb.paper.datasets.files import Dataset, File

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
AUTHORS = "https://storage.googleapis.com/bandits_datasets"  # of the benchmark
# All 2,458,285 rows of census, one-hot, would fill gigabytes; a run needs 10,000 rows.
CENSUS_ROWS = 15_317
JOKES = 40
NOT_RATED = 99
MOST_BYTES = 1 << 27  # of jester's Excel file

Columns = tuple[pd.DataFrame, Integers]  # raw columns of numbers and words; labels from 0


def read_table(
    content: bytes, separator: str = ",", skip: int = 0, names: bool = False
) -> pd.DataFrame:
    """Return separated text as a data frame, without blanks around words.

    Parameters
    ----------
    skip : how many lines to leave out at the beginning
    names : whether the first line has the columns' names
    """
    table: pd.DataFrame = csv.read_csv(
        pa.BufferReader(content),
        csv.ReadOptions(skip_rows=skip, autogenerate_column_names=not names),
        csv.ParseOptions(delimiter=separator, quote_char=False),
        csv.ConvertOptions(null_values=[]),
    ).to_pandas()
    words = table.select_dtypes(exclude="number").columns
    table[words] = table[words].apply(lambda column: column.str.strip())
    return table


def one_hot(table: pd.DataFrame) -> Floats:
    """Return numbers as they are and words as 0-1 columns, one for each word, (rows, features).

    Features are in the order of the columns; `pandas.get_dummies` would put numbers first.

    >>> import pandas as pd
    >>> one_hot(pd.DataFrame({"size": [0.5, 2.0], "known": ["yes", "no"]}))
    array([[0.5, 0. , 1. ],
           [2. , 1. , 0. ]])
    """
    columns = [table[name].to_numpy() for name in table]
    return np.column_stack(
        [
            column if column.dtype.kind in "if" else column[:, None] == np.unique(column)
            for column in columns
        ]
    ).astype(np.float64, copy=False)


def standardise(features: Floats) -> Floats:
    """Return every column with mean 0 and standard deviation 1; a constant column becomes 0.

    >>> standardise(np.array([[1.0, 7.0], [3.0, 7.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    features = np.ascontiguousarray(features)  # the order of sums, and so their last digits
    spread = features.std(axis=0)
    spread[spread == 0] = 1.0
    return np.asarray((features - features.mean(axis=0)) / spread)


def read_adult(data: bytes, test: bytes) -> Columns:
    """Return Adult: occupation by the other columns of the 1994 census, without rows with '?'.

    In the second file the labels of income end with a dot ('>50K.'). Like the benchmark, this takes
    them as words of their own, which makes 94 features instead of 92.
    """
    table = pd.concat([read_table(data), read_table(test, skip=1)])  # adult.test has a comment
    table = table[~(table == "?").any(axis=1)]
    occupation = table.pop(table.columns[6]).to_numpy(str)
    return table, np.unique(occupation, return_inverse=True)[1]


def read_census(data: bytes) -> Columns:
    """Return US Census 1990: occupation by the 67 other coded answers, as words."""
    lines = 1 + CENSUS_ROWS
    table = read_table(b"\n".join(data.split(b"\n", lines)[:lines]), names=True)
    labels = table.pop("dOccup").to_numpy()
    return table.drop(columns="caseid").astype(str), labels


def read_numbers(data: bytes, separator: str = ",") -> Columns:
    """Return a table of numbers whose last column has the labels, counted from 1.

    Covertype: the kind of forest by 54 cartographic variables. Statlog, the training part of
    Shuttle: the state of a radiator by nine indicators.
    """
    table = read_table(data, separator)
    return table, table.pop(table.columns[-1]).to_numpy() - 1


# How to read the columns of each classification from its files.
COLUMNS: dict[str, Callable[..., Columns]] = {
    "adult": read_adult,
    "census": read_census,
    "covertype": read_numbers,
    "statlog": partial(read_numbers, separator=" "),
}


def classify(name: str, *contents: bytes) -> ClassificationBandit:
    """Return the bandit of a classification, with standardised features."""
    table, labels = COLUMNS[name](*contents)
    return ClassificationBandit(standardise(one_hot(table)), labels)


def read_financial(data: bytes) -> PortfolioBandit:
    """Return the raw daily price differences of 21 stocks; the first line has their names."""
    return PortfolioBandit(read_table(data, separator=" ", skip=1).to_numpy(float))


def read_jester(data: bytes) -> JesterBandit:
    """Return the ratings of the 40 jokes rated most, by the users who rated all 40.

    The first column of the file counts a user's ratings; 99 means not rated.
    """
    ratings = read_table(data).to_numpy(float)[:, 1:]
    counts = (ratings != NOT_RATED).sum(axis=0)
    popular = np.sort(np.argsort(-counts, kind="stable")[:JOKES])
    ratings = ratings[:, popular]
    return JesterBandit(ratings[(ratings != NOT_RATED).all(axis=1)])


def read_mushroom(data: bytes) -> MushroomBandit:
    """Return 22 one-hot attributes, not standardised; '?' (unknown) is a category of its own."""
    table = read_table(data)
    label = table.pop(table.columns[0]).to_numpy(str)
    return MushroomBandit(one_hot(table), edible=label == "e")


def csv_from_archive(path: Path) -> bytes:
    """Return the sheet of jester's zipped Excel file as CSV, with two decimals.

    The archive itself has no known checksum, only the CSV has: check its size before unpacking.
    """
    require("paper", "xlrd")
    import xlrd  # type: ignore[import-untyped]

    try:
        with zipfile.ZipFile(path) as files:
            members = [m for m in files.infolist() if m.filename.endswith(".xls")]
            if len(members) != 1 or members[0].file_size > MOST_BYTES:
                raise ValueError(f"it holds no single Excel file of up to {MOST_BYTES:,} bytes")
            sheet = xlrd.open_workbook(file_contents=files.read(members[0])).sheet_by_index(0)
        rows = (sheet.row_values(row) for row in range(sheet.nrows))
        lines = [",".join(f"{round(float(value), 2):g}" for value in row) for row in rows]
    except Exception as error:  # xlrd raises errors of any class for what is no Excel file
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"the archive of jester is no zipped Excel file: {reason}") from None
    return "\n".join(lines).encode()


# The address, SHA-256 and length in bytes of every file.
ADULT = File(
    f"{UCI}/adult/adult.data",
    "ea895aae047aa83ca757e3024a029be8b11806c656ad2c5b1efd8cec28af19ad",
    3_974_303,
)
ADULT_TEST = File(
    f"{UCI}/adult/adult.test",
    "cef936265eaa826d9b44c86da611553fb99772b632b60ef8577a97fe8efdb2e3",
    2_003_151,
)
CENSUS = File(  # the header and the first 15,317 rows
    f"{UCI}/census1990-mld/USCensus1990.data.txt",
    "5264e6550c83544d14685d6cccd21f84e1ef255af0aeb2f820efd7759892e8d3",
    2_212_876,
    prefix=True,
)
COVERTYPE = File(
    f"{UCI}/covtype/covtype.data.gz",
    "b01869df22801f347933597e60941a9b5a361d2c050b01c863b2188eba9ff344",
    75_169_316,
)
FINANCIAL = File(
    f"{AUTHORS}/raw_stock_contexts",
    "ca5b8ea4a6b73c9cbda3d0354150b7d9aedbeb76701edb377e6fd9225b9dcc7e",
    1_987_116,
)
JESTER = File(
    "https://goldberg.berkeley.edu/jester-data/jester-data-1.zip",
    "d01c8619c8d87112969515f274a50d0d6a8918591f25131700fe1d8e4262d161",
    11_712_552,
    convert=csv_from_archive,
)
MUSHROOM = File(
    f"{UCI}/mushroom/agaricus-lepiota.data",
    "5f337a91aba07bec5caaad73decfce48dcc34b265e8fe864652699ef39a5178e",
    373_703,
)
STATLOG = File(  # UCI's own copy is compressed with the old Unix `compress`
    f"{AUTHORS}/shuttle.trn",
    "c215a6f9536ec438771559bdf66e074de85d7761de4cebcd699bd5d524a8fc4a",
    1_153_517,
)
DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("adult", (ADULT, ADULT_TEST), 45_222, 94, 14, partial(classify, "adult")),
        Dataset("census", (CENSUS,), CENSUS_ROWS, 385, 9, partial(classify, "census")),
        Dataset("covertype", (COVERTYPE,), 581_012, 54, 7, partial(classify, "covertype")),
        Dataset("financial", (FINANCIAL,), 3_713, 21, 8, read_financial),
        Dataset("jester", (JESTER,), 19_181, 32, 8, read_jester),
        Dataset("mushroom", (MUSHROOM,), 8_124, 117, 2, read_mushroom),
        Dataset("statlog", (STATLOG,), 43_500, 9, 7, partial(classify, "statlog")),
    )
}
