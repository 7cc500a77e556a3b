"""The columns of an encoder: which value goes to which column, and statistics of each column.

A `Vocabulary` and its `ColumnCounts` never change: `Vocabulary.encode` returns those that result
from learning a context, and the encoder replaces its own if the context is accepted.
"""

import warnings
from array import array
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import LARGEST
from tsucb.contexts.values import Cell, cell_of, is_code, listed, values_of
from tsucb.numeric.arrays import Floats

SMALLEST_BLOCK = 16  # columns of a vector that has others than numbers

_ARRAY, _FLOAT = np.ndarray, np.dtype(np.float64)
_PLAIN = frozenset([float, int, bool, np.float64, np.int64])  # read without conversion
_KINDS = ("number", "category", "missing", "other")
_FORMS = {"new": None, "numbered": True, "named": False}  # values of `positional`, in files
MOST_FEATURES = 1_000  # of one context


# The number of contexts learned from; the sum of every column over them, without the means filled
# in for missing numbers; how often each number was missing. Arrays are as long as a vector.
ColumnCounts: TypeAlias = tuple[int, Floats, NDArray[np.int64]]
NO_COUNTS: ColumnCounts = 0, np.zeros(0), np.zeros(0, dtype=np.int64)


class Labels(dict[str | int, int]):
    """The column of each category of a feature; categories without one share column `other`."""

    __slots__ = ("other",)

    def __init__(self) -> None:
        self.other: int | None = None

    def __missing__(self, label: str | int) -> int:
        if self.other is None or type(label) is not str:
            raise KeyError(label)
        return self.other


class Feature:
    """The columns of one feature."""

    __slots__ = ("coded", "labels", "missing", "name", "number")

    def __init__(self, name: str, coded: bool) -> None:
        self.name, self.coded = name, coded
        self.number: int | None = None
        self.missing: int | None = None
        self.labels = Labels()


class Vocabulary:
    """The columns of an encoder.

    Parameters
    ----------
    categories
        Features whose numbers are codes.
    most_columns
        See `Encoder`.
    """

    def __init__(self, categories: frozenset[str], most_columns: int) -> None:
        self.categories, self.most_columns = categories, most_columns
        self.warned = False
        self.positional: bool | None = None  # contexts are lists of numbers; None before the first
        self.features: dict[str, Feature] = {}
        self.columns: list[tuple[str, str, str]] = []  # feature, kind, category
        self.names: dict[str, None] = {}
        self.blank = array("d")  # the vector of zeros
        self.shape: tuple[int] | None = None  # of arrays whose entries are the first columns

    @property
    def width(self) -> int:
        """The length of a vector."""
        return len(self.blank)

    def copied(self) -> "Vocabulary":
        """Return a copy, to which columns may be added."""
        other = Vocabulary(self.categories, self.most_columns)
        other.warned, other.positional = self.warned, self.positional
        for name in self.features:
            other._feature(name)
        for name, kind, label in self.columns:
            other._add(other.features[name], kind, label)
        other.blank, other.shape = self.blank, self.shape
        return other

    def joined(self, other: "Vocabulary") -> "Vocabulary":
        """Return a vocabulary with the columns of both; its own columns keep their places."""
        result = self.copied()
        if result.positional is None:
            result.positional, result.shape = other.positional, other.shape
        elif other.positional not in (None, result.positional):
            raise ValueError("contexts with names and contexts without cannot be joined")
        here = set(result.columns)
        for name, kind, label in other.columns:
            if (name, kind, label) not in here:
                result._add(result._feature(name), kind, label)
        result._widen()
        return result

    def places_of(self, other: "Vocabulary") -> NDArray[np.int64]:
        """Return the columns here that are the columns of another, which was joined into this."""
        here = {column: i for i, column in enumerate(self.columns)}
        return np.array([here[column] for column in other.columns], dtype=np.int64)

    def grown(self, tally: ColumnCounts, used: int) -> ColumnCounts:
        """Return the tally of a narrower vocabulary, with `used` columns, for this one."""
        contexts, totals, absent = tally
        more = np.zeros(self.width - totals.size)
        absent = np.concatenate([absent, more.astype(np.int64)])
        absent[used : len(self.columns)] = contexts  # new columns were in no context so far
        return contexts, np.concatenate([totals, more]), absent

    # One context

    def encode(
        self, context: Any, tally: ColumnCounts, learn: bool
    ) -> tuple[Floats, "Vocabulary", ColumnCounts]:
        """Return the vector of a context, and vocabulary and tally after learning from it."""
        # The common cases first and fast: deciding itself takes 3 µs.
        kind, row, known = type(context), None, self
        unknown: list[int] = []  # columns of missing numbers, which get their mean
        if kind is dict:
            row = self._read_dictionary(context, unknown)
        elif self.shape is not None and (kind is _ARRAY or kind is list or kind is tuple):
            row = self._read_numbers(context, unknown)
        if row is None:
            unknown = []
            known, row = self._read(context, unknown, learn)
            if known is not self:
                tally = known.grown(tally, len(self.columns))
        vector: Floats = row if type(row) is _ARRAY else np.frombuffer(row)
        contexts, totals, absent = tally
        if learn:
            totals = totals + vector
        if unknown:
            absent = absent.copy()
            for number in unknown:
                seen = contexts - absent[number]
                vector[number] = totals[number] / seen if seen else 0.0
                absent[number] += 1
        return vector, known, (contexts + 1, totals, absent) if learn else tally

    def _read_dictionary(self, context: dict[Any, Any], unknown: list[int]) -> Any:
        """Return the row of a dictionary if all its values have columns, else None."""
        row, features = self.blank[:], self.features
        gaps: list[Feature] = []
        try:
            for name, value in context.items():
                feature, kind = features[name], type(value)
                if kind is str and feature.number is None:
                    row[feature.labels[value]] = 1.0
                elif value is None:
                    gaps.append(feature)
                elif kind not in _PLAIN:
                    return None
                elif not -LARGEST <= value <= LARGEST:
                    if value == value:
                        return None
                    gaps.append(feature)
                elif feature.number is not None:
                    row[feature.number] = value
                elif kind is int:
                    row[feature.labels[value]] = 1.0
                else:
                    return None
        except KeyError:
            return None
        if len(context) < len(features):
            gaps += [feature for name, feature in features.items() if name not in context]
        for feature in gaps:
            if feature.missing is None:
                return None
            row[feature.missing] = 1.0
            if feature.number is not None:
                unknown.append(feature.number)
        return row if features and not self.positional else None

    def _read_numbers(self, context: Any, unknown: list[int]) -> Any:
        """Return the row of a list of numbers if all of them have columns, else None."""
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
        # One pass for NaN and large numbers: with either the comparison is false. Where the sum of
        # squares alone is too large, `_read` reads the context, slowly.
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

    def _read(self, context: Any, unknown: list[int], learn: bool) -> tuple["Vocabulary", Any]:
        """Read any context; return the vocabulary with the columns it needs, and its row."""
        values, positional = values_of(context)
        self._check_form(list(values), positional)
        coded = self.categories
        cells = {name: cell_of(name, value, name in coded) for name, value in values.items()}
        known = self._with_columns(cells, positional) if learn else self
        row = known.blank[:]
        for feature in known.features.values():
            cell, column = cells.get(feature.name), feature.missing
            if isinstance(cell, float):
                if feature.number is not None:
                    row[feature.number] = cell
                continue
            if cell is not None:
                column = feature.labels.get(cell, feature.labels.other)
            if column is not None:
                row[column] = 1.0
            if feature.number is not None:
                unknown.append(feature.number)
        return known, row

    def _with_columns(self, cells: dict[str, Cell], positional: bool) -> "Vocabulary":
        """Return this vocabulary if every value has its column, else a copy with the new ones."""
        known, left_out = self._left_out(cells)
        if self.positional is None:
            known = self.copied()
            known._begin(cells, positional)
        gaps: dict[str, Cell] = {name: None for name in self.features if name not in cells}
        for name, cell in (cells | gaps).items():
            feature = known.features.get(name)
            if name not in left_out and (feature is None or known._lacks(feature, cell)):
                known = self.copied() if known is self else known
                known._add_for(known._feature(name), cell)
        known._widen()
        return known

    def _lacks(self, feature: Feature, cell: Cell) -> bool:
        """Return whether a value has no column, and could have one."""
        if cell is None:
            return feature.missing is None
        if isinstance(cell, float):
            return feature.number is None
        room = len(self.columns) < self.most_columns
        return cell not in feature.labels and (room or feature.labels.other is None)

    # Columns

    def _check_form(self, names: list[str], positional: bool) -> None:
        """Raise ValueError for too many features, or another form than that of earlier contexts."""
        most = max(MOST_FEATURES, self.most_columns, len(self.features))
        if len(names) > most:  # before room is made for them
            raise ValueError(
                f"a context has {len(names):,} features, but at most {most:,} are read; give "
                "fewer, or use model=tsucb.HashedLinear()"
            )
        if self.positional is None:
            return
        if positional and not self.positional:
            raise ValueError(
                "this context is numbers without names, but earlier ones had names; give a "
                f"dictionary with the features {listed(self.features)}"
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

    def _left_out(self, names: Iterable[str]) -> tuple["Vocabulary", set[str]]:
        """Return this vocabulary, noting a warning, and the features that it has no room for."""
        if self.positional is None:  # the first context has all of its features
            return self, set()
        new = [name for name in names if name not in self.features]
        left_out = new[max(self.most_columns - len(self.features), 0) :]
        if not left_out or self.warned:
            return self, set(left_out)
        # Before anything changes: the user may have made warnings errors.
        warnings.warn(
            f"there are {len(self.features)} features already, so the new ones "
            f"{listed(left_out)} are left out; raise most_columns, which is "
            f"{self.most_columns}",
            RuntimeWarning,
            stacklevel=5,
        )
        known = self.copied()
        known.warned = True
        return known, set(left_out)

    def _begin(self, names: Iterable[str], positional: bool | None) -> None:
        """Take the form of the first context; the entries of an array get the first columns."""
        self.positional = positional
        if positional:
            features = [self._feature(name) for name in names]
            for feature in features:
                if not feature.coded:
                    self._add(feature, "number", "")
            if len(self.columns) == len(features):
                self.shape = (len(features),)

    def _feature(self, name: str) -> Feature:
        """Return the feature of this name, which is made if there is none."""
        feature = self.features.get(name)
        if feature is None:
            feature = self.features[name] = Feature(name, name in self.categories)
        return feature

    def _add_for(self, feature: Feature, cell: Cell) -> None:
        """Add the column for a value that lacks one."""
        if cell is None:
            self._add(feature, "missing", "")
        elif isinstance(cell, float):
            self._add(feature, "number", "")
        elif len(self.columns) < self.most_columns:
            self._add(feature, "category", cell)
        else:
            self._add(feature, "other", "")

    def _add(self, feature: Feature, kind: str, label: str) -> None:
        """Add a column, and name it."""
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
            feature.number = column
        elif kind == "other":
            labels.other = column
        else:
            labels[label] = column
            if feature.coded and is_code(label):
                labels[int(label)] = column

    def _widen(self) -> None:
        """Make vectors long enough, with room for more columns unless all features are numbers."""
        used, width = len(self.columns), self.width
        if not width:
            plain = used and all(kind == "number" for _, kind, _ in self.columns)
            width = used if plain else self._next_width(used)
        while width < used:
            width = self._next_width(width)
        if width != self.width:
            self.blank = array("d", bytes(8 * width))

    def _next_width(self, width: int) -> int:
        # With most_columns few more come, and the model's work is quadratic in the width.
        last = self.most_columns + SMALLEST_BLOCK
        wider = max(width + width // 2, SMALLEST_BLOCK)
        return min(wider, last) if width < last else wider

    # Storage

    def packed(self, tally: ColumnCounts) -> dict[str, Any]:
        """Return this vocabulary and its tally as JSON values."""
        learned, totals, absent = tally
        numbers = [feature.number for feature in self.features.values()]
        return {
            "categories": sorted(self.categories),
            "most_columns": self.most_columns,
            "form": next(name for name, form in _FORMS.items() if form is self.positional),
            "width": self.width,
            "learned": learned,
            "features": list(self.features),
            "absent": [0 if number is None else int(absent[number]) for number in numbers],
            "columns": [list(column) for column in self.columns],
            "totals": totals[: len(self.columns)].tolist(),
        }

    def unpacked(self, state: Any) -> tuple["Vocabulary", ColumnCounts]:
        """Fill this blank vocabulary from the values of `packed`; raise ValueError if damaged.

        The caller checks that `packed` returns the same values again.
        """
        learned = state["learned"]
        self.positional = _FORMS[state["form"]]
        features, columns = state["features"], list(map(tuple, state["columns"]))
        for _, kind, label in columns:
            if kind not in _KINDS or (label and kind != "category") or type(label) is not str:
                raise ValueError("columns")
        if set(map(type, features)) - {str} or len(set(columns)) < len(columns):
            raise ValueError("a feature without a name, or a column twice")
        if {name for name, _, _ in columns} != set(features):
            raise ValueError("features without columns")
        if self.positional and features != [f"x{i}" for i in range(max(len(features), 1))]:
            raise ValueError("features")
        self._begin(features, self.positional)
        for name in features:
            self._feature(name)
        for name, kind, label in columns[len(self.columns) :]:
            self._add(self.features[name], kind, label)
        width, used, new = state["width"], len(columns), self.positional is None
        most = 0 if new else max(used * 3 // 2, SMALLEST_BLOCK)
        if not (0 if new else max(used, 1)) <= width <= most:
            raise ValueError("width")
        self.blank = array("d", bytes(8 * width))
        totals, absent = np.zeros(width), np.zeros(width, dtype=np.int64)
        totals[:used] = state["totals"]
        for feature, gaps in zip(self.features.values(), state["absent"], strict=True):
            if feature.number is not None:
                absent[feature.number] = gaps
        self._check_counts(learned, totals[:used], absent)
        return self, (learned, totals, absent)

    def _check_counts(self, learned: Any, totals: Floats, absent: NDArray[np.int64]) -> None:
        """Raise ValueError for counts and sums that are impossible."""
        if type(learned) is not int or not (self.positional is not None) <= learned < 2**53:
            raise ValueError("learned")
        for i, ((name, kind, _), total) in enumerate(zip(self.columns, totals, strict=True)):
            seen = learned - absent[i]
            if kind == "number":  # a sum of `seen` numbers, up to rounding
                good = name not in self.categories and abs(total) <= seen * LARGEST * (1 + 1e-6)
            else:
                good = 0 <= total <= learned and total.is_integer()
            if not (good and 0 <= absent[i] <= learned):
                raise ValueError("totals")
