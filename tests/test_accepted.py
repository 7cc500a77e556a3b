"""Agents can be saved, loaded and copied after any accepted calls, with every model and extremes.

    python tests/test_accepted.py 3000
    python tests/test_accepted.py 3000 1000

drives that many agents through random calls, or the last ones from the thousandth on.
"""

import copy
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

import tsucb

NUMBERS = [0.0, 1.0, -1.0, 0.5, 3.7, 1e-30, -1e-29, 5e-324, 1e15, -1e19, 1e20, -1e25, 1e30, -1e30]
NAMES = ["a", "b", "c", 4, "e"]
CITIES = ["Rome", "Oslo", "Bonn", None, "", "é", True, 3, 2.5]

# What each agent is made with, and how it gets contexts: the number of features, "any" for
# dictionaries, "sparse" for rows of sparse matrices, "arms" for arms that come.
KINDS = {
    "AdaptiveLinear": ({}, "any"),
    "AdaptiveLinear, forgetting": ({"forgetting": 0.9}, "any"),
    "AdaptiveLinear, vectors": ({"features": 2}, 2),
    "BernoulliArms": ({"model": tsucb.BernoulliArms()}, 0),
    "PoissonArms": ({"model": tsucb.PoissonArms()}, 0),
    "GaussianArms": ({"model": tsucb.GaussianArms()}, 0),
    "NIGLinear": ({"model": tsucb.NIGLinear(2)}, 2),
    "NIGLinear, forgetting": ({"model": tsucb.NIGLinear(2), "forgetting": 0.8}, 2),
    "NIGLinear, keep_beliefs": ({"model": tsucb.NIGLinear(2), "keep_beliefs": True}, 2),
    "ContextualLinear": ({"model": tsucb.ContextualLinear(2)}, 2),
    "Linear": ({"model": tsucb.Linear(2)}, "rows"),
    "LogisticArms": ({"model": tsucb.LogisticArms(2)}, 2),
    "HashedLinear": ({"model": tsucb.HashedLinear(bits=5)}, "any"),
    "HashedLinear, crossed": ({"model": tsucb.HashedLinear(bits=6, crossed=True)}, "any"),
    "HashedLinear, sparse rows": ({"model": tsucb.HashedLinear(bits=5)}, "sparse"),
    "HybridCurves": ({"most_arms": 4}, "arms"),
    "HybridCurves, forgetting": ({"most_arms": 4, "forgetting": 0.9}, "arms"),
    "HybridLinear": ({"model": tsucb.HybridLinear(0), "most_arms": 4}, "arms"),
}  # fmt: skip


class Driver:
    """An agent, and random calls that it may be asked."""

    def __init__(self, kind, seed, extreme):
        self.settings, self.form = KINDS[kind]
        self.rng, self.extreme, self.now = np.random.default_rng(seed), extreme, 0.0
        arms = {} if self.form == "arms" else {"arms": NAMES[:3]}
        self.agent = tsucb.Agent(
            seed=seed, policy=tsucb.TSUCB(3), max_open=7, clock=lambda: self.now, **arms,
            **self.settings,
        )  # fmt: skip
        self.ids, self.count, self.usual = [], 0, self.number()

    def number(self):
        if self.extreme and self.rng.random() < 0.3:
            largest = self.agent.model.largest  # beyond it a number is refused
            return float(np.clip(NUMBERS[self.rng.integers(len(NUMBERS))], -largest, largest))
        return float(np.round(self.rng.normal(), 2))

    def features(self):
        found = {"x": self.number(), "city": CITIES[self.rng.integers(len(CITIES))]}
        if self.rng.random() < 0.1:
            found[f"late {self.rng.integers(5)}"] = self.number()
        return found

    def vector(self):
        return [self.number() for _ in range(2)]

    def context(self, arms=None):
        if self.form in ("any", "arms"):
            return None if self.rng.random() < 0.1 else self.features()
        if self.form == "sparse":
            often = self.usual if self.rng.random() < 0.95 else self.number()
            return csr_array([[often, self.number(), 0.0, 1.0]])
        if self.form == "rows":
            return [self.vector() for _ in arms or self.agent.arms]
        return self.vector() if self.form else None

    def one(self):
        """Return the context of one arm."""
        return self.vector() if self.form == "rows" else self.context()

    def table(self, contexts):
        return vstack(contexts) if self.form == "sparse" else contexts

    def offer(self):
        if self.form != "arms":
            return None
        return {f"n{i}": self.features() for i in self.rng.permutation(9)[:3]}

    def value(self):
        name = type(getattr(self.agent.model, "model", self.agent.model)).__name__
        if name in ("BernoulliArms", "LogisticArms"):
            return float(self.rng.integers(2))
        return float(self.rng.integers(4)) if name == "PoissonArms" else self.number()

    def arm(self):
        if self.form == "arms":
            return f"n{self.rng.integers(9)}"
        return self.agent.arms[self.rng.integers(len(self.agent.arms))]

    def known(self, count):
        some = self.rng.permutation(len(self.ids))[:count].tolist()
        return [self.ids.pop(i) for i in sorted(some, reverse=True)]

    # The calls

    def choose(self):
        self.ids.append(self.agent.choose(self.context(), self.offer()).id)

    def choose_many(self):
        contexts = [self.context() for _ in range(3)]
        if self.form == "any":
            contexts = [{"x": 1.0} if context is None else context for context in contexts]
        self.ids += self.agent.choose_many(self.table(contexts), self.offer()).ids

    def rank(self):
        ranking = self.agent.rank(self.context(), 1, self.offer())
        self.agent.reward(ranking.id, [None if self.rng.random() < 0.3 else self.value()])

    def record(self):
        self.count += 1
        self.ids.append(f"visit {self.count}")
        features = self.features() if self.form == "arms" else None
        self.agent.record(self.ids[-1], self.one(), self.arm(), features)

    def reward(self):
        for id in self.known(1):
            self.agent.reward(id, self.value())

    def reward_many(self):
        ids = self.known(2)
        self.agent.reward_many(ids, [self.value() for _ in ids])

    def update(self):
        features = self.features() if self.form == "arms" else None
        self.agent.update(self.one(), self.arm(), self.value(), features)

    def fit(self):
        contexts, arms = [self.one() for _ in range(3)], [self.arm() for _ in range(3)]
        if self.form == "any":
            contexts = [{"x": 2.0} if context is None else context for context in contexts]
        rewards = [self.value() for _ in arms]
        given = self.table(contexts) if self.form else None
        features = ([self.features() for _ in arms],) if self.form == "arms" else ()
        self.agent.fit((given, arms, *features, rewards))

    def expire(self):
        self.now += 1.0
        self.agent.expire(3.0, None if self.rng.random() < 0.5 else self.value())

    def change_arms(self):
        name, agent = NAMES[self.rng.integers(len(NAMES))], self.agent
        if self.form == "arms":
            if agent.arms:
                agent.remove_arm(agent.arms[self.rng.integers(len(agent.arms))])
        elif name not in agent.arms:
            agent.add_arm(name)
        elif len(agent.arms) > 1:
            agent.remove_arm(name)

    def look(self):
        self.agent.estimate(self.context(), self.offer())
        self.agent.propose(self.context(), self.offer())
        self.agent.arms_summary()

    def step(self, folder):
        calls = [
            self.choose, self.choose, self.choose_many, self.rank, self.record, self.reward,
            self.reward, self.reward_many, self.update, self.fit, self.expire, self.change_arms,
            self.look,
        ]  # fmt: skip
        call = calls[self.rng.integers(len(calls))]
        try:
            with np.errstate(all="ignore"):
                call()
        except tsucb.UnknownDecision:  # dropped before
            pass
        self.check(folder, call.__name__)

    def check(self, folder, name):
        agent, digest = self.agent, self.agent.digest()
        agent.save(folder / "agent")
        clock = {"clock": lambda: self.now}
        loaded = tsucb.Agent.load(folder / "agent", **clock)
        others = [loaded, tsucb.Agent.from_bytes(agent.to_bytes(), **clock), copy.copy(agent)]
        for other in others:
            assert other.digest() == digest, name
            assert other.arms == agent.arms, name
        if self.rng.random() < 0.2 and self.form != "arms":  # as good as the one that was saved
            self.agent = loaded


def drive(kind, seed, folder, steps, extreme):
    driver = Driver(kind, seed, extreme)
    for _ in range(steps):
        driver.step(folder)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_accepted_can_be_saved_and_loaded(kind, tmp_path):
    drive(kind, 0, tmp_path, 40, extreme=False)
    drive(kind, 1, tmp_path, 40, extreme=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", [14, 15, 46, 47, 662])
def test_calls_after_which_an_agent_could_not_be_saved(seed, tmp_path):
    drive(list(KINDS)[seed % 17], seed, tmp_path, 30, extreme=True)  # of the 17 kinds then


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_numbers_beyond_the_largest_of_the_model_are_refused_wherever_they_come(forgetting):
    agent = tsucb.Agent(seed=0, forgetting=forgetting)
    agent.update({"u": 1.0}, "x", 1.0, {"p": 1.0})
    agent.update({"u": 2.0}, "x", 2.0, {"p": 1e20})
    digest, large, small = agent.digest(), 2e20, {"u": 1.0}
    for call in (
        lambda: agent.choose(small, {"x": {"p": large}}),
        lambda: agent.choose({"u": large}, {"x": {"p": 1.0}}),
        lambda: agent.choose_many([small, small], {"x": {"p": large}}),
        lambda: agent.choose_many([small, {"u": large}], {"x": {"p": 1.0}}),
        lambda: agent.rank(small, 1, {"x": {"p": large}}),
        lambda: agent.record("own", small, "x", {"p": large}),
        lambda: agent.update(small, "x", 1.0, {"p": large}),
        lambda: agent.update({"u": large}, "x", 1.0, {"p": 1.0}),
        lambda: agent.update(small, "x", large, {"p": 1.0}),
        lambda: agent.fit(([small] * 2, ["x"] * 2, [{"p": 1.0}, {"p": large}], [1.0, 2.0])),
        lambda: agent.fit(([small, {"u": large}], ["x"] * 2, [{"p": 1.0}] * 2, [1.0, 2.0])),
        lambda: tsucb.Agent({"x": {"p": large}}, forgetting=forgetting),
    ):
        with pytest.raises(ValueError, match="±1e\\+20"):
            call()
    assert agent.digest() == digest
    assert tsucb.Agent.from_bytes(agent.to_bytes()).digest() == digest


def test_a_late_reward_for_an_arm_that_left(tmp_path):
    for leave in (lambda agent: agent.remove_arm("x"), lambda agent: None):
        agent = tsucb.Agent(seed=0, most_arms=2)
        decision = agent.choose({"u": 1.0}, {"x": {"p": 1.0}})
        leave(agent)
        for n in range(40):
            agent.choose({"u": 1.0}, {f"y{n}": {"p": 1.0}})
        assert "x" not in agent.arms
        assert agent.reward(decision.id, 1.0)
        assert agent.arms_summary().loc["x", "pulls"] == 1
        agent.save(tmp_path / "agent")
        assert tsucb.Agent.load(tmp_path / "agent").digest() == agent.digest()
        assert copy.deepcopy(agent).digest() == agent.digest()


def test_all_arms_may_leave_before_a_wider_context_comes():
    agent = tsucb.Agent(seed=0)
    for n in range(6):
        context = {"u": float(n), "c": "ab"[n % 2]}
        decision = agent.choose(context, {"x": {"p": 1.0}, "y": {"p": 2.0, "q": "z"}})
        agent.reward(decision.id, 1.0)
    for name in agent.arms:
        agent.remove_arm(name)
    agent.update({"u": 1.0, "late": 3.0}, "new", 1.0, {"p": 1.0})
    assert agent.arms == ("new",)
    assert tsucb.Agent.from_bytes(agent.to_bytes()).digest() == agent.digest()


if __name__ == "__main__":
    import tempfile
    import warnings
    from pathlib import Path

    warnings.simplefilter("ignore")
    failures = {}
    with tempfile.TemporaryDirectory() as folder:
        last, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
        for n in range(first, last):
            kind = list(KINDS)[n % len(KINDS)]
            try:
                drive(kind, n, Path(folder), 30, extreme=True)
            except Exception as error:
                failures.setdefault(kind, []).append(f"{n}: {type(error).__name__}: {error}"[:200])
            if n % 100 == 99:
                print(n + 1, "agents,", sum(map(len, failures.values())), "failed", flush=True)
    for kind, found in failures.items():
        print(kind, len(found), found[:3])
    print(sum(map(len, failures.values())), "of", last - first, "agents could not be saved")
    sys.exit(bool(failures))
