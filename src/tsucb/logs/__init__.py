"""Logged data: reading it, replaying policies over it, and evaluating others on it."""

from tsucb.logs.decision_log import read as read_decision_log
from tsucb.logs.decisions import Decisions, read_decisions
from tsucb.logs.estimators import Estimate, OffPolicy, target_probabilities
from tsucb.logs.logged_data import LoggedData
from tsucb.logs.replay import Replay, replay

__all__ = [
    "Decisions",
    "Estimate",
    "LoggedData",
    "OffPolicy",
    "Replay",
    "read_decision_log",
    "read_decisions",
    "replay",
    "target_probabilities",
]
