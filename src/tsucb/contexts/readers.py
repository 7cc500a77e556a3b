"""Readers: how contexts, and the features of arms, become the numbers that a model takes.

Every agent has one `Reader`, chosen by its settings (`make_reader`):

| reader | contexts |
|---|---|
| `NoContext` | none, for K-armed models |
| `Vectors` | vectors, or mappings and tables with the names that were declared |
| `Transformed` | anything that a transformer of scikit-learn's kind takes |
| `AnyContext` | dictionaries, tables or lists, with strings and gaps; columns are learned |
| `ArmVectors` | a vector for every arm, for `Linear` |
| `ArmFeatures` | a context and features of every arm, for `HybridLinear`: vectors |
| `AnyArmFeatures` | the same as dictionaries, tables or lists; columns are learned |

`read` changes nothing. What it returns says what the reader would know afterwards, and `accept`
takes that over: a call that is refused in between leaves no trace.
"""

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from tsucb.checks import within
from tsucb.contexts.encoding import Encoded, Encoder
from tsucb.contexts.hashing import HashingEncoder
from tsucb.contexts.transformers import fast_row, learned_from, table_of
from tsucb.contexts.values import cell_of, listed, shown, values_of
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats

Arm = str | int
Context = Any  # a mapping of features, a row of a table, a vector, or whatever a transformer takes

# Columns of contexts and of arms: all their products are coefficients of the model. Categories
# beyond them share a column.
MOST_CONTEXT_COLUMNS, MOST_ARM_COLUMNS = 40, 25

# `HybridLinear` is linear in the context: of a reader who likes politics in the morning and another
# who does in the afternoon it can learn nothing that holds for both. So where a context has two or
# three categories, each pair of them is a category, too, while there are fewer columns than this: a
# decision takes time quadratic in their number.
MOST_PAIRED, MOST_PAIRED_COLUMNS = 3, 16


class Offered(NamedTuple):
    """Arms that are offered: their names, their features if they have any, and all known arms."""

    names: tuple[Arm, ...]
    features: list[Any] | None
    known: Container[Arm]


class Reading(NamedTuple):
    """Contexts as numbers.

    x
        (d,) of the context, or (n, d) with a row for each of n arms. Of N contexts: (N, d) or
        (N, n, d).
    z
        (n, a) or (N, n, a) the features of the arms; None without any.
    encoded
        What the reader's encoders read, one each.
    """

    x: Floats
    z: Floats | None = None
    encoded: tuple[Encoded, ...] = ()


class Reader:
    """How the contexts of an agent are read; see the top of this module.

    Parameters
    ----------
    model
        Says which shape a context has.
    """

    per_arm = False  # whether every arm has a row of its own
    takes_context = True
    names: tuple[str, ...] | None = None  # of the features, if they were declared
    ready: tuple[int, ...] | None = None  # the shape of arrays that need no reading
    transformer: Any = None
    streaming = False
    encoders: tuple[Any, ...] = ()  # what learns from contexts

    def __init__(self, model: Model) -> None:
        self.model_name, self.largest = type(model).__name__, float(model.largest)
        self.shape = model.context_shape(1)[-1:]  # of the vector that is learned from

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of a vector's entries."""
        return self.names or [f"x{i}" for i in range(sum(self.shape))]

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return a context as numbers; without `learn`, what has no column yet is left out."""
        raise NotImplementedError

    def read_one(self, context: Context, features: Any) -> Reading:
        """Return the numbers of one arm in a context."""
        if features is not None:
            raise TypeError(f"{self.model_name} knows no features of arms beside a context")
        return self.read(context, NOBODY)

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return several contexts (a list, matrix or table) as numbers."""
        raise NotImplementedError

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return one row per observation, each of one arm."""
        if contexts is not None:
            return self.read_many(contexts, NOBODY)
        return Reading(np.tile(self.read(None, NOBODY).x, (count, 1)))

    def columns(self, table: Any, arm: str, reward: str, features: Sequence[str]) -> Any:
        """Return contexts, arms, features of arms (None here) and rewards of a table."""
        others = [name for name in check_columns(table, arm, reward) if name not in (arm, reward)]
        return self._contexts(table, others), column(table, arm), None, column(table, reward)

    def _contexts(self, table: Any, names: list[str]) -> Any:
        """Return the contexts in some columns of a table."""
        return records(table, names)

    def is_current(self, reading: Reading) -> bool:
        """Return whether nothing was learned since a context was read."""
        for (_, before, _), encoder in zip(reading.encoded, self.encoders, strict=False):
            if before is not encoder.learned:
                return False
        return True

    def accept(self, reading: Reading) -> None:
        """Learn what was read."""
        for (_, _, after), encoder in zip(reading.encoded, self.encoders, strict=False):
            encoder.learned = after

    def reject(self, reading: Reading) -> None:
        """Forget what was learned last, for a decision that was refused after all."""
        for (_, before, _), encoder in zip(reading.encoded, self.encoders, strict=False):
            encoder.learned = before

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the features of a context that are not 0, with their values; learn nothing."""
        x = self.read(context, NOBODY, learn=False).x
        names = self.feature_names
        return [(names[i], float(x[i])) for i in np.flatnonzero(x).tolist()]

    def _refuse_features(self, arms: Offered) -> None:
        if arms.features is not None:
            raise TypeError(
                f"{self.model_name} takes arms as a list of names; features of arms are for "
                "HybridLinear and Linear"
            )


NOBODY = Offered((), None, ())


class NoContext(Reader):
    """For K-armed models, which take no context."""

    takes_context = False

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return an empty vector."""
        self._refuse_features(arms)
        if context is not None:
            raise ValueError(f"{self.model_name} takes no context; leave it off")
        return Reading(np.zeros(0))

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return rows without numbers, one for every None."""
        rows = [self.read(context, arms).x for context in contexts]
        return Reading(np.zeros((len(rows), 0)))

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return rows without numbers."""
        return Reading(np.tile(self.read(contexts, NOBODY).x, (count, 1)))

    def _contexts(self, table: Any, names: list[str]) -> Any:
        return None


class Vectors(Reader):
    """For vectors, or for mappings and tables with declared names."""

    def __init__(self, model: Model, names: tuple[str, ...] | None = None) -> None:
        super().__init__(model)
        self.names, self.ready = names, self.shape

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return a context as a new, finite vector."""
        self._refuse_features(arms)
        return Reading(self.vector(context))

    def vector(self, context: Context) -> Floats:
        """Return one context as a new, finite vector."""
        if context is None:
            raise ValueError(f"{self.model_name} needs a context; give one")
        rows = context
        if not (hasattr(context, "columns") or np.ndim(context) == 2):
            rows = [context]
        elif len(context) != 1:
            raise ValueError(f"a context is one row, but {len(context)} were given")
        vector: Floats = self.matrix(rows)[0]
        return vector

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return contexts as a new, finite matrix, one row each."""
        self._refuse_features(arms)
        return Reading(self.matrix(contexts))

    def matrix(self, contexts: Any) -> Floats:
        """Return several contexts (a list, matrix or table) as a new, finite matrix."""
        if isinstance(contexts, Mapping | str) or not hasattr(contexts, "__len__"):
            raise TypeError(
                f"contexts must be a list, a matrix or a table, not {type(contexts).__name__}; for "
                "one context use choose"
            )
        return self.checked(self._rows(contexts), len(contexts))

    def _rows(self, contexts: Any) -> Any:
        if hasattr(contexts, "columns"):
            return self._contexts(contexts)
        if isinstance(contexts, np.ndarray):
            return contexts
        return [self._by_name(context) for context in contexts]

    def checked(self, rows: Any, count: int) -> Floats:
        """Return rows as a new matrix; raise if they are not finite numbers of the right shape."""
        try:
            with np.errstate(over="ignore"):
                matrix = np.array(rows, dtype=np.float64, order="C")
        except (TypeError, ValueError):
            raise TypeError(
                "a context must be numbers, one per feature; for categories, text and missing "
                "values make the agent without features, or with a transformer"
            ) from None
        except OverflowError:
            matrix = np.full((count, *self.shape), np.inf)
        if count == 0:
            return np.zeros((0, *self.shape))
        if matrix.shape != (count, *self.shape):
            raise ValueError(
                f"a context has shape {matrix.shape[1:]}, but {self.model_name} expects "
                f"{self.shape}"
            )
        check_finite(matrix, self.largest)
        return matrix

    def _contexts(self, table: Any, others: Any = ()) -> Any:
        """Return the columns of the features, side by side."""
        names, present = self._needed_names(), getattr(table, "columns", table)
        absent = [name for name in names if name not in present]
        if absent:
            raise ValueError(f"the table has no column for the features {listed(absent)}")
        return np.column_stack([np.asarray(table[name]) for name in names])

    def _needed_names(self) -> tuple[str, ...]:
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
        self._row = None if streaming else fast_row(transformer)
        self.encoders = (self,) if streaming else ()

    @property
    def learned(self) -> dict[str, Any]:
        """What the transformer has learned."""
        known: dict[str, Any] = vars(self.transformer)
        return known

    @learned.setter
    def learned(self, known: dict[str, Any]) -> None:
        self.transformer.__dict__ = known

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return the vector that the transformer makes of a context."""
        self._refuse_features(arms)
        if self._row is not None:
            if context is None:
                raise ValueError(f"{self.model_name} needs a context; give one")
            return Reading(self.checked([self._row(context)], 1)[0])
        if not learn:
            raise ValueError("a transformer that learns from every context cannot be asked first")
        if context is None:
            raise ValueError(f"{self.model_name} needs a context; give one")
        one = hasattr(context, "columns") or np.ndim(context) == 2
        if one and len(context) != 1:
            raise ValueError(f"a context is one row, but {len(context)} were given")
        reading = self._read_rows(context if one else [context])
        return reading._replace(x=reading.x[0])

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return the vectors that the transformer makes of contexts."""
        self._refuse_features(arms)
        return self._read_rows(contexts)

    def _read_rows(self, contexts: Any) -> Reading:
        if not self.streaming:
            return Reading(self.matrix(contexts))
        before = self.learned
        matrix, after = learned_from(self.transformer, self._table(contexts))
        checked = self.checked(matrix, len(contexts))
        return Reading(checked, None, ((checked, before, after),))

    def _table(self, contexts: Any) -> Any:
        fitted_to = getattr(self.transformer, "feature_names_in_", None)
        if fitted_to is not None:
            return table_of(contexts, fitted_to)
        return records(contexts, contexts.columns) if hasattr(contexts, "columns") else contexts

    def _rows(self, contexts: Any) -> Any:
        rows = self.transformer.transform(self._table(contexts))
        return rows.toarray() if hasattr(rows, "toarray") else rows

    def _contexts(self, table: Any, others: Any = ()) -> Any:
        return records(table, others)


class AnyContext(Reader):
    """For contexts as they come: an encoder learns their columns.

    Parameters
    ----------
    encoder
        An `Encoder`, or a `HashingEncoder`.
    """

    def __init__(self, model: Model, encoder: Any) -> None:
        super().__init__(model)
        self.encoders = (encoder,)

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the columns, those that are still to be used included."""
        (encoder,) = self.encoders
        names = encoder.names
        return [*names, *(f"(column {i})" for i in range(len(names), encoder.width))]

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return a context as a vector; None is a context without features."""
        if arms.features is not None:
            self._refuse_features(arms)
        if context is None:
            return Reading(np.zeros(0))
        encoder = self.encoders[0]
        if not learn:
            return Reading(encoder.peek(context))
        encoded = encoder.read(context)
        return Reading(encoded[0], None, (encoded,))

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return contexts as a matrix, one row each."""
        self._refuse_features(arms)
        if hasattr(contexts, "__len__") and all(context is None for context in contexts):
            return Reading(np.zeros((len(contexts), 0)))
        encoded = self.encoders[0].read_table(contexts)
        return Reading(encoded[0], None, (encoded,))

    def _contexts(self, table: Any, names: list[str]) -> Any:
        return {name: table[name] for name in names} or None

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return what the encoder makes of a context, learning nothing."""
        return [] if context is None else self.encoders[0].describe(context)


class ArmVectors(Vectors):
    """For a feature vector of every arm, as `Linear` takes them."""

    per_arm = True

    def __init__(self, model: Model, names: tuple[str, ...] | None = None) -> None:
        super().__init__(model, names)
        self.ready = None

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return the vectors of the arms as a matrix, one row per arm."""
        rows = context
        if arms.features is not None:
            if context is not None:
                raise TypeError(
                    f"{self.model_name} takes arms as a list of names, or as a mapping to features "
                    "and then no context"
                )
            rows = arms.features
        elif isinstance(context, Mapping):
            absent = [arm for arm in arms.names if arm not in context]
            if absent:
                raise ValueError(f"the context has no features for the arms {listed(absent)}")
            unknown = [arm for arm in context if arm not in arms.known]
            if unknown:
                raise ValueError(f"the context has features for unknown arms: {listed(unknown)}")
            rows = [context[arm] for arm in arms.names]
        if rows is None or not hasattr(rows, "__len__") or len(rows) != len(arms.names):
            raise ValueError(
                f"{self.model_name} needs a feature vector for each of the {len(arms.names)} "
                "available arms: a matrix with one row per arm, or a mapping of arms to vectors"
            )
        return Reading(self.matrix(rows))

    def read_one(self, context: Context, features: Any) -> Reading:
        """Return the vector of one arm."""
        if features is not None:
            raise TypeError(f"{self.model_name} knows no features of arms beside a context")
        return Reading(self.vector(context))

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return the vectors of the arms of several observations."""
        return Reading(self.vector(None) if contexts is None else self.matrix(contexts))

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return the vectors of the arms in several contexts."""
        rows = [self.read(context, arms).x for context in one_by_one(contexts)]
        return Reading(np.array(rows).reshape(len(rows), len(arms.names), *self.shape))

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the entries of one arm's vector that are not 0."""
        x, names = self.vector(context), self.feature_names
        return [(names[i], float(x[i])) for i in np.flatnonzero(x).tolist()]


class ArmFeatures(Vectors):
    """For a vector of the context and one of every arm, as `HybridLinear` takes them."""

    per_arm = True

    def __init__(self, model: Model, names: tuple[str, ...] | None = None) -> None:
        super().__init__(model)
        plain: HybridLinear = without_forgetting(model)
        self.ready = None
        self.widths = plain.context, plain.features

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of a row's entries."""
        c, a = self.widths
        return [*(f"x{i}" for i in range(c)), *(f"z{i}" for i in range(a))]

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return the vector of a context, or a matrix of whole rows, and those of the arms."""
        count, features = len(arms.names), arms.features
        if context is not None and np.ndim(context) == 2:
            return self._whole(context, count, features)
        x = self._plain(context, self.widths[0], "the context")
        given = features if features is not None else [None] * count
        try:  # vectors all alike, at once
            z: Floats = np.array(given, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            z = np.zeros(0)
        if z.shape != (count, self.widths[1]) or not within(z, self.largest):
            rows = [self._plain(arm, self.widths[1], "an arm") for arm in given]
            z = np.array(rows).reshape(count, self.widths[1])
        return Reading(x, z)

    def read_one(self, context: Context, features: Any) -> Reading:
        """Return the vectors of a context and of one arm."""
        return self.read(context, Offered(("",), [features], ()))

    def _whole(self, rows: Any, count: int, features: Any) -> Reading:
        matrix = self.matrix(rows)
        named = features is None or all(each is None for each in features)
        if len(matrix) != count or not named:
            raise ValueError(
                f"the context has {len(matrix)} rows for {count} arms; give one per arm, and "
                "the arms by their names alone"
            )
        return Reading(matrix[:, : self.widths[0]], matrix[:, self.widths[0] :])

    def _plain(self, values: Any, width: int, whose: str) -> Floats:
        if values is None:
            if width:
                raise ValueError(f"{whose} must have {width} features, but has none; give them")
            return np.zeros(0)
        if isinstance(values, Mapping):
            raise TypeError(
                f"{whose} has features with names, for which the agent must be made without a "
                "model: it then reads them as they come"
            )
        try:
            vector: Floats = np.array(values, dtype=np.float64)
        except OverflowError:
            vector = np.full(width, np.inf)
        except (TypeError, ValueError):
            raise TypeError(
                f"{whose} must be numbers, one per feature, not {shown(values)}"
            ) from None
        if vector.shape != (width,):
            raise ValueError(
                f"{whose} has features of shape {vector.shape}, but {self.model_name} expects "
                f"({width},)"
            )
        check_finite(vector, self.largest)
        return vector

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return several contexts, and the features of the arms with each."""
        return stacked_readings([self.read(each, arms) for each in one_by_one(contexts)], arms)

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return the context and the arm of every observation."""
        pairs = zip(*_both(contexts, features, count), strict=True)
        one = Offered(("",), None, ())
        return stacked_readings([self.read(x, one._replace(features=[z])) for x, z in pairs], one)

    def columns(self, table: Any, arm: str, reward: str, features: Sequence[str]) -> Any:
        """Return contexts, arms, their features and rewards of a table."""
        present, described = check_columns(table, arm, reward), list(features)
        absent = [name for name in described if name not in present]
        if absent:
            raise ValueError(f"the history has no column for the features {listed(absent)}")
        names, rewards = column(table, arm), column(table, reward)
        others = [name for name in present if name not in (arm, reward, *described)]
        contexts, features_ = (records(table, some) or None for some in (others, described))
        return contexts, names, features_, rewards

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the entries of a context's vector that are not 0."""
        x = self._plain(context, self.widths[0], "the context")
        return [(f"x{i}", float(x[i])) for i in np.flatnonzero(x).tolist()]


class AnyArmFeatures(ArmFeatures):
    """For contexts and arms as they come: two encoders learn their columns."""

    def __init__(self, model: Model, encoders: tuple[Encoder, Encoder]) -> None:
        super().__init__(model)
        self.encoders = encoders

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of a row's entries."""
        return [name for encoder in self.encoders for name in encoder.names]

    def read(
        self, context: Context, arms: Offered, learn: bool = True,
        base: tuple[Any, Any] | None = None,
    ) -> Reading:  # fmt: skip
        """Return the vector of a context, and a matrix with one row for every arm.

        `base` is what the encoders have learned, by default what they know now.
        """
        first, second = self.encoders
        own, others = base or (first.learned, second.learned)
        given = arms.features if arms.features is not None else [None] * len(arms.names)
        x, after = np.zeros(0), own
        if context is not None:
            paired = with_pairs(context, own[0])
            x, *new = own[0].encode(paired, own[1], learn)
            after = (new[0], new[1])
        vectors, later = [], others
        for features in given:
            if features is None:
                vectors.append(np.zeros(0))
            else:
                vector, *new = later[0].encode(features, later[1], learn)
                vectors.append(vector)
                later = (new[0], new[1])
        z = np.zeros((len(vectors), len(later[0].columns)))
        for row, vector in zip(z, vectors, strict=True):
            row[: vector.size] = vector[: row.size]
        x = x[: len(after[0].columns)]
        encoded = ((x, own, after), (z, others, later)) if learn else ()
        return Reading(x, z, encoded)

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return several contexts, and the features of the arms with each."""
        return self._read_each([(each, arms) for each in one_by_one(contexts)], arms)

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return the context and the arm of every observation."""
        one = Offered(("",), None, ())
        pairs = zip(*_both(contexts, features, count), strict=True)
        return self._read_each([(x, one._replace(features=[z])) for x, z in pairs], one)

    def _read_each(self, pairs: list[tuple[Context, Offered]], arms: Offered) -> Reading:
        start = now = (self.encoders[0].learned, self.encoders[1].learned)
        readings = []
        for context, offered in pairs:
            readings.append(self.read(context, offered, True, now))
            now = (readings[-1].encoded[0][2], readings[-1].encoded[1][2])
        reading = stacked_readings(readings, arms)
        ends = tuple((reading.x, *each) for each in zip(start, now, strict=True))
        return reading._replace(encoded=ends)

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return what the encoder of contexts makes of one, learning nothing."""
        encoder = self.encoders[0]
        if context is None:
            return []
        described: list[tuple[str, float]] = encoder.describe(
            with_pairs(context, encoder.vocabulary)
        )
        return described


def make_reader(
    model: Model, names: tuple[str, ...] | None, transformer: Any, streaming: bool,
    categories: Sequence[str], any_form: bool,
) -> Reader:  # fmt: skip
    """Return the reader for an agent's settings; `any_form`: nothing was declared of contexts."""
    plain = without_forgetting(model)
    if transformer is not None and not hasattr(transformer, "transform"):
        raise TypeError("transformer must have a method transform(contexts)")
    if streaming and not hasattr(transformer, "partial_fit"):
        raise TypeError("streaming needs a transformer with a method partial_fit(contexts)")
    if categories and not any_form:
        raise ValueError(
            "categories are for contexts that the agent reads by itself; leave off features, model "
            "and transformer, or categories"
        )
    if isinstance(plain, HybridLinear):
        if transformer is not None:
            raise ValueError("HybridLinear reads contexts and arms itself; leave transformer off")
        if not any_form:
            return ArmFeatures(model)
        contexts = Encoder(categories=categories, most_columns=MOST_CONTEXT_COLUMNS)
        arms = Encoder(categories=categories, most_columns=MOST_ARM_COLUMNS)
        return AnyArmFeatures(model, (contexts, arms))
    if any_form:
        hashed = isinstance(plain, HashedLinear)
        return AnyContext(
            model,
            HashingEncoder(plain.bits, plain.crossed, categories)
            if hashed
            else Encoder(categories=categories),
        )
    if transformer is not None:
        return Transformed(model, names, transformer, streaming)
    shape = model.context_shape(1)
    kinds: list[Any] = [NoContext, Vectors, ArmVectors]
    kind = kinds[len(shape)]
    reader: Reader = kind(model) if kind is NoContext else kind(model, names)
    return reader


def wanted_width(reading: Reading, model: Model) -> Any:
    """Return what to widen a model to, so that what was read fits; None if it fits already."""
    plain: Any = without_forgetting(model)
    if reading.z is None:
        (have,) = model.context_shape(1)[-1:] or (0,)
        return reading.x.shape[-1] if reading.x.shape[-1] > have else None
    now = plain.context, plain.features
    wide = max(reading.x.shape[-1], now[0]), max(reading.z.shape[-1], now[1])
    return None if wide == now else wide


def laid_out_for(reading: Reading, model: Model) -> Floats:
    """Return what was read, as wide as the model is: padded with zeros, or cut."""
    x, z = reading.x, reading.z
    if z is None:
        width = sum(model.context_shape(1)[-1:])
        if x.shape[-1] == width:
            return x
        out = np.zeros((*x.shape[:-1], width))
        some = min(width, x.shape[-1])
        out[..., :some] = x[..., :some]
        return out
    plain: HybridLinear = without_forgetting(model)
    if z.shape[-1] == plain.features and not plain.context:
        return z
    rows = np.zeros((*z.shape[:-1], plain.context + plain.features))
    c, a = min(x.shape[-1], plain.context), min(z.shape[-1], plain.features)
    rows[..., :c] = (x if x.ndim == z.ndim else x[..., None, :])[..., :c]
    rows[..., plain.context : plain.context + a] = z[..., :a]
    return rows


def stacked_readings(readings: list[Reading], arms: Offered) -> Reading:
    """Return several readings of the same number of arms as one, as wide as the widest."""
    if not readings:
        return Reading(np.zeros((0, 0)), np.zeros((0, len(arms.names), 0)))
    parts = [[each.x for each in readings], [np.asarray(each.z) for each in readings]]
    stacks = []
    for some in parts:
        width = max(part.shape[-1] for part in some)
        stacks.append(np.zeros((len(some), *some[0].shape[:-1], width)))
        for row, part in zip(stacks[-1], some, strict=True):
            row[..., : part.shape[-1]] = part
    return Reading(stacks[0], stacks[1])


def with_pairs(context: Context, vocabulary: Any) -> Context:
    """Return the context with the pairs of its categories, as far as there is room for them.

    >>> with_pairs({"user": "Tom", "time": "noon", "age": 30}, Encoder().vocabulary)
    {'user': 'Tom', 'time': 'noon', 'age': 30, 'time × user': 'noon × Tom'}
    """
    if not isinstance(context, Mapping):
        return context
    labels = sorted(
        (str(name), label)
        for name, value in context.items()
        if (label := _category(str(name), value, vocabulary.categories)) is not None
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


def _category(name: str, value: Any, coded: Set[str]) -> str | None:
    """Return the category that a value is; None for a number and for none."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return str(value)
    label = cell_of(name, value, True) if name in coded else None
    return label if isinstance(label, str) else None


def _both(contexts: Any, features: Any, count: int) -> tuple[list[Any], list[Any]]:
    x = [None] * count if contexts is None else list(contexts)
    z = [None] * count if features is None else list(features)
    if not len(x) == len(z) == count:
        raise ValueError("a history needs a context, an arm and a reward per observation")
    return x, z


def check_columns(table: Any, arm: str, reward: str) -> list[str]:
    """Return the columns of a table; raise ValueError unless it has arms and rewards."""
    present = list(table.columns if hasattr(table, "columns") else table)
    for name in (arm, reward):
        if name not in present:
            raise ValueError(
                f"the history has no column {shown(name)}, only {listed(present)}; "
                "say which are meant with fit(history, arm=…, reward=…)"
            )
    return present


def column(table: Any, name: str) -> list[Any]:
    """Return a column of a table as a list."""
    values: list[Any] = np.asarray(table[name]).tolist()
    return values


def one_by_one(contexts: Any) -> list[Any]:
    """Return the contexts of a table, a matrix or a list."""
    if isinstance(contexts, Mapping) or hasattr(contexts, "columns"):
        return records(contexts, getattr(contexts, "columns", contexts))
    return list(contexts.toarray() if hasattr(contexts, "toarray") else contexts)


def records(table: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of some columns of a table, as pandas, polars or a mapping has it."""
    names = list(names)
    columns = (column(table, name) for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def narrow_rows(reading: Reading) -> Floats:
    """Return rows of one arm each, as wide as they were read.

    With features of arms: the number of the context's columns, these, and those of the arm.
    """
    x, z = reading.x, reading.z
    if z is None:
        return np.ascontiguousarray(x)
    count = np.full((*x.shape[:-1], 1), float(x.shape[-1]))
    return np.concatenate((count, x, z.reshape(*x.shape[:-1], z.shape[-1])), axis=-1)
