"""What another model would have learned from the same log."""

from tsucb.agent.learner import Learner
from tsucb.service.events import (
    AnyEvent,
    ArmsChanged,
    Condensed,
    Configured,
    Decided,
    Imported,
    Reset,
)
from tsucb.service.loop import Loop
from tsucb.service.settings import LoopSettings
from tsucb.service.state import decoded, encode


class Relearning:
    """A loop that learns from a log what other settings would have learned from it.

    Everything happens as it did, with the waits, the modes and the arms of the time, but to another
    model. The fold of `Configured` takes over what it knows.

    Parameters
    ----------
    loop
        Whose log is learned from.
    settings
        Whose model is to learn.
    changed
        The position of the event that changes to them, if it is in the log.
    """

    def __init__(self, loop: Loop, settings: LoopSettings, changed: int = 0) -> None:
        self.loop = Loop(loop.name, loop.number, loop.seed)
        self.settings, self._changed = settings, changed

    def fold(self, event: AnyEvent, position: int) -> None:
        """Learn from the event at a position."""
        loop = self.loop
        if isinstance(event, Configured):
            event = Configured(event.time, event.settings.learning_like(self.settings))
        elif isinstance(event, Decided):
            # Where they came with the decisions, no event has added them.
            new = loop.unknown({arm: None for pick in event.picks for arm in pick.arms})
            if new:
                loop.fold(ArmsChanged(event.time, add=new), position)
        elif isinstance(event, Condensed):
            state = decoded(event.relearned.get(self._changed, event.state))
            if not state.settings.learns_like(self.settings):
                state.settings, state.learner = state.settings.learning_like(self.settings), None
                if state.arms or state.settings.arms_come:
                    state.learner = state.settings.learner(state.arms, None).to_bytes()
                for open in state.waiting.values():
                    for slot in open.slots:
                        slot.row = None  # as another model read it
            event = Condensed(event.time, encode(state))
        elif isinstance(event, Imported):
            learner = Learner.from_bytes(event.agent)
            if model_of(learner)[0] != self.settings.model:  # nothing of it can be taken over
                names = [str(arm) for arm in learner.arms]
                gone = [arm for arm in loop.arms if arm not in names]
                loop.fold(ArmsChanged(event.time, add=names, remove=gone), position)
                event = Reset(event.time)
        loop.fold(event, position)


def model_of(learner: Learner) -> tuple[str, float]:
    """Return the name of a learner's model, and how much it forgets."""
    inner = getattr(learner.model, "model", learner.model)
    return type(inner).__name__, getattr(learner.model, "gamma", 1.0)
