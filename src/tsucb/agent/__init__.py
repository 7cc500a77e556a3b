"""TS-UCB in a live application: named arms, late rewards, arms that come and go, restarts."""

from tsucb.agent.agent import Agent
from tsucb.agent.batch import DecisionBatch
from tsucb.agent.decision import ArmEstimates, Decision, Explanation, Ranking
from tsucb.agent.decision_log import DecisionLog
from tsucb.agent.learner import Learner
from tsucb.agent.merging import merge
from tsucb.agent.open_decisions import UnknownDecision

__all__ = [
    "Agent",
    "ArmEstimates",
    "Decision",
    "DecisionBatch",
    "DecisionLog",
    "Explanation",
    "Learner",
    "Ranking",
    "UnknownDecision",
    "merge",
]
