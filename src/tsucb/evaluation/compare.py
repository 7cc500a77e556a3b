"""Would another agent have done better on this log? Whole configurations, compared.

Two ways, the same for all configurations of a comparison. *Replay*, where the log tried every arm
often enough: the configuration plays through the log and learns from the decisions at which it
picks what was logged, as if it had been live for so many decisions. *Doubly robust* otherwise: at
every decision the configuration knows all rewards that had come by then, whatever arm was played,
and is asked what it would choose. That is the value of its choices given this knowledge, not of a
life of its own; what it would have learned from its own choices cannot be read off another's log.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.checks import whole_number
from tsucb.evaluation.candidates import Candidate, candidate, predictions, reads_arms
from tsucb.evaluation.settings import Settings, read_settings
from tsucb.extras import require
from tsucb.logs.decisions import Decisions, from_decision_log, from_table, read_decisions
from tsucb.logs.estimators import Estimate, difference, doubly_robust
from tsucb.logs.replay import replay, untried
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import NORMAL, mean_interval

if TYPE_CHECKING:
    import pandas as pd

REPLAY, ROBUST = "replay", "doubly robust"
LOGGED = "as logged"
LEAST_REPLAYED = 500  # decisions that replay must be expected to keep


@dataclass(frozen=True, eq=False)
class Comparison:
    """What configurations would have earned on a log.

    Parameters
    ----------
    decisions : how many the log has
    method : "replay" or "doubly robust"
    values : of each configuration, and of "as logged" first, the mean reward of a decision
    differences : of each configuration to "as logged", and of each later one to each earlier one
    terms : (N,) of each, what every decision contributes: their means are the values
    time : (N,) of the decisions
    kept : with replay, how many decisions each configuration's value rests on
    """

    decisions: int
    method: str
    values: dict[str, Estimate]
    differences: dict[tuple[str, str], Estimate]
    terms: dict[str, Floats]
    time: Floats
    kept: dict[str, int]

    def table(self) -> "pd.DataFrame":
        """One row per configuration: its value, and the difference to what was logged."""
        require("tables", "pandas")
        import pandas as pd

        rows = []
        for name, found in self.values.items():
            row: dict[str, Any] = {
                "configuration": name,
                "reward": found.value,
                "low": found.low,
                "high": found.high,
                "effective_size": found.effective_size,
                "uncovered": found.uncovered,
                "largest_weight": found.largest_weight,
            }
            lift = self.differences.get((name, LOGGED))
            if lift is not None:
                row |= {"extra": lift.value, "extra_low": lift.low, "extra_high": lift.high}
            rows.append({**row, "reason": found.reason})
        return pd.DataFrame(rows)

    def pairs(self) -> "pd.DataFrame":
        """One row per pair: how much more the first earns than the second, paired by decision."""
        require("tables", "pandas")
        import pandas as pd

        rows = [
            {"first": a, "second": b, "extra": d.value, "low": d.low, "high": d.high,
             "verdict": verdict(d), "reason": d.reason}
            for (a, b), d in self.differences.items()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def reasons(self) -> list[str]:
        """A sentence for each value, and each difference of two values, that has no interval."""
        found = [f"{name}: {each.reason}." for name, each in self.values.items() if each.reason]
        for (first, second), each in self.differences.items():
            if each.reason and self.values[first].trusted and self.values[second].trusted:
                found.append(f"{first} against {second}: {each.reason}.")
        return found

    def report(self, path: str | os.PathLike[str], title: str = "Agents compared on a log") -> None:
        """Write a page with tables and a figure over time, to look at in a browser."""
        from tsucb.evaluation.comparison_page import comparison_page

        comparison_page(self, Path(path), title)


def verdict(found: Estimate) -> str:
    """What a difference says.

    >>> verdict(Estimate(0.2, 0.05, 0.1, 0.3, 100, 200)), verdict(Estimate(0.1, 1, -1, 2, 9, 90))
    ('better', 'cannot tell')
    """
    if not found.trusted and not found.bounded:
        return "the log cannot say"
    return "better" if found.low > 0 else "worse" if found.high < 0 else "cannot tell"


def compare(
    log: Any,
    agents: Mapping[str, Settings | str | os.PathLike[str]],
    *,
    missing: float | str | None = None,
    method: str = "auto",
    rewards_between: tuple[float, float] | None = None,
    draws: int = 10,
    seed: int = 0,
    **columns: Any,
) -> Comparison:
    """Compare whole configurations of agents on a log.

    Parameters
    ----------
    log
        The path of a decision log or of a table; a data frame; or `Decisions`.
    agents
        Names and settings: mappings with some of `Agent`'s arguments (policy, model, features,
        forgetting, exploration, categories, transformer), or paths of TOML files. An empty mapping
        is the agent's defaults.
    missing
        What decisions without a reward earned: a number, "drop" to leave them out, or "recent" to
        leave out all that are too young to have one (see `Decisions.rewarded`).
    method
        "replay", "doubly robust", or "auto": replay if it can be expected to keep 500 decisions.
    rewards_between
        The least and the largest possible reward, for bounds where there is no interval; 0 and 1
        where the log has no other rewards.
    draws
        How often a configuration is asked at every decision what it would choose, as many policies
        choose at random.
    seed
        Of these draws.
    columns
        For tables of your own: arm, reward, contexts, available, propensity, uniform as in
        `tsucb.logs.read_decisions`.

    >>> import numpy as np, pandas as pd, tsucb
    >>> rng = np.random.default_rng(0)
    >>> arm, age = rng.choice(["tea", "milk"], size=4_000), rng.integers(5, 60, size=4_000)
    >>> bought = rng.random(4_000) < np.where((arm == "tea") == (age > 30), 0.5, 0.2)
    >>> log = pd.DataFrame({"arm": arm, "reward": bought.astype(float), "age": age})
    >>> agents = {"default": {}, "no context": {"model": "BernoulliArms"}}
    >>> found = compare(log, agents, uniform=True)
    >>> found.method, found.differences["default", "as logged"].low > 0
    ('replay', True)
    """
    whole_number("draws", draws)
    if method not in ("auto", REPLAY, ROBUST):
        raise ValueError(f"method is auto, {REPLAY!r} or {ROBUST!r}, not {method!r}")
    if not isinstance(agents, Mapping) or not agents:
        raise ValueError("give the agents to compare: a mapping of names to settings")
    if LOGGED in agents:
        raise ValueError(f"{LOGGED!r} is the name of what the log holds; give another")
    settings = {
        str(name): dict(each) if isinstance(each, Mapping) else read_settings(each)
        for name, each in agents.items()
    }
    decisions = as_decisions(log, columns).rewarded(missing)
    if len(decisions) < 2:
        raise ValueError("a log of one decision says nothing; give a longer one")
    if method == REPLAY and any(map(reads_arms, settings.values())):
        raise ValueError("a replay does not read features of arms; compare by 'doubly robust'")
    if method == "auto" and decisions.arm_features is not None:
        method = ROBUST
    if method == "auto":
        replayed = len(decisions) * float(decisions.propensity.min())
        whole = untried(decisions.propensity, decisions.offered.sum(axis=1)) == 0.0
        method = REPLAY if replayed >= LEAST_REPLAYED and whole else ROBUST
    if method == REPLAY:
        return by_replay(decisions, settings, seed)
    if rewards_between is None and np.isin(decisions.reward, (0.0, 1.0)).all():
        rewards_between = (0.0, 1.0)
    return by_estimates(decisions, settings, draws, seed, rewards_between)


def as_decisions(log: Any, columns: dict[str, Any]) -> Decisions:
    """Decisions from whatever holds them."""
    if isinstance(log, Decisions):
        if columns:
            raise TypeError(f"decisions have no columns to name, such as {next(iter(columns))}")
        return log
    if isinstance(log, str | os.PathLike):
        return read_decisions(log, **columns)
    if hasattr(log, "to_pandas"):
        log = log.to_pandas()
    if not hasattr(log, "columns"):
        raise TypeError(f"a log is a path, a data frame or Decisions, not {type(log).__name__}")
    if log.empty:
        raise ValueError("the table holds no decisions, only columns")
    if {"probabilities", "arms", "propensity", "context"} <= set(log.columns):
        return from_decision_log(log)
    return from_table(log, **columns)


def by_estimates(
    decisions: Decisions,
    settings: Mapping[str, Settings],
    draws: int,
    seed: int,
    between: tuple[float, float] | None,
) -> Comparison:
    """The comparison by doubly robust estimates."""
    arm, reward = decisions.arm, decisions.reward
    whole = decisions.probabilities
    propensity = decisions.propensity if whole is None else whole
    guess = predictions(decisions)
    rows = np.arange(len(arm))
    values = {LOGGED: logged_estimate(reward)}
    terms = {LOGGED: reward}
    targets: dict[str, Floats] = {}
    differences: dict[tuple[str, str], Estimate] = {}
    for name, each in settings.items():
        target = candidate(each, decisions, seed).choices(draws)
        log = (arm, reward, propensity, target)
        values[name] = doubly_robust(*log, guess, rewards_between=between)
        weight = target[rows, arm] / decisions.propensity
        terms[name] = (target * guess).sum(axis=1) + weight * (reward - guess[rows, arm])
        differences[name, LOGGED] = difference(*log, None, guess, rewards_between=between)
        for other, before in targets.items():
            differences[name, other] = difference(*log, before, guess, rewards_between=between)
        targets[name] = target
    return Comparison(
        len(arm), ROBUST, values, differences, terms, decisions.time, dict.fromkeys(settings, 0)
    )


def by_replay(decisions: Decisions, settings: Mapping[str, Settings], seed: int) -> Comparison:
    """The comparison by replay."""
    n, reward = len(decisions), decisions.reward
    values = {LOGGED: logged_estimate(reward)}
    terms, kept = {LOGGED: reward}, {}
    differences: dict[tuple[str, str], Estimate] = {}
    for name, each in settings.items():
        played = Candidate(each, decisions, seed)
        found = replay(played.events, played.model, played.policy, seed=seed)
        size = found.kept.size
        kept[name] = size
        error = (found.high - found.low) / (2 * NORMAL)
        values[name] = Estimate(
            found.rate, error, found.low, found.high, float(size), n, 0.0, n / size
        )
        # To first order the rate is the mean of these; differences of them are paired.
        influence = np.full(n, found.rate)
        influence[found.kept] += (reward[found.kept] - found.rate) * n / size
        for other, before in terms.items():
            differences[name, other] = paired(influence, before, size)
        terms[name] = influence
    return Comparison(n, REPLAY, values, differences, terms, decisions.time, kept)


def paired(first: Floats, second: Floats, size: int) -> Estimate:
    """The mean of a difference, decision by decision."""
    value, error, low, high = mean_interval(first - second)
    return Estimate(value, error, low, high, float(size), first.size)


def logged_estimate(reward: Floats) -> Estimate:
    """What the log itself earned."""
    value, error, low, high = mean_interval(reward)
    return Estimate(value, error, low, high, float(reward.size), reward.size)


def cumulative(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """What the first earned more than the second up to every decision, and half a 95 % band."""
    extra = first - second
    mean = np.cumsum(extra) / np.arange(1, extra.size + 1)
    spread = np.sqrt(np.maximum(np.cumsum(extra**2) - np.arange(1, extra.size + 1) * mean**2, 0.0))
    total: Floats = np.cumsum(extra)
    band: Floats = NORMAL * spread
    return total, np.where(np.arange(extra.size) < 30, math.nan, band)
