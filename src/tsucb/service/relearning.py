"""How another model learns from a log: what happened happens to it, as if it had been there."""

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
from tsucb.service.state import LoopState


def fold_for(settings: LoopSettings, loop: Loop, event: AnyEvent, position: int) -> None:
    """Fold an event into a loop that has the model of `settings` from the start.

    Waits, modes and arms are those of the time.
    """
    if isinstance(event, Configured):
        event = Configured(event.time, event.settings.learning_like(settings))
    elif isinstance(event, Decided):
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
            for open in state.waiting.values():
                for slot in open.slots:
                    slot.row = None  # as another model read it
            event = Condensed(event.time, state.to_bytes())
    elif isinstance(event, Imported):
        learner = Learner.from_bytes(event.agent)
        if model_of(learner)[0] != settings.model:  # nothing of it can be taken over
            names = [str(arm) for arm in learner.arms]
            gone = [arm for arm in loop.arms if arm not in names]
            loop.fold(ArmsChanged(event.time, add=names, remove=gone), position)
            event = Reset(event.time)
    loop.fold(event, position)


def model_of(learner: Learner) -> tuple[str, float]:
    """Return the name of a learner's model, and how much it forgets."""
    inner = getattr(learner.model, "model", learner.model)
    return type(inner).__name__, getattr(learner.model, "gamma", 1.0)
