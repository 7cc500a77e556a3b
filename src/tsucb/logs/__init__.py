"""Logged data: reading it, replaying policies over it, and estimating what others had earned."""

from tsucb.logs.estimators import Estimate, doubly_robust, inverse_propensity, target_probabilities
from tsucb.logs.logged_data import LoggedData
from tsucb.logs.replay import Replay, replay
from tsucb.logs.tables import read_events

__all__ = [
    "Estimate",
    "LoggedData",
    "Replay",
    "doubly_robust",
    "inverse_propensity",
    "read_events",
    "replay",
    "target_probabilities",
]
