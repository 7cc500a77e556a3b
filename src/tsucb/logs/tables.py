"""Logged data from the files that people have: CSV and Parquet."""

import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.extras import require
from tsucb.logs.logged_data import LoggedData, check_events
from tsucb.numeric.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd


def read_events(
    path: str | os.PathLike[str],
    *,
    arm: str,
    reward: str,
    contexts: Sequence[str] | None = None,
    available: str | None = None,
    propensity: str | None = None,
    uniform: bool = False,
    intercept: bool = False,
) -> LoggedData:
    """Logged data from a CSV or Parquet file with one row for each event, in order.

    Parameters
    ----------
    path
        A `.csv` file (possibly `.csv.gz`) with a header, or a `.parquet` file.
    arm, reward, propensity
        Names of the columns; arms may have any names.
    contexts
        Names of numeric columns; by default all that are not named otherwise.
    available
        Column with the arms that could have been played: a list, or text such as `a|b|c` with
        `|`, `;`, `,` or spaces between the names; every arm of the log by default.
    uniform
        As for `LoggedData`.
    intercept
        Whether a feature that is always 1 is added to contexts, for models that have no constant
        of their own, such as `NIGLinear`.
    """
    table = read_table(Path(path))
    named = [name for name in (arm, reward, available, propensity) if name is not None]
    columns = table.columns.astype(str).tolist()
    features = [c for c in columns if c not in named] if contexts is None else list(contexts)
    for name in [*named, *features]:
        if name not in columns:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(columns)}")
        check_events(table[name].notna().to_numpy(), f"column {name!r} is empty")
    played = table[arm].astype(str).tolist()
    sets, which = [tuple(set(played))], [0] * len(played)
    if available is not None:
        numbers: dict[tuple[str, ...], int] = {}
        which = [numbers.setdefault(arms_of(e), len(numbers)) for e in table[available]]
        sets = list(numbers)
    names = sorted({*played, *(name for each in sets for name in each)})
    index = {name: i for i, name in enumerate(names)}
    ones = np.ones((len(played), 1 if features and intercept else 0))
    return LoggedData(
        [index[name] for name in played],
        numeric(table, reward),
        np.column_stack([ones, *(numeric(table, name) for name in features)]),
        available=([[index[name] for name in each] for each in sets], which),
        propensity=None if propensity is None else numeric(table, propensity),
        uniform=uniform,
    )


def read_table(path: Path) -> "pd.DataFrame":
    """The table in a CSV or Parquet file."""
    require("tables", "pandas")
    import pandas as pd

    if not path.exists():
        raise ValueError(f"there is no file {path}")
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        elif re.search(r"\.csv(\.gz)?$", path.name):
            table = pd.read_csv(path)
        else:
            raise ValueError(f"{path} is neither .csv, .csv.gz nor .parquet")
    except (EOFError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}") from None
    except (ValueError, OSError) as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if table.empty:
        raise ValueError(f"{path} holds no events, only a header")
    return table


def arms_of(entry: Any) -> tuple[str, ...]:
    """The arms in an entry of a column of available arms: a list, or text.

    >>> arms_of("a|b c"), arms_of([1, 2]), arms_of(7)
    (('a', 'b', 'c'), ('1', '2'), ('7',))
    """
    if isinstance(entry, list | tuple | np.ndarray):
        return tuple(map(str, entry))
    return tuple(re.split(r"[\s|;,]+", str(entry).strip()))


def numeric(table: "pd.DataFrame", name: str) -> Floats:
    """A column of numbers, or a sentence on what is wrong with it."""
    column = table[name]
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name!r} holds text, such as {str(column.iloc[0])!r}, where numbers are "
            "expected; encode it, or name the context columns that are numbers"
        )
    return column.to_numpy(dtype=np.float64)
