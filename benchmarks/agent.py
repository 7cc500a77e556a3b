"""Speed of the live agent: `python benchmarks/agent.py`, and how it grows with K and d.

Each time is CPU time of the fastest of several stretches. With `--peers FOLDER`, where FOLDER has a
virtual environment for each other library (as `make bench-peers` makes them), their times for the
same decisions are measured in between, and the ratios printed.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tsucb

PEERS = ("vowpalwabbit", "obp", "contextualbandits", "mabwiser")
ROOT = Path(__file__).parents[1]

# Runs in a peer's own environment: times each of its policies on K = 10, d = 10.
TIME_A_PEER = """
import json, sys
from benchmarks.peers import libraries
from benchmarks.peers.measure import microseconds
for policy in getattr(libraries, sys.argv[1])():
    print(json.dumps([policy.name, policy.kind, microseconds(policy, 10, 10)[0]]))
"""


def fastest(step: Callable[[int], None], steps: int, stretches: int = 7) -> float:
    """Microseconds of CPU time per step, in the fastest stretch."""
    times = []
    for _ in range(stretches):
        begin = time.process_time()
        for i in range(steps):
            step(i)
        times.append((time.process_time() - begin) / steps)
    return 1e6 * min(times)


def decision_time(arms: int, features: int, policy: tsucb.Policy, steps: int) -> float:
    """One `choose` with its `reward`, on the problem that the peers get."""
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((features, arms))
    contexts = rng.standard_normal((steps, features)) / (features * 0.5)
    rewards = (contexts @ coefficients + rng.standard_normal((steps, 1))).tolist()
    agent = tsucb.Agent(range(arms), features, policy=policy, seed=0)
    choose, reward = agent.choose, agent.reward

    def step(i: int) -> None:
        decision = choose(contexts[i])
        reward(decision.id, rewards[i][decision.arm])

    step(0)
    return fastest(step, steps)


def peer_times(folder: Path) -> list[tuple[str, str, str, float]]:
    """Library, policy, kind and microseconds of every peer whose environment is there."""
    rows = []
    for library in PEERS:
        python = folder / library / "bin" / "python"
        if not python.exists():
            print(f"{library}: no environment at {python}", file=sys.stderr)
            continue
        done = subprocess.run(
            [str(python), "-c", TIME_A_PEER, library],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        for line in done.stdout.splitlines():
            if line.startswith("["):
                name, kind, microseconds = json.loads(line)
                rows.append((library, name, kind, microseconds))
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    options = parser.parse_args()

    print("choose + reward, K = 10, d = 10")
    ours = {p.name: decision_time(10, 10, p, 2_000) for p in (tsucb.TSUCB(1), tsucb.TSUCB(100))}
    for name, microseconds in ours.items():
        print(f"  tsucb {name:32} {microseconds:10.1f} µs")
    if options.peers:
        for library, name, kind, microseconds in peer_times(options.peers):
            ratios = ", ".join(f"{microseconds / t:.1f} × {n}" for n, t in ours.items())
            print(f"  {library} {name} ({kind}): {microseconds:.1f} µs = {ratios}")
        again = {p: decision_time(10, 10, p, 2_000) for p in (tsucb.TSUCB(1), tsucb.TSUCB(100))}
        print("  once more: " + ", ".join(f"{p.name} {t:.1f} µs" for p, t in again.items()))

    print("\nchoose + reward with TS-UCB(1)")
    for arms, features, steps in (
        *((k, 20, max(20, 20_000 // k)) for k in (10, 100, 1_000, 10_000)),
        *((10, d, max(20, 20_000 // d)) for d in (10, 30, 100, 300, 1_000)),
    ):
        microseconds = decision_time(arms, features, tsucb.TSUCB(1), min(steps, 2_000))
        print(f"  K = {arms:6,}  d = {features:5,} {microseconds:12,.1f} µs")


if __name__ == "__main__":
    main()
