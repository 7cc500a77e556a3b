"""Write a page about the agent that writes a decision log."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsucb.display import time_span
from tsucb.files import write_whole
from tsucb.logs.decision_log import read
from tsucb.logs.decisions import by_arm, logged_decisions, ripe
from tsucb.logs.estimators import UNKNOWN, Estimate, OffPolicy, interval
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import mean_interval
from tsucb.pages.charts import (
    SHOWN,
    Chart,
    Line,
    Point,
    dots,
    lines,
    moment,
    plain,
    shares,
    thinned,
)
from tsucb.pages.render import render

if TYPE_CHECKING:
    import pandas as pd

LEAST = 20  # decisions that a page is made of
BLOCK = 30  # rewards of an arm whose mean is compared with what was believed
NINETY = 1.6448536269514722  # half the width of a 90 % interval
MOST_FEATURES = 12
SHORT = 360.0  # seconds of a log, below which decisions are numbered
SOME_DRIFT = 0.2  # in standard deviations: less is rarely worth a look


def report(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], changes: Iterable[Any] = ()
) -> None:
    """Write the page about a decision log, and changes that were noticed; see `Agent.report`."""
    table = read(folder)
    if len(table) < LEAST:
        raise ValueError(f"{folder} holds {len(table)} decisions; a report needs at least {LEAST}")
    live = Live(table)
    lift, calibration, drift = live.lift(), live.calibration(), live.drift()
    judged = live.log.reward[live.judged]
    first, last = (moment(t, "%Y-%m-%d %H:%M") for t in live.log.time[[0, -1]])
    recent = int((~live.ripe).sum())
    by_floor = np.mean(table["arm"] != table["favourite"])
    facts = [
        (f"{len(table):,}", f"decisions, {first} to {last} UTC"),
        (f"{100 * np.mean(table['reward'].notna()):.1f} %", "have their reward"),
        (f"{np.mean(judged):.3g}" if judged.size else "–", "mean reward"),
        (interval(lift, sign=True, digits=2), "more than choosing at random, per decision, 95 %"),
        (f"{100 * by_floor:.1f} %", "were taken by the floor instead of the favourite"),
    ]
    remarks = [
        f"The last {recent:,} decisions are left out wherever rewards are judged: they are younger "
        "than rewards usually take, and those that have come already are not like the others."
        if recent
        else "",
        "" if lift.trusted else f"The lift over random choice is not known: {lift.reason}.",
        "" if calibration is None else calibration.remark,
        drift.remark,
        *(f"A change was noticed {change}." for change in changes),
    ]
    arms = len(live.log.arms)
    page = render(
        "report.html",
        title=f"Decisions of {Path(folder).name}",
        facts=[(number, what, "") for number, what in facts],
        remarks=[remark for remark in remarks if remark],
        reward=live.reward_chart() if judged.size >= LEAST else None,
        has_control=live.log.probabilities is not None,
        arms=live.arms_chart(),
        arms_note=f"The {SHOWN} most frequent have a colour each." if arms > SHOWN else "",
        alpha=live.alpha_chart() if table["alpha"].notna().sum() >= LEAST else None,
        calibration=calibration,
        delays=live.delay_chart() if live.delays.size >= LEAST else None,
        reward_rows=live.reward_rows(),
        drift=drift,
    )
    write_whole(path, page)


class Live:
    """What a page says about decisions as `decision_log.read` returns them."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table, self.log = table, logged_decisions(table)
        log = self.log
        self.ripe = ripe(log.time, log.reward_time)  # which are old enough to judge their rewards
        self.judged = self.ripe & ~np.isnan(log.reward)
        self.mean, self.std = (
            by_arm(table["arms"], table[name], log.arms, math.nan) for name in ("mean", "std")
        )
        came = ~np.isnan(log.reward_time) & ~table["expired"].to_numpy(dtype=np.bool_)
        self.delays: Floats = (log.reward_time - log.time)[came]

    def lift(self) -> Estimate:
        """Return how much more the agent earns than random choice, by its random decisions."""
        log, known = self.log, self.judged
        if log.probabilities is None:
            return UNKNOWN._replace(reason="the log has no floor, so it has no control")
        if known.sum() < LEAST:
            return UNKNOWN._replace(reason="too few rewards have come")
        uniform = log.offered / log.offered.sum(axis=1, keepdims=True)
        chances = log.probabilities[known]
        judged = OffPolicy(log.arm[known], log.reward[known], chances)
        return judged.difference(chances, np.nan_to_num(self.mean)[known], uniform[known])

    def buckets(self, most: int, size: int | None = None) -> list[Integers]:
        """Split all decisions, or the first `size`, into at most `most` parts of equal size."""
        every = np.arange(len(self.log) if size is None else size)
        return [part for part in np.array_split(every, most) if part.size]

    def axis(self, parts: list[Integers]) -> tuple[list[float], dict[str, Any]]:
        """Return where to draw each part, and how the axis is labelled: by time or by number."""
        when = self.log.time
        if when[-1] - when[0] < SHORT:
            return [float(part.mean()) for part in parts], {"text": plain, "x_label": "decision"}
        return [float(when[part].mean()) for part in parts], {"x_label": "time, UTC"}

    def reward_chart(self) -> Chart | None:
        """Draw reward over time, of the agent and of its control."""
        size = int(np.flatnonzero(self.ripe)[-1]) + 1
        parts = self.buckets(max(min(12, size // 100), 2), size)
        at, axis = self.axis(parts)
        own, control = list[Point](), list[Point]()
        for x, part in zip(at, parts, strict=True):
            rows = part[~np.isnan(self.log.reward[part])]
            own.append(_point(x, self.log.reward[rows]))
            control.append(_point(x, self._control(rows)))
        series = [Line("the agent", own)]
        if self.log.probabilities is not None:
            series.append(Line("random choice", control))
        return lines(series, "mean reward over time", y_label="mean reward", **axis)

    def _control(self, rows: Integers) -> Floats:
        """Return terms whose mean is the reward of uniform choice in these decisions."""
        reward = self.log.reward[rows]
        weight = 1 / self.log.offered[rows].sum(axis=1) / self.log.propensity[rows]
        if not rows.size:
            return reward
        value = weight @ reward / weight.sum()
        terms: Floats = value + weight * (reward - value) / weight.mean()
        return terms

    def arms_chart(self) -> Chart | None:
        """Draw the share of every arm over time."""
        parts = self.buckets(max(min(40, len(self.log) // 25), 2))
        at, axis = self.axis(parts)
        played = [Counter(self.log.arms[arm] for arm in self.log.arm[part]) for part in parts]
        return shares(played, at, "share of each arm over time", **axis)

    def alpha_chart(self) -> Chart | None:
        """Draw how much is explored."""
        parts = self.buckets(max(min(40, len(self.log) // 25), 2))
        (at, axis), points = self.axis(parts), []
        alpha = self.table["alpha"].to_numpy(dtype=np.float64)
        for x, part in zip(at, parts, strict=True):
            known = alpha[part][np.isfinite(alpha[part])]
            if known.size:
                low, middle, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
                points.append(Point(x, middle, low, high))
        return lines([Line("α", points)], "exploration over time", y_label="α", **axis)

    def calibration(self) -> Calibration | None:
        """Return blocks of rewards beside the belief; None if there are too few."""
        log = self.log
        rows = np.arange(len(log))
        mean, std = self.mean[rows, log.arm], self.std[rows, log.arm]
        usable = self.judged & np.isfinite(mean) & np.isfinite(std)
        believed, seen, width = [], [], []
        for arm in range(len(log.arms)):
            of_arm = np.flatnonzero(usable & (log.arm == arm))
            for part in np.array_split(of_arm, max(of_arm.size // BLOCK, 1)):
                if part.size < BLOCK:
                    continue
                noise = float(log.reward[part].var(ddof=1)) / part.size
                believed.append(float(mean[part].mean()))
                seen.append(float(log.reward[part].mean()))
                # Beliefs at neighbouring decisions err together: their doubt does not average out.
                width.append(NINETY * math.sqrt(noise + float((std[part] ** 2).mean())))
        if len(believed) < 5:
            return None
        return Calibration(np.array(believed), np.array(seen), np.array(width))

    def delay_chart(self) -> Chart | None:
        """Draw how late rewards come."""
        delays, label = np.sort(np.maximum(self.delays, 1e-3)), "rewards come, % of decisions"
        points = [
            Point(math.log10(delays[i]), 100 * (i + 1) / len(self.log))
            for i in thinned(delays.size)
        ]
        return lines(
            [Line(label, points)], "share of rewards that had come, by delay", zero=True,
            x_label="time since the decision", y_label=label,
            text=lambda x, _: time_span(10.0**x),
        )  # fmt: skip

    def reward_rows(self) -> list[tuple[str, str, str]]:
        """Return the table of rewards that came, expired, or are open."""
        rewarded, expired = self.table["reward"].notna(), self.table["expired"]
        kinds = {
            "with a reward that came": rewarded & ~expired,
            "expired, taken for a reward": rewarded & expired,
            "expired without one": ~rewarded & expired,
            "still open": ~rewarded & ~expired,
        }
        rows = [(what, f"{x.sum():,}", f"{100 * x.mean():.1f} %") for what, x in kinds.items()]
        if self.delays.size:
            middle, most = np.quantile(self.delays, (0.5, 0.95)).tolist()
            text = f"{time_span(middle)}; 95 % within {time_span(most)}"
            rows.append(("delay of a reward, median", text, ""))
        return rows

    def drift(self) -> Drift:
        """Return how the contexts of the last quarter differ from those of the first."""
        contexts = self.log.contexts
        n = len(contexts) // 4
        if n < LEAST or all(context is None for context in contexts):
            return Drift()
        early, late = (_features(part) for part in (contexts[:n], contexts[-n:]))
        found = []
        for name in {*early, *late}:
            a, b = (side.get(name, np.zeros(n)) for side in (early, late))
            before, after, spread = a.mean(), b.mean(), math.sqrt((a.var() + b.var()) / 2)
            if before != after:
                moved = (after - before) / spread if spread > 0 else math.inf
                found.append((name, float(before), float(after), float(moved)))
        found.sort(key=lambda line: -abs(line[3]))
        return Drift(n, found)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Blocks of rewards of one arm: what was believed before they came, and what came.

    Parameters
    ----------
    believed, seen, width : (blocks,) mean of the belief, mean reward, half a 90 % interval
    """

    believed: Floats
    seen: Floats
    width: Floats
    block: int = BLOCK

    @property
    def inside(self) -> float:
        """Return the share of blocks within their 90 % interval."""
        return float((np.abs(self.seen - self.believed) <= self.width).mean())

    @property
    def remark(self) -> str:
        """Return a warning if the belief is far too sure."""
        error = math.sqrt(0.9 * 0.1 / self.believed.size)
        if self.inside < 0.9 - 3 * error - 0.02:
            return (
                f"The belief is too sure: {100 * self.inside:.0f} % of blocks of {BLOCK} rewards "
                "lie where 90 % should. The model may miss something, or rewards drift; try "
                "forgetting below 1."
            )
        return ""

    def chart(self) -> Chart | None:
        """Draw what came against what was believed."""
        points = [
            Point(float(b), float(s), float(s - w), float(s + w))
            for b, s, w in zip(self.believed, self.seen, self.width, strict=True)
        ]
        return dots(
            points, "believed and actual mean rewards", "mean reward believed",
            "mean reward that came",
        )  # fmt: skip


class Drift(NamedTuple):
    """Features, their means early and late in `size` contexts each, and how far they moved."""

    size: int = 0
    features: Sequence[tuple[str, float, float, float]] = ()

    @property
    def remark(self) -> str:
        """A sentence if the contexts have changed by more than chance."""
        least = max(SOME_DRIFT, 3 * math.sqrt(2 / max(self.size, 1)))
        names = [name for name, *_, moved in self.features if abs(moved) > least]
        if not names:
            return ""
        listed = ", ".join([*names[:5], "…"] if len(names) > 5 else names)
        return f"Contexts have changed between the first and the last quarter: {listed}."

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """The features that moved most, as texts."""
        return [
            (name, f"{a:.4g}", f"{b:.4g}", f"{m:+.2f}" if math.isfinite(m) else "new")
            for name, a, b, m in self.features[:MOST_FEATURES]
        ]

    @property
    def more(self) -> int:
        """How many features moved less."""
        return len(self.features) - MOST_FEATURES


def _features(contexts: list[Any]) -> dict[str, Floats]:
    """Return columns of numbers: each number, each category and each gap as 0 or 1."""
    columns: dict[str, list[float]] = {}
    for row, context in enumerate(contexts):
        values = context if isinstance(context, Mapping) else dict(enumerate(context or ()))
        for key, value in values.items():
            name = key if isinstance(key, str) else f"x{key}"
            if isinstance(value, list | dict):
                continue
            number = isinstance(value, int | float) and value == value
            cell = name if number else f"{name} missing" if value is None else f"{name}={value}"
            column = columns.setdefault(cell, [])
            column += [0.0] * (row - len(column))
            column.append(float(value) if number else 1.0)
    return {
        name: np.array(column + [0.0] * (len(contexts) - len(column)))
        for name, column in columns.items()
    }


def _point(x: float, values: Floats) -> Point:
    """Return the mean of some values with its 95 % interval."""
    if values.size < 2:
        return Point(x, math.nan)
    mean, _, low, high = mean_interval(values)
    return Point(x, mean, low, high)
