"""The agent: chooses arms, learns from late rewards, saves and loads itself."""

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tsucb.agent import snapshot, storage
from tsucb.agent.calls import (
    CLOSED,
    DECISIONS,
    DUE,
    LEARNED,
    NOT_FINITE,
    NOTHING,
    OBSERVATIONS,
    PENDING,
    Books,
    Calls,
    count_decision,
    make_calls,
    record_closed,
)
from tsucb.agent.contexts import Arm, Context, FreeReader, Reader
from tsucb.agent.decision import Decision
from tsucb.agent.roster import (
    ArmRecord,
    Batch,
    Doing,
    Offer,
    Open,
    Roster,
    decision_id,
    plain_name,
    record_of,
    records_of,
)
from tsucb.checks import SMALLEST, between, flushed, whole_number
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.forgetting import Forgetting
from tsucb.models.model import Model, check_finite, learn_many, training_due, trains
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.exploring import Exploring
from tsucb.policies.ts_ucb import TSUCB
from tsucb.step import runs_compiled, start
from tsucb.streams import POLICY, stream
from tsucb.structure import copied

if TYPE_CHECKING:
    import pandas as pd


class UnknownDecision(LookupError):
    """A reward for a decision that is not open: never made, or closed before.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "blue"], features=1, seed=0)
    >>> agent.reward("7-123", 1.0)
    Traceback (most recent call last):
    tsucb.agent.agent.UnknownDecision: decision '7-123' was never made by this agent; check the id
    """


class Agent:
    """Chooses arms and learns from their rewards, in a process that runs for a long time.

    All methods may be called from many threads. One lock guards everything an agent knows; it is
    held while a decision is computed or a reward learned, not while a context is converted or a
    file is written. An exception from outside, such as Ctrl-C, finds every call done or not done;
    only what a context was read as, and what was drawn at random, stays read and drawn.

    Parameters
    ----------
    arms
        Names of the arms: strings or integers.
    features
        The number of features of a context, or their names if contexts are mappings or tables. By
        default contexts are read as they come: dictionaries, rows of tables or lists of numbers,
        with strings and gaps; or none at all. Where the model says it, it is not needed.
    model, policy
        Any of `tsucb.models`, by default `AdaptiveLinear`, for which nothing is to be set; any of
        `tsucb.policies`, `TSUCB(10)` by default.
    seed
        Changes everything random; the same seed and calls give the same decisions. None: arbitrary.
    exploration
        ε: so often an arm is played at random, whatever the policy says (see `tsucb.Exploring`).
        Then `decision.probabilities` is known exactly, and the log can answer what other agents
        would have earned. 0.02 to 0.05 costs little.
    forgetting
        γ: with every reward, all earlier ones come to count γ times as much (see
        `tsucb.Forgetting`). 1 never forgets; 0.999 remembers about the last 1,000 rewards.
    transformer
        Turns contexts into vectors: anything with scikit-learn's `transform`, which is given a list
        of contexts.
    streaming
        Also let the transformer learn from every context by its `partial_fit`, before using it.
    categories
        Features whose numbers are codes, such as postcodes, for contexts that the agent reads by
        itself.
    max_open
        At most so many decisions wait for a reward; beyond it the oldest are dropped.
    keep_beliefs
        Keep the belief that a decision was made from with it, so that `decision.probability` is
        known without a floor too. Slower.
    log
        Where every decision and every reward is written: a folder for Parquet files, which
        `tsucb evaluate` and `report` read, or a function that is called with a dictionary. See
        `tsucb.agent.DecisionLog`. It is not saved with the agent; give it to `load` again.
    clock
        Tells the time in seconds, for `expire`.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "green", "blue"], seed=0)
    >>> decision = agent.choose({"age": 31, "city": "Rome", "income": None})
    >>> decision.arm in agent.arms
    True
    >>> agent.reward(decision.id, 1.0)
    True
    >>> agent.add_arm("yellow"); agent.remove_arm("red")
    >>> agent.arms
    ('green', 'blue', 'yellow')
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        features: int | Sequence[str] | None = None,
        *,
        model: Model | None = None,
        policy: Any = None,
        seed: int | None = None,
        exploration: float = 0.0,
        forgetting: float = 1.0,
        transformer: Any = None,
        streaming: bool = False,
        categories: Sequence[str] = (),
        max_open: int = 100_000,
        keep_beliefs: bool = False,
        log: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names, plain = _named_model(features, model)
        self.forgetting = between("forgetting", forgetting, 0, 1)
        self._free = model is None and features is None and transformer is None
        believer = plain if self.forgetting == 1 else Forgetting(plain, self.forgetting)
        self.policy = TSUCB(10) if policy is None else policy
        if isinstance(self.policy, type) or not callable(getattr(self.policy, "choose", None)):
            raise TypeError("policy must be an instance with choose(belief, rng): tsucb.TSUCB(1)")
        if exploration != 0:
            self.policy = Exploring(self.policy, between("exploration", exploration, 0, 1))
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        if not isinstance(entropy, int | np.integer) or entropy < 0:
            raise ValueError(f"seed must be a whole number of at least 0, but it is {seed!r}")
        self.max_open = whole_number("max_open", max_open, least=1)
        self.keep_beliefs, self._clock = bool(keep_beliefs), clock
        self._log = _opened(log)
        self._reader: Reader = (
            FreeReader(believer, categories)
            if self._free
            else Reader(believer, names, transformer, streaming)
        )
        if categories and not self._free:
            raise ValueError(
                "categories are for contexts that the agent reads by itself; leave features, model "
                "and transformer away, or categories"
            )
        self._per_arm = self._reader.per_arm
        self._restricted = type(plain).check_rewards is not Model.check_rewards

        self._records = _named_records(arms)  # the arms as they are to be, by name
        # The streams of run 0 of a simulation: with instant rewards the agent plays the same arms.
        state = start(believer, len(self._records), int(entropy), 0)
        self._roster = Roster.start(believer, self._records.values(), state)
        self._settled = True  # whether the roster has the arms as they are to be
        self._rng = stream(int(entropy), 0, POLICY)
        self._doing: Doing = None
        self._forked = False  # whether it still has the draws and ids of the parent process
        # Ids in the order of their decisions, for dropping the oldest; some may be closed.
        self._oldest: Iterator[str] = iter(())
        self._lock, self._saving = threading.RLock(), threading.RLock()
        _AGENTS.add(self)

    # What it knows

    @property
    def model(self) -> Model:
        """What turns rewards into beliefs."""
        return self._roster.model

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms' names, in the order they were added."""
        return tuple(self._records)

    @property
    def open_decisions(self) -> int:
        """How many decisions wait for a reward; never more than `max_open`."""
        with self._lock:
            return min(len(self._in_order().open), self.max_open)

    @property
    def dropped(self) -> int:
        """How many decisions were dropped because more than `max_open` waited."""
        with self._lock:
            roster = self._in_order()
        counts = roster.books.counts
        return int(counts[DECISIONS] - counts[CLOSED]) - min(len(roster.open), self.max_open)

    def _in_order(self) -> Roster:
        """The roster, or what it will be once it is in order; changes nothing."""
        roster = self._roster
        return roster if roster.in_order else roster.put_in_order(self._doing)

    def add_arm(self, name: Arm) -> None:
        """Add an arm, about which nothing but the prior is known."""
        plain = plain_name(name)
        self._check_entry()
        with self._lock:
            if plain in self._records:
                raise ValueError(f"there is an arm {plain!r} already; choose another name")
            self._settled = False  # first: an interrupt in between costs time, nothing else
            self._records[plain] = ArmRecord(plain)

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm. Rewards that still come for it are not learned from.

        An arm added later under the same name is a new one.
        """
        self._check_entry()
        with self._lock:
            record = record_of(name, self._records)
            self._settled = False
            del self._records[record.name]

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; what was learned stays."""
        if isinstance(policy, type) or not callable(getattr(policy, "choose", None)):
            raise TypeError("policy must be an instance with choose(belief, rng): tsucb.TSUCB(1)")
        self._check_entry()
        with self._lock:
            self.policy, self._roster.calls = policy, None

    def shuffle(self, seed: int | None = None) -> None:
        """Draw from another random stream from now on; None: an arbitrary one."""
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        with self._lock:
            self._rng, self._roster.calls = stream(int(entropy), 0, POLICY), None  # type: ignore[arg-type]

    # Deciding

    def choose(self, context: Context = None, arms: Sequence[Arm] | None = None) -> Decision:
        """Choose an arm.

        Parameters
        ----------
        context
            What is known now: a vector, a mapping of feature names to numbers, or what the
            transformer takes. For `Linear`, the arms' feature vectors: a matrix with one row per
            available arm, or a mapping of arms to vectors. Nothing for K-armed models.
        arms
            The arms available now, all by default.
        """
        if self._free and arms is not None:
            records_of(arms, self._records)  # before the reader learns anything from the context
        x = None if self._per_arm else self._reader.packed(context)
        if self._lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        now = self._time()
        with self._lock:
            roster = self._current()
            if x is None:
                names = self._offer(roster, arms).names
                x = self._reader.rows(context, names, self._records).tobytes()
            elif self._free:
                roster, x = self._fitted(roster, x)
            self._doing = None
            decision = self._decide(roster, x, self._offer(roster, arms), now, roster.open)
            roster.books.counts[PENDING] = NOTHING
            if len(roster.open) > self.max_open:
                self._drop_oldest(roster)
        if self._log is not None:
            self._log.decided(decision, context)
        return decision

    def choose_many(
        self, contexts: Sequence[Context], arms: Sequence[Arm] | None = None
    ) -> list[Decision]:
        """Choose an arm for each of several contexts, all from what is known now.

        The same as choosing one by one; the contexts may also be a matrix or a table.
        """
        if not hasattr(contexts, "__len__"):
            contexts = list(contexts)
        if self._free and arms is not None:
            records_of(arms, self._records)
        many: list[bytes] = []
        if self._reader.takes_context and not self._per_arm:
            matrix = self._reader.matrix(contexts)
            many = [x.tobytes() for x in matrix]
        elif not self._per_arm:
            many = [self._reader.packed(context) for context in contexts]
        self._check_entry()
        now = self._time()
        with self._lock:
            roster = self._current()
            offer = self._offer(roster, arms)
            if self._per_arm:
                rows = (self._reader.rows(x, offer.names, self._records) for x in contexts)
                many = [x.tobytes() for x in rows]
            elif self._free and many:
                roster, matrix = self._fitted_rows(roster, matrix)
                many, offer = [x.tobytes() for x in matrix], self._offer(roster, arms)
            doing = Batch(copied(roster.books), {})
            self._doing = doing
            decisions = [self._decide(roster, x, offer, now, doing.open) for x in many]
            roster.open.update(doing.open)
            roster.books.counts[PENDING] = NOTHING
            self._drop_oldest(roster)
        if self._log is not None:
            self._log.decided_many(decisions, contexts)
        return decisions

    def propose(self, context: Context = None, arms: Sequence[Arm] | None = None) -> Decision:
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
        x = None if self._per_arm else self._reader.peeked(context)
        self._check_entry()
        now = self._time()
        with self._lock:
            roster = self._current()
            if x is not None and self._free:
                roster, x = self._fitted(roster, x)
            offer = self._offer(roster, arms)
            if x is None:
                x = self._reader.rows(context, offer.names, self._records).tobytes()
            before = Books._make([array.copy() for array in roster.books])
            self._doing = Batch(before, {})  # an interrupt, too, finds it as it was
            decision = self._decide(roster, x, offer, now, {})
            for now_there, then_there in zip(roster.books, before, strict=True):
                now_there[...] = then_there
        decision.id = ""
        return decision

    def record(self, id: str, context: Context, arm: Arm, *, time: float | None = None) -> None:
        """Open a decision that was made elsewhere, under an id of its own.

        Parameters
        ----------
        id
            Any string that no open decision has.
        context, arm
            As in `update`.
        time
            When it was made, in seconds; now by default.
        """
        if not isinstance(id, str):
            raise TypeError(f"an id is a string, not {id!r}")
        record_of(arm, self._records)  # before the reader learns anything from the context
        if id in self._roster.open:
            raise ValueError(f"a decision {id!r} is open already; give another id")
        x = self._reader.vector(context).tobytes()
        self._check_entry()
        now = self._time() if time is None else float(time)
        with self._lock:
            record = record_of(arm, self._records)
            roster = self._current()
            if self._free:
                roster, x = self._fitted(roster, x)
            opened = {id: (record, x, now)}
            self._doing = Batch(Books._make([x.copy() for x in roster.books]), opened)
            column = np.array([roster.columns[record]], dtype=np.int64)
            count_decision(roster.books, np.frombuffer(x, np.uint64), column, 0)
            roster.open.update(opened)
            roster.books.counts[PENDING] = NOTHING
            if len(roster.open) > self.max_open:
                self._drop_oldest(roster)

    def _current(self) -> Roster:
        """The roster with nothing half done in it, and the arms as they are to be."""
        roster = self._roster
        if not roster.in_order:
            roster = roster.put_in_order(self._doing)
            if not roster.in_order:
                roster = self._trained(roster)
                roster.books.counts[PENDING] = NOTHING
            self._roster = roster
        if len(roster.open) > self.max_open:
            self._drop_oldest(roster)
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
        return roster

    def _fitted(self, roster: Roster, x: bytes) -> tuple[Roster, bytes]:
        """A context and a roster of the same width: the narrower of the two is widened."""
        width = 8 * sum(roster.model.context_shape(1))
        if len(x) > width:
            roster = self._roster = roster.widened(len(x) // 8)
        return roster, x + bytes(max(width - len(x), 0))

    def _fitted_rows(self, roster: Roster, matrix: Floats) -> tuple[Roster, Floats]:
        """The same for several contexts."""
        have, wanted = sum(roster.model.context_shape(1)), matrix.shape[1]
        if wanted > have:
            roster = self._roster = roster.widened(wanted)
        return roster, np.pad(matrix, ((0, 0), (0, max(have - wanted, 0))))

    def _check_entry(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()

    def _time(self) -> float:
        now = self._clock()
        if not isinstance(now, Real) or not math.isfinite(now):
            raise ValueError(f"the clock must tell the time in seconds, but it says {now!r}")
        return float(now)

    def _offer(self, roster: Roster, arms: Sequence[Arm] | None) -> Offer:
        if arms is None:
            return roster.everyone
        return roster.offer(records_of(arms, self._records))

    def _decide(
        self, roster: Roster, x: bytes, offer: Offer, now: float, open: dict[str, Open]
    ) -> Decision:
        """Decide, and open the decision; it counts once the caller says so."""
        records, columns = offer
        if not records:
            raise ValueError("no arm is available; add one, or list at least one")
        calls = roster.calls or self._bound(roster)
        given = self._placed(roster, x, columns) if self._per_arm else x
        place, number, checksum = calls.decide(given, columns)
        if place == NOT_FINITE:
            check_finite(np.frombuffer(x), roster.model.largest)
        record = records[place]
        if self._per_arm:
            width = len(x) // len(records)
            x = x[place * width : (place + 1) * width]
        id = decision_id(number, checksum)
        open[id] = record, x, now
        seen = roster.seen[: 4 * len(records) + 2].tobytes()
        return Decision(id, record.name, offer, self.policy, seen, calls.belief, now)

    def _drop_oldest(self, roster: Roster) -> None:
        """Drop the oldest of too many open decisions; an interrupt leaves it to the next call."""
        # Not the first key of the dictionary: to find that takes long once many were deleted.
        while len(roster.open) > self.max_open:
            for id in self._oldest:
                if roster.open.pop(id, None):
                    break
            else:
                self._oldest = iter(list(roster.open))

    def _bound(self, roster: Roster) -> Calls:
        given = roster.state, roster.books, self._rng, roster.seen, self.keep_beliefs
        roster.calls = make_calls(self.policy, roster.model, *given)
        return roster.calls

    def _placed(self, roster: Roster, rows: bytes, columns: Integers) -> bytes:
        """The arms' feature vectors where the model looks for them: in the rows of its columns."""
        count = roster.books.chosen.size
        if columns.size == count and (columns == np.arange(count)).all():
            return rows
        matrix = np.zeros((count, *self._reader.shape))
        matrix[columns] = np.frombuffer(rows).reshape(columns.size, -1)
        return matrix.tobytes()

    # Learning

    def reward(self, id: str, reward: float) -> bool:
        """Learn the reward of a decision, in the context in which it was made, and close it.

        Rewards may come in any order. True if it was learned; False if its arm was removed in the
        meantime. A second reward, or one for an expired, dropped or unknown decision, raises
        `UnknownDecision` and changes nothing.
        """
        value = self.check_reward(reward)
        if self._lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        with self._lock:
            roster = self._current()
            decision = roster.open.get(id)
            if decision is None:
                self._refuse(roster, id)
            record, context, _ = decision
            column = roster.columns.get(record)
            self._doing = id
            if column is None:
                record_closed(roster.books)
            else:
                roster = self._learned(roster, column, context, value, counted=False)
            del roster.open[id]
            roster.books.counts[PENDING] = NOTHING
        if self._log is not None:
            self._log.rewarded(id, value, self._time())
        return column is not None

    def close(self, id: str) -> None:
        """Close a decision without learning anything from it."""
        self._check_entry()
        with self._lock:
            roster = self._current()
            if id not in roster.open:
                self._refuse(roster, id)
            self._doing = id
            record_closed(roster.books)
            del roster.open[id]
            roster.books.counts[PENDING] = NOTHING
        if self._log is not None:
            self._log.expired([id], None, self._time())

    def _learned(
        self, roster: Roster, column: int, context: bytes, value: float, counted: bool
    ) -> Roster:
        """The roster with one more reward, which counts once the caller says so."""
        calls = roster.calls or self._bound(roster)
        learn = calls.learn
        if learn is None:  # in plain Python: into a copy
            roster = roster.copied()
            self._learn_all(roster, [(column, context)], [value], counted)
            due = trains(roster.model) and bool(training_due(roster.model, roster.state))
            roster.books.counts[PENDING] = DUE if due else LEARNED
            self._roster = roster
        else:
            if self._per_arm:
                context = self._placed(roster, context, np.array([column]))
            due = learn(context, column, value, counted)
        if due:
            roster = self._trained(roster)
            self._roster = roster
        return roster

    def _trained(self, roster: Roster) -> Roster:
        """Another roster, whose model has been trained."""
        trained = roster.copied()
        roster.model.trainer([trained.state])()
        trained.books.counts[PENDING] = LEARNED
        return trained

    def check_reward(self, reward: float) -> float:
        """A reward as a number that the model can learn from, or a sentence on why it cannot."""
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise TypeError(f"a reward must be a number, not {reward!r}") from None
        largest = self._reader.largest
        if not abs(value) <= largest:
            raise ValueError(
                f"a reward must be a finite number, at most ±{largest:g}, not {reward}"
            )
        if self._restricted:
            self.model.check_rewards(np.array([value]))
        return value if abs(value) >= SMALLEST else 0.0

    def _refuse(self, roster: Roster, id: str) -> NoReturn:
        if isinstance(id, Decision):
            raise TypeError(f"give the id of the decision, {id.id!r}, instead of the decision")
        number, decisions = str(id).partition("-")[0], roster.books.counts[DECISIONS]
        if number.isdecimal() and len(number) < 20 and 0 < int(number) <= decisions:
            raise UnknownDecision(
                f"decision {id!r} is not open: it was rewarded, expired or dropped before, lost "
                "when an older file was loaded, or never made by this agent"
            )
        raise UnknownDecision(f"decision {id!r} was never made by this agent; check the id")

    def expire(self, older_than: float | timedelta, reward: float | None = None) -> int:
        """Close the decisions older than so many seconds, and return how many there were.

        Parameters
        ----------
        older_than
            Age in seconds, or a `timedelta`.
        reward
            What their arms are taken to have earned, such as 0 for "no click came"; None to learn
            nothing from them.
        """
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if not isinstance(age, Real) or math.isnan(age):
            raise ValueError(f"older_than must be an age in seconds, not {older_than!r}")
        value = None if reward is None else self.check_reward(reward)
        self._check_entry()
        before = self._time() - age
        with self._lock:
            roster = self._current()
            ids = [id for id, decision in roster.open.items() if decision[2] < before]
            old = [roster.open[id] for id in ids]
            if not old:
                return 0
            after = roster.copied({id: d for id, d in roster.open.items() if not d[2] < before})
            if value is None:
                after.books.counts[CLOSED] += len(old)
            else:
                known = [(after.columns[r], x) for r, x, _ in old if r in after.columns]
                self._learn_all(after, known, [value] * len(known), counted=False)
                after.books.counts[CLOSED] += len(old) - len(known)
            self._roster = after
        if self._log is not None:
            self._log.expired(ids, value, self._time())
        return len(old)

    def update(self, context: Context, arm: Arm, reward: float) -> None:
        """Learn from an observation that was no decision of this agent.

        For `Linear` the context is the feature vector of the arm.
        """
        record_of(arm, self._records)  # before the reader learns anything from the context
        value = self.check_reward(reward)
        x = self._reader.vector(context).tobytes()
        self._check_entry()
        with self._lock:
            record = record_of(arm, self._records)
            roster = self._current()
            if self._free:
                roster, x = self._fitted(roster, x)
            self._doing = None
            roster = self._learned(roster, roster.columns[record], x, value, counted=True)
            roster.books.counts[PENDING] = NOTHING

    def fit(self, history: Any, *, arm: str = "arm", reward: str = "reward") -> None:
        """Learn from logged data, in its order. Everything is checked before anything is learned.

        Parameters
        ----------
        history
            A table (pandas, polars, or a mapping of columns) with the columns `arm`, `reward` and
            one per feature; or three arrays: contexts, arms, rewards. Contexts are as in `update`.
        arm, reward
            Names of the columns.
        """
        if isinstance(history, Mapping) or hasattr(history, "columns"):
            history = self._reader.columns(history, arm, reward)
        if not isinstance(history, tuple | list) or len(history) != 3:
            raise ValueError("a history is a table, or three arrays: contexts, arms, rewards")
        contexts, arms, rewards = history
        names = np.asarray(arms).tolist() if isinstance(arms, np.ndarray) else list(arms)
        values = [self.check_reward(value) for value in rewards]
        for name in dict.fromkeys(names):
            record_of(name, self._records)  # before the reader learns anything from the contexts
        self._check_entry()
        if contexts is None or not self._reader.takes_context:
            x = self._reader.vector(contexts)  # refuses, unless the model takes no context
            vectors = np.tile(x, (len(names), 1))
        else:
            vectors = self._reader.matrix(contexts)
        if not len(names) == len(values) == len(vectors):
            raise ValueError(
                f"{len(vectors)} contexts, {len(names)} arms and {len(values)} rewards do not "
                "match; give one of each per observation"
            )
        with self._lock:
            records = [record_of(name, self._records) for name in names]
            roster = self._current()
            if self._free:
                roster, vectors = self._fitted_rows(roster, vectors)
            after = roster.copied()
            pairs = [(after.columns[r], x.tobytes()) for r, x in zip(records, vectors, strict=True)]
            self._learn_all(after, pairs, values, counted=True)
            self._roster = after

    def _learn_all(
        self, roster: Roster, pairs: list[tuple[int, bytes]], values: list[float], counted: bool
    ) -> None:
        """Learn several rewards into a roster that is not in use yet."""
        columns = np.array([column for column, _ in pairs], dtype=np.int64)
        rewards = np.array(values, dtype=np.float64)
        if self._per_arm or not runs_compiled(roster.model):
            given = [(c, self._placed(roster, x, np.array([c])) if self._per_arm else x)
                     for c, x in pairs]  # fmt: skip
            for (column, x), value in zip(given, values, strict=True):
                roster.model.update(roster.state, self._unpacked(roster, x), column, value)
        else:
            shape = roster.model.context_shape(roster.books.chosen.size) or (0,)
            contexts = flushed(np.frombuffer(b"".join(x for _, x in pairs)))
            contexts = contexts.reshape(len(pairs), *shape)
            learn_many(roster.model, roster.state, contexts, columns, rewards)
        np.add.at(roster.books.pulls, columns, 1)
        np.add.at(roster.books.totals, columns, rewards)
        if counted:
            np.add.at(roster.books.chosen, columns, 1)
        roster.books.counts[OBSERVATIONS if counted else CLOSED] += len(pairs)

    def _unpacked(self, roster: Roster, context: bytes) -> Floats:
        shape = roster.model.context_shape(roster.books.chosen.size) or (0,)
        unpacked: Floats = flushed(np.frombuffer(context)).reshape(shape)
        return unpacked

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """What the agent makes of a context: the features that are not 0, and their values.

        Nothing is decided nor learned.
        """
        return self._reader.describe(context)

    # Looking at it

    def arms_summary(self) -> "pd.DataFrame":
        """One row per arm: pulls, open decisions, mean reward; `coefficients` has the posterior."""
        import pandas as pd

        self._check_entry()
        with self._lock:
            roster = self._current()
            waiting = dict.fromkeys(roster.columns, 0)
            for record, _, _ in roster.open.values():
                if record in waiting:
                    waiting[record] += 1
            columns = roster.everyone.columns
            pulls, totals = roster.books.pulls[columns], roster.books.totals[columns]
        with np.errstate(invalid="ignore"):
            data = {"pulls": pulls, "open": list(waiting.values()), "mean_reward": totals / pulls}
        names = [record.name for record in waiting]
        return pd.DataFrame(data, index=pd.Index(names, name="arm", dtype=object))

    def coefficients(self) -> "pd.DataFrame":
        """Mean and standard deviation of every parameter of every arm under the posterior.

        One row for each arm and feature; for K-armed models the one parameter is the arm's mean
        reward. Empty for networks.
        """
        import pandas as pd

        self._check_entry()
        with self._lock:
            roster = self._current()
            labels = roster.model.parameter_names(self._reader.feature_names)
            rows = []
            for record, column in roster.columns.items():
                mean, std = roster.model.coefficients(roster.state, column)
                for label, m, s in zip(labels, mean.tolist(), std.tolist(), strict=False):
                    rows.append((record.name, label, m, s))
        table = pd.DataFrame(rows, columns=["arm", "feature", "mean", "std"])
        return table.set_index(["arm", "feature"])

    # Its log

    @property
    def exploration(self) -> float:
        """ε, the share of decisions that are made at random; 0 without a floor."""
        return self.policy.epsilon if isinstance(self.policy, Exploring) else 0.0

    @property
    def log(self) -> Any:
        """Where decisions and rewards are written, a `DecisionLog`; None without one."""
        return self._log

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page about what the decision log holds, to look at in a browser.

        Reward over time, beside the floor's decisions as control; the share of every arm; how much
        is explored; whether the belief is calibrated; late and missing rewards; drift of contexts.
        """
        from tsucb.logs.live import report

        if self._log is None or self._log.folder is None:
            raise ValueError("a report is made from the decision log; make the agent with log=…")
        report(self._log.folder, path)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file: settings, what was learned, open decisions, randomness.

        The file is there whole or not at all, whatever happens meanwhile, and what cannot be loaded
        again is not written; it may also be called from a signal handler. A transformer is not
        saved; `load` asks for it.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            # A signal handler in the middle of a call: whoever is saving may wait for that call.
            self._save(path)
            return
        with self._saving:  # so that an older state never takes the place of a newer one
            self._save(path)

    def _save(self, path: str | os.PathLike[str]) -> None:
        with self._lock:
            values, arrays = snapshot.taken(self)
        snapshot.check(self, values, arrays)
        storage.write(path, values, arrays)

    def to_bytes(self) -> bytes:
        """What `save` writes to a file, for applications that keep it elsewhere."""
        with self._lock:
            values, arrays = snapshot.taken(self)
        return storage.packed(values, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, *, clock: Callable[[], float] = time.time) -> "Agent":
        """The agent that `to_bytes` was called on."""
        values, arrays = storage.unpacked(data)
        return snapshot.restored(cls, "it", values, arrays, None, None, None, clock)

    def digest(self) -> str:
        """A hash of everything learned and open, not of the random stream.

        Agents that recorded the same decisions and learned the same rewards, in the same order and
        on the same kind of machine, have the same.
        """
        with self._lock:
            values, arrays = snapshot.taken(self)
        return snapshot.digest(values, arrays)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        model: Model | None = None,
        policy: Any = None,
        transformer: Any = None,
        log: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> "Agent":
        """The agent that a file holds; it makes the decisions the saved one would have made.

        Parameters
        ----------
        path
            A file that `save` wrote. Any other, a damaged one, one of a newer version or of other
            settings raises a `ValueError` that says so.
        model, policy
            What the file must have been saved with. Needed only for classes of your own, which a
            file cannot contain.
        transformer
            The one that the agent was made with; needed if there was one.
        log, clock
            As when an agent is made.
        """
        values, arrays = storage.read(path)
        agent = snapshot.restored(cls, path, values, arrays, model, policy, transformer, clock)
        agent._log = _opened(log)
        return agent

    def __reduce__(self) -> NoReturn:
        raise TypeError("an agent cannot be pickled; save it to a file and load that")


def _opened(log: Any) -> Any:
    """The decision log at a path, or that calls a function."""
    if log is None:
        return None
    from tsucb.agent.decision_log import DecisionLog

    return log if isinstance(log, DecisionLog) else DecisionLog(log)


def _refuse_reentry() -> NoReturn:
    raise RuntimeError(
        "the agent was called from a signal handler in the middle of another call; only save can be"
    )


# All agents of this process, for forks; the locks that a fork has taken, and who forks.
_AGENTS: "weakref.WeakSet[Agent]" = weakref.WeakSet()
_forking = threading.RLock()
_held: list[Any] = []


def _before_fork() -> None:
    """Wait until no other thread is in the middle of a call.

    Each lock is written down before it is taken, and afterwards given back if it was: a signal
    handler may raise in between, and Python then forks all the same.
    """
    _forking.acquire()
    _held.clear()
    for agent in list(_AGENTS):
        for lock in (agent._lock, agent._reader.lock):
            if not lock._is_owned():  # type: ignore[attr-defined]
                _held.append(lock)
                lock.acquire()


def _after_fork_in_parent() -> None:
    while _held:
        lock = _held.pop()
        if lock._is_owned():
            lock.release()
    if _forking._is_owned():  # type: ignore[attr-defined]
        _forking.release()


def _after_fork_in_child() -> None:
    """The child goes on from the same state with draws and ids of its own."""
    for agent in list(_AGENTS):
        agent._forked = True
        agent._saving = threading.RLock()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


def _named_records(arms: Iterable[Arm]) -> dict[Arm, ArmRecord]:
    """Arms by their names."""
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise TypeError(f"arms must be a list of names, such as [{arms!r}]")
    records: dict[Arm, ArmRecord] = {}
    for name in arms:
        plain = plain_name(name)
        if plain in records:
            raise ValueError(f"there is an arm {plain!r} already; choose another name")
        records[plain] = ArmRecord(plain)
    if not records:
        raise ValueError("an agent needs at least one arm; give their names")
    return records


def _feature_names(features: Any) -> tuple[str, ...]:
    # A set has no order, so its vectors would differ from process to process.
    if isinstance(features, Set) or not isinstance(features, Iterable):
        raise TypeError(f"features is their number or a list of names, not {features!r}")
    names = tuple(features)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"features are named by strings, not by {names}")
    return tuple(str(name) for name in names)


def _named_model(
    features: int | Sequence[str] | None, model: Model | None
) -> tuple[tuple[str, ...] | None, Model]:
    """The features' names, if they have any, and the model."""
    if isinstance(features, str):
        raise TypeError(f"features is their number or a list of names, such as [{features!r}]")
    if isinstance(features, np.integer):
        features = int(features)
    names = None if features is None or isinstance(features, int) else _feature_names(features)
    if names is not None and len(set(names)) < len(names):
        raise ValueError("a feature is named twice; give each a name of its own")
    number = features if names is None else len(names)
    if model is None:
        return names, AdaptiveLinear(number if isinstance(number, int) else 0)
    if not isinstance(model, Model):
        raise TypeError("model must be an instance of a tsucb.Model, such as tsucb.NIGLinear(5)")
    expected = model.context_shape(1)[-1:]
    if number is not None and expected != (number,):
        raise ValueError(
            f"{type(model).__name__} has contexts of shape {expected}, but {number} features were "
            "given; leave features away or make them agree"
        )
    return names, model
