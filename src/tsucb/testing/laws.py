"""The check of a law: its quantiles, densities and integrals must agree with draws from it."""

from typing import Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.best import best_probabilities, expected_best, regret_and_gain
from tsucb.beliefs.law import (
    IndependentLaw,
    Law,
    distribution,
    draw,
    reward_at,
    upper_quantiles,
    variable_at,
    window,
)
from tsucb.compiler import offers
from tsucb.numeric.arrays import Floats
from tsucb.testing.demands import FAR, check, demand, near, rounded

TAILS = (0.5, 0.2, 0.02)


@check
def check_law(belief: Belief, draws: int = 20_000) -> None:
    """Check the law of a belief, by an example of a belief with several arms.

    1. `draw` is implemented; it gives finite numbers, the same ones for the same stream.
    2. The draws have the belief's mean and std.
    3. `upper_quantiles`, if the law offers them, are exceeded with the probability asked for.
    4. For an `IndependentLaw`: draws of different arms are uncorrelated; `distribution`, `window`,
       `reward_at` and `variable_at` describe one arm's draws.
    5. `expected_best`, `best_probabilities` and `regret_and_gain`, if the law offers them, agree
       with averages over the draws.

    Parameters
    ----------
    belief
        About two arms or more, with finite mean and std.
    draws
        Number of draws. Each of some fifty numbers may be 5 standard errors away, so a correct law
        fails about once in 30,000 seeds; the seed is fixed.

    >>> import tsucb
    >>> check_law(tsucb.BetaBelief(alpha=[1.0, 3.0], beta=[2.0, 2.0]))
    """
    law = type(belief.law)
    name = law.__name__
    demand(
        isinstance(belief, Belief) and isinstance(belief.law, Law),
        f"check_law takes a tsucb.Belief with a law that derives from Law, not {belief!r}",
    )
    demand(belief.mean.size > 1, "check_law needs a belief about two arms or more")
    sample, again = draws_from(belief, draws), draws_from(belief, 10)
    demand(np.isfinite(sample).all(), f"draw of {name} gives numbers that are not finite")
    demand(
        np.array_equal(sample[:10], again),
        f"draw of {name} gives other numbers for the same stream; take all randomness from rng",
    )
    check_moments(belief, sample, name)
    if offers(upper_quantiles, law):
        check_quantiles(belief, sample, name)
    if issubclass(law, IndependentLaw):
        check_independent(belief, sample, name)
    if offers(expected_best, law):
        best = sample.max(axis=1)
        found = expected_best(belief)
        demand(
            near(best.mean(), found, best.std(), draws),
            f"expected_best of {name} is {found:.5g}, but draws give {best.mean():.5g}",
        )
    if offers(best_probabilities, law):
        chance, frequency = best_probabilities(belief), wins(sample).mean(axis=0)
        demand(
            abs(chance.sum() - 1) < 1e-9 and (chance >= 0).all(),
            f"best_probabilities of {name} are {rounded(chance)}, which do not sum to one",
        )
        demand(
            near(frequency, chance, np.sqrt(chance * (1 - chance)) + 1 / np.sqrt(draws), draws),
            f"best_probabilities of {name} are {rounded(chance)}, but draws give "
            f"{rounded(frequency)}",
        )
    if offers(regret_and_gain, law):
        check_regret_and_gain(belief, sample, name)


def draws_from(belief: Belief, count: int) -> Floats:
    """Return draws (count, n), always from the same stream."""
    rng, out = np.random.default_rng(1), np.empty((count, belief.mean.size))
    for row in out:
        draw(belief, rng, row)
    return out


def wins(sample: Floats) -> Floats:
    """Return a matrix (S, n): 1 for the best arm of each draw, in equal shares where arms tie."""
    best = sample == sample.max(axis=1, keepdims=True)
    shares: Floats = best / best.sum(axis=1, keepdims=True)
    return shares


def check_moments(belief: Belief, sample: Floats, name: str) -> None:
    """Check mean and standard deviation."""
    mean, std, count = belief.mean, belief.std, len(sample)
    demand(
        near(sample.mean(axis=0), mean, std, count),
        f"the belief's mean is {rounded(mean)}, but draws of {name} average "
        f"{rounded(sample.mean(axis=0))}",
    )
    squares = (sample - mean) ** 2
    demand(
        near(squares.mean(axis=0), std**2, squares.std(axis=0), count),
        f"the belief's std is {rounded(std)}, but that of draws of {name} is "
        f"{rounded(np.sqrt(squares.mean(axis=0)))}",
    )


def check_quantiles(belief: Belief, sample: Floats, name: str) -> None:
    """Check that quantiles are exceeded with their probability, as closely as atoms allow."""
    out = np.empty(belief.mean.size)
    for tail in TAILS:
        upper_quantiles(belief, tail, out)
        above, at_least = (sample > out).mean(axis=0), (sample >= out).mean(axis=0)
        slack = FAR * np.sqrt(tail * (1 - tail) / len(sample)) + FAR / len(sample)
        demand(
            (above <= tail + slack).all() and (at_least >= tail - slack).all(),
            f"upper_quantiles of {name} at {tail} are exceeded by shares {rounded(above)} of the "
            "draws",
        )


def check_independent(belief: Belief, sample: Floats, name: str) -> None:
    """Check the hooks that describe one arm at a time."""
    count = len(sample)
    correlation = np.corrcoef(sample.T) - np.eye(sample.shape[1])
    demand(
        (np.abs(correlation) <= FAR / np.sqrt(count)).all(),
        f"the arms' draws are correlated, by up to {np.abs(correlation).max():.3f}; let {name} "
        "derive from Law instead of IndependentLaw",
    )
    for arm in range(belief.mean.size):
        values = sample[:, arm]
        low, high, scale = window(belief, arm)
        us = np.array([variable_at(belief, x) for x in np.quantile(values, [0.001, 0.999])])
        demand(
            low <= us[0] and us[1] <= high and scale > 0,
            f"window of {name} is ({low:.4g}, {high:.4g}) with scale {scale:.4g}, but u lies "
            f"in ({us[0]:.4g}, {us[1]:.4g}); it must contain these, with a positive scale",
        )
        for x in np.quantile(values, [0.1, 0.5, 0.9]):
            check_distribution(belief, arm, float(x), values, name)


def check_distribution(belief: Belief, arm: int, x: float, values: Floats, name: str) -> None:
    """Check distribution function, density and change of variables at one point."""
    u = variable_at(belief, x)
    reward, slope = reward_at(belief, u)
    step = 1e-4 * window(belief, arm)[2]
    rise = (reward_at(belief, u + step)[0] - reward_at(belief, u - step)[0]) / (2 * step)
    demand(
        abs(reward - x) <= 1e-9 * (1 + abs(x)),
        f"reward_at of {name} gives {reward:.6g} at the u that variable_at gives for {x:.6g}",
    )
    demand(
        abs(rise - slope) <= 1e-4 * abs(slope),
        f"reward_at of {name} says that dx/du is {slope:.6g}, but it rises by {rise:.6g}",
    )
    cdf, density = distribution(belief, arm, u)
    below = values <= x
    demand(
        near(below.mean(), cdf, np.sqrt(cdf * (1 - cdf)), values.size),
        f"distribution of {name} gives {cdf:.4f} where a share of {below.mean():.4f} of the draws "
        "is below",
    )
    around = (distribution(belief, arm, u + side * step)[0] for side in (1, -1))
    growth = (next(around) - next(around)) / (2 * step)
    demand(
        abs(growth - density) <= 1e-3 * density,
        f"distribution of {name} gives the density {density:.6g} of u, but its distribution "
        f"function rises by {growth:.6g}",
    )


def check_regret_and_gain(belief: Belief, sample: Floats, name: str) -> None:
    """Check regrets and gains against draws."""
    regret, gain = regret_and_gain(belief)
    best, count = sample.max(axis=1), len(sample)
    demand(
        near(best.mean() - belief.mean, regret, best.std(), count),
        f"regret_and_gain of {name} gives the regrets {rounded(regret)}, but draws give "
        f"{rounded(best.mean() - belief.mean)}",
    )
    winner = sample.argmax(axis=1)
    away: Any = np.zeros_like(belief.mean[None] * belief.mean[:, None])
    for b in np.unique(winner):
        away[b] = sample[winner == b].mean(axis=0) - belief.mean
    # To first order, the estimate from draws is the average of these.
    terms = 2 * away[winner] * (sample - belief.mean) - away[winner] ** 2
    bias = np.unique(winner).size * belief.std**2 / count
    slack = FAR * (terms.std(axis=0) / np.sqrt(count) + bias)
    demand(
        (np.abs(terms.mean(axis=0) - gain) <= slack + 1e-12).all(),
        f"regret_and_gain of {name} gives the gains {rounded(gain)}, but draws give "
        f"{rounded(terms.mean(axis=0))}",
    )
