"""The paper's experiments, each from one command to a report next to the paper's own figures.

An `Experiment` says what is measured; `reproduce` measures it, on this machine or on a cluster,
into a folder that survives being killed at any moment.
"""

from tsucb.experiments.claims import Check, Claim, Finding, check_claims
from tsucb.experiments.experiment import Experiment, Task
from tsucb.experiments.measure import reproduce
from tsucb.pages.page import Figure

__all__ = [
    "Check",
    "Claim",
    "Experiment",
    "Figure",
    "Finding",
    "Task",
    "check_claims",
    "reproduce",
]
