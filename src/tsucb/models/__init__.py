"""Priors and likelihoods that turn rewards into beliefs: one file per model."""

from tsucb.models.contextual_linear import ContextualLinear
from tsucb.models.k_armed import BernoulliArms, GaussianArms
from tsucb.models.linear import Linear
from tsucb.models.model import Model
from tsucb.models.neural.neural_linear import NeuralLinear
from tsucb.models.nig_linear import NIGLinear

__all__ = [
    "BernoulliArms",
    "ContextualLinear",
    "GaussianArms",
    "Linear",
    "Model",
    "NIGLinear",
    "NeuralLinear",
]
