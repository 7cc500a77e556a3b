"""The columns of an encoder: which value goes to which, and what was counted of them.

A `Vocabulary` and `ColumnCounts` do not change once others have them: reading a context returns
those that come after it, and whoever owns them puts them in place of the old ones, or does not.
"""

import warnings
from array import array
from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import LARGEST
from tsucb.contexts.values import Cell, cell_of, is_code, listed, values_of
from tsucb.numeric.arrays import Floats

SMALLEST_BLOCK = 16  # columns, once there are more than numbers

_ARRAY, _FLOAT = np.ndarray, np.dtype(np.float64)
_PLAIN = frozenset([float, int, bool, np.float64, np.int64])  # compared and stored as they are
_KINDS = ("number", "category", "missing", "other")
MOST_FEATURES = 1_000  # of one context


# Of the contexts learned from: how many; the sum of every column, without what was filled in; in
# how many contexts each column that is a number was missing. Arrays are as long as vectors are.
ColumnCounts: TypeAlias = tuple[int, Floats, NDArray[np.int64]]
NO_COUNTS: ColumnCounts = 0, np.zeros(0), np.zeros(0, dtype=np.int64)


class Labels(dict[str | int, int]):
    """The columns of a feature's categories; those that have none share the other column."""

    __slots__ = ("other",)

    def __init__(self) -> None:
        self.other: int | None = None

    def column(self, label: str) -> int | None:
        """Return the column of a category; None if it has none."""
        column = self.get(label)
        return self.other if column is None else column

    def __missing__(self, label: str | int) -> int:
        if self.other is None or type(label) is not str:
            raise KeyError(label)
        return self.other


class Feature:
    """Where the values of one feature go."""

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
        self.positional: bool | None = None  # None before the first context
        self.features: dict[str, Feature] = {}
        self.columns: list[tuple[str, str, str]] = []  # feature, kind, category
        self.names: dict[str, None] = {}
        self.blank = array("d")
        # For reading what is known already quickly: columns of numbers, and of the categories of
        # features that never were numbers.
        self.numbers: dict[str, int] = {}
        self.labels: dict[str, Labels] = {}
        self.shape: tuple[int] | None = None  # of arrays whose entries are the first columns

    @property
    def width(self) -> int:
        """The length of vectors."""
        return len(self.blank)

    def copied(self) -> "Vocabulary":
        """Return another with the same columns, to which others may be added."""
        other = Vocabulary(self.categories, self.most_columns)
        other.warned, other.positional = self.warned, self.positional
        for name in self.features:
            other._feature(name)
        for name, kind, label in self.columns:
            other._add(other.features[name], kind, label)
        other.blank, other.shape = self.blank, self.shape
        return other

    def joined(self, other: "Vocabulary") -> "Vocabulary":
        """Return a vocabulary with the columns of both; those of this one keep their places."""
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
        """Return where this vocabulary has the columns of another that was joined into it."""
        here = {column: i for i, column in enumerate(self.columns)}
        return np.array([here[column] for column in other.columns], dtype=np.int64)

    def grown(self, tally: ColumnCounts, used: int) -> ColumnCounts:
        """Return the tally of a vocabulary that used this many columns, for this wider one."""
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

    def _known(self, context: dict[Any, Any], unknown: list[int]) -> Any:
        """Return the row of a dictionary that needs no new column; None for any other."""
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
        """Return the row of numbers that need no new column; None for any other context."""
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

    def _read(self, context: Any, unknown: list[int], learn: bool) -> tuple["Vocabulary", Any]:
        """Read every value of any context, then make the columns that it needs, in a copy."""
        values, positional = values_of(context)
        self._check_count(len(values))
        self._check_form(list(values), positional)
        coded = self.categories
        cells = {name: cell_of(name, value, name in coded) for name, value in values.items()}
        known = self
        if learn:
            known, left_out = self._left_out(cells)
            if not self._suffices(cells, left_out):
                known = known.copied()
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
        """Return whether every value has its column."""
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
        """Raise ValueError for contexts without names among contexts with names, or the reverse."""
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

    def _check_count(self, count: int) -> None:
        """Raise ValueError for a context with too many features, before room is made for them."""
        most = max(MOST_FEATURES, self.most_columns, len(self.features))
        if count > most:
            raise ValueError(
                f"a context has {count:,} features, but at most {most:,} are read; give fewer, or "
                "use model=tsucb.HashedLinear()"
            )

    def _left_out(self, names: Iterable[str]) -> tuple["Vocabulary", set[str]]:
        """Return the features that there is no room for, and the vocabulary that has warned."""
        if self.positional is None:  # the first context has all of its features
            return self, set()
        new = [name for name in names if name not in self.features]
        left_out = new[max(self.most_columns - len(self.features), 0) :]
        if not left_out or self.warned:
            return self, set(left_out)
        # Before anything changes: a warning may be made an error.
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

    def _begin(self, names: Iterable[str], positional: bool) -> None:
        """Take the form of the first context; entries of arrays have the first columns."""
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

    def _feature(self, name: str) -> Feature:
        feature = self.features.get(name)
        if feature is None:
            feature = self.features[name] = Feature(name, name in self.categories)
        return feature

    def _make(self, feature: Feature, cell: Cell) -> None:
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

    def _add(self, feature: Feature, kind: str, label: str) -> None:
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
                if feature.coded and is_code(label):
                    labels[int(label)] = column
            if feature.number is None:
                self.labels[name] = labels

    def _widen(self) -> None:
        """Make vectors long enough, with room for more where more columns are to be expected."""
        used, width = len(self.columns), self.width
        if not width:
            plain = used and all(kind == "number" for _, kind, _ in self.columns)
            width = used if plain else self._next_width(used)
        while width < used:
            width = self._next_width(width)
        if width != self.width:
            self.blank = array("d", bytes(8 * width))

    def _next_width(self, width: int) -> int:
        # Few columns come after the last of the categories: the model's work is quadratic in them.
        last = self.most_columns + SMALLEST_BLOCK
        wider = max(width + width // 2, SMALLEST_BLOCK)
        return min(wider, last) if width < last else wider

    # Storage

    def packed(self, tally: ColumnCounts) -> dict[str, Any]:
        """Return `Encoder.state`."""
        forms = {None: "new", True: "numbered", False: "named"}
        learned, totals, absent = tally
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
    def unpacked(cls, state: dict[str, Any]) -> tuple["Vocabulary", ColumnCounts]:
        """Return what `packed` was made from, which has been checked."""
        self = cls(frozenset(state["categories"]), state["most_columns"])
        self.positional = {"new": None, "numbered": True, "named": False}[state["form"]]
        for name in state["features"]:
            self._feature(name)
        for name, kind, label in state["columns"]:
            self._add(self.features[name], kind, label)
        width, used = state["width"], len(self.columns)
        self.blank = array("d", bytes(8 * width))
        totals, absent = np.zeros(width), np.zeros(width, dtype=np.int64)
        totals[:used] = state["totals"]
        for feature, gaps in zip(self.features.values(), state["absent"], strict=True):
            if feature.number is not None:
                absent[feature.number] = gaps
        if self.positional and not self.categories.intersection(self.features):
            self.shape = (len(self.features),)
        return self, (state["learned"], totals, absent)


def check_state(state: Any) -> None:
    """Raise ValueError for anything that `Encoder.state` does not return."""

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
