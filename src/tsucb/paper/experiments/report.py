"""Write the results of an experiment: tables, figures, and one page with all of them."""

import platform
from typing import NamedTuple

import pandas as pd

import tsucb
from tsucb.display import time_span
from tsucb.pages.figures import drawings, picture
from tsucb.pages.render import render
from tsucb.paper.experiments.claims import WORDS, Claim
from tsucb.paper.experiments.folder import Folder

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
    experiment = folder.experiment
    rows, times, codes = folder.measured()
    summary = experiment.summary(rows)
    tables = {"summary": summary, **experiment.tables(rows)}
    claims = experiment.claims(rows, summary)
    verdicts = pd.DataFrame([(*c[:4], WORDS[c.agrees]) for c in claims], columns=Claim._fields)
    folder.write("runs.parquet", rows.to_parquet(index=False))
    for name, table in {**tables, "claims": verdicts, "times": times}.items():
        folder.write(f"{name}.csv", table.to_csv(index=False, float_format="%.10g"))
    figures = [(figure, drawings(figure)) for figure in experiment.figures(rows, summary)]
    for figure, variants in figures:
        folder.write(f"{figure.name}.svg", variants["light", False])
        folder.write(f"{figure.name}.png", picture(figure, "light", False, "png"))
    mixed = [f"Measured by {len(codes)} states of the code of tsucb."] * (len(codes) > 1)
    page = render(
        "experiment.html",
        title=experiment.title,
        version=tsucb.__version__,
        codes=codes,
        agreed=sum(c.agrees is True for c in claims),
        denied=sum(c.agrees is False for c in claims),
        notes=[*mixed, *experiment.notes()],
        claims=[
            [c.statement, c.paper, c.measured, (verdict(c), CLASSES[c.agrees]), c.rule]
            for c in claims
        ],
        figures=figures,
        tables=tables,
        settings=(folder.path / "settings.json").read_text(encoding="utf-8").strip(),
        duration=time_span(float(times.seconds.sum())),
        python=platform.python_version(),
        machine=platform.machine(),
    )
    folder.write("report.html", page)
    return Result(rows, summary, claims)
