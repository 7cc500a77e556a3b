"""`tsucb data make-news`: a click log in Yahoo!'s form whose truth is known."""

from pathlib import Path
from typing import Annotated

import typer

from tsucb.paper import news


def make_news(
    folder: Annotated[Path, typer.Argument(help="Where the files go.", metavar="DIR")],
    days: Annotated[int, typer.Option(help="Files, one for each day.")] = 10,
    lines: Annotated[int, typer.Option(help="Visits a day.")] = 1_500_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same log.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Days at once; default: one a core.")] = None,
) -> None:
    """Make a news click log in the form of Yahoo!'s R6B, with true click rates in truth.npz."""
    news.make_news(folder, days=days, lines=lines, seed=seed, workers=workers, progress=typer.echo)
