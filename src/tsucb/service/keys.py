"""Who may do what: keys are shown once, kept as hashes, and rotated without a gap."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from tsucb.service.store import KeyRecord, LoopRecord, Store

DECIDE, ADMINISTER = "decide", "administer"
ROLES = (DECIDE, ADMINISTER)
SERVER = LoopRecord(0, "")  # in the place of a loop, for the key of the server
GRACE = 86_400.0  # seconds for which a key that was replaced still works


class Holder(NamedTuple):
    """Who a key belongs to: one loop, or the server (`loop` is None), which may do everything."""

    loop: str | None
    role: str
    name: str  # the beginning of the hash, for the audit trail

    def may(self, role: str, loop: str | None) -> bool:
        """Whether the holder may do to a loop what needs a role."""
        if self.loop is None:
            return self.role == ADMINISTER
        return self.loop == loop and self.role in (role, ADMINISTER)


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
        self._records: dict[bytes, KeyRecord] = {}

    def reload(self) -> None:
        """Read all keys from the store; blocks."""
        self._records = {record.hash: record for record in self._store.all_keys()}

    def holder(self, key: str, now: float) -> Holder | None:
        """Return who a key belongs to; None if to nobody, or not any more."""
        wanted = hashed(key)
        # The lookup tells at most about the hash, of which nobody can choose the beginning.
        record = self._records.get(wanted)
        if record is None or not hmac.compare_digest(record.hash, wanted):
            return None
        if record.expires is not None and record.expires <= now:
            return None
        return Holder(record.loop, record.role, wanted.hex()[:12])

    def issue(
        self, loop: LoopRecord, role: str, now: float, grace: float = GRACE, key: str | None = None
    ) -> "Issued":
        """Make a new key, and say what the store has to write for it to be valid.

        The others of that loop and role expire after this many seconds of grace.
        """
        key = key or secrets.token_urlsafe(32)
        record = KeyRecord(hashed(key), loop.number, loop.name or None, role, now, None)
        saved, dropped = [record], []
        for old in self._records.values():
            if (old.number, old.role) != (loop.number, role) or old.hash == record.hash:
                continue
            if old.expires is not None and old.expires <= now:
                dropped.append(old.hash)
            else:
                end = now + grace if old.expires is None else min(old.expires, now + grace)
                saved.append(old._replace(expires=end))
        return Issued(key, saved, dropped)

    def take(self, issued: Iterable["Issued"]) -> None:
        """Know keys that the store has written."""
        for each in issued:
            self._records.update({record.hash: record for record in each.saved})
            for hash in each.dropped:
                self._records.pop(hash, None)

    def drop(self, loop: int) -> None:
        """Forget the keys of a loop that is no more."""
        self._records = {h: r for h, r in self._records.items() if r.number != loop}

    def any_for(self, loop: int) -> bool:
        """Return whether there is a key for a loop, or with 0 for the server."""
        return any(record.number == loop for record in self._records.values())


class Issued(NamedTuple):
    """A new key, which is shown once, and the records that are written for it."""

    key: str
    saved: list[KeyRecord]
    dropped: list[bytes]
