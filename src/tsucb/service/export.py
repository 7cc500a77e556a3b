"""The log of a loop as the library's tools read it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.decision import Explanation
from tsucb.agent.decision_log import as_json, as_parquet, reward_row
from tsucb.logs.decision_log import Row
from tsucb.service import events
from tsucb.service.events import Activated, AnyEvent, Configured, Decided, Rewarded
from tsucb.service.loop import Loop
from tsucb.service.settings import LoopSettings

if TYPE_CHECKING:
    import pandas as pd

    from tsucb.service.service import Service


def rows(log: Iterable[AnyEvent], settings: LoopSettings, now: float) -> Iterator[Row]:
    """Events as rows of a decision log; every slot is a decision of its own there.

    As the fold has it: deferred decisions once they are activated, rewards that came within the
    wait, of several the first or their sum, and at the end what stands for those that never came.
    """
    waiting: dict[str, tuple[float, list[str]]] = {}  # by decision: the deadline, and its ids here
    deferred: dict[str, Decided] = {}
    totals: dict[str, float] = {}
    for event in log:
        if isinstance(event, Configured):
            settings = event.settings
        elif isinstance(event, Decided):
            ids = [row_id(event.id, pick.slot) for pick in event.picks]
            waiting[event.id] = event.time + settings.reward_wait, ids
            if event.deferred:
                deferred[event.id] = event
            else:
                yield from decision_rows(event)
        elif isinstance(event, Activated) and event.id in deferred:
            if event.time < waiting[event.id][0]:
                yield from decision_rows(deferred.pop(event.id))
        elif isinstance(event, Rewarded) and event.id in waiting:
            id = row_id(event.id, event.slot)
            if event.time >= waiting[event.id][0]:
                continue
            if settings.aggregation == "sum":
                totals[id] = totals.get(id, 0.0) + event.value
            elif id not in totals:
                totals[id] = event.value
                yield reward_row(id, event.value, event.time, False)
    for decision, (deadline, ids) in waiting.items():
        if deadline > now or decision in deferred:
            continue
        for id in ids:
            if id not in totals:
                yield reward_row(id, settings.default_reward, deadline, True)
            elif settings.aggregation == "sum":
                yield reward_row(id, totals[id], deadline, False)


def row_id(id: str, slot: str) -> str:
    """The id of a pick."""
    return f"{id} {slot}" if slot else id


def decision_rows(event: Decided) -> Iterator[Row]:
    """The picks of a decision."""
    for pick in event.picks:
        yield decision_row(event, pick, row_id(event.id, pick.slot))


def decision_row(event: Decided, pick: Any, id: str) -> Row:
    """A pick as a row."""
    seen = Explanation.of(tuple(pick.arms), pick.arm, event.policy, event.target_name, pick.seen)
    context = event.context
    if pick.features:
        context = {**(context or {}), **{f"slot {k}": v for k, v in pick.features.items()}}
    return {
        "kind": "decision",
        "id": id,
        "time": event.time,
        "policy": event.policy,
        "context": as_json(context),
        "arms": pick.arms,
        "arm": pick.arm,
        "favourite": pick.favourite,
        "probabilities": pick.chances,
        "target": seen.target,
        "alpha": seen.alpha,
        "mean": seen.mean.tolist(),
        "std": seen.std.tolist(),
    }


def exported(service: "Service", loop: Loop) -> bytes:
    """The whole log of a loop as a Parquet file in the decision-log format."""
    log = (events.decode(logged.body) for logged in service.store.read(0, loop.name))
    return as_parquet(list(rows(log, loop.settings, loop.now)))


def recent(service: "Service", loop: Loop, most: int) -> "pd.DataFrame":
    """The last decisions of a loop with their rewards, as `tsucb.logs.decision_log.read` has it."""
    from tsucb.logs.decision_log import joined

    found = list(rows(service.newest(loop, most), loop.settings, loop.now))
    return joined(found)


def comparison(
    service: "Service", loop: Loop, agents: dict[str, dict[str, Any]], most: int
) -> dict[str, Any]:
    """What other configurations would have earned on the last decisions of a loop."""
    from tsucb.evaluation.compare import compare

    table = recent(service, loop, min(max(most, 1), 200_000))
    # Decisions that still wait are too young to be judged, even those whose reward came early.
    table = table[table["time"] + loop.settings.reward_wait <= loop.now]
    table = table[table["reward"].notna()]
    if len(table) < 2:
        raise ValueError("there are not enough decisions whose wait is over; try again later")
    found = compare(table.reset_index(drop=True), agents)
    return {
        "decisions": found.decisions,
        "method": found.method,
        "configurations": clean(found.table().to_dict("records")),
        "pairs": clean(found.pairs().to_dict("records")),
    }


def clean(rows: list[dict[Any, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON has them: none where a number is missing."""
    return [
        {
            str(name): None
            if isinstance(value, float) and not np.isfinite(value)
            else value.item()
            if isinstance(value, np.generic)
            else value
            for name, value in row.items()
        }
        for row in rows
    ]
