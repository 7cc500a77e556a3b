"""The seven datasets, and three tables of river, as bandits with the rewards of all arms.

The package's own loaders standardise four of the datasets, using all rows. Here features stay raw,
so that a library can be given what a new user would give it.

A stream is the same for all libraries: contexts in one order, and the reward of every arm at every
step, drawn beforehand. The rules are those of the deep bandit benchmark (Riquelme, Tucker
and Snoek 2018), with two differences: a poisonous mushroom and a portfolio's noise are drawn before
anybody chooses, and a run that is longer than its table goes through it again in another order.
"""

import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.paper import datasets
from tsucb.paper.datasets.sources import COLUMNS, Columns, one_hot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RAW, STANDARDISED = "raw", "standardised"
# A learner is given factor · r + shift for a reward r; totals are of r itself.
SCALES = {"as is": (1.0, 0.0), "×100": (100.0, 0.0), "÷100": (0.01, 0.0), "+10": (1.0, 10.0)}
# Rewards are rescaled with standardised features, where every library is at its best.
VARIANTS = [(RAW, "as is"), *((STANDARDISED, scale) for scale in SCALES)]

RIVER = {"bananas": "Bananas", "segments": "ImageSegments", "phishing": "Phishing"}
JESTER_ARMS = 8
LONGEST = 10_000  # always drawn, so that the number of steps changes nothing
PORTFOLIOS, PORTFOLIO_NOISE = 8, 0.01
EDIBLE, HARM, LUCK = 5.0, -35.0, 5.0


class Table(NamedTuple):
    """A dataset in memory: raw features, and the function from rows to contexts and rewards."""

    name: str
    features: Floats  # (rows, d); of jester all ratings
    labels: Integers  # (rows,); empty where the rule needs none
    arms: int
    deal: Callable[["Table", Floats, Integers, np.random.Generator], tuple[Floats, Floats]]
    replace: bool = False  # draw rows with replacement


class Stream(NamedTuple):
    """The contexts and rewards of one run, the same for all libraries."""

    contexts: Floats  # (steps, d)
    rewards: Floats  # (steps, K), in the dataset's own units


def classify(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return rewards of 1 for the right label, 0 for any other."""
    return features[rows], np.eye(table.arms)[table.labels[rows]]


def forage(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return 0 for leaving a mushroom; for eating it 5, or −35 half the time if poisonous."""
    poison = np.where(rng.random(rows.size) < 0.5, HARM, LUCK)
    eaten = np.where(table.labels[rows] == 1, EDIBLE, poison)
    return features[rows], np.column_stack([np.zeros(rows.size), eaten])


def recommend(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the ratings of 32 jokes as contexts, and those of the eight others as rewards."""
    jokes = rng.permutation(features.shape[1])
    known, arms = jokes[:-JESTER_ARMS], jokes[-JESTER_ARMS:]
    return features[np.ix_(rows, known)], table.features[np.ix_(rows, arms)]


def invest(
    table: Table, features: Floats, rows: Integers, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the returns of eight portfolios of unit norm; the noise of the k-th grows with k."""
    weights = rng.uniform(-1, 1, (PORTFOLIOS, features.shape[1]))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    noise = PORTFOLIO_NOISE * np.arange(1, PORTFOLIOS + 1) * rng.standard_normal((rows.size, 1))
    return features[rows], table.features[rows] @ weights.T + noise


def draw(table: Table, features: str, seed: int, steps: int) -> Stream:
    """Return the stream of a seed; a shorter stream is the beginning of a longer one.

    Standardised features come with a constant, as tutorials recommend; raw ones as they are.
    """
    values = table.features
    if features == STANDARDISED:
        spread = values.std(axis=0)
        values = (values - values.mean(axis=0)) / np.where(spread == 0, 1, spread)
    count = len(values)
    # Seeded by its name, a dataset has the same streams whatever else is measured.
    order, rest = (
        np.random.default_rng([seed, zlib.crc32(table.name.encode()), part]) for part in range(2)
    )
    # Draw whole passes through the table, and cut them to the number of steps.
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


def read(name: str) -> Table:
    """Read a dataset from its files, which `tsucb data get` downloads; river brings its tables."""
    if name in RIVER:
        return read_river(name)
    bandit, nothing = datasets.load(name), np.empty(0, np.int64)
    if name == "mushroom":
        edible = bandit.edible.astype(np.int64)
        return Table(name, bandit.contexts, edible, bandit.arms, forage, replace=True)
    if name == "jester":
        return Table(name, bandit.ratings, nothing, bandit.arms, recommend)
    if name == "financial":
        return Table(name, bandit.contexts, nothing, bandit.arms, invest)
    features = one_hot(read_columns(name)[0])
    return Table(name, features, bandit.labels, bandit.arms, classify)


def read_river(name: str) -> Table:
    """Return a table that comes with river; raise ValueError if river is not installed."""
    try:
        from river import datasets as tables
    except ImportError:
        raise ValueError(f"{name} needs river: pip install river") from None
    rows = list(getattr(tables, RIVER[name])())
    names = sorted({str(label) for _, label in rows})
    features = np.array([[float(value) for value in x.values()] for x, _ in rows])
    labels = np.array([names.index(str(label)) for _, label in rows])
    return Table(name, features, labels, len(names), classify)


def read_columns(name: str) -> Columns:
    """Return the raw columns of a classification, and its labels."""
    dataset = datasets.DATASETS[name]
    folder = dataset.find()
    assert folder is not None
    return COLUMNS[name](*dataset.contents(folder))
