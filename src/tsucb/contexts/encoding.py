"""Turn contexts as applications have them into vectors; columns are learned as they come."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.contexts.values import feature_name, rows_of, shown
from tsucb.contexts.vocabulary import NO_COUNTS, Vocabulary, check_state
from tsucb.numeric.arrays import Floats


def coded_features(categories: Iterable[str]) -> frozenset[str]:
    """Return the names of features whose numbers are codes."""
    if isinstance(categories, str):
        raise TypeError(f"categories is a list of names, such as [{shown(categories)}]")
    return frozenset(feature_name(name) for name in categories)


# A vector, or a matrix with a row for each of several contexts, and what the encoder has learned:
# when it read, and with what was read.
Encoded: TypeAlias = tuple[Floats, Any, Any]


class Encoder:
    """Turns contexts into vectors, and learns which columns they need as they come.

    A number or a boolean has one column. A string has one column per category, 1 where the feature
    is that category. A value that is missing (None, NaN, or no such key) is 1 in a column of its
    own, and the feature's number is then its mean over the contexts learned from, so that a model
    that centres its features sees 0. Features and categories that first come late get new columns,
    which were 0 in all contexts before. Column j of a vector always means the same.

    `read` changes nothing: what it has learned counts once it is assigned to `learned`, which
    `encode` does at once. A context that is refused changes nothing.

    Parameters
    ----------
    categories
        Features whose numbers are codes, such as postcodes: each number is a category. 1, 1.0 and
        "1" are the same one.
    most_columns
        With this many columns, categories that are new share the column 'other' of their feature.
        With this many features, after the first context, new ones are left out, with a warning. No
        context may have more than 1,000 features, or this many if that is more.

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
            raise ValueError(
                f"most_columns must be a whole number of at least 1, not {shown(most)}"
            )
        self.most_columns = int(most)
        self.learned = Vocabulary(self.categories, self.most_columns), NO_COUNTS

    @property
    def vocabulary(self) -> Vocabulary:
        """The columns."""
        return self.learned[0]

    @property
    def width(self) -> int:
        """The length of vectors. It grows by half at a time; columns without a name are 0."""
        return self.vocabulary.width

    @property
    def used(self) -> int:
        """How many columns are in use; they come first."""
        return len(self.vocabulary.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in use."""
        return tuple(self.vocabulary.names)

    def knows(self, feature: str, category: str) -> bool:
        """Return whether a category has a column of its own."""
        known = self.vocabulary.features.get(feature)
        return known is not None and category in known.labels

    def read(self, context: Any) -> Encoded:
        """Return the vector of a context, with the columns that it needs, learning nothing yet."""
        before = self.learned
        vector, vocabulary, counts = before[0].encode(context, before[1], True)
        return vector, before, (vocabulary, counts)

    def encode(self, context: Any) -> Floats:
        """Return the vector of a context, after learning the columns that it needs."""
        vector, _, self.learned = self.read(context)
        return vector

    def peek(self, context: Any) -> Floats:
        """Return the vector of a context, learning nothing; what has no column is left out."""
        return self.vocabulary.encode(context, self.learned[1], learn=False)[0]

    def describe(self, context: Any) -> list[tuple[str, float]]:
        """Return the names and values of the columns that `peek` does not make 0."""
        vector, names = self.peek(context), self.names
        return [(names[i], float(vector[i])) for i in np.flatnonzero(vector).tolist()]

    def encode_table(self, table: Any) -> Floats:
        """Return the vectors of many contexts, one row each: as `encode` for one after the other.

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
        matrix, _, self.learned = self.read_table(table)
        return matrix

    def read_table(self, table: Any) -> Encoded:
        """Return what `encode_table` does, learning nothing yet."""
        before, vectors = self.learned, []
        vocabulary, tally = before
        for context in rows_of(table):
            vector, vocabulary, tally = vocabulary.encode(context, tally, learn=True)
            vectors.append(vector)
        matrix = np.zeros((len(vectors), vocabulary.width))
        for row, vector in zip(matrix, vectors, strict=True):
            row[: vector.size] = vector
        return matrix, before, (vocabulary, tally)

    def joined(self, other: "Encoder", base: "Encoder") -> tuple["Encoder", NDArray[np.int64]]:
        """Return an encoder that knows what this one and another learned since they were one.

        Returns also where it has the columns of the other; those of this one keep their places.
        """
        if self.categories != other.categories:
            raise ValueError("two encoders with different categories cannot be joined")
        result = Encoder(categories=self.categories, most_columns=self.most_columns)
        vocabulary = self.vocabulary.joined(other.vocabulary)
        learned = 0
        totals, absent = np.zeros(vocabulary.width), np.zeros(vocabulary.width, dtype=np.int64)
        for each, sign in ((self, 1), (other, 1), (base, -1)):
            count, sums, missing = each.learned[1]
            at, used = vocabulary.places_of(each.vocabulary), each.used
            all_missing = np.full(vocabulary.width, count)  # of a column that it does not have
            all_missing[at] = missing[:used]
            learned += sign * count
            totals[at] += sign * sums[:used]
            absent += sign * all_missing
        absent[len(vocabulary.columns) :] = 0
        result.learned = vocabulary, (learned, totals, absent)
        return result, vocabulary.places_of(other.vocabulary)

    # Storage

    def state(self) -> dict[str, Any]:
        """Return everything that was learned, made of what JSON has; see `from_state`."""
        return self.vocabulary.packed(self.learned[1])

    @classmethod
    def from_state(cls, state: Any) -> "Encoder":
        """Return the encoder that `state` described; raise ValueError if there is none.

        >>> encoder = Encoder()
        >>> vector = encoder.encode({"age": 30, "city": "Paris"})
        >>> Encoder.from_state(encoder.state()).names
        ('age', 'city=Paris')
        """
        check_state(state)
        encoder = cls(categories=state["categories"], most_columns=state["most_columns"])
        encoder.learned = Vocabulary.unpacked(state)
        return encoder

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoder.from_state, (self.state(),)
