"""The agent against a slow and obvious one, under any order of calls."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tsucb
from tsucb.agent import UnknownDecision
from tsucb.numeric.bursts import burst, gamma
from tsucb.numeric.streams import POLICY, stream

MODEL = tsucb.NIGLinear(2)
RULE = tsucb.TSUCB(2)
MAX_OPEN = 6


@dataclass(eq=False)
class Arm:
    """An arm and everything seen of it: (clock, context, reward)."""

    seen: list = field(default_factory=list)
    removed: bool = False


@numba.njit
def gammas(shapes, rng):
    out, state = np.empty(shapes.size), burst(rng)
    for i in range(shapes.size):
        out[i], state = gamma(shapes[i], state)
    return out


class ReferenceAgent:
    """NIGLinear by the formulas, from all data, at every decision."""

    def __init__(self, names, seed, forgetting):
        self.arms = {name: Arm() for name in names}
        self.columns = list(self.arms.values())  # as they were at the last decision
        self.open = {}  # id -> (arm, context, time)
        self.rng = stream(seed, 0, POLICY)
        self.factor, self.clock, self.time = forgetting, 0, 0.0
        self.dropped = 0

    def settle(self):
        self.columns = list(self.arms.values())

    def posterior(self, arm):
        precision = 0.25 * np.eye(2)
        moment, a, b = np.zeros(2), 6.0, 6.0
        for clock, x, reward in arm.seen:
            weight = self.factor ** (self.clock - clock)
            precision += weight * np.outer(x, x)
            moment += weight * reward * x
            a += weight / 2
            b += weight * reward**2 / 2
        mean = np.linalg.solve(precision, moment)
        return mean, np.linalg.inv(precision), a, b - mean @ precision @ mean / 2

    def choose(self, x, names):
        self.settle()
        posteriors = [self.posterior(self.arms[name]) for name in names]
        estimate = np.array([x @ mean for mean, *_ in posteriors])
        precisions = gammas(np.array([a for _, _, a, _ in posteriors]), self.rng)
        radius = np.array(
            [
                math.sqrt(b / precision * (x @ covariance @ x))
                for (_, covariance, _, b), precision in zip(posteriors, precisions, strict=True)
            ]
        )
        belief = tsucb.GaussianBelief(mean=estimate, std=radius)
        return names[RULE.choose(belief, self.rng).arm], estimate, radius

    def remember(self, id, name, x):
        self.open[id] = (self.arms[name], x, self.time)
        if len(self.open) > MAX_OPEN:
            del self.open[next(iter(self.open))]
            self.dropped += 1

    def learn(self, arm, x, reward):
        if arm not in self.columns:
            self.settle()
        self.clock += 1
        arm.seen.append((self.clock, x, reward))

    def reward(self, id, reward):
        arm, x, _ = self.open.pop(id)
        if not arm.removed:
            self.learn(arm, x, reward)
        return not arm.removed

    def expire(self, age, reward):
        old = [id for id, (_, _, time) in self.open.items() if time < self.time - age]
        for id in old:
            if reward is None:
                del self.open[id]
            else:
                self.reward(id, reward)
        return len(old)


numbers = st.integers(-8, 8).map(lambda n: n / 4)
contexts = st.tuples(numbers, numbers).filter(any).map(np.array)
names = st.sampled_from(["red", "green", "blue", 1, 2])


class AgentMachine(RuleBasedStateMachine):
    forgetting = 1.0

    @initialize(seed=st.integers(0, 5))
    def start(self, seed):
        first = ["red", "green", 1]
        self.reference = ReferenceAgent(first, seed, self.forgetting)
        self.agent = tsucb.Agent(
            first,
            model=MODEL,
            policy=RULE,
            seed=seed,
            forgetting=self.forgetting,
            max_open=MAX_OPEN,
            clock=self.now,
        )
        self.closed = []

    def now(self):
        return self.reference.time

    @precondition(lambda self: self.reference.arms)
    @rule(x=contexts, data=st.data())
    def choose(self, x, data):
        here = list(self.reference.arms)
        some = data.draw(st.none() | st.permutations(here).map(lambda p: p[: len(p) // 2 + 1]))
        expected, estimate, radius = self.reference.choose(x, some or here)
        decision = self.agent.choose(x, arms=some)
        explanation = decision.explain()
        np.testing.assert_allclose(explanation.estimate, estimate, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(explanation.radius, radius, rtol=1e-7)
        assert decision.arm == expected
        self.reference.remember(decision.id, decision.arm, x)

    @precondition(lambda self: self.reference.arms)
    @rule(several=st.lists(contexts, max_size=6))
    def choose_many(self, several):
        here = list(self.reference.arms)
        expected = [self.reference.choose(x, here)[0] for x in several]
        decisions = self.agent.choose_many(np.reshape(several, (-1, 2)))
        assert decisions.arms.tolist() == expected
        for id, arm, x in zip(decisions.ids, expected, several, strict=True):
            self.reference.remember(id, arm, x)

    @precondition(lambda self: self.reference.open)
    @rule(data=st.data())
    def reward_many(self, data):
        some = st.lists(st.sampled_from(list(self.reference.open)), unique=True)
        ids = data.draw(some)
        rewards = data.draw(st.lists(numbers, min_size=len(ids), max_size=len(ids)))
        learned = [self.reference.reward(*pair) for pair in zip(ids, rewards, strict=True)]
        assert self.agent.reward_many(ids, rewards) == sum(learned)
        self.closed += ids

    @precondition(lambda self: not self.reference.arms)
    @rule(x=contexts)
    def choose_from_nothing(self, x):
        with pytest.raises(ValueError, match="no arm is available"):
            self.agent.choose(x)
        self.reference.settle()

    @precondition(lambda self: self.reference.open)
    @rule(data=st.data(), reward=numbers)
    def reward(self, data, reward):
        id = data.draw(st.sampled_from(list(self.reference.open)))
        assert self.agent.reward(id, reward) == self.reference.reward(id, reward)
        self.closed.append(id)

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def reward_again(self, data):
        with pytest.raises(UnknownDecision, match="is not open"):
            self.agent.reward(data.draw(st.sampled_from(self.closed)), 1.0)

    @precondition(lambda self: self.reference.arms)
    @rule(x=contexts, data=st.data(), reward=numbers)
    def update(self, x, data, reward):
        name = data.draw(st.sampled_from(list(self.reference.arms)))
        self.reference.learn(self.reference.arms[name], x, reward)
        self.agent.update(x, name, reward)

    @rule(name=names)
    def add(self, name):
        if name in self.reference.arms:
            with pytest.raises(ValueError, match="already"):
                self.agent.add_arm(name)
        else:
            self.agent.add_arm(name)
            self.reference.arms[name] = Arm()

    @rule(name=names)
    def remove(self, name):
        if name in self.reference.arms:
            self.agent.remove_arm(name)
            self.reference.arms.pop(name).removed = True
        else:
            with pytest.raises(ValueError, match="no arm"):
                self.agent.remove_arm(name)

    @rule(seconds=st.integers(0, 5))
    def wait(self, seconds):
        self.reference.time += seconds

    @rule(age=st.integers(0, 5), reward=st.none() | numbers)
    def expire(self, age, reward):
        assert self.agent.expire(age, reward) == self.reference.expire(age, reward)

    @rule()
    def restart(self):
        with TemporaryDirectory() as folder:
            self.agent.save(Path(folder) / "agent.tsucb")
            self.agent = tsucb.Agent.load(Path(folder) / "agent.tsucb", clock=self.now)
        self.reference.settle()

    @invariant()
    def agree(self):
        assert self.agent.arms == tuple(self.reference.arms)
        assert self.agent.open_decisions == len(self.reference.open) <= MAX_OPEN
        assert self.agent.dropped == self.reference.dropped


class ForgettingMachine(AgentMachine):
    forgetting = 0.8


# The first example compiles.
quick = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestAgent = AgentMachine.TestCase
TestAgent.settings = quick
TestForgetting = ForgettingMachine.TestCase
TestForgetting.settings = quick
