"""Where the default bends, where it does not, and whether its intervals stay honest.

    python benchmarks/bending.py [--seeds 5] [--runs 200] [--part rewards|stationary|coverage|speed]

`rewards`: totals of 3,000 decisions of the linear model and of the default, on an XOR of two
features, the wheel bandit (δ = 0.5), and three tables that come with river.
`stationary`: in how many runs without bends or changes the default, without looks at arms that were
left alone, plays exactly the arms of the linear model, and what it earns with them.
`coverage`: how often the 90 % interval of an arm's mean holds it, for a linear and a bent truth,
after 100, 1,000 and 10,000 decisions.
`speed`: processor time of a decision and its reward, ten arms and ten features, for linear and bent
rewards.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tsucb

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.change import clicks, plain, shop
from benchmarks.defaults import problems

Floats = NDArray[np.float64]
NINETY = 1.6448536269514722  # standard deviations either side


def xor(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return two features, and two arms that pay where their signs agree, or differ."""
    rng = np.random.default_rng([4, seed])
    contexts = rng.uniform(-1.0, 1.0, (steps, 2))
    agree = contexts[:, 0] * contexts[:, 1] > 0
    return contexts, np.column_stack([agree, ~agree]).astype(np.float64)


def wheel(seed: int, steps: int) -> tuple[Floats, Floats]:
    """Return the wheel bandit of Riquelme, Tucker and Snoek (2018), δ = 0.5."""
    rng = np.random.default_rng([5, seed])
    angle, radius = rng.uniform(0, 2 * np.pi, steps), np.sqrt(rng.uniform(0, 1, steps))
    contexts = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    means = np.full((steps, 5), 1.0)
    means[:, 0] = 1.2
    outside = radius > 0.5
    arm = 1 + (contexts[:, 0] < 0) + 2 * (contexts[:, 1] < 0)
    means[outside, arm[outside]] = 50.0
    return contexts, means + 0.01 * rng.standard_normal(means.shape)


def played(model: Any, contexts: Floats, rewards: Floats, seed: int) -> tuple[Any, list[int]]:
    """Return the agent after a run, and the arms it played."""
    agent, arms = tsucb.Agent(range(rewards.shape[1]), model=model, seed=seed), list[int]()
    for x, row in zip(contexts, rewards, strict=True):
        decision = agent.choose(x) if x.size else agent.choose()
        arms.append(int(decision.arm))
        agent.reward(decision.id, float(row[arms[-1]]))
    return agent, arms


def print_rewards(seeds: int) -> None:
    """Print totals of the linear model and of the default."""
    print("| 3,000 decisions | linear | default | bent in |\n|---|--:|--:|--:|")
    for name in ("XOR", "wheel", *problems.RIVER):
        totals, bent = np.zeros((seeds, 2)), 0
        for seed in range(seeds):
            if name in problems.RIVER:
                table = problems.read(name)
                steps = min(len(table.features), 3_000)
                contexts, rewards = problems.draw(table, problems.RAW, seed, steps)
            else:
                contexts, rewards = (xor if name == "XOR" else wheel)(seed, 3_000)
            d = contexts.shape[1]
            for i, model in enumerate((tsucb.AdaptiveLinear(d), tsucb.AdaptiveCurves(d))):
                agent, arms = played(model, contexts, rewards, seed)
                totals[seed, i] = rewards[np.arange(len(arms)), arms].sum()
            bent += bool(agent._learner.prepared().state.bends[0])
        one, two = totals.mean(axis=0)
        print(f"| {name}, {len(contexts):,} | {one:,.0f} | {two:,.0f} | {bent} of {seeds} |")


def print_stationary(runs: int) -> None:
    """Print how often runs are decided as by the linear model, and what looks cost.

    The first figure is without looks at arms that were left alone, the last with them.
    """
    print(
        "| 2,000 decisions, nothing changes | same arms, no looks | alarms | reward, % of linear |"
    )
    print("|---|--:|--:|--:|")
    for name, draw in (("plain", plain), ("clicks", clicks), ("shop", shop)):
        same, alarms, totals = 0, 0, np.zeros((2, runs))
        for seed in range(runs):
            contexts, rewards = draw(seed + 1_000, 2_000)
            d = contexts.shape[1]
            _, one = played(tsucb.AdaptiveLinear(d), contexts, rewards, seed)
            agent, two = played(tsucb.AdaptiveCurves(d, looks=0), contexts, rewards, seed)
            _, looking = played(tsucb.AdaptiveCurves(d), contexts, rewards, seed)
            same, alarms = same + (one == two), alarms + bool(agent.changes())
            totals[:, seed] = [rewards[np.arange(2_000), a].sum() for a in (one, looking)]
        linear, ours = totals
        share = ours.mean() / linear.mean()
        error = 196 * (ours - share * linear).std() / np.sqrt(runs) / abs(linear.mean())
        print(
            f"| {name} | {same} of {runs} | {alarms} | {100 * share:.2f} ± {error:.2f} |",
            flush=True,
        )


def truth(name: str, contexts: Floats, slopes: Floats, phases: Floats) -> Floats:
    """Return the means of all arms: linear functions of the context, or waves of them."""
    values: Floats = contexts @ slopes.T
    return values if name == "linear" else np.cos(2.0 * values + phases)


def hits(agent: Any, contexts: Floats, means: Floats) -> float:
    """Return the share of arms and contexts whose mean is in the 90 % interval."""
    state, rng = agent._learner.prepared().state, np.random.default_rng(0)
    model = tsucb.AdaptiveCurves(agent.model.features, looks=0)
    beliefs = [model.belief(state, x, rng=rng) for x in contexts]
    inside = [np.abs(b.mean - m) <= NINETY * b.radius for b, m in zip(beliefs, means, strict=True)]
    return float(np.mean(inside))


def print_coverage(seeds: int) -> None:
    """Print the coverage of 90 % intervals of arms' means at new contexts."""
    print("| truth | 100 | 1,000 | 10,000 |\n|---|--:|--:|--:|")
    for name in ("linear", "bent"):
        shares: dict[int, list[float]] = {100: [], 1_000: [], 10_000: []}
        for seed in range(seeds):
            rng = np.random.default_rng([7, seed])
            slopes, phases = rng.standard_normal((5, 3)) / np.sqrt(3), rng.uniform(0, 6.28, 5)
            contexts, new = rng.standard_normal((10_000, 3)), rng.standard_normal((200, 3))
            rewards = truth(name, contexts, slopes, phases)
            rewards += 0.5 * rng.standard_normal(rewards.shape)
            agent = tsucb.Agent(range(5), model=tsucb.AdaptiveCurves(3), seed=seed)
            for t, x in enumerate(contexts, start=1):
                decision = agent.choose(x)
                agent.reward(decision.id, float(rewards[t - 1, int(decision.arm)]))
                if t in shares:
                    shares[t].append(hits(agent, new, truth(name, new, slopes, phases)))
        found = " | ".join(f"{100 * np.mean(each):.0f} %" for each in shares.values())
        print(f"| {name} | {found} |", flush=True)


def print_speed(repeats: int = 3) -> None:
    """Print µs per decision and reward, in stretches of 1,000 between 3,000 and 19,000.

    Rewards are linear, or bend so much in one feature that the curved belief decides.
    """
    contexts, linear = shop(0, 19_000)
    bent = linear + 3.0 * np.cos(2.0 * contexts[:, :1] + np.arange(10.0))
    print("| µs per decision, stretches of 1,000 | bends | least | median | most | mean |")
    print("|---|---|--:|--:|--:|--:|")
    for name, rewards in (("linear", linear), ("bent", bent)):
        for model in (tsucb.AdaptiveLinear(10), tsucb.AdaptiveCurves(10)):
            times = np.empty((repeats, 19))
            for row in times:
                agent = tsucb.Agent(range(10), model=model, seed=0)
                for i in range(row.size):
                    begin = time.process_time()
                    for t in range(1_000 * i, 1_000 * (i + 1)):
                        decision = agent.choose(contexts[t])
                        agent.reward(decision.id, float(rewards[t, int(decision.arm)]))
                    row[i] = 1e3 * (time.process_time() - begin)
            best = times.min(axis=0)[3:]  # of the repeats: other processes only add
            found = best.min(), np.median(best), best.max(), best.mean()
            bends = getattr(agent._learner.prepared().state, "bends", [False])[0]
            print(
                f"| {type(model).__name__}, {name} rewards | {'yes' if bends else 'no'} | "
                f"{' | '.join(f'{each:.1f}' for each in found)} |",
                flush=True,
            )


def main() -> None:
    """Read the command line and print the parts that it names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--part", choices=("rewards", "stationary", "coverage", "speed"))
    options = parser.parse_args()
    if options.part in (None, "rewards"):
        print_rewards(options.seeds)
    if options.part in (None, "stationary"):
        print_stationary(options.runs)
    if options.part in (None, "coverage"):
        print_coverage(options.seeds)
    if options.part in (None, "speed"):
        print_speed()


if __name__ == "__main__":
    main()
