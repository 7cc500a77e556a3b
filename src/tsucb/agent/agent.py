"""The agent: chooses arms, learns from late rewards, saves and loads itself."""

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent import snapshot, storage
from tsucb.agent.arm_features import HybridReader, free_reader
from tsucb.agent.calls import (
    CLOSED,
    DECISIONS,
)
from tsucb.agent.contexts import Arm, Context, FreeReader, Reader
from tsucb.agent.core import checked
from tsucb.agent.deciding import Deciding
from tsucb.agent.decision_log import DecisionLog
from tsucb.agent.encoding import Encoder
from tsucb.agent.hashing import HashingEncoder
from tsucb.agent.learning import Learning
from tsucb.agent.roster import (
    Doing,
    Roster,
    plain_name,
    record_of,
)
from tsucb.agent.waiting import ArmRecord
from tsucb.checks import between, truth, whole_number
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.forgetting import Forgetting, without_forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import Model
from tsucb.policies.exploring import Exploring
from tsucb.policies.ts_ucb import TSUCB
from tsucb.step import start
from tsucb.streams import POLICY, stream

if TYPE_CHECKING:
    import pandas as pd


class Agent(Deciding, Learning):
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
        reads = model is None or (isinstance(model, HashedLinear) and not model.features)
        self._free = reads and features is None and transformer is None
        believer = plain if self.forgetting == 1 else Forgetting(plain, self.forgetting)
        self.policy = TSUCB(10) if policy is None else policy
        if isinstance(self.policy, type) or not callable(getattr(self.policy, "choose", None)):
            raise TypeError("policy must be an instance with choose(belief, rng): tsucb.TSUCB(1)")
        if exploration != 0:
            if not isinstance(exploration, Real) or not 0 < exploration <= 1:
                raise ValueError(f"exploration must be from 0 to 1, but it is {exploration!r}")
            self.policy = Exploring(self.policy, float(exploration))
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        if not isinstance(entropy, int | np.integer) or entropy < 0:
            raise ValueError(f"seed must be a whole number of at least 0, but it is {seed!r}")
        self.max_open = whole_number("max_open", max_open, least=1)
        self.keep_beliefs = truth("keep_beliefs", keep_beliefs)
        self._clock, self._time = clock, checked(clock)
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
        self._behind = True  # whether the next call may have more to do first than its own
        self._forked = False  # whether it still has the draws and ids of the parent process
        self._lock, self._saving = threading.RLock(), threading.RLock()
        _AGENTS.add(self)

    # What it knows

    def __repr__(self) -> str:
        policy = getattr(self.policy, "name", type(self.policy).__name__)
        size = f"{len(self._records):,} arm" + "s" * (len(self._records) != 1)
        return f"<Agent: {size}, {type(self.model).__name__}, {policy}>"

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
        waiting = roster.open.places if len(roster.open) <= self.max_open else self.max_open
        return int(counts[DECISIONS] - counts[CLOSED]) - waiting

    def add_arm(self, name: Arm) -> None:
        """Add an arm, about which nothing but the prior is known."""
        plain = plain_name(name)
        self._check_entry()
        with self._lock:
            if plain in self._records:
                raise ValueError(f"there is an arm {plain!r} already; choose another name")
            self._behind = True  # first: an interrupt in between costs time, nothing else
            self._settled = False
            self._records[plain] = ArmRecord(plain)

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm. Rewards that still come for it are not learned from.

        An arm added later under the same name is a new one. Where arms come with the decisions, one
        that is offered or rewarded again is a new one, too.
        """
        self._check_entry()
        with self._lock:
            record = record_of(name, self._records)
            self._behind = True
            self._settled = False
            del self._records[record.name]

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; what was learned stays."""
        if isinstance(policy, type) or not callable(getattr(policy, "choose", None)):
            raise TypeError("policy must be an instance with choose(belief, rng): tsucb.TSUCB(1)")
        self._check_entry()
        with self._lock:
            self.policy, self._roster.calls = policy, None

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """What the agent makes of a context: the features that are not 0, and their values.

        Nothing is decided nor learned.
        """
        return self._reader.describe(context)

    def width_after(self, context: Context, features: Iterable[Any] = ()) -> int:
        """Return how many columns the model will have once it has learned from a context.

        Parameters
        ----------
        context
            As in `choose`.
        features
            Of the arms that are offered, where the model takes any.

        >>> import tsucb
        >>> tsucb.Agent(["red", "blue"]).width_after({"age": 31})
        1
        """
        return self._reader.width_after(context, features)

    # Looking at it

    def arms_summary(self) -> "pd.DataFrame":
        """One row per arm: pulls, open decisions, mean reward; `coefficients` has the posterior."""
        import pandas as pd

        self._check_entry()
        with self._lock:
            roster = self._current()
            waiting = roster.open.by_arm()
            columns = roster.everyone.columns
            pulls, totals = roster.books.pulls[columns], roster.books.totals[columns]
        with np.errstate(invalid="ignore"):
            open = [waiting[record] for record in roster.columns]
            data = {"pulls": pulls, "open": open, "mean_reward": totals / pulls}
        names = [record.name for record in roster.columns]
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
        values, arrays = snapshot.taken(self.hold())
        snapshot.check(self, values, arrays)
        storage.write(path, values, arrays)

    def to_bytes(self) -> bytes:
        """What `save` writes to a file, for applications that keep it elsewhere."""
        return self.hold().to_bytes()

    def hold(self) -> snapshot.AgentHeld:
        """What it knows now, from which `to_bytes` and `digest` make theirs later.

        That takes no longer where many decisions are open: an application that must not wait calls
        `agent.hold()` where it learns, and `to_bytes()` of what it got in another thread.
        """
        with self._lock:
            return snapshot.held(self)

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
        return self.hold().digest()

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

    def compact(self) -> None:
        """Lay out what it knows as a loaded agent has it: without the room made for arms to come.

        From then on this agent and one loaded from what it saved learn the same to the last bit.
        """
        self._check_entry()
        with self._lock:
            roster = self._current()
            if self._coming:
                known = [r for r in self._records.values() if r in roster.columns]
                self._roster = roster.with_arms(known)

    def reseed(self, seed: int | None = None, *, ids: bool = True) -> None:
        """Draw differently from now on: for a copy, so that two agents do not explore in step.

        Parameters
        ----------
        seed
            A whole number of at least 0; None: arbitrary.
        ids
            Whether decisions get other ids, too; not needed where these come from elsewhere.
        """
        entropy = np.random.SeedSequence().entropy if seed is None else seed
        if not isinstance(entropy, int | np.integer) or entropy < 0:
            raise ValueError(f"seed must be a whole number of at least 0, but it is {seed!r}")
        self._check_entry()
        with self._lock:
            roster = self._current().copied()
            rng = stream(int(entropy), 1, POLICY)
            if ids:
                roster.books.checksum[0] ^= np.uint64(rng.bit_generator.random_raw())
            self._rng, self._roster = rng, roster

    def __copy__(self) -> "Agent":
        """Another agent that makes the same decisions, until one of them is reseeded; no log."""
        values, arrays = snapshot.taken(self.hold())
        given = self.model, self.policy, self._reader.transformer, self._clock
        return snapshot.restored(type(self), "the copy", values, arrays, *given)

    def __deepcopy__(self, memo: Any) -> "Agent":
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        values, arrays = snapshot.taken(self.hold())
        given = self.model, self.policy, self._reader.transformer, self._clock
        return snapshot.restored, (type(self), "the pickle", values, arrays, *given)


def _reader_of(
    model: Model, names: tuple[str, ...] | None, transformer: Any, streaming: bool,
    categories: Sequence[str], free: bool,
) -> Reader:  # fmt: skip
    """What reads the contexts of an agent, and the features of its arms."""
    plain = without_forgetting(model)
    if isinstance(plain, HybridLinear):
        if transformer is not None:
            raise ValueError("HybridLinear reads contexts and arms itself; leave transformer away")
        return free_reader(plain, categories) if free else HybridReader(plain, None)
    if free and isinstance(plain, HashedLinear):
        return FreeReader(model, HashingEncoder(plain.bits, plain.crossed, categories))
    if free:
        return FreeReader(model, Encoder(categories=categories))
    return Reader(model, names, transformer, streaming)


def _opened(log: Any) -> Any:
    """The decision log at a path, or that calls a function."""
    if log is None:
        return None
    return log if isinstance(log, DecisionLog) else DecisionLog(log)


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
        agent._behind = agent._forked = True
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
