"""How decisions grow with threads and processes: `python benchmarks/threads.py`.

Every worker has an agent of its own, a copy of one, and plays the same number of decisions with
their rewards, one by one or many at a time. What is printed is how many times as many decisions a
second all of them make as one alone does; a worker on a core of its own is the ideal. Threads can
be no more than 1 / (1 - share) times as fast, where the share needs no lock of Python's.
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
FORK = multiprocessing.get_context("fork")


def one_by_one(agent: tsucb.Agent, contexts: Any) -> None:
    """`choose` and `reward`."""
    for x in contexts:
        agent.reward(agent.choose(x).id, 0.5)


def play_batch(agent: tsucb.Agent, contexts: Any) -> None:
    """`choose_many` and `reward_many`."""
    agent.reward_many(agent.choose_many(contexts).ids, np.full(len(contexts), 0.5))


def seconds(
    kind: Callable[..., Any], play: Callable[..., None], agents: list[tsucb.Agent], contexts: Any
) -> float:
    """Return the time from when all workers are ready until the last is done."""
    made: Any = threading if kind is threading.Thread else FORK
    gate = made.Barrier(len(agents) + 1)

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


def unlocked(agent: tsucb.Agent, contexts: Any) -> float:
    """Return the share of the time of `choose` during which other threads can run."""
    one_by_one(agent, contexts)
    known = agent._learner.known
    machine: Any = known.machine
    if not machine.long:
        return 0.0
    copied, columns = [x.tobytes() for x in contexts], known.all_arms().columns
    times = np.empty((2, 9))
    for n in range(9):
        begin = time.process_time()
        for x in contexts:
            agent.choose(x)
        between = time.process_time()
        for x in copied:
            machine.decide(x, columns, False, True)
        times[:, n] = between - begin, time.process_time() - between
    whole, decided = np.median(times, axis=1)
    return float(decided / whole)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    kinds = (("threads", threading.Thread), ("processes", FORK.Process))
    print(f"{options.workers} workers, each with its own agent: times the decisions of one,")
    print(f"median of {options.rounds} rounds (quartiles)")
    for arms, features in SIZES:
        rng = np.random.default_rng(0)
        agent = tsucb.Agent(range(arms), features, seed=0)
        steps = max(100, min(10_000, 10**8 // (arms * features**2)))
        contexts = rng.standard_normal((steps, features))
        for x in contexts[:100]:
            agent.reward(agent.choose(x).id, float(rng.standard_normal()))
        share = unlocked(copy.copy(agent), contexts)
        print(f"  K = {arms:3d}  d = {features:3d}  choose: {share:.0%} without Python's lock")
        for play in (one_by_one, play_batch):
            for name, kind in kinds:
                ratios, alone = [], 0.0
                for _ in range(options.rounds):  # in turn, as the machine's speed varies
                    agents = [copy.copy(agent) for _ in range(options.workers)]
                    alone = seconds(kind, play, agents[:1], contexts)
                    together = seconds(kind, play, agents, contexts)
                    ratios.append(options.workers * alone / together)
                low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
                print(
                    f"  K = {arms:3d}  d = {features:3d}  {play.__name__:10}  {name:9} "
                    f"{middle:5.2f} ({low:.2f} to {high:.2f})"
                )


if __name__ == "__main__":
    main()
