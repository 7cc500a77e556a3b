"""Turn dictionaries, tables and lists into rows of hashed columns, for `HashedLinear`."""

import math
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from tsucb.checks import LARGEST, within
from tsucb.compiler import compiled
from tsucb.contexts.encoding import FeatureEncoder, coded_features
from tsucb.contexts.values import cell_of, values_of
from tsucb.models.hashed_linear import MOST_ROW
from tsucb.models.state import MOST
from tsucb.numeric.arrays import Floats, Integers

USUAL = " as usual"  # the category of a number's usual value; categories of users begin with "="
FURTHEST = 3.0  # standard deviations, at which standardised numbers are cut
BLOCK = 32  # lengths of rows are multiples of it, so that rows rarely become longer
MOST_REMEMBERED = 100_000  # hashes that are kept: looking one up is faster than computing it
MOST_SCALED = 100_000  # features whose numbers are scaled; numbers of further features read as 0

SETTLED = 20  # if this many first values of a number are equal, that value is its usual one

# The values of a number so far: count, mean, sum of squares around the mean, usual value.
Moments = tuple[int, float, float, float | None]


class HashingEncoder(FeatureEncoder):
    """Turns contexts into rows of pairs, column and value, and learns the scale of numbers.

    A category is 1 in the column given by a hash of feature and category; a missing value has a
    column of its own. A number is standardised by the earlier values of its feature, and cut at ±3.
    If the first 20 values of a feature are equal, this value is a category, so that the model
    notices any other. With `crossed`, every pair of features has a column for its product, scaled
    so that all products together weigh as much as all features. Hashes are the same in every
    process. A row of a sparse matrix (of SciPy) is taken as it is: nothing in it is hashed, scaled
    or crossed.

    Parameters
    ----------
    bits, crossed
        As of `HashedLinear`.
    categories
        Features whose numbers are codes.

    >>> encoder = HashingEncoder(18, crossed=True)
    >>> encoder.encode({"age": 30, "city": "Paris"})[:6].astype(int).tolist()
    [70207, 1, 139895, 1, 134244, 1]
    >>> encoder.describe({"age": 50, "city": "Oslo"})
    [('age', 1.0), ('city=Oslo', 1.0), ('age × city=Oslo', 1.4142135623730951)]
    """

    learns = True

    def __init__(self, bits: int, crossed: bool, categories: Iterable[str] = ()) -> None:
        self.bits, self.crossed = bits, crossed
        self.categories = coded_features(categories)
        self.learned: tuple[dict[str, Moments], int] = {}, 0  # moments, length of the longest row

    @property
    def width(self) -> int:
        """The length of the longest row so far."""
        return int(self.learned[1])

    def look(self, context: Any, learned: Any, learn: bool) -> tuple[Floats, Any]:
        row, moments = self._row(context, learned[0])
        return row, (moments, max(learned[1], row.size))

    def rows(self, table: Any) -> Any:
        """Return a table as a list of contexts; rows of a sparse matrix stay sparse."""
        return table if hasattr(table, "tocsr") else super().rows(table)

    def describe(self, context: Any) -> list[tuple[str, float]]:
        """Return the names and values of the features, and of their products, that are not 0."""
        if hasattr(context, "tocsr"):
            columns, values = self._sparse_entries(context)
            return [
                (f"x{i - 1}", x) for i, x in zip(columns.tolist(), values.tolist(), strict=True)
            ]
        cells, _ = self._cells(context, self.learned[0])
        found = [(_label(*key), x) for key, x in cells]
        if self.crossed:
            share = share_of_pairs(len(found))
            pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :]]
            found += [(f"{a} × {b}", share * x * y) for (a, x), (b, y) in pairs]
        return [(name, x) for name, x in found if x]

    def _row(self, context: Any, moments: dict[str, Moments]) -> tuple[Floats, dict[str, Moments]]:
        """Return the row of a context, and the moments after its numbers."""
        if hasattr(context, "tocsr"):
            columns, values = self._sparse_entries(context)
            row = np.zeros(_length(columns.size))
            row[: 2 * columns.size : 2], row[1 : 2 * columns.size : 2] = columns, values
            return row, moments
        cells, moments = self._cells(context, moments)
        hashes, count = [hash_of(*key) for key, _ in cells], len(cells)
        row = np.zeros(_length(self._columns(count)))
        given = np.array(hashes, dtype=np.int64), np.array([x for _, x in cells], dtype=np.float64)
        fill_row(*given, self.crossed, 2**self.bits - 1, row)
        return row, moments

    def _cells(
        self, context: Any, moments: dict[str, Moments]
    ) -> tuple[list[tuple[tuple[str, str | None], float]], dict[str, Moments]]:
        """Return ((feature, category), value) of every feature, and the moments after its numbers.

        The category is "=" and a string, "" for a missing value, None or USUAL for a number.
        """
        # Dictionaries named by strings need no conversion.
        plain = type(context) is dict and set(map(type, context)) == {str}
        values = context if plain else values_of(context)[0]
        cells: list[tuple[tuple[str, str | None], float]] = []
        changed: dict[str, Moments] = {}
        for name, value in values.items():
            kind, cell = type(value), value
            if kind is not str:
                simple = (kind is int or kind is float) and abs(value) <= LARGEST
                coded = name in self.categories
                cell = float(value) if simple and not coded else cell_of(name, value, coded)
            if type(cell) is str:
                cells.append(((name, "=" + cell), 1.0))
            elif cell is None:
                cells.append(((name, ""), 1.0))
            elif name in moments or len(moments) + len(changed) < MOST_SCALED:
                changed[name] = now = _add_value(moments.get(name, (0, 0.0, 0.0, cell)), cell)
                usual = cell == now[3]
                cells.append(
                    ((name, USUAL), 1.0) if usual else ((name, None), _standardised(cell, now))
                )
            else:
                cells.append(((name, None), 0.0))
        if self._columns(len(cells)) > MOST_ROW // 2:
            raise ValueError(
                f"a context has {len(cells):,} features, which need more than "
                f"{MOST_ROW // 2:,} columns; give fewer, or a model without crossed"
            )
        return cells, {**moments, **changed} if changed else moments

    def _columns(self, features: int) -> int:
        """Return the number of columns of this many features and, if crossed, their products."""
        return features * (features + 1) // 2 if self.crossed else features

    def _sparse_entries(self, context: Any) -> tuple[Integers, Floats]:
        """Return columns and values of a sparse row; column 0 is for the constant."""
        row = context.tocsr()
        if row.ndim == 2 and row.shape[0] != 1:
            raise ValueError(f"a context is one row, but the matrix has {row.shape[0]} rows")
        if row.shape[-1] >= 2**self.bits:
            raise ValueError(
                f"a sparse context has {row.shape[-1]:,} columns, but with {self.bits} bits there "
                f"are {2**self.bits - 1:,}; give the model more bits"
            )
        values = row.data.astype(np.float64)
        if 2 * values.size > MOST_ROW or not within(values):
            raise ValueError(
                f"a sparse context must have finite numbers within ±{LARGEST:g}, and at most "
                f"{MOST_ROW // 2:,} that are not 0"
            )
        return row.indices.astype(np.int64) + 1, values

    # Storage

    def state(self) -> dict[str, Any]:
        """Return everything that was learned as JSON values; see `restored`."""
        return {
            "categories": sorted(self.categories),
            "width": self.width,
            "moments": {name: list(moments) for name, moments in self.learned[0].items()},
        }

    def restored(self, state: Any) -> "HashingEncoder":
        """Return an encoder with what `state` described; raise ValueError if it is damaged."""
        if type(state) is not dict or state.keys() != {"categories", "width", "moments"}:
            raise ValueError("other parts than an encoder has")
        encoder = HashingEncoder(self.bits, self.crossed, state["categories"])
        width = state["width"]
        if type(width) is not int or not 0 <= width <= MOST_ROW or width % BLOCK:
            raise ValueError("a width that no row has")
        learned: dict[str, Moments] = {}
        for name, (count, mean, squares, usual) in state["moments"].items():
            numbers = (mean, squares, 0.0 if usual is None else usual)
            good = type(count) is int and all(type(x) is float for x in numbers)
            near = good and within([mean, numbers[2]])
            if not near or count < 1 or not 0 <= squares <= MOST:
                raise ValueError("moments that no numbers have")
            learned[name] = count, mean, squares, usual
        encoder.learned = learned, width
        return encoder


@lru_cache(MOST_REMEMBERED)
def hash_of(name: str, category: str | None) -> int:
    """Return a hash of 63 bits of a feature and its category."""
    text = name if category is None else f"{name}\0{category}"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _add_value(moments: Moments, x: float) -> Moments:
    """Return the moments after one more value."""
    count, mean, squares, usual = moments
    if x != usual and count < SETTLED:
        usual = None
    count += 1
    step = x - mean
    mean += step / count
    return count, mean, squares + step * (x - mean), usual


def _standardised(x: float, moments: Moments) -> float:
    """Return a number in standard deviations from the mean, cut at ±3."""
    count, mean, squares, _ = moments
    if not squares > 0:
        return 0.0
    z = (x - mean) / math.sqrt(squares / count)
    return z if -FURTHEST <= z <= FURTHEST else math.copysign(FURTHEST, z)


def _label(name: str, category: str | None) -> str:
    return name if category is None else f"{name}{category or ' missing'}"


def _length(columns: int) -> int:
    """Return the length of a row for this many columns."""
    return -(-2 * columns // BLOCK) * BLOCK


@compiled
def share_of_pairs(features):  # type: ignore[no-untyped-def]
    """Return the factor of products with which all products weigh as much as all features.

    Without it the many products would drown the few features.
    """
    return math.sqrt(2.0 / max(features - 1, 1))


@compiled
def fill_row(hashes, values, crossed, columns, row):  # type: ignore[no-untyped-def]
    """Write column and value of every feature, and of their products, into a row of zeros.

    The column of a product is the same for either order of its two features. `columns` is the
    number of columns without the constant's.
    """
    n, place = hashes.size, 0
    for a in range(n):
        row[place] = 1 + scrambled(np.uint64(hashes[a])) % np.uint64(columns)
        row[place + 1] = values[a]
        place += 2
    if crossed:
        share = share_of_pairs(n)
        for a in range(n):
            for b in range(a + 1, n):
                low, high = min(hashes[a], hashes[b]), max(hashes[a], hashes[b])
                both = np.uint64(low) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(high)
                row[place] = 1 + scrambled(both) % np.uint64(columns)
                row[place + 1] = share * values[a] * values[b]
                place += 2


@compiled
def scrambled(bits):  # type: ignore[no-untyped-def]
    """Return the bits mixed by the finaliser of SplitMix64: each depends on all bits given."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
