"""Contexts as applications have them, turned into vectors; columns are learned as they come."""

import threading
from collections.abc import Iterable, Mapping, Set
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.agent.values import column_of, feature_name, kind_of, named, numbered, unique
from tsucb.agent.vocabulary import Vocabulary, check_state, refuse_reentry
from tsucb.numeric.arrays import Floats


def coded_features(categories: Iterable[str]) -> frozenset[str]:
    """The names of features whose numbers are codes."""
    if isinstance(categories, str):
        raise TypeError(f"categories is a list of names, such as [{categories!r}]")
    return frozenset(feature_name(name) for name in categories)


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
        self.categories = coded_features(categories)
        if not isinstance(most, Integral) or isinstance(most, bool) or int(most) < 1:
            raise ValueError(f"most_columns must be a whole number of at least 1, not {most!r}")
        self.most_columns = int(most)
        self.lock = threading.RLock()
        # Whatever was learned, in one place: what changes it takes its place, so that an interrupt
        # finds a context learned from or not.
        self._vocabulary = Vocabulary(self.categories, self.most_columns)

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

    def knows(self, feature: str, category: str) -> bool:
        """Whether a category has a column of its own."""
        known = self._vocabulary.features.get(feature)
        return known is not None and category in known.labels

    def encode(self, context: Any) -> Floats:
        """The vector of a context, after learning the columns that it needs."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry()
        with self.lock:
            vocabulary, vector = self._vocabulary.encode(context, learn=True)
            self._vocabulary = vocabulary
            return vector

    def peek(self, context: Any) -> Floats:
        """The vector of a context, learning nothing; what has no column is left out."""
        return self._vocabulary.encode(context, learn=False)[1]

    def width_after(self, context: Any) -> int:
        """Return how long vectors will be once this context is learned; learn nothing.

        >>> Encoder().width_after({"age": 30, "city": "Paris"})
        16
        """
        vocabulary = self._vocabulary
        if type(context) is dict and vocabulary._known(context, []) is not None:
            return vocabulary.width
        other = vocabulary.copied()
        other.warned = True
        return other.encode(context, learn=True)[0].width

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
            values = named(names, [table[name] for name in unique(names)])
            return self._encode_columns(values, positional=False)
        if isinstance(table, np.ndarray):
            if table.ndim != 2 or table.shape[1] == 0:
                raise ValueError(f"a table has rows and columns, but its shape is {table.shape}")
            return self._encode_columns(numbered(table.T), positional=True)
        if not isinstance(table, Iterable) or isinstance(table, str | bytes | Set):
            raise TypeError(f"a table is a data frame, a matrix or a list, not a {kind_of(table)}")
        contexts = list(table)
        if self.lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry()
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
            name: column_of(name, column, name in self.categories)
            for name, column in values.items()
        }
        lengths = {column.codes.size for column in columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a table must be equally long, not {sorted(lengths)}")
        rows = lengths.pop() if lengths else 0
        if self.lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry()
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
        check_state(state)
        encoder = cls(categories=state["categories"], most_columns=state["most_columns"])
        encoder._vocabulary = Vocabulary.from_state(state)
        return encoder

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoder.from_state, (self.state(),)
