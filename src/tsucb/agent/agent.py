"""The agent: chooses arms, learns from late rewards, saves and loads itself.

Interrupts. A signal handler may raise in the middle of any call, as Ctrl-C does; the next call must
find everything done, or nothing. Python runs handlers between two instructions of its own, never
inside compiled code. So an agent changes by

1. one call of compiled code, which counts a decision and opens it, or learns a reward and closes
   its decision (several rewards are queued by one call, and what is left of the queue is learned
   first thing in the next), or
2. one assignment: `learner.known`, or what a reader has learned, is made aside and then replaced.

Whatever can be refused is refused before the first of them. Where a call makes several changes, it
is right after each: a context may be read, or an arm known, without the decision that needed it.
"""

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tsucb.agent import merging, snapshot, storage
from tsucb.agent.batch import DecisionBatch, decide_many
from tsucb.agent.decision import ArmEstimates, Decision, Ranking, place_id
from tsucb.agent.decision_log import DecisionLog
from tsucb.agent.knowledge import Knowledge, Offer, known_name, plain_name
from tsucb.agent.learner import Learner
from tsucb.agent.machine import (
    BY_ID,
    CLOSED,
    DECISIONS,
    NO_ROOM,
    NOT_FINITE,
    NOT_OPEN,
    OBSERVED,
)
from tsucb.agent.open_decisions import (
    ROWS,
    SINGLE,
    OpenDecisions,
    UnknownDecision,
    decision_id,
    leading_number,
    open_rows,
    same_key,
)
from tsucb.checks import whole_number
from tsucb.contexts.readers import NOBODY, Arm, Context, laid_out_for, narrow_row, one_by_one
from tsucb.contexts.values import kind_of, shown
from tsucb.models.forgetting import Forgetting
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.exploring import Exploring

if TYPE_CHECKING:
    import pandas as pd

_ARRAY, _FLOAT = np.ndarray, np.dtype(np.float64)
_SEVERAL = (list, tuple, np.ndarray, Mapping)  # how the rewards of several places are given


class Agent:
    """Chooses arms and learns from their rewards, in a process that runs for a long time.

    All methods may be called from many threads. One lock guards everything an agent knows; it is
    held while a decision is computed or a reward learned, not while a context is converted, code is
    compiled or a file is written. An exception from outside, such as Ctrl-C, finds every call done
    or not done; only what a context was read as, an arm that came with it, and what was drawn at
    random stay. A call that raises an error of its own has changed nothing.

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
        `HybridLinear` for arms that come with the decisions; any of `tsucb.policies`, `TSUCB(1)`
        by default.
    seed
        Changes everything random; the same seed and calls give the same decisions. None: arbitrary.
    exploration
        ε: this share of decisions plays an arm at random, whatever the policy says (see
        `tsucb.Exploring`). Then `decision.probabilities` is known exactly, and the log can answer
        what other agents would have earned. 0.02 to 0.05 costs little.
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
        The most decisions that wait for a reward; beyond it the oldest are dropped.
    most_arms
        Of an agent whose arms come with the decisions: this many have a memory of their own. Beyond
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
        learner = Learner(
            arms, features, model=model, policy=policy, seed=seed, exploration=exploration,
            forgetting=forgetting, transformer=transformer, streaming=streaming,
            categories=categories, most_arms=most_arms, keep_beliefs=keep_beliefs,
        )  # fmt: skip
        self._set(learner, whole_number("max_open", max_open, least=1), _opened_log(log), clock)

    def _set(self, learner: Learner, max_open: int, log: Any, clock: Callable[[], float]) -> None:
        self._learner, self._log, self._clock = learner, log, clock
        self._open = OpenDecisions(learner, max_open)
        self._guard = Guard()
        _AGENTS.add(self)

    # What it knows

    def __repr__(self) -> str:
        policy = getattr(self.policy, "name", type(self.policy).__name__)
        count = len(self.arms)
        size = f"{count:,} arm" + "s" * (count != 1)
        return f"<Agent: {size}, {type(self.model).__name__}, {policy}>"

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms' names, in the order they were added."""
        with self._guard.lock:
            return self._learner.arms

    @property
    def model(self) -> Model:
        """What turns rewards into beliefs."""
        return self._learner.model

    @property
    def policy(self) -> Any:
        """What chooses arms, with its floor."""
        return self._learner.policy

    @property
    def max_open(self) -> int:
        """The most decisions that wait for a reward."""
        return self._open.limit

    @property
    def most_arms(self) -> int:
        """The most arms that have a memory of their own, where they come with the decisions."""
        return self._learner.most_arms

    @property
    def keep_beliefs(self) -> bool:
        """Whether decisions keep the belief that they were made from."""
        return self._learner.keep_beliefs

    @property
    def forgetting(self) -> float:
        """γ; 1 for a model that never forgets."""
        model = self.model
        return model.gamma if isinstance(model, Forgetting) else 1.0

    @property
    def exploration(self) -> float:
        """ε, the share of decisions that are made at random; 0 without a floor."""
        return self.policy.epsilon if isinstance(self.policy, Exploring) else 0.0

    @property
    def log(self) -> Any:
        """Where decisions and rewards are written, a `DecisionLog`; None without one."""
        return self._log

    @property
    def open_decisions(self) -> int:
        """How many decisions wait for a reward; never more than `max_open`."""
        with self._guard.lock:
            return len(self._open)

    @property
    def dropped(self) -> int:
        """How many decisions were dropped because more than `max_open` waited."""
        with self._guard.lock:
            counts = self._learner.known.books.counts
            return int(counts[DECISIONS] - counts[CLOSED] - self._open.table.sizes[ROWS])

    def add_arm(self, name: Arm) -> None:
        """Add an arm, about which nothing but the prior is known.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red"], seed=0)
        >>> agent.add_arm("blue")
        >>> agent.arms
        ('red', 'blue')
        """
        with self._guard.alone():
            self._learner.add_arm(name)

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm. Rewards that still come for it are not learned from.

        An arm added later under the same name is a new one. Where arms come with the decisions, one
        that is offered or rewarded again is a new one, too.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.remove_arm("red")
        >>> agent.arms
        ('blue',)
        """
        with self._guard.alone():
            self._learner.remove_arm(name)

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; what was learned stays.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.follow(tsucb.Thompson())
        >>> agent.policy
        Thompson()
        """
        with self._guard.alone():
            self._learner.follow(policy)

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the features of a context that are not 0, with their values; learn nothing.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> decision = agent.choose({"age": 31, "city": "Rome"})
        >>> agent.describe({"age": 40, "city": "Rome"})
        [('age', 40.0), ('city=Rome', 1.0)]
        """
        return self._learner.describe(context)

    def arms_summary(self) -> "pd.DataFrame":
        """Return one row per arm: pulls, open decisions, mean reward.

        `coefficients` has what was learned.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> agent.update([1.0], "red", 2.0)
        >>> agent.arms_summary().loc["red"].tolist()
        [1.0, 0.0, 2.0]
        """
        with self._guard.alone():
            table = self._learner.arms_summary()
            known = self._learner.known
            columns = known.table.arms[open_rows(known.table)]
            waiting = np.bincount(columns[columns >= 0], minlength=known.books.chosen.size)
            table.insert(1, "open", waiting[list(known.arms.values())])
        return table

    def coefficients(self) -> "pd.DataFrame":
        """Return mean and standard deviation of every parameter of every arm.

        One row for each arm and feature; for K-armed models the one parameter is the arm's mean
        reward. Empty for networks.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=["age"], seed=0)
        >>> list(agent.coefficients().loc["red"].index)
        ['constant', 'age']
        """
        with self._guard.alone():
            return self._learner.coefficients()

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

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.choose({"age": 31}, ["red"]).arm
        'red'
        """
        learner, offered, reading = self._learner, NOBODY, None
        # The common case by itself: all arms, and a vector that needs no reading.
        shape = learner.reader.ready if arms is None else None
        if type(context) is _ARRAY and context.dtype is _FLOAT and context.shape == shape:
            x = context.tobytes()
        else:
            offered = learner.offered(arms)
            reading = learner.reader.read(context, offered)
            x = reading.x.tobytes()
            if len(x) != 8 * learner.known.width or learner.known.machine is None:
                learner.compile_ahead(reading)
        now = self._clock()
        if type(now) is not float or now - now != 0.0:
            now = check_time(now)
        with self._guard.alone():
            known = learner.known
            if known.machine is None:
                known = learner.prepared()
            offer = known.everyone
            if reading is not None and (arms is not None or not learner.fits(reading)):
                if not learner.reader.is_current(reading):
                    reading = learner.reader.read(context, offered)
                known, offer, values = learner.placed(reading, arms, offered)
                x = values.tobytes()
            if learner.coming or known.machine.is_plain:
                decision = self._choose_in_steps(known, offer, x, reading, now)
            else:
                decision = self._choose_at_once(known, offer, x, reading, now)
        if self._log is not None:
            self._log.decided(decision, _told(context, arms))
        return decision

    def _choose_at_once(
        self, known: Knowledge, offer: Offer, x: bytes, reading: Any, now: float
    ) -> Decision:
        """Choose an arm and open the decision in one call of compiled code."""
        learner, names = self._learner, offer.names
        if not names:
            raise ValueError("no arm is available; add one, or list at least one")
        before, learner.known = learner.known, known
        if reading is not None:
            learner.reader.accept(reading)
        try:
            machine = known.machine
            place, id, seen = machine.decide(x, offer.columns, now, True)
            if place < 0:
                if place == NOT_FINITE:
                    check_finite(np.frombuffer(x), known.model.largest)
                machine = learner.make_room(1, len(x) // 8 + 1)
                place, id, seen = machine.decide(x, offer.columns, now, True)
        except Exception:
            learner.known = before
            if reading is not None:
                learner.reader.reject(reading)
            raise
        return Decision(id, names[place], offer, learner.policy, seen, None, now)

    def _choose_in_steps(
        self, known: Knowledge, offer: Offer, x: bytes, reading: Any, now: float
    ) -> Decision:
        """Choose an arm, admit it if it is new, and open the decision."""
        learner = self._learner
        place, decision = learner.chosen(known, offer, x)
        learner.adopt(reading, known)
        if learner.coming:
            learner.use(learner.known, decision.arm, int(offer.columns[place]))
        decision.id = self._opened("open_one", 1, x, offer.columns, place, now)
        decision.time = now
        return decision

    def _opened(self, function: str, rows: int, x: bytes, *arguments: Any) -> str:
        """Open decisions by a function of the machine, making room for them; return their id."""
        machine = self._learner.known.machine
        number, checksum = getattr(machine, function)(x, *arguments)
        if number == NO_ROOM:
            machine = self._learner.make_room(rows, len(x) // 8 + rows)
            number, checksum = getattr(machine, function)(x, *arguments)
        return decision_id(number, checksum)

    def rank(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """Choose a list of k different arms, the one to be shown first first.

        The policy chooses among all arms, then among those that are left, and so on; see
        `tsucb.agent.Ranking`. `reward` takes a reward for every place.

        Parameters
        ----------
        context, arms
            As in `choose`.
        k
            The length of the list, at most the number of arms.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "green", "blue"], seed=0)
        >>> ranking = agent.rank({"age": 31}, 2)
        >>> agent.reward(ranking.id, [1.0, 0.0])
        True
        """
        length, learner = whole_number("k", k, least=1), self._learner
        offered = learner.offered(arms)
        reading = learner.reader.read(context, offered)
        now = self._now()
        with self._guard.alone():
            if not learner.reader.is_current(reading):
                reading = learner.reader.read(context, offered)
            known, offer, values = learner.placed(reading, arms, offered)
            x = values.tobytes()
            ranking = learner.ranked(known, offer, x, length)
            places = np.array(ranking.places, dtype=np.int64)
            learner.adopt(reading, known)
            if learner.coming:
                for name, place in zip(ranking.arms, ranking.places, strict=True):
                    learner.use(learner.known, name, int(offer.columns[place]))
            ranking.id = self._opened("open_list", length, x, offer.columns, places, now)
        ranking.time = now
        if self._log is not None:
            told = _told(context, arms)
            for place in range(length):
                self._log.decided(ranking.decision(place), told)
        return ranking

    def choose_many(self, contexts: Any, arms: Any = None) -> DecisionBatch:
        """Choose an arm for each of several contexts, all from what is known now.

        The same as choosing one by one, faster. The result is a sequence of decisions, and has
        arrays of all `arms`, `ids` and `probabilities`; its `table()` is a data frame.

        Parameters
        ----------
        contexts
            A matrix with one row each, a table, or a list of contexts.
        arms
            The arms available now, as in `choose`, the same for all.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> decisions = agent.choose_many([[1.0], [2.0]])
        >>> agent.reward_many(decisions, [0.5, 1.0])
        2
        """
        if not hasattr(contexts, "__len__"):
            if not isinstance(contexts, Iterable):
                kind = kind_of(contexts)
                raise TypeError(f"contexts are a matrix, a table or a list of them, not a {kind}")
            contexts = list(contexts)
        learner = self._learner
        offered = learner.offered(arms)
        reading = learner.reader.read_many(contexts, offered)
        now = self._now()
        with self._guard.alone():
            if not learner.reader.is_current(reading):
                reading = learner.reader.read_many(contexts, offered)
            known, offer, values = learner.placed(reading, arms, offered)
            matrix = np.ascontiguousarray(values.reshape(len(values), math.prod(values.shape[1:])))
            decisions, aside = decide_many(known, learner.policy, matrix, offer, now)
            learner.adopt(reading, known)
            self._open_many(decisions, aside, values, offer)
        if self._log is not None:
            told = [_told(x, arms) for x in one_by_one(contexts)]
            self._log.decided_many(decisions, told)
        return decisions

    def _open_many(self, decisions: DecisionBatch, aside: Any, values: Floats, offer: Any) -> None:
        """Open the decisions of a batch, as many as may be open."""
        learner, places = self._learner, decisions._places
        if learner.coming:
            for place in np.unique(places).tolist():
                learner.use(learner.known, offer.names[place], int(offer.columns[place]))
        rows = values[np.arange(len(values)), places] if learner.reader.per_arm else values
        count, rows = min(len(rows), self.max_open), np.ascontiguousarray(rows)
        given = *aside, decisions.checksums, rows, offer.columns, places, decisions.time
        if not learner.known.machine.open_many(*given):
            learner.make_room(count, rows.size + count).open_many(*given)

    def estimate(self, context: Context = None, arms: Any = None) -> ArmEstimates:
        """Return what the agent believes of every arm in this context, and would choose next.

        Means, radii and ratios, as the next `choose` would see them. Nothing is decided, opened,
        drawn or learned, not even which features there are.

        Parameters
        ----------
        context, arms
            As in `choose`.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> agent.estimate([1.0]).arms
        ('red', 'blue')
        """
        learner = self._learner
        offered = learner.offered(arms)
        reading = learner.reader.read(context, offered, learn=False)
        with self._guard.alone():
            drawn = learner.rng.bit_generator.state
            try:
                decision = learner.decide_read(reading, arms, offered)
            finally:
                learner.rng.bit_generator.state = drawn
        return ArmEstimates(**vars(decision.explain()))

    def propose(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm and remember nothing of it: no decision waits, no context was learned.

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
        learner, now = self._learner, self._now()
        offered = learner.offered(arms)
        reading = learner.reader.read(context, offered, learn=False)
        with self._guard.alone():
            decision = learner.decide_read(reading, arms, offered)
        decision.time = now
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

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.record("visit 7", {"age": 31}, "red")
        >>> agent.open_decisions
        1
        """
        if not isinstance(id, str):
            raise TypeError(f"an id is a string, not {shown(id)}")
        now, learner = self._now() if time is None else check_time(time), self._learner
        reading = self._read_one(context, arm, features)
        with self._guard.alone():
            learner.prepared()
            if self._open.find(id)[0] >= 0:
                raise ValueError(f"a decision {shown(id)} is open already; give another id")
            if not learner.reader.is_current(reading):
                reading = self._read_one(context, arm, features)
            known, column = learner.column_of(learner.widened(reading), arm)
            x = laid_out_for(reading, known.model).tobytes()
            learner.adopt(reading, known)
            made = self._opened("open_one", 1, x, np.array([column]), 0, now)
            self._open.name(id, made)

    def _read_one(self, context: Context, arm: Arm, features: Any) -> Any:
        """Read the context of one arm, which must be known or may come."""
        learner = self._learner
        if learner.coming:
            plain_name(arm)
        else:
            known_name(arm, learner.arms_by_name)
        return learner.reader.read_one(context, features)

    # Learning

    def reward(self, id: str, reward: Any) -> bool:
        """Learn the reward of a decision, in the context in which it was made, and close it.

        Rewards may come in any order. True if it was learned; False if its arm was removed in the
        meantime. A second reward, or one for an expired, dropped or unknown decision, raises
        `UnknownDecision` and changes nothing.

        A list that `rank` made takes the rewards of its places in their order: a sequence, with
        None for a place that nobody looked at, as are those it is too short for; or a mapping of
        arms to rewards. What was not looked at teaches nothing. True if anything was learned.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.reward(agent.choose({"age": 31}).id, 1.0)
        True
        """
        learner = self._learner
        # To ask whether a float is a mapping takes long.
        several = type(reward) is not float and isinstance(reward, _SEVERAL)
        value: Any = reward if several else learner.check_reward(reward)
        with self._guard.alone():
            machine = learner.known.machine or learner.prepared().machine
            plain = not (several or learner.coming or self._open.given or machine.learn is None)
            code = NOT_OPEN
            if plain and type(id) is str and id.isascii():  # the common case, in one call
                code = machine.learn(id.encode() + b"\n", 0, BY_ID, value)
                if code > 0:
                    learner.catch_up()
            learned = code >= 0
            if not learned:
                row, column, place = self._found(id)
                if place != SINGLE:
                    return self._reward_list(id, row, reward)
                if several:
                    raise TypeError(
                        f"decision {shown(id)} is of one arm; give one reward, not {shown(reward)}"
                    )
                if learner.coming:
                    column = self._returned(row, column)
                learned = column >= 0
                learner.known.machine.settle(np.array([row]), np.array([value]))
                learner.catch_up()
                self._open.given.pop(id, None)
        if self._log is not None:
            self._log.rewarded(id, value, self._now())
        return learned

    def _found(self, id: Any) -> tuple[int, int, int]:
        """Return row, column and place of an open decision; raise if there is none."""
        self._learner.prepared()
        found = self._open.find(id)
        if found[0] < 0:
            self._refuse(id)
        return found

    def _returned(self, row: int, column: int) -> int:
        """Return the column of a decision's arm, which is admitted again if it had left."""
        learner, known = self._learner, self._learner.known
        name = known.arm_name(column)
        if column >= 0:
            known.arms.move_to_end(name)
            return column
        learner.known, columns = learner.admitted(known, (name,))
        learner.prepared().machine.adopt(row, int(columns[0]))
        return int(columns[0])

    def _refuse(self, id: Any) -> NoReturn:
        """Raise an error for a decision that is not open."""
        if isinstance(id, Decision):
            raise TypeError(f"give the id of the decision, {id.id!r}, instead of the decision")
        made = self._learner.known.books.counts[DECISIONS]
        if isinstance(id, str) and 0 < leading_number(id) <= made:
            raise UnknownDecision(
                f"decision {shown(id)} is not open: it was rewarded, expired or dropped before, "
                "lost when an older file was loaded, or never made by this agent"
            )
        raise UnknownDecision(f"decision {shown(id)} was never made by this agent; check the id")

    def _reward_list(self, id: str, row: int, given: Any) -> bool:
        """Learn what the places of a list earned, and close it."""
        learner, known = self._learner, self._learner.known
        rows = same_key(known.table, row)
        names = [known.arm_name(int(column)) for column in known.table.arms[rows]]
        rewards = np.array(self._rewards_of(id, names, given))
        if learner.coming:
            self._return_all(rows)
        learned = (learner.known.table.arms[rows] >= 0) & ~np.isnan(rewards)
        learner.prepared().machine.settle(rows, rewards)
        learner.catch_up()
        if self._log is not None:
            now = self._now()
            for place, value in enumerate(rewards.tolist()):
                if not math.isnan(value):
                    self._log.rewarded(place_id(id, place), value, now)
        return bool(learned.any())

    def _return_all(self, rows: Integers) -> None:
        """Admit the arms of several decisions again, as far as they had left."""
        learner = self._learner
        known = learner.known
        before = known.table.arms[rows].tolist()
        names = tuple(dict.fromkeys(known.arm_name(column) for column in before))
        own = [known.arm_name(column) for column in before]
        known, columns = learner.admitted(known, names)
        learner.known = known
        machine, places = (
            learner.prepared().machine,
            dict(zip(names, columns.tolist(), strict=True)),
        )
        for row, name in zip(rows.tolist(), own, strict=True):
            if learner.known.table.arms[row] < 0:
                machine.adopt(row, places[name])

    def _rewards_of(self, id: str, names: list[Arm], given: Any) -> list[float]:
        """Return the reward of every place, NaN where nobody looked."""
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in names]
            if unknown:
                raise ValueError(
                    f"the list {shown(id)} has no arm {shown(unknown[0])}; it has {shown(names)}"
                )
            given = [given.get(name) for name in names]
        if not isinstance(given, _SEVERAL):
            raise TypeError(
                f"{shown(id)} is a list of {len(names)} arms; give a reward for every place, None "
                "for one that nobody looked at"
            )
        if len(given) > len(names):
            raise ValueError(
                f"the list {shown(id)} has {len(names)} places, but {len(given)} rewards"
            )
        check = self._learner.check_reward
        rewards = [math.nan if value is None else check(value) for value in given]
        return rewards + [math.nan] * (len(names) - len(rewards))

    def reward_many(self, ids: Sequence[str] | DecisionBatch, rewards: Any) -> int:
        """Learn the rewards of several decisions, in their order, and close them.

        All or none: an id that is not open, or twice among them, raises `UnknownDecision` and
        nothing changes. Returns how many were learned; those of removed arms are not.

        Parameters
        ----------
        ids
            Of the decisions, however they were made; or what `choose_many` returned.
        rewards
            One each.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> ids = [agent.choose([1.0]).id, agent.choose([2.0]).id]
        >>> agent.reward_many(ids, [0.5, 1.0])
        2
        """
        if isinstance(ids, str | bytes):
            raise TypeError(f"give a list of ids, not {shown(ids)}; reward takes one")
        learner, told = self._learner, ids if isinstance(ids, DecisionBatch) else list(ids)
        values = learner.check_rewards(rewards)
        if values.size != len(told):
            raise ValueError(f"{len(told)} ids and {values.size} rewards do not match")
        with self._guard.alone():
            learner.prepared()
            if isinstance(told, DecisionBatch):
                rows = self._open.rows_of(told.numbers, told.checksums)
            else:
                rows = self._open.find_many(told)
            self._check_rows(rows, told)
            if learner.coming and rows.size:
                self._return_all(rows)
            learned = int((learner.known.table.arms[rows] >= 0).sum())
            learner.prepared().machine.settle(rows, values)
            learner.catch_up()
        if self._log is not None:
            now = self._now()
            names = told.ids if isinstance(told, DecisionBatch) else told
            for id, value in zip(names, values.tolist(), strict=True):
                self._log.rewarded(id, value, now)
        return learned

    def _check_rows(self, rows: Integers, told: Any) -> None:
        """Raise unless rows are open decisions of one arm each, none of them twice."""
        names = told.ids if isinstance(told, DecisionBatch) else told
        if (rows < 0).any():
            self._refuse(names[int(np.argmax(rows < 0))])
        lists = self._open.table.places[rows] != SINGLE
        if lists.any():
            id = names[int(np.argmax(lists))]
            raise TypeError(f"{shown(id)} is a list; give its rewards to reward")
        if np.unique(rows).size < rows.size:
            raise UnknownDecision("a decision is twice among the ids; give each once")

    def close(self, id: str) -> None:
        """Close a decision without learning anything from it.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.close(agent.choose({"age": 31}).id)
        >>> agent.open_decisions
        0
        """
        with self._guard.alone():
            row = self._found(id)[0]
            self._learner.known.machine.close(same_key(self._open.table, row))
            self._open.given.pop(id, None)
        if self._log is not None:
            self._log.expired([id], None, self._now())

    def expire(self, older_than: float | timedelta, reward: float | None = None) -> int:
        """Close the decisions older than this many seconds, and return how many there were.

        Parameters
        ----------
        older_than
            Age in seconds, or a `timedelta`.
        reward
            What their arms are taken to have earned, such as 0 for "no click came"; None to learn
            nothing from them.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0, clock=lambda: 0.0)
        >>> decision = agent.choose({"age": 31})
        >>> agent.expire(3600, reward=0.0)
        0
        """
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if not isinstance(age, Real) or age != age:
            raise ValueError(f"older_than must be an age in seconds, not {shown(older_than)}")
        learner = self._learner
        value = None if reward is None else learner.check_reward(reward)
        before = self._now() - max(min(age, 1e300), -1e300)
        with self._guard.alone():
            table = learner.prepared().table
            rows = open_rows(table)
            rows = rows[table.times[rows] < before]
            if not rows.size:
                return 0
            ids, places = self._open.ids(rows), table.places[rows]
            if value is None:
                learner.known.machine.close(rows)
            else:
                learner.known.machine.settle(rows, np.full(rows.size, value))
                learner.catch_up()
        if self._log is not None:
            pairs = zip(ids, places.tolist(), strict=True)
            told = [id if place == SINGLE else place_id(id, place - 1) for id, place in pairs]
            self._log.expired(told, value, self._now())
        return int((places <= 1).sum())

    def update(self, context: Context, arm: Arm, reward: float, features: Any = None) -> None:
        """Learn from an observation that was no decision of this agent.

        For `Linear` the context is the feature vector of the arm; for `HybridLinear` that of the
        arm are its `features`.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.update({"age": 31}, "red", 1.0)
        """
        learner = self._learner
        value, reading = learner.check_reward(reward), self._read_one(context, arm, features)
        with self._guard.alone():
            if not learner.reader.is_current(reading):
                reading = self._read_one(context, arm, features)
            known, column = learner.column_of(learner.widened(reading), arm)
            learner.adopt(reading, known)
            learner.learn_row(column, narrow_row(reading), value, OBSERVED)

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
            For `HybridLinear` four: contexts, arms, features of the arms, rewards.
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

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.fit({"age": [31, 40], "arm": ["red", "blue"], "reward": [1.0, 0.0]})
        """
        if isinstance(history, str | os.PathLike):
            settings = {"arm": arm, "reward": reward, "features": features}
            self._fit_files(history, settings, cluster)
            return
        if cluster is not None:
            raise TypeError("a cluster reads files; give the path of a folder of Parquet files")
        learner = self._learner
        described = hasattr(learner.reader, "widths")
        if features and not described:
            raise TypeError(
                f"{learner.reader.model_name} knows no features of arms beside a context"
            )
        contexts, names, given, rewards = _history(learner, history, arm, reward, features)
        values = [learner.check_reward(value) for value in rewards]
        for name in dict.fromkeys(names):
            plain_name(name) if learner.coming else known_name(name, learner.arms_by_name)
        reading = learner.reader.read_history(contexts, given, len(names))
        if not len(names) == len(values) == len(reading.x):
            raise ValueError(
                f"{len(reading.x)} contexts, {len(names)} arms and {len(values)} rewards do not "
                "match; give one of each per observation"
            )
        with self._guard.alone():
            if not learner.reader.is_current(reading):
                reading = learner.reader.read_history(contexts, given, len(names))
            known = self._fitted(reading, names, np.array(values, dtype=np.float64))
            learner.adopt(reading, known)

    def _fitted(self, reading: Any, names: list[Arm], rewards: Floats) -> Knowledge:
        """Return what would be known after observations; nothing has changed."""
        learner = self._learner
        known = learner.widened(reading).changed()
        rows = laid_out_for(reading, known.model)
        rows = np.ascontiguousarray(rows.reshape(len(names), math.prod(rows.shape[1:])))
        most = max(learner.most_arms // 2, 1) if learner.coming else None
        for piece in _pieces(names, most):
            some = tuple(dict.fromkeys(map(plain_name, names[piece])))
            if learner.coming:
                known, places = learner.admitted(known, some)
            else:
                places = known.offer([known_name(name, known.arms) for name in some]).columns
            column = dict(zip(some, places.tolist(), strict=True))
            columns = np.array([column[plain_name(name)] for name in names[piece]], dtype=np.int64)
            known = known.learned(columns, rows[piece], rewards[piece], observed=True)
        return known

    def _fit_files(
        self, path: str | os.PathLike[str], settings: dict[str, Any], cluster: Any
    ) -> None:
        """Learn from Parquet files; see `fit`."""
        merging.check_files(self._learner, path, settings)
        if cluster is None:
            for table in merging.pieces(path):
                self.fit(table, **settings)
            return
        merged = merging.fitted_on_cluster(self, path, settings, cluster)
        with self._guard.alone():
            # The columns that this agent had keep their places in the merged one.
            self._learner.reader = merged._learner.reader
            self._learner.known = merged._learner.known

    # Files

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page about what the decision log holds, to look at in a browser.

        Reward over time, beside the floor's decisions as control; the share of every arm; how much
        is explored; whether the belief is calibrated; late and missing rewards; drift of contexts.

        >>> import tsucb
        >>> tsucb.Agent(["red", "blue"], seed=0).report("page.html")
        Traceback (most recent call last):
        ValueError: a report is made from the decision log; make the agent with log=…
        """
        from tsucb.logs.live import report

        if self._log is None or self._log.folder is None:
            raise ValueError("a report is made from the decision log; make the agent with log=…")
        report(self._log.folder, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file: settings, what was learned, open decisions, randomness.

        The file is there whole or not at all, whatever happens meanwhile; it may also be called
        from a signal handler. A transformer is not saved; `load` asks for it.

        >>> import tempfile, tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     agent.save(f"{folder}/agent.tsucb")
        ...     tsucb.Agent.load(f"{folder}/agent.tsucb").arms
        ('red', 'blue')
        """
        with self._guard.writing():  # so that an older state never takes the place of a newer one
            storage.write(path, *self._hold().parts())

    def to_bytes(self) -> bytes:
        """Return what `save` writes to a file, for applications that keep it elsewhere.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> tsucb.Agent.from_bytes(agent.to_bytes()).arms
        ('red', 'blue')
        """
        return self._hold().to_bytes()

    def _hold(self) -> snapshot.Held:
        """Return what is known now, to be written down without the lock."""
        with self._guard.lock:
            return snapshot.held(self._learner, self._open)

    @classmethod
    def from_bytes(cls, data: bytes, *, clock: Callable[[], float] = time.time) -> "Agent":
        """Return the agent that `to_bytes` was called on.

        >>> import tsucb
        >>> data = tsucb.Agent(["red", "blue"], seed=0).to_bytes()
        >>> tsucb.Agent.from_bytes(data).arms
        ('red', 'blue')
        """
        values, arrays = storage.unpacked(data)
        return cls._of(snapshot.restored("it", values, arrays), clock)

    @classmethod
    def _of(cls, restored: Any, clock: Callable[[], float]) -> "Agent":
        """Return an agent of what a file holds."""
        learner, given, max_open = restored
        agent = cls.__new__(cls)
        agent._set(learner, max_open, None, clock)
        agent._open.given = given
        return agent

    def digest(self) -> str:
        """Return a hash of everything learned and open, not of the random stream.

        Agents that recorded the same decisions and learned the same rewards, in the same order and
        on the same kind of machine, have the same.

        >>> import tsucb
        >>> one, two = (tsucb.Agent(["red", "blue"], seed=seed) for seed in (0, 1))
        >>> one.digest() == two.digest()
        True
        """
        return self._hold().digest()

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
        """Return the agent that a file holds; it decides as the saved one would have.

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

        >>> import tempfile, tsucb
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tsucb.Agent(["red", "blue"], seed=0).save(f"{folder}/agent.tsucb")
        ...     tsucb.Agent.load(f"{folder}/agent.tsucb")
        <Agent: 2 arms, AdaptiveLinear, TS-UCB(1)>
        """
        values, arrays = storage.read(path)
        restored = snapshot.restored(path, values, arrays, model, policy, transformer)
        agent = cls._of(restored, clock)
        agent._log = _opened_log(log)
        return agent

    def reseed(self, seed: int | None = None, *, ids: bool = True) -> None:
        """Draw differently from now on: for a copy, so that two agents do not explore in step.

        Parameters
        ----------
        seed
            A whole number of at least 0; None: arbitrary.
        ids
            Whether decisions get other ids, too; not needed where these come from elsewhere.

        >>> import copy, tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> other = copy.copy(agent)
        >>> other.reseed(1)
        """
        with self._guard.alone():
            self._learner.reseed(seed)
            if ids:
                word = self._learner.rng.bit_generator.random_raw()
                self._learner.known.books.checksum[0] ^= np.uint64(word)

    def __copy__(self) -> "Agent":
        """Return another agent that decides alike, until one of them is reseeded; no log."""
        return _remade(*self.__reduce__()[1])

    def __deepcopy__(self, memo: Any) -> "Agent":
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        learner = self._learner
        given = learner.model, learner.policy, learner.reader.transformer
        return _remade, (type(self), *self._hold().parts(), given, self._clock)

    def _now(self) -> float:
        return check_time(self._clock())


def _remade(
    cls: type[Agent], values: dict[str, Any], arrays: list[Any], given: tuple[Any, Any, Any],
    clock: Callable[[], float],
) -> Agent:  # fmt: skip
    """Return a copy of an agent."""
    return cls._of(snapshot.restored("the copy", values, arrays, *given), clock)


def check_time(time: Any) -> float:
    """Return a time in seconds as a float; raise ValueError otherwise."""
    try:
        seconds = float(time) if isinstance(time, Real) else math.nan
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError(f"a time must be a finite number of seconds, but it is {shown(time)}")
    return seconds


def _opened_log(log: Any) -> Any:
    """Return the decision log at a path, or the one that calls a function."""
    if log is None:
        return None
    return log if isinstance(log, DecisionLog) else DecisionLog(log)


def _told(context: Context, arms: Any) -> Context:
    """Return what a log keeps of a context: with the features of the arms, if they have any."""
    return {"context": context, "arms": arms} if isinstance(arms, Mapping) else context


def _history(
    learner: Learner, history: Any, arm: str, reward: str, features: Sequence[str]
) -> tuple[Any, list[Arm], Any, Any]:
    """Return contexts, arms, features of arms and rewards of a history."""
    described = hasattr(learner.reader, "widths")
    if isinstance(history, Mapping) or hasattr(history, "columns"):
        contexts, arms, given, rewards = learner.reader.columns(history, arm, reward, features)
    elif isinstance(history, tuple | list) and len(history) == 3 + described:
        contexts, arms, *given, rewards = history
        given = given[0] if given else None
    elif described:
        raise ValueError("a history is a table, or four: contexts, arms, features, rewards")
    else:
        raise ValueError("a history is a table, or three arrays: contexts, arms, rewards")
    names = np.asarray(arms).tolist() if isinstance(arms, np.ndarray) else list(arms)
    return contexts, names, given, rewards


def _pieces(names: list[Arm], most: int | None) -> Iterator[slice]:
    """Yield parts of a history with at most this many different arms each; None for one part."""
    first, seen = 0, set[Arm]()
    for i, name in enumerate(names):
        if most is not None and len(seen) == most and name not in seen:
            yield slice(first, i)
            first, seen = i, set()
        seen.add(name)
    yield slice(first, len(names))


class Guard:
    """The lock of an agent, and that of whoever writes it to a file.

    A signal handler runs in the thread that it interrupts, which may have the lock: it may save the
    agent, which is right at every moment, but not call anything that changes it.
    """

    __slots__ = ("_files", "lock")

    def __init__(self) -> None:
        self.lock, self._files = threading.RLock(), threading.RLock()

    def alone(self) -> Any:
        """Return the lock, for a `with` statement; raise if this thread has it already."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise RuntimeError(
                "the agent was called from a signal handler in the middle of another call; only "
                "save can be"
            )
        return self.lock

    def writing(self) -> Any:
        """Return the lock for writing files; of a handler in the middle of a call, that it has."""
        # Whoever writes may wait for that call.
        return self.lock if self.lock._is_owned() else self._files  # type: ignore[attr-defined]


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
        _held.append(agent._guard.lock)
        agent._guard.lock.acquire()


def _after_fork_in_parent() -> None:
    while _held:
        _release(_held.pop())
    _release(_forking)


def _release(lock: Any) -> None:
    with contextlib.suppress(RuntimeError):  # it was not taken
        lock.release()


def _after_fork_in_child() -> None:
    """Go on from the same state with draws and ids of the child's own."""
    agents = list(_AGENTS)
    _after_fork_in_parent()
    for agent in agents:
        agent._guard = Guard()
        agent._learner.reseed(None)
        word = np.random.SeedSequence().generate_state(1, np.uint64)[0]
        agent._learner.known.books.checksum[0] ^= word


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
