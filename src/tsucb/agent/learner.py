"""The learner: reads contexts, decides, and learns; it keeps no decisions.

A `Learner` has a reader of contexts, a model with its state, a policy and a random stream. Its
owner keeps the decisions and says when to learn: the agent in memory, the service in its event log.
It has no lock: its owner calls it from one thread at a time.

    decision = learner.decide(context, arms)   # neither counts, nor learns columns, nor admits arms
    row = learner.read(context, arm, features) # the numbers of one arm; new columns are learned
    learner.count(arm)                         # a decision for this arm was made
    learner.learn(arm, row, reward)            # True, or False if there is no such arm any more

A row is as wide as the columns known when it was read; store it unchanged, `learn` pads it. Every
row that is counted may be learned once, or never. Two learners with the same calls of `read`,
`count`, `learn`, `add_arm`, `remove_arm` and `compact`, in the same order, have the same
`digest()`, whatever they decided meanwhile.

Where arms come with the decisions (`Learner()` without a list of arms), `count` and `learn` admit
the arm, which may replace the arm that was longest unused. Where arms are listed, the owner forgets
the rows of an arm that it removes, in case it adds another arm of the same name.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsucb.agent import storage
from tsucb.agent.batch import decide_many
from tsucb.agent.decision import Decision, Ranking
from tsucb.agent.guard import Change, at_once
from tsucb.agent.knowledge import Knowledge, Offer, known_name, plain_name, token_of
from tsucb.agent.machine import (
    COUNTED,
    DECISIONS,
    DUE,
    NOT_SPLIT,
    RETURNED,
    Machine,
    PlainMachine,
    make_machine,
    split_of,
)
from tsucb.agent.settings import (
    READ_ANY,
    arm_names,
    check_ordered,
    check_seed,
    features_of_arms,
    named_model,
    plain_features,
    reward_number,
    whole_policy,
)
from tsucb.checks import SMALLEST, between, flush_tiny, shown, truth, whole_number, within
from tsucb.contexts.readers import (
    NOBODY,
    Arm,
    Context,
    Offered,
    Reader,
    Reading,
    ReadQuestion,
    laid_out_for,
    make_reader,
    narrow_rows,
    wanted_width,
    widths_of,
)
from tsucb.extras import require
from tsucb.models.forgetting import Forgetting, without_forgetting
from tsucb.models.model import Model, check_finite, trains
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.streams import POLICY, stream
from tsucb.policies.names import check_policy
from tsucb.step import start

if TYPE_CHECKING:
    import pandas as pd

    from tsucb.agent.snapshot import Held


class Lesson(NamedTuple):
    """Rewards to learn: all rows in one array, each up to its end; see `machine` for the kinds."""

    values: Floats
    ends: Integers
    columns: Integers
    kinds: Integers
    rewards: Floats

    @classmethod
    def of(cls, rows: list[bytes], columns: Any, kinds: Any, rewards: Any) -> "Lesson":
        """Return the lesson of rewards for these rows."""
        ends = np.cumsum([len(row) // 8 for row in rows], dtype=np.int64)
        places, kinds = np.array(columns, dtype=np.int64), np.array(kinds, dtype=np.int64)
        values = np.frombuffer(b"".join(rows)) if rows else np.zeros(0)
        return cls(values, ends, places, kinds, np.array(rewards, dtype=np.float64))


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

    __slots__ = ("_restricted", "coming", "described", "keep_beliefs", "known", "most_arms",
                 "reader", "rng")  # fmt: skip

    # The parameters of `Agent` that are about learning, repeated for type checkers.
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
        most_arms: int = 10_000,
        keep_beliefs: bool = False,
    ) -> None:
        coming, described = arms is None, features_of_arms(arms)
        if (coming or described) and model is None and not (features is None is transformer):
            raise ValueError(
                "an agent without a list of arms, or with features of arms, reads contexts and "
                "arms in any form; leave off features and transformer, or list the arms"
            )
        names, plain = named_model(features, model, coming or bool(described), arms)
        any_form = model is None or (isinstance(model, READ_ANY) and not any(widths_of(model)))
        any_form = any_form and features is None and transformer is None
        gamma = between("forgetting", forgetting, 0, 1)
        whole: Any = plain if gamma == 1 else Forgetting(plain, gamma)
        policy, entropy = whole_policy(policy, exploration), check_seed(seed)
        reader = make_reader(whole, names, transformer, streaming, categories, any_form)
        if coming and not reader.per_arm:
            raise ValueError(
                f"{type(plain).__name__} needs a list of arms; only a model with features for "
                "every arm, such as HybridLinear, can take arms that come with the decisions"
            )
        listed_arms = () if arms is None else arm_names(arms)
        # The streams of run 0 of a simulation: the agent plays the same arms as that run.
        state = start(whole, len(listed_arms) or 1, entropy, 0)
        known = Knowledge.start(whole, listed_arms, state, policy)
        self._set(reader, known, stream(entropy, 0, POLICY), coming,
                  whole_number("most_arms", most_arms, least=1),
                  truth("keep_beliefs", keep_beliefs), {})  # fmt: skip
        for name, each in described.items():
            at_once(*self._description(name, each))

    def _set(
        self, reader: Reader, known: Knowledge, rng: np.random.Generator, coming: bool,
        most_arms: int, keep_beliefs: bool, described: dict[Arm, Any],
    ) -> None:  # fmt: skip
        self.reader, self.known, self.rng = reader, known, rng
        self.coming = coming  # whether arms come with the decisions
        self.most_arms, self.keep_beliefs = most_arms, keep_beliefs
        self.described = described  # the features of listed arms that were given with them
        # Whether the model refuses some finite rewards.
        plain = type(without_forgetting(known.model))
        self._restricted = plain.check_rewards is not Model.check_rewards

    def _description(self, name: Arm, features: Any) -> list[Change]:
        """Return the change that keeps the features of a listed arm, checked, if it has any."""
        if features is None:
            return []
        if self.coming:
            raise TypeError(
                "where arms come with the decisions, so do their features: add the arm by its name "
                "alone, and give its features to choose"
            )
        if not self.reader.per_arm:
            self.reader.refuse_features()
        encoder = self.reader.parts[-1]
        self.reader.checked(Reading(encoder.look(features, encoder.learned, True)[0]))
        return [(self.described.__setitem__, name, plain_features(features))]

    def _features_of(self, names: Iterable[Arm]) -> list[Any] | None:
        return [self.described.get(name) for name in names] if self.described else None

    @classmethod
    def of(cls, *parts: Any) -> "Learner":
        """Return a learner made of a reader, knowledge, stream and settings; see `_set`."""
        learner = cls.__new__(cls)
        learner._set(*parts)
        return learner

    # Arms, model, policy

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The names of the arms, in the order they were added."""
        return tuple(self.arms_by_name)

    @property
    def arms_by_name(self) -> Mapping[Arm, int]:
        """The column of every arm; -1 for an arm that was added since the last call."""
        known = self.known
        return known.arms if known.wanted is None else known.wanted

    @property
    def model(self) -> Model:
        """The model, as wide as the contexts read so far."""
        return self.known.model

    @property
    def policy(self) -> Any:
        """The policy, with its floor."""
        return self.known.policy

    def coefficients(self) -> "pd.DataFrame":
        """Return mean and standard deviation of every parameter; see `Agent.coefficients`."""
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
        """Return what is known, after adding and removing arms and training the model if due."""
        known = self.known
        if not known.ready:
            if known.wanted is not None:
                known = known.with_arms(known.wanted)
            if known.books.counts[DUE]:
                known = known.trained()
            self.machine_for(known)
            self.known = known
            known.ready = True
        return known

    @property
    def is_training_due(self) -> bool:
        """Whether the next call trains the model, which may take long."""
        return bool(self.known.books.counts[DUE])

    def machine_for(self, known: Knowledge) -> Machine:
        """Return the machine that decides and learns with what is known."""
        if known.machine is None:
            known.machine = make_machine(known, self.rng, self.keep_beliefs)
        machine: Machine = known.machine
        return machine

    # Arms

    def add_arm(self, name: Arm, features: Any = None) -> None:
        """Add an arm that is known by the prior alone."""
        plain = plain_name(name)
        if plain in self.arms_by_name:
            raise ValueError(f"there is an arm {shown(plain)} already; choose another name")
        description = self._description(plain, features)
        at_once((self._changing().__setitem__, plain, -1), *description)

    def remove_arm(self, name: Arm) -> None:
        """Remove an arm and all that was learned of it; later rewards for it are not learned."""
        plain = known_name(name, self.arms_by_name)
        at_once((self._changing().pop, plain), (self.described.pop, plain, None))

    def _changing(self) -> dict[Arm, int]:
        """Return the arms of the next call, for the caller to change."""
        known = self.prepared() if self.is_training_due else self.known
        known.ready = False
        if known.wanted is None:
            known.wanted = dict(known.arms)
        return known.wanted

    def compact(self) -> None:
        """Drop the free columns, which a loaded learner has not."""
        known = self.prepared()
        if known.free:
            self.known = known.with_arms(known.arms)

    def name_of(self, arm: Any) -> Arm:
        """Return the plain name of an arm; raise an error unless it is listed or may come."""
        return plain_name(arm) if self.coming else known_name(arm, self.arms_by_name)

    def offered(self, arms: Any) -> Offered:
        """Return the arms that a caller offers, checked; `NOBODY` for all arms without features."""
        if arms is None and not self.coming:
            if not self.reader.per_arm:
                return NOBODY
            return Offered(self.arms, self._features_of(self.arms), self.arms_by_name)
        check_ordered(arms)
        if isinstance(arms, str | bytes) or not isinstance(arms, Iterable):
            raise TypeError(
                "say which arms are offered: a list of their names, or a mapping of names to "
                "features" if self.coming else
                f"arms must be a list of names, such as [{shown(arms)}]"
            )  # fmt: skip
        if self.coming:
            names = tuple([n if type(n) is str else plain_name(n) for n in arms])
        else:
            known = self.arms_by_name
            names = tuple([known_name(name, known) for name in arms])
        if len(set(names)) < len(names):
            raise ValueError("an arm is listed twice among those available; list each once")
        features = list(arms.values()) if isinstance(arms, Mapping) else self._features_of(names)
        return Offered(names, features, names if self.coming else self.arms_by_name)

    def _offer(self, known: Knowledge, offered: Offered) -> tuple[Knowledge, Offer]:
        """Return the columns of the arms that are offered, and knowledge with room for new arms."""
        if offered is NOBODY:
            offer = known.all_arms()
        elif self.coming:
            known, offer = self._with_strangers(known, offered.names)
        else:
            offer = known.offer([known_name(name, known.arms) for name in offered.names])
        return known, offer.checked()

    def _with_strangers(
        self, known: Knowledge, names: tuple[Arm, ...], admitted: int = 1
    ) -> tuple[Knowledge, Offer]:
        """Return the columns of arms, free columns for new ones, and knowledge with these columns.

        At most `most_arms` arms are left after this many new ones are admitted.
        """
        new = [name for name in names if name not in known.arms]
        columns = list(islice(reversed(known.free), len(new)))
        excess = len(known.arms) + min(admitted, len(new)) - self.most_arms
        unoffered = len(known.arms) + len(new) - len(names)
        if new and (len(columns) < len(new) or (excess > 0 and unoffered > 0)):
            known = known.changed()
            for name in names:  # arms that are offered stay
                if name in known.arms:
                    known.arms.move_to_end(name)
            if excess > 0 and unoffered > 0:  # the longest unused arms leave
                leaving = min(max(excess, unoffered // 10), unoffered)
                known = known.with_arms(dict(list(known.arms.items())[leaving:]))
            if len(known.free) < len(new):
                known = known.with_room(len(new))
            columns = list(islice(reversed(known.free), len(new)))
        places = dict(zip(new, columns, strict=True))
        for name, column in places.items():
            known.books.tokens[column] = token_of(name)
        columns = [places[name] if name in places else known.arms[name] for name in names]
        return known, Offer(names, np.array(columns, dtype=np.int64), known.policy)

    def columns_of(self, known: Knowledge, arms: Sequence[Arm]) -> tuple[Knowledge, Integers]:
        """Return the columns of arms, which must be listed or may come; admit new ones."""
        names = tuple(map(self.name_of, arms))
        if not self.coming:
            return known, known.offer(names).columns
        known, offer = self._with_strangers(known, names, len(names))
        self.use(known, names, offer.columns)
        return known, offer.columns

    def use(self, known: Knowledge, names: Iterable[Arm], columns: Integers) -> None:
        """Note that arms that come with the decisions are used now, and admit new ones."""
        changes: list[Change] = []
        made = int(known.books.counts[DECISIONS])
        for name, column in zip(names, columns.tolist(), strict=True):
            if name not in known.arms:
                known.everyone = None
                changes += (known.arms.__setitem__, name, column), (known.free.pop, column)
                if made:
                    changes.append((known.born.__setitem__, name, made))
            changes.append((known.arms.move_to_end, name))
        at_once(*changes)

    # Deciding

    def ask(
        self, context: Context, arms: Any, learn: bool = True, many: bool = False,
        uses: str = "decide",
    ) -> ReadQuestion:  # fmt: skip
        """Read a context, or several, and the arms that are offered; nothing has changed.

        It may compile code, which takes long, and needs no lock. `uses` is the function of the
        machine that will decide.
        """
        offered, reader = self.offered(arms), self.reader
        read = (
            partial(reader.read_many, context, offered) if many
            else partial(reader.read, context, offered, learn)
        )  # fmt: skip
        reading = read()
        self.compile_ahead(reading, uses, many=many)
        return ReadQuestion(read, reading, offered)

    def resolve(self, question: ReadQuestion) -> tuple[Knowledge, Offer, Floats, Reading]:
        """Return the knowledge, offer, context and reading to answer a question with.

        Nothing has changed: `adopt` accepts the knowledge, which is as wide as the context and has
        columns for new arms, and the reading.
        """
        reading, offered = self.reader.current(question), question.offered
        known, x = self.prepared(), reading.x
        if offered is NOBODY and x.shape == (known.width,) and known.arms:
            return known, known.all_arms(), x, reading
        known, offer = self._offer(self.widened(reading), offered)
        self.machine_for(known)
        return known, offer, laid_out_for(reading, known.model), reading

    def count_used(
        self, known: Knowledge, names: Sequence[Arm], columns: Integers, x: bytes
    ) -> tuple[int, int]:
        """Count decisions for arms in one context; return the last number and checksum."""
        if self.coming:
            self.use(known, names, columns)
        return known.machine.count(x, columns)  # type: ignore[no-any-return]

    def decide(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm; count and learn nothing. The decision has no id."""
        return self.answer(self.ask(context, arms, learn=False))

    def answer(self, question: ReadQuestion) -> Decision:
        """Choose an arm for a context that was read without learning; see `decide`."""
        known, offer, values, _ = self.resolve(question)
        machine = known.machine
        place, _, _, seen = machine.decide(values.tobytes(), offer.columns, False, machine.long)
        return Decision("", offer.names[place], offer, seen, machine.belief, 0.0)

    def rank(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """Choose a list of k different arms; count and learn nothing. The list has no id."""
        length = whole_number("k", k, least=1)
        question = self.ask(context, arms, learn=False, uses="decide_rows")
        known, offer, values, _ = self.resolve(question)
        return self.ranked(known, offer, values, length)

    def ranked(self, known: Knowledge, offer: Offer, values: Floats, length: int) -> Ranking:
        """Return a list of the arms offered, without an id; decide and count each place aside."""
        count = len(offer.names)
        if length > count:
            raise ValueError(
                f"a list of {length} cannot be made of {count} arms; make it shorter, or offer more"
            )
        aside, left = known.machine.books_aside(), np.arange(count)
        places, checksums = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.uint64)
        seen = np.full((length, 4 * count + 2), np.nan)
        for n in range(length):
            one, columns = slice(n, n + 1), offer.columns[left]
            rows = (values if values.ndim == 1 else values[left]).reshape(1, -1)
            known.machine.decide_rows(rows, columns, places[one], checksums[one], aside, seen[one])
            places[n] = left[places[n]]
            left = left[left != places[n]]
        return Ranking("", offer, places, seen)

    def rows_of(self, values: Floats, places: Any) -> Floats:
        """Return the rows from which decisions are learned, as a new matrix.

        `values` are their contexts (N, d), or (N, n, d) where each of n arms has a row; `places`
        are the indices of the chosen arms.
        """
        rows, split = values, split_of(self.model)
        if rows.ndim == 3:
            rows = rows[np.arange(len(rows)), places]
        if split != NOT_SPLIT:
            rows = np.insert(rows, 0, split, axis=1)
        return np.array(rows, dtype=np.float64, order="C")

    def widened(self, reading: Reading) -> Knowledge:
        """Return knowledge as wide as a context; nothing has changed."""
        known = self.prepared()
        width = wanted_width(reading, known.widths) if reading.after else None
        return known if width is None else known.widened(width)

    def adopt(self, reading: Reading, known: Knowledge) -> None:
        """Accept a reading, and the knowledge after it."""
        self.reader.accept(reading)
        if known is not self.known:
            self.known = known
            self.prepared()

    def width_after(self, context: Context, arms: Any = None) -> int:
        """Return the number of columns that the model will have after a context; learn nothing.

        >>> import tsucb
        >>> tsucb.agent.Learner(["red", "blue"]).width_after({"age": 31})
        1
        """
        reading = self.reader.read(context, self.offered(arms))
        wider = wanted_width(reading, self.known.widths)
        return self.known.width if wider is None else int(np.sum(wider))

    def compile_ahead(self, reading: Reading, *functions: str, many: bool = False) -> None:
        """Compile the functions that a call needs, so that it does not do so under the lock.

        If the model will be wider after the call, or was not used yet, they are compiled for a
        model with two arms: the code depends on the types of a state's arrays, not on their sizes.
        """
        known = self.known
        machine, width = known.machine, None
        if reading.z is not None or reading.x.shape[-1] > known.width:
            width = wanted_width(reading, known.widths) if reading.after else None
        if machine is None or width is not None or (many and not machine.has_decided_many):
            model = known.model if width is None else known.model.widened(width)
            few = Knowledge.start(model, ("", " "), model.start(2), self.policy)
            rng, shape = np.random.default_rng(0), model.context_shape(2) or (0,)
            machine = few.machine = make_machine(few, rng, self.keep_beliefs)
            functions = "decide", "count", "learn", *functions
            if many and not isinstance(machine, PlainMachine):
                decide_many(few, np.zeros((1, *shape)), few.all_arms(), 0.0)
                functions = "take_counts", *functions
        for name in functions:
            if name != "learn" or machine.learns_at_once:
                getattr(machine, name)

    # Learning

    def read(self, context: Context, arm: Arm, features: Any = None) -> bytes:
        """Return the row of one arm as bytes; learn the columns that it needs."""
        reading = self.ask_one(context, arm, features).reading
        self.adopt(reading, self.widened(reading))
        return narrow_rows(reading).tobytes()

    def ask_one(self, context: Context, arm: Arm, features: Any) -> ReadQuestion:
        """Read the context of one arm, which must be listed or may come; nothing has changed."""
        name = self.name_of(arm)
        given = self.described.get(name) if features is None else features
        read = partial(self.reader.read_one, context, given)
        reading = read()
        self.compile_ahead(reading, "count", "learn")
        return ReadQuestion(read, reading)

    def accept_one(self, question: ReadQuestion, arm: Arm) -> tuple[int, bytes]:
        """Accept the context of one arm; return the arm's column and the row."""
        reading = self.reader.current(question)
        known, (column,) = self.columns_of(self.widened(reading), [arm])
        self.adopt(reading, known)
        return int(column), narrow_rows(reading).tobytes()

    def read_many(self, contexts: Any) -> Floats:
        """Return contexts (a list, matrix or table) as a matrix; learn the columns they need."""
        reading = self.reader.read_many(contexts, NOBODY)
        self.adopt(reading, self.widened(reading))
        return laid_out_for(reading, self.known.model)

    def count(self, arm: Arm) -> None:
        """Count a decision for an arm."""
        self.known, columns = self.columns_of(self.prepared(), [arm])
        self.prepared().machine.count(b"", columns)

    def learn(self, arm: Arm, row: bytes, reward: float) -> bool:
        """Learn the reward of a counted decision; return False if the arm has left."""
        value, known, arm = self.check_reward(reward), self.prepared(), plain_name(arm)
        try:
            check_rows([row], known.model)
        except (ValueError, TypeError):
            raise ValueError(
                "this is no row that was read for this model; give what `read` returned"
            ) from None
        kind = COUNTED if arm in known.arms else RETURNED
        if not self.coming and kind == RETURNED:
            return False
        self.known, (column,) = self.columns_of(known, [arm])
        self.learn_row(int(column), row, value, kind)
        return True

    def learn_row(self, column: int, row: bytes, reward: float, kind: int) -> None:
        """Learn a reward for a row that was read; see `machine` for the kinds."""
        known = self.prepared()
        if not known.machine.learns_at_once:
            self.learn_rows(Lesson.of([row], [column], [kind], [reward]))
            return
        known.ready = False  # where training is due, the next call trains
        known.ready = not known.machine.learn(row, column, kind, reward, known.machine.long)

    def learn_rows(self, lesson: Lesson, *changes: Change) -> int:
        """Learn rewards together with further changes, `at_once`; return how many were learned."""
        known = self.prepared()
        known.ready = False
        if known.machine.learns_at_once and not trains(known.model):
            at_once((known.machine.learn_rows, *lesson, 0), *changes)
        else:
            at_once((setattr, self, "known", self.taught(known.copied(), lesson)), *changes)
        self.prepared()
        return int(np.count_nonzero((lesson.columns >= 0) & ~np.isnan(lesson.rewards)))

    def taught(self, known: Knowledge, lesson: Lesson) -> Knowledge:
        """Learn rewards into `known`, and train the model when due; return the last knowledge."""
        done = 0
        while done < lesson.rewards.size:
            done = self.machine_for(known).learn_rows(*lesson, done)
            if known.books.counts[DUE]:
                known = known.trained()
        return known

    def check_reward(self, reward: Any) -> float:
        """Return a reward as a float that the model can learn from; raise otherwise."""
        value = reward if type(reward) is float else reward_number(reward)
        size, largest = abs(value), self.reader.largest
        if not size <= largest:
            raise ValueError(
                f"a reward must be a finite number, at most ±{largest:g}, not {shown(reward)}"
            )
        if self._restricted:
            self.model.check_rewards(np.array([value]))
        return value if size >= SMALLEST else 0.0

    def check_rewards(self, rewards: Any) -> Floats:
        """Return rewards as floats that the model can learn from; raise otherwise."""
        try:
            array = np.asarray(rewards)
        except ValueError:  # lists of different lengths, the first of which is no number
            array = np.empty(0, dtype=object)
        if array.dtype.kind in "biuf":
            values = array.astype(np.float64).ravel()
            if within(values, self.reader.largest):
                values = flush_tiny(values)
                return self.model.check_rewards(values) if self._restricted else values
            rewards = array.ravel().tolist()
        if isinstance(rewards, str | Mapping) or not isinstance(rewards, Iterable):
            raise TypeError(f"rewards are a list or an array of numbers, not {shown(rewards)}")
        return np.array([self.check_reward(reward) for reward in rewards], dtype=np.float64)

    # Policy and randomness

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; what was learned stays."""
        self.known = self.known.changed(policy=check_policy(policy), wanted=self.known.wanted)

    def reseed(self, seed: int | None = None) -> None:
        """Draw from another random stream; None for an arbitrary one."""
        self.rng = stream(check_seed(seed), 1, POLICY)
        self.known.ready, self.known.machine = False, None

    # Files

    def hold(self) -> "Held":
        """Return what is known now; another thread may call its `to_bytes` and `digest`."""
        from tsucb.agent.snapshot import held

        self.prepared()
        return held(self)

    def to_bytes(self) -> bytes:
        """Return everything as bytes for `from_bytes`."""
        return self.hold().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Learner":
        """Return the learner in the bytes that `to_bytes` of a learner or an agent returned."""
        from tsucb.agent.snapshot import restored

        learner, _, _ = restored("it", *storage.unpacked(data))
        learner.prepared()
        return learner

    def digest(self) -> str:
        """Return a hash of everything learned, not of the random stream."""
        return self.hold().digest()


def check_rows(rows: list[bytes], model: Model) -> None:
    """Raise ValueError for rows that were not read for this model, perhaps when it was narrower."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    if (lengths % 8).any():
        raise ValueError("rows that are no numbers")
    lengths //= 8
    values, width, split = np.frombuffer(b"".join(rows)), sum(widths_of(model)), split_of(model)
    if split != NOT_SPLIT:  # the first number is the number of the context's columns
        if (lengths < 1).any():
            raise ValueError("rows of the wrong length")
        heads = np.cumsum(lengths) - lengths
        first, values = values[heads], np.delete(values, heads)
        whole = (first >= 0) & (first <= split) & (first % 1 == 0) & (first < lengths)
        if not whole.all():
            raise ValueError("rows that are not split as the model's")
        lengths = lengths - 1 - first + split
    if (lengths > width).any():
        raise ValueError("rows of the wrong length")
    check_finite(values, float(model.largest))
