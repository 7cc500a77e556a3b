"""Merge agents that learned apart."""

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsucb.agent.knowledge import Knowledge
from tsucb.agent.learner import Learner
from tsucb.agent.machine import DUE, Books
from tsucb.agent.open_decisions import OpenDecision, arms_and_rows
from tsucb.agent.snapshot import check_knowledge, check_open
from tsucb.checks import shown
from tsucb.contexts.encoding import Encoder
from tsucb.contexts.readers import Arm, Reader, as_features, widths_of
from tsucb.models.structure import pack_object

if TYPE_CHECKING:
    from tsucb.agent.agent import Agent


# Long, because of the description; the steps of a merge follow one after the other.
def merge(first: "Agent", second: "Agent", base: "Agent | None" = None) -> "Agent":
    """Return an agent with all that two agents have learned since both were `base`.

    It believes what one agent would believe that had learned all of it, in any order. So copies of
    an agent can learn in two processes and be merged; then both go on from the result. A model that
    forgets or trains cannot be merged: that is an error.

    Parameters
    ----------
    first, second
        Copies of `base`, or agents with the same settings, which have learned since. They are not
        changed.
    base
        The agent that was copied, or the one in the file that both loaded. By default nothing, for
        two agents that started apart.

    Returns
    -------
    Agent
        With the settings and the clock of the first, without a log. It has the arms added to either
        and lacks the arms removed from either. A decision stays open if neither has closed it.

    >>> import copy, tsucb
    >>> base = tsucb.Agent(["red", "blue"], seed=0)
    >>> one, two = copy.copy(base), copy.copy(base)
    >>> one.update({"x": 1.0}, "red", 3.0)
    >>> two.update({"x": 2.0}, "blue", 5.0)
    >>> merge(one, two, base).arms_summary()["pulls"].tolist()
    [1, 1]
    """
    for agent in (first, second, *(() if base is None else (base,))):
        if not hasattr(agent, "_learner"):
            raise TypeError(f"agents are merged, not {shown(agent)}; load them first")
    if not first.model.merges:
        first.model.merged(None, None, None)  # raises, and says why
    result, other = copy.copy(first), copy.copy(second)
    start = _blank_like(result) if base is None else copy.copy(base)
    one, two, old = (agent._learner for agent in (result, other, start))
    for each in (two, old):
        if _settings(one) != _settings(each):
            raise ValueError(
                "agents with different models, policies or features cannot be merged; make them "
                "alike, or copy one"
            )
    if _is_older(old, one) or _is_older(old, two):
        raise ValueError(
            "the base has made decisions or seen rewards that the agents have not; give what both "
            "were copied from"
        )
    reader, wide, moves = _same_columns(one, two, old)
    names = _same_arms(one, two, old)
    mine, theirs, before = (_with_arms(known, names) for known in wide)
    state = mine.model.merged(mine.state, theirs.state, before.state)
    books = _added(mine.books, theirs.books, before.books)
    born = {n: min(mine.born.get(n, 0), theirs.born.get(n, 0)) for n in mine.born}
    known = mine.changed(state=state, books=books, born={n: b for n, b in born.items() if b})
    open = _still_open(*zip((result, other, start), moves, strict=True))
    check_knowledge(known)
    check_open(open, known, result.max_open)
    result._open.clear()
    result._open.update(open)
    one.reader, one.known = reader, known
    words: list[Any] = [agent._learner.rng.bit_generator.state for agent in (first, second)]
    one.rng = np.random.default_rng(
        [word["state"][name] for word in words for name in ("state", "inc")]
    )
    return result


def _settings(learner: Learner) -> Any:
    """Return the settings that merged learners must share; not a width that was learned."""
    packed: dict[str, Any] = pack_object(learner.model, [])
    any_form = bool(_encoders(learner.reader))
    if any_form:
        packed = {"class": packed["class"]}
    return packed, learner.policy, learner.reader.names, any_form, learner.coming, learner.described


def _blank_like(agent: "Agent") -> "Agent":
    """Return an agent with the settings of this one that has no arms and has learned nothing."""
    start, model = copy.copy(agent), agent.model
    learner, reader = start._learner, start._learner.reader
    if encoders := _encoders(reader):
        model = model.widened(as_features([0] * len(encoders)))
        blank = [type(e)(categories=e.categories, most_columns=e.most_columns) for e in encoders]
        learner.reader = type(reader)(model, *blank)
    learner.known = Knowledge.start(model, (), model.start(1), agent.policy)
    start._open.clear()
    return start


def _encoders(reader: Reader) -> tuple[Encoder, ...]:
    return tuple(each for each in reader.encoders if isinstance(each, Encoder))


Move: TypeAlias = Callable[[bytes], bytes]  # moves the entries of a row to other columns


def _same_columns(
    one: Learner, two: Learner, start: Learner
) -> tuple[Reader, list[Knowledge], list[Move]]:
    """Return a reader with the columns of all three, and for each its knowledge and its `Move`."""
    learners = one, two, start
    known = [each.prepared() for each in learners]
    if not _encoders(one.reader):
        return one.reader, known, [bytes] * 3
    triples = zip(*(_encoders(each.reader) for each in learners), strict=True)
    encoders = [a.joined(b, c) for a, b, c in triples]
    widths = as_features([encoder.width for encoder in encoders])
    wide: list[Knowledge] = []
    moves: list[Move] = []
    for learner, each in zip(learners, known, strict=True):
        own = zip(encoders, _encoders(learner.reader), widths_of(each.model), strict=True)
        # Without columns that the model does not have yet, or that are not in use.
        places = as_features([a.vocabulary.places_of(b.vocabulary)[:count] for a, b, count in own])
        wide.append(each.widened(widths, places))
        moves.append(functools.partial(_moved, widths=widths, places=places))
    return type(one.reader)(wide[0].model, *encoders), wide, moves


def _moved(row: bytes, widths: Any, places: Any) -> bytes:
    """Return a row of other widths, with its entries at these places and 0 elsewhere."""

    def spread(numbers: Any, places: Any, width: int) -> Any:
        out, count = np.zeros(width), min(numbers.size, places.size)
        out[places[:count]] = numbers[:count]
        return out

    numbers = np.frombuffer(row)
    if not isinstance(places, tuple):
        return spread(numbers, places, widths).tobytes()  # type: ignore[no-any-return]
    first = int(numbers[0]) + 1
    x, z = (
        spread(numbers[1:first], places[0], widths[0]),
        spread(numbers[first:], places[1], widths[1]),
    )
    return np.concatenate(([float(x.size)], x, z)).tobytes()


def _is_older(base: Learner, learner: Learner) -> bool:
    """Return whether a learner has made fewer decisions, or seen fewer rewards, than its base."""
    then, now = base.known.books.counts[:DUE], learner.known.books.counts[:DUE]
    return bool((then > now).any())


def _same_arms(one: Learner, two: Learner, start: Learner) -> list[Arm]:
    """Return the arms of either learner without those that one of them has removed."""
    removed: set[Arm] = set()
    if not one.coming:
        removed = {name for name in start.arms if name not in one.arms or name not in two.arms}
    names = dict.fromkeys(name for learner in (one, two) for name in learner.arms)
    found = [name for name in names if name not in removed]
    if not found and not one.coming:
        raise ValueError("the agents have no arm in common; at least one must be left")
    return found


def _with_arms(known: Knowledge, names: list[Arm]) -> Knowledge:
    """Return what is known of these arms, in columns 0, 1, …; new arms have no data."""
    ordered = known.with_arms({name: known.arms.get(name, -1) for name in names})
    order = np.array(list(ordered.arms.values()), dtype=np.int64)
    return ordered.changed(
        state=ordered.state.select(order), books=ordered.books.select(order), free=(),
        arms={name: i for i, name in enumerate(ordered.arms)},
    )  # fmt: skip


def _added(one: Books, two: Books, base: Books) -> Books:
    """Return the counts of both, with those of the base once."""
    mixed = (int(one.checksum[0]) ^ 3 * int(two.checksum[0])) % 2**64
    return one.merged(two, base)._replace(checksum=np.array([mixed], dtype=np.uint64))


def _still_open(
    mine: tuple["Agent", Move], theirs: tuple["Agent", Move], before: tuple["Agent", Move]
) -> dict[str, OpenDecision]:
    """Return the decisions that neither agent has closed, in the order of their numbers."""
    was, found = before[0]._open, dict[str, OpenDecision]()
    for (agent, move), (other, _) in ((mine, theirs), (theirs, mine)):
        known = agent._learner.known
        for id, decision in agent._open.items():
            if id in found or (id in was and id not in other._open):
                continue
            (number, time, arm, _), (names, rows) = decision, arms_and_rows(decision)
            here = all(known.is_current(name, number) for name in names)
            moved = tuple(map(move, rows))
            # Number 0 comes before every arm was added: the arm of this decision has left.
            found[id] = number * here, time, arm, moved if isinstance(arm, tuple) else moved[0]
    return dict(sorted(found.items(), key=lambda pair: pair[1][0]))
