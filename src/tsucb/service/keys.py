"""Who may do what: keys are shown once, kept as hashes, and rotated without a gap."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tsucb.service.store import Store

CHOOSE, DECIDE, READ, ADMINISTER = "choose", "decide", "read", "administer"
LOOK = "look"  # what every key may do: see the arms and what is believed of them
# What each role may do. Every loop gets keys to decide and to administer; others on demand.
GRANTS = {
    CHOOSE: {LOOK, CHOOSE},  # decide among the arms that are known, and reward
    DECIDE: {LOOK, CHOOSE, DECIDE},  # and add arms with a decision
    READ: {LOOK, READ},  # see everything, change nothing
    ADMINISTER: {LOOK, CHOOSE, DECIDE, READ, ADMINISTER},
}
ROLES = (DECIDE, ADMINISTER)
GRACE = 86_400.0  # seconds for which a key that was replaced still works


class KeyRecord(NamedTuple):
    """A key, of which only the hash is kept; with number 0 and loop None, it is the server's.

    `request` identifies the request that the key was the answer to, so that a repeat replaces it.
    """

    hash: bytes
    number: int
    role: str
    created: float
    expires: float | None
    request: str | None
    loop: str | None = None

    @property
    def name(self) -> str:
        """The beginning of the hash, for the audit trail."""
        return self.hash.hex()[:12]

    def may(self, action: str, loop: str | None) -> bool:
        """Return whether the key may do this to a loop, or with None to the server."""
        return self.loop in (None, loop) and action in GRANTS.get(self.role, ())


def hashed(key: str) -> bytes:
    """The hash of a key. Keys are 256 random bits, so nothing slower is needed."""
    return hashlib.sha256(key.encode()).digest()


class Keys:
    """The keys of a store, in memory."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._records: dict[bytes, KeyRecord] = {}

    def reload(self) -> None:
        """Read all keys from the store; blocks."""
        self._records = {record.hash: record for record in self._store.all_keys()}

    def holder(self, key: str, now: float) -> KeyRecord | None:
        """Return what is known of a key; None if it is none, or not any more."""
        return self.holder_by_hash(hashed(key), now)

    def holder_by_hash(self, wanted: bytes, now: float) -> KeyRecord | None:
        # How long this takes tells at most about the hash, whose beginning nobody can choose.
        record = self._records.get(wanted)
        ended = record is not None and record.expires is not None and record.expires <= now
        return None if ended else record

    def newest(self, loop: str | None, role: str) -> bytes | None:
        """Return the hash of the key of a loop and role that was issued last."""
        found = [r for r in self._records.values() if (r.loop, r.role) == (loop, role)]
        return max(found, key=lambda r: r.created).hash if found else None

    def issue(
        self, number: int, loop: str | None, roles: Sequence[str], now: float,
        grace: float = GRACE, request: str | None = None,
    ) -> tuple[dict[str, str], list[KeyRecord]]:  # fmt: skip
        """Make a key for each role; the others of the loop and role expire after `grace` seconds.

        A key that was the answer to the same request expires at once. Number 0 and loop None are
        the server. Return the keys by role, which are shown once, and the records that must be
        written for them to be valid.
        """
        records = list[KeyRecord]()
        for old in self._records.values():
            if old.number == number and old.role in roles:
                lost = request is not None and old.request == request
                end = now + (0.0 if lost else grace)
                expires = end if old.expires is None else min(old.expires, end)
                records.append(old._replace(expires=expires, request=None if lost else old.request))
        keys = {role: secrets.token_urlsafe(32) for role in roles}
        records += [
            KeyRecord(hashed(key), number, role, now, None, request, loop)
            for role, key in keys.items()
        ]
        return keys, records

    def take(self, records: Iterable[object]) -> None:
        """Take over the keys among the records that the store has written."""
        self._records |= {r.hash: r for r in records if isinstance(r, KeyRecord)}

    def drop(self, loop: int) -> None:
        """Remove the keys of a loop that was deleted."""
        self._records = {h: r for h, r in self._records.items() if r.number != loop}
