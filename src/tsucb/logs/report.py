"""The page of `Agent.report`: what a decision log says about the agent that wrote it."""

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
from tsucb.logs.decisions import by_arm, logged_decisions, old_enough
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

LEAST = 20  # decisions of a log that has a page
BLOCK = 30  # rewards of an arm whose mean is compared with the belief
NINETY = 1.6448536269514722  # half the width of a 90 % interval, in standard deviations
MOST_FEATURES = 12
SHORT = 360.0  # seconds of a log, below which decisions are numbered
SOME_DRIFT = 0.2  # in standard deviations: less is rarely worth a look


def report(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], changes: Iterable[Any] = ()
) -> None:
    """Write the page about a decision log, with the changes that were noticed."""
    table = read(folder)
    if len(table) < LEAST:
        raise ValueError(f"{folder} holds {len(table)} decisions; a report needs at least {LEAST}")
    found = LogReport(table)
    lift, calibration, drift = found.lift(), found.calibration(), found.drift()
    judged = found.log.reward[found.judged]
    first, last = (moment(t, "%Y-%m-%d %H:%M") for t in found.log.time[[0, -1]])
    recent = int((~found.old).sum())
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
        "than rewards usually take, and rewards that come early differ from the others."
        if recent
        else "",
        "" if lift.trusted else f"The lift over random choice is not known: {lift.reason}.",
        "" if calibration is None else calibration.remark,
        drift.remark,
        *(f"A change was noticed {change}." for change in changes),
    ]
    arms = len(found.log.arms)
    page = render(
        "report.html",
        title=f"Decisions of {Path(folder).name}",
        facts=[(number, what, "") for number, what in facts],
        remarks=[remark for remark in remarks if remark],
        reward=found.reward_chart() if judged.size >= LEAST else None,
        has_control=found.log.probabilities is not None,
        arms=found.arms_chart(),
        arms_note=f"The {SHOWN} most frequent have a colour each." if arms > SHOWN else "",
        alpha=found.alpha_chart() if table["alpha"].notna().sum() >= LEAST else None,
        calibration=calibration,
        delays=found.delay_chart() if found.delays.size >= LEAST else None,
        reward_rows=found.reward_rows(),
        drift=drift,
    )
    write_whole(path, page)


class LogReport:
    """Tables and charts about the decisions in a table from `decision_log.read`."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table, self.log = table, logged_decisions(table)
        log = self.log
        self.old = old_enough(log.time, log.reward_time)  # decisions whose rewards can be judged
        self.judged = self.old & ~np.isnan(log.reward)
        self.mean, self.std = (
            by_arm(table["arms"], table[name], log.arms, math.nan) for name in ("mean", "std")
        )
        came = ~np.isnan(log.reward_time) & ~table["expired"].to_numpy(dtype=np.bool_)
        self.delays: Floats = (log.reward_time - log.time)[came]

    def lift(self) -> Estimate:
        """Return how much more the agent earns than random choice, estimated from the floor."""
        log, known = self.log, self.judged
        if log.probabilities is None:
            return UNKNOWN._replace(reason="the log has no floor, so it has no control")
        if known.sum() < LEAST:
            return UNKNOWN._replace(reason="too few rewards have come")
        uniform = log.offered / log.offered.sum(axis=1, keepdims=True)
        chances = log.probabilities[known]
        judged = OffPolicy(log.arm[known], log.reward[known], chances)
        return judged.difference(chances, np.nan_to_num(self.mean)[known], uniform[known])

    def parts(
        self, size: int, most: int, least: int
    ) -> tuple[list[tuple[float, Integers]], dict[str, Any]]:
        """Split the first `size` decisions into at most `most` parts of at least `least`.

        Return where a chart draws each part, with its decisions; and how it labels the axis, by
        time or by number.
        """
        when, axis = self.log.time, dict[str, Any](x_label="time, UTC")
        if when[-1] - when[0] < SHORT:
            when, axis = np.arange(float(when.size)), {"text": plain, "x_label": "decision"}
        split = np.array_split(np.arange(size), max(min(most, size // least), 2))
        return [(float(when[part].mean()), part) for part in split if part.size], axis

    def reward_chart(self) -> Chart | None:
        """Draw reward over time, of the agent and of its control."""
        parts, axis = self.parts(int(np.flatnonzero(self.old)[-1]) + 1, 12, 100)
        own, control = list[Point](), list[Point]()
        for x, part in parts:
            rows = part[~np.isnan(self.log.reward[part])]
            own.append(_point(x, self.log.reward[rows]))
            control.append(_point(x, self._control(rows)))
        series = [Line("the agent", own)]
        if self.log.probabilities is not None:
            series.append(Line("random choice", control))
        return lines(series, "mean reward over time", y_label="mean reward", **axis)

    def _control(self, rows: Integers) -> Floats:
        """Return terms whose mean estimates the reward of uniform choice in these decisions."""
        reward = self.log.reward[rows]
        weight = 1 / self.log.offered[rows].sum(axis=1) / self.log.propensity[rows]
        if not rows.size:
            return reward
        value = weight @ reward / weight.sum()
        terms: Floats = value + weight * (reward - value) / weight.mean()
        return terms

    def arms_chart(self) -> Chart | None:
        """Draw the share of every arm over time."""
        parts, axis = self.parts(len(self.log), 40, 25)
        played = [Counter(self.log.arms[arm] for arm in self.log.arm[part]) for _, part in parts]
        return shares(played, [x for x, _ in parts], "share of each arm over time", **axis)

    def alpha_chart(self) -> Chart | None:
        """Draw α over time: its median and quartiles."""
        (parts, axis), points = self.parts(len(self.log), 40, 25), []
        alpha = self.table["alpha"].to_numpy(dtype=np.float64)
        for x, part in parts:
            known = alpha[part][np.isfinite(alpha[part])]
            if known.size:
                low, middle, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
                points.append(Point(x, middle, low, high))
        return lines([Line("α", points)], "exploration over time", y_label="α", **axis)

    def calibration(self) -> Calibration | None:
        """Compare the mean reward of blocks with the belief; return None if there are too few."""
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
                # Beliefs at neighbouring decisions err alike: their variance does not average out.
                width.append(NINETY * math.sqrt(noise + float((std[part] ** 2).mean())))
        if len(believed) < 5:
            return None
        return Calibration(np.array(believed), np.array(seen), np.array(width))

    def delay_chart(self) -> Chart | None:
        """Draw the share of decisions whose reward had come, by delay."""
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
        """Return rows of text: how many rewards came, expired, or are open."""
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
        """Return how the features of contexts moved from the first quarter to the last."""
        contexts = self.log.contexts
        n = len(contexts) // 4
        if n < LEAST or all(context is None for context in contexts):
            return Drift()
        early, late = (_features(part) for part in (contexts[:n], contexts[-n:]))
        features = []
        for name in {*early, *late}:
            a, b = (side.get(name, np.zeros(n)) for side in (early, late))
            before, after, spread = a.mean(), b.mean(), math.sqrt((a.var() + b.var()) / 2)
            if before != after:
                moved = (after - before) / spread if spread > 0 else math.inf
                features.append((name, float(before), float(after), float(moved)))
        features.sort(key=lambda line: -abs(line[3]))
        return Drift(n, features)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Blocks of rewards of one arm each: the belief before they came, and their mean.

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
        """The share of blocks within their 90 % interval."""
        return float((np.abs(self.seen - self.believed) <= self.width).mean())

    @property
    def remark(self) -> str:
        """A warning if the belief is far too sure; "" otherwise."""
        error = math.sqrt(0.9 * 0.1 / self.believed.size)
        if self.inside < 0.9 - 3 * error - 0.02:
            return (
                f"The belief is too sure: {100 * self.inside:.0f} % of blocks of {BLOCK} rewards "
                "lie where 90 % should. The model may miss something, or rewards drift; try "
                "forgetting below 1."
            )
        return ""

    def chart(self) -> Chart | None:
        """Draw the mean reward of each block against the belief."""
        points = [
            Point(float(b), float(s), float(s - w), float(s + w))
            for b, s, w in zip(self.believed, self.seen, self.width, strict=True)
        ]
        return dots(
            points, "believed and actual mean rewards", "mean reward believed",
            "mean reward that came",
        )  # fmt: skip


class Drift(NamedTuple):
    """Features: name, mean in the first and in the last `size` contexts, and how far it moved."""

    size: int = 0
    features: Sequence[tuple[str, float, float, float]] = ()

    @property
    def remark(self) -> str:
        """A sentence if features moved by more than chance; "" otherwise."""
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
        """The number of features that `rows` leaves out."""
        return len(self.features) - MOST_FEATURES


def _features(contexts: list[Any]) -> dict[str, Floats]:
    """Return columns of numbers; each category and each kind of gap is a column of 0 and 1."""
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
    """Return a point at x: the mean of the values with its 95 % interval."""
    if values.size < 2:
        return Point(x, math.nan)
    mean, _, low, high = mean_interval(values)
    return Point(x, mean, low, high)
