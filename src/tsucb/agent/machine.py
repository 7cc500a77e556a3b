"""Deciding and learning as single calls of compiled code.

Numba finds out every argument's type and takes a random generator apart at each call, which costs
more than deciding among ten arms. So what stays the same is laid out in memory once (`Kept`), and
the machine code for its type is called with its address. A call changes the counts, the model's
state and the open decisions together: an exception from outside finds all of it done, or nothing.

`PlainMachine` does the same for models and policies without compiled implementations; it decides in
plain Python, and what it then changes is one call of compiled code, too.
"""

import functools
from types import MethodType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from tsucb.agent.open_decisions import (
    LEARNED,
    LIMIT,
    LONGEST_ID,
    NOT_SPLIT,
    QUEUED,
    SINGLE,
    Checksums,
    OpenTable,
    add_row,
    close_row,
    drop_oldest,
    find_row,
    has_room,
    read_id,
    write_id,
)
from tsucb.agent.seen import choose_seen, first_pull_seen, next_arm_seen
from tsucb.beliefs.belief import Belief, belief_of
from tsucb.beliefs.law import Law, law_of
from tsucb.checks import LARGEST, SMALLEST, flushed
from tsucb.compiler import class_of, compiled, held, hook, implements, in_compiled_code, offers
from tsucb.compiler.memory import Kept, keepable
from tsucb.compiler.text import LENT_BYTES, bytes_of, text_from
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import belief, training_due, update
from tsucb.numeric.arrays import Floats, Integers, taken
from tsucb.policies.policy import Choice, choose, explored
from tsucb.step import Player, initial_pulls, runs_compiled
from tsucb.structure import leaves

# Entries of `Books.counts`. DUE: 1 while the model has to train before anything else.
DECISIONS, OBSERVATIONS, CLOSED, DUE = range(4)
# What a call returns instead of an arm or a row: the context is not finite, there is no such row,
# training is due or rewards are queued, and the table is full. Nothing has happened then.
NOT_FINITE, NOT_OPEN, NOT_READY, NO_ROOM = -1, -2, -3, -4
# What `learn` is given instead of a row of the table: a decision counted before, an observation
# that was no decision, nothing but the queue, and the id of an open decision.
COUNTED, OBSERVED, ONLY_QUEUE, BY_ID = -1, -2, -3, -4
FINISHED, TO_TRAIN, TO_LEARN = range(3)
MOST_AT_ONCE = 1_000  # rewards in one call, while which other threads may wait for the interpreter

FNV_PRIME, FNV_BASIS = 0x100000001B3, 0xCBF29CE484222325
# With this many numbers in the model's state a decision takes some 10 µs and more. Other threads,
# if they have agents of their own, decide meanwhile: the interpreter's lock is given up.
LONG = 2**16


class Books(NamedTuple):
    """The counts that deciding and learning keep beside the state of the model.

    `counts` (4,) has the entries above; `checksum` (1,) is over all decisions. For every column of
    the state: `tokens` tell the arms apart, `chosen` counts decisions for the arm (and observations
    of it), `pulls` and `totals` the rewards learned and their sum.
    """

    counts: Integers
    checksum: Checksums
    tokens: Checksums
    chosen: Integers
    pulls: Integers
    totals: Floats


PER_COLUMN = ("tokens", "chosen", "pulls", "totals")


class Accounts(NamedTuple):
    """The counts, the open decisions, and what says how a row of them is laid out.

    `split` is the number of columns of the context where arms have features, else `NOT_SPLIT`.
    `per_arm`: whether a context has a row for every arm.
    """

    books: Books
    table: OpenTable
    split: int
    per_arm: bool


class Learning(NamedTuple):
    """What learns: a model, its state, accounts, and room for a context."""

    model: Any
    state: Any
    room: Floats
    accounts: Kept


class Deciding(NamedTuple):
    """What learns, and what else is needed to decide."""

    learning: Kept
    policy: Any
    first_pulls: int
    stream: Any
    seen: Floats
    largest: float
    letters: NDArray[np.uint8]


Decided: TypeAlias = tuple[int, str, bytes]


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
    """Return a number, or 0 if it is too close to 0; see `tsucb.checks.flushed`."""
    return x if abs(x) >= SMALLEST else 0.0


def laid_out(values, room, columns):  # type: ignore[no-untyped-def]
    """Return the context of a decision: the values, or `room` with the rows of these columns.

    Where every arm has a row, those of other arms stay as they are: a decision among ten arms of
    ten thousand writes ten rows.
    """
    values = flushed(values)
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


# Counting decisions, opening and finding them


@compiled
def count_decision(books, words, column):  # type: ignore[no-untyped-def]
    """Count a decision for a column, and take it into the checksum."""
    books.checksum[0] = hashed(books.checksum[0], books.tokens[column], words)
    books.chosen[column] += 1
    books.counts[DECISIONS] += 1


@compiled
def is_ready(accounts):  # type: ignore[no-untyped-def]
    """Return whether neither training is due nor a reward queued."""
    return accounts.books.counts[DUE] == 0 and accounts.table.sizes[QUEUED] == 0


@compiled
def own_row(accounts, values, columns, place):  # type: ignore[no-untyped-def]
    """Return the part of a decision's context that is learned from with the reward of one arm."""
    if not accounts.per_arm:
        return values
    width = values.size // columns.size
    return values[place * width : (place + 1) * width]


@compiled
def open_one(accounts, values, words, columns, place, now):  # type: ignore[no-untyped-def]
    """Count a decision and open it; there is room."""
    books, table = accounts.books, accounts.table
    count_decision(books, words, columns[place])
    add_row(
        table, books.counts[DECISIONS], books.checksum[0], now, columns[place], SINGLE,
        own_row(accounts, values, columns, place), accounts.split,
    )  # fmt: skip
    drop_oldest(table)


keeping_gil = functools.partial(compiled, nogil=False)  # to give it up takes a tenth of most calls


@keeping_gil
def _open_one(accounts, context, columns, place, now):  # type: ignore[no-untyped-def]
    """Open a decision that plain Python made; return its number and checksum."""
    values, books = np.frombuffer(context, np.float64), accounts.books
    if not has_room(accounts.table, 1, values.size + 1):
        return NO_ROOM, np.uint64(0)
    open_one(accounts, values, np.frombuffer(context, np.uint64), columns, place, now)
    return books.counts[DECISIONS], books.checksum[0]


@compiled
def find_id(accounts, text):  # type: ignore[no-untyped-def]
    """Return the row of an id that ends with a newline, or NOT_OPEN or NOT_READY."""
    if not is_ready(accounts):
        return NOT_READY
    number, checksum, end = read_id(text, 0)
    row = find_row(accounts.table, number, checksum) if number > 0 and end == text.size else -1
    return row if row >= 0 else NOT_OPEN


@keeping_gil
def _find(accounts, id):  # type: ignore[no-untyped-def]
    """Return the row of an id that ends with a newline, the arm's column, and its place."""
    table, row = accounts.table, find_id(accounts, np.frombuffer(id, np.uint8))
    return (row, table.arms[row], table.places[row]) if row >= 0 else (row, 0, 0)


@compiled
def _settle(accounts, rows, rewards):  # type: ignore[no-untyped-def]
    """Queue the rewards of open rows; close those with NaN, and those whose arm has left."""
    table, sizes = accounts.table, accounts.table.sizes
    for i in range(rows.size):
        row = rows[i]
        if np.isnan(rewards[i]) or table.arms[row] < 0:
            close_row(table, row)
            accounts.books.counts[CLOSED] += 1
        else:
            table.queue[sizes[QUEUED]], table.rewards[sizes[QUEUED]] = row, rewards[i]
            sizes[QUEUED] += 1


@compiled
def take_counts(books, counts, checksum, chosen):  # type: ignore[no-untyped-def]
    """Take over the counts of decisions that were made aside."""
    books.counts[DECISIONS], books.checksum[0] = counts[DECISIONS], checksum[0]
    for k in range(chosen.size):
        books.chosen[k] = chosen[k]


@compiled
def _open_list(accounts, context, columns, places, now):  # type: ignore[no-untyped-def]
    """Count the places of a list and open them, all under the last number; return its id."""
    values, words = np.frombuffer(context, np.float64), np.frombuffer(context, np.uint64)
    books = accounts.books
    if not has_room(accounts.table, places.size, values.size + places.size):
        return NO_ROOM, np.uint64(0)
    for n in range(places.size):
        count_decision(books, words, columns[places[n]])
    for n in range(places.size):
        add_row(
            accounts.table, books.counts[DECISIONS], books.checksum[0], now, columns[places[n]],
            n + 1, own_row(accounts, values, columns, places[n]), accounts.split,
        )  # fmt: skip
    drop_oldest(accounts.table)
    return books.counts[DECISIONS], books.checksum[0]


@compiled
def _open_many(accounts, counts, checksum, chosen, checksums, rows, columns, places, now):  # type: ignore[no-untyped-def]
    """Take over counts and open decisions made at once, if there is room for those that may be."""
    books, n = accounts.books, places.size
    first = books.counts[DECISIONS] + 1
    if not has_room(accounts.table, min(n, accounts.table.sizes[LIMIT]), rows.size + n):
        return False
    take_counts(books, counts, checksum, chosen)
    for i in range(max(n - accounts.table.sizes[LIMIT], 0), n):
        add_row(
            accounts.table, first + i, checksums[i], now, columns[places[i]], SINGLE, rows[i],
            accounts.split,
        )  # fmt: skip
    drop_oldest(accounts.table)
    return True


@compiled
def _adopt(accounts, row, column):  # type: ignore[no-untyped-def]
    """Let a decision whose arm had left be one for the arm that now has this column."""
    accounts.table.arms[row] = column
    accounts.books.chosen[column] += 1


@compiled
def _close(accounts, rows):  # type: ignore[no-untyped-def]
    """Close rows without learning anything."""
    for i in range(rows.size):
        close_row(accounts.table, rows[i])
    accounts.books.counts[CLOSED] += rows.size


@compiled
def _count(accounts, column):  # type: ignore[no-untyped-def]
    """Count a decision that somebody else keeps."""
    accounts.books.chosen[column] += 1
    accounts.books.counts[DECISIONS] += 1


# Deciding and learning


@compiled
def player_of(deciding, chosen):  # type: ignore[no-untyped-def]
    """Return model, state and policy as a player who has chosen the arms this often."""
    learning = deciding.learning
    return Player(learning.model, learning.state, deciding.policy, chosen, deciding.first_pulls)


@keeping_gil
def _decide(deciding, numbers, columns, now, opens):  # type: ignore[no-untyped-def]
    """Choose among columns, and open the decision or not.

    Returns the arm as an index into the columns, or one of the codes above; the id; what the policy
    saw, see `tsucb.agent.seen`.
    """
    learning = deciding.learning
    accounts, letters = learning.accounts, deciding.letters
    values, books = np.frombuffer(numbers, np.float64), accounts.books
    problem = 0
    if not is_ready(accounts):
        problem = NOT_READY
    elif not all_finite(values, deciding.largest):
        problem = NOT_FINITE
    elif opens and not has_room(accounts.table, 1, values.size + 1):
        problem = NO_ROOM
    if problem < 0:
        return problem, text_from(letters, letters.size), bytes_of(deciding.seen, 0)
    step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
    context = laid_out(values, learning.room, columns)
    player, rng = player_of(deciding, books.chosen), deciding.stream.rng
    choice = next_arm_seen(player, context, columns, step, rng, deciding.seen)
    first = letters.size
    if opens:
        words = np.frombuffer(numbers, np.uint64)
        open_one(accounts, values, words, columns, choice.arm, now)
        first = write_id(letters, letters.size, books.counts[DECISIONS], books.checksum[0])
    return choice.arm, text_from(letters, first), bytes_of(deciding.seen, 4 * columns.size + 2)


@compiled
def _decide_long(deciding, numbers, columns, now, opens):  # type: ignore[no-untyped-def]
    return _decide(deciding, numbers, columns, now, opens)


@keeping_gil
def _learn(learning, numbers, column, row, reward):  # type: ignore[no-untyped-def]
    """Learn the reward of a row of the table, or of the numbers given, then those queued.

    `row` may be one of the codes above; for BY_ID, `numbers` are the letters of an id and a
    newline. Returns FINISHED; TO_TRAIN or TO_LEARN if training is due or rewards are left; NOT_OPEN
    if the id is not that of one decision for an arm that there is.
    """
    accounts, left, i = learning.accounts, MOST_AT_ONCE, 0
    books, table, sizes = accounts.books, accounts.table, accounts.table.sizes
    if row == BY_ID:
        row = find_id(accounts, np.frombuffer(numbers, np.uint8))
        if row < 0 or table.places[row] != SINGLE or table.arms[row] < 0:
            return NOT_OPEN
    if row >= 0:
        table.queue[sizes[QUEUED]], table.rewards[sizes[QUEUED]] = row, reward
        sizes[QUEUED] += 1
    given = row in (COUNTED, OBSERVED)
    while given or sizes[LEARNED] < sizes[QUEUED]:
        if given:
            k, y = column, reward
            padded(np.frombuffer(numbers, np.float64), accounts.split, row_of(learning.room, k))
        else:
            i = table.queue[sizes[LEARNED]]
            k, y = table.arms[i], table.rewards[sizes[LEARNED]]
            values = table.values[table.starts[i] : table.starts[i] + table.lengths[i]]
            padded(values, accounts.split, row_of(learning.room, k))
        update(learning.model, learning.state, learning.room, k, y)
        books.pulls[k] += 1
        books.totals[k] += y
        if given and row == OBSERVED:
            books.chosen[k] += 1
            books.counts[OBSERVATIONS] += 1
        else:
            books.counts[CLOSED] += 1
        if not given:
            close_row(table, i)
            sizes[LEARNED] += 1
            if sizes[LEARNED] == sizes[QUEUED]:
                sizes[LEARNED] = sizes[QUEUED] = 0
        given = False
        if training_due(learning.model, learning.state):
            books.counts[DUE] = 1
            return TO_TRAIN
        left -= 1
        if left == 0 and sizes[QUEUED] > 0:
            return TO_LEARN
    return FINISHED


@compiled
def _learn_long(learning, numbers, column, row, reward):  # type: ignore[no-untyped-def]
    return _learn(learning, numbers, column, row, reward)


@compiled
def _rank(deciding, numbers, columns, places, seen):  # type: ignore[no-untyped-def]
    """Fill the places of a list, one after the other; return 0 or a code.

    Each place counts as a decision for the next one; afterwards everything is counted back.
    """
    learning = deciding.learning
    books, values = learning.accounts.books, np.frombuffer(numbers, np.float64)
    if not is_ready(learning.accounts):
        return NOT_READY
    if not all_finite(values, deciding.largest):
        return NOT_FINITE
    checksum = books.checksum[0]
    fill_places(deciding, values, np.frombuffer(numbers, np.uint64), columns, places, seen)
    books.checksum[0] = checksum
    books.counts[DECISIONS] -= places.size
    for n in range(places.size):
        books.chosen[columns[places[n]]] -= 1
    return 0


@compiled
def fill_places(deciding, values, words, columns, places, seen):  # type: ignore[no-untyped-def]
    """Choose an arm for every place among those that are left, and count it as a decision."""
    learning = deciding.learning
    books, model, state = learning.accounts.books, learning.model, learning.state
    context, rng = laid_out(values, learning.room, columns), deciding.stream.rng
    rest = np.arange(columns.size)
    n = first_places(deciding, columns, words, rest, places, seen)
    if n < places.size:
        step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
        whole = belief(model, state, context, columns, step, rng)
    while n < places.size:
        step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
        if n == 0:
            present = whole
        else:
            left = rest[: columns.size - n]
            present = belief_of_rest(whole, left, model, state, context, columns, step, rng)
        choice = choose_seen(deciding.policy, present, rng, seen[n])
        fill_place(n, choice.arm, columns, words, books, rest, places)
        n += 1


@compiled
def first_places(deciding, columns, words, rest, places, seen):  # type: ignore[no-untyped-def]
    """Fill places with arms that lack their first pulls; return how many."""
    books, n = deciding.learning.accounts.books, 0
    while n < places.size and deciding.first_pulls > 0:
        left = taken(columns, rest[: columns.size - n])
        player = player_of(deciding, books.chosen)
        choice = first_pull_seen(player, left, deciding.stream.rng, seen[n])
        if choice.arm < 0:
            break
        fill_place(n, choice.arm, columns, words, books, rest, places)
        n += 1
    return n


@compiled
def fill_place(n, arm, columns, words, books, rest, places):  # type: ignore[no-untyped-def]
    """Give place n to one of the arms that are left."""
    places[n] = rest[arm]
    count_decision(books, words, columns[rest[arm]])
    for i in range(arm, columns.size - n - 1):
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
    return belief(model, state, context, taken(columns, left), step, rng)


# Machines

COLUMNS = types.Array(types.int64, 1, "C")
NUMBERS = types.Array(types.float64, 1, "C")
MATRIX = types.Array(types.float64, 2, "C")
CHECKSUMS = types.Array(types.uint64, 1, "C")
INT, FLOAT, BOOL = types.int64, types.float64, types.boolean

# Of every function of a machine: which of its memory comes first, and the types of the rest. Where
# a decision takes long, other threads may run meanwhile.
FUNCTIONS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "open_one": (_open_one, "accounts", (LENT_BYTES, COLUMNS, INT, FLOAT)),
    "find": (_find, "accounts", (LENT_BYTES,)),
    "settle": (_settle, "accounts", (COLUMNS, NUMBERS)),
    "open_list": (_open_list, "accounts", (LENT_BYTES, COLUMNS, COLUMNS, FLOAT)),
    "open_many": (
        _open_many, "accounts",
        (COLUMNS, CHECKSUMS, COLUMNS, CHECKSUMS, MATRIX, COLUMNS, COLUMNS, FLOAT),
    ),
    "adopt": (_adopt, "accounts", (INT, INT)),
    "close": (_close, "accounts", (COLUMNS,)),
    "count": (_count, "accounts", (INT,)),
    "decide": (_decide, "deciding", (LENT_BYTES, COLUMNS, FLOAT, BOOL)),
    "decide long": (_decide_long, "deciding", (LENT_BYTES, COLUMNS, FLOAT, BOOL)),
    "learn": (_learn, "learning", (LENT_BYTES, INT, INT, FLOAT)),
    "learn long": (_learn_long, "learning", (LENT_BYTES, INT, INT, FLOAT)),
    "rank": (_rank, "deciding", (LENT_BYTES, COLUMNS, COLUMNS, MATRIX)),
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

    is_plain = False  # whether decisions are made by plain Python
    belief: Belief | None = None

    def __init__(self, policy: Any, known: Any, rng: np.random.Generator) -> None:
        model, state, books = known.model, known.state, known.books
        per_arm = len(model.context_shape(1)) == 2
        self.accounts = Kept(Accounts(books, known.table, split_of(model), per_arm))
        self.room = np.zeros(model.context_shape(model.arms(state)) or (0,))
        self.largest = float(getattr(model, "largest", LARGEST))
        self.seen = np.empty(4 * books.chosen.size + 2)  # of a decision among all arms
        self.long = sum(array.size for array in leaves(state)) >= LONG
        self._bind(policy, model, state, rng)

    def _bind(self, policy: Any, model: Any, state: Any, rng: np.random.Generator) -> None:
        letters = np.empty(LONGEST_ID, dtype=np.uint8)
        rest = policy, initial_pulls(model), held(rng), self.seen, self.largest, letters
        self.learning = Kept(Learning(model, state, self.room, self.accounts))
        self.deciding = Kept(Deciding(self.learning, *rest))

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

    `learn` is compiled where the model is, else it is None: then learn into a copy.
    """

    is_plain = True

    def _bind(self, policy: Any, model: Any, state: Any, rng: np.random.Generator) -> None:
        self.policy, self.model, self.state, self.rng = Watched(policy), model, state, rng
        if runs_by_address(model, state):
            self.learning = Kept(Learning(model, state, self.room, self.accounts))
        else:
            self.learn = None
        self.books: Books = self.accounts.values.books
        self.table: OpenTable = self.accounts.values.table

    @property
    def belief(self) -> Belief | None:  # type: ignore[override]
        """That of the last decision; None for first pulls."""
        return self.policy.belief

    def _problem(self, values: Floats) -> int:
        if self.books.counts[DUE] or self.table.sizes[QUEUED]:
            return NOT_READY
        return 0 if all_finite(values, self.largest) else NOT_FINITE

    def choice(self, values: Floats, columns: Integers, step: int, seen: Floats) -> int:
        """Return the arm to play next, as an index into the columns."""
        self.policy.belief = None
        pulls = initial_pulls(self.model)
        player = Player(self.model, self.state, self.policy, self.books.chosen, pulls)
        row = laid_out(values, self.room, columns)
        choice = next_arm_seen(player, row, columns, step, self.rng, seen)
        return int(choice.arm)

    def decide(self, context: bytes, columns: Integers, now: float, opens: bool) -> Decided:
        """Do what `_decide` does without opening the decision."""
        values, counts = np.frombuffer(context), self.books.counts
        if problem := self._problem(values):
            return problem, "", b""
        step = int(counts[DECISIONS] + counts[OBSERVATIONS]) + 1
        arm = self.choice(values, columns, step, self.seen)
        return arm, "", self.seen[: 4 * columns.size + 2].tobytes()

    def rank(self, context: bytes, columns: Integers, places: Integers, seen: Floats) -> int:
        """Do what `_rank` does, one decision after the other."""
        values, books = np.frombuffer(context), self.books
        if problem := self._problem(values):
            return problem
        left, rows = list(range(columns.size)), values
        step = int(books.counts[DECISIONS] + books.counts[OBSERVATIONS]) + 1
        self.books = books._replace(chosen=books.chosen.copy())  # decisions are counted aside
        try:
            for n in range(places.size):
                if self.accounts.values.per_arm:
                    rows = values.reshape(columns.size, -1)[left].ravel()
                place = self.choice(rows, columns[left], step + n, seen[n])
                places[n] = left.pop(place)
                self.books.chosen[columns[places[n]]] += 1
        finally:
            self.books = books
        return 0


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
