"""Alerts of the service and of its loops, and metrics for Prometheus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tsucb.service.loop import Loop
from tsucb.service.state import LoopCounts, Span

if TYPE_CHECKING:
    from tsucb.service.application import Door
    from tsucb.service.service import Service

LEAST = 100  # decisions, or rewards, below which there is no alert about them
NOTICED = 1_000  # rewards for which a noticed change is an alert
LAG = 20_000  # events behind the log from which a server has an alert
LEAST_FREE = 0.05  # share of the disk below which there is an alert


class Alert(NamedTuple):
    """What needs attention: a code for programs, the loop (empty for the server), a sentence."""

    alert: str
    loop: str
    text: str


def all_alerts(service: "Service") -> list[Alert]:
    """Return the alerts of a server and of all its loops; blocks, as it reads every loop."""
    found = list(server_alerts(service))
    for loop in list(service.loops.values()):
        found += loop_alerts(loop)
    return found


def server_alerts(service: "Service") -> Iterator[Alert]:
    """Yield the alerts of a server: about its clock, log, store and disk."""
    for about, sentence in list(service.alerts.items()):
        yield Alert("skew" if about == "clock" else "log", "", sentence)
    if service.upkeep.failing:
        yield Alert("store", "", "the store does not take what it is given")
    if service.upkeep.lag > LAG:
        yield Alert("lag", "", f"this server is {service.upkeep.lag:,} events behind the log")
    if service.upkeep.disk_free < LEAST_FREE:
        yield Alert("disk", "", f"{100 * service.upkeep.disk_free:.1f} % of the disk are free")


def loop_alerts(loop: Loop) -> Iterator[Alert]:
    """Yield the alerts of a loop: about missing rewards, its lift, and noticed changes."""
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
    """A collector for prometheus_client, which reads the service and its loops on every scrape."""

    def __init__(self, service: "Service", door: "Door") -> None:
        self._service, self._door = service, door

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        service, door = self._service, self._door
        ledger, upkeep, loops = service.ledger, service.upkeep, list(service.loops.values())
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
        what = "What needs attention; see /v1/alerts."
        gauge = GaugeMetricFamily("tsucb_alert", what, labels=["alert", "loop"])
        for each in all_alerts(service):
            gauge.add_metric([each.alert, each.loop], 1)
        yield gauge
        for field in LoopCounts.__struct_fields__:
            what = f"{field.replace('_', ' ').capitalize()} of a loop."
            counter = CounterMetricFamily(f"tsucb_loop_{field}", what, labels=["loop"])
            for loop in loops:
                counter.add_metric([loop.name], getattr(loop.counts, field))
            yield counter
        for alike in zip(*map(loop_gauges, loops), strict=True):  # the same gauge of every loop
            name, what, _ = alike[0]
            gauge = GaugeMetricFamily(f"tsucb_loop_{name}", what, labels=["loop"])
            for loop, (_, _, value) in zip(loops, alike, strict=True):
                gauge.add_metric([loop.name], value)
            yield gauge


def loop_gauges(loop: Loop) -> Iterator[tuple[str, str, float]]:
    """Yield the name, the description and the value of every gauge of a loop."""
    whole = loop.tally.whole()
    yield "waiting", "Decisions that wait for a reward.", len(loop.open_decisions)
    yield "arms", "Arms known.", len(loop.arms)
    yield "reward_sum", "Sum of all rewards learned.", whole.total
    (_, low, high), over = whole.interval(), "95 % interval of the lift over"
    yield "lift_low", f"Lower end of the {over} random choice.", low
    yield "lift_high", f"Upper end of the {over} random choice.", high
    _, low, high = whole.over_holdout()
    yield "holdout_low", f"Lower end of the {over} the holdout.", low
    yield "holdout_high", f"Upper end of the {over} the holdout.", high
