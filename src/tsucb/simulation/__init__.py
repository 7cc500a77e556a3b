"""The one loop that every experiment runs through, and its results."""

from tsucb.simulation.simulate import Simulation, simulate

__all__ = ["Simulation", "simulate"]
