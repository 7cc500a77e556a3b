"""Contexts as applications have them, turned into vectors; columns are learned as they come."""

import sys
import threading
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import LARGEST
from tsucb.numeric.arrays import Floats

Cell = float | str | None  # what a value was read as: a number, a category, missing

SMALLEST_BLOCK = 16  # columns, once there are more than numbers

_ARRAY, _FLOAT = np.ndarray, np.dtype(np.float64)
_PLAIN = frozenset([float, int, bool, np.float64, np.int64])  # compared and stored as they are
_KINDS = ("number", "category", "missing", "other")


class _Labels(dict[str | int, int]):
    """The columns of a feature's categories; those that have none share the other column."""

    __slots__ = ("other",)

    def __init__(self) -> None:
        self.other: int | None = None

    def column(self, label: str) -> int | None:
        column = self.get(label)
        return self.other if column is None else column

    def __missing__(self, label: str | int) -> int:
        if self.other is None or type(label) is not str:
            raise KeyError(label)
        return self.other


class _Feature:
    """Where the values of one feature go."""

    __slots__ = ("coded", "labels", "missing", "name", "number")

    def __init__(self, name: str, coded: bool) -> None:
        self.name, self.coded = name, coded
        self.number: int | None = None
        self.missing: int | None = None
        self.labels = _Labels()


class _Column(NamedTuple):
    """One feature in all rows of a table."""

    numbers: Floats  # 0 where it is none
    present: NDArray[np.bool_]  # where it is a number
    codes: NDArray[np.int64]  # the number of its category; -1 where it is none
    labels: Sequence[str]  # the categories


class Encoder:
    """Turns contexts into vectors, and learns which columns they need as they come.

    A number or a boolean has one column. A string has one column per category, 1 where the feature
    is that category. A value that is missing (None, NaN, or no such key) is 1 in a column of its
    own, and the feature's number is then its mean over the contexts learned from, so that a model
    that centres its features sees 0. Features and categories that first come late get new columns,
    which were 0 in all contexts before. Column j of a vector always means the same.

    All methods may be called from many threads. A context that is refused changes nothing.

    Parameters
    ----------
    categories
        Features whose numbers are codes, such as postcodes: each number is a category. 1, 1.0 and
        "1" are the same one.
    most_columns
        With so many columns, categories that are new share the column 'other' of their feature.
        With so many features, after the first context, new ones are left out, with a warning.

    >>> encoder = Encoder(categories=["zip"])
    >>> encoder.encode({"age": 30, "city": "Paris", "zip": 75001})[:4]
    array([30.,  1.,  1.,  0.])
    >>> encoder.encode({"age": None, "city": "Rome", "zip": 75001})[:5]
    array([30.,  0.,  1.,  1.,  1.])
    >>> encoder.names
    ('age', 'city=Paris', 'zip=75001', 'age missing', 'city=Rome')
    >>> encoder.width
    16
    >>> encoder.describe({"age": 50.0, "city": "Oslo"})
    [('age', 50.0)]
    """

    def __init__(self, *, categories: Iterable[str] = (), most_columns: int = 1_000) -> None:
        most: Any = most_columns
        if isinstance(categories, str):
            raise TypeError(f"categories is a list of names, such as [{categories!r}]")
        self.categories = frozenset(_feature_name(name) for name in categories)
        if not isinstance(most, Integral) or isinstance(most, bool) or int(most) < 1:
            raise ValueError(f"most_columns must be a whole number of at least 1, not {most!r}")
        self.most_columns = int(most)
        self.lock = threading.RLock()
        # Whatever was learned, in one place: what changes it takes its place, so that an interrupt
        # finds a context learned from or not.
        self._vocabulary = _Vocabulary(self.categories, self.most_columns)

    @property
    def width(self) -> int:
        """The length of vectors. It grows by half at a time; columns without a name are 0."""
        return self._vocabulary.width

    @property
    def used(self) -> int:
        """How many columns are in use; they come first."""
        return len(self._vocabulary.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in use."""
        return tuple(self._vocabulary.names)

    def encode(self, context: Any) -> Floats:
        """The vector of a context, after learning the columns that it needs."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        with self.lock:
            vocabulary, vector = self._vocabulary.encode(context, learn=True)
            self._vocabulary = vocabulary
            return vector

    def peek(self, context: Any) -> Floats:
        """The vector of a context, learning nothing; what has no column is left out."""
        return self._vocabulary.encode(context, learn=False)[1]

    def describe(self, context: Any) -> list[tuple[str, float]]:
        """What `peek` makes of a context: the names and values of the columns that are not 0."""
        vocabulary, vector = self._vocabulary.encode(context, learn=False)
        names = tuple(vocabulary.names)
        return [(names[i], float(vector[i])) for i in np.flatnonzero(vector).tolist()]

    def encode_table(self, table: Any) -> Floats:
        """The vectors of many contexts, one row each: as `encode` for one after the other.

        Parameters
        ----------
        table
            A data frame of pandas or polars, a mapping of names to columns, a matrix, or a list of
            contexts. If one of its rows is refused, nothing is learned from any.

        >>> encoder = Encoder()
        >>> encoder.encode_table({"age": [30, None, 40], "city": ["Rome", "Oslo", "Rome"]})[:, :4]
        array([[30.,  1.,  0.,  0.],
               [30.,  0.,  1.,  1.],
               [40.,  1.,  0.,  0.]])
        """
        if hasattr(table, "toarray"):
            table = table.toarray()
        if isinstance(table, Mapping) or hasattr(table, "columns"):
            names = list(table.columns if hasattr(table, "columns") else table)
            values = _named(names, [table[name] for name in _unique(names)])
            return self._encode_columns(values, positional=False)
        if isinstance(table, np.ndarray):
            if table.ndim != 2 or table.shape[1] == 0:
                raise ValueError(f"a table has rows and columns, but its shape is {table.shape}")
            return self._encode_columns(_numbered(table.T), positional=True)
        if not isinstance(table, Iterable) or isinstance(table, str | bytes | Set):
            raise TypeError(f"a table is a data frame, a matrix or a list, not a {_kind(table)}")
        contexts = list(table)
        if self.lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        vectors = []
        with self.lock:
            vocabulary = self._vocabulary.copied()
            for context in contexts:
                vocabulary, vector = vocabulary.encode(context, learn=True)
                vectors.append(vector)
            matrix = np.zeros((len(vectors), vocabulary.width))
            for row, vector in zip(matrix, vectors, strict=True):
                row[: vector.size] = vector
            self._vocabulary = vocabulary
            return matrix

    def _encode_columns(self, values: Mapping[str, Any], positional: bool) -> Floats:
        columns = {
            name: _column(name, column, name in self.categories) for name, column in values.items()
        }
        lengths = {column.codes.size for column in columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a table must be equally long, not {sorted(lengths)}")
        rows = lengths.pop() if lengths else 0
        if self.lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        with self.lock:
            vocabulary = self._vocabulary.copied()
            matrix = vocabulary.encode_columns(columns, rows, positional)
            self._vocabulary = vocabulary
            return matrix

    def joined(self, other: "Encoder", base: "Encoder") -> tuple["Encoder", NDArray[np.int64]]:
        """An encoder that knows what this one and another have learned since they were one.

        Returns also where it has the columns of the other; those of this one keep their places.
        """
        if self.categories != other.categories:
            raise ValueError("two encoders with different categories cannot be joined")
        result = Encoder.from_state(self.state())
        result._vocabulary, places = self._vocabulary.joined(other._vocabulary, base._vocabulary)
        return result, places

    # Storage

    def state(self) -> dict[str, Any]:
        """Everything that was learned, made of what JSON has; `from_state` takes it back."""
        return self._vocabulary.state()

    @classmethod
    def from_state(cls, state: Any) -> "Encoder":
        """The encoder that `state` described, or a ValueError if no encoder has such a state.

        >>> encoder = Encoder()
        >>> vector = encoder.encode({"age": 30, "city": "Paris"})
        >>> Encoder.from_state(encoder.state()).names
        ('age', 'city=Paris')
        """
        _check_state(state)
        encoder = cls(categories=state["categories"], most_columns=state["most_columns"])
        encoder._vocabulary = _Vocabulary.from_state(state)
        return encoder

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoder.from_state, (self.state(),)


# Contexts learned from, sums of the columns over them where they were not filled in, and in how
# many of them each column that is a number was none.
_Tally = tuple[int, Floats, NDArray[np.int64]]


class _Vocabulary:
    """The columns of an encoder, and what it has counted.

    New columns are made in a copy. Counts are replaced by others in one assignment.
    """

    def __init__(self, categories: frozenset[str], most_columns: int) -> None:
        self.categories, self.most_columns = categories, most_columns
        self.warned = False
        self.positional: bool | None = None  # None before the first context
        self.features: dict[str, _Feature] = {}
        self.columns: list[tuple[str, str, str]] = []  # feature, kind, category
        self.counted = 0  # columns that the tally has
        self.names: dict[str, None] = {}
        self.tally: _Tally = 0, np.zeros(0), np.zeros(0, dtype=np.int64)
        self.blank = array("d")
        # For reading what is known already quickly: columns of numbers, and of the categories of
        # features that never were numbers.
        self.numbers: dict[str, int] = {}
        self.labels: dict[str, _Labels] = {}
        self.shape: tuple[int] | None = None  # of arrays whose entries are the first columns

    @property
    def width(self) -> int:
        return len(self.blank)

    def copied(self) -> "_Vocabulary":
        """Another with the same columns and counts."""
        other = _Vocabulary(self.categories, self.most_columns)
        other.warned, other.positional = self.warned, self.positional
        for name in self.features:
            other._feature(name)
        for name, kind, label in self.columns:
            other._add(other.features[name], kind, label)
        learned, totals, absent = self.tally
        other.tally = learned, totals.copy(), absent.copy()
        other.blank, other.shape, other.counted = self.blank, self.shape, self.counted
        return other

    def joined(
        self, other: "_Vocabulary", base: "_Vocabulary"
    ) -> tuple["_Vocabulary", NDArray[np.int64]]:
        """See `Encoder.joined`."""
        result = self.copied()
        if result.positional is None:
            result.positional, result.shape = other.positional, other.shape
        elif other.positional not in (None, result.positional):
            raise ValueError("contexts with names and contexts without cannot be joined")
        here = {column: i for i, column in enumerate(result.columns)}
        for name, kind, label in other.columns:
            if (name, kind, label) not in here:
                here[name, kind, label] = len(result.columns)
                result._add(result._feature(name), kind, label)
        result._widen()
        places = {id(v): np.array([here[c] for c in v.columns], dtype=np.int64)
                  for v in (self, other, base)}  # fmt: skip
        learned, totals, absent = 0, np.zeros(result.width), np.zeros(result.width, dtype=np.int64)
        for vocabulary, sign in ((self, 1), (other, 1), (base, -1)):
            count, sums, missing = vocabulary.tally
            at, used = places[id(vocabulary)], len(vocabulary.columns)
            all_missing = np.full(result.width, count)  # a column that it does not have
            all_missing[at] = missing[:used]
            learned += sign * count
            totals[at] += sign * sums[:used]
            absent += sign * all_missing
        result.tally, result.counted = (learned, totals, absent), len(result.columns)
        return result, places[id(other)]

    # One context

    def encode(self, context: Any, learn: bool) -> tuple["_Vocabulary", Floats]:
        """The vector of a context, and the vocabulary that has learned from it."""
        # The common cases first, in the fastest way: the agent's own arithmetic takes 3 µs.
        kind, row, known = type(context), None, self
        unknown: list[int] = []  # columns to fill in the mean of
        if kind is dict:
            row = self._known(context, unknown)
        elif self.shape is not None and (kind is _ARRAY or kind is list or kind is tuple):
            row = self._plain(context, unknown)
        if row is None:
            unknown = []
            known, row = self._read(context, unknown, learn)
        vector: Floats = row if type(row) is _ARRAY else np.frombuffer(row)
        learned, totals, absent = known.tally
        if learn:
            totals = totals + vector
        if unknown:
            absent = absent.copy()
            for number in unknown:
                seen = learned - absent[number]
                vector[number] = totals[number] / seen if seen else 0.0
                absent[number] += 1
        if learn:
            known.tally = learned + 1, totals, absent
        return known, vector

    def _known(self, context: dict[Any, Any], unknown: list[int]) -> Any:
        """A dictionary that needs no new column, None for any other."""
        row, features, numbers, labels = self.blank[:], self.features, self.numbers, self.labels
        gaps: list[str] = []
        try:
            for name, value in context.items():
                kind = type(value)
                if kind is str:
                    row[labels[name][value]] = 1.0
                elif value is None:
                    gaps.append(name)
                elif kind not in _PLAIN:
                    return None
                elif not -LARGEST <= value <= LARGEST:
                    if value == value:
                        return None
                    gaps.append(name)
                elif name in numbers:
                    row[numbers[name]] = value
                elif kind is int:
                    row[labels[name][value]] = 1.0
                else:
                    return None
            if len(context) < len(features):
                gaps += [name for name in features if name not in context]
            for name in gaps:
                feature = features[name]
                if feature.missing is None:
                    return None
                row[feature.missing] = 1.0
                if feature.number is not None:
                    unknown.append(feature.number)
        except KeyError:
            return None
        return row if features and not self.positional else None

    def _plain(self, context: Any, unknown: list[int]) -> Any:
        """An array or a list of numbers that needs no new column, None for any other."""
        if type(context) is not _ARRAY:
            if not _PLAIN.issuperset(map(type, context)):
                return None
            try:
                context = np.array(context, dtype=np.float64)
            except OverflowError:
                return None
        elif context.dtype is not _FLOAT and context.dtype.kind in "fiub":
            context = context.astype(np.float64)
        if context.ndim == 2 and len(context) == 1:
            context = context[0]
        if context.shape != self.shape or context.dtype != _FLOAT:
            return None
        # One pass instead of two; NaN compares false. What is refused here wrongly is read slowly.
        gaps: list[int] = []
        if not context.dot(context) <= LARGEST * LARGEST:
            gaps = np.flatnonzero(np.isnan(context)).tolist()
            context = np.where(np.isnan(context), 0.0, context)
            if not context.dot(context) <= LARGEST * LARGEST:
                return None
        elif len(context) == len(self.blank):
            return context.copy()
        vector = np.zeros(len(self.blank))
        vector[: len(context)] = context
        for gap in gaps:
            feature = self.features[f"x{gap}"]
            if feature.missing is None:
                return None
            vector[feature.missing] = 1.0
            unknown.append(gap)
        return vector

    def _read(self, context: Any, unknown: list[int], learn: bool) -> tuple["_Vocabulary", Any]:
        """Any context: read every value, then make the columns that it needs, in a copy."""
        values, positional = values_of(context)
        self._check_form(list(values), positional)
        coded = self.categories
        cells = {name: _cell(name, value, name in coded) for name, value in values.items()}
        known = self
        if learn:
            left_out = self._left_out(cells)
            if not self._suffices(cells, left_out):
                known = self.copied()
                known._begin(cells, positional)
                for name, cell in cells.items():
                    if name not in left_out:
                        known._make(known._feature(name), cell)
                for feature in known.features.values():
                    if feature.name not in cells:
                        known._make(feature, None)
                known._widen()
        row = known.blank[:]
        for feature in known.features.values():
            cell = cells.get(feature.name)
            if isinstance(cell, float):
                if feature.number is not None:
                    row[feature.number] = cell
                continue
            column = feature.missing if cell is None else feature.labels.column(cell)
            if column is not None:
                row[column] = 1.0
            if feature.number is not None:
                unknown.append(feature.number)
        return known, row

    def _suffices(self, cells: Mapping[str, Cell], left_out: Set[str]) -> bool:
        """Whether every value has its column."""
        if self.positional is None:
            return False
        for name, cell in cells.items():
            if name in left_out:
                continue
            feature = self.features.get(name)
            if feature is None or self._lacks(feature, cell):
                return False
        rest = (feature for name, feature in self.features.items() if name not in cells)
        return all(feature.missing is not None for feature in rest)

    def _lacks(self, feature: _Feature, cell: Cell) -> bool:
        """Whether a value has no column, and could have one."""
        if cell is None:
            return feature.missing is None
        if isinstance(cell, float):
            return feature.number is None
        room = len(self.columns) < self.most_columns
        return cell not in feature.labels and (room or feature.labels.other is None)

    # Columns

    def _check_form(self, names: list[str], positional: bool) -> None:
        """Complain about contexts without names among contexts with names, and the reverse."""
        if self.positional is None:
            return
        if positional and not self.positional:
            raise ValueError(
                "this context is numbers without names, but earlier ones had names; give a "
                f"dictionary with the features {_listed(self.features)}"
            )
        if self.positional and not positional:
            raise ValueError(
                f"this context has names, but earlier ones were {len(self.features)} numbers "
                "without names; give a list of numbers"
            )
        if positional and len(names) != len(self.features):
            raise ValueError(
                f"this context has {len(names)} numbers, but earlier ones had "
                f"{len(self.features)}; give as many, or a dictionary from the start"
            )

    def _left_out(self, names: Iterable[str]) -> set[str]:
        """The features that there is no room for."""
        if not self.tally[0]:
            return set()
        new = [name for name in names if name not in self.features]
        left_out = new[max(self.most_columns - len(self.features), 0) :]
        if left_out and not self.warned:
            self.warned = True
            # Before anything changes: a warning may be made an error.
            warnings.warn(
                f"there are {len(self.features)} features already, so the new ones "
                f"{_listed(left_out)} are left out; raise most_columns, which is "
                f"{self.most_columns}",
                RuntimeWarning,
                stacklevel=5,
            )
        return set(left_out)

    def _begin(self, names: Iterable[str], positional: bool) -> None:
        """With the first context, decide on names; the entries of arrays have the first columns."""
        if self.positional is not None:
            return
        self.positional = positional
        if positional:
            features = [self._feature(name) for name in names]
            for feature in features:
                if not feature.coded:
                    self._make(feature, 0.0)
            if len(self.columns) == len(features):
                self.shape = (len(features),)

    def _feature(self, name: str) -> _Feature:
        feature = self.features.get(name)
        if feature is None:
            feature = self.features[name] = _Feature(name, name in self.categories)
        return feature

    def _make(self, feature: _Feature, cell: Cell) -> None:
        """Make the column for a value, if it has none."""
        if not self._lacks(feature, cell):
            return
        if cell is None:
            self._add(feature, "missing", "")
        elif isinstance(cell, float):
            self._add(feature, "number", "")
        else:
            room = len(self.columns) < self.most_columns
            self._add(feature, "category" if room else "other", cell if room else "")

    def _add(self, feature: _Feature, kind: str, label: str) -> None:
        name, labels, column = feature.name, feature.labels, len(self.columns)
        self.columns.append((name, kind, label))
        titles = {"number": name, "category": f"{name}={label}"}
        title = wanted = titles.get(kind, f"{name} {kind}")
        copies = 1
        while title in self.names:  # a feature may be called 'age missing', or 'city=Rome'
            copies += 1
            title = f"{wanted} ({copies})"
        self.names[title] = None
        if kind == "missing":
            feature.missing = column
        elif kind == "number":
            feature.number = self.numbers[name] = column
            self.labels.pop(name, None)
        else:
            if kind == "other":
                labels.other = column
            else:
                labels[label] = column
                if feature.coded and _is_code(label):
                    labels[int(label)] = column
            if feature.number is None:
                self.labels[name] = labels

    def _widen(self) -> None:
        """Make vectors long enough, with room for more where more is to be expected."""
        used, width = len(self.columns), self.width
        if not width:
            plain = used and all(kind == "number" for _, kind, _ in self.columns)
            width = used if plain else self._next_width(used)
        while width < used:
            width = self._next_width(width)
        self._resize(width)
        learned, _, absent = self.tally
        absent[self.counted : used] = learned  # what is new was in no context so far
        self.counted = used

    def _next_width(self, width: int) -> int:
        # Few columns come after the last of the categories: the model's work is quadratic in them.
        last = self.most_columns + SMALLEST_BLOCK
        wider = max(width + width // 2, SMALLEST_BLOCK)
        return min(wider, last) if width < last else wider

    def _resize(self, width: int) -> None:
        if width != self.width:
            learned, totals, absent = self.tally
            more = np.zeros(width - self.width)
            self.tally = (
                learned,
                np.concatenate([totals, more]),
                np.concatenate([absent, more.astype(np.int64)]),
            )
            self.blank = array("d", bytes(8 * width))

    # Many contexts

    def encode_columns(self, columns: dict[str, _Column], rows: int, positional: bool) -> Floats:
        """The vectors of a table's rows, after learning the columns that they need, in place."""
        self._check_form(list(columns), positional)
        if not rows:
            return np.zeros((0, self.width))
        for name in self._left_out(columns):
            del columns[name]
        self._begin(columns, positional)
        self._make_all(columns)
        return self._fill(columns, rows)

    def _make_all(self, columns: Mapping[str, _Column]) -> None:
        """Make the columns that rows need, in the order in which rows would have made them."""
        needs: list[tuple[int, int, _Feature, Cell]] = []  # row, place in it, feature, value
        for place, (name, column) in enumerate(columns.items()):
            feature = self._feature(name)
            kinds: list[tuple[Cell, NDArray[np.bool_]]]
            kinds = [(0.0, column.present), (None, _missing(column))]
            for cell, where in kinds:
                if where.any():
                    needs.append((int(where.argmax()), place, feature, cell))
            codes, firsts = np.unique(column.codes, return_index=True)
            for code, first in zip(codes.tolist(), firsts.tolist(), strict=True):
                if code >= 0 and column.labels[code] not in feature.labels:
                    needs.append((first, place, feature, column.labels[code]))
        for feature in self.features.values():
            if feature.name not in columns:
                needs.append((0, len(columns), feature, None))
        needs.sort(key=lambda need: need[:2])
        first_row = sum(need[0] == 0 for need in needs)
        for part in (needs[:first_row], needs[first_row:]):
            for _, _, feature, cell in part:
                self._make(feature, cell)
            self._widen()

    def _fill(self, columns: Mapping[str, _Column], rows: int) -> Floats:
        matrix = np.zeros((rows, self.width))
        learned, totals, absent = self.tally
        totals, absent = totals.copy(), absent.copy()
        nothing = _Column(np.zeros(rows), np.zeros(rows, bool), np.full(rows, -1), ())
        numbers: list[tuple[int, Floats, Floats]] = []
        for feature in self.features.values():
            column = columns.get(feature.name, nothing)
            if column.labels:
                labels = feature.labels
                places = np.array([labels.column(label) for label in column.labels])
                known = np.flatnonzero(column.codes >= 0)
                matrix[known, places[column.codes[known]]] = 1.0
            missing = _missing(column)
            if missing.any():
                matrix[missing, feature.missing] = 1.0
            if feature.number is not None:
                # Added one after the other, as single contexts are, for the same sums to the bit.
                sums = np.add.accumulate(np.concatenate([[totals[feature.number]], column.numbers]))
                seen = learned - absent[feature.number] + np.cumsum(column.present)
                means = sums[:-1] / np.maximum(seen - column.present, 1)
                filled = np.where(column.present, column.numbers, means)
                numbers.append((feature.number, sums, filled))
                absent[feature.number] += rows - int(column.present.sum())
        totals += matrix.sum(axis=0)
        for number, sums, filled in numbers:
            matrix[:, number] = filled
            totals[number] = sums[-1]
        self.tally = learned + rows, totals, absent
        return matrix

    # Storage

    def state(self) -> dict[str, Any]:
        """See `Encoder.state`."""
        forms = {None: "new", True: "numbered", False: "named"}
        learned, totals, absent = self.tally
        numbers = [feature.number for feature in self.features.values()]
        return {
            "categories": sorted(self.categories),
            "most_columns": self.most_columns,
            "form": forms[self.positional],
            "width": self.width,
            "learned": learned,
            "features": list(self.features),
            "absent": [0 if number is None else int(absent[number]) for number in numbers],
            "columns": [list(column) for column in self.columns],
            "totals": totals[: len(self.columns)].tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "_Vocabulary":
        """What `state` gave, checked."""
        self = cls(frozenset(state["categories"]), state["most_columns"])
        self.positional = {"new": None, "numbered": True, "named": False}[state["form"]]
        for name in state["features"]:
            self._feature(name)
        for name, kind, label in state["columns"]:
            self._add(self.features[name], kind, label)
        self._resize(state["width"])
        self.counted = len(self.columns)
        _, totals, absent = self.tally
        totals[: len(self.columns)] = state["totals"]
        for feature, gaps in zip(self.features.values(), state["absent"], strict=True):
            if feature.number is not None:
                absent[feature.number] = gaps
        self.tally = state["learned"], totals, absent
        if self.positional and not self.categories.intersection(self.features):
            self.shape = (len(self.features),)
        return self


def _refuse_reentry() -> NoReturn:
    raise RuntimeError("a context was read by a signal handler in the middle of reading another")


def values_of(context: Any) -> tuple[dict[str, Any], bool]:
    """The values of a context by feature, and whether they had no names of their own."""
    if isinstance(context, Mapping):
        return _named(list(context), list(context.values())), False
    if hasattr(context, "columns"):
        if len(context) != 1:
            raise ValueError(f"a context is one row, but the table has {len(context)} rows")
        names = list(context.columns)
        return _named(names, [next(iter(context[name])) for name in _unique(names)]), False
    if hasattr(context, "index") and hasattr(context, "items"):  # a pandas.Series
        return _named(list(context.index), list(context)), False
    if hasattr(context, "_asdict"):  # a named tuple
        return values_of(context._asdict())
    if hasattr(context, "keys"):  # a row of a database
        names = list(context.keys())
        return _named(names, [context[name] for name in names]), False
    if hasattr(context, "toarray"):  # a sparse row
        context = context.toarray()
    if not isinstance(context, list | tuple):
        if isinstance(context, str | bytes) or not hasattr(context, "__array__"):
            raise TypeError(
                "a context is a dictionary of features, a row of a table or a list of numbers, "
                f"not a {_kind(context)}"
            )
        context = _array(context)
        if context.ndim == 2 and len(context) == 1:
            context = context[0]
        if context.ndim != 1:
            raise ValueError(f"a context is one row, but the array has the shape {context.shape}")
        context = _objects(context)
    elif len(context) == 1 and isinstance(context[0], list | tuple | np.ndarray | Mapping):
        return values_of(context[0])
    if not len(context):
        raise ValueError("a context must have at least one number, but it is empty")
    return _numbered(context), True


def _numbered(values: Iterable[Any]) -> dict[str, Any]:
    return {f"x{i}": value for i, value in enumerate(values)}


def _named(names: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_unique([_feature_name(name) for name in names]), values, strict=True))


def _feature_name(name: Any) -> str:
    if type(name) is str:
        return name
    if isinstance(name, str):
        return str(name)
    # The columns of a table without names have numbers.
    if isinstance(name, Integral) and not isinstance(name, bool):
        return str(int(name))
    raise TypeError(f"features are named by strings, not by {name!r}")


def _unique(names: Sequence[Any]) -> Sequence[Any]:
    if len(set(names)) < len(names):
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        raise ValueError(f"a context has the features {_listed(twice)} twice; rename one of them")
    return names


def _cell(name: str, value: Any, coded: bool) -> Cell:
    """What a value is: a number, a category, or missing."""
    kind = type(value)
    if kind is str or value is None or (kind is float and not coded and abs(value) <= LARGEST):
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, Enum):
        return str(value.value) if isinstance(value.value, str) else value.name
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value)) if coded else float(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
    elif isinstance(value, Real | Decimal):
        try:
            number = float(value)
        except (OverflowError, ValueError):
            number = np.inf
        if number != number:
            return None
        if not -LARGEST <= number <= LARGEST:
            raise ValueError(_beyond(name, number))
        if not coded:
            return number
        whole: Any = value
        return str(int(whole)) if number.is_integer() else str(number)
    pandas = sys.modules.get("pandas")
    if pandas is not None and (value is pandas.NA or value is pandas.NaT):
        return None
    raise TypeError(_wrong_kind(name, value))


def _beyond(name: str, number: float) -> str:
    return (
        f"the feature {name!r} is {number}, but numbers must lie within ±{LARGEST:g}; "
        "give None where it is not known"
    )


def _wrong_kind(name: str, value: Any) -> str:
    advice = ""
    if isinstance(value, list | tuple | set | frozenset | Mapping | np.ndarray):
        advice = "; give each of its entries a name of its own"
    elif isinstance(value, date | time | timedelta | np.datetime64 | np.timedelta64):
        advice = "; give what matters about it as numbers, such as the hour"
    elif isinstance(value, complex | np.complexfloating):
        advice = "; give its real and its imaginary part as two features"
    elif isinstance(value, bytes):
        advice = "; decode it to a string"
    return (
        f"the feature {name!r} is a {_kind(value)}, but it must be a number, a boolean, a string "
        f"or None{advice}"
    )


def _column(name: str, values: Any, coded: bool) -> _Column:
    """A column of a table, read as `_cell` reads every value."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"the column {name!r} of a table must be a list, not a {_kind(values)}")
    # Not an array of a list: it would make strings of numbers.
    table = _array(values) if hasattr(values, "__array__") else None
    numeric = table is not None and table.ndim == 1 and table.dtype.kind in "fiub"
    if table is not None and numeric and not coded:
        with np.errstate(over="ignore"):
            numbers = table.astype(np.float64)
        present = ~np.isnan(numbers)
        numbers[~present] = 0.0
        beyond = np.abs(numbers) > LARGEST
        if beyond.any():
            raise ValueError(_beyond(name, float(numbers[beyond][0])))
        return _Column(numbers, present, np.full(numbers.size, -1), ())
    objects = list(values) if table is None else _objects(table)
    # Read what is equal once, where equal is the same: 1 and True are not.
    if numeric or set(map(type, objects)) <= {str, float, type(None)}:
        places = {value: place for place, value in enumerate(dict.fromkeys(objects))}
        index = np.fromiter(map(places.__getitem__, objects), np.int64, len(objects))
        objects = list(places)
    else:
        index = np.arange(len(objects))
    cells = [_cell(name, value, coded) for value in objects]
    labels: dict[str, int] = {}
    codes = [labels.setdefault(x, len(labels)) if type(x) is str else -1 for x in cells]
    numbers = np.array([x if type(x) is float else 0.0 for x in cells], dtype=np.float64)
    present = np.array([type(x) is float for x in cells], dtype=np.bool_)
    places_of_codes = np.array(codes, dtype=np.int64)[index]
    return _Column(numbers[index], present[index], places_of_codes, list(labels))


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):  # what is masked is missing
        objects = np.array(np.ma.getdata(values), dtype=object)
        objects[np.ma.getmaskarray(values)] = None
        return objects
    return np.asarray(values)


def _objects(table: NDArray[Any]) -> list[Any]:
    # Times would become numbers.
    return list(table) if table.ndim != 1 or table.dtype.kind in "mM" else table.tolist()


def _is_code(label: str) -> bool:
    """Whether a category may have come as an integer."""
    digits = label.removeprefix("-").isdecimal() and len(label) < 20
    return digits and str(int(label)) == label


def _missing(column: _Column) -> NDArray[np.bool_]:
    return ~column.present & (column.codes < 0)


def _check_state(state: Any) -> None:
    """Complain about anything that `Encoder.state` would not have said."""

    def check(holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"this is not the state of an encoder: {what}")

    def check_strings(key: str) -> None:
        check(type(state[key]) is list and all(type(x) is str for x in state[key]), key)
        check(len(set(state[key])) == len(state[key]), f"{key} appear twice")

    def check_counts(key: str, values: Any) -> None:
        check(all(type(x) is int and 0 <= x < 2**53 for x in values), key)

    lists, counts = ["features", "absent", "columns", "totals"], ["most_columns", "width"]
    check(type(state) is dict, "it is no dictionary")
    check(set(state) == {*lists, *counts, "learned", "categories", "form"}, "wrong keys")
    for key in lists:
        check(type(state[key]) is list, key)
    for key in (*counts, "learned"):
        check_counts(key, [state[key]])
    check_strings("categories")
    check_strings("features")
    check_counts("absent", state["absent"])
    check(state["form"] in ("new", "named", "numbered"), "form")
    features, columns, learned = state["features"], state["columns"], state["learned"]
    new, used = state["form"] == "new", len(columns)
    check(state["most_columns"] >= 1, "most_columns")
    check(len(state["absent"]) == len(features) and len(state["totals"]) == used, "lengths")
    check(not new or not (features or used or learned or state["width"]), "new, but not empty")
    check(new or learned > 0, "learned")
    check(new or max(used, 1) <= state["width"] <= max(used * 3 // 2, SMALLEST_BLOCK), "width")

    coded = set(state["categories"])
    absent = dict(zip(features, state["absent"], strict=True))
    numbers, found = [], set()
    for column, total in zip(columns, state["totals"], strict=True):
        check(type(column) is list and len(column) == 3, "columns")
        check(all(type(x) is str for x in column), "columns")
        name, kind, label = column
        check(name in absent and kind in _KINDS and (kind == "category" or not label), "columns")
        check(type(total) is float, "totals")
        if kind == "number":
            numbers.append(name)
            seen = learned - absent[name]
            # The sum of as many numbers, up to rounding.
            check(seen >= 0 and abs(total) <= seen * LARGEST * (1 + 1e-6), "totals")
            check(name not in coded, "a number that is a code")
        else:
            check(0 <= total <= learned and total.is_integer(), "totals")
        found.add((name, kind, label))
    check(len(found) == used, "a column appears twice")
    check({name for name, _, _ in found} == set(features), "a feature without columns")
    check(all(not absent[name] for name in set(features) - set(numbers)), "absent")
    if state["form"] == "numbered":
        check(features == [f"x{i}" for i in range(len(features))] and bool(features), "features")
        plain = [name for name in features if name not in coded]
        check(columns[: len(plain)] == [[name, "number", ""] for name in plain], "columns")


def _listed(names: Iterable[Any]) -> str:
    """The first few of several names."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:5]) + (", …" if len(quoted) > 5 else "")


def _kind(value: Any) -> str:
    return type(value).__name__
