"""What the pages show of a loop, for the templates."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict

from tsucb.pages.charts import Chart, Line, Point, lines, shares, spark
from tsucb.service.events import AnyEvent, Decided, Rewarded
from tsucb.service.loop import Loop
from tsucb.service.settings import LoopSettings
from tsucb.service.state import LoopCounts, Span, Tally

MOST_LISTED = 50  # arms in the table
LAST = 12  # decisions that are shown with their reasons
LEAST = 100  # decisions of an apprentice to say anything about it


class LoopView(NamedTuple):
    """A loop at a moment: what can be looked at while the loop goes on."""

    name: str
    settings: LoopSettings
    counts: LoopCounts
    tally: Tally
    arms: list[str]
    summary: list[tuple[str, float, int, float]]  # arm, rewards, waiting, mean reward
    waiting: int
    ripe: float

    @classmethod
    def of(cls, loop: Loop) -> "LoopView":
        """Take what the pages show from a loop."""
        rows = []
        if loop.learner is not None:
            table = loop.arms_summary()
            if len(table) > MOST_LISTED:  # of those that come and go, the ones that were played
                table = table.nlargest(MOST_LISTED, "pulls")
            rows = [(str(arm), p, int(w), m) for arm, p, w, m in table.itertuples()]
        counts = msgspec.structs.replace(loop.counts)
        return cls(
            loop.name, loop.settings, counts, loop.tally.copied(), list(loop.arms), rows,
            len(loop.waiting), loop.ripe,
        )  # fmt: skip

    @property
    def whole(self) -> Span:
        """Everything that can be judged, together."""
        return self.tally.whole(self.ripe)

    @property
    def texts(self) -> dict[str, str]:
        """The settings as the form has them."""
        return {name: as_text(value) for name, value in asdict(self.settings).items()}

    @property
    def has_control(self) -> bool:
        """Whether the log says what random choice would have earned."""
        return self.settings.mode == "online" and self.settings.exploration > 0

    def merged(self, most: int, until: float = math.inf) -> list[Span]:
        """Return the spans that ended by a time, in at most this many groups."""
        spans = self.tally.until(until)
        size = max(1, math.ceil(len(spans) / most))
        groups = [spans[start : start + size] for start in range(0, len(spans), size)]
        return [Span.together(group) for group in groups]

    def reward_chart(self) -> Chart | None:
        """Draw reward over time, against choosing at random."""
        own, control, held = list[Point](), list[Point](), list[Point]()
        for span in self.merged(30, self.ripe):
            if span.rewards > 1:
                own.append(Point(span.start, *span.group(held=False)))
                held.append(Point(span.start, *span.group(held=True)))
                value = span.random / span.weights if span.weights else math.nan
                _, low, high = span.interval()
                half = (high - low) / 2
                control.append(Point(span.start, value, value - half, value + half))
        series = [Line("the policy", own)]
        if self.has_control:
            series.append(Line("random choice", control))
        if self.whole.held:
            series.append(Line("the baseline, in the holdout", held))
        return lines(series, "mean reward over time", x_label="time, UTC", y_label="mean reward")

    def arms_chart(self) -> Chart | None:
        """Draw the share of every arm over time."""
        spans = [span for span in self.merged(60) if span.arms]
        played, at = [span.arms for span in spans], [span.start for span in spans]
        return shares(played, at, "share of each arm over time", x_label="time, UTC")


def card(loop: Loop) -> dict[str, Any]:
    """Return a loop in short, for the list of all."""
    spans = [span for span in loop.tally.until(loop.ripe) if span.rewards]
    rewards, total = sum(s.rewards for s in spans), sum(s.total for s in spans)
    return {
        "name": loop.name,
        "mode": loop.settings.mode,
        "spark": spark([span.total / span.rewards for span in spans[-60:]]),
        "decisions": loop.counts.decisions,
        "mean": total / rewards if rewards else math.nan,
        "arms": len(loop.arms),
    }


def decisions(recent: Sequence[AnyEvent]) -> list[dict[str, Any]]:
    """Return the last decisions, the newest first, each with what the policy saw."""
    rewards = {event.id: event.value for event in recent if isinstance(event, Rewarded)}
    found = [event for event in recent if isinstance(event, Decided)][-LAST:]
    return [
        {
            "event": event,
            "reward": rewards.get(event.id),
            "context": json.dumps(event.context, ensure_ascii=False) if event.context else "",
            "picks": [event.described(pick) for pick in event.picks],
        }
        for event in reversed(found)
    ]


class Gain(NamedTuple):
    """How much more an apprentice's own choices would earn than the baseline, as it believes.

    `low` is a lower bound of 90 %; `same` is the share of decisions that would be the same.
    """

    decisions: int
    same: float
    value: float
    low: float


def gain(log: Iterable[AnyEvent]) -> Gain | None:
    """Return the gain over the last decisions of an apprentice; None if there are too few.

    Its log cannot say what arms would have earned that were not played: this is the model's own
    belief at every decision about its favourite and about the baseline. Beliefs at neighbouring
    decisions err together, so the doubt is averaged and not divided by their number.
    """
    extra, doubt = [], []
    for event in log:
        for pick in event.picks if isinstance(event, Decided) else ():
            if max(pick.chances) < 1.0:
                continue  # it was not an apprentice then
            n, seen = len(pick.arms), np.frombuffer(pick.seen)
            mean, std = seen[2 : 2 + n], seen[2 + n : 2 + 2 * n]
            own, played = pick.arms.index(pick.favourite), pick.arms.index(pick.arm)
            extra.append(mean[own] - mean[played])
            doubt.append(-1.0 if own == played else math.hypot(std[own], std[played]))
    if len(extra) < LEAST or not np.isfinite(extra).all():
        return None
    value, unsure = float(np.mean(extra)), np.array(doubt)
    low = value - 1.2816 * float(np.maximum(unsure, 0.0).mean())
    return Gain(len(extra), float((unsure < 0).mean()), value, low)


def as_text(value: Any) -> str:
    """Return a setting as the form has it.

    >>> as_text(None), as_text(True), as_text(0.05), as_text([1, 2])
    ('', 'true', '0.05', '1, 2')
    """
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(as_text(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def form_changes(settings: LoopSettings, form: dict[str, str]) -> dict[str, Any]:
    """Return the settings that a form changes, as `changed` takes them.

    Raises ValueError if a text is no value for its setting.
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
    """Return what commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]
