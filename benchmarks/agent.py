"""Speed of the live agent: `python benchmarks/agent.py`, and how it grows with K and d.

Each time is CPU time of the fastest of several stretches. With `--peers FOLDER`, where FOLDER has a
virtual environment for each other library (as `make bench-peers` makes them), their times for the
same decisions are measured in turn with the agent's, and the ratios within a round are printed.
With `--out FILE.csv`, every median is written, with the least and the most.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from the repository, not installed

import tsucb
from benchmarks.output import commit

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


STRETCHES = 7


def fastest(step: Callable[[int], None], steps: int) -> float:
    """Return the microseconds of CPU time per step, in the fastest of several stretches."""
    times = []
    for stretch in range(STRETCHES):
        begin = time.process_time()
        for i in range(stretch * steps, (stretch + 1) * steps):
            step(i)
        times.append((time.process_time() - begin) / steps)
    return 1e6 * min(times)


# The settings of the agent, at K = 10 and d = 10.
OURS: dict[str, dict[str, Any]] = {
    "nothing set": {},
    "AdaptiveLinear, TS-UCB(1)": {"model": tsucb.AdaptiveLinear(10)},
    "AdaptiveLinear, TS-UCB(100)": {"model": tsucb.AdaptiveLinear(10), "policy": tsucb.TSUCB(100)},
    "NIGLinear, TS-UCB(1)": {"model": tsucb.NIGLinear(10), "policy": tsucb.TSUCB(1)},
}


def decision_time(arms: int, features: int, steps: int, **settings: Any) -> float:
    """Time one `choose` with its `reward`, on the problem that the peers get."""
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((features, arms))
    # No reward comes twice: curves would fit noise that repeats itself, and decide from then on.
    total = STRETCHES * steps
    contexts = rng.standard_normal((total, features)) / (features * 0.5)
    rewards = (contexts @ coefficients + rng.standard_normal((total, 1))).tolist()
    agent = tsucb.Agent(range(arms), features, seed=0, **settings)
    choose, reward = agent.choose, agent.reward

    def step(i: int) -> None:
        decision = choose(contexts[i])
        reward(decision.id, rewards[i][decision.arm])

    step(0)
    return fastest(step, steps)


def peer_times(folder: Path) -> dict[str, float]:
    """Return the microseconds of every policy of the peers that are installed."""
    rows = {}
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
                rows[f"{library} {name} ({kind})"] = microseconds
    return rows


def median_and_range(values: Any) -> str:
    return f"{np.median(values):8.2f} ({np.min(values):.2f} to {np.max(values):.2f})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    options = parser.parse_args()

    times: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        found = {name: decision_time(10, 10, 2_000, **each) for name, each in OURS.items()}
        if options.peers:
            found |= peer_times(options.peers)
        for name, microseconds in found.items():
            times.setdefault(name, []).append(microseconds)
    print(f"choose + reward, K = 10, d = 10: median of {options.rounds} rounds (least to most)")
    rows = []
    for name, each in times.items():
        print(f"  {name:55} {median_and_range(each)} µs")
        rows.append((name, "", np.median(each), min(each), max(each)))
        for own in OURS if name not in OURS else ():
            ratios = np.divide(each, times[own])
            print(f"{'':30}{median_and_range(ratios)} times the agent, {own}")
            rows.append((name, own, np.median(ratios), min(ratios), max(ratios)))
    if options.out:
        names = ["name", "times_that_of", "median", "least", "most"]
        table = pd.DataFrame(rows, columns=names).assign(rounds=options.rounds, commit=commit())
        table.to_csv(options.out, index=False, float_format="%.4g")

    print("\nchoose + reward with TS-UCB(1)")
    for arms, features, steps in (
        *((k, 20, max(20, 20_000 // k)) for k in (10, 100, 1_000, 10_000)),
        *((10, d, max(20, 20_000 // d)) for d in (10, 30, 100, 300, 1_000)),
    ):
        microseconds = decision_time(arms, features, min(steps, 2_000), policy=tsucb.TSUCB(1))
        print(f"  K = {arms:6,}  d = {features:5,} {microseconds:12,.1f} µs")


if __name__ == "__main__":
    main()
