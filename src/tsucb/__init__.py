"""TS-UCB: Bayesian bandits that improve on Thompson sampling at no extra cost."""

from typing import Any

from tsucb.beliefs import (
    Belief,
    BetaBelief,
    GammaBelief,
    GaussianBelief,
    JointGaussianBelief,
    SampleBelief,
)
from tsucb.environments import (
    ContextualLinearBandit,
    Environment,
    KArmedBandit,
    LinearBandit,
    WheelBandit,
)
from tsucb.models import (
    AdaptiveLinear,
    BernoulliArms,
    BootstrappedHeads,
    ContextualLinear,
    DeepEnsemble,
    Ensemble,
    Forgetting,
    GaussianArms,
    LastLayerLaplace,
    Linear,
    Model,
    NeuralLinear,
    NIGLinear,
    PoissonArms,
)
from tsucb.policies import (
    IDS,
    OFUL,
    TSUCB,
    UCB1,
    BayesUCB,
    ChiSquaredUCB,
    Choice,
    Exploring,
    Greedy,
    GridIDS,
    HoeffdingUCB,
    Policy,
    Random,
    Thompson,
)
from tsucb.simulation import Simulation, simulate

__version__ = "0.1.0"

# The agent is loaded when it is asked for: a simulation starts faster without it.
_LATER = ("Agent", "UnknownDecision")

__all__ = [
    "IDS",
    "OFUL",
    "TSUCB",
    "UCB1",
    "AdaptiveLinear",
    "Agent",
    "BayesUCB",
    "Belief",
    "BernoulliArms",
    "BetaBelief",
    "BootstrappedHeads",
    "ChiSquaredUCB",
    "Choice",
    "ContextualLinear",
    "ContextualLinearBandit",
    "DeepEnsemble",
    "Ensemble",
    "Environment",
    "Exploring",
    "Forgetting",
    "GammaBelief",
    "GaussianArms",
    "GaussianBelief",
    "Greedy",
    "GridIDS",
    "HoeffdingUCB",
    "JointGaussianBelief",
    "KArmedBandit",
    "LastLayerLaplace",
    "Linear",
    "LinearBandit",
    "Model",
    "NIGLinear",
    "NeuralLinear",
    "PoissonArms",
    "Policy",
    "Random",
    "SampleBelief",
    "Simulation",
    "Thompson",
    "UnknownDecision",
    "WheelBandit",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from tsucb import agent

        return getattr(agent, name)
    raise AttributeError(f"module 'tsucb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
