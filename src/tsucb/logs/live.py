"""Write a page about the agent that writes a decision log."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.files import write_whole
from tsucb.logs.decision_log import context_of, read
from tsucb.logs.decisions import ripe
from tsucb.logs.estimators import Estimate, difference, interval
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import NORMAL
from tsucb.pages.charts import Chart, Line, Point, dots, lines, plain, shares, thinned
from tsucb.pages.render import render

if TYPE_CHECKING:
    import pandas as pd

LEAST = 20  # decisions that a page is made of
SHOWN = 7  # arms with a line of their own
BLOCK = 30  # rewards of an arm whose mean is compared with what was believed
NINETY = 1.6448536269514722  # half the width of a 90 % interval
MOST_FEATURES = 12
SHORT = 360.0  # seconds of a log, below which decisions are numbered
SOME_DRIFT = 0.2  # in standard deviations: less is rarely worth a look


def report(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], changes: Iterable[Any] = ()
) -> None:
    """Write the page about a decision log; see `Agent.report`."""
    table = read(folder)
    if len(table) < LEAST:
        raise ValueError(f"{folder} holds {len(table)} decisions; a report needs at least {LEAST}")
    write_whole(path, live_page(table, Path(folder).name, changes))


def live_page(table: pd.DataFrame, name: str, changes: Iterable[Any] = ()) -> str:
    """Return the page about decisions as `decision_log.read` returns them, and noticed changes."""
    live = Live.of(table)
    lift, calibration, drift = live.lift(), live.calibration(), live.drift()
    first, last = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(t)) for t in live.when[[0, -1]])
    recent = int((~live.ripe).sum())
    facts = [
        (f"{len(table):,}", f"decisions, {first} to {last} UTC"),
        (f"{100 * np.mean(~np.isnan(live.reward)):.1f} %", "have their reward"),
        (f"{np.mean(live.judged):.3g}" if live.judged.size else "–", "mean reward"),
        (interval(lift, sign=True, digits=2), "more than choosing at random, per decision, 95 %"),
        (
            f"{100 * np.mean(live.arm != live.favourite):.1f} %",
            "were taken by the floor instead of the favourite",
        ),
    ]
    remarks = [
        f"The last {recent:,} decisions are left out wherever rewards are judged: they are younger "
        "than rewards usually take, and those that have come already are not like the others."
        if recent
        else "",
        "" if lift.trusted else f"The lift over random choice is not known: {lift.reason}.",
        "" if calibration is None else calibration.remark,
        *drift.remarks,
        *(f"A change was noticed {change}." for change in changes),
    ]
    shown = len(live.arms[:SHOWN])
    return render(
        "report.html",
        title=f"Decisions of {name}",
        facts=[(number, what, "") for number, what in facts],
        remarks=[remark for remark in remarks if remark],
        reward=live.reward_chart() if live.judged.size >= LEAST else None,
        has_control=live.chances is not None,
        arms=live.arms_chart(),
        arms_note=f"The {shown} most frequent have a colour each."
        if shown < len(live.arms)
        else "",
        alpha=live.alpha_chart() if np.isfinite(live.alpha).sum() >= LEAST else None,
        calibration=calibration,
        delays=live.delay_chart() if live.delays().size >= LEAST else None,
        reward_rows=live.reward_rows(),
        drift=drift,
    )


@dataclass(frozen=True, eq=False)
class Live:
    """The columns of a decision log as arrays.

    Parameters
    ----------
    arms : (K,) names, the most played first
    arm, favourite : (N,)
    reward, when, reward_time, alpha : (N,), NaN where there is none
    expired : (N,)
    chances : (N, K); None where the log has no probabilities
    mean, std : (N, K) of the belief, NaN where an arm was not offered
    contexts : N
    """

    arms: tuple[str, ...]
    arm: Integers
    favourite: Integers
    reward: Floats
    when: Floats
    reward_time: Floats
    alpha: Floats
    expired: Any
    chances: Floats | None
    mean: Floats
    std: Floats
    contexts: list[Any]

    @classmethod
    def of(cls, table: pd.DataFrame) -> Live:
        """Return the columns of a table as `decision_log.read` returns it."""
        counts = table["arm"].value_counts()
        others = sorted({a for arms in table["arms"] for a in arms} - set(counts.index))
        names = (*(str(name) for name in counts.index), *others)
        index = {name: i for i, name in enumerate(names)}
        shape = (len(table), len(names))
        mean, std = np.full(shape, math.nan), np.full(shape, math.nan)
        chances: Floats | None = None if table["propensity"].isna().any() else np.zeros(shape)
        columns = zip(
            table["arms"], table["mean"], table["std"], table["probabilities"], strict=True
        )
        for row, (arms, means, stds, known) in enumerate(columns):
            at = [index[arm] for arm in arms]
            mean[row, at], std[row, at] = means, stds
            if chances is not None:
                chances[row, at] = known
        numbers = {
            name: table[name].to_numpy(dtype=np.float64)
            for name in ("reward", "time", "reward_time", "alpha")
        }
        return cls(
            names,
            np.array([index[a] for a in table["arm"]], dtype=np.int64),
            np.array([index[a] for a in table["favourite"]], dtype=np.int64),
            numbers["reward"],
            numbers["time"],
            numbers["reward_time"],
            numbers["alpha"],
            table["expired"].to_numpy(dtype=np.bool_),
            chances,
            mean,
            std,
            [context_of(text)[0] for text in table["context"]],
        )

    @functools.cached_property
    def ripe(self) -> Any:
        """Return which decisions are old enough to judge their rewards."""
        return ripe(self.when, self.reward_time)

    @property
    def judged(self) -> Floats:
        """Return the rewards of decisions that are old enough."""
        found: Floats = self.reward[self.ripe & ~np.isnan(self.reward)]
        return found

    def lift(self) -> Estimate:
        """Return how much more the agent earns than random choice, by its random decisions."""
        known = self.ripe & ~np.isnan(self.reward)
        nothing = Estimate(math.nan, math.nan, math.nan, math.nan, 0.0, int(known.sum()))
        if self.chances is None:
            return nothing._replace(reason="the log has no floor, so it has no control")
        if known.sum() < LEAST:
            return nothing._replace(reason="too few rewards have come")
        offered = self.chances > 0
        uniform = offered / offered.sum(axis=1, keepdims=True)
        guess = np.nan_to_num(self.mean)
        found = difference(
            self.arm[known], self.reward[known], self.chances[known], uniform[known], None,
            guess[known],
        )  # fmt: skip
        return found._replace(value=-found.value, low=-found.high, high=-found.low)

    def buckets(self, most: int, size: int | None = None) -> list[Integers]:
        """Split all decisions, or the first `size`, into at most `most` parts of equal size."""
        every = np.arange(self.arm.size if size is None else size)
        return [part for part in np.array_split(every, most) if part.size]

    def axis(self, parts: list[Integers]) -> tuple[list[float], dict[str, Any]]:
        """Return where to draw each part, and how the axis is labelled: by time or by number."""
        if self.when[-1] - self.when[0] < SHORT:
            return [float(part.mean()) for part in parts], {"text": plain, "x_label": "decision"}
        return [float(self.when[part].mean()) for part in parts], {"x_label": "time, UTC"}

    def reward_chart(self) -> Chart | None:
        """Draw reward over time, of the agent and of its control."""
        size = int(np.flatnonzero(self.ripe)[-1]) + 1
        parts = self.buckets(max(min(12, size // 100), 2), size)
        at, axis = self.axis(parts)
        series = [Line("the agent", _points(at, [_mean_and_width(self.reward[p]) for p in parts]))]
        if self.chances is not None:
            series.append(Line("random choice", _points(at, [self._control(p) for p in parts])))
        return lines(series, "mean reward over time", y_label="mean reward", **axis)

    def _control(self, part: Integers) -> tuple[float, float]:
        """Return the mean reward of uniform choice in some decisions, and half its interval."""
        assert self.chances is not None
        part = part[~np.isnan(self.reward[part])]
        if part.size < 2:
            return math.nan, math.nan
        counts = (self.chances[part] > 0).sum(axis=1)
        weight = 1 / counts / self.chances[part, self.arm[part]]
        value = float(weight @ self.reward[part] / weight.sum())
        terms = weight * (self.reward[part] - value) / weight.mean()
        return value, NORMAL * float(terms.std(ddof=1)) / math.sqrt(part.size)

    def arms_chart(self) -> Chart | None:
        """Draw the share of every arm over time."""
        parts = self.buckets(max(min(40, self.arm.size // 25), 2))
        at, axis = self.axis(parts)
        names = [_short(name) for name in self.arms[:SHOWN]]
        rows = [[float(np.mean(self.arm[p] == a)) for a in range(len(names))] for p in parts]
        if others := len(self.arms) - len(names):
            names.append(f"{others} others")
            rows = [[*row, max(1 - sum(row), 0.0)] for row in rows]
        return shares(names, at, rows, "share of each arm over time", **axis)

    def alpha_chart(self) -> Chart | None:
        """Draw how much is explored."""
        parts = self.buckets(max(min(40, self.arm.size // 25), 2))
        at, axis = self.axis(parts)
        points = []
        for x, part in zip(at, parts, strict=True):
            known = self.alpha[part][np.isfinite(self.alpha[part])]
            if known.size:
                low, middle, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
                points.append(Point(x, middle, low, high))
        return lines([Line("α", points)], "exploration over time", y_label="α", **axis)

    def calibration(self) -> Calibration | None:
        """Return blocks of rewards beside the belief; None if there are too few."""
        rows = np.arange(self.arm.size)
        mean, std = self.mean[rows, self.arm], self.std[rows, self.arm]
        usable = self.ripe & ~np.isnan(self.reward) & np.isfinite(mean) & np.isfinite(std)
        believed, seen, width = [], [], []
        for a in range(len(self.arms)):
            of_arm = np.flatnonzero(usable & (self.arm == a))
            for part in np.array_split(of_arm, max(of_arm.size // BLOCK, 1)):
                if part.size < BLOCK:
                    continue
                noise = float(self.reward[part].var(ddof=1)) / part.size
                believed.append(float(mean[part].mean()))
                seen.append(float(self.reward[part].mean()))
                # Beliefs at neighbouring decisions err together: their doubt does not average out.
                width.append(NINETY * math.sqrt(noise + float((std[part] ** 2).mean())))
        if len(believed) < 5:
            return None
        return Calibration(np.array(believed), np.array(seen), np.array(width))

    def delays(self) -> Floats:
        """Return seconds from decisions to their rewards, of those that did not expire."""
        found: Floats = (self.reward_time - self.when)[~np.isnan(self.reward_time) & ~self.expired]
        return found

    def delay_chart(self) -> Chart | None:
        """Draw how late rewards come."""
        delays, label = np.sort(np.maximum(self.delays(), 1e-3)), "rewards come, % of decisions"
        points = [
            Point(math.log10(delays[i]), 100 * (i + 1) / self.arm.size)
            for i in thinned(delays.size)
        ]
        return lines(
            [Line(label, points)], "share of rewards that had come, by delay", zero=True,
            x_label="time since the decision", y_label=label,
            text=lambda x, _: _span(10.0**x),
        )  # fmt: skip

    def reward_rows(self) -> list[tuple[str, str, str]]:
        """Return the table of rewards that came, expired, or are open."""
        n = self.arm.size
        came = ~np.isnan(self.reward) & ~self.expired
        counts = {
            "with a reward that came": int(came.sum()),
            "expired, taken for a reward": int((self.expired & ~np.isnan(self.reward)).sum()),
            "expired without one": int((self.expired & np.isnan(self.reward)).sum()),
            "still open": int((np.isnan(self.reward) & ~self.expired).sum()),
        }
        rows = [(what, f"{c:,}", f"{100 * c / n:.1f} %") for what, c in counts.items()]
        delays = self.delays()
        if delays.size:
            middle, most = np.quantile(delays, (0.5, 0.95))
            text = f"{_span(float(middle))}; 95 % within {_span(float(most))}"
            rows.append(("delay of a reward, median", text, ""))
        return rows

    def drift(self) -> Drift:
        """Return how the contexts of the last quarter differ from those of the first."""
        n = self.arm.size // 4
        if n < LEAST or all(context is None for context in self.contexts):
            return Drift([], 0)
        early, late = (_features(part) for part in (self.contexts[:n], self.contexts[-n:]))
        found = []
        for name in {*early, *late}:
            a, b = (side.get(name, np.zeros(0)) for side in (early, late))
            a, b = np.append(a, np.zeros(n - a.size)), np.append(b, np.zeros(n - b.size))
            spread = math.sqrt((a.var() + b.var()) / 2)
            if spread > 0:
                found.append(
                    (name, float(a.mean()), float(b.mean()), (b.mean() - a.mean()) / spread)
                )
            elif a.mean() != b.mean():
                found.append((name, float(a.mean()), float(b.mean()), math.inf))
        found.sort(key=lambda line: -abs(line[3]))
        return Drift(found, n)


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


@dataclass(frozen=True)
class Drift:
    """Features, their means early and late, and the difference in standard deviations."""

    features: list[tuple[str, float, float, float]]
    size: int

    @property
    def remarks(self) -> list[str]:
        """Return a sentence if the contexts have changed."""
        chance = 3 * math.sqrt(2 / self.size) if self.size else math.inf
        moved = [f for f in self.features if abs(f[3]) > max(SOME_DRIFT, chance)]
        if not moved:
            return []
        names = ", ".join(name for name, *_ in moved[:5]) + (", …" if len(moved) > 5 else "")
        return [f"Contexts have changed between the first and the last quarter: {names}."]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the features that moved most."""
        return [
            (
                name,
                f"{early:.4g}",
                f"{late:.4g}",
                f"{moved:+.2f}" if math.isfinite(moved) else "new",
            )
            for name, early, late, moved in self.features[:MOST_FEATURES]
        ]

    @property
    def more(self) -> int:
        """Return how many features moved less."""
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


def _mean_and_width(values: Floats) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if known.size < 2:
        return math.nan, math.nan
    return float(known.mean()), NORMAL * float(known.std(ddof=1)) / math.sqrt(known.size)


def _points(at: list[float], found: list[tuple[float, float]]) -> list[Point]:
    return [Point(x, y, y - w, y + w) for x, (y, w) in zip(at, found, strict=True)]


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _span(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> _span(90.0), _span(7200.0), _span(0.02)
    ('1.5 min', '2 h', '0.02 s')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
