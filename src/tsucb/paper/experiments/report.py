"""Write the results of an experiment: tables, figures, and one page with all of them."""

from __future__ import annotations

import html
import json
import platform
from typing import TYPE_CHECKING, NamedTuple

import tsucb
from tsucb.pages.page import cards, drawings, embedded, notes, page, picture, plain_table
from tsucb.paper.experiments.claims import WORDS, Claim
from tsucb.paper.experiments.folder import Folder, parquet_bytes
from tsucb.paper.experiments.progress import duration

if TYPE_CHECKING:
    import pandas as pd

SIGNS = {True: "✓", False: "✗", None: "–"}
CLASSES = {True: "yes", False: "no", None: "open"}  # of the page's style sheet


class Result(NamedTuple):
    """A measured experiment: one row per run, the summary table, and the claims."""

    rows: pd.DataFrame
    summary: pd.DataFrame
    claims: list[Claim]


def verdict(claim: Claim) -> str:
    """Return the verdict on a claim as it is printed.

    >>> verdict(Claim("TS-UCB(1) halves regret", "50", "97", "at most 60", False))
    '✗ no'
    """
    return f"{SIGNS[claim.agrees]} {WORDS[claim.agrees]}"


def write_results(folder: Folder) -> Result:
    """Write runs.parquet, the tables, the figures and report.html from the finished tasks."""
    import pandas as pd
    import pyarrow as pa

    experiment = folder.experiment
    rows, times, codes = folder.measured()
    summary = experiment.summary(rows)
    tables = {"summary": summary, **experiment.tables(rows)}
    claims = experiment.claims(rows, summary)
    verdicts = pd.DataFrame([(*c[:4], WORDS[c.agrees]) for c in claims], columns=Claim._fields)
    folder.write("runs.parquet", parquet_bytes(pa.Table.from_pandas(rows, preserve_index=False)))
    for name, table in {**tables, "claims": verdicts, "times": times}.items():
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
    folder: Folder, tables: dict[str, pd.DataFrame], claims: list[Claim], figures: list[str],
    codes: tuple[str, ...], seconds: float,
) -> str:  # fmt: skip
    """Return the page with everything on it."""
    experiment = folder.experiment
    decided = [c for c in claims if c.agrees is not None]
    settings = json.loads((folder.path / "settings.json").read_text(encoding="utf-8"))
    mixed = [f"Measured by {len(codes)} states of the code of tsucb."] * (len(codes) > 1)
    parts = [
        "<p>Measured with "
        f"<code>tsucb {tsucb.__version__}</code> (code {html.escape(', '.join(codes))}) against "
        "J. Baek and V. Farias, "
        "<i>TS-UCB: Improving on Thompson Sampling With Little to No Additional Computation</i>, "
        f"AISTATS 2023. Of {len(claims)} claims, {sum(c.agrees is True for c in decided)} agree "
        f"with the paper and {sum(c.agrees is False for c in decided)} do not; on the others these "
        "numbers cannot tell.</p>",
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
    """Return the claims of the paper with figures, measurements, verdicts and their rules."""
    rows = [
        [(c.statement, ""), (c.paper, ""), (c.measured, ""), (verdict(c), CLASSES[c.agrees]),
         (c.rule, "")]
        for c in claims
    ]  # fmt: skip
    return cards(["Claim", "Paper", "Measured", "Agrees", "Yes if"], rows)
