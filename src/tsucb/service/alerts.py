"""What somebody should look at, found when it is asked for: for programs, metrics and the page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tsucb.service.loop import Loop
from tsucb.service.state import Span

if TYPE_CHECKING:
    from tsucb.service.service import Service

LEAST = 100  # decisions, or rewards, to say anything
NOTICED = 1_000  # rewards for which a noticed change is worth a look
LAG = 20_000  # events that a server may be behind the log
LEAST_FREE = 0.05  # share of the disk


class Alert(NamedTuple):
    """Something to look at: a word for programs, the loop (empty for the server), a sentence."""

    alert: str
    loop: str
    text: str


def all_alerts(service: "Service") -> list[Alert]:
    """Return the alerts of a server and of all its loops; looks at every loop, so it blocks."""
    found = list(server_alerts(service))
    for loop in list(service.loops.values()):
        found += loop_alerts(loop)
    return found


def server_alerts(service: "Service") -> Iterator[Alert]:
    """Yield what is wrong with a server: its clock, log, store and disk."""
    for about, sentence in list(service.alerts.items()):
        yield Alert("skew" if about == "clock" else "log", "", sentence)
    if service.upkeep.failing:
        yield Alert("store", "", "the store does not take what it is given")
    if service.upkeep.lag > LAG:
        yield Alert("lag", "", f"this server is {service.upkeep.lag:,} events behind the log")
    if service.upkeep.disk_free < LEAST_FREE:
        yield Alert("disk", "", f"{100 * service.upkeep.disk_free:.1f} % of the disk are free")


def loop_alerts(loop: Loop) -> Iterator[Alert]:
    """Yield what is wrong with a loop: its rewards, its lift, changes that were noticed."""
    spans = loop.tally.until(loop.ripe)
    recent = Span(0.0, arms={})
    for span in reversed(spans):
        recent.add(span)
        if recent.decisions >= LEAST:
            break
    if recent.decisions >= LEAST and not recent.came:
        text = f"the last {recent.decisions:,} decisions whose wait is over got no reward"
        yield Alert("no_rewards", loop.name, text)
    whole = Span.together(spans)
    if whole.rewards >= LEAST and whole.interval()[2] < 0:
        yield Alert("lift_below_zero", loop.name, "it earns less than random choice would")
    if whole.held >= LEAST and whole.over_holdout()[2] < 0:
        yield Alert("holdout_earns_more", loop.name, "the holdout's baseline earns more")
    recently = [c for c in loop.noticed_changes() if loop.counts.learned - c.step < NOTICED]
    if recently:
        ago = loop.counts.learned - recently[-1].step
        text = f"a change was noticed {ago:,} rewards ago, {recently[-1]}"
        yield Alert("drift", loop.name, text)
