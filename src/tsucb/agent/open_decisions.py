"""Open decisions: decisions that wait for their reward."""

import math
from collections.abc import Iterable, Mapping
from itertools import chain, islice, repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tsucb.agent.guard import at_once
from tsucb.agent.learner import Learner, Lesson
from tsucb.agent.machine import COUNTED, DECISIONS, RETURNED, Checksums, write_ids
from tsucb.checks import shown
from tsucb.contexts.readers import Arm
from tsucb.numeric.arrays import Floats, Integers

MOST_BATCHES = 16  # batches kept as arrays

# Number, time, arm and row of a decision; for a list the arms and the rows of its places. A row is
# as wide as it was when the decision was made. A plain tuple is made fastest.
OpenDecision: TypeAlias = tuple[int, float, Arm | tuple[Arm, ...], bytes | tuple[bytes, ...]]


def arms_and_rows(decision: OpenDecision) -> tuple[tuple[Arm, ...], tuple[bytes, ...]]:
    """Return the arms and the rows of a decision's places; only a list has several."""
    _, _, arm, row = decision
    return (arm, row) if isinstance(arm, tuple) else ((arm,), (row,))  # type: ignore[return-value]


class UnknownDecision(LookupError):
    """A reward for a decision that is not open: never made, or closed before.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "blue"], features=1, seed=0)
    >>> agent.reward("7-1", 1.0)
    Traceback (most recent call last):
    tsucb.agent.open_decisions.UnknownDecision: decision '7-1' was never made by this agent; check \
the id
    """


class OpenBatch(NamedTuple):
    """The decisions of a batch as arrays, while all of them are open: faster than an entry each."""

    numbers: Integers
    checksums: Checksums
    time: float
    names: tuple[Arm, ...]  # the arms that were offered
    places: Integers  # for each decision the index of its arm
    rows: Floats  # (N, d), as wide as they were when the decisions were made

    def entries(self) -> dict[str, OpenDecision]:
        """Return an entry for each decision by its id."""
        numbers = self.numbers.tolist()
        arms = (self.names[place] for place in self.places.tolist())
        entries = zip(numbers, repeat(self.time), arms, split_rows(self.rows))
        return dict(zip(write_ids(self.numbers, self.checksums), entries, strict=True))


class OpenDecisions(dict[str, OpenDecision]):
    """The open decisions of an agent by their ids, in the order in which they were made.

    The last ones may be in `batches`, without entries. `unfold` makes entries of them; it is called
    before entries are read, added or removed, except to close a whole batch.

    Closing decisions means to learn their rewards and to remove their entries, `at_once`.

    Parameters
    ----------
    learner
        Learns the rewards.
    limit
        The most decisions that are open; beyond it the oldest are dropped.
    """

    __slots__ = ("batches", "learner", "limit")

    def __init__(self, learner: Learner, limit: int) -> None:
        super().__init__()
        self.learner, self.limit = learner, limit
        self.batches: list[OpenBatch] = []

    def unfold(self) -> None:
        """Make entries of the decisions in batches."""
        if self.batches:
            at_once((self.update, self.all()), (setattr, self, "batches", []))

    def all(self) -> dict[str, OpenDecision]:
        """Return the entries of all decisions, also of those in batches."""
        entries = dict(self)
        for batch in self.batches:
            entries |= batch.entries()
        return entries

    def add(self, entries: Mapping[str, OpenDecision]) -> None:
        """Open decisions, and drop the oldest beyond the limit."""
        excess = max(len(self) + len(entries) - self.limit, 0)
        oldest = islice(chain(self, entries), excess)
        at_once((self.update, entries), *[(self.pop, id) for id in oldest])

    def add_batch(self, batch: OpenBatch) -> None:
        """Open the decisions of a batch: as arrays while there is room, else with entries."""
        size = batch.places.size
        room = len(self.batches) < MOST_BATCHES and self.count() + size <= self.limit
        if room and size and not self.learner.coming:
            self.batches = [*self.batches, batch]
        else:
            self.unfold()
            self.add(batch.entries())

    def count(self) -> int:
        """Return how many decisions are open."""
        return len(self) + sum(batch.places.size for batch in self.batches)

    def find(self, id: Any) -> OpenDecision:
        """Return the open decision of an id; raise UnknownDecision if there is none."""
        if isinstance(id, str) and id in self:
            return self[id]
        if hasattr(id, "explain"):
            raise TypeError(f"give the id of the decision, {id.id!r}, instead of the decision")
        if hasattr(id, "ids"):
            raise TypeError("give the decisions of a batch to reward_many, or their ids one by one")
        number = id.partition("-")[0] if isinstance(id, str) else ""
        made = self.learner.known.books.counts[DECISIONS]
        if number.isdecimal() and len(number) < 20 and 0 < int(number) <= made:
            raise UnknownDecision(
                f"decision {shown(id)} is not open: it was rewarded, expired or dropped before, "
                "lost when an older file was loaded, or never made by this agent"
            )
        raise UnknownDecision(f"decision {shown(id)} was never made by this agent; check the id")

    def places(self, ids: Iterable[str] | None = None) -> int:
        """Return how many rewards these decisions, by default all, wait for: a list has several."""
        if ids is None:
            return self.places(self) + self.count() - len(self)
        return sum(len(arms_and_rows(self[id])[0]) for id in ids)

    def close(self, ids: Iterable[str], reward: float | None = None) -> None:
        """Close decisions with the same reward for each place, or none; no arm comes back."""
        ids = tuple(ids)
        value = math.nan if reward is None else reward
        self.settle(ids, [value] * self.places(ids), returning=False)

    def settle_each(self, ids: list[str], rewards: Floats) -> int:
        """Close decisions of one arm each as `settle` does; raise if one of them is not open."""
        self.unfold()
        for id in ids:
            if type(self.find(id)[2]) is tuple:
                raise TypeError(f"{shown(id)} is a list; give its rewards to reward")
        if len(set(ids)) < len(ids):
            raise UnknownDecision("a decision is twice among the ids; give each once")
        return self.settle(ids, rewards)

    def settle(self, ids: Iterable[str], rewards: Any, returning: bool = True) -> int:
        """Learn a reward, NaN for none, for each place of decisions, and close them.

        Return how many were learned. A reward for an arm that has left is not learned, unless arms
        come with the decisions and `returning` is true: then the arm comes back.
        """
        learner, known, ids = self.learner, self.learner.prepared(), tuple(ids)
        arms: list[Arm] = []
        rows: list[bytes] = []
        current: list[bool] = []
        for id in ids:
            names, own = arms_and_rows(self[id])
            arms += names
            rows += own
            current += [known.is_current(name, self[id][0]) for name in names]
        returning = returning and learner.coming
        if returning and arms:
            learner.known, _ = learner.columns_of(known, list(dict.fromkeys(arms)))
            known = learner.prepared()
        columns = [
            known.arms[arm] if here or returning else -1
            for arm, here in zip(arms, current, strict=True)
        ]
        kinds = np.where(current, COUNTED, RETURNED)
        lesson = Lesson.of(rows, columns, kinds, rewards)
        return learner.learn_rows(lesson, *[(self.pop, id) for id in ids])

    def settle_batch(self, batch: OpenBatch, rewards: Floats) -> int:
        """Learn a reward for each decision of a batch, and close it; return how many were learned.

        No arm comes or leaves while a batch is made, so one of its decisions tells whether those
        for an arm are for the arm that has this name now.
        """
        known, first = self.learner.prepared(), int(batch.numbers[0])
        size, width = batch.rows.shape
        columns = np.array([
            known.arms[name] if known.is_current(name, first) else -1 for name in batch.names
        ])[batch.places]  # fmt: skip
        ends, kinds = np.arange(1, size + 1) * width, np.where(columns < 0, RETURNED, COUNTED)
        others = [other for other in self.batches if other is not batch]
        lesson = Lesson(batch.rows.ravel(), ends, columns, kinds, rewards)
        return self.learner.learn_rows(lesson, (setattr, self, "batches", others))


def split_rows(rows: Floats) -> list[bytes]:
    """Return each row of a matrix as bytes."""
    data, width = rows.tobytes(), 8 * rows.shape[1]
    if not width:
        return [b""] * len(rows)
    return [data[i : i + width] for i in range(0, len(data), width)]
