"""When the members of an ensemble are fitted again, by whom, and who keeps them meanwhile.

A process keeps fitted members for as long as there is a state that they belong to.
"""

import math
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tsucb.models.members import Fitted, History, fit, rows_until

if TYPE_CHECKING:
    from tsucb.models.ensemble import Ensemble


def refit_due(model: "Ensemble", state: History, kept: "Membership") -> bool:
    """Whether there are enough more rewards than at the last fit, and none is under way."""
    if kept.job is not None and not kept.job.over:
        return False
    if kept.job is None and state.wanted[0]:  # begun in another process
        return True
    last = max(int(state.fitted[0]), int(state.wanted[0]))
    wanted = max(last + model.interval, math.ceil(last * model.growth))
    return int(state.seen[0]) >= -(-wanted // model.interval) * model.interval


def refit(model: "Ensemble", state: History, kept: "Membership") -> "Membership":
    """Fit the members to all that was seen, or begin to."""
    last = int(state.seen[0]) // model.interval * model.interval
    rows, arms = rows_until(model, state, last), state.pulls.size
    given = model, state.key.copy(), rows, arms, kept.latest()
    if model.background:
        state.wanted[:], state.prints[2] = (last, arms), state.prints[0]
        return Membership(model, state, kept.fitted, Job(lambda: fit(*given)))
    fitted = fit(*given)
    state.fitted[:], state.prints[1] = (last, arms), state.prints[0]
    return Membership(model, state, fitted)


def promote(state: History, kept: "Membership", job: "Job") -> "Membership":
    """Use what was fitted in the background, unless that failed."""
    if job.error is not None:
        if not job.reported:
            job.reported = True
            warnings.warn(
                f"a refit in the background failed, and the last members go on: {job.error}",
                stacklevel=3,
            )
        return kept
    state.fitted[:], state.prints[1] = state.wanted, state.prints[2]
    state.wanted[:], state.prints[2] = 0, 0
    return Membership(kept.model, state, job.fitted)


class Job:
    """A fit under way in a thread of its own, which does not keep the process from ending."""

    def __init__(self, work: Callable[[], Fitted]) -> None:
        self.fitted: Fitted | None = None
        self.error: Exception | None = None
        self.reported, self.process = False, os.getpid()
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()

    def run(self, work: Callable[[], Fitted]) -> None:
        """Do the work, and keep what comes of it."""
        try:
            self.fitted = work()
        except Exception as error:  # whatever it is, the next reward says it
            self.error = error

    @property
    def over(self) -> bool:
        """Whether it has come to an end."""
        return self.fitted is not None or self.error is not None


class Membership:
    """The members that a state refers to: those in use, and those that are being fitted.

    All copies of a state have the same, until they learn more.
    """

    def __init__(
        self, model: "Ensemble", state: History, fitted: Fitted | None, job: Job | None = None
    ) -> None:
        self.model, self.fitted, self.job = model, fitted, job
        KEPT.add(self, state)

    def latest(self) -> Fitted | None:
        """The newest members there are."""
        done = self.job.fitted if self.job is not None else None
        return self.fitted if done is None else done


class Keeper:
    """Who has which members: kept for as long as there is a state that they belong to."""

    def __init__(self) -> None:
        self.by_print: weakref.WeakValueDictionary[Any, Membership] = weakref.WeakValueDictionary()
        self.by_state: dict[int, Membership] = {}
        # For copies of a state that are made after it has gone.
        self.recent: deque[Membership] = deque(maxlen=4)

    @staticmethod
    def key(model: "Ensemble", state: History) -> Any:
        """What decides the members, but for the arrays."""
        marks = (state.key, state.fitted, state.wanted, state.prints[1:])
        return (id(model.estimator), *model[1:], *(mark.tobytes() for mark in marks))

    def add(self, kept: Membership, state: History) -> None:
        """Let copies of the state find them."""
        self.by_print[self.key(kept.model, state)] = kept
        self.recent.append(kept)
        self.bind(state, kept)

    def bind(self, state: History, kept: Membership) -> None:
        """Keep them at least as long as the state."""
        place = id(state.seen)
        if place not in self.by_state:
            weakref.finalize(state.seen, self.by_state.pop, place, None).atexit = False
        self.by_state[place] = kept

    def of(self, model: "Ensemble", state: History) -> Membership:
        """The members of a state; fitted again to the same data if they are nowhere."""
        kept = self.by_state.get(id(state.seen)) or self.by_print.get(self.key(model, state))
        if kept is None or kept.model.estimator is not model.estimator:
            last, arms = state.fitted.tolist()
            rows = rows_until(model, state, last)
            fitted = fit(model, state.key, rows, arms, None) if last else None
            kept = Membership(model, state, fitted)
        elif kept.job is not None and kept.job.process != os.getpid():
            kept = Membership(
                model, state, kept.fitted
            )  # the thread stayed with the parent process
        return kept


KEPT = Keeper()
