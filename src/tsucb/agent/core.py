"""What an agent knows, and how every call begins: with nothing half done."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from tsucb.agent.calls import (
    CLOSED,
    DUE,
    LEARNED,
    NOTHING,
    OBSERVATIONS,
    PENDING,
    Calls,
    laid_out,
    make_calls,
    record_closed,
)
from tsucb.agent.contexts import Arm, Reader
from tsucb.agent.many import flushed_rows, learn_rows
from tsucb.agent.roster import (
    Doing,
    Offer,
    Rest,
    Roster,
    plain_name,
)
from tsucb.agent.waiting import ArmRecord, Open, arms_of
from tsucb.checks import flushed
from tsucb.models.model import Model, learn_many, training_due, trains
from tsucb.numeric.arrays import Floats, Integers
from tsucb.step import runs_compiled


def refuse_reentry() -> NoReturn:
    raise RuntimeError(
        "the agent was called from a signal handler in the middle of another call; only save can be"
    )


def checked(clock: Callable[[], float]) -> Callable[[], float]:
    """The clock, or a sentence where it does not tell the time."""
    if clock is time.time:
        return clock

    def now() -> float:
        now = clock()
        if not isinstance(now, Real) or not math.isfinite(now):
            raise ValueError(f"the clock must tell the time in seconds, but it says {now!r}")
        return float(now)

    return now


class Core:
    """The state of an agent, and what puts it in order; see `tsucb.agent.agent.Agent`.

    One lock guards everything. What a call changes it changes at once, or notes in `_doing` first,
    so that after an exception from outside the next call finishes it or takes it back.
    """

    policy: Any
    forgetting: float
    max_open: int
    most_arms: int
    keep_beliefs: bool
    _coming: bool  # whether arms come with the decisions
    _free: bool  # whether contexts are read as they come
    _per_arm: bool  # whether a context has a row for every arm
    _restricted: bool  # whether the model takes some rewards only
    _reader: Reader
    _records: "OrderedDict[Arm, ArmRecord]"  # the arms as they are to be, by name
    _roster: Roster
    _settled: bool  # whether the roster has the arms as they are to be
    _rng: np.random.Generator
    _doing: Doing
    _unfinished: tuple[str, list[float]] | None  # a list not all of whose places are learned yet
    _behind: bool  # whether arms, a list, a fork or too many open decisions may wait for `_current`
    _forked: bool  # whether it still has the draws and ids of the parent process
    _lock: threading.RLock
    _clock: Callable[[], float]
    _time: Callable[[], float]  # the same, checked
    _log: Any

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms' names, in the order they were added."""
        return tuple(self._records)

    @property
    def model(self) -> Model:
        """What turns rewards into beliefs."""
        return self._roster.model

    def _current(self) -> Roster:
        """The roster with nothing half done in it, and the arms as they are to be.

        There is nothing to do if neither a call is pending nor the agent is `_behind`.
        """
        roster = self._roster
        if roster.counts[PENDING]:
            roster = roster.put_in_order(self._doing)
            if not roster.in_order:
                roster = self._trained(roster)
                roster.counts[PENDING] = NOTHING
            self._roster = roster
        if self._unfinished is not None:
            self._finish_list(roster)
            roster = self._roster
        if len(roster.open) > self.max_open:
            roster.open.drop_oldest(self.max_open)
        if self._forked:
            words = [int(word) for word in np.random.SeedSequence().generate_state(4)]
            rng = np.random.default_rng(words)
            roster = roster.copied()
            roster.books.checksum[0] ^= np.uint64(words[0] << 32 | words[1])
            self._rng, self._roster, self._forked = rng, roster, False
        if not self._settled:
            roster = roster.with_arms(self._records.values())
            self._roster = roster
            self._settled = True
        self._behind = False
        return roster

    def _in_order(self) -> Roster:
        """The roster, or what it will be once it is in order; changes nothing."""
        roster = self._roster
        return roster if roster.in_order else roster.put_in_order(self._doing)

    def _check_entry(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry()

    def _bound(self, roster: Roster) -> Calls:
        given = roster.state, roster.books, self._rng, self.keep_beliefs
        roster.calls = make_calls(self.policy, roster.model, *given)
        return roster.calls

    def _with_strangers(self, roster: Roster, names: Sequence[Arm]) -> tuple[Roster, Offer]:
        """An offer of arms that may not be known; those have columns of no arm."""
        known, columns = self._records, roster.columns
        if len(set(names)) < len(names):
            raise ValueError("an arm is listed twice among those available; list each once")
        try:  # the common case first: all are known
            found = tuple(map(known.__getitem__, names))
            places = list(map(columns.__getitem__, found))
            return roster, Offer(found, np.array(places, dtype=np.int64))
        except (KeyError, TypeError):
            records = [known.get(name := plain_name(n)) or ArmRecord(name) for n in names]
        new = [record for record in records if record not in roster.columns]
        if len(new) > len(roster.free):
            for record in records:  # those that are offered stay
                if record.name in known:
                    known.move_to_end(record.name)
            roster = self._roster = self._roomier(roster, len(records), len(new))
        free = dict(zip(new, reversed(roster.free), strict=False))
        for record, column in free.items():
            roster.books.tokens[column] = record.token
        places = [free[r] if r in free else roster.columns[r] for r in records]
        return roster, Offer(tuple(records), np.array(places, dtype=np.int64))

    def _roomier(self, roster: Roster, offered: int, new: int) -> Roster:
        """The roster with columns for so many new arms, if need be those of the longest unused."""
        excess = len(roster.columns) + new - self.most_arms
        spare = len(roster.columns) - (offered - new)
        if excess > 0 and spare > 0:
            oldest = list(islice(self._records.values(), min(max(excess, spare // 10), spare)))
            roster = self._roster = roster.without(oldest)
            for record in oldest:
                del self._records[record.name]
        return roster if len(roster.free) >= new else roster.with_room(new)

    def _remember(self, roster: Roster, record: ArmRecord, column: int) -> int:
        """Give an arm that came with a decision this column, and note that it was used last."""
        if record not in roster.columns:
            roster.admit(record, column)
            self._records[record.name] = record
        self._records.move_to_end(record.name)
        return column

    def _all_remembered(self, roster: Roster, names: Sequence[Arm]) -> tuple[Roster, Integers]:
        """The columns of arms that come with the decisions, those included that are new."""
        roster, offer = self._with_strangers(roster, names)
        for record, column in zip(offer.records, offer.columns.tolist(), strict=True):
            self._remember(roster, record, column)
        return roster, offer.columns

    def _learned(
        self, roster: Roster, column: int, context: bytes, value: float, counted: bool = False
    ) -> Roster:
        """The roster with one more reward, which counts once the caller says so.

        `counted` where it also stands for a decision, as it was of none.
        """
        if (calls := roster.calls) is None:
            calls = self._bound(roster)
        learn = calls.learn
        if learn is None:  # in plain Python: into a copy
            roster = roster.copied()
            self._learn_all(roster, [(column, context)], [value], counted)
            due = trains(roster.model) and bool(training_due(roster.model, roster.state))
            roster.books.counts[PENDING] = DUE if due else LEARNED
            self._roster = roster
        else:
            due = learn(context, column, value, counted)
        if due:
            roster = self._trained(roster)
            self._roster = roster
        return roster

    def _learn_all(
        self, roster: Roster, pairs: list[tuple[int, bytes]], values: list[float], counted: bool
    ) -> None:
        """Learn several rewards into a roster that is not in use yet."""
        columns = np.array([column for column, _ in pairs], dtype=np.int64)
        contexts = np.frombuffer(bytearray().join(x for _, x in pairs))
        self._learn_rows(roster, columns, contexts, np.array(values, dtype=np.float64), counted)

    def _learn_rows(
        self, roster: Roster, columns: Integers, contexts: Floats, rewards: Floats, counted: bool
    ) -> None:
        """The same for arrays: the contexts one after the other, or the rows of the arms."""
        rows = contexts.reshape(columns.size, contexts.size // max(columns.size, 1))
        if not runs_compiled(roster.model):
            for column, x, value in zip(columns.tolist(), rows, rewards.tolist(), strict=True):
                context = self._unpacked(roster, x.tobytes(), np.array([column]))
                roster.model.update(roster.state, context, column, value)
        elif self._per_arm:
            room = np.zeros(roster.model.context_shape(roster.books.chosen.size))
            learn_rows(roster.model, roster.state, room, flushed_rows(rows), columns, rewards)
        else:
            learn_many(roster.model, roster.state, flushed_rows(rows), columns, rewards)
        np.add.at(roster.books.pulls, columns, 1)
        np.add.at(roster.books.totals, columns, rewards)
        if counted:
            np.add.at(roster.books.chosen, columns, 1)
        roster.books.counts[OBSERVATIONS if counted else CLOSED] += columns.size

    def _trained(self, roster: Roster) -> Roster:
        """Another roster, whose model has been trained."""
        trained = roster.copied()
        roster.model.trainer([trained.state])()
        trained.books.counts[PENDING] = LEARNED
        return trained

    def _finish_list(self, roster: Roster) -> bool:
        """Learn the places of a list that are left, each whole; what is left is what is open.

        After an interrupt the next call comes here again.
        """
        assert self._unfinished is not None
        id, rewards = self._unfinished
        learned = False
        while (decision := roster.open.decision(id)) is not None:
            records, contexts, when = arms_of(decision), decision[1], decision[2]
            value = rewards[len(rewards) - len(records)]
            if self._coming:
                roster, columns = self._all_remembered(roster, [records[0].name])
                column = int(columns[0])
            else:
                column = roster.columns.get(records[0], -1)
            width = len(contexts) // len(records) if self._per_arm else 0
            rest: Open | None = (records[1:], contexts[width:], when) if records[1:] else None
            self._doing = Rest(id, rest)
            if column < 0 or math.isnan(value):
                record_closed(roster.books)
            else:
                row = contexts[:width] if width else contexts
                roster = self._learned(roster, column, row, value)
                learned = True
            if rest is None:
                del roster.open.entries[id]
            else:
                roster.open.entries[id] = rest
            roster.counts[PENDING] = NOTHING
        self._unfinished = None
        return learned

    def _unpacked(self, roster: Roster, context: bytes, columns: Integers) -> Floats:
        """A context of the model, at these columns if every arm has a row of it."""
        room = np.zeros(roster.model.context_shape(roster.books.chosen.size) or (0,))
        unpacked: Floats = laid_out(flushed(np.frombuffer(context)), room, columns)
        return unpacked
