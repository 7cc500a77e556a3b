"""Open decisions: those that wait for their reward."""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from tsucb.agent.learner import Learner, Lesson
from tsucb.agent.machine import CLOSED, COUNTED, RETURNED
from tsucb.contexts.readers import Arm

# Number, time, arm and row of a decision, oldest first; of a list, the arms and rows of its places.
# The row is as wide as it was when the decision was made. A plain tuple is made fastest.
OpenDecision: TypeAlias = tuple[int, float, Arm | tuple[Arm, ...], bytes | tuple[bytes, ...]]


class UnknownDecision(LookupError):
    """A reward for a decision that is not open: never made, or closed before.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "blue"], features=1, seed=0)
    >>> agent.reward("7-1", 1.0)
    Traceback (most recent call last):
    tsucb.agent.open_decisions.UnknownDecision: decision '7-1' was never made by this agent; check \
the id
    """


# Decisions that are being closed: their ids; how many were closed before the first of them; and
# their rewards, or None if a single call learns the one reward.
Settlement: TypeAlias = tuple[tuple[str, ...], int, Lesson | None]


class OpenDecisions(dict[str, OpenDecision]):
    """The open decisions of an agent by their ids, in the order in which they were made.

    To close decisions is to learn their rewards and to remove them from this dictionary. What is to
    be done is written down first, in `settlement`, and the learner's machine is taken away until it
    is done. After an exception from outside, the next call finds no machine and calls `finish`;
    the count of closed decisions, which changes with what is learned, tells what is left to do.

    Parameters
    ----------
    learner
        Who learns the rewards.
    limit
        The most decisions that are open; beyond it the oldest are dropped.
    """

    __slots__ = ("learner", "limit", "settlement")

    def __init__(self, learner: Learner, limit: int) -> None:
        super().__init__()
        self.learner, self.limit = learner, limit
        self.settlement: Settlement | None = None

    def find(self, id: Any) -> OpenDecision | None:
        """Return the open decision of an id; None if there is none."""
        return self.get(id) if isinstance(id, str) else None

    def places(self, ids: Iterable[str] | None = None) -> int:
        """Return how many arms wait for a reward, each place of a list for itself."""
        arms = (self[id][2] for id in (self if ids is None else ids))
        return sum(len(arm) if type(arm) is tuple else 1 for arm in arms)

    def drop_oldest(self) -> None:
        """Forget the oldest decisions beyond the limit."""
        if (excess := len(self) - self.limit) > 0:
            for id in list(islice(self, excess)):
                del self[id]

    def reward(self, id: str, decision: OpenDecision, reward: float) -> bool:
        """Learn the reward of one decision and close it; return False if its arm has left."""
        known, number, arm = self.learner.known, decision[0], decision[2]
        machine, column = known.machine, known.arms.get(arm, -1)  # type: ignore[arg-type]
        current = column >= 0 and (not known.born or known.born.get(arm, 0) < number)  # type: ignore[arg-type]
        if not current or not machine.learns_at_once:
            return self.settle([id], [reward]) > 0
        if self.learner.coming:
            known.arms.move_to_end(arm)  # type: ignore[arg-type]
        self.settlement = (id,), known.books.counts.item(CLOSED), None
        known.machine = None
        due = machine.learn(decision[3], column, COUNTED, reward)
        del self[id]
        self.settlement = None
        if due:
            self.learner.prepared()
        else:
            known.machine = machine
        return True

    def close(self, ids: Iterable[str], reward: float | None = None) -> None:
        """Close decisions, with the same reward for each place or none; no arm comes back."""
        ids = tuple(ids)
        value = math.nan if reward is None else reward
        self.settle(ids, [value] * self.places(ids), returning=False)

    def settle(self, ids: Iterable[str], rewards: Any, returning: bool = True) -> int:
        """Learn a reward for each place of decisions, NaN for none, and close them.

        Returns how many were learned; not those of arms that have left, unless arms come with the
        decisions: then such an arm comes back, if it may.
        """
        learner, ids = self.learner, tuple(ids)
        arms: list[Arm] = []
        rows: list[bytes] = []
        current: list[bool] = []
        for id in ids:
            number, _, arm, row = self[id]
            names, own = (arm, row) if isinstance(arm, tuple) else ((arm,), (row,))
            arms += names
            rows += own  # type: ignore[arg-type]
            current += [learner.known.is_current(name, number) for name in names]
        returning = returning and learner.coming
        if returning and arms:
            learner.known, _ = learner.admitted(learner.known, tuple(dict.fromkeys(arms)))
            learner.prepared()
        known = learner.known
        columns = [
            known.arms[arm] if here or returning else -1
            for arm, here in zip(arms, current, strict=True)
        ]
        lesson = Lesson.of(rows, columns, np.where(current, COUNTED, RETURNED), rewards)
        self.settlement = ids, known.books.counts.item(CLOSED), lesson
        known.machine = None
        self.finish()
        return int(np.count_nonzero((lesson.columns >= 0) & ~np.isnan(lesson.rewards)))

    def finish(self) -> None:
        """Do what is left of a settlement, if there is one."""
        if self.settlement is not None:
            ids, before, lesson = self.settlement
            if lesson is not None:
                self.learner.take_in(lesson, before)
            if self.learner.known.books.counts.item(CLOSED) > before:
                for id in ids:
                    self.pop(id, None)
            self.settlement = None
        self.learner.prepared()

    def unsettled(self) -> dict[str, OpenDecision]:
        """Return the open decisions, in the middle of a settlement those not learned so far."""
        found = dict(self)
        if self.settlement is not None:
            ids, before, _ = self.settlement
            done = self.learner.known.books.counts.item(CLOSED) - before
            for id in ids:
                if done <= 0:
                    break
                arm = self[id][2] if id in self else ()
                done -= len(arm) if type(arm) is tuple else 1
                found.pop(id, None)
        return found


def leading_number(id: str) -> int:
    """Return the number at the beginning of an id; 0 if there is none."""
    number = id.partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 20 else 0
