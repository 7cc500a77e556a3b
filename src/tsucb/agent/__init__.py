"""TS-UCB in a live application: named arms, late rewards, arms that come and go, restarts."""

from tsucb.agent.agent import Agent, UnknownDecision
from tsucb.agent.decision import Decision, Explanation
from tsucb.agent.decision_log import DecisionLog

__all__ = ["Agent", "Decision", "DecisionLog", "Explanation", "UnknownDecision"]
