"""Learn from histories: tables, arrays, and Parquet files too long for one table."""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsucb.agent.knowledge import plain_name
from tsucb.agent.learner import Learner, Lesson
from tsucb.agent.machine import OBSERVED
from tsucb.agent.merging import merge
from tsucb.checks import shown
from tsucb.contexts.readers import Arm, ReadQuestion, narrow_rows
from tsucb.extras import require
from tsucb.logs.parquet import open_parquet, read_errors
from tsucb.numeric.arrays import Floats

if TYPE_CHECKING:
    from tsucb.agent.agent import Agent

ROWS = 50_000  # rows of a file that are read at a time


class History(NamedTuple):
    """A checked history, and what reads its contexts."""

    question: ReadQuestion
    arms: list[Arm]
    rewards: Floats


def observations(
    learner: Learner, history: Any, arm: str, reward: str, features: Sequence[str]
) -> History:
    """Return a history, checked, as `Agent.fit` takes it; nothing has changed."""
    reader = learner.reader
    described = reader.has_arm_features
    lengths = {3} if not described else {3, 4} if learner.described else {4}
    if features and not described:
        raise TypeError(f"{reader.model_name} knows no features of arms beside a context")
    if isinstance(features, str):
        raise TypeError(f"features is a list of names of columns, such as [{shown(features)}]")
    if isinstance(history, Mapping) or hasattr(history, "columns"):
        contexts, arms, given, rewards = reader.columns(history, arm, reward, features)
    elif isinstance(history, tuple | list) and len(history) in lengths:
        contexts, arms, *more, rewards = history
        given = more[0] if more else None
    elif described:
        raise ValueError("a history is a table, or four: contexts, arms, features, rewards")
    else:
        raise ValueError("a history is a table, or three arrays: contexts, arms, rewards")
    for what, values in (("arms", arms), ("rewards", rewards)):
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise TypeError(f"the {what} of a history are an array or a list, not {shown(values)}")
    names = np.asarray(arms).tolist() if isinstance(arms, np.ndarray) else list(arms)
    values = np.array([learner.check_reward(value) for value in rewards], dtype=np.float64)
    for name in distinct(names):
        learner.name_of(name)
    if given is None and learner.described:
        given = [learner.described.get(name) for name in names]
    read = partial(reader.read_history, contexts, given, len(names))
    reading = read()
    if not len(names) == len(values) == len(reading.x):
        raise ValueError(
            f"{len(reading.x)} contexts, {len(names)} arms and {len(values)} rewards do not "
            "match; give one of each per observation"
        )
    return History(ReadQuestion(read, reading), list(map(plain_name, names)), values)


def distinct(names: list[Any]) -> Iterable[Any]:
    """Return each name once; all of them where one is unhashable, which no name of an arm is."""
    try:
        return dict.fromkeys(names)
    except TypeError:
        return names


def fit(learner: Learner, history: History) -> None:
    """Learn from observations in their order: into a copy, which one assignment adopts."""
    question, names, rewards = history
    reading = learner.reader.current(question)
    known = learner.widened(reading).copied()
    rows = narrow_rows(reading).reshape(len(names), -1 if names else 0)
    most = max(learner.most_arms // 2, 1) if learner.coming else None
    for piece in parts(names, most):
        some = tuple(dict.fromkeys(names[piece]))
        known, places = learner.columns_of(known, some)
        column = dict(zip(some, places.tolist(), strict=True))
        columns = np.array([column[name] for name in names[piece]], dtype=np.int64)
        values, ends = rows[piece].ravel(), rows.shape[1] * np.arange(1, columns.size + 1)
        lesson = Lesson(values, ends, columns, np.full(columns.size, OBSERVED), rewards[piece])
        known = learner.taught(known, lesson)
    learner.adopt(reading, known)


def parts(names: list[Arm], most: int | None) -> Iterator[slice]:
    """Yield slices of a history with at most this many different arms each; one slice for None."""
    first, seen = 0, set[Arm]()
    for i, name in enumerate(names):
        if most is not None and len(seen) == most and name not in seen:
            yield slice(first, i)
            first, seen = i, set()
        seen.add(name)
    yield slice(first, len(names))


def pieces(path: str | os.PathLike[str]) -> Iterator[tuple[Path, Any]]:
    """Yield (file, table) for pieces of a Parquet file, or of those in a folder by their names."""
    for file in files(path):
        parquet = open_parquet(file)
        with read_errors(file):
            for batch in parquet.iter_batches(ROWS):
                yield file, batch.to_pandas()


def files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the Parquet files at a path; raise ValueError if there are none."""
    where = Path(path)
    found = sorted(where.glob("*.parquet")) if where.is_dir() else [where]
    if not found or not all(file.is_file() for file in found):
        raise ValueError(f"there is no Parquet file at {where}; give a file, or a folder of them")
    return found


def check_files(learner: Learner, path: str | os.PathLike[str], settings: dict[str, Any]) -> None:
    """Raise an error that names the file if any of the files cannot be learned."""
    for file, table in pieces(path):
        try:
            observations(learner, table, **settings)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        except TypeError as error:
            raise TypeError(f"{file}: {error}") from None


def fitted_on_cluster(
    agent: Any, path: str | os.PathLike[str], settings: Any, cluster: Any
) -> "Agent":
    """Return an agent that learned the files at a path; Dask's workers learn one file each."""
    require("cluster", "distributed")
    from distributed import Client, as_completed

    base: Agent = copy.copy(agent)
    client = cluster if isinstance(cluster, Client) else Client(cluster, timeout=10)
    try:
        tasks = [
            client.submit(_fitted_file, base, str(file.resolve()), settings, pure=False)
            for file in files(path)
        ]
        parts: dict[Any, Agent] = {}
        for task in as_completed(tasks):
            parts[task] = task.result()
    finally:
        if client is not cluster:
            client.close()
    result = base
    for task in tasks:  # in the order of the files, so that every run gives the same result
        result = merge(result, parts[task], base)
    return result


def _fitted_file(base: "Agent", path: str, settings: Any) -> "Agent":
    agent = copy.copy(base)
    for _, table in pieces(path):
        agent.fit(table, **settings)
    return agent
