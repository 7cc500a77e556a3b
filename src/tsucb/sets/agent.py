"""Live decisions on a set of arms: which price, which dose, which mixture next."""

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.agent import storage
from tsucb.checks import floats, shown, within
from tsucb.compiler import compiled, held
from tsucb.models.linear import Linear
from tsucb.models.model import update
from tsucb.models.structure import Arrays, WrongSettings, pack, pack_object, unpack, unpack_object
from tsucb.numeric.arrays import Floats
from tsucb.policies.greedy import Greedy
from tsucb.policies.thompson import Thompson
from tsucb.policies.ts_ucb import TSUCB
from tsucb.policies.ucb import OFUL, BayesUCB, ChiSquaredUCB
from tsucb.sets.arm_set import ArmSet, features
from tsucb.sets.ball import Ball, Ellipsoid
from tsucb.sets.bandit import check_model, check_policy, check_set
from tsucb.sets.box import Box
from tsucb.sets.curve import Curve, Polynomial, Spline
from tsucb.sets.polytope import Polytope
from tsucb.sets.rules import pick, theta

CLASSES = (
    Ball, Box, Ellipsoid, Polynomial, Polytope, Spline, Linear,
    BayesUCB, ChiSquaredUCB, Greedy, OFUL, Thompson, TSUCB,
)  # fmt: skip


class SetAgent:
    """Chooses points of a set and learns from their rewards, which may come late or never.

    Parameters
    ----------
    arms
        The set: `Polynomial` or `Spline` for a number, else a set of vectors.
    model
        With one θ for all arms: `tsucb.Linear`, or what a curve's `model(noise=…)` returns.
    policy
        `TSUCB(1)` by default.
    seed
        Makes the decisions repeatable.

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
        check_model(model, check_set("arms", arms))
        self.arms, self.model = arms, model
        self.policy = check_policy(TSUCB() if policy is None else policy)
        self.state = model.start(1)
        self.rewards = 0
        self._rng = np.random.default_rng(seed)

    def choose(self) -> Any:
        """Return the next arm: a number on a curve, a vector of the set otherwise."""
        return self._pick(self.policy, self._rng)

    def reward(self, arm: ArrayLike, reward: float) -> None:
        """Learn what an arm paid, whether it was chosen here or elsewhere."""
        point = self._point(arm)
        [value] = self.model.check_rewards(floats("reward", [reward]))
        row = np.empty((1, self.arms.dimension))
        learn(self.arms, self.model, self.state, point, row, float(value))
        self.rewards += 1

    def best(self) -> Any:
        """Return the arm with the largest expected reward, without exploration."""
        return self._pick(Greedy(), np.random.default_rng(0))

    def _pick(self, policy: Any, rng: np.random.Generator) -> Any:
        point = np.empty(self.arms.coordinates)
        decide(policy, self.arms, self.model, self.state, self.rewards + 1, held(rng), point)
        return float(point[0]) if isinstance(self.arms, Curve) else point

    def predict(self, points: ArrayLike) -> tuple[Floats, Floats]:
        """Return expected rewards and standard deviations (n,) at numbers or rows."""
        given = [self._point(point) for point in np.atleast_1d(np.asarray(points))]
        rows = np.array(given).reshape(len(given), self.arms.coordinates)
        if isinstance(self.arms, Curve):
            rows = self.arms.features_of(rows[:, 0])
        mean, root = self.state.theta.mean[0], self.state.theta.root[0]
        return rows @ mean, np.sqrt(((rows @ root) ** 2).sum(axis=1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent with its set, model, policy and random stream to a file."""
        arrays: Arrays = []
        settings = [pack_object(x, arrays) for x in (self.arms, self.model, self.policy)]
        values = {
            "set agent": settings,
            "state": pack(self.state, arrays),
            "rewards": self.rewards,
            "random": self._rng.bit_generator.state,
        }
        storage.write(path, values, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], arms: ArmSet | None = None, model: Any = None,
             policy: Any = None) -> "SetAgent":  # fmt: skip
        """Return the agent of a file.

        Parameters
        ----------
        path
            A file that `save` wrote.
        arms, model, policy
            Those of the file by default; needed only for objects of your own classes.
        """
        values, arrays = storage.read(path)
        given = arms, model, policy
        try:
            agent = cls(
                *(
                    unpack_object(part, arrays, CLASSES, own)
                    for part, own in zip(values["set agent"], given, strict=True)
                )
            )
            agent.state = unpack(values["state"], arrays, agent.state)
            agent.rewards = storage.count_of(values["rewards"])
            agent.model.check_state(agent.state, agent.rewards)
            agent._rng.bit_generator.state = values["random"]
        except WrongSettings as error:
            raise ValueError(f"{path} {error}") from None
        except Exception as error:
            raise ValueError(f"{path} is not a file of this agent, or damaged: {error}") from error
        return agent

    def _point(self, arm: ArrayLike) -> Floats:
        """Return the arm as a point; raise ValueError for another shape or outside the interval."""
        point = np.atleast_1d(floats("an arm", arm))
        size = self.arms.coordinates
        if point.shape != (size,) or not within(point):
            what = "a finite number" if size == 1 else f"{size} finite numbers"
            raise ValueError(f"an arm of {type(self.arms).__name__} is {what}, not {shown(arm)}")
        if isinstance(self.arms, Curve) and not self.arms.low <= point[0] <= self.arms.high:
            raise ValueError(f"{point[0]:g} is not from {self.arms.low:g} to {self.arms.high:g}")
        return point


@compiled
def decide(policy, arms, model, state, step, stream, point):  # type: ignore[no-untyped-def]
    """Put the arm to play into `point`."""
    return pick(policy, arms, theta(model, state, step), stream.rng, point)


@compiled
def learn(arms, model, state, point, row, reward):  # type: ignore[no-untyped-def]
    """Learn from one reward."""
    features(arms, point, row[0])
    update(model, state, row, 0, reward)
