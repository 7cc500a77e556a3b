"""What the service counts, for Prometheus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tsucb.service.alerts import all_alerts
from tsucb.service.state import Span

if TYPE_CHECKING:
    from tsucb.service.application import Door
    from tsucb.service.loop import Loop
    from tsucb.service.service import Service

PROTOCOLS = ("v1", "personalizer")
OPERATIONS = ("decide", "reward", "activate", "rank")  # with a latency of their own
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds


class Metrics:
    """Counts of this process; those of loops are read from the loops."""

    def __init__(self, service: "Service", door: "Door") -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "tsucb_answers", "Requests answered.", ["protocol", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "tsucb_answer_seconds", "Time from a whole request to its answer.",
            ["protocol", "operation"], buckets=BUCKETS, registry=self._registry,
        )  # fmt: skip
        # To find the child of some labels takes longer than to count.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        ProcessCollector(namespace="tsucb", registry=self._registry)
        self._registry.register(_Reading(service, door))

    def answered(self, path: list[str], status: int, seconds: float) -> None:
        """Count an answer."""
        protocol = path[0] if path[0] in PROTOCOLS else "page"
        operation = path[-1] if path[-1] in OPERATIONS else "other"
        child = self._children.get((protocol, operation, status))
        if child is None:
            child = (
                self._answers.labels(protocol, str(status)),
                self._seconds.labels(protocol, operation),
            )
            self._children[protocol, operation, status] = child
        child[0].inc()
        child[1].observe(seconds)

    def text(self) -> bytes:
        """Return all of them in the format of Prometheus."""
        return generate_latest(self._registry)


class _Reading:
    """Reads the service and its loops when Prometheus asks."""

    def __init__(self, service: "Service", door: "Door") -> None:
        self._service, self._door = service, door

    def describe(self) -> list[Metric]:
        """Say nothing before there is something to read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield what is known now."""
        service, door, journal = self._service, self._door, self._service.ledger.journal
        gauges: dict[str, tuple[str, float]] = {
            "up_seconds": ("Seconds since the start.", service.clock() - service.upkeep.started),
            "log_position": ("Position of the last event.", service.ledger.position),
            "events_unwritten": ("Events that are not durable yet.", journal.waiting),
            "clock_skew_seconds": ("The machine's clock before the log's.", service.clock.skew),
            "lag_events": ("Events of the log that are not folded yet.", service.upkeep.lag),
            "disk_free": ("Share of the disk that is free.", service.upkeep.disk_free),
            "store_failing": ("1 if the store takes nothing.", service.upkeep.failing),
            "requests": ("Requests that are being answered.", door.requests),
            "requests_limit": ("Requests beyond which more are refused.", door.limit),
            "connections": ("Open connections.", door.connections),
        }
        for name, (what, value) in gauges.items():
            yield GaugeMetricFamily(f"tsucb_{name}", what, value)
        counters = {
            "commits": ("Flushes of the log.", journal.commits),
            "refused": ("Requests refused past capacity.", door.refused),
            "connections_closed": ("Connections closed to make room.", door.sent_away),
        }
        for name, (what, value) in counters.items():
            yield CounterMetricFamily(f"tsucb_{name}", what, value)
        gauge = GaugeMetricFamily(
            "tsucb_alert", "What somebody should look at; see /v1/alerts.", labels=["alert", "loop"]
        )
        for each in all_alerts(service):
            gauge.add_metric([each.alert, each.loop], 1)
        yield gauge
        yield from self._of_loops()

    def _of_loops(self) -> Iterator[Metric]:
        loops = list(self._service.loops.values())
        for field in type(loops[0].counts).__struct_fields__ if loops else ():
            family = CounterMetricFamily(
                f"tsucb_loop_{field}", f"{field.replace('_', ' ').capitalize()} of a loop.",
                labels=["loop"],
            )  # fmt: skip
            for loop in loops:
                family.add_metric([loop.name], getattr(loop.counts, field))
            yield family
        known = {loop.name: gauges_of(loop) for loop in loops}
        for name, what in (
            ("waiting", "Decisions that wait for a reward."),
            ("arms", "Arms known."),
            ("reward_sum", "Sum of all rewards learned."),
            ("lift_low", "Lower end of the 95 % interval of the lift over random choice."),
            ("lift_high", "Upper end of that interval."),
            ("holdout_low", "Lower end of the 95 % interval of the lift over the holdout."),
            ("holdout_high", "Upper end of that interval."),
        ):
            gauge = GaugeMetricFamily(f"tsucb_loop_{name}", what, labels=["loop"])
            for loop_name, values in known.items():
                gauge.add_metric([loop_name], values[name])
            yield gauge


def gauges_of(loop: "Loop") -> dict[str, float]:
    """Return what is known of a loop now."""
    whole = Span.together(list(loop.tally.spans))
    return {
        "waiting": len(loop.waiting),
        "arms": len(loop.arms),
        "reward_sum": whole.total,
        **dict(zip(("lift_low", "lift_high"), whole.interval()[1:], strict=True)),
        **dict(zip(("holdout_low", "holdout_high"), whole.over_holdout()[1:], strict=True)),
    }
