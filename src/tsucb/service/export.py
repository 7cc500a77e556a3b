"""The log of a loop in the library's decision-log format, and comparisons of agents on it."""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tsucb.agent.decision_log import explained_row, reward_row
from tsucb.logs.decision_log import Row, write_parquet
from tsucb.service import events
from tsucb.service.events import AnyEvent, Decided, Passed, Pick
from tsucb.service.loop import Loop
from tsucb.service.scheduling import in_process
from tsucb.service.settings import FREE_MODEL, LoopSettings
from tsucb.service.state import Slot

if TYPE_CHECKING:
    import pandas as pd

    from tsucb.evaluation.compare import Comparison
    from tsucb.service.service import Service

GROUP = 10_000  # rows of a Parquet file that are written together
MOST_EVENTS = 100_000  # that a comparison reads
MOST_NUMBERS = 10_000_000  # decisions times arms of a comparison


class RowListener(list[Row]):
    """Collects rows of a decision log from a fold; every slot is a decision of its own."""

    def played(self, event: Decided) -> None:
        self += [decision_row(event, pick) for pick in event.picks]

    def earned(self, id: str, slot: Slot, value: float | None, time: float) -> None:
        self.append(reward_row(row_id(id, slot.name), value, time, slot.total is None))


def log_rows(settings: LoopSettings, log: Iterable[AnyEvent], now: float) -> Iterator[Row]:
    """Yield the rows of a decision log for events up to the time `now`.

    The rows come from the fold, so they follow its rules: deferred decisions count once they are
    activated, and rewards if they come within the wait; of several, the first or their sum counts,
    and of none, the default. Only decisions that wait are in memory.
    """
    rows = RowListener()
    loop = Loop("", listener=rows)
    loop.settings = settings
    for position, event in enumerate(chain(log, [Passed(now)]), start=1):
        loop.fold(event, position)
        yield from rows
        rows.clear()


def row_id(id: str, slot: str) -> str:
    return f"{id} {slot}" if slot else id


def decision_row(event: Decided, pick: Pick) -> Row:
    """Return the row of one pick of a decision."""
    context: Any = Loop.with_slot(event.context, pick.features)
    if event.arm_features is not None:  # in the form of `Agent(log=…)`
        known = {arm: event.arm_features.get(arm, {}) for arm in pick.arms}
        context = {"context": context, "arms": known}
    seen, id = event.explanation(pick), row_id(event.id, pick.slot)
    return explained_row(seen, id, event.time, context, pick.favourite, pick.chances)


def export_parquet(service: "Service", loop: Loop) -> IO[bytes]:
    """Return a temporary Parquet file with the log of a loop in the decision-log format; blocks.

    Only a group of rows is in memory at a time. The file is deleted when it is closed.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        log = (events.decode(row.body) for row in service.store.read(0, loop.number))
        rows = log_rows(LoopSettings(), log, loop.now)
        write_parquet(iter(lambda: list(islice(rows, GROUP)), []), file)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


class RecentLog(NamedTuple):
    """The last events of a loop: what a process of its own needs to evaluate them."""

    settings: LoopSettings
    now: float
    bodies: list[bytes]

    @classmethod
    def of(cls, service: "Service", loop: Loop, most: int) -> "RecentLog":
        """Read this many events, `MOST_EVENTS` at most; blocks."""
        rows = service.store.newest(loop.number, min(max(most, 1), MOST_EVENTS))
        return cls(loop.settings, loop.now, [row.body for row in rows])

    def events(self) -> list[AnyEvent]:
        """Return the events."""
        return [*map(events.decode, self.bodies)]

    def decisions(self) -> "pd.DataFrame":
        """Return the decisions in the form of `tsucb.logs.decision_log.read`."""
        from tsucb.logs.decision_log import joined

        return joined(list(log_rows(self.settings, self.events(), self.now)))

    def judged(self) -> "pd.DataFrame":
        """Return the decisions whose wait is over, and that have a reward or its default."""
        table = self.decisions()
        # Of decisions that still wait, only those with early rewards are known: a biased sample.
        done = table["time"] + self.settings.reward_wait <= self.now
        return table[done & table["reward"].notna()].reset_index(drop=True)


def comparison(
    service: "Service", loop: Loop, agents: dict[str, dict[str, Any]], most: int
) -> "Comparison":
    """Estimate what other configurations would have earned on the last decisions; blocks."""
    return in_process(compare_on_log, RecentLog.of(service, loop, most), agents)


def compare_on_log(log: RecentLog, agents: dict[str, Any]) -> "Comparison":
    """Compare configurations on a log; the settings of the loop stand for those left out."""
    table = log.judged()
    if len(table) < 2:
        raise ValueError("there are not enough decisions whose wait is over; try again later")
    return compare_on_table(log.settings, table, agents)


def compare_on_table(
    settings: LoopSettings, table: "pd.DataFrame", agents: dict[str, Any]
) -> "Comparison":
    """Compare configurations on decisions; see `compare_on_log`."""
    from tsucb.evaluation.compare import compare

    usual: dict[str, Any] = {"policy": settings.policy, "forgetting": settings.forgetting}
    if settings.model != FREE_MODEL:
        usual["model"] = settings.model
    if not table["context"].isna().all():  # the model reads a missing context as an empty one
        table = table.assign(context=table["context"].fillna("{}"))
    # A comparison holds a number for every decision and every arm of the log.
    arms = len({arm for offered in table["arms"] for arm in offered})
    table = table.tail(max(MOST_NUMBERS // arms, 2)).reset_index(drop=True)
    draws = 3 if settings.arms_come else 10  # agents that read features of arms are slower
    return compare(table, {name: {**usual, **given} for name, given in agents.items()}, draws=draws)
