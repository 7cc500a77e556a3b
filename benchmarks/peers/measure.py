"""Measure one library, inside its own environment: `python -m benchmarks.peers.measure LIBRARY`.

Prints one line of JSON for each result as it comes, so that a run that is cut off loses nothing.
"""

import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.peers import libraries
from benchmarks.peers.problem import Loop, Policy, draw, play, pull_each_arm_once, regret

SIZES = ((10, 10), (60, 10), (10, 136))  # (K, d)
GROWTH = (
    [(arms, 20) for arms in (10, 100, 1_000, 10_000)],
    [(10, features) for features in (10, 30, 100, 300, 1_000)],
)
SLOW = 0.05  # seconds a decision; slower policies are not tried at larger sizes
REGRET = (10, 10, 1_000)  # K, d, T
RUNS = 50  # at most, of the regret
SECONDS = 1.0  # spent on one time
REGRET_SECONDS = 10.0  # spent on one policy's regret
STRETCHES = 10  # of which the fastest counts, as the least disturbed
MEMORY = 12 * 2**30


def microseconds(policy: Policy | Loop, arms: int, features: int) -> tuple[float, int]:
    """Return the CPU time of one decision with its update, and how many were timed."""
    stretch = player(policy, arms, features)
    # A loop starts again with each stretch, which must be long enough for that not to matter.
    done, length, times = 0, 128 if isinstance(policy, Loop) else 1, [0.0]
    while len(times) < STRETCHES and length * sum(times) < SECONDS:
        if length * times[-1] < SECONDS / (2 * STRETCHES):  # too short to be timed
            length, times = 2 * length, []
        begin = time.process_time()
        stretch(range(done, done + length))
        times.append((time.process_time() - begin) / length)
        done += length
    return 1e6 * min(times), done


def player(policy: Policy | Loop, arms: int, features: int) -> Callable[[range], object]:
    """Return a function that plays further steps of a policy that has pulled every arm."""
    if isinstance(policy, Loop):
        policy.play(arms, features, 10)  # compile
        return lambda steps: policy.play(arms, features, len(steps))
    problem = draw(arms, features, 20_000, seed=0)
    learner = policy.make(problem, 0)
    pull_each_arm_once(learner, problem, 2 * SECONDS)
    play(learner, problem, range(10))
    return lambda steps: play(learner, problem, steps)


def regrets(policy: Policy) -> list[float]:
    """Return the total regret of runs 0, 1, 2, … until the time is up, of at least one run."""
    arms, features, steps = REGRET
    stop = time.perf_counter() + REGRET_SECONDS
    totals: list[float] = []
    while len(totals) < RUNS and (not totals or time.perf_counter() < stop):
        problem = draw(arms, features, steps, seed=1000 + len(totals))
        learner = policy.make(problem, len(totals))
        chosen = pull_each_arm_once(learner, problem) + play(learner, problem, range(arms, steps))
        totals.append(regret(problem, chosen))
    return totals


def timed(
    policy: Policy | Loop, sizes: list[tuple[int, int]], series: str
) -> Iterator[dict[str, Any]]:
    """Yield the times of a policy at growing sizes, until it is too slow or fails."""
    note = ""
    for arms, features in sizes:
        value, count = math.nan, 0
        if not note:
            try:
                value, count = microseconds(policy, arms, features)
            except (Exception, MemoryError) as error:
                note = f"failed at K = {arms:,}, d = {features:,}: {type(error).__name__}: {error}"
        fields = {"arms": arms, "features": features, "value": value, "count": count}
        yield {"measure": series, **fields, "note": note}
        if value > 1e6 * SLOW:
            note = f"{value / 1e3:,.0f} ms at K = {arms:,}, d = {features:,}: larger not tried"


def results(policies: list[Policy | Loop]) -> Iterator[dict[str, Any]]:
    """Yield everything that is measured of a library, the most important first."""
    for size in SIZES:
        for policy in policies:
            for row in timed(policy, [size], "speed"):
                yield {"policy": policy.name, "kind": policy.kind, **row}
    for policy in policies:
        if isinstance(policy, Policy):
            row = {"measure": "regret", "arms": REGRET[0], "features": REGRET[1], "note": ""}
            yield {"policy": policy.name, "kind": policy.kind, **row, "totals": regrets(policy)}
    for series, sizes in zip(("growth with K", "growth with d"), GROWTH, strict=True):
        for policy in policies:
            if policy.growth:
                for row in timed(policy, sizes, series):
                    yield {"policy": policy.name, "kind": policy.kind, **row}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for result in results(getattr(libraries, sys.argv[1])()):
        print(json.dumps(result), flush=True)
