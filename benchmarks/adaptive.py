"""The cost of learning a prior: `AdaptiveLinear` beside `NIGLinear`, whose prior is fixed.

`python benchmarks/adaptive.py` prints a decision with its update on average over 10,000 steps,
refreshes included, as ratios in the same process; and the slowest reward of an agent with 20 arms
and 100 features. Nothing needs to be set in the environment: refreshes use no threads.
"""

import time

import numpy as np

import tsucb

STEPS = 10_000
ARMS = 10


def seconds(model: tsucb.Model, features: int) -> float:
    """Return the processor time of one run."""
    bandit = tsucb.ContextualLinearBandit(ARMS, features, noise=0.5)
    begin = time.process_time()
    tsucb.simulate(
        bandit, model, [tsucb.TSUCB(1)], horizon=STEPS, runs=1, workers=1, progress=False
    )
    return time.process_time() - begin


def slowest_reward(arms: int, features: int, rewards: int) -> float:
    """Return the longest time, by the clock, that an agent took for one reward."""
    rng = np.random.default_rng(0)
    agent = tsucb.Agent(range(arms), features, policy=tsucb.TSUCB(1), seed=0)
    slowest = 0.0
    for i in range(rewards):
        x = rng.normal(size=features)
        decision = agent.choose(x)
        begin = time.perf_counter()
        agent.reward(decision.id, float(x[0] + rng.normal()))
        if i > 0:  # the first compiles
            slowest = max(slowest, time.perf_counter() - begin)
    return slowest


def main() -> None:
    """Print the table."""
    print(f"{STEPS:,} steps, {ARMS} arms, in µs per step (the fastest of 5, one after the other)")
    for features in (10, 100):
        fixed, learned = tsucb.NIGLinear(features), tsucb.AdaptiveLinear(features)
        times = [(seconds(fixed, features), seconds(learned, features)) for _ in range(6)][1:]
        one, other = (min(each) / STEPS * 1e6 for each in zip(*times, strict=True))
        print(
            f"d = {features:3d}: NIGLinear {one:6.2f}, AdaptiveLinear {other:6.2f} "
            f"({other / one:4.2f}×)"
        )
    slowest = slowest_reward(20, 100, 2_000)
    print(f"The slowest of 2,000 rewards, 20 arms, 100 features: {slowest * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
