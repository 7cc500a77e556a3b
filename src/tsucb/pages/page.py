"""Figures that matplotlib draws, as files and as part of a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tsucb.pages.drawing import theme

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

Cells = list[tuple[str, str]]  # texts with their classes


class Figure(NamedTuple):
    """A picture of the report: file name without ending, heading, caption, and how to draw it.

    `draw(narrow)` returns a matplotlib Figure; narrow ones are for the width of a phone.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[bool], matplotlib.figure.Figure]


class Embedded(NamedTuple):
    """A figure for the template: for each width and theme the media query and the data."""

    title: str
    caption: str
    sources: list[tuple[str, str]]
    usual: str


class PlainTable(NamedTuple):
    """A table of results for the template."""

    name: str
    head: Cells
    rows: list[Cells]


def picture(figure: Figure, palette: str, narrow: bool, ending: str) -> bytes:
    """Return a figure as a file, the same bytes every time."""
    sink = io.BytesIO()
    with theme(palette):
        figure.draw(narrow).savefig(
            sink, format=ending, dpi=160, metadata={"Date": None} if ending == "svg" else None
        )
    return sink.getvalue()


def drawings(figure: Figure) -> dict[tuple[str, bool], bytes]:
    """Return a figure in light and dark, narrow and wide."""
    return {
        (palette, narrow): picture(figure, palette, narrow, "svg")
        for narrow in (True, False)
        for palette in ("dark", "light")
    }


def embedded(figure: Figure, variants: dict[tuple[str, bool], bytes]) -> Embedded:
    """Return the figure for light and dark, wide and narrow; the reader's device picks one."""
    sources = []
    for (palette, narrow), svg in variants.items():
        media = f"(prefers-color-scheme: {palette})" + " and (max-width: 40rem)" * narrow
        sources.append((media, _data(svg)))
    return Embedded(figure.title, figure.caption, sources, _data(variants["light", False]))


def _data(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def plain_table(name: str, table: pd.DataFrame) -> PlainTable:
    """Return a table of results, numbers to the right with four significant digits."""

    def cell(value: object) -> tuple[str, str]:
        if isinstance(value, float):
            return (f"{value:,.4g}" if value == value else ""), "number"
        is_number = isinstance(value, int) or hasattr(value, "bit_length")
        return str(value), "number" if is_number else ""

    kinds = ["number" if kind.kind in "if" else "" for kind in table.dtypes]
    head = [(str(name), kind) for name, kind in zip(table.columns, kinds, strict=True)]
    rows = [[cell(value) for value in row] for row in table.itertuples(index=False, name=None)]
    return PlainTable(name, head, rows)
