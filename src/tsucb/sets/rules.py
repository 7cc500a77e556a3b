"""How each policy finds its arm in a set, with one of the searches of `tsucb.sets.arm_set`.

| policy | draws of θ | search |
|---|---|---|
| `Thompson` | one | `support` of the draw |
| `TSUCB(m)` | m; f̃ is the average of their supports | `least_ratio` |
| `OFUL`, `ChiSquaredUCB`, `BayesUCB` | none | `optimistic`, each with its own `width` |
| `Greedy` | none | `support` of the mean |

To add a policy, register its search with `implements(pick, YourPolicy)`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from tsucb.beliefs.sampling import STAND_IN
from tsucb.compiler import compiled, hook, implements
from tsucb.models.linear import Linear
from tsucb.numeric.arrays import Floats
from tsucb.numeric.bursts import burst, normal
from tsucb.numeric.special import chi_squared_quantile_upper, normal_quantile_upper
from tsucb.policies.greedy import Greedy
from tsucb.policies.thompson import Thompson
from tsucb.policies.ts_ucb import TSUCB
from tsucb.policies.ucb import OFUL, BayesUCB, ChiSquaredUCB, tail_at
from tsucb.sets.arm_set import least_ratio, optimistic, support


class ThetaBelief(NamedTuple):
    """The posterior of θ before a step, N(mean, root rootᵀ), and what else policies need.

    The arms' intervals are ⟨estimate, a⟩ ± |radiusᵀ a|; `estimate` and `radius` are `mean` and
    `root` unless the model says otherwise. `information`, `step` and `prior_std` are those of a
    `Belief`.
    """

    mean: Floats
    root: Floats
    estimate: Floats
    radius: Floats
    information: float
    step: int
    prior_std: float


@hook
def theta(model: Any, state: Any, step: int) -> ThetaBelief:
    """Return the belief about θ of a model with one θ for all arms."""


@hook
def pick(policy: Any, arms: Any, belief: Any, rng: np.random.Generator, point: Floats) -> float:
    """Put the arm that the policy plays into `point`; return the target, as in `Choice`."""


@hook
def width(policy, belief):  # type: ignore[no-untyped-def]
    """Return α, by how many standard deviations the upper bound exceeds the mean."""


@implements(theta, Linear)
def theta_linear(model, state, step):  # type: ignore[no-untyped-def]
    mean, root = state.theta.mean[0], state.theta.root[0]
    return ThetaBelief(mean, root, mean, root, state.theta.information[0], step, model.prior_std)


@compiled
def draw_theta(belief, state, z, out):  # type: ignore[no-untyped-def]
    """Fill `out` with a draw of θ; return the next state of the random burst."""
    for j in range(z.size):
        z[j], state = normal(state)
    for i in range(out.size):
        total = belief.mean[i]
        for j in range(z.size):
            total += belief.root[i, j] * z[j]
        out[i] = total
    return state


@implements(pick, Greedy)
def pick_greedy(policy, arms, belief, rng, point):  # type: ignore[no-untyped-def]
    return support(arms, belief.mean, point)


@implements(pick, Thompson)
def pick_thompson(policy, arms, belief, rng, point):  # type: ignore[no-untyped-def]
    z, sample = np.empty(belief.root.shape[1]), np.empty(belief.mean.size)
    draw_theta(belief, burst(rng), z, sample)
    return support(arms, sample, point)


@implements(pick, TSUCB)
def pick_ts_ucb(policy, arms, belief, rng, point):  # type: ignore[no-untyped-def]
    samples = STAND_IN if policy.samples == np.inf else int(policy.samples)
    z, sample = np.empty(belief.root.shape[1]), np.empty(belief.mean.size)
    state, total = burst(rng), 0.0
    for _ in range(samples):
        state = draw_theta(belief, state, z, sample)
        total += support(arms, sample, point)
    f = total / samples
    least_ratio(arms, belief.estimate, belief.radius, f, point)
    return f


@implements(pick, OFUL, ChiSquaredUCB, BayesUCB)
def pick_largest_bound(policy, arms, belief, rng, point):  # type: ignore[no-untyped-def]
    return optimistic(arms, belief.mean, belief.root, width(policy, belief), point)


@implements(width, OFUL)
def width_oful(policy, belief):  # type: ignore[no-untyped-def]
    confidence = math.sqrt(belief.information + 2.0 * math.log(1.0 / policy.delta))
    return confidence + policy.norm_bound / belief.prior_std


@implements(width, ChiSquaredUCB)
def width_chi_squared(policy, belief):  # type: ignore[no-untyped-def]
    return math.sqrt(chi_squared_quantile_upper(1.0 / (1.0 + belief.step), belief.mean.size))


@implements(width, BayesUCB)
def width_bayes(policy, belief):  # type: ignore[no-untyped-def]
    return normal_quantile_upper(tail_at(belief.step, policy.c))
