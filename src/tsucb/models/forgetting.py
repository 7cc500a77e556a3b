"""Let old rewards count less, without ever losing the prior.

After forgetting with factor γ, a posterior p is replaced by p^γ · prior^(1−γ), normalised. Every
model here is an exponential family, so its natural parameters are averaged with the prior's: an
observation n rewards old weighs γⁿ, and what is never observed again returns to the prior instead
of becoming improper, as it would if its precision were just multiplied by γ.

Reference: Kulhavý and Zarrop (1993), "On a general concept of forgetting".
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tsucb.compiled import generic, implementations, implements, inlined
from tsucb.models.contextual_linear import ContextualLinear
from tsucb.models.k_armed import BernoulliArms, GaussianArms
from tsucb.models.linear import Linear
from tsucb.models.nig_linear import NIGLinear
from tsucb.models.regressions import Lanes, Rows, learn
from tsucb.numeric.arrays import Floats, Integers

# A part that has not been looked at for very long keeps this weight: less cannot be told from the
# prior, and the weight must not become zero.
LEAST_WEIGHT = 1e-9


class Permanent(NamedTuple):
    """A memory in which everything counts the same for ever."""


class Fading(NamedTuple):
    """A memory that forgets: how fast, and when each part of a state last did.

    `factor` is γ, `clock` (1,) the number of rewards so far, and `aged` its value when each part
    last forgot: one entry per arm, or a single one where the arms share their parameters.
    `rows` (d, d) and `targets` (d,) are a linear model's prior as d observations of noise 1.
    """

    factor: float
    clock: Integers
    aged: Integers
    rows: Floats
    targets: Floats


Memory: TypeAlias = Permanent | Fading


def memory(model: Any, factor: float, arms: int) -> Memory:
    """A fresh memory for a model: `Permanent` if the factor is 1."""
    if not 0 < factor <= 1:
        raise ValueError(f"forgetting must lie above 0 and at most be 1, but it is {factor}")
    if factor == 1:
        return Permanent()
    if type(model) not in implementations(forget):
        raise ValueError(
            f"{type(model).__name__} cannot forget; leave forgetting at 1, or use one of "
            + ", ".join(cls.__name__ for cls in implementations(forget))
        )
    rows = targets = np.zeros(0)
    if hasattr(model, "prior_root"):
        rows = np.ascontiguousarray(np.linalg.inv(model.prior_root))
        targets = rows @ model.prior_mean
    parts = 1 if isinstance(model, Linear) else arms
    return Fading(
        float(factor), np.zeros(1, dtype=np.int64), np.zeros(parts, dtype=np.int64), rows, targets
    )


@generic
def grow_older(memory: Any, model: Any, state: Any, arm: int) -> None:
    """Let an arm forget what is due before it learns, and one other arm in turn.

    So every observation of an arm has its exact weight γⁿ whenever the arm learns, and an arm that
    is never played still widens, at most K rewards late, at a cost that does not grow with K.
    """
    raise NotImplementedError  # called from compiled code only


@implements(grow_older, Permanent)
def _(memory, model, state, arm):  # type: ignore[no-untyped-def]
    pass


@implements(grow_older, Fading)
def _(memory, model, state, arm):  # type: ignore[no-untyped-def]
    memory.clock[0] += 1
    parts = memory.aged.size
    for part in (arm if parts > 1 else 0, memory.clock[0] % parts):
        passed = memory.clock[0] - memory.aged[part]
        if passed > 0:
            weight = max(memory.factor**passed, LEAST_WEIGHT)
            forget(model, state, part, weight, memory)
            memory.aged[part] = memory.clock[0]


@generic
def forget(model: Any, state: Any, part: int, weight: float, memory: Fading) -> None:
    """Move one part of the state towards the prior, in place; weight is γⁿ."""
    raise NotImplementedError  # called from compiled code only


@implements(forget, BernoulliArms, GaussianArms)
def _(model, state, part, weight, memory):  # type: ignore[no-untyped-def]
    state.pulls[part] *= weight
    state.rewards[part] *= weight


@implements(forget, ContextualLinear)
def _(model, state, part, weight, memory):  # type: ignore[no-untyped-def]
    observe_prior(state, part, weight, memory)


@implements(forget, NIGLinear)
def _(model, state, part, weight, memory):  # type: ignore[no-untyped-def]
    distance = observe_prior(state.regressions, part, weight, memory)
    state.scale[part] += (1.0 - weight) * (model.scale - state.scale[part]) + 0.5 * distance


@implements(forget, Linear)
def _(model, state, part, weight, memory):  # type: ignore[no-untyped-def]
    observe_prior(state.theta, 0, weight, memory)
    for a in range(state.pulls.size):
        state.pulls[a] *= weight


@inlined
def observe_prior(regressions, part, weight, memory):  # type: ignore[no-untyped-def]
    """N(μ, SSᵀ) ← N(μ, SSᵀ)^γ · prior^(1−γ): widen S to S/√γ, then observe the prior.

    The prior's precision is Σᵢ rᵢrᵢᵀ with rᵢ the rows of its root's inverse, so its power 1−γ is
    worth d observations rᵢᵀβ = rᵢᵀμ₀ of variance 1/(1−γ). Returns how surprising they were, in
    their standard deviations, squared and summed.
    """
    pulls = regressions.pulls[part] * weight
    widen(regressions, part, 1.0 / np.sqrt(weight))
    regressions.information[part] += memory.targets.size * np.log(weight)
    variance = 1.0 / (1.0 - weight)
    distance = 0.0
    for i in range(memory.targets.size):
        surprise, spread = learn(regressions, part, memory.rows[i], memory.targets[i], variance)
        distance += surprise * surprise / (spread + variance)
    # Rounding must not turn an arm that is back at its prior into one that knows less.
    regressions.information[part] = max(0.0, regressions.information[part])
    regressions.pulls[part] = pulls
    return distance


@generic
def widen(regressions: Any, part: int, factor: float) -> None:
    """Multiply one arm's root by a factor."""
    raise NotImplementedError  # called from compiled code only


@implements(widen, Lanes)
def _(regressions, part, factor):  # type: ignore[no-untyped-def]
    root = regressions.root
    for j in range(root.shape[0]):
        for i in range(root.shape[1]):
            root[j, i, part] *= factor


@implements(widen, Rows)
def _(regressions, part, factor):  # type: ignore[no-untyped-def]
    root = regressions.root
    for i in range(root.shape[1]):
        for j in range(root.shape[2]):
            root[part, i, j] *= factor
