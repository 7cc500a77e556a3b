"""How often 95 % intervals contain the truth: `python benchmarks/coverage.py FILE.csv [LOGS]`.

Logs of six policies, five of which learn while they log, on contextual bandits (4 or 10 arms, 3
features; normal rewards, or clicks at 2 to 30 %), each log of another bandit. Three policies are
evaluated on each: uniform choice, greedy and soft choice by a model that has seen 60 earlier
rewards. The truth is the value over all contexts. Predictions are the logging agent's own, at the
time of each decision.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm, qmc

import tsucb
from tsucb.compiler import compiled, held
from tsucb.logs import estimators
from tsucb.models.model import belief, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.names import named_policy
from tsucb.policies.policy import choose, probabilities

FEATURES, NOISE = 3, 0.3
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

    def __init__(self, arms: int, logger: str, size: int, seed: int, clicks: bool) -> None:
        rng = np.random.default_rng([seed, arms])
        beta = rng.normal(size=(arms, FEATURES)) / FEATURES**0.5
        self.contexts, fresh = rng.normal(size=(size, FEATURES)), EVENLY.copy()
        noise = rng.random(size) if clicks else NOISE * rng.normal(size=size)
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


def estimate(log: Log, target: Floats) -> dict[str, estimators.Estimate]:
    """Return what all estimators say."""
    played = log.chances[np.arange(log.arm.size), log.arm]
    return {
        "IPS": estimators.inverse_propensity(log.arm, log.reward, log.chances, target),
        "IPS, one propensity": estimators.inverse_propensity(log.arm, log.reward, played, target),
        "self-normalised": estimators.self_normalised(log.arm, log.reward, log.chances, target),
        "doubly robust": estimators.doubly_robust(
            log.arm, log.reward, log.chances, target, log.guess
        ),
    }


LOGGERS = ("Random", "cautious TS", "TS", "TS+5%", "TS-UCB(100)+2%", "TS-UCB(100)+5%")
PROBLEMS = ((4, 500, False), (4, 3000, False), (10, 3000, True))  # arms, size, clicks
NAMES = ["arms", "size", "clicks", "logger", "target", "estimator", "given", "covered", "z", "gap"]


def main(path: Path, logs: int) -> None:
    """Measure; one row for each logging policy, size of the log, policy and estimator."""
    rows = []
    for arms, size, clicks in PROBLEMS:
        for number, logger in enumerate(LOGGERS):
            for seed in range(logs):
                log = Log(arms, logger, size, seed + logs * number, clicks)
                for name, target in log.targets.items():
                    truth = log.truth[name]
                    for estimator, found in estimate(log, target).items():
                        inside = found.low < truth < found.high
                        z = np.divide(found.value - truth, found.error)
                        said = (found.trusted, inside, z, found.uncovered)
                        rows.append((arms, size, clicks, logger, name, estimator, *said))
            table = pd.DataFrame(rows, columns=NAMES)
            everything = table.groupby(NAMES[:6], sort=False)
            given = table[table.given].groupby(NAMES[:6], sort=False)
            summary = pd.DataFrame(
                {
                    "logs": everything.size(),
                    "given": everything.given.mean(),
                    "coverage": given.covered.mean(),
                    "bias_in_errors": given.z.mean(),
                    "gap": everything.gap.mean(),
                }
            ).reset_index()
            summary.to_csv(path, index=False, float_format="%.4g")
            print(arms, size, clicks, logger, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000)
