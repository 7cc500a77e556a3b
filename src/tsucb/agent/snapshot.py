"""An agent as plain values and arrays, for a file; and an agent again from such, checked."""

import hashlib
import json
import math
import os
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tsucb import models, policies
from tsucb.agent import storage
from tsucb.agent.knowledge import (
    Knowledge,
    blank_books,
    plain_name,
    token_of,
)
from tsucb.agent.learner import Learner, check_policy
from tsucb.agent.machine import (
    CLOSED,
    DECISIONS,
    DUE,
    OBSERVATIONS,
    split_of,
)
from tsucb.agent.open_decisions import (
    CLOSED_ROW,
    END,
    IDS,
    LEARNED,
    LIMIT,
    NOT_SPLIT,
    PER_ROW,
    QUEUED,
    ROWS,
    SINGLE,
    USED,
    OpenDecisions,
    empty_table,
    open_rows,
    packed_table,
)
from tsucb.agent.storage import MOST_COUNT, count_of, zeros
from tsucb.checks import LARGEST, within
from tsucb.contexts.encoding import Encoder
from tsucb.contexts.hashing import HashingEncoder
from tsucb.contexts.readers import AnyArmFeatures, AnyContext, Arm, Reader, make_reader
from tsucb.models.forgetting import without_forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.model import Model, check_finite, trains
from tsucb.models.state import State
from tsucb.structure import (
    Arrays,
    WrongSettings,
    leaves,
    pack,
    pack_object,
    unpack,
    unpack_object,
)

# What a file may name; nothing else is made from it.
MODELS = [cls for cls in vars(models).values() if isinstance(cls, type)]
POLICIES = [cls for cls in vars(policies).values() if isinstance(cls, type)]
# What can go wrong in putting an agent together from values that do not fit.
MISFITS = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError,
    RecursionError,
)  # fmt: skip

# Limits of what a file alone may ask for, so that it cannot make a process slow: give a model or a
# policy beyond them to `load`.
MOST_FEATURES = 2_000  # of a model whose arms were all removed; else the file has their squares
MOST_LAYERS = 20  # of a network, and of models within models
MOST_SAMPLES = 1e6  # of a policy, for one decision
MOST_ROWS = 1e8  # that a network goes through in one training


class Held(NamedTuple):
    """Everything a learner knows at a moment, and the open decisions of its agent.

    To take that is quick. To check it and to write it down takes longer, and may be done in another
    thread.
    """

    known: Knowledge
    policy: Any
    settings: dict[str, Any]
    encoders: list[Any]
    random: Any
    given: dict[str, tuple[int, int]]

    def parts(self) -> tuple[dict[str, Any], Arrays]:
        """Return it as plain values and arrays; raise ValueError if it could not be read again."""
        try:
            check_knowledge(self.known, self.settings["max_open"])
        except MISFITS as error:
            raise ValueError(
                f"the agent could not be loaded again ({error}), so it was not saved and the file "
                "stays as it was; load the last good one"
            ) from None
        return packed(self)

    def to_bytes(self) -> bytes:
        """Return what `from_bytes` of an agent or a learner takes."""
        return storage.packed(*self.parts())

    def digest(self) -> str:
        """Return a hash of it, without the random stream."""
        values, arrays = packed(self)
        del values["random"]
        found = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
        for array in arrays:
            found.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
        return found.hexdigest()


def held(learner: Learner, open: OpenDecisions | None = None) -> Held:
    """Return what a learner knows now, without spare room; changes nothing.

    May be called in the middle of a call, by a signal handler: everything is right at every moment.
    """
    known, reader = learner.known, learner.reader
    wanted = known.arms if known.wanted is None else known.wanted
    if known.free or known.wanted is not None:
        known = known.with_arms(wanted)
    table = packed_table(known.table)
    known = known.copied().changed(table=table)
    rows, departed = open_rows(table), list(known.departed)
    names: dict[Arm, int] = {}
    for row in rows[table.arms[rows] < 0].tolist():  # numbered in the order of the rows
        name = departed[-1 - int(table.arms[row])]
        table.arms[row] = -1 - names.setdefault(name, len(names))
    settings = {
        "features": reader.names,
        "streaming": reader.streaming,
        "transformer": reader.transformer is not None,
        "max_open": 1 if open is None else open.limit,
        "keep_beliefs": learner.keep_beliefs,
        "most_arms": learner.most_arms,
        "coming": learner.coming,
    }
    keys = set(zip(table.numbers.tolist(), table.checksums.tolist(), strict=True))
    given = {} if open is None else {id: key for id, key in open.given.items() if key in keys}
    encoders = [] if reader.transformer is not None else reader.encoders
    return Held(
        known.changed(departed=list(names)),
        learner.policy,
        settings,
        [encoder.state() for encoder in encoders],
        learner.rng.bit_generator.state,
        given,
    )


def packed(held: Held) -> tuple[dict[str, Any], Arrays]:
    """Return what was held as plain values and arrays."""
    known = held.known
    rows = int(known.table.sizes[END])
    queued = int(known.table.sizes[QUEUED])
    open = {name: getattr(known.table, name)[:rows] for name in PER_ROW}
    parts = {
        "state": known.state,
        "books": known.books,
        "columns": np.array(list(known.arms.values()), dtype=np.int64),
        **open,
        "queue": known.table.queue[:queued],
        "rewards": known.table.rewards[:queued],
        "values": known.table.values[: known.table.sizes[USED]],
    }
    arrays: Arrays = []
    values = {
        "model": pack_object(known.model, arrays),
        "policy": pack_object(held.policy, arrays),
        "settings": held.settings,
        "encoders": held.encoders,
        "arms": list(known.arms),
        "departed": known.departed,
        "state_columns": int(known.books.chosen.size),
        "parts": {name: pack(part, arrays) for name, part in parts.items()},
        "open": rows,
        "queued": queued,
        "used": int(known.table.sizes[USED]),
        "given": {id: list(key) for id, key in held.given.items()},
        "random": held.random,
    }
    return values, arrays


Restored: TypeAlias = tuple[Learner, dict[str, tuple[int, int]], int]


def learner_of(data: bytes) -> Learner:
    """Return the learner that bytes hold, of a learner or of an agent; no decision is open."""
    learner, _, _ = restored("it", *storage.unpacked(data))
    learner.catch_up()
    known = learner.prepared()
    learner.known = known.changed(table=empty_table(0), departed=())
    return learner


def restored(
    path: str | os.PathLike[str], values: dict[str, Any], arrays: Arrays, model: Any = None,
    policy: Any = None, transformer: Any = None,
) -> Restored:  # fmt: skip
    """Return the learner that values and arrays describe, the ids given to open decisions, and the
    most that may be open; raise ValueError if there is none."""
    try:
        return assembled(values, arrays, model, policy, transformer)
    except WrongSettings as error:
        raise ValueError(f"{path} {error}") from None
    except MISFITS as error:
        text = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} does not hold an agent ({text}); use another copy") from None


def assembled(
    values: dict[str, Any], arrays: Arrays, model: Any, policy: Any, transformer: Any
) -> Restored:
    """Do what `restored` does, but raise one of `MISFITS` for what does not fit."""
    settings = values["settings"]
    flags = {"streaming", "transformer", "keep_beliefs", "coming"}
    known_settings = settings.keys() == flags | {"features", "max_open", "most_arms"}
    if not known_settings or not all(type(settings[name]) is bool for name in flags):
        raise ValueError("other settings than an agent has")
    if settings["transformer"] != (transformer is not None):
        verb = "with" if settings["transformer"] else "without"
        raise WrongSettings(f"was saved {verb} a transformer; load it {verb} it")
    # Never make room for more than the file has numbers.
    room = sum(array.size for array in arrays)
    if model is None:
        check_model(values["model"], room)
    model = unpack_object(values["model"], arrays, MODELS, model)
    if policy is None:
        check_policy_size(values["policy"])
    policy = check_policy(unpack_object(values["policy"], arrays, POLICIES, policy))
    names = settings["features"]
    names = None if names is None else tuple(map(str, names))
    if names is not None and (len(names),) != model.context_shape(1)[-1:]:
        raise ValueError("other features than its model has")
    coming, streaming = settings["coming"], settings["streaming"]
    if values["encoders"]:
        reader = any_reader(model, values["encoders"])
    else:
        reader = make_reader(model, names, transformer, streaming, (), False)
    if coming and not reader.per_arm:
        raise ValueError("a model that needs a list of arms, and has none")
    known = unpacked(values, arrays, model, room)
    max_open = positive(settings["max_open"])
    known.table.sizes[LIMIT] = max_open
    check_knowledge(known, max_open)
    rng = np.random.default_rng(0)
    rng.bit_generator.state = checked_random(values["random"])
    learner = Learner.of(reader, known, policy, rng, coming, positive(settings["most_arms"]),
                         settings["keep_beliefs"])  # fmt: skip
    return learner, given_ids(values["given"], known), max_open


def positive(value: Any) -> int:
    """Return a count of at least 1; raise ValueError otherwise."""
    if count_of(value) < 1:
        raise ValueError(f"{value!r} where a count belongs")
    return int(value)


def given_ids(given: Any, known: Knowledge) -> dict[str, tuple[int, int]]:
    """Return the ids that others gave to open decisions."""
    table = known.table
    keys = set(zip(table.numbers.tolist(), table.checksums.tolist(), strict=True))
    found = {id: (number, checksum) for id, (number, checksum) in dict(given).items()}
    if not all(type(id) is str and key in keys for id, key in found.items()):
        raise ValueError("ids of decisions that are not open")
    return found


def any_reader(model: Any, states: list[Any]) -> Reader:
    """Return what reads contexts, and perhaps arms, as they come, from its encoders' states."""
    plain: Any = without_forgetting(model)
    if isinstance(plain, HashedLinear):
        (state,) = states
        return AnyContext(model, HashingEncoder.from_state(state, plain.bits, plain.crossed))
    encoders = [Encoder.from_state(state) for state in states]
    for encoder in encoders:
        if encoder.width > max(MOST_FEATURES, sum(model.context_shape(1)[-1:])):
            raise ValueError("it reads more columns than its model has")
    if isinstance(plain, HybridLinear):
        contexts, arms = encoders
        plain.widened((contexts.used, arms.used))
        return AnyArmFeatures(model, (contexts, arms))
    (encoder,) = encoders
    plain.widened(encoder.width)  # or it is no model that can read contexts by itself
    return AnyContext(model, encoder)


def check_model(saved: Any, room: int, depth: int = 0) -> None:
    """Raise ValueError for sizes that the file has no numbers for, before making anything."""
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


def check_policy_size(saved: Any) -> None:
    """Raise `WrongSettings` for a policy that would take very long to decide."""
    samples = saved["fields"].get("samples", 1)
    if type(samples) not in (int, float) or not (samples <= MOST_SAMPLES or samples == math.inf):
        raise WrongSettings(
            f"was saved with a policy that draws {samples!r} samples for a decision; give the "
            "policy to load if that is meant"
        )


def unpacked(values: dict[str, Any], arrays: Arrays, model: Model, room: int) -> Knowledge:
    """Return what a file holds, of the right shapes; `check_knowledge` checks the rest."""

    def part(name: str, template: Any) -> Any:
        return unpack(values["parts"][name], arrays, template)

    names = [plain_name(name) for name in values["arms"]]
    count = count_of(values["state_columns"])
    columns = part("columns", zeros(len(names)))
    if count > room:
        raise ValueError("its arms do not fit the state")
    state = part("state", state_template(model, count, room))
    books = part("books", blank_books(count))
    rows, queued, used = (count_of(values[name]) for name in ("open", "queued", "used"))
    if max(rows, queued, used) > room:
        raise ValueError("open decisions that it has no numbers for")
    table = empty_table(0, rows, used)
    table = table._replace(**{name: part(name, getattr(table, name)) for name in PER_ROW})
    table = table._replace(values=part("values", table.values))
    table.queue[:queued], table.rewards[:queued] = (
        part(name, getattr(table, name)[:queued]) for name in ("queue", "rewards")
    )
    table.starts[:] = np.cumsum(table.lengths) - table.lengths
    heads = int(np.count_nonzero(table.places <= 1))
    table.sizes[[END, IDS, ROWS, USED, QUEUED]] = rows, heads, rows, used, queued
    arms = dict(zip(names, columns.tolist(), strict=True))
    if len(arms) < len(names):
        raise ValueError("two arms of one name")
    departed = [plain_name(name) for name in values["departed"]]
    return Knowledge(model, state, arms, books, table, (), departed)


def state_template(model: Model, count: int, room: int) -> Any:
    """Return a state with this many columns, of the shapes and types that the file must have."""
    # All arms have equally many numbers, and the file must have those of each.
    one, two = (sum(array.size for array in leaves(model.start(n))) for n in (1, 2))
    if count and one + (two - one) * (count - 1) > room:
        raise ValueError("sizes that it has no numbers for")
    template = model.start(max(count, 1))
    if count:
        return template
    if model.keeps_arms or not isinstance(template, State):
        raise ValueError("it has no arms")
    return template.select(zeros(0))


# What can be known


def check_knowledge(known: Knowledge, max_open: int) -> None:
    """Raise ValueError for anything that no calls of an agent lead to.

    The one definition of a valid state: of what is saved, copied and loaded. Arrays have the right
    shapes and types already, and the table has no closed rows.
    """
    check_columns_of_arms(known)
    check_books(known)
    rewards = int(known.books.counts[CLOSED] + known.books.counts[OBSERVATIONS])
    if not all(np.isfinite(array).all() for array in leaves(known.state)):
        raise ValueError("a state that is not finite")
    if isinstance(known.state, State):
        known.model.check_state(known.state, rewards)
        pulls: Any = known.state.pulls  # type: ignore[attr-defined]
        if (pulls > known.books.pulls * (1 + 1e-9)).any():
            raise ValueError("the state has seen more rewards than were counted")
    if known.books.counts[DUE] and not trains(known.model):
        raise ValueError("a model that does not train is to be trained")
    check_table(known, max_open)


def check_columns_of_arms(known: Knowledge) -> None:
    """Raise ValueError unless every arm has a column of its own, with its token."""
    columns, count = np.array(list(known.arms.values()), dtype=np.int64), known.books.chosen.size
    inside = bool(((columns >= 0) & (columns < count)).all())
    if not inside or np.unique(columns).size != columns.size:
        raise ValueError("its arms do not fit the state")
    if known.selects and columns.size != count and not known.free:
        raise ValueError("its arms do not fit the state")
    for name, column in known.arms.items():
        if known.books.tokens[column] != np.uint64(token_of(name)):
            raise ValueError("its arms do not fit their tokens")


def check_books(known: Knowledge) -> None:
    """Raise ValueError for counts that cannot be.

    Counts of arms that left are gone, so of those that stay there are at most as many rewards and
    decisions as in all.
    """
    books, counts = known.books, known.books.counts
    if any((x < 0).any() or (x > MOST_COUNT).any() for x in (counts, books.chosen, books.pulls)):
        raise ValueError("counts that cannot be")
    if counts[DUE] > 1 or counts[CLOSED] > counts[DECISIONS]:
        raise ValueError("more decisions closed than made")
    if books.pulls.sum() > counts[CLOSED] + counts[OBSERVATIONS]:
        raise ValueError("more rewards than decisions and observations")
    if books.chosen.sum() > counts[DECISIONS] + counts[OBSERVATIONS]:
        raise ValueError("more arms chosen than decisions made")
    if not within(books.totals, LARGEST * MOST_COUNT) or books.totals[books.pulls == 0].any():
        raise ValueError("totals that cannot be")


def check_table(known: Knowledge, max_open: int) -> None:
    """Raise ValueError for open decisions that the agent cannot have made."""
    table, counts = known.table, known.books.counts
    rows = slice(int(table.sizes[END]))
    numbers, places, arms = table.numbers[rows], table.places[rows], table.arms[rows]
    if table.sizes[IDS] > max_open or numbers.size > counts[DECISIONS] - counts[CLOSED]:
        raise ValueError("more open decisions than there can be")
    ascending = (numbers[1:] >= numbers[:-1]).all()
    if numbers.size and not (numbers[0] > 0 and numbers[-1] <= counts[DECISIONS] and ascending):
        raise ValueError("open decisions that were not made here")
    if (places == CLOSED_ROW).any() or (places < SINGLE).any() or (places > MOST_COUNT).any():
        raise ValueError("open decisions that are closed")
    later = np.flatnonzero(places > 1)
    if later.size and (
        later[0] == 0
        or (numbers[later] != numbers[later - 1]).any()
        or (table.checksums[later] != table.checksums[later - 1]).any()
        or (places[later] <= places[later - 1]).any()
    ):
        raise ValueError("lists without their first places")
    if not np.isfinite(table.times[rows]).all():
        raise ValueError("open decisions at no time")
    if ((arms >= known.books.chosen.size) | (arms < -len(known.departed))).any():
        raise ValueError("open decisions of no arm")
    here = arms >= 0
    columns = np.array(list(known.arms.values()), dtype=np.int64)
    if not np.isin(arms[here], columns).all():
        raise ValueError("open decisions of no arm")
    waiting = np.bincount(arms[here], minlength=known.books.chosen.size)
    if (known.books.pulls + waiting > known.books.chosen).any():
        raise ValueError("more rewards than decisions")
    check_rows(known)
    queue = table.queue[table.sizes[LEARNED] : table.sizes[QUEUED]]
    inside = ((queue >= 0) & (queue < numbers.size)).all() and np.unique(queue).size == queue.size
    if not inside or (arms[queue] < 0).any():
        raise ValueError("rewards of no decision")
    known.model.check_rewards(table.rewards[table.sizes[LEARNED] : table.sizes[QUEUED]])


def check_rows(known: Knowledge) -> None:
    """Raise ValueError unless the numbers of every open decision fit the model."""
    table, model = known.table, known.model
    rows = int(table.sizes[END])
    lengths, split = table.lengths[:rows], split_of(model)
    width, used = sum(model.context_shape(1)[-1:]), int(table.sizes[USED])
    if (lengths < 0).any() or (lengths > width + 1).any() or int(lengths.sum()) != used:
        raise ValueError("contexts of the wrong length")
    if split == NOT_SPLIT:
        if (lengths > width).any():
            raise ValueError("contexts of the wrong length")
        check_finite(table.values[:used], float(model.largest))
        return
    if (lengths < 1).any():
        raise ValueError("contexts of the wrong length")
    check_finite(np.delete(table.values[:used], table.starts[:rows]), float(model.largest))
    first = table.values[table.starts[:rows]]
    whole = (first >= 0) & (first <= split) & (first % 1 == 0)
    if not whole.all() or (lengths - 1 - first > width - split).any() or (first >= lengths).any():
        raise ValueError("contexts that are not split as the model's")


def checked_random(state: Any) -> dict[str, Any]:
    """Return the state of a generator that draws, and does not only repeat itself."""
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
