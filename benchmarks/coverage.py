"""How often 95 % intervals contain the truth.

    python -m benchmarks.coverage FILE.csv [LOGS] [workflow] [replay] [estimators]

There are three kinds of logs; name some to measure only these. Every log is of a bandit of its own.

Estimators: logs of six policies, five of which learn while they log, on contextual bandits (4 or 10
arms, 3 features; normal rewards, clicks at 2 to 30 %, or rewards with a Pareto tail of 2.2). Three
policies are evaluated: uniform choice, greedy and soft choice by a model that has seen 60 earlier
rewards. The truth is the value over all contexts. Predictions are the logging agent's own, at the
time of each decision.

The recommended workflow: `Agent(exploration=0.05)` logs clicks, `compare` asks about other agents.
The truth is the value of what they would choose at the decisions of the log. TS-UCB(11) against
TS-UCB(10) is an A/A test.

Replay: `compare` on clicks of arms drawn at random. The truth is the mean over all logs.

Every interval is written to FILE.rows.csv as its log is done, and those that are there are not
measured again; FILE.csv is the summary. `--processes` and `--minutes` are explained in
benchmarks/tasks.py.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm, qmc

import tsucb
from tsucb.compiler import compiled, held
from tsucb.evaluation.candidates import Candidate
from tsucb.evaluation.compare import Comparison, compare, verdict
from tsucb.logs import Decisions, Estimate, OffPolicy, read_decisions
from tsucb.models.model import belief, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.names import named_policy
from tsucb.policies.policy import choose, probabilities

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import tasks

FEATURES, NOISE, TAIL = 3, 0.3, 2.2
# Contexts in even spacing: the error of the mean over them is below a tenth of an interval's width.
EVENLY = norm.ppf(qmc.Sobol(FEATURES, rng=np.random.default_rng(0)).random_base2(13))


@compiled
def paid(mean: Any, noise: Any, clicks: Any) -> Any:
    """Draw a normal reward, or a click with this probability."""
    if clicks:
        return 1.0 if noise < mean else 0.0
    return mean + noise


class Events(NamedTuple):
    """The N events of a log: what they are drawn from, and what is recorded of them."""

    contexts: Floats  # (N, d)
    means: Floats  # (N, K)
    noise: Floats  # (N,)
    arm: Integers  # (N,)
    reward: Floats  # (N,)
    chances: Floats  # (N, K)
    guess: Floats  # (N, K) posterior means


@compiled
def record(model, state, policy, log, clicks, stream):  # type: ignore[no-untyped-def]
    """Let a policy choose, by its formula for the probabilities, and learn."""
    arms = np.arange(log.means.shape[1])
    for t in range(len(log.contexts)):
        current = belief(model, state, log.contexts[t], arms, t + 1, stream.rng)
        log.chances[t] = probabilities(policy, current)
        u, a = stream.rng.random(), 0
        while a < arms.size - 1 and u >= log.chances[t, a]:
            u -= log.chances[t, a]
            a += 1
        learn(model, state, log, t, a, current.mean, clicks)


@compiled
def record_floored(model, state, policy, log, clicks, stream):  # type: ignore[no-untyped-def]
    """Let a policy with a floor choose and learn; its probabilities are those given its draw."""
    arms = np.arange(log.means.shape[1])
    for t in range(len(log.contexts)):
        current = belief(model, state, log.contexts[t], arms, t + 1, stream.rng)
        choice: Any = choose(policy, current, stream.rng)
        log.chances[t] = policy.epsilon / arms.size
        log.chances[t, choice.favourite] += 1 - policy.epsilon
        learn(model, state, log, t, choice.arm, current.mean, clicks)


@compiled
def learn(model: Any, state: Any, log: Any, t: Any, arm: Any, mean: Any, clicks: Any) -> None:
    """Record an event and its reward, and learn from it."""
    log.arm[t], log.guess[t] = arm, mean
    log.reward[t] = paid(log.means[t, arm], log.noise[t], clicks)
    update(model, state, log.contexts[t], arm, log.reward[t])


class Log:
    """One log, and what the policies to be evaluated do and are worth."""

    def __init__(self, arms: int, logger: str, size: int, seed: int, rewards: str) -> None:
        rng, clicks = np.random.default_rng([seed, arms]), rewards == "clicks"
        beta = rng.normal(size=(arms, FEATURES)) / FEATURES**0.5
        self.contexts, fresh = rng.normal(size=(size, FEATURES)), EVENLY.copy()
        noise = rng.random(size) if clicks else NOISE * rng.normal(size=size)
        if rewards == "heavy-tailed rewards":
            noise = NOISE * (rng.pareto(TAIL, size=size) - 1 / (TAIL - 1))
        if clicks:  # at 2 to 30 %, not quite linear
            self.contexts[:, 0] = fresh[:, 0] = 1.0

        def mean(contexts: Floats) -> Floats:
            scores = contexts @ beta.T
            return np.asarray(0.02 + 0.28 / (1 + np.exp(1.5 - scores)) if clicks else scores)

        means = mean(self.contexts)
        model = tsucb.ContextualLinear(FEATURES, NOISE if logger != "cautious TS" else 3.0)
        self.arm: Integers = np.empty(size, dtype=np.int64)
        self.reward: Floats = np.empty(size)
        self.chances: Floats = np.empty((size, arms))
        self.guess: Floats = np.empty((size, arms))
        recorded = (self.arm, self.reward, self.chances, self.guess)
        events = Events(self.contexts, means, noise, *recorded)
        policy: Any = named_policy(logger.replace("cautious ", ""))
        loop: Any = record_floored if "+" in logger else record
        stream = held(np.random.default_rng([seed, 1]))
        loop(model, model.start(arms), policy, events, clicks, stream)
        # What the other policies know.
        x = rng.normal(size=(60, FEATURES))
        known = np.empty((arms, FEATURES))
        for a in range(arms):
            rows = np.arange(a, 60, arms)
            y = mean(x[rows])[:, a] + NOISE * rng.normal(size=rows.size)
            inverse = np.linalg.inv(x[rows].T @ x[rows] + NOISE**2 * np.eye(FEATURES))
            known[a] = inverse @ x[rows].T @ y

        def policies(contexts: Floats) -> dict[str, Floats]:
            scores = contexts @ known.T
            soft = np.exp((scores - scores.max(axis=1, keepdims=True)) / 0.3)
            return {
                "uniform": np.full(scores.shape, 1 / arms),
                "greedy": np.eye(arms)[scores.argmax(axis=1)],
                "soft": soft / soft.sum(axis=1, keepdims=True),
            }

        self.targets = policies(self.contexts)
        fresh_means = mean(fresh)
        self.truth = {n: float((p * fresh_means).sum(1).mean()) for n, p in policies(fresh).items()}


def estimate(log: Log, target: Floats) -> dict[str, Estimate]:
    """Return the estimates of all estimators."""
    played = log.chances[np.arange(log.arm.size), log.arm]
    whole, alone = (OffPolicy(log.arm, log.reward, each) for each in (log.chances, played))
    return {
        "IPS": whole.inverse_propensity(target),
        "IPS, one propensity": alone.inverse_propensity(target),
        "self-normalised": whole.self_normalised(target),
        "doubly robust": whole.doubly_robust(target, log.guess),
    }


LOGGERS = ("Random", "cautious TS", "TS", "TS+5%", "TS-UCB(100)+2%", "TS-UCB(100)+5%")
KEYS = ["arms", "size", "rewards", "logger", "target", "estimator"]
KINDS = ("workflow", "replay", "estimators")
AGAINST = " against "


class Task(NamedTuple):
    """A log of one kind, and its number."""

    kind: str
    arms: int
    size: int
    rewards: str
    logger: str
    seed: int

    def measure(self) -> list[tasks.Row]:
        """Return a row for every interval."""
        return {"workflow": workflow, "replay": replay, "estimators": estimators}[self.kind](self)


def interval(target: str, estimator: str, found: Estimate, truth: float) -> tasks.Row:
    """Return a row: an interval, whether it is given, and what it decides about a difference."""
    decided = verdict(found) in ("better", "worse") if AGAINST in target else np.nan
    ends = {"value": found.value, "low": found.low, "high": found.high, "truth": truth}
    row = {"target": target, "estimator": estimator, "given": found.trusted, "decided": decided}
    return row | ends


def estimators(task: Task) -> list[tasks.Row]:
    """Return the rows of all estimators for three policies."""
    log = Log(task.arms, task.logger, task.size, task.seed, task.rewards)
    return [
        interval(name, estimator, found, log.truth[name])
        for name, target in log.targets.items()
        for estimator, found in estimate(log, target).items()
    ]


ESTIMATED = (
    (10, 3_000, "clicks"),
    (4, 500, "normal rewards"),
    (4, 3_000, "normal rewards"),
    (4, 3_000, "heavy-tailed rewards"),
)
AGENTS: dict[str, dict[str, Any]] = {
    "default": {},
    "TS-UCB(10)": {"policy": tsucb.TSUCB(10)},
    "TS-UCB(11)": {"policy": tsucb.TSUCB(11)},
    "no context": {"model": "BernoulliArms"},
    "Random": {"policy": tsucb.Random()},
}


def click_log(arms: int, size: int, seed: int, floor: float) -> tuple[Decisions, Floats]:
    """Return the decisions of an agent with a floor, and the true click rates at each."""
    rng = np.random.default_rng([seed, arms, size])
    beta = rng.normal(size=(arms, FEATURES)) / FEATURES**0.5
    beta[:, 0] = rng.normal(size=arms)  # of the constant
    contexts = rng.normal(size=(size, FEATURES))
    contexts[:, 0] = 1.0
    means = 0.02 + 0.28 / (1 + np.exp(1.5 - contexts @ beta.T))
    names = [f"arm {a}" for a in range(arms)]
    agent = tsucb.Agent(names, exploration=floor, seed=seed)
    arm, chances = np.empty(size, dtype=np.int64), np.empty((size, arms))
    reward, visitors = np.empty(size), [{"x": x[1], "y": x[2]} for x in contexts]
    for t, visitor in enumerate(visitors):
        decision = agent.choose(visitor)
        arm[t] = names.index(str(decision.arm))
        chances[t] = list(decision.probabilities.values())
        reward[t] = float(rng.random() < means[t, arm[t]])
        agent.reward(decision.id, reward[t])
    time, all_arms = np.arange(size, dtype=np.float64), np.ones((size, arms), dtype=np.bool_)
    played = chances[np.arange(size), arm]
    return Decisions(
        tuple(names), arm, reward, visitors, all_arms, played, chances, time, time
    ), means


def workflow(task: Task) -> list[tasks.Row]:
    """Return the rows of `compare` on a log of clicks of an agent with a floor."""
    log, means = click_log(task.arms, task.size, task.seed, 0.05)
    found = compare(log, AGENTS, draws=4)
    assert log.probabilities is not None
    truth = {"as logged": float((log.probabilities * means).sum(axis=1).mean())}
    for name, settings in AGENTS.items():
        target = Candidate(settings, log, 0).choices(4)
        truth[name] = float((target * means).sum(axis=1).mean())
    return comparison(found, truth)


def comparison(found: Comparison, truth: dict[str, float]) -> list[tasks.Row]:
    """Return the rows of a comparison: its values, and the differences of its configurations."""
    rows = [
        interval(name, found.method, found.values[name], truth[name])
        for name in truth
        if name != "as logged" or found.method == "replay"
    ]
    for (first, second), each in found.differences.items():
        difference = truth[first] - truth[second]
        rows.append(interval(f"{first}{AGAINST}{second}", found.method, each, difference))
    return rows


REPLAYED: dict[str, dict[str, Any]] = {
    "default": {},
    "TS-UCB(10)": {"policy": tsucb.TSUCB(10)},
    "TS-UCB(11)": {"policy": tsucb.TSUCB(11)},
    "greedy": {"policy": tsucb.Greedy(), "model": "BernoulliArms"},
}
RATES = np.array([0.1, 0.13, 0.16, 0.2])


def replay(task: Task) -> list[tasks.Row]:
    """Return what `compare` says by replay, on clicks of arms drawn at random.

    The truth is not known before all logs are: it is NaN here.
    """
    rng = np.random.default_rng([task.seed, task.size])
    arm = rng.integers(RATES.size, size=task.size)
    reward = (rng.random(task.size) < RATES[arm]).astype(float)
    log = read_decisions(pd.DataFrame({"arm": arm, "reward": reward}), uniform=True)
    found = compare(log, REPLAYED, method="replay", seed=task.seed)
    return comparison(found, dict.fromkeys(("as logged", *REPLAYED), np.nan))


def with_truth(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the truth of replayed policies: the mean of their values over logs."""
    table = table.copy()
    replayed = table.kind == "replay"
    means = table[replayed].groupby("target").value.mean()
    for place, target in table.target[replayed].items():
        first, _, second = str(target).partition(AGAINST)
        table.loc[place, "truth"] = means[first] - (means[second] if second else 0.0)
    return table[~(replayed & (table.target == "as logged"))]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each kind of log, policy and estimator."""
    table = with_truth(table).astype({"given": bool, "decided": float})
    table["covered"] = (table.low <= table.truth) & (table.truth <= table.high)
    table["width"] = table.high - table.low
    everything = table.groupby(KEYS, sort=False)
    given = table[table.given].groupby(KEYS, sort=False)
    columns = {
        "logs": everything.size(),
        "given": everything.given.mean(),
        "coverage": given.covered.mean(),
        "width": given.width.median(),
        "decided": everything.decided.mean(),
        "commit": everything["commit"].first(),
    }
    return pd.DataFrame(columns).reset_index()


def tasks_of(kinds: Sequence[str], logs: int) -> list[Task]:
    """Return the logs of these kinds."""
    found = []
    if "workflow" in kinds:
        for arms in (4, 10):
            each = ("workflow", arms, 5_000, "clicks", "default agent +5%")
            found += [Task(*each, seed) for seed in range(logs // 2)]
    if "replay" in kinds:
        each = ("replay", RATES.size, 4_000, "clicks", "Random")
        found += [Task(*each, seed) for seed in range(logs // 2)]
    if "estimators" in kinds:
        for arms, size, rewards in ESTIMATED:
            for number, logger in enumerate(LOGGERS):
                seeds = range(logs * number, logs * (number + 1))
                found += [Task("estimators", arms, size, rewards, logger, seed) for seed in seeds]
    return found


def main() -> None:
    """Measure the logs that the file does not have yet, and write the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="FILE.csv")
    parser.add_argument("logs", type=int, nargs="?", default=120)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    tasks.add_options(parser)
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kinds of logs {sorted(unknown)}; choose from {', '.join(KINDS)}")
    todo = tasks_of(options.kinds or KINDS, options.logs)
    rows, limits = options.out.with_suffix(".rows.csv"), (options.processes, options.minutes)
    table = tasks.measure(rows, Task.measure, todo, Task._asdict, *limits)
    summary(table).to_csv(options.out, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
