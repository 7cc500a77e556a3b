"""What a loop knows, as a snapshot has it."""

import hashlib
from typing import Any, NamedTuple

import msgspec

from tsucb.service.events import Decided
from tsucb.service.settings import LoopSettings
from tsucb.service.tally import Tally

SNAPSHOT_VERSION = 2


class Slot(msgspec.Struct, array_like=True, gc=False):
    """One pick of a decision that waits: its arm, and what it earned so far.

    `weight` is 1 / (K p); see `tally`. `imitated`: whether the policy would have played it too.
    `row` is what the learner read of it when it was played; None if it is not to be learned.
    """

    name: str
    arm: str
    weight: float
    imitated: bool
    row: bytes | None = None
    total: float | None = None
    learned: bool = False


class OpenDecision(msgspec.Struct, array_like=True, gc=False):
    """A decision that waits for its rewards.

    `position` is where it is in the log; `deferred` is the decision itself, until it is activated.
    """

    position: int
    time: float
    deadline: float
    slots: list[Slot]
    deferred: Decided | None = None


class LoopCounts(msgspec.Struct, array_like=True):
    """What happened so far."""

    decisions: int = 0
    rewards: int = 0  # that came in time
    learned: int = 0  # rewards, defaults included
    defaults: int = 0  # decisions, or slots, for which none came
    late: int = 0
    repeated: int = 0
    never_activated: int = 0
    refused: int = 0  # what the model could not learn from


class State(msgspec.Struct, array_like=True):
    """Everything a loop knows, as a snapshot has it."""

    version: int
    settings: LoopSettings
    arms: list[str]
    now: float
    created: float
    counts: LoopCounts
    tally: Tally
    waiting: dict[str, OpenDecision]
    learner: bytes | None
    relearned: list[int] = []


class LoopHeld(NamedTuple):
    """What a loop knew at a moment; to write it down may take its time, in another thread."""

    state: State
    learner: Any  # what `Learner.hold` returned

    def to_bytes(self) -> bytes:
        """Return a snapshot, from which the loop can go on."""
        return self._encoded(None if self.learner is None else self.learner.to_bytes())

    def digest(self) -> str:
        """Return a hash of everything."""
        learner = None if self.learner is None else self.learner.digest().encode()
        return hashlib.sha256(self._encoded(learner)).hexdigest()

    def _encoded(self, learner: bytes | None) -> bytes:
        return encode(msgspec.structs.replace(self.state, learner=learner))


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode


def decoded(data: bytes) -> State:
    """Return what a snapshot holds; raise ValueError if it is damaged or of another version."""
    try:
        state = _decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the snapshot is damaged: {error}") from None
    if state.version != SNAPSHOT_VERSION:
        raise ValueError(f"the snapshot has version {state.version}, not {SNAPSHOT_VERSION}")
    return state
