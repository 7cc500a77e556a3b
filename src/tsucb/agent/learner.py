"""The learner: reads contexts, decides, and learns; it keeps no decisions.

A `Learner` owns how contexts are read, the model with its state, the policy and the random stream.
Whoever holds it keeps the decisions and decides when to learn: the agent in memory, the service in
its event log. Nothing in it is locked: its owner calls it from one thread at a time.

    learner = Learner(["red", "blue"], policy=tsucb.TSUCB(), seed=0)       # as `Agent`'s settings
    decision = learner.decide(context, arms)   # a `Decision` without an id
    ranking = learner.rank(context, k, arms)   # a `Ranking` without an id

    row = learner.read(context, arm, features) # the numbers of one arm; new columns are learned
    learner.count(arm)                         # a decision for this arm was made
    learner.learn(arm, row, reward)            # True, or False if there is no such arm any more

`decide` and `rank` neither learn columns nor admit arms. A row is as wide as the columns known when
it was read; keep it as it is (it may be written to a file), `learn` pads it. Two learners that are
given the same calls of `read`, `count`, `learn`, `add_arm`, `remove_arm` and `compact`, in the same
order, have the same `digest()`, whatever they decided meanwhile. Every row that is counted may be
learned once, or never.

Where arms come with the decisions (`Learner()` without a list of arms), `count` and `learn` admit
the arm, which may take the place of the one that was longest unused. Where they are listed,
`count` raises ValueError for an unknown arm and `learn` returns False: an application that removes
an arm and adds another of the same name forgets the rows of the first one itself.

    learner.add_arm(name); learner.remove_arm(name); learner.arms
    learner.check_reward(value)                # a float that the model can learn from
    learner.follow(policy); learner.reseed(seed)
    learner.compact()                          # drop spare room, as a loaded learner has it
    held = learner.hold()                      # quick; `held.to_bytes()`, `held.digest()` may be
                                               # called later, in another thread
    learner.to_bytes(); Learner.from_bytes(data); learner.digest()
    learner.describe(context); learner.coefficients(); learner.arms_summary()
    learner.width_after(context, arms)         # columns of the model once this is learned

`from_bytes` also takes what `Agent.to_bytes` or `Agent.save` wrote, and leaves out its open
decisions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.decision import Decision, Ranking
from tsucb.agent.knowledge import (
    Knowledge,
    Offer,
    check_unique,
    known_name,
    plain_name,
    token_of,
)
from tsucb.agent.machine import (
    COUNTED,
    DUE,
    LONG,
    NOT_FINITE,
    OBSERVED,
    ONLY_QUEUE,
    Machine,
    make_machine,
    split_of,
)
from tsucb.agent.open_decisions import NOT_SPLIT, QUEUED, has_room, roomier_table
from tsucb.checks import SMALLEST, between, flushed, truth, whole_number, within
from tsucb.contexts.readers import (
    NOBODY,
    Arm,
    Context,
    Offered,
    Reader,
    Reading,
    laid_out_for,
    make_reader,
    narrow_row,
    wanted_width,
)
from tsucb.contexts.values import shown
from tsucb.extras import require
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.forgetting import Forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.exploring import Exploring
from tsucb.policies.ts_ucb import TSUCB
from tsucb.step import start
from tsucb.streams import POLICY, stream
from tsucb.structure import leaves

if TYPE_CHECKING:
    import pandas as pd

    from tsucb.agent.snapshot import Held

_TEXT = (str, bytes)


class Learner:
    """Reads contexts, decides and learns; see the top of this module.

    Parameters
    ----------
    arms, features, model, policy, seed, exploration, forgetting, transformer, streaming, \
    categories, most_arms, keep_beliefs
        As in `tsucb.Agent`.

    >>> import tsucb
    >>> learner = tsucb.agent.Learner(["red", "blue"], seed=0)
    >>> decision = learner.decide({"age": 31})
    >>> row = learner.read({"age": 31}, decision.arm)
    >>> learner.count(decision.arm)
    >>> learner.learn(decision.arm, row, 1.0)
    True
    """

    __slots__ = ("_restricted", "coming", "keep_beliefs", "known", "most_arms", "policy", "reader",
                 "rng")  # fmt: skip

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
        most_arms: int = 10_000,
        keep_beliefs: bool = False,
    ) -> None:
        coming = arms is None
        if coming and model is None and (features is not None or transformer is not None):
            raise ValueError(
                "an agent without a list of arms reads contexts and arms as they come; leave off "
                "features and transformer, or list the arms"
            )
        names, plain = _named_model(
            features, HybridLinear(0) if coming and model is None else model
        )
        any_form = model is None or (isinstance(model, HashedLinear) and not model.features)
        any_form = any_form and features is None and transformer is None
        gamma = between("forgetting", forgetting, 0, 1)
        whole: Any = plain if gamma == 1 else Forgetting(plain, gamma)
        policy = check_policy(TSUCB() if policy is None else policy)
        if exploration != 0:
            if not isinstance(exploration, Real) or not 0 < exploration <= 1:
                raise ValueError(f"exploration must be from 0 to 1, but it is {shown(exploration)}")
            policy = Exploring(policy, float(exploration))
        entropy = check_seed(seed)
        reader = make_reader(whole, names, transformer, streaming, categories, any_form)
        if coming and not reader.per_arm:
            raise ValueError(
                f"{type(plain).__name__} needs a list of arms; only a model with features for "
                "every arm, such as HybridLinear, can take arms that come with the decisions"
            )
        listed_arms = () if arms is None else _arm_names(arms)
        # The streams of run 0 of a simulation: with instant rewards the agent plays the same arms.
        state = start(whole, len(listed_arms) or 1, entropy, 0)
        known = Knowledge.start(whole, listed_arms, state)
        self._set(reader, known, policy, stream(entropy, 0, POLICY), coming,
                  whole_number("most_arms", most_arms, least=1),
                  truth("keep_beliefs", keep_beliefs))  # fmt: skip

    def _set(
        self, reader: Reader, known: Knowledge, policy: Any, rng: np.random.Generator,
        coming: bool, most_arms: int, keep_beliefs: bool,
    ) -> None:  # fmt: skip
        self.reader, self.known, self.policy, self.rng = reader, known, policy, rng
        self.coming = coming  # whether arms come with the decisions
        self.most_arms, self.keep_beliefs = most_arms, keep_beliefs
        self._restricted = _restricts_rewards(known.model)

    @classmethod
    def of(cls, *parts: Any) -> "Learner":
        """Return a learner made of a reader, knowledge, policy, stream and settings; see `_set`."""
        learner = cls.__new__(cls)
        learner._set(*parts)
        return learner

    # What there is

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The names of the arms, in the order they were added."""
        return tuple(self.arms_by_name)

    @property
    def arms_by_name(self) -> Mapping[Arm, int]:
        """The column of every arm; -1 for one that was added since the last call."""
        known = self.known
        return known.arms if known.wanted is None else known.wanted

    @property
    def model(self) -> Model:
        """What turns rewards into beliefs, as wide as the contexts read so far."""
        return self.known.model

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the features of a context that are not 0, with their values; learn nothing."""
        return self.reader.describe(context)

    def coefficients(self) -> "pd.DataFrame":
        """Return mean and standard deviation of every parameter of every arm.

        One row for each arm and feature; for K-armed models the one parameter is the arm's mean
        reward. Empty for networks.
        """
        require("tables", "pandas")
        import pandas as pd

        known, rows = self.prepared(), []
        labels = known.model.parameter_names(self.reader.feature_names)
        for name, column in known.arms.items():
            mean, std = known.model.coefficients(known.state, column)
            for label, m, s in zip(labels, mean.tolist(), std.tolist(), strict=False):
                rows.append((name, label, m, s))
        table = pd.DataFrame(rows, columns=["arm", "feature", "mean", "std"])
        return table.set_index(["arm", "feature"])

    def arms_summary(self) -> "pd.DataFrame":
        """Return one row per arm: pulls and mean reward."""
        require("tables", "pandas")
        import pandas as pd

        known = self.prepared()
        names, columns = list(known.arms), list(known.arms.values())
        pulls, totals = known.books.pulls[columns], known.books.totals[columns]
        with np.errstate(invalid="ignore"):
            data = {"pulls": pulls, "mean_reward": totals / pulls}
        return pd.DataFrame(data, index=pd.Index(names, name="arm", dtype=object))

    # Before every call

    def prepared(self) -> Knowledge:
        """Return what is known with nothing left to do: arms have columns, rewards are learned."""
        known = self.known
        if known.wanted is not None:
            self.known = known = known.with_arms(known.wanted)
        if known.machine is None:
            known.machine = self.machine_for(known)
        if known.books.counts[DUE] or known.table.sizes[QUEUED]:
            self.catch_up()
        return self.known

    def machine_for(self, known: Knowledge) -> Machine:
        """Return what decides and learns, bound to what is known."""
        return known.machine or make_machine(self.policy, known, self.rng, self.keep_beliefs)

    def catch_up(self) -> None:
        """Train if that is due, and learn the rewards that are queued."""
        while True:
            known = self.known
            if known.machine is None:
                known.machine = self.machine_for(known)
            if known.books.counts[DUE]:
                self.known = known.trained()
            elif not known.table.sizes[QUEUED]:
                return
            elif known.machine.learn is None:
                self.known = known.drained()
            else:
                known.machine.learn(b"", 0, ONLY_QUEUE, 0.0)

    # Arms

    def add_arm(self, name: Arm) -> None:
        """Add an arm, about which nothing but the prior is known."""
        plain = plain_name(name)
        if plain in self.arms_by_name:
            raise ValueError(f"there is an arm {shown(plain)} already; choose another name")
        self._changing()[plain] = -1

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm."""
        plain = known_name(name, self.arms_by_name)
        del self._changing()[plain]

    def _changing(self) -> dict[Arm, int]:
        """Return the arms as they are to be at the next call, to be changed."""
        known = self.known
        known.machine = None
        if known.wanted is None:
            known.wanted = dict(known.arms)
        return known.wanted

    def compact(self) -> None:
        """Drop the room made for arms to come, as a loaded learner has it."""
        known = self.prepared()
        if known.free:
            self.known = known.with_arms(known.arms)

    def offered(self, arms: Any) -> Offered:
        """Return the arms that a caller offers, checked; `NOBODY` if names do not matter."""
        if arms is None and not self.coming:
            if not self.reader.per_arm:
                return NOBODY
            return Offered(self.arms, None, self.arms_by_name)
        if isinstance(arms, _TEXT) or not isinstance(arms, Iterable):
            raise TypeError(
                "say which arms are offered: a list of their names, or a mapping of names to "
                "features" if self.coming else
                f"arms must be a list of names, such as [{shown(arms)}]"
            )  # fmt: skip
        features = list(arms.values()) if isinstance(arms, Mapping) else None
        if self.coming:
            names = tuple([n if type(n) is str else plain_name(n) for n in arms])
        else:
            names = tuple([known_name(name, self.arms_by_name) for name in arms])
        check_unique(names)
        return Offered(names, features, names if self.coming else self.arms_by_name)

    def _offer(self, known: Knowledge, arms: Any, offered: Offered) -> tuple[Knowledge, Offer]:
        """Return the columns of arms that are offered; with room for those that are not known."""
        if arms is None and not self.reader.per_arm:
            offer = known.everyone
        elif self.coming:
            known, offer = self._with_strangers(known, offered.names)
        else:
            offer = known.offer([known_name(name, known.arms) for name in offered.names])
        if not offer.names:
            raise ValueError("no arm is available; add one, or list at least one")
        return known, offer

    def _with_strangers(self, known: Knowledge, names: tuple[Arm, ...]) -> tuple[Knowledge, Offer]:
        """Return columns of arms that may not be known; those have columns of no arm."""
        new = [name for name in names if name not in known.arms]
        if len(new) > len(known.free):
            known = self._roomier(known.changed(), names, len(new))
        places = dict(zip(new, reversed(known.free), strict=False))
        for name, column in places.items():
            known.books.tokens[column] = token_of(name)
        columns = [places[name] if name in places else known.arms[name] for name in names]
        return known, Offer(names, np.array(columns, dtype=np.int64))

    def _roomier(self, known: Knowledge, names: tuple[Arm, ...], new: int) -> Knowledge:
        """Return knowledge with columns for new arms, if need be those of the longest unused."""
        for name in names:  # those that are offered stay
            if name in known.arms:
                known.arms.move_to_end(name)
        excess = len(known.arms) + new - self.most_arms
        spare = len(known.arms) - (len(names) - new)
        if excess > 0 and spare > 0:
            count = min(max(excess, spare // 10), spare)
            known = known.without(list(known.arms)[:count])
        return known if len(known.free) >= new else known.with_room(new)

    def use(self, known: Knowledge, name: Arm, column: int) -> None:
        """Note that an arm which comes with the decisions is used, and admit it if it is new."""
        if name not in known.arms:
            known.admit(name, column)
        known.arms.move_to_end(name)

    def admitted(self, known: Knowledge, names: tuple[Arm, ...]) -> tuple[Knowledge, Integers]:
        """Return the columns of arms that come with the decisions, after admitting new ones."""
        known, offer = self._with_strangers(known, names)
        for name, column in zip(names, offer.columns.tolist(), strict=True):
            self.use(known, name, column)
        return known, offer.columns

    def column_of(self, known: Knowledge, arm: Arm) -> tuple[Knowledge, int]:
        """Return the column of an arm, which is admitted if it comes with this call."""
        if not self.coming:
            return known, known.arms[known_name(arm, known.arms)]
        known, columns = self.admitted(known, (plain_name(arm),))
        return known, int(columns[0])

    # Deciding

    def decide(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm; count and learn nothing. The decision has no id."""
        offered = self.offered(arms)
        return self.decide_read(self.reader.read(context, offered, learn=False), arms, offered)

    def decide_read(self, reading: Reading, arms: Any, offered: Offered) -> Decision:
        """Do what `decide` does for a context that was read without learning."""
        known, offer = self._offer(self.prepared(), arms, offered)
        return self.chosen(known, offer, laid_out_for(reading, known.model).tobytes())[1]

    def chosen(self, known: Knowledge, offer: Offer, x: bytes) -> tuple[int, Decision]:
        """Choose among the arms offered; return the place of the arm, and a decision without id."""
        known.machine = machine = self.machine_for(known)
        place, _, seen = machine.decide(x, offer.columns, 0.0, False)
        if place == NOT_FINITE:
            check_finite(np.frombuffer(x), known.model.largest)
        decision = Decision("", offer.names[place], offer, self.policy, seen, machine.belief, 0.0)
        return place, decision

    def rank(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """Choose a list of k different arms; count and learn nothing. It has no id."""
        length, offered = whole_number("k", k, least=1), self.offered(arms)
        reading = self.reader.read(context, offered, learn=False)
        known, offer = self._offer(self.prepared(), arms, offered)
        return self.ranked(known, offer, laid_out_for(reading, known.model).tobytes(), length)

    def ranked(self, known: Knowledge, offer: Offer, x: bytes, length: int) -> Ranking:
        """Choose a list among the arms offered, without an id."""
        count = len(offer.names)
        if length > count:
            raise ValueError(
                f"a list of {length} cannot be made of {count} arms; make it shorter, or offer more"
            )
        known.machine = machine = self.machine_for(known)
        places, seen = np.zeros(length, dtype=np.int64), np.full((length, 4 * count + 2), np.nan)
        if machine.rank(x, offer.columns, places, seen) == NOT_FINITE:
            check_finite(np.frombuffer(x), known.model.largest)
        return Ranking("", offer, places, self.policy, seen, 0.0)

    def placed(
        self, reading: Reading, arms: Any, offered: Offered
    ) -> tuple[Knowledge, Offer, Floats]:
        """Return what would be known once the context is accepted, the offer, and the context.

        The knowledge is as wide as the context and has columns for new arms; nothing has changed.
        """
        known, offer = self._offer(self.widened(reading), arms, offered)
        known.machine = self.machine_for(known)
        return known, offer, laid_out_for(reading, known.model)

    def widened(self, reading: Reading) -> Knowledge:
        """Return what is known, as wide as a context; nothing has changed."""
        known = self.prepared()
        width = wanted_width(reading, known.model) if reading.encoded else None
        return known if width is None else known.widened(width)

    def adopt(self, reading: Reading | None, known: Knowledge) -> None:
        """Accept what was read and placed."""
        if reading is not None:
            self.reader.accept(reading)
        self.known = known
        self.prepared()

    def width_after(self, context: Context, arms: Any = None) -> int:
        """Return how many columns the model will have once it has learned a context; learn nothing.

        >>> import tsucb
        >>> tsucb.agent.Learner(["red", "blue"]).width_after({"age": 31})
        1
        """
        model = self.known.model
        wider = wanted_width(self.reader.read(context, self.offered(arms)), model)
        return sum(model.context_shape(1)[-1:]) if wider is None else int(np.sum(wider))

    def make_room(self, rows: int, numbers: int) -> Machine:
        """Make room for this many more open decisions; return the machine for it."""
        known = self.prepared()
        if not has_room(known.table, rows, numbers):
            self.known = known.changed(table=roomier_table(known.table, rows, numbers))
        machine: Machine = self.prepared().machine
        return machine

    def fits(self, reading: Reading) -> bool:
        """Return whether a context is as wide as the model, and nothing was learned since."""
        wide = reading.z is None and reading.x.shape == (self.known.width,)
        return wide and self.reader.is_current(reading)

    def compile_ahead(self, reading: Reading) -> None:
        """Compile what a wider model needs, so that nobody waits for it while the agent is locked.

        Which code that is depends on the kinds of arrays in a state, not on how large they are.
        """
        known = self.known
        if reading.z is None and reading.x.shape[-1] <= known.width and known.machine is not None:
            return
        width = wanted_width(reading, known.model) if reading.encoded else None
        if width is None and (known.machine is not None or known.books.counts.any()):
            return
        model = known.model if width is None else known.model.widened(width)
        two = model.start(2)
        machine = make_machine(
            self.policy, Knowledge.start(model, (), two), self.rng, self.keep_beliefs
        )
        numbers = sum(array.size for array in leaves(two)) * max(len(known.arms), 2) // 2
        machine.long = numbers >= LONG
        _ = machine.decide, machine.learn

    # Learning

    def read(self, context: Context, arm: Arm, features: Any = None) -> bytes:
        """Return the row of one arm as bytes, after learning the columns that it needs."""
        if not self.coming:
            known_name(arm, self.arms_by_name)
        reading = self.reader.read_one(context, features)
        known = self.widened(reading)
        self.reader.accept(reading)
        self.known = known
        return narrow_row(reading)

    def read_many(self, contexts: Any) -> Floats:
        """Return contexts (a list, matrix or table) as a matrix, after learning their columns."""
        reading = self.reader.read_many(contexts, NOBODY)
        known = self.widened(reading)
        self.reader.accept(reading)
        self.known = known
        return laid_out_for(reading, known.model)

    def count(self, arm: Arm) -> None:
        """Count a decision for an arm."""
        self.known, column = self.column_of(self.prepared(), arm)
        self.prepared().machine.count(column)

    def learn(self, arm: Arm, row: bytes, reward: float) -> bool:
        """Learn the reward of a counted decision; return False if the arm is not there any more."""
        value, known = self.check_reward(reward), self.prepared()
        check_row(row, known.model)
        if not self.coming and arm not in known.arms:
            return False
        returning = arm not in known.arms
        self.known, column = self.column_of(known, arm)
        if returning:  # the decision left with the arm, and is counted for it again
            self.known.books.chosen[column] += 1
        self.learn_row(column, row, value, COUNTED)
        return True

    def learn_row(self, column: int, row: bytes, reward: float, kind: int) -> None:
        """Learn a reward of `kind` COUNTED or OBSERVED for a row, which has been read."""
        known = self.prepared()
        if known.machine.learn is not None:
            if known.machine.learn(row, column, kind, reward):
                self.catch_up()
            return
        reading = Reading(np.frombuffer(row))
        rows = laid_out_for(_split(reading, known.model), known.model).reshape(1, -1)
        self.known = known.learned(
            np.array([column]), rows, np.array([reward]), observed=kind == OBSERVED
        )

    def check_reward(self, reward: Any) -> float:
        """Return a reward as a float that the model can learn from; raise otherwise."""
        value = reward if type(reward) is float else _number(reward)
        largest = self.reader.largest
        if not abs(value) <= largest:
            raise ValueError(
                f"a reward must be a finite number, at most ±{largest:g}, not {shown(reward)}"
            )
        if self._restricted:
            self.model.check_rewards(np.array([value]))
        return value if abs(value) >= SMALLEST else 0.0

    def check_rewards(self, rewards: Any) -> Floats:
        """Return `check_reward` of many: at once if they are numbers and all of them are good."""
        array = np.asarray(rewards)
        if array.dtype.kind in "biuf":
            values = array.astype(np.float64).ravel()
            if within(values, self.reader.largest):
                values = flushed(values)
                return self.model.check_rewards(values) if self._restricted else values
        array = np.asarray(rewards, dtype=object)
        return np.array([self.check_reward(reward) for reward in array.tolist()], dtype=np.float64)

    # Policy and randomness

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; what was learned stays."""
        self.policy = check_policy(policy)
        self.known.machine = None

    def reseed(self, seed: int | None = None) -> None:
        """Draw from another random stream; None for an arbitrary one."""
        self.rng = stream(check_seed(seed), 1, POLICY)
        self.known.machine = None

    # Files

    def hold(self) -> "Held":
        """Return what is known now; its `to_bytes` and `digest` may be called in another thread."""
        from tsucb.agent.snapshot import held

        return held(self)

    def to_bytes(self) -> bytes:
        """Return everything as bytes that `from_bytes` takes."""
        return self.hold().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Learner":
        """Return the learner that `to_bytes` of a learner or an agent described."""
        from tsucb.agent.snapshot import learner_of

        return learner_of(data)

    def digest(self) -> str:
        """Return a hash of everything learned, not of the random stream."""
        return self.hold().digest()


def check_row(row: bytes, model: Model) -> None:
    """Raise ValueError unless a model can learn from a row that was read earlier."""
    numbers = np.frombuffer(row) if len(row) % 8 == 0 else np.full(1, np.nan)
    good, size = within(numbers, model.largest), sum(model.context_shape(1)[-1:])
    split = split_of(model)
    if good and split != NOT_SPLIT:
        first = numbers[0] if numbers.size else -1.0
        good = 0 <= first <= split and first % 1 == 0
        size = int(first) + 1 + size - split
    if not good or numbers.size > size:
        raise ValueError("this is no row that was read for this model; give what `read` returned")


def _split(reading: Reading, model: Model) -> Reading:
    """Return a row as it was read: with features of arms, those of the context by themselves."""
    if split_of(model) == NOT_SPLIT:
        return reading
    first = int(reading.x[0]) + 1
    return Reading(reading.x[1:first], reading.x[first:][None])


def check_policy(policy: Any) -> Any:
    """Return a policy; raise TypeError for anything else."""
    if isinstance(policy, type) or not callable(getattr(policy, "choose", None)):
        raise TypeError("policy must be an instance with choose(belief, rng): tsucb.TSUCB(1)")
    return policy


def check_seed(seed: Any) -> int:
    """Return a seed as an int, an arbitrary one for None."""
    entropy: Any = np.random.SeedSequence().entropy if seed is None else seed
    if not isinstance(entropy, int | np.integer) or entropy < 0:
        raise ValueError(f"seed must be a whole number of at least 0, but it is {shown(seed)}")
    return int(entropy)


def _restricts_rewards(model: Model) -> bool:
    """Return whether the model takes some finite rewards only."""
    plain = model.model if isinstance(model, Forgetting) else model
    return type(plain).check_rewards is not Model.check_rewards


def _number(reward: Any) -> float:
    """Return a reward as a float."""
    try:
        value = None if isinstance(reward, _TEXT) else float(reward)  # which reads text, too
    except (TypeError, ValueError):
        value = None
    except OverflowError:
        value = math.inf
    if value is None:
        raise TypeError(f"a reward must be a number, not {shown(reward)}")
    return value


def _arm_names(arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """Return the names of a list of arms."""
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise TypeError(f"arms must be a list of names, such as [{shown(arms)}]")
    names: dict[Arm, None] = {}
    for name in map(plain_name, arms):
        if name in names:
            raise ValueError(f"there is an arm {shown(name)} already; choose another name")
        names[name] = None
    if not names:
        raise ValueError("an agent needs at least one arm; give their names")
    return tuple(names)


def _feature_names(features: Any) -> tuple[str, ...]:
    """Return the names of features."""
    # A set has no order, so its vectors would differ from process to process.
    if isinstance(features, Set) or not isinstance(features, Iterable):
        raise TypeError(f"features is their number or a list of names, not {shown(features)}")
    names = tuple(features)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"features are named by strings, not by {shown(names)}")
    return tuple(str(name) for name in names)


def _named_model(
    features: int | Sequence[str] | None, model: Model | None
) -> tuple[tuple[str, ...] | None, Model]:
    """Return the features' names, if they have any, and the model."""
    if isinstance(features, str):
        raise TypeError(f"features is their number or a list of names, such as [{shown(features)}]")
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
            "given; leave off features or make them agree"
        )
    return names, model
