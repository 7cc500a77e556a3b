"""TS-UCB: Bayesian bandits that improve on Thompson sampling at no extra cost."""

from typing import TYPE_CHECKING, Any

from tsucb.beliefs.belief import Belief, BetaBelief, GaussianBelief, JointGaussianBelief
from tsucb.environments import (
    ContextualLinearBandit,
    Environment,
    KArmedBandit,
    LinearBandit,
    WheelBandit,
)
from tsucb.models import (
    BernoulliArms,
    ContextualLinear,
    GaussianArms,
    Linear,
    Model,
    NeuralLinear,
    NIGLinear,
)
from tsucb.policies import (
    IDS,
    OFUL,
    TSUCB,
    UCB1,
    BayesUCB,
    ChiSquaredUCB,
    Greedy,
    HoeffdingUCB,
    Policy,
    Random,
    Thompson,
)
from tsucb.simulation.simulate import Simulation, simulate

if TYPE_CHECKING:
    from tsucb.agent import Agent, UnknownDecision

__version__ = "0.1.0"

__all__ = [
    "IDS",
    "OFUL",
    "TSUCB",
    "UCB1",
    "Agent",
    "BayesUCB",
    "Belief",
    "BernoulliArms",
    "BetaBelief",
    "ChiSquaredUCB",
    "ContextualLinear",
    "ContextualLinearBandit",
    "Environment",
    "GaussianArms",
    "GaussianBelief",
    "Greedy",
    "HoeffdingUCB",
    "JointGaussianBelief",
    "KArmedBandit",
    "Linear",
    "LinearBandit",
    "Model",
    "NIGLinear",
    "NeuralLinear",
    "Policy",
    "Random",
    "Simulation",
    "Thompson",
    "UnknownDecision",
    "WheelBandit",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """The agent is loaded when it is asked for: a simulation starts faster without it."""
    if name in ("Agent", "UnknownDecision"):
        from tsucb import agent

        return getattr(agent, name)
    raise AttributeError(f"module 'tsucb' has no attribute {name!r}")
