"""The log of decisions and rewards that an agent writes: its columns and files, and how to read it.

The log is a folder, by convention named `….parquet`. A decision is a row of kind "decision"; its
reward, whenever it comes, is a row of kind "reward". `read` joins them. The newest rows are lines
of JSON in a journal; once there are enough of them, a Parquet file replaces the journal. A process
that is killed loses nothing that was written. Each process writes its own files, so several
processes may share a folder.
"""

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.checks import LARGEST, MOST, shown
from tsucb.extras import require
from tsucb.logs.parquet import open_parquet, read_errors

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

JOURNAL, FINISHED = ".jsonl", ".parquet"
MOST_DIGITS = 300  # digits of a whole number; the largest float has 309


def read(path: str | os.PathLike[str]) -> "pd.DataFrame":
    """Return the decisions of a log, one row each in the order of time, with their rewards.

    The columns are those of a decision's row (see `tsucb.agent.DecisionLog`) and `propensity`, the
    probability of the arm played; `reward`, NaN where none came (yet); `reward_time`; `expired`.
    Rewards of decisions that are not in the log are left out.

    Parameters
    ----------
    path
        The folder, or a single Parquet file of it.
    """
    return joined(_all_rows(Path(path)), str(path))


def joined(rows: list[Row], path: str = "the log") -> "pd.DataFrame":
    """Return the decisions among rows of both kinds with their rewards, as `read` does."""
    require("tables", "pandas")
    import pandas as pd

    decisions, rewards = _pairs(rows)
    if not decisions:
        raise ValueError(f"{path} holds no decisions")
    table = pd.DataFrame(decisions).drop(columns=["kind", "reward", "expired"], errors="ignore")
    found = [rewards.get(place, {}) for place in range(len(decisions))]
    table["reward"] = np.array([row.get("reward") for row in found], dtype=np.float64)
    table["reward_time"] = np.array([row.get("time") for row in found], dtype=np.float64)
    table["expired"] = [bool(row.get("expired", False)) for row in found]
    table["propensity"] = [
        math.nan if chances is None else float(chances[list(arms).index(arm)])
        for chances, arms, arm in zip(
            table["probabilities"], table["arms"], table["arm"], strict=True
        )
    ]
    return table.sort_values("time", kind="stable", ignore_index=True)


def _pairs(rows: list[Row]) -> tuple[list[Row], dict[int, Row]]:
    """Return the decisions, and their rewards by the index of the decision.

    Ids may be used again. A reward belongs to the last decision with its id before it. If there is
    none, it belongs to the first one after it: the files of several processes are in any order. The
    first of several rewards counts. A decision with the same id and time as the last one is a copy.
    """
    decisions: list[Row] = []
    rewards: dict[int, Row] = {}
    last: dict[str, int] = {}
    early: dict[str, Row] = {}
    for row in rows:
        id = row["id"]
        if row.get("kind") == "decision":
            place = last.get(id)
            if place is not None and decisions[place].get("time") == row.get("time"):
                decisions[place] = row
                continue
            last[id] = len(decisions)
            if id in early:
                rewards[len(decisions)] = early.pop(id)
            decisions.append(row)
        elif row.get("kind") == "reward" and id not in last:
            early.setdefault(id, row)
        elif row.get("kind") == "reward":
            rewards.setdefault(last[id], row)
    return decisions, rewards


def context_of(text: str | None) -> tuple[Any, dict[str, Any] | None]:
    """Return the context in a decision's row, and the features of its arms, None without any.

    >>> context_of('{"hour": 9}')
    ({'hour': 9}, None)
    >>> context_of('{"context": {"hour": 9}, "arms": {"tea": {"hot": 1}}}')
    ({'hour': 9}, {'tea': {'hot': 1}})
    """
    try:
        found: Any = parsed(text) if isinstance(text, str) else None  # pandas has NaN for None
    except ValueError as error:
        raise ValueError(f"the log has a context that cannot be read: {error}") from None
    both = isinstance(found, dict) and found.keys() == {"context", "arms"}
    if both and isinstance(found["arms"], dict):
        return found["context"], found["arms"]
    return found, None


def is_decision_log(path: Path) -> bool:
    """Return whether this is a folder, or a Parquet file, that a `DecisionLog` wrote."""
    if path.is_dir():
        return any(path.glob(f"*{FINISHED}")) or any(path.glob(f"*{JOURNAL}"))
    if path.suffix != FINISHED or not path.is_file():
        return False
    try:
        names = set(open_parquet(path).schema_arrow.names)
    except ValueError:
        return False
    return {"kind", "id", "arms", "probabilities"} <= names


def _all_rows(path: Path) -> list[Row]:
    """Return the rows of all files of a log, or of a single Parquet file."""
    if not path.exists():
        raise ValueError(f"there is no decision log {path}")
    files = (
        sorted([*path.glob(f"*{FINISHED}"), *path.glob(f"*{JOURNAL}")]) if path.is_dir() else [path]
    )
    # A process that was killed may have written a Parquet file without removing its journal.
    finished = {file.stem for file in files if file.suffix == FINISHED}
    rows: list[Row] = []
    for file in files:
        if file.suffix == FINISHED:
            rows += _parquet_rows(file)
        elif file.stem not in finished:
            rows += journal_rows(file)
    return rows


def _parquet_rows(file: Path) -> list[Row]:
    table, rows = open_parquet(file), list[Row]()
    names = table.schema_arrow.names
    if not {"kind", "id", "arms"} <= set(names):
        raise ValueError(f"{file} is no decision log: it has the columns {', '.join(names[:9])}")
    with read_errors(file):
        for batch in table.iter_batches(columns=[name for name in names if name in COLUMNS]):
            rows += map(checked_row, batch.to_pylist())
    return rows


def write_parquet(groups: Iterable[list[Row]], sink: Any) -> None:
    """Write rows of both kinds as a Parquet file, with one group of them in memory at a time."""
    require("tables", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number = pa.string(), pa.float64()
    types = {str: text, float: number, bool: pa.bool_()}
    types |= {list[str]: pa.list_(text), list[float]: pa.list_(number)}
    schema = pa.schema({name: types[kind] for name, kind in COLUMNS.items()})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for rows in groups:
            columns = [pa.array([row.get(kind.name) for row in rows], kind.type) for kind in schema]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def journal_rows(file: Path) -> list[Row]:
    """Return the rows of a journal; leave out a last line that was cut off."""
    rows: list[Row] = []
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                rows.append(checked_row(parsed(line)))
        except ValueError as error:
            if number == len(lines):
                break  # the last line, cut off when its process was killed
            raise ValueError(f"{file}, line {number}, is not well formed: {error}") from None
    return rows


def parsed(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if there is none."""
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def checked_row(value: Any) -> Row:
    """Return a row of a log; raise ValueError if no `DecisionLog` writes such a row."""
    row: Row = value if isinstance(value, dict) else {}
    kind = row.get("kind")
    columns = ROWS.get(kind) if isinstance(kind, str) else None
    if columns is None:
        raise ValueError(f"a row is a decision or a reward, not {shown(value)}")
    for name, (_, check) in columns.items():
        if name not in row or not check(row[name]):
            raise ValueError(f"its {name} is {shown(row.get(name))}")
    if kind == "decision":
        lists = [row[name] for name in ("probabilities", "mean", "std")]
        if any(each is not None and len(each) != len(row["arms"]) for each in lists):
            raise ValueError("it needs one probability, mean and std for each arm")
        if row["arm"] not in row["arms"]:
            raise ValueError(f"its arm {shown(row['arm'])} was not offered")
    return row


def is_number(value: Any) -> bool:
    """Return whether a value is a number, perhaps infinite or NaN."""
    return type(value) is float or (type(value) is int and abs(value) <= MOST)


def is_list(value: Any, good: Callable[[Any], bool]) -> bool:
    """Return whether a value is a list whose entries all pass the check `good`."""
    return isinstance(value, list) and all(map(good, value))


def is_text(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def is_size(value: Any) -> bool:
    """Return whether a value is a number that agents accept: finite, and not too large."""
    return is_number(value) and abs(value) <= LARGEST


def is_chance(value: Any) -> bool:
    """Return whether a value is a probability, up to rounding."""
    return is_number(value) and 0 <= value <= 1 + 1e-9


# The columns of both kinds of rows, each with its type in Parquet files and the check of a value;
# `tsucb.agent.DecisionLog` says what they mean.
ROWS: dict[str, dict[str, tuple[Any, Callable[[Any], bool]]]] = {
    "decision": {
        "id": (str, is_text),
        "time": (float, is_size),
        "policy": (str, is_text),
        "context": (str, lambda value: value is None or is_text(value)),
        "arms": (list[str], lambda value: bool(value) and is_list(value, is_text)),
        "arm": (str, is_text),
        "favourite": (str, is_text),
        "probabilities": (list[float], lambda value: value is None or is_list(value, is_chance)),
        "target": (float, is_number),
        "alpha": (float, is_number),
        "mean": (list[float], lambda value: is_list(value, is_number)),
        "std": (list[float], lambda value: is_list(value, is_number)),
    },
    "reward": {
        "id": (str, is_text),
        "time": (float, is_size),
        "reward": (float, lambda value: value is None or is_size(value)),
        "expired": (bool, lambda value: isinstance(value, bool)),
    },
}
COLUMNS = {"kind": str} | {name: kind for row in ROWS.values() for name, (kind, _) in row.items()}
