"""The seven datasets as bandits of which every reward is known.

The package's own loaders standardise four of the datasets, with hindsight. Here all of them are
read as they are, so that a library can be given what a new user would give it.

A stream is what everybody meets: the same contexts in the same order, and the reward of every arm
at every step, drawn beforehand. The rules are those of the deep bandit benchmark (Riquelme, Tucker
and Snoek 2018), with two differences: a poisonous mushroom and a portfolio's noise are drawn before
anybody chooses, and a run that is longer than its table goes through it again in another order.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsucb.paper import datasets

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RAW, STANDARDISED = "raw", "standardised"
# Rewards r are told as factor · r + shift; totals are always of r itself.
SCALES = {"as is": (1.0, 0.0), "×100": (100.0, 0.0), "÷100": (0.01, 0.0), "+10": (1.0, 10.0)}
# Rewards are rescaled where every library is at its best, with features prepared for it.
VARIANTS = [(RAW, "as is"), *((STANDARDISED, scale) for scale in SCALES)]

JESTER_ARMS, JOKES, NOT_RATED = 8, 40, 99
PORTFOLIOS, PORTFOLIO_NOISE = 8, 0.01
EDIBLE, HARM, LUCK = 5.0, -35.0, 5.0


class Table(NamedTuple):
    """A dataset in memory: raw features, and the rule that makes contexts and rewards of rows."""

    name: str
    features: Floats  # (rows, d); of jester all ratings
    labels: Integers  # (rows,); empty where the rule needs none
    arms: int
    deal: Callable[["Table", Floats, Integers, np.random.Generator], tuple[Floats, Floats]]
    replace: bool = False  # draw rows with replacement


class Stream(NamedTuple):
    """What one run consists of, the same for everybody."""

    contexts: Floats  # (steps, d)
    rewards: Floats  # (steps, K), in the dataset's own units


def classify(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """1 for the right label, 0 for any other."""
    return features[rows], np.eye(table.arms)[table.labels[rows]]


def forage(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Arm 0 leaves the mushroom; arm 1 eats it: 5, or −35 half the time if it is poisonous."""
    poison = np.where(rng.random(rows.size) < 0.5, HARM, LUCK)
    eaten = np.where(table.labels[rows] == 1, EDIBLE, poison)
    return features[rows], np.column_stack([np.zeros(rows.size), eaten])


def recommend(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The ratings of 32 jokes, drawn for each run, are the context, the eight others the arms."""
    jokes = rng.permutation(features.shape[1])
    known, arms = jokes[:-JESTER_ARMS], jokes[-JESTER_ARMS:]
    return features[np.ix_(rows, known)], table.features[np.ix_(rows, arms)]


def invest(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Eight portfolios of unit norm, drawn for each run; the noise of the k-th grows with k."""
    weights = rng.uniform(-1, 1, (PORTFOLIOS, features.shape[1]))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    noise = PORTFOLIO_NOISE * np.arange(1, PORTFOLIOS + 1) * rng.standard_normal((rows.size, 1))
    return features[rows], table.features[rows] @ weights.T + noise


def draw(table: Table, features: str, seed: int, steps: int) -> Stream:
    """The stream of a seed; a shorter one is the beginning of a longer one.

    Standardised features come with a constant, as tutorials recommend; raw ones as they are.
    """
    values = table.features
    if features == STANDARDISED:
        spread = values.std(axis=0)
        values = (values - values.mean(axis=0)) / np.where(spread == 0, 1, spread)
    count = len(values)
    # Names, not positions: a dataset keeps its streams whatever else is measured.
    order, rest = (
        np.random.default_rng([seed, zlib.crc32(table.name.encode()), part]) for part in range(2)
    )
    # Whole passes through the table, however few steps are asked for, then cut.
    passes = -(-max(steps, LONGEST) // count)
    rows = (
        order.integers(0, count, passes * count)
        if table.replace
        else np.concatenate([order.permutation(count) for _ in range(passes)])
    )
    contexts, rewards = table.deal(table, values, rows[: max(steps, LONGEST)], rest)
    if features == STANDARDISED:
        contexts = np.column_stack([contexts, np.ones(len(contexts))])
    return Stream(np.ascontiguousarray(contexts[:steps]), rewards[:steps])


LONGEST = 10_000  # drawn always, so that the number of steps changes nothing


def read(name: str) -> Table:
    """Read a dataset from its files, which `tsucb data get` fetches."""
    dataset = datasets.DATASETS[name]
    folder = datasets.find_dataset(dataset)
    if folder is None:
        datasets.load(name)  # says in a sentence what is missing and where it belongs
        raise FileNotFoundError(f"dataset {name} is not there")
    table = READERS[name](folder)
    features = table.features.shape[1] - (JESTER_ARMS if name == "jester" else 0)
    found = (len(table.features), features, table.arms)
    if found != (dataset.rows, dataset.features, dataset.arms):
        raise ValueError(
            f"the files of {name} in {folder} give {found[0]:,} rows, {found[1]} features and "
            f"{found[2]} arms, not {dataset.rows:,}, {dataset.features} and {dataset.arms}; "
            f"get the dataset again with `tsucb data get {name}`"
        )
    return table


def text(folder: Path, name: str, **options: Any) -> pd.DataFrame:
    """The columns of a file, plain or compressed."""
    path = folder / name
    path = path if path.exists() else folder / f"{name}.gz"
    frame: pd.DataFrame = pd.read_csv(path, skipinitialspace=True, **{"header": None, **options})
    return frame


def one_hot(frame: pd.DataFrame) -> Floats:
    """Numbers as they are, and one 0-1 column for each word."""
    columns = [
        frame[[name]] if pd.api.types.is_numeric_dtype(frame[name]) else pd.get_dummies(frame[name])
        for name in frame
    ]
    return np.ascontiguousarray(np.hstack([column.to_numpy(np.float64) for column in columns]))


def mushroom(folder: Path) -> Table:
    """22 attributes in words; '?' is a word of its own."""
    frame = text(folder, "agaricus-lepiota.data", dtype=str, keep_default_na=False)
    edible = np.array(frame.pop(frame.columns[0]) == "e", dtype=np.int64)
    return Table("mushroom", one_hot(frame), edible, 2, forage, replace=True)


def statlog(folder: Path) -> Table:
    """Nine numbers; the label, 1 to 7, comes last."""
    frame = text(folder, "shuttle.trn", sep=" ")
    labels = frame.pop(frame.columns[9]).to_numpy(np.int64) - 1
    return Table("statlog", one_hot(frame), labels, 7, classify)


def covertype(folder: Path) -> Table:
    """Ten numbers and 44 indicators; the label, 1 to 7, comes last."""
    frame = text(folder, "covtype.data")
    labels = frame.pop(frame.columns[54]).to_numpy(np.int64) - 1
    return Table("covertype", one_hot(frame), labels, 7, classify)


def adult(folder: Path) -> Table:
    """Both parts; the occupation is the label; rows with a missing value ('?') left out."""
    words: dict[str, Any] = {"keep_default_na": False}
    parts = [text(folder, "adult.data", **words), text(folder, "adult.test", skiprows=1, **words)]
    frame = pd.concat(parts, ignore_index=True)
    frame = frame[~(frame == "?").any(axis=1)]
    occupations, labels = np.unique(frame.pop(frame.columns[6]).to_numpy(str), return_inverse=True)
    return Table("adult", one_hot(frame), labels.astype(np.int64), occupations.size, classify)


def census(folder: Path) -> Table:
    """67 coded answers, one-hot; the label is dOccup."""
    rows = datasets.DATASETS["census"].rows
    frame = text(folder, "USCensus1990.data.txt", header=0, nrows=rows).drop(columns="caseid")
    labels = frame.pop("dOccup").to_numpy(np.int64)
    return Table("census", one_hot(frame.astype(str)), labels, 9, classify)


def jester(folder: Path) -> Table:
    """The 40 jokes rated most, and the users who rated all of them."""
    ratings = text(folder, "jester-data-1.csv").to_numpy(np.float64)[:, 1:]
    counts = (ratings != NOT_RATED).sum(axis=0)
    ratings = ratings[:, np.sort(np.argsort(-counts, kind="stable")[:JOKES])]
    ratings = ratings[(ratings != NOT_RATED).all(axis=1)]
    return Table("jester", ratings, np.empty(0, np.int64), JESTER_ARMS, recommend)


def financial(folder: Path) -> Table:
    """Daily price differences of 21 stocks, below a header of their names."""
    frame = text(folder, "raw_stock_contexts", sep=" ", skiprows=1)
    return Table("financial", one_hot(frame), np.empty(0, np.int64), PORTFOLIOS, invest)


READERS: dict[str, Callable[[Path], Table]] = {
    "mushroom": mushroom,
    "statlog": statlog,
    "covertype": covertype,
    "adult": adult,
    "census": census,
    "jester": jester,
    "financial": financial,
}
