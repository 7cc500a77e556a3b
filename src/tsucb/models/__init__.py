"""Priors and likelihoods that turn rewards into beliefs: one file per model."""

from tsucb.models.adaptive_curves import AdaptiveCurves
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.contextual_linear import ContextualLinear
from tsucb.models.ensemble import Ensemble
from tsucb.models.forgetting import Forgetting
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_curves import HybridCurves
from tsucb.models.hybrid_linear import HybridLinear
from tsucb.models.k_armed import BernoulliArms, GaussianArms, PoissonArms
from tsucb.models.linear import Linear
from tsucb.models.logistic_arms import LogisticArms
from tsucb.models.model import Model, belief, forget, training_due, update
from tsucb.models.neural.ensembles import BootstrappedHeads, DeepEnsemble
from tsucb.models.neural.last_layer import LastLayerLaplace, NeuralLinear
from tsucb.models.neural.network import Training
from tsucb.models.nig_linear import NIGLinear
from tsucb.models.state import State, counts, sums

__all__ = [
    "AdaptiveCurves",
    "AdaptiveLinear",
    "BernoulliArms",
    "BootstrappedHeads",
    "ContextualLinear",
    "DeepEnsemble",
    "Ensemble",
    "Forgetting",
    "GaussianArms",
    "HashedLinear",
    "HybridCurves",
    "HybridLinear",
    "LastLayerLaplace",
    "Linear",
    "LogisticArms",
    "Model",
    "NIGLinear",
    "NeuralLinear",
    "PoissonArms",
    "State",
    "Training",
    "belief",
    "counts",
    "forget",
    "sums",
    "training_due",
    "update",
]
