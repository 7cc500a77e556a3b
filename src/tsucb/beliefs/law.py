"""What a law of the arms' mean rewards can be asked for: the hooks that its file implements.

| hook | gives | needed by |
|---|---|---|
| `draw` | one draw of every arm's mean reward | everything that samples |
| `upper_quantiles` | what each arm exceeds with a given probability | `BayesUCB` |
| `expected_best`, `best_probabilities`, `regret_and_gain` | integrals | exact TS-UCB, TS, IDS |

Only `draw` must be there; a policy that asks for more falls back to sampling where a law does not
offer it (`tsucb.compiler.offers` tells). A law of *independent* arms that derives from
`IndependentLaw` gets all three integrals, from four more hooks that describe one arm at a time.
With u a variable in which the laws of single arms are smooth (the reward itself for normals, its
logit for Betas, its logarithm for gammas):

| hook | gives |
|---|---|
| `window` | where u lies but for negligible chance, and the scale of its law |
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
    """A joint law of the arms' mean rewards: what `draw` draws from."""

    def is_coarse(self, belief: Any) -> bool:
        """Return whether floats are too coarse for the law: draws of several arms may be equal.

        Then choices depend on how ties between them are broken, which no integral sees.
        """
        return False

    def smoothness(self) -> float:
        """Return the power of the distance from its end with which the law of the best begins.

        1 for a density that jumps, less where it is infinite, ∞ where it vanishes smoothly.
        """
        return math.inf


class IndependentLaw(Law):
    """A law under which the arms' mean rewards are independent, each with a density."""


class LogitLaw(IndependentLaw):
    """A law of independent probabilities, whose integrals are over the logit."""


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
