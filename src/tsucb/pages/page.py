"""Pages that open without network, on any width, in light and dark: one file each."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tsucb.pages.drawing import PALETTES, theme

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd


class Figure(NamedTuple):
    """A picture of the report: file name without ending, heading, caption, and how to draw it.

    `draw(narrow)` returns a matplotlib Figure; narrow ones are for the width of a phone.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[bool], matplotlib.figure.Figure]


STYLE = """
:root { color-scheme: light dark; --paper: %(light_paper)s; --ink: %(light_ink)s;
  --line: %(light_line)s; --yes: #00664a; --no: #b03a00; }
@media (prefers-color-scheme: dark) { :root { --paper: %(dark_paper)s; --ink: %(dark_ink)s;
  --line: %(dark_line)s; --yes: #4fd0a5; --no: #ff9a66; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0 0.75rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.5rem; }
p, figcaption, li { max-width: 46rem; }
.notes { border-left: 4px solid var(--no); padding: 0.1rem 1rem; margin: 1rem 0; }
figure { margin: 0; }
figure img { display: block; width: 100%%; height: auto; }
figcaption { font-size: 0.9rem; opacity: 0.85; margin-top: 0.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; width: 100%%; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.75rem 0.4rem 0;
  border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.yes { color: var(--yes); } .no { color: var(--no); }
.yes, .no, .open { white-space: nowrap; font-weight: 600; }
summary { cursor: pointer; margin: 0.75rem 0; font-weight: 600; }
pre { overflow-x: auto; font-size: 0.85rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 0.75rem;
  margin: 1rem 0; padding: 0; list-style: none; }
.facts li { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.6rem 0.8rem; }
.facts b { display: block; font-size: 1.35rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.facts span { font-size: 0.85rem; opacity: 0.85; }
@media (max-width: 40rem) {
  .claims thead { display: none; }
  .claims tr { display: block; border-bottom: 1px solid var(--line); padding: 0.6rem 0; }
  .claims td { display: block; border: 0; padding: 0.1rem 0; }
  .claims td:first-child { font-weight: 600; }
  .claims td[data-label]:empty { display: none; }
  .claims td[data-label]::before { content: attr(data-label) ": "; opacity: 0.7; }
}
""" % {f"{mode}_{name}": colour for mode, p in PALETTES.items() for name, colour in p.items()}


def page(title: str, parts: Sequence[str]) -> str:
    """A page that opens without network, on any width, in light and dark."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>\n<h1>{html.escape(title)}</h1>\n{body}\n"
        f"<p>Made by <code>tsucb</code>.</p></body></html>\n"
    )


def picture(figure: Figure, palette: str, narrow: bool, ending: str) -> bytes:
    """A figure as a file, the same bytes every time."""
    sink = io.BytesIO()
    with theme(palette):
        figure.draw(narrow).savefig(
            sink, format=ending, dpi=160, metadata={"Date": None} if ending == "svg" else None
        )
    return sink.getvalue()


def drawings(figure: Figure) -> dict[tuple[str, bool], bytes]:
    """A figure in light and dark, narrow and wide."""
    return {
        (palette, narrow): picture(figure, palette, narrow, "svg")
        for narrow in (True, False)
        for palette in ("dark", "light")
    }


def drawn(figure: Figure) -> str:
    """A figure as part of a page."""
    return embedded(figure, drawings(figure))


def embedded(figure: Figure, variants: dict[tuple[str, bool], bytes]) -> str:
    """The figure for light and dark, wide and narrow; the reader's device picks one."""
    sources = []
    for (palette, narrow), svg in variants.items():
        media = f"(prefers-color-scheme: {palette})" + " and (max-width: 40rem)" * narrow
        data = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
        sources.append(f'<source media="{media}" srcset="{data}">')
    usual = base64.b64encode(variants["light", False]).decode()
    alt = html.escape(f"{figure.title}. {figure.caption}", quote=True)
    return (
        f"<h2>{html.escape(figure.title)}</h2><figure><picture>{''.join(sources)}"
        f'<img src="data:image/svg+xml;base64,{usual}" alt="{alt}"></picture>'
        f"<figcaption>{html.escape(figure.caption)}</figcaption></figure>"
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """A few large numbers, each with what it is."""
    items = "".join(
        f"<li><b>{html.escape(number)}</b><span>{html.escape(what)}</span></li>"
        for number, what in pairs
    )
    return f'<ul class="facts">{items}</ul>'


def notes(sentences: Sequence[str]) -> str:
    """What the reader must know before the numbers."""
    inside = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences if sentence)
    return f'<div class="notes">{inside}</div>' if inside else ""


def cards(head: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A table that becomes a list of cards on a phone; cells are pairs of text and class."""
    lines = []
    for row in rows:
        cells = "".join(
            f'<td class="{kind}"'
            + (f' data-label="{html.escape(label)}"' if i else "")
            + f">{html.escape(text)}</td>"
            for i, ((text, kind), label) in enumerate(zip(row, head, strict=True))
        )
        lines.append(f"<tr>{cells}</tr>")
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    return (
        f'<table class="claims"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def plain_table(table: pd.DataFrame) -> str:
    """A table of results, numbers to the right with four significant digits."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return f'<td class="number">{value:,.4g}</td>' if value == value else "<td></td>"
        number = isinstance(value, int) or hasattr(value, "bit_length")
        return f"<td{' class=number' * number}>{html.escape(str(value))}</td>"

    numeric = [kind.kind in "if" for kind in table.dtypes]
    head = "".join(
        f"<th{' class=number' * number}>{html.escape(str(name))}</th>"
        for name, number in zip(table.columns, numeric, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(map(cell, line))}</tr>" for line in table.itertuples(index=False, name=None)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
