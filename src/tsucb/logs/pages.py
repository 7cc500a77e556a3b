"""Pages about logs: one file each, in the looks of the experiments' reports."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tsucb
from tsucb.experiments.drawing import legend_above, new_figure
from tsucb.experiments.experiment import Figure
from tsucb.experiments.report import STYLE, embedded, picture
from tsucb.files import write_whole
from tsucb.logs.compare import LOGGED, REPLAY, Comparison, cumulative, verdict
from tsucb.logs.estimators import Estimate

if TYPE_CHECKING:
    import matplotlib.figure

    from tsucb.numeric.arrays import Floats

# Eight that colour-blind readers can tell apart, on white and on black.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#8C6BB1"]
DASHES = ["-", "--", "-.", ":"]
POINTS = 400  # of a line

_MORE = """
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 0.75rem;
  margin: 1rem 0; padding: 0; list-style: none; }
.facts li { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.6rem 0.8rem; }
.facts b { display: block; font-size: 1.35rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.facts span { font-size: 0.85rem; opacity: 0.85; }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A page that opens without network, on any width, in light and dark."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}{_MORE}</style></head>"
        f"<body>\n<h1>{html.escape(title)}</h1>\n{body}\n"
        f"<p>Made by <code>tsucb {tsucb.__version__}</code>.</p></body></html>\n"
    )


def drawn(figure: Figure) -> str:
    """A figure in light and dark, wide and narrow."""
    variants = {
        (palette, narrow): picture(figure, palette, narrow, "svg")
        for narrow in (True, False)
        for palette in ("dark", "light")
    }
    return embedded(figure, variants)


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


def interval(found: Estimate, sign: bool = False, digits: int = 4) -> str:
    """A value with its interval, bounds, or nothing.

    >>> interval(Estimate(0.125, 0.01, 0.1, 0.15, 90, 100)), interval(Estimate(*[math.nan] * 5, 9))
    ('0.125 (0.1 to 0.15)', '–')
    """
    form = f"{'+' if sign else ''}.{digits}g"
    if found.bounded:
        return f"between {found.low:{form}} and {found.high:{form}}"
    if math.isnan(found.value):
        return "–"
    if math.isnan(found.low):
        return f"{found.value:{form}} (no interval)"
    return f"{found.value:{form}} ({found.low:{form}} to {found.high:{form}})"


def line_look(number: int) -> dict[str, Any]:
    """Colour and dashes of the n-th line."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
    }


def panel(narrow: bool, height: float = 3.6) -> tuple[matplotlib.figure.Figure, Any]:
    """A figure with one panel."""
    figure = new_figure(4.6 if narrow else 10.5, height)
    return figure, figure.subplots()


def thinned(size: int) -> Any:
    """The numbers of at most so many points of a line."""
    return np.unique(np.linspace(0, size - 1, min(size, POINTS)).round().astype(np.int64))


def comparison_page(found: Comparison, path: Path, title: str) -> None:
    """Write the page of a comparison."""

    def draw(narrow: bool) -> matplotlib.figure.Figure:
        figure, axes = panel(narrow, 4.2)
        logged: Floats = found.terms[LOGGED]
        at = thinned(logged.size)
        for number, (name, terms) in enumerate(found.terms.items()):
            if name == LOGGED or not found.differences[name, LOGGED].trusted:
                continue
            total, band = cumulative(terms, logged)
            look = line_look(number - 1)
            axes.plot(at + 1, total[at], label=name, **look)
            axes.fill_between(
                at + 1, (total - band)[at], (total + band)[at], color=look["color"], alpha=0.15,
                linewidth=0,
            )  # fmt: skip
        axes.axhline(0, color=axes.spines["left"].get_edgecolor(), linewidth=1)
        axes.set(xlabel="decision of the log", ylabel="extra reward so far", xlim=(0, logged.size))
        if axes.get_legend_handles_labels()[0]:
            legend_above(figure, axes, narrow)
        return figure

    rows = [
        [
            (name, ""),
            (interval(each), ""),
            (f"{each.effective_size:,.0f}", ""),
            (f"{100 * each.uncovered:.1f} %", ""),
            (each.reason or "–", ""),
        ]
        for name, each in found.values.items()
    ]
    classes = {"better": "yes", "worse": "no", "cannot tell": "open", "the log cannot say": "open"}
    pairs = [
        [
            (f"{a} against {b}", ""),
            (interval(each, sign=True), ""),
            (verdict(each), classes[verdict(each)]),
        ]
        for (a, b), each in found.differences.items()
    ]
    how = (
        "By replay: every configuration went through the log and learned from the decisions at "
        "which it picked what was logged; these stand for a life of its own, of "
        + ", ".join(f"{size:,} decisions ({name})" for name, size in found.kept.items())
        + "."
        if found.method == REPLAY
        else "By doubly robust estimates: at every decision each configuration knew all rewards "
        "that had come by then, whatever arm was played, and was asked what it would choose. This "
        "is the value of its choices given that knowledge, not of a life of its own."
    )
    refused = [f"{name}: {each.reason}." for name, each in found.values.items() if not each.trusted]
    figure = Figure(
        "extra",
        "Extra reward over the log",
        "What each configuration earns more than what was logged, added up over the decisions, "
        "with 95 % bands for the sum up to there. Configurations about which the log says too "
        "little are left out.",
        draw,
    )
    some = any(d.trusted for (_, other), d in found.differences.items() if other == LOGGED)
    parts = [
        f"<p>{found.decisions:,} decisions. {html.escape(how)}</p>",
        notes(refused),
        "<h2>Which is better?</h2>",
        cards(["Configuration", "Extra reward per decision, 95 %", "Verdict"], pairs),
        "<p>Paired: both are judged on the same decisions.</p>",
        drawn(figure) if some else "",
        "<h2>Reward per decision</h2>",
        cards(
            ["Configuration", "Reward, 95 %", "Effective size", "Not in the log", "Remark"], rows
        ),
        "<p>The effective size is how many decisions of the configuration itself would have told "
        "as much. “Not in the log” is the share of what it would do that the log never tried.</p>",
    ]
    write_whole(path, page(title, parts))
