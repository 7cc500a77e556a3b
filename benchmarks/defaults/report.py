"""Write down who collected how much: a CSV, Markdown tables, and a figure."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.defaults import figure
from benchmarks.defaults.contestants import CONTESTANTS
from benchmarks.defaults.problems import VARIANTS
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
    Ratio,
    Scores,
    Totals,
    by_problem,
    frame,
    grid,
    percentages,
    ratio,
    references,
)

TARGETS = {"library": 98.0, "grid": 97.0}  # per cent of the best one's reward, on every problem

Runs = dict[Key, Totals]


def write(
    out: Path,
    datasets: Sequence[str],
    steps: Sequence[int],
    seeds: Sequence[int],
    milliseconds: float,
) -> str:
    """Write `defaults.csv`, `defaults.md` and the figures of what is finished; the tables' text."""
    table = frame(out, datasets, steps, seeds)
    replace(out / "defaults.csv", table.to_csv(index=False, float_format="%.10g"))
    text = markdown(table, steps, milliseconds)
    replace(out / "defaults.md", text)
    scores = percentages(by_problem(table))
    if scores:
        figure.write(scores, list(steps), out)
    return text


def replace(path: Path, text: str) -> None:
    """Write a file aside and rename it."""
    aside = path.with_suffix(path.suffix + ".part")
    aside.write_text(text)
    os.replace(aside, path)


def markdown(table: pd.DataFrame, steps: Sequence[int], milliseconds: float) -> str:
    """The tables of the documentation."""
    runs = by_problem(table)
    scores, priors = percentages(runs), grid(runs)
    versions = table[table.version != ""].groupby("contestant", sort=False).version.unique()
    lines = [
        "Rewards in per cent of the best library's on the same problem, with 95 % intervals over "
        "the seeds; the best library is 100 and stands in bold type. Standardised features come "
        "with a constant. Totals are in the dataset's own units however the rewards were scaled. A "
        "problem that no library played is left out.",
        "",
        "| contestant | settings | version |",
        "|---|---|---|",
    ]
    for c in CONTESTANTS:
        if c.name in versions.index:
            lines += [f"| {c.name} | `{c.setting}` | {', '.join(versions[c.name])} |"]
    mixed = [c.name for c in CONTESTANTS if len(versions.get(c.name, [])) > 1]
    if mixed:
        lines += ["", f"**Measured with several versions, play them anew: {', '.join(mixed)}.**"]
    for n in steps:
        now = {problem: found for problem, found in scores.items() if problem[3] == n}
        if not now:
            continue
        lines += ["", f"## {n:,} steps", "", *summary(now)]
        lines += ["", "### Problem by problem", "", *whole(now, runs, [*MAIN, CONSTANT])]
        if any(name in found for found in now.values() for name in POLICIES[2:]):
            lines += ["", "### The policies on the same belief", ""]
            lines += [*policies(runs, now), "", *whole(now, runs, POLICIES)]
        ours = {problem: found for problem, found in priors.items() if problem[3] == n}
        if ours:
            lines += ["", "### Beside the best of five fixed priors", "", *fixed(ours)]
        if beside := others(
            {problem: totals for problem, totals in runs.items() if problem[3] == n}
        ):
            lines += ["", "### Other models, in per cent of the default's reward", "", *beside]
        lines += ["", "### The targets", "", *targets(now, runs, ours)]
    notes = table[table.total.isna()].drop_duplicates(["contestant", *PROBLEM[:3], "note"])
    if len(notes):
        lines += ["", "## Not measured (–)", ""]
        lines += [f"A decision of another library may take {milliseconds:g} ms on average.", ""]
        for (name, note), group in notes.groupby(["contestant", "note"], sort=False):
            where = dict.fromkeys(group.dataset + ", " + group.features)
            lines += [f"- {name}: {note} ({'; '.join(where)})"]
    return "\n".join(lines) + "\n"


def summary(scores: Scores) -> list[str]:
    """Average, worst problem and average rank of everybody."""
    rows: list[tuple[float, str]] = []
    for name in [*MAIN, CONSTANT]:
        mine = {p: found[name] for p, found in scores.items() if name in found}
        if not mine:
            continue
        rivals = [[r.percent for k, r in scores[p].items() if k in MAIN] for p in mine]
        ranks = [
            1 + sum(percent > r.percent for percent in percents)
            for r, percents in zip(mine.values(), rivals, strict=True)
        ]
        ours = [scores[p][OURS].percent for p in mine if OURS in scores[p]]
        worst = min(mine, key=lambda p: mine[p].percent)
        mean = float(np.mean([r.percent for r in mine.values()]))
        same = f"{np.mean(ours):.1f}" if ours else "–"
        lowest = f"{mine[worst].percent:.1f} ({title(worst)})"
        share = f"{len(mine)} of {len(scores)}"
        rows.append(
            (mean, f"| {name} | {mean:.1f} | {same} | {lowest} | {np.mean(ranks):.1f} | {share} |")
        )
    return [
        f"| contestant | mean, % | {OURS} on the same problems, % | worst problem, % | mean rank "
        "| problems |",
        "|---|--:|--:|---|--:|--:|",
        *(text for _, text in sorted(rows, reverse=True)),
    ]


def title(problem: Key) -> str:
    """A problem in words."""
    dataset, features, rewards, _ = problem
    return f"{dataset}, {features}" + ("" if rewards == "as is" else f", {rewards}")


def whole(scores: Scores, runs: Runs, names: Sequence[str]) -> list[str]:
    """Everybody's percentage on every problem."""
    names = [name for name in names if any(name in found for found in scores.values())]
    lines = ["| problem | seeds | " + " | ".join(names) + " |"]
    lines += ["|---|--:|" + "--:|" * len(names)]
    best = references(runs)
    for problem, found in scores.items():
        texts = [str(found[name]) if name in found else "–" for name in names]
        texts = [
            f"**{text}**" if name == best[problem] else text
            for name, text in zip(names, texts, strict=True)
        ]
        count = max(r.runs for r in found.values())
        lines += [f"| {title(problem)} | {count} | " + " | ".join(texts) + " |"]
    return lines


def policies(runs: Runs, scores: Scores) -> list[str]:
    """Policies by their mean and by their worst runs, over all problems and seeds.

    A run is counted in per cent of the best library's mean total on its problem.
    """
    best = references(runs)
    lines = ["| policy | mean, % | worst one per cent of runs, % | worst run, % | runs |"]
    lines += ["|---|--:|--:|--:|--:|"]
    for name in POLICIES:
        percents = []
        for problem in scores:
            totals = runs[problem]
            if name in totals:
                percents += list(100 * totals[name] / totals[best[problem]].mean())
        if percents:
            ordered = np.sort(percents)
            tail = ordered[: max(1, round(len(ordered) / 100))].mean()
            lines += [
                f"| {name} | {ordered.mean():.1f} | {tail:.1f} | {ordered[0]:.1f} "
                f"| {len(ordered)} |"
            ]
    return lines


def others(runs: Runs) -> list[str]:
    """Models in per cent of the default on the same seeds, a row a problem; none: no table."""
    rows = []
    for problem, totals in runs.items():
        found = [totals[name] if OURS in totals and name in totals else None for name in MODELS]
        if any(each is not None for each in found):
            texts = [str((each is not None and ratio(each, totals[OURS])) or "–") for each in found]
            rows.append(f"| {title(problem)} | " + " | ".join(texts) + " |")
    heading = ["| problem | " + " | ".join(MODELS) + " |", "|---|" + "--:|" * len(MODELS)]
    return heading + rows if rows else []


def fixed(priors: dict[Key, tuple[str, Ratio]]) -> list[str]:
    """Our reward in per cent of the best fixed prior's, a row a dataset, a column a variant."""
    variants = [f"{f} {r}".removesuffix(" as is") for f, r in VARIANTS]
    lines = ["| dataset | best fixed prior | " + " | ".join(variants) + " |"]
    lines += ["|---|---|" + "--:|" * len(variants)]
    for dataset in dict.fromkeys(problem[0] for problem in priors):
        mine = {p[1:3]: found for p, found in priors.items() if p[0] == dataset}
        best = next(iter(mine.values()))[0]
        texts = [str(mine[variant][1]) if variant in mine else "–" for variant in VARIANTS]
        lines += [f"| {dataset} | {best} | " + " | ".join(texts) + " |"]
    return lines


def targets(scores: Scores, runs: Runs, priors: dict[Key, tuple[str, Ratio]]) -> list[str]:
    """What was aimed at, whether it was reached, and every problem that is lost."""
    ours = {p: found[OURS] for p, found in scores.items() if OURS in found}
    if not ours or not any(name in found for found in scores.values() for name in LIBRARIES):
        return ["This library and others must both be measured to say."]
    best = references(runs)
    below = sum(r.percent < TARGETS["library"] for r in ours.values())
    lowest = min(ours, key=lambda p: ours[p].percent)
    lines = [
        verdict(
            ours[lowest].percent >= TARGETS["library"],
            f"at least {TARGETS['library']:g} % of the best library's reward on every problem: "
            f"the lowest is {ours[lowest]} on {title(lowest)}; "
            f"{below} of {len(ours)} are below",
        )
    ]
    behind = []
    for name in LIBRARIES:
        both = [p for p in ours if name in scores[p]]
        gap = np.mean([scores[p][name].percent - ours[p].percent for p in both]) if both else -1
        behind += [name] if gap >= 0 else []
    lines += [verdict(not behind, f"first on average; not before: {', '.join(behind) or 'none'}")]
    both = [p for p in ours if PURELY_GREEDY in scores[p]]
    if both:
        mine = np.mean([ours[p].percent for p in both])
        other = np.mean([scores[p][PURELY_GREEDY].percent for p in both])
        words = f"above our own Greedy on average: {mine:.1f} against {other:.1f}"
        lines += [verdict(bool(mine > other), words)]
    if priors:
        least = min(priors, key=lambda p: priors[p][1].percent)
        below = sum(found.percent < TARGETS["grid"] for _, found in priors.values())
        words = (
            f"at least {TARGETS['grid']:g} % of the best of five fixed priors: the lowest is "
            f"{priors[least][1]} on {title(least)}; {below} of {len(priors)} are below"
        )
        lines += [verdict(priors[least][1].percent >= TARGETS["grid"], words)]
    lost = sorted((p for p in ours if ours[p].percent < 100), key=lambda p: ours[p].percent)
    lines += ["", f"It loses on {len(lost)} of {len(ours)} problems:", ""] if lost else []
    return lines + [f"- {title(p)}: {ours[p]} % of {best[p]}" for p in lost]


def verdict(reached: bool, words: str) -> str:
    """A target, reached or missed."""
    return f"- {'reached' if reached else '**missed**'}: {words}"
