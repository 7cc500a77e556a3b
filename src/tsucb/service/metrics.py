"""What Prometheus is told about the service and its loops."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tsucb.service.alerts import all_alerts
from tsucb.service.state import LoopCounts

if TYPE_CHECKING:
    from tsucb.service.application import Door
    from tsucb.service.loop import Loop
    from tsucb.service.service import Service

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


def gauges_of(loop: "Loop") -> tuple[float, ...]:
    """Return what is known of a loop now, in the order of `LOOP_GAUGES`."""
    whole = loop.tally.whole()
    lift, over = whole.interval()[1:], whole.over_holdout()[1:]
    return len(loop.open_decisions), len(loop.arms), whole.total, *lift, *over
