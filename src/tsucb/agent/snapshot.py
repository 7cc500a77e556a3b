"""An agent as plain values and arrays, for a file; and an agent again from such, checked."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb import models, policies
from tsucb.agent.calls import CLOSED, COLUMN, DECIDED, DECISIONS, NOTHING, OBSERVATIONS, PENDING
from tsucb.agent.contexts import FreeReader, check_finite
from tsucb.agent.encoding import Encoder
from tsucb.agent.roster import ArmRecord, Open, Roster, blank_books, columns_of, plain_name
from tsucb.numeric.arrays import Integers
from tsucb.structure import Arrays, WrongSettings, pack, pack_object, unpack, unpack_object

if TYPE_CHECKING:
    from tsucb.agent.agent import Agent

# What a file may name; nothing else is made from it.
MODELS = [cls for cls in vars(models).values() if isinstance(cls, type)]
POLICIES = [cls for cls in vars(policies).values() if isinstance(cls, type)]
# What can go wrong in putting an agent together from values that do not fit.
MISFITS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError)
GONE = -1  # the column of an arm that was removed while decisions for it were open


def taken(agent: "Agent", roster: Roster) -> tuple[dict[str, Any], Arrays]:
    """Everything an agent knows, copied.

    May be called in the middle of a call, by a signal handler: what that call has done is then left
    out, or taken in, as `Agent._recover` would do it.
    """
    books = roster.books._replace(
        **{name: getattr(roster.books, name).copy() for name in roster.books._fields}
    )
    open, counts = dict(roster.open), books.counts
    if counts[PENDING] == DECIDED:
        open.pop(f"{counts[DECISIONS]}-{int(books.checksum[0]):x}", None)
        counts[DECISIONS] -= 1
        books.chosen[counts[COLUMN]] -= 1
        books.checksum[0] = books.checksum[1]
    elif counts[PENDING] != NOTHING and agent._rewarding is not None:
        open.pop(agent._rewarding, None)
    counts[PENDING] = NOTHING

    # Arms that are to come or go are left to the agent that is loaded.
    live = [record for record in agent._records.values() if record in roster.columns]
    gone = [record for record in roster.columns if agent._records.get(record.name) is not record]
    lost = dict.fromkeys(r for r, _, _ in open.values() if r not in roster.columns)
    records = [*roster.columns, *lost]
    number = {record: i for i, record in enumerate(records)}
    contexts = np.frombuffer(b"".join(context for _, context, _ in open.values()))
    parts = {
        "state": roster.state,
        "books": books,
        "columns": np.array([roster.columns.get(r, GONE) for r in records], dtype=np.int64),
        "open_arms": np.array([number[r] for r, _, _ in open.values()], dtype=np.int64),
        "open_times": np.array([when for _, _, when in open.values()], dtype=np.float64),
        "open_contexts": contexts.reshape(len(open), *(roster.model.context_shape(1)[-1:] or (0,))),
    }
    arrays: Arrays = []
    values = {
        "model": pack_object(agent.model, arrays),
        "policy": pack_object(agent.policy, arrays),
        "settings": {
            "features": agent._reader.names,
            "streaming": agent._reader.streaming,
            "max_open": agent.max_open,
            "keep_beliefs": agent.keep_beliefs,
        },
        "transformer": agent._reader.transformer is not None,
        "encoder": agent._reader.encoder.state() if isinstance(agent._reader, FreeReader) else None,
        "arms": [record.name for record in records],
        "removed": [number[record] for record in gone],
        "added": [r.name for r in agent._records.values() if r not in roster.columns],
        "state_columns": int(books.chosen.size),
        "parts": {name: pack(part, arrays) for name, part in parts.items()},
        "open": list(open),
        "random": agent._rng.bit_generator.state,
    }
    assert len(live) + len(gone) == len(roster.columns)
    return values, [array.copy() for array in arrays]


def check(values: dict[str, Any], arrays: Arrays) -> None:
    """Refuse to write what `restored` would refuse to read."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(
            "the agent's state is not finite, so it was not saved and the file stays as it was; "
            "load the last good one"
        )


def restored(
    cls: "type[Agent]",
    path: str | os.PathLike[str],
    values: dict[str, Any],
    arrays: Arrays,
    model: Any,
    policy: Any,
    transformer: Any,
    clock: Callable[[], float],
) -> "Agent":
    """The agent that values and arrays describe, or a sentence on what is wrong with them."""
    try:
        if bool(values["transformer"]) != (transformer is not None):
            verb = "with" if values["transformer"] else "without"
            raise WrongSettings(f"was saved {verb} a transformer; load it {verb} it")
        names = values["arms"]
        agent = cls(
            # An agent is not made without arms, but all may have been removed from it.
            ["none"],
            **values["settings"],
            model=unpack_object(values["model"], arrays, MODELS, model),
            policy=unpack_object(values["policy"], arrays, POLICIES, policy),
            seed=0,
            transformer=transformer,
            clock=clock,
        )
        agent.forgetting = getattr(agent.model, "gamma", 1.0)
        if values["encoder"] is not None:
            agent._reader = FreeReader(agent.model, (), Encoder.from_state(values["encoder"]))
            agent._free = True
        fill(agent, names, values, arrays)
    except WrongSettings as error:
        raise ValueError(f"{path} {error}") from None
    except MISFITS as error:
        raise ValueError(f"{path} does not hold an agent ({error}); use another copy") from None
    return agent


def fill(agent: "Agent", names: list[Any], values: dict[str, Any], arrays: Arrays) -> None:
    """Take over everything but the settings, checking that it fits together."""

    def part(name: str, template: Any) -> Any:
        return unpack(values["parts"][name], arrays, template)

    records = [ArmRecord(plain_name(name)) for name in names]
    columns = part("columns", _zeros(len(records)))
    count = _count(values["state_columns"])
    used = columns[columns != GONE]
    # Never make room for more columns than the file has numbers.
    room = sum(array.size for array in arrays)
    inside = bool(((used >= 0) & (used < count)).all()) and np.unique(used).size == used.size
    if not inside or count > room or (agent._axes is not None and used.size != count):
        raise ValueError("its arms do not fit the state")
    template = agent.model.start(max(count, 1))
    if not count:
        if agent._axes is None:
            raise ValueError("it has no arms")
        template = columns_of(template, _zeros(0), agent._axes)
    blank = blank_books([])
    shaped = blank._replace(
        **{
            name: np.zeros(count, getattr(blank, name).dtype)
            for name in ("tokens", "chosen", "pulls", "totals")
        }
    )
    books = part("books", shaped)
    state = part("state", template)
    here = {r: int(c) for r, c in zip(records, columns.tolist(), strict=True) if c != GONE}
    for record, column in here.items():
        if books.tokens[column] != np.uint64(record.token):
            raise ValueError("its arms do not fit their tokens")
    counts = books.counts
    if (counts < 0).any() or counts[PENDING] != NOTHING:
        raise ValueError("impossible counts")
    if any((getattr(books, name) < 0).any() for name in ("chosen", "pulls")):
        raise ValueError("negative counts")
    agent.model.check_state(state, int(counts[CLOSED] + counts[OBSERVATIONS]))

    ids, shape = values["open"], agent.model.context_shape(1)[-1:] or (0,)
    arms, times = part("open_arms", _zeros(len(ids))), part("open_times", np.zeros(len(ids)))
    contexts = part("open_contexts", np.zeros((len(ids), *shape)))
    if (arms < 0).any() or not all(type(id) is str for id in ids) or len(set(ids)) < len(ids):
        raise ValueError("open decisions that were not made here")
    if len(ids) > agent.max_open or len(ids) > counts[DECISIONS] - counts[CLOSED]:
        raise ValueError("more open decisions than there can be")
    check_finite(contexts)
    open: dict[str, Open] = {
        id: (records[arm], context.tobytes(), when)
        for id, arm, context, when in zip(ids, arms, contexts, times.tolist(), strict=True)
    }
    removed = {records[_count(i)] for i in values["removed"]}
    agent._records = {r.name: r for r in here if r not in removed}
    for name in values["added"]:
        plain = plain_name(name)
        if plain in agent._records:
            raise ValueError(f"two arms called {plain!r}")
        agent._records[plain] = ArmRecord(plain)
    if len(agent._records) != len(here) - len(removed) + len(values["added"]):
        raise ValueError("two arms of one name")
    agent._roster = Roster(agent.model, here, state, books, open)
    agent._settled = not (removed or values["added"])
    agent._rng.bit_generator.state = values["random"]


def _zeros(count: int) -> Integers:
    return np.zeros(count, dtype=np.int64)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} where a count belongs")
    return value
