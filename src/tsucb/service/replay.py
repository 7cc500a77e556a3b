"""How the log makes a loop: from a snapshot on or from the start, also for another model."""

import contextlib
import logging
from typing import Any

from tsucb.agent.learner import Learner
from tsucb.service import events
from tsucb.service.errors import Conflict, StoreError
from tsucb.service.events import AnyEvent, ArmsChanged, Condensed, Configured, Forgot
from tsucb.service.loop import Loop, is_remaking
from tsucb.service.scheduling import SteadyClock
from tsucb.service.settings import LoopSettings
from tsucb.service.state import LoopState
from tsucb.service.store import Erasure, Row, Store, Transaction, set_aside
from tsucb.service.tables import AuditRecord

log = logging.getLogger("tsucb.service")


class Poison(Exception):
    """An event that cannot be folded."""

    def __init__(self, position: int, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.position = position


class Rebuilder:
    """Makes loops from the log of a store; everything blocks.

    An event that cannot be folded is set aside, with an alert.
    """

    def __init__(self, store: Store, clock: SteadyClock, seed: int | None) -> None:
        self.store, self._clock, self._seed = store, clock, seed
        self.alerts: dict[str, str] = {}  # what somebody should look at, by what it is about

    def replayed(self, loop: Loop, snapshots: bool = True, until: int | None = None) -> Loop:
        """Make a loop: from the last snapshot that can be read, or from the start of the log."""
        while True:
            fresh = Loop(loop.name, loop.number, self._seed)
            for position, body in self.store.snapshots(loop.number) if snapshots else ():
                if body is not None and (until is None or position <= until):
                    with contextlib.suppress(ValueError):
                        fresh.restore(body, position)
                        break
            try:
                self.read_on(fresh, until)
            except Poison as poison:
                self._set_aside(loop, poison)
            except Conflict:
                snapshots = False  # they know what was deleted, or have the model of before
            else:
                fresh.made = fresh.position
                return fresh

    def all_loops(self, until: int) -> list[Loop]:
        """Make all loops, up to a position."""
        known = self.store.loops().items()
        loops = [self.replayed(Loop(*each, self._seed), until=until) for each in known]
        for loop in loops:
            loop.settings.warm()
        return loops

    def read_on(self, loop: Loop, until: int | None, known: int | None = None) -> int:
        """Fold what the log has after a loop's position, and return how many events.

        A loop that begins at the start of the log has the model of the last change to one that
        relearns, by the position `known`, else by `until`. Raise Conflict if a loop that begins
        later must begin there: events were deleted, or another model is to learn.
        """
        first, count = loop.position, 0
        change = self.store.relearned(loop.number, until if known is None else known)
        model: Any = change and events.decode(change.body)
        for row in self.store.read(first, loop.number, until):
            try:
                event = events.decode(row.body)
                if not first and change is not None and row.position <= change.position:
                    fold_for(model.settings, loop, event, row.position)
                elif is_remaking(event) and (first or not isinstance(event, Forgot)):
                    raise Conflict("the log of the loop was changed meanwhile; try again")
                else:
                    loop.fold(event, row.position)
                count += 1
            except (StoreError, Conflict):
                raise
            except Exception as error:
                raise Poison(row.position, error) from error
        return count

    def _set_aside(self, loop: Loop, poison: Poison) -> None:
        """Move an event that cannot be folded out of the log; every server makes the loop again."""
        now, position = self._clock(), poison.position
        reason = str(poison)[:1_000].replace("\0", "")  # which PostgreSQL has no place for
        log.error("event %d of loop %r was set aside: %s", position, loop.name, reason)
        self.alerts[f"event {position}"] = f"event {position} of {loop.name!r} is set aside"
        audit = AuditRecord(now, "server", "set aside", loop.name, f"{position}: {reason}")
        erasure = Erasure(set_aside, loop.number, (position, reason))
        self.store.write(Transaction([Row.of(loop.number, Forgot(now))], [audit], erasure))


def fold_for(settings: LoopSettings, loop: Loop, event: AnyEvent, position: int) -> None:
    """Fold an event into a loop that has the model of `settings` from the start.

    Waits, modes and arms are those of the time.
    """
    if isinstance(event, Configured):
        event = Configured(event.time, event.settings.learning_like(settings))
    elif isinstance(event, events.Decided):
        # Where they came with the decisions, no event has added them.
        new = loop.unknown({arm: None for pick in event.picks for arm in pick.arms})
        if new:
            loop.fold(ArmsChanged(event.time, add=new), position)
    elif isinstance(event, Condensed):
        state = LoopState.from_bytes(event.state)
        if not state.settings.learns_like(settings):
            state.settings, state.learner = state.settings.learning_like(settings), None
            if state.arms or state.settings.arms_come:
                state.learner = state.settings.learner(state.arms, None)
            for open in state.open_decisions.values():
                for slot in open.slots:
                    slot.row = None  # as another model read it
            event = Condensed(event.time, state.to_bytes())
    elif isinstance(event, events.Imported):
        learner = Learner.from_bytes(event.agent)
        if model_of(learner)[0] != settings.model:  # nothing of it can be taken over
            names = [str(arm) for arm in learner.arms]
            gone = [arm for arm in loop.arms if arm not in names]
            loop.fold(ArmsChanged(event.time, add=names, remove=gone), position)
            event = events.Reset(event.time)
    loop.fold(event, position)


def model_of(learner: Learner) -> tuple[str, float]:
    """Return the name of a learner's model, and how much it forgets."""
    inner = getattr(learner.model, "model", learner.model)
    return type(inner).__name__, getattr(learner.model, "gamma", 1.0)
