# mypy: disable-error-code="import-not-found,import-untyped"
"""All contestants: `choose(x)` returns an arm, `learn(x, arm, reward)` learns its reward.

Each library is called as its own tutorial calls it, with the settings that stand there; where the
tutorial sets nothing, neither does this. A library is imported only in its own environment, hence
inside the classes, and this module needs nothing but NumPy.
"""

import math
import random
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Learner(Protocol):
    """A bandit at work."""

    def choose(self, x: Floats) -> int:
        """Return the arm to play for a context (d,)."""

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        """Learn the reward of the arm just chosen."""


class Contestant(NamedTuple):
    """A learner with a name, and what it is compared as."""

    name: str
    library: str  # whose environment it runs in
    role: str  # one of the roles below
    setting: str  # what is set, for the reader
    make: Callable[[int, int, int], Learner]  # arms K, features d, seed
    binary: bool = False  # takes rewards 0 and 1 only


DEFAULT = "default"  # what the benchmark is about
LINEAR = "linear"  # the same without curves, and without noticing change
GREEDY = "greedy"  # the same belief, without exploration
POLICY = "policy"  # the same belief, other policies
GRID = "grid"  # fixed priors, a line of reference
MODEL = "model"  # other models of this library, beside the default
LIBRARY = "library"  # other libraries


class Tsucb:
    """This library's agent, with defaults for all other settings."""

    def __init__(self, arms: int, features: int, seed: int, **options: Any) -> None:
        import tsucb

        precision, model = options.pop("precision", None), options.pop("model", None)
        if model is not None:
            options["model"] = model(tsucb, features)
        elif precision is not None:
            options["model"] = tsucb.NIGLinear(features, prior_precision=precision)
        else:
            options["features"] = features
        policy = options.pop("policy", None)
        if policy is not None:
            options["policy"] = policy(tsucb)
        self.agent = tsucb.Agent(list(range(arms)), seed=seed, **options)

    def choose(self, x: Floats) -> int:
        self.decision = self.agent.choose(x)
        return int(self.decision.arm)

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.agent.reward(self.decision.id, reward)


class VowpalWabbit:
    """Text as in the tutorial on personalisation: namespaces User and Action, and their products.

    Costs are minus rewards. A feature that is 0 is left out: the format is sparse.
    """

    def __init__(self, arms: int, features: int, seed: int, *, options: str) -> None:
        import vowpalwabbit

        self.label_type = vowpalwabbit.LabelType.CONTEXTUAL_BANDIT
        self.vw = vowpalwabbit.Workspace(
            f"--cb_explore_adf -q UA --quiet --random_seed {seed} {options}"
        )
        self.rng = random.Random(seed)
        self.actions = [f"|Action arm={arm}" for arm in range(arms)]

    def choose(self, x: Floats) -> int:
        values = " ".join(f"x{i}:{x[i]:.9g}" for i in np.flatnonzero(x))
        self.shared = f"shared |User {values}"
        self.pmf = self.vw.predict("\n".join([self.shared, *self.actions]))
        return self.rng.choices(range(len(self.pmf)), self.pmf)[0]

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        lines = [self.shared, *self.actions]
        lines[arm + 1] = f"0:{-reward}:{self.pmf[arm]} {lines[arm + 1]}"
        examples = self.vw.parse("\n".join(lines), self.label_type)
        self.vw.learn(examples)
        self.vw.finish_example(examples)


class AfterEachArm:
    """Plays every arm once, in turn, for a library that must be fitted before it can choose."""

    def __init__(self, arms: int) -> None:
        self.arms = arms
        self.first: list[tuple[Floats, int, float]] = []

    def choose(self, x: Floats) -> int:
        return len(self.first) if len(self.first) < self.arms else self.predict(x)

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        if len(self.first) < self.arms:
            self.first.append((x, arm, reward))
            if len(self.first) == self.arms:
                contexts, arms, rewards = zip(*self.first, strict=True)
                self.fit(np.array(contexts), np.array(arms), np.array(rewards))
        else:
            self.update(x[None], np.array([arm]), np.array([reward]))

    def predict(self, x: Floats) -> int:
        raise NotImplementedError

    def fit(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        raise NotImplementedError

    def update(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        raise NotImplementedError


class MABWiser(AfterEachArm):
    """The linear policies of MABWiser's `parametric_mab.py`."""

    def __init__(self, arms: int, features: int, seed: int, *, rule: str, alpha: float) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        super().__init__(arms)
        policy = getattr(LearningPolicy, rule)(alpha=alpha, l2_lambda=1)
        self.bandit = MAB(arms=list(range(arms)), learning_policy=policy, seed=seed)

    def predict(self, x: Floats) -> int:
        return int(self.bandit.predict(x[None]))

    def fit(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        self.bandit.fit(arms, rewards, contexts)

    def update(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        self.bandit.partial_fit(arms, rewards, contexts)


class MABWiserTrees(MABWiser):
    """MABWiser's `TreeBandit`: a tree of each arm, fitted at every step, and ε-greedy choices."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy, NeighborhoodPolicy

        AfterEachArm.__init__(self, arms)
        rule, trees = LearningPolicy.EpsilonGreedy(), NeighborhoodPolicy.TreeBandit()
        self.bandit = MAB(list(range(arms)), rule, trees, seed=seed)


class LinUCB(AfterEachArm):
    """LinUCB of contextualbandits."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        from contextualbandits.online import LinUCB

        super().__init__(arms)
        self.bandit = LinUCB(arms, random_state=seed + 1)

    def predict(self, x: Floats) -> int:
        return int(self.bandit.predict(x[None])[0])

    def fit(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        self.bandit.fit(contexts, arms, rewards)

    def update(self, contexts: Floats, arms: Any, rewards: Floats) -> None:
        self.bandit.partial_fit(contexts, arms, rewards)


class Refitted:
    """The notebook of contextualbandits: 50 arms at random, then a new fit every 50 rounds."""

    BATCH = 50

    def __init__(self, arms: int, features: int, seed: int, *, rule: str, base: str = "") -> None:
        from contextualbandits import online

        options = {"base_algorithm": estimator(base)} if base else {}
        self.bandit = getattr(online, rule)(nchoices=arms, random_state=seed + 1, **options)
        self.arms, self.rng = arms, random.Random(seed)
        self.seen: list[tuple[Floats, int, float]] = []

    def choose(self, x: Floats) -> int:
        if len(self.seen) < self.BATCH:
            return self.rng.randrange(self.arms)
        return int(self.bandit.predict(x[None])[0])

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.seen.append((x, arm, reward))
        if len(self.seen) % self.BATCH == 0:
            contexts, arms, rewards = (np.array(part) for part in zip(*self.seen, strict=True))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fits that end before they converge
                self.bandit.fit(contexts, arms, rewards)


def estimator(name: str) -> Any:
    """Return a classifier of scikit-learn."""
    if name == "tree":
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier()
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(solver="lbfgs")


class SpaceBandits:
    """Thompson sampling of space-bandits: Bayesian regressions on a network's last layer."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        import torch
        from space_bandits import NeuralBandits

        torch.manual_seed(seed)
        np.random.seed(seed)
        self.bandit = NeuralBandits(arms, features, verbose=False)

    def choose(self, x: Floats) -> int:
        return int(self.bandit.action(x))

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.bandit.update(x, arm, reward)


class River:
    """river, which takes dictionaries."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        from river.bandit import LinUCBDisjoint

        self.bandit = LinUCBDisjoint(seed=seed)
        self.arms = list(range(arms))
        self.names = [f"x{i}" for i in range(features)]

    def choose(self, x: Floats) -> int:
        self.context = dict(zip(self.names, x.tolist(), strict=True))
        return int(self.bandit.pull(self.arms, self.context))

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.bandit.update(arm, self.context, reward)


class BayesianBandits:
    """The agent of bayesianbandits' first page."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        import bayesianbandits as bb

        self.agent = bb.ContextualAgent(
            [bb.Arm(arm, learner=bb.NormalInverseGammaRegressor()) for arm in range(arms)],
            bb.UpperConfidenceBound(alpha=0.84),
            random_seed=seed,
        )

    def choose(self, x: Floats) -> int:
        return int(self.agent.pull(x[None])[0])

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.agent.update(x[None], np.array([reward]))


class EmpiricalBayes(BayesianBandits):
    """The agent of bayesianbandits' notebook on empirical Bayes.

    One regression of all arms' coefficients, a block each, whose prior and noise are learned. The
    notebook starts it from a wrong prior on purpose; here it starts from its defaults.
    """

    def __init__(self, arms: int, features: int, seed: int) -> None:
        import bayesianbandits as bb

        def blocks(contexts: Floats, tokens: Any) -> Floats:
            out = np.zeros((len(contexts), arms * features, len(tokens)))
            for i, arm in enumerate(tokens):
                out[:, arm * features : (arm + 1) * features, i] = contexts
            return out

        self.agent = bb.LipschitzContextualAgent(
            arms=[bb.Arm(arm) for arm in range(arms)],
            learner=bb.EmpiricalBayesNormalRegressor(),
            policy=bb.ThompsonSampling(),
            arm_featurizer=bb.FunctionArmFeaturizer(blocks),
            random_seed=seed,
        )


class OpenBanditPipeline:
    """The linear policies of the quickstart; the package alone, as it would import PyTorch too."""

    def __init__(self, arms: int, features: int, seed: int, *, rule: str) -> None:
        import obp

        if "obp.policy" not in sys.modules:
            package = ModuleType("obp.policy")
            package.__path__ = [f"{obp.__path__[0]}/policy"]
            sys.modules["obp.policy"] = package
        from obp.policy import linear

        self.policy = getattr(linear, rule)(dim=features, n_actions=arms, random_state=seed)

    def choose(self, x: Floats) -> int:
        return int(self.policy.select_action(x[None])[0])

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.policy.update_params(arm, reward, x[None])


class Coba:
    """The first learner of coba's first script: Vowpal Wabbit with products of two features."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        from coba.learners import VowpalEpsilonLearner

        self.learner = VowpalEpsilonLearner(seed=seed + 1)
        self.actions = [str(arm) for arm in range(arms)]

    def choose(self, x: Floats) -> int:
        self.context = tuple(x.tolist())
        self.action, self.probability, self.info = self.learner.predict(self.context, self.actions)
        return int(self.action)

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.learner.learn(self.context, self.action, reward, self.probability, **self.info)


def made(cls: Callable[..., Learner], **options: Any) -> Callable[[int, int, int], Learner]:
    """Return a function that makes a learner with these options from arms, features and seed."""
    return lambda arms, features, seed: cls(arms, features, seed, **options)


def boosting(tsucb: Any, features: int, shared: bool) -> Any:
    """Return gradient boosting with few rounds, as the time of a decision grows with the trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    estimator = HistGradientBoostingRegressor(max_iter=30)
    return tsucb.Ensemble(estimator, features=features, shared=shared)


# Five prior precisions, from the default of `NIGLinear` up to one that suits hundreds of features.
PRECISIONS = (0.25, 2.5, 25.0, 250.0, 2500.0)
POLICIES: dict[str, Callable[[Any], Any]] = {
    "TS-UCB(1)": lambda tsucb: tsucb.TSUCB(1),
    "TS-UCB(10)": lambda tsucb: tsucb.TSUCB(10),
    "TS-UCB(100)": lambda tsucb: tsucb.TSUCB(100),
    "TS-UCB(∞)": lambda tsucb: tsucb.TSUCB(math.inf),
    "TS": lambda tsucb: tsucb.Thompson(),
}

CONTESTANTS = [
    Contestant("tsucb", "tsucb", DEFAULT, "Agent(arms, features)", made(Tsucb)),
    Contestant(
        "tsucb linear",
        "tsucb",
        LINEAR,
        "model=AdaptiveLinear(d)",
        made(Tsucb, model=lambda tsucb, features: tsucb.AdaptiveLinear(features)),
    ),
    Contestant(
        "tsucb Greedy",
        "tsucb",
        GREEDY,
        "policy=Greedy()",
        made(Tsucb, policy=lambda tsucb: tsucb.Greedy()),
    ),
    *(
        Contestant(f"tsucb {name}", "tsucb", POLICY, f"policy={name}", made(Tsucb, policy=policy))
        for name, policy in POLICIES.items()
    ),
    *(
        Contestant(
            f"NIGLinear {precision:g}",
            "tsucb",
            GRID,
            f"model=NIGLinear(d, prior_precision={precision:g})",
            made(Tsucb, precision=precision),
        )
        for precision in PRECISIONS
    ),
    *(
        Contestant(
            f"boosting {words}",
            "tsucb",
            MODEL,
            f"model=Ensemble(HistGradientBoostingRegressor(max_iter=30), features=d{option})",
            made(Tsucb, model=partial(boosting, shared=bool(option))),
        )
        for words, option in (("shared", ", shared=True"), ("per arm", ""))
    ),
    Contestant(
        "VW ε-greedy",
        "vowpalwabbit",
        LIBRARY,
        "--cb_explore_adf -q UA --epsilon 0.2",
        made(VowpalWabbit, options="--epsilon 0.2"),
    ),
    Contestant(
        "VW SquareCB",
        "vowpalwabbit",
        LIBRARY,
        "--cb_explore_adf -q UA --squarecb",
        made(VowpalWabbit, options="--squarecb"),
    ),
    Contestant(
        "VW bag",
        "vowpalwabbit",
        LIBRARY,
        "--cb_explore_adf -q UA --interactions UUA --bag 5",
        made(VowpalWabbit, options="--interactions UUA --bag 5"),
    ),
    Contestant(
        "MABWiser LinUCB",
        "mabwiser",
        LIBRARY,
        "LinUCB(alpha=1.25, l2_lambda=1)",
        made(MABWiser, rule="LinUCB", alpha=1.25),
    ),
    Contestant(
        "MABWiser LinTS",
        "mabwiser",
        LIBRARY,
        "LinTS(alpha=1.5, l2_lambda=1)",
        made(MABWiser, rule="LinTS", alpha=1.5),
    ),
    Contestant(
        "MABWiser trees",
        "mabwiser",
        LIBRARY,
        "EpsilonGreedy(), TreeBandit()",
        made(MABWiserTrees),
    ),
    Contestant(
        "contextualbandits LinUCB", "contextualbandits", LIBRARY, "LinUCB(nchoices)", made(LinUCB)
    ),
    Contestant(
        "contextualbandits logistic",
        "contextualbandits",
        LIBRARY,
        "EpsilonGreedy(LogisticRegression(), nchoices), fitted every 50 rounds",
        made(Refitted, rule="EpsilonGreedy", base="logistic"),
        binary=True,
    ),
    Contestant(
        "contextualbandits trees",
        "contextualbandits",
        LIBRARY,
        "PartitionedTS(nchoices), fitted every 50 rounds",
        made(Refitted, rule="PartitionedTS"),
        binary=True,
    ),
    Contestant(
        "contextualbandits bagged trees",
        "contextualbandits",
        LIBRARY,
        "BootstrappedUCB(DecisionTreeClassifier(), nchoices), fitted every 50 rounds",
        made(Refitted, rule="BootstrappedUCB", base="tree"),
        binary=True,
    ),
    Contestant("river LinUCB", "river", LIBRARY, "LinUCBDisjoint()", made(River)),
    Contestant(
        "bayesianbandits UCB",
        "bayesianbandits",
        LIBRARY,
        "NormalInverseGammaRegressor(), UpperConfidenceBound(alpha=0.84)",
        made(BayesianBandits),
    ),
    Contestant(
        "bayesianbandits EB",
        "bayesianbandits",
        LIBRARY,
        "EmpiricalBayesNormalRegressor(), ThompsonSampling(), one model of all arms",
        made(EmpiricalBayes),
    ),
    Contestant(
        "OBP LinTS", "obp", LIBRARY, "LinTS(dim, n_actions)", made(OpenBanditPipeline, rule="LinTS")
    ),
    Contestant(
        "OBP LinUCB",
        "obp",
        LIBRARY,
        "LinUCB(dim, n_actions), whose epsilon is 0",
        made(OpenBanditPipeline, rule="LinUCB"),
    ),
    Contestant(
        "space-bandits neural",
        "space_bandits",
        LIBRARY,
        "NeuralBandits(num_actions, num_features)",
        made(SpaceBandits),
    ),
    Contestant("coba VW", "coba", LIBRARY, "VowpalEpsilonLearner()", made(Coba)),
]
NAMED = {contestant.name: contestant for contestant in CONTESTANTS}
