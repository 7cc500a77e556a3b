"""The hooks that describe a law of the arms' mean rewards; each law implements them in its file.

| hook | gives | needed by |
|---|---|---|
| `draw` | one draw of every arm's mean reward | everything that samples |
| `upper_quantiles` | the value that each arm exceeds with a given probability | `BayesUCB` |
| `expected_best`, `best_probabilities`, `regret_and_gain` | integrals | exact TS-UCB, TS, IDS |

Only `draw` is required; where a law lacks another hook (see `tsucb.compiler.offers`), policies
sample instead. A law of *independent* arms that derives from `IndependentLaw` gets all three
integrals from four more hooks, which describe one arm at a time. They are in terms of a variable u
in which the laws of single arms are smooth: the reward itself for normals, its logit for Betas, its
logarithm for gammas.

| hook | gives |
|---|---|
| `window` | the ends beyond which u lies with negligible chance only, and the scale of its law |
| `distribution` | distribution function and density of u |
| `reward_at`, `variable_at` | the reward x at u and dx/du; the u at x |
"""

import math
from typing import Any

import numpy as np

from tsucb.compiler import hook, implements
from tsucb.numeric.arrays import Floats
from tsucb.record import Record


class Law(Record):
    """The joint law of the arms' mean rewards, from which `draw` draws."""

    def is_coarse(self, belief: Any) -> bool:
        """Return whether floats are too coarse for this law, so that draws of arms may be equal.

        Choices then depend on how ties are broken, which integrals do not know.
        """
        return False

    def smoothness(self) -> float:
        """Return the power of the distance to an end of its range with which the best's law starts.

        1 for a density that jumps there, less for one that is infinite, ∞ for one that vanishes
        smoothly.
        """
        return math.inf


class IndependentLaw(Law):
    """A law under which the arms' mean rewards are independent, each with a density."""


class LogitLaw(IndependentLaw):
    """A law of independent probabilities; u is the logit."""


@hook
def draw(belief: Any, rng: np.random.Generator, out: Floats) -> None:
    """Fill `out` with one draw of every arm's mean reward."""


@hook
def upper_quantiles(belief: Any, tail: float, out: Floats) -> None:
    """Fill `out` with the value that each arm's mean reward exceeds with probability `tail`."""


@hook
def window(belief: Any, arm: int) -> tuple[float, float, float]:
    """Return the ends of the arm's window, outside which u is negligible, and the scale of u."""


@hook
def distribution(belief: Any, arm: int, u: float) -> tuple[float, float]:
    """Return the arm's distribution function and density at u, inside its window."""


@hook
def reward_at(belief: Any, u: float) -> tuple[float, float]:
    """Return the reward x at u, and dx/du."""


@hook
def variable_at(belief: Any, x: float) -> float:
    """Return the u at which the reward is x."""


@implements(reward_at, LogitLaw)
def probability_at_logit(belief, u):  # type: ignore[no-untyped-def]
    x, y = 1.0 / (1.0 + math.exp(-u)), 1.0 / (1.0 + math.exp(u))
    return x, x * y


@implements(variable_at, LogitLaw)
def logit_at(belief, x):  # type: ignore[no-untyped-def]
    return math.log(x / (1.0 - x))
