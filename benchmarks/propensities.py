"""A wrong answer that looks right, and a right one: `python benchmarks/propensities.py FILE.csv`.

Agents with TS-UCB(100) on ten arms of a contextual linear bandit, 3,000 decisions each, are asked
what uniform choice would have earned on their logs: by the textbook's inverse propensities, and by
`tsucb.logs`. Agents without a floor log the probability that the policy has given its belief; the
others play 2 or 5 % of their decisions at random. 100 logs each.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import tsucb
from tsucb.logs import OffPolicy
from tsucb.numeric.arrays import Floats

ARMS, FEATURES, DECISIONS, LOGS = 10, 5, 3_000, 100


def one_log(share: float, seed: int) -> dict[str, float]:
    """Play an agent, and ask its log about uniform choice."""
    bandit = tsucb.ContextualLinearBandit(ARMS, FEATURES, noise=0.5, prior_variance=1.0)
    rng = np.random.default_rng(seed)
    world = bandit.begin(rng)
    agent = tsucb.Agent(
        range(ARMS), model=tsucb.NIGLinear(FEATURES), policy=tsucb.TSUCB(100), seed=seed,
        exploration=share, keep_beliefs=share == 0,
    )  # fmt: skip
    arm, reward, chances, guess, means = [], [], [], [], []
    for t in range(DECISIONS):
        context, mean, _ = bandit.advance(world, t + 1, rng)
        decision = agent.choose(context)
        arm.append(int(decision.arm))
        reward.append(bandit.reward(world, arm[-1]))
        chances.append(list(decision.probabilities.values()))
        guess.append(decision.explain().mean)
        means.append(mean.copy())
        agent.reward(decision.id, reward[-1])
    known: Floats = np.array(chances)
    played = known[np.arange(DECISIONS), arm]
    target: Floats = np.full((DECISIONS, ARMS), 1 / ARMS)
    weight = target[0, 0] / played
    terms = weight * np.array(reward)
    value, error = float(terms.mean()), float(terms.std(ddof=1)) / DECISIONS**0.5
    truth = float(np.mean(means))
    # Without a floor some probabilities round to 1, and their sum is not exactly 1.
    known /= known.sum(axis=1, keepdims=True)
    log = OffPolicy(arm, reward, known)
    ours, robust = log.inverse_propensity(target), log.doubly_robust(target, np.array(guess))
    return {
        "share": share,
        "truth": truth,
        "textbook": value,
        "textbook_error": error,
        "textbook_z": (value - truth) / error,
        "textbook_covers": float(abs(value - truth) < 1.96 * error),
        "textbook_size": float(weight.sum() ** 2 / (weight**2).sum()),
        "sure": float((played > 0.999).mean()),
        "impossible": float((known < 1e-6).sum(axis=1).mean()),
        "answered": float(ours.trusted),
        "covers": float(ours.low < truth < ours.high) if ours.trusted else np.nan,
        "uncovered": ours.uncovered,
        "robust_answered": float(robust.trusted),
        "robust_covers": float(robust.low < truth < robust.high) if robust.trusted else np.nan,
    }


def main(path: Path) -> None:
    """Make all logs; write one row for each."""
    rows = []
    for share in (0.0, 0.02, 0.05):
        rows += [one_log(share, seed) for seed in range(LOGS)]
        print(pd.DataFrame(rows[-LOGS:]).mean().to_string(), flush=True)
        pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
