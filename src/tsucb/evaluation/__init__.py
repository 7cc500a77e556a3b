"""Whole configurations of agents: compared on a log, and played in a simulator fitted to it."""

from tsucb.evaluation.compare import Comparison, compare
from tsucb.evaluation.like import LogBandit, like, simulate_like
from tsucb.evaluation.settings import read_settings

__all__ = ["Comparison", "LogBandit", "compare", "like", "read_settings", "simulate_like"]
