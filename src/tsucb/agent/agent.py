"""The agent: chooses arms, learns from late rewards, saves and loads itself.

The module `guard` says how it stays consistent if a signal handler raises in the middle of a call.
"""

import copy
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice, starmap
from numbers import Real
from operator import call
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent import history as histories
from tsucb.agent import snapshot, storage
from tsucb.agent.batch import DecisionBatch, decide_many
from tsucb.agent.decision import ArmEstimates, Decision, Ranking, ids_in_log, share_of_floor
from tsucb.agent.decision_log import DecisionLog
from tsucb.agent.guard import AGENTS, Guard, at_once
from tsucb.agent.knowledge import plain_name
from tsucb.agent.learner import Learner
from tsucb.agent.machine import CLOSED, COUNTED, DECISIONS, NOT_FINITE, OBSERVED, decision_id
from tsucb.agent.open_decisions import OpenBatch, OpenDecisions, arms_and_rows, split_rows
from tsucb.checks import shown, whole_number
from tsucb.contexts.readers import NOTHING_READ, Arm, Context
from tsucb.contexts.values import kind_of, rows_of
from tsucb.display import html_table
from tsucb.models.change import NoticedChange
from tsucb.models.forgetting import Forgetting
from tsucb.models.model import Model, check_finite

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 20  # arms in a notebook
_ARRAY, _FLOAT = np.ndarray, np.dtype(np.float64)
_SEVERAL = (list, tuple, np.ndarray, Mapping)  # types of the rewards of several places


class Agent:
    """Chooses arms and learns from their rewards, in a process that runs for a long time.

    All methods may be called from many threads. One lock guards everything an agent knows; it is
    held while a decision is computed or a reward learned, not while a context is converted, code is
    compiled or a file is written. A call that raises an error has changed nothing. A call that is
    interrupted from outside, as by Ctrl-C, is done or not done; only the columns of its context, an
    arm that came with it, random draws and the count of a decision that was not returned may stay.

    Parameters
    ----------
    arms
        Names of the arms: strings or integers; or a mapping of names to features, if these stay the
        same. By default arms come with the decisions, new ones too, with features or without: see
        `choose`.
    features
        The number of features of a context, or their names if contexts are mappings or tables. By
        default the agent reads contexts in any form: dictionaries, rows of tables or lists of
        numbers, with strings and missing values; or none at all. Not needed with a `model` that
        knows its number of features.
    model, policy
        Any of `tsucb.models`, by default `AdaptiveCurves`, which has nothing to set, or
        `HybridCurves` for arms that come with the decisions; any of `tsucb.policies`, `TSUCB(1)`
        by default. A policy may be given by its name: "TS", "TS-UCB(100)".
    seed
        Of all randomness: the same seed and calls give the same decisions. None: arbitrary.
    exploration
        ε: this share of decisions plays an arm at random, whatever the policy says (see
        `tsucb.Exploring`). Then `decision.probabilities` is known exactly, and the log can answer
        what other agents would have earned. 0.02 to 0.05 costs little.
    forgetting
        γ: with every reward, all earlier ones count γ times as much as before (see
        `tsucb.Forgetting`). 1 never forgets; 0.999 remembers about the last 1,000 rewards.
    transformer
        Turns contexts into vectors: anything with scikit-learn's `transform`, which is given a list
        of contexts.
    streaming
        Let the transformer also learn from every context by its `partial_fit`, before using it.
    categories
        Features whose numbers are codes, such as postcodes, if the agent reads contexts in any
        form.
    max_open
        The most decisions that wait for a reward; beyond it the oldest are dropped.
    most_arms
        The most arms with a memory of their own, if arms come with the decisions. Beyond it the arm
        that was longest neither chosen nor rewarded is forgotten; what it taught of the others
        stays.
    keep_beliefs
        Keep the belief of every decision with it, so that `decision.probability` is also known
        without a floor. Slower.
    log
        Where every decision and every reward is written: a folder for Parquet files, which
        `tsucb evaluate` and `report` read, or a function that is called with a dictionary. See
        `tsucb.agent.DecisionLog`. It is not saved with the agent; give it to `load` again.
    clock
        A function that returns the time in seconds, for `expire`.

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

    # Many parameters: this is the public entry, with a keyword for every setting.
    def __init__(
        self,
        arms: Sequence[Arm] | Mapping[Arm, Any] | None = None,
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
        self._set(learner, whole_number("max_open", max_open, least=1), log, clock)

    def _set(self, learner: Learner, max_open: int, log: Any, clock: Callable[[], float]) -> None:
        if not callable(clock):
            raise TypeError(f"clock is a function that returns seconds, not {shown(clock)}")
        opened = log if log is None or isinstance(log, DecisionLog) else DecisionLog(log)
        self._learner, self._log, self._clock = learner, opened, clock
        self._open, self._guard = OpenDecisions(learner, max_open), Guard()
        AGENTS.add(self)

    # Arms, settings, and what was learned

    def __repr__(self) -> str:
        policy = getattr(self.policy, "name", type(self.policy).__name__)
        count = len(self.arms)
        size = f"{count:,} arm" + "s" * (count != 1)
        return f"<Agent: {size}, {type(self.model).__name__}, {policy}>"

    def _repr_html_(self) -> str:
        """Return what the first arms have earned as a table for a notebook."""
        with self._guard.alone():
            known = self._learner.prepared()
            rows = [
                [str(name), f"{known.books.pulls[i]:,}",
                 f"{known.books.totals[i] / max(known.books.pulls[i], 1):.4g}"]
                for name, i in islice(known.arms.items(), MOST_SHOWN)
            ]  # fmt: skip
        return html_table(["arm", "pulls", "mean reward"], rows, repr(self).strip("<>"))

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms' names, in the order they were added."""
        with self._guard.lock:
            return self._learner.arms

    @property
    def model(self) -> Model:
        """The model, as wide as the contexts so far."""
        return self._learner.model

    @property
    def policy(self) -> Any:
        """The policy, with its floor."""
        return self._learner.policy

    @property
    def max_open(self) -> int:
        """The most decisions that wait for a reward."""
        return self._open.limit

    @property
    def most_arms(self) -> int:
        """The most arms with a memory of their own, if arms come with the decisions."""
        return self._learner.most_arms

    @property
    def keep_beliefs(self) -> bool:
        """Whether decisions keep their belief."""
        return self._learner.keep_beliefs

    @property
    def forgetting(self) -> float:
        """γ; 1 for a model that never forgets."""
        model = self.model
        return model.gamma if isinstance(model, Forgetting) else 1.0

    @property
    def exploration(self) -> float:
        """ε, the share of decisions that are made at random; 0 without a floor."""
        return share_of_floor(self.policy)

    @property
    def log(self) -> Any:
        """The `DecisionLog` of decisions and rewards, or None."""
        return self._log

    @property
    def open_decisions(self) -> int:
        """The number of decisions that wait for a reward, at most `max_open`."""
        with self._guard.alone():
            return self._open.count()

    @property
    def dropped(self) -> int:
        """The number of decisions that were dropped because more than `max_open` waited."""
        with self._guard.alone():
            counts = self._learner.prepared().books.counts
            return int(counts[DECISIONS] - counts[CLOSED]) - self._open.places()

    def add_arm(self, name: Arm, features: Any = None) -> None:
        """Add an arm, which is known by the prior alone.

        `features` are the features of the arm, if the agent was made with features of its arms.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red"], seed=0)
        >>> agent.add_arm("blue")
        >>> agent.arms
        ('red', 'blue')
        """
        with self._guard.alone():
            self._learner.add_arm(name, features)

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm. Later rewards for it are not learned.

        An arm that is added later under the same name is a new one. So is one that is offered or
        rewarded again, where arms come with the decisions.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.remove_arm("red")
        >>> agent.arms
        ('blue',)
        """
        with self._guard.alone():
            self._learner.remove_arm(name)

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; the agent forgets nothing.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.follow(tsucb.Thompson())
        >>> agent.policy
        Thompson()
        """
        with self._guard.alone():
            self._learner.follow(policy)

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the names and values of a context's features that are not 0; learn nothing.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> decision = agent.choose({"age": 31, "city": "Rome"})
        >>> agent.describe({"age": 40, "city": "Rome"})
        [('age', 40.0), ('city=Rome', 1.0)]
        """
        return self._learner.reader.describe(context)

    def arms_summary(self) -> "pd.DataFrame":
        """Return a data frame with pulls, open decisions and mean reward of every arm.

        `coefficients` returns what was learned.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> agent.update([1.0], "red", 2.0)
        >>> agent.arms_summary().loc["red"].tolist()
        [1.0, 0.0, 2.0]
        """
        with self._guard.alone():
            known = self._learner.prepared()
            self._open.unfold()
            table, waiting = self._learner.arms_summary(), dict.fromkeys(known.arms, 0)
            for decision in self._open.values():
                for name in arms_and_rows(decision)[0]:
                    if known.is_current(name, decision[0]):
                        waiting[name] += 1
        table.insert(1, "open", list(waiting.values()))
        return table

    def changes(self) -> list[NoticedChange]:
        """Return the last changes of rewards that the model noticed, the oldest first.

        Each has the number of rewards before it was noticed, the arm whose rewards had changed,
        None for all arms, and the weight of earlier rewards since then.

        >>> import numpy as np, tsucb
        >>> agent, noise = tsucb.Agent(["red"], seed=0), np.random.default_rng(0)
        >>> for n in range(600):
        ...     agent.update(None, "red", (5.0 if n < 400 else 0.0) + noise.normal())
        >>> print(*agent.changes())
        after 426 rewards: those of all arms had changed; what was known before counts 0.47 %
        """
        with self._guard.alone():
            return list(self._learner.prepared().noticed)

    def coefficients(self) -> "pd.DataFrame":
        """Return a data frame with mean and standard deviation of every parameter of every arm.

        It has a row for each arm and feature; the only parameter of an arm of a K-armed model is
        its mean reward. It is empty for networks.

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
            What is known now: a dictionary of features, a vector, or what the transformer takes.
            For `Linear`, the arms' feature vectors: a matrix with one row per available arm, or a
            mapping of arms to vectors. None for K-armed models.
        arms
            The arms available now, all by default: a list of names; or, for models with features
            per arm, a mapping of names to features: dictionaries or vectors. Where arms come with
            the decisions, they may be new.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.choose({"age": 31}, ["red"]).arm
        'red'
        """
        learner, open, question = self._learner, self._open, None
        # The common case first: all arms, a vector that needs no reading, and compiled code.
        shape = learner.reader.ready if arms is None and learner.known.ready else None
        if type(context) is _ARRAY and context.dtype is _FLOAT and context.shape == shape:
            x = context.tobytes()
        else:
            question = learner.ask(context, arms)
        now = self._clock()
        if type(now) is not float or now - now != 0.0:
            now = check_time(now)
        with self._guard.alone():
            if open.batches:
                open.unfold()
            if question is None:
                known = learner.known if learner.known.ready else learner.prepared()
                offer = known.everyone or known.all_arms()
            else:
                known, offer, values, reading = learner.resolve(question)
                x = values.tobytes()
            machine = known.machine
            place, number, checksum, seen = machine.decide(
                x, offer.columns, question is None, machine.long
            )
            if place == NOT_FINITE:
                check_finite(context, known.model.largest)
            arm = offer.names[place]
            if question is not None:
                learner.adopt(reading, known)
                column = offer.columns[place : place + 1]
                number, checksum = learner.count_used(known, [arm], column, x)
                if learner.reader.per_arm:
                    x = learner.rows_of(values[None], [place]).tobytes()
            id = f"{number}-{checksum:x}"
            decision = Decision(id, arm, offer, seen, machine.belief, now)
            if len(open) < open.limit:
                open[id] = number, now, arm, x
            else:
                open.add({id: (number, now, arm, x)})
        if self._log is not None:
            self._log.decided([decision], [_context_to_log(context, arms)])
        return decision

    def rank(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """Choose an ordered list of k different arms.

        The policy chooses the first among all arms, the second among those that are left, and so
        on; see `tsucb.agent.Ranking`. `reward` takes a reward for every place.

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
        question = learner.ask(context, arms, uses="decide_rows")
        now = self._now()
        with self._guard.alone():
            self._open.unfold()
            known, offer, values, reading = learner.resolve(question)
            x = values.tobytes()
            ranking = learner.ranked(known, offer, values, length)
            learner.adopt(reading, known)
            columns = offer.columns[list(ranking.places)]
            number, checksum = learner.count_used(known, ranking.arms, columns, x)
            ranking.id, ranking.time = decision_id(number, checksum), now
            each = np.broadcast_to(values, (length, *values.shape))
            rows = tuple(split_rows(learner.rows_of(each, ranking.places)))
            self._open.add({ranking.id: (number, now, ranking.arms, rows)})
        if self._log is not None:
            decisions = map(ranking.decision, range(length))
            self._log.decided(decisions, [_context_to_log(context, arms)] * length)
        return ranking

    def choose_many(self, contexts: Any, arms: Any = None) -> DecisionBatch:
        """Choose an arm for each of several contexts, without learning in between.

        It makes the same choices as one `choose` for each, faster. The result is a sequence of
        decisions, and has arrays of all `arms`, `ids` and `probabilities`; its `table()` is a data
        frame.

        Parameters
        ----------
        contexts
            A matrix with a row per context, a table, or a list of contexts.
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
                raise TypeError(f"contexts are a matrix, a table or a list of them, not {kind}")
            contexts = list(contexts)
        learner = self._learner
        question = learner.ask(contexts, arms, many=True)
        now = self._now()
        with self._guard.alone():
            known, offer, values, reading = learner.resolve(question)
            decisions, counts = decide_many(known, values, offer, now, self._log is not None)
            learner.adopt(reading, known)
            batch = OpenBatch(
                decisions.numbers, decisions.checksums, now, offer.names, decisions.places,
                learner.rows_of(values, decisions.places),
            )  # fmt: skip
            if learner.coming:
                some = np.unique(decisions.places).tolist()
                learner.use(known, [offer.names[i] for i in some], offer.columns[some])
            known.machine.take_counts(counts)
            self._open.add_batch(batch)
        if self._log is not None:
            self._log.decided(decisions, [_context_to_log(x, arms) for x in rows_of(contexts)])
        return decisions

    def estimate(self, context: Context = None, arms: Any = None) -> ArmEstimates:
        """Return what the agent believes of every arm in this context, and what it would choose.

        The result has the means, radii and ratios of the next `choose`. The agent does not change:
        nothing is opened, drawn or learned, not even new features.

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
        question = learner.ask(context, arms, learn=False)
        with self._guard.alone():
            drawn = learner.rng.bit_generator.state
            try:
                decision = learner.answer(question)
            finally:
                learner.rng.bit_generator.state = drawn
        return ArmEstimates(**vars(decision.explain()))

    def propose(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm without opening a decision or learning the context; its id is empty.

        For applications that can replay a log of their own: they propose, write the decision to the
        log, and then `record` it.

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
        question = learner.ask(context, arms, learn=False)
        with self._guard.alone():
            decision = learner.answer(question)
        decision.time = now
        return decision

    def record(
        self, id: str, context: Context, arm: Arm, features: Any = None, *,
        time: float | None = None,
    ) -> None:  # fmt: skip
        """Open a decision that was made elsewhere, under a given id.

        Parameters
        ----------
        id
            Any string that is not the id of an open decision.
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
        question = learner.ask_one(context, arm, features)
        with self._guard.alone():
            self._open.unfold()
            if id in self._open:
                raise ValueError(f"a decision {shown(id)} is open already; give another id")
            column, row = learner.accept_one(question, arm)
            number, _ = learner.known.machine.count(row, np.array([column]))
            self._open.add({id: (number, now, plain_name(arm), row)})

    # Learning

    def reward(self, id: str, reward: Any) -> bool:
        """Learn the reward of a decision, in the context in which it was made, and close it.

        Rewards may come in any order. Return True if it was learned, False if the arm was listed
        and has been removed since. A second reward, or one for an expired, dropped or unknown
        decision, raises `UnknownDecision` and changes nothing.

        A list that `rank` made takes the rewards of its places in their order: a sequence, with
        None for a place that nobody looked at, and perhaps shorter than the list; or a mapping of
        arms to rewards. Nothing is learned for a place without a reward. Return True if any reward
        was learned.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.reward(agent.choose({"age": 31}).id, 1.0)
        True
        """
        # Checking whether a float is a mapping takes long.
        several = type(reward) is not float and isinstance(reward, _SEVERAL)
        value: Any = reward if several else self._learner.check_reward(reward)
        learner, open = self._learner, self._open
        with self._guard.alone():
            known = learner.known if learner.known.ready else learner.prepared()
            if open.batches:
                open.unfold()
            decision: Any = (type(id) is str and open.get(id)) or open.find(id)
            number, _, arm, row = decision
            if type(arm) is tuple:
                value = self._rewards_of(id, arm, reward)
                learned = open.settle([id], value) > 0
            elif several:
                raise TypeError(
                    f"decision {shown(id)} is of one arm; give one reward, not {shown(reward)}"
                )
            elif known.is_current(arm, number) and known.machine.learns_at_once:
                if learner.coming:
                    known.arms.move_to_end(arm)
                machine, known.ready, learned = known.machine, False, True
                lesson = machine.learn, row, known.arms[arm], COUNTED, value, machine.long
                # `at_once`, written out as it is called most.
                due, _ = starmap(call, (lesson, (open.pop, id)))
                known.ready = not due
                if due:
                    learner.prepared()
            else:
                learned = open.settle([id], [value]) > 0
        if self._log is not None:
            ids = ids_in_log(id, arm)
            places = zip(ids, value if several else [value], strict=True)
            self._log.closed({id: x for id, x in places if not math.isnan(x)}, self._now())
        return learned

    def _rewards_of(self, id: str, names: tuple[Arm, ...], given: Any) -> list[float]:
        """Return the reward of every place of a list, NaN for a place without one."""
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

        All or none: an id that is not open, or given twice, raises `UnknownDecision` and nothing
        changes. Return how many were learned; those of removed arms are not.

        Parameters
        ----------
        ids
            The ids of any open decisions, or the result of `choose_many`.
        rewards
            A reward for each.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> ids = [agent.choose([1.0]).id, agent.choose([2.0]).id]
        >>> agent.reward_many(ids, [0.5, 1.0])
        2
        """
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise TypeError(f"give a list of ids, not {shown(ids)}; reward takes one id")
        batch, open = (ids if isinstance(ids, DecisionBatch) else None), self._open
        listed: Any = ids if batch is not None else list(ids)
        values = self._learner.check_rewards(rewards)
        if values.size != len(listed):
            raise ValueError(f"{len(listed)} ids and {values.size} rewards do not match")
        self._learner.compile_ahead(NOTHING_READ, "learn_rows")
        with self._guard.alone():
            whole = [each for each in open.batches if batch and each.numbers is batch.numbers]
            if whole:
                learned = open.settle_batch(whole[0], values)
            else:
                learned = open.settle_each(listed if batch is None else batch.ids, values)
        if self._log is not None:
            closed = listed if batch is None else batch.ids
            self._log.closed(dict(zip(closed, values.tolist(), strict=True)), self._now())
        return learned

    def close(self, id: str) -> None:
        """Close a decision without learning anything from it.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.close(agent.choose({"age": 31}).id)
        >>> agent.open_decisions
        0
        """
        with self._guard.alone():
            self._open.unfold()
            closed = {id: self._open.find(id)[2]}
            self._open.close(closed)
        self._log_expired(closed, None)

    def expire(self, older_than: float | timedelta, reward: float | None = None) -> int:
        """Close the decisions older than this many seconds, and return their number.

        Parameters
        ----------
        older_than
            The age in seconds, or a `timedelta`.
        reward
            The reward to learn for each of them, such as 0 for "no click came"; None to learn
            nothing.

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
            self._open.unfold()
            old = {id: each[2] for id, each in self._open.items() if each[1] < before}
            self._open.close(old, value)
        self._log_expired(old, value)
        return len(old)

    def _log_expired(self, closed: Mapping[str, Any], reward: float | None) -> None:
        """Write decisions, given by id and arm or arms, that were closed with this reward."""
        if self._log is not None and closed:
            ids = [each for id, arm in closed.items() for each in ids_in_log(id, arm)]
            self._log.closed(dict.fromkeys(ids, reward), self._now(), expired=True)

    def update(self, context: Context, arm: Arm, reward: float, features: Any = None) -> None:
        """Learn from an observation that was no decision of this agent.

        For `Linear` the context is the feature vector of the arm; for `HybridCurves` the arm has
        `features` beside the context.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.update({"age": 31}, "red", 1.0)
        """
        learner = self._learner
        value, question = learner.check_reward(reward), learner.ask_one(context, arm, features)
        with self._guard.alone():
            column, row = learner.accept_one(question, arm)
            learner.learn_row(column, row, value, OBSERVED)
            learner.prepared()

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
            For `HybridCurves` four: contexts, arms, features of the arms, rewards.
            Or the path of a Parquet file or of a folder of them, in the order of their names; they
            are read twice, in pieces: all of them are checked first.
        arm, reward
            Names of the columns.
        features
            For `HybridCurves`: the columns that are features of the arm, not of the context.
        cluster
            With a path: the address of a Dask scheduler, or a client. Its workers, which must see
            the same files, learn one file each, and the results are merged; the agent must not be
            used meanwhile. For models that can be merged.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> agent.fit({"age": [31, 40], "arm": ["red", "blue"], "reward": [1.0, 0.0]})
        """
        learner = self._learner
        columns: dict[str, Any] = {"arm": arm, "reward": reward, "features": features}
        if isinstance(history, str | os.PathLike):
            histories.check_files(learner, history, columns)
            if cluster is None:
                for _, table in histories.pieces(history):
                    self.fit(table, **columns)
                return
            merged = histories.fitted_on_cluster(self, history, columns, cluster)
            with self._guard.alone():
                # The columns that this agent had keep their places in the merged one.
                reader, known = merged._learner.reader, merged._learner.known
                at_once((setattr, learner, "reader", reader), (setattr, learner, "known", known))
            return
        if cluster is not None:
            raise TypeError("a cluster reads files; give the path of a folder of Parquet files")
        observations = histories.observations(learner, history, **columns)
        learner.compile_ahead(observations.question.reading, "learn_rows")
        with self._guard.alone():
            histories.fit(learner, observations)

    # Files

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page about the decision log, to look at in a browser.

        It shows reward over time, beside the floor's decisions as control; the share of every arm;
        how much is explored; whether the belief is calibrated; late and missing rewards; drift of
        contexts; changes of rewards that were noticed.

        >>> import tsucb
        >>> tsucb.Agent(["red", "blue"], seed=0).report("page.html")
        Traceback (most recent call last):
        ValueError: a report is made from a folder of the decision log; make the agent with log=…
        """
        from tsucb.logs.report import report

        if self._log is None or self._log.folder is None:
            raise ValueError(
                "a report is made from a folder of the decision log; make the agent with log=…"
            )
        report(self._log.folder, path, self.changes())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file: settings, what was learned, open decisions, random stream.

        Whatever happens, there is the whole new file or the old one. A signal handler may call
        this, too. A transformer is not saved: give it to `load` again.

        >>> import tempfile, tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     agent.save(f"{folder}/agent.tsucb")
        ...     tsucb.Agent.load(f"{folder}/agent.tsucb").arms
        ('red', 'blue')
        """
        with self._guard.writing():  # so that an older state never replaces a newer one
            storage.write(path, *self._hold().parts())

    def to_bytes(self) -> bytes:
        """Return the bytes that `save` writes to a file, for applications that keep them elsewhere.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> tsucb.Agent.from_bytes(agent.to_bytes()).arms
        ('red', 'blue')
        """
        return self._hold().to_bytes()

    def _hold(self) -> snapshot.Held:
        """Return everything that is known now; it can be written without the lock."""
        with self._guard.lock:
            return snapshot.held(self._learner, self._open)

    @classmethod
    def from_bytes(cls, data: bytes, *, clock: Callable[[], float] = time.time) -> "Agent":
        """Return the agent in the bytes that `to_bytes` returned.

        >>> import tsucb
        >>> data = tsucb.Agent(["red", "blue"], seed=0).to_bytes()
        >>> tsucb.Agent.from_bytes(data).arms
        ('red', 'blue')
        """
        return cls._restored("it", *storage.unpacked(data), clock=clock)

    @classmethod
    def _restored(
        cls, source: str | os.PathLike[str], values: dict[str, Any], arrays: list[Any],
        given: tuple[Any, Any, Any] = (None, None, None), clock: Callable[[], float] = time.time,
        log: Any = None,
    ) -> "Agent":  # fmt: skip
        """Return the agent in these values; `given` are model, policy and transformer, or None."""
        learner, open, max_open = snapshot.restored(source, values, arrays, *given)
        agent = cls.__new__(cls)
        agent._set(learner, max_open, log, clock)
        agent._open.update(open)
        return agent

    def digest(self) -> str:
        """Return a hash of everything learned and open, not of the random stream.

        It is the same for agents that recorded the same decisions and learned the same rewards, in
        the same order and on the same kind of machine.

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
        """Return the agent in a file; it decides as the saved agent would have.

        Parameters
        ----------
        path
            A file that `save` wrote. A damaged file, one of a newer version, one with other
            settings, or any other file raises a `ValueError` that says so.
        model, policy
            The ones that the agent was saved with. Needed only for classes of your own, which a
            file cannot contain.
        transformer
            The one that the agent was saved with; needed if there was one.
        log, clock
            As in the constructor.

        >>> import tempfile, tsucb
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tsucb.Agent(["red", "blue"], seed=0).save(f"{folder}/agent.tsucb")
        ...     tsucb.Agent.load(f"{folder}/agent.tsucb")
        <Agent: 2 arms, AdaptiveCurves, TS-UCB(1)>
        """
        given = model, policy, transformer
        return cls._restored(path, *storage.read(path), given, clock, log)

    def reseed(self, seed: int | None = None, *, ids: bool = True) -> None:
        """Use another random stream from now on, so that a copy does not explore in step.

        Parameters
        ----------
        seed
            A whole number of at least 0; None: arbitrary.
        ids
            Whether decisions get other ids, too; not needed if all ids come from `record`.

        >>> import copy, tsucb
        >>> agent = tsucb.Agent(["red", "blue"], seed=0)
        >>> other = copy.copy(agent)
        >>> other.reseed(1)
        """
        learner = self._learner
        with self._guard.alone():
            learner.reseed(seed)
            if ids:
                word = learner.rng.bit_generator.random_raw()
                learner.known.books.checksum[0] ^= np.uint64(word)

    def __deepcopy__(self, memo: Any) -> "Agent":
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies and pickles decide alike, until one of them is reseeded; they have no log."""
        held = self._hold()  # with its own model: another thread may widen the agent's just after
        given = held.known.model, held.known.policy, self._learner.reader.transformer
        return type(self)._restored, ("the copy", *held.parts(), given, self._clock)

    def _now(self) -> float:
        return check_time(self._clock())


def check_time(time: Any) -> float:
    """Return a time in seconds as a float; raise ValueError otherwise."""
    try:
        seconds = float(time) if isinstance(time, Real) else math.nan
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError(f"a time must be a finite number of seconds, but it is {shown(time)}")
    return seconds


def _context_to_log(context: Context, arms: Any) -> Context:
    """Return the context for a log, with the features of the arms if they are given."""
    return {"context": context, "arms": arms} if isinstance(arms, Mapping) else context
