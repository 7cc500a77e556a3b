"""TS-UCB in a live application: named arms, late rewards, arms that come and go, restarts."""

from tsucb.agent.agent import Agent, UnknownDecision
from tsucb.agent.decision import Decision, Explanation

__all__ = ["Agent", "Decision", "Explanation", "UnknownDecision"]
