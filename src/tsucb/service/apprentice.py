"""What an apprentice would earn with its own choices."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tsucb.service.events import AnyEvent, Decided

LEAST = 100  # decisions to say anything


class Gain(NamedTuple):
    """How much more its own choices would earn than the baseline, by what it has learned.

    `low` is a lower bound of 90 %; `same` is the share of decisions that would be the same.
    """

    decisions: int
    same: float
    value: float
    low: float


def gain(log: Iterable[AnyEvent]) -> Gain | None:
    """Return the gain over the last decisions of an apprentice; None if there are too few.

    Its log cannot say what arms would have earned that were not played: this is the model's own
    belief at every decision about its favourite and about the baseline. Beliefs at neighbouring
    decisions err together, so the doubt is averaged and not divided by their number.
    """
    extra, doubt, same = [], [], 0
    for event in log:
        if not isinstance(event, Decided):
            continue
        for pick in event.picks:
            if max(pick.chances) < 1.0:
                continue  # it was not an apprentice then
            n = len(pick.arms)
            seen = np.frombuffer(pick.seen)
            mean, std = seen[2 : 2 + n], seen[2 + n : 2 + 2 * n]
            own, played = pick.arms.index(pick.favourite), pick.arms.index(pick.arm)
            same += own == played
            extra.append(mean[own] - mean[played])
            doubt.append(0.0 if own == played else math.hypot(std[own], std[played]))
    if len(extra) < LEAST or not np.isfinite(extra).all():
        return None
    value = float(np.mean(extra))
    return Gain(len(extra), same / len(extra), value, value - 1.2816 * float(np.mean(doubt)))
