"""Many decisions, and many rewards, in one call of compiled code.

Where a model can say what it predicts at many contexts in one pass over its matrices, and most
linear ones can, a decision of a batch costs little more than its share of a product of matrices.
The decisions are those that would be made one by one, up to the rounding of that product.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numba import types

from tsucb.agent.calls import (
    _COLUMNS,
    DECISIONS,
    OBSERVATIONS,
    CompiledCalls,
    count_decision,
    laid_out,
    player_of,
    without_tiny,
)
from tsucb.agent.decision import Decision
from tsucb.agent.ids import decision_id, decision_ids
from tsucb.agent.roster import Offer, Roster
from tsucb.agent.seen import next_arm_seen, write_reason
from tsucb.agent.waiting import Checksums
from tsucb.checks import SMALLEST, flushed
from tsucb.compiler import compiled, offers
from tsucb.compiler.memory import borrowed
from tsucb.models.model import believe_predicted, training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.exploring import Exploring
from tsucb.policies.policy import choose

if TYPE_CHECKING:
    import pandas as pd

PIECE = 2048  # contexts at a time
MOST_SEEN = 2**25  # numbers: beyond 256 MB, what was seen of every arm is not kept

# What a batch needs is free again soon. The C library gives free memory back to the system and gets
# it again page by page, which can take as long as to decide. Once a block of some megabytes was
# freed, used or not, it keeps as much for the next time (M_TRIM_THRESHOLD of the GNU library).
np.empty(2**19)


class Moments:
    """What was seen by decisions whose estimates and radii are means and standard deviations.

    Half of what `next_arm_seen` writes of a decision, in pieces as they were computed: writing to
    new memory takes longer than computing. An index gives the whole of a decision.
    """

    def __init__(self, reasons: Floats) -> None:
        self.reasons = reasons  # (N, 2) target and favourite
        self.pieces: list[tuple[Floats, Floats]] = []  # means and standard deviations, PIECE rows

    def __getitem__(self, index: int) -> Floats:
        mean, std = (array[index % PIECE] for array in self.pieces[index // PIECE])
        return np.concatenate((self.reasons[index], mean, std, mean, std))


class Decisions(Sequence[Decision]):
    """Several decisions made at once: arrays, and a sequence of `Decision`.

    Attributes
    ----------
    arms
        (N,) the names of the arms to play.
    ids
        The ids under which to report their rewards, a list; written when they are first asked for.
    probabilities
        (N,) with which each arm was chosen, as `Decision.probability`; NaN where it is not known.
    time
        When they were made.
    """

    def __init__(
        self, named: tuple[Integers, Checksums] | None, offer: Offer, places: Integers,
        favourites: Integers, policy: Any, seen: Floats | Moments | None, time: float,
        made: Sequence[Decision] = (),
    ) -> None:  # fmt: skip
        # What the ids are made of: numbers and checksums; or the decisions, as they were made.
        self.named, self._made, self.time = named, made, time
        # Of each decision: the index of its arm, and of the policy's favourite, which is -1 for
        # first pulls; and what was seen of all arms.
        self._offer, self._places, self._favourites = offer, places, favourites
        self._policy, self._seen = policy, seen

    @functools.cached_property
    def ids(self) -> list[str]:
        """The ids under which to report their rewards."""
        return [d.id for d in self._made] if self.named is None else decision_ids(*self.named)

    @property
    def arms(self) -> Any:
        """(N,) the names of the arms to play."""
        names = np.array([*self._offer.names, None], dtype=object)[:-1]
        plain = np.array(names.tolist()) if len({type(name) for name in names}) == 1 else names
        return plain[self._places]

    @property
    def probabilities(self) -> Floats:
        """(N,) with which each arm was chosen; NaN where it is not known."""
        if self.named is None:
            return np.array([known_probability(decision) for decision in self._made])
        share = self._policy.epsilon if isinstance(self._policy, Exploring) else 0.0
        first_pulls = self._favourites < 0
        hit = self._places == np.where(first_pulls, -1 - self._favourites, self._favourites)
        chance = (1 - share) * hit + share / max(len(self._offer.records), 1)
        return np.asarray(chance) if share else np.where(first_pulls, chance, np.nan)

    def __len__(self) -> int:
        return int(self._places.size)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> list[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | list[Decision]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        if self.named is None:
            return self._made[i]
        id = decision_id(*(int(known[i]) for known in self.named))
        arm = self._offer.records[self._places[i]].name
        seen = b"" if self._seen is None else self._seen[i].tobytes()
        return Decision(id, arm, self._offer, self._policy, seen, None, self.time)

    def __iter__(self) -> Iterator[Decision]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: Any) -> bool:
        return self.ids == other.ids if isinstance(other, Decisions) else list(self) == other

    def __repr__(self) -> str:
        return f"<{len(self)} decisions>"

    def table(self) -> "pd.DataFrame":
        """One row per decision: id, arm and probability."""
        import pandas as pd

        columns = {"id": self.ids, "arm": self.arms, "probability": self.probabilities}
        return pd.DataFrame(columns)


def known_probability(decision: Decision) -> float:
    """The probability of a decision, NaN where it is not known."""
    try:
        return decision.probability
    except ValueError:
        return float("nan")


def decided_many(
    roster: Roster, calls: Any, policy: Any, contexts: Floats, offer: Offer, now: float
) -> Decisions:
    """Decide for every context, of numbers that are known to be finite; opens nothing."""
    predicts = offers(believe_predicted, type(roster.model)) and roster.model.initial_pulls == 0
    count, arms = len(contexts), offer.columns.size
    places, favourites = np.zeros((2, count), dtype=np.int64)
    checksums = np.zeros(count, dtype=np.uint64)
    kept = count * (4 * arms + 2) <= MOST_SEEN
    seen = np.empty(
        (count if kept or predicts else min(count, PIECE), 2 if predicts else 4 * arms + 2)
    )
    moments = Moments(seen)
    first = int(roster.books.counts[DECISIONS]) + 1
    for start in range(0, count, PIECE):
        part = slice(start, min(start + PIECE, count))
        given = np.ascontiguousarray(contexts[part]), offer.columns, places[part], checksums[part]
        if predicts:
            room, flat = seen[part], flushed_rows(given[0])
            piece = roster.model.predictions(roster.state, flat, offer.columns)
            _call(calls, _choose_rows, *given, room, *piece)
            moments.pieces += [piece] if kept else []
            favourites[part] = room[:, 1]
        else:
            room = seen[part] if kept else seen[: part.stop - start]
            _call(calls, _decide_rows, *given, room)
            favourite = room[:, 1].astype(np.int64)
            favourites[part] = np.where(np.isnan(room[:, 2]), -1 - favourite, favourite)
    named = np.arange(first, first + count), checksums
    known = moments if predicts else seen
    return Decisions(named, offer, places, favourites, policy, known if kept else None, now)


def flushed_rows(rows: Floats) -> Floats:
    """`flushed` of a matrix stored by rows; itself where that changes nothing."""
    tiny: bool = any_tiny(rows.reshape(-1))
    return np.asarray(flushed(rows)) if tiny else rows


@compiled
def any_tiny(values):  # type: ignore[no-untyped-def]
    """Whether `flushed` would change anything."""
    count = 0
    for i in range(values.size):
        count += (abs(values[i]) < SMALLEST) & (values[i] != 0.0)
    return count > 0


_MATRIX = types.Array(types.float64, 2, "C")
_CHECKSUMS = types.Array(types.uint64, 1, "C")


def _call(calls: CompiledCalls, function: Any, *arguments: Any) -> None:
    """Call a function on what the calls of a roster are bound to."""
    kinds = (_MATRIX, _COLUMNS, _COLUMNS, _CHECKSUMS, *[_MATRIX] * (len(arguments) - 4))
    calls.bound(function, *kinds)(*arguments)


@compiled
def _decide_rows(decider, contexts, columns, places, checksums, seen):  # type: ignore[no-untyped-def]
    """Decide for one context after the other."""
    learner = decider.learner
    books = learner.books
    for i in range(places.size):
        values = contexts[i]
        step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
        context = laid_out(without_tiny(values), learner.room, columns)
        rng = decider.stream.rng
        choice = next_arm_seen(player_of(decider), context, columns, step, rng, seen[i])
        count_decision(books, values.view(np.uint64), columns, choice.arm)
        places[i], checksums[i] = choice.arm, books.checksum[0]


@compiled
def _choose_rows(decider, contexts, columns, places, checksums, reasons, mean, std):  # type: ignore[no-untyped-def]
    """The same, where the moments of all arms are known for every context."""
    learner, policy, rng = decider.learner, decider.policy, decider.stream.rng
    books, model, state = learner.books, learner.model, learner.state
    # No counting of references to the rows of these.
    contexts, columns, reasons = borrowed(contexts), borrowed(columns), borrowed(reasons)
    mean, std = borrowed(mean), borrowed(std)
    for i in range(places.size):
        step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
        belief = believe_predicted(model, state, mean[i], std[i], columns, step, rng)
        choice = choose(policy, belief, rng)
        write_reason(reasons[i], choice)
        count_decision(books, contexts[i].view(np.uint64), columns, choice.arm)
        places[i], checksums[i] = choice.arm, books.checksum[0]


def learn_rows(
    model: Any, state: Any, room: Floats, rows: Floats, arms: Integers, rewards: Floats
) -> None:
    """`tsucb.models.model.learn_many` where every arm has a row: only those of arms rewarded."""
    done, train = 0, None
    while done < arms.size:
        done = _learn_rows(model, state, room, rows, arms, rewards, done)
        if training_due(model, state):
            train = train or model.trainer([state])
            train()


@compiled
def _learn_rows(model, state, room, rows, arms, rewards, first):  # type: ignore[no-untyped-def]
    for i in range(first, arms.size):
        x = laid_out(rows[i], room, np.full(1, arms[i]))
        update(model, state, x, arms[i], rewards[i])
        if training_due(model, state):
            return i + 1
    return arms.size
