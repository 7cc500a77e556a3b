"""Many decisions at once, in a few calls of compiled code.

Most linear models can predict many contexts in one pass over their matrices; then a decision of a
batch costs little more than its share of a product of matrices. The decisions are the same as one
by one, up to the rounding of that product.
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
from tsucb.checks import flush_tiny
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
MOST_SEEN = 2**25  # numbers that the policy saw of arms, 256 MB: without a log more are not kept

# The C library returns freed memory to the system and gets it back page by page, which can take as
# long as the decisions of a batch. Once a block of some megabytes was freed, it keeps that much
# (M_TRIM_THRESHOLD of the GNU library).
np.empty(2**19)


class SeenMoments:
    """What the policy saw of beliefs whose estimate is the mean and whose radius is the std.

    It keeps half of the numbers that `next_arm_seen` writes, in the arrays in which they were
    computed: a copy would take longer than computing them. An index returns all numbers of a
    decision.
    """

    def __init__(self, reasons: Floats) -> None:
        self.reasons = reasons  # (N, 2) target and favourite
        self.pieces: list[tuple[Floats, Floats]] = []  # means and deviations of PIECE rows each

    def __getitem__(self, index: int) -> Floats:
        mean, std = (array[index % PIECE] for array in self.pieces[index // PIECE])
        return np.concatenate((self.reasons[index], mean, std, mean, std))


class DecisionBatch(Sequence[Decision]):
    """Several decisions made at once: arrays, and a sequence of `Decision`.

    `time` is the time by the agent's clock.
    """

    # A parameter for each array that `choose_many` computes, and for what the decisions share.
    def __init__(
        self, numbers: Integers, checksums: Checksums, offer: Offer, places: Integers,
        favourites: Integers, seen: Any, time: float, beliefs: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.numbers, self.checksums, self.time = numbers, checksums, time  # of the ids
        for array in (numbers, checksums, places):  # the agent keeps them, too
            array.flags.writeable = False
        # For each decision the index of its arm, and of the policy's favourite i, -1 - i for first
        # pulls; what the policy saw of all arms, and the belief, where they were kept.
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
        """(N,) the probability with which each arm was chosen; NaN where it is not known."""
        if self._beliefs:
            return np.array([decision.probability for decision in self])
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
        try:
            i = range(len(self))[index]
        except IndexError:
            raise IndexError(f"there is no decision {index} in a batch of {len(self)}") from None
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


def decide_many(
    known: Knowledge, values: Floats, offer: Offer, now: float, keep_seen: bool = False
) -> tuple[DecisionBatch, Kept]:
    """Return decisions for all contexts, which are finite, and the counts after them.

    Nothing has changed: `take_counts` of the machine makes these counts its own. What the policy
    saw is kept up to MOST_SEEN numbers, or all of it with `keep_seen`.
    """
    books, machine, count = known.books, known.machine, len(values)
    machine.has_decided_many = True
    contexts = np.ascontiguousarray(values.reshape(count, math.prod(values.shape[1:])))
    aside = machine.books_aside()
    places, favourites = np.zeros((2, count), dtype=np.int64)
    checksums = np.zeros(count, dtype=np.uint64)
    numbers = np.arange(1, count + 1) + books.counts[DECISIONS]
    beliefs: list[Any] = []
    arguments = contexts, offer.columns, places, checksums
    if isinstance(machine, PlainMachine):
        seen: Any = np.empty((count, 4 * offer.columns.size + 2))
        for one in (slice(i, i + 1) for i in range(count)):
            machine.decide_rows(
                contexts[one], offer.columns, places[one], checksums[one], aside, seen[one]
            )
            beliefs.append(machine.belief)
        favourites[:] = favourites_of(seen)
    else:
        kept = keep_seen or count * (4 * offer.columns.size + 2) <= MOST_SEEN
        seen = _decide_compiled(known, aside, *arguments, favourites, kept)
    return DecisionBatch(
        numbers, checksums, offer, places, favourites, seen, now,
        beliefs if any(belief is not None for belief in beliefs) else (),
    ), aside  # fmt: skip


def favourites_of(seen: Floats) -> Integers:
    """Return the policy's favourite in every row of what it saw; -1 - i for first pulls."""
    favourites = seen[:, 1].astype(np.int64)
    return np.where(np.isnan(seen[:, 2]), -1 - favourites, favourites)


def _decide_compiled(
    known: Knowledge, aside: Kept, contexts: Floats, columns: Integers, places: Integers,
    checksums: Checksums, favourites: Integers, kept: bool,
) -> Any:  # fmt: skip
    """Decide by compiled code, some contexts at a time; return what the policy saw if `kept`."""
    model, machine, count = known.model, known.machine, len(contexts)
    predicts = offers(predicted_belief, type(model)) and model.initial_pulls == 0
    wide = 2 if predicts else 4 * columns.size + 2
    seen = np.empty((count, wide)) if kept or predicts else np.empty((min(count, PIECE), wide))
    moments = SeenMoments(seen)
    for begin in range(0, count, PIECE):
        part = slice(begin, min(begin + PIECE, count))
        some = np.ascontiguousarray(contexts[part])
        arguments = some, columns, places[part], checksums[part], aside
        if predicts:
            piece = model.predictions(known.state, flush_tiny(some), columns)
            machine.choose_rows(*arguments, seen[part], *piece)
            moments.pieces += [piece] if kept else []
            favourites[part] = seen[part][:, 1]
        else:
            room = seen[part] if kept else seen[: part.stop - begin]
            machine.decide_rows(*arguments, room)
            favourites[part] = favourites_of(room)
    return (moments if predicts else seen) if kept else None


# Many parameters, because compiled code is given every array that it reads or writes.
def _choose_rows(deciding, contexts, columns, places, checksums, aside, reasons, mean, std):  # type: ignore[no-untyped-def]
    """Decide like `machine._decide_rows`, but from predicted means and deviations."""
    model, state = deciding.learning.model, deciding.learning.state
    policy, rng = deciding.policy, deciding.stream.rng
    # So that references to their rows are not counted.
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
