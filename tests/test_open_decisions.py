"""The table of open decisions against a dictionary of them."""

import numpy as np
import pytest

from tsucb.agent import open_decisions
from tsucb.agent.open_decisions import (
    NOT_SPLIT,
    SINGLE,
    add_row,
    close_row,
    decision_id,
    decision_ids,
    drop_oldest,
    empty_table,
    find_row,
    find_rows,
    has_room,
    open_rows,
    packed_table,
    parsed_ids,
    roomier_table,
    same_key,
)


def ids_of(table, rows):
    return decision_ids(table.numbers[rows], table.checksums[rows])


class Reference:
    """Every decision, or place of a list, in the order in which they were made."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.table = empty_table(9, 4, 16)
        self.all = {}  # by id: [(place, arm, numbers, time)]
        self.number, self.time = 0, 0.0

    def make(self):
        length = int(self.rng.integers(2, 4)) if self.rng.random() < 0.3 else 1
        self.number += length
        checksum = int(self.rng.integers(2**63))
        rows = [self.rng.normal(size=self.rng.integers(4)) for _ in range(length)]
        numbers = sum(row.size for row in rows)
        if not has_room(self.table, length, numbers):
            self.table = roomier_table(self.table, length, numbers)
        entry = []
        for n, row in enumerate(rows):
            place, arm = (n + 1 if length > 1 else SINGLE), int(self.rng.integers(3))
            given = self.number, np.uint64(checksum), self.time, arm, place, row, NOT_SPLIT
            add_row(self.table, *given)
            entry.append((place, arm, row.tobytes(), self.time))
        self.all[decision_id(self.number, checksum)] = entry
        drop_oldest(self.table)
        while len(self.all) > 9:
            del self.all[next(iter(self.all))]

    def close(self):
        if self.all:
            id = list(self.all)[self.rng.integers(len(self.all))]
            (number,), (checksum,) = parsed_ids([id])
            rows = same_key(self.table, int(find_row(self.table, number, checksum)))
            assert rows.size == len(self.all.pop(id))
            for row in self.rng.permutation(rows).tolist():
                close_row(self.table, row)
            assert find_row(self.table, number, checksum) == -1

    def find_some(self):
        ids = [list(self.all)[n] for n in self.rng.permutation(len(self.all))[:4]]
        rows = np.zeros(len(ids) + 1, dtype=np.int64)
        find_rows(self.table, *parsed_ids([*ids, "77-zz"]), rows)
        assert rows[-1] == -1
        assert ids_of(self.table, rows[:-1]) == ids

    def pack(self):
        self.table = packed_table(self.table)

    def check(self):
        table, rows = self.table, open_rows(self.table)
        found = {}
        for id, row in zip(ids_of(table, rows), rows.tolist(), strict=True):
            values = table.values[table.starts[row] : table.starts[row] + table.lengths[row]]
            entry = int(table.places[row]), int(table.arms[row]), values.tobytes(), table.times[row]
            found.setdefault(id, []).append(entry)
        assert list(found.items()) == list(self.all.items())
        assert table.sizes[open_decisions.IDS] == len(self.all)
        assert table.sizes[open_decisions.ROWS] == rows.size


@pytest.mark.parametrize("seed", range(6))
def test_the_table_holds_what_a_dictionary_would(seed, monkeypatch):
    monkeypatch.setattr(open_decisions, "LEAST_ROWS", 2)
    reference = Reference(seed)
    calls = [reference.make, reference.make, reference.close, reference.find_some, reference.pack]
    for _ in range(400):
        calls[reference.rng.choice(5, p=[0.3, 0.25, 0.35, 0.07, 0.03])]()
        reference.time += 1.0
        reference.check()


def test_rows_are_moved_forward_before_the_table_grows():
    table = empty_table(100, 8, 16)
    for number in range(1, 200):
        assert has_room(table, 1, 2)
        add_row(table, number, np.uint64(7), 0.0, 1, SINGLE, np.array([number, 1.0]), NOT_SPLIT)
        if number > 3:
            close_row(table, find_row(table, number - 3, np.uint64(7)))
    assert table.numbers[open_rows(table)].tolist() == [197, 198, 199]
