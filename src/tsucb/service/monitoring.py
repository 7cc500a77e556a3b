"""What somebody should look at, and what Prometheus is told, found when it is asked for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tsucb.service.loop import Loop
from tsucb.service.state import LoopCounts, Span

if TYPE_CHECKING:
    from tsucb.service.application import Door
    from tsucb.service.service import Service

LEAST = 100  # decisions, or rewards, to say anything
NOTICED = 1_000  # rewards for which a noticed change is worth a look
LAG = 20_000  # events that a server may be behind the log
LEAST_FREE = 0.05  # share of the disk
# What is known of a loop, with a gauge each.
LOOP_GAUGES = {
    "waiting": "Decisions that wait for a reward.",
    "arms": "Arms known.",
    "reward_sum": "Sum of all rewards learned.",
    "lift_low": "Lower end of the 95 % interval of the lift over random choice.",
    "lift_high": "Upper end of that interval.",
    "holdout_low": "Lower end of the 95 % interval of the lift over the holdout.",
    "holdout_high": "Upper end of that interval.",
}


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


class ServiceMetrics:
    """Reads the service and its loops when Prometheus asks; a collector of its client."""

    def __init__(self, service: "Service", door: "Door") -> None:
        self._service, self._door = service, door

    def collect(self) -> Iterator[Metric]:
        service, door = self._service, self._door
        ledger, upkeep = service.ledger, service.upkeep
        for name, what, value in (
            ("up_seconds", "Seconds since the start.", service.clock() - upkeep.started),
            ("log_position", "Position of the last event.", ledger.position),
            ("events_unwritten", "Events that are not durable yet.", ledger.unwritten),
            ("clock_skew_seconds", "The machine's clock before the log's.", service.clock.skew),
            ("lag_events", "Events of the log that are not folded yet.", upkeep.lag),
            ("disk_free", "Share of the disk that is free.", upkeep.disk_free),
            ("store_failing", "1 if the store takes nothing.", upkeep.failing),
            ("requests", "Requests that are being answered.", door.requests),
            ("requests_limit", "Requests beyond which more are refused.", door.limit),
            ("connections", "Open connections.", door.connections),
        ):
            yield GaugeMetricFamily(f"tsucb_{name}", what, value)
        for name, what, value in (
            ("commits", "Flushes of the log.", ledger.commits),
            ("refused", "Requests refused past capacity.", door.refused),
            ("connections_closed", "Connections closed to make room.", door.sent_away),
        ):
            yield CounterMetricFamily(f"tsucb_{name}", what, value)
        alert = "What somebody should look at; see /v1/alerts."
        gauge = GaugeMetricFamily("tsucb_alert", alert, labels=["alert", "loop"])
        for each in all_alerts(service):
            gauge.add_metric([each.alert, each.loop], 1)
        yield gauge
        loops = list(service.loops.values())
        for field in LoopCounts.__struct_fields__:
            what = f"{field.replace('_', ' ').capitalize()} of a loop."
            counter = CounterMetricFamily(f"tsucb_loop_{field}", what, labels=["loop"])
            for loop in loops:
                counter.add_metric([loop.name], getattr(loop.counts, field))
            yield counter
        known = [(loop.name, gauges_of(loop)) for loop in loops]
        for place, (name, what) in enumerate(LOOP_GAUGES.items()):
            gauge = GaugeMetricFamily(f"tsucb_loop_{name}", what, labels=["loop"])
            for loop_name, values in known:
                gauge.add_metric([loop_name], values[place])
            yield gauge


def gauges_of(loop: Loop) -> tuple[float, ...]:
    """Return what is known of a loop now, in the order of `LOOP_GAUGES`."""
    whole = loop.tally.whole()
    lift, over = whole.interval()[1:], whole.over_holdout()[1:]
    return len(loop.open_decisions), len(loop.arms), whole.total, *lift, *over
