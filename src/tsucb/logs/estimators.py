"""What another policy would have earned, from a log that kept the probability of every choice.

The log holds the arm played, its reward and its propensity: the probability with which it was
chosen, which `policy.probabilities(belief)` and `decision.probability` give exactly. The policy to
be evaluated must not have learned from the same log. Both estimators are unbiased whatever the
logging policy learned meanwhile, as long as it could choose what the other policy chooses.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.models.model import Model
from tsucb.numeric.arrays import Floats
from tsucb.statistics import mean_interval


class Estimate(NamedTuple):
    """The estimated mean reward of a policy.

    Parameters
    ----------
    value : the estimate
    error : its standard error
    low, high : its 95 % interval
    effective_size : (Σw)²/Σw² of the importance weights; if small, trust none of the above
    """

    value: float
    error: float
    low: float
    high: float
    effective_size: float


def inverse_propensity(
    arm: ArrayLike, reward: ArrayLike, propensity: ArrayLike, target: ArrayLike
) -> Estimate:
    """The mean of target(arm)/propensity · reward (Horvitz and Thompson 1952).

    Parameters
    ----------
    arm, reward, propensity
        (N,) what was played, what it paid, and the probability with which it was chosen.
    target
        (N, K) the probability with which the policy evaluated would have chosen each arm.

    >>> import numpy as np
    >>> target = np.tile([0.0, 1.0], (4, 1))  # always arm 1
    >>> inverse_propensity([0, 1, 1, 0], [0.0, 1.0, 3.0, 5.0], [0.5, 0.5, 0.5, 0.5], target).value
    2.0
    """
    chances = np.asarray(target, dtype=np.float64)
    return doubly_robust(arm, reward, propensity, chances, np.zeros(chances.shape))


def doubly_robust(
    arm: ArrayLike,
    reward: ArrayLike,
    propensity: ArrayLike,
    target: ArrayLike,
    predicted: ArrayLike,
) -> Estimate:
    """The reward predicted for the policy, corrected by the weighted errors of the prediction.

    The mean of Σₐ target(a) predicted(a) + target(arm)/propensity · (reward − predicted(arm)).
    Unbiased whatever is predicted; the better the prediction, the narrower the interval. Like the
    policy, the prediction must not come from the same log.

    Parameters
    ----------
    arm, reward, propensity, target
        As for `inverse_propensity`.
    predicted
        (N, K) a guess at the mean reward of every arm, such as the mean of a model's belief.

    Reference: Dudík, Langford and Li (2011), "Doubly robust policy evaluation and learning".
    """
    played = np.asarray(arm, dtype=np.int64)
    rewards, chosen, chances, guess = (
        np.asarray(values, dtype=np.float64) for values in (reward, propensity, target, predicted)
    )
    n = played.size
    if chances.ndim != 2 or len(chances) != n or guess.shape != chances.shape:
        raise ValueError(
            f"target and predicted must be matrices with one row for each of {n} events, but "
            f"their shapes are {chances.shape} and {guess.shape}"
        )
    if played.shape != (n,) or rewards.shape != (n,) or chosen.shape != (n,) or n < 2:
        raise ValueError(
            "arm, reward and propensity must be vectors of one length, at least 2, but their "
            f"shapes are {played.shape}, {rewards.shape} and {chosen.shape}"
        )
    if not ((chosen > 0) & (chosen <= 1)).all():
        raise ValueError("every propensity must be above 0 and at most 1")
    if played.min() < 0 or played.max() >= chances.shape[1]:
        raise ValueError(f"arm must lie between 0 and {chances.shape[1] - 1}")
    rows = np.arange(n)
    weight = chances[rows, played] / chosen
    terms = (chances * guess).sum(axis=1) + weight * (rewards - guess[rows, played])
    squares = float((weight**2).sum())
    size = float(weight.sum()) ** 2 / squares if squares > 0 else 0.0
    return Estimate(*mean_interval(terms), size)


def target_probabilities(
    policy: Any, model: Model, state: Any, contexts: ArrayLike, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """What a policy would choose at every context of a log, and the rewards its model predicts.

    Parameters
    ----------
    policy
        The policy to evaluate.
    model, state
        What it knows, and keeps: the state is not updated.
    contexts
        (N, …) the contexts of the log.
    rng
        For models that draw part of their belief, such as `NIGLinear`.

    Returns
    -------
    target, predicted
        (N, K) each, for `doubly_robust`.
    """
    beliefs = [model.belief(state, context, rng=rng) for context in np.asarray(contexts)]
    target = np.array([policy.probabilities(belief) for belief in beliefs])
    return target, np.array([belief.mean for belief in beliefs])
