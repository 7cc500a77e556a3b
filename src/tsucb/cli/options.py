"""Options that several commands have."""

from typing import Annotated

import typer

SeedOption = Annotated[int, typer.Option(help="Seed of all randomness.")]


def listed(text: str | None) -> tuple[str, ...] | None:
    """The parts of a comma-separated list.

    >>> listed("TS, TS-UCB(1)")
    ('TS', 'TS-UCB(1)')
    """
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())
