"""One step: choose the next arm. Simulation, replay and the agent call these functions.

After a step, `update` learns from the reward. If `training_due` is true then, the model's `trainer`
runs before the next step.
"""

from typing import Any, NamedTuple

import numpy as np

from tsucb.compiler import class_of, hook, in_compiled_code, offers, shared
from tsucb.compiler.lent import borrowed, still_needed
from tsucb.environments.environment import advance, begin, reward
from tsucb.models.model import belief, update
from tsucb.numeric.arrays import Integers
from tsucb.numeric.streams import MODEL, stream
from tsucb.policies.policy import Choice, choose, explored


class Player(NamedTuple):
    """A model, its state and a policy, with the number of decisions for each arm.

    Every arm is chosen `first_pulls` times before the policy decides.
    """

    model: Any
    state: Any
    policy: Any
    chosen: Integers  # (K,)
    first_pulls: int


@hook
def play_step(environment, world, player, step, world_rng, policy_rng):  # type: ignore[no-untyped-def]
    """Play one step and learn from it; return the arm and its regret.

    For environments with infinitely many arms; others implement `advance` and `reward`.
    """


def runs_compiled(model: Any, policy: Any = None, environment: Any = None) -> bool:
    """Return whether the arguments have compiled implementations of all that a step calls."""
    needed: list[tuple[Any, Any]] = [(model, belief), (model, update)]
    if policy is not None:
        needed.append((policy, choose))
    if environment is not None and not offers(play_step, type(environment)):
        needed += [(environment, begin), (environment, advance), (environment, reward)]
    return all(offers(function, type(thing)) for thing, function in needed)


def initial_pulls(model: Any) -> int:
    """Return how often every arm is pulled before the policy decides."""
    return int(getattr(model, "initial_pulls", 0))


def require_model(model: Any) -> None:
    """Raise TypeError for an object that is no model, such as a class."""
    if isinstance(model, type) or not callable(getattr(model, "start", None)):
        raise TypeError(f"model must be an instance, such as tsucb.AdaptiveLinear(5), not {model}")


def start(model: Any, arms: int, seed: int, run: int) -> Any:
    """Return the state of a model before any data; the run's own stream draws random starts."""
    require_model(model)
    return model.start(arms, stream(seed, run, MODEL))


def new_player(model: Any, policy: Any, arms: int, seed: int, run: int) -> Player:
    """Return a player without data or decisions."""
    state, chosen = start(model, arms, seed, run), np.zeros(arms, dtype=np.int64)
    return Player(model, state, policy, chosen, initial_pulls(model))


@shared
def next_arm(player, context, available, step, rng):  # type: ignore[no-untyped-def]
    """Choose among the available arms; return a choice whose arm is an index into `available`."""
    choice = first_pull(player, available, rng)
    if choice.arm < 0:
        known = belief(player.model, player.state, context, available, step, rng)
        choice = choose(player.policy, borrowed(known), rng)  # so references are not counted
        still_needed(known)
    return choice


def first_pull(player, available, rng):  # type: ignore[no-untyped-def]
    """Return a choice of the least chosen arm if it lacks first pulls, else of arm -1."""
    if player.first_pulls > 0:
        least = 0
        for a in range(available.size):
            if player.chosen[available[a]] < player.chosen[available[least]]:
                least = a
        if player.chosen[available[least]] < player.first_pulls:
            return Choice(explored(player.policy, least, available.size, rng), np.nan, least)
    return Choice(-1, np.nan, -1)


def no_first_pull(player, available, rng):  # type: ignore[no-untyped-def]
    return Choice(-1, np.nan, -1)


def may_pull_first(player: Any) -> bool:
    """Return whether the model in a player of this Numba type may ask for first pulls.

    In a model's class, `initial_pulls` is 0, or the property or field that has the number. For
    models where it is 0, `first_pull` is not compiled.
    """
    model = class_of(player.types[player.fields.index("model")])
    return bool(getattr(model, "initial_pulls", 0) != 0)


in_compiled_code(
    first_pull, lambda player, *_: first_pull if may_pull_first(player) else no_first_pull
)
