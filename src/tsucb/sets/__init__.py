"""Linear bandits with infinitely many arms: balls, ellipsoids, boxes, polytopes and curves.

Thompson sampling, TS-UCB, UCB and greedy find their arms exactly, except for UCB and TS-UCB on a
`Box` of more than 16 features. `tsucb.sets.arm_set` says what each of them searches for.
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
