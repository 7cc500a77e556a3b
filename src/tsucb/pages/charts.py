"""Charts as SVG shapes in a square of 1,000 by 1,000, which the template stretches to the page.

Text keeps its size on any width, and colours come from the style sheet, light or dark. The report
on 2,500 decisions takes 0.04 s and 34 kB; with matplotlib, which draws the figures of the
experiments, it takes 2.5 s and 1.3 MB.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import NamedTuple

SIDE = 1000.0
COLOURS = 8
POINTS = 400  # the most points of a line
SHOWN = 7  # names with a share of their own
OTHERS = ""  # the name that counts all names without a count of their own


class Point(NamedTuple):
    """A value at x; the interval around it may be absent."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


class Line(NamedTuple):
    """A named line."""

    name: str
    points: Sequence[Point]


class Shape(NamedTuple):
    """A path of SVG, with its class and the number of its colour."""

    kind: str
    colour: int
    path: str


class Tick(NamedTuple):
    """A number beside an axis: its place in percent, and the alignment of its text."""

    place: float
    text: str
    anchor: str = "middle"


class Chart(NamedTuple):
    """A chart for the template `parts.html`.

    Parameters
    ----------
    what : a description for screen readers
    shapes : in the order in which they are drawn
    across, upwards : numbers along the axes
    x_label, y_label : names of the axes
    legend : names, in the order of the colours
    """

    what: str
    shapes: list[Shape]
    across: list[Tick]
    upwards: list[Tick]
    x_label: str = ""
    y_label: str = ""
    legend: Sequence[str] = ()


def moment(seconds: float, form: str) -> str:
    """Return a time in UTC as text; as a number of seconds if it is beyond the calendar.

    >>> moment(0.0, "%Y-%m-%d"), moment(1.7e18, "%Y-%m-%d")
    ('1970-01-01', '1.7e+18 s')
    """
    try:
        return time.strftime(form, time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def when(seconds: float, span: float) -> str:
    """Return a time of day in UTC, or a date where the chart spans days.

    >>> when(90_061.0, 3_600.0), when(90_061.0, 300.0), when(90_061.0, 1e6)
    ('01:01', '01:01:01', '2 Jan')
    """
    form = "%-d %b" if span > 3 * 86_400 else "%-d %b %H:%M" if span > 86_400 else "%H:%M"
    return moment(seconds, form if span > 600 else "%H:%M:%S")


def plain(value: float, span: float = 0.0) -> str:
    """Return a number in few digits."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}".replace("-", "−")


class Frame:
    """Map values to places in the square."""

    def __init__(
        self, left: float, right: float, low: float, high: float, margin: float = 0.05
    ) -> None:
        self.left, self.width = left, (right - left) or 1.0
        margin *= (high - low) or abs(high) or 1.0
        self.low, self.high = low - margin, high + margin

    def at(self, x: float, y: float) -> str:
        """Return the place of a value as text for a path; values outside go to the edge."""
        across = SIDE * (x - self.left) / self.width
        share = (y - self.low) / ((self.high - self.low) or 1.0)
        return f"{across:.1f} {SIDE - SIDE * min(max(share, 0.0), 1.0):.1f}"

    def through(self, points: Sequence[tuple[float, float]]) -> str:
        """Return the path through these values."""
        return "M" + "L".join(self.at(x, y) for x, y in points)

    def upwards(self, text: Callable[[float], str] = plain) -> list[Tick]:
        """Return ticks at round numbers along the y axis."""
        span = (self.high - self.low) or 1.0
        values = round_numbers(self.low, self.high, 4)
        return [Tick(100 - 100 * (v - self.low) / span, text(v), "end") for v in values]

    def across(self, text: Callable[[float, float], str] = plain) -> list[Tick]:
        """Return ticks at both ends and in the middle of the x axis."""
        ends = ((0.0, "start"), (50.0, "middle"), (100.0, "end"))
        return [
            Tick(at, text(self.left + at / 100 * self.width, self.width), anchor)
            for at, anchor in ends
        ]


def grid(frame: Frame) -> list[Shape]:
    """Return a horizontal line for each tick of the y axis."""
    return [Shape("grid", 0, f"M0 {10 * tick.place:.1f}H{SIDE:.0f}") for tick in frame.upwards()]


def lines(
    series: Sequence[Line], what: str, *, x_label: str = "", y_label: str = "",
    text: Callable[[float, float], str] = when, zero: bool = False,
) -> Chart | None:  # fmt: skip
    """Draw lines, each with the band of its intervals; None if there are too few points.

    `text` writes the numbers along the x axis, by default as times; `zero` adds a rule at 0.
    """
    known = [p for line in series for p in line.points if math.isfinite(p.y)]
    if len(known) < 2:
        return None
    xs, ys = [p.x for p in known], [p.y for p in known] + [0.0] * zero
    # Bands much wider than the median are cut off, so that they do not squeeze the lines.
    widths = [p.high - p.low for p in known if math.isfinite(p.high - p.low)]
    margin = max([max(ys) - min(ys), median(widths or [0.0])]) or abs(max(ys)) or 1.0
    bands = [v for p in known for v in (p.low, p.high) if math.isfinite(v)]
    low = max(min(ys + bands), min(ys) - margin)
    high = min(max(ys + bands), max(ys) + margin)
    frame = Frame(min(xs), max(xs), low, high)
    shapes = grid(frame)
    if zero:
        shapes.append(Shape("rule", 0, frame.through([(min(xs), 0.0), (max(xs), 0.0)])))
    for number, line in enumerate(series):
        colour = number % COLOURS
        points = [p for p in line.points if math.isfinite(p.y)]
        band = [p for p in points if math.isfinite(p.low) and math.isfinite(p.high)]
        if len(band) > 1:
            way = [(p.x, p.high) for p in band] + [(p.x, p.low) for p in reversed(band)]
            shapes.append(Shape("band", colour, frame.through(way) + "Z"))
        if points:
            shapes.append(Shape("line", colour, frame.through([(p.x, p.y) for p in points])))
    names = [line.name for line in series]
    names = [] if names == [y_label] else names  # the label says it already
    return Chart(what, shapes, frame.across(text), frame.upwards(), x_label, y_label, names)


def shares(
    counts: Sequence[Mapping[str, int]], at: Sequence[float], what: str, *, x_label: str = "",
    text: Callable[[float, float], str] = when,
) -> Chart | None:  # fmt: skip
    """Draw the shares of names on top of each other; `counts` has the counts by name at each x.

    The most frequent names have a share each, and all others one together.
    """
    if len(at) < 2:
        return None
    total = sum(map(Counter, counts), Counter[str]())
    names = [name for name, _ in total.most_common() if name != OTHERS]
    shown, hidden = names[:SHOWN], len(names) - SHOWN
    edges = [
        [*accumulate((each.get(name, 0) / sum(each.values()) for name in shown), initial=0.0), 1.0]
        for each in counts
    ]
    if OTHERS in total:
        shown.append("all others")  # their number is not known
    elif hidden > 0:
        shown.append(f"{hidden} others")
    frame, shapes = Frame(at[0], at[-1], 0.0, 1.0, margin=0.0), []
    for number in range(len(shown)):
        way = [(x, edge[number + 1]) for x, edge in zip(at, edges, strict=True)]
        way += [(x, edge[number]) for x, edge in zip(reversed(at), reversed(edges), strict=True)]
        shapes.append(Shape("area", number % COLOURS, frame.through(way) + "Z"))
    percent = frame.upwards(lambda value: f"{100 * value:.0f} %")
    return Chart(what, shapes, frame.across(text), percent, x_label, "share of decisions", shown)


def dots(points: Sequence[Point], what: str, x_label: str, y_label: str) -> Chart | None:
    """Draw points with their intervals, and the line on which x and y agree."""
    if len(points) < 3:
        return None
    low = min(min(p.x, p.y) for p in points)
    high = max(max(p.x, p.y) for p in points)
    frame = Frame(low, high, low, high, margin=0.0)
    shapes = [*grid(frame), Shape("rule", 0, frame.through([(low, low), (high, high)]))]
    for p in points:
        colour = 0 if p.low <= p.x <= p.high else 1
        shapes.append(Shape("whisker", colour, frame.through([(p.x, p.low), (p.x, p.high)])))
        shapes.append(Shape("dot", colour, f"M{frame.at(p.x, p.y)}h0"))
    legend = ["the interval holds what was believed", "it does not"]
    # Both axes have the same range, so they have the same ticks.
    across = [Tick(100 - tick.place, tick.text) for tick in frame.upwards()]
    return Chart(what, shapes, across, frame.upwards(), x_label, y_label, legend)


def spark(values: Sequence[float]) -> str:
    """Return the path of a line without axes, empty if there are too few values."""
    known = [v for v in values if math.isfinite(v)]
    if len(known) < 2:
        return ""
    return Frame(0.0, len(known) - 1.0, min(known), max(known)).through(list(enumerate(known)))


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Return at most this many round numbers between two.

    >>> round_numbers(0.02, 0.47, 4)
    [0.2, 0.4]
    """
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(step * f for f in (1, 2, 5, 10, 20) if (high - low) / (step * f) <= most)
    first = math.ceil(low / step)
    return [round(n * step, 12) for n in range(first, math.floor(high / step) + 1)]


def thinned(size: int) -> list[int]:
    """Return the indices of at most 400 of `size` points, evenly spread, with both ends.

    >>> thinned(3), len(thinned(10_000))
    ([0, 1, 2], 400)
    """
    count = min(size, POINTS)
    return sorted({round(i * (size - 1) / max(count - 1, 1)) for i in range(count)})
