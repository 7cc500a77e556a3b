"""Write down who collected how much: a CSV, Markdown tables, and a figure."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.defaults import figure
from benchmarks.defaults.contestants import CONTESTANTS
from benchmarks.defaults.problems import STANDARDISED
from benchmarks.defaults.scores import (
    CONSTANT,
    LIBRARIES,
    MAIN,
    MODELS,
    OURS,
    POLICIES,
    PROBLEM,
    PURELY_GREEDY,
    Key,
    Selection,
    Totals,
    by_problem,
    frame,
    grid,
    lead,
    percentages,
    ratio,
    references,
)
from benchmarks.output import markdown_table, save_pictures
from tsucb.files import write_whole

TARGETS = {"library": 98.0, "grid": 97.0}  # per cent of the best one's reward, on every problem

Runs = dict[Key, Totals]


def write(out: Path, chosen: Selection, into: Path | None = None) -> str:
    """Write the table, the figures and the sections of what is finished; return the sections.

    The files go to the folder of the cells, or `into` another.
    """
    table = frame(out, chosen)
    into = into or out
    into.mkdir(parents=True, exist_ok=True)
    write_whole(into / "defaults.csv", table.to_csv(index=False, float_format="%.10g"))
    scores = percentages(by_problem(table))
    if scores:
        save_pictures(partial(figure.draw, scores, list(chosen.steps)), into, "defaults")
    text = "\n".join(f"## {heading(make)}\n\n{make(table)}" for make in SECTIONS.values())
    if into == out:
        write_whole(out / "defaults.md", text)
    return text


def read(folder: Path) -> pd.DataFrame:
    """Read the table that `write` has written."""
    words = {"version": str, "note": str}
    return pd.read_csv(
        folder / "defaults.csv", dtype=words, keep_default_na=False, na_values={"total": [""]}
    )


# Every section is made from the table of all runs; the first line of its docstring is its heading.


def summary(table: pd.DataFrame) -> str:
    """Rewards and features as they come: everybody's average."""
    parts = []
    for n, runs in lengths(as_is(by_problem(table))):
        scores = percentages(runs)
        rows: list[tuple[float, list[str]]] = []
        for name in [*MAIN, CONSTANT]:
            mine = {p: found[name] for p, found in scores.items() if name in found}
            if not mine:
                continue
            mean = float(np.mean([r.percent for r in mine.values()]))
            worst = min(mine, key=lambda p: mine[p].percent)
            seeds = [r.runs for r in mine.values()]
            cells = [
                f"**{name}**" if name == OURS else name,
                f"{mean:.1f}",
                "" if name == OURS else f"{lead(runs, name) or '–'}",
                f"{mine[worst].percent:.1f} ({title(worst)})",
                f"{len(mine)} of {len(scores)}",
                f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}",
            ]
            rows.append((mean, cells))
        header = [f"{n:,} steps", "mean, %", f"{OURS} is ahead by", "worst problem, %"]
        ordered = [cells for _, cells in sorted(rows, reverse=True)]
        parts.append(markdown_table([*header, "problems", "seeds"], ordered, "tnntnn"))
    return "\n".join(parts)


def targets(table: pd.DataFrame) -> str:
    """What was aimed at."""
    lines = []
    every = by_problem(table)
    for n, runs in lengths(every):
        scores = percentages(runs)
        ours = {p: found[OURS] for p, found in scores.items() if OURS in found}
        if not ours or not any(name in found for found in scores.values() for name in LIBRARIES):
            continue
        lowest = min(ours, key=lambda p: ours[p].percent)
        below = sum(r.percent < TARGETS["library"] for r in ours.values())
        lines += [
            verdict(
                below == 0,
                f"{n:,} steps: at least {TARGETS['library']:g} % of the best library's reward on "
                f"every problem. The lowest is {ours[lowest]} on {title(lowest)}; {below} of "
                f"{len(ours)} are below.",
            )
        ]
        leads = {name: found for name in LIBRARIES if (found := lead(as_is(runs), name))}
        nearest = min(leads, key=lambda name: leads[name].percent)
        known = [found for found in leads.values() if not np.isnan(found.half)]
        sure = sum(found.percent > found.half for found in known)
        lines += [
            verdict(
                leads[nearest].percent > 0,
                f"{n:,} steps: first on average. Nearest is {nearest}, {leads[nearest]} behind; "
                f"the interval excludes zero for {sure} of the {len(known)} rivals that have one.",
            )
        ]
        greedy = lead(as_is(runs), PURELY_GREEDY)
        if greedy:
            words = f"{n:,} steps: above our own Greedy on average, by {greedy}."
            lines += [verdict(greedy.percent > 0, words)]
        priors = grid(runs)
        if priors:
            least = min(priors, key=lambda p: priors[p][1].percent)
            below = sum(found.percent < TARGETS["grid"] for _, found in priors.values())
            words = (
                f"{n:,} steps: at least {TARGETS['grid']:g} % of the best of five fixed priors. "
                f"The lowest is {priors[least][1]} on {title(least)}; {below} of {len(priors)} "
                "are below."
            )
            lines += [verdict(below == 0, words)]
    return "\n".join(lines or ["This library and others must both be measured to say."]) + "\n"


def lost(table: pd.DataFrame) -> str:
    """Where it loses."""
    lines = []
    for n, runs in lengths(by_problem(table)):
        scores, best = percentages(runs), references(runs)
        ours = {p: found[OURS] for p, found in scores.items() if OURS in found}
        behind = sorted((p for p in ours if ours[p].percent < 100), key=lambda p: ours[p].percent)
        lines += [f"With {n:,} steps, on {len(behind)} of {len(ours)} problems:", ""]
        lines += [
            f"- {title(p)}: {ours[p]} % of {best[p]}, {ours[p].runs} seed{'s'[: ours[p].runs - 1]}"
            for p in behind
        ]
        lines += [""]
    return "\n".join(lines)


def problems(table: pd.DataFrame) -> str:
    """Problem by problem."""
    return whole(as_is(by_problem(table)), [*MAIN, CONSTANT])


def rescaled(table: pd.DataFrame) -> str:
    """Rewards told in other units."""
    every = by_problem(table)
    same = count = 0
    for problem, totals in every.items():
        prepared = (problem[0], STANDARDISED, "as is", problem[3])
        if problem != prepared and OURS in totals and OURS in every.get(prepared, {}):
            pair = pd.concat([totals[OURS], every[prepared][OURS]], axis=1, join="inner")
            same += int((pair.iloc[:, 0] == pair.iloc[:, 1]).sum())
            count += len(pair)
    rivals = {
        problem: totals
        for problem, totals in every.items()
        if problem[2] != "as is" and any(name in totals for name in LIBRARIES)
    }
    return (
        f"In {same:,} of {count:,} runs with raw features or rescaled rewards {OURS} earned "
        "exactly what it earns with standardised features and rewards as they are.\n\n"
        + whole(rivals, MAIN)
    )


def policies(table: pd.DataFrame) -> str:
    """The same belief with other policies.

    A run is counted in per cent of the best library's mean total on its problem. Only problems
    that all policies have played as often are counted.
    """
    rows = []
    for n, runs in lengths(as_is(by_problem(table))):
        best = references(runs)
        shared = [p for p in best if all(name in runs[p] for name in POLICIES)]
        for name in POLICIES[1:]:
            percents = [
                percent for p in shared for percent in 100 * runs[p][name] / runs[p][best[p]].mean()
            ]
            if percents:
                ordered = np.sort(percents)
                tail = ordered[: max(1, round(len(ordered) / 20))].mean()
                numbers = (ordered.mean(), tail, ordered[0])
                texts = [f"{number:.1f}" for number in numbers]
                rows += [[f"{n:,}", name, *texts, f"{len(ordered)}"]]
    head = ["steps", "policy", "mean, %", "worst twentieth of runs, %", "worst run, %", "runs"]
    return markdown_table(head, rows, "ntnnnn")


def fixed(table: pd.DataFrame) -> str:
    """Beside the best of five fixed priors."""
    rows = []
    for n, runs in lengths(as_is(by_problem(table))):
        priors = grid(runs)
        for dataset in dict.fromkeys(problem[0] for problem in priors):
            mine = {p[1]: found for p, found in priors.items() if p[0] == dataset}
            best = next(iter(mine.values()))[0]
            # The same with raw as with standardised features, unless something is wrong.
            texts = dict.fromkeys(str(found) for _, found in mine.values())
            rows += [[f"{n:,}", dataset, best, " or ".join(texts)]]
    header = ["steps", "dataset", "best fixed prior", f"{OURS}, % of it"]
    return markdown_table(header, rows, "nttn")


def models(table: pd.DataFrame) -> str:
    """Other models of this library, in per cent of the default."""
    rows = []
    for n, runs in lengths(as_is(by_problem(table))):
        for problem, totals in runs.items():
            there = {m: totals[m] for m in MODELS if m in totals and OURS in totals}
            mine = [ratio(there[m], totals[OURS]) if m in there else None for m in MODELS]
            if any(mine):
                rows += [[f"{n:,}", title(problem), *(str(each or "–") for each in mine)]]
    return markdown_table(["steps", "problem", *MODELS], rows, "nt" + "n" * len(MODELS))


def settings(table: pd.DataFrame) -> str:
    """Settings."""
    versions = table[table.version != ""].groupby("contestant", sort=False).version.unique()
    rows = [
        [c.name, f"`{c.setting}`", ", ".join(versions[c.name])]
        for c in CONTESTANTS
        if c.name in versions.index
    ]
    text = markdown_table(["contestant", "settings", "version"], rows, 3)
    if mixed := [c.name for c in CONTESTANTS if len(versions.get(c.name, [])) > 1]:
        text += f"\n**Measured with several versions, play them again: {', '.join(mixed)}.**\n"
    return text


def missing(table: pd.DataFrame) -> str:
    """What could not be measured (–)."""
    notes = table[table.total.isna()].drop_duplicates(["contestant", *PROBLEM, "note"])
    lines = []
    for (name, note), group in notes.groupby(["contestant", "note"], sort=False):
        where = ", ".join(dict.fromkeys(group.dataset))
        steps = " and ".join(f"{n:,}" for n in sorted(set(group.steps)))
        lines += [f"- {name}: {note} ({where}; {steps} steps)"]
    return "\n".join(lines or ["Nothing."]) + "\n"


SECTIONS: dict[str, Callable[[pd.DataFrame], str]] = {
    f"defaults-{make.__name__}": make
    for make in (
        summary,
        targets,
        lost,
        problems,
        rescaled,
        policies,
        fixed,
        models,
        settings,
        missing,
    )
}


def heading(section: Callable[[pd.DataFrame], str]) -> str:
    """Return the title of a section in the report: the first line of its docstring."""
    return str(section.__doc__).splitlines()[0].rstrip(".")


def as_is(runs: Runs) -> Runs:
    """Return the problems whose rewards are not rescaled."""
    return {problem: totals for problem, totals in runs.items() if problem[2] == "as is"}


def lengths(runs: Runs) -> Iterator[tuple[int, Runs]]:
    """Yield every number of steps with its problems."""
    for n in sorted({problem[3] for problem in runs}):
        yield n, {problem: totals for problem, totals in runs.items() if problem[3] == n}


def title(problem: Key) -> str:
    """Return a problem in words."""
    dataset, features, rewards, _ = problem
    return f"{dataset}, {features}" + ("" if rewards == "as is" else f", {rewards}")


def whole(every: Runs, names: Sequence[str]) -> str:
    """Return all percentages on every problem; the best library is 100, in bold type."""
    parts = []
    for n, runs in lengths(every):
        scores, best = percentages(runs), references(runs)
        present = [name for name in names if any(name in found for found in scores.values())]
        rows = []
        for problem, found in scores.items():
            texts = {name: str(found[name]) if name in found else "–" for name in present}
            texts[best[problem]] = f"**{texts[best[problem]]}**"
            rows += [[title(problem), *(texts[name] for name in present)]]
        if scores:
            parts.append(markdown_table([f"{n:,} steps", *present], rows))
    return "\n".join(parts)


def verdict(reached: bool, words: str) -> str:
    """Return a target in words, reached or missed."""
    return f"- {'reached' if reached else '**missed**'}: {words}"
