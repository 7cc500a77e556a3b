"""One step: which arm is next. Simulation, replay and agent all take it from here.

What follows a step is the same for all of them too: `update` learns from the reward, and if
`training_due` then says so, the model's `trainer` is called before the next step.
"""

import inspect
from typing import Any

import numpy as np

from tsucb.compiler import class_of, in_compiled_code, offers, shared
from tsucb.environments.environment import advance, begin, pay
from tsucb.models.model import believe, update
from tsucb.policies.policy import Choice, choose, explored
from tsucb.streams import MODEL, stream

NOTHING_SEEN = np.zeros(0)


def runs_compiled(model: Any, policy: Any = None, environment: Any = None) -> bool:
    """Whether all that are given have compiled implementations of all that a step calls."""
    needed: list[tuple[Any, Any]] = [(model, believe), (model, update)]
    if policy is not None:
        needed.append((policy, choose))
    if environment is not None:
        needed += [(environment, begin), (environment, advance), (environment, pay)]
    return all(offers(function, type(thing)) for thing, function in needed)


def initial_pulls(model: Any) -> int:
    """How often every arm is pulled before the policy decides."""
    return int(getattr(model, "initial_pulls", 0))


def require_model(model: Any) -> None:
    """Refuse what cannot be a model, such as a class."""
    if isinstance(model, type) or not callable(getattr(model, "start", None)):
        raise TypeError(f"model must be an instance, such as tsucb.AdaptiveLinear(5), not {model}")


def start(model: Any, arms: int, seed: int, run: int) -> Any:
    """The state of a model before any data, with the run's own stream if it takes one."""
    require_model(model)
    if "rng" in inspect.signature(model.start).parameters:
        return model.start(arms, stream(seed, run, MODEL))
    return model.start(arms)


def next_arm(model, state, policy, context, available, chosen, first_pulls, step, rng, seen):  # type: ignore[no-untyped-def]
    """Which of the available arms is played, as an index into them, and its reason.

    Parameters
    ----------
    chosen
        (K,) how often each arm was chosen so far.
    first_pulls
        How often every arm is chosen before the policy decides, the least chosen first.
    seen
        Takes what the policy saw of the n arms, in 4n + 2 entries: the target, the policy's
        favourite (another arm than the one played if a floor had it so), then every arm's mean,
        std, estimate and radius; NaN for first pulls. Empty if nobody wants to know.
    """
    if first_pulls > 0:
        place = least_chosen(chosen, available)
        if chosen[available[place]] < first_pulls:
            return first_pull(policy, place, available.size, rng, seen)
    return weighed(policy, believe(model, state, context, available, step, rng), rng, seen)


def next_weighed(model, state, policy, context, available, chosen, first_pulls, step, rng, seen):  # type: ignore[no-untyped-def]
    return weighed(policy, believe(model, state, context, available, step, rng), rng, seen)


def may_pull_first(model: Any) -> bool:
    """Whether models of this Numba type may have first pulls: what they never do, is not compiled.

    On a class of models it is 0, or the property or field that tells.
    """
    return bool(getattr(class_of(model), "initial_pulls", 0) != 0)


in_compiled_code(next_arm, lambda model, *_: next_arm if may_pull_first(model) else next_weighed)


@shared
def first_pull(policy, place, arms, rng, seen):  # type: ignore[no-untyped-def]
    """The choice of an arm that has not had its first pulls."""
    seen[:] = np.nan
    if seen.size > 1:
        seen[1] = place
    return Choice(explored(policy, place, arms, rng), np.nan)


@shared
def weighed(policy, belief, rng, seen):  # type: ignore[no-untyped-def]
    """What the policy chooses, with what it saw written down."""
    choice = choose(policy, belief, rng)
    write_down(seen, belief, choice)
    return Choice(choice.arm, choice.target)


@shared
def write_down(seen, belief, choice):  # type: ignore[no-untyped-def]
    """Leave what the policy saw where there is room for it, see `next_arm`."""
    n = belief.mean.size
    if seen.size > 4 * n:
        write_reason(seen, choice)
        for a in range(n):
            seen[2 + a] = belief.mean[a]
            seen[2 + n + a] = belief.std[a]
            seen[2 + 2 * n + a] = belief.estimate[a]
            seen[2 + 3 * n + a] = belief.radius[a]


@shared
def write_reason(seen, choice):  # type: ignore[no-untyped-def]
    """The first two entries of what was seen."""
    seen[0] = choice.target
    seen[1] = favourite(choice)


def favourite(choice):  # type: ignore[no-untyped-def]
    """The arm that the policy would have played but for its floor."""
    return getattr(choice, "favourite", choice.arm)


def favourite_of_choice(choice):  # type: ignore[no-untyped-def]
    return choice.arm


def favourite_of_explored(choice):  # type: ignore[no-untyped-def]
    return choice.favourite


in_compiled_code(
    favourite,
    lambda choice: favourite_of_explored if "favourite" in choice.fields else favourite_of_choice,
)


@shared
def least_chosen(chosen, available):  # type: ignore[no-untyped-def]
    """The first of the available arms that were chosen least, as an index into them."""
    place = 0
    for a in range(available.size):
        if chosen[available[a]] < chosen[available[place]]:
            place = a
    return place
