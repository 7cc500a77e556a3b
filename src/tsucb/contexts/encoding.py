"""Turn dictionaries, tables and lists into vectors; new features and categories get new columns."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from tsucb.checks import shown, whole_number
from tsucb.contexts.values import cell_of, feature_name, rows_of
from tsucb.contexts.vocabulary import NO_COUNTS, Vocabulary
from tsucb.numeric.arrays import Floats

# `HybridLinear` is linear in the context: it cannot learn that one reader likes politics in the
# morning and another one in the afternoon. So where a context has 2 to MOST_PAIRED categories, each
# pair of them is a category, too, while there are fewer than MOST_PAIRED_COLUMNS columns: the time
# of a decision is quadratic in their number.
MOST_PAIRED, MOST_PAIRED_COLUMNS = 3, 16


class FeatureEncoder:
    """Turns the features of a context, or of an arm, into a vector.

    A subclass defines `look`, which changes nothing: it takes what the encoder has `learned`, and
    returns what it would have learned after this context. Assign that to `learned` to accept the
    context, as `encode` does. So a refused context changes nothing.
    """

    learned: Any = None
    learns = False  # whether it learns from contexts
    optional = True  # whether the features may be None
    declared: tuple[str, ...] | None = None  # names of the features, if they were declared
    ready: tuple[int, ...] | None = None  # the shape of arrays that are vectors already

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns in use."""
        return ()

    @property
    def width(self) -> int:
        """The length of vectors."""
        return 0

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return the vector of a context, and what is learned after it if `learn`."""
        raise NotImplementedError

    def look_at_all(self, contexts: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return the vectors of many contexts as a padded matrix, and what is learned from them."""
        vectors = []
        for each in self.rows(contexts):
            vector = np.zeros(0)
            if each is not None or not self.optional:
                vector, learned = self.look(each, learned, learn)
            vectors.append(vector)
        matrix = np.zeros((len(vectors), max((vector.size for vector in vectors), default=0)))
        for row, vector in zip(matrix, vectors, strict=True):
            row[: vector.size] = vector
        return matrix, learned

    def rows(self, table: Any) -> Any:
        """Return a table, a matrix or a list as a list of contexts."""
        if isinstance(table, np.ndarray) and (table.ndim != 2 or table.shape[1] == 0):
            raise ValueError(f"a table has rows and columns, but its shape is {table.shape}")
        return rows_of(table)

    def encode(self, context: Any) -> Floats:
        """Return the vector of a context, after learning the columns that it needs."""
        vector, self.learned = self.look(context, self.learned, True)
        return vector

    def encode_table(self, table: Any) -> Floats:
        """Return the vectors of many contexts as `encode` would; learn from all or none of them."""
        matrix, self.learned = self.look_at_all(table, self.learned, True)
        return matrix

    def peek(self, context: Any) -> Floats:
        """Return the vector of a context; learn nothing, and leave out values without a column."""
        return self.look(context, self.learned, False)[0]

    def describe(self, context: Any) -> list[tuple[str, float]]:
        """Return the names and values of the columns in which `peek` is not 0."""
        vector, names = self.peek(context), self.names
        return [(names[i], float(vector[i])) for i in np.flatnonzero(vector).tolist()]

    def columns(self, table: Any, names: list[str]) -> Any:
        """Return the contexts that these columns of a table hold."""
        return rows_of(table, names)


def coded_features(categories: Iterable[str]) -> frozenset[str]:
    """Return the names of features whose numbers are codes."""
    if isinstance(categories, str | bytes) or not isinstance(categories, Iterable):
        raise TypeError(f"categories is a list of names, such as [{shown(categories)}]")
    return frozenset(feature_name(name) for name in categories)


class Encoder(FeatureEncoder):
    """Turns contexts into vectors, and learns which columns they need.

    A number or a boolean has one column. A string has one column per category, 1 where the feature
    is that category. A missing value (None, NaN, or no such key) is 1 in a column of its own, and
    the feature's number is then its mean over the contexts learned from, so that a model that
    centres its features sees 0. New features and categories get new columns, which were 0 in all
    contexts before. Column j of a vector always means the same.

    Parameters
    ----------
    categories
        Features whose numbers are codes, such as postcodes: each number is a category. 1, 1.0 and
        "1" are the same category.
    most_columns
        Beyond this many columns new categories share the column 'other' of their feature. Beyond
        this many features, after the first context, new ones are left out, with a warning. No
        context may have more than 1,000 features, or more than this if this is larger.

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

    learns = True

    def __init__(self, *, categories: Iterable[str] = (), most_columns: int = 1_000) -> None:
        self.categories = coded_features(categories)
        self.most_columns = whole_number("most_columns", most_columns)
        self.learned = Vocabulary(self.categories, self.most_columns), NO_COUNTS

    @property
    def vocabulary(self) -> Vocabulary:
        """The columns that were learned."""
        vocabulary: Vocabulary = self.learned[0]
        return vocabulary

    @property
    def width(self) -> int:
        return self.vocabulary.width

    @property
    def used(self) -> int:
        """The number of columns in use; they come first."""
        return len(self.vocabulary.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.vocabulary.names)

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        vocabulary, counts = learned
        vector, *after = vocabulary.encode(context, counts, learn)
        return vector, tuple(after)

    def joined(self, other: "Encoder", base: "Encoder") -> Self:
        """Return an encoder with all that this one and another have learned since both were `base`.

        The columns of this encoder keep their places.
        """
        if self.categories != other.categories:
            raise ValueError("two encoders with different categories cannot be joined")
        result = type(self)(categories=self.categories, most_columns=self.most_columns)
        vocabulary, learned = self.vocabulary.joined(other.vocabulary), 0
        totals, absent = np.zeros((2, vocabulary.width))
        for each, sign in ((self, 1), (other, 1), (base, -1)):
            count, sums, missing = each.learned[1]
            at, used = vocabulary.places_of(each.vocabulary), each.used
            all_missing = np.full(vocabulary.width, count)  # a column it lacks was always missing
            all_missing[at] = missing[:used]
            learned += sign * count
            totals[at] += sign * sums[:used]
            absent += sign * all_missing
        absent[len(vocabulary.columns) :] = 0
        result.learned = vocabulary, (learned, totals, absent.astype(np.int64))
        return result

    # Storage

    def state(self) -> dict[str, Any]:
        """Return everything that was learned as JSON values; see `from_state`."""
        return self.vocabulary.packed(self.learned[1])

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Return the encoder that `state` described; raise ValueError if it is damaged.

        >>> encoder = Encoder()
        >>> vector = encoder.encode({"age": 30, "city": "Paris"})
        >>> Encoder.from_state(encoder.state()).names
        ('age', 'city=Paris')
        """
        wrong = "this is not the state of an encoder"
        try:
            encoder = cls(categories=state["categories"], most_columns=state["most_columns"])
            encoder.learned = encoder.vocabulary.unpacked(state)
            # As text, since 1, 1.0 and True are equal.
            one, two = (json.dumps(each, sort_keys=True) for each in (state, encoder.state()))
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{wrong}: {error}") from None
        if one != two:
            raise ValueError(wrong)
        return encoder

    def restored(self, state: Any) -> Self:
        """Return the encoder of this class that `state` described."""
        return self.from_state(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_state, (self.state(),)


class NarrowEncoder(Encoder):
    """An encoder whose vectors have no columns beyond those in use."""

    @property
    def width(self) -> int:
        return self.used

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        vector, after = super().look(context, learned, learn)
        return vector[: len(after[0].columns)], after


class PairingEncoder(NarrowEncoder):
    """An encoder that also gives columns to the pairs of a context's categories.

    >>> encoder = PairingEncoder()
    >>> encoder.encode({"user": "Tom", "time": "noon"})
    array([1., 1., 1.])
    >>> encoder.names
    ('user=Tom', 'time=noon', 'time × user=noon × Tom')
    """

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        return super().look(self.with_pairs(context, learned[0]), learned, learn)

    def with_pairs(self, context: Any, vocabulary: Vocabulary) -> Any:
        """Return the context with the pairs of its categories that have a column or room for one.

        A boolean is a category here.
        """
        if not isinstance(context, Mapping):
            return context
        labels = []
        for name, value in zip(map(str, context), context.values(), strict=True):
            coded = name in vocabulary.categories or isinstance(value, bool | np.bool_)
            if isinstance(label := cell_of(name, value, coded), str):
                labels.append((name, label))
        labels.sort()
        if not 2 <= len(labels) <= MOST_PAIRED:
            return context
        room = len(vocabulary.columns) < MOST_PAIRED_COLUMNS
        pairs = {}
        for (one, first), (other, second) in itertools.combinations(labels, 2):
            name, label = f"{one} × {other}", f"{first} × {second}"
            known = name in vocabulary.features and label in vocabulary.features[name].labels
            if name not in context and (room or known):
                pairs[name] = label
        return {**context, **pairs}
