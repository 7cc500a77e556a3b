"""Which arms there are, and where the model's state has them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsucb.agent.contexts import Arm, listed
from tsucb.agent.structure import leaves, refilled
from tsucb.models.forgetting import Fading, memory
from tsucb.models.model import Model
from tsucb.numeric.arrays import Integers

NEW, REMOVED = -1, -2  # columns of arms that are not in the state yet, or no longer


class ArmRecord:
    """What the agent itself knows of an arm; what the model knows is in a column of its state."""

    __slots__ = ("chosen", "column", "name", "pulls", "token", "total")

    def __init__(self, name: Arm) -> None:
        self.name = name  # never changes, as decisions rely on
        self.token = repr(name).encode()
        self.column = NEW
        self.pulls = 0  # rewards learned from
        self.total = 0.0  # their sum
        self.chosen = 0  # decisions for it, and rewards learned without one


class Offer(NamedTuple):
    """Arms to choose from, and the columns of the state that belong to them."""

    records: tuple[ArmRecord, ...]
    columns: Integers

    @property
    def names(self) -> tuple[Arm, ...]:
        """The names of the arms."""
        return tuple(record.name for record in self.records)


class Roster:
    """The arms of an agent, and the state of its model with a column for each.

    Adding and removing arms is noted at once but changes the state only in `settle`, before the
    next decision: that copies the state, which is as much work as deciding among all arms, however
    many came and went.

    Parameters
    ----------
    model, forgetting
        As in `Agent`.
    names
        Of the arms.
    rng
        For models that start at random, None for others.
    """

    def __init__(
        self,
        model: Model,
        names: Iterable[Arm],
        forgetting: float,
        rng: np.random.Generator | None,
    ) -> None:
        self.model = model
        self.records: dict[Arm, ArmRecord] = {}
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise TypeError(f"arms must be a list of names, such as [{names!r}]")
        for name in names:
            self.add(name)
        count = len(self.records)
        if not count:
            raise ValueError("an agent needs at least one arm; give their names")
        self.memory = memory(model, forgetting, count)
        own = () if rng is None else (rng,)
        self.state = self.fadable(model.start(count, *own))
        self.axes = arm_axes(model)
        for column, record in enumerate(self.records.values()):
            record.column = column
        # All arms, None while the state is not settled.
        self.everyone: Offer | None = None
        self.settle()

    def add(self, name: Arm) -> None:
        """Add an arm at the end."""
        plain = name.item() if isinstance(name, np.generic) else name
        if isinstance(plain, bool) or not isinstance(plain, str | int):
            raise TypeError(f"an arm is named by a string or an integer, not by {name!r}")
        # Members of enumerations become what a file can hold: the plain string or integer.
        plain = str.__str__(plain) if isinstance(plain, str) else int(plain)
        if plain in self.records:
            raise ValueError(f"there is an arm {plain!r} already; choose another name")
        self.records[plain] = ArmRecord(plain)
        self.everyone = None

    def remove(self, name: Arm) -> None:
        """Remove an arm; its record, which open decisions may hold, says so."""
        self[name].column = REMOVED
        del self.records[name]
        self.everyone = None

    def __getitem__(self, name: Arm) -> ArmRecord:
        record = self.records.get(name)
        if record is None:
            known = listed(self.records) or "none at all"
            raise ValueError(f"there is no arm {name!r}; the arms are {known}")
        return record

    def offer(self, arms: Sequence[Arm]) -> Offer:
        """Some of the arms, in this order."""
        if isinstance(arms, str):
            raise TypeError(f"arms must be a list of names, such as [{arms!r}]")
        if len(set(arms)) < len(arms):
            raise ValueError("an arm is listed twice among those available; list each once")
        return _offer([self[name] for name in arms])

    def settle(self) -> Offer:
        """Take removed arms out of the state and new ones into it; all that there are then."""
        records = list(self.records.values())
        old = [record for record in records if record.column != NEW]
        count = self.model.arms(self.state)
        if self.axes is not None and len(old) < count:
            kept = [record.column for record in old]
            self.state = self._taken(self.state, kept)
            if isinstance(self.memory, Fading) and not self._shared:
                self.memory = self.memory._replace(aged=self.memory.aged[kept])
            for column, record in enumerate(old):
                record.column = column
            count = len(old)
        new = records[len(old) :]
        if new:
            self.state = self.fadable(self.model.extend(self.state, len(new)))
            for column, record in enumerate(new, start=count):
                record.column = column
            if isinstance(self.memory, Fading) and not self._shared:
                now = np.full(len(new), self.memory.clock[0])
                self.memory = self.memory._replace(aged=np.append(self.memory.aged, now))
        self.everyone = _offer(records)
        return self.everyone

    def blank(self, columns: int) -> Any:
        """A state before any data, with so many columns."""
        state = self.fadable(self.model.start(max(columns, 1)))
        return state if columns else self._taken(state, [])

    def fadable(self, state: Any) -> Any:
        """The state, with counts of pulls that can fade where there is forgetting."""
        if not isinstance(self.memory, Fading):
            return state
        parts = (x.astype(np.float64) if x.dtype == np.int64 else x for x in leaves(state))
        return refilled(state, parts)

    def _taken(self, state: Any, columns: list[int]) -> Any:
        """The state of some columns only."""
        if self.axes is None:
            raise ValueError(f"the arms of {type(self.model).__name__} cannot be separated")
        index = np.array(columns, dtype=np.int64)
        parts = (
            x if axis is None else np.take(x, index, axis)
            for x, axis in zip(leaves(state), self.axes, strict=True)
        )
        return refilled(state, parts)

    @property
    def _shared(self) -> bool:
        """Whether all arms share their parameters, and so their age."""
        return len(self.model.context_shape(1)) == 2


def _offer(records: list[ArmRecord]) -> Offer:
    return Offer(tuple(records), np.array([record.column for record in records], dtype=np.int64))


def arm_axes(model: Model) -> tuple[int | None, ...] | None:
    """Along which axis each array of a state has one entry per arm; None for those without.

    None in all if the state is not made of such arrays only, as that of a network: then the
    columns of removed arms stay where they are.
    """
    one, two = model.start(1), model.start(2)
    if not isinstance(one, tuple):
        return None
    axes: list[int | None] = []
    for first, second in zip(leaves(one), leaves(two), strict=True):
        growing = [i for i in range(first.ndim) if first.shape[i] != second.shape[i]]
        if len(growing) > 1 or any((first.shape[i], second.shape[i]) != (1, 2) for i in growing):
            return None
        axes.append(growing[0] if growing else None)
    return tuple(axes)
