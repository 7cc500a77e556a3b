"""Readers: how contexts, and the features of arms, become the numbers that a model takes.

A `Reader` has one encoder, for contexts; one with features of arms has another for these:

| encoder | takes |
|---|---|
| `NoFeatures` | nothing, for K-armed models |
| `Vectors` | vectors, or mappings and tables with the names that were declared |
| `Transformed` | anything that a transformer of scikit-learn's kind takes |
| `Encoder`, `HashingEncoder` | dictionaries, tables or lists, with strings and gaps |

`read` changes nothing. What it returns says what the encoders would know afterwards, and `accept`
takes that over: a call that is refused in between leaves no trace.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tsucb.checks import LARGEST, shown
from tsucb.contexts.encoding import (
    Encoder,
    FeatureEncoder,
    NarrowEncoder,
    PairingEncoder,
    padded_stack,
)
from tsucb.contexts.hashing import HashingEncoder
from tsucb.contexts.values import column, listed, rows_of
from tsucb.contexts.vectors import NoFeatures, Transformed, Vectors, float_matrix
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
    before, after
        What the encoders had learned when they read, and with what they read, one each; nothing if
        it is not to be learned.
    """

    x: Floats
    z: Floats | None = None
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()


NOBODY, NOTHING_READ = Offered((), None, ()), Reading(np.zeros(0))


class Reader:
    """Reads the contexts of an agent; see the top of this module.

    Parameters
    ----------
    model
        Who takes the numbers.
    encoders
        That of contexts, and perhaps that of arms.
    """

    per_arm = False  # whether every arm has a row of its own

    def __init__(self, model: Model, *encoders: FeatureEncoder) -> None:
        self.model_name, self.largest = type(model).__name__, float(model.largest)
        self.parts, first = encoders, encoders[0]
        self.takes_context = not isinstance(first, NoFeatures)
        self.names = first.declared
        self.ready = None if self.per_arm else first.ready  # shape of arrays that need no reading
        self.transformer = getattr(first, "transformer", None)
        self.streaming = getattr(first, "streaming", False)

    @property
    def encoders(self) -> tuple[Any, ...]:
        """The encoders that learn from contexts."""
        return tuple(part for part in self.parts if part.learns)

    @property
    def learned(self) -> tuple[Any, ...]:
        """What the encoders have learned, one each."""
        return tuple(part.learned for part in self.parts)

    @property
    def feature_names(self) -> Sequence[str]:
        (encoder,) = self.parts
        names = encoder.names
        return [*names, *(f"(column {i})" for i in range(len(names), encoder.width))]

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return a context as numbers; without `learn`, what has no column yet is left out."""
        if arms.features is not None:
            self.refuse_features()
        encoder = self.parts[0]
        if context is None and encoder.optional:
            return Reading(np.zeros(0))
        before = encoder.learned
        x, after = encoder.look(context, before, learn)
        return self.checked(Reading(x, None, (before,), (after,)) if learn else Reading(x))

    def read_one(self, context: Context, features: Any) -> Reading:
        """Return the numbers of one arm in a context."""
        return self.read(context, Offered(("",), None if features is None else [features], ()))

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return several contexts (a list, matrix or table) as numbers."""
        if arms.features is not None:
            self.refuse_features()
        encoder = self.parts[0]
        before = encoder.learned
        x, after = encoder.look_at_all(encoder.rows(contexts), before, True)
        return self.checked(Reading(x, None, (before,), (after,)))

    def checked(self, reading: Reading) -> Reading:
        """Return what was read; raise ValueError for numbers that the model cannot learn from."""
        if self.largest < LARGEST:  # which is all that encoders check for
            for values in (reading.x, reading.z):
                if values is not None:
                    check_finite(values, self.largest)
        return reading

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return one row per observation, each of one arm."""
        if contexts is not None and self.takes_context:
            return self.read_many(contexts, NOBODY)
        return Reading(np.tile(self.read(contexts, NOBODY).x, (count, 1)))

    def columns(self, table: Any, arm: str, reward: str, features: Sequence[str]) -> Any:
        """Return contexts, arms, features of arms (None without any) and rewards of a table."""
        present, encoder = check_columns(table, arm, reward), self.parts[0]
        absent = [name for name in features if name not in present]
        if absent:
            raise ValueError(f"the history has no column for the features {listed(absent)}")
        others = [name for name in present if name not in (arm, reward, *features)]
        contexts = encoder.columns(table, others) if others or not encoder.optional else None
        of_arms = rows_of(table, features) if features else None
        return contexts, column(table, arm), of_arms, column(table, reward)

    def is_current(self, reading: Reading) -> bool:
        """Return whether nothing was learned since a context was read."""
        for encoder, before in zip(self.parts, reading.before, strict=False):
            if before is not encoder.learned:
                return False
        return True

    def accept(self, reading: Reading) -> None:
        for encoder, after in zip(self.parts, reading.after, strict=False):
            encoder.learned = after

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the features of a context that are not 0, with their values; learn nothing."""
        encoder = self.parts[0]
        return [] if context is None and encoder.optional else encoder.describe(context)

    def refuse_features(self) -> NoReturn:
        raise TypeError(
            f"{self.model_name} takes arms as a list of names; features of arms are for "
            "HybridLinear and Linear"
        )


class ArmVectors(Reader):
    """Reads a feature vector of every arm, as `Linear` takes them."""

    per_arm = True

    def __init__(self, model: Model, vectors: Vectors) -> None:
        super().__init__(model, vectors)
        self.vectors = vectors

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
        return Reading(self.vectors.matrix(rows))

    def read_one(self, context: Context, features: Any) -> Reading:
        """Return the vector of one arm, which is its context."""
        if context is not None and features is not None:
            raise TypeError(f"{self.model_name} knows no features of arms beside a context")
        return Reading(self.vectors.peek(features if context is None else context))

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        return Reading(
            self.vectors.matrix(self.vectors.one_row(None) if contexts is None else contexts)
        )

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        rows = [self.read(context, arms).x for context in rows_of(contexts)]
        return Reading(np.array(rows).reshape(len(rows), len(arms.names), self.vectors.width))


class ArmFeatures(Reader):
    """Reads a context and features of every arm, as `HybridLinear` takes them."""

    per_arm = True

    @property
    def feature_names(self) -> Sequence[str]:
        return [name for part in self.parts for name in part.names]

    def read(
        self, context: Context, arms: Offered, learn: bool = True,
        before: tuple[Any, ...] | None = None,
    ) -> Reading:  # fmt: skip
        """Return the vector of a context, or whole rows, and a matrix with a row for every arm.

        `before` is what the encoders have learned, by default what they know now.
        """
        first, second = self.parts
        before = before or self.learned
        if isinstance(first, Vectors) and context is not None and np.ndim(context) == 2:
            return self._whole(context, arms)
        given = arms.features if arms.features is not None else [None] * len(arms.names)
        x, after = np.zeros(0), before[0]
        if context is not None or not first.optional:
            x, after = first.look(context, before[0], learn)
        z, later = second.look_at_all(given, before[1], learn)
        return self.checked(Reading(x, z, before, (after, later)) if learn else Reading(x, z))

    def _whole(self, rows: Any, arms: Offered) -> Reading:
        """Return the rows of a matrix, one per arm: those of the context, then those of the arm."""
        count, features, width = len(arms.names), arms.features, self.parts[0].width
        shape = count, width + self.parts[1].width
        named = features is None or all(each is None for each in features)
        if np.shape(rows) != shape or not named:
            raise ValueError(
                f"the context has the shape {np.shape(rows)} for {count} arms; give a row of "
                f"{shape[1]} numbers for each, and the arms by their names alone"
            )
        matrix = float_matrix(rows, "the context", shape)
        check_finite(matrix, self.largest)
        return Reading(matrix[:, :width], matrix[:, width:])

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        return self._read_each([(each, arms) for each in rows_of(contexts)], arms)

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        one = Offered(("",), None, ())
        x = [None] * count if contexts is None else list(contexts)
        z = [None] * count if features is None else list(features)
        if not len(x) == len(z) == count:
            raise ValueError("a history needs a context, an arm and a reward per observation")
        pairs = [
            (context, one._replace(features=[each])) for context, each in zip(x, z, strict=True)
        ]
        return self._read_each(pairs, one)

    def _read_each(self, pairs: list[tuple[Context, Offered]], arms: Offered) -> Reading:
        before = after = self.learned
        readings = []
        for context, offered in pairs:
            readings.append(self.read(context, offered, True, after))
            after = readings[-1].after or after
        x = padded_stack([each.x for each in readings])
        z = padded_stack([each.z for each in readings], (len(arms.names),))
        return Reading(x, z, before, after)


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
            arm = Vectors(model, None, plain.features, "the vector of an arm", "z")
            return ArmFeatures(model, Vectors(model, None, plain.context), arm)
        contexts = PairingEncoder(categories=categories, most_columns=MOST_CONTEXT_COLUMNS)
        arms = NarrowEncoder(categories=categories, most_columns=MOST_ARM_COLUMNS)
        return ArmFeatures(model, contexts, arms)
    if any_form and isinstance(plain, HashedLinear):
        return Reader(model, HashingEncoder(plain.bits, plain.crossed, categories))
    if any_form:
        return Reader(model, Encoder(categories=categories))
    if transformer is not None:
        return Reader(model, Transformed(model, names, transformer, streaming))
    axes = len(model.context_shape(1))
    if axes == 2:
        return ArmVectors(model, Vectors(model, names))
    return Reader(model, Vectors(model, names) if axes else NoFeatures(model))


def restore_reader(model: Any, states: list[Any]) -> Reader:
    """Return what reads contexts, and perhaps arms, as they come, from its encoders' states."""
    plain: Any = without_forgetting(model)
    if isinstance(plain, HashedLinear):
        (state,) = states
        return Reader(model, HashingEncoder.from_state(state, plain.bits, plain.crossed))
    if isinstance(plain, HybridLinear):
        first, second = states
        contexts, arms = PairingEncoder.from_state(first), NarrowEncoder.from_state(second)
        plain.widened((contexts.used, arms.used))
        return ArmFeatures(model, contexts, arms)
    (state,) = states
    encoder = Encoder.from_state(state)
    plain.widened(encoder.width)  # or it is no model that can read contexts by itself
    return Reader(model, encoder)


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


def narrow_rows(reading: Reading) -> Floats:
    """Return rows of one arm each, as wide as they were read.

    With features of arms: the number of the context's columns, these, and those of the arm.
    """
    x, z = reading.x, reading.z
    if z is None:
        return np.ascontiguousarray(x)
    x, z = (part.reshape(*reading.x.shape[:-1], part.shape[-1]) for part in (x, z))
    return np.concatenate((np.full((*x.shape[:-1], 1), float(x.shape[-1])), x, z), axis=-1)


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
