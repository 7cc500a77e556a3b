"""The time of one reward with forgetting: `python benchmarks/forgetting.py` prints microseconds."""

import time

import numpy as np

import tsucb

REWARDS, REPETITIONS, GAMMA = 4_000, 5, 0.999


def microseconds(model: tsucb.Model, arms: int, features: int) -> float:
    """Return the processor time of one reward, the least of a few repetitions."""
    rng = np.random.default_rng(0)
    contexts, rewards = rng.normal(size=(REWARDS, features)), rng.normal(size=REWARDS)
    played = rng.integers(arms, size=REWARDS)
    state = model.fit(arms, contexts, played, rewards)
    times = []
    for _ in range(REPETITIONS):
        begin = time.thread_time()
        model.update(state, contexts, played, rewards)
        times.append(time.thread_time() - begin)
    return min(times) / REWARDS * 1e6


def main() -> None:
    """Print a table."""
    for arms, features in ((10, 10), (50, 20)):
        for plain in (tsucb.ContextualLinear(features), tsucb.NIGLinear(features)):
            without, forgetting = (
                microseconds(model, arms, features)
                for model in (plain, tsucb.Forgetting(plain, GAMMA))
            )
            print(
                f"{type(plain).__name__}, {arms} arms, {features} features: {without:.1f} µs a "
                f"reward, {forgetting:.1f} with forgetting"
            )


if __name__ == "__main__":
    main()
