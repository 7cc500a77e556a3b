"""Rules that turn a belief into an arm: one file per policy."""

from tsucb.policies import ts_ucb_probabilities
from tsucb.policies.exploring import Exploring
from tsucb.policies.greedy import Greedy, Random
from tsucb.policies.ids import IDS, GridIDS
from tsucb.policies.policy import Choice, Policy, choose, choose_largest
from tsucb.policies.thompson import Thompson
from tsucb.policies.ts_ucb import TSUCB
from tsucb.policies.ucb import OFUL, UCB1, BayesUCB, ChiSquaredUCB, HoeffdingUCB

__all__ = [
    "IDS",
    "OFUL",
    "TSUCB",
    "UCB1",
    "BayesUCB",
    "ChiSquaredUCB",
    "Choice",
    "Exploring",
    "Greedy",
    "GridIDS",
    "HoeffdingUCB",
    "Policy",
    "Random",
    "Thompson",
    "choose",
    "choose_largest",
    "ts_ucb_probabilities",
]
