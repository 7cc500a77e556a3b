"""The loop over the steps of a run; the same source runs compiled or interpreted."""

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import Stream, class_of, compiled, held, in_compiled_code, offers, shared
from tsucb.compiler.memory import by_address
from tsucb.environments.environment import advance, begin, reward
from tsucb.models.model import training_due, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.streams import POLICY, WORLD, stream
from tsucb.step import new_player, next_arm, play_step, runs_compiled


@compiled
def play(environment, world, player, first, last, record, world_stream, policy_stream):  # type: ignore[no-untyped-def]
    """Play steps first … last of a run, or until the model must train; return the last step played.

    `record.stop` ends the loop after the current step.
    """
    model, state, regret = player.model, player.state, record.regret[0]
    world_rng, policy_rng = world_stream.rng, policy_stream.rng
    mark, played = np.searchsorted(record.checkpoints, first), last
    for t in range(first, last + 1):
        arm, lost = one_step(environment, world, player, t, world_rng, policy_rng)
        regret += lost
        if record.arms.size > 0:
            record.arms[t - 1] = arm
        if mark < record.checkpoints.size and record.checkpoints[mark] == t:
            record.curve[mark] = regret
            mark += 1
        if record.stop[0] or training_due(model, state):
            played = t
            break
    record.regret[0] = regret
    return played


def one_step(environment, world, player, step, world_rng, policy_rng):  # type: ignore[no-untyped-def]
    """Play one step and learn from it; return the arm and its regret."""
    context, means, available = advance(environment, world, step, world_rng)
    choice = next_arm(player, context, available, step, policy_rng)
    arm = available[choice.arm]
    update(player.model, player.state, context, arm, reward(environment, world, arm))
    player.chosen[arm] += 1
    return arm, largest_mean(means, available) - means[arm]


def own_step(environment, world, player, step, world_rng, policy_rng):  # type: ignore[no-untyped-def]
    return play_step(environment, world, player, step, world_rng, policy_rng)


in_compiled_code(
    one_step,
    lambda environment, *_: own_step if offers(play_step, class_of(environment)) else one_step,
)


class RunRecord(NamedTuple):
    """The arrays that a run writes into."""

    checkpoints: Integers  # (C,) the steps at which the regret is recorded
    curve: Floats  # (C,) the cumulative regret at these steps
    arms: Integers  # (T,) the arm played at every step; (0,) if arms are not recorded
    stop: NDArray[np.bool_]  # (1,) whether to stop after the current step; shared by all runs
    regret: Floats  # (1,) the cumulative regret so far


@shared
def largest_mean(means, available):  # type: ignore[no-untyped-def]
    """Return the mean reward of the best available arm."""
    best = -np.inf
    for a in available:
        best = max(best, means[a])
    return best


class Run:
    """One run of one policy; `played` is the number of steps done."""

    def __init__(self, environment: Any, model: Any, policy: Any, seed: int, run: int,
                 record: RunRecord) -> None:  # fmt: skip
        world_rng, policy_rng = stream(seed, run, WORLD), stream(seed, run, POLICY)
        self.problem = environment, begin(environment, world_rng)
        # The model has its own random stream, so it starts alike for all policies of a run.
        self.player = new_player(model, policy, environment.arms, seed, run)
        fast = runs_compiled(model, policy, environment)
        self.loop: Any = play if fast else play.py_func  # type: ignore[attr-defined]
        self.record, self.played = record, 0
        self.streams = [(held if fast else Stream)(rng) for rng in (world_rng, policy_rng)]

    @functools.cached_property
    def arguments(self) -> list[Any]:
        """Environment, world and player, in the form that the loop takes."""
        parts = [*self.problem, self.player]
        return list(map(by_address, parts)) if self.loop is play else parts

    def play_until(self, last: int) -> int:
        """Play on to step `last`, or until training is due; return the number of steps played."""
        before = self.played
        self.played = self.loop(*self.arguments, before + 1, last, self.record, *self.streams)
        return self.played - before
