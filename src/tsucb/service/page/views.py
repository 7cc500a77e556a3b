"""What the pages say, as HTML. Everything that came from outside is escaped."""

import json
import math
import time
from collections.abc import Sequence
from html import escape
from typing import Any

from tsucb.agent.decision import Explanation
from tsucb.service.apprentice import Gain
from tsucb.service.events import Decided, Rewarded
from tsucb.service.loop import Loop
from tsucb.service.page.charts import Line, Point, areas, lines, scatter, spark
from tsucb.service.tally import OTHERS, Span, interval

MOST_LISTED = 50  # arms in the table
SHOWN = 7  # arms with a colour of their own
POLICIES = ("TS-UCB(10)", "TS-UCB(1)", "TS-UCB(100)", "TS", "Greedy", "Random")
MODES = ("online", "apprentice", "logging")


def page(title: str, body: str, who: str = "") -> str:
    """A whole page."""
    leave = f'<span class="right">{escape(who)} · <a href="/logout">leave</a></span>' if who else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · tsucb</title>"
        '<link rel="stylesheet" href="/style.css"><link rel="icon" href="data:,">'
        '<script src="/page.js" defer></script></head><body>'
        '<header><a href="/"><b>tsucb</b></a><a href="/">Loops</a><a href="/api">API</a>'
        f"{leave}</header><main>{body}</main></body></html>"
    )


def login(wrong: bool = False) -> str:
    """The form that asks for a key."""
    notice = '<p class="notice wrong">This key opens nothing here.</p>' if wrong else ""
    return page(
        "Enter",
        f"<h1>Enter</h1>{notice}<p>Give the key of the server, or the administration key of a "
        "loop. The first start wrote them to <code>keys.json</code> in the data folder.</p>"
        '<form class="inline" method="post" action="/login"><div><label for="key">Key</label>'
        '<input id="key" name="key" type="password" autocomplete="current-password" required '
        'size="44"></div><button>Enter</button></form>',
    )


def all_loops(loops: Sequence[Loop], who: str, server: bool) -> str:
    """The loops."""
    cards = "".join(loop_card(loop) for loop in loops)
    new = (
        '<h2>A new loop</h2><form class="inline" method="post" action="/loops">'
        '<div><label for="name">Name</label><input id="name" name="name" required></div>'
        '<div><label for="arms">Arms, separated by commas</label>'
        '<input id="arms" name="arms" size="40" placeholder="tea, milk"></div>'
        "<button>Make it</button></form>"
        if server
        else ""
    )
    none = '<p class="quiet">There are none yet.</p>'
    body = f'<h1>Loops</h1><div data-live><div class="loops">{cards or none}</div></div>{new}'
    return page("Loops", body, who)


def loop_card(loop: Loop) -> str:
    whole = loop.tally.whole(loop.ripe)
    means = [span.total / span.rewards for span in loop.tally.until(loop.ripe) if span.rewards]
    return (
        f'<a href="/loops/{escape(loop.name)}"><h3>{escape(loop.name)} '
        f'<span class="mode">{escape(loop.settings.mode)}</span></h3>{spark(means[-60:])}'
        f'<div class="quiet">{loop.counts.decisions:,} decisions · mean reward '
        f"{number(mean_of(whole))} · {len(loop.arms)} arms</div></a>"
    )


def made(name: str, keys: dict[str, str], who: str) -> str:
    """A loop that was just made, with its keys, which are not shown again."""
    rows = "".join(
        f"<tr><td>{r}</td><td><code>{escape(k)}</code></td></tr>" for r, k in keys.items()
    )
    return page(
        name,
        f"<h1>{escape(name)}</h1><p>The loop is there. These are its keys; they are not shown "
        f'again.</p><div class="scroll"><table>{rows}</table></div>'
        f'<p><a href="/loops/{escape(name)}">Go to the loop</a></p>',
        who,
    )


def problem(status: int, message: str) -> str:
    """An error."""
    return page(str(status), f'<h1>{status}</h1><p class="notice wrong">{escape(message)}</p>')


def loop_page(
    loop: Loop, recent: Sequence[Any], calibration: Any, gain: Gain | None, who: str,
    notice: str = "", comparison: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """Everything about a loop."""
    mode = f'<span class="mode">{escape(loop.settings.mode)}</span>'
    parts = [
        f"<h1>{escape(loop.name)} {mode}</h1>",
        notice,
        "<div data-live>",
        facts(loop),
        apprentice(loop, gain),
        "<h2>Reward</h2>",
        rewards_chart(loop),
        '<p class="note">Mean reward over time, with 95 % intervals. Random choice is what the '
        "decisions of the floor say about choosing uniformly: they were made at random, so the "
        "distance is a lift and no coincidence of who came. Decisions that may still be rewarded "
        "are left out.</p>",
        "<h2>Arms</h2>",
        arms_chart(loop),
        arms_table(loop),
        "<h2>The last decisions, and why</h2>",
        decisions(recent),
        "<h2>Calibration</h2>",
        calibration_chart(calibration),
        "<h2>Rewards that came, and that did not</h2>",
        counts_table(loop),
        "</div>",
        "<h2>What would another configuration have earned?</h2>",
        evaluation_form(loop),
        "" if comparison is None else comparison_table(comparison),
        "<h2>Settings</h2>",
        settings_form(loop),
    ]
    return page(loop.name, "".join(parts), who)


def facts(loop: Loop) -> str:
    """The most important numbers."""
    whole = loop.tally.whole(loop.ripe)
    lift, low, high = whole.interval()
    kind = "good" if low > 0 else "bad" if high < 0 else ""
    tiles = [
        (f"{loop.counts.decisions:,}", "decisions", ""),
        (number(mean_of(whole)), "mean reward", ""),
        (
            "–" if math.isnan(lift) else f"{lift:+.3g}",
            "more than random choice" + ("" if math.isnan(low) else f", {low:+.3g} to {high:+.3g}"),
            kind,
        ),
        (f"{len(loop.waiting):,}", "wait for a reward", ""),
        (f"{100 * loop.settings.exploration:g} %", f"floor of {loop.settings.policy}", ""),
    ]
    found = "".join(
        f'<div><b class="{k}">{escape(b)}</b><span>{escape(s)}</span></div>' for b, s, k in tiles
    )
    return f'<div class="facts">{found}</div>'


def apprentice(loop: Loop, gain: Gain | None) -> str:
    """How an apprentice would do, and the offer to let it."""
    if loop.settings.mode != "apprentice":
        return ""
    if gain is None:
        return '<p class="notice">It plays the baseline and learns from its rewards.</p>'
    text = (
        "It plays the baseline and learns from its rewards. Of the last "
        f"{gain.decisions:,} decisions it would have made {100 * gain.same:.0f} % alike. By what "
        f"it has learned, its own choices would earn {gain.value:+.3g} per decision more than the "
        f"baseline (90 % bound: {gain.low:+.3g})."
    )
    if gain.low <= 0:
        return f'<p class="notice">{escape(text)} That is not enough to be sure yet.</p>'
    return (
        f'<div class="notice">{escape(text)} The lower bound is above the baseline.'
        f'<form class="inline" method="post" action="/loops/{escape(loop.name)}/settings">'
        '<input type="hidden" name="mode" value="online">'
        "<button>Let it decide</button></form></div>"
    )


def merged(spans: Sequence[Span], most: int) -> list[Span]:
    """The spans in at most so many groups."""
    size = max(1, math.ceil(len(spans) / most))
    found = []
    for start in range(0, len(spans), size):
        group = Span(spans[start].start, arms={})
        for span in spans[start : start + size]:
            group.add(span)
        found.append(group)
    return found


def rewards_chart(loop: Loop) -> str:
    """Reward over time, against choosing at random."""
    spans = loop.tally.until(loop.ripe)
    groups = [span for span in merged(spans, 30) if span.rewards > 1]
    own, control = [], []
    for span in groups:
        own.append(Point(span.start, *interval(span.rewards, span.total, span.squares)))
        value = span.random / span.weights if span.weights else math.nan
        _, low, high = span.interval()
        half = (high - low) / 2
        control.append(Point(span.start, value, value - half, value + half))
    series = [Line("the policy", own)]
    if loop.settings.mode == "online" and loop.settings.exploration:
        series.append(Line("random choice", control))
    return lines(series, "mean reward over time")


def arms_chart(loop: Loop) -> str:
    """The share of every arm over time."""
    groups = [span for span in merged(loop.tally.spans, 60) if span.decisions]
    totals = loop.tally.whole().arms
    names = sorted(totals.keys() - {OTHERS}, key=lambda arm: (-totals[arm], arm))
    shown, others = names[:SHOWN], [f"{len(names) - SHOWN} others"] if names[SHOWN:] else []
    if OTHERS in totals:  # arms that came and went, nobody knows how many
        others = ["all others"]
    rows = []
    for span in groups:
        row = [span.arms.get(arm, 0) / span.decisions for arm in shown]
        rows.append(row + ([1 - sum(row)] if others else []))
    labels = shown + others
    return areas(labels, [span.start for span in groups], rows)


def arms_table(loop: Loop) -> str:
    """Pulls and mean rewards."""
    if loop.learner is None:
        return '<p class="quiet">No arm is known yet; they come with the first decision.</p>'
    arms = loop.arms_summary()
    if len(arms) > MOST_LISTED:  # of those that come and go, the ones that were played
        arms = arms.nlargest(MOST_LISTED, "pulls")
    rows = [
        (str(arm), f"{pulls:,.0f}", f"{waiting:,}", number(mean))
        for arm, pulls, waiting, mean in arms.itertuples()
    ]
    return table(["Arm", "Rewards", "Waiting", "Mean reward"], rows, numbers=(1, 2, 3))


def decisions(recent: Sequence[Any]) -> str:
    """The last decisions, each with what the policy saw."""
    rewards: dict[str, float] = {}
    for event in recent:
        if isinstance(event, Rewarded):
            rewards[event.id] = event.value
    found = [event for event in recent if isinstance(event, Decided)][-12:]
    return "".join(decision(event, rewards.get(event.id)) for event in reversed(found)) or (
        '<p class="quiet">None yet.</p>'
    )


def decision(event: Decided, reward: float | None) -> str:
    """One decision."""
    parts = []
    for pick in event.picks:
        seen = Explanation.of(
            tuple(pick.arms), pick.arm, event.policy, event.target_name, pick.seen
        )
        order = sorted(range(len(pick.arms)), key=lambda i: -pick.chances[i])[:10]
        body = "".join(
            f"<tr{' class=chosen' if pick.arms[i] == pick.arm else ''}>"
            f"<td>{escape(pick.arms[i])}</td>"
            + "".join(
                f'<td class="number">{number(v)}</td>'
                for v in (seen.mean[i], seen.std[i], seen.ratio[i], pick.chances[i])
            )
            + "</tr>"
            for i in order
        )
        chance = "" if pick.arm == pick.favourite else f"; its own choice was {pick.favourite}"
        alpha = "" if math.isnan(seen.alpha) else f", α = {number(seen.alpha)}"
        target = (
            "" if math.isnan(seen.target) else f"{seen.target_name} = {number(seen.target)}{alpha}"
        )
        parts.append(
            f'<p class="note">{escape(event.policy)} {escape(target)}{escape(chance)}</p>'
            '<div class="scroll"><table><tr><th>Arm</th><th class="number">Mean</th>'
            '<th class="number">Std</th><th class="number">Ratio</th><th class="number">Chance</th>'
            f"</tr>{body}</table></div>"
        )
    arms = ", ".join(pick.arm for pick in event.picks)
    when = time.strftime("%H:%M:%S", time.gmtime(event.time))
    paid = "no reward yet" if reward is None else f"reward {number(reward)}"
    context = json.dumps(event.context, ensure_ascii=False) if event.context else "no context"
    return (
        f'<details><summary><b>{escape(arms)}</b> <span class="quiet">{when} UTC · '
        f"{escape(paid)} · {escape(context[:160])}</span></summary>{''.join(parts)}"
        f'<p class="note">Decision <code>{escape(event.id)}</code></p></details>'
    )


def calibration_chart(found: Any) -> str:
    """Whether rewards are what was believed."""
    if found is None:
        return '<p class="quiet">Not enough rewards yet to judge.</p>'
    points = [
        Point(float(b), float(s), float(s - w), float(s + w))
        for b, s, w in zip(found.believed, found.seen, found.width, strict=True)
    ]
    return scatter(points, "believed and actual mean rewards") + (
        '<p class="note">Each point is a block of decisions for the same arm: across the mean '
        "reward that was believed, upwards the one that came, with 90 % intervals. On the dashed "
        "line both agree.</p>"
    )


def counts_table(loop: Loop) -> str:
    """What became of decisions and rewards."""
    counts = loop.counts
    rows = [
        ("Wait for a reward", len(loop.waiting)),
        ("Rewards in time", counts.rewards),
        ("No reward came; the default was learned", counts.defaults),
        ("Rewards after the wait, kept and not learned", counts.late),
        ("Repeats, recognised", counts.repeated),
        ("Deferred and never activated", counts.never_activated),
        ("Could not be learned", counts.refused),
    ]
    return table(["", "How many"], [(name, f"{n:,}") for name, n in rows], numbers=(1,))


def evaluation_form(loop: Loop) -> str:
    """Which configuration to compare."""
    options = "".join(f"<option>{escape(policy)}</option>" for policy in POLICIES)
    return (
        f'<form class="inline" method="post" action="/loops/{escape(loop.name)}/evaluate">'
        '<div><label for="policy">Policy</label><select id="policy" name="policy">'
        f"{options}</select>"
        '</div><div><label for="forgetting">Forgetting</label><input id="forgetting" '
        'name="forgetting" value="1" size="6"></div><button>Ask the log</button></form>'
        '<p class="note">From decisions whose wait is over, with a 95 % interval; where the log '
        "cannot say, it says so.</p>"
    )


def comparison_table(found: dict[str, Any]) -> str:
    """What the log says."""
    rows = []
    for row in found["configurations"]:
        low, high = row.get("extra_low"), row.get("extra_high")
        extra = "" if low is None else f"{row['extra']:+.3g} ({low:+.3g} to {high:+.3g})"
        value = "–" if row["reward"] is None else f"{row['reward']:.4g}"
        rows.append((row["configuration"], value, extra, row.get("reason") or ""))
    shown = table(["Configuration", "Reward", "More than logged", "Remark"], rows, numbers=(1,))
    base = f"{found['decisions']:,} decisions, by {found['method']}."
    return f'<p class="note">{escape(base)}</p>{shown}'


def settings_form(loop: Loop) -> str:
    """The settings that are changed most."""
    settings = loop.settings
    modes = "".join(
        f"<option{' selected' if mode == settings.mode else ''}>{mode}</option>" for mode in MODES
    )

    def field(name: str, label: str, value: Any, size: int = 8) -> str:
        return (
            f'<div><label for="s-{name}">{label}</label><input id="s-{name}" name="{name}" '
            f'value="{escape(str(value))}" size="{size}"></div>'
        )

    return (
        f'<form class="inline" method="post" action="/loops/{escape(loop.name)}/settings">'
        '<div><label for="s-mode">Mode</label>'
        f'<select id="s-mode" name="mode">{modes}</select></div>'
        + field("policy", "Policy", settings.policy, 12)
        + field("exploration", "Exploration", f"{settings.exploration:g}")
        + field("reward_wait", "Wait, seconds", f"{settings.reward_wait:g}")
        + "<button>Change</button></form>"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of texts."""

    def cell(tag: str, place: int, text: str) -> str:
        kind = ' class="number"' if place in numbers else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    top = "".join(cell("th", i, text) for i, text in enumerate(head))
    body = "".join(
        f"<tr>{''.join(cell('td', i, text) for i, text in enumerate(row))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def mean_of(span: Span) -> float:
    """The mean reward."""
    return span.total / span.rewards if span.rewards else math.nan


def number(value: float) -> str:
    """A number for people."""
    if math.isnan(value):
        return "–"
    return ("∞" if value > 0 else "−∞") if math.isinf(value) else f"{value:.3g}"


def api(document: dict[str, Any], who: str) -> str:
    """What the OpenAPI document says, to read."""
    parts = [
        "<h1>API</h1><p>JSON over HTTP. The key goes with every request: "
        "<code>Authorization: Bearer KEY</code>. The whole description: "
        '<a href="/openapi.json">openapi.json</a>.</p>'
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(
                f"<details><summary><code>{method.upper()} {escape(path)}</code> "
                f'<span class="quiet">{escape(operation["summary"])}</span></summary>'
            )
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema")
            if schema is not None:
                name = str(schema.get("$ref", "")).rpartition("/")[2]
                schema = document["components"]["schemas"].get(name, schema)
                parts.append(
                    f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
                )
            parts.append(f'<p class="note">Key: {escape(operation["x-key"])}</p></details>')
    return page("API", "".join(parts), who)
