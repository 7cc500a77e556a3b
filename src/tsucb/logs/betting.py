"""A confidence bound for the mean of bounded terms, valid for every number of terms."""

import math

import numpy as np

from tsucb.numeric.arrays import Floats

ERROR = 0.025  # probability that a bound does not hold
STEPS = 40  # halvings of the interval in which the bound is searched


def betting_bound(terms: Floats, least: float, variance: float) -> float:
    """Return a lower bound of the mean of the terms, wrong in at most 2.5 of 100 cases.

    A gambler who starts with 1 and bets λ on every term being above m has Π (1 + λ (term − m)).
    If the mean is m or less, that reaches 40 with probability 1/40 at most, however the terms are
    distributed; so every m for which it reaches 40 is excluded. The gambler splits the money over
    four λ.

    Parameters
    ----------
    terms
        (n,) The bound is about the average of their means, each given the earlier terms.
    least
        No term can be below this number.
    variance
        A guess at the variance of a term, made without looking at the terms. The bound then holds
        whatever the guess, and is sharpest if the variance is between it and a thousandth of it.

    Reference: Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by
    betting".

    >>> clicks = np.repeat([0.0, 1.0], [90, 10])
    >>> round(betting_bound(clicks, 0.0, 0.25), 3), round(-betting_bound(-clicks, -1.0, 0.25), 3)
    (0.031, 0.228)
    """
    goal = math.log(1 / ERROR)
    usual = math.sqrt(2 * goal / (terms.size * variance)) * 3.0 ** np.arange(4)
    low, high = least, float(terms.mean())
    for _ in range(STEPS):
        middle = (low + high) / 2
        if not least < middle < high:
            break
        bets = np.minimum(usual, 0.9 / (middle - least))
        logs = np.array([np.log1p(bet * (terms - middle)).sum() for bet in bets])
        if np.logaddexp.reduce(logs) - math.log(logs.size) >= goal:
            low = middle
        else:
            high = middle
    return low
