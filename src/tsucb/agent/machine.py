"""Decide and learn in single calls of compiled code.

At each call Numba determines the type of every argument and takes a random generator apart, which
costs more than deciding among ten arms. So the arguments that stay the same are laid out in memory
once (`Kept`), and the machine code for their type is called with the address. A call changes the
counts and the model's state together: an exception from outside finds all of it done, or nothing.

`PlainMachine` is for models and policies without compiled implementations. It calls the functions
marked `shared` in plain Python.
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
from tsucb.compiler.unlock import UNLOCK
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hybrid_curves import HYBRID
from tsucb.models.model import belief, training_due, update
from tsucb.models.state import State, array, sums
from tsucb.models.state import counts as tallies
from tsucb.models.structure import leaves
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import Choice, choose, explored
from tsucb.step import Player, first_pull, initial_pulls, runs_compiled

Checksums: TypeAlias = NDArray[np.uint64]

# Entries of `Books.counts`. DUE is 1 if the model has to train before anything else.
DECISIONS, OBSERVATIONS, CLOSED, DUE = range(4)
# What a reward is learned for: a decision counted for its arm; an observation without a decision; a
# decision whose arm left (and took the count with it) and came back.
COUNTED, OBSERVED, RETURNED = range(3)
NOT_FINITE = -1  # returned instead of an arm if the context is not finite
NOT_SPLIT = -1  # instead of the context's columns of a row, if arms have no features
FNV_PRIME = 0x100000001B3
# With this many numbers in the model's state a decision takes 10 µs or more: it releases the
# interpreter's lock, so that other threads can use agents of their own meanwhile.
LONG = 2**16


class Books(State):
    """The counts of decisions and rewards beside the state of the model.

    `counts` has the entries above; `checksum` is over all decisions. For every column of the state
    there are `tokens`, hashes of the arms' names; `chosen`, decisions for the arm and observations
    of it; `pulls` and `totals`, the number of rewards learned and their sum.
    """

    counts: Integers = tallies(4, dtype=np.int64)
    checksum: Checksums = array(1, dtype=np.uint64)
    tokens: Checksums = array("arm", dtype=np.uint64)
    chosen: Integers = tallies("arm", dtype=np.int64)
    pulls: Integers = tallies("arm", dtype=np.int64)
    totals: Floats = sums("arm")


class Learning(NamedTuple):
    """The arguments of learning: a model, its state, room for a context, and counts.

    `split` is the number of the context's columns if arms have features, else `NOT_SPLIT`.
    """

    model: Any
    state: Any
    room: Floats
    books: Any
    split: int


class Deciding(NamedTuple):
    """The arguments of deciding."""

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
    """Return the context of a decision: the values, or `room` with a row written for every column.

    Other rows stay unchanged: a decision among ten of ten thousand arms writes ten rows.
    """
    values = flush_tiny(values)
    if room.ndim == 1:
        return values  # a new array: a belief that is kept may refer to it
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
    """Write a row, as wide as it was read, into one as wide as the model is now."""
    first, rest, at = values.size, 0, 0
    if split != NOT_SPLIT:
        first, at = int(values[0]), 1
        rest = values.size - 1 - first
    for j in range(row.size):
        row[j] = 0.0
    for j in range(min(first, row.size)):  # never beyond the row, whatever the values
        row[j] = without_tiny(values[at + j])
    for j in range(min(rest, row.size - split)):
        row[split + j] = without_tiny(values[1 + first + j])


@shared
def row_of(room, column):  # type: ignore[no-untyped-def]
    """Return a column's part of a context: its row of a matrix, or the whole vector."""
    return room if room.ndim == 1 else room[column]


# Counting decisions


@compiled
def mixed(checksum, word):  # type: ignore[no-untyped-def]
    """Return a step of FNV-1a over 64-bit words; the shift mixes high bits into low ones."""
    product = (checksum ^ word) * np.uint64(FNV_PRIME)
    return product ^ product >> np.uint64(32)


@compiled
def count_decision(books, words, column):  # type: ignore[no-untyped-def]
    """Count a decision for a column, and mix arm and context into the checksum."""
    checksum = mixed(books.checksum[0], books.tokens[column])
    for word in words:
        checksum = mixed(checksum, word)
    books.checksum[0] = checksum
    books.chosen[column] += 1
    books.counts[DECISIONS] += 1


def _count(books, numbers, columns):  # type: ignore[no-untyped-def]
    """Count decisions for columns in one context; return the last number and checksum."""
    words = np.frombuffer(numbers, np.uint64)
    for column in columns:
        count_decision(books, words, column)
    return books.counts[DECISIONS], books.checksum[0]


def _take_counts(books, aside):  # type: ignore[no-untyped-def]
    """Copy the counts of decisions that were counted in `aside`, a copy of the books."""
    books.counts[DECISIONS], books.checksum[0] = aside.counts[DECISIONS], aside.checksum[0]
    for k in range(aside.chosen.size):
        books.chosen[k] = aside.chosen[k]


# What a policy saw of n arms is 4n + 2 numbers: the target; the policy's favourite, which is not
# played if a floor drew another arm; then every arm's mean, std, estimate and radius. For first
# pulls all but the favourite are NaN.


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
    """Write the target and the favourite of a choice into the first two numbers."""
    seen[0] = choice.target
    seen[1] = choice.favourite


# Deciding


@shared
def next_step(counts):  # type: ignore[no-untyped-def]
    return counts[DECISIONS] + counts[OBSERVATIONS] + 1


@shared
def next_arm_seen(deciding, values, columns, step, chosen, seen):  # type: ignore[no-untyped-def]
    """Choose among columns like `tsucb.step.next_arm`, and write what the policy saw."""
    learning, policy, rng = deciding.learning, deciding.policy, deciding.stream.rng
    context = laid_out(values, learning.room, columns)
    player = Player(learning.model, learning.state, policy, chosen, deciding.first_pulls)
    choice = first_pull(player, columns, rng)
    if choice.arm < 0:
        known = belief(learning.model, learning.state, context, columns, step, rng)
        return choose_seen(policy, known, rng, seen)
    for i in range(seen.size):
        seen[i] = np.nan
    write_reason(seen, choice)
    return choice


def _decide(deciding, numbers, columns, counting, unlock):  # type: ignore[no-untyped-def]
    """Choose among columns, and count the decision if `counting`.

    Other threads can run Python meanwhile if `unlock`.
    Return the arm as an index into the columns, or NOT_FINITE; the number and the checksum of the
    decision, 0 if it was not counted; what the policy saw, as bytes.
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
    """Decide for contexts in their order; write places and checksums, and count in `aside`."""
    for i in range(places.size):
        values, step = contexts[i], next_step(aside.counts)
        choice = next_arm_seen(deciding, values, columns, step, aside.chosen, seen[i])
        count_decision(aside, values.view(np.uint64), columns[choice.arm])
        places[i], checksums[i] = choice.arm, aside.checksum[0]


# Learning


@shared
def learn_one(learning, values, column, kind, reward):  # type: ignore[no-untyped-def]
    """Learn a reward for a row, and count its decision as closed; return whether training is due.

    Nothing is learned for a reward of NaN, or a column of -1, whose arm has left.
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


def _learn(learning, row, column, kind, reward, unlock):  # type: ignore[no-untyped-def]
    """Learn a reward for a row, given as bytes, like `learn_one`."""
    return learn_one(learning, np.frombuffer(row, np.float64), column, kind, reward)


def _learn_rows(learning, values, ends, columns, kinds, rewards, first):  # type: ignore[no-untyped-def]
    """Learn rewards from index `first` on until training is due; return the index of the next."""
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
to_keep_gil = functools.partial(compiled, nogil=False)  # releasing it takes a tenth of most calls

# Each function of a machine, the memory of the machine that is its first argument, and the types of
# the other arguments.
FUNCTIONS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "count": (to_keep_gil(_count), "books", (LENT_BYTES, COLUMNS)),
    "take_counts": (compiled(_take_counts), "books", (BOOKS,)),
    "decide": (to_keep_gil(_decide), "deciding", (LENT_BYTES, COLUMNS, BOOL, UNLOCK)),
    "decide_rows": (
        compiled(_decide_rows), "deciding", (MATRIX, COLUMNS, COLUMNS, CHECKSUMS, BOOKS, MATRIX),
    ),
    "learn": (to_keep_gil(_learn), "learning", (LENT_BYTES, INT, INT, FLOAT, UNLOCK)),
    "learn_rows": (
        compiled(_learn_rows), "learning", (NUMBERS, COLUMNS, COLUMNS, COLUMNS, NUMBERS, INT),
    ),
}  # fmt: skip


@functools.cache
def machine_code(name: str, kind: Any) -> Any:
    """Return the machine code of a function for memory of this type; compile it the first time."""
    function, _, arguments = FUNCTIONS[name]
    return function.compile((kind, *arguments))


def runs_by_address(model: Any, state: Any, policy: Any = None) -> bool:
    """Return whether compiled code can work on the addresses of model, state and policy alone."""
    return runs_compiled(model, policy) and keepable((model, state, policy or ()))


def split_of(model: Any) -> int:
    """Return the number of the context's columns of a row, `NOT_SPLIT` if arms have no features."""
    inner = without_forgetting(model)
    return int(inner.context) if isinstance(inner, HYBRID) else NOT_SPLIT


class Machine:
    """The functions above, bound to what an agent knows; each is compiled at its first call.

    `belief` is the belief of the last decision; only `PlainMachine` keeps it.
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
        """Return a copy of the books to count decisions in; the next call overwrites it."""
        for copy, now in zip(self._aside.values, self.books.values, strict=True):
            copy[:] = now
        return self._aside

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        memory: Kept = getattr(self, FUNCTIONS[name][1])
        method = MethodType(machine_code(name, memory.kind), memory)
        setattr(self, name, method)  # found at once from now on
        return method


class PlainMachine(Machine):
    """A machine that decides in plain Python, and keeps the belief of the last decision.

    It learns in compiled code if the model can. Else learning takes several steps, so it must be
    done in a copy: `learns_at_once` is False.
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
        """The belief of the last decision; None for first pulls."""
        return self.policy.belief

    def decide(
        self, context: bytes, columns: Integers, counting: bool, unlock: bool
    ) -> tuple[int, int, int, bytes]:
        """Choose among columns, like `_decide`."""
        values, books, counted = np.frombuffer(context), self.own_books, (0, 0)
        if not all_finite(values, self.largest):
            return NOT_FINITE, *counted, b""
        step = next_step(books.counts)
        arm = int(next_arm_seen(self.plain, values, columns, step, books.chosen, self.seen).arm)
        if counting:
            counted = self.count(context, columns[arm : arm + 1])
        return arm, *counted, self.seen[: 4 * columns.size + 2].tobytes()

    def decide_rows(
        self, contexts: Floats, columns: Integers, places: Integers, checksums: Checksums,
        aside: Kept, seen: Floats,
    ) -> None:  # fmt: skip
        """Decide for contexts in their order, like `_decide_rows`."""
        _decide_rows(self.plain, contexts, columns, places, checksums, aside.values, seen)


class Watched:
    """A policy that keeps the belief of its last choice."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.belief: Belief | None = None

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        self.belief = belief
        return choose(self.policy, belief, rng)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        self.belief = None  # a first pull
        return explored(self.policy, place, arms, rng)


def make_machine(known: Any, rng: np.random.Generator, keep_beliefs: bool) -> Machine:
    """Return a machine for what is known: a compiled one unless beliefs are kept or it cannot."""
    plain = keep_beliefs or not runs_by_address(known.model, known.state, known.policy)
    return (PlainMachine if plain else Machine)(known, rng)


def decision_id(number: int, checksum: int) -> str:
    """Return the id of a decision: its number, and a checksum over all decisions up to it.

    A process that goes on from an older file after a crash uses the numbers of lost decisions
    again. With the checksum, decisions with the same id have the same arm and context, so a reward
    for a lost decision is never taken for one of another arm or context.
    """
    return f"{number}-{checksum:x}"


def write_ids(numbers: Integers, checksums: Checksums) -> list[str]:
    """Return `decision_id` of many decisions."""
    pairs = zip(numbers.tolist(), checksums.tolist(), strict=True)
    return [f"{number}-{checksum:x}" for number, checksum in pairs]
