"""What a model tells a policy: the law of the arms' mean rewards, one file per law."""

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.beta import Beta, BetaBelief
from tsucb.beliefs.gamma import Gamma, GammaBelief
from tsucb.beliefs.gaussian import Gaussian, GaussianBelief
from tsucb.beliefs.joint_gaussian import JointGaussian, JointGaussianBelief
from tsucb.beliefs.law import IndependentLaw, Law, draw
from tsucb.beliefs.logit_normal import LogitNormal, LogitNormalBelief
from tsucb.beliefs.samples import SampleBelief, Samples

__all__ = [
    "Belief",
    "Beta",
    "BetaBelief",
    "Gamma",
    "GammaBelief",
    "Gaussian",
    "GaussianBelief",
    "IndependentLaw",
    "JointGaussian",
    "JointGaussianBelief",
    "Law",
    "LogitNormal",
    "LogitNormalBelief",
    "SampleBelief",
    "Samples",
    "draw",
]
