# mypy: disable-error-code="import-not-found,import-untyped"
"""Each library's linear Thompson sampling and LinUCB, called as its documentation calls them.

Every library is imported only in its own environment, hence inside the functions. Contexts are
put into the form a library wants beforehand, so that only its own work is timed. All are given
the true prior N(0, I) and noise 1 where they let one, and no intercept.
"""

import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.peers.problem import Learner, Loop, Policy, Problem

TS, TSUCB, LINUCB, OTHER = "Thompson sampling", "TS-UCB", "LinUCB", "other"


def tsucb() -> list[Policy | Loop]:
    """This library: the agent, one decision at a time, and the simulator's loop."""
    import tsucb

    kinds: list[tuple[tsucb.Policy, str]] = [
        (tsucb.Thompson(), TS),
        (tsucb.TSUCB(1), TSUCB),
        (tsucb.TSUCB(100), TSUCB),
        (tsucb.OFUL(), LINUCB),
    ]

    def make(rule: tsucb.Policy) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            model = tsucb.ContextualLinear(problem.features)
            agent = tsucb.Agent(list(range(problem.arms)), model=model, policy=rule, seed=seed)
            contexts = list(problem.contexts)
            open_decision: list[Any] = []

            def choose(t: int) -> Any:
                decision = agent.choose(contexts[t])
                open_decision.append(decision)
                return decision.arm

            def update(t: int, arm: int, reward: float) -> None:
                if open_decision:
                    agent.reward(open_decision.pop().id, reward)
                else:
                    agent.update(contexts[t], arm, reward)

            return Learner(choose, update)

        return learner

    def play(rule: tsucb.Policy) -> Callable[[int, int, int], object]:
        def loop(arms: int, features: int, steps: int) -> tsucb.Simulation:
            bandit = tsucb.ContextualLinearBandit(arms, features)
            return tsucb.simulate(
                bandit,
                bandit.model(),
                [rule],
                horizon=steps,
                runs=1,
                workers=1,
                checkpoints=1,
                progress=False,
            )

        return loop

    loops = [
        Loop(f"simulate, {rule.name}", kind, play(rule), growth=rule.name in ("TS-UCB(1)", "UCB"))
        for rule, kind in kinds
    ]
    return [*(Policy(f"Agent, {rule.name}", kind, make(rule)) for rule, kind in kinds), *loops]


def mabwiser() -> list[Policy]:
    """MABWiser: its inverse of an unseen arm is λI, not I/λ: only λ = 1 is a prior."""
    from mabwiser.mab import MAB, LearningPolicy

    def make(rule: Any) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            bandit = MAB(list(range(problem.arms)), rule, seed=seed)
            rows = problem.contexts[:, None, :]

            def update(t: int, arm: int, reward: float) -> None:
                bandit.partial_fit([arm], [reward], rows[t])

            def begin(rewards: np.ndarray) -> None:
                bandit.fit(np.arange(problem.arms), rewards, problem.contexts[: problem.arms])

            return Learner(lambda t: bandit.predict(rows[t]), update, begin)

        return learner

    return [
        Policy("LinTS", TS, make(LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0))),
        Policy("LinUCB", LINUCB, make(LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))),
    ]


def contextualbandits() -> list[Policy]:
    """contextualbandits; LinTS also in its cheaper form, which samples rewards as `tsucb` does."""
    from contextualbandits.online import LinTS, LinUCB

    def make(rule: Any, **options: Any) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            bandit = rule(
                problem.arms,
                lambda_=1.0,
                fit_intercept=False,
                use_float=False,
                random_state=seed + 1,
                **options,
            )
            rows = problem.contexts[:, None, :]

            def update(t: int, arm: int, reward: float) -> None:
                bandit.partial_fit(rows[t], np.array([arm]), np.array([reward]))

            def begin(rewards: np.ndarray) -> None:
                bandit.fit(problem.contexts[: problem.arms], np.arange(problem.arms), rewards)

            return Learner(lambda t: int(bandit.predict(rows[t])[0]), update, begin)

        return learner

    return [
        Policy("LinTS", TS, make(LinTS, v_sq=1.0)),
        Policy("LinTS(sample_from='ci')", TS, make(LinTS, v_sq=1.0, sample_from="ci", method="sm")),
        Policy("LinUCB", LINUCB, make(LinUCB, alpha=1.0, method="sm")),
    ]


def river() -> list[Policy]:
    """river: LinUCB only. Its bound is that of a reward, not of its mean: √(1 + xᵀΣx)."""
    from river.bandit import LinUCBDisjoint

    def make(problem: Problem, seed: int) -> Learner:
        bandit = LinUCBDisjoint(alpha=1.0, beta=1.0, seed=seed)
        names = [f"x{i}" for i in range(problem.features)]
        rows = [dict(zip(names, x, strict=True)) for x in problem.contexts.tolist()]
        arms = list(range(problem.arms))
        return Learner(
            lambda t: int(bandit.pull(arms, rows[t])),
            lambda t, arm, reward: bandit.update(arm, rows[t], reward),
        )

    return [Policy("LinUCBDisjoint", LINUCB, make)]


# Long, as its four explorers share the workspace and the parsing of examples.
def vowpalwabbit() -> list[Policy]:
    """Vowpal Wabbit: no posterior; four explorers, through the fastest of its Python calls.

    Examples are built from a dictionary and used for prediction and learning both. Its own
    tutorials pass text, which is slower: one explorer in that way too. Costs are minus rewards.
    """
    from vowpalwabbit import Workspace

    def make(options: str) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            bits = max(18, int(np.ceil(np.log2(4 * problem.arms * problem.features))))
            vw = Workspace(
                f"--cb_explore {problem.arms} {options} --noconstant --quiet -b {bits} "
                f"--random_seed {seed}"
            )
            rows = [{"x": dict(enumerate(x))} for x in problem.contexts.tolist()]
            rng = random.Random(seed)
            open_example: list[tuple[Any, list[float]]] = []

            def choose(t: int) -> int:
                example = vw.example(rows[t])
                probabilities = vw.predict(example)
                open_example.append((example, probabilities))
                left = rng.random()
                for arm, probability in enumerate(probabilities):
                    left -= probability
                    if left < 0:
                        return arm
                return int(np.argmax(probabilities))

            def update(t: int, arm: int, reward: float) -> None:
                if not open_example:
                    choose(t)
                example, probabilities = open_example.pop()
                example.unsetup_example()
                example.set_label_string(f"{arm + 1}:{-reward}:{probabilities[arm] or 1.0}")
                example.setup_example()
                vw.learn(example)
                vw.finish_example(example)

            return Learner(choose, update)

        return learner

    def make_text(options: str) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            vw = Workspace(f"--cb_explore {problem.arms} {options} --noconstant --quiet")
            rows = [
                "| " + " ".join(f"{i}:{value:.9g}" for i, value in enumerate(x))
                for x in problem.contexts
            ]
            rng = random.Random(seed)
            last = [1.0 / problem.arms] * problem.arms

            def choose(t: int) -> int:
                last[:] = vw.predict(rows[t])
                return rng.choices(range(problem.arms), last)[0]

            def update(t: int, arm: int, reward: float) -> None:
                vw.learn(f"{arm + 1}:{-reward}:{last[arm]} {rows[t]}")

            return Learner(choose, update)

        return learner

    return [
        Policy("--epsilon 0.1", OTHER, make("--epsilon 0.1")),
        Policy("--epsilon 0.1, as text", OTHER, make_text("--epsilon 0.1"), growth=False),
        Policy("--first 100", OTHER, make("--first 100"), growth=False),
        Policy("--bag 5", OTHER, make("--bag 5")),
        Policy("--squarecb", OTHER, make("--squarecb"), growth=False),
    ]


def bayesianbandits() -> list[Policy]:
    """bayesianbandits: Thompson sampling; UCB and IDS from 1,000 samples, its defaults."""
    from bayesianbandits import (
        Arm,
        ContextualAgent,
        InformationDirectedSampling,
        NormalRegressor,
        ThompsonSampling,
        UpperConfidenceBound,
    )

    def make(rule: Callable[[], Any]) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            arms = [
                Arm(k, learner=NormalRegressor(alpha=1.0, beta=1.0)) for k in range(problem.arms)
            ]
            agent = ContextualAgent(arms, rule(), random_seed=seed)
            rows = problem.contexts[:, None, :]

            def update(t: int, arm: int, reward: float) -> None:
                agent.select_for_update(arm).update(rows[t], np.array([reward]))

            return Learner(lambda t: int(agent.pull(rows[t])[0]), update)

        return learner

    return [
        Policy("ThompsonSampling", TS, make(ThompsonSampling)),
        Policy("UpperConfidenceBound", LINUCB, make(lambda: UpperConfidenceBound(alpha=0.8413))),
        Policy("InformationDirectedSampling", OTHER, make(InformationDirectedSampling), False),
    ]


def obp() -> list[Policy]:
    """Open Bandit Pipeline: the linear policies alone, as the package would import PyTorch too."""
    import obp

    package = ModuleType("obp.policy")
    package.__path__ = [f"{obp.__path__[0]}/policy"]
    sys.modules["obp.policy"] = package
    from obp.policy.linear import LinTS, LinUCB

    def make(rule: Any, **options: Any) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            policy = rule(
                dim=problem.features, n_actions=problem.arms, random_state=seed, **options
            )
            rows = problem.contexts[:, None, :]
            return Learner(
                lambda t: int(policy.select_action(rows[t])[0]),
                lambda t, arm, reward: policy.update_params(arm, reward, rows[t]),
            )

        return learner

    return [Policy("LinTS", TS, make(LinTS)), Policy("LinUCB", LINUCB, make(LinUCB, epsilon=1.0))]


def coba() -> list[Policy]:
    """coba: one shared model of arm × context, K·d coefficients and one matrix over all of them."""
    from coba.learners import LinTSLearner, LinUCBLearner

    def make(rule: Any) -> Callable[[Problem, int], Learner]:
        def learner(problem: Problem, seed: int) -> Learner:
            bandit = rule(seed + 1)
            arms = [tuple(float(i == k) for i in range(problem.arms)) for k in range(problem.arms)]
            index = {arm: k for k, arm in enumerate(arms)}
            rows = [tuple(x) for x in problem.contexts.tolist()]
            return Learner(
                lambda t: index[bandit.predict(rows[t], arms)[0]],
                lambda t, arm, reward: bandit.learn(rows[t], arms[arm], reward, 1.0),
            )

        return learner

    return [
        Policy("LinTSLearner", TS, make(lambda seed: LinTSLearner(1.0, ["ax"], seed))),
        Policy("LinUCBLearner", LINUCB, make(lambda seed: LinUCBLearner(1.0, ["ax"], seed))),
    ]
