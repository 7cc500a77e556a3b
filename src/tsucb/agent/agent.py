"""The agent: chooses arms, learns from late rewards, saves and loads itself."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from zlib import crc32

import numpy as np

from tsucb import models, policies
from tsucb.agent import storage
from tsucb.agent.calls import Decider, Learner, decider, is_compiled, learner, unpacked, weigh
from tsucb.agent.contexts import LARGEST, Arm, Context, Reader, check_finite
from tsucb.agent.decision import Decision
from tsucb.agent.roster import NEW, REMOVED, ArmRecord, Offer, Roster
from tsucb.agent.structure import Arrays, WrongSettings, pack, pack_object, unpack, unpack_object
from tsucb.checks import whole_number
from tsucb.models.forgetting import Fading
from tsucb.models.k_armed import ArmTotals
from tsucb.models.model import Model
from tsucb.models.nig_linear import NIGLinear
from tsucb.models.regressions import Lanes, Rows, arm_posterior
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.ts_ucb import TSUCB
from tsucb.simulation.simulate import MODEL, POLICY, stream

if TYPE_CHECKING:
    import pandas as pd

# What a file may name; nothing else is made from it.
MODELS = [cls for cls in vars(models).values() if isinstance(cls, type)]
POLICIES = [cls for cls in vars(policies).values() if isinstance(cls, type)]
# What can go wrong in putting an agent together from values that do not fit.
MISFITS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError)


class UnknownDecision(LookupError):
    """A reward for a decision that is not open: never made, or closed before.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "blue"], features=1, seed=0)
    >>> agent.reward("7-123", 1.0)
    Traceback (most recent call last):
    tsucb.agent.agent.UnknownDecision: decision '7-123' was never made by this agent; check the id
    """


# A decision that waits for its reward: its arm, the bytes of its context, and when it was made.
_Open: TypeAlias = tuple[ArmRecord, bytes, float]


class Agent:
    """Chooses arms and learns from their rewards, in a process that runs for a long time.

    All methods may be called from many threads. One lock guards everything an agent knows; it is
    held while a decision is computed or a reward learned, not while a context is converted or a
    file is written.

    Parameters
    ----------
    arms
        Names of the arms: strings or integers.
    features
        The number of features of a context, or their names if contexts are mappings or tables.
        Not needed where the model says it.
    model, policy
        Any of `tsucb.models`, `NIGLinear(features)` by default; any of `tsucb.policies`,
        `TSUCB(100)` by default.
    seed
        Changes everything random; the same seed and calls give the same decisions. None: arbitrary.
    forgetting
        γ: with every reward, all earlier ones come to count γ times as much, and the posterior
        moves as much towards the prior (see `tsucb.models.forgetting`). 1 never forgets; 0.999
        remembers about the last 1,000 rewards.
    transformer
        Turns contexts into vectors: anything with scikit-learn's `transform`, which is given a list
        of contexts.
    streaming
        Also let the transformer learn from every context by its `partial_fit`, before using it.
    max_open
        At most so many decisions wait for a reward; beyond it the oldest are dropped.
    keep_beliefs
        Keep the belief that a decision was made from with it, so that `decision.probability` is
        known. Slower.
    clock
        Tells the time in seconds, for `expire`.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "green", "blue"], features=2, seed=0)
    >>> decision = agent.choose([1.0, 0.5])
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
        forgetting: float = 1.0,
        transformer: Any = None,
        streaming: bool = False,
        max_open: int = 100_000,
        keep_beliefs: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names, self.model = _named_model(features, model)
        self.policy = TSUCB(100) if policy is None else policy
        if isinstance(self.policy, type) or not callable(getattr(self.policy, "choose", None)):
            raise TypeError("policy must be an instance with choose(belief, rng): tsucb.TSUCB(1)")
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        if not isinstance(entropy, int | np.integer) or entropy < 0:
            raise ValueError(f"seed must be a whole number of at least 0, but it is {seed!r}")
        entropy = int(entropy)
        self.forgetting = float(forgetting)
        self.max_open = whole_number("max_open", max_open, least=1)
        self.keep_beliefs, self._clock = bool(keep_beliefs), clock
        self._reader = Reader(self.model, names, transformer, streaming)
        self._per_arm = self._reader.per_arm
        # The streams of run 0 of a simulation: with instant rewards the agent plays the same arms.
        own = stream(entropy, 0, MODEL) if hasattr(self.model, "trainer") else None
        self._roster = Roster(self.model, arms, self.forgetting, own)
        self._rng = stream(entropy, 0, POLICY)

        self._decides_fast = is_compiled(self.model, self.policy) and not self.keep_beliefs
        self._first_pulls = self.model.initial_pulls
        self._restricted = type(self.model).check_rewards is not Model.check_rewards
        # Machine code bound to the current state, made when it is first needed, and where a
        # decision leaves what it saw.
        self._decider: Decider | None = None
        self._learner: Learner | None = None
        self._seen = np.empty(0)
        self._open: dict[str, _Open] = {}
        # Ids in the order of their decisions, for dropping the oldest; some may be closed.
        self._oldest: Iterator[str] = iter(())
        self._decisions = self._observations = 0  # the latter were no decisions
        self._dropped = 0
        self._checksum = 0  # of all decisions
        self._lock, self._saving = threading.Lock(), threading.Lock()

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms' names, in the order they were added."""
        return tuple(self._roster.records)

    @property
    def open_decisions(self) -> int:
        """How many decisions wait for a reward; never more than `max_open`."""
        return len(self._open)

    @property
    def dropped(self) -> int:
        """How many decisions were dropped because more than `max_open` waited."""
        return self._dropped

    def add_arm(self, name: Arm) -> None:
        """Add an arm, about which nothing but the prior is known."""
        with self._lock:
            self._roster.add(name)

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm. Rewards that still come for it are not learned from.

        An arm added later under the same name is a new one.
        """
        with self._lock:
            self._roster.remove(name)

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
        x = None if self._per_arm else self._reader.packed(context)
        self._lock.acquire()  # here and in `reward`, as `with` takes twice as long
        try:
            offer = self._roster.everyone or self._settled()
            if arms is not None:
                offer = self._roster.offer(arms)
            if x is None:
                x = self._reader.rows(context, offer.names).tobytes()
            return self._decide(x, offer)
        finally:
            self._lock.release()

    def choose_many(
        self, contexts: Sequence[Context], arms: Sequence[Arm] | None = None
    ) -> list[Decision]:
        """Choose an arm for each of several contexts, all from what is known now.

        The same as choosing one by one; the contexts may also be a matrix or a table.
        """
        if self._per_arm or not self._reader.shape:
            return [self.choose(context, arms) for context in contexts]
        if not hasattr(contexts, "__len__"):
            contexts = list(contexts)
        matrix = self._reader.matrix(contexts)
        with self._lock:
            offer = self._roster.everyone or self._settled()
            if arms is not None:
                offer = self._roster.offer(arms)
            return [self._decide(x.tobytes(), offer) for x in matrix]

    def _settled(self) -> Offer:
        """All arms, once those added and removed are in the state."""
        self._decider = self._learner = None
        return self._roster.settle()

    def _decide(self, x: bytes, offer: Offer) -> Decision:
        records, columns = offer
        if not records:
            raise ValueError("no arm is available; add one, or list at least one")
        seen, belief, index = None, None, -1
        step = self._decisions + self._observations + 1
        if self._first_pulls:
            check_finite(np.frombuffer(x))
            index = self._first_pull(records)
        if index < 0:
            given = self._placed(x, columns) if self._per_arm else x
            if self._decides_fast:
                decide = self._decider or self._bound_decider()
                index = decide(given, columns, step)
                if index < 0:
                    check_finite(np.frombuffer(x))
                if offer is self._roster.everyone:
                    seen = self._seen.tobytes()
                else:
                    seen = self._seen[: 4 * len(records) + 1].tobytes()
            else:
                check_finite(np.frombuffer(x))
                state = self._roster.state
                context = unpacked(self.model, state, given)
                belief = self.model.belief(state, context, columns, step=step, rng=self._rng)
                index, target = weigh(self.policy, belief, self._rng)
                each = belief.mean, belief.std, belief.estimate, belief.radius
                seen = np.concatenate([(target,), *each]).tobytes()
                belief = belief if self.keep_beliefs else None
        if self._per_arm:
            width = len(x) // len(records)
            x = x[index * width : (index + 1) * width]
        record = records[index]
        record.chosen += 1
        self._decisions += 1
        # The id is the decision's number and a checksum over all decisions up to it. A process that
        # was killed and goes on from an older file numbers its decisions anew; the checksum keeps a
        # reward for one that was lost from being taken for another's, as decisions with the same
        # id have the same arm and context.
        self._checksum = crc32(x, crc32(record.token, self._checksum))
        id = f"{self._decisions}-{self._checksum}"
        self._open[id] = record, x, self._clock()
        if len(self._open) > self.max_open:
            self._drop_oldest()
        return Decision(id, record.name, offer, self.policy, seen, belief)

    def _drop_oldest(self) -> None:
        # Not the first key of the dictionary: to find that takes long once many were deleted.
        while True:
            for id in self._oldest:
                if self._open.pop(id, None):
                    self._dropped += 1
                    return
            self._oldest = iter(list(self._open))

    def _bound_decider(self) -> Decider:
        state = self._roster.state
        self._seen = np.empty(4 * len(self._roster.records) + 1)
        self._decider = decider(self.policy, self.model, state, self._rng, self._seen)
        return self._decider

    def _first_pull(self, records: Sequence[ArmRecord]) -> int:
        """The least chosen arm if the model wants it pulled before the policy decides, else −1."""
        chosen = [record.chosen for record in records]
        least = min(chosen)
        return chosen.index(least) if least < self._first_pulls else -1

    def _placed(self, rows: bytes, columns: Integers) -> bytes:
        """The arms' feature vectors where the model looks for them: in the rows of its columns."""
        count = self.model.arms(self._roster.state)
        if columns.size == count and (columns == np.arange(count)).all():
            return rows
        matrix = np.zeros((count, *self._reader.shape))
        matrix[columns] = np.frombuffer(rows).reshape(columns.size, -1)
        return matrix.tobytes()

    def reward(self, id: str, reward: float) -> bool:
        """Learn the reward of a decision, in the context in which it was made, and close it.

        Rewards may come in any order. True if it was learned; False if its arm was removed in the
        meantime. A second reward, or one for an expired, dropped or unknown decision, raises
        `UnknownDecision` and changes nothing.
        """
        value = self._checked(reward)
        self._lock.acquire()
        try:
            decision = self._open.pop(id, None)
            if decision is None:
                self._refuse(id)
            record, context, _ = decision
            return self._learn(record, context, value)
        finally:
            self._lock.release()

    def _checked(self, reward: float) -> float:
        """A reward as a number that the model can learn from."""
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise TypeError(f"a reward must be a number, not {reward!r}") from None
        if not abs(value) <= LARGEST:
            raise ValueError(
                f"a reward must be a finite number, at most ±{LARGEST:g}, not {reward}"
            )
        if self._restricted:
            self.model.check_rewards(np.array([value]))
        return value

    def _refuse(self, id: str) -> NoReturn:
        if isinstance(id, Decision):
            raise TypeError(f"give the id of the decision, {id.id!r}, instead of the decision")
        number = str(id).partition("-")[0]
        if number.isdecimal() and len(number) < 20 and 0 < int(number) <= self._decisions:
            raise UnknownDecision(
                f"decision {id!r} is not open: it was rewarded, expired or dropped before, lost "
                "when an older file was loaded, or never made by this agent"
            )
        raise UnknownDecision(f"decision {id!r} was never made by this agent; check the id")

    def _learn(self, record: ArmRecord, context: bytes, value: float) -> bool:
        if record.column == REMOVED:
            return False
        if record.column == NEW:
            self._settled()
        learn = self._learner or self._bound_learner()
        learn(context, record.column, value)
        record.pulls += 1
        record.total += value
        return True

    def _bound_learner(self) -> Learner:
        model, state = self.model, self._roster.state
        learn: Learner
        # A model that trains between updates does so in plain Python.
        if is_compiled(model) and type(model).absorb is Model.absorb:
            learn = learner(model, state, self._roster.memory)
        else:

            def learn(context: bytes, column: int, value: float) -> None:
                model.update(state, unpacked(model, state, context), column, value)

        if self._per_arm:
            plain = learn

            def learn(context: bytes, column: int, value: float) -> None:
                plain(self._placed(context, np.array([column])), column, value)

        self._learner = learn
        return learn

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
        value = None if reward is None else self._checked(reward)
        with self._lock:
            before = self._clock() - age
            old = [id for id, (_, _, when) in self._open.items() if when < before]
            for id in old:
                record, context, _ = self._open.pop(id)
                if value is not None:
                    self._learn(record, context, value)
        return len(old)

    def update(self, context: Context, arm: Arm, reward: float) -> None:
        """Learn from an observation that was no decision of this agent.

        For `Linear` the context is the feature vector of the arm.
        """
        x, value = self._reader.vector(context), self._checked(reward)
        with self._lock:
            self._observe(self._roster[arm], x, value)

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
        values = [self._checked(value) for value in rewards]
        if contexts is None or not self._reader.shape:
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
            records = [self._roster[name] for name in names]
            for record, x, value in zip(records, vectors, values, strict=True):
                self._observe(record, x, value)

    def _observe(self, record: ArmRecord, x: Floats, value: float) -> None:
        record.chosen += 1
        self._observations += 1
        self._learn(record, x.tobytes(), value)

    def arms_summary(self) -> "pd.DataFrame":
        """One row per arm: pulls, open decisions, mean reward, and the posterior.

        The posterior is mean and standard deviation of the arm's mean reward for K-armed models,
        and of every coefficient for linear ones.
        """
        import pandas as pd

        with self._lock:
            self._settled()
            records = self._roster.records
            waiting = dict.fromkeys(records.values(), 0)
            for record, _, _ in self._open.values():
                if record in waiting:
                    waiting[record] += 1
            rows = {
                name: {
                    "pulls": record.pulls,
                    "open": waiting[record],
                    "mean_reward": record.total / record.pulls if record.pulls else math.nan,
                    **self._posterior(record.column),
                }
                for name, record in records.items()
            }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")

    def _posterior(self, column: int) -> dict[str, float]:
        state, variance = self._roster.state, 1.0
        if isinstance(state, ArmTotals):
            belief = self.model.belief(state, None, [column], rng=self._rng)
            return {"mean": float(belief.mean[0]), "std": float(belief.std[0])}
        if isinstance(self.model, NIGLinear):
            shape = self.model.shape + state.pulls[column] / 2
            # The expectation of the noise's variance; it has none up to shape 1.
            variance = state.scale[column] / (shape - 1) if shape > 1 else math.inf
            state = state.regressions
        elif self._per_arm:
            state, column = state.theta, 0
        if not isinstance(state, Lanes | Rows):
            return {}
        mean, root = arm_posterior(state, column)
        std = np.sqrt(variance * (root**2).sum(axis=1))
        names = self._reader.names or [f"x{i}" for i in range(mean.size)]
        columns = zip(names, mean.tolist(), std.tolist(), strict=True)
        return {key: value for n, m, s in columns for key, value in ((n, m), (f"{n}_std", s))}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file: settings, what was learned, open decisions, randomness.

        The file is there whole or not at all, whatever happens meanwhile. A transformer is not
        saved; `load` asks for it.
        """
        with self._saving:
            with self._lock:
                values, arrays = self._snapshot()
            storage.write(path, values, arrays)

    def _snapshot(self) -> tuple[dict[str, Any], Arrays]:
        self._settled()
        waiting, roster, rng = list(self._open.values()), self._roster, self._rng
        # Removed arms too, as long as decisions for them are open.
        gone = dict.fromkeys(record for record, _, _ in waiting if record.column == REMOVED)
        records = [*roster.records.values(), *gone]
        number = {record: i for i, record in enumerate(records)}
        memory = roster.memory
        contexts = np.frombuffer(b"".join(context for _, context, _ in waiting))
        parts = {
            "state": roster.state,
            "memory": (memory.clock, memory.aged) if isinstance(memory, Fading) else (),
            "columns": np.array([r.column for r in records], dtype=np.int64),
            "pulls": np.array([r.pulls for r in records], dtype=np.int64),
            "chosen": np.array([r.chosen for r in records], dtype=np.int64),
            "totals": np.array([r.total for r in records], dtype=np.float64),
            "open_arms": np.array([number[record] for record, _, _ in waiting], dtype=np.int64),
            "open_times": np.array([when for _, _, when in waiting], dtype=np.float64),
            "open_contexts": contexts.reshape(len(waiting), *(self._reader.shape or (0,))),
        }
        arrays: Arrays = []
        values = {
            "model": pack_object(self.model, arrays),
            "policy": pack_object(self.policy, arrays),
            "settings": {
                "features": self._reader.names,
                "forgetting": self.forgetting,
                "streaming": self._reader.streaming,
                "max_open": self.max_open,
                "keep_beliefs": self.keep_beliefs,
            },
            "transformer": self._reader.transformer is not None,
            "arms": [record.name for record in records],
            "state_columns": self.model.arms(roster.state),
            "parts": {name: pack(part, arrays) for name, part in parts.items()},
            "open": list(self._open),
            "counts": [self._observations, self._decisions, self._dropped, self._checksum],
            "random": rng.bit_generator.state,
        }
        return values, [array.copy() for array in arrays]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        model: Model | None = None,
        policy: Any = None,
        transformer: Any = None,
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
        clock
            As when an agent is made.
        """
        values, arrays = storage.read(path)
        try:
            if bool(values["transformer"]) != (transformer is not None):
                verb = "with" if values["transformer"] else "without"
                raise WrongSettings(f"was saved {verb} a transformer; load it {verb} it")
            columns = unpack(values["parts"]["columns"], arrays, _zeros(len(values["arms"])))
            here = [n for n, c in zip(values["arms"], columns, strict=True) if c != REMOVED]
            agent = cls(
                # An agent is not made without arms, but all may have been removed from it.
                here or ["none"],
                **values["settings"],
                model=unpack_object(values["model"], arrays, MODELS, model),
                policy=unpack_object(values["policy"], arrays, POLICIES, policy),
                seed=0,
                transformer=transformer,
                clock=clock,
            )
            agent._restore(values, arrays, columns)
        except WrongSettings as error:
            raise ValueError(f"{path} {error}") from None
        except MISFITS as error:
            raise ValueError(f"{path} does not hold an agent ({error}); use another copy") from None
        return agent

    def _restore(self, values: dict[str, Any], arrays: Arrays, columns: Integers) -> None:
        """Take over everything but the settings, checking that it fits together."""

        def part(name: str, template: Any) -> Any:
            return unpack(values["parts"][name], arrays, template)

        roster, total, count = self._roster, columns.size, _count(values["state_columns"])
        pulls, chosen = part("pulls", _zeros(total)), part("chosen", _zeros(total))
        totals = part("totals", np.zeros(total))
        used = columns[columns != REMOVED]
        inside = bool(((used >= 0) & (used < count)).all()) and np.unique(used).size == used.size
        # Never make room for more columns than the file has numbers.
        room = sum(array.size for array in arrays)
        if not inside or count > room or (roster.axes is not None and used.size != count):
            raise ValueError("its arms do not fit the state")
        if (pulls < 0).any() or (chosen < 0).any():
            raise ValueError("negative counts")
        records = []
        for i, name in enumerate(values["arms"]):
            record = ArmRecord(name)
            record.column, record.pulls = int(columns[i]), int(pulls[i])
            record.chosen, record.total = int(chosen[i]), float(totals[i])
            records.append(record)
        roster.records = {r.name: r for r in records if r.column != REMOVED}
        roster.state = part("state", roster.blank(count))
        if isinstance(roster.memory, Fading):
            aged = _zeros(1 if self._per_arm else count)
            clock, aged = part("memory", (_zeros(1), aged))
            if (aged < 0).any() or (aged > clock).any():
                raise ValueError("ages in the future")
            roster.memory = roster.memory._replace(clock=clock, aged=aged)
        self._settled()

        ids, shape = values["open"], self._reader.shape or (0,)
        arms, times = part("open_arms", _zeros(len(ids))), part("open_times", np.zeros(len(ids)))
        contexts = part("open_contexts", np.zeros((len(ids), *shape)))
        if (arms < 0).any() or not all(type(id) is str for id in ids):
            raise ValueError("open decisions that were not made here")
        for id, arm, context, when in zip(ids, arms, contexts, times.tolist(), strict=True):
            self._open[id] = records[arm], context.tobytes(), when
        counts = [_count(value) for value in values["counts"]]
        self._observations, self._decisions, self._dropped, self._checksum = counts
        self._rng.bit_generator.state = values["random"]


def _zeros(count: int) -> Integers:
    return np.zeros(count, dtype=np.int64)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} where a count belongs")
    return value


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
        if not isinstance(number, int):
            raise ValueError("say how many features a context has, or give a model")
        return names, NIGLinear(number)
    if not isinstance(model, Model):
        raise TypeError("model must be an instance of a tsucb.Model, such as tsucb.NIGLinear(5)")
    expected = model.context_shape(1)[-1:]
    if number is not None and expected != (number,):
        raise ValueError(
            f"{type(model).__name__} has contexts of shape {expected}, but {number} features were "
            "given; leave features away or make them agree"
        )
    return names, model
