"""The page of a comparison of configurations on a log."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from tsucb.evaluation.compare import LOGGED, REPLAY, Comparison, cumulative, verdict
from tsucb.files import write_whole
from tsucb.logs.estimators import interval
from tsucb.pages.drawing import legend_above, line_look, panel, thinned
from tsucb.pages.page import Figure, cards, drawn, notes, page

if TYPE_CHECKING:
    import matplotlib.figure

    from tsucb.numeric.arrays import Floats


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
        notes(found.reasons()),
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
