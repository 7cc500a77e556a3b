"""The page of a comparison of configurations on a log."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tsucb.evaluation.compare import ABOUT, LOGGED, Comparison, verdict
from tsucb.files import write_whole
from tsucb.logs.estimators import interval
from tsucb.pages.charts import Chart, Line, Point, lines, plain, thinned
from tsucb.pages.render import render

KINDS = {"better": "yes", "worse": "no", "cannot tell": "open", "the log cannot say": "open"}


def comparison_page(found: Comparison, path: Path, title: str) -> None:
    """Write the page of a comparison."""
    page = render(
        "comparison.html",
        title=title,
        found=found,
        about=ABOUT[found.method],
        chart=extra_chart(found),
        pairs=[
            [
                f"{first} against {second}",
                interval(each, sign=True),
                (verdict(each), KINDS[verdict(each)]),
            ]
            for (first, second), each in found.differences.items()
        ],
        rows=[
            [
                name,
                interval(each),
                f"{each.effective_size:,.0f}",
                f"{100 * each.uncovered:.1f} %",
                each.reason or "–",
            ]
            for name, each in found.values.items()
        ],
    )
    write_whole(path, page)


def extra_chart(found: Comparison) -> Chart | None:
    """Draw what each configuration earns more than what was logged, added up."""
    logged = found.terms[LOGGED]
    series = []
    for name, terms in found.terms.items():
        if name == LOGGED or not found.differences[name, LOGGED].trusted:
            continue
        total = np.cumsum(terms - logged)
        points = [Point(float(i + 1), float(total[i])) for i in thinned(logged.size)]
        series.append(Line(name, points))
    return lines(
        series, "extra reward over the log", x_label="decision of the log",
        y_label="extra reward so far", text=plain, zero=True,
    )  # fmt: skip
