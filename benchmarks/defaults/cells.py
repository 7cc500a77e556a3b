"""A cell is one run of one contestant: a file that is complete or absent."""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

from tsucb.files import write_whole

SLUGS = {"×": "times-", "÷": "by-", "+": "plus-", "∞": "inf", "ε": "epsilon", " ": "-"}


class Cell(NamedTuple):
    """A run of a contestant on a problem."""

    dataset: str
    features: str
    rewards: str
    steps: int
    contestant: str
    seed: int

    def path(self, out: Path) -> Path:
        """Return the file of the cell in a folder of results."""
        problem = slug(f"{self.features} {self.rewards}")
        name = f"{slug(self.contestant)}-{self.steps}-{self.seed}.json"
        return out / "cells" / self.dataset / problem / name


def slug(name: str) -> str:
    """Return a name that can be part of a file's name.

    >>> slug("VW ε-greedy"), slug("standardised ÷100"), slug("TS-UCB(∞)")
    ('VW-epsilon-greedy', 'standardised-by-100', 'TS-UCB(inf)')
    """
    for sign, word in SLUGS.items():
        name = name.replace(sign, word)
    return name


def save(out: Path, cell: Cell, **result: Any) -> None:
    """Write the file of a finished cell."""
    path = cell.path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(cell._asdict() | result, ensure_ascii=False))


def load(out: Path, cell: Cell) -> dict[str, Any] | None:
    """Return a finished cell; None if its file is missing or is another cell's."""
    try:
        found = json.loads(cell.path(out).read_text())
    except (OSError, ValueError):
        return None
    same = isinstance(found, dict) and all(found.get(k) == v for k, v in cell._asdict().items())
    return found if same and "total" in found else None


def seeds(out: Path, cell: Cell) -> list[dict[str, Any]]:
    """Return the finished cells that differ from this one only in rewards' scale and seed."""
    problem = f"{cell.dataset}/{slug(cell.features)}-*"
    return read(out, f"{problem}/{slug(cell.contestant)}-{cell.steps}-*.json")


def finished(out: Path) -> list[dict[str, Any]]:
    """Return all finished cells of a folder."""
    return read(out, "*/*/*.json")


def read(out: Path, pattern: str) -> list[dict[str, Any]]:
    """Return the cells whose files match; leave out files that cannot be read."""
    found = []
    for path in sorted((out / "cells").glob(pattern)):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return found


def restore(out: Path, table: Path) -> None:
    """Write the cells of a table of runs that are not in the folder."""
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines):
            cell = Cell(
                row["dataset"],
                row["features"],
                row["rewards"],
                int(row["steps"]),
                row["contestant"],
                int(row["seed"]),
            )
            if load(out, cell) is None:
                total = float(row["total"]) if row["total"] else None
                rest = {name: row[name] for name in ("version", "note")}
                save(out, cell, total=total, seconds=float(row["seconds"]), **rest)
