"""Read tables from CSV and Parquet files, and their columns."""

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.extras import require
from tsucb.numeric.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: Path) -> "pd.DataFrame":
    """Return the table in a CSV or Parquet file."""
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
    """Return the arms in an entry of a column of available arms: a list, or text.

    >>> arms_of("a|b c"), arms_of([1, 2]), arms_of(7)
    (('a', 'b', 'c'), ('1', '2'), ('7',))
    """
    if isinstance(entry, list | tuple | np.ndarray):
        return tuple(map(str, entry))
    return tuple(re.split(r"[\s|;,]+", str(entry).strip()))


def numeric(table: "pd.DataFrame", name: str) -> Floats:
    """Return a column of numbers; raise ValueError if it holds text."""
    column = table[name]
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name!r} holds text, such as {str(column.iloc[0])!r}, where numbers are "
            "expected; encode it, or name the context columns that are numbers"
        )
    return column.to_numpy(dtype=np.float64)
