"""Deciding and learning as single calls of compiled code.

Numba finds out every argument's type and takes a random generator apart at each call, which costs
more than deciding among ten arms. So what stays the same is laid out in memory once (`Kept`), and
the machine code for its type is called with its address. A call changes the counts and the model's
state together: an exception from outside finds all of it done, or nothing.

`PlainMachine` does the same for models and policies without compiled implementations: what both
have in common is `shared`, which plain Python calls as it is.
"""

import functools
from types import MethodType
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from tsucb.beliefs.belief import Belief
from tsucb.checks import LARGEST, SMALLEST, flush_tiny
from tsucb.compiler import Stream, compiled, held, in_compiled_code, shared
from tsucb.compiler.lent import LENT_BYTES, borrowed, bytes_of, lent, still_needed
from tsucb.compiler.memory import Kept, KeptType, keepable
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import training_due, update
from tsucb.models.state import State, array, sums
from tsucb.models.state import counts as tallies
from tsucb.models.structure import leaves
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import Choice, choose, explored
from tsucb.step import Player, beliefs, first_pull, initial_pulls, runs_compiled

Checksums: TypeAlias = NDArray[np.uint64]

# Entries of `Books.counts`. DUE: 1 while the model has to train before anything else.
DECISIONS, OBSERVATIONS, CLOSED, DUE = range(4)
# What a reward is learned for: a decision counted for its arm; an observation that was no decision;
# a decision whose arm had left, and with it the count of the decision.
COUNTED, OBSERVED, RETURNED = range(3)
NOT_FINITE = -1  # returned instead of an arm, if the context is not finite
NOT_SPLIT = -1  # the rows of a model have no part of the context and part of the arm
FNV_PRIME = 0x100000001B3
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
    books: Any
    split: int


class Deciding(NamedTuple):
    """What learns, and what else is needed to decide."""

    learning: Any
    policy: Any
    first_pulls: int
    stream: Any
    seen: Floats
    largest: float


# Contexts


@compiled
def all_finite(values, largest):  # type: ignore[no-untyped-def]
    wrong = 0
    for i in range(values.size):
        wrong += not abs(values[i]) <= largest
    return wrong == 0


@compiled
def without_tiny(x):  # type: ignore[no-untyped-def]
    return x if abs(x) >= SMALLEST else 0.0


def laid_out(values, room, columns):  # type: ignore[no-untyped-def]
    """Return the context of a decision: the values, or `room` with a row for every column.

    Rows of other columns stay as they are: a decision among ten arms of ten thousand writes ten.
    """
    values = flush_tiny(values)
    if room.ndim == 1:
        return values  # an array of its own: a belief may be kept with it
    room[columns] = values.reshape(columns.size, -1)
    return room


@compiled
def lay_out(values, room, columns):  # type: ignore[no-untyped-def]
    if room.ndim == 1:
        for j in range(values.size):
            room[j] = without_tiny(values[j])
    else:
        features = room.shape[1]
        for a in range(columns.size):
            for j in range(features):
                room[columns[a], j] = without_tiny(values[a * features + j])
    return room


in_compiled_code(laid_out, lambda *_: lay_out)


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


@shared
def row_of(room, column):  # type: ignore[no-untyped-def]
    """Return the part of a context that belongs to a column: its row, or all."""
    return room if room.ndim == 1 else room[column]


# Counting decisions


@compiled
def mixed(checksum, word):  # type: ignore[no-untyped-def]
    """Return a step of FNV-1a over 64-bit words; its shift lets high bits count for low ones."""
    product = (checksum ^ word) * np.uint64(FNV_PRIME)
    return product ^ product >> np.uint64(32)


@compiled
def count_decision(books, words, column):  # type: ignore[no-untyped-def]
    """Count a decision for a column, and take arm and context into the checksum."""
    checksum = mixed(books.checksum[0], books.tokens[column])
    for word in words:
        checksum = mixed(checksum, word)
    books.checksum[0] = checksum
    books.chosen[column] += 1
    books.counts[DECISIONS] += 1


def _count(books, numbers, columns):  # type: ignore[no-untyped-def]
    """Count decisions for columns, all in one context; return the number and checksum after it."""
    words = np.frombuffer(numbers, np.uint64)
    for column in columns:
        count_decision(books, words, column)
    return books.counts[DECISIONS], books.checksum[0]


def _take_counts(books, aside):  # type: ignore[no-untyped-def]
    """Take over the counts of decisions that were made aside."""
    books.counts[DECISIONS], books.checksum[0] = aside.counts[DECISIONS], aside.checksum[0]
    for k in range(aside.chosen.size):
        books.chosen[k] = aside.chosen[k]


# What a policy saw of n arms, as 4n + 2 numbers in a row: the target; the policy's favourite, which
# is another arm than the one played if a floor took it; then every arm's mean, std, estimate and
# radius. First pulls have the favourite and NaN for all else.


@shared
def choose_seen(policy, belief, rng, seen):  # type: ignore[no-untyped-def]
    """Return the policy's choice, and write the reason and the belief into `seen`."""
    lent_belief = borrowed(belief)
    choice, n = choose(policy, lent_belief, rng), lent_belief.mean.size
    write_reason(seen, choice)
    for a in range(n):
        seen[2 + a] = lent_belief.mean[a]
        seen[2 + n + a] = lent_belief.std[a]
        seen[2 + 2 * n + a] = lent_belief.estimate[a]
        seen[2 + 3 * n + a] = lent_belief.radius[a]
    still_needed(belief)
    return choice


@shared
def write_reason(seen, choice):  # type: ignore[no-untyped-def]
    seen[0] = choice.target
    seen[1] = choice.favourite


# Deciding


@shared
def player_of(deciding, chosen):  # type: ignore[no-untyped-def]
    """Return model, state and policy as a player who has chosen the arms this often."""
    learning = deciding.learning
    return Player(learning.model, learning.state, deciding.policy, chosen, deciding.first_pulls)


@shared
def next_step(counts):  # type: ignore[no-untyped-def]
    return counts[DECISIONS] + counts[OBSERVATIONS] + 1


@shared
def next_arm_seen(deciding, values, columns, step, chosen, seen):  # type: ignore[no-untyped-def]
    """Choose among columns, as `tsucb.step.next_arm` does, and write what the policy saw."""
    context, rng = laid_out(values, deciding.learning.room, columns), deciding.stream.rng
    player = player_of(deciding, chosen)
    choice = first_pull(player, columns, rng)
    if choice.arm < 0:
        belief = beliefs(player, context, columns, step, rng)
        return choose_seen(player.policy, belief, rng, seen)
    for i in range(seen.size):
        seen[i] = np.nan
    write_reason(seen, choice)
    return choice


def _decide(deciding, numbers, columns, counting):  # type: ignore[no-untyped-def]
    """Choose among columns, and count the decision or not.

    Returns the arm as an index into the columns, or NOT_FINITE; the number and the checksum of the
    decision, if it was counted; what the policy saw, as bytes.
    """
    books, seen = deciding.learning.books, deciding.seen
    values, words = np.frombuffer(numbers, np.float64), np.frombuffer(numbers, np.uint64)
    number, checksum = 0, np.uint64(0)
    if not all_finite(values, deciding.largest):
        return NOT_FINITE, number, checksum, bytes_of(seen, 0)
    step = next_step(books.counts)
    choice = next_arm_seen(deciding, values, columns, step, books.chosen, seen)
    if counting:
        count_decision(books, words, columns[choice.arm])
        number, checksum = books.counts[DECISIONS], books.checksum[0]
    return choice.arm, number, checksum, bytes_of(seen, 4 * columns.size + 2)


def _decide_rows(deciding, contexts, columns, places, checksums, aside, seen):  # type: ignore[no-untyped-def]
    """Decide for one context after the other, counting aside."""
    for i in range(places.size):
        values, step = contexts[i], next_step(aside.counts)
        choice = next_arm_seen(deciding, values, columns, step, aside.chosen, seen[i])
        count_decision(aside, values.view(np.uint64), columns[choice.arm])
        places[i], checksums[i] = choice.arm, aside.checksum[0]


# Learning


@shared
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


def _learn(learning, row, column, kind, reward):  # type: ignore[no-untyped-def]
    """Do what `learn_one` does, with the row as bytes."""
    return learn_one(learning, np.frombuffer(row, np.float64), column, kind, reward)


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

BOOKS = KeptType(lent(numba.typeof(Books.blank({"arm": 1}))))
to_keep_gil = functools.partial(compiled, nogil=False)  # giving it up takes a tenth of most calls

# Of every function of a machine: which of its memory comes first, and the types of the rest. Where
# a decision takes long, other threads may run meanwhile.
FUNCTIONS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "count": (to_keep_gil(_count), "books", (LENT_BYTES, COLUMNS)),
    "take_counts": (compiled(_take_counts), "books", (BOOKS,)),
    "decide": (to_keep_gil(_decide), "deciding", (LENT_BYTES, COLUMNS, BOOL)),
    "decide long": (compiled(_decide), "deciding", (LENT_BYTES, COLUMNS, BOOL)),
    "decide_rows": (
        compiled(_decide_rows), "deciding", (MATRIX, COLUMNS, COLUMNS, CHECKSUMS, BOOKS, MATRIX),
    ),
    "learn": (to_keep_gil(_learn), "learning", (LENT_BYTES, INT, INT, FLOAT)),
    "learn long": (compiled(_learn), "learning", (LENT_BYTES, INT, INT, FLOAT)),
    "learn_rows": (
        compiled(_learn_rows), "learning", (NUMBERS, COLUMNS, COLUMNS, COLUMNS, NUMBERS, INT),
    ),
}  # fmt: skip


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
    has_decided_many = False  # whether all that `decide_many` needs is compiled
    belief: Belief | None = None

    def __init__(self, known: Any, rng: np.random.Generator) -> None:
        self.model, state = known.model, known.state
        self.books, self.split = Kept(known.books), split_of(self.model)
        self.room = np.zeros(self.model.context_shape(self.model.arms(state)) or (0,))
        self.largest = float(getattr(self.model, "largest", LARGEST))
        self.seen = np.empty(4 * known.books.chosen.size + 2)  # of a decision among all arms
        self.long = sum(part.size for part in leaves(state)) >= LONG
        self._bind(known.policy, state, rng)

    def _bind(self, policy: Any, state: Any, rng: np.random.Generator) -> None:
        rest = policy, initial_pulls(self.model), held(rng), self.seen, self.largest
        self.learning = Kept(Learning(self.model, state, self.room, self.books, self.split))
        self.deciding = Kept(Deciding(self.learning, *rest))

    @functools.cached_property
    def _aside(self) -> Kept:
        return Kept(self.books.values.copy())

    def books_aside(self) -> Kept:
        """Return a copy of the books, to count decisions in; the next call writes over it."""
        for copy, now in zip(self._aside.values, self.books.values, strict=True):
            copy[:] = now
        return self._aside

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

    def _bind(self, policy: Any, state: Any, rng: np.random.Generator) -> None:
        self.policy, self.own_books = Watched(policy), self.books.values
        learning = Learning(self.model, state, self.room, self.own_books, self.split)
        rest = initial_pulls(self.model), Stream(rng), self.seen, self.largest
        self.plain = Deciding(learning, self.policy, *rest)
        self.learns_at_once = runs_by_address(self.model, state)
        if self.learns_at_once:
            self.learning = Kept(learning._replace(books=self.books))
        else:
            self.learn_rows = functools.partial(_learn_rows, learning)

    @property
    def belief(self) -> Belief | None:  # type: ignore[override]
        """That of the last decision; None for first pulls."""
        return self.policy.belief

    def decide(
        self, context: bytes, columns: Integers, counting: bool
    ) -> tuple[int, int, int, bytes]:
        """Do what `_decide` does."""
        values, books, counted = np.frombuffer(context), self.own_books, (0, 0)
        if not all_finite(values, self.largest):
            return NOT_FINITE, *counted, b""
        self.policy.belief, step = None, next_step(books.counts)
        arm = int(next_arm_seen(self.plain, values, columns, step, books.chosen, self.seen).arm)
        if counting:
            counted = self.count(context, columns[arm : arm + 1])
        return arm, *counted, self.seen[: 4 * columns.size + 2].tobytes()

    def decide_rows(
        self, contexts: Floats, columns: Integers, places: Integers, checksums: Checksums,
        aside: Kept, seen: Floats,
    ) -> None:  # fmt: skip
        """Do what `_decide_rows` does."""
        self.policy.belief = None
        _decide_rows(self.plain, contexts, columns, places, checksums, aside.values, seen)


class Watched:
    """A policy that remembers the belief it last chose from."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.belief: Belief | None = None

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        self.belief = belief
        return choose(self.policy, belief, rng)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        return explored(self.policy, place, arms, rng)


def make_machine(known: Any, rng: np.random.Generator, keep_beliefs: bool) -> Machine:
    """Return the machine for what is known: compiled where that is possible and enough."""
    plain = keep_beliefs or not runs_by_address(known.model, known.state, known.policy)
    return (PlainMachine if plain else Machine)(known, rng)


def decision_id(number: int, checksum: int) -> str:
    """Return the id of a decision: its number, and a checksum over all decisions up to it.

    A process that was killed and goes on from an older file numbers its decisions again; the
    checksum keeps a reward for one that was lost from being taken for another's, as decisions with
    the same id have the same arm and context.
    """
    return f"{number}-{checksum:x}"


def write_ids(numbers: Integers, checksums: Checksums) -> list[str]:
    """Return `decision_id` of many decisions."""
    pairs = zip(numbers.tolist(), checksums.tolist(), strict=True)
    return [f"{number}-{checksum:x}" for number, checksum in pairs]
