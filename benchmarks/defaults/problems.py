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
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsucb.paper import datasets
from tsucb.paper.datasets.tables import one_hot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RAW, STANDARDISED = "raw", "standardised"
# Rewards r are told as factor · r + shift; totals are always of r itself.
SCALES = {"as is": (1.0, 0.0), "×100": (100.0, 0.0), "÷100": (0.01, 0.0), "+10": (1.0, 10.0)}
# Rewards are rescaled where every library is at its best, with features prepared for it.
VARIANTS = [(RAW, "as is"), *((STANDARDISED, scale) for scale in SCALES)]

JESTER_ARMS = 8
LONGEST = 10_000  # always drawn, so that the number of steps changes nothing
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


def read(name: str) -> Table:
    """Read a dataset from its files, which `tsucb data get` downloads."""
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


def read_columns(name: str) -> tuple[pd.DataFrame, Integers]:
    """Return the raw columns of a classification, and its labels."""
    dataset = datasets.DATASETS[name]
    folder = datasets.find_dataset(dataset)
    assert folder is not None
    assert dataset.columns is not None
    return dataset.columns(folder)
