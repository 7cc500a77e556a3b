"""The learner: reads contexts, decides, and learns; it keeps no decisions.

A `Learner` owns how contexts are read, the model with its state, the policy and the random stream.
Whoever holds it keeps the decisions and decides when to learn: the agent in memory, the service in
its event log. Nothing in it is locked: its owner calls it from one thread at a time.

    learner = Learner(["red", "blue"], policy=tsucb.TSUCB(10), seed=0)     # as `Agent`'s settings
    decision = learner.decide(context, arms)   # a `Decision` without an id; changes only the stream
    ranking = learner.rank(context, k, arms)   # a `Ranking` without an id; changes only the stream

    row = learner.read(context, arm, features) # the row of one arm, as bytes; new columns are learned
    learner.count(arm)                         # a decision for this arm was made
    learner.learn(arm, row, reward)            # True, or False if there is no such arm any more

`decide` and `rank` neither learn columns nor admit arms. A row is as wide as the columns known when
it was read; keep it as it is (it may be written to a file), `learn` pads it. Two learners that are
given the same calls of `read`, `count`, `learn`, `add_arm`, `remove_arm` and `compact`, in the same
order, have the same `digest()`, whatever they decided meanwhile. Every row that is counted may be
learned once, or never.

Where arms come with the decisions (`Learner()` without a list of arms), `count` and `learn` admit
the arm, which may take the place of the one that was longest unused. Where they are listed,
`count` raises ValueError for an unknown arm and `learn` returns False: an application that removes
an arm and adds another of the same name forgets the rows of the first one itself.

    learner.add_arm(name); learner.remove_arm(name); learner.arms
    learner.check_reward(value)                # a float that the model can learn from, or ValueError
    learner.follow(policy); learner.reseed(seed)
    learner.compact()                          # drop spare room, as a loaded learner has it
    held = learner.hold()                      # quick; `held.to_bytes()`, `held.digest()` may be
                                               # called later, in another thread
    learner.to_bytes(); Learner.from_bytes(data); learner.digest()
    learner.describe(context); learner.coefficients(); learner.arms_summary()

`from_bytes` also takes what `Agent.to_bytes` or `Agent.save` wrote, and leaves out its open
decisions.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.arm_features import HybridReader
from tsucb.agent.calls import Books, count_decision
from tsucb.agent.contexts import Arm, Context
from tsucb.agent.decision import Decision
from tsucb.agent.lists import Ranking

if TYPE_CHECKING:
    import pandas as pd


class Learner:
    """Reads contexts, decides and learns; see the top of this module."""

    def __init__(self, *arguments: Any, agent: Any = None, **settings: Any) -> None:
        from tsucb.agent.agent import Agent

        self._agent: Any = Agent(*arguments, max_open=1, **settings) if agent is None else agent

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The names of the arms, in the order they were added."""
        names: tuple[Arm, ...] = self._agent.arms
        return names

    @property
    def model(self) -> Any:
        """What turns rewards into beliefs, as wide as the contexts read so far."""
        return self._agent.model

    @property
    def policy(self) -> Any:
        """What chooses arms."""
        return self._agent.policy

    def decide(self, context: Context = None, arms: Any = None) -> Decision:
        """Choose an arm; count and learn nothing."""
        decision: Decision = self._agent.propose(context, arms)
        return decision

    def rank(self, context: Context, k: int, arms: Any = None) -> Ranking:
        """Choose a list of k arms; count and learn nothing."""
        ranking: Ranking = self._agent.propose_list(context, k, arms)
        return ranking

    def read(self, context: Context, arm: Arm, features: Any = None) -> bytes:
        """Return the row of one arm as bytes, after learning the columns that it needs."""
        agent = self._agent
        given = agent._read_one(context, arm, features)
        with agent._lock:
            agent._widened(agent._current(), given)
        if isinstance(agent._reader, HybridReader):
            x, z = given
            return np.concatenate(([float(x.size)], x, z[0])).tobytes()
        row: bytes = given
        return row

    def count(self, arm: Arm) -> None:
        """Count a decision for an arm."""
        agent = self._agent
        with agent._lock:
            roster, column = agent._column_of(agent._current(), arm)
            books: Books = roster.books
            checksum = books.checksum.copy()
            count_decision(books, np.zeros(0, np.uint64), np.array([column]), 0)
            books.checksum[:] = checksum
            roster.counts[3] = 0

    def learn(self, arm: Arm, row: bytes, reward: float) -> bool:
        """Learn the reward of a counted decision; return False if the arm is not there any more."""
        agent, value = self._agent, self._agent.check_reward(reward)
        if not agent._coming and arm not in agent.arms:
            return False
        given: Any = row
        if isinstance(agent._reader, HybridReader):
            numbers = np.frombuffer(row)
            split = int(numbers[0]) + 1
            given = numbers[1:split], numbers[split:][None]
        with agent._lock:
            roster, x = agent._widened(agent._current(), given)
            roster, column = agent._column_of(roster, arm)
            agent._doing = None
            roster = agent._learned(roster, column, x, value)
            roster.counts[3] = 0
        return True

    def check_reward(self, reward: Any) -> float:
        """Return a reward as a float that the model can learn from; raise otherwise."""
        value: float = self._agent.check_reward(reward)
        return value

    def add_arm(self, name: Arm) -> None:
        """Add an arm, about which nothing but the prior is known."""
        self._agent.add_arm(name)

    def remove_arm(self, name: Arm) -> None:
        """Forget an arm."""
        self._agent.remove_arm(name)

    def follow(self, policy: Any) -> None:
        """Decide by another policy from now on; what was learned stays."""
        self._agent.follow(policy)

    def reseed(self, seed: int | None = None) -> None:
        """Draw from another random stream; None for an arbitrary one."""
        self._agent.reseed(seed, ids=False)

    def compact(self) -> None:
        """Drop the room made for arms to come, as a loaded learner has it."""
        self._agent.compact()

    def width_after(self, context: Context, features: Iterable[Any] = ()) -> int:
        """Return how many columns the model will have once it has learned from a context."""
        width: int = self._agent.width_after(context, features)
        return width

    def describe(self, context: Context) -> list[tuple[str, float]]:
        """Return the features of a context that are not 0, with their values."""
        features: list[tuple[str, float]] = self._agent.describe(context)
        return features

    def coefficients(self) -> "pd.DataFrame":
        """Return mean and standard deviation of every parameter of every arm."""
        return self._agent.coefficients()

    def arms_summary(self) -> "pd.DataFrame":
        """Return one row per arm: pulls and mean reward."""
        return self._agent.arms_summary().drop(columns="open")

    def hold(self) -> Any:
        """Return what is known now; its `to_bytes` and `digest` may be called in another thread."""
        return self._agent.hold()

    def to_bytes(self) -> bytes:
        """Return what `from_bytes` takes."""
        data: bytes = self._agent.to_bytes()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> "Learner":
        """Return the learner that `to_bytes` of a learner or an agent described."""
        from tsucb.agent.agent import Agent

        agent = Agent.from_bytes(data)
        agent.expire(-float("inf"))
        return cls(agent=agent)

    def digest(self) -> str:
        """Return a hash of everything learned, not of the random stream."""
        digest: str = self._agent.digest()
        return digest
