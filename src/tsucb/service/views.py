"""Charts and tables of a loop for the templates, and texts of its settings for the form."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict

from tsucb.pages.charts import Chart, Line, Point, lines, shares, spark
from tsucb.pages.render import number
from tsucb.service.events import AnyEvent, Decided, Rewarded
from tsucb.service.loop import Loop
from tsucb.service.settings import LoopSettings
from tsucb.service.state import LoopState, Span

LAST = 12  # decisions with their reasons
FOR_A_POINT, MOST_POINTS = 100, 30  # rewards of a point in the chart, at least; points
LEAST = 100  # decisions of an apprentice, below which its gain is not estimated


def facts(state: LoopState) -> list[tuple[str, str, str]]:
    """Return the numbers at the top of the page of a loop: text, meaning, class of the style."""
    whole, settings = state.tally.whole(state.ripe), state.settings
    mean = whole.total / whole.rewards if whole.rewards else None
    found = [
        (f"{state.counts.decisions:,}", "decisions", ""),
        (f"{len(state.open_decisions):,}", "decisions wait for a reward", ""),
        (number(mean), "mean reward", ""),
    ]
    for (value, *bounds), other in (
        (whole.interval(), "random choice"),
        (whole.over_holdout(), "the baseline of the holdout"),
    ):
        if math.isfinite(value):
            low, high = (number(each, sign=True) for each in bounds)
            style = "yes" if bounds[0] > 0 else "no" if bounds[1] < 0 else ""
            text = f"more than {other}, 95 % interval {low} to {high}"
            found.append((number(value, sign=True), text, style))
    if settings.has_control:
        text = (
            f"of decisions play a random arm (the floor), the others what {settings.policy} chooses"
        )
        found.append((f"{100 * settings.exploration:g} %", text, ""))
    return found


def merged(spans: Sequence[Span], most: int) -> list[Span]:
    """Return the spans joined to at most `most` longer ones."""
    size = max(1, math.ceil(len(spans) / most))
    return [Span.together(spans[start : start + size]) for start in range(0, len(spans), size)]


def reward_chart(state: LoopState) -> Chart | None:
    """Draw the mean reward over time: of the policy, of random choice, of the holdout."""
    own, control, held = list[Point](), list[Point](), list[Point]()
    spans, online = state.tally.until(state.ripe), state.settings.mode == "online"
    points = sum(span.rewards for span in spans) // FOR_A_POINT
    for span in merged(spans, min(max(points, 2), MOST_POINTS)):
        if span.rewards > 1:
            own.append(Point(span.start, *span.group(held=False)))
            held.append(Point(span.start, *span.group(held=True)))
            value = span.random / span.weights if span.weights else math.nan
            _, low, high = span.interval()
            half = (high - low) / 2
            control.append(Point(span.start, value, value - half, value + half))
    series = [Line("the policy" if online else "the baseline", own)]
    if state.settings.has_control:
        series.append(Line("random choice", control))
    if any(math.isfinite(point.y) for point in held):
        series.append(Line("the baseline, in the holdout", held))
    return lines(series, "mean reward over time", x_label="time, UTC", y_label="mean reward")


def arms_chart(state: LoopState) -> Chart | None:
    """Draw the share of every arm over time."""
    spans = [span for span in merged(state.tally.spans, 60) if span.arms]
    played, at = [span.arms for span in spans], [span.start for span in spans]
    return shares(played, at, "share of each arm over time", x_label="time, UTC")


def card(loop: Loop) -> dict[str, Any]:
    """Return what the list of loops shows of a loop."""
    spans = [span for span in loop.tally.until(loop.ripe) if span.rewards]
    rewards, total = sum(s.rewards for s in spans), sum(s.total for s in spans)
    return {
        "name": loop.name,
        "mode": loop.settings.mode,
        "spark": spark([span.total / span.rewards for span in spans[-60:]]),
        "decisions": loop.counts.decisions,
        "mean": total / rewards if rewards else math.nan,
        "arms": None if loop.settings.arms_come else len(loop.arms),
    }


def decisions(recent: Sequence[AnyEvent], state: LoopState) -> list[dict[str, Any]]:
    """Return the last decisions, the newest first, with what the policy saw and the reward."""
    rewards = {event.id: event.value for event in recent if isinstance(event, Rewarded)}
    found = [event for event in recent if isinstance(event, Decided)][-LAST:]
    return [
        {
            "event": event,
            "reward": rewards.get(event.id),
            "waits": event.id in state.open_decisions,
            "context": ", ".join(
                f"{name}: {value}" for name, value in (event.context or {}).items()
            ),
            "picks": [event.described(pick) for pick in event.picks],
        }
        for event in reversed(found)
    ]


class Gain(NamedTuple):
    """The extra reward per decision of an apprentice's own choices over the baseline.

    `value` is the posterior mean, `low` its lower 90 % bound; `same` is the share of decisions in
    which both choose the same arm.
    """

    decisions: int
    same: float
    value: float
    low: float


def gain(log: Iterable[AnyEvent]) -> Gain | None:
    """Return the gain over the last decisions of an apprentice; None if there are too few.

    The log of an apprentice has no rewards of other arms than the baseline. So this averages what
    the model believed at every decision of its favourite and of the baseline. The errors of beliefs
    at neighbouring decisions depend on each other, so their standard deviations are averaged, and
    not divided by the root of their number.
    """
    extra, doubt = [], []
    for event in log:
        for pick in event.picks if isinstance(event, Decided) else ():
            if max(pick.chances) < 1.0:
                continue  # the loop was not an apprentice then
            seen = pick.explanation()
            mean, std = seen.mean, seen.std
            own, played = pick.arms.index(pick.favourite), pick.arms.index(pick.arm)
            extra.append(mean[own] - mean[played])
            doubt.append(-1.0 if own == played else math.hypot(std[own], std[played]))
    if len(extra) < LEAST or not np.isfinite(extra).all():
        return None
    value, unsure = float(np.mean(extra)), np.array(doubt)
    low = value - 1.2816 * float(np.maximum(unsure, 0.0).mean())
    return Gain(len(extra), float((unsure < 0).mean()), value, low)


def as_text(value: Any) -> str:
    """Return the value of a setting as the text of a field.

    >>> as_text(None), as_text(True), as_text(0.05), as_text([1, 2])
    ('', 'true', '0.05', '1, 2')
    """
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(as_text(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def form_changes(settings: LoopSettings, form: dict[str, str]) -> dict[str, Any]:
    """Return the values of the settings that a form changes.

    Raise ValueError if a text is not a value of its setting.
    """
    current = asdict(settings)
    given: dict[str, Any] = {name: text.strip() for name, text in form.items()}
    for name in ("default_reward", "reward_range", "retention_days"):
        if given.get(name) == "":
            given[name] = None
    for name in ("categories", "reward_range"):
        if isinstance(given.get(name), str):
            given[name] = split_commas(given[name])
    found = msgspec.convert({**current, **given}, LoopSettings, strict=False)
    return {name: value for name, value in asdict(found).items() if value != current[name]}


def split_commas(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]
