"""Who may do what: keys are shown once, kept as hashes, and rotated without a gap."""

import hashlib
import hmac
import secrets
from typing import NamedTuple

from tsucb.service.store import KeyRecord, Store

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


class Holder(NamedTuple):
    """Who a key belongs to: one loop, or the server (`loop` is None), which may do everything."""

    loop: str | None
    role: str
    name: str  # the beginning of the hash, for the audit trail

    def may(self, action: str, loop: str | None) -> bool:
        """Return whether the holder may do this to a loop, or with None to the server."""
        return self.loop in (None, loop) and action in GRANTS.get(self.role, ())


def new_key() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def hashed(key: str) -> bytes:
    """The hash of a key. Keys are 256 random bits, so nothing slower is needed."""
    return hashlib.sha256(key.encode()).digest()


class Keys:
    """The keys of a store, in memory.

    Parameters
    ----------
    store
        Where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = {record.hash: record for record in store.all_keys()}

    def reload(self) -> None:
        """Take in the keys that other processes issued."""
        self._records = {record.hash: record for record in self._store.all_keys()}

    def holder(self, key: str, now: float) -> Holder | None:
        """Who a key belongs to; None if to nobody, or not any more."""
        return self.holder_by_hash(hashed(key), now)

    def holder_by_hash(self, wanted: bytes, now: float) -> Holder | None:
        """Return who the key with this hash belongs to; None if it is no longer valid."""
        # The lookup tells at most about the hash, of which nobody can choose the beginning.
        record = self._records.get(wanted)
        if record is None or not hmac.compare_digest(record.hash, wanted):
            return None
        if record.expires is not None and record.expires <= now:
            return None
        return Holder(record.loop, record.role, wanted.hex()[:12])

    def newest(self, loop: str | None, role: str) -> bytes | None:
        """Return the hash of the key of a loop and role that was issued last."""
        found = [r for r in self._records.values() if (r.loop, r.role) == (loop, role)]
        return max(found, key=lambda r: r.created).hash if found else None

    def issue(
        self, loop: str | None, role: str, now: float, grace: float = GRACE, key: str | None = None
    ) -> str:
        """Issue a key; the others of that loop and role expire after this many seconds of grace."""
        key = new_key() if key is None else key
        for old in [r for r in self._records.values() if (r.loop, r.role) == (loop, role)]:
            if old.expires is not None and old.expires <= now:
                self._store.delete_key(old.hash)
                del self._records[old.hash]
            else:
                end = now + grace if old.expires is None else min(old.expires, now + grace)
                self._save(old._replace(expires=end))
        self._save(KeyRecord(hashed(key), loop, role, now, None))
        return key

    def drop(self, loop: str) -> None:
        """Forget the keys of a loop that is no more."""
        self._records = {h: r for h, r in self._records.items() if r.loop != loop}

    def any_for(self, loop: str | None) -> bool:
        """Whether there is a key for a loop, or for the server."""
        return any(record.loop == loop for record in self._records.values())

    def _save(self, record: KeyRecord) -> None:
        self._store.save_key(record)
        self._records[record.hash] = record
