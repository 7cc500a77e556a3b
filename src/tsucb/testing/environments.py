"""The check of an environment: its world must be the same for every policy that plays in it."""

from typing import Any

import numpy as np

from tsucb.compiler import Stream, compiled, held, offers
from tsucb.environments.environment import advance, begin, reward
from tsucb.testing.demands import check, demand, near


@check
def check_environment(environment: Any, steps: int = 500) -> None:
    """Check an environment, compiled or in plain Python.

    1. It has the number of its `arms`, and its `context_shape`, if it has one.
    2. Every step has a context of that shape, a finite mean for every arm, and at least one
       available arm, each listed once.
    3. The stream determines the world: contexts, means, available arms and the reward of each arm
       are the same whatever arms are played and however often rewards are asked for. So
       comparisons of policies are paired.
    4. Other streams make other worlds.
    5. A reward is a finite number, and on average its arm's mean (within 5 standard errors).
    6. The world is the same in the compiled and in the interpreted loop.

    Parameters
    ----------
    environment
        Any object with `arms`, `begin(rng)`, `advance(world, step, rng)` and `reward(world, arm)`.
    steps
        How many are played, at most as many as the environment has.

    >>> import tsucb
    >>> check_environment(tsucb.WheelBandit(delta=0.5), steps=100)
    """
    name = type(environment).__name__
    arms = environment.arms
    demand(
        isinstance(arms, int | np.integer) and arms > 0,
        f"arms of {name} must be a positive integer, not {arms!r}",
    )
    shape = getattr(environment, "context_shape", None)
    demand(
        shape is None or (isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)),
        f"context_shape of {name} must be a tuple of integers, () for none, not {shape!r}",
    )
    steps = min(steps, getattr(environment, "longest", steps))
    check_steps(environment, arms, shape, steps, name)
    check_pairing(environment, arms, min(steps, 50), name)
    if all(offers(function, type(environment)) for function in (begin, advance, reward)):
        check_loops(environment, min(steps, 50), name)


def check_steps(environment: Any, arms: int, shape: Any, steps: int, name: str) -> None:
    """Check shapes, and that rewards scatter around their means."""
    rng, picks = np.random.default_rng(1), np.random.default_rng(2)
    world = begin(environment, rng)
    surprises = np.empty(steps)
    for t in range(1, steps + 1):
        context, means, available = advance(environment, world, t, rng)
        demand(
            not shape or np.shape(context) == shape,
            f"a context of {name} has shape {np.shape(context)}, but context_shape says {shape}",
        )
        demand(
            context is None or np.isfinite(context).all(),
            f"a context of {name} is not finite: {context!r}",
        )
        listed = np.asarray(available)
        demand(
            listed.ndim == 1
            and listed.size > 0
            and listed.dtype.kind in "iu"
            and ((listed >= 0) & (listed < arms)).all()
            and np.unique(listed).size == listed.size,
            f"the available arms of {name} are {available!r}; list at least one of 0 to "
            f"{arms - 1}, each once",
        )
        demand(
            np.shape(means) == (arms,) and np.isfinite(np.asarray(means)[listed]).all(),
            f"the means of {name} are {means!r}; give a finite number for each of {arms} arms",
        )
        arm = int(picks.choice(listed))
        earned = reward(environment, world, arm)
        demand(
            isinstance(earned, float) and np.isfinite(earned),
            f"the reward of {name} is {earned!r}; it must be a finite number",
        )
        surprises[t - 1] = earned - means[arm]
    demand(
        near(surprises.mean(), 0.0, surprises.std(), steps),
        f"rewards of {name} are on average {surprises.mean():+.4g} away from the means it states",
    )


def history(environment: Any, seed: int, steps: int, meddle: bool) -> list[Any]:
    """Return every step of a world; with `meddle`, ask for each reward twice."""
    rng, steps_seen = np.random.default_rng(seed), []
    world = begin(environment, rng)
    for t in range(1, steps + 1):
        context, means, available = advance(environment, world, t, rng)
        some = [int(arm) for arm in available]
        order = [*some, *reversed(some)] if meddle else some
        paid = {arm: reward(environment, world, arm) for arm in order}
        x = None if context is None else np.copy(context).tolist()
        values = np.asarray(means)[available].tolist()
        steps_seen.append((x, values, some, [paid[arm] for arm in some]))
    return steps_seen


def check_pairing(environment: Any, arms: int, steps: int, name: str) -> None:
    """Check that the same stream makes the same world, and another stream another."""
    first = history(environment, 3, steps, meddle=False)
    demand(
        first == history(environment, 3, steps, meddle=False),
        f"{name} makes another world from the same stream; take all randomness from rng",
    )
    demand(
        first == history(environment, 3, steps, meddle=True),
        f"asking {name} for rewards changes what comes later, or the answer differs the second "
        "time; draw everything random in advance, whatever arm will be played",
    )
    demand(
        first != history(environment, 4, steps, meddle=False),
        f"{name} makes the same world from every stream",
    )


@compiled
def write_world(environment, stream, out):  # type: ignore[no-untyped-def]
    """Write a row per step: the sum of the available arms' means, and the first one's reward."""
    world = begin(environment, stream.rng)
    for t in range(len(out)):
        _, means, available = advance(environment, world, t + 1, stream.rng)
        out[t, 0], out[t, 1] = 0.0, reward(environment, world, available[0])
        for arm in available:
            out[t, 0] += means[arm]


def check_loops(environment: Any, steps: int, name: str) -> None:
    """Check that compiled and interpreted code make the same world."""
    rngs = [np.random.default_rng(5) for _ in range(2)]
    interpreted, machine = np.empty((2, steps, 2))
    write_world.py_func(environment, Stream(rngs[0]), interpreted)  # type: ignore[attr-defined]
    write_world(environment, held(rngs[1]), machine)
    demand(
        np.allclose(machine, interpreted),
        f"{name} makes another world in the compiled loop than in the interpreted one",
    )
