"""Bayesian bandits that learn while they decide: TS-UCB, Thompson sampling and others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

# Where the public names are. Each is loaded when it is asked for: whoever wants the help of the
# command line, or a version, does not wait for the compiler.
PLACES = {
    "tsucb.agent": "Agent UnknownDecision merge",
    "tsucb.beliefs": (
        "Belief BetaBelief GammaBelief GaussianBelief HybridGaussianBelief JointGaussianBelief "
        "LogitNormalBelief SampleBelief"
    ),
    "tsucb.environments": (
        "ContextualLinearBandit Environment KArmedBandit LinearBandit WheelBandit"
    ),
    "tsucb.models": (
        "AdaptiveCurves AdaptiveLinear BernoulliArms BootstrappedHeads ContextualLinear "
        "DeepEnsemble Ensemble Forgetting GaussianArms HashedLinear HybridLinear LastLayerLaplace "
        "Linear LogisticArms Model NIGLinear NeuralLinear PoissonArms Training"
    ),
    "tsucb.policies": (
        "BayesUCB ChiSquaredUCB Choice Exploring Greedy GridIDS HoeffdingUCB IDS OFUL "
        "Policy Random TSUCB Thompson UCB1"
    ),
    "tsucb.simulation": "Simulation simulate",
}
_HOME = {name: module for module, names in PLACES.items() for name in names.split()}

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
    "HybridGaussianBelief",
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

if TYPE_CHECKING:  # the same for type checkers, which do not run this file
    from tsucb.agent import Agent, UnknownDecision, merge
    from tsucb.beliefs import (
        Belief,
        BetaBelief,
        GammaBelief,
        GaussianBelief,
        HybridGaussianBelief,
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
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
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
