# mypy: disable-error-code="import-not-found, import-untyped, misc"
"""The agent as a contextual policy of Open Bandit Pipeline."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from obp.policy.base import BaseContextualPolicy

from tsucb.agent import Agent
from tsucb.numeric.arrays import Floats


@dataclass
class OBPPolicy(BaseContextualPolicy):
    """An `Agent` as a contextual policy of Open Bandit Pipeline.

    The arms are 0 to n_actions − 1. The arms of a list are chosen one after the other, each from
    the arms that are left.

    Parameters
    ----------
    dim, n_actions, len_list, batch_size, random_state
        As for every policy of Open Bandit Pipeline; `random_state` is the agent's seed.
    policy
        One of `tsucb.policies`, `TSUCB(100)` by default.
    """

    policy: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.initialize()

    @property
    def policy_name(self) -> str:
        """The name in tables of results."""
        return str(self.agent.policy)

    def initialize(self) -> None:
        """Start again with a new agent."""
        super().initialize()
        self.agent = Agent(
            range(self.n_actions), self.dim, policy=self.policy, seed=self.random_state
        )
        self._open: dict[tuple[int, bytes], str] = {}

    def select_action(self, context: Floats) -> NDArray[np.int64]:
        """Return the arms for a context (1, dim)."""
        left, chosen = list(range(self.n_actions)), []
        self._open.clear()
        for _ in range(self.len_list):
            decision = self.agent.choose(context[0], arms=left)
            left.remove(int(decision.arm))
            chosen.append(int(decision.arm))
            self._open[chosen[-1], context.tobytes()] = decision.id
        return np.array(chosen)

    def update_params(self, action: int, reward: float, context: Floats) -> None:
        """Learn the reward of an arm of the last selection, or of another policy's choice."""
        self.n_trial += 1
        self.action_counts[action] += 1
        id = self._open.pop((int(action), context.tobytes()), None)
        if id is not None:
            self.agent.reward(id, reward)
        else:
            self.agent.update(context[0], int(action), reward)
