"""Many decisions at once, in a few calls of compiled code.

Where a model can say what it predicts at many contexts in one pass over its matrices, and most
linear ones can, a decision of a batch costs little more than its share of a product of matrices.
The decisions are those that would be made one by one, up to the rounding of that product.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tsucb.agent.decision import Decision, share_of_floor
from tsucb.agent.knowledge import Knowledge, Offer
from tsucb.agent.machine import (
    BOOKS,
    CHECKSUMS,
    COLUMNS,
    DECISIONS,
    FUNCTIONS,
    MATRIX,
    Checksums,
    PlainMachine,
    count_decision,
    decision_id,
    next_step,
    write_ids,
    write_reason,
)
from tsucb.checks import SMALLEST, flush_tiny
from tsucb.compiler import compiled, offers
from tsucb.compiler.lent import borrowed
from tsucb.compiler.memory import Kept
from tsucb.extras import require
from tsucb.models.model import predicted_belief
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import choose

if TYPE_CHECKING:
    import pandas as pd

PIECE = 2048  # contexts at a time
MOST_SEEN = 2**25  # numbers: beyond 256 MB, what was seen of every arm is not kept

# The C library returns freed memory to the system and gets it back page by page, which can take as
# long as the decisions of a batch. Once a block of some megabytes was freed, it keeps that much
# (M_TRIM_THRESHOLD of the GNU library).
np.empty(2**19)


class SeenMoments:
    """What the policy saw of beliefs whose estimate is the mean and whose radius is the std.

    Half of the numbers that `next_arm_seen` writes, in the arrays in which they were computed:
    copying them to new memory would take longer than computing them. An index returns all numbers
    of one decision.
    """

    def __init__(self, reasons: Floats) -> None:
        self.reasons = reasons  # (N, 2) target and favourite
        self.pieces: list[tuple[Floats, Floats]] = []  # means and standard deviations, PIECE rows

    def __getitem__(self, index: int) -> Floats:
        mean, std = (array[index % PIECE] for array in self.pieces[index // PIECE])
        return np.concatenate((self.reasons[index], mean, std, mean, std))


class DecisionBatch(Sequence[Decision]):
    """Several decisions made at once: arrays, and a sequence of `Decision`.

    `time` is when they were made.
    """

    # An argument for each array that `choose_many` has made, and what the decisions share.
    def __init__(
        self, numbers: Integers, checksums: Checksums, offer: Offer, places: Integers,
        favourites: Integers, seen: Any, time: float, beliefs: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.numbers, self.checksums, self.time = numbers, checksums, time  # of the ids
        for array in (numbers, checksums, places):  # the agent keeps them, too
            array.flags.writeable = False
        # Of each decision: the index of its arm, and of the policy's favourite, which is -1 - i for
        # first pulls; what was seen of all arms, and the belief, where they were kept.
        self.places, self._offer, self._favourites = places, offer, favourites
        self._seen, self._beliefs = seen, beliefs

    @functools.cached_property
    def ids(self) -> list[str]:
        """The ids under which to report their rewards."""
        return write_ids(self.numbers, self.checksums)

    @property
    def arms(self) -> Any:
        """(N,) the names of the arms to play."""
        names = np.array([*self._offer.names, None], dtype=object)[:-1]
        plain = np.array(names.tolist()) if len({type(name) for name in names}) == 1 else names
        return plain[self.places]

    @property
    def probabilities(self) -> Floats:
        """(N,) with which each arm was chosen; NaN where it is not known."""
        if self._beliefs:
            return np.array([known_probability(decision) for decision in self])
        share = share_of_floor(self._offer.policy)
        first_pulls = self._favourites < 0
        hit = self.places == np.where(first_pulls, -1 - self._favourites, self._favourites)
        chance = (1 - share) * hit + share / max(len(self._offer.names), 1)
        return np.asarray(chance) if share else np.where(first_pulls, chance, np.nan)

    def __len__(self) -> int:
        return int(self.places.size)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> list[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | list[Decision]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        id = decision_id(int(self.numbers[i]), int(self.checksums[i]))
        arm = self._offer.names[self.places[i]]
        seen = b"" if self._seen is None else self._seen[i].tobytes()
        belief = self._beliefs[i] if self._beliefs else None
        return Decision(id, arm, self._offer, seen, belief, self.time)

    def __iter__(self) -> Iterator[Decision]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: Any) -> bool:
        return self.ids == other.ids if isinstance(other, DecisionBatch) else list(self) == other

    def __repr__(self) -> str:
        return f"<{len(self)} decisions>"

    def table(self) -> "pd.DataFrame":
        """Return one row per decision: id, arm and probability.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0, exploration=0.1)
        >>> list(agent.choose_many([[1.0], [2.0]]).table())
        ['id', 'arm', 'probability']
        """
        require("tables", "pandas")
        import pandas as pd

        columns = {"id": self.ids, "arm": self.arms, "probability": self.probabilities}
        return pd.DataFrame(columns)


def known_probability(decision: Decision) -> float:
    """Return the probability of a decision, NaN where it is not known."""
    try:
        return decision.probability
    except ValueError:
        return float("nan")


def decide_many(
    known: Knowledge, values: Floats, offer: Offer, now: float
) -> tuple[DecisionBatch, Kept]:
    """Decide for every context, of finite numbers; return also the counts after it.

    Nothing has changed: `take_counts` of the machine takes those counts over.
    """
    books, machine, count = known.books, known.machine, len(values)
    machine.has_decided_many = True
    contexts = np.ascontiguousarray(values.reshape(count, math.prod(values.shape[1:])))
    aside = machine.books_aside()
    places, favourites = np.zeros((2, count), dtype=np.int64)
    checksums = np.zeros(count, dtype=np.uint64)
    numbers = np.arange(1, count + 1) + books.counts[DECISIONS]
    beliefs: list[Any] = []
    given = contexts, offer.columns, places, checksums
    if isinstance(machine, PlainMachine):
        seen: Any = np.empty((count, 4 * offer.columns.size + 2))
        for one in (slice(i, i + 1) for i in range(count)):
            machine.decide_rows(
                contexts[one], offer.columns, places[one], checksums[one], aside, seen[one]
            )
            beliefs.append(machine.belief)
        favourites[:] = favourites_of(seen)
    else:
        seen = _decide_compiled(known, aside, *given, favourites)
    return DecisionBatch(
        numbers, checksums, offer, places, favourites, seen, now,
        beliefs if any(belief is not None for belief in beliefs) else (),
    ), aside  # fmt: skip


def favourites_of(seen: Floats) -> Integers:
    """Return the policy's favourite in every row of what was seen; -1 - i for first pulls."""
    favourites = seen[:, 1].astype(np.int64)
    return np.where(np.isnan(seen[:, 2]), -1 - favourites, favourites)


def _decide_compiled(
    known: Knowledge, aside: Kept, contexts: Floats, columns: Integers, places: Integers,
    checksums: Checksums, favourites: Integers,
) -> Any:  # fmt: skip
    """Decide by compiled code, some contexts at a time; return what was seen, if it is not much."""
    model, machine, count = known.model, known.machine, len(contexts)
    predicts = offers(predicted_belief, type(model)) and model.initial_pulls == 0
    kept = count * (4 * columns.size + 2) <= MOST_SEEN
    wide = 2 if predicts else 4 * columns.size + 2
    seen = np.empty((count, wide)) if kept or predicts else np.empty((min(count, PIECE), wide))
    moments = SeenMoments(seen)
    for begin in range(0, count, PIECE):
        part = slice(begin, min(begin + PIECE, count))
        given = np.ascontiguousarray(contexts[part]), columns, places[part], checksums[part]
        if predicts:
            piece = model.predictions(known.state, flushed_rows(given[0]), columns)
            machine.choose_rows(*given, aside, seen[part], *piece)
            moments.pieces += [piece] if kept else []
            favourites[part] = seen[part][:, 1]
        else:
            room = seen[part] if kept else seen[: part.stop - begin]
            machine.decide_rows(*given, aside, room)
            favourites[part] = favourites_of(room)
    return (moments if predicts else seen) if kept else None


def flushed_rows(rows: Floats) -> Floats:
    """Return `flush_tiny` of a matrix stored by rows; itself where that changes nothing."""
    tiny: bool = any_tiny(rows.reshape(-1))
    return np.asarray(flush_tiny(rows)) if tiny else rows


@compiled
def any_tiny(values):  # type: ignore[no-untyped-def]
    """Return whether `flush_tiny` would change anything."""
    count = 0
    for i in range(values.size):
        count += (abs(values[i]) < SMALLEST) & (values[i] != 0.0)
    return count > 0


# Compiled code takes every array that it reads or writes as an argument of its own.
def _choose_rows(deciding, contexts, columns, places, checksums, aside, reasons, mean, std):  # type: ignore[no-untyped-def]
    """Decide as `_decide_rows` of `machine`, from means and deviations that were predicted."""
    model, state = deciding.learning.model, deciding.learning.state
    policy, rng = deciding.policy, deciding.stream.rng
    # No counting of references to the rows of these.
    contexts, columns, reasons = borrowed(contexts), borrowed(columns), borrowed(reasons)
    mean, std = borrowed(mean), borrowed(std)
    for i in range(places.size):
        step = next_step(aside.counts)
        belief = predicted_belief(model, state, mean[i], std[i], columns, step, rng)
        choice = choose(policy, belief, rng)
        write_reason(reasons[i], choice)
        count_decision(aside, contexts[i].view(np.uint64), columns[choice.arm])
        places[i], checksums[i] = choice.arm, aside.checksum[0]


FUNCTIONS["choose_rows"] = (
    compiled(_choose_rows), "deciding",
    (MATRIX, COLUMNS, COLUMNS, CHECKSUMS, BOOKS, MATRIX, MATRIX, MATRIX),
)  # fmt: skip
