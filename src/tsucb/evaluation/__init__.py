"""Whole configurations of agents, judged by a log: compared on it, and played in its likeness."""

from tsucb.evaluation.compare import Comparison, compare
from tsucb.evaluation.like import LogBandit, like, simulate_like
from tsucb.evaluation.settings import read_settings

__all__ = ["Comparison", "LogBandit", "compare", "like", "read_settings", "simulate_like"]
