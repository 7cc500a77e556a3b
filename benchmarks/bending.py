"""Where the default bends, where it does not, and whether its intervals stay honest.

    python -m benchmarks.bending --part rewards|stationary|coverage|speed [--seeds 5] [--runs 200]

`rewards`: totals of 3,000 decisions of the linear model and of the default, on an XOR of two
features, the wheel bandit (δ = 0.5), three tables that come with river, and arms with features that
pay where these are near the context's.
`stationary`: in how many runs without bends or changes the default, without looks at arms that were
left alone, plays exactly the arms of the linear model, and what it earns with them.
`coverage`: how often the 90 % interval of an arm's mean holds it, for a linear and a bent truth,
after 100, 1,000 and 10,000 decisions.
`speed`: processor time of a decision and its reward, ten arms and ten features, also with five of
each arm, for linear and bent rewards.

With `--out FILE.csv` results are added to a file, and those that are there are not measured again;
`--processes` and `--minutes` are explained in benchmarks/tasks.py.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import tsucb

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import tasks
from benchmarks.change import clicks, models, near, plain, shop, tastes
from benchmarks.defaults import problems

Floats = NDArray[np.float64]
NINETY = 1.6448536269514722  # standard deviations either side
TIMES = (100, 1_000, 10_000)  # rewards, when intervals are compared with the truth
REPEATS = 3  # of the measurement of speed


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


class Task(NamedTuple):
    """What a seed is played on."""

    problem: str
    seed: int


def total_rewards(task: Task) -> list[tasks.Row]:
    """Return a row with the totals of both models, and whether the default bent."""
    drawn = {"XOR": xor, "wheel": wheel, "near": near}
    if task.problem in problems.RIVER:
        table = problems.read(task.problem)
        steps = min(len(table.features), 3_000)
        contexts, rewards = problems.draw(table, problems.RAW, task.seed, steps)
    else:
        contexts, rewards = drawn[task.problem](task.seed, 3_000)
    row = {"decisions": float(len(contexts))}
    for name, model in zip(("linear", "default"), models(task.problem, contexts), strict=True):
        agent, arms = played(model, contexts, rewards, task.seed)
        row[name] = float(rewards[np.arange(len(arms)), arms].sum())
    return [{**row, "bends": bool(agent._learner.prepared().state.bends[0])}]


def print_rewards(table: pd.DataFrame) -> None:
    """Print totals of the linear model and of the default."""
    print("| decisions | linear | default | bent in |\n|---|--:|--:|--:|")
    for problem, found in table.groupby("problem", sort=False):
        bent, count = f"{found.bends.sum()} of {len(found)}", f"{found.decisions.iloc[0]:,.0f}"
        means = f"{found.linear.mean():,.0f} | {found.default.mean():,.0f}"
        print(f"| {problem}, {count} | {means} | {bent} |")


STATIONARY = {"plain": plain, "clicks": clicks, "shop": shop, "tastes": tastes}
STATIONARY_STEPS, LATER_SEEDS = 2_000, 1_000


def stationary(task: Task) -> list[tasks.Row]:
    """Return a row: whether a run is decided as by the linear model, and what looks cost."""
    contexts, rewards = STATIONARY[task.problem](task.seed + LATER_SEEDS, STATIONARY_STEPS)
    linear_model, still = models(task.problem, contexts, looks=0)
    _, one = played(linear_model, contexts, rewards, task.seed)
    agent, two = played(still, contexts, rewards, task.seed)
    _, looking = played(models(task.problem, contexts)[1], contexts, rewards, task.seed)
    linear, ours = (float(rewards[np.arange(len(a)), a].sum()) for a in (one, looking))
    alarm = bool(agent.changes())
    return [{"same": one == two, "alarm": alarm, "linear": linear, "default": ours}]


def share_of_linear(found: pd.DataFrame) -> tuple[float, float]:
    """Return the default's reward in per cent of the linear model's, and half its 95 % interval."""
    share = found.default.mean() / found.linear.mean()
    spread = (found.default - share * found.linear).std(ddof=0)
    return 100 * share, 196 * spread / len(found) ** 0.5 / abs(found.linear.mean())


def print_stationary(table: pd.DataFrame) -> None:
    """Print how often runs are decided as by the linear model, and what looks cost.

    The first figure is without looks at arms that were left alone, the last with them.
    """
    head = f"{STATIONARY_STEPS:,} decisions, nothing changes"
    print(f"| {head} | same arms, no looks | alarms | reward, % of linear |\n|---|--:|--:|--:|")
    for problem, found in table.groupby("problem", sort=False):
        same, (share, error) = f"{found.same.sum()} of {len(found)}", share_of_linear(found)
        print(f"| {problem} | {same} | {found.alarm.sum()} | {share:.2f} ± {error:.2f} |")


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


def coverage(task: Task) -> list[tasks.Row]:
    """Return rows with the coverage of 90 % intervals of arms' means at new contexts."""
    rng, rows = np.random.default_rng([7, task.seed]), []
    slopes, phases = rng.standard_normal((5, 3)) / np.sqrt(3), rng.uniform(0, 6.28, 5)
    contexts, new = rng.standard_normal((max(TIMES), 3)), rng.standard_normal((200, 3))
    rewards = truth(task.problem, contexts, slopes, phases)
    rewards += 0.5 * rng.standard_normal(rewards.shape)
    agent = tsucb.Agent(range(5), model=tsucb.AdaptiveCurves(3), seed=task.seed)
    for t, x in enumerate(contexts, start=1):
        decision = agent.choose(x)
        agent.reward(decision.id, float(rewards[t - 1, int(decision.arm)]))
        if t in TIMES:
            held = hits(agent, new, truth(task.problem, new, slopes, phases))
            rows.append({"t": t, "covered": 100 * held})
    return rows


def print_coverage(table: pd.DataFrame) -> None:
    """Print the coverage of 90 % intervals of arms' means at new contexts."""
    print("| truth | 100 | 1,000 | 10,000 |\n|---|--:|--:|--:|")
    for problem, found in table.groupby("problem", sort=False):
        means = found.groupby("t").covered.mean()
        print(f"| {problem} | {' | '.join(f'{mean:.0f} %' for mean in means)} |")


class Timed(NamedTuple):
    """A model and a kind of rewards that it is timed on."""

    model: str
    rewards: str


def speed(task: Timed) -> list[tasks.Row]:
    """Return µs per decision and reward, in stretches of 1,000 between 3,000 and 19,000.

    Rewards are linear, or bend so much in one feature that the curved belief decides.
    """
    hybrid = task.model.startswith("Hybrid")
    contexts, rewards = (tastes if hybrid else shop)(0, 19_000)
    if task.rewards == "bent":
        first = contexts[..., 0].reshape(len(contexts), -1)
        rewards = rewards + 3.0 * np.cos(2.0 * first + np.arange(10.0))
    times = np.empty((REPEATS, 19))
    for row in times:
        model = getattr(tsucb, task.model)(*((5, 10) if hybrid else (10,)))
        agent = tsucb.Agent(range(10), model=model, seed=0)
        for i in range(row.size):
            begin = time.process_time()
            for t in range(1_000 * i, 1_000 * (i + 1)):
                decision = agent.choose(contexts[t])
                agent.reward(decision.id, float(rewards[t, int(decision.arm)]))
            row[i] = 1e3 * (time.process_time() - begin)
    best = times.min(axis=0)[3:]  # of the repeats: other processes only add
    found = {"least": best.min(), "median": np.median(best), "most": best.max()}
    bends = bool(getattr(agent._learner.prepared().state, "bends", [False])[0])
    rounded = {name: round(float(x), 1) for name, x in (found | {"mean": best.mean()}).items()}
    return [{"bends": bends, **rounded}]


def print_speed(table: pd.DataFrame) -> None:
    """Print µs per decision and reward, and whether the curved belief decided in the end."""
    print("| µs per decision, stretches of 1,000 | bends | least | median | most | mean |")
    print("|---|---|--:|--:|--:|--:|")
    for r in table.itertuples():
        bends, name = "yes" if r.bends else "no", f"{r.model}, {r.rewards} rewards"
        print(f"| {name} | {bends} | {r.least} | {r.median} | {r.most} | {r.mean} |")


class Part(NamedTuple):
    """What is measured for each task, and how it is printed."""

    measure: Callable[[Any], list[tasks.Row]]
    show: Callable[[pd.DataFrame], None]


PARTS = {
    "rewards": Part(total_rewards, print_rewards),
    "stationary": Part(stationary, print_stationary),
    "coverage": Part(coverage, print_coverage),
    "speed": Part(speed, print_speed),
}


def tasks_of(part: str, seeds: int, runs: int) -> Sequence[Task | Timed]:
    """Return the tasks of a part."""
    if part == "speed":
        kinds = ("AdaptiveLinear", "AdaptiveCurves", "HybridLinear", "HybridCurves")
        return [Timed(name, rewards) for rewards in ("linear", "bent") for name in kinds]
    names = {"rewards": ("XOR", "wheel", *problems.RIVER, "near"), "coverage": ("linear", "bent")}
    count = runs if part == "stationary" else seeds
    return [Task(name, seed) for name in names.get(part, STATIONARY) for seed in range(count)]


def main() -> None:
    """Read the command line, measure what is missing and print the parts that it names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--out", type=Path, metavar="FILE.csv")
    tasks.add_options(parser)
    options = parser.parse_args()
    if options.out and not options.part:
        parser.error("--out needs a --part: every part has columns of its own")
    for part in [options.part] if options.part else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            path, each = options.out or Path(folder, "bending.csv"), PARTS[part]
            todo = tasks_of(part, options.seeds, options.runs)
            found = tasks.measure(
                path, each.measure, todo, lambda task: task._asdict(), options.processes,
                options.minutes,
            )  # fmt: skip
            each.show(found)


if __name__ == "__main__":
    main()
