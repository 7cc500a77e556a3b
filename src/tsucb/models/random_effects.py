"""Arms without context, whose mean rewards are draws from an unknown law.

Arm k's rewards have the mean μₖ. The μₖ are draws with mean m and a variance that is worth n₀
rewards. For rewards whose variance is a quadratic function v of their mean (normal rewards of equal
noise, clicks, counts), the conjugate prior gives, for any n₀ (Morris 1983),

    E[μₖ] = (Σ y + n₀ m) / (nₖ + n₀),        Var[μₖ] = φ v(E[μₖ]) / (nₖ + n₀)

where φ v(m) is the variance of a reward of an arm with mean m. The average of an arm's nₖ rewards
has mean m and variance φ v(m)/wₖ, 1/wₖ = 1/nₖ + 1/n₀: a one-way analysis of variance with random
effects. m has the flat prior and φ a weak one; both are integrated out, so that Student's law
replaces the normal one. n₀ takes the values of a grid, weighted by their likelihood and by a prior
of the arms' spread with a heavy tail, as Gelman (2006) advises. So an arm's variance includes the
uncertainty about level, noise and spread, which matters most while rewards are few.

The belief is normal, with these means and variances. As the posteriors of clicks and counts are
skewed, v is evaluated half a standard deviation above the mean, which reaches the upper quantiles
of a gamma law, and is at least v(m), so that an arm with few clicks is not given up too early.

References: Morris (1983), "Natural exponential families with quadratic variance functions:
statistical theory"; Gelman (2006), "Prior distributions for variance parameters in hierarchical
models".
"""

from typing import NamedTuple

import numpy as np

from tsucb.compiler import shared
from tsucb.numeric.arrays import Floats

GRID = 3.0 ** np.arange(-13, 10)  # (m − low)² / Var μₖ, which is n₀ (m − low)² / (φ v(m))
PRIOR = 0.5 * np.log(GRID) - 1.5 * np.log1p(GRID)  # logarithm of their prior
WORTH = 2.0  # rewards that the guess of the noise is worth
NOISE = 0.5  # that guess, as a share of the variance of all rewards
RARE = 0.5  # share of rewards above the lowest up to which they count as mostly zero
NORMAL, TAIL, CLICKS = 0.0, 1.0, 2.0


class RewardShape(NamedTuple):
    """The kind of rewards: v(mean) is 1, mean − low, or (mean − low)(high − mean).

    These are the kinds NORMAL, TAIL and CLICKS. TAIL is for rewards most of which are the lowest,
    such as revenue and rare counts; CLICKS is for rewards with two values.
    """

    kind: float
    low: float
    high: float


class Effects(NamedTuple):
    """The posterior of K arms, as if all had the noise of an arm whose mean is `level`."""

    mean: Floats  # (K,)
    variance: Floats  # (K,)
    level: float  # the mean over arms, whatever the number of their rewards
    noise: float  # φ v(level)
    worth: float  # n₀


def shape_of(low: float, high: float, mixed: bool, share: float) -> RewardShape:
    """Return the shape of rewards from `low` to `high`.

    They are `mixed` if they have a third value; `share` is the share of rewards above `low`.
    """
    if not mixed:
        return RewardShape(CLICKS, low, high)
    return RewardShape(TAIL if share <= RARE else NORMAL, low, high)


@shared
def relative_variance(kind, low, high, mean, level):  # type: ignore[no-untyped-def]
    """Return v(mean) / v(level), at least 1."""
    if kind == NORMAL or not low < level < high:
        return 1.0
    ratio = (mean - low) / (level - low)
    if kind == CLICKS:
        ratio *= (high - mean) / (high - level)
    return max(ratio, 1.0)


def effects(
    count: Floats, total: Floats, square: Floats, shape: RewardShape, above: float
) -> Effects:
    """Return the posterior of the arms, given each arm's number of rewards, Σ y and Σ y².

    `above` is the number of rewards above the lowest, of all arms.
    """
    tried, number = count > 0, count.sum()
    n, y = count[tried], total[tried] / count[tried]
    within = np.maximum(square[tried] - total[tried] * y, 0.0).sum()
    spread = (square.sum() - total.sum() ** 2 / number) / number
    spread = max(spread, 1e-14 * square.sum() / number)
    level = float(n / (n + 1.0) @ y / (n / (n + 1.0)).sum())
    unit = 1.0
    if shape.kind != NORMAL:  # scale variances to an arm with the common mean
        means = (total[tried] + level) / (n + 1.0)
        each = [relative_variance(*shape, mean, level) for mean in means]
        within, spread = (x * number / float(n @ each) for x in (within, spread))
        least = level - shape.low
        least = min(least, shape.high - level) if shape.kind == CLICKS else least
        unit = min(max(least**2 / spread, 1e-12), 1.0)
    worth = GRID[:, None] / unit
    weight = n * worth / (worth + n)
    whole = weight.sum(axis=1, keepdims=True)
    levels = weight @ y[:, None] / whole
    error = (weight * (y - levels) ** 2).sum(axis=1, keepdims=True)
    error += within + WORTH * NOISE * spread
    freedom = number - 1.0 + WORTH
    chance = np.log(worth / (worth + n)).sum(axis=1) - (np.log(whole) + freedom * np.log(error)).T
    chance = np.exp(0.5 * (chance - chance.max()) + PRIOR).ravel()
    chance /= chance.sum()
    noise = error / max(freedom - 2.0, 1.0)
    if shape.kind == TAIL:  # only rewards above the lowest tell how large amounts are
        noise *= 1.0 + WORTH / max(above, 1.0)
    means = (total + worth * levels) / (count + worth)
    variances = noise * (1.0 + (worth / whole) * worth / (count + worth)) / (count + worth)
    mean = chance @ means
    return Effects(
        mean=mean,
        variance=chance @ (variances + (means - mean) ** 2),
        level=level,
        noise=float(chance @ noise[:, 0]),
        worth=float(np.exp(chance @ np.log(worth[:, 0]))),
    )
