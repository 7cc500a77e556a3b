"""How often an interval of a belief contains the truth, and by how much.

    python benchmarks/intervals.py docs/results/intervals.csv

Arms are played uniformly at random, or by the agent's default policy. At t = 20, 100, 1,000 and
10,000 rewards, the 90 % intervals of the arms' mean rewards (at five contexts, where there are
contexts) are compared with the truth. Worlds, with one standard normal e per arm and one slope per
arm and feature:

| rewards | mean of arm k at x | reward |
|---|---|---|
| normal | 5 + s·e + slope·x, s = 0.1, 0.3 or 1 in turn | N(mean, 1) |
| clicks r | r · exp(e/2 + slope·x) | 1 with this probability, or 0 |
| revenue | 3 % · exp(e/2 + slope·x) sales | a sale pays a lognormal amount of mean 30 |
| counts | 2 · exp(0.3·e + slope·x) | Poisson |

Slopes are N(0, 1/d) for normal rewards and N(0, 0.09/d) for the others, which are not linear in x.
"""

from typing import Any

import numpy as np

from tsucb.beliefs.law import upper_quantiles

KINDS = ("normal", "clicks 0.1 %", "clicks 0.3 %", "clicks 1 %", "clicks 5 %", "revenue", "counts")
TIMES = (20, 100, 1_000, 10_000)
RUNS = {2: 150, 10: 45, 50: 20}
CONTEXTS = 5  # at which intervals are compared


class World:
    """Arms of one of the kinds, with d features."""

    def __init__(self, kind: str, arms: int, features: int, run: int) -> None:
        self.kind, self.rng = kind, np.random.default_rng((run, arms, features, KINDS.index(kind)))
        self.own = self.rng.normal(size=arms)
        spread = 1.0 if kind == "normal" else 0.3
        self.slopes = spread * self.rng.normal(size=(features, arms)) / np.sqrt(max(features, 1))
        self.spread = (0.1, 0.3, 1.0)[run % 3]

    def means(self, x: np.ndarray) -> np.ndarray:
        """Return the means (N, K) at contexts (N, d)."""
        slope = x @ self.slopes
        if self.kind == "normal":
            return 5 + self.spread * self.own + slope
        if self.kind == "counts":
            return 2 * np.exp(0.3 * self.own + slope)
        rate = 0.03 if self.kind == "revenue" else float(self.kind.split()[1]) / 100
        rates = np.minimum(rate * np.exp(self.own / 2 + slope), 1.0)
        return 30 * rates if self.kind == "revenue" else rates

    def rewards(self, means: np.ndarray) -> np.ndarray:
        """Return a reward for each mean."""
        if self.kind == "normal":
            return means + self.rng.normal(size=means.shape)
        if self.kind == "counts":
            return self.rng.poisson(means).astype(float)
        if self.kind == "revenue":
            sold = self.rng.random(means.shape) < means / 30
            return sold * 30 * np.exp(self.rng.normal(size=means.shape) - 0.5)
        return (self.rng.random(means.shape) < means).astype(float)


def covered(model: Any, state: Any, world: World, x: np.ndarray) -> np.ndarray:
    """Return (contexts, arms, 2): whether intervals contain the truth, and where it lies in them.

    The place is the truth's distance from the belief's mean in standard deviations.
    """
    truth = world.means(x)
    out = np.empty((*truth.shape, 2))
    lower, upper = np.empty((2, truth.shape[1]))
    for i, row in enumerate(x):
        belief = model.belief(state, row if row.size else None, rng=world.rng)
        upper_quantiles(belief, 0.05, upper)
        upper_quantiles(belief, 0.95, lower)
        out[i, :, 0] = (lower <= truth[i]) & (truth[i] <= upper)
        out[i, :, 1] = (truth[i] - belief.mean) / belief.std
    return out


def uniform(model: Any, kind: str, arms: int, features: int, runs: int, times: Any) -> list[Any]:
    """Return rows (t, share covered, its standard error over runs) under uniform play."""
    found = np.empty((runs, len(times)))
    for run in range(runs):
        world = World(kind, arms, features, run)
        state, done = model.start(arms), 0
        at = world.rng.normal(size=(CONTEXTS if features else 1, features))
        for i, t in enumerate(times):
            x = world.rng.normal(size=(t - done, features))
            pulled = world.rng.integers(arms, size=t - done)
            means = world.means(x)[np.arange(t - done), pulled]
            model.update(state, x if features else None, pulled, world.rewards(means))
            found[run, i] = covered(model, state, world, at)[:, :, 0].mean()
            done = t
    error = found.std(axis=0, ddof=1) / np.sqrt(runs)
    return list(zip(times, found.mean(axis=0), error, strict=True))
