"""Few arms, many samples: who carries the regret? `python benchmarks/few_arms.py FILE.csv`.

Bernoulli arms with uniform success probabilities, no contexts, 10,000 steps, paired runs. A run is
bad if TS-UCB settles on a wrong arm: the more samples f̃ averages, the longer it stays there. The
remedy measured, `SometimesOne`, is TS-UCB that takes one sample instead of m in half of its
decisions. Rows are added to the file as they come (a quarter of an hour of one core in all); those
that are there are not measured again. `python benchmarks/few_arms.py FILE.csv waits` measures
how long TS-UCB stays with a wrong arm.
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from the repository, not installed

import tsucb
from benchmarks.output import commit
from tsucb.beliefs.sampling import f_tilde
from tsucb.compiler import compiled, held, implements
from tsucb.numeric.statistics import mean_interval
from tsucb.policies.policy import choose, winner
from tsucb.policies.ts_ucb import ratios

HORIZON, SEED = 10_000, 1
LIMIT = 20_000  # steps that an arm is waited for


class SometimesOne(tsucb.Policy):
    """TS-UCB that takes one sample with a given chance and `samples` otherwise."""

    samples: float
    chance: float

    @property
    def name(self) -> str:
        """Such as TS-UCB(1 or 100)."""
        return f"TS-UCB(1 or {self.samples})"


@implements(choose, SometimesOne)
def choose_sometimes_one(policy, belief, rng):  # type: ignore[no-untyped-def]
    """Choose as TS-UCB does, with one sample or many by chance."""
    if rng.random() < policy.chance:
        f = f_tilde(belief, 1, rng)
    else:
        f = f_tilde(belief, policy.samples, rng)
    arm = winner(ratios(belief, f), -1.0, rng)
    return tsucb.Choice(arm, f, arm)


ONE_AND_TEN = (tsucb.Thompson(), tsucb.TSUCB(1), tsucb.TSUCB(10), SometimesOne(10, 0.5))
# Arms, runs and policies: fewer runs where a decision takes long.
PLAN: tuple[tuple[int, int, tuple[Any, ...]], ...] = (
    (2, 2000, ONE_AND_TEN),
    (2, 1000, (tsucb.TSUCB(100), SometimesOne(100, 0.5))),
    (3, 500, ONE_AND_TEN),
    (5, 500, ONE_AND_TEN),
    (10, 500, ONE_AND_TEN),
    (2, 300, (tsucb.TSUCB(math.inf),)),
    (3, 200, (tsucb.TSUCB(100),)),
    (10, 200, (tsucb.TSUCB(100),)),
)


def measure(arms: int, runs: int, policy: Any) -> dict[str, Any]:
    """Play a policy; return the row of its regret over the runs."""
    result = tsucb.simulate(
        tsucb.KArmedBandit(arms), tsucb.BernoulliArms(), [policy], horizon=HORIZON, runs=runs,
        seed=SEED, workers=1, checkpoints=10, progress=False,
    )  # fmt: skip
    return row(arms, policy.name, result.regret[0])


def row(arms: int, policy: str, regret: np.ndarray) -> dict[str, Any]:
    """Return the row of a policy's regret (runs, 10 checkpoints)."""
    final, last = np.sort(regret[:, -1]), regret[:, -1] - regret[:, -2]
    mean, _, low, high = mean_interval(final)
    return {
        "arms": arms,
        "policy": policy,
        "runs": final.size,
        "mean": mean,
        "ci95_low": low,
        "ci95_high": high,
        "median": float(np.median(final)),
        "percentile_95": float(np.quantile(final, 0.95)),
        "worst_percent_share": float(100 * final[-(final.size // 100) :].sum() / final.sum()),
        "maximum": float(final[-1]),
        # Runs that lost more than 10 in the last tenth of the steps: they play a wrong arm.
        "still_losing_percent": float(100 * (last > 10).mean()),
    }


def main(path: Path) -> None:
    """Measure the combinations that the file does not have yet."""
    rows: list[Any] = pd.read_csv(path).to_dict("records") if path.exists() else []
    done = {(row["arms"], row["policy"]) for row in rows}
    for arms, runs, policies in PLAN:
        for policy in policies:
            if (arms, policy.name) not in done:
                rows.append(measure(arms, runs, policy))
                print(rows[-1], flush=True)
                aside = path.with_suffix(".part")
                pd.DataFrame(rows).to_csv(aside, index=False, float_format="%.4g")
                aside.replace(path)


@compiled
def wait(
    policy: Any, successes: float, pulls: float, wrong_mean: float, limit: int, stream: Any
) -> int:
    """Count the steps until the second arm is played, while the first succeeds at a fixed rate."""
    alpha, beta = np.empty(2), np.empty(2)
    first_pulls, first_successes = 10.0, 10.0 * wrong_mean
    for step in range(limit):
        first_pulls += 1.0
        first_successes += wrong_mean
        alpha[0], beta[0] = 1.0 + first_successes, 1.0 + first_pulls - first_successes
        alpha[1], beta[1] = 1.0 + successes, 1.0 + pulls - successes
        mean, radius = np.empty(2), np.empty(2)
        mean[0], mean[1] = wrong_mean, successes / pulls
        radius[0], radius[1] = 1.0 / math.sqrt(first_pulls), 1.0 / math.sqrt(pulls)
        belief = make(alpha, beta, mean, radius)
        if choose(policy, belief, stream.rng).arm == 1:
            return step
    return limit


@compiled
def make(alpha: Any, beta: Any, estimate: Any, radius: Any) -> Any:
    """Return a belief of two Betas with the paper's estimates and radii."""
    none = np.zeros(2)
    law = tsucb.beliefs.Beta(alpha, beta)
    mean = alpha / (alpha + beta)
    return tsucb.Belief(law, mean, radius, estimate, radius, none, none, 1, 1, 1.0)


def waits(path: Path) -> None:
    """Measure how long an arm with few successes waits beside one that pays 0.6."""
    stream, rows = held(np.random.default_rng(0)), []
    for successes, pulls in ((1, 4), (2, 8), (3, 12)):
        for policy in (tsucb.Thompson(), tsucb.TSUCB(1), tsucb.TSUCB(10), tsucb.TSUCB(100)):
            found = [wait(policy, successes, pulls, 0.6, LIMIT, stream) for _ in range(40)]
            median = float(np.median(found))
            rows.append((successes, pulls, policy.name, len(found), median, commit()))
            print(rows[-1], flush=True)
    names = ["successes", "pulls", "policy", "repetitions", "median_steps", "commit"]
    pd.DataFrame(rows, columns=names).to_csv(path, index=False)


if __name__ == "__main__":
    waits(Path(sys.argv[1])) if sys.argv[2:] == ["waits"] else main(Path(sys.argv[1]))
