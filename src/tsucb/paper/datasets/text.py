"""Read tables of separated text into arrays, and say which line is wrong when one is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.paper.datasets.files import File, existing_file, read_content

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Column: TypeAlias = NDArray[Any]  # of numbers or of words


class Text:
    """A file of rows of separated fields.

    Parameters
    ----------
    folder, file
        Where a file of a dataset lies, plain or `.gz`.
    columns
        The number of fields that every row must have.
    separator
        The character between fields; spaces around a field do not count.
    header
        The number of lines before the first row. Blank lines are no rows.
    limit
        Read no more lines than this.
    """

    def __init__(
        self,
        folder: Path,
        file: File,
        *,
        columns: int,
        separator: str = ",",
        header: int = 0,
        limit: int | None = None,
    ) -> None:
        self.path = existing_file(folder, file)
        self.columns = columns
        self.separator = separator
        self.header = header
        self.content = read_content(file, self.path)
        if limit is not None:
            self.content = b"\n".join(self.content.split(b"\n", limit)[:limit])

    def read(self, numbers: Sequence[int]) -> list[Column]:
        """All columns: those listed in `numbers` as finite numbers, the others as words."""
        import pyarrow as pa
        from pyarrow import csv

        names = [str(column) for column in range(self.columns)]
        kinds = {name: pa.float64() if int(name) in numbers else pa.string() for name in names}
        try:
            table = csv.read_csv(
                pa.BufferReader(self.content),
                read_options=csv.ReadOptions(column_names=names, skip_rows=self.header),
                parse_options=csv.ParseOptions(delimiter=self.separator, quote_char=False),
                convert_options=csv.ConvertOptions(column_types=kinds, null_values=[]),
            )
        except pa.ArrowInvalid as error:
            raise self.fault(numbers, str(error)) from None
        if table.num_rows == 0:
            raise ValueError(f"{self.path} holds no rows")
        columns = [table[name].to_numpy() for name in names]
        if not all(np.isfinite(columns[column]).all() for column in numbers):
            raise self.fault(numbers, "a number is not finite")
        return [
            column if index in numbers else np.char.strip(column.astype(str))
            for index, column in enumerate(columns)
        ]

    def lines(self) -> list[tuple[int, str]]:
        """The rows as text, each with its line number in the file."""
        text = self.content.decode("utf-8", errors="replace").split("\n")
        return [
            (number, line)
            for number, line in enumerate(text, start=1)
            if number > self.header and line.strip()
        ]

    def error(self, row: int, message: str) -> ValueError:
        """The error of a row, naming the file and the line."""
        number, _ = self.lines()[row]
        return ValueError(f"{self.path}, line {number}: {message}")

    def fault(self, numbers: Sequence[int], reason: str) -> ValueError:
        """The first fault, found line by line: the fast reader does not tell where it was."""
        for row, (_, line) in enumerate(self.lines()):
            fields = line.split(self.separator)
            if len(fields) != self.columns:
                found = f"{len(fields)} fields instead of {self.columns}"
                return self.error(row, f"{found}; the file is truncated or another one")
            for column in numbers:
                try:
                    finite = np.isfinite(float(fields[column]))
                except ValueError:
                    finite = False
                if not finite:
                    return self.error(
                        row, f"field {column + 1} is {fields[column].strip()!r}, not a number"
                    )
        return ValueError(f"{self.path} cannot be read: {reason}")

    def labels(self, column: Column, first: int, last: int) -> Integers:
        """A column of whole numbers from `first` to `last`, counted from 0."""
        wrong = (column != np.round(column)) | (column < first) | (column > last)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self.error(row, f"the label is {column[row]:g}, not one of {first} to {last}")
        return column.astype(np.int64) - first


def one_hot(columns: Sequence[Column]) -> Floats:
    """Numbers as they are and one 0-1 column for each word, side by side, shape (rows, features).

    >>> one_hot([np.array([0.5, 2.0]), np.array(["yes", "no"])])
    array([[0.5, 0. , 1. ],
           [2. , 1. , 0. ]])
    """
    return np.column_stack(
        [
            column if column.dtype.kind == "f" else column[:, None] == np.unique(column)
            for column in columns
        ]
    ).astype(np.float64, copy=False)


def standardise(features: Floats) -> Floats:
    """Every column with mean 0 and standard deviation 1; a constant one becomes 0.

    >>> standardise(np.array([[1.0, 7.0], [3.0, 7.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    spread = features.std(axis=0)
    spread[spread == 0] = 1.0
    return np.asarray((features - features.mean(axis=0)) / spread)
