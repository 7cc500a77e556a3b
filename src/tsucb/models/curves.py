"""Random Fourier features of a context: curves that a linear model can use as further features.

With u the standardised context, each feature compressed so that rare large values do not stand for
most of the scale, curve i is

    cᵢ(x) = cos(wᵢᵀu + bᵢ),    uⱼ = asinh((xⱼ − centreⱼ) / spreadⱼ)

A linear function of enough curves is any smooth function of u (Rahimi and Recht 2007). Frequencies
wᵢ are normal, and those of curve i have the i-th of several scales between wide and narrow bends.
They are the same for every model, and those of a feature depend on its column alone, so agents that
were made alike have the same curves.

Sums of curves cannot be standardised again, as sums of features can. So centre and spread are
*frozen* after the first contexts, which are kept until then with their arms and rewards. A feature
that first varies later has no part in the curves.

Reference: Rahimi and Recht (2007), "Random features for large-scale kernel machines".
"""

import math
from typing import Self

import numpy as np

from tsucb.compiler import compiled
from tsucb.models.state import State, array
from tsucb.numeric.arrays import Flags, Floats, Integers

ROWS = 100  # contexts from which centre and spread are taken
WIDEST, NARROWEST = 1.0, 4.0  # scales of the frequencies, for a context of length 1
SEED = 28  # of the frequencies and phases, the same for all
COSINE = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(9))  # of the squared angle
ROUNDING = 1e-14  # a variance below this share of the mean square is rounding


class Curves(State):
    """The first contexts with their arms and rewards, and then the curves made from them."""

    contexts: Floats = array(ROWS, "feature")
    arms: Floats = array(ROWS)
    rewards: Floats = array(ROWS)
    kept: Floats = array(least=0.0, most=ROWS)  # how many of the rows there are
    frozen: Flags = array(dtype=bool)
    centre: Floats = array("feature")
    inverse: Floats = array("feature")  # 1 / spread; 0 for a feature that had not varied
    frequencies: Floats = array("feature", "curve")  # in turns
    phases: Floats = array("curve")

    def select(self, arms: Integers) -> Self:
        """Return the same for some of the arms: the rows of others are dropped."""
        result = self.copy()
        places = {float(arm): float(place) for place, arm in enumerate(arms)}
        n = int(self.kept[0])
        staying = np.array([i for i in range(n) if self.arms[i] in places], dtype=np.int64)
        for rows in (result.contexts, result.arms, result.rewards):
            rows[: staying.size] = rows[staying]
            rows[staying.size :] = 0.0
        result.arms[: staying.size] = [places[arm] for arm in self.arms[staying].tolist()]
        result.kept[0] = staying.size
        return result

    def rows(self, first: int = 0) -> tuple[Floats, Integers, Floats]:
        """Return contexts, arms and rewards of the rows that are kept, from the first given on."""
        n = int(self.kept[0])
        arms = self.arms[first:n].astype(np.int64)
        return self.contexts[first:n].copy(), arms, self.rewards[first:n].copy()

    def freeze(self, contexts: Floats) -> None:
        """Make the curves from these contexts, in place, and drop the rows that are kept.

        A feature points to where it is in the first context, so that its sign does not matter.
        """
        centre = contexts.mean(axis=0)
        variance, square = contexts.var(axis=0), (contexts**2).mean(axis=0)
        varies = variance > ROUNDING * square
        sign = np.where(contexts[0] < centre, -1.0, 1.0)
        self.centre[:] = centre
        self.inverse[:] = np.where(varies, sign / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
        curves = self.phases.size
        turn = 2.0 * np.pi * np.sqrt(max(varies.sum(), 1))
        scales = np.geomspace(WIDEST, NARROWEST, curves) / turn
        for j in np.flatnonzero(varies).tolist():
            normal = np.random.default_rng([SEED, 1, j]).standard_normal(curves)
            self.frequencies[j] = normal * scales
        self.phases[:] = np.random.default_rng([SEED, 0]).uniform(0.0, 1.0, curves)
        self.frozen[0] = True
        for rows in (self.contexts, self.arms, self.rewards, self.kept):
            rows[:] = 0.0

    def wide(self, contexts: Floats) -> Floats:
        """Return contexts, one row each, with their curves behind them."""
        out = np.empty((len(contexts), self.centre.size + self.phases.size))
        add_curves_many(self, np.ascontiguousarray(contexts), out)
        return out


@compiled
def keep_row(curves, context, arm, reward):  # type: ignore[no-untyped-def]
    """Keep a context with its arm and reward, unless there are enough of them."""
    row = int(curves.kept[0])
    if row < curves.arms.size:
        for j in range(context.size):
            curves.contexts[row, j] = context[j]
        curves.arms[row], curves.rewards[row] = arm, reward
        curves.kept[0] += 1.0


@compiled
def with_curves(curves, context):  # type: ignore[no-untyped-def]
    """Return a context with its curves behind it."""
    out = np.empty(context.size + curves.phases.size)
    add_curves(curves, context, out)
    return out


@compiled
def add_curves(curves, context, out):  # type: ignore[no-untyped-def]
    """Write a context, and its curves behind it."""
    d, count = context.size, curves.phases.size
    for i in range(count):
        out[d + i] = curves.phases[i]
    for j in range(d):
        out[j] = context[j]
        if curves.inverse[j] != 0.0:
            u = np.arcsinh((context[j] - curves.centre[j]) * curves.inverse[j])
            for i in range(count):
                out[d + i] += u * curves.frequencies[j, i]
    for i in range(count):
        out[d + i] = cosine(out[d + i])


@compiled
def cosine(turns):  # type: ignore[no-untyped-def]
    """Return the cosine of an angle in turns, to 7 digits: a polynomial, several at a time."""
    s = turns - np.rint(turns)
    x = s * s * (4.0 * np.pi * np.pi)
    series = COSINE[6] + x * (COSINE[7] + x * COSINE[8])
    series = COSINE[3] + x * (COSINE[4] + x * (COSINE[5] + x * series))
    return COSINE[0] + x * (COSINE[1] + x * (COSINE[2] + x * series))


@compiled
def add_curves_many(curves, contexts, out):  # type: ignore[no-untyped-def]
    """Do the same for many contexts, one row each."""
    for row in range(contexts.shape[0]):
        add_curves(curves, contexts[row], out[row])
