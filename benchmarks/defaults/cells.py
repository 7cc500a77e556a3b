"""One run of one contestant is one cell: a file that is whole or not there."""

import json
import os
import secrets
from pathlib import Path
from typing import Any, NamedTuple

SLUGS = {"×": "times-", "÷": "by-", "+": "plus-", "∞": "inf", "ε": "epsilon", " ": "-"}


class Cell(NamedTuple):
    """What was played."""

    dataset: str
    features: str
    rewards: str
    steps: int
    contestant: str
    seed: int

    def path(self, out: Path) -> Path:
        """Its file in a folder of results."""
        problem = slug(f"{self.features} {self.rewards}")
        name = f"{slug(self.contestant)}-{self.steps}-{self.seed}.json"
        return out / "cells" / self.dataset / problem / name


def slug(name: str) -> str:
    """A name as part of a file's name.

    >>> slug("VW ε-greedy"), slug("standardised ÷100"), slug("TS-UCB(∞)")
    ('VW-epsilon-greedy', 'standardised-by-100', 'TS-UCB(inf)')
    """
    for sign, word in SLUGS.items():
        name = name.replace(sign, word)
    return name


def save(out: Path, cell: Cell, **result: Any) -> None:
    """Write a finished cell aside and rename it."""
    path = cell.path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{secrets.token_hex(8)}.part")
    aside.write_text(json.dumps(cell._asdict() | result, ensure_ascii=False))
    os.replace(aside, path)


def load(out: Path, cell: Cell) -> dict[str, Any] | None:
    """A finished cell; None if it is not finished, or its file is not what it should be."""
    try:
        found = json.loads(cell.path(out).read_text())
    except (OSError, ValueError):
        return None
    same = isinstance(found, dict) and all(found.get(k) == v for k, v in cell._asdict().items())
    return found if same and "total" in found else None


def seeds(out: Path, cell: Cell) -> list[dict[str, Any]]:
    """The finished cells that differ from this one in nothing but rewards' scale and seed."""
    problem = f"{cell.dataset}/{slug(cell.features)}-*"
    return read(out, f"{problem}/{slug(cell.contestant)}-{cell.steps}-*.json")


def finished(out: Path) -> list[dict[str, Any]]:
    """All finished cells of a folder."""
    return read(out, "*/*/*.json")


def read(out: Path, pattern: str) -> list[dict[str, Any]]:
    """The cells whose files match, without those that are not what they should be."""
    found = []
    for path in sorted((out / "cells").glob(pattern)):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return found
