"""Deciding: one arm, a list, or many at once."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tsucb.agent.calls import (
    DECISIONS,
    NOT_FINITE,
    NOTHING,
    OBSERVATIONS,
    PENDING,
    Books,
    CompiledCalls,
    count_decision,
)
from tsucb.agent.contexts import ARRAY, FLOAT, Arm, Context, one_by_one
from tsucb.agent.core import refuse_reentry
from tsucb.agent.decision import Decision, Estimate
from tsucb.agent.ids import decision_id
from tsucb.agent.lists import Ranking, ranked
from tsucb.agent.many import Decisions, decided_many
from tsucb.agent.offering import Offering
from tsucb.agent.roster import (
    Batch,
    Offer,
    Roster,
    plain_name,
)
from tsucb.agent.seen import next_arm_seen
from tsucb.agent.values import kind_of
from tsucb.agent.waiting import Entries, Together
from tsucb.checks import whole_number
from tsucb.models.model import check_finite
from tsucb.numeric.arrays import Floats
from tsucb.step import Player, initial_pulls
from tsucb.structure import copied


def _told(context: Context, arms: Any) -> Context:
    """What a log keeps of a decision's context: with the features of the arms, if they have any."""
    return {"context": context, "arms": arms} if isinstance(arms, Mapping) else context


class Deciding(Offering):
    """The calls that choose arms."""

    def choose(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm.

        Parameters
        ----------
        context
            What is known now: a vector, a mapping of feature names to numbers, or what the
            transformer takes. For `Linear`, the arms' feature vectors: a matrix with one row per
            available arm, or a mapping of arms to vectors. Nothing for K-armed models.
        arms
            The arms available now, all by default: a list of names; or, for models with features
            per arm, a mapping of names to features: dictionaries or vectors. Where arms come with
            the decisions they need not be known.
        """
        # The common case by itself: all arms, and a vector that needs no reading.
        shape = self._reader.ready if arms is None else None
        usual = type(context) is ARRAY and context.dtype is FLOAT and context.shape == shape
        if usual:
            x = context.tobytes()
        else:
            x, names = self._read(context, arms)
        if self._lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry()
        now = self._time()
        with self._lock:
            roster = self._roster
            if roster.counts[PENDING] or self._behind:
                roster = self._current()
            if usual:
                offer = roster.offered or roster.everyone
            else:
                roster, x, offer = self._offered(roster, x, names)
            self._doing = None
            open = roster.open
            decision = self._decide(roster, x, offer, now, open.entries)
            if len(open.entries) + open.beyond[0] > self.max_open:
                self._behind = True
            roster.counts[PENDING] = NOTHING
        if self._log is not None:
            self._log.decided(decision, _told(context, arms))
        return decision

    def rank(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """A list of k different arms, the one to be shown first first.

        The policy chooses among all arms, then among those that are left, and so on; see
        `tsucb.agent.lists`. `reward` takes a reward for every place.

        Parameters
        ----------
        context, arms
            As in `choose`.
        k
            The length of the list, at most the number of arms.
        """
        length = whole_number("k", k, least=1)
        x, names = self._read(context, arms)
        self._check_entry()
        now = self._time()
        with self._lock:
            roster = self._current()
            roster, given, offer = self._offered(roster, x, names)
            doing = Batch(copied(roster.books), {})
            self._doing = doing
            ranking = self._ranked(roster, given, offer, length, now)
            records = tuple(offer.records[place] for place in ranking.places)
            if self._coming:
                for record, place in zip(records, ranking.places, strict=True):
                    self._remember(roster, record, int(offer.columns[place]))
            if self._per_arm:
                rows = np.frombuffer(given).reshape(len(offer.records), -1)
                given = rows[list(ranking.places)].tobytes()
            doing.open[ranking.id] = records, given, now
            roster.open.entries.update(doing.open)
            self._behind = True
            roster.counts[PENDING] = NOTHING
        if self._log is not None:
            told = _told(context, arms)
            for place in range(length):
                self._log.decided(ranking.decision(place), told)
        return ranking

    def _ranked(
        self, roster: Roster, given: bytes, offer: Offer, length: int, now: float
    ) -> Ranking:
        """A list from what is offered; it counts once the caller says so."""
        if length > len(offer.records):
            raise ValueError(
                f"a list of {length} cannot be made of {len(offer.records)} arms; make it "
                "shorter, or offer more"
            )
        calls = roster.calls or self._bound(roster)
        width = len(given) // 8 // len(offer.records) if self._per_arm else 0
        places, seen, number, checksum = ranked(calls, given, offer.columns, length, width)
        if number == NOT_FINITE:
            check_finite(np.frombuffer(given), roster.model.largest)
        return Ranking(decision_id(number, checksum), offer, places, self.policy, seen, now)

    def estimate(self, context: Context = None, arms: Any = None) -> Estimate:
        """What the agent believes of every arm in this context, and would choose next.

        Means, radii and ratios, as the next `choose` would see them. Nothing is decided, opened,
        drawn or learned, not even which features there are.

        Parameters
        ----------
        context, arms
            As in `choose`.
        """
        x, names = self._read(context, arms, peek=True)
        self._check_entry()
        with self._lock:
            roster = self._current()
            roster, given, offer = self._offered(roster, x, names, peek=True)
            count, books, model = len(offer.records), roster.books, roster.model
            if not count:
                raise ValueError("no arm is available; add one, or list at least one")
            check_finite(np.frombuffer(given), model.largest)
            seen = np.empty(4 * count + 2)
            step = int(books.counts[DECISIONS] + books.counts[OBSERVATIONS]) + 1
            stream = self._rng.bit_generator.state
            try:
                row, pulls = self._unpacked(roster, given, offer.columns), initial_pulls(model)
                player = Player(model, roster.state, self.policy, books.chosen, pulls)
                choice = next_arm_seen(player, row, offer.columns, step, self._rng, seen)
            finally:
                self._rng.bit_generator.state = stream
        decision = Decision("", offer.records[int(choice.arm)].name, offer, self.policy,
                            seen.tobytes(), None, 0.0)  # fmt: skip
        return Estimate(**vars(decision.explain()))

    def choose_many(self, contexts: Any, arms: Any = None) -> Decisions:
        """Choose an arm for each of several contexts, all from what is known now.

        The same as choosing one by one, faster. The result is a sequence of decisions, and has
        arrays of all `arms`, `ids` and `probabilities`; its `table()` is a data frame.

        Parameters
        ----------
        contexts
            A matrix with one row each, a table, or a list of contexts.
        arms
            The arms available now, as in `choose`, the same for all.
        """
        if not hasattr(contexts, "__len__"):
            if not isinstance(contexts, Iterable):
                kind = kind_of(contexts)
                raise TypeError(f"contexts are a matrix, a table or a list of them, not a {kind}")
            contexts = list(contexts)
        x, names = self._read_many(contexts, arms)
        self._check_entry()
        now = self._time()
        with self._lock:
            roster = self._current()
            roster, matrix, offer = self._offered_many(roster, x, names)
            if not offer.records:
                raise ValueError("no arm is available; add one, or list at least one")
            doing = Batch(copied(roster.books), {})
            self._doing = doing
            calls = roster.calls or self._bound(roster)
            if isinstance(calls, CompiledCalls):
                decisions = decided_many(roster, calls, self.policy, matrix, offer, now)
                self._open_many(roster, doing, decisions, matrix)
            else:
                made = [self._decide(roster, x.tobytes(), offer, now, doing.open) for x in matrix]
                places = np.array([offer.names.index(d.arm) for d in made], dtype=np.int64)
                decisions = Decisions(None, offer, places, places, self.policy, None, now, made)
                roster.open.entries.update(doing.open)
            self._behind = True
            roster.counts[PENDING] = NOTHING
        if self._log is not None:
            self._log.decided_many(decisions, [_told(x, arms) for x in one_by_one(contexts)])
        return decisions

    def _open_many(
        self, roster: Roster, doing: Batch, decisions: Decisions, matrix: Floats
    ) -> None:
        """Open the decisions of a batch, as many as may be open."""
        first = max(len(decisions) - self.max_open, 0)
        offer, places = decisions._offer, decisions._places[first:]
        if self._coming:
            for place in np.unique(places).tolist():
                self._remember(roster, offer.records[place], int(offer.columns[place]))
        rows = matrix[first:].copy() if first else matrix
        if self._per_arm:
            rows = rows.reshape(len(rows), len(offer.records), -1)[np.arange(len(rows)), places]
        assert decisions.named is not None
        numbers, checksums = decisions.named
        if numbers.size:
            batch = Together(
                numbers[first:], checksums[first:], offer.records, places, rows, decisions.time
            )
            doing.open[batch.key] = batch
            roster.open.add(batch)

    def propose(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm, and remember nothing of it: no decision waits, no context was learned.

        For applications that keep a log of their own which everything can be learned from again:
        they propose, write the decision to the log, and then `record` it. Its id is empty.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> decision = agent.propose({"age": 31})
        >>> agent.open_decisions
        0
        >>> agent.record("visit 7", {"age": 31}, decision.arm)
        >>> agent.reward("visit 7", 1.0)
        True
        """
        x, names = self._read(context, arms, peek=True)
        self._check_entry()
        now = self._time()
        with self._lock:
            roster, given, offer, before = self._looked_at(x, names)
            decision = self._decide(roster, given, offer, now, {}, proposed=True)
            for now_there, then_there in zip(roster.books, before, strict=True):
                now_there[...] = then_there
        decision.id = ""
        return decision

    def propose_list(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """A list of k arms as `rank` would make it; as with `propose`, nothing is remembered.

        Each place can be recorded as a decision of its own: `decision(place)` says how it was
        filled.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue", "green"], seed=0)
        >>> ranking = agent.propose_list({"age": 31}, 2)
        >>> len(ranking.arms), agent.open_decisions
        (2, 0)
        """
        length = whole_number("k", k, least=1)
        x, names = self._read(context, arms, peek=True)
        self._check_entry()
        now = self._time()
        with self._lock:
            roster, given, offer, before = self._looked_at(x, names)
            ranking = self._ranked(roster, given, offer, length, now)
            for now_there, then_there in zip(roster.books, before, strict=True):
                now_there[...] = then_there
        ranking.id = ""
        return ranking

    def _looked_at(self, x: Any, names: Any) -> tuple[Roster, bytes, Offer, Books]:
        """What is offered, without knowing any more than before; and the books as they are."""
        kept = roster = self._current()
        records = self._records
        try:
            if self._coming and len(names) > len(roster.free):
                # Room for strangers may be made, and arms forgotten for it: in a copy.
                roster, self._records = roster.copied(), records.copy()
            roster, given, offer = self._offered(roster, x, names, peek=True)
        finally:
            self._roster, self._records = kept, records
        before = Books._make([array.copy() for array in roster.books])
        self._doing = Batch(before, {})  # an interrupt, too, finds it as it was
        return roster, given, offer, before

    def record(
        self, id: str, context: Context, arm: Arm, features: Any = None, *,
        time: float | None = None,
    ) -> None:  # fmt: skip
        """Open a decision that was made elsewhere, under an id of its own.

        Parameters
        ----------
        id
            Any string that no open decision has.
        context, arm, features
            As in `update`.
        time
            When it was made, in seconds; now by default.
        """
        if not isinstance(id, str):
            raise TypeError(f"an id is a string, not {id!r}")
        if self._roster.open.decision(id) is not None:
            raise ValueError(f"a decision {id!r} is open already; give another id")
        given = self._read_one(context, arm, features)
        self._check_entry()
        now = self._time() if time is None else float(time)
        with self._lock:
            roster, x = self._widened(self._current(), given)
            roster, column = self._column_of(roster, arm)
            opened: Entries = {id: (self._records[plain_name(arm)], x, now)}
            self._doing = Batch(Books._make([array.copy() for array in roster.books]), opened)
            words, columns = np.frombuffer(x, np.uint64), np.array([column], dtype=np.int64)
            count_decision(roster.books, words, columns, 0)
            roster.open.entries.update(opened)
            self._behind = True
            roster.counts[PENDING] = NOTHING

    def _decide(
        self, roster: Roster, x: bytes, offer: Offer, now: float,
        open: Entries, proposed: bool = False,
    ) -> Decision:  # fmt: skip
        """Decide, and open the decision; it counts once the caller says so."""
        records = offer.records
        if not records:
            raise ValueError("no arm is available; add one, or list at least one")
        if (calls := roster.calls) is None:
            calls = self._bound(roster)
        decide = calls.decide
        place, id, seen = decide(x, offer.columns)
        if place == NOT_FINITE:
            check_finite(np.frombuffer(x), roster.model.largest)
        record = records[place]
        if self._per_arm:
            width = len(x) // len(records)
            x = x[place * width : (place + 1) * width]
            if self._coming and not proposed:
                self._remember(roster, record, int(offer.columns[place]))
        open[id] = record, x, now
        return Decision(id, record.name, offer, self.policy, seen, calls.belief, now)
