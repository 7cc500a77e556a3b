"""What another model would have learned from the same log."""

from tsucb.agent import Agent
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
from tsucb.service.state import decoded


class Relearning:
    """A loop that learns from a log what other settings would have learned from it.

    Everything happens as it did, with the waits, the modes and the arms of the time, but to another
    model. The fold of `Configured` takes over what it knows.

    Parameters
    ----------
    name, seed
        As of the loop.
    settings
        Whose model is to learn.
    position
        Of the event that changes to them, if it is in the log.
    """

    def __init__(
        self, name: str, settings: LoopSettings, seed: int | None = None, position: int = 0
    ) -> None:
        self.loop, self.settings = Loop(name, seed), settings
        self._seed, self._position = seed, position

    def fold(self, event: AnyEvent) -> None:
        """Learn from an event."""
        loop = self.loop
        if isinstance(event, Configured):
            event = Configured(event.time, event.settings.learning_like(self.settings))
        elif isinstance(event, Decided):
            # Where they came with the decisions, no event has added them.
            new = loop.unknown({arm: None for pick in event.picks for arm in pick.arms})
            if new:
                loop.fold(ArmsChanged(event.time, add=new))
        elif isinstance(event, Condensed):
            state = decoded(event.relearned.get(self._position, event.state))
            if not state.settings.learns_like(self.settings):
                state.settings, state.agent = state.settings.learning_like(self.settings), None
                if state.arms or state.settings.arms_come:
                    state.agent = state.settings.agent(state.arms, self._seed).to_bytes()
            loop._become(state)
            return
        elif isinstance(event, Imported):
            agent = Agent.from_bytes(event.agent)
            if model_name(agent) != self.settings.model:  # nothing of it can be taken over
                names = [str(arm) for arm in agent.arms]
                gone = [arm for arm in loop.arms if arm not in names]
                loop.fold(ArmsChanged(event.time, add=names, remove=gone))
                event = Reset(event.time)
        loop.fold(event)


def model_name(agent: Agent) -> str:
    """The name of an agent's model, without its forgetting."""
    return type(getattr(agent.model, "model", agent.model)).__name__
