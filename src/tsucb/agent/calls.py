"""The compiled calls of a live agent: one for a decision, one for a reward.

Handing arguments over to compiled code costs more than deciding among ten arms: Numba finds out
every argument's type, and takes a random generator apart, at each call. So what stays the same is
handed over once, as a `Bound` structure, and the machine code for its type is called directly, with
the address of the structure.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.experimental import structref
from numba.extending import NativeValue, intrinsic, unbox

from tsucb.agent.contexts import LARGEST
from tsucb.beliefs.belief import Belief
from tsucb.beliefs.best import best_mean
from tsucb.compiled import compiled, generic, implementations, implements
from tsucb.models.forgetting import Memory, grow_older
from tsucb.models.model import believe, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import choose
from tsucb.policies.ts_ucb import TSUCB, least_ratio

# Contexts are handed over as the bytes of their numbers, as the agent remembers them.
Decider: TypeAlias = Callable[[bytes, Integers, int], int]
Learner: TypeAlias = Callable[[bytes, int, float], None]


@structref.register
class BoundType(types.StructRef):  # type: ignore[misc]
    """Numba's type of a `Bound`."""


class Bound(structref.StructRefProxy):  # type: ignore[misc]
    """What stays the same from call to call, kept where compiled code finds it.

    `by` is the policy that decides, or the memory that learns; `shape` is that of a context. Only
    deciding needs `rng`, and `seen`, where it leaves what it saw.
    """


structref.define_boxing(BoundType, Bound)
structref.define_constructor(Bound, BoundType, ["by", "model", "state", "shape", "rng", "seen"])


@structref.register
class AddressType(types.StructRef):  # type: ignore[misc]
    """Numba's type of a `Bound` that is handed over as its address.

    A type, not a call that finds the structure at an address: Numba's removal of dead code drops
    what is written to arrays that do not come from an argument.
    """


@unbox(AddressType)
def _(kind, address, c):  # type: ignore[no-untyped-def]
    value = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    pointer = c.pyapi.long_as_longlong(address)
    value.meminfo = c.builder.inttoptr(pointer, value.meminfo.type)
    c.context.nrt.incref(c.builder, kind, value._getvalue())  # given back after the call
    return NativeValue(value._getvalue())


_CONTEXT = types.Bytes(types.uint8, 1, "C", readonly=True)
_COLUMNS = types.Array(types.int64, 1, "C")

# These calls are short. To give up the interpreter's lock would take a tenth of their time, and the
# agent's own lock would then be held until another thread gives it back.
keeping_gil = functools.partial(compiled, nogil=False)


def is_compiled(model: Any, policy: Any = None) -> bool:
    """Whether the model, and the policy if one is given, have compiled implementations."""
    return type(model) in implementations(believe) and (
        policy is None or type(policy) in implementations(choose)
    )


def decider(policy: Any, model: Any, state: Any, rng: np.random.Generator, seen: Floats) -> Decider:
    """Machine code that decides from this state.

    It takes a context, the available arms' columns and the step, and returns the index of the arm,
    or −1 if `check_finite` would complain. What it saw of n arms is left in the first 4n + 1
    entries of `seen`: f̃, NaN for policies that have none, and every arm's mean, std, estimate and
    radius.
    """
    if type(policy) not in implementations(weigh):
        implements(weigh, type(policy))(_weigh_nothing)
    bound = _bind(policy, model, state, _shape(model, state), rng, seen)
    call: Decider = _call(_decide, bound, _CONTEXT, _COLUMNS, types.int64)
    return call


def learner(model: Any, state: Any, memory: Memory) -> Learner:
    """Machine code that learns from a context, an arm's column and a reward, into this state."""
    bound = _bind(memory, model, state, _shape(model, state), None, None)
    call: Learner = _call(_learn, bound, _CONTEXT, types.int64, types.float64)
    return call


def _call(function: Any, bound: Bound, *arguments: Any) -> Any:
    """The machine code of a function for this structure and further arguments of these types."""
    kind = AddressType(numba.typeof(bound).field_dict.items())
    code = function.compile((kind, *arguments))
    call = functools.partial(code, _address(bound))
    call.__dict__["bound"] = bound  # an address alone does not keep it
    return call


def unpacked(model: Any, state: Any, context: bytes) -> Floats:
    """A context as a model takes it in plain Python."""
    return np.frombuffer(context).reshape(_shape(model, state))


def _shape(model: Any, state: Any) -> tuple[int, ...]:
    """The shape of a context; an empty vector stands for none."""
    return model.context_shape(model.arms(state)) or (0,)


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
def _bind(by, model, state, shape, rng, seen):  # type: ignore[no-untyped-def]
    return Bound(by, model, state, shape, rng, seen)


@compiled
def _address(bound):  # type: ignore[no-untyped-def]
    return address_of(bound)


@intrinsic
def address_of(_, bound):  # type: ignore[no-untyped-def]
    """Where a `Bound` is."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        value = cgutils.create_struct_proxy(bound)(context, builder, value=arguments[0])
        return builder.ptrtoint(value.meminfo, context.get_value_type(types.int64))

    return types.int64(bound), code


@keeping_gil
def _decide(bound, context, arms, step):  # type: ignore[no-untyped-def]
    values, n = np.frombuffer(context, np.float64), arms.size
    for i in range(values.size):
        if not abs(values[i]) <= LARGEST:
            return -1
    rng, seen = bound.rng, bound.seen
    belief = believe(bound.model, bound.state, values.reshape(bound.shape), arms, step, rng)
    for a in range(n):
        seen[1 + a] = belief.mean[a]
        seen[1 + n + a] = belief.std[a]
        seen[1 + 2 * n + a] = belief.estimate[a]
        seen[1 + 3 * n + a] = belief.radius[a]
    arm, seen[0] = weigh(bound.by, belief, rng)
    return arm


@keeping_gil
def _learn(bound, context, arm, reward):  # type: ignore[no-untyped-def]
    x = np.frombuffer(context, np.float64).reshape(bound.shape)
    grow_older(bound.by, bound.model, bound.state, arm)
    update(bound.model, bound.state, x, arm, reward)
