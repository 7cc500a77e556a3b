"""The check that simulation, replay and agent play the same arms for the same seed."""

from collections.abc import Callable, Collection, Sequence
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
NAMES = {"simulate": "simulation", "replay": "replay", "agent": "agent"}  # of the loops
LOOPS = tuple(NAMES)


class Script(Environment):
    """An environment without randomness: it lists the context and all rewards of every step.

    Parameters
    ----------
    contexts
        (T, …), of the model's shape; (T, 0) for none.
    rewards
        (T, K) the reward of each arm, which is also its mean.
    offered
        (T, K) whether each arm can be played.
    """

    contexts: Floats
    rewards: Floats
    offered: NDArray[np.bool_]

    @property
    def arms(self) -> int:
        """K, the number of arms."""
        return int(self.rewards.shape[1])

    @property
    def longest(self) -> int:
        """T, the number of steps."""
        return len(self.rewards)

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The shape of one step's context; () for none."""
        return self.contexts.shape[1:] if self.contexts.size else ()


class ScriptWorld(NamedTuple):
    """The current step, counted from 0, and a buffer for the available arms."""

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
    """Return a script with random contexts and available arms, and rewards out of `rewards`."""
    rng = np.random.default_rng(11)
    shape = model.context_shape(arms) or (0,)
    offered = rng.random((steps, arms)) < 0.7
    offered[np.arange(steps), rng.integers(arms, size=steps)] = True
    offered[: 2 * arms] = True  # for models that pull every arm first
    contexts = rng.normal(size=(steps, *shape))
    paid = rng.choice(rewards, size=(steps, arms))
    if isinstance(model, HashedLinear):  # rows are pairs of a column and its value
        contexts[:, ::2] = rng.integers(2**model.bits, size=contexts[:, ::2].shape)
    return Script(contexts, paid, offered)


class Interpreted:
    """A policy without its class, so that the loops around it run interpreted, not compiled."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.name = getattr(policy, "name", type(policy).__name__)

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        """Return what the policy chooses."""
        return choose(self.policy, belief, rng)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        """Return `place`, or another arm if the policy has a floor."""
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

    1. `simulate` plays a fixed script of contexts and rewards, interpreted.
    2. `replay` over the log of this run matches every event.
    3. An `Agent` that meets the same contexts and rewards decides for the same arms.
    4. All three play these arms compiled, too.

    Parameters
    ----------
    model, policy
        As for `tsucb.simulate`; the model derives from `tsucb.Model`.
    rewards
        The possible rewards, each equally likely.
    compiled
        The loops that are also compiled, which takes seconds each.

    >>> import tsucb
    >>> check_same_arms(tsucb.GaussianArms(), tsucb.Thompson(), compiled=["replay"])
    """
    script = script_for(model, arms, steps, rewards)
    pair = f"{type(model).__name__} with {getattr(policy, 'name', type(policy).__name__)}"
    plain = Interpreted(policy)
    played = simulated(script, model, plain)
    loops: dict[str, Callable[[Any], Integers]] = {
        "simulate": lambda rule: simulated(script, model, rule),
        "replay": lambda rule: replayed(script, played, model, rule),
        "agent": lambda rule: decided(script, model, rule),
    }
    runs: list[tuple[str, Any, str]] = [(loop, plain, "interpreted") for loop in LOOPS[1:]]
    if runs_compiled(model, policy):
        runs += [(loop, policy, "compiled") for loop in LOOPS if loop in compiled]
    for loop, rule, how in runs:
        wrong = np.flatnonzero(loops[loop](rule) != played)
        demand(
            not wrong.size,
            f"{pair}: the {how} {NAMES[loop]} does not play the arm of the interpreted simulation "
            f"at step {wrong[:1] + 1} of {played.size}, nor at {max(wrong.size - 1, 0)} others",
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
    """Return the arms played, with −1 where replay picks another arm."""
    each = np.arange(played.size)
    sets, which = np.unique(script.offered, axis=0, return_inverse=True)
    log = LoggedData(
        played,
        script.rewards[each, played],
        script.contexts if script.contexts.size else None,
        available=([np.flatnonzero(row) for row in sets], which.ravel()),
        propensity=np.full(played.size, 1 / script.arms),  # equal ones, so that no match is dropped
    )
    matched = np.full(played.size, -1)
    kept = replay(log, model, policy, seed=SEED, lives=1).kept
    matched[kept] = played[kept]
    return matched


def decided(script: Script, model: Any, policy: Any) -> Integers:
    """Return the arms that an agent decides for."""
    agent = Agent(range(script.arms), model=model, policy=policy, seed=SEED)
    return np.array([ask(agent, script, t) for t in range(len(script.rewards))])


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
