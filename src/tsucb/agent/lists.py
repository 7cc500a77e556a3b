"""Lists: several arms at once, in an order, and the rewards of their places.

The places are filled one after the other: the policy chooses among all arms offered, then among
those that are left, and so on, all from what is known now. So the list of TS-UCB is its rule
applied without replacement; each place has its own draw of f̃, over the arms that were left. Each
counts as a decision, and all of them have one id. What is believed is computed once for all places.
"""

from typing import Any

import numpy as np
from numba import types

from tsucb.agent.calls import (
    _COLUMNS,
    _CONTEXT,
    DECISIONS,
    NOT_FINITE,
    OBSERVATIONS,
    PlainCalls,
    all_finite,
    count_decision,
    keeping_gil,
    laid_out,
    player_of,
    without_tiny,
)
from tsucb.agent.contexts import Arm
from tsucb.agent.decision import Decision, Explanation
from tsucb.agent.roster import Offer
from tsucb.agent.seen import choose_seen, first_pull_seen
from tsucb.beliefs.belief import belief_of
from tsucb.beliefs.law import Law, law_of
from tsucb.compiler import class_of, compiled, hook, implements, offers
from tsucb.models.model import believe
from tsucb.numeric.arrays import Floats, Integers, taken


class Ranking:
    """Arms in an order, best first, and the id under which to report their rewards.

    `id` is a string, `arms` are the names in their order, `time` is when the agent's clock said the
    list was made. `explain(place)` says why an arm is where it is, counted from 0.
    """

    __slots__ = ("_offer", "_policy", "_seen", "arms", "id", "places", "time")

    def __init__(
        self, id: str, offer: Offer, places: Integers, policy: Any, seen: Floats, time: float
    ) -> None:
        self.id, self.time = id, time
        self.places = tuple(places.tolist())  # of each arm among those offered
        self.arms: tuple[Arm, ...] = tuple(offer.records[place].name for place in self.places)
        # One line per place: what `tsucb.agent.seen` says of the arms that were left.
        self._offer, self._policy, self._seen = offer, policy, seen

    def __repr__(self) -> str:
        return f"Ranking(id={self.id!r}, arms={self.arms!r})"

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def offered(self) -> tuple[Arm, ...]:
        """The arms that the list was made from."""
        return self._offer.names

    def decision(self, place: int) -> Decision:
        """How this place was filled, as a decision among the arms that were left."""
        if not 0 <= place < len(self.places):
            raise IndexError(f"the list has the places 0 to {len(self.places) - 1}, not {place}")
        left = [i for i in range(len(self._offer.records)) if i not in self.places[:place]]
        records = tuple(self._offer.records[i] for i in left)
        seen = self._seen[place, : 4 * len(left) + 2].tobytes()
        arm, id = self.arms[place], place_id(self.id, place)
        offer = Offer(records, self._offer.columns[left])
        return Decision(id, arm, offer, self._policy, seen, None, self.time)

    def explain(self, place: int) -> Explanation:
        """What the policy saw of every arm that was left when it filled this place."""
        return self.decision(place).explain()


def place_id(id: str, place: int) -> str:
    """Under which a log has one place of a list."""
    return f"{id}#{place}"


def ranked(calls: Any, context: bytes, columns: Integers, count: int, width: int
           ) -> tuple[Integers, Floats, int, int]:  # fmt: skip
    """The places of the arms among the columns, what was seen for each, and number and checksum.

    `width` is that of an arm's row in the context, 0 if all have the same context. The number is
    `NOT_FINITE` where an entry of the context is not; nothing has happened.
    """
    places = np.zeros(count, dtype=np.int64)
    seen = np.full((count, 4 * columns.size + 2), np.nan)
    if isinstance(calls, PlainCalls):
        number, checksum = _rank_plain(calls, context, columns, places, seen, width)
    else:
        rank = calls.bound(_rank, _CONTEXT, _COLUMNS, _COLUMNS, _SEEN, types.int64)
        number, checksum = rank(context, columns, places, seen, width)
    return places, seen, int(number), int(checksum)


_SEEN = types.Array(types.float64, 2, "C")


def _rank_plain(calls: PlainCalls, context: bytes, columns: Integers, places: Integers,
                seen: Floats, width: int) -> tuple[int, int]:  # fmt: skip
    """`_rank` in plain Python, one decision after the other."""
    rows, left = np.frombuffer(context), list(range(columns.size))
    books = calls.books
    for n in range(places.size):
        given = rows.reshape(-1, width)[left].tobytes() if width else context
        place, _, saw = calls.decide(given, columns[left])
        if place == NOT_FINITE:
            return NOT_FINITE, 0
        seen[n, : 4 * len(left) + 2] = np.frombuffer(saw)
        places[n] = left.pop(place)
    return int(books.counts[DECISIONS]), int(books.checksum[0])


@keeping_gil
def _rank(decider, numbers, columns, places, seen, width):  # type: ignore[no-untyped-def]
    learner = decider.learner
    values, books = np.frombuffer(numbers, np.float64), learner.books
    if not all_finite(values, decider.largest):
        return NOT_FINITE, np.uint64(0)
    context = laid_out(without_tiny(values), learner.room, columns)
    model, state, rng = learner.model, learner.state, decider.stream.rng
    words, rest = np.frombuffer(numbers, np.uint64), np.arange(columns.size)
    n = first_places(decider, columns, words, rest, places, seen)
    if n < places.size:
        step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
        whole = believe(model, state, context, columns, step, rng)
    while n < places.size:
        step = books.counts[DECISIONS] + books.counts[OBSERVATIONS] + 1
        if n == 0:
            belief = whole
        else:
            left = rest[: columns.size - n]
            belief = belief_of_rest(whole, left, model, state, context, columns, step, rng)
        choice = choose_seen(decider.policy, belief, rng, seen[n])
        fill(n, choice.arm, columns, words, books, rest, places)
        n += 1
    return books.counts[DECISIONS], books.checksum[0]


@compiled
def first_places(decider, columns, words, rest, places, seen):  # type: ignore[no-untyped-def]
    """Fill places with arms that have not had their first pulls; how many. The others follow."""
    books, n = decider.learner.books, 0
    while n < places.size and decider.first_pulls > 0:
        left = taken(columns, rest[: columns.size - n])
        choice = first_pull_seen(player_of(decider), left, decider.stream.rng, seen[n])
        if choice.arm < 0:
            break
        fill(n, choice.arm, columns, words, books, rest, places)
        n += 1
    return n


@compiled
def fill(n, arm, columns, words, books, rest, places):  # type: ignore[no-untyped-def]
    """Give place n to one of the arms that are left."""
    places[n] = rest[arm]
    count_decision(books, words, columns, rest[arm])
    for i in range(arm, columns.size - n - 1):
        rest[i] = rest[i + 1]


@hook
def belief_of_rest(
    whole: Any, left: Integers, model: Any, state: Any, context: Any, columns: Integers, step: int,
    rng: np.random.Generator,
) -> Any:  # fmt: skip
    """What is believed of the arms that are left, where `whole` is what is believed of all."""


@implements(belief_of_rest, Law, where=lambda whole, *_: offers(law_of, class_of(whole)))
def rest_of_belief(whole, left, model, state, context, columns, step, rng):  # type: ignore[no-untyped-def]
    return belief_of(whole, left, step)


@implements(belief_of_rest, Law)
def rest_believed_anew(whole, left, model, state, context, columns, step, rng):  # type: ignore[no-untyped-def]
    return believe(model, state, context, taken(columns, left), step, rng)
