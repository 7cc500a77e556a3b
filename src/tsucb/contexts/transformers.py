"""Apply scikit-learn's transformers to one context in microseconds.

A call of `ColumnTransformer.transform` takes milliseconds, nearly all of it for checking a table
and cutting it into columns. The arithmetic for one row is little: `RowTransform` makes a function
for it from the fitted transformer.
"""

import copy
import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.checks import LARGEST, within
from tsucb.contexts.values import values_of
from tsucb.extras import require
from tsucb.numeric.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd

Step = Callable[[list[Any]], list[Any]]  # from the cells of a row to the transformed ones

CHECKED_ROWS = 3  # first rows for which the function is compared with the transformer


class _Unusual(Exception):
    """Raised for a transformer, or a value, that is left to scikit-learn."""


def table_of(contexts: Any, columns: Iterable[str] | None = None) -> "pd.DataFrame":
    """Return contexts as a data frame with stable columns, for a fitted `ColumnTransformer`.

    Parameters
    ----------
    contexts
        One dictionary, a list of them, or a data frame.
    columns
        The names of the columns, in order: `transformer.feature_names_in_`. Features that a context
        lacks are missing values, others are left out. By default all features of any context.

    >>> table_of([{"age": 30, "city": "Rome"}, {"city": None, "age": 41}])
       age  city
    0   30  Rome
    1   41   NaN
    """
    require("tables", "pandas")
    import pandas as pd

    names = None if columns is None else list(columns)
    if isinstance(contexts, pd.DataFrame):
        return contexts if names is None else contexts.reindex(columns=names)
    if hasattr(contexts, "to_dicts"):  # polars
        contexts = contexts.to_dicts()
    elif isinstance(contexts, Mapping | pd.Series):
        contexts = [contexts]
    rows = [context if type(context) is dict else values_of(context)[0] for context in contexts]
    if names is None:
        names = list(dict.fromkeys(name for row in rows for name in row))
    table = {}
    for name in names:
        values = [_plain(row.get(name)) for row in rows]
        # A column without values must not become one of numbers: encoders of strings refuse it.
        empty = all(isinstance(value, float) and math.isnan(value) for value in values)
        table[name] = pd.Series(values, dtype=object if empty else None)
    return pd.DataFrame(table, index=range(len(rows)), columns=names)


class RowTransform:
    """Transforms one context as a fitted transformer does.

    `ColumnTransformer` and `Pipeline`, nested in any way, of `StandardScaler`, `MinMaxScaler`,
    `MaxAbsScaler`, `RobustScaler`, `SimpleImputer`, `OneHotEncoder`, `OrdinalEncoder` and
    'passthrough' become one function of a row. For all others `transform` is called.

    The transformer must not learn afterwards. `transform` is also called for unusual rows (a string
    in a column of numbers, an unknown category), so that its own errors are raised; and for the
    first rows: if the function returns another result for one of them, it is dropped.
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer
        names = getattr(transformer, "feature_names_in_", None)
        self.columns: tuple[str, ...] | None = None if names is None else tuple(names)
        self._step: Step | None
        self._unchecked = CHECKED_ROWS
        try:
            self._step = _row_step(transformer)
        except _Unusual:
            self._step = None

    @property
    def compiled(self) -> bool:
        """Whether a function takes the place of `transform`."""
        return self._step is not None

    def __call__(self, context: Any) -> Floats:
        step = self._step
        if step is None:
            return self._call_transform(context)
        cells = self._cells(context)
        try:
            row: Floats = np.frombuffer(array("d", step(cells)))
        except (_Unusual, TypeError, ValueError, OverflowError):
            return self._call_transform(context)
        if self._unchecked:
            expected = self._call_transform(context)
            self._unchecked -= 1
            if row.shape != expected.shape or not np.allclose(
                row, expected, rtol=1e-9, atol=1e-12, equal_nan=True
            ):
                self._step = None
            return expected
        return row

    def _cells(self, context: Any) -> list[Any]:
        if self.columns is None:
            values, positional = values_of(context)
            return [_plain(value) for value in values.values()] if positional else []
        get = (context if type(context) is dict else self._by_name(context)).get
        return [_plain(get(name)) for name in self.columns]

    def _by_name(self, context: Any) -> dict[str, Any]:
        values, positional = values_of(context)
        if positional:
            raise ValueError(
                "the transformer was fitted to a table, so a context must have names; give a "
                f"dictionary with {', '.join(map(repr, (self.columns or ())[:5]))}"
            )
        return values

    def _call_transform(self, context: Any) -> Floats:
        if self.columns is None:
            # Unchanged: a transformer not fitted to a table may take lists of any objects.
            one_row = getattr(context, "ndim", 1) == 2
            rows = self.transformer.transform(context if one_row else [context])
        else:
            values = context if type(context) is dict else self._by_name(context)
            rows = self.transformer.transform(table_of(values, self.columns))
        rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
        vector: Floats = np.array(rows[0], dtype=np.float64)
        return vector


def learned_from(transformer: Any, contexts: Any) -> tuple[Floats, dict[str, Any]]:
    """Call `partial_fit` of a copy of a transformer, then its `transform`.

    Return the vectors, and the `__dict__` of the copy. The transformer itself does not change,
    since a single NaN would stay in its means for good. Numbers beyond ±1e30 are refused.

    Parameters
    ----------
    transformer
        Anything with scikit-learn's `partial_fit` and `transform`.
    contexts
        A matrix, a table, a list of lists or of dictionaries, as these methods take it.
    """
    for context in contexts.to_numpy() if hasattr(contexts, "to_numpy") else contexts:
        values = context.values() if isinstance(context, Mapping) else context
        if isinstance(values, Iterable) and any(
            isinstance(value, Real) and abs(value) > LARGEST  # type: ignore[operator]
            for value in values
        ):
            raise ValueError(
                f"the context contains infinity or a number beyond ±{LARGEST:g}; every number "
                "must be finite"
            )
    other = copy.copy(transformer)
    other.__dict__ = copy.deepcopy(vars(transformer))
    other.partial_fit(contexts)
    rows = other.transform(contexts)
    matrix: Floats = np.array(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64)
    if not within(matrix):
        raise ValueError(
            "the transformer makes NaN, infinity or a number beyond "
            f"±{LARGEST:g} of the context; every entry must be finite"
        )
    return matrix, vars(other)


def _plain(value: Any) -> Any:
    """Return a value as a plain Python object; NaN for anything missing."""
    kind = type(value)
    if kind is float or kind is str or kind is int:
        return value
    if value is None or kind.__name__ in ("NAType", "NaTType"):
        return math.nan
    return value.item() if isinstance(value, np.generic) else value


def _number(cell: Any) -> float:
    """Return a finite number or NaN as a float; raise _Unusual for anything else."""
    kind = type(cell)
    if kind is float or kind is int or kind is bool:
        number = float(cell)
        if number - number == 0.0 or number != number:
            return number
    raise _Unusual


def _row_step(transformer: Any) -> Step:
    """Return the function of a row for a fitted transformer; raise _Unusual if there is none."""
    if transformer is None or transformer == "passthrough":
        return lambda cells: cells
    kind = type(transformer)
    # By name, so that scikit-learn is not imported; a subclass may do something else.
    if kind.__module__.partition(".")[0] != "sklearn" or kind.__name__ not in _COMPILERS:
        raise _Unusual
    try:
        return _COMPILERS[kind.__name__](transformer)
    except (AttributeError, TypeError, ValueError, LookupError):  # not fitted, or another version
        raise _Unusual from None


# For each scaler shift, factor, divisor and offset of (x − shift) · factor / divisor + offset.
_SCALERS: dict[str, Callable[[Any], tuple[Any, Any, Any, Any]]] = {
    "StandardScaler": lambda s: (
        s.mean_ if s.with_mean else None, None, s.scale_ if s.with_std else None, None
    ),
    "MinMaxScaler": lambda s: (None, s.scale_, None, s.min_),
    "MaxAbsScaler": lambda s: (None, None, s.scale_, None),
    "RobustScaler": lambda s: (s.center_, None, s.scale_, None),
}  # fmt: skip


def _scaler(scaler: Any) -> Step:
    if getattr(scaler, "clip", False):
        raise _Unusual
    fitted = zip(_SCALERS[type(scaler).__name__](scaler), (0.0, 1.0, 1.0, 0.0), strict=True)
    constants = np.transpose([
        np.broadcast_to(neutral if values is None else values, scaler.n_features_in_)
        for values, neutral in fitted
    ]).tolist()  # fmt: skip

    def step(cells: list[Any]) -> list[Any]:
        return [
            (_number(cell) - a) * b / c + d
            for cell, (a, b, c, d) in zip(cells, constants, strict=True)
        ]

    return step


def _simple_imputer(imputer: Any) -> Step:
    values, missing = imputer.statistics_.tolist(), imputer.missing_values
    if not (isinstance(missing, float) and missing != missing):
        raise _Unusual
    text = all(type(value) is str for value in values)
    # Whether features without any value are dropped differs between versions.
    if not text and any(math.isnan(_number(value)) for value in values):
        raise _Unusual
    marked = imputer.indicator_.features_.tolist() if imputer.add_indicator else []
    if text and marked:
        raise _Unusual

    def step(cells: list[Any]) -> list[Any]:
        filled = []
        for cell, value in zip(cells, values, strict=True):
            if cell != cell:
                filled.append(value)
            elif (type(cell) is str) == text:
                filled.append(cell if text else _number(cell))
            else:
                raise _Unusual
        return filled + [float(cells[i] != cells[i]) for i in marked]

    return step


def _category_encoder(encoder: Any) -> Step:
    """Return the step of a OneHotEncoder or an OrdinalEncoder.

    For every column a dictionary maps a category to (place in the row, value there).
    """
    if encoder.min_frequency is not None or encoder.max_categories is not None:
        raise _Unusual
    one_hot, width = hasattr(encoder, "drop_idx_"), 0
    # For other settings scikit-learn warns of unknown categories, or raises an error.
    ignores = encoder.handle_unknown == "ignore" and encoder.drop_idx_ is None
    nothing, unknown = (-1, 0.0), None  # the last place of a row is cut off
    columns = []
    for i, categories in enumerate(encoder.categories_):
        text, names = categories.dtype.kind in "OU", categories.tolist()
        missing = [name is not None and name != name for name in names]
        keys = [None if gap else name for name, gap in zip(names, missing, strict=True)]
        if any(not gap and (type(x) is str) != text for x, gap in zip(names, missing, strict=True)):
            raise _Unusual  # None itself, or mixed kinds
        if one_hot:
            dropped = None if encoder.drop_idx_ is None else encoder.drop_idx_[i]
            kept = [key for place, key in enumerate(keys) if place != dropped]
            entries = dict.fromkeys(keys, nothing)
            entries |= {key: (width + place, 1.0) for place, key in enumerate(kept)}
            unknown = nothing if ignores else None
            width += len(kept)
        else:
            entries = {key: (i, float(place)) for place, key in enumerate(keys)}
            if None in entries:
                entries[None] = i, float(encoder.encoded_missing_value)
            if encoder.handle_unknown == "use_encoded_value":
                unknown = i, encoder.unknown_value
            width += 1
        columns.append((text, entries, unknown))

    def step(cells: list[Any]) -> list[Any]:
        row = [0.0] * (width + 1)
        for cell, (text, entries, unknown) in zip(cells, columns, strict=True):
            if cell != cell:
                entry = entries.get(None, unknown)
            elif (type(cell) is str) == text:
                entry = entries.get(cell if text else _number(cell), unknown)
            else:
                raise _Unusual
            if entry is None:
                raise _Unusual
            row[entry[0]] = entry[1]
        return row[:-1]

    return step


def _function_transformer(transformer: Any) -> Step:
    if transformer.func is not None:
        raise _Unusual
    return lambda cells: cells


def _pipeline(pipeline: Any) -> Step:
    steps = [_row_step(transformer) for _, transformer in pipeline.steps]

    def step(cells: list[Any]) -> list[Any]:
        for each in steps:
            cells = each(cells)
        return cells

    return step


def _column_transformer(transformer: Any) -> Step:
    weights = transformer.transformer_weights or {}
    blocks = []
    for name, part, columns in transformer.transformers_:
        if not isinstance(columns, slice) and not np.ndim(columns):
            raise _Unusual  # its part is given a vector, not a table of one column
        indices = transformer._transformer_to_input_indices[name]
        if len(indices) and not (isinstance(part, str) and part == "drop"):
            blocks.append((indices, _row_step(part), weights.get(name)))

    def step(cells: list[Any]) -> list[Any]:
        row: list[Any] = []
        for indices, part, weight in blocks:
            values = part([cells[i] for i in indices])
            row += values if weight is None else [value * weight for value in values]
        return row

    return step


_COMPILERS: dict[str, Callable[[Any], Step]] = {
    **dict.fromkeys(_SCALERS, _scaler),
    "SimpleImputer": _simple_imputer,
    "OneHotEncoder": _category_encoder,
    "OrdinalEncoder": _category_encoder,
    "FunctionTransformer": _function_transformer,
    "Pipeline": _pipeline,
    "ColumnTransformer": _column_transformer,
}
