"""Logged data: reading it, replaying policies over it, and evaluating others on it."""

from tsucb.logs.decision_log import read as read_decision_log
from tsucb.logs.decisions import Decisions, read_decisions, read_events
from tsucb.logs.estimators import (
    Estimate,
    difference,
    doubly_robust,
    inverse_propensity,
    self_normalised,
    switch,
    target_probabilities,
)
from tsucb.logs.logged_data import LoggedData
from tsucb.logs.replay import Replay, replay

__all__ = [
    "Decisions",
    "Estimate",
    "LoggedData",
    "Replay",
    "difference",
    "doubly_robust",
    "inverse_propensity",
    "read_decision_log",
    "read_decisions",
    "read_events",
    "replay",
    "self_normalised",
    "switch",
    "target_probabilities",
]
