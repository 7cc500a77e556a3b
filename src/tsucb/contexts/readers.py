"""Turn contexts, and the features of arms, into the numbers that a model takes.

A `Reader` has an encoder for contexts and, where arms have features, another one for these:

| encoder | takes |
|---|---|
| `NoFeatures` | nothing, for K-armed models |
| `Vectors` | vectors, or mappings and tables with the names that were declared |
| `Transformed` | anything that a transformer of scikit-learn's kind takes |
| `Encoder`, `HashingEncoder` | dictionaries, tables or lists, with strings and missing values |

`read` changes nothing: it returns a `Reading` that also holds what the encoders would have learned.
`accept` lets them know it. So a call that is refused after reading leaves no trace.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tsucb.checks import LARGEST, shown
from tsucb.contexts.encoding import Encoder, FeatureEncoder, NarrowEncoder, PairingEncoder
from tsucb.contexts.hashing import HashingEncoder
from tsucb.contexts.values import column, listed, rows_of
from tsucb.contexts.vectors import NoFeatures, Transformed, Vectors, float_matrix
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_curves import HYBRID
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats

Arm = str | int
Context = Any  # a mapping of features, a row of a table, a vector, or what a transformer takes

# The most columns of contexts and of arms of hybrid models, whose coefficients are their products.
# Categories that come later share a column.
MOST_CONTEXT_COLUMNS, MOST_ARM_COLUMNS = 40, 25


class Offered(NamedTuple):
    """Arms that are offered: their names, their features (None without any), all known arms."""

    names: tuple[Arm, ...]
    features: list[Any] | None
    known: Container[Arm]


NOBODY = Offered((), None, ())


class Reading(NamedTuple):
    """Contexts as numbers.

    x
        The context (d,), or a row for each of n arms (n, d); (N, d) or (N, n, d) for N contexts.
    z
        The features of the arms, (n, a) or (N, n, a); None for arms without any.
    before, after
        What each encoder had learned before it read, and after it; empty if nothing is learned.
    """

    x: Floats
    z: Floats | None = None
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()


NOTHING_READ = Reading(np.zeros(0))


class ReadQuestion(NamedTuple):
    """What reads a context, or several; its reading; and the arms that are offered."""

    read: Callable[[], Reading]
    reading: Reading
    offered: Offered = NOBODY


class Reader:
    """Reads the contexts of an agent; see the top of this module.

    Parameters
    ----------
    model
        The model that takes the numbers.
    encoders
        The encoder of contexts, and perhaps one for the features of arms.
    """

    per_arm = False  # whether every arm has a row of its own
    has_arm_features = False  # whether there is an encoder for them

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
        """What each encoder has learned."""
        return tuple(part.learned for part in self.parts)

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the columns of contexts, then of arms; those not in use have a number."""
        names: list[str] = []
        for part in self.parts:
            unused = range(len(part.names), part.width)
            names += [*part.names, *(f"(column {i})" for i in unused)]
        return names

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return a context as numbers; without `learn`, values that have no column are left out."""
        if arms.features is not None:
            self.refuse_features()
        encoder = self.parts[0]
        if context is None and encoder.optional:
            return Reading(np.zeros(0))
        before = encoder.learned
        x, after = encoder.look(context, before, learn)
        return self.checked(Reading(x, None, (before,), (after,)) if learn else Reading(x))

    def read_one(self, context: Context, features: Any) -> Reading:
        """Return a context and the features of one arm as numbers."""
        return self.read(context, Offered(("",), None if features is None else [features], ()))

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        """Return several contexts (a list, matrix or table) as numbers."""
        if arms.features is not None:
            self.refuse_features()
        encoder = self.parts[0]
        before = encoder.learned
        x, after = encoder.look_at_all(contexts, before, True)
        return self.checked(Reading(x, None, (before,), (after,)))

    def checked(self, reading: Reading) -> Reading:
        """Return the reading; raise ValueError for numbers that the model cannot learn from."""
        if self.largest < LARGEST:  # encoders check for LARGEST
            for values in (reading.x, reading.z):
                if values is not None:
                    check_finite(values, self.largest)
        return reading

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        """Return the contexts of a history, one row per observation, as numbers."""
        if contexts is not None and self.takes_context:
            return self.read_many(contexts, NOBODY)
        return Reading(np.tile(self.read(contexts, NOBODY).x, (count, 1)))

    def columns(self, table: Any, arm: str, reward: str, features: Sequence[str]) -> Any:
        """Return contexts, arms, features of arms (or None) and rewards from a table's columns."""
        present, encoder = list(getattr(table, "columns", table)), self.parts[0]
        for name in (arm, reward):
            if name not in present:
                raise ValueError(
                    f"the history has no column {shown(name)}, only {listed(present)}; "
                    "say which are meant with fit(history, arm=…, reward=…)"
                )
        absent = [name for name in features if name not in present]
        if absent:
            raise ValueError(f"the history has no column for the features {listed(absent)}")
        others = [name for name in present if name not in (arm, reward, *features)]
        contexts = encoder.columns(table, others) if others or not encoder.optional else None
        of_arms = rows_of(table, features) if features else None
        return contexts, column(table, arm), of_arms, column(table, reward)

    def current(self, question: ReadQuestion) -> Reading:
        """Return the reading of a question, made again if the encoders have learned meanwhile."""
        reading = question.reading
        for encoder, before in zip(self.parts, reading.before, strict=False):
            if before is not encoder.learned:
                return question.read()
        return reading

    def accept(self, reading: Reading) -> None:
        """Let the encoders know what they learned when they read."""
        for encoder, after in zip(self.parts, reading.after, strict=False):
            encoder.learned = after

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the features of a context that are not 0, with their values; learn nothing."""
        encoder = self.parts[0]
        return [] if context is None and encoder.optional else encoder.describe(context)

    def refuse_features(self) -> NoReturn:
        """Raise TypeError for features of arms that the model does not take."""
        raise TypeError(
            f"{self.model_name} takes arms as a list of names; features of arms are for "
            "HybridCurves, HybridLinear and Linear"
        )


class ArmVectors(Reader):
    """Reads a feature vector of every arm, as `Linear` takes them."""

    per_arm = True

    @property
    def vectors(self) -> Vectors:
        """The only encoder."""
        vectors: Vectors
        (vectors,) = self.parts  # type: ignore[assignment]
        return vectors

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
        if isinstance(rows, str) or not hasattr(rows, "__len__") or len(rows) != len(arms.names):
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
        return Reading(self.vectors.matrix([None] if contexts is None else contexts))

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        rows = [self.read(context, arms).x for context in rows_of(contexts)]
        return Reading(np.array(rows).reshape(len(rows), len(arms.names), self.vectors.width))


class ArmFeatures(Reader):
    """Reads a context and the features of every arm, as `HybridCurves` takes them."""

    per_arm = has_arm_features = True

    def read(self, context: Context, arms: Offered, learn: bool = True) -> Reading:
        """Return the vector of a context, and a matrix with the features of every arm.

        Where they are declared, a context may also be a matrix: a row for every arm, of the
        context's features and the arm's.
        """
        features = features_of(arms)
        if self._is_matrix(context):
            return self._read_matrix(context, features)
        (first, second), before = self.parts, self.learned
        x, after = np.zeros(0), before[0]
        if context is not None or not first.optional:
            x, after = first.look(context, before[0], learn)
        z, later = second.look_at_all(features, before[1], learn)
        return self.checked(Reading(x, z, before, (after, later)) if learn else Reading(x, z))

    def _is_matrix(self, context: Context) -> bool:
        return isinstance(self.parts[0], Vectors) and np.ndim(context) == 2

    def _read_matrix(self, rows: Any, features: list[Any]) -> Reading:
        width = self.parts[0].width
        shape = len(features), width + self.parts[1].width
        if np.shape(rows) != shape or any(each is not None for each in features):
            raise ValueError(
                f"the context has the shape {np.shape(rows)} for {shape[0]} arms; give a row of "
                f"{shape[1]} numbers for each, and the arms by their names alone"
            )
        matrix = float_matrix(rows, "the context", shape)
        check_finite(matrix, self.largest)
        return Reading(matrix[:, :width], matrix[:, width:])

    def read_many(self, contexts: Any, arms: Offered) -> Reading:
        contexts = rows_of(contexts)
        return self._read_all(contexts, features_of(arms) * len(contexts), len(arms.names))

    def read_history(self, contexts: Any, features: Any, count: int) -> Reading:
        contexts = [None] * count if contexts is None else rows_of(contexts)
        features = [None] * count if features is None else rows_of(features)
        if not len(contexts) == len(features) == count:
            raise ValueError("a history needs a context, an arm and a reward per observation")
        return self._read_all(contexts, features, 1)

    def _read_all(self, contexts: list[Any], features: list[Any], arms: int) -> Reading:
        """Return contexts, and the features of this many arms for each of them, as numbers."""
        if any(map(self._is_matrix, contexts)):
            each = [features[i : i + arms] for i in range(0, len(features), arms)]
            readings = list(map(self._read_matrix, contexts, each))
            x, z = (np.array([reading[n] for reading in readings]) for n in range(2))
            return Reading(x, z)
        (first, second), before = self.parts, self.learned
        x, after = first.look_at_all(contexts, before[0], True)
        z, later = second.look_at_all(features, before[1], True)
        z = z.reshape(len(contexts), arms, z.shape[1])
        return self.checked(Reading(x, z, before, (after, later)))


def features_of(arms: Offered) -> list[Any]:
    """Return the features of each arm, None for those without any."""
    return [None] * len(arms.names) if arms.features is None else arms.features


def make_reader(
    model: Model, names: tuple[str, ...] | None, transformer: Any, streaming: bool,
    categories: Sequence[str], any_form: bool,
) -> Reader:  # fmt: skip
    """Return the reader for an agent's settings; with `any_form`, of contexts in any form."""
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
    if isinstance(plain, HYBRID):
        if transformer is not None:
            raise ValueError(
                f"{type(plain).__name__} reads contexts and arms itself; leave transformer off"
            )
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


def restore_reader(model: Model, states: list[Any]) -> Reader:
    """Return the reader of contexts in any form whose encoders have these states."""
    blank = make_reader(model, None, None, False, (), True)
    parts = [part.restored(state) for part, state in zip(blank.encoders, states, strict=True)]
    without_forgetting(model).widened(as_features([part.width for part in parts]))  # or it raises
    return type(blank)(model, *parts)


def widths_of(model: Model) -> tuple[int, ...]:
    """Return the number of columns of a context and, where they have features, of an arm."""
    plain: Any = without_forgetting(model)
    if isinstance(plain, HYBRID):
        return plain.context, plain.features
    return model.context_shape(1)[-1:] or (0,)


def as_features(parts: Sequence[Any]) -> Any:
    """Return parts of context and arm as `Model.widened` takes them: a pair, or the only one."""
    return tuple(parts) if len(parts) > 1 else parts[0]


def wanted_width(reading: Reading, have: tuple[int, ...]) -> Any:
    """Return the features to widen a model to so that a reading fits; None if it fits already.

    The model has `widths_of(model)` now.
    """
    parts: Any = reading[: len(have)]
    wide = tuple([max(n, part.shape[-1]) for n, part in zip(have, parts, strict=True)])
    return None if wide == have else as_features(wide)


def laid_out_for(reading: Reading, model: Model) -> Floats:
    """Return a reading as wide as the model: padded with zeros, or cut."""
    (x, z), widths = reading[:2], widths_of(model)
    parts = [x]
    if z is not None:
        parts = [x if x.ndim == z.ndim else x[..., None, :], z]
    if parts[-1].shape[-1] == sum(widths) == widths[-1]:
        return parts[-1]
    out, place = np.zeros((*parts[-1].shape[:-1], sum(widths))), 0
    for part, width in zip(parts, widths, strict=True):
        some = min(width, part.shape[-1])
        out[..., place : place + some] = part[..., :some]
        place += width
    return out


def narrow_rows(reading: Reading) -> Floats:
    """Return rows of one arm each, as wide as they were read.

    Where arms have features, a row is the number of the context's columns, these, and the arm's.
    """
    x, z = reading.x, reading.z
    if z is None:
        return np.ascontiguousarray(x)
    x, z = (part.reshape(*reading.x.shape[:-1], part.shape[-1]) for part in (x, z))
    return np.concatenate((np.full((*x.shape[:-1], 1), float(x.shape[-1])), x, z), axis=-1)
