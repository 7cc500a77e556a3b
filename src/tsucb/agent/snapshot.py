"""Pack an agent into JSON values and arrays for a file, and make an agent from them again."""

import hashlib
import json
import math
import os
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tsucb import models, policies
from tsucb.agent import storage
from tsucb.agent.knowledge import Knowledge, plain_name, token_of
from tsucb.agent.learner import Learner, check_rows
from tsucb.agent.machine import CLOSED, DECISIONS, DUE, OBSERVATIONS, Books
from tsucb.agent.open_decisions import OpenDecision, OpenDecisions, arms_and_rows
from tsucb.agent.settings import plain_features
from tsucb.agent.storage import MOST_COUNT, count_of
from tsucb.checks import LARGEST, MISFITS
from tsucb.contexts.readers import Reading, make_reader, restore_reader, widths_of
from tsucb.models.model import Model, trains
from tsucb.models.state import State
from tsucb.models.structure import (
    Arrays,
    WrongSettings,
    leaves,
    pack,
    pack_object,
    unpack,
    unpack_object,
)
from tsucb.policies.names import check_policy

# The classes that a file may name; nothing else is made from it.
MODELS = [cls for cls in vars(models).values() if isinstance(cls, type)]
POLICIES = [cls for cls in vars(policies).values() if isinstance(cls, type)]

# Limits for models and policies that are made from a file, so that none makes the process slow.
# Larger ones must be given to `load`.
MOST_FEATURES = 2_000  # of a model without arms; else the file holds their square of numbers
MOST_LAYERS = 20  # of a network, and of models within models
MOST_SAMPLES = 1e6  # of a policy, for one decision
MOST_ROWS = 1e8  # of a network's training


class Held(NamedTuple):
    """Everything a learner knows at a moment, and the open decisions of its agent.

    `held` makes it quickly. Checking and writing it takes longer, and another thread may do it.
    """

    known: Knowledge
    open: dict[str, OpenDecision]
    settings: dict[str, Any]
    encoders: list[Any]
    random: Any

    def parts(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything as JSON values and arrays; raise ValueError if it cannot be loaded."""
        try:
            check_knowledge(self.known)
            check_open(self.open, self.known, self.settings["max_open"])
        except MISFITS as error:
            raise ValueError(
                f"the agent could not be loaded again ({error}), so it was not saved and the file "
                "stays as it was; load the last good one"
            ) from None
        return self.packed()

    def packed(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything as JSON values and arrays, unchecked."""
        known, arrays = self.known, Arrays()
        values = {
            "model": pack_object(known.model, arrays),
            "policy": pack_object(known.policy, arrays),
            "settings": self.settings,
            "encoders": self.encoders,
            "arms": [
                [name, column, known.born.get(name, 0)] for name, column in known.arms.items()
            ],
            "columns": int(known.books.chosen.size),
            "state": pack(known.state, arrays),
            "books": pack(known.books, arrays),
            "open": pack_open(self.open, arrays),
            "random": self.random,
        }
        return values, arrays

    def to_bytes(self) -> bytes:
        """Return everything as bytes that `from_bytes` of an agent or a learner takes."""
        return storage.packed(*self.parts())

    def digest(self) -> str:
        """Return a hash of everything but the random stream."""
        values, arrays = self.packed()
        del values["random"]
        found = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
        for array in arrays:
            found.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
        return found.hexdigest()


def held(learner: Learner, open: OpenDecisions | None = None) -> Held:
    """Return what a learner knows now, without free columns; change nothing.

    A signal handler may call it in the middle of any call: the state is always consistent.
    """
    known, reader = learner.known, learner.reader
    if known.free or known.wanted is not None:
        known = known.with_arms(known.arms if known.wanted is None else known.wanted)
    settings = {
        "features": reader.names,
        "streaming": reader.streaming,
        "transformer": reader.transformer is not None,
        "max_open": 1 if open is None else open.limit,
        "keep_beliefs": learner.keep_beliefs,
        "most_arms": learner.most_arms,
        "coming": learner.coming,
        "described": [list(pair) for pair in learner.described.items()],
    }
    encoders = [] if reader.transformer is not None else reader.encoders
    return Held(
        known.copied(),
        {} if open is None else open.all(),
        settings,
        [encoder.state() for encoder in encoders],
        learner.rng.bit_generator.state,
    )


def pack_open(open: dict[str, OpenDecision], arrays: Arrays) -> dict[str, Any]:
    """Return open decisions as JSON values and arrays, with all rows in one array."""
    decisions, rows = open.values(), rows_of(open)
    arms = [list(arm) if isinstance(arm, tuple) else arm for _, _, arm, _ in decisions]
    parts = {
        "numbers": np.array([each[0] for each in decisions], dtype=np.int64),
        "times": np.array([each[1] for each in decisions], dtype=np.float64),
        "lengths": np.array([len(row) // 8 for row in rows], dtype=np.int64),
        "values": np.frombuffer(b"".join(rows)) if rows else np.zeros(0),
    }
    return {"ids": list(open), "arms": arms} | {n: pack(a, arrays) for n, a in parts.items()}


def rows_of(open: dict[str, OpenDecision]) -> list[bytes]:
    """Return the rows of open decisions, of every place of a list."""
    return [row for decision in open.values() for row in arms_and_rows(decision)[1]]


def unpack_open(saved: Any, arrays: Arrays, room: int) -> dict[str, OpenDecision]:
    """Return the open decisions that `pack_open` packed; only their shapes are checked."""
    ids, arms = list(saved["ids"]), list(saved["arms"])
    places = sum(len(arm) if isinstance(arm, list) else 1 for arm in arms)
    if max(len(ids), places) > room:
        raise ValueError("more open decisions than its arrays hold")
    numbers = unpack(saved["numbers"], arrays, np.zeros(len(ids), np.int64)).tolist()
    lengths = unpack(saved["lengths"], arrays, np.zeros(places, np.int64)).tolist()
    times = unpack(saved["times"], arrays, np.zeros(len(ids))).tolist()
    if not all(0 <= length <= room for length in lengths) or sum(lengths) > room:
        raise ValueError("contexts of the wrong length")
    data = unpack(saved["values"], arrays, np.zeros(sum(lengths))).tobytes()
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    rows = (data[8 * (end - n) : 8 * end] for n, end in zip(lengths, ends, strict=True))
    open: dict[str, OpenDecision] = {}
    for id, number, time, arm in zip(ids, numbers, times, arms, strict=True):
        if isinstance(arm, list):
            names = tuple(map(plain_name, arm))
            open[id] = number, time, names, tuple(next(rows) for _ in names)
        else:
            open[id] = number, time, plain_name(arm), next(rows)
    if len(open) < len(ids) or not all(type(id) is str for id in open):
        raise ValueError("ids that are no strings, or come twice")
    return open


Restored: TypeAlias = tuple[Learner, dict[str, OpenDecision], int]


def restored(
    path: str | os.PathLike[str], values: dict[str, Any], arrays: Arrays, model: Any = None,
    policy: Any = None, transformer: Any = None,
) -> Restored:  # fmt: skip
    """Return the learner in these values and arrays, its open decisions, and `max_open`.

    Raise ValueError if they do not hold an agent.
    """
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
    """Return what `restored` returns; raise one of `MISFITS` for values that do not fit."""
    settings = values["settings"]
    flags = {"streaming", "transformer", "keep_beliefs", "coming"}
    known_settings = settings.keys() == flags | {"features", "max_open", "most_arms", "described"}
    if not known_settings or not all(type(settings[name]) is bool for name in flags):
        raise ValueError("other settings than an agent has")
    if settings["transformer"] != (transformer is not None):
        verb = "with" if settings["transformer"] else "without"
        raise WrongSettings(f"was saved {verb} a transformer; load it {verb} it")
    # Nothing is made that is larger than the numbers in the file.
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
        reader = restore_reader(model, values["encoders"])
        if any(part.width > max(MOST_FEATURES, sum(widths_of(model))) for part in reader.encoders):
            raise ValueError("it reads more columns than its model has")
    else:
        reader = make_reader(model, names, transformer, streaming, (), False)
    if coming and not reader.per_arm:
        raise ValueError("a model that needs a list of arms, and has none")
    known = unpacked(values, arrays, model, policy, room)
    check_knowledge(known)
    open, max_open = unpack_open(values["open"], arrays, room), positive(settings["max_open"])
    check_open(open, known, max_open)
    described = {plain_name(name): plain_features(each) for name, each in settings["described"]}
    if not described.keys() <= known.arms.keys() or (described and not reader.per_arm):
        raise ValueError("features of no arm")
    for features in described.values():
        reader.checked(Reading(reader.parts[-1].peek(features)))
    rng = generator_in(values["random"])
    learner = Learner.of(reader, known, rng, coming, positive(settings["most_arms"]),
                         settings["keep_beliefs"], described)  # fmt: skip
    return learner, open, max_open


def positive(value: Any) -> int:
    """Return a whole number of at least 1; raise ValueError otherwise."""
    if count_of(value) < 1:
        raise ValueError(f"{value!r} where a count belongs")
    return int(value)


def check_model(saved: Any, room: int, depth: int = 0) -> None:
    """Raise ValueError for sizes that the file has no numbers for, before the model is made."""
    fields = saved["fields"]
    if depth > MOST_LAYERS:
        raise ValueError("too many models within models")
    for part in fields.values():
        if isinstance(part, dict) and "class" in part:
            check_model(part, room, depth + 1)
    features = count_of(fields.get("features", 0))
    needed = features * features
    if saved["class"] in ("AdaptiveLinear", "AdaptiveCurves") and features <= MOST_FEATURES:
        needed = features
    if saved["class"] == "HashedLinear":  # its `features` is the length of a row
        needed = 0
    if saved["class"] in ("HybridCurves", "HybridLinear"):
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
        raise ValueError("sizes beyond those of its arrays")


def check_policy_size(saved: Any) -> None:
    """Raise `WrongSettings` for a policy that would take too long to decide."""
    samples = saved["fields"].get("samples", 1)
    if type(samples) not in (int, float) or not (samples <= MOST_SAMPLES or samples == math.inf):
        raise WrongSettings(
            f"was saved with a policy that draws {samples!r} samples for a decision; give the "
            "policy to load if that is meant"
        )


def unpacked(
    values: dict[str, Any], arrays: Arrays, model: Model, policy: Any, room: int
) -> Knowledge:
    """Return what a file says is known, of the right shapes; `check_knowledge` checks the rest."""
    count, arms, born = count_of(values["columns"]), {}, {}
    if count > room:
        raise ValueError("its arms do not fit the state")
    for name, column, before in values["arms"]:
        if name in arms:
            raise ValueError("two arms of one name")
        arms[plain_name(name)] = count_of(column)
        if count_of(before):
            born[name] = before
    state = unpack(values["state"], arrays, state_template(model, count, room))
    books = unpack(values["books"], arrays, Books.blank({"arm": count}))
    return Knowledge(model, state, arms, books, policy, born)


def state_template(model: Model, count: int, room: int) -> Any:
    """Return a state with this many columns, with the shapes and types that the file must have."""
    # Every arm has the same number of numbers, and the file must have all of them.
    one, two = (sum(array.size for array in leaves(model.start(n))) for n in (1, 2))
    if count and one + (two - one) * (count - 1) > room:
        raise ValueError("sizes beyond those of its arrays")
    template = model.start(max(count, 1))
    if count:
        return template
    if model.keeps_arms or not isinstance(template, State):
        raise ValueError("it has no arms")
    return template.select(np.zeros(0, dtype=np.int64))


# What can be known


def check_knowledge(known: Knowledge) -> None:
    """Raise ValueError for a state that no calls of an agent lead to.

    With `check_open` this defines a valid state of an agent: of what is saved, copied and loaded.
    Arrays already have the right shapes and types.
    """
    check_columns_of_arms(known)
    check_books(known.books)
    rewards = int(known.books.counts[CLOSED] + known.books.counts[OBSERVATIONS])
    if not all(np.isfinite(array).all() for array in leaves(known.state)):
        raise ValueError("a state that is not finite")
    if isinstance(known.state, State):
        known.model.check_state(known.state, rewards)
        pulls: Any = known.state.pulls  # type: ignore[attr-defined]
        if (pulls > known.books.pulls * (1 + 1e-9)).any():
            raise ValueError("the state has seen more rewards than were counted")
    if known.books.counts[DUE] and not trains(known.model):
        raise ValueError("training is due, but its model does not train")


def check_columns_of_arms(known: Knowledge) -> None:
    """Raise ValueError unless every arm has a column of its own, with its token."""
    columns, count = np.array(list(known.arms.values()), dtype=np.int64), known.books.chosen.size
    inside = bool(((columns >= 0) & (columns < count)).all())
    complete = columns.size == count or bool(known.free) or not known.selects
    if not (inside and complete and np.unique(columns).size == columns.size):
        raise ValueError("its arms do not fit the state")
    for name, column in known.arms.items():
        if known.books.tokens[column] != np.uint64(token_of(name)):
            raise ValueError("its arms do not fit their tokens")


def check_books(books: Books) -> None:
    """Raise ValueError for counts that no calls lead to.

    The counts of arms that left are gone, so the arms that stay have at most all rewards and
    decisions.
    """
    books.check(MOST_COUNT)
    counts = books.counts
    if counts[DUE] > 1 or counts[CLOSED] > counts[DECISIONS]:
        raise ValueError("more decisions closed than made")
    if books.pulls.sum() > counts[CLOSED] + counts[OBSERVATIONS]:
        raise ValueError("more rewards than decisions and observations")
    if books.chosen.sum() > counts[DECISIONS] + counts[OBSERVATIONS]:
        raise ValueError("more arms chosen than decisions made")
    if (np.abs(books.totals) > LARGEST * books.pulls).any():
        raise ValueError("totals beyond the largest reward")


def check_open(open: dict[str, OpenDecision], known: Knowledge, max_open: int) -> None:
    """Raise ValueError for open decisions that the agent cannot have made."""
    counts, columns = known.books.counts, []
    for decision in open.values():
        (number, time, _, _), (names, _) = decision, arms_and_rows(decision)
        if not names:
            raise ValueError("a list without places")
        if not (0 <= number <= counts[DECISIONS] and math.isfinite(time)):
            raise ValueError("open decisions that were not made here")
        columns += [known.arms[name] if known.is_current(name, number) else -1 for name in names]
    if len(open) > max_open or len(columns) > counts[DECISIONS] - counts[CLOSED]:
        raise ValueError("more open decisions than there can be")
    here = np.array([column for column in columns if column >= 0], dtype=np.int64)
    waiting = np.bincount(here, minlength=known.books.chosen.size)
    if (known.books.pulls + waiting > known.books.chosen).any():
        raise ValueError("more rewards than decisions")
    check_rows(rows_of(open), known.model)


def generator_in(state: Any) -> np.random.Generator:
    """Return a generator in a state that was saved; raise one of `MISFITS` if none can be."""
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    # With an even increment its numbers would repeat themselves soon.
    if rng.bit_generator.state != state or state["state"]["inc"] % 2 == 0:
        raise ValueError("a random generator in a state that it never has")
    return rng
