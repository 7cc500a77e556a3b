"""Turn contexts as applications have them into vectors; columns are learned as they come."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Self

import numpy as np

from tsucb.checks import shown, whole_number
from tsucb.contexts.values import cell_of, feature_name, rows_of
from tsucb.contexts.vocabulary import NO_COUNTS, Vocabulary
from tsucb.numeric.arrays import Floats

# `HybridLinear` is linear in the context: of a reader who likes politics in the morning and another
# who does in the afternoon it can learn nothing that holds for both. So where a context has two or
# three categories, each pair of them is a category, too, while there are fewer columns than this: a
# decision takes time quadratic in their number.
MOST_PAIRED, MOST_PAIRED_COLUMNS = 3, 16


class FeatureEncoder:
    """Turns the features of a context, or of an arm, into a vector.

    A subclass defines `look`, which changes nothing: it takes what the encoder has `learned` and
    returns that after a context. Whoever accepts the context assigns it to `learned`, as `encode`
    does at once. So what is refused changes nothing.
    """

    learned: Any = None
    learns = False  # whether it learns from contexts
    optional = True  # whether there may be no features at all, None
    declared: tuple[str, ...] | None = None  # names of the features, if they were declared
    ready: tuple[int, ...] | None = None  # the shape of arrays that need no reading

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns in use."""
        return ()

    @property
    def width(self) -> int:
        """The length of vectors."""
        return 0

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return a vector, and what is known after learning from it, if `learn`."""
        raise NotImplementedError

    def look_at_all(self, contexts: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        """Return the vectors of several as a matrix as wide as the widest, with zeros for None."""
        vectors = []
        for each in contexts:
            vector = np.zeros(0)
            if each is not None or not self.optional:
                vector, learned = self.look(each, learned, learn)
            vectors.append(vector)
        return padded_stack(vectors), learned

    def rows(self, table: Any) -> Any:
        """Return the contexts of a table, a matrix or a list, one by one."""
        if isinstance(table, np.ndarray) and (table.ndim != 2 or table.shape[1] == 0):
            raise ValueError(f"a table has rows and columns, but its shape is {table.shape}")
        return rows_of(table)

    def encode(self, context: Any) -> Floats:
        """Return the vector of a context, after learning the columns that it needs."""
        vector, self.learned = self.look(context, self.learned, True)
        return vector

    def encode_table(self, table: Any) -> Floats:
        """Return the vectors of many contexts as `encode` would; if one is refused, learn none."""
        matrix, self.learned = self.look_at_all(self.rows(table), self.learned, True)
        return matrix

    def peek(self, context: Any) -> Floats:
        """Return the vector of a context, learning nothing; what has no column is left out."""
        return self.look(context, self.learned, False)[0]

    def describe(self, context: Any) -> list[tuple[str, float]]:
        """Return the names and values of the columns that `peek` does not make 0."""
        vector, names = self.peek(context), self.names
        return [(names[i], float(vector[i])) for i in np.flatnonzero(vector).tolist()]

    def columns(self, table: Any, names: list[str]) -> Any:
        """Return the contexts in some columns of a table."""
        return rows_of(table, names)


def padded_stack(parts: Sequence[Any], shape: tuple[int, ...] = ()) -> Floats:
    """Return arrays, of this shape but for the last axis, as one array as wide as the widest."""
    shape = parts[0].shape[:-1] if parts else shape
    stack = np.zeros((len(parts), *shape, max((part.shape[-1] for part in parts), default=0)))
    for row, part in zip(stack, parts, strict=True):
        row[..., : part.shape[-1]] = part
    return stack


def coded_features(categories: Iterable[str]) -> frozenset[str]:
    """Return the names of features whose numbers are codes."""
    if isinstance(categories, str | bytes):
        raise TypeError(f"categories is a list of names, such as [{shown(categories)}]")
    return frozenset(feature_name(name) for name in categories)


class Encoder(FeatureEncoder):
    """Turns contexts into vectors, and learns which columns they need as they come.

    A number or a boolean has one column. A string has one column per category, 1 where the feature
    is that category. A value that is missing (None, NaN, or no such key) is 1 in a column of its
    own, and the feature's number is then its mean over the contexts learned from, so that a model
    that centres its features sees 0. Features and categories that first come late get new columns,
    which were 0 in all contexts before. Column j of a vector always means the same.

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

    learns = True

    def __init__(self, *, categories: Iterable[str] = (), most_columns: int = 1_000) -> None:
        self.categories = coded_features(categories)
        self.most_columns = whole_number("most_columns", most_columns)
        self.learned = Vocabulary(self.categories, self.most_columns), NO_COUNTS

    @property
    def vocabulary(self) -> Vocabulary:
        vocabulary: Vocabulary = self.learned[0]
        return vocabulary

    @property
    def width(self) -> int:
        return self.vocabulary.width

    @property
    def used(self) -> int:
        """How many columns are in use; they come first."""
        return len(self.vocabulary.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.vocabulary.names)

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        vocabulary, counts = learned
        vector, *after = vocabulary.encode(context, counts, learn)
        return vector, tuple(after)

    def joined(self, other: "Encoder", base: "Encoder") -> Self:
        """Return an encoder that knows what this one and another learned since they were one.

        The columns of this one keep their places.
        """
        if self.categories != other.categories:
            raise ValueError("two encoders with different categories cannot be joined")
        result = type(self)(categories=self.categories, most_columns=self.most_columns)
        vocabulary, learned = self.vocabulary.joined(other.vocabulary), 0
        totals, absent = np.zeros((2, vocabulary.width))
        for each, sign in ((self, 1), (other, 1), (base, -1)):
            count, sums, missing = each.learned[1]
            at, used = vocabulary.places_of(each.vocabulary), each.used
            all_missing = np.full(vocabulary.width, count)  # of a column that it does not have
            all_missing[at] = missing[:used]
            learned += sign * count
            totals[at] += sign * sums[:used]
            absent += sign * all_missing
        absent[len(vocabulary.columns) :] = 0
        result.learned = vocabulary, (learned, totals, absent.astype(np.int64))
        return result

    # Storage

    def state(self) -> dict[str, Any]:
        """Return everything that was learned, made of what JSON has; see `from_state`."""
        return self.vocabulary.packed(self.learned[1])

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Return the encoder that `state` described; raise ValueError if there is none.

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
    """An encoder for which pairs of a context's categories are categories, too.

    >>> encoder = PairingEncoder()
    >>> encoder.encode({"user": "Tom", "time": "noon"})
    array([1., 1., 1.])
    >>> encoder.names
    ('user=Tom', 'time=noon', 'time × user=noon × Tom')
    """

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        return super().look(self.with_pairs(context, learned[0]), learned, learn)

    def with_pairs(self, context: Any, vocabulary: Vocabulary) -> Any:
        """Return the context with the pairs of its categories, as far as there is room for them."""
        if not isinstance(context, Mapping):
            return context
        labels = sorted(
            (str(name), label)
            for name, value in context.items()
            if (label := category(str(name), value, vocabulary.categories)) is not None
        )
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


def category(name: str, value: Any, coded: Set[str]) -> str | None:
    """Return the category that a value is; None for a number and for none."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return str(value)
    label = cell_of(name, value, True) if name in coded else None
    return label if isinstance(label, str) else None
