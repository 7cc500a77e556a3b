"""The compiled calls of a live agent: one for a decision, one for a reward.

Handing arguments over to compiled code costs more than deciding among ten arms: Numba finds out
every argument's type, and takes a random generator apart, at each call. So what stays the same is
handed over once, as a `Bound` structure, and the machine code for its type is called directly.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np
from numba import types
from numba.experimental import structref

from tsucb.agent.forgetting import Memory, grow_older
from tsucb.belief import Belief, Floats, Integers
from tsucb.compiled import compiled, generic, implementations, implements
from tsucb.exact import best_mean
from tsucb.models.model import believe, update
from tsucb.policies.rule import choose
from tsucb.policies.ts_ucb import TSUCB, least_ratio

Decider: TypeAlias = Callable[[Floats, Integers, int, Floats], tuple[int, float]]
Learner: TypeAlias = Callable[[Floats, int, float], None]


@structref.register
class BoundType(types.StructRef):  # type: ignore[misc]
    """Numba's type of a `Bound`."""


class Bound(structref.StructRefProxy):  # type: ignore[misc]
    """What stays the same from call to call, kept where compiled code finds it.

    `by` is the policy that decides, or the memory that learns; the latter needs no `rng`.
    """


structref.define_boxing(BoundType, Bound)
structref.define_constructor(Bound, BoundType, ["by", "model", "state", "rng"])

_VECTOR, _COLUMNS = types.Array(types.float64, 1, "C"), types.Array(types.int64, 1, "C")
_MATRIX = types.Array(types.float64, 2, "C")


def is_compiled(model: Any, policy: Any = None) -> bool:
    """Whether the model, and the policy if one is given, have compiled implementations."""
    return type(model) in implementations(believe) and (
        policy is None or type(policy) in implementations(choose)
    )


def decider(policy: Any, model: Any, state: Any, rng: np.random.Generator) -> Decider:
    """Machine code that decides from this state.

    It takes a context, the available arms' columns, the step and `rows` (4, n), which it fills with
    mean, std, estimate and radius of the arms. It returns the index of the arm, −1 if the context
    is not finite, and f̃, NaN for policies that have none.
    """
    if type(policy) not in implementations(weigh):
        implements(weigh, type(policy))(_weigh_nothing)
    bound = _bind(policy, model, state, rng)
    arguments = (numba.typeof(bound), _kind(model), _COLUMNS, types.int64, _MATRIX)
    call = _decide.compile(arguments)  # type: ignore[attr-defined]
    return functools.partial(call, bound)


def learner(model: Any, state: Any, memory: Memory) -> Learner:
    """Machine code that learns from a context, an arm's column and a reward, into this state."""
    bound = _bind(memory, model, state, None)
    arguments = (numba.typeof(bound), _kind(model), types.int64, types.float64)
    call = _learn.compile(arguments)  # type: ignore[attr-defined]
    return functools.partial(call, bound)


def _kind(model: Any) -> Any:
    """Numba's type of the model's contexts."""
    return _MATRIX if len(model.context_shape(1)) == 2 else _VECTOR


@generic
def weigh(policy: Any, belief: Belief, rng: np.random.Generator) -> tuple[int, float]:
    """The arm to play, as an index into the belief's arms, and the f̃ it was weighed against."""
    if isinstance(policy, TSUCB):
        arm, f = _weigh(policy, belief, rng)
        return arm, f
    return int(policy.choose(belief, rng)), math.nan


@implements(weigh, TSUCB)
def _(policy, belief, rng):  # type: ignore[no-untyped-def]
    f = best_mean(belief, policy.samples, rng)
    return least_ratio(belief, f, rng), f


def _weigh_nothing(policy, belief, rng):  # type: ignore[no-untyped-def]
    return choose(policy, belief, rng), np.nan


@compiled
def _weigh(policy, belief, rng):  # type: ignore[no-untyped-def]
    return weigh(policy, belief, rng)


@compiled
def _bind(by, model, state, rng):  # type: ignore[no-untyped-def]
    return Bound(by, model, state, rng)


@compiled
def _decide(bound, context, arms, step, rows):  # type: ignore[no-untyped-def]
    values = context.reshape(-1)
    for i in range(values.size):
        if not np.isfinite(values[i]):
            return -1, np.nan
    policy, rng = bound.by, bound.rng
    belief = believe(bound.model, bound.state, context, arms, step, rng)
    for a in range(arms.size):
        rows[0, a], rows[1, a] = belief.mean[a], belief.std[a]
        rows[2, a], rows[3, a] = belief.estimate[a], belief.radius[a]
    return weigh(policy, belief, rng)


@compiled
def _learn(bound, context, arm, reward):  # type: ignore[no-untyped-def]
    grow_older(bound.by, bound.model, bound.state, arm)
    update(bound.model, bound.state, context, arm, reward)
