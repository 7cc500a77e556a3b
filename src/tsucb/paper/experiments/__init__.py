"""The paper's experiments, each from one command to a report next to the paper's own figures.

An `Experiment` says what is measured; `reproduce` measures it, on this machine or on a cluster,
into a folder that survives being killed at any moment.
"""

from tsucb.pages.figures import Figure
from tsucb.paper.experiments.claims import Claim
from tsucb.paper.experiments.experiment import Experiment
from tsucb.paper.experiments.measure import reproduce

__all__ = ["Claim", "Experiment", "Figure", "reproduce"]
