"""How decisions grow with threads and processes: `python benchmarks/threads.py`.

Every worker has an agent of its own, a copy of one, and plays the same number of decisions with
their rewards, one by one or many at a time. What is printed is how many times as many decisions a
second all of them make as one alone does; a worker on a core of its own is the ideal.
"""

import argparse
import copy
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tsucb

SIZES = ((10, 10), (50, 50), (100, 100))
BATCH = 1_000


def one_by_one(agent: tsucb.Agent, contexts: Any) -> None:
    """`choose` and `reward`."""
    for x in contexts:
        agent.reward(agent.choose(x).id, 0.5)


def many(agent: tsucb.Agent, contexts: Any) -> None:
    """`choose_many` and `reward_many`."""
    agent.reward_many(agent.choose_many(contexts).ids, np.full(len(contexts), 0.5))


def seconds(
    kind: Callable[..., Any], play: Callable[..., None], agents: list[tsucb.Agent], contexts: Any
) -> float:
    """The time from when all workers are ready until the last of them is done."""
    gate: Any = (threading if kind is threading.Thread else multiprocessing).Barrier(
        len(agents) + 1
    )

    def work(agent: tsucb.Agent) -> None:
        play(agent, contexts[:10])
        gate.wait()
        play(agent, contexts)
        gate.wait()

    workers = [kind(target=work, args=(agent,)) for agent in agents]
    for worker in workers:
        worker.start()
    gate.wait()
    begin = time.perf_counter()
    gate.wait()
    spent = time.perf_counter() - begin
    for worker in workers:
        worker.join()
    return spent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    fork = multiprocessing.get_context("fork")
    rows = (("threads", threading.Thread), ("processes", fork.Process))
    print(f"{options.workers} workers, each with its own agent: times the decisions of one")
    for arms, features in SIZES:
        rng = np.random.default_rng(0)
        agent = tsucb.Agent(range(arms), features, seed=0)
        contexts = rng.standard_normal(
            (max(200, min(20_000, 10**8 // (arms * features**2))), features)
        )
        for x in contexts[:100]:
            agent.reward(agent.choose(x).id, float(rng.standard_normal()))
        for play in (one_by_one, many):
            play(agent, contexts[:BATCH])
            for name, kind in rows:
                ratios = []
                for _ in range(options.repeat):  # in turn, for the machine's speed varies
                    copies = [copy.copy(agent) for _ in range(options.workers)]
                    alone = seconds(kind, play, [copy.copy(agent)], contexts[: BATCH * 20])
                    together = seconds(kind, play, copies, contexts[: BATCH * 20])
                    ratios.append(options.workers * alone / together)
                low, middle, high = np.quantile(ratios, (0, 0.5, 1))
                print(
                    f"K = {arms:3d}  d = {features:3d}  {play.__name__:10}  {name:9} "
                    f"{middle:5.2f} ({low:.2f} to {high:.2f}); one alone "
                    f"{1e6 * alone / len(contexts[: BATCH * 20]):.1f} µs"
                )


if __name__ == "__main__":
    main()
