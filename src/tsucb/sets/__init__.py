"""Linear bandits with infinitely many arms: balls, ellipsoids, boxes, polytopes and curves.

Every arm is found exactly by Thompson sampling, TS-UCB, UCB and greedy; see `tsucb.sets.arm_set`
for how.
"""

from tsucb.sets.agent import SetAgent
from tsucb.sets.arm_set import ArmSet
from tsucb.sets.ball import Ball, Ellipsoid
from tsucb.sets.bandit import SetBandit
from tsucb.sets.box import Box
from tsucb.sets.curve import Polynomial, Spline
from tsucb.sets.polytope import Polytope

__all__ = [
    "ArmSet",
    "Ball",
    "Box",
    "Ellipsoid",
    "Polynomial",
    "Polytope",
    "SetAgent",
    "SetBandit",
    "Spline",
]
