"""Where a service keeps what it must not lose: events, snapshots, keys, the audit trail."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class StoreError(Exception):
    """The store could not do what was asked; nothing was acknowledged."""


class Row(NamedTuple):
    """An event on its way into the log, encoded.

    `subject` is the decision it is about, `person` whose decision it is; None where there is none.
    """

    loop: str
    time: float
    subject: str | None
    person: str | None
    body: bytes


class Logged(NamedTuple):
    """An event in the log. Positions are dense, and in the order of commits."""

    position: int
    loop: str
    body: bytes


class Snapshot(NamedTuple):
    """What a loop knew after the event at a position."""

    position: int
    body: bytes


class KeyRecord(NamedTuple):
    """A key, of which only the hash is kept; `loop` is None for the key of the server."""

    hash: bytes
    loop: str | None
    role: str
    created: float
    expires: float | None


class AuditRecord(NamedTuple):
    """Who did what to which loop."""

    time: float
    who: str
    action: str
    loop: str | None
    detail: str


class Store(Protocol):
    """All methods block, from any thread. What they write is durable when they return."""

    @property
    def shared(self) -> bool:
        """Whether other processes append to the log too."""

    def append(self, rows: Sequence[Row]) -> int:
        """Append events, all or none, and return the position of the first."""

    def last(self) -> int:
        """The position of the last event, 0 if there is none."""

    def read(
        self, after: int, loop: str | None = None, until: int | None = None
    ) -> Iterator[Logged]:
        """The events after a position and at most `until`, of one loop or of all, in order."""

    def about(self, loop: str, subject: str) -> list[Logged]:
        """The events about one decision."""

    def newest(self, loop: str, count: int) -> Iterator[Logged]:
        """The last events of a loop in order, so many of which are about decisions."""

    def forget(self, loop: str, subjects: Sequence[str], person: str | None) -> int:
        """Delete the events about decisions, by their ids or by the person; drop all snapshots."""

    def condense(self, loop: str, position: int, body: bytes, count: int) -> bool:
        """Let an event stand for all events of a loop up to its position, and delete those.

        False, and nothing happened, if there are not so many, as some were deleted meanwhile; or if
        this process does not guard the loop.
        """

    def clear(self, loop: str) -> None:
        """Delete all events and snapshots of a loop."""

    def save_snapshot(self, loop: str, snapshot: Snapshot, alone: bool = False) -> None:
        """Keep a snapshot, and of older ones only the newest; none if it is to be `alone`.

        Events are appended meanwhile, however large it is.
        """

    def snapshots(self, loop: str) -> list[Snapshot]:
        """The snapshots of a loop, the newest first."""

    def drop_snapshots(self, loop: str) -> None:
        """Delete the snapshots of a loop."""

    def loops(self) -> list[str]:
        """The names of all loops."""

    def add_loop(self, name: str) -> None:
        """Make room for a loop."""

    def remove_loop(self, name: str) -> None:
        """Delete a loop with its events, snapshots and keys."""

    def all_keys(self) -> list[KeyRecord]:
        """All keys."""

    def save_key(self, key: KeyRecord) -> None:
        """Add a key, or change when it expires."""

    def delete_key(self, hash: bytes) -> None:
        """Delete a key."""

    def write_audit(self, record: AuditRecord) -> None:
        """Append to the audit trail."""

    def audit(self, loop: str | None, count: int) -> list[AuditRecord]:
        """The last records of the audit trail, the newest first."""

    def put_document(self, loop: str, kind: str, id: str, body: bytes) -> None:
        """Keep something else about a loop: an evaluation, settings of a protocol."""

    def documents(self, loop: str, kind: str) -> dict[str, bytes]:
        """All documents of a kind by their ids, in the order in which they were first put."""

    def delete_document(self, loop: str, kind: str, id: str) -> bool:
        """Delete a document, and say whether there was one."""

    def guard(self, loop: str) -> bool:
        """Have the log of a loop for oneself, or say False if another server has.

        Whoever learns another model from it, and whoever lets one event stand for many, must: what
        the one has learned, the other must keep. One loop at a time.
        """

    def guards(self) -> bool:
        """Whether that is still so: not if the connection was lost since."""

    def release(self) -> None:
        """Let others have it."""

    def leads(self) -> bool:
        """Whether this process writes the snapshots, and that time passed; one does at any time."""

    def close(self) -> None:
        """Let go of everything."""
