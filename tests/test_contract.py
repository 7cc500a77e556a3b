"""Everything that the package exports keeps the contract of `tsucb.testing`.

No class is listed here: `everything` finds what `tsucb` exports.
"""

import inspect
import itertools
import math
import os
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from everything import (
    ENVIRONMENTS,
    MODELS,
    POLICIES,
    QUICK,
    aside,
    descendants,
    example,
    label,
    rng,
)

import tsucb
from tsucb import beliefs
from tsucb.beliefs import Belief, Gaussian, IndependentLaw, Law
from tsucb.beliefs.best import expected_best
from tsucb.beliefs.law import draw, upper_quantiles
from tsucb.compiler import MissingImplementation, implements
from tsucb.environments.environment import advance
from tsucb.models.k_armed import ArmTotals
from tsucb.models.model import belief
from tsucb.paper.news.bandit import NewsBandit
from tsucb.paper.news.clicks import ClickModel
from tsucb.paper.news.generate import make_news
from tsucb.paper.news.parser import read_day
from tsucb.step import runs_compiled
from tsucb.testing import (
    check_environment,
    check_law,
    check_model,
    check_policy,
    check_same_arms,
)
from tsucb.testing.loops import (
    LOOPS,
    Interpreted,
    Script,
    decided,
    replayed,
    script_for,
    simulated,
)
from tsucb.testing.policies import example_beliefs


def with_jax(model: Any) -> Any:
    """Return a model as a parameter, skipped if it trains and there is nothing to train with."""
    inner = getattr(model, "model", model)
    if type(inner).__module__.startswith("tsucb.models.neural"):
        pytest.importorskip("jax", reason="networks train with JAX: pip install 'tsucb[deep]'")
        pytest.importorskip("optax")
    return model


def test_nothing_that_is_exported_is_left_out() -> None:
    """Every class of a kind is among the examples, and every law among the beliefs."""
    for kind, things in (
        (tsucb.Policy, POLICIES),
        (tsucb.Model, MODELS),
        (tsucb.Environment, ENVIRONMENTS),
    ):
        missing = {c for c in descendants(kind) if issubclass(c, tuple)} - set(map(type, things))
        inner = {c for c in missing if c.__name__ not in dir(tsucb)}
        assert missing == inner, f"{kind.__name__}: no example of {missing - inner}"
    laws = {getattr(beliefs, name) for name in beliefs.__all__}
    laws = {c for c in laws if inspect.isclass(c) and issubclass(c, Law)} - {Law, IndependentLaw}
    assert laws == {type(belief.law) for belief in example_beliefs()}


@pytest.mark.parametrize("belief", example_beliefs(), ids=lambda b: type(b.law).__name__)
@aside
def test_laws(belief: Belief) -> None:
    check_law(belief)


@aside
def test_joint_law_with_a_part_of_each_arm_of_its_own() -> None:
    factor = [[1.0, 0.0], [0.5, 0.5], [0.1, -0.3], [0.0, 1.0]]
    check_law(tsucb.JointGaussianBelief([0.1, 0.2, 0.3, -0.5], factor, [0.5, 0.1, 0.2, 0.3]))


@pytest.mark.parametrize("policy", POLICIES, ids=label)
@aside
def test_policies(policy: Any) -> None:
    # The first arm of several is part of the rule of the paper's greedy, and of its IDS.
    first = getattr(policy, "first", False) or isinstance(policy, tsucb.GridIDS)
    check_policy(policy, fair_ties=not first)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=label)
@aside
def test_environments(environment: Any) -> None:
    check_environment(environment, steps=300)


def test_news(tmp_path: Path) -> None:
    """The news bandit, which is made from a log."""
    [path] = make_news(tmp_path, days=1, lines=40_000)
    bandit = NewsBandit.of(read_day(path), ClickModel.load(tmp_path / "truth.npz"))
    check_environment(bandit, steps=min(500, bandit.steps))


def compiled_pairs() -> list[tuple[Any, Any, tuple[str, ...]]]:
    """Return every model with a policy, and the loop to compile for the pair; both in turn.

    Compiling a loop takes seconds, so this happens once per class of models, with every type of
    policies that Numba tells apart. For the other layouts of a model only beliefs and updates are
    compiled.
    """
    policies = itertools.cycle({numba.typeof(policy): policy for policy in POLICIES}.values())
    loops = itertools.cycle(LOOPS)
    seen, pairs = set(), []
    for model in MODELS:
        if not runs_compiled(model):
            pairs.append((model, POLICIES[0], ()))
            continue
        kind = type(model), type(getattr(model, "model", None))
        pairs.append(
            (model, POLICIES[0], ()) if kind in seen else (model, next(policies), (next(loops),))
        )
        seen.add(kind)
    return pairs


PAIRS = compiled_pairs()


@pytest.mark.parametrize(
    ("model", "policy", "compiled"), PAIRS, ids=[label(model) for model, *_ in PAIRS]
)
@aside
def test_models(model: Any, policy: Any, compiled: tuple[str, ...]) -> None:
    inner = getattr(model, "model", model)
    # These learn their prior, or draw it.
    learned = (
        tsucb.AdaptiveCurves,
        tsucb.AdaptiveLinear,
        tsucb.HashedLinear,
        tsucb.HybridCurves,
        tsucb.HybridLinear,
        tsucb.LogisticArms,
        tsucb.Ensemble,
        tsucb.DeepEnsemble,
        tsucb.BootstrappedHeads,
    )
    fixed = not isinstance(inner, learned)
    # With rewards of 0 and 1 arms of this model tie up to rounding, which differs in compiled
    # code.
    ties = isinstance(inner, tsucb.HashedLinear)
    rewards = np.random.default_rng(0).random(60) if ties else (0.0, 1.0)
    check_model(
        with_jax(model), policy=policy, compiled=compiled, fixed_prior=fixed, rewards=rewards
    )


def test_every_policy_is_compiled_into_some_loops() -> None:
    kinds = {numba.typeof(policy) for policy in POLICIES}
    assert kinds == {numba.typeof(policy) for _, policy, compiled in PAIRS if compiled}


EVERYTHING = bool(os.environ.get("TSUCB_TEST_ALL"))


@pytest.mark.parametrize("model", MODELS, ids=label)
@aside
def test_every_model_and_every_policy_play_the_same_arms_everywhere(model: Any) -> None:
    """In simulation, replay and agent. `TSUCB_TEST_ALL=1` also compiles each pair: an hour."""
    compiled = LOOPS if EVERYTHING else ()
    for policy in POLICIES:
        # After 20 rewards networks are trained.
        check_same_arms(with_jax(model), policy, steps=24, compiled=compiled)


# Open to the outside: subclasses, laws that offer little, classes that are half there.


class Louder(tsucb.TSUCB):
    """A subclass that changes nothing that is compiled."""

    @property
    def name(self) -> str:
        return "LOUD"


class Contrary(tsucb.TSUCB):
    """A subclass with a rule of its own, in plain Python."""

    def choose(self, belief: Belief, rng: np.random.Generator) -> Any:
        return int(belief.mean.argmin())


def test_a_subclass_of_a_policy_runs_compiled_unless_it_chooses_itself() -> None:
    model = tsucb.GaussianArms()
    assert runs_compiled(model, Louder(1))
    assert not runs_compiled(model, Contrary(1))
    script = script_for(model, 4, 60, [0.0, 1.0])
    parent, child = (simulated(script, model, policy) for policy in (tsucb.TSUCB(1), Louder(1)))
    np.testing.assert_array_equal(parent, child)
    belief = tsucb.GaussianBelief([0.0, 0.5], [1.0, 1.0])
    assert {tsucb.policies.choose(Contrary(1), belief, rng(i)).arm for i in range(20)} == {0}


class Doubling(tsucb.GaussianArms):
    """A subclass that learns in a way of its own, in plain Python."""

    def update(self, state: Any, context: Any, arm: Any, reward: Any) -> None:
        super().update(state, context, arm, 2 * np.asarray(reward))


def test_what_a_subclass_does_in_plain_python_is_done_in_every_loop() -> None:
    assert not runs_compiled(Doubling(), tsucb.Greedy())
    check_same_arms(Doubling(), tsucb.Greedy())


class Coin(Law):
    """A law with draws only: each arm is low or high with probability ½."""

    low: Any
    high: Any


@implements(draw, Coin)
def draw_coin(belief, rng, out):  # type: ignore[no-untyped-def]
    law = belief.law
    for a in range(out.size):
        out[a] = law.low[a] if rng.random() < 0.5 else law.high[a]


def coins() -> Belief:
    low, high = np.array([0.0, 0.4, -1.0]), np.array([1.0, 0.6, 0.0])
    return Belief(Coin(low, high), (low + high) / 2, (high - low) / 2, step=100)


@pytest.mark.parametrize(
    "policy", [tsucb.TSUCB(math.inf), tsucb.IDS(math.inf), tsucb.BayesUCB(), tsucb.Thompson()]
)
def test_a_law_that_can_only_be_drawn_from_is_sampled(policy: tsucb.Policy) -> None:
    belief = coins()
    assert not policy.is_exact(belief)
    choice = policy.choose(belief, rng())
    # Arm 0 is 0 or 1, arm 1 0.4 or 0.6, arm 2 below both: E[max] = (1 + 1 + 0.4 + 0.6) / 4.
    if isinstance(policy, tsucb.TSUCB):
        # 10,000 draws with deviation 0.26: five standard errors.
        assert choice == (0, pytest.approx(0.75, abs=5 * 0.26 / 100), 0)
    if isinstance(policy, tsucb.BayesUCB):
        assert choice == (0, 1.0, 0)
    found = policy.probabilities(belief, rng(), repetitions=200)
    assert found.sum() == pytest.approx(1.0)
    assert found[2] < 0.01
    if isinstance(policy, tsucb.Thompson):
        # Arm 0 wins half of the draws: 200 of them at five standard errors.
        assert found[0] == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(200))


class Mute(tsucb.Policy):
    """A policy without a rule."""


class Deaf(tsucb.Model):
    """A model that believes and never learns."""

    state = ArmTotals


@implements(belief, Deaf)
def belief_of_deaf(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    zeros, ones = np.zeros(arms.size), np.ones(arms.size)
    return Belief(Gaussian(), zeros, ones, zeros, ones, state.pulls[arms], zeros, step, 1, 1.0)


class Timeless(tsucb.Environment):
    """An environment with steps and no beginning."""

    arms: int

    context_shape = ()


@implements(advance, Timeless)
def advance_timeless(environment, world, step, rng):  # type: ignore[no-untyped-def]
    return np.zeros(0), np.zeros(environment.arms), np.arange(environment.arms)


class Silent(Law):
    """A law without draws."""


BANDIT = tsucb.KArmedBandit(3, tsucb.GaussianArms())
HALF = {
    "policy": (
        lambda: tsucb.simulate(BANDIT, tsucb.GaussianArms(), [Mute()], horizon=5, runs=1),
        r"Mute has no choose\(policy, belief, rng\); write one and register it with "
        r"@implements\(tsucb.policies.policy.choose, Mute\), or give it a method choose",
    ),
    "model": (
        lambda: tsucb.simulate(BANDIT, Deaf(), [tsucb.Greedy()], horizon=5, runs=1),
        r"Deaf has no update\(model, state, context, arm, reward\); write one",
    ),
    "environment": (
        lambda: tsucb.simulate(
            Timeless(3), tsucb.GaussianArms(), [tsucb.Greedy()], horizon=5, runs=1
        ),
        r"Timeless has no begin\(environment, rng\); write one",
    ),
    "law": (
        lambda: tsucb.Thompson().choose(Belief(Silent(), [0, 1], [1, 1]), rng()),
        r"Silent has no draw\(belief, rng, out\); write one and register it with "
        r"@implements\(tsucb.beliefs.law.draw, Silent\)$",
    ),
}


@pytest.mark.parametrize(("use", "sentence"), HALF.values(), ids=HALF)
def test_a_class_that_is_half_there_gets_one_sentence(use: Any, sentence: str) -> None:
    with pytest.raises(MissingImplementation, match=sentence):
        use()


@pytest.mark.parametrize(
    ("check", "thing"),
    [
        (check_policy, Mute()),
        (check_model, Deaf()),
        (check_environment, Timeless(3)),
        (check_law, Belief(Silent(), [0, 1], [1, 1])),
    ],
    ids=["policy", "model", "environment", "law"],
)
def test_the_checks_say_it_too(check: Any, thing: Any) -> None:
    with pytest.raises(AssertionError, match=r"has no \w+\(.*write one"):
        check(thing)


# Reasons, training and forgetting, in all three loops.


def test_a_choice_carries_its_reason() -> None:
    belief = tsucb.GaussianBelief([0.1, 0.2, 0.3], [1.0, 0.5, 0.1])
    exact = tsucb.TSUCB(math.inf).choose(belief, rng())
    assert exact.target == expected_best(belief)
    psi = (exact.target - belief.estimate) / belief.radius
    assert exact.arm == psi.argmin()
    drawn = np.empty(3)
    draw(belief, rng(4), drawn)
    best = drawn.argmax()
    assert tsucb.Thompson().choose(belief, rng(4)) == (best, drawn.max(), best)
    assert tsucb.Greedy().choose(belief, rng()) == (2, 0.3, 2)
    assert math.isnan(tsucb.Random().choose(belief, rng()).target)
    agent = tsucb.Agent(range(2), model=tsucb.GaussianArms(empirical=False), policy=tsucb.TSUCB(1))
    assert math.isfinite(agent.choose().explain().target)


def test_all_three_loops_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 20 of 60 rewards, and at the end."""
    model = with_jax(example(tsucb.NeuralLinear, hidden=(6, 5), training=QUICK["training"]))
    trained = 0

    def trainer(self: Any, states: Any) -> Any:
        def count() -> None:
            nonlocal trained
            trained += 1

        return count

    monkeypatch.setattr(tsucb.NeuralLinear, "trainer", trainer)
    script, policy = script_for(model, 4, 60, [0.0, 1.0]), Interpreted(tsucb.Greedy())
    played = simulated(script, model, policy)
    assert trained == 2  # at the end of a simulation there is nothing left to learn for
    replayed(script, played, model, policy)
    assert trained == 2 + 3
    decided(script, model, policy)
    assert trained == 2 + 3 + 3


def test_all_three_loops_forget() -> None:
    """Arm 0 pays for 40 steps, then arm 1: a model that forgets soon finds the better arm."""
    steps, model = 80, tsucb.GaussianArms(empirical=False)
    rewards = np.zeros((steps, 2))
    rewards[:40, 0] = rewards[40:, 1] = 5.0
    script = Script(np.empty((steps, 0)), rewards, np.ones((steps, 2), dtype=np.bool_))
    policy = Interpreted(tsucb.Thompson())
    for learner in (model, tsucb.Forgetting(model, 0.8)):
        played = simulated(script, learner, policy)
        # Without forgetting, arm 0 still averages 2.5 at the end, ten deviations above arm 1.
        late = played[60:].mean()
        assert late > 0.8 if isinstance(learner, tsucb.Forgetting) else late < 0.2
        for other in (
            replayed(script, played, learner, policy),
            decided(script, learner, policy),
        ):
            np.testing.assert_array_equal(other, played)


def test_example_says_what_it_does_not_know() -> None:
    def strange(nonsense: int) -> None:
        """Requires what nothing else does."""

    with pytest.raises(TypeError, match="no typical value for the parameter nonsense of strange"):
        example(strange)


# The checks find mistakes.


class Boastful(Coin):
    """A law whose quantiles are never exceeded."""


@implements(upper_quantiles, Boastful)
def upper_quantiles_boastful(belief, tail, out):  # type: ignore[no-untyped-def]
    out[:] = belief.law.high + 1.0


def test_check_law_finds_what_is_wrong() -> None:
    belief = coins()
    check_law(belief, draws=2_000)
    with pytest.raises(AssertionError, match=r"mean is .* but draws of Coin average"):
        check_law(belief._replace(mean=np.array([0.5, 0.5, 0.5])), draws=2_000)
    with pytest.raises(AssertionError, match=r"std is .* but that of draws of Coin is"):
        check_law(belief._replace(std=1.2 * belief.std), draws=2_000)
    with pytest.raises(AssertionError, match=r"upper_quantiles of Boastful at 0.5 are exceeded"):
        check_law(belief._replace(law=Boastful(belief.law.low + 1e-9, belief.law.high)), 2_000)


class Faulty:
    """A policy in plain Python that is right but for one thing."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.name = "\n" if fault == "name" else "faulty"
        self.own = np.random.default_rng(0)

    def choose(self, belief: Belief, rng: np.random.Generator) -> Any:
        if self.fault == "range":
            return belief.mean.size
        if self.fault == "reason":
            return tsucb.Choice(0, None, 0)  # type: ignore[arg-type]
        if self.fault == "belief":
            belief.mean[0] += 1e-6
        if self.fault == "ties":
            return int(belief.mean.argmax())
        return int((self.own if self.fault == "stream" else rng).integers(belief.mean.size))


FAULTS = {
    "name": "must be printable",
    "range": "which is no arm of the 4",
    "reason": "it must be a float, NaN for none",
    "stream": "chooses differently on the same stream",
    "belief": "changes the belief",
    "ties": r"plays four equal arms \[2000, 0, 0, 0\] times",
}


def test_check_policy_finds_what_is_wrong() -> None:
    check_policy(Faulty("none"))
    for fault, sentence in FAULTS.items():
        with pytest.raises(AssertionError, match=sentence):
            check_policy(Faulty(fault))


class Unequal(tsucb.Policy):
    """A policy that is wrong about its own probabilities."""

    def choose(self, belief: Belief, rng: np.random.Generator) -> Any:
        return int(rng.integers(belief.mean.size))

    def is_exact(self, belief: Belief) -> bool:
        return True

    def probabilities(self, belief: Belief, rng: Any = None, repetitions: int = 0) -> Any:
        return np.eye(belief.mean.size)[0] * 0.5 + 0.5 / belief.mean.size


def test_check_policy_compares_probabilities_with_choices() -> None:
    with pytest.raises(AssertionError, match="plays its arms with frequencies"):
        check_policy(Unequal())


class Fair:
    """An environment in plain Python that is right."""

    arms, context_shape = 2, ()

    def begin(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"means": rng.random(2), "rng": rng}

    def advance(self, world: Any, step: int, rng: np.random.Generator) -> Any:
        world["noise"] = rng.normal()
        return None, world["means"], np.arange(2)

    def reward(self, world: Any, arm: int) -> float:
        return float(world["means"][arm] + world["noise"])


class Late(Fair):
    """Draws its noise when it is asked for the reward."""

    def reward(self, world: Any, arm: int) -> float:
        return float(world["means"][arm] + world["rng"].normal())


class Biased(Fair):
    """Pays more than it says."""

    def reward(self, world: Any, arm: int) -> float:
        return super().reward(world, arm) + 0.5


class Crowded(Fair):
    """Lists an arm twice."""

    def advance(self, world: Any, step: int, rng: np.random.Generator) -> Any:
        return *super().advance(world, step, rng)[:2], np.array([1, 1])


class Square(Fair):
    """Says that it has contexts."""

    context_shape = (3, 3)


def test_check_environment_finds_what_is_wrong() -> None:
    check_environment(Fair())
    for wrong, sentence in {
        Late: "asking Late for rewards changes what comes later",
        Biased: r"rewards of Biased are on average \+0",
        Crowded: "list at least one of 0 to 1, each once",
        Square: r"has shape \(\), but context_shape says \(3, 3\)",
    }.items():
        with pytest.raises(AssertionError, match=sentence):
            check_environment(wrong())


class Averaging(tsucb.Model):
    """A model in plain Python that is right: K normal arms of noise 1, and a prior N(0, 1)."""

    state = ArmTotals

    def belief(self, state: Any, context: Any, arms: Any, *, step: int, rng: Any) -> Belief:  # type: ignore[override]
        pulls, total = state.pulls[arms], state.rewards[arms]
        return tsucb.GaussianBelief(total / (1 + pulls), 1 / np.sqrt(1.0 + pulls), pulls=pulls)

    def update(self, state: Any, context: Any, arm: Any, reward: Any) -> None:
        state.pulls[arm] += 1
        state.rewards[arm] += reward


class Fickle(Averaging):
    """Learns the latest reward only."""

    def update(self, state: Any, context: Any, arm: Any, reward: Any) -> None:
        state.pulls[arm] += 1
        state.rewards[arm] = state.pulls[arm] * reward


class Careless(Averaging):
    """Changes its state when asked for a belief."""

    def belief(self, state: Any, context: Any, arms: Any, *, step: int, rng: Any) -> Belief:  # type: ignore[override]
        state.rewards[0] += 1
        return super().belief(state, context, arms, step=step, rng=rng)


class Forgetful(Averaging):
    """Loses the old arms when new ones come."""

    def extend(self, state: Any, arms: int) -> Any:
        return self.start(state.pulls.size + arms)


class Muddled(Averaging):
    """Orders the arms in its own way, not as they were asked for."""

    def belief(self, state: Any, context: Any, arms: Any, *, step: int, rng: Any) -> Belief:  # type: ignore[override]
        return super().belief(state, context, np.sort(arms), step=step, rng=rng)


def test_check_model_finds_what_is_wrong() -> None:
    check_model(Averaging())
    check_model(Fickle(), order_matters=True)
    for wrong, sentence in {
        Fickle: "depends on the order of the rewards",
        Careless: "asking Careless for a belief changes its state",
        Forgetful: "extend of Forgetful changes mean of the arms that were there",
        Muddled: r"about the arms \[3, 0\] is not that of these arms",
    }.items():
        with pytest.raises(AssertionError, match=sentence):
            check_model(wrong())
