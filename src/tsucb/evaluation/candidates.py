"""Configurations of agents on a log: what each would choose, and what it expects."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.agent import Agent, Learner
from tsucb.compiler import compiled
from tsucb.evaluation.settings import Settings, agent_arguments
from tsucb.logs.decisions import Decisions
from tsucb.logs.logged_data import LoggedData
from tsucb.logs.replay import pass_over
from tsucb.models.model import belief, training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.streams import POLICY, stream
from tsucb.policies.exploring import Exploring
from tsucb.policies.greedy import Random
from tsucb.policies.policy import Policy
from tsucb.step import new_player, next_arm


class Candidate:
    """A configuration, ready to go through a log."""

    def __init__(self, settings: Settings, decisions: Decisions, seed: int) -> None:
        arguments, contexts = agent_arguments(settings, decisions.contexts)
        learner = Learner(decisions.arms, seed=seed, **arguments)
        reader = learner.reader
        if reader.per_arm:
            raise ValueError(
                f"{reader.model_name} has features of every arm, which a comparison reads only for "
                "HybridLinear with its usual settings"
            )
        if reader.takes_context and 0 < contexts.count(None) < len(contexts):
            raise ValueError("some decisions have a context and some have none")
        matrix = learner.read_many(contexts)
        learner.model.check_rewards(decisions.reward)
        self.model, self.policy = learner.model, learner.policy
        self.events: LoggedData = decisions.logged_data(matrix)
        self.seed, self.offered = seed, decisions.offered
        self.order, self.known = rewards_in_order(decisions)

    def choices(self, draws: int) -> Floats:
        """Return (N, K) how often each arm is chosen, given all earlier decisions."""
        policy, share = without_floor(self.policy)
        return with_floor(self._go_through(policy, draws)[0], share, self.offered)

    def predictions(self) -> Floats:
        """Return (N, K) what is expected of every arm, given the rewards that had come."""
        return self._go_through(Random(), 0)[1]

    def _go_through(self, policy: Policy, draws: int) -> tuple[Floats, Floats]:
        """Return how often a policy chooses each arm; without draws, what is expected of it."""
        events, rng = self.events, stream(self.seed, 0, POLICY)
        player = new_player(self.model, policy, events.arms, self.seed, 0)
        target, expected = np.zeros((2, len(events.arm), events.arms))
        place = np.zeros(1, dtype=np.int64)
        arguments = target, expected, draws, self.order, self.known, place
        pass_over(events, player, look_through, arguments, [rng])
        return target, expected


class AgentCandidate:
    """A configuration that reads the features of arms: an agent, asked at every decision."""

    def __init__(self, settings: Settings, decisions: Decisions, seed: int) -> None:
        plain = {name: value for name, value in settings.items() if name != "model"}
        arguments, self.contexts = agent_arguments(plain, decisions.contexts)
        self.agent = Agent(None, seed=seed, most_arms=max(len(decisions.arms), 2), **arguments)
        self.decisions = decisions

    def choices(self, draws: int) -> Floats:
        """Return the same as `Candidate.choices`."""
        policy, share = without_floor(self.agent.policy)
        self.agent.follow(policy)
        return with_floor(self._ask_all(draws)[0], share, self.decisions.offered)

    def predictions(self) -> Floats:
        """Return (N, K) what it expects of every arm offered, given all earlier decisions."""
        return self._ask_all(1)[1]

    def _ask_all(self, draws: int) -> tuple[Floats, Floats]:
        """Return (N, K) how often each arm is chosen, and what is expected of it."""
        agent, decisions, place = self.agent, self.decisions, 0
        names, index = decisions.arms, {name: k for k, name in enumerate(decisions.arms)}
        order, known = rewards_in_order(decisions)
        features = decisions.arm_features or [None] * len(decisions)
        target, expected = np.zeros((2, len(decisions), len(names)))
        for n, context in enumerate(self.contexts):
            while place < order.size and known[place] <= n:
                past = order[place]
                name, place = names[decisions.arm[past]], place + 1
                given = (features[past] or {}).get(name, {})
                agent.update(self.contexts[past] or {}, name, decisions.reward[past], given)
            row = features[n] or {}
            offer = {names[k]: row.get(names[k], {}) for k in np.flatnonzero(decisions.offered[n])}
            for _ in range(draws):
                decision = agent.propose(context or {}, offer)
                target[n, index[str(decision.arm)]] += 1.0 / draws
            expected[n, [index[name] for name in offer]] = np.nan_to_num(decision.explain().mean)
        return target, expected


def without_floor(policy: Any) -> tuple[Any, float]:
    """Return a policy without its floor, which need not be drawn, and the floor's share."""
    return (policy.policy, policy.epsilon) if isinstance(policy, Exploring) else (policy, 0.0)


def with_floor(target: Floats, share: float, offered: NDArray[np.bool_]) -> Floats:
    """Return the probabilities of a policy of which a share is uniform among the arms offered."""
    uniform: Floats = offered / offered.sum(axis=1, keepdims=True)
    return (1 - share) * target + share * uniform


def reads_arms(settings: Settings) -> bool:
    """Return whether a configuration has the model that reads features of arms."""
    model = settings.get("model")
    return model == "HybridLinear" or model == {"name": "HybridLinear"}


def candidate(settings: Settings, decisions: Decisions, seed: int) -> Candidate | AgentCandidate:
    """Return a configuration, ready to go through a log."""
    return (AgentCandidate if reads_arms(settings) else Candidate)(settings, decisions, seed)


def rewards_in_order(decisions: Decisions) -> tuple[Integers, Integers]:
    """Return the order in which rewards come, and how many decisions were made before each."""
    order = np.argsort(decisions.reward_time, kind="stable")
    known = np.searchsorted(decisions.time, decisions.reward_time[order], side="right")
    return order, np.maximum(known, order + 1)


# Compiled code takes every array that it reads or writes as an argument of its own.
@compiled
def look_through(events, player, first, last, target, expected, draws, order, known, place, given):  # type: ignore[no-untyped-def]
    """Learn the rewards that have come, and ask what would be chosen, at every decision.

    Without draws ask instead what is expected of all arms. The reward of decision order[i] is known
    from decision known[i] on; place[0] have been learned.
    Returns the number of the next decision, and whether training is due.
    """
    model, state, rng = player.model, player.state, given.rng
    for n in range(first, last):
        while place[0] < order.size and known[place[0]] <= n:
            past = order[place[0]]
            place[0] += 1
            arm, reward = events.arm[past], events.reward[past]
            update(model, state, events.contexts[past].astype(np.float64), arm, reward)
            if training_due(model, state):
                return n, True
        context = events.contexts[n].astype(np.float64)
        available = events.available[
            events.ends[events.which[n]] : events.ends[events.which[n] + 1]
        ]
        if draws == 0:
            every = np.arange(expected.shape[1])
            expected[n] = belief(model, state, context, every, n + 1, rng).mean
        for _ in range(draws):
            choice = next_arm(player, context, available, n + 1, rng)
            target[n, available[choice.arm]] += 1.0 / draws
        player.chosen[events.arm[n]] += 1
    return last, False


def predictions(decisions: Decisions) -> Floats:
    """Return (N, K) what the default model expects of every arm, given earlier decisions."""
    kind = Candidate if decisions.arm_features is None else AgentCandidate
    predicted = kind({}, decisions, 0).predictions()
    # A prediction outside of the rewards seen so far is worse than the nearest of them.
    highest = np.maximum.accumulate(decisions.reward)
    lowest = np.minimum.accumulate(decisions.reward)
    predicted[0] = 0.0
    predicted[1:] = np.clip(predicted[1:], lowest[:-1, None], highest[:-1, None])
    return predicted
