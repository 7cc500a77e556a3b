"""What a decision costs, sampled and exact: `python -m benchmarks.exact FILE.csv`.

Beliefs are those met in 60 steps of the synthetic contextual bandit of Figure 1 (noise 0.5). All
policies are timed in turn on the same beliefs, in three rounds; the fastest round counts. Times
are processor time, so that other work on the machine matters less.
"""

import math
import sys
import time
from typing import Any

import numpy as np
import pandas as pd

import tsucb
from benchmarks.output import commit
from tsucb.beliefs.belief import Belief
from tsucb.compiler import compiled
from tsucb.policies.policy import choose

POLICIES = (
    tsucb.Thompson(),
    tsucb.TSUCB(1),
    tsucb.TSUCB(100),
    tsucb.TSUCB(math.inf),
    tsucb.IDS(1000),
    tsucb.IDS(math.inf),
)
ARMS, STEPS, ROUNDS, REPEATS = (10, 60), 60, 3, 20


@compiled
def repeat(policy: Any, belief: Any, rng: np.random.Generator) -> None:
    """Repeat a decision, so that the call from Python does not count."""
    for _ in range(REPEATS):
        choose(policy, belief, rng)


def beliefs(arms: int) -> list[Belief]:
    """Return the beliefs that TS-UCB(1) meets in the first steps of a run."""
    bandit = tsucb.ContextualLinearBandit(arms, features=10, noise=0.5)
    rng = np.random.default_rng(1)
    world, model = bandit.begin(rng), bandit.model()
    state = model.start(arms)
    met = []
    for t in range(STEPS):
        context, _, _ = bandit.advance(world, t + 1, rng)
        belief = model.belief(state, context, rng=rng)
        met.append(belief)
        arm = tsucb.TSUCB(1).choose(belief, rng).arm
        model.update(state, context, arm, bandit.reward(world, arm))
    return met


def main() -> None:
    """Print the time of a decision and the ratios that matter; write the times to a file."""
    rows = []
    for arms in ARMS:
        met = beliefs(arms)
        rng = np.random.default_rng(0)
        fastest: dict[str, float] = {}
        for _ in range(ROUNDS + 1):  # the first round also compiles, and is never the fastest
            for policy in POLICIES:
                start = time.thread_time()
                for belief in met:
                    repeat(policy, belief, rng)
                spent = (time.thread_time() - start) / (len(met) * REPEATS)
                fastest[policy.name] = min(spent, fastest.get(policy.name, math.inf))
        print(f"{arms} arms: " + ", ".join(f"{n} {s * 1e6:.2f} µs" for n, s in fastest.items()))
        print(
            f"  IDS(1000) / IDS(∞) = {fastest['IDS(1000)'] / fastest['IDS(∞)']:.1f}, "
            f"TS-UCB(100) / TS-UCB(∞) = {fastest['TS-UCB(100)'] / fastest['TS-UCB(∞)']:.1f}"
        )
        rows += [(arms, name, 1e6 * seconds, commit()) for name, seconds in fastest.items()]
    table = pd.DataFrame(rows, columns=["arms", "policy", "microseconds", "commit"])
    table.to_csv(sys.argv[1], index=False, float_format="%.3g")


if __name__ == "__main__":
    main()
