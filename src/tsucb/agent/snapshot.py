"""An agent as plain values and arrays, for a file; and an agent again from such, checked."""

import hashlib
import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsucb import models, policies
from tsucb.agent import storage
from tsucb.agent.arm_features import HybridReader
from tsucb.agent.calls import CLOSED, DECISIONS, DUE, NOTHING, OBSERVATIONS, PENDING, Books
from tsucb.agent.contexts import FreeReader, Reader
from tsucb.agent.encoding import Encoder
from tsucb.agent.hashing import HashingEncoder
from tsucb.agent.roster import (
    PER_COLUMN,
    Roster,
    blank_books,
    columns_of,
    plain_name,
)
from tsucb.agent.storage import MOST_COUNT, count_of, zeros
from tsucb.agent.waiting import ArmRecord
from tsucb.agent.waiting_file import open_decisions, open_taken
from tsucb.checks import LARGEST, within
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import trains
from tsucb.structure import (
    Arrays,
    WrongSettings,
    leaves,
    pack,
    pack_object,
    unpack,
    unpack_object,
)

if TYPE_CHECKING:
    from tsucb.agent.agent import Agent

# What a file may name; nothing else is made from it.
MODELS = [cls for cls in vars(models).values() if isinstance(cls, type)]
POLICIES = [cls for cls in vars(policies).values() if isinstance(cls, type)]
# What can go wrong in putting an agent together from values that do not fit.
MISFITS = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError,
    RecursionError,
)  # fmt: skip
GONE = -1  # the column of an arm that was removed while decisions for it were open

# Limits of what a file alone may ask for, so that it cannot make a process slow: give a model or a
# policy beyond them to `load`.
MOST_FEATURES = 2_000  # of a model whose arms were all removed; else the file has their squares
MOST_LAYERS = 20  # of a network, and of models within models
MOST_SAMPLES = 1e6  # of a policy, for one decision
MOST_ROWS = 1e8  # that a network goes through in one training


class AgentHeld(NamedTuple):
    """Everything an agent knows at a moment.

    To take that is quick, however many decisions are open, as these are shared: nothing changes
    them. To write it down takes longer, and may be done in another thread.
    """

    roster: Roster
    arms: tuple[ArmRecord, ...]
    policy: Any
    settings: dict[str, Any]
    coming: bool
    per_arm: bool
    transformer: bool
    encoders: list[Any]
    random: Any

    def to_bytes(self) -> bytes:
        """See `Agent.to_bytes`."""
        return storage.packed(*taken(self))

    def digest(self) -> str:
        """See `Agent.digest`."""
        return digest(*taken(self))


def held(agent: "Agent") -> AgentHeld:
    """What an agent knows now; its lock is held.

    May be called in the middle of a call, by a signal handler: what that call has done is then left
    out, or taken in, as `Agent._current` would do it.
    """
    roster = agent._in_order()
    if agent._coming:  # by their last use, and without columns of no arm
        roster = roster.with_arms([r for r in agent._records.values() if r in roster.columns])
    open = roster.open.copied()
    open.drop_oldest(agent.max_open)
    return AgentHeld(
        roster.copied(open),
        tuple(agent._records.values()),
        agent.policy,
        {
            "features": agent._reader.names,
            "streaming": agent._reader.streaming,
            "max_open": agent.max_open,
            "keep_beliefs": agent.keep_beliefs,
            "most_arms": agent.most_arms,
        },
        agent._coming,
        agent._per_arm,
        agent._reader.transformer is not None,
        [encoder.state() for encoder in encoders_of(agent._reader)],
        agent._rng.bit_generator.state,
    )


def taken(held: AgentHeld) -> tuple[dict[str, Any], Arrays]:
    """What was held, as plain values and arrays."""
    roster, books, open = held.roster, held.roster.books, held.roster.open

    # Arms that are to come or go are left to the agent that is loaded.
    known = set(held.arms)
    live = [record for record in held.arms if record in roster.columns]
    gone = [record for record in roster.columns if record not in known]
    waiting = [record for record, count in open.by_arm().items() if count]
    records = list(dict.fromkeys([*roster.columns, *waiting]))  # those that are lost at the end
    number = {record: i for i, record in enumerate(records)}
    open_values, open_parts = open_taken(open, number, roster.model, held.per_arm)
    parts = {
        "state": roster.state,
        "books": books,
        "columns": np.array([roster.columns.get(r, GONE) for r in records], dtype=np.int64),
        **open_parts,
    }
    arrays: Arrays = []
    values = {
        "model": pack_object(roster.model, arrays),
        "policy": pack_object(held.policy, arrays),
        "settings": held.settings,
        "coming": held.coming,
        "transformer": held.transformer,
        "encoders": held.encoders,
        "arms": [record.name for record in records],
        "removed": [number[record] for record in gone],
        "added": [r.name for r in held.arms if r not in roster.columns],
        "state_columns": int(books.chosen.size),
        "parts": {name: pack(part, arrays) for name, part in parts.items()},
        **open_values,
        "random": held.random,
    }
    assert len(live) + len(gone) == len(roster.columns)
    return values, [array.copy() for array in arrays]


def digest(values: dict[str, Any], arrays: Arrays) -> str:
    """A hash of what `taken` took, but for what only says how the last calls came about."""
    number = values["parts"]["books"]
    counts, checksum = (arrays[part["array"]].copy() for part in number[:2])
    counts[PENDING:] = 0
    checksum[1] = 0
    known = {name: value for name, value in values.items() if name != "random"}
    found = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    skipped = {part["array"] for part in number[:2]}
    for array in (counts, checksum, *(a for i, a in enumerate(arrays) if i not in skipped)):
        found.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
    return found.hexdigest()


def check(agent: "Agent", values: dict[str, Any], arrays: Arrays) -> None:
    """Refuse to write what `restored` would refuse to read."""
    given = agent.model, agent.policy, agent._reader.transformer
    try:
        assembled(type(agent), json.loads(json.dumps(values)), arrays, *given, agent._clock)
    except (WrongSettings, *MISFITS) as error:
        raise ValueError(
            f"the agent could not be loaded again ({error}), so it was not saved and the file "
            "stays as it was; load the last good one"
        ) from None


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
        return assembled(cls, values, arrays, model, policy, transformer, clock)
    except WrongSettings as error:
        raise ValueError(f"{path} {error}") from None
    except MISFITS as error:
        raise ValueError(f"{path} does not hold an agent ({error}); use another copy") from None


def assembled(
    cls: "type[Agent]", values: dict[str, Any], arrays: Arrays, model: Any, policy: Any,
    transformer: Any, clock: Callable[[], float],
) -> "Agent":  # fmt: skip
    """The agent that values and arrays describe; one of `MISFITS` is raised if there is none."""
    if bool(values["transformer"]) != (transformer is not None):
        verb = "with" if values["transformer"] else "without"
        raise WrongSettings(f"was saved {verb} a transformer; load it {verb} it")
    settings = values["settings"]
    if settings.keys() != {"features", "streaming", "max_open", "keep_beliefs", "most_arms"}:
        raise ValueError("other settings than an agent has")
    # Never make room for more than the file has numbers.
    room = sum(array.size for array in arrays)
    if model is None:
        check_model(values["model"], room)
    model = unpack_object(values["model"], arrays, MODELS, model)
    if policy is None:
        check_policy(values["policy"])
    agent = cls(
        # An agent is not made without arms, but all may have been removed from it.
        None if values["coming"] is True else ["none"],
        **settings,
        model=model,
        policy=unpack_object(values["policy"], arrays, POLICIES, policy),
        seed=0,
        transformer=transformer,
        clock=clock,
    )
    agent.forgetting = getattr(agent.model, "gamma", 1.0)
    if values["encoders"]:
        agent._reader = free_reader_of(agent, values["encoders"])
        agent._free = True
    fill(agent, values, arrays, room)
    return agent


def encoders_of(reader: Any) -> Sequence[Any]:
    """Those of a reader that reads what comes; none of others."""
    if isinstance(reader, FreeReader):
        return (reader.encoder,)
    return reader.encoders or () if isinstance(reader, HybridReader) else ()


def free_reader_of(agent: "Agent", states: list[Any]) -> Reader:
    """What reads contexts, and perhaps arms, as they come, from the states of its encoders."""
    model: Any = without_forgetting(agent.model)
    if isinstance(model, HashedLinear):
        (state,) = states
        return FreeReader(agent.model, HashingEncoder.from_state(state, model.bits, model.crossed))
    encoders = [Encoder.from_state(state) for state in states]
    for encoder in encoders:
        if encoder.width > max(MOST_FEATURES, sum(model.context_shape(1)[-1:])):
            raise ValueError("it reads more columns than its model has")
    if isinstance(model, HybridLinear):
        contexts, arms = encoders
        model.widened((contexts.used, arms.used))
        return HybridReader(model, (contexts, arms))
    (encoder,) = encoders
    model.widened(encoder.width)  # or it is no model that can read contexts by itself
    return FreeReader(model, encoder)


def check_model(saved: Any, room: int, depth: int = 0) -> None:
    """Complain about sizes that the file has no numbers for, before anything is made of them."""
    fields = saved["fields"]
    if depth > MOST_LAYERS:
        raise ValueError("models within models")
    for part in fields.values():
        if isinstance(part, dict) and "class" in part:
            check_model(part, room, depth + 1)
    features = count_of(fields.get("features", 0))
    needed = features * features
    if saved["class"] == "AdaptiveLinear" and features <= MOST_FEATURES:
        needed = features
    if saved["class"] == "HashedLinear":  # whose rows have few of its columns
        needed = 0
    if saved["class"] == "HybridLinear":
        context = count_of(fields["context"])
        pairs = features * context if fields["crossed"] is True else 0
        needed = (1 + features + context + pairs) ** 2
    if "hidden" in fields:
        widths = [features, *map(count_of, fields["hidden"])]
        members, training = count_of(fields.get("members", 1)), fields["training"]["fields"]
        networks = members if saved["class"] == "DeepEnsemble" else 1
        between = sum(a * b for a, b in pairwise(widths)) + widths[-1] * members // networks
        needed = networks * between + count_of(training["memory"]) * features
        rows = count_of(training["batches"]) * count_of(training["batch_size"])
        if len(widths) > MOST_LAYERS or members * rows > MOST_ROWS:
            raise ValueError("a network that would take too long to train")
    if needed > room:
        raise ValueError("sizes that it has no numbers for")


def check_policy(saved: Any) -> None:
    """Complain about a policy that would take very long to decide."""
    samples = saved["fields"].get("samples", 1)
    if type(samples) not in (int, float) or not (samples <= MOST_SAMPLES or samples == math.inf):
        raise WrongSettings(
            f"was saved with a policy that draws {samples!r} samples for a decision; give the "
            "policy to load if that is meant"
        )


def fill(agent: "Agent", values: dict[str, Any], arrays: Arrays, room: int) -> None:
    """Take over everything but the settings, checking that it fits together."""

    def part(name: str, template: Any) -> Any:
        return unpack(values["parts"][name], arrays, template)

    axes = agent._roster.axes
    records = [ArmRecord(plain_name(name)) for name in values["arms"]]
    columns = part("columns", zeros(len(records)))
    count = count_of(values["state_columns"])
    used = columns[columns != GONE]
    inside = bool(((used >= 0) & (used < count)).all()) and np.unique(used).size == used.size
    if not inside or count > room or (axes is not None and used.size != count):
        raise ValueError("its arms do not fit the state")
    here = {r: int(c) for r, c in zip(records, columns.tolist(), strict=True) if c != GONE}
    state = part("state", state_template(agent, count, room))
    blank = blank_books([])
    books = part(
        "books",
        blank._replace(**{n: np.zeros(count, getattr(blank, n).dtype) for n in PER_COLUMN}),
    )
    check_books(books, here)
    rewards = int(books.counts[CLOSED] + books.counts[OBSERVATIONS])
    agent.model.check_state(state, rewards)
    if type(agent.model) in MODELS and (state.pulls > books.pulls * (1 + 1e-9)).any():
        raise ValueError("the state has seen more rewards than were counted")
    due = books.counts[PENDING] == DUE
    if books.counts[PENDING] != NOTHING and not (due and trains(agent.model)):
        raise ValueError("something half done")

    made = int(books.counts[DECISIONS])
    open = open_decisions(values, part, records, room, made, agent.model, agent._per_arm)
    if len(open) > agent.max_open or open.places > made - books.counts[CLOSED]:
        raise ValueError("more open decisions than there can be")
    waiting = np.zeros(count, dtype=np.int64)
    for record, number in open.by_arm().items():
        if record in here:
            waiting[here[record]] += number
    if (books.pulls + waiting > books.chosen).any():
        raise ValueError("more rewards than decisions")
    removed = {records[count_of(i)] for i in values["removed"]}
    agent._records = OrderedDict((r.name, r) for r in here if r not in removed)
    for name in values["added"]:
        plain = plain_name(name)
        if plain in agent._records:
            raise ValueError(f"two arms called {plain!r}")
        agent._records[plain] = ArmRecord(plain)
    if len(agent._records) != len(here) - len(removed) + len(values["added"]):
        raise ValueError("two arms of one name")
    agent._roster = Roster(agent.model, here, state, books, open, axes)
    agent._settled = not (removed or values["added"])
    agent._rng.bit_generator.state = checked_random(values["random"])


def state_template(agent: "Agent", count: int, room: int) -> Any:
    """A state of so many columns, of the shapes and types that the file must have."""
    # All arms have equally many numbers, and the file must have those of each.
    one = sum(array.size for array in leaves(agent._roster.state))
    two = sum(array.size for array in leaves(agent.model.start(2)))
    if count and one + (two - one) * (count - 1) > room:
        raise ValueError("sizes that it has no numbers for")
    template = agent.model.start(max(count, 1))
    if count:
        return template
    if agent._roster.axes is None:
        raise ValueError("it has no arms")
    return columns_of(template, zeros(0), agent._roster.axes)


def check_books(books: Books, here: dict[ArmRecord, int]) -> None:
    """Complain about counts that cannot be, or that are of other arms."""
    for record, column in here.items():
        if books.tokens[column] != np.uint64(record.token):
            raise ValueError("its arms do not fit their tokens")
    counts = books.counts
    if any((x < 0).any() or (x > MOST_COUNT).any() for x in (counts, books.chosen, books.pulls)):
        raise ValueError("counts that cannot be")
    rewards, chances = counts[CLOSED] + counts[OBSERVATIONS], counts[DECISIONS]
    if counts[CLOSED] > chances or books.pulls.sum() > rewards:
        raise ValueError("more rewards than decisions and observations")
    if books.chosen.sum() > chances + counts[OBSERVATIONS]:
        raise ValueError("more arms chosen than decisions made")
    if not within(books.totals, LARGEST * MOST_COUNT) or books.totals[books.pulls == 0].any():
        raise ValueError("totals that cannot be")


def checked_random(state: Any) -> dict[str, Any]:
    """The state of a generator that draws, and does not only repeat itself."""
    numbers = {"has_uint32": 2, "uinteger": 2**32}
    good = type(state) is dict and state.keys() == {"bit_generator", "state", *numbers}
    good = good and state["bit_generator"] == "PCG64" and type(state["state"]) is dict
    good = good and state["state"].keys() == {"state", "inc"}
    if not good:
        raise ValueError("it has no random generator")
    limits = [(state[name], limit) for name, limit in numbers.items()]
    limits += [(number, 2**128) for number in state["state"].values()]
    if not all(type(x) is int and 0 <= x < limit for x, limit in limits):
        raise ValueError("a random generator that cannot be")
    if state["state"]["inc"] % 2 == 0:  # its numbers would repeat themselves soon
        raise ValueError("a random generator that cannot be")
    result: dict[str, Any] = state
    return result
