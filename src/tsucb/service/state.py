"""What a loop knows, as a snapshot has it."""

import hashlib
from typing import NamedTuple

import msgspec

from tsucb.agent.snapshot import Held
from tsucb.service.events import Decided
from tsucb.service.settings import LoopSettings
from tsucb.service.tally import Tally

SNAPSHOT_VERSION = 1


class Slot(msgspec.Struct, array_like=True, gc=False):
    """One pick of a decision that waits: its arm, and what it earned so far.

    `weight` is 1 / (K p); see `tally`. `imitated`: whether the policy would have played it too.
    """

    name: str
    arm: str
    weight: float
    imitated: bool
    total: float | None = None
    learned: bool = False


class Waiting(msgspec.Struct, array_like=True, gc=False):
    """A decision that waits for its rewards.

    `deferred` is the decision itself, until it is activated; `key` is that of the request that made
    it, `keys` those of the rewards that came.
    """

    number: int
    time: float
    deadline: float
    slots: list[Slot]
    keys: list[str]
    key: str | None = None
    deferred: Decided | None = None


class Counts(msgspec.Struct, array_like=True):
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
    counts: Counts
    tally: Tally
    waiting: dict[str, Waiting]
    agent: bytes | None
    relearned: list[int] = []


class LoopHeld(NamedTuple):
    """What a loop knew at a moment; to write it down may take its time, in another thread."""

    state: State
    agent: Held | None

    def to_bytes(self) -> bytes:
        """A snapshot, from which the loop can go on."""
        return self._encoded(None if self.agent is None else self.agent.to_bytes())

    def digest(self) -> str:
        """A hash of it."""
        agent = None if self.agent is None else self.agent.digest().encode()
        return hashlib.sha256(self._encoded(agent)).hexdigest()

    def _encoded(self, agent: bytes | None) -> bytes:
        return encode(msgspec.structs.replace(self.state, agent=agent))


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode


def decoded(data: bytes) -> State:
    try:
        state = _decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the snapshot is damaged: {error}") from None
    if state.version != SNAPSHOT_VERSION:
        raise ValueError(f"the snapshot has version {state.version}, not {SNAPSHOT_VERSION}")
    return state
