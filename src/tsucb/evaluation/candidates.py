"""Configurations of agents on a log: what each would choose, and what it predicts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tsucb.agent import Agent, Learner
from tsucb.compiler import compiled
from tsucb.evaluation.settings import Settings, agent_arguments, model_class
from tsucb.logs.decisions import Decisions
from tsucb.logs.logged_data import LoggedData
from tsucb.logs.replay import play_log
from tsucb.models.model import belief, training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.streams import POLICY, stream
from tsucb.policies.exploring import Exploring
from tsucb.policies.greedy import Random
from tsucb.step import new_player, next_arm


class Candidate:
    """A configuration that goes through a log: its model learns all rewards, in compiled code."""

    def __init__(self, settings: Settings, decisions: Decisions, seed: int) -> None:
        self.decisions, self.seed = decisions, seed
        # The order in which rewards come, and how many decisions were made before each one.
        self.order = np.argsort(decisions.reward_time, kind="stable")
        known = np.searchsorted(decisions.time, decisions.reward_time[self.order], side="right")
        self.known: Integers = np.maximum(known, self.order + 1)
        self.prepare(*agent_arguments(settings, decisions.contexts))

    def prepare(self, arguments: dict[str, Any], contexts: list[Any]) -> None:
        """Make the model and the policy, and read the contexts."""
        learner = Learner(self.decisions.arms, seed=self.seed, **arguments)
        reader = learner.reader
        if reader.per_arm:
            raise ValueError(
                f"{reader.model_name} has features of every arm, which a comparison reads only for "
                "HybridCurves and HybridLinear with their usual settings"
            )
        if reader.takes_context and 0 < contexts.count(None) < len(contexts):
            raise ValueError("some decisions have a context and some have none")
        matrix = learner.read_many(contexts)
        learner.model.check_rewards(self.decisions.reward)
        self.model, self.policy = learner.model, learner.policy
        self.events: LoggedData = self.decisions.logged_data(matrix)

    def choices(self, draws: int) -> Floats:
        """Return (N, K) the probability of each arm, given all earlier decisions."""
        if not isinstance(self.policy, Exploring):
            return self.ask(self.policy, draws)[0]
        # The floor need not be drawn.
        offered, share = self.decisions.offered, self.policy.epsilon
        uniform: Floats = offered / offered.sum(axis=1, keepdims=True)
        return (1 - share) * self.ask(self.policy.policy, draws)[0] + share * uniform

    def predictions(self) -> Floats:
        """Return (N, K) the predicted reward of every arm, given the rewards that had come."""
        return self.ask(Random(), 0)[1]

    def ask(self, policy: Any, draws: int) -> tuple[Floats, Floats]:
        """Return (N, K) the share of draws in which the policy chooses each arm, and predictions.

        There are predictions only without draws.
        """
        events, rng = self.events, stream(self.seed, 0, POLICY)
        player = new_player(self.model, policy, events.arms, self.seed, 0)
        target, expected = np.zeros((2, len(events.arm), events.arms))
        questions = Questions(
            draws, target, expected, self.order, self.known, np.zeros(1, np.int64)
        )
        play_log(events, player, ask_decisions, questions, [rng])
        return target, expected


class AgentCandidate(Candidate):
    """A configuration that reads the features of arms: an agent, asked at every decision."""

    def __init__(self, settings: Settings, decisions: Decisions, seed: int) -> None:
        self.kind = model_name(settings)
        plain = {name: value for name, value in settings.items() if name != "model"}
        super().__init__(plain, decisions, seed)

    def prepare(self, arguments: dict[str, Any], contexts: list[Any]) -> None:
        """Make the agent."""
        self.contexts, arms = contexts, max(len(self.decisions.arms), 2)
        model = model_class(self.kind)(0) if self.kind else None
        self.agent = Agent(None, model=model, seed=self.seed, most_arms=arms, **arguments)
        self.policy = self.agent.policy

    def ask(self, policy: Any, draws: int) -> tuple[Floats, Floats]:
        """Return (N, K) the share of draws in which the policy chooses each arm, and predictions.

        There are predictions of the arms offered only; without draws, one decision is made.
        """
        agent, decisions, place = self.agent, self.decisions, 0
        agent.follow(policy)
        names, index = decisions.arms, {name: k for k, name in enumerate(decisions.arms)}
        features = decisions.arm_features or [None] * len(decisions)
        target, expected = np.zeros((2, len(decisions), len(names)))
        for n, context in enumerate(self.contexts):
            while place < self.order.size and self.known[place] <= n:
                past = self.order[place]
                name, place = names[decisions.arm[past]], place + 1
                given = (features[past] or {}).get(name, {})
                agent.update(self.contexts[past] or {}, name, decisions.reward[past], given)
            row = features[n] or {}
            offer = {names[k]: row.get(names[k], {}) for k in np.flatnonzero(decisions.offered[n])}
            for _ in range(max(draws, 1)):
                decision = agent.propose(context or {}, offer)
                target[n, index[str(decision.arm)]] += 1.0 / max(draws, 1)
            expected[n, [index[name] for name in offer]] = np.nan_to_num(decision.explain().mean)
        return target, expected


def model_name(settings: Settings) -> str:
    """Return the name of the model of a configuration, "" if there is none or it has settings."""
    model = settings.get("model", "")
    if isinstance(model, Mapping) and len(model) == 1:
        model = model.get("name")
    return model if isinstance(model, str) else ""


def reads_arms(settings: Settings) -> bool:
    """Return whether a configuration has a model that reads features of arms."""
    return model_name(settings) in ("HybridCurves", "HybridLinear")


def candidate(settings: Settings, decisions: Decisions, seed: int) -> Candidate:
    """Return the candidate with these settings."""
    return (AgentCandidate if reads_arms(settings) else Candidate)(settings, decisions, seed)


class Questions(NamedTuple):
    """What a candidate is asked at every decision, which rewards it has learned, and its answers.

    The reward of decision order[i] is known from decision known[i] on; learned[0] rewards, in this
    order, have been learned.
    """

    draws: int
    target: Floats  # (N, K)
    expected: Floats  # (N, K)
    order: Integers  # (N,)
    known: Integers  # (N,)
    learned: Integers  # (1,)


@compiled
def ask_decisions(events, player, first, last, questions, policy_stream):  # type: ignore[no-untyped-def]
    """At decisions first … last − 1, learn the rewards that have come, and ask the policy.

    Without draws ask the model for predictions instead. Stop where training is due. Return the next
    decision, and whether training is due.
    """
    model, state, rng = player.model, player.state, policy_stream.rng
    draws, target, expected, order, known, learned = questions
    for n in range(first, last):
        while learned[0] < order.size and known[learned[0]] <= n:
            past = order[learned[0]]
            learned[0] += 1
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
    """Return (N, K) the default agent's prediction for every arm, given earlier decisions."""
    kind = Candidate if decisions.arm_features is None else AgentCandidate
    predicted = kind({}, decisions, 0).predictions()
    # A prediction outside of the rewards seen so far is worse than the nearest of them.
    highest = np.maximum.accumulate(decisions.reward)
    lowest = np.minimum.accumulate(decisions.reward)
    predicted[0] = 0.0
    predicted[1:] = np.clip(predicted[1:], lowest[:-1, None], highest[:-1, None])
    return predicted
