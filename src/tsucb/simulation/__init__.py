"""The one loop that every experiment runs through, and its results."""

from tsucb.simulation.result import Simulation
from tsucb.simulation.simulate import cores, simulate

__all__ = ["Simulation", "cores", "simulate"]
