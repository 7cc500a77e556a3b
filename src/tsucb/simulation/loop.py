"""The loop: steps of one run, compiled or interpreted, from the same source."""

from typing import Any

import numpy as np

from tsucb.compiler import Plain, compiled, held, shared
from tsucb.environments.environment import advance, begin, pay
from tsucb.models.model import training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.step import NOTHING_SEEN, initial_pulls, next_arm, runs_compiled, start
from tsucb.streams import POLICY, WORLD, stream


@compiled
def play(environment, world, model, state, policy, chosen, first_pulls, first, last, regret,  # type: ignore[no-untyped-def]
         checkpoints, curve, arms, seen, world_stream, policy_stream, stop):  # fmt: skip
    """Play steps first … last of one run, or until the model wants to train.

    The regret so far goes in; the last step played and the regret since come out.
    """
    world_rng, policy_rng = world_stream.rng, policy_stream.rng
    mark = np.searchsorted(checkpoints, first)
    for t in range(first, last + 1):
        context, means, available = advance(environment, world, t, world_rng)
        choice = next_arm(
            model, state, policy, context, available, chosen, first_pulls, t, policy_rng, seen
        )
        arm = available[choice.arm]
        update(model, state, context, arm, pay(environment, world, arm))
        chosen[arm] += 1
        regret += largest_mean(means, available) - means[arm]
        if arms.size > 0:
            arms[t - 1] = arm
        if mark < checkpoints.size and checkpoints[mark] == t:
            curve[mark] = regret
            mark += 1
        if stop[0] or training_due(model, state):
            return t, regret
    return last, regret


@shared
def largest_mean(means, available):  # type: ignore[no-untyped-def]
    """The mean reward of the best available arm."""
    best = -np.inf
    for a in available:
        best = max(best, means[a])
    return best


class Run:
    """One run of one policy, as far as it has been played."""

    def __init__(self, environment: Any, model: Any, policy: Any, seed: int, run: int,
                 checkpoints: Integers, curve: Floats, arms: Integers,
                 stop: Any) -> None:  # fmt: skip
        world_rng, policy_rng = stream(seed, run, WORLD), stream(seed, run, POLICY)
        world = begin(environment, world_rng)
        # Whatever a model draws at the start is the same for all policies of a run.
        self.state = start(model, environment.arms, seed, run)
        self.problem = environment, world, model
        self.rule = policy, np.zeros(environment.arms, dtype=np.int64), initial_pulls(model)
        fast = runs_compiled(model, policy, environment)
        self.loop: Any = play if fast else play.py_func  # type: ignore[attr-defined]
        streams = [(held if fast else Plain)(rng) for rng in (world_rng, policy_rng)]
        self.recorded = (checkpoints, curve, arms, NOTHING_SEEN, *streams, stop)
        self.regret, self.played = 0.0, 0

    def until(self, last: int) -> int:
        """Play on to step `last`, or until training is due; return the number of steps played."""
        before = self.played
        self.played, self.regret = self.loop(
            *self.problem, self.state, *self.rule, before + 1, last, self.regret, *self.recorded
        )
        return self.played - before
