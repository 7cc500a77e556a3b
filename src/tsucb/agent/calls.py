"""The two calls that change a live agent: one for a decision, one for a reward.

Each is a single call of compiled code, so an interrupt finds the agent before it or after it, never
in between. And each is fast: handing arguments over costs more than deciding among ten arms, as
Numba finds out every argument's type and takes a random generator apart at each call. So what stays
the same is handed over once, as a `Learner` and a `Decider`, and the machine code for their types
is called directly, with their address. How to learn does not depend on the policy,
so it is compiled once for all of them. `PlainCalls` does the same in plain Python, for models
and policies without compiled implementations, or made of more than numbers and arrays.
"""

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from tsucb.agent.handed import LENT_BYTES, bytes_of, text_from
from tsucb.agent.ids import LONGEST_ID, decision_id, write_id
from tsucb.agent.seen import next_arm_seen
from tsucb.beliefs.belief import Belief
from tsucb.checks import LARGEST, SMALLEST, flushed
from tsucb.compiler import compiled, held, in_compiled_code, shared
from tsucb.compiler.memory import Kept, keepable
from tsucb.models.model import training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import Choice, choose, explored
from tsucb.step import Player, initial_pulls, runs_compiled
from tsucb.structure import leaves

# Places in `Books.counts`.
DECISIONS, OBSERVATIONS, CLOSED, PENDING, COLUMN = range(5)
# What a call has done that the agent has not yet taken note of; DUE: learned, and now to train.
NOTHING, DECIDED, LEARNED, DUE = range(4)
NOT_FINITE = -1

FNV_PRIME, FNV_BASIS = 0x100000001B3, 0xCBF29CE484222325


class Books(NamedTuple):
    """The counts that deciding and learning keep, beside the state of the model.

    `counts` (5,) are numbered above; `checksum` (2,) is that of all decisions, and of all but the
    last. For every column of the state: `tokens` tell the arms apart, `chosen` counts decisions for
    the arm (and rewards learned without one), `pulls` and `totals` the rewards learned.
    """

    counts: Integers
    checksum: NDArray[np.uint64]
    tokens: NDArray[np.uint64]
    chosen: Integers
    pulls: Integers
    totals: Floats


Decided: TypeAlias = tuple[int, str, bytes]


class Calls(Protocol):
    """Deciding and learning as the agent calls them.

    Contexts are the bytes of their numbers: of the rows of the arms in question, if every arm has
    one.
    """

    def decide(self, context: bytes, columns: Integers) -> Decided:
        """Which arm, as an index into the columns; the decision's id; what the policy saw.

        That is what `tsucb.agent.seen` says, as bytes. The index is `NOT_FINITE` where a context
        has an entry that is not; nothing has happened.
        """

    @property
    def learn(self) -> Callable[[bytes, int, float, bool], bool] | None:
        """Learns a reward, of a decision or else one to be counted, and says if training is due.

        None where nothing can do it without the risk of an interrupt halfway.
        """

    @property
    def belief(self) -> Belief | None:
        """The belief of the last decision, if it was kept."""


def make_calls(
    policy: Any, model: Any, state: Any, books: Books, rng: np.random.Generator,
    keep_beliefs: bool,
) -> Calls:  # fmt: skip
    """The calls for this state."""
    machine = not keep_beliefs and runs_by_address(model, state, policy)
    kind = CompiledCalls if machine else PlainCalls
    return kind(policy, model, state, books, rng)


def runs_by_address(model: Any, state: Any, policy: Any = None) -> bool:
    """Whether machine code can do it all, with nothing but the addresses of what is given."""
    return runs_compiled(model, policy) and keepable((model, state, policy or ()))


@shared
def record_decision(books, words, columns, place):  # type: ignore[no-untyped-def]
    """Count a decision, and take it into the checksum."""
    counts, checksum = books.counts, books.checksum
    column = columns[place]
    counts[COLUMN] = column
    checksum[1] = checksum[0]
    checksum[0] = hashed(checksum[0], books.tokens[column], words)
    books.chosen[column] += 1
    counts[DECISIONS] += 1
    counts[PENDING] = DECIDED


@compiled
def record_reward(books, column, reward, counted, due):  # type: ignore[no-untyped-def]
    """Count a reward, and the decision it stands for if there was none."""
    books.pulls[column] += 1
    books.totals[column] += reward
    if counted:
        books.chosen[column] += 1
        books.counts[OBSERVATIONS] += 1
    else:
        books.counts[CLOSED] += 1
    books.counts[PENDING] = DUE if due else LEARNED


@compiled
def record_closed(books):  # type: ignore[no-untyped-def]
    """Count a decision whose reward teaches nothing."""
    books.counts[CLOSED] += 1
    books.counts[PENDING] = LEARNED


@compiled
def hashed(checksum, token, words):  # type: ignore[no-untyped-def]
    """The checksum with one more decision: FNV-1a over 64-bit words.

    In four strands, each of every fourth word, as a product must wait for the one before it.
    """
    one = two = three = four = np.uint64(FNV_BASIS)
    whole = words.size - words.size % 4
    for i in range(0, whole, 4):
        one, two = mixed(one, words[i]), mixed(two, words[i + 1])
        three, four = mixed(three, words[i + 2]), mixed(four, words[i + 3])
    for i in range(whole, words.size):
        one = mixed(one, words[i])
    pair = mixed(mixed(one, two), mixed(three, four))
    return mixed(mixed(checksum, token), pair)


@compiled
def mixed(value, word):  # type: ignore[no-untyped-def]
    """A step of FNV-1a; its shift lets high bits count for low ones, too."""
    product = (value ^ word) * np.uint64(FNV_PRIME)
    return product ^ product >> np.uint64(32)


def laid_out(values, room, columns):  # type: ignore[no-untyped-def]
    """The values as a context of the model, at these columns if it has a row for every arm.

    Then `room` is such a context, and the rows of all other arms stay as they are: a decision among
    ten arms of ten thousand writes ten rows.
    """
    if room.ndim == 1:
        return values
    room[columns] = values.reshape(columns.size, -1)
    return room


def laid_out_vector(values, room, columns):  # type: ignore[no-untyped-def]
    return values


def laid_out_rows(values, room, columns):  # type: ignore[no-untyped-def]
    features = room.shape[1]
    for a in range(columns.size):
        for j in range(features):
            room[columns[a], j] = values[a * features + j]
    return room


in_compiled_code(
    laid_out, lambda _, room, columns: laid_out_vector if room.ndim == 1 else laid_out_rows
)


@shared
def all_finite(values, largest):  # type: ignore[no-untyped-def]
    """Whether every entry is finite and not too large to compute with."""
    wrong = 0
    for i in range(values.size):
        wrong += not abs(values[i]) <= largest
    return wrong == 0


@compiled
def without_tiny(values):  # type: ignore[no-untyped-def]
    """The same as `tsucb.checks.flushed`."""
    out = np.empty(values.size)
    for i in range(values.size):
        out[i] = values[i] if abs(values[i]) >= SMALLEST else 0.0
    return out


def room_for(model: Any, state: Any) -> Floats:
    """Room for a context; an empty vector stands for none."""
    return np.zeros(model.context_shape(model.arms(state)) or (0,))


def room_for_seen(books: Books) -> Floats:
    """Room for what a decision among all arms sees of them."""
    return np.empty(4 * books.chosen.size + 2)


def largest_of(model: Any) -> float:
    """The largest number that the model takes."""
    return float(getattr(model, "largest", LARGEST))


class PlainCalls:
    """`Calls` in plain Python; it can also keep the belief of the last decision."""

    def __init__(
        self, policy: Any, model: Any, state: Any, books: Books, rng: np.random.Generator
    ) -> None:
        self.policy, self.model, self.state, self.books = Watched(policy), model, state, books
        self.rng, self.seen = rng, room_for_seen(books)
        self.room, self.largest = room_for(model, state), largest_of(model)
        # Learning is compiled wherever the model is, and then an interrupt cannot come halfway.
        given = (model, state, books, rng)
        self._machine = CompiledCalls((), *given) if runs_by_address(model, state) else None

    def decide(self, context: bytes, columns: Integers) -> Decided:
        """See `Calls`."""
        values, counts = np.frombuffer(context), self.books.counts
        if not all_finite(values, self.largest):
            return NOT_FINITE, "", b""
        step = int(counts[DECISIONS] + counts[OBSERVATIONS]) + 1
        self.policy.belief = None
        first_pulls = initial_pulls(self.model)
        player = Player(self.model, self.state, self.policy, self.books.chosen, first_pulls)
        row = laid_out(flushed(values), self.room, columns)
        choice = next_arm_seen(player, row, columns, step, self.rng, self.seen)
        words = np.frombuffer(context, np.uint64)
        count_decision(self.books, words, columns, choice.arm)
        id = decision_id(int(counts[DECISIONS]), int(self.books.checksum[0]))
        return int(choice.arm), id, self.seen[: 4 * columns.size + 2].tobytes()

    @property
    def learn(self) -> Any:
        """See `Calls`."""
        return None if self._machine is None else self._machine.learn

    @property
    def belief(self) -> Belief | None:
        """See `Calls`."""
        return self.policy.belief


class Watched:
    """A policy that remembers the belief it last chose from."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.belief: Belief | None = None

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        """What the policy chooses."""
        self.belief = belief
        return choose(self.policy, belief, rng)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        """The arm at this place, or another if the policy has a floor."""
        return explored(self.policy, place, arms, rng)


@compiled
def count_decision(books, words, columns, place):  # type: ignore[no-untyped-def]
    """`record_decision` as a call: what is copied into a function that reads no counts is lost."""
    record_decision(books, words, columns, place)


class CompiledCalls:
    """`Calls` as machine code."""

    __slots__ = ("_decider", "_learner", "_long", "_machines", "belief", "decide", "learn")

    def __init__(
        self, policy: Any, model: Any, state: Any, books: Books, rng: np.random.Generator
    ) -> None:
        self._learner = Kept(Learner(model, state, room_for(model, state), books))
        letters, seen = np.empty(LONGEST_ID, dtype=np.uint8), room_for_seen(books)
        rest = policy, initial_pulls(model), held(rng), seen, largest_of(model), letters
        self._decider = Kept(Decider(self._learner, *rest))
        self._long = sum(array.size for array in leaves(state)) >= LONG
        self._machines: dict[Any, MethodType] = {}
        self.belief = None  # machine code keeps none
        # Compiled when the first decision is made, and the first reward comes.
        self.decide: Callable[[bytes, Integers], Decided] = self._first_decision
        self.learn: Callable[[bytes, int, float, bool], bool] = self._first_reward

    def bound(self, function: Any, *kinds: Any) -> Callable[..., Any]:
        """The machine code of a function of the decider and of arguments of these types."""
        if function not in self._machines:
            self._machines[function] = _bound(self._decider, function, kinds)
        return self._machines[function]

    def _first_decision(self, context: bytes, columns: Integers) -> Decided:
        self.decide = self.bound(_decide_long if self._long else _decide, _CONTEXT, _COLUMNS)
        place, id, seen = self.decide(context, columns)
        return place, id, seen

    def _first_reward(self, context: bytes, column: int, reward: float, counted: bool) -> bool:
        kinds = (_CONTEXT, types.int64, types.float64, types.boolean)
        self.learn = _bound(self._learner, _learn, kinds)
        return bool(self.learn(context, column, reward, counted))


class Learner(NamedTuple):
    """What learns."""

    model: Any
    state: Any
    room: Floats
    books: Books


class Decider(NamedTuple):
    """A learner and what else decides."""

    learner: Kept
    policy: Any
    first_pulls: int
    stream: Any
    seen: Floats
    largest: float
    letters: NDArray[np.uint8]


@compiled
def player_of(decider):  # type: ignore[no-untyped-def]
    """Return the model, state and policy of a decider as a player."""
    learner = decider.learner
    chosen, first_pulls = learner.books.chosen, decider.first_pulls
    return Player(learner.model, learner.state, decider.policy, chosen, first_pulls)


def _bound(first: Kept, function: Any, kinds: Any) -> MethodType:
    """The machine code of a function of this and of arguments of these types."""
    return MethodType(function.compile((first.kind, *kinds)), first.address)


_CONTEXT = LENT_BYTES
_COLUMNS = types.Array(types.int64, 1, "C")

# Most calls are short. To give up the interpreter's lock would take a tenth of their time, and the
# agent's own lock would then be held until another thread gives it back.
keeping_gil = functools.partial(compiled, nogil=False)
# With so many numbers in the model's state a decision takes some 10 µs and more. Other threads, if
# they have agents of their own, decide meanwhile.
LONG = 2**16


@keeping_gil
def _decide(decider, numbers, columns):  # type: ignore[no-untyped-def]
    learner = decider.learner
    values, books = np.frombuffer(numbers, np.float64), learner.books
    if not all_finite(values, decider.largest):
        nothing = bytes_of(decider.seen, 0)
        return NOT_FINITE, text_from(decider.letters, decider.letters.size), nothing
    step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
    context = laid_out(without_tiny(values), learner.room, columns)
    rng, seen = decider.stream.rng, decider.seen
    choice = next_arm_seen(player_of(decider), context, columns, step, rng, seen)
    record_decision(books, np.frombuffer(numbers, np.uint64), columns, choice.arm)
    letters = decider.letters
    first = write_id(letters, letters.size, books.counts[DECISIONS], books.checksum[0])
    return choice.arm, text_from(letters, first), bytes_of(seen, 4 * columns.size + 2)


@compiled
def _decide_long(decider, numbers, columns):  # type: ignore[no-untyped-def]
    return _decide(decider, numbers, columns)


@keeping_gil
def _learn(learner, numbers, column, reward, counted):  # type: ignore[no-untyped-def]
    values, columns = without_tiny(np.frombuffer(numbers, np.float64)), np.empty(1, np.int64)
    columns[0] = column
    x = laid_out(values, learner.room, columns)
    update(learner.model, learner.state, x, column, reward)
    due = training_due(learner.model, learner.state)
    record_reward(learner.books, column, reward, counted, due)
    return due
