"""Problems to play against: one file per kind."""

from tsucb.environments.environment import Environment, World, advance, begin, reward
from tsucb.environments.k_armed import KArmedBandit
from tsucb.environments.linear import ContextualLinearBandit, LinearBandit
from tsucb.environments.wheel import WheelBandit

__all__ = [
    "ContextualLinearBandit",
    "Environment",
    "KArmedBandit",
    "LinearBandit",
    "WheelBandit",
    "World",
    "advance",
    "begin",
    "reward",
]
