"""The problem that every library is measured on.

Runs inside each library's own environment, so it needs nothing but NumPy.

A contextual linear bandit: at each step one context x ∈ R^d, and arm k pays ⟨β_k, x⟩ + ε. It is
stated in units that every library can be set to, a prior β_k ~ N(0, I) and noise ε ~ N(0, 1),
because several of them fix both. With contexts x ~ N(0, s²I) and s = 1/(dσ) it is the synthetic
problem of Baek and Farias (2023), Section 4.1, at noise σ, with its rewards divided by σ.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

NOISE = 0.5  # the paper's σ
PREPARED = 2_000_000  # the most numbers drawn beforehand; a longer run repeats them


class Problem(NamedTuple):
    """Contexts and rewards, drawn beforehand so that drawing takes no library's time."""

    contexts: np.ndarray  # (steps, d)
    means: np.ndarray  # (steps, K): the mean reward of each arm
    rewards: list[list[float]]  # (steps, K): with noise, as plain numbers

    @property
    def arms(self) -> int:
        """K."""
        return int(self.means.shape[1])

    @property
    def features(self) -> int:
        """d."""
        return int(self.contexts.shape[1])


class Learner(NamedTuple):
    """One library's policy, called as its documentation shows."""

    choose: Callable[[int], int]  # step → arm
    update: Callable[[int, int, float], object]  # step, arm, reward
    begin: Callable[[np.ndarray], object] | None = None  # rewards of pulling arm t at step t


class Policy(NamedTuple):
    """A policy of a library."""

    name: str
    kind: str  # the column it is compared in: "Thompson sampling", "LinUCB", "TS-UCB", "other"
    make: Callable[[Problem, int], Learner]  # problem, seed → learner
    growth: bool = True  # follow it to large K and d


class Loop(NamedTuple):
    """A policy inside a library's own loop, problem included: speed only."""

    name: str
    kind: str
    play: Callable[[int, int, int], object]  # K, d, steps
    growth: bool = True


def draw(arms: int, features: int, steps: int, seed: int) -> Problem:
    """Draw a problem; the same arguments give the same one in every library's environment."""
    steps = max(arms, min(steps, PREPARED // max(arms, features)))
    rng = np.random.default_rng(seed)
    coefficients = rng.standard_normal((features, arms))
    contexts = rng.standard_normal((steps, features)) / (features * NOISE)
    means = contexts @ coefficients
    return Problem(contexts, means, (means + rng.standard_normal((steps, 1))).tolist())


def play(learner: Learner, problem: Problem, steps: range) -> list[int]:
    """Let the learner play these steps; return the arms it chose."""
    rewards = problem.rewards
    choose, update, arms = learner.choose, learner.update, []
    for step in steps:
        t = step % len(rewards)
        arm = choose(t)
        update(t, arm, rewards[t][arm])
        arms.append(arm)
    return arms


def pull_each_arm_once(learner: Learner, problem: Problem, seconds: float = math.inf) -> list[int]:
    """Pull arm t at step t, for every arm, as several libraries need that to start.

    Stop after `seconds`, where only speed matters, and leave the other arms out.
    """
    arms = range(problem.arms)
    rewards = np.array([problem.rewards[arm][arm] for arm in arms])
    stop = time.perf_counter() + seconds
    if learner.begin is not None:
        learner.begin(rewards)
    else:
        for arm in arms:
            if time.perf_counter() < stop:
                learner.update(arm, arm, float(rewards[arm]))
    return list(arms)


def regret(problem: Problem, arms: list[int]) -> float:
    """Return Σ_t (best mean − mean of the arm chosen), over the first steps of the problem."""
    means = problem.means[: len(arms)]
    return float(np.sum(means.max(axis=1) - means[np.arange(len(arms)), arms]))
