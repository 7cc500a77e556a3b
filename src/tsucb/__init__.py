"""Bayesian bandits that learn while they decide: TS-UCB, Thompson sampling and others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

# The parts that define the public names, each after those it imports. A name is loaded when it is
# first used, so that the command line's help or the version does not wait for the compiler.
_PARTS = ("beliefs", "policies", "models", "environments", "simulation", "agent")

__all__ = [
    "IDS",
    "OFUL",
    "TSUCB",
    "UCB1",
    "AdaptiveCurves",
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
    "HashedLinear",
    "HoeffdingUCB",
    "HybridCurves",
    "HybridLinear",
    "JointGaussianBelief",
    "KArmedBandit",
    "LastLayerLaplace",
    "Linear",
    "LinearBandit",
    "LogisticArms",
    "LogitNormalBelief",
    "Model",
    "NIGLinear",
    "NeuralLinear",
    "PoissonArms",
    "Policy",
    "Random",
    "SampleBelief",
    "Simulation",
    "Thompson",
    "Training",
    "UnknownDecision",
    "WheelBandit",
    "merge",
    "simulate",
]

if TYPE_CHECKING:  # the same names for type checkers, which do not run `__getattr__`
    from tsucb.agent import Agent, UnknownDecision, merge
    from tsucb.beliefs import (
        Belief,
        BetaBelief,
        GammaBelief,
        GaussianBelief,
        JointGaussianBelief,
        LogitNormalBelief,
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
        AdaptiveCurves,
        AdaptiveLinear,
        BernoulliArms,
        BootstrappedHeads,
        ContextualLinear,
        DeepEnsemble,
        Ensemble,
        Forgetting,
        GaussianArms,
        HashedLinear,
        HybridCurves,
        HybridLinear,
        LastLayerLaplace,
        Linear,
        LogisticArms,
        Model,
        NeuralLinear,
        NIGLinear,
        PoissonArms,
        Training,
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


def __getattr__(name: str) -> Any:
    if name in __all__:
        parts = (import_module(f"tsucb.{part}") for part in _PARTS)
        value = next(getattr(part, name) for part in parts if name in part.__all__)
    elif name.startswith("_"):
        raise AttributeError(f"module 'tsucb' has no attribute {name!r}")
    else:  # a part of the package, such as `tsucb.policies`
        try:
            value = import_module(f"tsucb.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module 'tsucb' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names only."""
    return sorted({*__all__, "__version__"})
