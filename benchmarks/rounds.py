"""Timing on machines that are busy with other things, and a history to compare with.

Calls are timed in rounds, each once in every round, in processor time. The result is the ratio of
two calls in the same round, which does not depend on the speed of the machine at that minute. The
median over the rounds does not depend on single disturbed rounds.
"""

import json
import math
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.output import processor
from tsucb.files import write_whole

SMALL = 0.03  # smaller changes are not reported


class Work(NamedTuple):
    """A call to time, how many decisions it makes, and the name of the work to compare it with."""

    call: Callable[[], Any]
    decisions: int
    against: str | None = None


class Figure(NamedTuple):
    """A work's time for a decision in µs, and its ratio to another's: median and margin.

    The margin is that of a notched box plot, 1.57 interquartile ranges over the root of the number
    of rounds: medians whose margins do not overlap differ at about 5 %. Both are NaN without a
    ratio.
    """

    microseconds: float
    ratio: float
    margin: float

    def __str__(self) -> str:
        time = f"{self.microseconds:9.2f} µs"
        return time if math.isnan(self.ratio) else f"{time} {self.ratio:6.2f} ± {self.margin:.2f}"


def figures(works: Mapping[str, Work], rounds: int = 21) -> dict[str, Figure]:
    """Time all works in turn, after a first call of each."""
    for work in works.values():
        work.call()
    times = np.empty((len(works), rounds))
    for column in range(rounds):
        for row, work in enumerate(works.values()):
            begin = time.process_time()
            work.call()
            times[row, column] = (time.process_time() - begin) / work.decisions
    rows = dict(zip(works, times, strict=True))
    return {name: figure(rows[name], rows.get(work.against or "")) for name, work in works.items()}


def figure(times: Any, reference: Any = None) -> Figure:
    """Return the figure of a work from its seconds in every round, and those of another work."""
    microseconds = 1e6 * float(np.median(times))
    if reference is None:
        return Figure(microseconds, math.nan, math.nan)
    low, middle, high = np.quantile(np.asarray(times) / reference, (0.25, 0.5, 0.75))
    return Figure(microseconds, float(middle), float(1.57 * (high - low) / math.sqrt(len(times))))


def machine() -> dict[str, str]:
    """Return the processor, and the versions of what makes code fast or slow."""
    packages = {package: version(package) for package in ("numba", "llvmlite", "numpy")}
    return {"processor": processor(), "python": platform.python_version(), **packages}


class History:
    """Figures of earlier runs, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self, where: Mapping[str, str]) -> dict[str, Figure]:
        """Return the figures of the last run on such a machine; none without a run."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in reversed(lines):
            run = json.loads(line)
            if run["machine"] == where:
                return {name: Figure(*map(float, each)) for name, each in run["figures"].items()}
        return {}

    def add(self, where: Mapping[str, str], found: Mapping[str, Figure], when: str) -> None:
        """Append a run."""
        run = {"when": when, "machine": where, "figures": {n: list(f) for n, f in found.items()}}
        before = self.path.read_text() if self.path.exists() else ""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, before + json.dumps(run) + "\n")


def change(now: Figure, before: Figure | None) -> str:
    """Return how a ratio differs from an earlier run, and whether that is more than noise."""
    if before is None or math.isnan(now.ratio) or math.isnan(before.ratio):
        return ""
    share = now.ratio / before.ratio - 1
    beyond = abs(now.ratio - before.ratio) > now.margin + before.margin and abs(share) > SMALL
    return f"{share:+7.1%}" + (("  SLOWER" if share > 0 else "  faster") if beyond else "")
