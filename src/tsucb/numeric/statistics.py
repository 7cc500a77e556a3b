"""Means with intervals, for all tables and reports."""

import math

import numpy as np

from tsucb.numeric.arrays import Floats

NORMAL = 1.959963984540054  # 97.5 % quantile: half the width of a 95 % interval


def mean_interval(values: Floats) -> tuple[float, float, float, float]:
    """Return the mean, its standard error, and the ends of the mean's 95 % interval (Student's t).

    >>> [round(x, 2) for x in mean_interval(np.array([1.0, 2.0, 3.0]))]
    [2.0, 0.58, -0.48, 4.48]
    """
    from scipy.stats import t

    mean = float(np.mean(values))
    if values.size < 2:
        return mean, np.nan, np.nan, np.nan
    error = float(np.std(values, ddof=1) / np.sqrt(values.size))
    width = float(t.ppf(0.975, values.size - 1)) * error
    return mean, error, mean - width, mean + width


def rate_interval(rewards: Floats) -> tuple[float, float, float, float]:
    """Return mean, standard error and 95 % interval of rewards; Wilson's if all are 0 or 1.

    >>> [round(x, 3) for x in rate_interval(np.array([0.0, 0.0, 0.0, 1.0]))]
    [0.25, 0.217, 0.046, 0.699]
    """
    if not np.isin(rewards, (0.0, 1.0)).all():
        return mean_interval(rewards)
    n, p, z = rewards.size, float(rewards.mean()), NORMAL
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    width = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return p, math.sqrt(p * (1 - p) / n), middle - width, middle + width


def percent_of(regret: Floats, baseline: Floats) -> Floats:
    """Return the regret as a percentage of the baseline's, run by run; NaN where that is zero.

    >>> percent_of(np.array([1.0, 1.0]), np.array([2.0, 0.0]))
    array([50., nan])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(baseline > 0, 100 * regret / baseline, np.nan)
