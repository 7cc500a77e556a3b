"""Arms as an application describes them at the moment of a decision, turned into rows of numbers.

A row is the features of the context, then those of the arm. Both are read by encoders that learn
their columns as they come, or are vectors of the lengths that the model says.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from tsucb.agent.contexts import Arm, Context, Reader, check_columns, listed
from tsucb.agent.encoding import Encoder
from tsucb.agent.values import cell_of
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import check_finite
from tsucb.numeric.arrays import Floats

# Columns of contexts and of arms: all their products are coefficients of the model. Categories
# beyond them share a column.
MOST_CONTEXT_COLUMNS, MOST_ARM_COLUMNS = 40, 25

# The model is linear in the context: of a reader who likes politics in the morning and another who
# does in the afternoon it can learn nothing that holds for both, and be sure of what is wrong. So
# where a context has two or three categories, each pair of them is a category, too. While there
# are fewer columns than this: a decision takes time quadratic in their number.
MOST_PAIRED, MOST_PAIRED_COLUMNS = 3, 16


NOTHING = np.zeros(0)  # the features of what has none


class HybridReader(Reader):
    """Reads contexts and the features of arms for `HybridLinear`.

    Parameters
    ----------
    model
        Says how long vectors are.
    encoders
        For contexts and for arms that are read as they come; None for vectors.
    """

    def __init__(self, model: HybridLinear, encoders: tuple[Encoder, Encoder] | None) -> None:
        super().__init__(model, None, None, False)
        self.widths = model.context, model.features
        self.encoders = encoders
        self.free = encoders is not None
        if encoders is not None:
            self.lock = encoders[0].lock  # the arms' is not held while a fork waits for it

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of a row's entries."""
        if self.encoders is not None:
            return [name for encoder in self.encoders for name in encoder.names]
        c, a = self.widths
        return [*(f"x{i}" for i in range(c)), *(f"z{i}" for i in range(a))]

    def read(self, context: Context, arms: Any, peek: bool = False) -> tuple[Floats, Floats]:
        """The vector of a context, and a matrix with one row for every arm.

        Parameters
        ----------
        context
            A mapping, a row of a table or a vector; None for none. Without encoders also a matrix
            of whole rows, one per arm.
        arms
            The features of each arm: mappings, vectors, or None for an arm that has none.
        peek
            Learn nothing: what has no column yet is left out.
        """
        if self.encoders is None:
            if context is not None and np.ndim(context) == 2:
                return self._whole(context, arms)
            x = self._plain(context, self.widths[0], "the context")
            width = self.widths[1]
            try:  # vectors all alike: numbers that are not finite are found with the decision
                z: Floats = np.array(arms, dtype=np.float64)
            except (TypeError, ValueError):
                z = NOTHING
            if z.shape != (len(arms), width):
                z = np.array([self._plain(arm, width, "an arm") for arm in arms])
                z = z.reshape(len(arms), width)
            return x, z
        first, second = self.encoders
        context = with_pairs(context, first)
        x = np.zeros(0) if context is None else (first.peek if peek else first.encode)(context)
        vectors = [
            None if arm is None else (second.peek if peek else second.encode)(arm) for arm in arms
        ]
        z = np.zeros((len(vectors), second.used))
        for row, vector in zip(z, vectors, strict=True):
            if vector is not None:
                row[: vector.size] = vector[: row.size]
        return x[: first.used], z

    def width_after(self, context: Context, features: Iterable[Any]) -> int:
        """Return how many columns contexts and arms will have once these are learned."""
        if self.encoders is None:
            return sum(self.widths)
        first, second = self.encoders
        width = first.width if context is None else first.width_after(with_pairs(context, first))
        return width + max((second.width_after(each) for each in features), default=second.width)

    def _whole(self, rows: Any, arms: Any) -> tuple[Floats, Floats]:
        """A matrix with one row per arm, of the context and of the arm."""
        matrix = self.matrix(rows)
        if len(matrix) != len(arms) or any(features is not None for features in arms):
            raise ValueError(
                f"the context has {len(matrix)} rows for {len(arms)} arms; give one per arm, and "
                "the arms by their names alone"
            )
        return matrix[:, : self.widths[0]], matrix[:, self.widths[0] :]

    def _plain(self, values: Any, width: int, whose: str) -> Floats:
        if values is None:
            if width:
                raise ValueError(f"{whose} must have {width} features, but has none; give them")
            return NOTHING
        if isinstance(values, Mapping):
            raise TypeError(
                f"{whose} has features with names, for which the agent must be made without a "
                "model: it then reads them as they come"
            )
        try:
            vector: Floats = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{whose} must be numbers, one per feature, not {values!r}") from None
        if vector.shape != (width,):
            raise ValueError(
                f"{whose} has features of shape {vector.shape}, but {self.model_name} expects "
                f"({width},)"
            )
        check_finite(vector, self.largest)
        return vector

    def laid_out(self, x: Floats, z: Floats, model: HybridLinear) -> Floats:
        """The rows of the arms, as wide as the model is by now."""
        if z.shape[1] == model.features and not model.context:
            return z
        rows = np.zeros((len(z), model.context + model.features))
        rows[:, : x.shape[-1]] = x
        rows[:, model.context : model.context + z.shape[1]] = z
        return rows

    def history(
        self, table: Any, arm: str, reward: str, features: Iterable[str]
    ) -> tuple[Any, Any, Any, Any]:
        """Contexts, arms, their features and rewards of a table."""
        present, described = check_columns(table, arm, reward), list(features)
        absent = [name for name in described if name not in present]
        if absent:
            raise ValueError(f"the history has no column for the features {listed(absent)}")
        names = np.asarray(table[arm]).tolist()
        rewards = np.asarray(table[reward]).tolist()
        others = [name for name in present if name not in (arm, reward, *described)]
        return (
            _records(table, others, len(names)),
            names,
            _records(table, described, len(names)),
            rewards,
        )

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """What a context becomes, learning nothing."""
        if self.encoders is not None:
            encoder = self.encoders[0]
            return [] if context is None else encoder.describe(with_pairs(context, encoder))
        x = self._plain(context, self.widths[0], "the context")
        return [(f"x{i}", float(x[i])) for i in np.flatnonzero(x).tolist()]


def free_reader(model: HybridLinear, categories: Sequence[str]) -> HybridReader:
    """For an agent to which nothing was declared."""
    contexts = Encoder(categories=categories, most_columns=MOST_CONTEXT_COLUMNS)
    arms = Encoder(categories=categories, most_columns=MOST_ARM_COLUMNS)
    return HybridReader(model, (contexts, arms))


def with_pairs(context: Context, encoder: Encoder) -> Context:
    """The context, and the pairs of its categories, as far as there is room for them.

    >>> with_pairs({"user": "Tom", "time": "noon", "age": 30}, Encoder())
    {'user': 'Tom', 'time': 'noon', 'age': 30, 'time × user': 'noon × Tom'}
    """
    if not isinstance(context, Mapping):
        return context
    labels = sorted(
        (str(name), label)
        for name, value in context.items()
        if (label := _category(str(name), value, encoder.categories)) is not None
    )
    if not 2 <= len(labels) <= MOST_PAIRED:
        return context
    room = encoder.used < MOST_PAIRED_COLUMNS
    pairs = {}
    for (one, first), (other, second) in itertools.combinations(labels, 2):
        name, label = f"{one} × {other}", f"{first} × {second}"
        if name not in context and (room or encoder.knows(name, label)):
            pairs[name] = label
    return {**context, **pairs}


def _category(name: str, value: Any, coded: Set[str]) -> str | None:
    """The category that a value is; None for a number and for none."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return str(value)
    label = cell_of(name, value, True) if name in coded else None
    return label if isinstance(label, str) else None


def described(arms: Any) -> tuple[list[Arm], list[Any]]:
    """The names of the arms that are offered, and the features of each; None for names alone."""
    if type(arms) is dict or isinstance(arms, Mapping):  # the former is known at once
        return list(arms), list(arms.values())
    if arms is None or isinstance(arms, str) or not isinstance(arms, Iterable):
        raise TypeError(
            "say which arms are offered: a list of their names, or a mapping of names to features"
        )
    names = list(arms)
    return names, [None] * len(names)


def _records(table: Any, names: list[str], count: int) -> list[dict[str, Any] | None]:
    if not names:
        return [None] * count
    columns = (np.asarray(table[name]).tolist() for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
