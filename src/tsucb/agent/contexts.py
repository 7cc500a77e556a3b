"""Contexts as an application has them, turned into the vectors that models take."""

import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tsucb.agent.transformers import fast_row, learn_and_transform, table_of
from tsucb.agent.values import values_of
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats

Arm = str | int
Context = Any  # a mapping of features, a row of a table, a vector, or whatever a transformer takes

ARRAY, FLOAT = np.ndarray, np.dtype(np.float64)


class Reader:
    """Reads the contexts of an agent whose features are declared, or made by a transformer.

    Parameters
    ----------
    model
        Says which shape a context has.
    names
        The features' names, None if they have none.
    transformer, streaming
        As in `Agent`.
    """

    def __init__(
        self, model: Model, names: tuple[str, ...] | None, transformer: Any, streaming: bool
    ) -> None:
        if transformer is not None and not hasattr(transformer, "transform"):
            raise TypeError("transformer must have a method transform(contexts)")
        if streaming and not hasattr(transformer, "partial_fit"):
            raise TypeError("streaming needs a transformer with a method partial_fit(contexts)")
        shape = model.context_shape(1)
        self.model_name, self.largest = type(model).__name__, model.largest
        self.names, self.transformer, self.streaming = names, transformer, bool(streaming)
        self.per_arm = len(shape) == 2
        self.shape = shape[-1:]  # of the vector that is learned from: (d,), or () for none
        self.takes_context = bool(self.shape)
        # The shape of vectors that need no reading: their numbers are the context of all arms.
        plain = self.takes_context and not self.per_arm and transformer is None
        self.ready = self.shape if plain else None
        self._row = None if transformer is None or streaming else fast_row(transformer)
        self.lock = threading.RLock()  # of what learns from contexts

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the vector's entries."""
        return self.names or [f"x{i}" for i in range(sum(self.shape))]

    def packed(self, context: Context) -> bytes:
        """One context as the bytes of its numbers, which may not be finite."""
        if type(context) is ARRAY and context.dtype is FLOAT and context.shape == self.ready:
            return context.tobytes()
        return self.vector(context).tobytes()

    def peeked(self, context: Context) -> bytes:
        """The same, learning nothing."""
        if self.streaming:
            raise ValueError("a transformer that learns from every context cannot be asked first")
        return self.packed(context)

    def vector(self, context: Context) -> Floats:
        """One context as a new, finite vector."""
        if not self.shape:
            if context is not None:
                raise ValueError(f"{self.model_name} takes no context; leave it away")
            return np.zeros(0)
        if context is None:
            raise ValueError(f"{self.model_name} needs a context; give one")
        if self._row is not None:
            rows = self._checked([self._row(context)], 1)
        elif hasattr(context, "columns") or np.ndim(context) == 2:
            if len(context) != 1:
                raise ValueError(f"a context is one row, but {len(context)} were given")
            rows = self.matrix(context)
        else:
            rows = self.matrix([context])
        vector: Floats = rows[0]
        return vector

    def matrix(self, contexts: Any) -> Floats:
        """Several contexts (a list, matrix or table) as a new, finite matrix, one row each."""
        if isinstance(contexts, Mapping | str) or not hasattr(contexts, "__len__"):
            raise TypeError(
                f"contexts must be a list, a matrix or a table, not {type(contexts).__name__}; for "
                "one context use choose"
            )
        if self.transformer is not None:
            rows = self._transform(contexts)
        elif hasattr(contexts, "columns"):
            rows = self._features(contexts)
        elif isinstance(contexts, np.ndarray):
            rows = contexts
        else:
            rows = [self._by_name(context) for context in contexts]
        return self._checked(rows, len(contexts))

    def _checked(self, rows: Any, count: int) -> Floats:
        try:
            matrix = np.array(rows, dtype=np.float64, order="C")
        except (TypeError, ValueError):
            raise TypeError(
                "a context must be numbers, one per feature; for categories, text and missing "
                "values make the agent without features, or with a transformer"
            ) from None
        if count == 0:
            return np.zeros((0, *self.shape))
        if matrix.shape != (count, *self.shape):
            raise ValueError(
                f"a context has shape {matrix.shape[1:]}, but {self.model_name} expects "
                f"{self.shape}"
            )
        check_finite(matrix, self.largest)
        return matrix

    def rows(self, context: Context, arms: tuple[Arm, ...], known: Container[Arm]) -> Floats:
        """The feature vectors of the arms as a matrix, one row per arm; `known` are all arms."""
        if isinstance(context, Mapping):
            absent = [arm for arm in arms if arm not in context]
            if absent:
                raise ValueError(f"the context has no features for the arms {listed(absent)}")
            unknown = [arm for arm in context if arm not in known]
            if unknown:
                raise ValueError(f"the context has features for unknown arms: {listed(unknown)}")
            context = [context[arm] for arm in arms]
        if context is None or len(context) != len(arms):
            raise ValueError(
                f"{self.model_name} needs a feature vector for each of the {len(arms)} available "
                "arms: a matrix with one row per arm, or a mapping of arms to vectors"
            )
        return self.matrix(context)

    def columns(self, table: Any, arm: str, reward: str) -> tuple[Any, Sequence[Any], Any]:
        """Contexts, arms and rewards of a table, as pandas, polars or a mapping has it."""
        present = check_columns(table, arm, reward)
        arms, rewards = np.asarray(table[arm]).tolist(), np.asarray(table[reward]).tolist()
        if not self.shape:
            return None, arms, rewards
        if self.transformer is not None:
            others = [name for name in present if name not in (arm, reward)]
            return records(table, others), arms, rewards
        return self._features(table), arms, rewards

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """The entries of a context's vector that are not 0, with their names."""
        if self.streaming:
            raise ValueError("a transformer that learns from every context cannot be asked first")
        vector = self.vector(context)
        return [(self.feature_names[i], float(vector[i])) for i in np.flatnonzero(vector).tolist()]

    def width_after(self, context: Context, features: Iterable[Any]) -> int:
        """Return how many numbers a context has, which does not change."""
        return sum(self.shape)

    def _features(self, table: Any) -> Any:
        """The columns of the features, side by side."""
        names, present = self.needed_names(), getattr(table, "columns", table)
        absent = [name for name in names if name not in present]
        if absent:
            raise ValueError(f"the table has no column for the features {listed(absent)}")
        return np.column_stack([np.asarray(table[name]) for name in names])

    def needed_names(self) -> tuple[str, ...]:
        """The features' names, or a sentence on how to give them."""
        if self.names is None:
            raise TypeError(
                "contexts with names need an agent that knows the names of its features: "
                'make it with features=["age", …] instead of their number, or without any'
            )
        return self.names

    def _by_name(self, context: Any) -> Any:
        if isinstance(context, list | tuple | np.ndarray) and not hasattr(context, "_asdict"):
            return context
        values, positional = values_of(context)
        if positional:
            return list(values.values())
        names = self.needed_names()
        if len(values) != len(names) or any(name not in values for name in names):
            wrong = set(names).symmetric_difference(values)
            raise ValueError(
                f"a context must have each of the features {listed(names)}, and no other; "
                f"missing or unknown: {listed(sorted(wrong, key=str))}"
            )
        return [values[name] for name in names]

    def _transform(self, contexts: Any) -> Any:
        fitted_to = getattr(self.transformer, "feature_names_in_", None)
        if fitted_to is not None:
            contexts = table_of(contexts, fitted_to)
        elif hasattr(contexts, "columns"):
            contexts = records(contexts, contexts.columns)
        if self.streaming:
            with self.lock:
                return learn_and_transform(self.transformer, contexts)
        rows = self.transformer.transform(contexts)
        return rows.toarray() if hasattr(rows, "toarray") else rows


class FreeReader(Reader):
    """Reads the contexts of an agent to which nothing was declared, and learns their columns.

    Parameters
    ----------
    model
        Widened by the agent when vectors get longer.
    encoder
        An `Encoder`, or a `HashingEncoder`.
    """

    def __init__(self, model: Model, encoder: Any) -> None:
        super().__init__(model, None, None, False)
        self.takes_context, self.ready = True, None
        self.encoder = encoder
        self.lock = self.encoder.lock

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the columns, those that are still to be used included."""
        names = self.encoder.names
        return [*names, *(f"(column {i})" for i in range(len(names), self.encoder.width))]

    def packed(self, context: Context) -> bytes:
        """One context as the bytes of its numbers."""
        return self.vector(context).tobytes()

    def peeked(self, context: Context) -> bytes:
        """The same, learning nothing: what has no column is left out."""
        return b"" if context is None else self.encoder.peek(context).tobytes()

    def vector(self, context: Context) -> Floats:
        """One context as a vector; none at all is a context without features."""
        vector: Floats = np.zeros(0) if context is None else self.encoder.encode(context)
        return vector

    def matrix(self, contexts: Any) -> Floats:
        """Several contexts as a matrix, one row each."""
        if hasattr(contexts, "__len__") and all(context is None for context in contexts):
            return np.zeros((len(contexts), 0))
        matrix: Floats = self.encoder.encode_table(contexts)
        return matrix

    def columns(self, table: Any, arm: str, reward: str) -> tuple[Any, Sequence[Any], Any]:
        """Contexts, arms and rewards of a table, as pandas, polars or a mapping has it."""
        present = check_columns(table, arm, reward)
        arms, rewards = np.asarray(table[arm]).tolist(), np.asarray(table[reward]).tolist()
        others = {name: table[name] for name in present if name not in (arm, reward)}
        return (others or None), arms, rewards

    def width_after(self, context: Context, features: Iterable[Any]) -> int:
        """Return how many columns contexts will have once this one is learned; learn nothing."""
        return int(self.encoder.width if context is None else self.encoder.width_after(context))

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """What the encoder makes of a context, learning nothing."""
        return [] if context is None else self.encoder.describe(context)


def check_columns(table: Any, arm: str, reward: str) -> list[str]:
    """The columns of a table, which must have those of arms and rewards."""
    present = list(table.columns if hasattr(table, "columns") else table)
    for name in (arm, reward):
        if name not in present:
            raise ValueError(
                f"the history has no column {name!r}, only {listed(present)}; "
                "say which are meant with fit(history, arm=…, reward=…)"
            )
    return present


def one_by_one(contexts: Any) -> list[Any]:
    """The contexts of a table, a matrix or a list."""
    if isinstance(contexts, Mapping) or hasattr(contexts, "columns"):
        return records(contexts, getattr(contexts, "columns", contexts))
    return list(contexts.toarray() if hasattr(contexts, "toarray") else contexts)


def records(table: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of some columns of a table, as pandas, polars or a mapping has it."""
    names = list(names)
    columns = (np.asarray(table[name]).tolist() for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def listed(names: Iterable[Any]) -> str:
    """The first few of several names."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:5]) + (", …" if len(quoted) > 5 else "")
