"""Events of a log as arrays, for replay."""

from dataclasses import KW_ONLY
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import Switch, floats
from tsucb.numeric.arrays import Integers
from tsucb.record import Record, derived


class LoggedData(Record):
    """Events of a log: context, logged arm, its reward, and what else could have been played.

    Parameters
    ----------
    arm
        (N,) index of the arm that was played.
    reward
        (N,) its reward.
    contexts
        (N, …) of the model's context shape and any real type, or None.
    available
        A pair: the distinct sets of available arms, and (N,) the index of each event's set. By
        default every arm that occurs in the log was always available.
    propensity
        (N,) probability with which the logging policy played the logged arm.
    uniform
        True, in place of `propensity`, if each available arm was played with the same probability.

    >>> log = LoggedData(arm=[0, 1, 1], reward=[1, 0, 1], contexts=None, uniform=True)
    >>> log.propensity
    array([0.5, 0.5, 0.5])
    """

    arm: Any
    reward: Annotated[Any, floats]
    contexts: Any
    _: KW_ONLY
    available: Any = None  # then the arms of all sets, one set after the other
    propensity: Any = None
    uniform: Switch = False
    ends: Integers = derived()  # set i is available[ends[i]:ends[i + 1]]
    which: Integers = derived()  # (N,) the set of each event

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Check the events, and join their sets of available arms into one array."""
        arms, rewards = np.array(values["arm"], dtype=np.int64), values["reward"]
        contexts, available, propensity, uniform = (
            values[name] for name in ("contexts", "available", "propensity", "uniform")
        )
        n = arms.size
        x = np.empty((n, 0)) if contexts is None else np.ascontiguousarray(contexts)
        if n == 0 or arms.shape != (n,) or rewards.shape != (n,) or len(x) != n:
            raise ValueError(
                f"arm, reward and contexts must have one row for each event, at least one, but "
                f"their shapes are {arms.shape}, {rewards.shape} and {x.shape}"
            )
        check_events(np.isfinite(rewards), "the reward is not a finite number")
        finite = np.isfinite(x).reshape(n, -1).all(axis=1) if x.dtype.kind == "f" else True
        check_events(np.broadcast_to(finite, n), "the context has an entry that is not finite")
        if available is None:
            sets, which = [np.unique(arms)], np.zeros(n, dtype=np.int64)
        else:
            sets = [np.unique(np.asarray(each, dtype=np.int64)) for each in available[0]]
            which = np.array(available[1], dtype=np.int64)
        sizes = np.array([each.size for each in sets])
        flat, ends = np.concatenate(sets), np.concatenate([[0], np.cumsum(sizes)])
        # An arm was available if (its event's set, arm) is among all pairs of a set and a member.
        span = max(arms.max(), flat.max()) + 1
        pairs = np.repeat(np.arange(len(sets)), sizes) * span + flat
        check_events(np.isin(which * span + arms, pairs), "the logged arm was not available")
        if (propensity is None) != uniform:
            raise ValueError(
                "say how the arms were logged: either give the propensity of every event, or "
                "uniform=True if each available arm was played with the same probability"
            )
        chance = 1 / sizes[which] if uniform else floats("propensity", propensity)
        check_events((chance > 0) & (chance <= 1), "the propensity is not above 0 and at most 1")
        values |= {"arm": arms, "contexts": x, "available": flat, "propensity": chance}
        values |= {"ends": ends, "which": which}

    @property
    def arms(self) -> int:
        """K, one more than the largest index of an arm."""
        return int(self.available.max()) + 1

    @property
    def context_shape(self) -> tuple[int, ...]:
        """The shape of an event's context; (0,) if there is none."""
        shape: tuple[int, ...] = self.contexts.shape[1:]
        return shape


def check_events(good: NDArray[np.bool_], wrong: str) -> None:
    """Raise ValueError unless all events are good; say how many are not, and the first."""
    if not good.all():
        bad = np.flatnonzero(~good)
        raise ValueError(f"at {bad.size} of {good.size} events, first number {bad[0] + 1}: {wrong}")
