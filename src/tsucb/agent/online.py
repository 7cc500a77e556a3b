"""The compiled calls of a live agent: one for a decision, one for a reward.

Handing arguments over to compiled code costs more than deciding among ten arms: Numba finds out
every argument's type, and takes a random generator apart, at each call. So what stays the same is
handed over once, as a `Bound` structure, and the machine code for its type is called directly.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.experimental import structref

from tsucb.agent.forgetting import Memory, grow_older
from tsucb.belief import Belief
from tsucb.compiled import compiled, generic, implementations, implements
from tsucb.exact import best_mean
from tsucb.models.model import believe, update
from tsucb.policies.rule import choose
from tsucb.policies.ts_ucb import TSUCB, least_ratio


@structref.register
class BoundType(types.StructRef):  # type: ignore[misc]
    """Numba's type of a `Bound`."""


class Bound(structref.StructRefProxy):  # type: ignore[misc]
    """Policy, model, state and generator, kept where compiled code finds them."""


structref.define_boxing(BoundType, Bound)
structref.define_constructor(Bound, BoundType, ["policy", "model", "state", "rng", "memory"])


class Calls(NamedTuple):
    """What an agent calls.

    `decide(context, arms, step, rows)` returns the index of the arm and f̃ (NaN for policies without
    it), and fills `rows` (4, n) with mean, std, estimate and radius of the arms; the index is −1 if
    the context is not finite. `learn(context, arm, reward)` updates the state.
    """

    decide: Callable[..., tuple[int, float]]
    learn: Callable[..., None]


def is_compiled(model: Any, policy: Any) -> bool:
    """Whether both have compiled implementations."""
    return type(model) in implementations(believe) and type(policy) in implementations(choose)


def bind(policy: Any, model: Any, state: Any, rng: np.random.Generator, memory: Memory) -> Calls:
    """Machine code for this policy, model and state; state and memory are changed in place."""
    if type(policy) not in implementations(weigh):
        implements(weigh, type(policy))(_weigh_nothing)
    bound = _bind(policy, model, state, rng, memory)
    shape = model.context_shape(1)
    kind = types.Array(types.float64, max(len(shape), 1), "C")
    columns, rows = types.Array(types.int64, 1, "C"), types.Array(types.float64, 2, "C")
    this = numba.typeof(bound)
    decide = _decide.compile((this, kind, columns, types.int64, rows))  # type: ignore[attr-defined]
    learn = _learn.compile((this, kind, types.int64, types.float64))  # type: ignore[attr-defined]
    return Calls(
        lambda context, arms, step, rows: decide(bound, context, arms, step, rows),
        lambda context, arm, reward: learn(bound, context, arm, reward),
    )


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
def _bind(policy, model, state, rng, memory):  # type: ignore[no-untyped-def]
    return Bound(policy, model, state, rng, memory)


@compiled
def _decide(bound, context, arms, step, rows):  # type: ignore[no-untyped-def]
    for x in context.flat:
        if not np.isfinite(x):
            return -1, np.nan
    belief = believe(bound.model, bound.state, context, arms, step, bound.rng)
    for a in range(arms.size):
        rows[0, a], rows[1, a] = belief.mean[a], belief.std[a]
        rows[2, a], rows[3, a] = belief.estimate[a], belief.radius[a]
    return weigh(bound.policy, belief, bound.rng)


@compiled
def _learn(bound, context, arm, reward):  # type: ignore[no-untyped-def]
    grow_older(bound.memory, bound.model, bound.state, arm)
    update(bound.model, bound.state, context, arm, reward)
