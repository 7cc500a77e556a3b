"""Bandits made of a table of data (Riquelme, Tucker and Snoek 2018, Appendix A)."""
from typing import NamedTuple
import numpy as np
class Sized:
    @property
    def rows(self): return len(self[0])
    @property
    def features(self): return self[0].shape[1]
class ClassificationBandit(Sized, NamedTuple("C", [("contexts", object), ("labels", object), ("arms", int)])):
    pass
class MushroomBandit(Sized, NamedTuple("C", [("contexts", object), ("edible", object)])):
    arms=2
class JesterBandit(Sized, NamedTuple("C", [("ratings", object)])):
    arms=8
    @property
    def features(self): return self[0].shape[1]-8
class PortfolioBandit(Sized, NamedTuple("C", [("contexts", object)])):
    arms=8
