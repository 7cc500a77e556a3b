"""Open Parquet files, also untrusted ones: check a file's stated size before reading it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tsucb.checks import MISFITS
from tsucb.extras import require

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MOST_COLUMNS = 10_000  # of a table
MOST_FOOTER = 1 << 26  # bytes of the footer, which describes columns and groups
SMALL, EXPANSION = 1_000_000, 100  # rows that any file may have, and rows per byte of a larger one


def open_parquet(path: str | os.PathLike[str]) -> "pq.ParquetFile":
    """Return a Parquet file to read from; raise ValueError if it is not one, or too large.

    Reading its rows may fail, too: do that within `read_errors`.
    """
    require("tables", "pyarrow")
    import pyarrow.parquet as pq

    with read_errors(path):
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 8, 0))
            if int.from_bytes(file.read(4), "little") > min(MOST_FOOTER, size):
                raise ValueError("its footer is longer than that of a table")
        found = pq.ParquetFile(path)
        if found.metadata.num_rows > max(SMALL, EXPANSION * size):
            raise ValueError(f"{found.metadata.num_rows:,} rows in {size:,} bytes cannot be")
    check_width(str(path), found.metadata.num_columns)
    return found


@contextmanager
def read_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the errors that reading a file raises into ValueError with the file's name."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (pa.ArrowException, OSError, *MISFITS) as error:
        text = " ".join(str(error).split())[:300]
        if isinstance(error, LookupError | AttributeError | TypeError):  # from pandas' metadata
            text = f"its description of its columns is wrong ({text})"
        raise ValueError(f"cannot read {path}: {text}") from None


def check_width(where: str, columns: int) -> None:
    """Raise ValueError for a table with too many columns."""
    if columns > MOST_COLUMNS:
        raise ValueError(
            f"{where} has {columns:,} columns, and {MOST_COLUMNS:,} are read at most; "
            "write a table with arm, reward and the features that matter"
        )
