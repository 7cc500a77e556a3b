"""Deciding and learning as single calls of compiled code.

Numba finds out every argument's type and takes a random generator apart at each call, which costs
more than deciding among ten arms. So what stays the same is laid out in memory once (`Kept`), and
the machine code for its type is called with its address. A call changes the counts and the model's
state together: an exception from outside finds all of it done, or nothing.

`PlainMachine` does the same for models and policies without compiled implementations.
"""

import functools
from types import MethodType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from tsucb.agent.seen import choose_seen, first_pull_seen, next_arm_seen
from tsucb.beliefs.belief import Belief, belief_of
from tsucb.beliefs.law import Law, law_of
from tsucb.checks import LARGEST, SMALLEST, flush_tiny
from tsucb.compiler import class_of, compiled, held, hook, implements, in_compiled_code, offers
from tsucb.compiler.memory import Kept, keepable
from tsucb.compiler.text import LENT_BYTES, bytes_of, text_from
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import belief as model_belief
from tsucb.models.model import training_due, update
from tsucb.models.state import State, array, sums
from tsucb.models.state import counts as tallies
from tsucb.models.structure import leaves
from tsucb.numeric.arrays import Floats, Integers, take
from tsucb.policies.policy import Choice, choose, explored
from tsucb.step import Player, initial_pulls, runs_compiled

Checksums: TypeAlias = NDArray[np.uint64]

# Entries of `Books.counts`. DUE: 1 while the model has to train before anything else.
DECISIONS, OBSERVATIONS, CLOSED, DUE = range(4)
# What a reward is learned for: a decision counted for its arm; an observation that was no decision;
# a decision whose arm had left, and with it the count of the decision.
COUNTED, OBSERVED, RETURNED = range(3)
NOT_FINITE = -1  # returned instead of an arm, if the context is not finite
NOT_SPLIT = -1  # the rows of a model have no part of the context and part of the arm
LONGEST_ID = 36  # 19 digits, a hyphen and 16 digits
HYPHEN, DIGITS, LETTERS = 45, 48, 87  # 0 to 9, a to f

FNV_PRIME, FNV_BASIS = 0x100000001B3, 0xCBF29CE484222325
# With this many numbers in the model's state a decision takes some 10 µs and more. Other threads,
# if they have agents of their own, decide meanwhile: the interpreter's lock is given up.
LONG = 2**16


class Books(State):
    """The counts that deciding and learning keep beside the state of the model.

    `counts` has the entries above; `checksum` is over all decisions. For every column of the state:
    `tokens` tell the arms apart, `chosen` counts decisions for the arm (and observations of it),
    `pulls` and `totals` the rewards learned and their sum.
    """

    counts: Integers = tallies(4)
    checksum: Checksums = array(1, dtype=np.uint64)
    tokens: Checksums = array("arm", dtype=np.uint64)
    chosen: Integers = tallies("arm")
    pulls: Integers = tallies("arm")
    totals: Floats = sums("arm")


class Learning(NamedTuple):
    """What learns: a model, its state, room for a context, and counts.

    `split` is the number of columns of the context where arms have features, else `NOT_SPLIT`.
    """

    model: Any
    state: Any
    room: Floats
    books: Kept
    split: int


class Deciding(NamedTuple):
    """What learns, and what else is needed to decide."""

    learning: Kept
    policy: Any
    first_pulls: int
    stream: Any
    seen: Floats
    largest: float
    letters: NDArray[np.uint8]


# Contexts


@compiled
def all_finite(values, largest):  # type: ignore[no-untyped-def]
    """Return whether every entry is finite and not too large to compute with."""
    wrong = 0
    for i in range(values.size):
        wrong += not abs(values[i]) <= largest
    return wrong == 0


@compiled
def without_tiny(x):  # type: ignore[no-untyped-def]
    """Return a number, or 0 if it is too close to 0; see `tsucb.checks.flush_tiny`."""
    return x if abs(x) >= SMALLEST else 0.0


def laid_out(values, room, columns):  # type: ignore[no-untyped-def]
    """Return the context of a decision: the values, or `room` with the rows of these columns.

    Where every arm has a row, those of other arms stay as they are: a decision among ten arms of
    ten thousand writes ten rows.
    """
    values = flush_tiny(values)
    if room.ndim == 1:
        return values
    room[columns] = values.reshape(columns.size, -1)
    return room


def laid_out_vector(values, room, columns):  # type: ignore[no-untyped-def]
    for j in range(values.size):
        room[j] = without_tiny(values[j])
    return room


def laid_out_rows(values, room, columns):  # type: ignore[no-untyped-def]
    features = room.shape[1]
    for a in range(columns.size):
        for j in range(features):
            room[columns[a], j] = without_tiny(values[a * features + j])
    return room


in_compiled_code(
    laid_out, lambda _, room, columns: laid_out_vector if room.ndim == 1 else laid_out_rows
)


@compiled
def padded(values, split, row):  # type: ignore[no-untyped-def]
    """Write a row as wide as it was read into one as wide as the model is now."""
    first, rest, at = values.size, 0, 0
    if split != NOT_SPLIT:
        first, at = int(values[0]), 1
        rest = values.size - 1 - first
    for j in range(row.size):
        row[j] = 0.0
    for j in range(min(first, row.size)):  # never beyond the row, whatever it was given
        row[j] = without_tiny(values[at + j])
    for j in range(min(rest, row.size - split)):
        row[split + j] = without_tiny(values[1 + first + j])


def row_of(room, column):  # type: ignore[no-untyped-def]
    """Return the part of a context that belongs to a column: its row, or all."""
    return room if room.ndim == 1 else room[column]


def row_of_vector(room, column):  # type: ignore[no-untyped-def]
    return room


def row_of_rows(room, column):  # type: ignore[no-untyped-def]
    return room[column]


in_compiled_code(row_of, lambda room, _: row_of_vector if room.ndim == 1 else row_of_rows)


@compiled
def hashed(checksum, token, words):  # type: ignore[no-untyped-def]
    """Return the checksum with one more decision: FNV-1a over 64-bit words.

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
    """Return a step of FNV-1a; its shift lets high bits count for low ones, too."""
    product = (value ^ word) * np.uint64(FNV_PRIME)
    return product ^ product >> np.uint64(32)


# Counting decisions


@compiled
def count_decision(books, words, column):  # type: ignore[no-untyped-def]
    """Count a decision for a column, and take it into the checksum."""
    books.checksum[0] = hashed(books.checksum[0], books.tokens[column], words)
    books.chosen[column] += 1
    books.counts[DECISIONS] += 1


keeping_gil = functools.partial(compiled, nogil=False)  # to give it up takes a tenth of most calls


@keeping_gil
def _count(books, numbers, columns):  # type: ignore[no-untyped-def]
    """Count decisions for columns, all in one context; return the number and checksum after it."""
    words = np.frombuffer(numbers, np.uint64)
    for column in columns:
        count_decision(books, words, column)
    return books.counts[DECISIONS], books.checksum[0]


@compiled
def _take_counts(books, counts, checksum, chosen):  # type: ignore[no-untyped-def]
    """Take over the counts of decisions that were made aside."""
    books.counts[DECISIONS], books.checksum[0] = counts[DECISIONS], checksum[0]
    for k in range(chosen.size):
        books.chosen[k] = chosen[k]


@compiled
def write_id(letters, number, checksum):  # type: ignore[no-untyped-def]
    """Write `decision_id` at the end of the letters; return where it begins."""
    at = letters.size
    while True:
        at -= 1
        digit = checksum & np.uint64(15)
        letters[at] = digit + (np.uint64(DIGITS) if digit < 10 else np.uint64(LETTERS))
        checksum >>= np.uint64(4)
        if checksum == 0:
            break
    at -= 1
    letters[at] = HYPHEN
    while True:
        at -= 1
        letters[at] = DIGITS + number % 10
        number //= 10
        if number == 0:
            break
    return at


# Deciding


@compiled
def player_of(deciding, chosen):  # type: ignore[no-untyped-def]
    """Return model, state and policy as a player who has chosen the arms this often."""
    learning = deciding.learning
    return Player(learning.model, learning.state, deciding.policy, chosen, deciding.first_pulls)


@compiled
def next_step(counts):  # type: ignore[no-untyped-def]
    """Return the number of the next step, counted from 1."""
    return counts[DECISIONS] + counts[OBSERVATIONS] + 1


@keeping_gil
def _decide(deciding, numbers, columns, counting):  # type: ignore[no-untyped-def]
    """Choose among columns, and count the decision or not.

    Returns the arm as an index into the columns, or NOT_FINITE; the id, if it was counted; what the
    policy saw, see `tsucb.agent.seen`.
    """
    learning, letters = deciding.learning, deciding.letters
    values, books = np.frombuffer(numbers, np.float64), learning.books
    if not all_finite(values, deciding.largest):
        return NOT_FINITE, text_from(letters, letters.size), bytes_of(deciding.seen, 0)
    context = laid_out(values, learning.room, columns)
    player, rng = player_of(deciding, books.chosen), deciding.stream.rng
    choice = next_arm_seen(player, context, columns, next_step(books.counts), rng, deciding.seen)
    first = letters.size
    if counting:
        count_decision(books, np.frombuffer(numbers, np.uint64), columns[choice.arm])
        first = write_id(letters, books.counts[DECISIONS], books.checksum[0])
    return choice.arm, text_from(letters, first), bytes_of(deciding.seen, 4 * columns.size + 2)


@compiled
def _decide_long(deciding, numbers, columns, counting):  # type: ignore[no-untyped-def]
    return _decide(deciding, numbers, columns, counting)


@compiled
def _rank(deciding, numbers, columns, places, seen):  # type: ignore[no-untyped-def]
    """Fill the places of a list, one after the other, counting nothing; return 0 or NOT_FINITE.

    Each place counts as a decision for the next one.
    """
    learning, rng = deciding.learning, deciding.stream.rng
    books, values = learning.books, np.frombuffer(numbers, np.float64)
    if not all_finite(values, deciding.largest):
        return NOT_FINITE
    context, rest = laid_out(values, learning.room, columns), np.arange(columns.size)
    model, state, step = learning.model, learning.state, next_step(books.counts)
    player, n = player_of(deciding, books.chosen.copy()), 0
    while n < places.size and deciding.first_pulls > 0:
        choice = first_pull_seen(player, take(columns, rest[: columns.size - n]), rng, seen[n])
        if choice.arm < 0:
            break
        fill_place(n, choice.arm, rest, places)
        player.chosen[columns[places[n]]] += 1
        n += 1
    if n < places.size:
        whole = model_belief(model, state, context, columns, step + n, rng)
    while n < places.size:
        belief = whole
        if n > 0:
            left = rest[: columns.size - n]
            belief = belief_of_rest(whole, left, model, state, context, columns, step + n, rng)
        choice = choose_seen(deciding.policy, belief, rng, seen[n])
        fill_place(n, choice.arm, rest, places)
        n += 1
    return 0


@compiled
def fill_place(n, arm, rest, places):  # type: ignore[no-untyped-def]
    """Give place n to one of the arms that are left."""
    places[n] = rest[arm]
    for i in range(arm, rest.size - n - 1):
        rest[i] = rest[i + 1]


@hook
def belief_of_rest(
    whole: Any, left: Integers, model: Any, state: Any, context: Any, columns: Integers, step: int,
    rng: np.random.Generator,
) -> Any:  # fmt: skip
    """Return the belief about the arms that are left, where `whole` is that about all."""


@implements(belief_of_rest, Law, where=lambda whole, *_: offers(law_of, class_of(whole)))
def rest_of_belief(whole, left, model, state, context, columns, step, rng):  # type: ignore[no-untyped-def]
    return belief_of(whole, left, step)


@implements(belief_of_rest, Law)
def rest_believed_again(whole, left, model, state, context, columns, step, rng):  # type: ignore[no-untyped-def]
    return model_belief(model, state, context, take(columns, left), step, rng)


# Learning


@compiled
def learn_one(learning, values, column, kind, reward):  # type: ignore[no-untyped-def]
    """Learn a reward for a row, and close its decision; return whether training is due.

    NaN is no reward, and a column of -1 that of an arm that left: then nothing is learned.
    """
    books = learning.books
    books.counts[OBSERVATIONS if kind == OBSERVED else CLOSED] += 1
    if np.isnan(reward) or column < 0:
        return False
    padded(values, learning.split, row_of(learning.room, column))
    update(learning.model, learning.state, learning.room, column, reward)
    books.pulls[column] += 1
    books.totals[column] += reward
    books.chosen[column] += kind != COUNTED
    if training_due(learning.model, learning.state):
        books.counts[DUE] = 1
        return True
    return False


@keeping_gil
def _learn(learning, row, column, kind, reward):  # type: ignore[no-untyped-def]
    """Do what `learn_one` does, with the row as bytes."""
    return learn_one(learning, np.frombuffer(row, np.float64), column, kind, reward)


@compiled
def _learn_long(learning, row, column, kind, reward):  # type: ignore[no-untyped-def]
    return _learn(learning, row, column, kind, reward)


@compiled
def _learn_rows(learning, values, ends, columns, kinds, rewards, first):  # type: ignore[no-untyped-def]
    """Learn rewards from number `first` on until training is due; return the number of the next."""
    for i in range(first, rewards.size):
        row = values[ends[i - 1] if i else 0 : ends[i]]
        if learn_one(learning, row, columns[i], kinds[i], rewards[i]):
            return i + 1
    return rewards.size


# Machines

COLUMNS = types.Array(types.int64, 1, "C")
NUMBERS = types.Array(types.float64, 1, "C")
MATRIX = types.Array(types.float64, 2, "C")
CHECKSUMS = types.Array(types.uint64, 1, "C")
INT, FLOAT, BOOL = types.int64, types.float64, types.boolean

# Of every function of a machine: which of its memory comes first, and the types of the rest. Where
# a decision takes long, other threads may run meanwhile.
FUNCTIONS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "count": (_count, "books", (LENT_BYTES, COLUMNS)),
    "take_counts": (_take_counts, "books", (COLUMNS, CHECKSUMS, COLUMNS)),
    "decide": (_decide, "deciding", (LENT_BYTES, COLUMNS, BOOL)),
    "decide long": (_decide_long, "deciding", (LENT_BYTES, COLUMNS, BOOL)),
    "rank": (_rank, "deciding", (LENT_BYTES, COLUMNS, COLUMNS, MATRIX)),
    "learn": (_learn, "learning", (LENT_BYTES, INT, INT, FLOAT)),
    "learn long": (_learn_long, "learning", (LENT_BYTES, INT, INT, FLOAT)),
    "learn_rows": (_learn_rows, "learning", (NUMBERS, COLUMNS, COLUMNS, COLUMNS, NUMBERS, INT)),
}


@functools.cache
def machine_code(name: str, kind: Any) -> Any:
    """Return the machine code of a function for memory of this type, compiled if need be."""
    function, _, arguments = FUNCTIONS[name]
    return function.compile((kind, *arguments))


def runs_by_address(model: Any, state: Any, policy: Any = None) -> bool:
    """Return whether compiled code can do all, given the addresses of these alone."""
    return runs_compiled(model, policy) and keepable((model, state, policy or ()))


def split_of(model: Any) -> int:
    """Return how many columns of a row are the context's; `NOT_SPLIT` if arms have no features."""
    inner = without_forgetting(model)
    return int(inner.context) if isinstance(inner, HybridLinear) else NOT_SPLIT


class Machine:
    """The functions above, bound to what an agent knows; each is compiled at its first call.

    `belief` is that of the last decision, which only `PlainMachine` keeps.
    """

    learns_at_once = True  # `learn` is one call of compiled code
    belief: Belief | None = None

    def __init__(self, policy: Any, known: Any, rng: np.random.Generator) -> None:
        model, state = known.model, known.state
        self.model, self.state, self.rng, self.split = model, state, rng, split_of(model)
        self.books = Kept(known.books)
        self.room = np.zeros(model.context_shape(model.arms(state)) or (0,))
        self.largest = float(getattr(model, "largest", LARGEST))
        self.seen = np.empty(4 * known.books.chosen.size + 2)  # of a decision among all arms
        self.long = sum(part.size for part in leaves(state)) >= LONG
        self._bind(policy)

    def _bind(self, policy: Any) -> None:
        letters = np.empty(LONGEST_ID, dtype=np.uint8)
        rest = policy, initial_pulls(self.model), held(self.rng), self.seen, self.largest, letters
        self._bind_learning()
        self.deciding = Kept(Deciding(self.learning, *rest))

    def _bind_learning(self) -> None:
        self.learning = Kept(Learning(self.model, self.state, self.room, self.books, self.split))

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        code = f"{name} long" if self.long and f"{name} long" in FUNCTIONS else name
        memory: Kept = getattr(self, FUNCTIONS[code][1])
        method = MethodType(machine_code(code, memory.kind), memory)
        setattr(self, name, method)  # found at once from now on
        return method


class PlainMachine(Machine):
    """A machine that decides in plain Python, and keeps the belief of the last decision.

    It learns by compiled code where the model can, else in several steps: learn into a copy then.
    """

    def _bind(self, policy: Any) -> None:
        self.policy, self.own_books = Watched(policy), self.books.values
        self.learns_at_once = runs_by_address(self.model, self.state)
        if self.learns_at_once:
            self._bind_learning()
        else:
            self.learn_rows = self._learn_plainly

    @property
    def belief(self) -> Belief | None:  # type: ignore[override]
        """That of the last decision; None for first pulls."""
        return self.policy.belief

    def choice(
        self, values: Floats, columns: Integers, step: int, chosen: Integers, seen: Floats
    ) -> int:
        """Return the arm to play next, as an index into the columns."""
        self.policy.belief = None
        player = Player(self.model, self.state, self.policy, chosen, initial_pulls(self.model))
        row = laid_out(values, self.room, columns)
        return int(next_arm_seen(player, row, columns, step, self.rng, seen).arm)

    def decide(self, context: bytes, columns: Integers, counting: bool) -> tuple[int, str, bytes]:
        """Do what `_decide` does."""
        values, books, id = np.frombuffer(context), self.own_books, ""
        if not all_finite(values, self.largest):
            return NOT_FINITE, id, b""
        arm = self.choice(values, columns, next_step(books.counts), books.chosen, self.seen)
        if counting:
            id = decision_id(*self.count(context, columns[arm : arm + 1]))
        return arm, id, self.seen[: 4 * columns.size + 2].tobytes()

    def rank(self, context: bytes, columns: Integers, places: Integers, seen: Floats) -> int:
        """Do what `_rank` does, one decision after the other."""
        values, chosen = np.frombuffer(context), self.own_books.chosen.copy()
        if not all_finite(values, self.largest):
            return NOT_FINITE
        left, step = list(range(columns.size)), next_step(self.own_books.counts)
        for n in range(places.size):
            rows = values if self.room.ndim == 1 else values.reshape(columns.size, -1)[left].ravel()
            places[n] = left.pop(self.choice(rows, columns[left], step + n, chosen, seen[n]))
            chosen[columns[places[n]]] += 1
        return 0

    def _learn_plainly(
        self, values: Floats, ends: Integers, columns: Integers, kinds: Integers, rewards: Floats,
        first: int,
    ) -> int:  # fmt: skip
        """Do what `_learn_rows` does."""
        books, room = self.own_books, self.room
        for i in range(first, rewards.size):
            column, kind, reward = int(columns[i]), int(kinds[i]), float(rewards[i])
            books.counts[OBSERVATIONS if kind == OBSERVED else CLOSED] += 1
            if np.isnan(reward) or column < 0:
                continue
            row = room if room.ndim == 1 else room[column]
            padded(values[ends[i - 1] if i else 0 : ends[i]], self.split, row)
            self.model.update(self.state, room, column, reward)
            books.pulls[column] += 1
            books.totals[column] += reward
            books.chosen[column] += kind != COUNTED
            if self.model.trains and training_due(self.model, self.state):
                books.counts[DUE] = 1
                return i + 1
        return int(rewards.size)


class Watched:
    """A policy that remembers the belief it last chose from."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.belief: Belief | None = None

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        """Return what the policy chooses."""
        self.belief = belief
        return choose(self.policy, belief, rng)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        """Return the arm at this place, or another if the policy has a floor."""
        return explored(self.policy, place, arms, rng)


def make_machine(policy: Any, known: Any, rng: np.random.Generator, keep_beliefs: bool) -> Machine:
    """Return the machine for what is known: compiled where that is possible and enough."""
    plain = keep_beliefs or not runs_by_address(known.model, known.state, policy)
    return (PlainMachine if plain else Machine)(policy, known, rng)


def decision_id(number: int, checksum: int) -> str:
    """Return the id of a decision: its number, and a checksum over all decisions up to it.

    A process that was killed and goes on from an older file numbers its decisions again; the
    checksum keeps a reward for one that was lost from being taken for another's, as decisions with
    the same id have the same arm and context.
    """
    return f"{number}-{checksum:x}"
