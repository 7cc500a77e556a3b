"""Write the measurements down: a CSV, Markdown tables, and a figure."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.output import markdown_table, save_pictures
from tsucb.files import write_whole
from tsucb.numeric.statistics import mean_interval

Rows = list[dict[str, Any]]

REFERENCE = ("tsucb", "Agent, TS")  # the exact Thompson sampling that regret is compared with

# Okabe and Ito's colours, which colour-blind readers tell apart, and a marker for print in grey.
LOOKS = {
    "tsucb": ("#D55E00", "o"),
    "mabwiser": ("#0072B2", "s"),
    "contextualbandits": ("#009E73", "^"),
    "river": ("#CC79A7", "v"),
    "vowpalwabbit": ("#8C6D00", "D"),
    "bayesianbandits": ("#56B4E9", "P"),
    "obp": ("#666666", "X"),
    "coba": ("#A0522D", "*"),
}


class About(NamedTuple):
    """What the reader must know to judge the numbers."""

    machine: str
    versions: dict[str, str]
    remarks: dict[str, str]  # libraries that could not be measured, or not fully
    minutes: float


def write(rows: Rows, about: About, out: Path) -> None:
    """Write `peers.csv`, `peers.md` and the figure, for light and dark pages, into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    table = summarise(rows)
    write_whole(out / "peers.csv", table.to_csv(index=False, float_format="%.6g"))
    write_whole(out / "peers.md", markdown(table, about))
    save_pictures(partial(draw_growth, table), out, "growth")


def summarise(rows: Rows) -> pd.DataFrame:
    """Return one line per result; regret as a mean, and in per cent of the reference's."""
    totals = {
        (row["library"], row["policy"]): np.array(row["totals"])
        for row in rows
        if row["measure"] == "regret"
    }
    reference = totals.get(REFERENCE, np.empty(0))
    out: Rows = []
    for row in rows:
        if row["measure"] == "regret":
            runs = totals[row["library"], row["policy"]]
            paired = min(len(runs), len(reference))
            out.append(row | interval(runs))
            if paired:
                ratios = 100 * runs[:paired] / reference[:paired]
                out.append(row | {"measure": "regret, % of TS"} | interval(ratios))
        else:
            out.append(row)
    columns = ["library", "version", "policy", "kind", "measure", "arms", "features"]
    columns += ["value", "ci95_low", "ci95_high", "count", "note"]
    return pd.DataFrame(out, columns=columns)


def interval(values: np.ndarray) -> dict[str, float]:
    """Return the mean with its 95 % interval."""
    mean, _, low, high = mean_interval(values)
    return {"value": mean, "ci95_low": low, "ci95_high": high, "count": len(values)}


def markdown(table: pd.DataFrame, about: About) -> str:
    """Return the tables of the documentation."""
    lines = [f"Machine: {about.machine}. The whole run took {about.minutes:.0f} minutes.", ""]
    lines += ["Versions: " + ", ".join(f"{k} {v}" for k, v in about.versions.items()) + ".", ""]
    lines += [f"- **{name}**: {remark}." for name, remark in about.remarks.items()]
    speed = table[table.measure == "speed"]
    sizes = list(dict.fromkeys(zip(speed.arms, speed.features, strict=True)))
    lines += ["", "Microseconds of CPU time for one decision with its update:", ""]
    rows = [
        [*key, *(cell(group[(group.arms == k) & (group.features == d)]) for k, d in sizes)]
        for key, group in speed.groupby(["library", "policy"], sort=False)
    ]
    header = ["library", "policy", *(f"K = {k}, d = {d}" for k, d in sizes)]
    lines += [markdown_table(header, rows, 2)]
    regret = table[table.measure == "regret, % of TS"]
    if len(regret):
        lines += ["Regret in per cent of exact Thompson sampling's, on the same runs:", ""]
        rows = [
            [r.library, r.policy, f"{r.value:.0f}", f"{r.ci95_low:.0f} to {r.ci95_high:.0f}",
             f"{r.count}"]
            for r in regret.itertuples()
        ]  # fmt: skip
        header = ["library", "policy", "regret, %", "95 % interval", "runs"]
        lines += [markdown_table(header, rows, 2)]
    notes = table[(table.note != "") & table.value.isna()].drop_duplicates(
        ["library", "policy", "note"]
    )
    if len(notes):
        lines += ["Not measured:", ""]
        lines += [f"- {r.library}, {r.policy}: {r.note}" for r in notes.itertuples()]
    return "\n".join(lines) + "\n"


def cell(group: pd.DataFrame) -> str:
    """Return a time with three digits, or a dash."""
    if group.empty or group.value.isna().all():
        return "–"
    value = float(group.value.iloc[0])
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def draw_growth(table: pd.DataFrame, narrow: bool) -> Any:
    """Draw time over K and over d, on logarithmic scales; narrow for phones."""
    from matplotlib.figure import Figure

    rows = {
        "Thompson sampling and TS-UCB": ["Thompson sampling", "TS-UCB"],
        "LinUCB, and Vowpal Wabbit's explorers": ["LinUCB", "other"],
    }
    figure = Figure(figsize=(4.4, 16) if narrow else (9, 7.5), layout="constrained")
    parts: Any = figure.subfigures(2, 1)
    for part, (title, kinds) in zip(parts, rows.items(), strict=True):
        part.suptitle(title, fontsize=10, fontweight="bold", x=0.01, ha="left")
        grid: Any = part.subplots(*((2, 1) if narrow else (1, 2)), sharey=True)
        for axes, size, other in zip(grid, ("arms", "features"), ("features", "arms"), strict=True):
            letter, fixed = ("K", "d") if size == "arms" else ("d", "K")
            series = table[(table.measure == f"growth with {letter}") & table.kind.isin(kinds)]
            for (library, policy), group in series.groupby(["library", "policy"], sort=False):
                axes.plot(
                    group[size],
                    group.value,
                    label=f"{library}: {policy}",
                    **look(str(library), str(policy)),
                )
            axes.set(xscale="log", yscale="log", xlabel=f"{size} {letter}")
            if series.empty:  # every library was cut off earlier
                continue
            axes.set_title(f"{fixed} = {series[other].iloc[0]}", fontweight="normal")
        for axes in grid if narrow else grid[:1]:
            axes.set_ylabel("µs a decision")
        handles, labels = grid[0].get_legend_handles_labels()
        part.legend(handles, labels, loc=f"outside {'lower' if narrow else 'right'} center")
    return figure


def look(library: str, policy: str) -> dict[str, Any]:
    """Return colour, marker and line of a library's policy."""
    colour, marker = LOOKS[library]
    inside = policy.startswith("simulate")
    return {
        "color": colour,
        "marker": marker,
        "markersize": 4,
        "linewidth": 2.4 if library == "tsucb" else 1.2,
        "linestyle": "--" if inside else "-",
        "markerfacecolor": "none" if inside else colour,
    }
