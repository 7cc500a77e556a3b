"""Decisions that wait for a reward: by themselves and in batches, the same as all by themselves."""

from collections import Counter

import numpy as np
import pytest

from tsucb.agent import waiting
from tsucb.agent.ids import decision_id, parsed_ids
from tsucb.agent.waiting import ArmRecord, NotOpen, Together, Waiting

ARMS = tuple(ArmRecord(name) for name in "abc")


class Reference:
    """Every decision by itself, in the order in which they were made."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.open = Waiting({})
        self.all = {}
        self.number, self.time = 0, 0.0

    def one(self):
        self.number += 1
        id = decision_id(self.number, self.checksum())
        entry = ARMS[self.rng.integers(3)], self.rng.normal(size=2).tobytes(), self.time
        if self.rng.random() < 0.2:
            id = f"visit\n{self.number}"
        if self.rng.random() < 0.2:
            entry = ARMS[:2], *entry[1:]
        self.all[id] = self.open.entries[id] = entry

    def many(self):
        count = int(self.rng.integers(1, 12))
        numbers = np.arange(self.number + 1, self.number + count + 1)
        checksums = np.array([self.checksum() for _ in numbers], dtype=np.uint64)
        places, contexts = self.rng.integers(3, size=count), self.rng.normal(size=(count, 2))
        self.open.add(Together(numbers, checksums, ARMS, places, contexts, self.time))
        for n in range(count):
            id = decision_id(int(numbers[n]), int(checksums[n]))
            self.all[id] = ARMS[places[n]], contexts[n].tobytes(), self.time
        self.number += count

    def checksum(self):
        return int(self.rng.integers(2**63))

    def close(self):
        if self.all:
            id = list(self.all)[self.rng.integers(len(self.all))]
            assert self.open.decision(id) == self.all.pop(id)
            self.open.close(id)
            assert self.open.decision(id) is None

    def drop(self):
        most = max(len(self.all) - int(self.rng.integers(6)), 0)
        self.open.drop_oldest(most)
        for id in list(self.all)[: len(self.all) - most]:
            del self.all[id]

    def expire(self):
        before = self.time - self.rng.integers(4)
        old, self.open = self.open.before(before)
        assert old == {id: entry for id, entry in self.all.items() if entry[2] < before}
        self.all = {id: entry for id, entry in self.all.items() if id not in old}

    def close_some(self):
        ids = [id for id, entry in self.all.items() if not isinstance(entry[0], tuple)]
        ids = [ids[n] for n in self.rng.permutation(len(ids))[: self.rng.integers(9)]]
        for wrong in ("7-zz", *ids[:1]):
            with pytest.raises(NotOpen):
                self.open.closing(*parsed_ids([*ids, wrong]), [*ids, wrong])
        named = parsed_ids(ids)
        plain = not any("\n" in id for id in ids)
        closing = self.open.closing(*named, None if plain and self.rng.random() < 0.5 else ids)
        for n, id in enumerate(ids):
            arm, context, _ = self.all.pop(id)
            assert closing.records[closing.places[n]] is arm
            assert closing.contexts[n].tobytes() == context
        before = self.open.decisions()
        assert all(id in before for id in ids)  # nothing has changed
        self.open = closing.after

    def copy(self):
        other = self.open.copied()
        self.open.drop_oldest(0)
        assert len(self.open) == 0
        self.open = other

    def widen(self):
        self.open = self.open.widened(lambda rows: -rows, 2, per_arm=False)
        for id, (arm, context, when) in self.all.items():
            self.all[id] = arm, (-np.frombuffer(context)).tobytes(), when

    def check(self):
        assert len(self.open) == len(self.all)
        found = self.open.decisions()
        assert list(found.items()) == list(self.all.items())
        assert all(self.open.decision(id) == entry for id, entry in self.all.items())
        arms = [r for a, _, _ in self.all.values() for r in (a if isinstance(a, tuple) else (a,))]
        assert self.open.places == len(arms)
        assert self.open.by_arm() == Counter(arms)


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_as_good_as_decisions_by_themselves(seed, monkeypatch):
    monkeypatch.setattr(waiting, "SMALL", 4)  # so that they are made smaller, too
    reference = Reference(seed)
    does = [
        "one", "one", "many", "many", "close", "close", "close", "drop", "expire", "close_some",
        "copy", "widen",
    ]  # fmt: skip
    for step in range(250):
        getattr(reference, does[reference.rng.integers(len(does))])()
        reference.time = float(step // 5)
        reference.check()
