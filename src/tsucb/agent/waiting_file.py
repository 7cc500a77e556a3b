"""The decisions that wait, as plain values and arrays for a file; and again from such, checked."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tsucb.agent.storage import count_of, zeros
from tsucb.agent.waiting import ArmRecord, Entries, Open, Together, Waiting, arms_of
from tsucb.models.model import Model, check_finite
from tsucb.numeric.arrays import Floats, Integers


def open_taken(
    open: Waiting, number: dict[ArmRecord, int], model: Model, per_arm: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values, and arrays by name, of open decisions for arms that are numbered."""
    alone = [entry for entry in open.entries.values() if isinstance(entry, tuple)]
    batches = [entry for entry in open.entries.values() if isinstance(entry, Together)]
    values = {
        # Ids, and the sizes of batches.
        "open": [len(e) if isinstance(e, Together) else id for id, e in open.entries.items()],
        # Of each id, the length of its list; 0 for a decision of one arm.
        "lists": [len(r) if isinstance(r, tuple) else 0 for r, _, _ in alone],
    }
    parts = alone_taken(alone, number, model, per_arm) | batches_taken(batches, number, model)
    return values, parts


def alone_taken(
    open: list[Open], number: dict[ArmRecord, int], model: Model, per_arm: bool
) -> dict[str, Any]:
    """Open decisions that were made one by one, for arms that are numbered."""
    waiting = [number[record] for decision in open for record in arms_of(decision)]
    contexts = np.frombuffer(b"".join(context for _, context, _ in open))
    lines = len(waiting) if per_arm else len(open)
    return {
        "open_arms": np.array(waiting, dtype=np.int64),
        "open_times": np.array([when for _, _, when in open], dtype=np.float64),
        "open_contexts": contexts.reshape(lines, *context_width(model)),
    }


def batches_taken(
    batches: list[Together], number: dict[ArmRecord, int], model: Model
) -> dict[str, Any]:
    """Open decisions that were made at once, without those of them that are closed."""
    parts: dict[str, list[Any]] = {
        "batch_numbers": [zeros(0)],
        "batch_checksums": [np.zeros(0, dtype=np.uint64)],
        "batch_arms": [zeros(0)],
        "batch_contexts": [np.zeros((0, *context_width(model)))],
    }
    for batch in batches:
        rows = np.flatnonzero(batch.waits)
        of_arms = np.array([number.get(record, -1) for record in batch.records])
        found = batch.numbers, batch.checksums, of_arms[batch.places], batch.contexts
        for listed, array in zip(parts.values(), found, strict=True):
            listed.append(array[rows])
    times = np.array([batch.time for batch in batches], dtype=np.float64)
    return {"batch_times": times} | {name: np.concatenate(a) for name, a in parts.items()}


def open_decisions(
    values: dict[str, Any], part: Callable[[str, Any], Any], records: list[ArmRecord], room: int,
    made: int, model: Model, per_arm: bool,
) -> Waiting:  # fmt: skip
    """The decisions that wait for a reward; so many were made."""
    known = values["open"]
    if type(known) is not list or not all(type(entry) in (str, int) for entry in known):
        raise ValueError("open decisions without ids")
    ids = [entry for entry in known if type(entry) is str]
    alone = alone_again(ids, values["lists"], part, records, room, model, per_arm)
    sizes = [count_of(entry) for entry in known if type(entry) is int]
    batches = iter(batches_again(sizes, part, records, room, made, model))
    entries: Entries = {}
    for entry in known:
        if type(entry) is str:
            entries[entry] = alone[entry]
        else:
            batch = next(batches)
            entries[batch.key] = batch
    return Waiting(entries)


def alone_again(
    ids: list[str], lengths: Any, part: Callable[[str, Any], Any], records: list[ArmRecord],
    room: int, model: Model, per_arm: bool,
) -> dict[str, Open]:  # fmt: skip
    """The open decisions that were made one by one."""
    if type(lengths) is not list or len(lengths) != len(ids) or len(set(ids)) < len(ids):
        raise ValueError("open decisions that were not made here")
    counts = [max(count_of(length), 1) for length in lengths]
    if sum(counts) > room:
        raise ValueError("open decisions that it has no numbers for")
    lines = counts if per_arm else [1] * len(ids)
    arms, times = part("open_arms", zeros(sum(counts))), part("open_times", np.zeros(len(ids)))
    contexts = part("open_contexts", np.zeros((sum(lines), *context_width(model))))
    check_made_here(arms, contexts, model, records)
    open: dict[str, Open] = {}
    arm, line = 0, 0
    for id, length, n, width, when in zip(ids, lengths, counts, lines, times.tolist(), strict=True):
        listed = tuple(records[i] for i in arms[arm : arm + n])
        if len(set(listed)) < n:
            raise ValueError("an arm twice in a list")
        context = contexts[line : line + width].tobytes()
        open[id] = (listed if length else listed[0]), context, when
        arm, line = arm + n, line + width
    return open


def batches_again(
    sizes: list[int], part: Callable[[str, Any], Any], records: list[ArmRecord], room: int,
    made: int, model: Model,
) -> list[Together]:  # fmt: skip
    """The open decisions that were made at once."""
    count = sum(sizes)
    if count > room or 0 in sizes:
        raise ValueError("open decisions that it has no numbers for")
    numbers, arms = part("batch_numbers", zeros(count)), part("batch_arms", zeros(count))
    checksums = part("batch_checksums", np.zeros(count, dtype=np.uint64))
    times = part("batch_times", np.zeros(len(sizes)))
    contexts = part("batch_contexts", np.zeros((count, *context_width(model))))
    check_made_here(arms, contexts, model, records)
    ascending = (numbers[1:] > numbers[:-1]).all()
    if count and not (numbers[0] > 0 and numbers[-1] <= made and ascending):
        raise ValueError("open decisions that were not made here")
    batches, first = [], 0
    for size, when in zip(sizes, times.tolist(), strict=True):
        rows = slice(first, first + size)
        used, places = np.unique(arms[rows], return_inverse=True)
        batches.append(
            Together(
                numbers[rows].copy(),
                checksums[rows].copy(),
                tuple(records[i] for i in used.tolist()),
                places.astype(np.int64),
                contexts[rows].copy(),
                when,
            )
        )
        first += size
    return batches


def check_made_here(
    arms: Integers, contexts: Floats, model: Model, records: list[ArmRecord]
) -> None:
    """Complain about open decisions that the agent cannot have made."""
    if (arms < 0).any() or (arms >= len(records)).any():
        raise ValueError("open decisions that were not made here")
    check_finite(contexts, model.largest)


def context_width(model: Model) -> tuple[int]:
    """How many numbers a decision keeps of its context, of every arm if each has a row."""
    return (sum(model.context_shape(1)[-1:]),)
