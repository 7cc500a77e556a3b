"""The results of an experiment as files: tables, figures, and one page with everything on it."""

from __future__ import annotations

import base64
import html
import io
import json
import platform
from typing import TYPE_CHECKING, NamedTuple

import tsucb
from tsucb.experiments.claims import Claim
from tsucb.experiments.drawing import PALETTES, theme
from tsucb.experiments.experiment import Figure
from tsucb.experiments.folder import Folder
from tsucb.experiments.progress import duration

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
        variants = {
            (palette, narrow): picture(figure, palette, narrow, "svg")
            for narrow in (True, False)
            for palette in ("dark", "light")
        }
        folder.write(f"{figure.name}.svg", variants["light", False])
        folder.write(f"{figure.name}.png", picture(figure, "light", False, "png"))
        parts.append(embedded(figure, variants))
    seconds = float(times.seconds.sum())
    folder.write("report.html", page(folder, tables, claims, parts, codes, seconds))
    return Result(rows, summary, claims)


def picture(figure: Figure, palette: str, narrow: bool, ending: str) -> bytes:
    """A figure as a file, the same bytes every time."""
    sink = io.BytesIO()
    with theme(palette):
        figure.draw(narrow).savefig(
            sink, format=ending, dpi=160, metadata={"Date": None} if ending == "svg" else None
        )
    return sink.getvalue()


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
@media (max-width: 40rem) {
  .claims thead { display: none; }
  .claims tr { display: block; border-bottom: 1px solid var(--line); padding: 0.6rem 0; }
  .claims td { display: block; border: 0; padding: 0.1rem 0; }
  .claims td:first-child { font-weight: 600; }
  .claims td[data-label]::before { content: attr(data-label) ": "; opacity: 0.7; }
}
""" % {f"{mode}_{name}": colour for mode, p in PALETTES.items() for name, colour in p.items()}


def page(
    folder: Folder,
    tables: dict[str, pd.DataFrame],
    claims: list[Claim],
    figures: list[str],
    codes: tuple[str, ...],
    seconds: float,
) -> str:
    """The report: a single file that opens without network, on any width, in light and dark."""
    experiment = folder.experiment
    judged = [c for c in claims if c.agrees is not None]
    settings = json.loads((folder.path / "settings.json").read_text(encoding="utf-8"))
    mixed = [f"Measured by {len(codes)} states of the code of tsucb."] * (len(codes) > 1)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in [*mixed, *experiment.notes()])
    parts = [
        f"<h1>{html.escape(experiment.title)}</h1>",
        "<p>Measured with "
        f"<code>tsucb {tsucb.__version__}</code> (code {html.escape(', '.join(codes))}) against "
        "J. Baek and V. Farias, "
        "<i>TS-UCB: Improving on Thompson Sampling With Little to No Additional Computation</i>, "
        f"AISTATS 2023. Of {len(judged)} claims that these numbers can decide, "
        f"{sum(c.agrees is True for c in judged)} agree with the paper.</p>",
        f'<div class="notes">{notes}</div>' if notes else "",
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
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(experiment.title)}</title><style>{STYLE}</style></head>"
        f"<body>\n{body}\n</body></html>\n"
    )


def claims_table(claims: list[Claim]) -> str:
    """Claim of the paper / paper's figure / measured / agrees?"""
    lines = [
        f"<tr><td>{html.escape(c.statement)}</td>"
        f'<td data-label="Paper">{html.escape(c.paper)}</td>'
        f'<td data-label="Measured">{html.escape(c.measured)}</td>'
        f'<td class="{AGREEMENT[c.agrees][0]}">{verdict(c)}</td></tr>'
        for c in claims
    ]
    head = "<tr><th>Claim</th><th>Paper</th><th>Measured</th><th>Agrees?</th></tr>"
    body = "".join(lines)
    return f'<table class="claims"><thead>{head}</thead><tbody>{body}</tbody></table>'


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
