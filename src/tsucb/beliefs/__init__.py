"""What a model tells a policy: the law of the arms' mean rewards, one file per law."""

from tsucb.beliefs.belief import Belief, BetaBelief, GaussianBelief, JointGaussianBelief

__all__ = ["Belief", "BetaBelief", "GaussianBelief", "JointGaussianBelief"]
