"""Contexts as an application has them, turned into the vectors that models take."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tsucb.checks import LARGEST
from tsucb.models.model import Model
from tsucb.numeric.arrays import Floats

Arm = str | int
Context = Any  # a vector, a mapping of feature names to numbers, or whatever a transformer takes

_ARRAY, _FLOAT = np.ndarray, np.dtype(np.float64)


class Reader:
    """Reads the contexts of one agent.

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
        self.model_name = type(model).__name__
        self.names, self.transformer, self.streaming = names, transformer, bool(streaming)
        self.per_arm = len(shape) == 2
        self.shape = shape[-1:]  # of the vector that is learned from: (d,), or () for none
        self._accepted = self.shape if transformer is None else None  # arrays taken as they are
        self._learning = threading.Lock()

    def packed(self, context: Context) -> bytes:
        """One context as the bytes of its numbers, which may not be finite."""
        # The common case first, in the fastest way: the agent's own arithmetic takes 3 µs.
        if type(context) is _ARRAY and context.dtype is _FLOAT and context.shape == self._accepted:
            return context.tobytes()
        return self.vector(context).tobytes()

    def vector(self, context: Context) -> Floats:
        """One context as a new, finite vector."""
        if not self.shape:
            if context is not None:
                raise ValueError(f"{self.model_name} takes no context; leave it away")
            return np.zeros(0)
        if context is None:
            raise ValueError(f"{self.model_name} needs a context; give one")
        vector: Floats = self.matrix([context])[0]
        return vector

    def matrix(self, contexts: Any) -> Floats:
        """Several contexts (a list, matrix or table) as a new, finite matrix, one row each."""
        if self.transformer is not None:
            table = hasattr(contexts, "columns")
            rows = self._transform(records(contexts, contexts.columns) if table else contexts)
        elif hasattr(contexts, "columns"):
            rows = self._features(contexts)
        elif isinstance(contexts, np.ndarray):
            rows = contexts
        else:
            rows = [self._by_name(c) if isinstance(c, Mapping) else c for c in contexts]
        try:
            matrix = np.array(rows, dtype=np.float64, order="C")
        except (TypeError, ValueError):
            raise TypeError(
                "a context must be numbers, one per feature; give categories, text and missing "
                "values through a transformer, such as scikit-learn's DictVectorizer"
            ) from None
        if len(contexts) == 0:
            return np.zeros((0, *self.shape))
        if matrix.shape != (len(contexts), *self.shape):
            raise ValueError(
                f"a context has shape {matrix.shape[1:]}, but {self.model_name} expects "
                f"{self.shape}"
            )
        check_finite(matrix)
        return matrix

    def rows(self, context: Context, arms: tuple[Arm, ...]) -> Floats:
        """The feature vectors of the arms as a matrix, one row per arm."""
        if isinstance(context, Mapping):
            absent = [arm for arm in arms if arm not in context]
            if absent:
                raise ValueError(f"the context has no features for the arms {listed(absent)}")
            context = [context[arm] for arm in arms]
        if context is None or len(context) != len(arms):
            raise ValueError(
                f"{self.model_name} needs a feature vector for each of the {len(arms)} available "
                "arms: a matrix with one row per arm, or a mapping of arms to vectors"
            )
        return self.matrix(context)

    def check_stored(self, contexts: Floats) -> None:
        """Complain about contexts of a file that could not have been read here."""
        check_finite(contexts)

    def columns(self, table: Any, arm: str, reward: str) -> tuple[Any, Sequence[Any], Any]:
        """Contexts, arms and rewards of a table, as pandas, polars or a mapping has it."""
        present = list(table.columns if hasattr(table, "columns") else table)
        for name in (arm, reward):
            if name not in present:
                raise ValueError(
                    f"the history has no column {name!r}, only {listed(present)}; "
                    "say which are meant with fit(history, arm=…, reward=…)"
                )
        arms, rewards = np.asarray(table[arm]).tolist(), np.asarray(table[reward]).tolist()
        if not self.shape:
            return None, arms, rewards
        if self.transformer is not None:
            others = [name for name in present if name not in (arm, reward)]
            return records(table, others), arms, rewards
        return self._features(table), arms, rewards

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
                'make it with features=["age", …] instead of their number'
            )
        return self.names

    def _by_name(self, context: Mapping[str, float]) -> list[float]:
        names = self.needed_names()
        if len(context) != len(names) or any(name not in context for name in names):
            wrong = set(names).symmetric_difference(context)
            raise ValueError(
                f"a context must have each of the features {listed(names)}, and no other; "
                f"missing or unknown: {listed(sorted(wrong, key=str))}"
            )
        return [context[name] for name in names]

    def _transform(self, contexts: Any) -> Any:
        if self.streaming:
            with self._learning:
                self.transformer.partial_fit(contexts)
                rows = self.transformer.transform(contexts)
        else:
            rows = self.transformer.transform(contexts)
        return rows.toarray() if hasattr(rows, "toarray") else rows


def check_finite(context: Floats) -> None:
    """Complain about a context with NaN, infinity, or numbers near it."""
    if not (np.abs(context) <= LARGEST).all():
        raise ValueError(
            f"the context contains NaN or infinity, or a number beyond ±{LARGEST:g}; every entry "
            "must be finite"
        )


def records(table: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of some columns of a table, as pandas, polars or a mapping has it."""
    names = list(names)
    columns = (np.asarray(table[name]).tolist() for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def listed(names: Iterable[Any]) -> str:
    """The first few of several names."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:5]) + (", …" if len(quoted) > 5 else "")
