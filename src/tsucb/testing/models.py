"""The check of a model: its states, beliefs and learning, and the loops that play it."""

import copy
import json
import pickle
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tsucb.agent.agent import Agent
from tsucb.beliefs.belief import Belief
from tsucb.beliefs.law import IndependentLaw, Law
from tsucb.compiler import offers, run
from tsucb.models.forgetting import Forgetting, can_forget
from tsucb.models.model import Model, forget, trains, update
from tsucb.models.structure import Arrays, leaves, pack, unpack
from tsucb.policies.thompson import Thompson
from tsucb.testing.demands import check, demand, demand_fields, same
from tsucb.testing.loops import LOOPS, Interpreted, Script, ask, check_same_arms, script_for

EVIDENCE = ("pulls", "information")
MOMENTS = ("mean", "std", "estimate", "radius")


# Long because its docstring lists the checks, with a keyword for each that a model may not meet.
@check
def check_model(
    model: Any,
    *,
    policy: Any = None,
    rewards: Sequence[float] = (0.0, 1.0),
    arms: int = 4,
    steps: int = 60,
    order_matters: bool | None = None,
    fixed_prior: bool = True,
    compiled: Collection[str] = LOOPS,
) -> None:
    """Check a model, compiled or in plain Python.

    1. It derives from `tsucb.Model`, holds no state, and survives pickling.
    2. `start` makes a state of arrays in named tuples, the same every time, with the number of
       pulls of each arm. A state can be saved and restored.
    3. A belief has a law and finite moments, one number per arm, and asking for it changes nothing.
       The belief about some arms is that about all arms, in the order asked for.
    4. Learning from many rewards at once is learning from one after the other. Learning changes the
       state in place. It refuses unknown arms, contexts that do not fit and rewards that are not
       numbers, and then changes nothing.
    5. The order of rewards does not matter, unless `order_matters`.
    6. `extend` keeps the knowledge of the old arms, gives new arms the prior, and leaves the old
       state alone.
    7. If it implements `forget`: a weight near zero brings the prior back.
    8. An agent that is saved and loaded decides as before.
    9. Simulation, replay and agent play the same arms, see `check_same_arms`.

    Parameters
    ----------
    model
        The model to check.
    policy
        The policy that plays in 8 and 9; Thompson sampling by default.
    rewards
        Some rewards that the model accepts.
    arms, steps
        Arms and length of the script that is played.
    order_matters
        True to skip 5; the default for `Forgetting`, for models that train, and without a fixed
        prior.
    fixed_prior
        False for a model that also learns its prior: more arms may then change beliefs, and new or
        forgotten arms are not compared with the start.
    compiled
        The loops in 9 that are also compiled, which takes seconds each.

    >>> import tsucb
    >>> check_model(tsucb.BernoulliArms(), compiled=["replay"])
    """
    name = type(model).__name__
    demand(isinstance(model, Model), f"{name} must derive from tsucb.Model")
    demand(
        same(tuple(pickle.loads(pickle.dumps(model))), tuple(model)),
        f"{name} is not the same after pickling",
    )
    shape = model.context_shape(arms)
    demand(
        isinstance(shape, tuple) and all(isinstance(n, int) and n > 0 for n in shape),
        f"context_shape of {name} must be a tuple of positive integers, () for none, not {shape!r}",
    )
    script = script_for(model, arms, steps, rewards)
    check_start(model, arms, name)
    state = state_after(model, script)
    check_saving(model, state, arms, name)
    check_belief(model, state, script, name)
    check_learning(model, state, script, name)
    if order_matters is None:
        order_matters = isinstance(model, Forgetting) or trains(model) or not fixed_prior
    if not order_matters:
        check_order(model, state, script, name)
    check_extension(model, state, script, fixed_prior, name)
    if can_forget(type(model)) and fixed_prior:
        check_forgetting(model, script, name)
    policy = Thompson() if policy is None else policy
    played = policy if "agent" in compiled else Interpreted(policy)
    check_loading(model, played, script, name)
    check_same_arms(model, policy, arms=arms, steps=steps, rewards=rewards, compiled=compiled)


def observations(script: Script) -> list[tuple[Any, int, float]]:
    """Return context, arm and reward of every step, with the arms in turn."""
    arms = np.arange(len(script.rewards)) % script.arms
    contexts = script.contexts if script.contexts.size else [None] * len(arms)
    return [
        (x, int(a), float(r[a])) for x, a, r in zip(contexts, arms, script.rewards, strict=True)
    ]


def state_after(model: Any, script: Script, order: Any = slice(None)) -> Any:
    """Return the state after learning the observations of the script one by one, in this order."""
    state = model.start(script.arms)
    steps = observations(script)
    for i in np.arange(len(steps))[order]:
        demand(
            model.update(state, *steps[i]) is None,
            f"update of {type(model).__name__} must change the state in place and return nothing",
        )
    return state


def belief_about(model: Any, state: Any, script: Script, arms: Any = None, seed: int = 0) -> Belief:
    """Return the belief at the script's first context."""
    context = script.contexts[0] if script.contexts.size else None
    count = model.arms(state)
    if context is not None and context.ndim == 2:  # a row for every arm, also for added ones
        context = np.resize(context, (count, context.shape[1]))
    some = np.arange(count) if arms is None else np.array(arms)
    step = int(np.sum(state.pulls)) + 1
    belief: Belief = model.belief(state, context, some, step=step, rng=np.random.default_rng(seed))
    return belief


def check_start(model: Any, arms: int, name: str) -> None:
    """Check the state before any data."""
    state = model.start(arms)
    demand(
        hasattr(state, "_fields") and list(leaves(state)),
        f"start of {name} must return a named tuple of arrays, not a {type(state).__name__}",
    )
    demand(same(state, model.start(arms)), f"start of {name} without rng differs every time")
    pulls = getattr(state, "pulls", None)
    demand(
        isinstance(pulls, np.ndarray) and pulls.shape == (arms,) and not pulls.any(),
        f"the state of {name} must have pulls, {arms} zeros for {arms} arms at the start",
    )


def check_saving(model: Any, state: Any, arms: int, name: str) -> None:
    """Check that a state survives saving."""
    arrays: Arrays = []
    try:
        packed = json.loads(json.dumps(pack(state, arrays)))
        again = unpack(packed, arrays, model.start(arms))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the state of {name} cannot be saved: {error}") from error
    demand(same(state, again), f"the state of {name} differs after it was saved and restored")
    model.check_state(state, int(1e6))


def check_belief(model: Any, state: Any, script: Script, name: str) -> None:
    """Check beliefs about all arms and about some."""
    before = copy.deepcopy(state)
    whole, arms = belief_about(model, state, script), script.arms
    demand(
        isinstance(whole, Belief) and isinstance(whole.law, Law),
        f"{name} must return a tsucb.Belief with a law, not a {type(whole).__name__}",
    )
    for field in (*MOMENTS, *EVIDENCE):
        values = getattr(whole, field)
        demand(
            values.shape == (arms,) and np.isfinite(values).all(),
            f"{field} of the belief of {name} must be {arms} finite numbers, not {values!r}",
        )
    demand((whole.std >= 0).all(), f"std of the belief of {name} is negative: {whole.std}")
    demand(same(state, before), f"asking {name} for a belief changes its state")
    demand(
        same(whole, belief_about(model, state, script)),
        f"the belief of {name} differs on the same stream; take all randomness from rng",
    )
    # A model that draws arm by arm makes fewer draws here, so drawn fields differ.
    one, other = (belief_about(model, state, script, seed=seed).std for seed in (1, 2))
    drawn = not np.array_equal(one, other)
    fields = ("mean", *EVIDENCE) if drawn else (*MOMENTS, *EVIDENCE)
    for some in ([arms - 1], [arms - 1, 0], [*range(1, arms), 0]):
        expected = whole._replace(**{field: getattr(whole, field)[some] for field in fields})
        demand_fields(
            belief_about(model, state, script, some), expected, fields,
            f"{{field}} of the belief of {name} about the arms {some} is not that of these arms in "
            "the belief about all",
        )  # fmt: skip


def check_learning(model: Any, state: Any, script: Script, name: str) -> None:
    """Check learning from many rewards at once, and refusals."""
    if offers(update, type(model)):  # a plain method `update` may take one reward at a time only
        contexts, pulled, values = zip(*observations(script), strict=True)
        x = None if contexts[0] is None else np.array(contexts)
        demand(
            same(model.fit(script.arms, x, np.array(pulled), np.array(values)), state),
            f"{name} learns something else from many rewards at once than from one after another",
        )
        before = copy.deepcopy(state)
        context, arm, reward = observations(script)[0]
        wrong = [(context, script.arms, reward), (context, -1, reward), (context, arm, np.nan)]
        if context is not None:
            wrong += [(context[..., :-1], arm, reward), (context * np.nan, arm, reward)]
        for x, a, r in wrong:
            try:
                model.update(state, x, a, r)
            except ValueError:
                continue
            raise AssertionError(f"{name} learns from the arm {a}, reward {r} and context {x}")
        demand(same(state, before), f"{name} changes its state although it refuses to learn")


def check_order(model: Any, state: Any, script: Script, name: str) -> None:
    """Check that the order of observations does not matter."""
    order = np.random.default_rng(5).permutation(len(script.rewards))
    other = state_after(model, script, order)
    one, two = (belief_about(model, each, script) for each in (state, other))
    demand_fields(
        one, two, ("mean", "std", *EVIDENCE),
        f"{{field}} of the belief of {name} depends on the order of the rewards; if it should, say "
        "check_model(…, order_matters=True)",
    )  # fmt: skip


def check_extension(model: Any, state: Any, script: Script, fixed_prior: bool, name: str) -> None:
    """Check arms that are added later."""
    before, arms = copy.deepcopy(state), script.arms
    grown = model.extend(copy.deepcopy(state), 2)
    demand(same(state, before), f"extend of {name} changes the state that it is given")
    shapes = [[(x.shape, x.dtype) for x in leaves(s)] for s in (grown, model.start(arms + 2))]
    demand(
        type(grown) is type(state) and shapes[0] == shapes[1],
        f"a state of {name} that was extended has other arrays than one that started so large",
    )
    old = list(range(arms))
    one, two = (belief_about(model, each, script, old) for each in (state, grown))
    fields = (*MOMENTS, *EVIDENCE) if fixed_prior else ("pulls",)
    sentence = f"extend of {name} changes {{field}} of the arms that were there"
    demand_fields(one, two, fields, sentence)
    new = [arms, arms + 1]
    after = belief_about(model, grown, script, new)
    if fixed_prior and isinstance(after.law, IndependentLaw):
        fresh = belief_about(model, model.start(arms + 2), script, new)
        sentence = f"extend of {name} gives new arms another {{field}} than the prior's"
        demand_fields(after, fresh, ("mean", *EVIDENCE), sentence)


def check_forgetting(model: Any, script: Script, name: str) -> None:
    """Check that forgetting everything brings the prior back."""
    wide = Forgetting(model, 0.5)
    faded = state_after(wide, script)
    run(forget, model, faded, 1e-9)
    one, two = (belief_about(wide, each, script) for each in (faded, wide.start(script.arms)))
    for field in ("mean", "std"):
        demand(
            np.allclose(getattr(one, field), getattr(two, field), rtol=1e-3, atol=1e-3),
            f"after {name} has forgotten everything, {field} of its belief is not the prior's",
        )
    demand((one.pulls < 1e-3).all(), f"forget of {name} leaves the pulls as they were")


def check_loading(model: Any, policy: Any, script: Script, name: str) -> None:
    """Check that an agent that is saved and loaded halfway decides as before."""
    half = len(script.rewards) // 2
    agent = Agent(range(script.arms), model=model, policy=policy, seed=1)
    for t in range(half):
        ask(agent, script, t)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.tsucb"
        agent.save(path)
        again = Agent.load(path, model=model, policy=policy)
    for t in range(half, len(script.rewards)):
        demand(
            ask(agent, script, t) == ask(again, script, t),
            f"an agent with {name} decides differently after it was saved and loaded",
        )
