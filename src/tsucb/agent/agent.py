"""The agent: chooses arms, learns from late rewards, saves and loads itself."""

import math
import os
import threading
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import timedelta
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tsucb.agent import fleet, snapshot, storage
from tsucb.agent.arm_features import HybridReader, described, free_reader
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
    CompiledCalls,
    count_decision,
    laid_out,
    make_calls,
    record_closed,
)
from tsucb.agent.contexts import Arm, Context, FreeReader, Reader, one_by_one
from tsucb.agent.decision import Decision, Estimate
from tsucb.agent.decision_log import DecisionLog
from tsucb.agent.lists import Ranking, place_id, ranked
from tsucb.agent.many import Decisions, decided_many, learn_rows
from tsucb.agent.roster import (
    ArmRecord,
    Batch,
    Doing,
    Offer,
    Open,
    Rest,
    Roster,
    Together,
    arms_of,
    decision_id,
    plain_name,
    record_of,
    records_of,
)
from tsucb.checks import SMALLEST, between, flushed, whole_number
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.forgetting import Forgetting
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import Model, check_finite, learn_many, training_due, trains
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.exploring import Exploring
from tsucb.policies.ts_ucb import TSUCB
from tsucb.step import initial_pulls, next_arm, runs_compiled, start
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
        Names of the arms: strings or integers. Without any, arms come with the decisions, known
        before or not, with features or without: see `choose`.
    features
        The number of features of a context, or their names if contexts are mappings or tables. By
        default contexts are read as they come: dictionaries, rows of tables or lists of numbers,
        with strings and gaps; or none at all. Where the model says it, it is not needed.
    model, policy
        Any of `tsucb.models`, by default `AdaptiveLinear`, for which nothing is to be set, or
        `HybridLinear` for arms that come with the decisions; any of `tsucb.policies`, `TSUCB(10)`
        by default.
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
    most_arms
        Of an agent whose arms come with the decisions: so many have a memory of their own. Beyond
        it, the arm that was longest neither chosen nor rewarded gives its place away; what it
        taught of the others stays.
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
        arms: Sequence[Arm] | None = None,
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
        most_arms: int = 10_000,
        keep_beliefs: bool = False,
        log: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._coming = arms is None  # whether arms come with the decisions
        if self._coming and model is None and (features is not None or transformer is not None):
            raise ValueError(
                "an agent without a list of arms reads contexts and arms as they come; leave "
                "features and transformer away, or list the arms"
            )
        chosen = HybridLinear(0) if self._coming and model is None else model
        names, plain = _named_model(features, chosen)
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
        self.most_arms = whole_number("most_arms", most_arms, least=1)
        self._reader: Reader = _reader_of(
            believer, names, transformer, streaming, categories, self._free
        )
        if categories and not self._free:
            raise ValueError(
                "categories are for contexts that the agent reads by itself; leave features, model "
                "and transformer away, or categories"
            )
        self._per_arm = self._reader.per_arm
        self._restricted = type(plain).check_rewards is not Model.check_rewards

        if self._coming and not self._per_arm:
            raise ValueError(
                f"{type(plain).__name__} needs a list of arms; only a model with features for "
                "every arm, such as HybridLinear, can take arms that come with the decisions"
            )
        # The arms as they are to be, by name; those that come with decisions by their last use.
        self._records = OrderedDict({} if arms is None else _named_records(arms))
        # The streams of run 0 of a simulation: with instant rewards the agent plays the same arms.
        state = start(believer, len(self._records) or 1, int(entropy), 0)
        self._roster = Roster.start(believer, self._records.values(), state)
        self._settled = True  # whether the roster has the arms as they are to be
        self._rng = stream(int(entropy), 0, POLICY)
        self._doing: Doing = None
        # The id and the rewards of a list of which not all places are learned yet.
        self._unfinished: tuple[str, list[float]] | None = None
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
        waiting = roster.waiting if len(roster.open) <= self.max_open else self.max_open
        return int(counts[DECISIONS] - counts[CLOSED]) - waiting

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

        An arm added later under the same name is a new one. Where arms come with the decisions, one
        that is offered or rewarded again is a new one, too.
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
        x, names = self._read(context, arms)
        if self._lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        now = self._time()
        with self._lock:
            roster = self._current()
            roster, given, offer = self._offered(roster, x, names)
            self._doing = None
            decision = self._decide(roster, given, offer, now, roster.open)
            roster.books.counts[PENDING] = NOTHING
            if len(roster.open) > self.max_open:
                self._drop_oldest(roster)
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
            if length > len(offer.records):
                raise ValueError(
                    f"a list of {length} cannot be made of {len(offer.records)} arms; make it "
                    "shorter, or offer more"
                )
            doing = Batch(copied(roster.books), {})
            self._doing = doing
            calls = roster.calls or self._bound(roster)
            width = len(given) // 8 // len(offer.records) if self._per_arm else 0
            places, seen, number, checksum = ranked(calls, given, offer.columns, length, width)
            if number == NOT_FINITE:
                check_finite(np.frombuffer(given), roster.model.largest)
            ranking = Ranking(decision_id(number, checksum), offer, places, self.policy, seen, now)
            records = tuple(offer.records[place] for place in ranking.places)
            if self._coming:
                for record, place in zip(records, ranking.places, strict=True):
                    self._remember(roster, record, int(offer.columns[place]))
            if width:
                rows = np.frombuffer(given).reshape(-1, width)[places]
                given = rows.tobytes()
            doing.open[ranking.id] = records, given, now
            roster.open.update(doing.open)
            roster.books.counts[PENDING] = NOTHING
            self._drop_oldest(roster)
        if self._log is not None:
            told = _told(context, arms)
            for place in range(length):
                self._log.decided(ranking.decision(place), told)
        return ranking

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
                choice = next_arm(
                    model, roster.state, self.policy, self._unpacked(roster, given, offer.columns),
                    offer.columns, books.chosen, initial_pulls(model), step, self._rng, seen,
                )  # fmt: skip
            finally:
                self._rng.bit_generator.state = stream
        decision = Decision("", offer.records[int(choice.arm)].name, offer, self.policy,
                            seen.tobytes(), None, 0.0)  # fmt: skip
        return Estimate(**vars(decision.explain()))

    def _read(self, context: Context, arms: Any, peek: bool = False) -> tuple[Any, Any]:
        """A context as numbers, and the names of the arms; learning columns as they come."""
        reader = self._reader
        if isinstance(reader, HybridReader):
            if arms is None and not self._coming:
                arms = self.arms
            names, features = described(arms)
            if not self._coming:
                records_of(names, self._records)
            return reader.read(context, features, peek), names
        if isinstance(arms, Mapping):
            if not self._per_arm or context is not None:
                raise TypeError(
                    f"{reader.model_name} takes arms as a list of names"
                    + (", or as a mapping to features and then no context" if self._per_arm else
                       "; features of arms are for HybridLinear and Linear")
                )  # fmt: skip
            context, arms = arms, list(arms)
        if self._coming:
            offered = tuple(described(arms)[0])
            return reader.rows(context, offered, offered).tobytes(), offered
        if self._free and arms is not None:
            records_of(arms, self._records)  # before the reader learns anything from the context
        if self._per_arm:
            if arms is not None:
                arms = [record.name for record in records_of(arms, self._records)]
            offered = self.arms if arms is None else tuple(arms)
            return reader.rows(context, offered, self._records).tobytes(), offered
        return (reader.peeked(context) if peek else reader.packed(context)), arms

    def _offered(
        self, roster: Roster, x: Any, names: Any, peek: bool = False
    ) -> tuple[Roster, bytes, Offer]:
        """The roster as wide as the context, the context's bytes, and the arms that are offered."""
        reader = self._reader
        if isinstance(reader, HybridReader):
            roster, x = self._fitted_arms(roster, reader, x, peek)
        elif self._free:
            roster, x = self._fitted(roster, x, peek)
        if self._coming:
            roster, offer = self._with_strangers(roster, names)
            return roster, x, offer
        return roster, x, self._offer(roster, names)

    def _fitted_arms(
        self, roster: Roster, reader: HybridReader, x: tuple[Floats, Floats], peek: bool = False
    ) -> tuple[Roster, bytes]:
        """The rows of arms and a roster of the same width: the narrower of the two is widened."""
        context, arms = x
        model: Any = roster.model
        widths = max(context.shape[-1], model.context), max(arms.shape[1], model.features)
        if widths != (model.context, model.features):
            if peek:  # nothing is known of what came since
                context, arms = context[..., : model.context], arms[:, : model.features]
            else:
                crossed = model.crossed
                roster = self._roster = roster.widened(widths)
                model = roster.model
                if crossed and not model.crossed:
                    warnings.warn(
                        f"{widths[0]} columns of contexts and {widths[1]} of arms have too many "
                        "products, so their interaction is not learned any more; give fewer "
                        "features",
                        RuntimeWarning,
                        stacklevel=3,
                    )
        return roster, reader.laid_out(context, arms, model).tobytes()

    def _with_strangers(self, roster: Roster, names: Sequence[Arm]) -> tuple[Roster, Offer]:
        """An offer of arms that may not be known; those have columns of no arm."""
        known, columns = self._records, roster.columns
        if len(set(names)) < len(names):
            raise ValueError("an arm is listed twice among those available; list each once")
        try:  # the common case first: all are known
            records = [known[name] for name in names]
            places = [columns[record] for record in records]
            return roster, Offer(tuple(records), np.array(places, dtype=np.int64))
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
                ids = [decision.id for decision in made]
                decisions = Decisions(ids, offer, places, places, self.policy, None, now, made)
            roster.open.update(doing.open)
            roster.books.counts[PENDING] = NOTHING
            self._drop_oldest(roster)
        if self._log is not None:
            self._log.decided_many(decisions, [_told(x, arms) for x in one_by_one(contexts)])
        return decisions

    def _read_many(self, contexts: Any, arms: Any) -> tuple[Any, Any]:
        """Several contexts as numbers, and the names of the arms."""
        reader = self._reader
        if self._per_arm:
            read = [self._read(context, arms) for context in one_by_one(contexts)]
            return [x for x, _ in read], read[0][1] if read else ()
        if self._free and arms is not None:
            records_of(arms, self._records)
        if reader.takes_context:
            return reader.matrix(contexts), arms
        for context in contexts:
            reader.packed(context)
        return np.zeros((len(contexts), 0)), arms

    def _offered_many(self, roster: Roster, x: Any, names: Any) -> tuple[Roster, Floats, Offer]:
        """The roster as wide as the contexts, these one below the other, and the arms offered."""
        if not self._per_arm:
            if self._free and len(x):
                roster, x = self._fitted_rows(roster, x)
            return roster, x, self._offer(roster, names)
        rows: list[bytes] = []
        offer = roster.everyone
        for n in (-1, *range(len(x))) if x else ():  # the last is as wide as any
            roster, given, offer = self._offered(roster, x[n], names)
            rows.append(given)
        matrix = np.frombuffer(b"".join(rows[1:]))
        return roster, matrix.reshape(len(x), matrix.size // max(len(x), 1)), offer

    def _open_many(
        self, roster: Roster, doing: Batch, decisions: Decisions, matrix: Floats
    ) -> None:
        """Open the decisions of a batch, as many as may be open."""
        first = max(len(decisions) - self.max_open, 0)
        offer, places = decisions._offer, decisions._places[first:]
        if self._coming:
            for place in np.unique(places).tolist():
                self._remember(roster, offer.records[place], int(offer.columns[place]))
        rows = matrix[first:]
        if self._per_arm:
            rows = rows.reshape(len(rows), len(offer.records), -1)[np.arange(len(rows)), places]
        number = int(roster.books.counts[DECISIONS]) - len(rows) + 1
        entry = Together(number, offer.records, places, rows.copy(), decisions.time)
        doing.open.update(dict.fromkeys(decisions.ids[first:], entry))

    def reward_many(self, ids: Sequence[str], rewards: Any) -> int:
        """Learn the rewards of several decisions, in their order, and close them.

        All or none: an id that is not open, or twice among them, raises `UnknownDecision` and
        nothing changes. Returns how many were learned; those of removed arms are not.
        """
        values = [
            self.check_reward(reward) for reward in np.asarray(rewards, dtype=object).tolist()
        ]
        wanted = list(ids)
        if len(values) != len(wanted):
            raise ValueError(f"{len(wanted)} ids and {len(values)} rewards do not match")
        if len(set(wanted)) < len(wanted):
            raise UnknownDecision("a decision is twice among the ids; give each once")
        self._check_entry()
        with self._lock:
            roster = self._current()
            closed: list[Open] = []
            for id in wanted:
                decision = roster.decision(id)
                if decision is None:
                    self._refuse(roster, id)
                if isinstance(decision[0], tuple):
                    raise TypeError(f"{id!r} is a list; give its rewards to reward")
                closed.append(decision)
            if self._coming:
                names = list(dict.fromkeys(record.name for record, _, _ in closed))  # type: ignore[union-attr]
                roster, _ = self._all_remembered(roster, names)
                column = {name: roster.columns[self._records[name]] for name in names}
                places = [column[record.name] for record, _, _ in closed]  # type: ignore[union-attr]
            else:
                places = [roster.columns.get(record, -1) for record, _, _ in closed]  # type: ignore[arg-type]
            gone = set(wanted)
            after = roster.copied({id: d for id, d in roster.open.items() if id not in gone})
            known = [n for n, place in enumerate(places) if place >= 0]
            pairs = [(places[n], closed[n][1]) for n in known]
            self._learn_all(after, pairs, [values[n] for n in known], counted=False)
            after.books.counts[CLOSED] += len(wanted) - len(known)
            self._roster = after
        if self._log is not None:
            now = self._time()
            for id, value in zip(wanted, values, strict=True):
                self._log.rewarded(id, value, now)
        return len(known)

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
            decision = self._decide(roster, given, offer, now, {}, proposed=True)
            for now_there, then_there in zip(roster.books, before, strict=True):
                now_there[...] = then_there
        decision.id = ""
        return decision

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
        if id in self._roster.open:
            raise ValueError(f"a decision {id!r} is open already; give another id")
        given = self._read_one(context, arm, features)
        self._check_entry()
        now = self._time() if time is None else float(time)
        with self._lock:
            roster, x = self._widened(self._current(), given)
            roster, column = self._column_of(roster, arm)
            opened: dict[str, Open | Together] = {id: (self._records[plain_name(arm)], x, now)}
            self._doing = Batch(Books._make([array.copy() for array in roster.books]), opened)
            words, columns = np.frombuffer(x, np.uint64), np.array([column], dtype=np.int64)
            count_decision(roster.books, words, columns, 0)
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
        if self._unfinished is not None:
            self._finish_list(roster)
            roster = self._roster
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

    def _fitted(self, roster: Roster, x: bytes, peek: bool = False) -> tuple[Roster, bytes]:
        """A context and a roster of the same width: the narrower of the two is widened."""
        width = 8 * sum(roster.model.context_shape(1))
        if len(x) > width:
            if peek:
                return roster, x[:width]
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
        self, roster: Roster, x: bytes, offer: Offer, now: float,
        open: dict[str, Open | Together], proposed: bool = False,
    ) -> Decision:  # fmt: skip
        """Decide, and open the decision; it counts once the caller says so."""
        records, columns = offer
        if not records:
            raise ValueError("no arm is available; add one, or list at least one")
        calls = roster.calls or self._bound(roster)
        place, number, checksum = calls.decide(x, columns)
        if place == NOT_FINITE:
            check_finite(np.frombuffer(x), roster.model.largest)
        record = records[place]
        if self._per_arm:
            width = len(x) // len(records)
            x = x[place * width : (place + 1) * width]
        if self._coming and not proposed:
            self._remember(roster, record, int(columns[place]))
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

    # Learning

    def reward(self, id: str, reward: Any) -> bool:
        """Learn the reward of a decision, in the context in which it was made, and close it.

        Rewards may come in any order. True if it was learned; False if its arm was removed in the
        meantime. A second reward, or one for an expired, dropped or unknown decision, raises
        `UnknownDecision` and changes nothing.

        A list that `rank` made takes the rewards of its places in their order: a sequence, with
        None for a place that nobody looked at, as are those it is too short for; or a mapping of
        arms to rewards. What was not looked at teaches nothing. True if anything was learned. An
        exception from outside leaves the places open that it came before.
        """
        value: Any = reward if isinstance(reward, _MANY) else self.check_reward(reward)
        if self._lock._is_owned():  # type: ignore[attr-defined]
            _refuse_reentry()
        with self._lock:
            roster = self._current()
            decision = roster.decision(id)
            if decision is None:
                self._refuse(roster, id)
            record, context, _ = decision
            if isinstance(record, tuple):
                return self._reward_list(roster, id, decision, reward)
            if isinstance(reward, _MANY):
                raise TypeError(f"decision {id!r} is of one arm; give one reward, not {reward!r}")
            column = roster.columns.get(record)
            if column is not None and self._coming:
                self._records.move_to_end(record.name)
            elif self._coming:
                roster, columns = self._all_remembered(roster, [record.name])
                column = int(columns[0])
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

    def _reward_list(self, roster: Roster, id: str, decision: Open, given: Any) -> bool:
        """Learn what the places of a list earned, and close it."""
        names = [record.name for record in arms_of(decision)]
        rewards = self._rewards_of(id, names, given)
        self._unfinished = id, rewards
        learned = self._finish_list(roster)
        if self._log is not None:
            now = self._time()
            for place, value in enumerate(rewards):
                if not math.isnan(value):
                    self._log.rewarded(place_id(id, place), value, now)
        return learned

    def _finish_list(self, roster: Roster) -> bool:
        """Learn the places of a list that are left, each whole; what is left is what is open.

        After an interrupt the next call comes here again.
        """
        assert self._unfinished is not None
        id, rewards = self._unfinished
        learned = False
        while (decision := roster.decision(id)) is not None:
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
                roster = self._learned(roster, column, row, value, counted=False)
                learned = True
            if rest is None:
                del roster.open[id]
            else:
                roster.open[id] = rest
            roster.books.counts[PENDING] = NOTHING
        self._unfinished = None
        return learned

    def _rewards_of(self, id: str, names: list[Arm], given: Any) -> list[float]:
        """The reward of every place, NaN where nobody looked."""
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in names]
            if unknown:
                raise ValueError(f"the list {id!r} has no arm {unknown[0]!r}; it has {names}")
            given = [given.get(name) for name in names]
        if not isinstance(given, _MANY):
            raise TypeError(
                f"{id!r} is a list of {len(names)} arms; give a reward for every place, None for "
                "one that nobody looked at"
            )
        if len(given) > len(names):
            raise ValueError(f"the list {id!r} has {len(names)} places, but {len(given)} rewards")
        rewards = [math.nan if value is None else self.check_reward(value) for value in given]
        return rewards + [math.nan] * (len(names) - len(rewards))

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
            decisions = roster.decisions()
            ids = [id for id, decision in decisions.items() if decision[2] < before]
            old = [decisions.pop(id) for id in ids]
            if not old:
                return 0
            after = roster.copied({**decisions})
            places = sum(len(arms_of(decision)) for decision in old)
            known: list[tuple[int, bytes]] = []
            if value is not None:
                for decision in old:
                    records, x = arms_of(decision), decision[1]
                    step = len(x) // len(records) if self._per_arm else 0
                    rows = [
                        x[n * step : (n + 1) * step] if step else x for n in range(len(records))
                    ]
                    pairs = zip(records, rows, strict=True)
                    known += [(after.columns[r], row) for r, row in pairs if r in after.columns]
                self._learn_all(after, known, [value] * len(known), counted=False)
            after.books.counts[CLOSED] += places - len(known)
            self._roster = after
        if self._log is not None:
            told = [
                place_id(id, n) if isinstance(decision[0], tuple) else id
                for id, decision in zip(ids, old, strict=True)
                for n in range(len(arms_of(decision)))
            ]
            self._log.expired(told, value, self._time())
        return len(old)

    def update(self, context: Context, arm: Arm, reward: float, features: Any = None) -> None:
        """Learn from an observation that was no decision of this agent.

        For `Linear` the context is the feature vector of the arm; for `HybridLinear` that of the
        arm are its `features`.
        """
        given = self._read_one(context, arm, features)
        value = self.check_reward(reward)
        self._check_entry()
        with self._lock:
            roster, x = self._widened(self._current(), given)
            roster, column = self._column_of(roster, arm)
            self._doing = None
            roster = self._learned(roster, column, x, value, counted=True)
            roster.books.counts[PENDING] = NOTHING

    def _read_one(self, context: Context, arm: Arm, features: Any) -> Any:
        """The context of one arm as numbers."""
        if not self._coming:
            record_of(arm, self._records)  # before the reader learns anything from the context
        if isinstance(self._reader, HybridReader):
            return self._reader.read(context, [features])
        if features is not None:
            raise TypeError(f"{self._reader.model_name} knows no features of arms beside a context")
        return self._reader.vector(context).tobytes()

    def _column_of(self, roster: Roster, arm: Arm) -> tuple[Roster, int]:
        """The column of an arm, which may have come with this call."""
        if not self._coming:
            return roster, roster.columns[record_of(arm, self._records)]
        roster, columns = self._all_remembered(roster, [arm])
        return roster, int(columns[0])

    def _widened(self, roster: Roster, given: Any) -> tuple[Roster, bytes]:
        """A context that was read and a roster of the same width."""
        if isinstance(self._reader, HybridReader):
            return self._fitted_arms(roster, self._reader, given)
        return self._fitted(roster, given) if self._free else (roster, given)

    def fit(
        self, history: Any, *, arm: str = "arm", reward: str = "reward",
        features: Sequence[str] = (), cluster: Any = None,
    ) -> None:  # fmt: skip
        """Learn from logged data, in its order. Everything is checked before anything is learned.

        Parameters
        ----------
        history
            A table (pandas, polars, or a mapping of columns) with the columns `arm`, `reward` and
            one per feature; or three arrays: contexts, arms, rewards. Contexts are as in `update`.
            Or the path of a Parquet file, or of a folder of them, which are read in pieces, in the
            order of their names; arms and rewards of all are checked first.
        arm, reward
            Names of the columns.
        features
            For `HybridLinear`: the columns that are features of the arm, not of the context.
        cluster
            With a path: the address of a Dask scheduler, or a client. Its workers, which must see
            the same files, learn one file each, and what they learned is merged; the agent must not
            be used meanwhile. For models that can be merged.
        """
        if isinstance(history, str | os.PathLike):
            self._fit_files(history, {"arm": arm, "reward": reward, "features": features}, cluster)
            return
        if cluster is not None:
            raise TypeError("a cluster reads files; give the path of a folder of Parquet files")
        if isinstance(self._reader, HybridReader):
            self._fit_arms(history, arm, reward, features)
            return
        if features:
            raise TypeError(f"{self._reader.model_name} knows no features of arms beside a context")
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

    def _fit_files(
        self, path: str | os.PathLike[str], settings: dict[str, Any], cluster: Any
    ) -> None:
        """`fit` on Parquet files."""
        fleet.check_files(self, path, settings)
        if cluster is None:
            for table in fleet.pieces(path):
                self.fit(table, **settings)
            return
        merged = fleet.fitted_on_cluster(self, path, settings, cluster)
        self._check_entry()
        with self._lock:
            self._reader, self._records = merged._reader, merged._records
            self._roster, self._settled = merged._roster, True

    def _fit_arms(self, history: Any, arm: str, reward: str, features: Sequence[str]) -> None:
        """`fit` for arms with features: a table, or contexts, arms, features and rewards."""
        reader = self._reader
        assert isinstance(reader, HybridReader)
        if isinstance(history, Mapping) or hasattr(history, "columns"):
            history = reader.history(history, arm, reward, features)
        if not isinstance(history, tuple | list) or len(history) != 4:
            raise ValueError("a history is a table, or four: contexts, arms, features, rewards")
        contexts, names, described, rewards = history
        names = list(names)
        contexts = [None] * len(names) if contexts is None else list(contexts)
        described = [None] * len(names) if described is None else list(described)
        values = [self.check_reward(value) for value in rewards]
        if not len(names) == len(values) == len(contexts) == len(described):
            raise ValueError("a history needs a context, an arm and a reward per observation")
        for name in dict.fromkeys(names):
            if self._coming:
                plain_name(name)
            else:
                record_of(name, self._records)
        self._check_entry()
        given = [reader.read(x, [z]) for x, z in zip(contexts, described, strict=True)]
        with self._lock:
            roster = self._current()
            if given:  # the last is as wide as any
                roster, _ = self._fitted_arms(roster, reader, given[-1])
            rows = [reader.laid_out(x, z, roster.model) for x, z in given]  # type: ignore[arg-type]
            roster = roster.copied()
            for piece in _pieces(names, max(self.most_arms // 2, 1) if self._coming else None):
                some = list(dict.fromkeys(names[piece]))
                if self._coming:
                    roster, places = self._all_remembered(roster, some)
                else:
                    places = roster.offer(records_of(some, self._records)).columns
                column = dict(zip(some, places.tolist(), strict=True))
                pairs = [
                    (column[name], row.tobytes())
                    for name, row in zip(names[piece], rows[piece], strict=True)
                ]
                self._learn_all(roster, pairs, values[piece], counted=True)
            self._roster = roster

    def _learn_all(
        self, roster: Roster, pairs: list[tuple[int, bytes]], values: list[float], counted: bool
    ) -> None:
        """Learn several rewards into a roster that is not in use yet."""
        columns = np.array([column for column, _ in pairs], dtype=np.int64)
        rewards = np.array(values, dtype=np.float64)
        if not runs_compiled(roster.model):
            for (column, x), value in zip(pairs, values, strict=True):
                context = self._unpacked(roster, x, np.array([column]))
                roster.model.update(roster.state, context, column, value)
        elif self._per_arm:
            rows = flushed(np.frombuffer(b"".join(x for _, x in pairs))).reshape(len(pairs), -1)
            room = np.zeros(roster.model.context_shape(roster.books.chosen.size))
            learn_rows(roster.model, roster.state, room, rows, columns, rewards)
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

    def _unpacked(self, roster: Roster, context: bytes, columns: Integers) -> Floats:
        """A context of the model, at these columns if every arm has a row of it."""
        room = np.zeros(roster.model.context_shape(roster.books.chosen.size) or (0,))
        unpacked: Floats = laid_out(flushed(np.frombuffer(context)), room, columns)
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
            for decision in roster.decisions().values():
                for record in arms_of(decision):
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

    # Copies

    def reseed(self, seed: int | None = None) -> None:
        """Draw differently from now on: for a copy, so that two agents do not explore in step.

        Parameters
        ----------
        seed
            A whole number of at least 0; None: arbitrary.
        """
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        if not isinstance(entropy, int | np.integer) or entropy < 0:
            raise ValueError(f"seed must be a whole number of at least 0, but it is {seed!r}")
        self._check_entry()
        with self._lock:
            roster = self._current().copied()
            rng = stream(int(entropy), 1, POLICY)
            roster.books.checksum[0] ^= np.uint64(rng.bit_generator.random_raw())
            self._rng, self._roster = rng, roster

    def __copy__(self) -> "Agent":
        """Another agent that makes the same decisions, until one of them is reseeded; no log."""
        with self._lock:
            values, arrays = snapshot.taken(self)
        given = self.model, self.policy, self._reader.transformer, self._clock
        return snapshot.restored(type(self), "the copy", values, arrays, *given)

    def __deepcopy__(self, memo: Any) -> "Agent":
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            values, arrays = snapshot.taken(self)
        given = self.model, self.policy, self._reader.transformer, self._clock
        return snapshot.restored, (type(self), "the pickle", values, arrays, *given)


def _reader_of(
    model: Model, names: tuple[str, ...] | None, transformer: Any, streaming: bool,
    categories: Sequence[str], free: bool,
) -> Reader:  # fmt: skip
    """What reads the contexts of an agent, and the features of its arms."""
    if isinstance(model, HybridLinear):
        if transformer is not None:
            raise ValueError("HybridLinear reads contexts and arms itself; leave transformer away")
        return free_reader(model, categories) if free else HybridReader(model, None)
    if free:
        return FreeReader(model, categories)
    return Reader(model, names, transformer, streaming)


def _pieces(names: list[Arm], most: int | None) -> Iterator[slice]:
    """Parts of a history with at most so many different arms each; None for all of it at once."""
    first, seen = 0, set[Arm]()
    for i, name in enumerate(names):
        if most is not None and len(seen) == most and name not in seen:
            yield slice(first, i)
            first, seen = i, set()
        seen.add(name)
    yield slice(first, len(names))


# How the rewards of several places are given.
_MANY = (list, tuple, np.ndarray, Mapping)


def _told(context: Context, arms: Any) -> Context:
    """What a log keeps of a decision's context: with the features of the arms, if they have any."""
    return {"context": context, "arms": arms} if isinstance(arms, Mapping) else context


def _opened(log: Any) -> Any:
    """The decision log at a path, or that calls a function."""
    if log is None:
        return None
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
