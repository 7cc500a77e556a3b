"""Read the log of decisions and rewards that an agent writes.

The log is a folder, by convention named `….parquet`. A decision is a row of kind "decision", its
reward, whenever it comes, a row of kind "reward"; `read` joins them. The newest rows are lines of
JSON in a journal; once there are enough of them, a Parquet file replaces the journal. A process
that is killed loses nothing that was written. Each process writes files of its own, so several may
share a folder.
"""

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.extras import require

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

JOURNAL, FINISHED = ".jsonl", ".parquet"


def read(path: str | os.PathLike[str]) -> "pd.DataFrame":
    """Return the decisions of a log, one row each in the order of time, with their rewards.

    The columns are those of a decision's row (see `tsucb.agent.DecisionLog`) and `propensity`, the
    probability of the arm played; `reward`, NaN where none came (yet); `reward_time`; `expired`.
    Rewards for decisions that are not in the log are left out.

    Parameters
    ----------
    path
        The folder; or a single Parquet file of it.
    """
    return joined(_all_rows(Path(path)), str(path))


def joined(rows: list[Row], path: str = "the log") -> "pd.DataFrame":
    """Join rows of both kinds; return them as `read` does."""
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
    """Return the decisions, and the reward of each by its place among them.

    Ids may be used again: a reward belongs to the last decision by its id before it, or where none
    is, as files of several processes are in any order, to the first one after it. Of several
    rewards the first counts; a decision with the time of the one before is a copy of it.
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
    """Return the context of a decision's row, and the features of its arms if it has any.

    >>> context_of('{"hour": 9}')
    ({'hour': 9}, None)
    >>> context_of('{"context": {"hour": 9}, "arms": {"tea": {"hot": 1}}}')
    ({'hour': 9}, {'tea': {'hot': 1}})
    """
    found: Any = json.loads(text) if isinstance(text, str) else None  # pandas has NaN for None
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
    require("tables", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = set(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError):
        return False
    return {"kind", "id", "arms", "probabilities"} <= names


def _all_rows(path: Path) -> list[Row]:
    """Return the rows of all files of a log, or of a single Parquet file."""
    if not path.exists():
        raise ValueError(f"there is no decision log {path}")
    files = (
        sorted([*path.glob(f"*{FINISHED}"), *path.glob(f"*{JOURNAL}")]) if path.is_dir() else [path]
    )
    # A journal whose Parquet file is there was left by a process killed between the two.
    finished = {file.stem for file in files if file.suffix == FINISHED}
    rows: list[Row] = []
    for file in files:
        if file.suffix == FINISHED:
            rows += _parquet_rows(file)
        elif file.stem not in finished:
            rows += _journal_rows(file)
    return rows


def _parquet_rows(file: Path) -> list[Row]:
    require("tables", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[Row] = pq.read_table(file).to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"cannot read {file}: {' '.join(str(error).split())}") from None
    if rows and not {"kind", "id", "arms"} <= rows[0].keys():
        raise ValueError(
            f"{file} is no decision log: it has the columns {', '.join(map(str, rows[0]))}"
        )
    return rows


def _journal_rows(file: Path) -> list[Row]:
    rows: list[Row] = []
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                rows.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break  # the last line, cut off when its process was killed
            raise ValueError(f"{file}, line {number}, is not well formed") from None
    return rows
