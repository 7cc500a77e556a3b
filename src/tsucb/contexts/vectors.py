"""Encoders that learn nothing of their own: none, vectors, declared names, transformers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsucb.checks import within
from tsucb.contexts.encoding import Encoded, FeatureEncoder
from tsucb.contexts.transformers import RowTransform, learned_from, table_of
from tsucb.contexts.values import listed, records, shown, values_of
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats


class NoFeatures(FeatureEncoder):
    """For K-armed models, which take no context."""

    def __init__(self, model: Model) -> None:
        self.model_name = type(model).__name__

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Refuse any context; None is no context."""
        raise ValueError(f"{self.model_name} takes no context; leave it off")

    def columns(self, table: Any, names: list[str]) -> Any:
        """Return no contexts, whatever a table has."""
        return None


class Vectors(FeatureEncoder):
    """For vectors, or for mappings and tables with declared names.

    Parameters
    ----------
    model
        Says how long a vector is.
    names
        Of the features, if they were declared.
    """

    optional = False

    def __init__(self, model: Model, names: tuple[str, ...] | None = None) -> None:
        self.model_name, self.largest = type(model).__name__, float(model.largest)
        self.shape, self.declared = model.context_shape(1)[-1:], names
        self.ready = self.shape

    @property
    def names(self) -> Sequence[str]:
        """The names of a vector's entries."""
        return self.declared or [f"x{i}" for i in range(sum(self.shape))]

    @property
    def width(self) -> int:
        """The length of a vector."""
        return sum(self.shape)

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return a context as a new, finite vector."""
        return self.matrix(self.one_row(context))[0], None

    def one_row(self, context: Any) -> Any:
        """Return a context as a table of one row; raise ValueError if it has none or several."""
        if context is None:
            raise ValueError(f"{self.model_name} needs a context; give one")
        if not (hasattr(context, "columns") or np.ndim(context) == 2):
            return [context]
        if len(context) != 1:
            raise ValueError(f"a context is one row, but {len(context)} were given")
        return context

    def read_table(self, table: Any) -> Encoded:
        """Return several contexts (a list, matrix or table) as a new, finite matrix."""
        return self.matrix(table), None, None

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
        matrix = float_array(
            rows,
            (count, *self.shape),
            "a context must be numbers, one per feature; for categories, text and missing values "
            "make the agent without features, or with a transformer",
        )
        if count == 0:
            return np.zeros((0, *self.shape))
        if matrix.shape != (count, *self.shape):
            raise ValueError(
                f"a context has shape {matrix.shape[1:]}, but {self.model_name} expects "
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
                "contexts with names need an agent that knows the names of its features: "
                'make it with features=["age", …] instead of their number, or without any'
            )
        return self.declared

    def _by_name(self, context: Any) -> Any:
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
        """What the transformer has learned."""
        return vars(self.transformer) if self.streaming else None

    @learned.setter
    def learned(self, known: Any) -> None:
        if self.streaming:
            self.transformer.__dict__ = known

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return the vector that the transformer makes of a context."""
        rows = self.one_row(context)
        if self._row is not None:
            return self.checked([self._row(context)], 1)[0], None
        if not learn:
            raise ValueError("a transformer that learns from every context cannot be asked first")
        matrix, _, after = self.read_table(rows)
        return matrix[0], after

    def read_table(self, table: Any) -> Encoded:
        """Return the vectors that the transformer makes of contexts."""
        if not self.streaming:
            return self.matrix(table), None, None
        matrix, after = learned_from(self.transformer, self._table(table))
        return self.checked(matrix, len(table)), self.learned, after

    def _table(self, contexts: Any) -> Any:
        fitted_to = getattr(self.transformer, "feature_names_in_", None)
        if fitted_to is not None:
            return table_of(contexts, fitted_to)
        return records(contexts, contexts.columns) if hasattr(contexts, "columns") else contexts

    def _rows(self, contexts: Any) -> Any:
        rows = self.transformer.transform(self._table(contexts))
        return rows.toarray() if hasattr(rows, "toarray") else rows

    def columns(self, table: Any, names: list[str]) -> Any:
        """Return the rows of a table as dictionaries."""
        return records(table, names)


class VectorPart(FeatureEncoder):
    """For the vector of a context, or of an arm, where a model takes both.

    Parameters
    ----------
    model, width
        Who takes it, and how long it is.
    whose, letter
        What messages say it is of, and how its entries are called.
    """

    def __init__(self, model: Model, width: int, whose: str, letter: str) -> None:
        self.model_name, self.largest = type(model).__name__, float(model.largest)
        self.whose, self.letter, self.optional = whose, letter, width == 0
        self.shape = (width,)

    @property
    def names(self) -> Sequence[str]:
        """The names of a vector's entries."""
        return [f"{self.letter}{i}" for i in range(self.width)]

    @property
    def width(self) -> int:
        """The length of a vector."""
        return self.shape[0]

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return a new, finite vector."""
        if context is None:
            raise ValueError(
                f"{self.whose} must have {self.width} features, but has none; give them"
            )
        if isinstance(context, Mapping):
            raise TypeError(
                f"{self.whose} has features with names, for which the agent must be made without a "
                "model: it then reads them as they come"
            )
        vector = float_array(
            context, self.shape,
            f"{self.whose} must be numbers, one per feature, not {shown(context)}",
        )  # fmt: skip
        if vector.shape != self.shape:
            raise ValueError(
                f"{self.whose} has features of shape {vector.shape}, but {self.model_name} expects "
                f"({self.width},)"
            )
        check_finite(vector, self.largest)
        return vector, None

    def look_at_all(self, features: list[Any], learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return a matrix of vectors, at once if they are all alike."""
        try:
            z = float_array(features, (0,), "")
        except TypeError:
            return super().look_at_all(features, learned, learn)
        if z.shape != (len(features), self.width) or not within(z, self.largest):
            return super().look_at_all(features, learned, learn)
        return z, None


def float_array(values: Any, shape: tuple[int, ...], message: str) -> Floats:
    """Return numbers as a new array; raise TypeError with the message for anything else.

    Numbers beyond the largest float are infinite, of this shape.
    """
    try:
        if np.asarray(values).dtype.kind == "c":  # whose imaginary parts would be lost
            raise TypeError
        with np.errstate(over="ignore"):
            array: Floats = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise TypeError(message) from None
    except OverflowError:
        array = np.full(shape, np.inf)
    return array
