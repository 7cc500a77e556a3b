# mypy: disable-error-code="import-not-found, import-untyped, misc"
"""The agent as a contextual policy of river."""

from collections.abc import Callable
from typing import Any

from river.bandit.base import ContextualPolicy

from tsucb.agent import Agent
from tsucb.contexts.readers import Arm


class RiverPolicy(ContextualPolicy):
    """An `Agent` as a contextual policy of river.

    Arms are added to the agent when river first names them.

    Parameters
    ----------
    make_agent
        Returns a new agent; called again for every clone of the policy. The contexts of river are
        dictionaries, so the agent needs the names of its features.
    """

    def __init__(self, make_agent: Callable[[], Agent]) -> None:
        super().__init__()
        self.make_agent = make_agent
        self.agent = make_agent()
        self._last: tuple[Arm, Any, str] | None = None

    def _pull(self, arm_ids: list[Arm], context: dict[str, float]) -> Arm:
        for arm in arm_ids:
            if arm not in self.agent.arms:
                self.agent.add_arm(arm)
        decision = self.agent.choose(context, arms=arm_ids)
        self._last = decision.arm, context, decision.id
        return decision.arm

    def update(self, arm_id: Arm, context: dict[str, float], reward: float) -> None:
        """Learn the reward of the last pull, or of another policy's choice."""
        super().update(arm_id, context, reward)
        last, self._last = self._last, None
        if last is not None and last[:2] == (arm_id, context):
            self.agent.reward(last[2], reward)
        else:
            self.agent.update(context, arm_id, reward)
