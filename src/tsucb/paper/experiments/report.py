"""The results of an experiment as files: tables, figures, and one page with everything on it."""

from __future__ import annotations

import html
import json
import platform
from typing import TYPE_CHECKING, NamedTuple

import tsucb
from tsucb.pages.page import cards, drawings, embedded, notes, page, picture, plain_table
from tsucb.paper.experiments.claims import Claim
from tsucb.paper.experiments.folder import Folder
from tsucb.paper.experiments.progress import duration

if TYPE_CHECKING:
    import pandas as pd

AGREEMENT = {True: ("yes", "✓"), False: ("no", "✗"), None: ("open", "–")}


class Result(NamedTuple):
    """A measured experiment: one row per run, the summary table, and the claims."""

    rows: pd.DataFrame
    summary: pd.DataFrame
    claims: list[Claim]


def verdict(claim: Claim) -> str:
    """Whether measurement and paper agree, as it is printed.

    >>> verdict(Claim("TS-UCB(1) halves regret", "50", "97", False))
    '✗ no'
    """
    word, sign = AGREEMENT[claim.agrees]
    return f"{sign} {word}"


def write_results(folder: Folder) -> Result:
    """Write runs.parquet, the tables, the figures and report.html from the finished tasks."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    experiment = folder.experiment
    rows, times, codes = folder.measured()
    summary = experiment.summary(rows)
    tables = {"summary": summary, **experiment.tables(rows)}
    claims = experiment.claims(rows, summary)
    judged = pd.DataFrame([(*c[:3], AGREEMENT[c.agrees][0]) for c in claims], columns=Claim._fields)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), sink)
    folder.write("runs.parquet", sink.getvalue().to_pybytes())
    for name, table in {**tables, "claims": judged, "times": times}.items():
        folder.write(f"{name}.csv", table.to_csv(index=False, float_format="%.10g"))
    parts = []
    for figure in experiment.figures(rows, summary):
        variants = drawings(figure)
        folder.write(f"{figure.name}.svg", variants["light", False])
        folder.write(f"{figure.name}.png", picture(figure, "light", False, "png"))
        parts.append(embedded(figure, variants))
    seconds = float(times.seconds.sum())
    folder.write("report.html", report(folder, tables, claims, parts, codes, seconds))
    return Result(rows, summary, claims)


def report(
    folder: Folder,
    tables: dict[str, pd.DataFrame],
    claims: list[Claim],
    figures: list[str],
    codes: tuple[str, ...],
    seconds: float,
) -> str:
    """The page with everything on it."""
    experiment = folder.experiment
    judged = [c for c in claims if c.agrees is not None]
    settings = json.loads((folder.path / "settings.json").read_text(encoding="utf-8"))
    mixed = [f"Measured by {len(codes)} states of the code of tsucb."] * (len(codes) > 1)
    parts = [
        "<p>Measured with "
        f"<code>tsucb {tsucb.__version__}</code> (code {html.escape(', '.join(codes))}) against "
        "J. Baek and V. Farias, "
        "<i>TS-UCB: Improving on Thompson Sampling With Little to No Additional Computation</i>, "
        f"AISTATS 2023. Of {len(judged)} claims that these numbers can decide, "
        f"{sum(c.agrees is True for c in judged)} agree with the paper.</p>",
        notes([*mixed, *experiment.notes()]),
        "<h2>Claims of the paper</h2>",
        claims_table(claims),
        *figures,
        "<h2>Numbers</h2>",
    ]
    for name, table in tables.items():
        parts.append(
            f"<details><summary>{name}.csv, {len(table):,} rows</summary>"
            f'<div class="scroll">{plain_table(table)}</div></details>'
        )
    parts += [
        "<details><summary>Settings</summary>"
        f"<pre>{html.escape(json.dumps(settings, indent=2, ensure_ascii=False))}</pre></details>",
        f"<p>The tasks took {duration(seconds)}, added up (times.csv lists each), with Python "
        f"{platform.python_version()} on {html.escape(platform.machine())}. "
        "Every run is in runs.parquet.</p>",
    ]
    return page(experiment.title, parts)


def claims_table(claims: list[Claim]) -> str:
    """Claim of the paper / paper's figure / measured / agrees?"""
    rows = [
        [
            (c.statement, ""),
            (c.paper, ""),
            (c.measured, ""),
            (verdict(c), AGREEMENT[c.agrees][0]),
        ]
        for c in claims
    ]
    return cards(["Claim", "Paper", "Measured", "Agrees"], rows)
