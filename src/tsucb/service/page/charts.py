"""Small charts as SVG, which take their colours from the style sheet."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 8.0, 22.0
COLOURS = 8


class Point(NamedTuple):
    """A value at a time; the interval around it may be absent."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


class Line(NamedTuple):
    """A named line."""

    name: str
    points: Sequence[Point]


def lines(series: Sequence[Line], what: str) -> str:
    """Lines over time, each with the band of its intervals."""
    known = [p for line in series for p in line.points if math.isfinite(p.y)]
    if len(known) < 2:
        return empty()
    xs = [p.x for p in known]
    # Bands may be wide where little is known; they are cut off rather than squeeze the lines.
    ys = [p.y for p in known]
    margin = max(ys) - min(ys) or abs(max(ys)) or 1.0
    bands = [v for p in known for v in (p.low, p.high) if math.isfinite(v)]
    low = max(min(ys + bands), min(ys) - margin)
    high = min(max(ys + bands), max(ys) + margin)
    frame = Frame(min(xs), max(xs), low, high)
    parts = [frame.axes()]
    for number, line in enumerate(series):
        colour = number % COLOURS
        points = [p for p in line.points if math.isfinite(p.y)]
        band = [p for p in points if math.isfinite(p.low) and math.isfinite(p.high)]
        if len(band) > 1:
            way = [frame.at(p.x, p.high) for p in band]
            way += [frame.at(p.x, p.low) for p in reversed(band)]
            parts.append(f'<polygon class="band c{colour}" points="{path(way)}"/>')
        drawn = path([frame.at(p.x, p.y) for p in points])
        parts.append(f'<polyline class="line c{colour}" points="{drawn}"/>')
    return picture(what, parts) + legend([line.name for line in series])


def areas(names: Sequence[str], times: Sequence[float], shares: Sequence[Sequence[float]]) -> str:
    """Shares over time, on top of each other; `shares` has one row for each time."""
    if len(times) < 2:
        return empty()
    frame = Frame(times[0], times[-1], 0.0, 1.0, percent=True)
    parts, below = [], [0.0] * len(times)
    for number in range(len(names)):
        above = [b + row[number] for b, row in zip(below, shares, strict=True)]
        way = [frame.at(x, y) for x, y in zip(times, above, strict=True)]
        way += [frame.at(x, y) for x, y in reversed(list(zip(times, below, strict=True)))]
        parts.append(f'<polygon class="area c{number % COLOURS}" points="{path(way)}"/>')
        below = above
    parts.append(frame.axes())
    return picture("share of each arm over time", parts) + legend(names)


def scatter(points: Sequence[Point], what: str) -> str:
    """What was believed across, what came upwards, and the line where both agree."""
    if len(points) < 3:
        return empty()
    low = min(min(p.x, p.y) for p in points)
    high = max(max(p.x, p.y) for p in points)
    frame = Frame(low, high, low, high, times=False)
    (x1, y1), (x2, y2) = frame.at(low, low), frame.at(high, high)
    parts = [frame.axes(), f'<line class="rule" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>']
    for p in points:
        x, y = frame.at(p.x, p.y)
        (_, bottom), (_, top) = frame.at(p.x, p.low), frame.at(p.x, p.high)
        parts.append(f'<line class="whisker c0" x1="{x}" y1="{bottom}" x2="{x}" y2="{top}"/>')
        parts.append(f'<circle class="dot c0" cx="{x}" cy="{y}" r="3.5"/>')
    return picture(what, parts)


def spark(values: Sequence[float]) -> str:
    """A line without axes."""
    known = [v for v in values if math.isfinite(v)]
    if len(known) < 2:
        return '<svg class="spark" viewBox="0 0 120 28"></svg>'
    low, span = min(known), (max(known) - min(known)) or 1.0
    step = 116 / (len(known) - 1)
    way = [(2 + i * step, 25 - 22 * (v - low) / span) for i, v in enumerate(known)]
    drawn = f'<polyline class="line c0" points="{path(way)}"/>'
    return f'<svg class="spark" viewBox="0 0 120 28">{drawn}</svg>'


class Frame:
    """Where values are in the picture."""

    def __init__(
        self, left: float, right: float, low: float, high: float, *, percent: bool = False,
        times: bool = True,
    ) -> None:  # fmt: skip
        self.left, self.width = left, (right - left) or 1.0
        margin = 0.0 if percent else 0.05 * ((high - low) or abs(high) or 1.0)
        self.low, self.high = low - margin, high + margin
        self.percent, self.times = percent, times

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A value's place; what is outside is at the edge."""
        share = (y - self.low) / (self.high - self.low)
        across = LEFT + (x - self.left) / self.width * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)
        return round(across, 1), round(up, 1)

    def axes(self) -> str:
        """Lines and numbers along both sides."""
        parts = []
        for value in ticks(self.low, self.high, 4):
            _, y = self.at(self.left, value)
            text = f"{100 * value:.0f} %" if self.percent else f"{value:.4g}"
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 5}" y="{y + 3.5}">{text}</text>')
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
            value = self.left + share * self.width
            x, _ = self.at(value, self.low)
            text = clock(value, self.width) if self.times else f"{value:.3g}"
            place = f'x="{x}" y="{HEIGHT - 5}" text-anchor="{anchor}"'
            parts.append(f'<text class="label" {place}>{text}</text>')
        return "".join(parts)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two.

    >>> ticks(0.02, 0.47, 4)
    [0.2, 0.4]
    """
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(step * f for f in (1, 2, 5, 10, 20) if (high - low) / (step * f) <= most)
    first = math.ceil(low / step)
    return [round(n * step, 12) for n in range(first, math.floor(high / step) + 1)]


def clock(seconds: float, span: float) -> str:
    """A time of day, or a date where the picture shows days."""
    import time

    form = "%d %b" if span > 3 * 86_400 else "%H:%M" if span > 600 else "%H:%M:%S"
    return time.strftime(form, time.gmtime(seconds))


def path(points: Sequence[tuple[float, float]]) -> str:
    """Points as SVG has them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def picture(what: str, parts: Sequence[str]) -> str:
    """A whole chart."""
    box = f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}"'
    return f'<svg class="chart" {box} role="img" aria-label="{escape(what)}">{"".join(parts)}</svg>'


def legend(names: Sequence[str]) -> str:
    """Which colour is which."""
    found = "".join(
        f'<li><i class="c{number % COLOURS}"></i>{escape(name[:40])}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{found}</ul>'


def empty() -> str:
    """Instead of a chart for which there is not enough yet."""
    return '<p class="quiet">Not enough yet to draw.</p>'
