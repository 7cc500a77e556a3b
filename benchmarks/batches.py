"""Many decisions at once, beside other libraries: `python benchmarks/batches.py`.

Microseconds of CPU time per row for deciding a batch, and for learning the rewards of one, in four
sizes. Each library runs in a process of its own, on one thread, in the environment that
`python -m benchmarks.peers` makes for it; the processes take turns, so that all of them meet the
same disturbances, and the least of the rounds is printed.

What others do for a row differs: MABWiser and bayesianbandits return arms alone, MABWiser's LinUCB
without drawing anything, and bayesianbandits draws one set of coefficients for a whole batch. Here
the arms are returned as well, and the decisions are open under their ids.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

SIZES = ((10, 10, 10_000), (10, 100, 10_000), (100, 20, 10_000), (100, 200, 1_000))
# Two functions of a library: decide for a matrix of contexts, and learn its rewards.
Batch = tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Any]]


def tsucb_rule(rule: str, by_ids: bool = False) -> Callable[[int, int], Batch]:
    """Return this library's agent with the model of the other libraries."""

    def make(arms: int, features: int) -> Batch:
        import tsucb

        policy = {"TS-UCB(1)": tsucb.TSUCB(1), "TS": tsucb.Thompson(), "UCB": tsucb.OFUL()}[rule]
        model = tsucb.ContextualLinear(features)
        agent = tsucb.Agent(list(range(arms)), model=model, policy=policy, seed=0)
        made: list[Any] = []

        def choose(x: Any) -> Any:
            decisions = agent.choose_many(x)
            made.append(decisions.ids if by_ids else decisions)
            return decisions.arms

        def learn(x: Any, chosen: Any, rewards: Any) -> None:
            agent.reward_many(made.pop(), rewards)

        return choose, learn

    return make


def mabwiser_rule(rule: str) -> Callable[[int, int], Batch]:
    """Return MABWiser, fitted with one row for each arm."""

    def make(arms: int, features: int) -> Batch:
        from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found]

        policy = getattr(LearningPolicy, rule)(alpha=1.0, l2_lambda=1.0)
        bandit = MAB(list(range(arms)), policy, seed=0)
        bandit.fit(np.arange(arms), np.zeros(arms), np.ones((arms, features)))
        return bandit.predict, lambda x, chosen, rewards: bandit.partial_fit(chosen, rewards, x)

    return make


def bayesianbandits_rule(arms: int, features: int) -> Batch:
    """Return the agent of bayesianbandits with Thompson sampling, which learns arm by arm."""
    import bayesianbandits as bb  # type: ignore[import-not-found]

    learners = [bb.Arm(k, learner=bb.NormalRegressor(alpha=1.0, beta=1.0)) for k in range(arms)]
    agent = bb.ContextualAgent(learners, bb.ThompsonSampling(), random_seed=0)

    def learn(x: Any, chosen: Any, rewards: Any) -> None:
        for k in np.unique(chosen).tolist():
            rows = chosen == k
            agent.select_for_update(k).update(x[rows], rewards[rows])

    return agent.pull, learn


CONTESTANTS: dict[str, tuple[str, Callable[[int, int], Batch]]] = {
    "tsucb, TS-UCB(1)": ("tsucb", tsucb_rule("TS-UCB(1)")),
    "tsucb, and ids": ("tsucb", tsucb_rule("TS-UCB(1)", by_ids=True)),
    "tsucb, TS": ("tsucb", tsucb_rule("TS")),
    "tsucb, UCB": ("tsucb", tsucb_rule("UCB")),
    "mabwiser, LinUCB": ("mabwiser", mabwiser_rule("LinUCB")),
    "mabwiser, LinTS": ("mabwiser", mabwiser_rule("LinTS")),
    "bayesianbandits, TS": ("bayesianbandits", bayesianbandits_rule),
}


def serve(name: str) -> None:
    """Answer each size on the standard input with the times of deciding and of learning a row."""
    made: dict[tuple[int, int], Any] = {}
    for line in sys.stdin:
        arms, features, rows = json.loads(line)
        if (arms, features) not in made:
            rng = np.random.default_rng(0)
            chosen = rng.integers(arms, size=rows)
            data = rng.normal(size=(rows, features)), chosen, rng.normal(size=rows)
            made[arms, features] = *CONTESTANTS[name][1](arms, features), data
            choose, learn, (x, _, rewards) = made[arms, features]
            choose(x)
            learn(x, chosen, rewards)  # compile, and leave the prior
        choose, learn, (x, chosen, rewards) = made[arms, features]
        times = [time.process_time()]
        choose(x)
        times.append(time.process_time())
        learn(x, chosen, rewards)
        times.append(time.process_time())
        print(json.dumps([1e6 * spent / rows for spent in np.diff(times)]), flush=True)


def ask(process: "subprocess.Popen[str]", size: tuple[int, int, int]) -> list[float]:
    """Ask a process for one measurement."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(size) + "\n")
    process.stdin.flush()
    return list(json.loads(process.stdout.readline()))


def main() -> None:
    """Time the libraries in turn, and print two tables."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    from benchmarks.peers.__main__ import install

    processes: dict[str, subprocess.Popen[str]] = {}
    for name, (library, _) in CONTESTANTS.items():
        python, problem = install(library)
        if python is None:
            print(f"{name}: {problem}")
            continue
        processes[name] = subprocess.Popen(
            [str(python), __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    best: dict[tuple[str, int], list[float]] = {}
    for size, wanted in enumerate(SIZES):
        for _ in range(options.rounds):
            for name, process in processes.items():
                found = ask(process, wanted)
                before = best.get((name, size), found)
                best[name, size] = [min(pair) for pair in zip(found, before, strict=True)]
    for process in processes.values():
        process.communicate()
    for part, title in enumerate(("deciding", "learning")):
        print(f"\n{title}, µs per row")
        print(" " * 22 + "".join(f"{f'K = {k}, d = {d}':>18}" for k, d, _ in SIZES))
        for name in processes:
            cells = [f"{best[name, size][part]:18.3g}" for size in range(len(SIZES))]
            print(f"{name:22}" + "".join(cells))


if __name__ == "__main__":
    main()
