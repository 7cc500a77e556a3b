"""What the pages show of a loop, for the templates."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from tsucb.agent.decision import Explanation
from tsucb.pages.charts import Chart, Line, Point, lines, shares, spark
from tsucb.pages.render import number
from tsucb.service.apprentice import Gain
from tsucb.service.events import Decided, Pick, Rewarded
from tsucb.service.loop import Loop
from tsucb.service.settings import LoopSettings
from tsucb.service.state import LoopCounts
from tsucb.service.tally import OTHERS, Span, Tally, interval

MOST_LISTED = 50  # arms in the table
SHOWN = 7  # arms with a colour of their own
LAST = 12  # decisions that are shown with their reasons
POLICIES = ("TS-UCB(1)", "TS-UCB(10)", "TS-UCB(100)", "TS", "Greedy", "Random")


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


def facts(view: LoopView) -> list[tuple[str, str, str]]:
    """Return the most important numbers."""
    whole = view.tally.whole(view.ripe)
    lift, low, high = whole.interval()
    kind = "yes" if low > 0 else "no" if high < 0 else ""
    mean = whole.total / whole.rewards if whole.rewards else math.nan
    ends = "" if math.isnan(low) else f", {number(low, sign=True)} to {number(high, sign=True)}"
    return [
        (f"{view.counts.decisions:,}", "decisions", ""),
        (number(mean), "mean reward", ""),
        (number(lift, sign=True), f"more than random choice{ends}", kind),
        (f"{view.waiting:,}", "decisions wait for a reward", ""),
        (f"{100 * view.settings.exploration:g} %", f"floor of {view.settings.policy}", ""),
    ]


def merged(spans: Sequence[Span], most: int) -> list[Span]:
    """Return the spans in at most this many groups."""
    size = max(1, math.ceil(len(spans) / most))
    found = []
    for start in range(0, len(spans), size):
        group = Span(spans[start].start, arms={})
        for span in spans[start : start + size]:
            group.add(span)
        found.append(group)
    return found


def reward_chart(view: LoopView) -> Chart | None:
    """Draw reward over time, against choosing at random."""
    groups = [span for span in merged(view.tally.until(view.ripe), 30) if span.rewards > 1]
    own, control = [], []
    for span in groups:
        own.append(Point(span.start, *interval(span.rewards, span.total, span.squares)))
        value = span.random / span.weights if span.weights else math.nan
        _, low, high = span.interval()
        half = (high - low) / 2
        control.append(Point(span.start, value, value - half, value + half))
    series = [Line("the policy", own)]
    if has_control(view):
        series.append(Line("random choice", control))
    return lines(series, "mean reward over time", x_label="time, UTC", y_label="mean reward")


def has_control(view: LoopView) -> bool:
    """Return whether the log says what random choice would have earned."""
    return view.settings.mode == "online" and view.settings.exploration > 0


def arms_chart(view: LoopView) -> Chart | None:
    """Draw the share of every arm over time."""
    groups = [span for span in merged(view.tally.spans, 60) if span.decisions]
    totals = view.tally.whole().arms
    names = sorted(totals.keys() - {OTHERS}, key=lambda arm: (-totals[arm], arm))
    shown, others = names[:SHOWN], [f"{len(names) - SHOWN} others"] if names[SHOWN:] else []
    if OTHERS in totals:  # arms that came and went, nobody knows how many
        others = ["all others"]
    rows = []
    for span in groups:
        row = [span.arms.get(arm, 0) / span.decisions for arm in shown]
        rows.append(row + ([max(1 - sum(row), 0.0)] if others else []))
    at = [span.start for span in groups]
    return shares(shown + others, at, rows, "share of each arm over time", x_label="time, UTC")


def decisions(recent: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the last decisions, the newest first, each with what the policy saw."""
    rewards: dict[str, float] = {}
    for event in recent:
        if isinstance(event, Rewarded):
            rewards[event.id] = event.value
    found = [event for event in recent if isinstance(event, Decided)][-LAST:]
    return [
        {
            "id": event.id,
            "time": event.time,
            "arms": ", ".join(pick.arm for pick in event.picks),
            "reward": rewards.get(event.id),
            "context": json.dumps(event.context, ensure_ascii=False) if event.context else "",
            "picks": [pick_row(event, pick) for pick in event.picks],
        }
        for event in reversed(found)
    ]


def pick_row(event: Decided, pick: Pick) -> dict[str, Any]:
    """Return what the policy saw of the arms it was most likely to play."""
    seen = Explanation.of(tuple(pick.arms), pick.arm, event.policy, event.target_name, pick.seen)
    order = sorted(range(len(pick.arms)), key=lambda i: -pick.chances[i])[:10]
    return {
        "slot": pick.slot,
        "policy": event.policy,
        "target_name": seen.target_name,
        "target": seen.target,
        "alpha": seen.alpha,
        "other": pick.favourite if pick.favourite != pick.arm else "",
        "arms": [
            (pick.arms[i], seen.mean[i], seen.std[i], seen.ratio[i], pick.chances[i]) for i in order
        ],
        "chosen": pick.arm,
        "more": len(pick.arms) - len(order),
    }


def outcomes(view: LoopView) -> list[tuple[str, str]]:
    """Return what became of decisions and rewards, with how many."""
    counts = view.counts
    rows = [
        ("Decisions that wait for a reward", view.waiting),
        ("Rewards that came in time", counts.rewards),
        ("No reward came; the default was learned", counts.defaults),
        ("Rewards after the wait, kept and not learned", counts.late),
        ("Repeats of a request, recognised", counts.repeated),
        ("Deferred decisions that were never activated", counts.never_activated),
        ("Could not be learned", counts.refused),
    ]
    return [(what, f"{count:,}") for what, count in rows]


def apprentice_text(gain: Gain) -> str:
    """Return how an apprentice would do."""
    return (
        f"Of the last {gain.decisions:,} decisions it would have made {100 * gain.same:.0f} % "
        "alike. By what it has learned, its own choices would earn "
        f"{number(gain.value, sign=True)} per decision more than the baseline (90 % bound: "
        f"{number(gain.low, sign=True)})."
    )


def comparison_rows(found: dict[str, Any]) -> list[list[str]]:
    """Return the table of a comparison."""
    rows = []
    for row in found["configurations"]:
        low, high = row.get("extra_low"), row.get("extra_high")
        ends = "" if low is None else f" ({number(low, sign=True)} to {number(high, sign=True)})"
        extra = "" if low is None else number(row["extra"], sign=True) + ends
        value = number(row["reward"], 4)
        rows.append([row["configuration"], value, extra, row.get("reason") or ""])
    return rows


class Field(NamedTuple):
    """A setting in the form; `options` are all that it can be, empty if it is typed."""

    name: str
    label: str
    hint: str
    value: str
    options: list[str]


def setting_fields(settings: LoopSettings) -> list[Field]:
    """Return the fields of the form, from the annotations of the settings."""
    found = []
    for name, hint in get_type_hints(LoopSettings, include_extras=True).items():
        kind, *metas = get_args(hint)
        value = getattr(settings, name)
        options = [str(each) for each in get_args(kind)] if get_origin(kind) is LITERAL else []
        if kind is bool:
            options = ["true", "false"]
        label = name.replace("_", " ").capitalize()
        text = next((m.description for m in metas if m.description), "")
        found.append(Field(name, label, text, as_text(value), options))
    return found


LITERAL = get_origin(get_args(get_type_hints(LoopSettings, include_extras=True)["mode"])[0])


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
    current = {name: getattr(settings, name) for name in settings.__struct_fields__}
    given: dict[str, Any] = {name: text.strip() for name, text in form.items()}
    for name in ("default_reward", "reward_range", "retention_days"):
        if given.get(name) == "":
            given[name] = None
    for name in ("categories", "reward_range"):
        if isinstance(given.get(name), str):
            given[name] = [part.strip() for part in given[name].split(",") if part.strip()]
    found = msgspec.convert({**current, **given}, LoopSettings, strict=False)
    return {
        name: msgspec.to_builtins(getattr(found, name))
        for name in settings.__struct_fields__
        if getattr(found, name) != current[name]
    }
