"""Live decisions on a set of arms: which price, which dose, which mixture next."""

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.checks import within
from tsucb.compiler import compiled, held
from tsucb.files import write_whole
from tsucb.models.model import update
from tsucb.numeric.arrays import Floats
from tsucb.policies.greedy import Greedy
from tsucb.policies.ts_ucb import TSUCB
from tsucb.sets.arm_set import ArmSet, features
from tsucb.sets.bandit import check_model, check_policy, check_set
from tsucb.sets.curve import Curve
from tsucb.sets.rules import pick, theta
from tsucb.structure import Arrays, pack, unpack

FORMAT = "tsucb set agent 1"


class SetAgent:
    """Chooses points of a set and learns from their rewards, which may come late or never.

    Parameters
    ----------
    arms
        The set: `Polynomial` or `Spline` for a number, else a set of vectors.
    model
        With one θ for all arms, as `arms.model(noise=…)` of a curve makes it, or `tsucb.Linear`.
    policy
        `TSUCB(10)` by default.
    seed
        For decisions that can be repeated.

    >>> from tsucb.sets import Polynomial, SetAgent
    >>> prices = Polynomial(low=5, high=20, degree=3)
    >>> agent = SetAgent(prices, prices.model(noise=4.0, level=10.0, spread=5.0), seed=1)
    >>> for customer in range(500):
    ...     price = agent.choose()
    ...     agent.reward(price, 0.1 * price * (20 - price))
    >>> 9 < agent.best() < 11
    True
    """

    def __init__(
        self, arms: ArmSet, model: Any, policy: Any = None, *, seed: int | None = None
    ) -> None:
        check_model(model, check_set(arms))
        self.arms, self.model = arms, model
        self.policy = check_policy(TSUCB(10) if policy is None else policy)
        self.state = model.start(1)
        self.rewards = 0
        self._rng = np.random.default_rng(seed)

    def choose(self) -> Any:
        """The next arm: a number on a curve, a vector of the set otherwise."""
        point = np.empty(self.arms.coordinates)
        step = self.rewards + 1
        decide(self.policy, self.arms, self.model, self.state, step, held(self._rng), point)
        return float(point[0]) if isinstance(self.arms, Curve) else point

    def reward(self, arm: ArrayLike, reward: float) -> None:
        """Learn what an arm paid, whether it was chosen here or elsewhere."""
        point = self._checked(arm)
        [value] = self.model.check_rewards(np.array([reward], dtype=np.float64))
        row = np.empty((1, self.arms.dimension))
        learn(self.arms, self.model, self.state, point, row, float(value))
        self.rewards += 1

    def best(self) -> Any:
        """The arm with the largest expected reward, without any exploration."""
        point = np.empty(self.arms.coordinates)
        given = Greedy(), self.arms, self.model, self.state, 1, held(np.random.default_rng(0))
        decide(*given, point)
        return float(point[0]) if isinstance(self.arms, Curve) else point

    def predict(self, points: ArrayLike) -> tuple[Floats, Floats]:
        """Expected reward and its standard deviation, at numbers or rows (n,) each."""
        given = [self._checked(point) for point in np.atleast_1d(np.asarray(points))]
        rows = np.array(given).reshape(len(given), self.arms.coordinates)
        if isinstance(self.arms, Curve):
            rows = self.arms.features_of(rows[:, 0])
        mean, root = self.state.theta.mean[0], self.state.theta.root[0]
        return rows @ mean, np.sqrt(((rows @ root) ** 2).sum(axis=1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned, and where the random stream is, to a file."""
        arrays: Arrays = []
        settings = [pack(part, arrays) for part in (self.arms.settings, tuple(self.model))]
        saved = {
            "format": FORMAT,
            "classes": [type(self.arms).__name__, type(self.model).__name__],
            "settings": settings,
            "state": pack(self.state, arrays),
            "rewards": self.rewards,
            "random": self._rng.bit_generator.state,
        }
        file = io.BytesIO()
        named = {f"array{i}": array for i, array in enumerate(arrays)}
        np.savez(file, saved=np.array(json.dumps(saved)), **named)  # type: ignore[arg-type]
        write_whole(path, file.getvalue())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], arms: ArmSet, model: Any, policy: Any = None
    ) -> "SetAgent":
        """The agent of a file, which must have been saved with the same set and model."""
        agent = cls(arms, model, policy)
        try:
            with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
                saved = json.loads(str(file["saved"]))
                arrays = [file[f"array{i}"] for i in range(len(file.files) - 1)]
            if saved["format"] != FORMAT:
                raise ValueError("another format")
            same = saved["classes"] == [type(arms).__name__, type(model).__name__] and all(
                _equal(unpack(packed, arrays, mine), mine)
                for packed, mine in zip(
                    saved["settings"], (arms.settings, tuple(model)), strict=True
                )
            )
            state = unpack(saved["state"], arrays, agent.state)
            rewards = int(saved["rewards"])
            model.check_state(state, rewards)
            agent._rng.bit_generator.state = saved["random"]
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is not a file of this agent, or damaged: {error}") from error
        if not same:
            raise ValueError(f"{path} was saved with another set or model; give the same")
        agent.state, agent.rewards = state, rewards
        return agent

    def _checked(self, arm: ArrayLike) -> Floats:
        """The arm as a point, or a sentence on what is wrong with it."""
        point = np.atleast_1d(np.asarray(arm, dtype=np.float64))
        size = self.arms.coordinates
        if point.shape != (size,) or not within(point):
            what = "a finite number" if size == 1 else f"{size} finite numbers"
            raise ValueError(f"an arm of {type(self.arms).__name__} is {what}, not {arm!r}")
        if isinstance(self.arms, Curve) and not self.arms.low <= point[0] <= self.arms.high:
            raise ValueError(f"{point[0]:g} is not from {self.arms.low:g} to {self.arms.high:g}")
        return point


def _equal(first: Any, second: Any) -> bool:
    """Whether two tuples of numbers and arrays are the same."""
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@compiled
def decide(policy, arms, model, state, step, stream, point):  # type: ignore[no-untyped-def]
    """Put the arm to play into `point`."""
    return pick(policy, arms, theta(model, state, step), stream.rng, point)


@compiled
def learn(arms, model, state, point, row, reward):  # type: ignore[no-untyped-def]
    """Learn from one reward."""
    features(arms, point, row[0])
    update(model, state, row, 0, reward)
