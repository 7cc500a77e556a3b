"""Speed of the compiled loop, as ratios to hand-written code in the same process.

`python benchmarks/engine.py` prints four tables: a decision with its update against a fused
loop written by hand for one policy and one model; many features and many arms against the bare
reading of what a decision must read; the sampling policies against the bare drawing of their
normals; and what threads, a second process and memory cost. `--sizes` prints the second alone.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import tsucb

FEATURES = 10


@numba.njit(fastmath=True, error_model="numpy", nogil=True)
def fused_ts_ucb(arms, d, noise, horizon, world, mind):  # type: ignore[no-untyped-def]
    """TS-UCB(1) on the contextual linear bandit, everything in one function, the arm last."""
    beta = np.empty((d, arms))
    for k in range(arms):
        for i in range(d):
            beta[i, k] = world.standard_normal() / math.sqrt(d)
    sigma = np.zeros((d, d, arms))
    for i in range(d):
        sigma[i, i] = 1 / d
    mu = np.zeros((d, arms))
    x, g = np.empty(d), np.empty(d)
    truth, mean, std = np.empty(arms), np.empty(arms), np.empty(arms)
    regret = 0.0
    for _ in range(horizon):
        for i in range(d):
            x[i] = world.standard_normal() / math.sqrt(d)
        epsilon = noise * world.standard_normal()
        truth[:] = 0.0
        mean[:] = 0.0
        std[:] = 0.0
        for i in range(d):
            for k in range(arms):
                truth[k] += x[i] * beta[i, k]
                mean[k] += x[i] * mu[i, k]
            for j in range(d):
                product = x[i] * x[j]
                for k in range(arms):
                    std[k] += product * sigma[i, j, k]
        best = -np.inf
        for k in range(arms):
            std[k] = math.sqrt(std[k])
            best = max(best, mean[k] + std[k] * mind.standard_normal())
        arm, lowest = 0, np.inf
        for k in range(arms):
            ratio = (best - mean[k]) / std[k]
            if ratio < lowest:
                arm, lowest = k, ratio
        total = noise * noise
        surprise = truth[arm] + epsilon
        for i in range(d):
            g[i] = 0.0
            for j in range(d):
                g[i] += sigma[i, j, arm] * x[j]
            total += g[i] * x[i]
            surprise -= x[i] * mu[i, arm]
        for i in range(d):
            mu[i, arm] += g[i] * surprise / total
            for j in range(d):
                sigma[i, j, arm] -= g[i] * g[j] / total
        regret += truth.max() - truth[arm]
    return regret


@numba.njit(nogil=True)
def bare_normals(count, rng):  # type: ignore[no-untyped-def]
    """Nothing but the drawing of normals."""
    total = 0.0
    for _ in range(count):
        total += rng.standard_normal()
    return total


@numba.njit(fastmath=True, nogil=True)
def bare_reading(numbers, times):  # type: ignore[no-untyped-def]
    """Nothing but the reading of an array, several times."""
    total = 0.0
    for _ in range(times):
        for i in range(numbers.size):
            total += numbers[i]
        numbers[0] = total  # or it would be read only once
    return total


def fastest(
    work: Callable[[], Any], repeat: int = 15, clock: Callable[[], float] = time.process_time
) -> float:
    """The shortest of several times, in seconds: the others were disturbed.

    Processor time, unless told otherwise: it leaves out what other programs took.
    """
    work()
    times = []
    for _ in range(repeat):
        begin = clock()
        work()
        times.append(clock() - begin)
    return min(times)


def simulated(
    arms: int, policy: tsucb.Policy, horizon: int, workers: int = 1, runs: int = 1,
    features: int = FEATURES,
) -> Any:  # fmt: skip
    bandit = tsucb.ContextualLinearBandit(arms, features, noise=0.5)
    return tsucb.simulate(
        bandit,
        bandit.model(),
        [policy],
        horizon=horizon,
        runs=runs,
        workers=workers,
        progress=False,
    )


def sizes() -> None:
    """Many features, and many arms: their matrices do not fit into the fastest cache."""
    print("TS-UCB(1), in µs per decision with its update (ratio to reading K·d(d + 1)/2 numbers)")
    for arms, features, horizon in ((10, 136, 1500), (1000, 20, 500)):
        numbers = np.zeros(arms * features * (features + 1) // 2)
        bare = fastest(lambda n=numbers: bare_reading(n, 200)) / 200  # type: ignore[misc]
        spent = fastest(
            lambda a=arms, f=features, h=horizon: simulated(a, tsucb.TSUCB(1), h, features=f)  # type: ignore[misc]
        )
        each = spent / horizon
        print(
            f"K = {arms:4d}, d = {features:3d} {each * 1e6:9.1f}  "
            f"reading {numbers.nbytes / 1e6:.2f} MB {bare * 1e6:6.1f}  ({each / bare:4.2f}×)"
        )


def main() -> None:
    """Print the tables."""
    if "--sizes" in sys.argv:
        sizes()
        return
    print("One decision with its update, d = 10, one core, in µs (ratio to the fused loop)")
    horizon = 20_000
    policies = (tsucb.TSUCB(1), tsucb.Thompson(), tsucb.Greedy(), tsucb.OFUL())
    print(f"{'K':>4} {'fused':>8}" + "".join(f"{p.name:>18}" for p in policies))
    world, mind = np.random.default_rng(0), np.random.default_rng(1)
    for arms in (10, 60):
        fused = fastest(lambda a=arms: fused_ts_ucb(a, FEATURES, 0.5, horizon, world, mind))  # type: ignore[misc]
        cells = []
        for policy in policies:
            spent = fastest(lambda a=arms, p=policy: simulated(a, p, horizon))  # type: ignore[misc]
            cells.append(f"{spent / horizon * 1e6:8.2f} ({spent / fused:4.2f}×)")
        print(f"{arms:4d} {fused / horizon * 1e6:8.2f}" + "".join(f"{c:>18}" for c in cells))

    print()
    sizes()
    print("\nSampling policies, in µs per decision (ratio to the bare drawing of m·K normals)")
    rng = np.random.default_rng(2)
    for arms in (10, 60):
        for sampler, samples in ((tsucb.TSUCB(100), 100), (tsucb.IDS(1000), 1000)):
            steps = 600_000 // (arms * samples) + 20
            bare = fastest(lambda n=arms * samples * steps: bare_normals(n, rng)) / steps  # type: ignore[misc]
            spent = fastest(lambda a=arms, p=sampler, h=steps: simulated(a, p, h)) / steps  # type: ignore[misc]
            print(
                f"K = {arms:2d}  {sampler.name:12} {spent * 1e6:9.1f}  "
                f"bare {bare * 1e6:9.1f}  ({spent / bare:4.2f}×)"
            )

    cores = len(os.sched_getaffinity(0))
    one = fastest(lambda: simulated(10, tsucb.TSUCB(1), 20_000, 1, 2 * cores), 5, time.perf_counter)
    many = fastest(
        lambda: simulated(10, tsucb.TSUCB(1), 20_000, cores, 2 * cores), 5, time.perf_counter
    )
    print(f"\nThreads: {cores} workers are {one / many:.2f} times as fast as one")

    code = (
        "import time; t = time.perf_counter(); import tsucb;"
        "b = tsucb.ContextualLinearBandit(10);"
        "tsucb.simulate(b, b.model(), [tsucb.TSUCB(1)], horizon=1, runs=1, progress=False);"
        "print(time.perf_counter() - t)"
    )
    seconds = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    print(f"A second process: {float(seconds):.2f} s from import to the first step")

    code = (
        "import tsucb;"
        "b = tsucb.ContextualLinearBandit(60);"
        "tsucb.simulate(b, b.model(), [tsucb.TSUCB(1)], horizon=10_000, runs=200, progress=False);"
        # Not `resource.getrusage`, which counts the memory of the parent too.
        "print(*(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    kilobytes = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    print(f"Memory of 200 runs, K = 60, d = 10, T = 10,000: {int(kilobytes) / 1024:.0f} MB in all")


if __name__ == "__main__":
    main()
