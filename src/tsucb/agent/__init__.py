"""TS-UCB in a live application: named arms, late rewards, arms that come and go, restarts."""

from tsucb.agent.agent import Agent
from tsucb.agent.decision import Decision, Estimate, Explanation
from tsucb.agent.decision_log import DecisionLog
from tsucb.agent.fleet import merge
from tsucb.agent.learner import Learner
from tsucb.agent.learning import UnknownDecision
from tsucb.agent.lists import Ranking
from tsucb.agent.many import Decisions

__all__ = [
    "Agent",
    "Decision",
    "DecisionLog",
    "Decisions",
    "Estimate",
    "Explanation",
    "Learner",
    "Ranking",
    "UnknownDecision",
    "merge",
]
