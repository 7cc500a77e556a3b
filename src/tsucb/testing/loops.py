"""One model and one policy in simulation, replay and agent: same seed, same arms."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.agent.agent import Agent
from tsucb.beliefs.belief import Belief
from tsucb.compiler import implements
from tsucb.environments.environment import Environment, advance, begin, reward
from tsucb.logs.logged_data import LoggedData
from tsucb.logs.replay import replay
from tsucb.models.hashed_linear import HashedLinear
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import Choice, choose, explored
from tsucb.simulation.simulate import simulate
from tsucb.step import runs_compiled
from tsucb.testing.demands import check, demand

SEED = 3
LOOPS = ("simulate", "replay", "agent")


class Script(Environment):
    """An environment in which everything is settled: of each step its context and every reward.

    Parameters
    ----------
    contexts
        (T, …), of the model's shape; (T, 0) for none.
    rewards
        (T, K) what each arm pays, which is also its mean.
    offered
        (T, K) whether it can be played.
    """

    contexts: Floats
    rewards: Floats
    offered: NDArray[np.bool_]

    @property
    def arms(self) -> int:
        """K."""
        return int(self.rewards.shape[1])

    @property
    def longest(self) -> int:
        """T."""
        return len(self.rewards)

    @property
    def context_shape(self) -> tuple[int, ...]:
        """Of one step."""
        return self.contexts.shape[1:] if self.contexts.size else ()


class ScriptWorld(NamedTuple):
    """The current step, counted from 0, and room for the arms that can be played."""

    step: Integers
    available: Integers


@implements(begin, Script)
def begin_script(environment, rng):  # type: ignore[no-untyped-def]
    arms = environment.rewards.shape[1]
    return ScriptWorld(np.zeros(1, np.int64), np.zeros(arms, np.int64))


@implements(advance, Script)
def advance_script(environment, world, step, rng):  # type: ignore[no-untyped-def]
    t, n = step - 1, 0
    world.step[0] = t
    for arm in range(world.available.size):
        if environment.offered[t, arm]:
            world.available[n] = arm
            n += 1
    return environment.contexts[t], environment.rewards[t], world.available[:n]


@implements(reward, Script)
def reward_script(environment, world, arm):  # type: ignore[no-untyped-def]
    return environment.rewards[world.step[0], arm]


def script_for(model: Any, arms: int, steps: int, rewards: Sequence[float]) -> Script:
    """Return a script of random contexts, rewards out of `rewards`, and seven in ten arms."""
    rng = np.random.default_rng(11)
    shape = model.context_shape(arms) or (0,)
    offered = rng.random((steps, arms)) < 0.7
    offered[np.arange(steps), rng.integers(arms, size=steps)] = True
    offered[: 2 * arms] = True  # for what pulls every arm first
    contexts = rng.normal(size=(steps, *shape))
    paid = rng.choice(rewards, size=(steps, arms))
    if isinstance(model, HashedLinear):  # rows are pairs of a column and its value
        contexts[:, ::2] = rng.integers(2**model.bits, size=contexts[:, ::2].shape)
    return Script(contexts, paid, offered)


class Interpreted:
    """A policy without its class: what meets it is interpreted, call by call, not compiled."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.name = getattr(policy, "name", type(policy).__name__)

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        """Return what the policy chooses."""
        return choose(self.policy, belief, rng)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        """Return the arm at this place, or another if the policy has a floor."""
        return explored(self.policy, place, arms, rng)


@check
def check_same_arms(
    model: Any,
    policy: Any,
    *,
    arms: int = 4,
    steps: int = 60,
    rewards: Sequence[float] = (0.0, 1.0),
    compiled: Collection[str] = LOOPS,
) -> None:
    """Check that simulation, replay and agent play the same arms for the same seed.

    1. `simulate` plays a script of contexts and rewards, and the arms are kept.
    2. `replay` over the log of exactly that finds that every event matches.
    3. An `Agent` that is asked and rewarded as the script says decides for the same arms.
    4. They do the same compiled as they do interpreted.

    Parameters
    ----------
    model, policy
        As for `tsucb.simulate`; the model derives from `tsucb.Model`.
    rewards
        What arms may pay, each as likely.
    compiled
        Which of the loops are also compiled for the pair, which takes seconds each.

    >>> import tsucb
    >>> check_same_arms(tsucb.GaussianArms(), tsucb.Thompson(), compiled=["replay"])
    """
    script = script_for(model, arms, steps, rewards)
    pair = f"{type(model).__name__} with {getattr(policy, 'name', type(policy).__name__)}"
    plain = Interpreted(policy)
    played = simulated(script, model, plain)
    demand_same(replayed(script, played, model, plain), played, pair, "replay")
    demand_same(decided(script, model, plain), played, pair, "the agent")
    if not runs_compiled(model, policy):
        return
    if "simulate" in compiled:
        demand_same(simulated(script, model, policy), played, pair, "the compiled simulation")
    if "replay" in compiled:
        demand_same(replayed(script, played, model, policy), played, pair, "compiled replay")
    if "agent" in compiled:
        demand_same(decided(script, model, policy), played, pair, "the compiled agent")


def demand_same(found: Integers, played: Integers, pair: str, who: str) -> None:
    """Demand the same arms, or name the first step at which they differ."""
    wrong = np.flatnonzero(found != played)
    demand(
        not wrong.size,
        f"{pair}: {who} does not play the arm of the interpreted simulation at step "
        f"{wrong[:1] + 1} of {played.size}, nor at {max(wrong.size - 1, 0)} others",
    )


def simulated(script: Script, model: Any, policy: Any) -> Integers:
    """Return the arms that a simulation plays."""
    horizon = len(script.rewards)
    result = simulate(
        script, model, [policy], horizon=horizon, runs=1, seed=SEED, workers=1, keep_arms=True,
        progress=False,
    )  # fmt: skip
    assert result.arms is not None
    arms: Integers = result.arms[0, 0]
    return arms


def replayed(script: Script, played: Integers, model: Any, policy: Any) -> Integers:
    """Return the arms that were played where replay picks them, −1 where it picks others."""
    each = np.arange(played.size)
    sets, which = np.unique(script.offered, axis=0, return_inverse=True)
    log = LoggedData(
        played,
        script.rewards[each, played],
        script.contexts if script.contexts.size else None,
        available=([np.flatnonzero(row) for row in sets], which.ravel()),
        propensity=np.full(played.size, 1 / script.arms),  # the same for all: every match counts
    )
    found = np.full(played.size, -1)
    kept = replay(log, model, policy, seed=SEED, lives=1).kept
    found[kept] = played[kept]
    return found


def decided(script: Script, model: Any, policy: Any) -> Integers:
    """Return the arms that an agent decides for."""
    agent = Agent(range(script.arms), model=model, policy=policy, seed=SEED)
    found = np.empty(len(script.rewards), dtype=np.int64)
    for t in range(found.size):
        found[t] = ask(agent, script, t)
    return found


def ask(agent: Agent, script: Script, t: int) -> int:
    """Let the agent decide a step of the script, reward it, and return the arm."""
    offered = np.flatnonzero(script.offered[t])
    context = script.contexts[t] if script.contexts.size else None
    if context is not None and context.ndim == 2:
        context = context[offered]
    decision = agent.choose(context, arms=offered.tolist())
    arm = int(decision.arm)
    agent.reward(decision.id, float(script.rewards[t, arm]))
    return arm
