"""What the service counts, as Prometheus reads it."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tsucb.service.service import Service

PREFIX = "tsucb"


class Metrics:
    """Counts of this process; those of loops are their own."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self.refused = 0
        self.answers: dict[tuple[str, int], int] = {}

    def answered(self, protocol: str, status: int) -> None:
        """Count an answer."""
        name = protocol if protocol in ("v1", "personalizer") else "page"
        self.answers[name, status] = self.answers.get((name, status), 0) + 1

    def text(self) -> str:
        """All of them, in Prometheus' format."""
        service, lines = self._service, Lines()
        lines.add("up_seconds", "gauge", "since the start", service.clock() - service.started)
        lines.add("resident_bytes", "gauge", "memory of the process", resident())
        lines.add("log_position", "gauge", "of the last event folded", service.position)
        lines.add("events_unwritten", "gauge", "not durable yet", service.journal.waiting)
        lines.add("commits_total", "counter", "flushes of the log", service.journal.commits)
        lines.add("store_failing", "gauge", "1 if it takes nothing", service.failing)
        lines.add("refused_total", "counter", "requests past capacity", self.refused)
        for (name, status), count in sorted(self.answers.items()):
            labels = {"protocol": name, "status": str(status)}
            lines.add("answers_total", "counter", "requests answered", count, labels)
        for loop in service.loops.values():
            labels, counts = {"loop": loop.name}, loop.counts
            for field in counts.__struct_fields__:
                value = getattr(counts, field)
                lines.add(f"loop_{field}_total", "counter", f"{field} of a loop", value, labels)
            lines.add("loop_waiting", "gauge", "open decisions", len(loop.waiting), labels)
            lines.add("loop_arms", "gauge", "arms known", len(loop.arms), labels)
            whole = loop.tally.whole()
            lines.add("loop_reward_sum", "gauge", "of all rewards learned", whole.total, labels)
        return lines.text()


class Lines:
    """Samples grouped by their names."""

    def __init__(self) -> None:
        self._groups: dict[str, list[str]] = {}

    def add(
        self, name: str, kind: str, what: str, value: float, labels: dict[str, str] | None = None
    ) -> None:
        """One sample."""
        whole = f"{PREFIX}_{name}"
        group = self._groups.setdefault(whole, [f"# HELP {whole} {what}", f"# TYPE {whole} {kind}"])
        shown = ",".join(f'{key}="{escaped(text)}"' for key, text in (labels or {}).items())
        group.append(f"{whole}{{{shown}}} {float(value):g}" if shown else f"{whole} {value:.15g}")

    def text(self) -> str:
        """All samples."""
        return "\n".join(line for group in self._groups.values() for line in group) + "\n"


def escaped(text: str) -> str:
    """A label's value.

    >>> print(escaped('a "b"'))
    a \\"b\\"
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resident() -> int:
    """The memory of this process in bytes, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
