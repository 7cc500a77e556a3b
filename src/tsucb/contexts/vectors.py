"""Encoders that learn no columns: for no context, vectors, declared features, transformers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsucb.contexts.encoding import FeatureEncoder
from tsucb.contexts.transformers import RowTransform, learned_from, table_of
from tsucb.contexts.values import listed, rows_of, values_of
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats


class NoFeatures(FeatureEncoder):
    """For K-armed models, which take no context."""

    def __init__(self, model: Model) -> None:
        self.model_name = type(model).__name__

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        raise ValueError(f"{self.model_name} takes no context; leave it off")

    def columns(self, table: Any, names: list[str]) -> Any:
        return None


class Vectors(FeatureEncoder):
    """For vectors, or for mappings and tables with declared names.

    Parameters
    ----------
    model
        The model that takes the vectors.
    names
        The names of the features, if they were declared.
    width
        The length of a vector, by default that of the model's contexts.
    whose, letter
        How messages call a vector; the first letter of the names of features without names.
    """

    def __init__(
        self, model: Model, names: tuple[str, ...] | None = None, width: int | None = None,
        whose: str = "a context", letter: str = "x",
    ) -> None:  # fmt: skip
        self.model_name, self.largest = type(model).__name__, float(model.largest)
        self.shape = model.context_shape(1)[-1:] if width is None else (width,)
        self.declared, self.whose, self.letter = names, whose, letter
        self.ready, self.optional = self.shape, width == 0

    @property
    def names(self) -> Sequence[str]:
        return self.declared or [f"{self.letter}{i}" for i in range(self.width)]

    @property
    def width(self) -> int:
        return sum(self.shape)

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        return self.matrix(self.one_row(context))[0], None

    def look_at_all(self, contexts: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return several contexts (a list, matrix or table) as a new, finite matrix."""
        return self.matrix(contexts), None

    def one_row(self, context: Any) -> Any:
        """Return a context as a table of one row; raise ValueError for none or several rows."""
        if context is None:
            raise ValueError(f"{self.model_name} needs {self.whose}, but none was given")
        if not (hasattr(context, "columns") or np.ndim(context) == 2):
            return [context]
        if len(context) != 1:
            raise ValueError(f"{self.whose} is one row, but {len(context)} were given")
        return context

    def matrix(self, contexts: Any) -> Floats:
        """Return several contexts as a new, finite matrix, one row each."""
        if isinstance(contexts, Mapping | str) or not hasattr(contexts, "__len__"):
            raise TypeError(
                f"contexts must be a list, a matrix or a table, not {type(contexts).__name__}; for "
                "one context use choose"
            )
        return self.checked(self._rows(contexts), len(contexts))

    def _rows(self, contexts: Any) -> Any:
        if hasattr(contexts, "columns"):
            return self.columns(contexts, [])
        if isinstance(contexts, np.ndarray):
            return contexts
        return [self._by_name(context) for context in contexts]

    def checked(self, rows: Any, count: int) -> Floats:
        """Return rows as a new matrix; raise if they are not finite numbers of the right shape."""
        shape = (count, *self.shape)
        matrix = float_matrix(rows, self.whose, shape)
        if count == 0:
            return np.zeros(shape)
        if matrix.shape != shape:
            raise ValueError(
                f"{self.whose} has shape {matrix.shape[1:]}, but {self.model_name} expects "
                f"{self.shape}"
            )
        check_finite(matrix, self.largest)
        return matrix

    def columns(self, table: Any, names: list[str]) -> Any:
        """Return the columns of the declared features, side by side."""
        wanted, present = self._needed_names(), getattr(table, "columns", table)
        absent = [name for name in wanted if name not in present]
        if absent:
            raise ValueError(f"the table has no column for the features {listed(absent)}")
        return np.column_stack([np.asarray(table[name]) for name in wanted])

    def _needed_names(self) -> tuple[str, ...]:
        if self.declared is None:
            raise TypeError(
                f"{self.whose} with names needs an agent that knows the names of its features: "
                'make it with features=["age", …] instead of their number, or without any'
            )
        return self.declared

    def _by_name(self, context: Any) -> Any:
        if context is None:
            return () if self.optional else self.one_row(None)
        if isinstance(context, list | tuple | np.ndarray) and not hasattr(context, "_asdict"):
            return context
        values, positional = values_of(context)
        if positional:
            return list(values.values())
        names = self._needed_names()
        if len(values) != len(names) or any(name not in values for name in names):
            wrong = set(names).symmetric_difference(values)
            raise ValueError(
                f"a context must have each of the features {listed(names)}, and no other; "
                f"missing or unknown: {listed(sorted(wrong, key=str))}"
            )
        return [values[name] for name in names]


class Transformed(Vectors):
    """For contexts that a transformer turns into vectors.

    Parameters
    ----------
    transformer, streaming
        As in `Agent`.
    """

    def __init__(
        self, model: Model, names: tuple[str, ...] | None, transformer: Any, streaming: bool
    ) -> None:
        super().__init__(model, names)
        self.transformer, self.streaming, self.ready = transformer, bool(streaming), None
        self.learns = self.streaming
        self._row = None if streaming else RowTransform(transformer)

    @property
    def learned(self) -> Any:
        return vars(self.transformer) if self.streaming else None

    @learned.setter
    def learned(self, known: Any) -> None:
        if self.streaming:
            self.transformer.__dict__ = known

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        rows = self.one_row(context)
        if self._row is not None:
            return self.checked([self._row(context)], 1)[0], None
        if not learn:
            raise ValueError("a transformer that learns from every context cannot be asked first")
        matrix, after = self.look_at_all(rows, learned, True)
        return matrix[0], after

    def look_at_all(self, contexts: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        if not self.streaming:
            return self.matrix(contexts), None
        matrix, after = learned_from(self.transformer, self._table(contexts))
        return self.checked(matrix, len(contexts)), after

    def _table(self, contexts: Any) -> Any:
        fitted_to = getattr(self.transformer, "feature_names_in_", None)
        if fitted_to is not None:
            return table_of(contexts, fitted_to)
        return rows_of(contexts) if hasattr(contexts, "columns") else contexts

    def _rows(self, contexts: Any) -> Any:
        rows = self.transformer.transform(self._table(contexts))
        return rows.toarray() if hasattr(rows, "toarray") else rows

    def columns(self, table: Any, names: list[str]) -> Any:
        return rows_of(table, names)


def float_matrix(rows: Any, whose: str, shape: tuple[int, ...]) -> Floats:
    """Return numbers as a new array; raise TypeError for anything else.

    If one is beyond the largest float, all are infinite, in an array of this shape.
    """
    try:
        if np.asarray(rows).dtype.kind == "c":  # whose imaginary parts would be lost
            raise TypeError
        with np.errstate(over="ignore"):
            return np.array(rows, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise TypeError(
            f"{whose} must be numbers, one per feature; for categories, text and missing values "
            "make the agent without features and model, or with a transformer"
        ) from None
    except OverflowError:
        return np.full(shape, np.inf)
