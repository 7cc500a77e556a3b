"""Speed of the compiled loop and of the agent, as ratios to hand-written code in the same process.

`make bench` times a decision with its update, and compares

- the simulation loop and the agent with a loop written by hand for one policy and one model;
- the policies that sample with drawing their normals and nothing else;
- many features and many arms with reading the numbers of a decision and nothing else.

It prints every ratio with its change since the last run on such a machine, and what threads, a
second process and memory cost. Runs are kept in `results/bench/history.jsonl`.
"""

import argparse
import functools
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # idle threads would spin on the cores

import numba
import numpy as np

import tsucb
from benchmarks.rounds import History, Work, change, figures, machine

FEATURES = 10
HORIZON = 60_000  # so long that the start of a run, about 1 ms, is 1 or 2 % of it
AGENT_STEPS = 2_000


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
    """Draw normals, and do nothing else."""
    total = 0.0
    for _ in range(count):
        total += rng.standard_normal()
    return total


@numba.njit(fastmath=True, nogil=True)
def bare_reading(numbers, times):  # type: ignore[no-untyped-def]
    """Read an array several times, and do nothing else."""
    total = 0.0
    for _ in range(times):
        for i in range(numbers.size):
            total += numbers[i]
        numbers[0] = total  # or it would be read only once
    return total


def fastest(work: Callable[[], Any], repeat: int = 5) -> float:
    """Return the shortest of several times by the clock, in seconds, as the least disturbed."""
    work()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
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


def played(**settings: Any) -> Callable[[], None]:
    """Let a live agent decide and learn, one decision at a time."""
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((AGENT_STEPS, FEATURES))
    agent = tsucb.Agent(range(10), FEATURES, seed=0, **settings)
    choose, reward = agent.choose, agent.reward

    def work() -> None:
        for x in contexts:
            reward(choose(x).id, 0.5)

    for x in contexts:
        reward(choose(x).id, float(rng.standard_normal()))
    return work


def works() -> dict[str, Work]:
    """Return the functions to time, by their names in the history."""
    world, mind, rng = (np.random.default_rng(seed) for seed in range(3))
    found: dict[str, Work] = {}

    def add(name: str, call: Callable[..., Any], *given: Any, decisions: int, **rest: Any) -> None:
        found[name] = Work(functools.partial(call, *given), decisions, **rest)

    for arms in (10, 60):
        fused = f"K = {arms}: fused loop"
        add(fused, fused_ts_ucb, arms, FEATURES, 0.5, HORIZON, world, mind, decisions=HORIZON)
        for policy in (tsucb.TSUCB(1), tsucb.Thompson(), tsucb.Greedy(), tsucb.OFUL()):
            name = f"K = {arms}: {policy.name}"
            add(name, simulated, arms, policy, HORIZON, decisions=HORIZON, against=fused)
    for arms in (10, 60):
        for sampler, samples in ((tsucb.TSUCB(100), 100), (tsucb.IDS(1000), 1000)):
            normals = f"K = {arms}: {samples * arms:,} normals"
            steps = 2_400_000 // (arms * samples) + 20
            add(normals, bare_normals, arms * samples * steps, rng, decisions=steps)
            name = f"K = {arms}: {sampler.name}"
            add(name, simulated, arms, sampler, steps, decisions=steps, against=normals)
    for arms, features, steps in ((10, 136, 1_500), (1_000, 20, 1_000)):
        numbers = np.zeros(arms * features * (features + 1) // 2)  # of the arms' triangular roots
        size = f"K = {arms}, d = {features}"
        reading = f"{size}: reading {numbers.nbytes / 1e6:.2f} MB"
        add(reading, bare_reading, numbers, steps, decisions=steps)
        given = (arms, tsucb.TSUCB(1), steps, 1, 1, features)
        add(f"{size}: TS-UCB(1)", simulated, *given, decisions=steps, against=reading)
    nig = played(model=tsucb.NIGLinear(FEATURES), policy=tsucb.TSUCB(1))
    add("agent, nothing set", played(), decisions=AGENT_STEPS, against="K = 10: fused loop")
    add("agent, NIGLinear, TS-UCB(1)", nig, decisions=AGENT_STEPS, against="K = 10: fused loop")
    return found


def main() -> None:
    """Print the table and the rest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="in which everything is timed once")
    parser.add_argument("--history", type=Path, default=Path("results/bench/history.jsonl"))
    options = parser.parse_args()
    where, history = machine(), History(options.history)
    print(", ".join(f"{name} {value}" for name, value in where.items()))
    timed = works()
    found, before = figures(timed, options.rounds), history.last(where)
    print(
        f"\nOne decision with its update, d = {FEATURES} if nothing is said: processor time and "
        f"ratio, medians of {options.rounds}\nrounds; at the end, the ratio's change since the "
        "last run"
    )
    for name, figure in found.items():
        against = f" × {timed[name].against}" if timed[name].against else ""
        print(f"  {name:30} {figure}{against} {change(figure, before.get(name))}")
    history.add(where, found, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    if not before:
        print(f"no earlier run on such a machine in {options.history}: this one is kept there")

    cores = len(os.sched_getaffinity(0))
    one = fastest(lambda: simulated(10, tsucb.TSUCB(1), HORIZON, 1, 2 * cores))
    many = fastest(lambda: simulated(10, tsucb.TSUCB(1), HORIZON, cores, 2 * cores))
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
